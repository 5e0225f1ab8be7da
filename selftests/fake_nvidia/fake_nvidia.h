/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The user interface of the stand-in GPU driver: a character device /dev/fake_nvidia<N> for each
 * GPU (N in PCI address order), through which a test allocates GPU virtual ranges, reads and writes
 * GPU memory, injects faults and reads the call counts.
 *
 * A range belongs to the open file that allocated it: it is freed by FAKE_NVIDIA_FREE, or at the
 * last close (so at process exit). Freeing calls the free callbacks of the legacy pins on it, waits
 * for each to return, and only then drops the pins' page tables; persistent pins keep the physical
 * pages until they are put.
 */
#ifndef FAKE_NVIDIA_H
#define FAKE_NVIDIA_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define FAKE_NVIDIA_PAGE	65536

/* fake_nvidia_alloc.flags */
#define FAKE_NVIDIA_SCRAMBLED	1	/* no two neighbouring GPU pages are neighbours in the BAR */

struct fake_nvidia_alloc {
	__u64 size;	/* in: bytes, rounded up to GPU pages */
	__u64 flags;	/* in */
	__u64 va;	/* in: wanted address (multiple of 64 KiB), or 0; out: the address given */
};

/* One extent of GPU memory in the BAR. */
struct fake_nvidia_where {
	__u64 va;	/* in: any address inside a live or still pinned range */
	__u64 bar_offset; /* out: where that byte lies in the BAR, so in the BAR's backing file */
	__u64 contiguous; /* out: bytes from there that are contiguous both in the range and the BAR */
};

struct fake_nvidia_copy {
	__u64 va;	/* GPU address, any alignment */
	__u64 buf;	/* user address */
	__u64 size;	/* bytes */
};

/* The calls that can be delayed or made to fail, and that are counted. */
enum fake_nvidia_call {
	FAKE_NVIDIA_GET_PAGES,
	FAKE_NVIDIA_PUT_PAGES,
	FAKE_NVIDIA_GET_PAGES_PERSISTENT,
	FAKE_NVIDIA_PUT_PAGES_PERSISTENT,
	FAKE_NVIDIA_DMA_MAP_PAGES,
	FAKE_NVIDIA_DMA_UNMAP_PAGES,
	FAKE_NVIDIA_FREE_PAGE_TABLE,
	FAKE_NVIDIA_FREE_DMA_MAPPING,
	FAKE_NVIDIA_NR_CALLS,
};

struct fake_nvidia_fault {
	__u32 call;	/* enum fake_nvidia_call */
	__s32 error;	/* negative errno to return, 0: none */
	__u32 after;	/* let this many calls through first */
	__u32 times;	/* then fail this many */
	__u32 delay_ms;	/* sleep so long in every call, before doing anything; 0: none */
	__u32 reserved;
};

/* What page tables made from now on look like. */
struct fake_nvidia_table {
	__u32 version;	/* 0x00010002 (40 bytes less the flags), 0x00020000, or a wrong one */
	__u32 page_size; /* 1 = 64 KiB; others are wrong on purpose */
};

/* How free callbacks come from now on: the argument of FAKE_NVIDIA_CALLBACKS. */
#define FAKE_NVIDIA_PUT_RETURNS	1	/* a put does not wait for them */
#define FAKE_NVIDIA_TWICE	2	/* two for a pin, by two threads at the same time */

struct fake_nvidia_counts {
	__u64 calls[FAKE_NVIDIA_NR_CALLS];	/* entered, whatever the outcome */
	__u64 ok[FAKE_NVIDIA_NR_CALLS];		/* returned 0 */
	__u64 callbacks;	/* free callbacks called */
	__u64 callbacks_done;	/* and returned */
	__u64 tables;		/* page tables that exist now */
	__u64 mappings;		/* DMA mappings that exist now */
	__u64 pinned_pages;	/* GPU pages under a pin now, counted once a pin */
	__u64 free_pages;	/* GPU pages of this BAR that are free now */
	__u64 misuse;		/* wrong calls: put of an unknown table, double free, use after the
				 * callback, put inside a callback; each also a line in the log */
};

struct fake_nvidia_info {
	__u64 pdevinfo;		/* domain << 32 | bus << 8 | devfn */
	__u64 bar_size;
	__u64 bar_phys;
	__u8 uuid[16];
};

/* The kernel's own peer-to-peer distance between this GPU and a PCI function. */
struct fake_nvidia_distance {
	__u64 pdevinfo;	/* in: the other function, as in fake_nvidia_info */
	__s64 distance;	/* out: what pci_p2pdma_distance() says, -1: out of reach */
};

#define FAKE_NVIDIA_ALLOC	_IOWR('G', 1, struct fake_nvidia_alloc)
#define FAKE_NVIDIA_FREE	_IOW('G', 2, __u64)	/* by va */
#define FAKE_NVIDIA_WHERE	_IOWR('G', 3, struct fake_nvidia_where)
#define FAKE_NVIDIA_READ	_IOW('G', 4, struct fake_nvidia_copy)
#define FAKE_NVIDIA_WRITE	_IOW('G', 5, struct fake_nvidia_copy)
#define FAKE_NVIDIA_FAULT	_IOW('G', 6, struct fake_nvidia_fault)
#define FAKE_NVIDIA_TABLE	_IOW('G', 7, struct fake_nvidia_table)
#define FAKE_NVIDIA_COUNTS	_IOR('G', 8, struct fake_nvidia_counts)	/* of all GPUs together,
									 * but free_pages of this */
#define FAKE_NVIDIA_INFO	_IOR('G', 9, struct fake_nvidia_info)
#define FAKE_NVIDIA_RESET	_IO('G', 10)	/* faults, table format and callbacks back
						 * to normal */

#define FAKE_NVIDIA_DISTANCE	_IOWR('G', 11, struct fake_nvidia_distance)

/*
 * An RCU reader, which ends when another call with 0 comes (then this one returns 0), or after so
 * many milliseconds (then -ETIMEDOUT). Until then no grace period ends. -EBUSY: there is one; with
 * 0: there is none.
 */
#define FAKE_NVIDIA_HOLD_RCU	_IOW('G', 12, __u64)

#define FAKE_NVIDIA_CALLBACKS	_IOW('G', 13, __u64)

#endif /* FAKE_NVIDIA_H */
