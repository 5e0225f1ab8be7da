# SPDX-License-Identifier: GPL-2.0
# Neighbours on a disk, under each I/O scheduler: fake_storage with each table, or the hooked drive.
knob() { echo "$2" > "/sys/module/fake_storage/parameters/$1"; }
schedulers() { # schedulers DISK NAME
	queue=/sys/block/${1##*/}/queue
	for scheduler in none mq-deadline kyber bfq; do
		check "$2: $scheduler" sh -c "echo $scheduler > $queue/scheduler"
		tap neighbours "$1" "/sys/block/${1##*/}/stat" "${ROUNDS:-10}" "$2, $scheduler"
	done
}
modprobe kyber-iosched
modprobe bfq
if [ "$TB_NVME" = hooked ]; then
	load_modules
	schedulers "$NVME_XFS" nvme
	check "the modules can be unloaded" unload_modules
else
	insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
	check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_XFS"
	load_modules
	for table in 1 2 3; do
		knob table $table
		schedulers /dev/fake_storage0 "table $table"
	done
	knob requeue_every 3
	knob unmap_us 20
	schedulers /dev/fake_storage0 "requeued and late"
	tap settled "at the end"
	check "all can be unloaded" rmmod nvidia_fs fake_nvidia fake_nvme_v2 fake_storage
fi
finish
