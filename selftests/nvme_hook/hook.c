// SPDX-License-Identifier: GPL-2.0
/*
 * nvidia-fs hooks for the kernel's NVMe driver: a request without integrity data is first offered
 * to the registered table, and takes the usual path when the table does not want it.
 *
 * Whatever may be undefined when the table is called is filled with 0xa5 here.
 */
#include <linux/atomic.h>
#include <linux/blk-integrity.h>
#include <linux/blk-mq-dma.h>
#include <linux/blk-mq.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/string.h>

#include "hook.h"
#include "nvfs_dma_ops.h"

#define POISON	0xa5

static bool ignore_status;
module_param_named(nvfs_ignore_status, ignore_status, bool, 0644);
MODULE_PARM_DESC(nvfs_ignore_status,
		 "take a failed iter_start for a request of CPU pages, as OFED's driver does");

static struct nvfs_dma_ops_v2 *ops;
/* Calls, and requests with segments, that unregister waits for. */
static atomic_t in_flight;

static struct {
	atomic_t registered, starts, gpu, cpu, failed, segments, unmapped;
} counts;
static struct dentry *dir;

static struct nvfs_dma_ops_v2 *get_ops(void)
{
	struct nvfs_dma_ops_v2 *table;

	atomic_inc(&in_flight);
	/* Pairs with the barrier in unregister: it sees the count, or we see no table. */
	smp_mb__after_atomic();
	table = READ_ONCE(ops);
	if (!table)
		atomic_dec(&in_flight);
	return table;
}

static void put_ops(void)
{
	atomic_dec(&in_flight);
}

/*
 * Not BLK_STS_OK: the request failed. Else, with hook->segments set, `iter` has the first segment;
 * without, the request is to be mapped as usual.
 */
blk_status_t nvme_hook_start(struct nvme_hook *hook, struct request *req, struct device *dev,
			     struct dma_iova_state *state, struct blk_dma_iter *iter)
{
	struct nvfs_dma_ops_v2 *table;
	blk_status_t status;
	int ret;

	*hook = (struct nvme_hook) {};
	if (blk_integrity_rq(req))
		return BLK_STS_OK;
	table = get_ops();
	if (!table)
		return BLK_STS_OK;

	memset(iter, POISON, sizeof(*iter));
	memset(state, POISON, sizeof(*state));
	if (!ignore_status)
		iter->status = BLK_STS_OK;
	atomic_inc(&counts.starts);
	ret = table->blk_rq_dma_map_iter_start(req, dev, state, iter, &hook->cookie);
	if (ret > 0) {
		/* The driver's own code is to see a mapping that needs nothing of it. */
		memset(state, 0, sizeof(*state));
		memset(&iter->p2pdma, 0, sizeof(iter->p2pdma));
		iter->p2pdma.map = PCI_P2PDMA_MAP_NONE;
		hook->ops = table;
		hook->segments = 1;
		atomic_inc(&counts.gpu);
		atomic_inc(&counts.segments);
		return BLK_STS_OK;
	}

	put_ops();
	status = BLK_STS_OK;
	if (ret < 0)
		status = BLK_STS_IOERR;
	else if (!ignore_status)
		status = iter->status;
	atomic_inc(status ? &counts.failed : &counts.cpu);
	return status;
}

bool nvme_hook_next(struct nvme_hook *hook, struct request *req, struct device *dev,
		    struct dma_iova_state *state, struct blk_dma_iter *iter)
{
	int ret;

	if (!hook->segments)
		return blk_rq_dma_map_iter_next(req, dev, iter);
	/* The segments hold off unregister. */
	ret = hook->ops->blk_rq_dma_map_iter_next(req, dev, state, iter);
	if (ret < 0)
		iter->status = BLK_STS_IOERR;
	if (ret <= 0)
		return false;
	hook->segments++;
	atomic_inc(&counts.segments);
	return true;
}

/* Nothing about address and size is promised to the table. */
void nvme_hook_unmap(struct nvme_hook *hook, struct request *req, struct device *dev)
{
	for (; hook->segments; hook->segments--) {
		hook->ops->unmap_page(dev, hook->cookie, 0, 0, rq_dma_dir(req));
		atomic_inc(&counts.unmapped);
	}
	put_ops();
}

int NVFS_REGISTER(nvme_v2)(struct nvfs_dma_ops_v2 *table);
int NVFS_REGISTER(nvme_v2)(struct nvfs_dma_ops_v2 *table)
{
	const u64 needed = NVFS_FEATURE_ITER_START | NVFS_FEATURE_ITER_NEXT;

	if ((table->features & needed) != needed)
		return -EOPNOTSUPP;
	if (cmpxchg(&ops, NULL, table))
		return -EBUSY;
	atomic_inc(&counts.registered);
	return 0;
}
EXPORT_SYMBOL_GPL(nvme_v2_register_nvfs_dma_ops);

void NVFS_UNREGISTER(nvme_v2)(void);
void NVFS_UNREGISTER(nvme_v2)(void)
{
	struct nvfs_dma_ops_v2 *table = ops;

	/* Requests that have segments still call the table, through their own pointer. */
	WRITE_ONCE(ops, NULL);
	smp_mb();
	while (atomic_read(&in_flight))
		msleep(1);
	if (table)
		atomic_dec(&counts.registered);
}
EXPORT_SYMBOL_GPL(nvme_v2_unregister_nvfs_dma_ops);

/* /sys/kernel/debug/nvme_hook: what the hooks did. */
void nvme_hook_init(void)
{
	dir = debugfs_create_dir("nvme_hook", NULL);
	debugfs_create_atomic_t("registered", 0444, dir, &counts.registered);
	debugfs_create_atomic_t("in_flight", 0444, dir, &in_flight);
	debugfs_create_atomic_t("starts", 0444, dir, &counts.starts);
	debugfs_create_atomic_t("gpu", 0444, dir, &counts.gpu);
	debugfs_create_atomic_t("cpu", 0444, dir, &counts.cpu);
	debugfs_create_atomic_t("failed", 0444, dir, &counts.failed);
	debugfs_create_atomic_t("segments", 0444, dir, &counts.segments);
	debugfs_create_atomic_t("unmapped", 0444, dir, &counts.unmapped);
}

void nvme_hook_exit(void)
{
	debugfs_remove(dir);
}
