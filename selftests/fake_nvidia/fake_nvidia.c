// SPDX-License-Identifier: GPL-2.0
/*
 * Stand-in GPU driver for tests: makes a GPU of each ivshmem-plain device of QEMU. The memory BAR
 * is the GPU memory, handed out in 64 KiB pages through /dev/fake_nvidia<N> (fake_nvidia.h), and
 * pinned and mapped for peers through the eight functions of the GPU driver (nv-p2p.h).
 *
 * Objects. A range is a piece of GPU virtual memory. It belongs to an open file, and is LIVE, then
 * DYING while the free callbacks run, then DEAD. A dead range stays only as long as persistent pins
 * hold some of its pages. A pin is one get_pages call: it has a page table and any number of
 * mappings, all of them known by the address of what the caller was given, which is looked up and
 * never dereferenced.
 *
 * Locking. There is one lock, fake_lock, and it protects everything here. It is taken below the
 * mmap lock of a process (put_pages comes from munmap), so user memory is never touched under it.
 * Nor is it held over a free callback, an injected delay, or a wait for either.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "fake_nvidia.h"
#include "nv-p2p.h"

#define NAME		"fake_nvidia"
#define MAX_GPUS	16
#define BAR		2
#define PAGE		FAKE_NVIDIA_PAGE
#define POISON		0xdddddddddddddddd
#define VA_BASE		0x200000000000		/* automatic addresses: 1 TiB for each GPU */
#define VA_WINDOW	0x010000000000
#define MAX_DELAY_MS	600000

static bool p2pdma;
module_param(p2pdma, bool, 0444);
MODULE_PARM_DESC(p2pdma, "register the BAR as P2PDMA memory when a GPU is found");

static bool poison = true;
module_param(poison, bool, 0644);
MODULE_PARM_DESC(poison, "fill pages with 0xdd when they become free");

struct gpu {
	struct kref ref;		/* by the device, by open files, by ranges */
	unsigned int minor;
	u16 real_vendor, real_device;
	u32 real_class;
	u64 pdevinfo;
	phys_addr_t phys;
	u64 size;
	void __iomem *bar;		/* NULL once the device is gone */
	unsigned int npages, nfree;
	unsigned long *used;		/* bitmap of pages */
	u64 va_next;
	u8 uuid[16];
	struct list_head ranges;	/* newest first */
};

struct gpu_file {
	struct gpu *gpu;
	struct mm_struct *mm;		/* of the opener, only to compare */
	struct list_head ranges;	/* not yet dead */
};

enum range_state { RANGE_LIVE, RANGE_DYING, RANGE_DEAD };

struct gpu_range {
	struct list_head in_gpu, in_file;
	struct gpu *gpu;
	struct gpu_file *file;		/* NULL when dead */
	enum range_state state;
	unsigned int refs;		/* one until dead, one for each pin, others in passing */
	u64 va, size;
	u32 npages;
	u32 *page;			/* pages in the BAR */
	u32 *pinned;			/* pins on each page */
	struct list_head pins;
};

enum pin_state { PIN_LIVE, PIN_CALLBACK, PIN_GONE };

struct pin {
	struct hlist_node hash;
	struct list_head in_range;
	struct list_head mappings;
	struct gpu_range *range;
	enum pin_state state;
	unsigned int refs;
	u64 va;
	u32 first, npages;		/* of the range's pages */
	bool persistent;
	bool excused;			/* an injected fault kept the caller from freeing */
	void (*callback)(void *data);
	void *data;
	struct task_struct *caller;	/* of the callback, only to compare */
	struct nvidia_p2p_page_table *table;
	bool table_gone;		/* table is an address only */
	struct nvidia_p2p_page **pages;
	struct nvidia_p2p_page *page;
	u8 *uuid;
};

struct mapping {
	struct hlist_node hash;
	struct list_head in_pin;
	struct pin *pin;
	struct pci_dev *peer;
	struct nvidia_p2p_dma_mapping *given;
	u64 *address;
	u32 entries;
};

/* Many may have the same memory mapped at once: DMA debugging takes eight for a leak. */
#define MAP_ATTRS	(DMA_ATTR_SKIP_CPU_SYNC | DMA_ATTR_DEBUGGING_IGNORE_CACHELINES)

static DEFINE_MUTEX(fake_lock);
static DECLARE_WAIT_QUEUE_HEAD(fake_wait);	/* the end of a callback, the death of a range */

static struct gpu *gpus[MAX_GPUS];
static DEFINE_HASHTABLE(pins, 8);
static DEFINE_HASHTABLE(mappings, 8);
static struct fake_nvidia_table format;
static u64 callback_flags;
static struct fake_nvidia_fault faults[FAKE_NVIDIA_NR_CALLS];

static struct {
	u64 callbacks, callbacks_done, tables, mappings, pinned_pages, misuse;
} stats;
static atomic64_t calls[FAKE_NVIDIA_NR_CALLS], calls_ok[FAKE_NVIDIA_NR_CALLS];

/*
 * What became of the last tables that are no longer valid, so that a late put can be told from a wrong
 * one. Meanwhile an address may have been that of other tables.
 */
enum retired { RETIRED_BY_PUT, RETIRED_BY_CALLBACK };

static struct {
	struct nvidia_p2p_page_table *table;
	u64 va;
	enum retired how;
} retired[4096];
static u64 nr_retired;

static dev_t fake_dev;
static struct class *fake_class;

#define misuse(fmt, ...) do {						\
	lockdep_assert_held(&fake_lock);				\
	stats.misuse++;							\
	pr_err("misuse by %s[%d]: " fmt "\n", current->comm,		\
	       task_pid_nr(current), ##__VA_ARGS__);			\
} while (0)

/* ---- GPUs and their pages ---- */

static void gpu_release(struct kref *ref)
{
	struct gpu *gpu = container_of(ref, struct gpu, ref);

	bitmap_free(gpu->used);
	kfree(gpu);
}

