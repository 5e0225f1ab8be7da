# SPDX-License-Identifier: GPL-2.0
# What is between a file and its drive, and may read, change or copy data by the CPU, is refused: by
# hooks (run --hook) and by P2PDMA.
paths=/proc/driver/nvidia-fs/paths
row() { sed -n "s/^0000:${PCI_GPU0#0000:} *$1 *//p" $paths; }
logged() { dmesg | grep -qF "nvidia-fs: $1"; }
# refused NAME: a stacked disk's reason.
refused() {
	if [ "$TB_NVME" = hooked ]; then
		echo "$1 may read or change data by the CPU, above the nvidia-fs hooks (cure: the disks below it, or md raid0/1/10 of them; no dm, no raid4/5/6)"
	else
		echo "GPU $PCI_GPU0 and $1: its driver takes no peer-to-peer pages (cure: plain NVMe, or md raid0/1/10 of it; no dm, no loop)"
	fi
}
way="p2pdma   -"
[ "$TB_NVME" = stock ] || way="callback -"
xfs=/sys/block/${NVME_XFS#/dev/}/queue/stable_writes

modprobe dm-crypt
modprobe raid1
modprobe raid456
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
echo "0 65536 crypt aes-cbc-plain64 $key 0 $NVME_RAW 0" | dmsetup create --noudevsync crypt
echo "0 65536 linear $NVME_RAW 65536" | dmsetup create --noudevsync linear
dmsetup mknodes
check "there is a dm-crypt" [ -b /dev/mapper/crypt ]
check "there is a dm-linear" [ -b /dev/mapper/linear ]
create() { mdadm --create --quiet --run --assume-clean --size=16M --bitmap=none --raid-devices=2 "$@" "$NVME_MD0" "$NVME_MD1"; }
check "there is a raid5" create /dev/md5 --level=5
load_modules
exec 3<> /dev/nvidia-fs0

# The log takes ten lines a minute.
tap data refused 95 /dev/mapper/crypt
check "the log says why" logged "$(refused dm-0)"
tap data refused 95 /dev/md5
check "the log says why" logged "$(refused md5)"
tap data refused 95 /dev/mapper/linear
for disk in dm-0 dm-1 md5; do
	is "$(row $disk)" "none     $(refused $disk)" "paths tells of $disk"
done
check "the raid5 is stopped" mdadm --stop --quiet /dev/md5
# A layer above that passes pages on does not help.
check "there is a raid0 of dm" mdadm --build /dev/md0 --quiet --level=0 --raid-devices=2 /dev/mapper/crypt /dev/mapper/linear
[ "$TB_NVME" = stock ] || is "$(row md0)" "none     $(refused dm-0)" "paths tells what is below it"
tap data refused 95 /dev/md0
check "it is stopped" mdadm --stop --quiet /dev/md0
check "the dm disks are removed" dmsetup remove --noudevsync crypt linear

check "there is a raid1" create /dev/md1 --level=1
is "$(row md1)" "$way" "which has a path"
tap ways turned /dev/md1 "echo raid5 > /sys/block/md1/md/level" 95
is "$(row md1)" "none     $(refused md1)" "and none when it is a raid5"
check "it is stopped" mdadm --stop --quiet /dev/md1

mkdosfs "$NVME_RAW" > /dev/null
check "vfat is mounted" mount -t vfat "$NVME_RAW" /mnt/far
dd if=/dev/urandom of=/mnt/far/file bs=1M count=1 2> /dev/null
tap data refused 95 /mnt/far/file
check "vfat is unmounted" umount /mnt/far

why="XFS copies the data of this file by the CPU, for a disk that needs stable pages (cure: 0 in queue/stable_writes of the disk, then mount again)"
mount_xfs
dd if=/dev/urandom of=/mnt/xfs/file bs=1M count=1 2> /dev/null
sync
tap ways turned /mnt/xfs/file "umount /mnt/xfs && echo 1 > $xfs && mount -t xfs $NVME_XFS /mnt/xfs" 95
exec 3<&-
unload_modules
load_modules
tap data refused 95 /mnt/xfs/file
check "the log says why" logged "$why"
is "$(sed -n 's/refused_stable_writes //p' /proc/driver/nvidia-fs/counters)" 4 "it is counted"
umount /mnt/xfs
echo 0 > "$xfs"
mount_xfs
tap data once /mnt/xfs/file
check "XFS is unmounted" umount /mnt/xfs
check "the modules can be unloaded" unload_modules
finish
