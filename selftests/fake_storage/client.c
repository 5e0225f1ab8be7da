// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/fake_storage_control: direct calls of the tables, as network file systems do them and as
 * nobody should. See fake_storage.h.
 */
#include <linux/bio.h>
#include <linux/blk-integrity.h>
#include <linux/blkdev.h>
#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/irq_work.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "../../rust/helpers/ioprio.h"
#include "internal.h"

/* More than the longest request may have. */
#define MAX_PAGES	4096
#define CHAIN		8

struct client {
	struct mutex lock;
	bool holds;
	struct fake_storage_build build;
	struct fake_storage_piece piece[FAKE_STORAGE_MAX_PIECES];
	unsigned int nr_pages;
	struct page *pages[MAX_PAGES];
	/* The list, and what it was before the call. */
	struct scatterlist sgl[NVFS_MAX_SG_ENTRIES], before[NVFS_MAX_SG_ENTRIES];
	int entries;
	struct request *rq;
	struct dma_iova_state state;
	struct blk_dma_iter iter;
	void *cookie;
	/* What the client has mapped and not unmapped, and how. */
	struct fake_storage_call mapped;
	unsigned int segments;
};

/* A call in a hard interrupt. */
struct irq_call {
	struct irq_work work;
	struct client *client;
	struct fake_storage_call *call;
	struct device *dev;
	void *ops;
};

/* Requests come from a queue that nothing is ever sent through. */
static struct blk_mq_tag_set tags;
static struct request_queue *queue;

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	return BLK_STS_NOTSUPP;
}

static const struct blk_mq_ops mq_ops = {
	.queue_rq = queue_rq,
};

static void free_request(struct client *client)
{
	struct request *rq = client->rq;
	struct bio *bio, *next;

	if (!rq)
		return;
	for (bio = rq->bio; bio; bio = next) {
		next = bio->bi_next;
		bio_put(bio);
	}
	rq->bio = rq->biotail = NULL;
	rq->rq_flags &= ~RQF_SPECIAL_PAYLOAD;
	blk_mq_free_request(rq);
	client->rq = NULL;
}

static void forget(struct client *client)
{
	free_request(client);
	if (client->nr_pages)
		unpin_user_pages(client->pages, client->nr_pages);
	client->nr_pages = 0;
	client->entries = 0;
}

static unsigned int piece_pages(const struct fake_storage_piece *piece)
{
	return piece->addr ? DIV_ROUND_UP(offset_in_page(piece->addr) + piece->len, PAGE_SIZE) : 0;
}

static int pin(struct client *client)
{
	unsigned int i;

	for (i = 0; i < client->build.nr; i++) {
		const struct fake_storage_piece *piece = &client->piece[i];
		unsigned int n, left;
		int ret;

		if (piece->len > MAX_PAGES * PAGE_SIZE)
			return -EINVAL;
		for (left = piece_pages(piece), n = 0; left; left -= ret, n += ret) {
			if (left > MAX_PAGES - client->nr_pages)
				return -E2BIG;
			ret = pin_user_pages_fast((piece->addr & PAGE_MASK) + n * PAGE_SIZE, left,
						  FOLL_WRITE, client->pages + client->nr_pages);
			if (ret <= 0)
				return ret ?: -EFAULT;
			client->nr_pages += ret;
		}
	}
	return 0;
}

/* Calls `each` for the part of each page of all pieces, `first` where a piece begins. */
typedef int (*each_part)(struct client *client, struct page *page, unsigned int offset,
			 unsigned int len, bool first);

static int for_each_part(struct client *client, each_part each)
{
	struct page **page = client->pages;
	unsigned int i;

	for (i = 0; i < client->build.nr; i++) {
		const struct fake_storage_piece *piece = &client->piece[i];
		unsigned int offset = offset_in_page(piece->addr), len;
		u64 left = piece->len;
		bool first = true;
		int ret;

		if (!piece->addr) {
			ret = each(client, NULL, 0, piece->len, true);
			if (ret)
				return ret;
			continue;
		}
		for (; left; left -= len, offset = 0, first = false) {
			len = min(left, PAGE_SIZE - offset);
			ret = each(client, *page++, offset, len, first);
			if (ret)
				return ret;
		}
	}
	return 0;
}

