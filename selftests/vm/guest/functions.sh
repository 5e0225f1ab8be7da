# SPDX-License-Identifier: GPL-2.0
# For the suites: sourced before them. Process start is what costs time in an emulated guest.

rig=$(rig ext4 xfs md0 md1 raw far) || exit 1
eval "$rig"

# be_silent FILE...: what fails on purpose is no report.
be_silent() {
	for verbose in "$@"; do
		[ ! -e "$verbose" ] || echo 0 > "$verbose"
	done
}
be_silent /sys/kernel/debug/fail*/verbose

count=0 failed=0

# ok TEXT, not_ok TEXT: one result.
ok() { count=$((count + 1)); echo "ok $count - $*"; }
not_ok() { count=$((count + 1)); failed=$((failed + 1)); echo "not ok $count - $*"; }

# check TEXT COMMAND...: the command must succeed.
check() {
	text=$1
	shift
	if "$@"; then ok "$text"; else not_ok "$text"; fi
}

# is GOT WANTED TEXT: the two strings must be equal.
is() {
	if [ "$1" = "$2" ]; then
		ok "$3"
	else
		not_ok "$3"
		echo "# got $1"
		echo "# want $2"
	fi
}

# tap PROGRAM...: a program that prints its own results and plan, between the suite's own ones.
tap() {
	plan
	"$@" || { echo "# $1 ended with $?"; failed=$((failed + 1)); }
}

# plan: closes the results so far.
plan() {
	[ $count = 0 ] || echo "1..$count"
	count=0
}

# no_leaks: asks kmemleak, which takes an object of five seconds for lost when two scans find no
# pointer to it.
no_leaks() {
	leaks=/sys/kernel/debug/kmemleak
	sleep 6
	echo scan > $leaks && echo scan > $leaks && cat $leaks > /tmp/leaks || return
	[ ! -s /tmp/leaks ] || { sed 's/^/# /' /tmp/leaks | head -n 60; return 1; }
}

# detectors_on: those that turn themselves off at their first report, or without memory, still look.
detectors_on() {
	grep -q '^ *debug_locks: *1$' /proc/lockdep_stats || { echo "# lockdep is off"; return 1; }
	grep -q dma_debug=off /proc/cmdline || grep -q N /sys/kernel/debug/dma-api/disabled ||
		{ echo "# DMA debugging is off"; return 1; }
}

# finish: the last line of every suite.
finish() {
	plan
	if [ "$TB_FLAVOUR" = debug ]; then
		check "kmemleak finds nothing" no_leaks
		check "the other detectors are still on" detectors_on
		plan
	fi
	exit $((failed > 0))
}

# may_unplug_gpu: where that is no report. The kernel's own pciehp takes pci_rescan_remove_lock and its
# reset_lock in both orders, which lockdep would report, and then be off; without prove_locking the
# other detectors look.
may_unplug_gpu() { ! grep -q 1 /sys/module/lockdep/parameters/prove_locking 2> /dev/null; }

# may_unplug_drive: where that is no report. A drive with hooks is a peer, and GPU memory stays mapped for
# it as long as the buffer, which DMA debugging reports (docs/design.md, limits of callback mode).
may_unplug_drive() {
	[ "${WAY:-}" != callback ] || ! grep -q N /sys/kernel/debug/dma-api/disabled 2> /dev/null
}

mount_ext4() { mount -t ext4 "$NVME_EXT4" /mnt/ext4; }
mount_xfs() { mount -t xfs "$NVME_XFS" /mnt/xfs; }
mount_far() { mount -t ext4 "$NVME_FAR" /mnt/far; }

# start_md: raid0 of two drives as /dev/md0, with an ext4 file system on it.
start_md() {
	mdadm --build /dev/md0 --quiet --level=0 --chunk=64 --raid-devices=2 "$NVME_MD0" "$NVME_MD1"
}
mount_md() { start_md && mount -t ext4 /dev/md0 /mnt/md; }

# load_modules PARAMETER...: parameters are nvidia-fs's own.
load_modules() {
	insmod /modules/fake_nvidia.ko && insmod /modules/nvidia-fs.ko "$@" &&
		be_silent /sys/kernel/debug/nvfs_inject_fault/*/verbose
}
unload_modules() { rmmod nvidia_fs && rmmod fake_nvidia; }

# lend DRIVER PCI-ADDRESS...: takes functions from nvme.
lend() {
	driver=$1
	shift
	for address in "$@"; do
		device=/sys/bus/pci/devices/$address
		echo "$driver" > "$device/driver_override" &&
			echo "$address" > "$device/driver/unbind" &&
			echo "$address" > /sys/bus/pci/drivers_probe || return
	done
}

# lend_to_fake_storage PCI-ADDRESS...: for /dev/fake_storage<N> in turn.
lend_to_fake_storage() { lend fake_storage "$@"; }

# lend_to_bench_disk PCI-ADDRESS...: loads that driver, for /dev/bench_disk<N> in turn.
lend_to_bench_disk() { insmod /modules/bench_disk.ko && lend bench_disk "$@"; }

# tell WORD...: a request to the host whose reply matters only when it is not good.
tell() { reply=$(host "$@") || { echo "# host $*: $reply"; return 1; }; }

# drive_offset FILE: where the file's first byte lies on its drive. The file must be in one piece.
drive_offset() { filefrag -b1 -v "$1" | sed -n 's/^ *0: *0\.\. *[0-9]*: *\([0-9]*\)\.\..*/\1/p'; }
