/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The ioctls of /dev/nvidia-fs<N>, as libcufile.so speaks them.
 *
 * Every request passes a pointer to union nvfs_ioctl_arg; the kernel reads all of it before it
 * looks at the request number. READ, WRITE and MAP fail with errno EPERM and leave the reason, a
 * negative errno, in `ioctl_return`, which is at the same offset in all three.
 */
#ifndef NVFS_IOCTL_H
#define NVFS_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define NVFS_BLOCK_SIZE		4096	/* unit of sbuf_block and of the hole table */
#define NVFS_GPU_PAGE_SIZE	65536
#define NVFS_MAX_SHADOW_BYTES	(16 << 20)
#define NVFS_MAX_BATCH		256
#define NVFS_MAX_HOLES		768

#define NVFS_PACKED		__attribute__((packed, aligned(8)))

struct nvfs_ioctl_map {
	__s64 size;			/* bytes of GPU memory */
	__u64 pdevinfo;			/* domain << 32 | bus << 8 | devfn of the GPU */
	__u64 cpuvaddr;			/* shadow buffer: start of its mapping */
	__u64 gpuvaddr;
	union {
		__u64 end_fence_addr;	/* in: the meta block, struct nvfs_meta */
		__s64 ioctl_return;	/* out, on failure */
	};
	__u32 sbuf_block;		/* length of the shadow buffer in blocks */
	__u16 is_bounce_buffer;
	__u8 padding[2];
} NVFS_PACKED;

struct nvfs_file_args {
	__u64 inum;			/* st_ino */
	__u32 generation;		/* 0: not checked */
	__u32 majdev;			/* of the file system, or of the block special file */
	__u32 mindev;
	__u64 devptroff;		/* bytes into the GPU buffer; at offset 20 */
} NVFS_PACKED;

/* Bits of nvfs_ioctl_io.flags. */
#define NVFS_IO_SYNC		0x01
#define NVFS_IO_HIPRI		0x02
#define NVFS_IO_ALLOWREADS	0x04
#define NVFS_IO_USE_RKEYS	0x08
#define NVFS_IO_OPTYPE_SHIFT	4	/* three bits, batch entries only: 0 READ, 1 WRITE */

struct nvfs_ioctl_io {
	__u64 cpuvaddr;
	__s64 offset;			/* in the file, bytes */
	__u64 size;			/* bytes */
	__u64 end_fence_value;		/* async: stored in the meta block at completion */
	__s64 ioctl_return;		/* out: bytes done, or a negative errno */
	struct nvfs_file_args file;
	__s32 fd;
	__u8 flags;
	__u8 padding[3];
} NVFS_PACKED;

struct nvfs_ioctl_batch {
	__u64 ctx_id;
	__u64 nents;
	struct nvfs_ioctl_io *io_entries;
} NVFS_PACKED;

struct nvfs_ioctl_set_rdma {
	__u64 cpuvaddr;
	__u64 gid[2];
	__u32 qp_num;
	__u16 lid;
	__u8 flags;
	__u8 version;
	__u32 dc_key;
	__u32 rkey[16];
	__u32 nkeys;
} NVFS_PACKED;

struct nvfs_rdma_info {
	__u8 version;
	__u8 flags;
	__u16 lid;
	__u32 qp_num;
	__u64 rem_vaddr;
	__u32 size;
	__u32 rkey;
	__u64 gid[2];
	__u32 dc_key;
};

struct nvfs_ioctl_get_rdma {
	__u64 cpuvaddr;
	__u64 gpu_buf_offset;
	struct nvfs_rdma_info info;
} NVFS_PACKED;

struct nvfs_ioctl_clear_rdma {
	__u64 cpuvaddr;
} NVFS_PACKED;

union nvfs_ioctl_arg {
	struct nvfs_ioctl_map map;
	struct nvfs_ioctl_io io;
	struct nvfs_ioctl_batch batch;
	struct nvfs_ioctl_set_rdma set_rdma;
	struct nvfs_ioctl_get_rdma get_rdma;
	struct nvfs_ioctl_clear_rdma clear_rdma;
};

/* The size field is 4 whatever the argument is. */
#define NVFS_IOCTL_MAGIC	't'
#define NVFS_IOCTL_REMOVE		_IOW(NVFS_IOCTL_MAGIC, 1, int)
#define NVFS_IOCTL_READ			_IOW(NVFS_IOCTL_MAGIC, 2, int)
#define NVFS_IOCTL_MAP			_IOW(NVFS_IOCTL_MAGIC, 3, int)
#define NVFS_IOCTL_WRITE		_IOW(NVFS_IOCTL_MAGIC, 4, int)
#define NVFS_IOCTL_SET_RDMA_REG_INFO	_IOW(NVFS_IOCTL_MAGIC, 5, int)
#define NVFS_IOCTL_GET_RDMA_REG_INFO	_IOW(NVFS_IOCTL_MAGIC, 6, int)
#define NVFS_IOCTL_CLEAR_RDMA_REG_INFO	_IOW(NVFS_IOCTL_MAGIC, 7, int)
#define NVFS_IOCTL_BATCH_IO		_IOW(NVFS_IOCTL_MAGIC, 8, int)

/* nvfs_meta.state */
#define NVFS_META_CLEAN		0
#define NVFS_META_SPARSE	1
#define NVFS_META_DIED		2

#define NVFS_HOLE_MAGIC		0xabc0cba1abc2cba3ULL
#define NVFS_HOLE_VERSION	1

struct nvfs_hole {
	__u16 start;			/* blocks from start_fd_offset */
	__u16 npages;			/* blocks */
};

/* The 4096 bytes at end_fence_addr. end_fence_val is stored last. */
struct nvfs_meta {
	__u64 end_fence_val;
	__s64 result;
	__u32 state;
	__u32 reserved;
	__u64 hole_magic;
	__u32 hole_version;
	__u32 nholes;
	__s64 start_fd_offset;
	struct nvfs_hole hole[NVFS_MAX_HOLES];
};

#endif /* NVFS_IOCTL_H */
