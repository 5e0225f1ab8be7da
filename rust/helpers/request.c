// SPDX-License-Identifier: GPL-2.0

#include "request.h"
#include "ioprio.h"

#include <linux/ioprio.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>

struct bio_vec nvfs_helper_bvec_iter_piece(const struct bio_vec *bvecs,
					   const struct bvec_iter *iter)
{
	return mp_bvec_iter_bvec(bvecs, *iter);
}

/* At most to the end of the current bvec. */
void nvfs_helper_bvec_iter_advance(const struct bio_vec *bvecs, struct bvec_iter *iter,
				   unsigned int bytes)
{
	bvec_iter_advance_single(bvecs, iter, min(bytes, mp_bvec_iter_len(bvecs, *iter)));
}

bool nvfs_helper_rq_is_read_or_write(struct request *rq)
{
	return (req_op(rq) == REQ_OP_READ || req_op(rq) == REQ_OP_WRITE) &&
	       !(rq->rq_flags & RQF_SPECIAL_PAYLOAD);
}

bool nvfs_helper_bio_is_set_apart(const struct bio *bio)
{
	return IOPRIO_PRIO_HINT(bio->bi_ioprio) == NVFS_IOPRIO_SHADOW;
}

bool nvfs_helper_rq_has_integrity(struct request *rq)
{
	return rq->cmd_flags & REQ_INTEGRITY;
}

unsigned int nvfs_helper_rq_payload_bytes(struct request *rq)
{
	return blk_rq_payload_bytes(rq);
}

/* Of a disk that is live and locked: else its driver may be gone. */
const void *nvfs_helper_disk_entry(struct gendisk *disk)
{
	const struct blk_mq_ops *ops = disk->queue->mq_ops;

	return ops ? (const void *)ops->queue_rq : (const void *)disk->fops->submit_bio;
}

struct page *nvfs_helper_sg_page(struct scatterlist *sg)
{
	return sg_page(sg);
}

void nvfs_helper_sg_set_page(struct scatterlist *sg, struct page *page, unsigned int len,
			     unsigned int offset)
{
	sg_set_page(sg, page, len, offset);
}

void nvfs_helper_sg_unset_page(struct scatterlist *sg)
{
	sg->page_link &= SG_PAGE_LINK_MASK;
	sg->offset = 0;
	sg->length = 0;
}

bool nvfs_helper_sg_is_last(struct scatterlist *sg)
{
	return sg_is_last(sg);
}

void nvfs_helper_sg_mark_end(struct scatterlist *sg)
{
	sg_mark_end(sg);
}

void nvfs_helper_sg_unmark_end(struct scatterlist *sg)
{
	sg_unmark_end(sg);
}

struct scatterlist *nvfs_helper_sg_next(struct scatterlist *sg)
{
	return sg_next(sg);
}

void nvfs_helper_sg_set_dma(struct scatterlist *sg, dma_addr_t addr, unsigned int len)
{
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = len;
}

dma_addr_t nvfs_helper_sg_dma_address(struct scatterlist *sg)
{
	return sg_dma_address(sg);
}

unsigned int nvfs_helper_sg_dma_len(struct scatterlist *sg)
{
	return sg_dma_len(sg);
}

bool nvfs_helper_has_function(const char *name)
{
	struct kprobe probe = { .symbol_name = name, .flags = KPROBE_FLAG_DISABLED };

	if (register_kprobe(&probe))
		return false;
	unregister_kprobe(&probe);
	return true;
}

void nvfs_helper_module_name(const void *address, char *name, size_t size)
{
	char text[KSYM_SYMBOL_LEN];
	char *start, *end;

	name[0] = '\0';
	/* "function [module]", and for the kernel itself "function". */
	sprint_symbol_no_offset(text, (unsigned long)address);
	start = strrchr(text, '[');
	end = start ? strchr(start, ']') : NULL;
	if (!end)
		return;
	*end = '\0';
	/* A build id may follow the name. */
	strscpy(name, strsep(&start, " ") + 1, size);
}
