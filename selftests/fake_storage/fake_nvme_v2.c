// SPDX-License-Identifier: GPL-2.0
/*
 * The v2 table for fake_storage. Apart, because the hooked NVMe driver exports the same names.
 */
#include <linux/module.h>

#include "internal.h"

int NVFS_REGISTER(nvme_v2)(struct nvfs_dma_ops_v2 *ops);
int NVFS_REGISTER(nvme_v2)(struct nvfs_dma_ops_v2 *ops)
{
	const u64 needed = NVFS_FEATURE_ITER_START | NVFS_FEATURE_ITER_NEXT;

	if ((ops->features & needed) != needed)
		return -EOPNOTSUPP;
	return fake_storage_register(FAKE_STORAGE_V2, ops);
}
EXPORT_SYMBOL_GPL(nvme_v2_register_nvfs_dma_ops);

void NVFS_UNREGISTER(nvme_v2)(void);
void NVFS_UNREGISTER(nvme_v2)(void)
{
	fake_storage_unregister(FAKE_STORAGE_V2);
}
EXPORT_SYMBOL_GPL(nvme_v2_unregister_nvfs_dma_ops);

MODULE_DESCRIPTION("nvidia-fs test: v2 hooks for fake_storage");
MODULE_LICENSE("GPL");
