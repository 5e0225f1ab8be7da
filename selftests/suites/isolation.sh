# SPDX-License-Identifier: GPL-2.0
# Memory of others is out of reach. With init_on_alloc=0 on the kernel's command line, as pages must
# be zero also where the kernel does not clear all by itself.
mount_ext4
chmod 755 /mnt/ext4
export WAY="${WAY:-}"
load_modules
tap isolation /mnt/ext4/file
check "the module can be unloaded" unload_modules
finish
