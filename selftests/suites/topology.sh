# SPDX-License-Identifier: GPL-2.0
# Drives below other root ports than the GPU: by CPU, out of reach or not.
load_modules
# path DEVICE: the way between the first GPU and a drive, as the module tells it.
first=$(sed -n '2s/ .*//p' /proc/driver/nvidia-fs/paths)
row() { sed -n "s/^$first ${1#/dev/}  *//p" /proc/driver/nvidia-fs/paths; }
path() { row "$1" | sed 's/ .*//'; }
# drive DEVICE: its PCI address.
drive() { basename "$(readlink -f "/sys/block/${1#/dev/}/device/device")"; }
# kernel DEVICE: how far the kernel says it is from the first GPU.
kernel() { distance 0 "$(drive "$1")"; }
same=4 port=6 bridge=8
if [ "$TB_CPU" = max ] && [ "$TB_TOPOLOGY" = switch ]; then
	port=-1 bridge=-1
fi
# Each below a root port of its own: two bridges and no switch.
[ "$TB_TOPOLOGY" = rootports ] && port=4 bridge=4
is "$(kernel "$NVME_EXT4")" $same "distance $same to $NVME_EXT4"
is "$(kernel "$NVME_RAW")" $port "distance $port to $NVME_RAW, on another root port"
is "$(kernel "$NVME_FAR")" $bridge "distance $bridge to $NVME_FAR, on another host bridge"
is "$(path "$NVME_EXT4")" p2pdma "paths: a way to $NVME_EXT4"
mount_ext4
truncate -s 64M /mnt/ext4/file
if [ $port = -1 ]; then
	for device in "$NVME_RAW" "$NVME_FAR"; do
		why="GPU $first and drive $(drive "$device") (${device#/dev/}) cannot reach each other: no common PCIe switch, and the host bridge is not known to forward (cure: a slot under one switch, or another CPU)"
		is "$(row "$device" | sed 's/^none *//')" "$why" "paths: why there is no way to $device"
		dmesg -c > /dev/null
		tap data refused 121 "$device"
		is "$(dmesg | grep -c "nvidia-fs: .*$why")" 4 "the log has the same words, for each of four requests to $device"
	done
	tap data reached /mnt/ext4/file
else
	for device in "$NVME_RAW" "$NVME_FAR"; do
		is "$(path "$device")" p2pdma "paths: a way to $device"
	done
	tap data reached /mnt/ext4/file "$NVME_RAW" "$NVME_FAR"
fi
check "the modules can be unloaded" unload_modules
finish
