// SPDX-License-Identifier: GPL-2.0
/*
 * The disks: requests are mapped where they are dispatched, as in a real driver, and a worker does
 * the rest. The queue does not allow sleeping in dispatch.
 */
#include <linux/blkdev.h>
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "internal.h"

static unsigned int size_gib = 8;
module_param(size_gib, uint, 0444);
MODULE_PARM_DESC(size_gib, "size of each disk; memory is taken for what is written");

static unsigned int max_kib = 4096;
module_param(max_kib, uint, 0444);
MODULE_PARM_DESC(max_kib, "the longest request");

static unsigned int max_segment = 65536;
module_param(max_segment, uint, 0444);
MODULE_PARM_DESC(max_segment, "the longest segment of a request in bytes, a multiple of 4096");

static unsigned int hold_ms;
module_param(hold_ms, uint, 0644);
MODULE_PARM_DESC(hold_ms, "keep each request mapped for so long before its data moves");

static unsigned int requeue_every;
module_param(requeue_every, uint, 0644);
MODULE_PARM_DESC(requeue_every, "requeue each so-manieth request once: it is unmapped and mapped again");

static unsigned int unmap_us;
module_param(unmap_us, uint, 0644);
MODULE_PARM_DESC(unmap_us, "unmap by a timer, so long after data moved, in a hard interrupt; 0: at once");

static bool end_first;
module_param(end_first, bool, 0644);
MODULE_PARM_DESC(end_first, "report the end of a request before it is unmapped");

struct disk {
	struct gendisk *gendisk;
	struct blk_mq_tag_set tags;
	struct device *dev;
	struct store store;
};

/* Behind each request. `stage` is what was done last. */
struct job {
	struct delayed_work work;
	struct list_head held;
	struct mapping *mapping;	/* NULL: CPU pages */
	enum fake_storage_hold stage;
	bool again;
};

static struct workqueue_struct *workers;

/* Requests that are held, and where the next ones will be. */
static DEFINE_SPINLOCK(hold_lock);
static enum fake_storage_hold hold;
static LIST_HEAD(held);
static unsigned int nr_held;
static DECLARE_WAIT_QUEUE_HEAD(held_change);

/* Whether a request that has reached a stage waits there. */
static bool holds(struct job *job, enum fake_storage_hold stage)
{
	unsigned long flags;
	bool ret;

	job->stage = stage;
	spin_lock_irqsave(&hold_lock, flags);
	ret = hold == stage;
	if (ret) {
		list_add_tail(&job->held, &held);
		nr_held++;
	}
	spin_unlock_irqrestore(&hold_lock, flags);
	if (ret)
		wake_up_all(&held_change);
	return ret;
}

void disks_hold(enum fake_storage_hold where)
{
	struct job *job, *next;
	LIST_HEAD(go);

	spin_lock_irq(&hold_lock);
	hold = where;
	list_splice_init(&held, &go);
	nr_held = 0;
	spin_unlock_irq(&hold_lock);
	list_for_each_entry_safe(job, next, &go, held)
		queue_delayed_work(workers, &job->work, 0);
}

int disks_wait_held(unsigned int n)
{
	long left = wait_event_killable_timeout(held_change, READ_ONCE(nr_held) >= n, 120 * HZ);

	return left > 0 ? 0 : left ?: -ETIMEDOUT;
}

/* What the device does: the data of a request moves. */
static int move_by_cpu(struct disk *disk, struct request *rq)
{
	u64 at = blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bv;

	rq_for_each_segment(bv, rq, iter) {
		void *data = bvec_kmap_local(&bv);
		int ret = store_copy(&disk->store, at, data, bv.bv_len, op_is_write(req_op(rq)));

		kunmap_local(data);
		if (ret)
			return ret;
		at += bv.bv_len;
	}
	return 0;
}

static int move_by_dma(struct disk *disk, struct request *rq, const struct mapping *m)
{
	u64 at = blk_rq_pos(rq) << SECTOR_SHIFT;
	unsigned int i;

	for (i = 0; i < m->nr; i++) {
		int ret = store_dma(&disk->store, at, m->dev, m->segment[i].addr,
				    m->segment[i].len, op_is_write(req_op(rq)));

		if (ret)
			return ret;
		at += m->segment[i].len;
	}
	return 0;
}

static enum hrtimer_restart unmap_late(struct hrtimer *timer)
{
	struct mapping *m = container_of(timer, struct mapping, timer);
	struct request *rq = m->rq;
	blk_status_t status = m->status;

	if (in_hardirq())
		atomic64_inc(&counts.late);
	mapping_unmap(m);
	if (rq)
		blk_mq_end_request(rq, status);
	return HRTIMER_NORESTART;
}

