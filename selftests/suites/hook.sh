# SPDX-License-Identifier: GPL-2.0
# The hooked NVMe driver (run --hook) as a plain driver: nothing is registered.

hook=/sys/kernel/debug/nvme_hook
counts() { cat $hook/registered $hook/starts $hook/gpu $hook/cpu $hook/failed $hook/in_flight | tr '\n' ' '; }
sum() { sha256sum < "$1"; }

is "$(tr -d E < /sys/module/nvme/taint)" O "the driver is not the kernel's own"
is "$(cat /sys/module/nvme_core/taint)" "" "nvme-core is"
grep '\[nvme\]$' /proc/kallsyms > /tmp/symbols
for symbol in nvme_v2_register_nvfs_dma_ops nvme_v2_unregister_nvfs_dma_ops; do
	check "it has $symbol" grep -q " $symbol" /tmp/symbols
done

dd if=/dev/urandom of=/tmp/data bs=1M count=9 2>/dev/null
check "ext4 is mounted" mount_ext4
check "xfs is mounted" mount_xfs
check "ext4 on raid0 is mounted" mount_md
# One page, few pages, SGLs, more than one request.
for bs in 4k 12k 128k 9M; do
	for drive in ext4 xfs md; do
		file=/mnt/$drive/data.$bs
		dd if=/tmp/data of=$file bs=$bs oflag=direct 2>/dev/null
		echo 3 > /proc/sys/vm/drop_caches
		dd if=$file of=/tmp/back bs=$bs iflag=direct 2>/dev/null
		is "$(sum /tmp/back)" "$(sum /tmp/data)" "$drive: written and read in pieces of $bs"
	done
done
is "$(host drive ext4 sha256 "$(drive_offset /mnt/ext4/data.9M)" $((9 << 20)))" \
	"$(sum /tmp/data | cut -d' ' -f1)" "the host sees the same"
is "$(counts)" "0 0 0 0 0 0 " "nothing was offered to anybody"

check "the file systems are unmounted" umount /mnt/ext4 /mnt/xfs /mnt/md
check "the raid is stopped" mdadm --stop --quiet /dev/md0
check "the driver can be unloaded" rmmod nvme
check "its counts are gone" [ ! -e $hook ]
check "and loaded again" insmod /modules/nvme.ko nvfs_ignore_status=1
check "the drives come back" eval "$(rig ext4)"
check "ext4 is mounted again" mount_ext4
is "$(sum /mnt/ext4/data.9M)" "$(sum /tmp/data)" "with the same file"
