# SPDX-License-Identifier: GPL-2.0
# The end of buffers during I/O, and of the module.
# Free pages that the CPUs keep in lists of their own would look like a leak.
echo 1000000 > /proc/sys/vm/percpu_pagelist_high_fraction
mount_ext4
load_modules
dd if=/dev/zero of=/mnt/ext4/file bs=1M count=4 2> /dev/null
sync
tap life /mnt/ext4/file "${ROUNDS:-200}"
check "the modules can be unloaded" unload_modules
round=0 good=0
while [ $round -lt 20 ]; do
	round=$((round + 1))
	load_modules && data once /mnt/ext4/file > /dev/null && unload_modules && good=$((good + 1))
done
is "$good" 20 "20 rounds of load, verified read, unload"
finish