/* An entry of the list is physically contiguous and of one piece. */
static int to_list(struct client *client, struct page *page, unsigned int offset, unsigned int len,
		   bool first)
{
	struct scatterlist *sg = client->entries ? &client->sgl[client->entries - 1] : NULL;
	unsigned int limit = client->build.max_entry ?: UINT_MAX;

	if (!first && sg_phys(sg) + sg->length == page_to_phys(page) + offset &&
	    len <= limit - sg->length) {
		sg->length += len;
		return 0;
	}
	if (client->entries == NVFS_MAX_SG_ENTRIES)
		return -E2BIG;
	sg = &client->sgl[client->entries++];
	memset(sg, 0, sizeof(*sg));
	sg->dma_address = DMA_MAPPING_ERROR;
	if (page)
		sg_set_page(sg, page, len, offset);
	else
		sg->length = len;
	return 0;
}

static int to_request(struct client *client, struct page *page, unsigned int offset,
		      unsigned int len, bool first)
{
	struct request *rq = client->rq;
	struct bio *bio = rq->biotail;

	if (!page)
		return 0;
	rq->__data_len += len;
	if (bio && !(first && client->build.flags & FAKE_STORAGE_BIO_EACH) &&
	    bio_add_page(bio, page, len, offset) == len)
		return 0;
	bio = bio_alloc(NULL, BIO_MAX_VECS, rq->cmd_flags, GFP_KERNEL);
	if (!(client->build.flags & FAKE_STORAGE_BY_ITSELF))
		bio->bi_ioprio = IOPRIO_PRIO_VALUE_HINT(IOPRIO_CLASS_NONE, 0, NVFS_IOPRIO_SHADOW);
	if (rq->biotail)
		rq->biotail->bi_next = bio;
	else
		rq->bio = bio;
	rq->biotail = bio;
	return bio_add_page(bio, page, len, offset) == len ? 0 : -EIO;
}

static void count_segments(struct client *client)
{
	struct fake_storage_build *build = &client->build;
	struct bio *bio;

	if (!build->phys_segments) {
		for (bio = client->rq->bio; bio; bio = bio->bi_next)
			build->phys_segments += bio->bi_vcnt;
	}
	client->rq->nr_phys_segments = build->phys_segments;
}

static int build_request(struct client *client)
{
	static const blk_opf_t ops[] = {
		[FAKE_STORAGE_READ] = REQ_OP_READ,
		[FAKE_STORAGE_WRITE] = REQ_OP_WRITE | REQ_SYNC,
		[FAKE_STORAGE_DRV_IN] = REQ_OP_DRV_IN,
		[FAKE_STORAGE_SPECIAL] = REQ_OP_DISCARD,
		[FAKE_STORAGE_NO_BIO] = REQ_OP_READ,
	};
	struct fake_storage_build *build = &client->build;
	struct request *rq;
	int ret;

	if (build->op >= ARRAY_SIZE(ops))
		return -EINVAL;
	rq = blk_mq_alloc_request(queue, ops[build->op], 0);
	if (IS_ERR(rq))
		return PTR_ERR(rq);
	client->rq = rq;
	rq->__data_len = 0;
	if (build->op == FAKE_STORAGE_NO_BIO)
		return 0;
	if (build->op == FAKE_STORAGE_SPECIAL && client->nr_pages) {
		bvec_set_page(&rq->special_vec, client->pages[0], SECTOR_SIZE, 0);
		rq->rq_flags |= RQF_SPECIAL_PAYLOAD;
	}
	ret = for_each_part(client, to_request);
	if (ret)
		return ret;
	count_segments(client);
	if (build->flags & FAKE_STORAGE_INTEGRITY && rq->bio) {
		if (IS_ERR(bio_integrity_alloc(rq->bio, GFP_KERNEL, 1)))
			return -ENOMEM;
		rq->cmd_flags |= REQ_INTEGRITY;
	}
	return 0;
}

