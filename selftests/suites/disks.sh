# SPDX-License-Identifier: GPL-2.0
# The bytes, through the tables v1 and v2 of a disk that does with them what the parameters say.
# KNOBS=1: it requeues, unmaps late, fails and ignores.
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
knob() { echo "$2" > "/sys/module/fake_storage/parameters/$1"; }
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_XFS"
load_modules
export WAY=callback LARGEST=17
disk=/dev/fake_storage0
if [ -z "${KNOBS:-}" ]; then
	for table in 1 2 3; do
		knob table $table
		for window in 64 1024 16384; do
			export WINDOW=$window
			echo "# table $table, shadow buffer of $window KiB"
			tap data matrix $disk
		done
	done
else
	export WINDOW=1024
	knob requeue_every 3
	knob unmap_us 50
	for table in 1 2 3; do
		knob table $table
		for end_first in 0 1; do
			knob end_first $end_first
			[ $end_first = 1 ] || export LARGEST=1
			echo "# table $table, requeued, unmapped late, end_first $end_first"
			tap data matrix $disk
			export LARGEST=17
		done
		tap failing $disk $table 5
		knob unmap_failed 1
		tap failing $disk $table 2
		knob unmap_failed 0
	done
	knob ignore_status 1
	tap failing $disk 3 5
fi
tap settled "at the end"
check "all can be unloaded" rmmod nvidia_fs fake_nvidia fake_nvme_v2 fake_storage
finish
