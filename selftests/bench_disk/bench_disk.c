// SPDX-License-Identifier: GPL-2.0
/*
 * A disk for counting instructions: it maps requests as NVMe does, looks where the addresses are,
 * moves nothing and is done at once. It takes P2PDMA pages, and nvidia-fs's v2 table. Every access
 * to its data is a no-op: reads leave memory as it is.
 *
 * A PCI function that is bound to the driver `bench_disk` (by driver_override) lends its device.
 */
#include <linux/blk-mq.h>
#include <linux/blk-mq-dma.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "nvfs_dma_ops.h"

static unsigned int size_gib = 8;
module_param(size_gib, uint, 0444);

static unsigned int max_kib = 1024;
module_param(max_kib, uint, 0444);
MODULE_PARM_DESC(max_kib, "the longest request");

static bool hold;
module_param(hold, bool, 0644);
MODULE_PARM_DESC(hold, "take no requests: they wait in the queue");

/* The BARs whose memory is a GPU's: QEMU's shared-memory devices. */
#define GPU_VENDOR	0x1af4
#define GPU_DEVICE	0x1110
#define GPU_BAR		2
#define MAX_GPUS	2

static struct {
	u64 start, end;
} gpus[MAX_GPUS];

/* What the requests had, in bytes and pieces. */
struct seen {
	u64 gpu, host, requests, segments;
	u64 mixed;	/* requests with both */
};
static DEFINE_PER_CPU(struct seen, seen);

static struct nvfs_dma_ops_v2 __rcu *table;

static void look_at(struct seen *seen, u64 addr, u32 len)
{
	unsigned int i;

	seen->segments++;
	for (i = 0; i < MAX_GPUS; i++) {
		if (addr >= gpus[i].start && addr + len <= gpus[i].end) {
			seen->gpu += len;
			return;
		}
	}
	seen->host += len;
}

/* Positive: mapped by the table, and unmapped; 0: not for it. */
static int by_table(struct nvfs_dma_ops_v2 *ops, struct request *rq, struct device *dev,
		    struct seen *seen)
{
	struct dma_iova_state state;
	struct blk_dma_iter iter;
	unsigned int n = 0;
	void *cookie;
	int ret;

	iter.status = BLK_STS_OK;
	ret = ops->blk_rq_dma_map_iter_start(rq, dev, &state, &iter, &cookie);
	if (ret <= 0)
		return ret ?: iter.status ? -EIO : 0;
	do {
		look_at(seen, iter.addr, iter.len);
		n++;
	} while (ops->blk_rq_dma_map_iter_next(rq, dev, &state, &iter) > 0);
	while (n--)
		ops->unmap_page(dev, cookie, 0, 0, rq_dma_dir(rq));
	return iter.status ? -EIO : 1;
}

/* DMA debug wants all to be unmapped; without it nothing is left to do, as `probe` has seen. */
static void unmap_piece(struct device *dev, const struct blk_dma_iter *iter,
			enum dma_data_direction dir)
{
	if (iter->p2pdma.map == PCI_P2PDMA_MAP_BUS_ADDR)
		return;
	dma_unmap_phys(dev, iter->addr, iter->len, dir,
		       iter->p2pdma.map == PCI_P2PDMA_MAP_THRU_HOST_BRIDGE ? DMA_ATTR_MMIO : 0);
}

static int by_kernel(struct request *rq, struct device *dev, struct seen *seen)
{
	struct dma_iova_state state;
	struct blk_dma_iter iter;

	if (!blk_rq_dma_map_iter_start(rq, dev, &state, &iter))
		return -EIO;
	do {
		look_at(seen, iter.addr, iter.len);
		if (IS_ENABLED(CONFIG_DMA_API_DEBUG))
			unmap_piece(dev, &iter, rq_dma_dir(rq));
	} while (blk_rq_dma_map_iter_next(rq, dev, &iter));
	return iter.status ? -EIO : 1;
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct request *rq = bd->rq;
	struct device *dev = rq->q->queuedata;
	struct nvfs_dma_ops_v2 *ops;
	struct seen *counts;
	u64 gpu, host;
	int ret = 0;

	/* It comes again after some milliseconds. */
	if (READ_ONCE(hold))
		return BLK_STS_RESOURCE;
	blk_mq_start_request(rq);
	if (!blk_rq_nr_phys_segments(rq))
		goto done;
	counts = get_cpu_ptr(&seen);
	counts->requests++;
	gpu = counts->gpu;
	host = counts->host;
	rcu_read_lock();
	ops = rcu_dereference(table);
	if (ops)
		ret = by_table(ops, rq, dev, counts);
	rcu_read_unlock();
	if (!ret)
		ret = by_kernel(rq, dev, counts);
	counts->mixed += counts->gpu != gpu && counts->host != host;
	put_cpu_ptr(&seen);
done:
	blk_mq_end_request(rq, ret < 0 ? BLK_STS_IOERR : BLK_STS_OK);
	return BLK_STS_OK;
}

