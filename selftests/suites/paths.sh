# SPDX-License-Identifier: GPL-2.0
# /proc/driver/nvidia-fs/paths and what decides it. What is expected depends on the machine:
# FIRST=1 runs the race of first I/Os, REASON=TEXT says why GPU 0 has no path at all,
# MULTIPATH=NAME is a multipath disk that GPU 0 can reach.
paths=/proc/driver/nvidia-fs/paths
row() { sed -n "s/^0000:$1 *$2  *//p" $paths; } # row GPU DISK
kind() { row "$1" "$2" | sed 's/ .*//'; }
disk() { echo "${1#/dev/}"; }
gpu0=${PCI_GPU0#0000:} gpu1=${PCI_GPU1#0000:}
reach=none
[ "$TB_CPU" = epyc ] && reach=p2pdma

mount_ext4
modprobe loop
modprobe dm-mod
modprobe null_blk 2>/dev/null
start_md
dd if=/dev/zero of=/mnt/ext4/image bs=1048576 count=4 2>/dev/null
losetup /dev/loop0 /mnt/ext4/image
echo "0 8192 linear $NVME_XFS 0" | dmsetup create --noudevsync linear
load_modules
read -r before _ < /proc/uptime
cat $paths
read -r after _ < /proc/uptime
echo "# read from $before to $after"
if [ -n "${REASON:-}" ]; then
	reason=$(echo "$REASON" | tr _ ' ')
	case $(row "$gpu0" "$(disk "$NVME_EXT4")") in
	none*"$reason"*) ok "no path: $reason" ;;
	*) not_ok "no path: $reason" ;;
	esac
else
	for drive in "$NVME_EXT4" "$NVME_XFS" "$NVME_MD0" "$NVME_MD1"; do
		is "$(kind "$gpu0" "$(disk "$drive")")" p2pdma "gpu0 to $drive"
	done
	is "$(kind "$gpu0" md0)" p2pdma "gpu0 to md0"
	is "$(kind "$gpu0" "$(disk "$NVME_RAW")")" $reach "gpu0 to raw"
	is "$(kind "$gpu0" "$(disk "$NVME_FAR")")" $reach "gpu0 to far"
	is "$(kind "$gpu1" "$(disk "$NVME_FAR")")" p2pdma "gpu1 to far"
	is "$(kind "$gpu1" md0)" $reach "gpu1 to md0"
	case $(row "$gpu0" dm-0) in
	none*dm-0*"takes no peer"*) ok "dm is refused by name" ;;
	*) not_ok "dm is refused by name" ;;
	esac
	is "$(kind "$gpu0" loop0)" none "loop"
fi
[ -z "${MULTIPATH:-}" ] || is "$(kind "$gpu0" "$MULTIPATH")" p2pdma "multipath disk $MULTIPATH"
grep -c . $paths
is "$(sed 1d $paths | sort -c 2>&1)" "" "rows are sorted"
is "$(cat $paths | md5sum)" "$(cat $paths | md5sum)" "reading twice gives the same"
check "reading registers nothing" [ ! -e "/sys/bus/pci/devices/$PCI_GPU0/p2pmem" ]
[ -z "${FIRST:-}" ] || tap first_io /mnt/ext4
if [ -n "${STRESS:-}" ]; then
	modprobe configfs 2>/dev/null
	(
		n=0
		while [ $n -lt 40 ]; do
			losetup /dev/loop1 /mnt/ext4/image; losetup -d /dev/loop1
			mdadm --stop --quiet /dev/md0; start_md
			echo "0 8192 linear /dev/md0 0" | dmsetup create --noudevsync l2; dmsetup remove --noudevsync l2
			n=$((n + 1))
		done
		touch /tmp/done
	) &
	rounds=0
	while [ ! -e /tmp/done ]; do cat $paths > /dev/null; rounds=$((rounds + 1)); done
	wait
	ok "$rounds readings while disks come and go"
fi
# A reader that waits for one drive has references on all disks. The drive is busy with its partitions.
throttle() { tell qmp "{\"execute\": \"block_set_io_throttle\", \"arguments\": {\"id\": \"raw\", \"bps\": $1, \"bps_rd\": 0, \"bps_wr\": 0, \"iops\": 0, \"iops_rd\": 0, \"iops_wr\": 0}}"; }
sleeps() { [ "$(cut -d " " -f 3 "/proc/$1/stat" 2> /dev/null)" = D ]; }
settles() { until sleeps "$1" && sleep 0.2 && sleeps "$1"; do [ -e "/proc/$1" ] || return; done; }
if [ -z "${REASON:-}" ] && [ -e /sys/module/null_blk ]; then
	echo 600000 > "/sys/block/${NVME_RAW#/dev/}/queue/io_timeout"
	check "a drive is throttled" throttle 16
	dd if="$NVME_RAW" of=/dev/null bs=4096 count=1 iflag=direct 2> /dev/null
	echo 3 > /proc/sys/vm/drop_caches
	blockdev --rereadpt "$NVME_RAW" &
	check "its partitions are read" settles $!
	cat $paths > /tmp/read &
	check "a reader waits for it" settles $!
	if rmmod null_blk 2> /dev/null; then
		not_ok "a disk that is looked at keeps its driver"
	else
		ok "a disk that is looked at keeps its driver"
	fi
	check "and not any more" throttle 0
	wait
	is "$(grep -c nullb /tmp/read)" "$(grep -c nullb $paths)" "all rows are there"
	check "and then it can go" rmmod null_blk
fi
check "2.6: unload" unload_modules
if [ -n "${FIRST:-}" ]; then
	load_modules
	tap first_io /mnt/ext4
	check "unload again" unload_modules
fi
