# SPDX-License-Identifier: GPL-2.0
# What was found out once: page caches, members of an array, GPU memory that is gone.
mount_ext4
load_modules use_legacy_p2p_allocation=1
dd if=/dev/zero of=/mnt/ext4/file bs=1M count=4 2> /dev/null
sync
tap stale cache "$NVME_XFS"
modprobe raid1
mdadm --build /dev/md1 --quiet --level=1 --raid-devices=2 "$NVME_MD0" missing --run
tap stale raid /dev/md1 "mdadm --quiet /dev/md1 --add" "$NVME_RAW"
mdadm --wait --quiet /dev/md1
check "the array is stopped" mdadm --stop --quiet /dev/md1
tap stale dead /mnt/ext4/file "echo $PCI_GPU0 > /sys/bus/pci/devices/$PCI_GPU0/driver/unbind"
check "the modules can be unloaded" unload_modules
