/* SPDX-License-Identifier: GPL-2.0 */
/* Twins of inline functions and macros of the PCI, P2PDMA and block headers. */
#ifndef NVFS_TOPOLOGY_H
#define NVFS_TOPOLOGY_H

#include <linux/blkdev.h>
#include <linux/memremap.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>

#endif /* NVFS_TOPOLOGY_H */
