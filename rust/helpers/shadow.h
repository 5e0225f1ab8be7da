/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shadow memory: large folios that carry a mark and their owner, so that they can be told from all
 * other pages wherever they turn up.
 */
#ifndef NVFS_SHADOW_H
#define NVFS_SHADOW_H

#include <linux/fs.h>
#include <linux/mm.h>

/* A file that only lends its address space as a mark. An ERR_PTR on failure. May sleep. */
struct file *nvfs_helper_mark_file(void);

/*
 * 2^order zeroed pages, charged to the memory cgroup that the address space's owner is in, of which
 * the caller holds a reference; NULL: that the current task is in. NULL on failure. Orders above 0
 * are not tried hard. May sleep.
 */
struct folio *nvfs_helper_shadow_alloc(unsigned int order, struct mm_struct *mm,
				       struct address_space *mark, void *owner, size_t index);

/* Takes mark and owner off, and drops the reference. Any context but hard interrupt. */
void nvfs_helper_shadow_free(struct folio *folio);

/*
 * The owner of a marked page, NULL for any other page, whatever it is. Stores the page's index in
 * the owner's memory and how many pages from there on its folio has. Any context. Hold RCU: what
 * the owner is, is up to who frees it.
 */
void *nvfs_helper_shadow_owner(const struct page *page, const struct address_space *mark,
			       size_t *index, size_t *pages);

/* Shows all pages of a folio, whose first page belongs to `addr`. 0, or an errno. May sleep. */
int nvfs_helper_shadow_insert(struct vm_area_struct *vma, unsigned long addr,
			      struct folio *folio);

struct page *nvfs_helper_folio_page(struct folio *folio, size_t n);

#endif /* NVFS_SHADOW_H */
