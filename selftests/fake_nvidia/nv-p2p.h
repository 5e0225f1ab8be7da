/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The GPU driver's peer-to-peer interface as the stand-in offers it: own declarations of the eight
 * functions and of the layouts that a caller relies on.
 */
#ifndef FAKE_NV_P2P_H
#define FAKE_NV_P2P_H

#include <linux/build_bug.h>
#include <linux/pci.h>
#include <linux/stddef.h>
#include <linux/types.h>

/* The two generations of page tables: the second one has the flags field. */
#define NV_P2P_TABLE_V1		0x00010002
#define NV_P2P_TABLE_V2		0x00020000

#define NV_P2P_PAGE_64K		1

struct nvidia_p2p_page {
	u64 physical_address;
	u64 unused[3];
};

struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size;			/* NV_P2P_PAGE_64K */
	struct nvidia_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid;			/* 16 bytes */
	u32 flags;			/* not there in NV_P2P_TABLE_V1 */
};

struct nvidia_p2p_dma_mapping {
	u32 version;
	u32 page_size_type;
	u32 entries;
	u64 *dma_addresses;		/* one for each GPU page */
	void *private;
	void *private2;
};

static_assert(sizeof(struct nvidia_p2p_page) == 32);
static_assert(sizeof(struct nvidia_p2p_page_table) == 40);
static_assert(offsetof(struct nvidia_p2p_page_table, pages) == 8);
static_assert(offsetof(struct nvidia_p2p_page_table, entries) == 16);
static_assert(offsetof(struct nvidia_p2p_page_table, gpu_uuid) == 24);
static_assert(offsetof(struct nvidia_p2p_page_table, flags) == 32);
static_assert(sizeof(struct nvidia_p2p_dma_mapping) == 40);
static_assert(offsetof(struct nvidia_p2p_dma_mapping, entries) == 8);
static_assert(offsetof(struct nvidia_p2p_dma_mapping, dma_addresses) == 16);

/* Pins that go away with the memory: @free_callback says so. */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 va, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data);
int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 va,
			 struct nvidia_p2p_page_table *page_table);

/* Pins that keep the memory. */
int nvidia_p2p_get_pages_persistent(u64 va, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags);
int nvidia_p2p_put_pages_persistent(u64 va, struct nvidia_p2p_page_table *page_table, u32 flags);

int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping);
int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping);

/* For use inside the free callback only. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);
int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping);

#endif /* FAKE_NV_P2P_H */