static void gpu_put(struct gpu *gpu)
{
	kref_put(&gpu->ref, gpu_release);
}

static void page_release(struct gpu_range *r, u32 i)
{
	struct gpu *gpu = r->gpu;

	lockdep_assert_held(&fake_lock);
	if (poison && gpu->bar) {
		void __iomem *p = gpu->bar + (u64)r->page[i] * PAGE;
		unsigned int j;

		for (j = 0; j < PAGE; j += 8)
			__raw_writeq(POISON, p + j);
		cond_resched();
	}
	__clear_bit(r->page[i], gpu->used);
	gpu->nfree++;
}

static int pages_contiguous(struct gpu *gpu, u32 *page, u32 n)
{
	unsigned long first;
	u32 i;

	first = bitmap_find_next_zero_area(gpu->used, gpu->npages, 0, n, 0);
	if (first >= gpu->npages)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		page[i] = first + i;
	return 0;
}

/*
 * Takes every other free page if there are enough, else every one; then hands out the odd ones of
 * these before the even ones. That fails only for a few pages in a nearly full BAR.
 */
static int pages_scrambled(struct gpu *gpu, u32 *page, u32 n)
{
	u32 step = gpu->nfree >= 2 * (u64)n - 1 ? 2 : 1;
	u32 seen = 0, taken = 0, half = n / 2, i;
	unsigned long bit;

	for_each_clear_bit(bit, gpu->used, gpu->npages) {
		if (seen++ % step)
			continue;
		/* Taken in the order 0, 1, 2 ...: the odd ones go to the first half. */
		page[taken & 1 ? taken / 2 : half + taken / 2] = bit;
		if (++taken == n)
			break;
	}
	if (taken < n)
		return -ENOMEM;
	for (i = 1; i < n; i++) {
		if (page[i] == page[i - 1] + 1 || page[i] + 1 == page[i - 1])
			return -ENOMEM;
	}
	return 0;
}

/* ---- ranges ---- */

static void range_put(struct gpu_range *r)
{
	lockdep_assert_held(&fake_lock);
	if (--r->refs)
		return;
	list_del(&r->in_gpu);
	gpu_put(r->gpu);
	kvfree(r->page);
	kvfree(r->pinned);
	kfree(r);
}

static phys_addr_t range_phys(struct gpu_range *r, u32 i)
{
	return r->gpu->phys + (u64)r->page[i] * PAGE;
}

/* The range that is in the way of [va, va + size), if any. */
static struct gpu_range *range_overlap(u64 va, u64 size)
{
	struct gpu_range *r;
	int i;

	for (i = 0; i < MAX_GPUS; i++) {
		if (!gpus[i])
			continue;
		list_for_each_entry(r, &gpus[i]->ranges, in_gpu) {
			if (r->state != RANGE_DEAD && va < r->va + r->size && r->va < va + size)
				return r;
		}
	}
	return NULL;
}

static int range_place(struct gpu *gpu, u64 size, u64 *va)
{
	u64 low = VA_BASE + gpu->minor * (u64)VA_WINDOW, high = low + VA_WINDOW;
	u64 start = gpu->va_next;
	bool wrapped = false;
	struct gpu_range *r;

	for (;;) {
		if (start < low || start > high || size > high - start) {
			if (wrapped)
				return -ENOMEM;
			wrapped = true;
			start = low;
		}
		r = range_overlap(start, size);
		if (!r)
			break;
		start = r->va + r->size + PAGE;
	}
	*va = start;
	gpu->va_next = start + size + PAGE;
	return 0;
}

static int range_alloc(struct gpu_file *file, struct fake_nvidia_alloc *a)
{
	struct gpu *gpu = file->gpu;
	struct gpu_range *r;
	u64 size, end;
	u32 i;
	int ret;

	if (!a->size || a->flags & ~(u64)FAKE_NVIDIA_SCRAMBLED || a->va % PAGE)
		return -EINVAL;
	if (a->size > gpu->size)
		return -ENOMEM;
	size = round_up(a->size, PAGE);
	if (check_add_overflow(a->va, size, &end))
		return -EINVAL;

	r = kzalloc_obj(*r);
	if (!r)
		return -ENOMEM;
	INIT_LIST_HEAD(&r->pins);
	r->size = size;
	r->npages = size / PAGE;
	r->page = kvmalloc_array(r->npages, sizeof(*r->page), GFP_KERNEL);
	r->pinned = kvcalloc(r->npages, sizeof(*r->pinned), GFP_KERNEL);
	if (!r->page || !r->pinned) {
		ret = -ENOMEM;
		goto free;
	}

	mutex_lock(&fake_lock);
	if (!gpu->bar)
		ret = -ENODEV;
	else if (r->npages > gpu->nfree)
		ret = -ENOMEM;
	else if (a->va && range_overlap(a->va, size))
		ret = -EEXIST;
	else if (a->flags & FAKE_NVIDIA_SCRAMBLED)
		ret = pages_scrambled(gpu, r->page, r->npages);
	else
		ret = pages_contiguous(gpu, r->page, r->npages);
	if (!ret && !a->va)
		ret = range_place(gpu, size, &a->va);
	if (ret) {
		mutex_unlock(&fake_lock);
		goto free;
	}
	for (i = 0; i < r->npages; i++)
		__set_bit(r->page[i], gpu->used);
	gpu->nfree -= r->npages;
	r->va = a->va;
	r->refs = 1;
	r->gpu = gpu;
	kref_get(&gpu->ref);
	r->file = file;
	list_add(&r->in_gpu, &gpu->ranges);
	list_add(&r->in_file, &file->ranges);
	mutex_unlock(&fake_lock);
	a->size = size;
	return 0;

free:
	kvfree(r->page);
	kvfree(r->pinned);
	kfree(r);
	return ret;
}

/* ---- tables, mappings, pins ---- */

