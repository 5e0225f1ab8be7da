# SPDX-License-Identifier: GPL-2.0
# No right that a file's descriptor does not give, on ext4 and xfs, for root and for any user.
mount_ext4
mount_xfs
load_modules
tap rights user /mnt/ext4
tap rights /mnt/ext4 "$NVME_MD0"
tap rights /mnt/xfs
tap rights end /mnt/xfs
check "2.6: unload" unload_modules
finish
