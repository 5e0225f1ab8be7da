/* SPDX-License-Identifier: GPL-2.0 */
/* Between the NVMe driver and hook.c; hook.cocci puts the calls in. */
#ifndef NVME_HOOK_H
#define NVME_HOOK_H

#include <linux/blk_types.h>

struct blk_dma_iter;
struct device;
struct dma_iova_state;
struct nvfs_dma_ops_v2;
struct request;

/* Part of struct nvme_iod. */
struct nvme_hook {
	struct nvfs_dma_ops_v2 *ops;
	void *cookie;
	unsigned int segments;	/* handed out and not yet unmapped; 0: a request of CPU pages */
};

blk_status_t nvme_hook_start(struct nvme_hook *hook, struct request *req, struct device *dev,
			     struct dma_iova_state *state, struct blk_dma_iter *iter);
bool nvme_hook_next(struct nvme_hook *hook, struct request *req, struct device *dev,
		    struct dma_iova_state *state, struct blk_dma_iter *iter);
void nvme_hook_unmap(struct nvme_hook *hook, struct request *req, struct device *dev);
void nvme_hook_init(void);
void nvme_hook_exit(void);

#endif /* NVME_HOOK_H */