static void mapping_drop(struct mapping *m)
{
	u32 i;

	lockdep_assert_held(&fake_lock);
	for (i = 0; i < m->entries; i++)
		dma_unmap_resource(&m->peer->dev, m->address[i], PAGE, DMA_BIDIRECTIONAL,
				   MAP_ATTRS);
	pci_dev_put(m->peer);
	hash_del(&m->hash);
	list_del(&m->in_pin);
	kvfree(m->address);
	kfree(m->given);
	kfree(m);
	stats.mappings--;
}

static void table_free(struct pin *p)
{
	kfree(p->table);
	kvfree(p->pages);
	kvfree(p->page);
	kfree(p->uuid);
}

static void table_drop(struct pin *p)
{
	lockdep_assert_held(&fake_lock);
	table_free(p);
	p->table_gone = true;
	stats.tables--;
}

static void pin_put(struct pin *p)
{
	lockdep_assert_held(&fake_lock);
	if (!--p->refs)
		kfree(p);
}

/* Ends a pin, after its callback or by a put. */
static void pin_end(struct pin *p, enum retired how)
{
	struct gpu_range *r = p->range;
	struct mapping *m, *next;
	u32 i = nr_retired++ % ARRAY_SIZE(retired);

	lockdep_assert_held(&fake_lock);
	retired[i].table = p->table;
	retired[i].va = p->va;
	retired[i].how = how;
	if (!list_empty(&p->mappings) && !p->excused)
		misuse("pin of %#llx ends with mappings", p->va);
	list_for_each_entry_safe(m, next, &p->mappings, in_pin)
		mapping_drop(m);
	if (!p->table_gone)
		table_drop(p);
	hash_del(&p->hash);
	list_del(&p->in_range);
	for (i = p->first; i < p->first + p->npages; i++) {
		if (!--r->pinned[i] && r->state == RANGE_DEAD)
			page_release(r, i);
	}
	stats.pinned_pages -= p->npages;
	range_put(r);

	p->state = PIN_GONE;
	wake_up_all(&fake_wait);
	pin_put(p);
}

struct second_callback {
	struct work_struct work;
	struct completion begun;
	struct pin *pin;
};

static void call_back_again(struct work_struct *work)
{
	struct second_callback *second = container_of(work, struct second_callback, work);

	complete(&second->begun);
	second->pin->callback(second->pin->data);
}

static void pin_call_back(struct pin *p)
{
	bool twice = callback_flags & FAKE_NVIDIA_TWICE;
	struct second_callback second = {
		.pin = p,
	};

	p->refs++;
	p->state = PIN_CALLBACK;
	p->caller = current;
	stats.callbacks += 1 + twice;
	mutex_unlock(&fake_lock);

	if (twice) {
		INIT_WORK_ONSTACK(&second.work, call_back_again);
		init_completion(&second.begun);
		queue_work(system_dfl_wq, &second.work);
		/* The first may let the callbacks' module go. */
		wait_for_completion(&second.begun);
	}
	p->callback(p->data);
	if (twice) {
		flush_work(&second.work);
		destroy_work_on_stack(&second.work);
	}

	mutex_lock(&fake_lock);
	stats.callbacks_done += 1 + twice;
	p->caller = NULL;
	if (!p->table_gone && !p->excused)
		misuse("callback for %#llx did not free the page table", p->va);
	pin_end(p, RETIRED_BY_CALLBACK);
	pin_put(p);
}

static struct pin *range_next_legacy(struct gpu_range *r)
{
	struct pin *p;

	list_for_each_entry(p, &r->pins, in_range) {
		if (!p->persistent)
			return p;
	}
	return NULL;
}

/*
 * Frees a range, or waits until someone else has. Called with the lock held, which is dropped in
 * between; the range may be gone afterwards.
 */
static void range_free(struct gpu_range *r)
{
	struct pin *p;
	u32 i;

	lockdep_assert_held(&fake_lock);
	if (r->state != RANGE_LIVE) {
		r->refs++;
		mutex_unlock(&fake_lock);
		wait_event(fake_wait, READ_ONCE(r->state) == RANGE_DEAD);
		mutex_lock(&fake_lock);
		range_put(r);
		return;
	}

	/* From here on nobody can pin it. */
	r->state = RANGE_DYING;
	while ((p = range_next_legacy(r)))
		pin_call_back(p);
	WRITE_ONCE(r->state, RANGE_DEAD);
	list_del(&r->in_file);
	r->file = NULL;
	for (i = 0; i < r->npages; i++) {
		if (!r->pinned[i])
			page_release(r, i);
	}
	wake_up_all(&fake_wait);
	range_put(r);
}

/* The live range of the calling process that covers all of [va, va + len). */
static struct gpu_range *range_to_pin(u64 va, u64 len)
{
	struct gpu_range *r;
	int i;

	lockdep_assert_held(&fake_lock);
	if (!current->mm)
		return NULL;
	for (i = 0; i < MAX_GPUS; i++) {
		if (!gpus[i])
			continue;
		list_for_each_entry(r, &gpus[i]->ranges, in_gpu) {
			if (r->state == RANGE_LIVE && r->file->mm == current->mm &&
			    va >= r->va && va - r->va < r->size && len <= r->size - (va - r->va))
				return r;
		}
	}
	return NULL;
}

/* Fills in the page table; old tables end before the flags, and so does their memory. */
static int table_make(struct pin *p)
{
	struct gpu *gpu = p->range->gpu;
	u32 i;

	p->table = kzalloc(format.version >> 16 == NV_P2P_TABLE_V1 >> 16 ?
			   offsetof(struct nvidia_p2p_page_table, flags) : sizeof(*p->table),
			   GFP_KERNEL);
	p->pages = kvmalloc_array(p->npages, sizeof(*p->pages), GFP_KERNEL);
	p->page = kvcalloc(p->npages, sizeof(*p->page), GFP_KERNEL);
	p->uuid = kmemdup(gpu->uuid, sizeof(gpu->uuid), GFP_KERNEL);
	if (!p->table || !p->pages || !p->page || !p->uuid) {
		table_free(p);
		return -ENOMEM;
	}
	for (i = 0; i < p->npages; i++) {
		p->page[i].physical_address = range_phys(p->range, p->first + i);
		p->pages[i] = &p->page[i];
	}
	p->table->version = format.version;
	p->table->page_size = format.page_size;
	p->table->pages = p->pages;
	p->table->entries = p->npages;
	p->table->gpu_uuid = p->uuid;
	return 0;
}

