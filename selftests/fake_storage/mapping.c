// SPDX-License-Identifier: GPL-2.0
/* A disk's request through a table: what the drivers of the field do with v1 and v2. */
#include <linux/blk-integrity.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "internal.h"

unsigned int use_table;
module_param_named(table, use_table, uint, 0644);
MODULE_PARM_DESC(table, "for the disks: 0 none, 1 v1 for NVMe, 2 plain v1, 3 v2");

unsigned int fail_every;
module_param(fail_every, uint, 0644);
MODULE_PARM_DESC(fail_every, "fail each so-manieth mapped request: unmap it and report an error");

bool ignore_status;
module_param(ignore_status, bool, 0644);
MODULE_PARM_DESC(ignore_status, "v2: take a failed iter_start for a request of CPU pages");

bool unmap_failed;
module_param(unmap_failed, bool, 0644);
MODULE_PARM_DESC(unmap_failed, "v1: call unmap also after a failed map");

/*
 * Other functions that do the DMA in turn, as network adapters do for a remote disk. To be changed
 * while no request is under way.
 */
static struct pci_dev *adapters[2];

static int adapters_set(const char *text, const struct kernel_param *kp)
{
	struct pci_dev **adapter = kp->arg, *pdev = NULL;
	unsigned int number;
	int ret = kstrtouint(text, 0, &number);

	if (ret)
		return ret;
	if (number) {
		pdev = pci_get_domain_bus_and_slot(0, number >> 8, number & 0xff);
		if (!pdev)
			return -ENODEV;
	}
	mapping_wait();
	pci_dev_put(*adapter);
	*adapter = pdev;
	return 0;
}

static const struct kernel_param_ops adapter_ops = { .set = adapters_set };
module_param_cb(adapter, &adapter_ops, &adapters[0], 0200);
MODULE_PARM_DESC(adapter, "the function that does the DMA instead, bus << 8 | devfn; 0: the disk's own");
module_param_cb(second_adapter, &adapter_ops, &adapters[1], 0200);
MODULE_PARM_DESC(second_adapter, "and the one that does so for each second request");

static struct device *adapter(struct device *own)
{
	static atomic_t turn;
	struct pci_dev *pdev = adapters[0];

	if (adapters[1] && atomic_inc_return(&turn) % 2)
		pdev = adapters[1];
	return pdev ? &pdev->dev : own;
}

void mapping_exit(void)
{
	pci_dev_put(adapters[0]);
	pci_dev_put(adapters[1]);
}

static atomic_t live;

static void keep_segment(struct mapping *m, dma_addr_t addr, u32 len)
{
	m->segment[m->nr].addr = addr;
	m->segment[m->nr++].len = len;
}

/* Positive: mapped; 0: CPU pages; negative: an error, and nothing is left mapped. */
static int map_v1(struct mapping *m, struct request *rq)
{
	struct nvfs_dma_ops_v1 *ops = m->ops;
	unsigned int entries = blk_rq_nr_phys_segments(rq);
	struct scatterlist *sg;
	int i, n, ret;

	if (entries > NVFS_MAX_SG_ENTRIES)
		return -EIO;
	/* Room for all, but only so many initialised. */
	memset(m->sgl, POISON, sizeof(m->sgl));
	sg_init_table(m->sgl, entries);
	n = ops->blk_rq_map_sg(rq->q, rq, m->sgl);
	if (n <= 0)
		return n;
	if (n > NVFS_MAX_SG_ENTRIES) {
		broken("%d entries in a list for %d", n, NVFS_MAX_SG_ENTRIES);
		return -EIO;
	}
	ret = ops->map_sg(m->dev, m->sgl, n, m->dir, 0);
	if (ret != n) {
		if (ret != NVFS_IO_ERROR)
			broken("map_sg of %d gave %d", n, ret);
		if (unmap_failed)
			ops->unmap_sg(m->dev, m->sgl, n, m->dir);
		return -EIO;
	}
	for_each_sg(m->sgl, sg, n, i)
		keep_segment(m, sg_dma_address(sg), sg_dma_len(sg));
	return 1;
}

static void unmap_v1(struct mapping *m)
{
	struct nvfs_dma_ops_v1 *ops = m->ops;
	int ret = ops->unmap_sg(m->dev, m->sgl, m->nr, m->dir);

	if (ret != m->nr)
		broken("unmap_sg of %u gave %d", m->nr, ret);
}

