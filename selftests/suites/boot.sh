# SPDX-License-Identifier: GPL-2.0
# The rig itself: drives, GPUs and their places, and that the host sees what the guest writes.

MIB=1048576

place() { # place ADDRESS: the path of a PCI device, from its host bridge on
	path=$(readlink -f "/sys/bus/pci/devices/$1")
	echo "${path#/sys/devices/}"
}

numa_node() { cat "/sys/bus/pci/devices/$1/numa_node"; }

first_word() { echo "${1%% *}"; }

for drive in "$NVME_EXT4" "$NVME_XFS" "$NVME_MD0" "$NVME_MD1" "$NVME_RAW" "$NVME_FAR"; do
	check "drive $drive is there" [ -b "$drive" ]
done

gpu0=$(place "$PCI_GPU0")
gpu1=$(place "$PCI_GPU1")
ext4=$(place "$PCI_EXT4")
raw=$(place "$PCI_RAW")
far=$(place "$PCI_FAR")
is "${gpu0%%/*} ${ext4%%/*} ${raw%%/*}" "pci0000:00 pci0000:00 pci0000:00" \
	"gpu0, ext4 and raw are below the first host bridge"
is "${gpu1%%/*} ${far%%/*}" "pci0000:80 pci0000:80" "gpu1 and far are below the second host bridge"
is "$(numa_node "$PCI_GPU1") $(numa_node "$PCI_FAR")" "1 1" "gpu1 and far are on NUMA node 1"
if [ "$TB_TOPOLOGY" = switch ]; then
	for address in "$PCI_EXT4" "$PCI_XFS" "$PCI_MD0" "$PCI_MD1"; do
		drive=$(place "$address")
		is "${drive%/*/*}" "${gpu0%/*/*}" "$address and gpu0 are below one switch"
	done
	is "${far%/*/*}" "${gpu1%/*/*}" "far and gpu1 are below one switch"
	is "${raw%/*/*}" pci0000:00 "raw has a root port of its own"
else
	for address in "$PCI_GPU0" "$PCI_EXT4" "$PCI_XFS" "$PCI_MD0" "$PCI_MD1" "$PCI_RAW"; do
		device=$(place "$address")
		is "${device%/*/*}" pci0000:00 "$address has a root port of its own"
	done
	is "${gpu1%/*/*} ${far%/*/*}" "pci0000:80 pci0000:80" "gpu1 and far have root ports of their own"
fi
groups=$(ls /sys/kernel/iommu_groups)
case $TB_IOMMU in
none)	is "$groups" "" "there is no IOMMU" ;;
*-pt)	is "$(cat "/sys/bus/pci/devices/$PCI_EXT4/iommu_group/type")" identity "the IOMMU does not translate" ;;
*)	type=$(cat "/sys/bus/pci/devices/$PCI_EXT4/iommu_group/type")
	is "${type%-FQ}" DMA "the IOMMU translates" ;;
esac

# Drives: the same bytes here and in the image on the host.
check "ext4 is mounted" mount_ext4
check "xfs is mounted" mount_xfs
check "ext4 of the far drive is mounted" mount_far
check "ext4 on raid0 is mounted" mount_md
dd if=/dev/urandom of=/tmp/data bs=$MIB count=1 2>/dev/null
sum=$(first_word "$(sha256sum /tmp/data)")
for drive in ext4 xfs far; do
	file=/mnt/$drive/data
	dd if=/tmp/data of=$file bs=$MIB oflag=direct 2>/dev/null
	is "$(host drive $drive sha256 "$(drive_offset $file)" $MIB)" "$sum" "the host sees a file on $drive"
done
dd if=/tmp/data of=/mnt/md/data bs=$MIB oflag=direct 2>/dev/null
echo 3 > /proc/sys/vm/drop_caches
is "$(first_word "$(sha256sum /mnt/md/data)")" "$sum" "a file on raid0 reads back"
dd if=/tmp/data of="$NVME_RAW" bs=$MIB seek=5000 oflag=direct 2>/dev/null
is "$(host drive raw sha256 $((5000 * MIB)) $MIB)" "$sum" "the host sees a raw drive beyond 4 GiB"

# BARs: the same bytes here and in the file on the host.
bar0=/sys/bus/pci/devices/$PCI_GPU0/resource2
echo 1 > "/sys/bus/pci/devices/$PCI_GPU0/enable"
bar "$bar0" 8 0x1122334455667788
is "$(host bytes gpu0 8 8)" 8877665544332211 "the host sees a word of gpu0"
is "$(host fill gpu0 $MIB 16 0x5a)" ok "the host fills a piece of gpu0"
is "$(bar "$bar0" $MIB)" 0x5a5a5a5a5a5a5a5a "the guest sees it"

# The other requests.
is "$(host pattern gpu1 4096 $((128 * MIB)) 0x123456789)" ok "the host writes a pattern of 128 MiB"
read -r before _ < /proc/uptime
is "$(host compare gpu1 4096 $((128 * MIB)) 0x123456789)" ok "the host finds it right"
read -r after _ < /proc/uptime
echo "# 128 MiB compared from $before to $after s"
is "$(host compare gpu1 $((4096 + 800)) 4096 0x123456789 100)" ok "a piece of the pattern is right"
tell fill gpu1 $((4096 + 8 * 100003)) 1 0xee
is "$(host compare gpu1 4096 $((128 * MIB)) 0x123456789)" "bad 100003" "the host finds one wrong byte"
is "$(host sha256 gpu1 0 4096)" "$(first_word "$(dd if=/dev/zero bs=4096 count=1 2>/dev/null | sha256sum)")" \
	"the bytes before the pattern are untouched"
is "$(host bytes gpu1 0 2000)" "error at most 1024 bytes" "a wrong request is refused"
is "$(host sha256 gpu0 $((1 << 40)) 8)" "error beyond the end of gpu0" "a request beyond the end is refused"

# The monitor: a drive is slowed down, and unplugged.
check "the monitor answers" tell qmp '{"execute": "query-status"}'
limits='"bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 20'
check "a drive is throttled" tell qmp \
	'{"execute": "block_set_io_throttle", "arguments": {"id": "raw", '"$limits"'}}'
read -r before _ < /proc/uptime
dd if=/dev/zero of="$NVME_RAW" bs=4096 count=40 oflag=direct 2>/dev/null
read -r after _ < /proc/uptime
check "it is slow ($before to $after s)" [ $((${after%.*} - ${before%.*})) -ge 1 ]
check "a drive is unplugged" tell qmp '{"execute": "device_del", "arguments": {"id": "raw"}}'
check "it is gone for the host" tell event DEVICE_DELETED raw 120
check "it is gone for the guest" [ ! -e "$NVME_RAW" ]
