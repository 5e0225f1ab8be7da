// SPDX-License-Identifier: GPL-2.0
/*
 * A driver whose hardware is not there: loading it fails when it has been loaded.
 */
#include <linux/module.h>

static int __init no_hardware_init(void)
{
	return -ENODEV;
}
module_init(no_hardware_init);

MODULE_DESCRIPTION("nvidia-fs test: a module that cannot be loaded");
MODULE_LICENSE("GPL");
