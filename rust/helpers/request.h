/* SPDX-License-Identifier: GPL-2.0 */
/* Twins of inline functions and macros of the block layer and the scatterlist headers. */
#ifndef NVFS_REQUEST_H
#define NVFS_REQUEST_H

#include <linux/blk-mq.h>
#include <linux/scatterlist.h>

/* The status that is a `__force` cast, which bindgen does not evaluate. */
enum nvfs_blk_sts {
	NVFS_BLK_STS_IOERR = (__force unsigned int)BLK_STS_IOERR,
};

/* linux/bvec.h */
struct bio_vec nvfs_helper_bvec_iter_piece(const struct bio_vec *bvecs,
					   const struct bvec_iter *iter);
void nvfs_helper_bvec_iter_advance(const struct bio_vec *bvecs, struct bvec_iter *iter,
				   unsigned int bytes);

/* linux/blk-mq.h */
bool nvfs_helper_rq_is_read_or_write(struct request *rq);
/* Whether it is of a transfer from or to shadow memory that the module has started. */
bool nvfs_helper_bio_is_set_apart(const struct bio *bio);
bool nvfs_helper_rq_has_integrity(struct request *rq);
unsigned int nvfs_helper_rq_payload_bytes(struct request *rq);

/*
 * linux/kprobes.h: whether there is a function of that name, exported or not; false also when the
 * kernel has no kprobes. The probe that this takes is never armed. May sleep.
 */
bool nvfs_helper_has_function(const char *name);

/* linux/kallsyms.h: the name of the module that has `address`; "" for the kernel itself. */
void nvfs_helper_module_name(const void *address, char *name, size_t size);

/* The function that is given a disk's requests or bios. */
const void *nvfs_helper_disk_entry(struct gendisk *disk);

/* linux/scatterlist.h */
struct page *nvfs_helper_sg_page(struct scatterlist *sg);
void nvfs_helper_sg_set_page(struct scatterlist *sg, struct page *page, unsigned int len,
			     unsigned int offset);
void nvfs_helper_sg_unset_page(struct scatterlist *sg);
bool nvfs_helper_sg_is_last(struct scatterlist *sg);
void nvfs_helper_sg_mark_end(struct scatterlist *sg);
void nvfs_helper_sg_unmark_end(struct scatterlist *sg);
struct scatterlist *nvfs_helper_sg_next(struct scatterlist *sg);
void nvfs_helper_sg_set_dma(struct scatterlist *sg, dma_addr_t addr, unsigned int len);
dma_addr_t nvfs_helper_sg_dma_address(struct scatterlist *sg);
unsigned int nvfs_helper_sg_dma_len(struct scatterlist *sg);

#endif /* NVFS_REQUEST_H */
