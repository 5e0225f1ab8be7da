# SPDX-License-Identifier: GPL-2.0
# /proc/driver/nvidia-fs/counters, and that each counter of stats moves when it should, and only then.
# `far` is out of reach of GPU 0, unless the CPU may cross bridges.
mount -t ext4 -o nodelalloc "$NVME_EXT4" /mnt/ext4
mount -t tmpfs tmpfs /tmp
truncate -s 4M /tmp/loop
modprobe loop
losetup /dev/loop0 /tmp/loop
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has two drives' PCI functions" lend_to_fake_storage "$PCI_XFS" "$PCI_RAW"
load_modules
if [ "$TB_CPU" = max ]; then
	tap counters p2pdma /mnt/ext4 /tmp "$NVME_FAR"
else
	tap counters p2pdma /mnt/ext4 /tmp
fi
tap counters callback /dev/fake_storage0 "$PCI_XFS"
echo 3 > /sys/module/fake_storage/parameters/table
check "a file system is made" eval "mke2fs /dev/fake_storage1 1048576 > /dev/null"
check "and mounted" mount -t ext4 /dev/fake_storage1 /mnt/xfs
tap counters sparse /mnt/xfs
check "2.6: unload" unload_modules