static int do_get(u64 va, u64 len, struct nvidia_p2p_page_table **table, bool persistent,
		  void (*callback)(void *data), void *data)
{
	struct pin *p;
	u32 i;
	int ret = -EINVAL;

	if (!table || !len || va % PAGE || len % PAGE || (!persistent && !callback))
		return -EINVAL;
	p = kzalloc_obj(*p);
	if (!p)
		return -ENOMEM;

	mutex_lock(&fake_lock);
	p->range = range_to_pin(va, len);
	if (!p->range)
		goto fail;
	p->va = va;
	p->first = (va - p->range->va) / PAGE;
	p->npages = len / PAGE;
	ret = table_make(p);
	if (ret)
		goto fail;
	stats.tables++;

	INIT_LIST_HEAD(&p->mappings);
	p->refs = 1;
	p->persistent = persistent;
	p->callback = callback;
	p->data = data;
	p->range->refs++;
	list_add_tail(&p->in_range, &p->range->pins);
	hash_add(pins, &p->hash, (unsigned long)p->table);
	for (i = p->first; i < p->first + p->npages; i++)
		p->range->pinned[i]++;
	stats.pinned_pages += p->npages;
	*table = p->table;
	mutex_unlock(&fake_lock);
	return 0;

fail:
	mutex_unlock(&fake_lock);
	kfree(p);
	return ret;
}

/* The pin of a table that the caller may still use. */
static struct pin *pin_of_table(struct nvidia_p2p_page_table *table)
{
	struct pin *p;

	lockdep_assert_held(&fake_lock);
	hash_for_each_possible(pins, p, hash, (unsigned long)table) {
		if (p->table == table && !p->table_gone)
			return p;
	}
	return NULL;
}

static struct mapping *mapping_of(struct nvidia_p2p_dma_mapping *given)
{
	struct mapping *m;

	lockdep_assert_held(&fake_lock);
	hash_for_each_possible(mappings, m, hash, (unsigned long)given) {
		if (m->given == given)
			return m;
	}
	return NULL;
}

/* A put of a table that is not there. */
static int put_retired(u64 va, struct nvidia_p2p_page_table *table, bool persistent)
{
	u64 at, oldest = nr_retired - min_t(u64, nr_retired, ARRAY_SIZE(retired));

	for (at = nr_retired; at-- > oldest;) {
		u32 i = at % ARRAY_SIZE(retired);

		if (retired[i].table != table || retired[i].va != va)
			continue;
		if (retired[i].how == RETIRED_BY_CALLBACK && !persistent)
			return 0;
		misuse("second put of %#llx", va);
		return -EINVAL;
	}
	misuse("put of %#llx with an unknown page table", va);
	return -EINVAL;
}

static int do_put(u64 va, struct nvidia_p2p_page_table *table, bool persistent)
{
	struct pin *p, *found = NULL;
	int ret = 0;

	mutex_lock(&fake_lock);
	/* One address may be two tables for a moment: one freed in its callback, and a new one. */
	hash_for_each_possible(pins, p, hash, (unsigned long)table) {
		if (p->table == table && p->va == va) {
			found = p;
			break;
		}
	}
	if (!found) {
		ret = put_retired(va, table, persistent);
	} else if (found->persistent != persistent) {
		misuse("put of %#llx is of the other kind than its get", va);
		ret = -EINVAL;
	} else if (found->state == PIN_LIVE) {
		pin_end(found, RETIRED_BY_PUT);
	} else if (found->caller == current) {
		misuse("put of %#llx inside its callback", va);
		ret = -EDEADLK;
	} else if (!(callback_flags & FAKE_NVIDIA_PUT_RETURNS)) {
		found->refs++;
		mutex_unlock(&fake_lock);
		wait_event(fake_wait, READ_ONCE(found->state) == PIN_GONE);
		mutex_lock(&fake_lock);
		pin_put(found);
	}
	mutex_unlock(&fake_lock);
	return ret;
}

static int do_map(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
		  struct nvidia_p2p_dma_mapping **given)
{
	struct mapping *m;
	struct pin *p;
	int ret = -EINVAL;

	if (!peer || !given)
		return -EINVAL;
	m = kzalloc_obj(*m);
	if (!m)
		return -ENOMEM;
	mutex_lock(&fake_lock);
	p = pin_of_table(table);
	if (!p) {
		misuse("mapping of an unknown page table");
		goto fail;
	}
	if (p->state != PIN_LIVE)	/* came too late, but not wrong */
		goto fail;
	ret = -ENOMEM;
	m->given = kzalloc_obj(*m->given);
	m->address = kvmalloc_array(p->npages, sizeof(*m->address), GFP_KERNEL);
	if (!m->given || !m->address)
		goto fail;
	ret = -EIO;
	for (; m->entries < p->npages; m->entries++) {
		phys_addr_t phys = range_phys(p->range, p->first + m->entries);
		dma_addr_t dma = dma_map_resource(&peer->dev, phys, PAGE, DMA_BIDIRECTIONAL,
						  MAP_ATTRS);

		if (dma_mapping_error(&peer->dev, dma))
			goto fail;
		m->address[m->entries] = dma;
	}
	m->given->version = NV_P2P_TABLE_V2;
	m->given->page_size_type = NV_P2P_PAGE_64K;
	m->given->entries = m->entries;
	m->given->dma_addresses = m->address;
	m->peer = pci_dev_get(peer);
	m->pin = p;
	list_add(&m->in_pin, &p->mappings);
	hash_add(mappings, &m->hash, (unsigned long)m->given);
	stats.mappings++;
	*given = m->given;
	mutex_unlock(&fake_lock);
	return 0;

fail:
	while (m->entries)
		dma_unmap_resource(&peer->dev, m->address[--m->entries], PAGE, DMA_BIDIRECTIONAL,
				   MAP_ATTRS);
	mutex_unlock(&fake_lock);
	kvfree(m->address);
	kfree(m->given);
	kfree(m);
	return ret;
}

