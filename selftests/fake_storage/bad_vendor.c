// SPDX-License-Identifier: GPL-2.0
/*
 * Pairs that nvidia-fs cannot take: Lustre's lacks unregister, and BeeGFS's is not exported for GPL
 * modules. A call of any is a line in the log.
 */
#include <linux/module.h>

#include "nvfs_dma_ops.h"

int NVFS_REGISTER(lustre_v1)(struct nvfs_dma_ops_v1 *ops);
int NVFS_REGISTER(lustre_v1)(struct nvfs_dma_ops_v1 *ops)
{
	pr_err("bad_vendor: registered with half a pair\n");
	return 0;
}
EXPORT_SYMBOL_GPL(lustre_v1_register_nvfs_dma_ops);

int NVFS_REGISTER(beegfs_v1)(struct nvfs_dma_ops_v1 *ops);
int NVFS_REGISTER(beegfs_v1)(struct nvfs_dma_ops_v1 *ops)
{
	pr_err("bad_vendor: registered by a symbol that is not GPL\n");
	return 0;
}
EXPORT_SYMBOL(beegfs_v1_register_nvfs_dma_ops);

void NVFS_UNREGISTER(beegfs_v1)(void);
void NVFS_UNREGISTER(beegfs_v1)(void)
{
	pr_err("bad_vendor: unregistered\n");
}
EXPORT_SYMBOL(beegfs_v1_unregister_nvfs_dma_ops);

MODULE_DESCRIPTION("nvidia-fs test: hooks that are wrong");
MODULE_LICENSE("GPL");
