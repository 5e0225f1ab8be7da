# SPDX-License-Identifier: GPL-2.0
# What an I/O costs (run --bench): REF and PARTS are lists, with commas, of bench's own parts, for the
# disk that costs next to nothing. REF is done before nvidia-fs is there. NVME: some for drives too.

echo "bench: {\"kernel release\": \"$(uname -r)\"}"
check "the disk is there" lend_to_bench_disk "$PCI_XFS"
disk=/dev/bench_disk0
[ -z "$REF" ] || tap bench $disk $(echo "$REF" | tr , " ")
load_modules
[ -z "$PROFILE" ] || grep -v ' [bBdDrR] ' /proc/kallsyms | dd of="$NVME_RAW" bs=1M conv=fsync 2> /dev/null
tap bench $disk $(echo "${PARTS:-p2pdma-quick,callback-quick}" | tr , " ")
if [ "$NVME" ]; then
	# As drives with several queues have it; this one has a queue for the one CPU.
	for disk in /sys/block/nvme*/queue/scheduler; do echo none > "$disk"; done
	tap bench "$NVME_MD0" ref-quick nvme
	check "ext4 is mounted" mount_ext4
	dd if=/dev/zero of=/mnt/ext4/file bs=1M count=2 conv=fsync 2> /dev/null
	tap bench /mnt/ext4/file ref-quick nvme
	umount /mnt/ext4
fi
check "nvidia-fs can be unloaded" unload_modules
