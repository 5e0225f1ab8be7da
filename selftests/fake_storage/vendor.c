// SPDX-License-Identifier: GPL-2.0
/* Registration: what a storage driver exports for nvidia-fs. */
#include <linux/delay.h>
#include <linux/module.h>

#include "internal.h"

static unsigned int refuse;
module_param(refuse, uint, 0644);
MODULE_PARM_DESC(refuse, "bit n: refuse to take table n");

static unsigned int needs;
module_param(needs, uint, 0644);
MODULE_PARM_DESC(needs, "feature bits without which no table is taken");

static struct vendor {
	void *ops;
	atomic_t in_flight;
} vendors[FAKE_STORAGE_NR_TABLES];

void *vendor_get(enum fake_storage_table table)
{
	struct vendor *vendor = &vendors[table];
	void *ops;

	atomic_inc(&vendor->in_flight);
	/* Pairs with the barrier in unregister: it sees the count, or we see no table. */
	smp_mb__after_atomic();
	ops = READ_ONCE(vendor->ops);
	if (!ops)
		atomic_dec(&vendor->in_flight);
	return ops;
}

void vendor_put(enum fake_storage_table table)
{
	atomic_dec(&vendors[table].in_flight);
}

void vendor_state(struct fake_storage_counts *to)
{
	int i;

	for (i = 0; i < FAKE_STORAGE_NR_TABLES; i++) {
		to->registered[i] = !!READ_ONCE(vendors[i].ops);
		to->in_flight[i] = atomic_read(&vendors[i].in_flight);
	}
}

/* Tables of either kind are the feature bits and 7 functions. */
int fake_storage_register(enum fake_storage_table table, void *ops)
{
	void **functions = ops + sizeof(u64);
	unsigned int i;

	if (refuse & BIT(table) || (*(u64 *)ops & needs) != needs)
		return -EOPNOTSUPP;
	for (i = 0; i < 7; i++)
		if (!functions[i])
			broken("table %d lacks function %u", table, i);
	return cmpxchg(&vendors[table].ops, NULL, ops) ? -EBUSY : 0;
}
EXPORT_SYMBOL_GPL(fake_storage_register);

void fake_storage_unregister(enum fake_storage_table table)
{
	struct vendor *vendor = &vendors[table];

	WRITE_ONCE(vendor->ops, NULL);
	smp_mb();
	while (atomic_read(&vendor->in_flight))
		msleep(1);
}
EXPORT_SYMBOL_GPL(fake_storage_unregister);

static int register_v1(enum fake_storage_table table, struct nvfs_dma_ops_v1 *ops)
{
	const u64 needed = NVFS_FEATURE_SGLIST_PREP | NVFS_FEATURE_SGLIST_DMA;

	if ((ops->features & needed) != needed)
		return -EOPNOTSUPP;
	return fake_storage_register(table, ops);
}

#define VENDOR(prefix, table)							\
	int NVFS_REGISTER(prefix)(struct nvfs_dma_ops_v1 *ops);			\
	int NVFS_REGISTER(prefix)(struct nvfs_dma_ops_v1 *ops)			\
	{									\
		return register_v1(table, ops);					\
	}									\
	EXPORT_SYMBOL_GPL(prefix##_register_nvfs_dma_ops);			\
	void NVFS_UNREGISTER(prefix)(void);					\
	void NVFS_UNREGISTER(prefix)(void)					\
	{									\
		fake_storage_unregister(table);					\
	}									\
	EXPORT_SYMBOL_GPL(prefix##_unregister_nvfs_dma_ops)

VENDOR(nvme_rdma_v1, FAKE_STORAGE_NVME);
VENDOR(rpcrdma, FAKE_STORAGE_PLAIN);
