# SPDX-License-Identifier: GPL-2.0
# Transfers that are held up for a minute: by a slow drive; WAY=callback: by a storage driver with hooks.
# That is no report of the kernel's about hung tasks, of which the debug kernel has one after a minute.
echo 300 > /proc/sys/kernel/hung_task_timeout_secs
if [ "${WAY:-}" = callback ]; then
	insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
	check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_XFS"
	echo 3 > /sys/module/fake_storage/parameters/table
	load_modules
	tap held hold /dev/fake_storage0
	check "all can be unloaded" rmmod fake_nvidia fake_nvme_v2 fake_storage
else
	mount_ext4
	echo 600000 > "/sys/block/${NVME_EXT4#/dev/}/queue/io_timeout"
	load_modules
	tap held throttle ext4 /mnt/ext4/file
	check "the GPU driver can be unloaded" rmmod fake_nvidia
fi
finish
