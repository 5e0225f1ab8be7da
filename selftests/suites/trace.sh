# SPDX-License-Identifier: GPL-2.0
# The tracepoints.
mount_ext4
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_RAW"
load_modules
tap trace p2pdma /mnt/ext4
tap trace callback /dev/fake_storage0 "$PCI_RAW"
check "2.6: unload" unload_modules
check "the group is gone" [ ! -e /sys/kernel/tracing/events/nvidia_fs ]