/* After each CHAIN - 1 entries a link to the element behind it: the elements stay where they are. */
static void chain(struct scatterlist *sgl, unsigned int nr)
{
	unsigned int i;

	for (i = CHAIN - 1; i + 1 < nr; i += CHAIN)
		__sg_chain(&sgl[i], &sgl[i + 1]);
}

/* Entries of the list that are initialised. */
static unsigned int list_room(const struct client *client)
{
	return client->build.room ?: client->build.phys_segments;
}

static int build_list(struct client *client)
{
	struct fake_storage_build *build = &client->build;
	unsigned int room = list_room(client);
	int ret;

	memset(client->sgl, POISON, sizeof(client->sgl));
	if (build->flags & FAKE_STORAGE_FILL) {
		ret = for_each_part(client, to_list);
		if (ret)
			return ret;
		build->entries = client->entries;
		if (client->entries)
			sg_mark_end(&client->sgl[client->entries - 1]);
		return 0;
	}
	if (room > NVFS_MAX_SG_ENTRIES)
		return -E2BIG;
	if (room)
		sg_init_table(client->sgl, room);
	if (build->flags & FAKE_STORAGE_CHAINED)
		chain(client->sgl, room);
	return 0;
}

static int build(struct client *client, void __user *arg)
{
	struct fake_storage_build *build = &client->build;
	int ret;

	if (client->segments)
		return -EBUSY;
	forget(client);
	if (copy_from_user(build, arg, sizeof(*build)))
		return -EFAULT;
	if (build->nr > FAKE_STORAGE_MAX_PIECES)
		return -E2BIG;
	if (copy_from_user(client->piece, u64_to_user_ptr(build->pieces),
			   build->nr * sizeof(client->piece[0])))
		return -EFAULT;
	ret = pin(client);
	if (!ret)
		ret = build_request(client);
	if (!ret)
		ret = build_list(client);
	if (ret) {
		forget(client);
		return ret;
	}
	return copy_to_user(arg, build, sizeof(*build)) ? -EFAULT : 0;
}

/* Which of the list's elements are poison still: those are not entries. */
static void show_list(struct client *client, struct fake_storage_call *call, int nr)
{
	struct scatterlist *sg = client->sgl;
	int i;

	for (i = 0; i < nr && i < NVFS_MAX_SG_ENTRIES; i++) {
		call->segment[i].addr = sg_dma_address(sg);
		call->segment[i].len = call->function == FAKE_STORAGE_MAP_SG ? sg_dma_len(sg) :
									      sg->length;
		call->segment[i].offset = sg->offset;
		call->nr++;
		if (sg_is_last(sg))
			break;
		sg = sg_next(sg);
	}
}

static bool is_poison(const void *what, size_t size)
{
	return !memchr_inv(what, POISON, size);
}

static void note_mapped(struct client *client, const struct fake_storage_call *call,
			unsigned int segments)
{
	client->mapped = *call;
	client->segments += segments;
	/* Until they are unmapped, unregister waits. */
	while (segments--)
		vendor_get(call->table);
}

static void note_unmapped(struct client *client, enum fake_storage_table table,
			  unsigned int segments)
{
	segments = min(segments, client->segments);
	client->segments -= segments;
	while (segments--)
		vendor_put(table);
}

static struct page *page_of(struct client *client, const struct fake_storage_call *call)
{
	if (call->without & FAKE_STORAGE_PAGE || call->index >= client->nr_pages)
		return NULL;
	return client->pages[call->index];
}

