/* SPDX-License-Identifier: GPL-2.0 */
/* Fault points, in kernels with CONFIG_FAULT_INJECTION. */
#ifndef NVFS_FAULTS_H
#define NVFS_FAULTS_H

#include <linux/types.h>

enum nvfs_fault {
	NVFS_FAULT_DMA,
	NVFS_FAULT_RW_VERIFY_AREA,
	NVFS_FAULT_PIN_FENCE,
	NVFS_FAULT_P2P_PAGE,
	NVFS_FAULT_STATE,
	NVFS_FAULT_PIN_SHADOW,
	NVFS_FAULT_INSERT_PAGE,
	NVFS_FAULT_GET_PAGES,
	NVFS_FAULT_MAKE_PAGES,
	NVFS_FAULT_FLUSH_CACHE,
	NVFS_FAULT_FILE_IO,
	NVFS_FAULTS,
};

/* The directory in debugfs, with one of a fault attribute for each; NULL or an ERR_PTR if not. */
struct dentry *nvfs_helper_faults_create(void);
void nvfs_helper_faults_remove(struct dentry *dir);

/* Any context. */
bool nvfs_helper_should_fail(enum nvfs_fault fault);

#endif /* NVFS_FAULTS_H */
