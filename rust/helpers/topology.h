/* SPDX-License-Identifier: GPL-2.0 */
/* Twins of inline functions and macros of the PCI, P2PDMA and block headers. */
#ifndef NVFS_TOPOLOGY_H
#define NVFS_TOPOLOGY_H

#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/ioprio.h>
#include <linux/kernfs.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/stat.h>
#include <linux/topology.h>

#include "ioprio.h"

/* linux/blkdev.h */
struct block_device *nvfs_helper_dev_to_bdev(struct device *dev);
struct device *nvfs_helper_disk_to_dev(struct gendisk *disk);
bool nvfs_helper_bdev_is_partition(struct block_device *bdev);
bool nvfs_helper_disk_takes_p2pdma(struct gendisk *disk);
bool nvfs_helper_disk_has_scheduler(struct gendisk *disk);
/* Whether it is md of another level than 4 to 6, whose parity is made from copies by the CPU. */
bool nvfs_helper_disk_is_md_without_parity(struct gendisk *disk);
u32 nvfs_helper_queue_features(struct request_queue *queue);
bool nvfs_helper_disk_is_live(struct gendisk *disk);
/*
 * Holds the module with the functions of a disk, NULL for the kernel itself: of one that is held and
 * that someone has open, or else of one that is live. False: it is going.
 */
bool nvfs_helper_disk_hold_open(struct gendisk *disk, struct module **driver);
bool nvfs_helper_disk_hold_live(struct gendisk *disk, struct module **driver);
void nvfs_helper_disk_lock(struct gendisk *disk);
void nvfs_helper_disk_unlock(struct gendisk *disk);

/* linux/module.h */
void nvfs_helper_module_get(struct module *module);
void nvfs_helper_module_put(struct module *module);

/* linux/device.h */
const char *nvfs_helper_dev_name(const struct device *dev);
int nvfs_helper_dev_to_node(struct device *dev);
bool nvfs_helper_device_trylock(struct device *dev);
void nvfs_helper_device_unlock(struct device *dev);

/* linux/fileattr.h, linux/fs.h */
int nvfs_helper_file_getattr(struct file *file, struct kstat *stat, u32 mask);
int nvfs_helper_file_xflags(struct file *file, u32 *xflags);

/* linux/ioprio.h */

/* The lowest I/O priority of the real-time class, for which a process needs a privilege. */
u16 nvfs_helper_ioprio_with_hint(unsigned int hint);
/* Whether bios keep the I/O priority that they are made with. */
bool nvfs_helper_bios_keep_ioprio(void);

/* linux/kernfs.h */
unsigned long nvfs_helper_kernfs_revision(const struct kernfs_node *folder);

/* linux/memremap.h, linux/mm.h */
bool nvfs_helper_pgmap_is_p2pdma(const struct dev_pagemap *pgmap);
bool nvfs_helper_pgmap_is_ready(const struct dev_pagemap *pgmap);
u64 nvfs_helper_pgmap_last(const struct dev_pagemap *pgmap);
void nvfs_helper_put_dev_pagemap(struct dev_pagemap *pgmap);
bool nvfs_helper_pfn_is_pci_p2pdma(unsigned long pfn);
struct page *nvfs_helper_pfn_page(unsigned long pfn);

/* linux/pci.h */
struct pci_dev *nvfs_helper_as_pci_dev(struct device *dev);
u32 nvfs_helper_pci_domain_by_name(const struct pci_dev *pdev);
struct pci_dev *nvfs_helper_pci_upstream_bridge(struct pci_dev *pdev);
resource_size_t nvfs_helper_pci_resource_start(struct pci_dev *pdev, int bar);
resource_size_t nvfs_helper_pci_resource_len(struct pci_dev *pdev, int bar);
unsigned long nvfs_helper_pci_resource_flags(struct pci_dev *pdev, int bar);

/*
 * Between begin and end, in one task and nested properly, functions that are found on the bus stay there:
 * a removal that waits for looks goes on after that.
 */
int nvfs_helper_pci_look_begin(unsigned int *noio);
void nvfs_helper_pci_look_end(int section, unsigned int noio);
void nvfs_helper_pci_wait_for_looks(void);
/* Whether a function was not yet removed. */
bool nvfs_helper_pci_is_on_bus(const struct pci_dev *pdev);

/* linux/topology.h */
int nvfs_helper_node_distance(int from, int to);

#endif /* NVFS_TOPOLOGY_H */
