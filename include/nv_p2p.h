/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of the NVIDIA GPU driver's peer-to-peer interface that this module uses. Every function
 * returns 0 or a negative errno. Addresses and lengths are multiples of 64 KiB.
 */
#ifndef NV_P2P_H
#define NV_P2P_H

#include <linux/types.h>

struct pci_dev;

#define NV_P2P_PAGE_SIZE_64K	1	/* value of page_table.page_size */

struct nv_p2p_page {
	u64 physical_address;
	u64 reserved[3];
};

/* A field `flags` follows from version 2.0 on; nothing past `gpu_uuid` is read here. */
struct nv_p2p_page_table {
	u32 version;			/* major << 16 | minor */
	u32 page_size;
	struct nv_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid;			/* 16 bytes */
};

struct nv_p2p_dma_mapping {
	u32 version;
	u32 page_size_type;
	u32 entries;
	u64 *dma_addresses;		/* one for each 64 KiB page */
	void *private_data[2];
};

/* Calls that may sleep: all but the two free functions. */
typedef int (*nv_p2p_get_pages_fn)(u64 token, u32 va_space, u64 va, u64 len,
				   struct nv_p2p_page_table **table,
				   void (*free_callback)(void *data), void *data);
typedef int (*nv_p2p_put_pages_fn)(u64 token, u32 va_space, u64 va,
				   struct nv_p2p_page_table *table);
typedef int (*nv_p2p_get_pages_persistent_fn)(u64 va, u64 len, struct nv_p2p_page_table **table,
					      u32 flags);
typedef int (*nv_p2p_put_pages_persistent_fn)(u64 va, struct nv_p2p_page_table *table, u32 flags);
typedef int (*nv_p2p_dma_map_pages_fn)(struct pci_dev *peer, struct nv_p2p_page_table *table,
				       struct nv_p2p_dma_mapping **mapping);
typedef int (*nv_p2p_dma_unmap_pages_fn)(struct pci_dev *peer, struct nv_p2p_page_table *table,
					 struct nv_p2p_dma_mapping *mapping);
typedef int (*nv_p2p_free_page_table_fn)(struct nv_p2p_page_table *table);
typedef int (*nv_p2p_free_dma_mapping_fn)(struct nv_p2p_dma_mapping *mapping);

#endif /* NV_P2P_H */
