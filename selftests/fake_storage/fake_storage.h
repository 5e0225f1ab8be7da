/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The user interface of fake_storage, a storage driver with nvidia-fs hooks and a disk in RAM.
 *
 * The disk: a PCI function that is bound to the driver `fake_storage` (by driver_override) lends
 * its device to /dev/fake_storage<N>. What "DMA" there is a worker does, with the bus addresses
 * that the table gave. Module parameters tell what the disk does with the table.
 *
 * Direct calls: each open of /dev/fake_storage_control has an sg list and a request of its own,
 * made by BUILD from user memory, and CALL calls one function of a table with them. Only root can
 * open it: wrong arguments reach the table as they are.
 */
#ifndef FAKE_STORAGE_H
#define FAKE_STORAGE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "../../include/nvfs_dma_ops.h"

/* Which table; also the values of the parameter `table`. */
enum fake_storage_table {
	FAKE_STORAGE_NONE,	/* the disk copies by the CPU */
	FAKE_STORAGE_NVME,	/* v1 as nvme_rdma gets it */
	FAKE_STORAGE_PLAIN,	/* v1 as rpcrdma gets it */
	FAKE_STORAGE_V2,	/* v2 as nvme gets it; needs fake_nvme_v2.ko */
	FAKE_STORAGE_NR_TABLES,
};

/* Part of user memory. */
struct fake_storage_piece {
	__u64 addr;		/* 0: an entry of the list that has no page */
	__u64 len;
};

#define FAKE_STORAGE_MAX_PIECES	256

/* fake_storage_build.op */
enum fake_storage_op {
	FAKE_STORAGE_READ,
	FAKE_STORAGE_WRITE,
	FAKE_STORAGE_DRV_IN,	/* a command that is neither */
	FAKE_STORAGE_SPECIAL,	/* a discard with a payload of its own, of the first page */
	FAKE_STORAGE_NO_BIO,	/* READ without data */
};

/* fake_storage_build.flags */
#define FAKE_STORAGE_FILL	1	/* the list has the pieces' pages; else it is empty */
#define FAKE_STORAGE_BIO_EACH	2	/* a bio for each piece; else as few as possible */
#define FAKE_STORAGE_INTEGRITY	4	/* the request has integrity data */
#define FAKE_STORAGE_CHAINED	8	/* the list is chained after each 8th element */
#define FAKE_STORAGE_BY_ITSELF	16	/* not a transfer's: what a process reads or writes by itself */

/* Replaces list and request. Nothing of the old ones may be mapped. */
struct fake_storage_build {
	__u64 pieces;		/* in: user address of the pieces */
	__u32 nr;
	__u32 op;
	__u32 flags;
	__u32 room;		/* in: initialised entries of an empty list, 0: phys_segments */
	__u32 max_entry;	/* in: the longest entry of a filled list, in bytes; 0: no limit */
	__u32 phys_segments;	/* in, out: what the request says it has; in 0: what it has */
	__u32 entries;		/* out: of a filled list */
	__u32 reserved;
};

enum fake_storage_function {
	FAKE_STORAGE_BLK_RQ_MAP_SG,
	FAKE_STORAGE_MAP_SG,
	FAKE_STORAGE_UNMAP_SG,
	FAKE_STORAGE_IS_GPU_PAGE,
	FAKE_STORAGE_GPU_INDEX,
	FAKE_STORAGE_DEVICE_PRIORITY,
	FAKE_STORAGE_RDMA_INFO,
	FAKE_STORAGE_ITER_START,
	FAKE_STORAGE_ITER_NEXT,
	FAKE_STORAGE_UNMAP_PAGE,
	FAKE_STORAGE_FEATURES,
};

/* fake_storage_call.without: arguments that are passed as NULL */
#define FAKE_STORAGE_QUEUE	0x01
#define FAKE_STORAGE_REQUEST	0x02
#define FAKE_STORAGE_LIST	0x04
#define FAKE_STORAGE_COOKIE	0x08	/* of UNMAP_PAGE; of ITER_START the place for it */
#define FAKE_STORAGE_RECORD	0x10
#define FAKE_STORAGE_PAGE	0x20
#define FAKE_STORAGE_BIO	0x40	/* the request's first bio */

/* fake_storage_call.dev, besides domain << 32 | bus << 8 | devfn */
#define FAKE_STORAGE_DEV_NULL		0
#define FAKE_STORAGE_DEV_NOT_PCI	1

/* fake_storage_call.touched */
#define FAKE_STORAGE_LIST_TOUCHED	1
#define FAKE_STORAGE_ITER_TOUCHED	2
#define FAKE_STORAGE_STATE_TOUCHED	4
#define FAKE_STORAGE_RECORD_TOUCHED	8
#define FAKE_STORAGE_ROOM_TOUCHED	16	/* entries that the list has */

struct fake_storage_segment {
	__u64 addr;		/* bus address */
	__u32 len;
	__u32 offset;		/* of an entry in its page */
};

struct fake_storage_call {
	__u32 table;
	__u32 function;
	__u64 dev;
	__u32 without;
	__u32 irq;		/* not 0: call it in a hard interrupt */
	__s32 nents;
	__u32 index;		/* of the page among all pinned ones; or the GPU index */
	__s64 result;		/* out */
	__s32 status;		/* out: iter->status as a negative errno */
	__u32 touched;		/* out: what the call changed */
	__u32 nr;		/* out: segments, of the list (1, 2) or the iterator (v2: 1) */
	__u32 phys_segments;	/* out: the request's count after the call */
	struct nvfs_rdma_info info;	/* in, out */
	struct fake_storage_segment segment[NVFS_MAX_SG_ENTRIES];
};

/*
 * Requests of all disks are held from the next one on, at one of these places, until the next HOLD
 * or the last close of the file that said so.
 */
enum fake_storage_hold {
	FAKE_STORAGE_RUN,	/* all that are held go on */
	FAKE_STORAGE_UNMAPPED,	/* before the table is called */
	FAKE_STORAGE_MAPPED,	/* before data moves */
	FAKE_STORAGE_MOVED,	/* before it is unmapped */
};

/* How often, since the module was loaded. */
struct fake_storage_counts {
	__u64 requests;
	__u64 cpu;		/* went the CPU way */
	__u64 gpu;		/* mapped, once for each time */
	__u64 segments;
	__u64 refused;		/* the table said error */
	__u64 failed;		/* on purpose */
	__u64 requeued;		/* on purpose */
	__u64 late;		/* unmapped in a hard interrupt */
	__u64 stray;		/* bus addresses outside of every GPU: nothing was copied there */
	__u64 broken;		/* the table broke its contract; each also a line in the log */
	__u32 registered[FAKE_STORAGE_NR_TABLES];
	__u32 in_flight[FAKE_STORAGE_NR_TABLES];
};

#define FAKE_STORAGE_BUILD	_IOWR('S', 1, struct fake_storage_build)
#define FAKE_STORAGE_CALL	_IOWR('S', 2, struct fake_storage_call)
#define FAKE_STORAGE_HOLD	_IOW('S', 3, __u32)
#define FAKE_STORAGE_WAIT_HELD	_IOW('S', 4, __u32)	/* until so many are held, or 10 s */
#define FAKE_STORAGE_COUNTS	_IOR('S', 5, struct fake_storage_counts)

#endif /* FAKE_STORAGE_H */
