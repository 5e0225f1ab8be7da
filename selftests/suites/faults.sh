# SPDX-License-Identifier: GPL-2.0
# Fault points; they are in the kernel of `run --flavour debug`, and not in Debian's.
mount_ext4
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_RAW"
load_modules
if [ "$TB_FLAVOUR" = debug ]; then
	tap faults /mnt/ext4 /dev/fake_storage0
else
	check "there are no fault points" [ ! -e /sys/kernel/debug/nvfs_inject_fault ]
fi
check "2.6: unload" unload_modules
check "the directory is gone" [ ! -e /sys/kernel/debug/nvfs_inject_fault ]