static void unmap_v2(struct mapping *m)
{
	struct nvfs_dma_ops_v2 *ops = m->ops;
	unsigned int i;

	for (i = 0; i < m->nr; i++) {
		int ret = ops->unmap_page(m->dev, m->cookie, 0, 0, m->dir);

		if (ret)
			broken("unmap_page gave %d", ret);
	}
}

static int map_v2(struct mapping *m, struct request *rq)
{
	struct nvfs_dma_ops_v2 *ops = m->ops;
	struct blk_dma_iter iter;
	int ret;

	memset(&iter, POISON, sizeof(iter));
	memset(&m->state, POISON, sizeof(m->state));
	if (!ignore_status)
		iter.status = BLK_STS_OK;
	ret = ops->blk_rq_dma_map_iter_start(rq, m->dev, &m->state, &iter, &m->cookie);
	if (ret < 0)
		broken("iter_start gave %d", ret);
	if (ret <= 0)
		return ret || (!ignore_status && iter.status) ? -EIO : 0;
	while (ret > 0) {
		if (m->nr == ARRAY_SIZE(m->segment)) {
			broken("more than %zu segments", ARRAY_SIZE(m->segment));
			ops->unmap_page(m->dev, m->cookie, 0, 0, m->dir);
			break;
		}
		keep_segment(m, iter.addr, iter.len);
		ret = ops->blk_rq_dma_map_iter_next(rq, m->dev, &m->state, &iter);
	}
	if (!ret && !iter.status)
		return 1;
	unmap_v2(m);
	return -EIO;
}

static void unmap(struct mapping *m)
{
	if (m->table == FAKE_STORAGE_V2)
		unmap_v2(m);
	else
		unmap_v1(m);
}

void mapping_unmap(struct mapping *m)
{
	enum fake_storage_table table = m->table;

	unmap(m);
	kfree(m);
	vendor_put(table);
	atomic_dec(&live);
}

void mapping_wait(void)
{
	while (atomic_read(&live))
		msleep(1);
}

/* Whether the driver's own code is to fail after the mapping. */
static bool fails_on_purpose(void)
{
	static atomic_t mapped;
	unsigned int every = READ_ONCE(fail_every);

	return every && (unsigned int)atomic_inc_return(&mapped) % every == 0;
}

static unsigned int bytes(const struct mapping *m)
{
	unsigned int i, sum = 0;

	for (i = 0; i < m->nr; i++)
		sum += m->segment[i].len;
	return sum;
}

static int map(struct mapping *m, struct request *rq)
{
	int ret = m->table == FAKE_STORAGE_V2 ? map_v2(m, rq) : map_v1(m, rq);

	if (ret < 0)
		atomic64_inc(&counts.refused);
	if (ret <= 0)
		return ret;
	atomic64_inc(&counts.gpu);
	atomic64_add(m->nr, &counts.segments);
	if (bytes(m) != blk_rq_payload_bytes(rq)) {
		broken("%u bytes mapped of %u", bytes(m), blk_rq_payload_bytes(rq));
	} else if (!fails_on_purpose()) {
		return ret;
	} else {
		atomic64_inc(&counts.failed);
	}
	unmap(m);
	return -EIO;
}

blk_status_t mapping_make(struct request *rq, struct device *dev, struct mapping **mapping)
{
	enum fake_storage_table table = READ_ONCE(use_table);
	struct mapping *m;
	void *ops;
	int ret;

	*mapping = NULL;
	if (table == FAKE_STORAGE_NONE || table >= FAKE_STORAGE_NR_TABLES || blk_integrity_rq(rq))
		return BLK_STS_OK;
	ops = vendor_get(table);
	if (!ops)
		return BLK_STS_OK;
	m = kmalloc(sizeof(*m), GFP_ATOMIC);
	if (!m) {
		vendor_put(table);
		return BLK_STS_RESOURCE;
	}
	m->table = table;
	m->ops = ops;
	m->dev = adapter(dev);
	m->dir = rq_dma_dir(rq);
	m->nr = 0;
	m->cookie = NULL;
	m->rq = NULL;
	ret = map(m, rq);
	if (ret > 0) {
		atomic_inc(&live);
		*mapping = m;
		return BLK_STS_OK;
	}
	kfree(m);
	vendor_put(table);
	return ret ? BLK_STS_IOERR : BLK_STS_OK;
}