static int do_unmap(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
		    struct nvidia_p2p_dma_mapping *given)
{
	struct mapping *m;
	int ret = -EINVAL;

	mutex_lock(&fake_lock);
	m = mapping_of(given);
	if (!m) {
		misuse("unmap of an unknown mapping");
	} else if (m->peer != peer || m->pin->table != table) {
		misuse("unmap with another peer or page table");
	} else {
		if (m->pin->caller == current)
			misuse("unmap instead of free inside the callback");
		mapping_drop(m);
		ret = 0;
	}
	mutex_unlock(&fake_lock);
	return ret;
}

static int do_free_table(struct nvidia_p2p_page_table *table)
{
	struct pin *p;
	int ret = -EINVAL;

	mutex_lock(&fake_lock);
	p = pin_of_table(table);
	if (!p) {
		misuse("free of an unknown page table");
	} else if (p->state != PIN_CALLBACK) {
		misuse("free of the page table of %#llx outside a callback", p->va);
	} else {
		table_drop(p);
		ret = 0;
	}
	mutex_unlock(&fake_lock);
	return ret;
}

static int do_free_mapping(struct nvidia_p2p_dma_mapping *given)
{
	struct mapping *m;
	int ret = -EINVAL;

	mutex_lock(&fake_lock);
	m = mapping_of(given);
	if (!m) {
		misuse("free of an unknown mapping");
	} else if (m->pin->state != PIN_CALLBACK) {
		misuse("free of a mapping of %#llx outside a callback", m->pin->va);
	} else {
		mapping_drop(m);
		ret = 0;
	}
	mutex_unlock(&fake_lock);
	return ret;
}

/* ---- the exported functions ---- */

static int call_begin(enum fake_nvidia_call call)
{
	struct fake_nvidia_fault *f = &faults[call];
	u32 delay;
	int ret = 0;

	might_sleep();
	atomic64_inc(&calls[call]);
	mutex_lock(&fake_lock);
	delay = f->delay_ms;
	if (f->error) {
		if (f->after) {
			f->after--;
		} else if (f->times) {
			f->times--;
			ret = f->error;
		}
	}
	mutex_unlock(&fake_lock);
	/* A new fault for this call ends the delay. */
	if (delay)
		wait_event_timeout(fake_wait, READ_ONCE(f->delay_ms) != delay,
				   msecs_to_jiffies(delay));
	return ret;
}

static int call_end(enum fake_nvidia_call call, int ret)
{
	if (!ret)
		atomic64_inc(&calls_ok[call]);
	return ret;
}

/* A release that failed on purpose: what it leaves behind is not the caller's fault. */
static void excuse(struct nvidia_p2p_page_table *table, struct nvidia_p2p_dma_mapping *given)
{
	struct mapping *m;
	struct pin *p;

	mutex_lock(&fake_lock);
	m = given ? mapping_of(given) : NULL;
	p = m ? m->pin : pin_of_table(table);
	if (p)
		p->excused = true;
	mutex_unlock(&fake_lock);
}

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 va, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	int ret = call_begin(FAKE_NVIDIA_GET_PAGES);

	if (!ret)
		ret = p2p_token || va_space ? -EINVAL :
			do_get(va, length, page_table, false, free_callback, data);
	return call_end(FAKE_NVIDIA_GET_PAGES, ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 va,
			 struct nvidia_p2p_page_table *page_table)
{
	int ret = call_begin(FAKE_NVIDIA_PUT_PAGES);

