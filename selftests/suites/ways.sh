# SPDX-License-Identifier: GPL-2.0
# What is not moved by hooks is an error, whatever the disk's driver makes of it.
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
knob() { echo "$2" > "/sys/module/fake_storage/parameters/$1"; }
a=/dev/fake_storage0 b=/dev/fake_storage1
check "fake_storage has two drives' PCI functions" lend_to_fake_storage "$PCI_XFS" "$PCI_MD0"
modprobe raid1
mdadm --create /dev/md1 --quiet --run --level=1 --size=4M --raid-devices=2 --bitmap=none "$a" missing
load_modules p2pdma=off
tap ways cpu $a
for table in 1 2 3; do
	knob table $table
	tap ways moved "table $table" $a $b
done
knob ignore_status 1
tap ways moved "table 3, status ignored" $a $b
knob ignore_status 0
check "the array is stopped" mdadm --stop --quiet /dev/md1
echo 512 > /sys/block/${a##*/}/queue/max_sectors_kb
for table in 1 2 3; do
	knob table $table
	tap ways unforeseen "table $table, an adapter" $a "$PCI_RAW"
	tap ways unforeseen "table $table, two adapters" $a "$PCI_RAW" "$PCI_MD1"
done
knob ignore_status 1
tap ways unforeseen "table 3, status ignored" $a "$PCI_RAW" "$PCI_MD1"
knob ignore_status 0
# A drive whose driver has no hooks (unless run --hook), no P2PDMA, and files that are no disk's.
mount -t tmpfs tmpfs /tmp
truncate -s 4M /tmp/file
tap data refused 95 /tmp/file "$NVME_RAW"
tap settled "at the end"
check "all can be unloaded" rmmod nvidia_fs fake_nvidia fake_nvme_v2 fake_storage
finish
