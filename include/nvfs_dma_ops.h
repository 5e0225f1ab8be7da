/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What nvidia-fs offers to a storage driver, as tables of functions, and the pair of functions by
 * which such a driver takes a table.
 *
 * A driver exports the pair for GPL modules, since nvidia-fs finds it by name at run time:
 *
 *	int  NVFS_REGISTER(PREFIX)(struct nvfs_dma_ops_v1 *ops);
 *	void NVFS_UNREGISTER(PREFIX)(void);
 *
 * Register returns 0 to accept the table, which then stays at its address until unregister, or a
 * negative errno to refuse it, for instance because `features` lacks a bit. Unregister is called in
 * process context and returns when no call into the table is under way and none will follow. Both
 * are called whenever nvidia-fs gains its first or loses its last user.
 *
 *	PREFIX			table
 *	nvme_v2			v2
 *	nvme_rdma_v1, sfxv_v1,	v1
 *	nvmesh_v1, lustre_v1,
 *	beegfs_v1, ibm_scale_v1,
 *	rpcrdma, scatefs
 *
 * SCSI's v1 pair is scsi_v1_register_dma_scsi_ops and scsi_v1_unregister_dma_scsi_ops.
 */
#ifndef NVFS_DMA_OPS_H
#define NVFS_DMA_OPS_H

#include "nvfs_ioctl.h"

#define NVFS_REGISTER(prefix)	prefix##_register_nvfs_dma_ops
#define NVFS_UNREGISTER(prefix)	prefix##_unregister_nvfs_dma_ops

/* Bits of `features`: what a table is good for. */
#define NVFS_FEATURE_SGLIST_PREP	0x01	/* v1: blk_rq_map_sg */
#define NVFS_FEATURE_SGLIST_DMA		0x02	/* v1: map_sg, unmap_sg */
#define NVFS_FEATURE_IS_GPU_PAGE	0x04
#define NVFS_FEATURE_DEVICE_PRIORITY	0x08
#define NVFS_FEATURE_RDMA_INFO		0x10
#define NVFS_FEATURE_ITER_START		0x20	/* v2 */
#define NVFS_FEATURE_ITER_NEXT		0x40	/* v2 */

#define NVFS_FEATURES_V1		0x1f
#define NVFS_FEATURES_V2		0x6c

/* Results of the functions that return int, besides counts. */
#define NVFS_IO_ERROR		(-1)	/* GPU pages, and it cannot be done: fail the request */
#define NVFS_NOT_GPU		(-2)	/* CPU pages: go on as if nvidia-fs were not there */

/* Result of gpu_index and device_priority. */
#define NVFS_NO_INDEX		0xffffffffu

/* The most data that one request can have, and the entries of a driver's sg list. */
#define NVFS_MAX_REQUEST_BYTES	8323072
#define NVFS_MAX_SG_ENTRIES	127

#ifdef __KERNEL__

#include <linux/build_bug.h>
#include <linux/dma-direction.h>
#include <linux/stddef.h>
#include <linux/types.h>

struct blk_dma_iter;
struct device;
struct dma_iova_state;
struct page;
struct request;
struct request_queue;
struct scatterlist;

/*
 * The functions of both tables. Some names are shorter than those of the kernel's functions that they
 * stand for: these are macros.
 *
 * is_gpu_page		whether a page belongs to a shadow buffer; any context
 * gpu_index		a number for the GPU behind a page; any context
 * device_priority	how far `dev`, a PCI function, is from that GPU: the smaller the better; any
 *			context
 * get_gpu_sglist_rdma_info	fills the record for a remote peer that is to access the GPU memory
 *			behind an sg list: `nents`, NVFS_IO_ERROR or NVFS_NOT_GPU; process context.
 *			NULL when nvidia-fs was built without RDMA
 */

/* Requests as sg lists. */
struct nvfs_dma_ops_v1 {
	u64 features;

	/*
	 * Fills the list of a request: the number of entries, 0 (CPU pages; the list is untouched)
	 * or NVFS_IO_ERROR. The list must have room for NVFS_MAX_SG_ENTRIES entries. In dispatch
	 * context; does not sleep.
	 */
	int (*blk_rq_map_sg)(struct request_queue *q, struct request *req, struct scatterlist *sgl);

	/*
	 * Sets the DMA address and length of all entries: `nents`, NVFS_IO_ERROR or NVFS_NOT_GPU.
	 * Nothing needs to be unmapped after a failure.
	 */
	int (*map_sg)(struct device *dev, struct scatterlist *sgl, int nents,
		      enum dma_data_direction dir, unsigned long attrs);

	/*
	 * Undoes map_sg: the number of entries undone; 0 when none has GPU pages, so that
	 * the caller has to unmap the list itself; NVFS_IO_ERROR for a mixed list. After a failed
	 * map_sg it undoes nothing and returns `nents`. Any context.
	 */
	int (*unmap_sg)(struct device *dev, struct scatterlist *sgl, int nents,
			enum dma_data_direction dir);

	bool (*is_gpu_page)(struct page *page);
	unsigned int (*gpu_index)(struct page *page);
	unsigned int (*device_priority)(struct device *dev, unsigned int gpu_index);
	int (*get_gpu_sglist_rdma_info)(struct scatterlist *sgl, int nents,
					struct nvfs_rdma_info *info);
};

/* Requests by the block layer's DMA iterator. */
struct nvfs_dma_ops_v2 {
	u64 features;

	/*
	 * The first segment of a request, and the next one. 1: a segment, in iter->addr and
	 * iter->len. 0: none, because of CPU pages (start), because there is no more (next), or
	 * because it failed; iter->status tells, BLK_STS_OK or not. Start needs no part of `iter`
	 * or `state` initialised, and stores in *cookie what each segment is unmapped with. In
	 * dispatch context; neither sleeps.
	 */
	int (*blk_rq_dma_map_iter_start)(struct request *req, struct device *dev,
					 struct dma_iova_state *state, struct blk_dma_iter *iter,
					 void **cookie);
	int (*blk_rq_dma_map_iter_next)(struct request *req, struct device *dev,
					struct dma_iova_state *state, struct blk_dma_iter *iter);

	/*
	 * Undoes one segment: 0, or NVFS_IO_ERROR when `cookie` is NULL. Call it once for each, when
	 * the last one was made; the other arguments do not matter. Any context.
	 */
	int (*unmap_page)(struct device *dev, void *cookie, dma_addr_t addr, size_t size,
			  enum dma_data_direction dir);

	bool (*is_gpu_page)(struct page *page);
	unsigned int (*gpu_index)(struct page *page);
	unsigned int (*device_priority)(struct device *dev, unsigned int gpu_index);
	int (*get_gpu_sglist_rdma_info)(struct scatterlist *sgl, int nents,
					struct nvfs_rdma_info *info);
};

#ifdef CONFIG_64BIT
static_assert(sizeof(struct nvfs_dma_ops_v1) == 64);
static_assert(sizeof(struct nvfs_dma_ops_v2) == 64);
static_assert(offsetof(struct nvfs_dma_ops_v1, unmap_sg) == 24);
static_assert(offsetof(struct nvfs_dma_ops_v2, unmap_page) == 24);
static_assert(offsetof(struct nvfs_dma_ops_v1, get_gpu_sglist_rdma_info) == 56);
static_assert(offsetof(struct nvfs_dma_ops_v2, get_gpu_sglist_rdma_info) == 56);
static_assert(sizeof(struct nvfs_rdma_info) == 48);
#endif

#endif /* __KERNEL__ */

#endif /* NVFS_DMA_OPS_H */
