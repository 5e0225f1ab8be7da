# SPDX-License-Identifier: GPL-2.0
# Shadow buffers, without a GPU driver.
# Free pages that the CPUs keep in lists of their own would look like a leak.
echo 1000000 > /proc/sys/vm/percpu_pagelist_high_fraction
mount_ext4
insmod /modules/nvidia-fs.ko
tap mmap /mnt/ext4
check "2.6: unload" rmmod nvidia_fs
