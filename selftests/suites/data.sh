# SPDX-License-Identifier: GPL-2.0
# The bytes, on each kind of file that P2PDMA works with, and files that it does not work with.
mount_ext4
mount_xfs
start_md
mount -t tmpfs tmpfs /tmp
if [ "${PART:-}" = storage ]; then
	insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
	check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_RAW"
fi
load_modules
export WAY="${WAY:-}" WINDOW="${WINDOW:-1024}"
truncate -s 6G /mnt/ext4/file
truncate -s 6G /mnt/xfs/file
case ${PART:-files} in
files)
	tap data edges /mnt/ext4
	tap data edges /mnt/xfs
	truncate -s 4M /tmp/file
	truncate -s 4M /mnt/ext4/loop
	modprobe loop
	losetup /dev/loop0 /mnt/ext4/loop
	tap data refused 95 /tmp/file /dev/loop0
	losetup -d /dev/loop0
	tap data matrix /mnt/ext4/file /mnt/xfs/file
	;;
devices)
	umount /mnt/xfs
	tap data matrix "$NVME_XFS" /dev/md0
	;;
storage)
	# fake_storage with both kinds of list, and the iterator; windows in KiB.
	for table in 1 2 3; do
		echo $table > /sys/module/fake_storage/parameters/table
		for WINDOW in 64 1024 16384; do
			export WINDOW
			tap data matrix /dev/fake_storage0
		done
	done
	tap settled "at the end"
	;;
esac
check "the modules can be unloaded" unload_modules
finish
