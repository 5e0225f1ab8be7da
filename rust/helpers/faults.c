// SPDX-License-Identifier: GPL-2.0

#include "faults.h"

#include <linux/debugfs.h>
#include <linux/fault-inject.h>
#include <linux/kernel.h>

#ifdef CONFIG_FAULT_INJECTION

static struct {
	const char *name;
	struct fault_attr attr;
} faults[NVFS_FAULTS] = {
	[NVFS_FAULT_DMA] = { "dma_error", FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_RW_VERIFY_AREA] = { "rw_verify_area_error", FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_PIN_FENCE] = { "end_fence_get_user_pages_fast_error",
				   FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_P2P_PAGE] = { "invalid_p2p_get_page", FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_STATE] = { "io_transit_state_fail", FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_PIN_SHADOW] = { "pin_shadow_pages_error", FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_INSERT_PAGE] = { "vm_insert_page_error", FAULT_ATTR_INITIALIZER },
	/* These are ours. */
	[NVFS_FAULT_GET_PAGES] = { "p2p_get_pages_error", FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_MAKE_PAGES] = { "p2pdma_add_resource_error", FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_FLUSH_CACHE] = { "page_cache_flush_error", FAULT_ATTR_INITIALIZER },
	[NVFS_FAULT_FILE_IO] = { "file_io_error", FAULT_ATTR_INITIALIZER },
};

struct dentry *nvfs_helper_faults_create(void)
{
	struct dentry *dir = debugfs_create_dir("nvfs_inject_fault", NULL);
	size_t i;

	/* An ERR_PTR is a good parent: nothing is made. */
	for (i = 0; i < ARRAY_SIZE(faults); i++)
		fault_create_debugfs_attr(faults[i].name, dir, &faults[i].attr);
	return dir;
}

void nvfs_helper_faults_remove(struct dentry *dir)
{
	debugfs_remove(dir);
}

bool nvfs_helper_should_fail(enum nvfs_fault fault)
{
	return fault < NVFS_FAULTS && should_fail(&faults[fault].attr, 1);
}

#endif
