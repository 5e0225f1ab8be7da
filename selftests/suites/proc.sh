# SPDX-License-Identifier: GPL-2.0
# /proc/driver/nvidia-fs.
mount_ext4
load_modules
tap stats /mnt/ext4
tap other_sys
check "2.6: unload" unload_modules
