# SPDX-License-Identifier: GPL-2.0
# Shadow buffers, without a GPU driver.
mount_ext4
insmod /modules/nvidia-fs.ko
tap mmap /mnt/ext4
check "2.6: unload" rmmod nvidia_fs