	if (!ret)
		ret = p2p_token || va_space ? -EINVAL : do_put(va, page_table, false);
	return call_end(FAKE_NVIDIA_PUT_PAGES, ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages);

int nvidia_p2p_get_pages_persistent(u64 va, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	int ret = call_begin(FAKE_NVIDIA_GET_PAGES_PERSISTENT);

	if (!ret)
		ret = flags ? -EINVAL : do_get(va, length, page_table, true, NULL, NULL);
	return call_end(FAKE_NVIDIA_GET_PAGES_PERSISTENT, ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(u64 va, struct nvidia_p2p_page_table *page_table, u32 flags)
{
	int ret = call_begin(FAKE_NVIDIA_PUT_PAGES_PERSISTENT);

	if (!ret)
		ret = flags ? -EINVAL : do_put(va, page_table, true);
	return call_end(FAKE_NVIDIA_PUT_PAGES_PERSISTENT, ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages_persistent);

int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	int ret = call_begin(FAKE_NVIDIA_DMA_MAP_PAGES);

	if (!ret)
		ret = do_map(peer, page_table, dma_mapping);
	return call_end(FAKE_NVIDIA_DMA_MAP_PAGES, ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	int ret = call_begin(FAKE_NVIDIA_DMA_UNMAP_PAGES);

	if (ret)
		excuse(page_table, dma_mapping);
	else
		ret = do_unmap(peer, page_table, dma_mapping);
	return call_end(FAKE_NVIDIA_DMA_UNMAP_PAGES, ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	int ret = call_begin(FAKE_NVIDIA_FREE_PAGE_TABLE);

	if (ret)
		excuse(page_table, NULL);
	else
		ret = do_free_table(page_table);
	return call_end(FAKE_NVIDIA_FREE_PAGE_TABLE, ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_page_table);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	int ret = call_begin(FAKE_NVIDIA_FREE_DMA_MAPPING);

	if (ret)
		excuse(NULL, dma_mapping);
	else
		ret = do_free_mapping(dma_mapping);
	return call_end(FAKE_NVIDIA_FREE_DMA_MAPPING, ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_dma_mapping);

/* ---- the character device ---- */

static bool page_there(struct gpu_range *r, u32 i)
{
	return r->state != RANGE_DEAD || r->pinned[i];
}

/* The range that @va lies in: one that is not dead, or else the newest one still pinned there. */
static struct gpu_range *range_at(struct gpu *gpu, u64 va, u32 *i)
{
	struct gpu_range *r, *dead = NULL;

	lockdep_assert_held(&fake_lock);
	list_for_each_entry(r, &gpu->ranges, in_gpu) {
		if (va < r->va || va - r->va >= r->size)
			continue;
		*i = (va - r->va) / PAGE;
		if (r->state != RANGE_DEAD)
			return r;
		if (!dead && page_there(r, *i))
			dead = r;
	}
	if (dead)
		*i = (va - dead->va) / PAGE;
	return dead;
}

static int fake_where(struct gpu *gpu, struct fake_nvidia_where *w)
{
	struct gpu_range *r;
	u32 i;

	mutex_lock(&fake_lock);
	r = range_at(gpu, w->va, &i);
	if (r) {
		w->bar_offset = (u64)r->page[i] * PAGE + w->va % PAGE;
		w->contiguous = PAGE - w->va % PAGE;
		for (i++; i < r->npages && page_there(r, i); i++) {
			if (r->page[i] != r->page[i - 1] + 1)
				break;
			w->contiguous += PAGE;
		}
	}
	mutex_unlock(&fake_lock);
	return r ? 0 : -EINVAL;
}

/* Copies inside one GPU page; @buf is aligned like @va. */
static int fake_copy_page(struct gpu *gpu, u64 va, u8 *buf, size_t n, bool write)
{
	void __iomem *p;
	struct gpu_range *r;
	u32 i;

	lockdep_assert_held(&fake_lock);
	if (!gpu->bar)
		return -ENODEV;
	r = range_at(gpu, va, &i);
	if (!r)
		return -EINVAL;
	p = gpu->bar + (u64)r->page[i] * PAGE + va % PAGE;
	while (n) {
		size_t step = IS_ALIGNED((unsigned long)p, 8) && n >= 8 ? 8 : 1;

		if (step == 8 && write)
			__raw_writeq(*(u64 *)buf, p);
		else if (step == 8)
			*(u64 *)buf = __raw_readq(p);
		else if (write)
			__raw_writeb(*buf, p);
		else
			*buf = __raw_readb(p);
		p += step;
		buf += step;
		n -= step;
	}
	return 0;
}

static int fake_copy(struct gpu *gpu, struct fake_nvidia_copy *c, bool write)
{
	u8 __user *user = u64_to_user_ptr(c->buf);
	u8 *bounce;
	u64 end;
	int ret = 0;

	if (check_add_overflow(c->va, c->size, &end))
		return -EINVAL;
	bounce = kmalloc(PAGE, GFP_KERNEL);
	if (!bounce)
		return -ENOMEM;
	while (c->size && !ret) {
		size_t n = min_t(u64, c->size, PAGE - c->va % PAGE);
		u8 *b = bounce + c->va % PAGE;

		if (write && copy_from_user(b, user, n)) {
			ret = -EFAULT;
			break;
		}
		mutex_lock(&fake_lock);
		ret = fake_copy_page(gpu, c->va, b, n, write);
		mutex_unlock(&fake_lock);
		if (!ret && !write && copy_to_user(user, b, n))
			ret = -EFAULT;
		if (!ret && fatal_signal_pending(current))
			ret = -EINTR;
		user += n;
		c->va += n;
		c->size -= n;
		cond_resched();
	}
	kfree(bounce);
	return ret;
}

static int fake_free(struct gpu_file *file, u64 va)
{
	struct gpu_range *r;
	int ret = -EINVAL;

	mutex_lock(&fake_lock);
	list_for_each_entry(r, &file->ranges, in_file) {
		if (r->va == va && r->state == RANGE_LIVE) {
			range_free(r);
			ret = 0;
			break;
		}
	}
	mutex_unlock(&fake_lock);
	return ret;
}

static int fake_fault(const struct fake_nvidia_fault *f)
{
	if (f->call >= FAKE_NVIDIA_NR_CALLS || f->error > 0 || f->error < -MAX_ERRNO ||
	    f->delay_ms > MAX_DELAY_MS || f->reserved)
		return -EINVAL;
	mutex_lock(&fake_lock);
	faults[f->call] = *f;
	mutex_unlock(&fake_lock);
	wake_up_all(&fake_wait);
	return 0;
}

static void fake_reset(void)
{
	mutex_lock(&fake_lock);
	memset(faults, 0, sizeof(faults));
	callback_flags = 0;
	format.version = NV_P2P_TABLE_V2;
	format.page_size = NV_P2P_PAGE_64K;
	mutex_unlock(&fake_lock);
}

static void fake_counts(struct gpu *gpu, struct fake_nvidia_counts *c)
{
	int i;

	mutex_lock(&fake_lock);
	for (i = 0; i < FAKE_NVIDIA_NR_CALLS; i++) {
		c->calls[i] = atomic64_read(&calls[i]);
		c->ok[i] = atomic64_read(&calls_ok[i]);
	}
	c->callbacks = stats.callbacks;
	c->callbacks_done = stats.callbacks_done;
	c->tables = stats.tables;
	c->mappings = stats.mappings;
	c->pinned_pages = stats.pinned_pages;
	c->free_pages = gpu->nfree;
	c->misuse = stats.misuse;
	mutex_unlock(&fake_lock);
}

static struct pci_dev *fake_find(u64 pdevinfo)
{
	return pci_get_domain_bus_and_slot(pdevinfo >> 32, pdevinfo >> 8 & 0xff, pdevinfo & 0xff);
}

static int fake_distance(struct gpu *gpu, struct fake_nvidia_distance *d)
{
	struct pci_dev *provider = fake_find(gpu->pdevinfo);
	struct pci_dev *other = fake_find(d->pdevinfo);
	struct device *client;
	int ret = -ENODEV;

	if (provider && other) {
		client = &other->dev;
		d->distance = pci_p2pdma_distance_many(provider, &client, 1, false);
		ret = 0;
	}
	pci_dev_put(other);
	pci_dev_put(provider);
	return ret;
}

static int fake_hold_rcu(u64 ms)
{
	static atomic_t reader;		/* 0: none, 1: there is one, 2: it is to end */
	unsigned long end = jiffies + msecs_to_jiffies(min_t(u64, ms, MAX_DELAY_MS));
	int ret;

	if (!ms)
		return atomic_cmpxchg(&reader, 1, 2) == 1 ? 0 : -EBUSY;
	rcu_read_lock();
	ret = atomic_cmpxchg(&reader, 0, 1) ? -EBUSY : 0;
	if (!ret) {
		while (atomic_read(&reader) == 1 && time_before(jiffies, end))
			cpu_relax();
		ret = atomic_xchg(&reader, 0) == 2 ? 0 : -ETIMEDOUT;
	}
	rcu_read_unlock();
	return ret;
}

static long fake_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct gpu_file *file = filp->private_data;
	union {
		struct fake_nvidia_alloc alloc;
		struct fake_nvidia_where where;
		struct fake_nvidia_copy copy;
		struct fake_nvidia_fault fault;
		struct fake_nvidia_table table;
		struct fake_nvidia_counts counts;
		struct fake_nvidia_info info;
		struct fake_nvidia_distance distance;
		u64 va;
	} u;
	void __user *user = (void __user *)arg;
	size_t size = _IOC_SIZE(cmd);
	int ret = 0;

	if (size > sizeof(u))
		return -ENOTTY;
	memset(&u, 0, sizeof(u));
	if (_IOC_DIR(cmd) & _IOC_WRITE && copy_from_user(&u, user, size))
		return -EFAULT;

	switch (cmd) {
	case FAKE_NVIDIA_ALLOC:
		ret = range_alloc(file, &u.alloc);
		break;
	case FAKE_NVIDIA_FREE:
		ret = fake_free(file, u.va);
		break;
	case FAKE_NVIDIA_WHERE:
		ret = fake_where(file->gpu, &u.where);
		break;
	case FAKE_NVIDIA_READ:
		ret = fake_copy(file->gpu, &u.copy, false);
		break;
	case FAKE_NVIDIA_WRITE:
		ret = fake_copy(file->gpu, &u.copy, true);
		break;
	case FAKE_NVIDIA_FAULT:
		ret = fake_fault(&u.fault);
		break;
	case FAKE_NVIDIA_TABLE:
		mutex_lock(&fake_lock);
		format = u.table;
		mutex_unlock(&fake_lock);
		break;
	case FAKE_NVIDIA_COUNTS:
		fake_counts(file->gpu, &u.counts);
		break;
	case FAKE_NVIDIA_INFO:
		u.info.pdevinfo = file->gpu->pdevinfo;
		u.info.bar_size = file->gpu->size;
		u.info.bar_phys = file->gpu->phys;
		memcpy(u.info.uuid, file->gpu->uuid, sizeof(u.info.uuid));
		break;
	case FAKE_NVIDIA_DISTANCE:
		ret = fake_distance(file->gpu, &u.distance);
		break;
	case FAKE_NVIDIA_RESET:
		fake_reset();
		break;
	case FAKE_NVIDIA_HOLD_RCU:
		ret = fake_hold_rcu(u.va);
		break;
	case FAKE_NVIDIA_CALLBACKS:
		mutex_lock(&fake_lock);
		callback_flags = u.va;
		mutex_unlock(&fake_lock);
		break;
	default:
		return -ENOTTY;
	}
	if (!ret && _IOC_DIR(cmd) & _IOC_READ && copy_to_user(user, &u, size)) {
		if (cmd == FAKE_NVIDIA_ALLOC)
			fake_free(file, u.alloc.va);
		return -EFAULT;
	}
	return ret;
}

static int fake_open(struct inode *inode, struct file *filp)
{
	unsigned int minor = iminor(inode) - MINOR(fake_dev);
	struct gpu_file *file;
	struct gpu *gpu = NULL;

	if (!current->mm)
		return -EINVAL;
	file = kzalloc_obj(*file);
	if (!file)
		return -ENOMEM;
	mutex_lock(&fake_lock);
	if (minor < MAX_GPUS)
		gpu = gpus[minor];
	if (gpu)
		kref_get(&gpu->ref);
	mutex_unlock(&fake_lock);
	if (!gpu) {
		kfree(file);
		return -ENODEV;
	}
	file->gpu = gpu;
	file->mm = current->mm;
	mmgrab(file->mm);
	INIT_LIST_HEAD(&file->ranges);
	filp->private_data = file;
	return 0;
}

static int fake_release(struct inode *inode, struct file *filp)
{
	struct gpu_file *file = filp->private_data;
	struct gpu_range *r;

	mutex_lock(&fake_lock);
	while ((r = list_first_entry_or_null(&file->ranges, struct gpu_range, in_file)))
		range_free(r);
	mutex_unlock(&fake_lock);
	mmdrop(file->mm);
	gpu_put(file->gpu);
	kfree(file);
	return 0;
}

static const struct file_operations fake_fops = {
	.owner = THIS_MODULE,
	.open = fake_open,
	.release = fake_release,
	.unlocked_ioctl = fake_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/* ---- the PCI driver ---- */

static u64 pci_address(struct pci_dev *pdev)
{
	return (u64)pci_domain_nr(pdev->bus) << 32 | pdev->bus->number << 8 | pdev->devfn;
}

static const struct pci_device_id fake_ids[] = {
	{ PCI_DEVICE(0x1af4, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, fake_ids);

static bool is_gpu(struct pci_dev *pdev);

/* Makes the GPU known under its number in PCI address order, or the next one that is free. */
static int gpu_add(struct gpu *gpu)
{
	struct pci_dev *other = NULL;
	unsigned int minor = 0;
	int ret = -ENOSPC;

	for_each_pci_dev(other) {
		if (is_gpu(other) && pci_address(other) < gpu->pdevinfo)
			minor++;
	}
	mutex_lock(&fake_lock);
	for (; minor < MAX_GPUS; minor++) {
		if (gpus[minor])
			continue;
		gpus[minor] = gpu;
		gpu->minor = minor;
		ret = 0;
		break;
	}
	mutex_unlock(&fake_lock);
	return ret;
}

/* Takes all from the users of a GPU. Open files and persistent pins may stay. */
static void gpu_gone(struct gpu *gpu)
{
	void __iomem *bar = gpu->bar;
	struct gpu_range *r;

	mutex_lock(&fake_lock);
	gpus[gpu->minor] = NULL;
again:
	list_for_each_entry(r, &gpu->ranges, in_gpu) {
		if (r->state != RANGE_DEAD) {
			range_free(r);
			goto again;
		}
	}
	gpu->bar = NULL;
	mutex_unlock(&fake_lock);
	iounmap(bar);
}

static int fake_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct device *node;
	struct gpu *gpu;
	int ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = pcim_request_region(pdev, BAR, NAME);
	if (ret)
		return ret;
	if (p2pdma) {
		ret = pci_p2pdma_add_resource(pdev, BAR, 0, 0);
		if (ret)
			return ret;
	}

	gpu = kzalloc_obj(*gpu);
	if (!gpu)
		return -ENOMEM;
	kref_init(&gpu->ref);
	INIT_LIST_HEAD(&gpu->ranges);
	gpu->phys = pci_resource_start(pdev, BAR);
	gpu->size = pci_resource_len(pdev, BAR);
	gpu->npages = gpu->size / PAGE;
	gpu->nfree = gpu->npages;
	gpu->pdevinfo = pci_address(pdev);
	memcpy(gpu->uuid, "FakeGPU:", 8);
	memcpy(gpu->uuid + 8, &gpu->pdevinfo, 8);
	ret = -ENODEV;
	if (!gpu->npages)
		goto put;
	ret = -ENOMEM;
	gpu->used = bitmap_zalloc(gpu->npages, GFP_KERNEL);
	/* Not write-combining: P2PDMA maps the same memory uncached. */
	gpu->bar = ioremap(gpu->phys, gpu->size);
	if (!gpu->used || !gpu->bar)
		goto unmap;
	ret = gpu_add(gpu);
	if (ret)
		goto unmap;

	pci_set_master(pdev);
	pci_set_drvdata(pdev, gpu);
	gpu->real_vendor = pdev->vendor;
	gpu->real_device = pdev->device;
	gpu->real_class = pdev->class;
	pdev->vendor = 0x10de;
	pdev->device = 0x2330;
	pdev->class = 0x030200;

	node = device_create(fake_class, &pdev->dev, fake_dev + gpu->minor, NULL, NAME "%u",
			     gpu->minor);
	if (IS_ERR(node)) {
		ret = PTR_ERR(node);
		goto remove;
	}
	pci_info(pdev, "GPU %u, %u pages\n", gpu->minor, gpu->npages);
	return 0;

remove:
	gpu_gone(gpu);
	pdev->vendor = gpu->real_vendor;
	pdev->device = gpu->real_device;
	pdev->class = gpu->real_class;
	pci_clear_master(pdev);
	gpu_put(gpu);
	return ret;
unmap:
	if (gpu->bar)
		iounmap(gpu->bar);
put:
	gpu_put(gpu);
	return ret;
}

static void fake_remove(struct pci_dev *pdev)
{
	struct gpu *gpu = pci_get_drvdata(pdev);

	device_destroy(fake_class, fake_dev + gpu->minor);
	gpu_gone(gpu);
	pci_clear_master(pdev);
	pdev->vendor = gpu->real_vendor;
	pdev->device = gpu->real_device;
	pdev->class = gpu->real_class;
	gpu_put(gpu);
}

static struct pci_driver fake_driver = {
	.name = NAME,
	.id_table = fake_ids,
	.probe = fake_probe,
	.remove = fake_remove,
};

/* Whether a device is a GPU of ours, bound or still to be bound. */
static bool is_gpu(struct pci_dev *pdev)
{
	return pdev->dev.driver == &fake_driver.driver || pci_match_id(fake_ids, pdev);
}

static char *fake_devnode(const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return NULL;
}

static int __init fake_init(void)
{
	int major, ret;

	fake_reset();
	major = __register_chrdev(0, 0, MAX_GPUS, NAME, &fake_fops);
	if (major < 0)
		return major;
	fake_dev = MKDEV(major, 0);
	fake_class = class_create(NAME);
	if (IS_ERR(fake_class)) {
		ret = PTR_ERR(fake_class);
		goto chrdev;
	}
	fake_class->devnode = fake_devnode;
	ret = pci_register_driver(&fake_driver);
	if (ret)
		goto class;
	return 0;

class:
	class_destroy(fake_class);
chrdev:
	__unregister_chrdev(major, 0, MAX_GPUS, NAME);
	return ret;
}
module_init(fake_init);

static void __exit fake_exit(void)
{
	struct hlist_node *next;
	struct pin *p;
	int i;

	pci_unregister_driver(&fake_driver);
	class_destroy(fake_class);
	__unregister_chrdev(MAJOR(fake_dev), 0, MAX_GPUS, NAME);

	/* Persistent pins that were never put. */
	mutex_lock(&fake_lock);
	hash_for_each_safe(pins, i, next, p, hash) {
		pr_err("pin of %#llx left behind\n", p->va);
		pin_end(p, RETIRED_BY_PUT);
	}
	mutex_unlock(&fake_lock);
}
module_exit(fake_exit);

MODULE_DESCRIPTION("Stand-in GPU driver for tests");
MODULE_LICENSE("GPL");
