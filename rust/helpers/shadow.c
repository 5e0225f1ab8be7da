// SPDX-License-Identifier: GPL-2.0

#include "shadow.h"

#include <linux/anon_inodes.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>

struct file *nvfs_helper_mark_file(void)
{
	static const struct file_operations fops = { };

	return anon_inode_create_getfile("[nvidia-fs]", &fops, NULL, O_RDWR, NULL);
}

struct folio *nvfs_helper_shadow_alloc(unsigned int order, struct mm_struct *mm,
				       struct address_space *mark, void *owner, size_t index)
{
	gfp_t gfp = GFP_USER | __GFP_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	struct mem_cgroup *memcg, *before;
	struct folio *folio;

	/* The process is told of a lack of memory: nobody is to be killed for it. */
	gfp |= order ? __GFP_NORETRY : __GFP_RETRY_MAYFAIL;
	/* Not that of the task, which may be looking at another process's memory. */
	memcg = get_mem_cgroup_from_mm(mm);
	before = set_active_memcg(memcg);
	folio = folio_alloc(gfp, order);
	set_active_memcg(before);
	mem_cgroup_put(memcg);
	if (!folio)
		return NULL;
	folio->private = owner;
	folio->index = index;
	/* Pairs with nvfs_helper_shadow_owner(). */
	smp_store_release(&folio->mapping, mark);
	return folio;
}

void nvfs_helper_shadow_free(struct folio *folio)
{
	/* Others may still have the pages pinned, and free them later: as plain pages. */
	WRITE_ONCE(folio->mapping, NULL);
	WRITE_ONCE(folio->private, NULL);
	folio_put(folio);
}

void *nvfs_helper_shadow_owner(const struct page *page, const struct address_space *mark,
			       size_t *index, size_t *pages)
{
	const struct folio *folio = page_folio(page);
	size_t n;

	/*
	 * No other page has this address there: in a page of any kind, the word is a pointer to
	 * something else, or no pointer.
	 */
	if (smp_load_acquire(&folio->mapping) != mark)
		return NULL;
	n = folio_page_idx(folio, page);
	*index = folio->index + n;
	*pages = folio_nr_pages(folio) - n;
	return READ_ONCE(folio->private);
}

int nvfs_helper_shadow_insert(struct vm_area_struct *vma, unsigned long addr,
			      struct folio *folio)
{
	size_t n = folio_nr_pages(folio), done = 0;
	struct page *pages[32];
	unsigned long count;
	size_t i;
	int err;

	while (done < n) {
		count = min(n - done, ARRAY_SIZE(pages));
		for (i = 0; i < count; i++)
			pages[i] = folio_page(folio, done + i);
		done += count;
		err = vm_insert_pages(vma, addr, pages, &count);
		if (err)
			return err;
		addr += ARRAY_SIZE(pages) * PAGE_SIZE;
	}
	return 0;
}

struct page *nvfs_helper_folio_page(struct folio *folio, size_t n)
{
	return folio_page(folio, n);
}
