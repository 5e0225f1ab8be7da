# SPDX-License-Identifier: GPL-2.0
# MAP: first without a GPU driver, then with one that comes later than the module.
mount_ext4
insmod /modules/nvidia-fs.ko
tap map_absent
check "2.6: unload without a GPU driver" rmmod nvidia_fs

load_modules
tap map /mnt/ext4
check "2.6, O23: unload" unload_modules
