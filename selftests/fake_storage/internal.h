/* SPDX-License-Identifier: GPL-2.0 */
#ifndef INTERNAL_H
#define INTERNAL_H

#include <linux/atomic.h>
#include <linux/blk-mq.h>
#include <linux/blk-mq-dma.h>
#include <linux/hrtimer.h>
#include <linux/scatterlist.h>
#include <linux/xarray.h>

#include "fake_storage.h"

#define POISON	0xa5	/* fills what may be undefined when a table is called */

extern struct counts {
	atomic64_t requests, cpu, gpu, segments, refused, failed, requeued, late, stray, broken;
} counts;

#define broken(fmt, ...)						\
	do {								\
		atomic64_inc(&counts.broken);				\
		pr_err("fake_storage: " fmt "\n", ##__VA_ARGS__);	\
	} while (0)

/*
 * vendor.c: the tables. vendor_get gives a table, or NULL, and holds off unregister until as many
 * vendor_put; any context.
 */
void *vendor_get(enum fake_storage_table table);
void vendor_put(enum fake_storage_table table);
void vendor_state(struct fake_storage_counts *to);
int fake_storage_register(enum fake_storage_table table, void *ops);
void fake_storage_unregister(enum fake_storage_table table);

/* store.c: bytes of a disk, 0 where nothing was written. All may sleep. */
struct store {
	struct xarray pages;
};

int store_gpus_find(void);
void store_gpus_forget(void);
void store_init(struct store *store);
void store_destroy(struct store *store);
int store_copy(struct store *store, u64 at, void *buf, size_t len, bool write);
/* By bus address, as the device would: -EFAULT when no GPU is there. */
int store_dma(struct store *store, u64 at, struct device *dev, dma_addr_t bus, size_t len,
	      bool write);

/*
 * mapping.c: one request as a table mapped it. It outlives the request, for drivers that unmap
 * late.
 */
struct mapping {
	enum fake_storage_table table;
	void *ops;
	struct device *dev;
	enum dma_data_direction dir;
	unsigned int nr;
	struct fake_storage_segment segment[256];
	/* v1 */
	struct scatterlist sgl[NVFS_MAX_SG_ENTRIES];
	/* v2 */
	struct dma_iova_state state;
	void *cookie;
	/* Unmaps, and ends the request if there is one. */
	struct hrtimer timer;
	struct request *rq;
	blk_status_t status;
};

/* How a disk uses a table: the module's parameters. */
extern unsigned int use_table, fail_every;
extern bool ignore_status, unmap_failed;

/*
 * mapping_make: BLK_STS_OK with *mapping NULL: CPU pages, or no table. In dispatch context.
 * mapping_unmap: and frees it; any context. mapping_wait: until there is none; sleeps.
 * mapping_exit: before the module goes.
 */
blk_status_t mapping_make(struct request *rq, struct device *dev, struct mapping **mapping);
void mapping_unmap(struct mapping *mapping);
void mapping_wait(void);
void mapping_exit(void);

/* disk.c */
int disks_init(void);
void disks_exit(void);
void disks_hold(enum fake_storage_hold where);
int disks_wait_held(unsigned int n);

/* client.c */
int client_init(void);
void client_exit(void);

#endif /* INTERNAL_H */