/* The functions that both tables have at the same place. */
static void call_common(struct client *client, struct fake_storage_call *call, struct device *dev,
			const struct nvfs_dma_ops_v1 *ops)
{
	struct scatterlist *sgl = call->without & FAKE_STORAGE_LIST ? NULL : client->sgl;
	struct nvfs_rdma_info before = call->info;

	switch (call->function) {
	case FAKE_STORAGE_FEATURES:
		call->result = ops->features;
		break;
	case FAKE_STORAGE_IS_GPU_PAGE:
		call->result = ops->is_gpu_page(page_of(client, call));
		break;
	case FAKE_STORAGE_GPU_INDEX:
		call->result = ops->gpu_index(page_of(client, call));
		break;
	case FAKE_STORAGE_DEVICE_PRIORITY:
		call->result = ops->device_priority(dev, call->index);
		break;
	case FAKE_STORAGE_RDMA_INFO:
		if (!ops->get_gpu_sglist_rdma_info) {
			call->result = -EOPNOTSUPP;
			break;
		}
		call->result = ops->get_gpu_sglist_rdma_info(sgl, call->nents,
			call->without & FAKE_STORAGE_RECORD ? NULL : &call->info);
		if (memcmp(&before, &call->info, sizeof(before)))
			call->touched |= FAKE_STORAGE_RECORD_TOUCHED;
		break;
	}
}

static void call_v1(struct client *client, struct fake_storage_call *call, struct device *dev,
		    const struct nvfs_dma_ops_v1 *ops)
{
	struct scatterlist *sgl = call->without & FAKE_STORAGE_LIST ? NULL : client->sgl;
	struct request *rq = call->without & FAKE_STORAGE_REQUEST ? NULL : client->rq;
	enum dma_data_direction dir = rq_dma_dir(client->rq);

	memcpy(client->before, client->sgl, sizeof(client->before));
	switch (call->function) {
	case FAKE_STORAGE_BLK_RQ_MAP_SG:
		call->result = ops->blk_rq_map_sg(call->without & FAKE_STORAGE_QUEUE ? NULL : queue,
						  rq, sgl);
		show_list(client, call, call->result);
		break;
	case FAKE_STORAGE_MAP_SG:
		call->result = ops->map_sg(dev, sgl, call->nents, dir, 0);
		show_list(client, call, call->result);
		if (call->result > 0)
			note_mapped(client, call, call->result);
		break;
	case FAKE_STORAGE_UNMAP_SG:
		call->result = ops->unmap_sg(dev, sgl, call->nents, dir);
		if (call->result > 0)
			note_unmapped(client, call->table, call->result);
		break;
	default:
		call_common(client, call, dev, ops);
	}
	if (memcmp(client->before, client->sgl, sizeof(client->before)))
		call->touched |= FAKE_STORAGE_LIST_TOUCHED;
	if (memcmp(client->before, client->sgl, list_room(client) * sizeof(*client->sgl)))
		call->touched |= FAKE_STORAGE_ROOM_TOUCHED;
}

static void show_iter(struct client *client, struct fake_storage_call *call)
{
	if (!is_poison(&client->iter, sizeof(client->iter)))
		call->touched |= FAKE_STORAGE_ITER_TOUCHED;
	if (!is_poison(&client->state, sizeof(client->state)))
		call->touched |= FAKE_STORAGE_STATE_TOUCHED;
	/* The kernel warns of one that it does not know, as the poison is. */
	call->status = call->touched & FAKE_STORAGE_ITER_TOUCHED ?
		       blk_status_to_errno(client->iter.status) : 0;
	if (call->result <= 0)
		return;
	call->segment[0].addr = client->iter.addr;
	call->segment[0].len = client->iter.len;
	call->nr = 1;
	note_mapped(client, call, 1);
}

