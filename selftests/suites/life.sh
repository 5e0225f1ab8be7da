# SPDX-License-Identifier: GPL-2.0
# The end of buffers during I/O, and of the module.
# Free pages that the CPUs keep in lists of their own would look like a leak.
echo 1000000 > /proc/sys/vm/percpu_pagelist_high_fraction
mount_ext4
export WAY="${WAY:-}"
[ "$TB_FLAVOUR" = debug ] && many=40 || many=200
load_modules
dd if=/dev/zero of=/mnt/ext4/file bs=1M count=4 2> /dev/null
sync
# Slow enough that the end always finds a transfer under way.
check "the drive is throttled" tell qmp '{"execute": "block_set_io_throttle", "arguments": {"id": "ext4", "bps": 134217728, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0}}'
tap life /mnt/ext4/file "${ROUNDS:-$many}"
check "and not any more" tell qmp '{"execute": "block_set_io_throttle", "arguments": {"id": "ext4", "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0}}'
check "the modules can be unloaded" unload_modules
round=0 good=0
while [ $round -lt 20 ]; do
	round=$((round + 1))
	load_modules && data once /mnt/ext4/file > /dev/null && unload_modules && good=$((good + 1))
done
is "$good" 20 "20 rounds of load, verified read, unload"
finish
