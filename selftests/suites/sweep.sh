# SPDX-License-Identifier: GPL-2.0
# Each point of failure of each operation, or with PART=load of loading, and whether anything is lost
# (run --flavour debug). ROUNDS= Give dma_debug=off: it is at its end when an allocation of its own fails.
nothing_is_lost() {
	# What the allocator has at hand keeps stale pointers; objects are young for 5 s.
	for cache in /sys/kernel/slab/*/shrink; do echo 1 > "$cache"; done
	check "nothing is lost" no_leaks
}
mount_ext4
if [ "${PART:-}" = load ]; then
	load_modules && rmmod nvidia_fs
	echo clear > /sys/kernel/debug/kmemleak
	tap sweep load /modules/nvidia-fs.ko max_devices=2
	nothing_is_lost
	finish
fi
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has two drives' PCI functions" lend_to_fake_storage "$PCI_RAW" "$PCI_XFS"
check "a file system is made" eval "mke2fs /dev/fake_storage1 1048576 > /dev/null"
check "and mounted" mount -t ext4 /dev/fake_storage1 /mnt/xfs
load_modules
echo clear > /sys/kernel/debug/kmemleak
tap sweep register /mnt/ext4 "$PCI_GPU0"
tap sweep p2pdma /mnt/ext4
tap sweep callback /dev/fake_storage0 /mnt/xfs
check "nvidia-fs can be unloaded" rmmod nvidia_fs
nothing_is_lost
finish