static void finish(struct request *rq, struct mapping *m, blk_status_t status)
{
	unsigned int us = READ_ONCE(unmap_us);

	if (m && us) {
		m->status = status;
		m->rq = READ_ONCE(end_first) ? NULL : rq;
		if (!m->rq)
			blk_mq_end_request(rq, status);
		hrtimer_setup(&m->timer, unmap_late, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
		hrtimer_start(&m->timer, us_to_ktime(us), HRTIMER_MODE_REL);
		return;
	}
	if (m && !READ_ONCE(end_first)) {
		mapping_unmap(m);
		m = NULL;
	}
	blk_mq_end_request(rq, status);
	if (m)
		mapping_unmap(m);
}

/* Whether a request is to go through the queue a second time. */
static bool requeued(struct request *rq, struct job *job)
{
	static atomic_t mapped;
	unsigned int every = READ_ONCE(requeue_every);

	if (!every || job->again || (unsigned int)atomic_inc_return(&mapped) % every)
		return false;
	atomic64_inc(&counts.requeued);
	mapping_unmap(job->mapping);
	job->mapping = NULL;
	job->again = true;
	rq->rq_flags |= RQF_DONTPREP;
	blk_mq_requeue_request(rq, true);
	return true;
}

static void work(struct work_struct *work)
{
	struct job *job = container_of(to_delayed_work(work), struct job, work);
	struct request *rq = blk_mq_rq_from_pdu(job);
	struct disk *disk = rq->q->queuedata;
	blk_status_t status = BLK_STS_OK;

	if (job->stage == FAKE_STORAGE_UNMAPPED) {
		status = mapping_make(rq, disk->dev, &job->mapping);
		if (!status && holds(job, FAKE_STORAGE_MAPPED))
			return;
	}
	if (job->stage == FAKE_STORAGE_MAPPED) {
		struct mapping *m = job->mapping;

		if (m && requeued(rq, job))
			return;
		if (!m)
			atomic64_inc(&counts.cpu);
		status = errno_to_blk_status(m ? move_by_dma(disk, rq, m) : move_by_cpu(disk, rq));
		if (!status && holds(job, FAKE_STORAGE_MOVED))
			return;
	}
	finish(rq, job->mapping, status);
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct request *rq = bd->rq;
	struct disk *disk = rq->q->queuedata;
	struct job *job = blk_mq_rq_to_pdu(rq);
	blk_status_t status;

	if (req_op(rq) != REQ_OP_READ && req_op(rq) != REQ_OP_WRITE)
		return BLK_STS_NOTSUPP;
	if (!(rq->rq_flags & RQF_DONTPREP)) {
		INIT_DELAYED_WORK(&job->work, work);
		job->mapping = NULL;
		job->again = false;
		atomic64_inc(&counts.requests);
	}
	blk_mq_start_request(rq);
	if (holds(job, FAKE_STORAGE_UNMAPPED))
		return BLK_STS_OK;
	status = mapping_make(rq, disk->dev, &job->mapping);
	if (status)
		return status;
	if (!holds(job, FAKE_STORAGE_MAPPED))
		queue_delayed_work(workers, &job->work, msecs_to_jiffies(READ_ONCE(hold_ms)));
	return BLK_STS_OK;
}

static enum blk_eh_timer_return timed_out(struct request *rq)
{
	return BLK_EH_RESET_TIMER;
}

static const struct blk_mq_ops mq_ops = {
	.queue_rq = queue_rq,
	.timeout = timed_out,
};

static const struct block_device_operations disk_ops = {
	.owner = THIS_MODULE,
};

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	static atomic_t numbers;
	struct queue_limits limits = {
		.logical_block_size = 512,
		.physical_block_size = 4096,
		.max_hw_sectors = max_kib * 2,
		.max_sectors = max_kib * 2,
		.max_segments = NVFS_MAX_SG_ENTRIES,
		.max_segment_size = max_segment,
		.features = BLK_FEAT_IO_STAT,
	};
	struct disk *disk;
	int ret;

	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	disk = kzalloc(sizeof(*disk), GFP_KERNEL);
	if (!disk)
		return -ENOMEM;
	disk->dev = &pdev->dev;
	store_init(&disk->store);
	disk->tags.ops = &mq_ops;
	disk->tags.nr_hw_queues = num_online_cpus();
	disk->tags.queue_depth = 64;
	disk->tags.numa_node = NUMA_NO_NODE;
	disk->tags.cmd_size = sizeof(struct job);
	ret = blk_mq_alloc_tag_set(&disk->tags);
	if (ret)
		goto free;
	disk->gendisk = blk_mq_alloc_disk(&disk->tags, &limits, disk);
	if (IS_ERR(disk->gendisk)) {
		ret = PTR_ERR(disk->gendisk);
		goto free_tags;
	}
	disk->gendisk->fops = &disk_ops;
	disk->gendisk->private_data = disk;
	snprintf(disk->gendisk->disk_name, sizeof(disk->gendisk->disk_name), "fake_storage%d",
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

	disks_hold(FAKE_STORAGE_RUN);
	del_gendisk(disk->gendisk);
	/* The last mappings have our device. */
	mapping_wait();
	put_disk(disk->gendisk);
	blk_mq_free_tag_set(&disk->tags);
	store_destroy(&disk->store);
	kfree(disk);
}

/* No table of IDs: functions are bound by driver_override. */
static struct pci_driver driver = {
	.name = "fake_storage",
	.probe = probe,
	.remove = remove,
};

int disks_init(void)
{
	int ret;

	workers = alloc_workqueue("fake_storage", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!workers)
		return -ENOMEM;
	ret = pci_register_driver(&driver);
	if (ret)
		destroy_workqueue(workers);
	return ret;
}

void disks_exit(void)
{
	pci_unregister_driver(&driver);
	mapping_wait();
	mapping_exit();
	destroy_workqueue(workers);
}
