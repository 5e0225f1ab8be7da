# SPDX-License-Identifier: GPL-2.0
# Free callbacks that the GPU driver's put does not wait for, and the end of pins and of the module.
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_XFS"
echo 3 > /sys/module/fake_storage/parameters/table
load_modules
tap late callback /dev/fake_storage0 5
tap late map /dev/fake_storage0 5
round=0
while [ $round -lt "${ROUNDS:-5}" ]; do
	round=$((round + 1))
	tap late unload /dev/fake_storage0
	insmod /modules/nvidia-fs.ko
done
check "all can be unloaded" rmmod nvidia_fs fake_nvidia fake_nvme_v2 fake_storage
finish