static void call_v2(struct client *client, struct fake_storage_call *call, struct device *dev,
		    const struct nvfs_dma_ops_v2 *ops)
{
	struct request *rq = call->without & FAKE_STORAGE_REQUEST ? NULL : client->rq;
	void *cookie = call->without & FAKE_STORAGE_COOKIE ? NULL : client->cookie;

	switch (call->function) {
	case FAKE_STORAGE_ITER_START:
		memset(&client->iter, POISON, sizeof(client->iter));
		memset(&client->state, POISON, sizeof(client->state));
		call->result = ops->blk_rq_dma_map_iter_start(rq, dev, &client->state,
			&client->iter,
			call->without & FAKE_STORAGE_COOKIE ? NULL : &client->cookie);
		show_iter(client, call);
		break;
	case FAKE_STORAGE_ITER_NEXT:
		call->result = ops->blk_rq_dma_map_iter_next(rq, dev, &client->state,
							     &client->iter);
		show_iter(client, call);
		break;
	case FAKE_STORAGE_UNMAP_PAGE:
		call->result = ops->unmap_page(dev, cookie, 0, 0, rq_dma_dir(client->rq));
		if (!call->result)
			note_unmapped(client, call->table, 1);
		break;
	default:
		call_common(client, call, dev, (const void *)ops);
	}
}

/* Any context. */
static void do_call(struct client *client, struct fake_storage_call *call, struct device *dev,
		    void *ops)
{
	struct bio *bio = client->rq->bio;

	if (call->without & FAKE_STORAGE_BIO)
		client->rq->bio = NULL;
	if (call->table == FAKE_STORAGE_V2)
		call_v2(client, call, dev, ops);
	else
		call_v1(client, call, dev, ops);
	client->rq->bio = bio;
	call->phys_segments = client->rq->nr_phys_segments;
}

static void call_in_irq(struct irq_work *work)
{
	struct irq_call *irq = container_of(work, struct irq_call, work);

	do_call(irq->client, irq->call, irq->dev, irq->ops);
}

static bool is_function_of(enum fake_storage_table table, unsigned int function)
{
	if (function > FAKE_STORAGE_FEATURES)
		return false;
	if (function <= FAKE_STORAGE_UNMAP_SG)
		return table != FAKE_STORAGE_V2;
	if (function >= FAKE_STORAGE_ITER_START && function <= FAKE_STORAGE_UNMAP_PAGE)
		return table == FAKE_STORAGE_V2;
	return true;
}

static struct miscdevice control;

static struct pci_dev *find_function(u64 dev)
{
	return pci_get_domain_bus_and_slot(dev >> 32, (dev >> 8) & 0xff, dev & 0xff);
}

static int call_table(struct client *client, struct fake_storage_call *call)
{
	struct pci_dev *pdev = NULL;
	struct device *dev = NULL;
	void *ops;

	if (call->dev == FAKE_STORAGE_DEV_NOT_PCI) {
		dev = control.this_device;
	} else if (call->dev != FAKE_STORAGE_DEV_NULL) {
		pdev = find_function(call->dev);
		if (!pdev)
			return -ENODEV;
		dev = &pdev->dev;
	}
	ops = vendor_get(call->table);
	if (!ops) {
		pci_dev_put(pdev);
		return -ENXIO;
	}
	if (call->irq) {
		struct irq_call irq = {
			.work = IRQ_WORK_INIT(call_in_irq),
			.client = client, .call = call, .dev = dev, .ops = ops,
		};

		irq_work_queue(&irq.work);
		irq_work_sync(&irq.work);
	} else {
		do_call(client, call, dev, ops);
	}
	vendor_put(call->table);
	pci_dev_put(pdev);
	return 0;
}

static int call(struct client *client, void __user *arg)
{
	struct fake_storage_call *call = memdup_user(arg, sizeof(*call));
	int ret = -EINVAL;

	if (IS_ERR(call))
		return PTR_ERR(call);
	call->result = call->status = call->touched = call->nr = 0;
	if (call->table != FAKE_STORAGE_NONE && call->table < FAKE_STORAGE_NR_TABLES &&
	    is_function_of(call->table, call->function) && client->rq)
		ret = call_table(client, call);
	if (!ret && copy_to_user(arg, call, sizeof(*call)))
		ret = -EFAULT;
	kfree(call);
	return ret;
}

