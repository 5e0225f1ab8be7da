// SPDX-License-Identifier: GPL-2.0

#include "topology.h"

#include <linux/fileattr.h>
#include <linux/fs.h>
#include <linux/kstrtox.h>
#include <linux/major.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/srcu.h>

struct block_device *nvfs_helper_dev_to_bdev(struct device *dev)
{
	return dev_to_bdev(dev);
}

struct device *nvfs_helper_disk_to_dev(struct gendisk *disk)
{
	return disk_to_dev(disk);
}

bool nvfs_helper_bdev_is_partition(struct block_device *bdev)
{
	return bdev_is_partition(bdev);
}

bool nvfs_helper_disk_takes_p2pdma(struct gendisk *disk)
{
	return blk_queue_pci_p2pdma(disk->queue);
}

bool nvfs_helper_disk_has_scheduler(struct gendisk *disk)
{
	return READ_ONCE(disk->queue->elevator);
}

bool nvfs_helper_disk_is_md_without_parity(struct gendisk *disk)
{
	return disk->major == MD_MAJOR &&
	       !(READ_ONCE(disk->queue->limits.features) & BLK_FEAT_RAID_PARTIAL_STRIPES_EXPENSIVE);
}

u32 nvfs_helper_queue_features(struct request_queue *queue)
{
	return (__force u32)READ_ONCE(queue->limits.features);
}

static_assert((int)NVFS_IOPRIO_MAP > IOPRIO_HINT_DEV_DURATION_LIMIT_7);
static_assert(NVFS_IOPRIO_END <= IOPRIO_NR_HINTS);

u16 nvfs_helper_ioprio_with_hint(unsigned int hint)
{
	return IOPRIO_PRIO_VALUE_HINT(IOPRIO_CLASS_RT, IOPRIO_NR_LEVELS - 1, hint);
}

bool nvfs_helper_bios_keep_ioprio(void)
{
	/* Else a cgroup may set them all to one value. */
	return !IS_ENABLED(CONFIG_BLK_CGROUP_IOPRIO);
}

/* Unlike disk_live(), this is also right for hidden disks. */
bool nvfs_helper_disk_is_live(struct gendisk *disk)
{
	return test_bit(GD_ADDED, &disk->state) && !test_bit(GD_DEAD, &disk->state);
}

bool nvfs_helper_disk_hold_open(struct gendisk *disk, struct module **driver)
{
	*driver = disk->fops->owner;
	return try_module_get(*driver);
}

bool nvfs_helper_disk_hold_live(struct gendisk *disk, struct module **driver)
{
	bool held;

	/* A driver takes its live disks away before its memory goes, a grace period later. */
	rcu_read_lock();
	held = nvfs_helper_disk_is_live(disk) && nvfs_helper_disk_hold_open(disk, driver);
	rcu_read_unlock();
	return held;
}

void nvfs_helper_module_get(struct module *module)
{
	__module_get(module);
}

void nvfs_helper_module_put(struct module *module)
{
	module_put(module);
}

void nvfs_helper_disk_lock(struct gendisk *disk)
{
	mutex_lock(&disk->open_mutex);
}

void nvfs_helper_disk_unlock(struct gendisk *disk)
{
	mutex_unlock(&disk->open_mutex);
}

const char *nvfs_helper_dev_name(const struct device *dev)
{
	return dev_name(dev);
}

int nvfs_helper_dev_to_node(struct device *dev)
{
	return dev_to_node(dev);
}

bool nvfs_helper_device_trylock(struct device *dev)
{
	return device_trylock(dev);
}

void nvfs_helper_device_unlock(struct device *dev)
{
	device_unlock(dev);
}

int nvfs_helper_file_getattr(struct file *file, struct kstat *stat, u32 mask)
{
	return vfs_getattr_nosec(&file->f_path, stat, mask, AT_STATX_SYNC_AS_STAT);
}

int nvfs_helper_file_xflags(struct file *file, u32 *xflags)
{
	struct file_kattr attr = {};
	int error = vfs_fileattr_get(file_dentry(file), &attr);

	*xflags = attr.fsx_xflags;
	return error;
}

void nvfs_helper_put_dev_pagemap(struct dev_pagemap *pgmap)
{
	put_dev_pagemap(pgmap);
}

bool nvfs_helper_pfn_is_pci_p2pdma(unsigned long pfn)
{
	return pfn_valid(pfn) && is_pci_p2pdma_page(pfn_to_page(pfn));
}

struct page *nvfs_helper_pfn_page(unsigned long pfn)
{
	return pfn_to_page(pfn);
}

struct pci_dev *nvfs_helper_as_pci_dev(struct device *dev)
{
	return dev_is_pci(dev) ? to_pci_dev(dev) : NULL;
}

/* pci_domain_nr() looks at what is freed with the host bridge. */
u32 nvfs_helper_pci_domain_by_name(const struct pci_dev *pdev)
{
	return simple_strtoul(pci_name(pdev), NULL, 16);
}

DEFINE_STATIC_SRCU(pci_looks);

/*
 * A removal waits for those who look, so these must not wait for what waits for another removal or a
 * rescan: I/O that may be queued until its disk is back.
 */
int nvfs_helper_pci_look_begin(unsigned int *noio)
{
	*noio = memalloc_noio_save();
	return srcu_read_lock(&pci_looks);
}

void nvfs_helper_pci_look_end(int section, unsigned int noio)
{
	srcu_read_unlock(&pci_looks, section);
	memalloc_noio_restore(noio);
}

void nvfs_helper_pci_wait_for_looks(void)
{
	/* Many functions may go one after the other. */
	synchronize_srcu_expedited(&pci_looks);
}

static int is_device(struct device *dev, const void *data)
{
	return dev == data;
}

/* Not among its parent's children, which would be fewer: a virtual function does not hold its parent. */
bool nvfs_helper_pci_is_on_bus(const struct pci_dev *pdev)
{
	struct device *dev = bus_find_device(&pci_bus_type, NULL, &pdev->dev, is_device);

	put_device(dev);
	return dev;
}

struct pci_dev *nvfs_helper_pci_upstream_bridge(struct pci_dev *pdev)
{
	return pci_upstream_bridge(pdev);
}

resource_size_t nvfs_helper_pci_resource_start(struct pci_dev *pdev, int bar)
{
	return pci_resource_start(pdev, bar);
}

resource_size_t nvfs_helper_pci_resource_len(struct pci_dev *pdev, int bar)
{
	return pci_resource_len(pdev, bar);
}

unsigned long nvfs_helper_pci_resource_flags(struct pci_dev *pdev, int bar)
{
	return pci_resource_flags(pdev, bar);
}

bool nvfs_helper_pgmap_is_p2pdma(const struct dev_pagemap *pgmap)
{
	return pgmap->type == MEMORY_DEVICE_PCI_P2PDMA;
}

/* memremap_pages() counts a range when its memory map is filled, after the map can be found. */
bool nvfs_helper_pgmap_is_ready(const struct dev_pagemap *pgmap)
{
	return smp_load_acquire(&pgmap->nr_range) == 1;
}

u64 nvfs_helper_pgmap_last(const struct dev_pagemap *pgmap)
{
	return pgmap->range.end;
}

int nvfs_helper_node_distance(int from, int to)
{
	return node_distance(from, to);
}

unsigned long nvfs_helper_kernfs_revision(const struct kernfs_node *folder)
{
	return READ_ONCE(folder->dir.rev);
}
