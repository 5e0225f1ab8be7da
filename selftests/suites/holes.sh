# SPDX-License-Identifier: GPL-2.0
# Holes, through hooks (run --hook). FS=xfs: on XFS, not ext4.
fs=${FS:-ext4}
"mount_$fs"
# Blocks between data stay unwritten.
[ "$fs" = xfs ] || echo 0 > "/sys/fs/ext4/${NVME_EXT4#/dev/}/extent_max_zeroout_kb"
mkdir -p /mnt/small
check "a file system with blocks of 1 KiB is made" \
	eval "mke2fs -b 1024 '$NVME_RAW' 16384 > /dev/null && mount -t ext4 '$NVME_RAW' /mnt/small"
load_modules
tap holes "/mnt/$fs"
tap holes small /mnt/small
tap own_io "/mnt/$fs/own" 3000
tap settled "at the end"
check "the modules can be unloaded" unload_modules
finish