static int give_counts(void __user *arg)
{
	struct fake_storage_counts to = {
		.requests = atomic64_read(&counts.requests),
		.cpu = atomic64_read(&counts.cpu),
		.gpu = atomic64_read(&counts.gpu),
		.segments = atomic64_read(&counts.segments),
		.refused = atomic64_read(&counts.refused),
		.failed = atomic64_read(&counts.failed),
		.requeued = atomic64_read(&counts.requeued),
		.late = atomic64_read(&counts.late),
		.stray = atomic64_read(&counts.stray),
		.broken = atomic64_read(&counts.broken),
	};

	vendor_state(&to);
	return copy_to_user(arg, &to, sizeof(to)) ? -EFAULT : 0;
}

static int number(void __user *arg, u32 *n)
{
	return get_user(*n, (u32 __user *)arg);
}

static long control_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	void __user *user = (void __user *)arg;
	struct client *client = file->private_data;
	long ret = -ENOTTY;
	u32 n;

	switch (request) {
	case FAKE_STORAGE_BUILD:
	case FAKE_STORAGE_CALL:
		mutex_lock(&client->lock);
		ret = request == FAKE_STORAGE_BUILD ? build(client, user) : call(client, user);
		mutex_unlock(&client->lock);
		break;
	case FAKE_STORAGE_HOLD:
		ret = number(user, &n);
		if (!ret && n > FAKE_STORAGE_MOVED)
			ret = -EINVAL;
		if (!ret) {
			client->holds = n != FAKE_STORAGE_RUN;
			disks_hold(n);
		}
		break;
	case FAKE_STORAGE_WAIT_HELD:
		ret = number(user, &n) ?: disks_wait_held(n);
		break;
	case FAKE_STORAGE_COUNTS:
		ret = give_counts(user);
		break;
	}
	return ret;
}

static int control_open(struct inode *inode, struct file *file)
{
	struct client *client;

	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	client = kvzalloc(sizeof(*client), GFP_KERNEL);
	if (!client)
		return -ENOMEM;
	mutex_init(&client->lock);
	file->private_data = client;
	return 0;
}

/* A process that dies leaves nothing mapped, as its driver's own close would. */
static int control_release(struct inode *inode, struct file *file)
{
	struct client *client = file->private_data;
	struct fake_storage_call *last = &client->mapped;

	if (client->segments && last->table != FAKE_STORAGE_V2) {
		last->function = FAKE_STORAGE_UNMAP_SG;
		last->nents = client->segments;
	} else {
		last->function = FAKE_STORAGE_UNMAP_PAGE;
	}
	if (client->holds)
		disks_hold(FAKE_STORAGE_RUN);
	last->without = last->irq = 0;
	while (client->segments) {
		unsigned int before = client->segments;

		if (call_table(client, last) || client->segments == before) {
			broken("%u segments stay mapped", before);
			note_unmapped(client, last->table, before);
		}
	}
	forget(client);
	kvfree(client);
	return 0;
}

static const struct file_operations control_ops = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.unlocked_ioctl = control_ioctl,
};

static struct miscdevice control = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "fake_storage_control",
	.fops = &control_ops,
	.mode = 0600,
};

int client_init(void)
{
	struct queue_limits limits = {
		.max_hw_sectors = UINT_MAX,
		.max_segments = USHRT_MAX,
		.max_segment_size = 65536,
	};
	int ret;

	tags.ops = &mq_ops;
	tags.nr_hw_queues = 1;
	tags.queue_depth = 64;
	tags.numa_node = NUMA_NO_NODE;
	ret = blk_mq_alloc_tag_set(&tags);
	if (ret)
		return ret;
	queue = blk_mq_alloc_queue(&tags, &limits, NULL);
	if (IS_ERR(queue)) {
		ret = PTR_ERR(queue);
		goto free_tags;
	}
	ret = misc_register(&control);
	if (!ret)
		return 0;
	blk_mq_destroy_queue(queue);
	blk_put_queue(queue);
free_tags:
	blk_mq_free_tag_set(&tags);
	return ret;
}

void client_exit(void)
{
	misc_deregister(&control);
	blk_mq_destroy_queue(queue);
	blk_put_queue(queue);
	blk_mq_free_tag_set(&tags);
}