/* `gpu host requests segments mixed` since the module was loaded. */
static int show_seen(char *text, const struct kernel_param *kp)
{
	struct seen sum = {};
	int cpu;

	for_each_possible_cpu(cpu) {
		struct seen *one = per_cpu_ptr(&seen, cpu);

		sum.gpu += one->gpu;
		sum.host += one->host;
		sum.requests += one->requests;
		sum.segments += one->segments;
		sum.mixed += one->mixed;
	}
	return sysfs_emit(text, "%llu %llu %llu %llu %llu\n", sum.gpu, sum.host, sum.requests,
			  sum.segments, sum.mixed);
}
static const struct kernel_param_ops seen_ops = { .get = show_seen };
module_param_cb(seen, &seen_ops, NULL, 0444);

/* --- Registration, as the drivers of the field have it. */

int NVFS_REGISTER(nvme_v2)(struct nvfs_dma_ops_v2 *ops);
int NVFS_REGISTER(nvme_v2)(struct nvfs_dma_ops_v2 *ops)
{
	return unrcu_pointer(cmpxchg(&table, NULL, RCU_INITIALIZER(ops))) ? -EBUSY : 0;
}
EXPORT_SYMBOL_GPL(nvme_v2_register_nvfs_dma_ops);

void NVFS_UNREGISTER(nvme_v2)(void);
void NVFS_UNREGISTER(nvme_v2)(void)
{
	RCU_INIT_POINTER(table, NULL);
	synchronize_rcu();
}
EXPORT_SYMBOL_GPL(nvme_v2_unregister_nvfs_dma_ops);

/* --- The disk. */

static const struct blk_mq_ops mq_ops = {
	.queue_rq = queue_rq,
};

static const struct block_device_operations disk_ops = {
	.owner = THIS_MODULE,
};

struct disk {
	struct gendisk *gendisk;
	struct blk_mq_tag_set tags;
};

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	static atomic_t numbers;
	struct queue_limits limits = {
		.logical_block_size = 512,
		.physical_block_size = 4096,
		.max_hw_sectors = max_kib * 2,
		.max_segments = 256,
		.max_segment_size = UINT_MAX,
		.features = BLK_FEAT_PCI_P2PDMA,
	};
	struct disk *disk;
	int ret;

	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	if (!IS_ENABLED(CONFIG_DMA_API_DEBUG) && dma_need_unmap(&pdev->dev))
		return -EOPNOTSUPP;
	disk = kzalloc(sizeof(*disk), GFP_KERNEL);
	if (!disk)
		return -ENOMEM;
	disk->tags.ops = &mq_ops;
	disk->tags.nr_hw_queues = num_online_cpus();
	disk->tags.queue_depth = 512;
	disk->tags.numa_node = NUMA_NO_NODE;
	disk->tags.flags = BLK_MQ_F_NO_SCHED_BY_DEFAULT;
	ret = blk_mq_alloc_tag_set(&disk->tags);
	if (ret)
		goto free;
	disk->gendisk = blk_mq_alloc_disk(&disk->tags, &limits, &pdev->dev);
	if (IS_ERR(disk->gendisk)) {
		ret = PTR_ERR(disk->gendisk);
		goto free_tags;
	}
	disk->gendisk->fops = &disk_ops;
	/* A read gives nothing, so no table of partitions either. */
	disk->gendisk->flags |= GENHD_FL_NO_PART;
	snprintf(disk->gendisk->disk_name, sizeof(disk->gendisk->disk_name), "bench_disk%d",
		 atomic_inc_return(&numbers) - 1);
	set_capacity(disk->gendisk, (sector_t)size_gib << (30 - SECTOR_SHIFT));
	pci_set_drvdata(pdev, disk);
	ret = device_add_disk(&pdev->dev, disk->gendisk, NULL);
	if (!ret)
		return 0;
	put_disk(disk->gendisk);
free_tags:
	blk_mq_free_tag_set(&disk->tags);
free:
	kfree(disk);
	return ret;
}

static void remove(struct pci_dev *pdev)
{
	struct disk *disk = pci_get_drvdata(pdev);

	del_gendisk(disk->gendisk);
	put_disk(disk->gendisk);
	blk_mq_free_tag_set(&disk->tags);
	kfree(disk);
}

/* No table of IDs: functions are bound by driver_override. */
static struct pci_driver driver = {
	.name = "bench_disk",
	.probe = probe,
	.remove = remove,
};

static int __init bench_disk_init(void)
{
	struct pci_dev *pdev = NULL;
	unsigned int n = 0;

	while (n < MAX_GPUS && (pdev = pci_get_device(GPU_VENDOR, GPU_DEVICE, pdev))) {
		gpus[n].start = pci_resource_start(pdev, GPU_BAR);
		gpus[n++].end = pci_resource_end(pdev, GPU_BAR) + 1;
	}
	pci_dev_put(pdev);
	return pci_register_driver(&driver);
}

static void __exit bench_disk_exit(void)
{
	pci_unregister_driver(&driver);
}

module_init(bench_disk_init);
module_exit(bench_disk_exit);
MODULE_DESCRIPTION("nvidia-fs test: a disk that costs next to nothing");
MODULE_LICENSE("GPL");
