// SPDX-License-Identifier: GPL-2.0
/* The disk's bytes, and copies between them and the GPUs of the test bed. */
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/pci.h>

#include "internal.h"

/* QEMU's shared-memory device, whose BAR is the memory of a stand-in GPU. */
#define GPU_VENDOR	0x1af4
#define GPU_DEVICE	0x1110
#define GPU_BAR		2
#define MAX_GPUS	4

static struct gpu {
	phys_addr_t start;
	resource_size_t size;
	void __iomem *memory;
} gpus[MAX_GPUS];

int store_gpus_find(void)
{
	struct pci_dev *pdev = NULL;
	struct gpu *gpu = gpus;

	while (gpu < gpus + MAX_GPUS && (pdev = pci_get_device(GPU_VENDOR, GPU_DEVICE, pdev))) {
		gpu->start = pci_resource_start(pdev, GPU_BAR);
		gpu->size = pci_resource_len(pdev, GPU_BAR);
		gpu->memory = ioremap(gpu->start, gpu->size);
		if (!gpu->memory) {
			pci_dev_put(pdev);
			store_gpus_forget();
			return -ENOMEM;
		}
		gpu++;
	}
	pci_dev_put(pdev);
	return 0;
}

void store_gpus_forget(void)
{
	int i;

	for (i = 0; i < MAX_GPUS; i++) {
		if (gpus[i].memory)
			iounmap(gpus[i].memory);
		gpus[i].memory = NULL;
	}
}

static void __iomem *gpu_memory(phys_addr_t phys, size_t len)
{
	int i;

	for (i = 0; i < MAX_GPUS; i++) {
		const struct gpu *gpu = &gpus[i];

		if (gpu->memory && phys >= gpu->start && phys - gpu->start < gpu->size &&
		    len <= gpu->size - (phys - gpu->start))
			return gpu->memory + (phys - gpu->start);
	}
	return NULL;
}

void store_init(struct store *store)
{
	xa_init(&store->pages);
}

void store_destroy(struct store *store)
{
	struct page *page;
	unsigned long i;

	xa_for_each(&store->pages, i, page)
		__free_page(page);
	xa_destroy(&store->pages);
}

/* The page at a place, made when it is to be written. NULL: never written. */
static struct page *store_page(struct store *store, u64 at, bool make)
{
	struct page *old, *page = xa_load(&store->pages, at >> PAGE_SHIFT);

	if (page || !make)
		return page;
	page = alloc_page(GFP_NOIO | __GFP_ZERO);
	if (!page)
		return ERR_PTR(-ENOMEM);
	old = xa_cmpxchg(&store->pages, at >> PAGE_SHIFT, NULL, page, GFP_NOIO);
	if (!old)
		return page;
	__free_page(page);
	return xa_is_err(old) ? ERR_PTR(xa_err(old)) : old;
}

/* To or from one of two kinds of memory. */
static int copy(struct store *store, u64 at, void *buf, void __iomem *io, size_t len, bool write)
{
	while (len) {
		size_t offset = offset_in_page(at), n = min(len, PAGE_SIZE - offset);
		struct page *page = store_page(store, at, write);
		void *data;

		if (IS_ERR(page))
			return PTR_ERR(page);
		data = page_address(page ?: ZERO_PAGE(0)) + offset;
		if (io && write)
			memcpy_fromio(data, io, n);
		else if (io)
			memcpy_toio(io, data, n);
		else if (write)
			memcpy(data, buf, n);
		else
			memcpy(buf, data, n);
		if (io)
			io += n;
		else
			buf += n;
		at += n;
		len -= n;
	}
	return 0;
}

int store_copy(struct store *store, u64 at, void *buf, size_t len, bool write)
{
	return copy(store, at, buf, NULL, len, write);
}

int store_dma(struct store *store, u64 at, struct device *dev, dma_addr_t bus, size_t len,
	      bool write)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	while (len) {
		/* Where an IOMMU translates, each of its pages can be anywhere. */
		size_t n = domain ? min(len, PAGE_SIZE - offset_in_page(bus)) : len;
		phys_addr_t phys = domain ? iommu_iova_to_phys(domain, bus) : bus;
		void __iomem *memory = gpu_memory(phys, n);
		int ret;

		if (!memory) {
			atomic64_inc(&counts.stray);
			pr_err("fake_storage: DMA address %pad is not a GPU's\n", &bus);
			return -EFAULT;
		}
		ret = copy(store, at, NULL, memory, n, write);
		if (ret)
			return ret;
		at += n;
		bus += n;
		len -= n;
	}
	return 0;
}
