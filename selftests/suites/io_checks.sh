# SPDX-License-Identifier: GPL-2.0
# READ and WRITE: checks, permissions, device numbers. `md0` is a near drive without a file system.
mount_ext4
load_modules
tap checks /mnt/ext4 "$NVME_MD0"
check "2.6: unload" unload_modules
