// SPDX-License-Identifier: GPL-2.0
/* A storage driver with nvidia-fs hooks that is made for tests; see fake_storage.h. */
#include <linux/module.h>

#include "internal.h"

struct counts counts;

static int __init fake_storage_init(void)
{
	int ret = store_gpus_find();

	if (ret)
		return ret;
	ret = client_init();
	if (ret)
		goto forget;
	ret = disks_init();
	if (!ret)
		return 0;
	client_exit();
forget:
	store_gpus_forget();
	return ret;
}

static void __exit fake_storage_exit(void)
{
	disks_exit();
	client_exit();
	store_gpus_forget();
}

module_init(fake_storage_init);
module_exit(fake_storage_exit);
MODULE_DESCRIPTION("nvidia-fs test: a storage driver that uses its tables in every way");
MODULE_LICENSE("GPL");
