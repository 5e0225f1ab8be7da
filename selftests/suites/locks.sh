# SPDX-License-Identifier: GPL-2.0
# Locks of page faults and of block devices, in callback mode.
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_XFS"
load_modules
for table in 1 3; do
	echo $table > /sys/module/fake_storage/parameters/table
	tap locks /dev/fake_storage0
done
check "all can be unloaded" rmmod nvidia_fs fake_nvidia fake_nvme_v2 fake_storage
finish
