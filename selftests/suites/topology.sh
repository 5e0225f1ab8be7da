# SPDX-License-Identifier: GPL-2.0
# Drives below other root ports than the GPU: by CPU, out of reach or not.
load_modules
# path DEVICE: the way between the first GPU and a drive, as the module tells it.
first=$(sed -n '2s/ .*//p' /proc/driver/nvidia-fs/paths)
path() { sed -n "s/^$first ${1#/dev/} *\([a-z0-9]*\) .*/\1/p" /proc/driver/nvidia-fs/paths; }
if [ "$TB_CPU" = max ] && [ "$TB_TOPOLOGY" = switch ]; then
	for drive in "$NVME_RAW" "$NVME_FAR"; do
		is "$(path "$drive")" none "paths: no way to $drive"
	done
	tap data refused 121 "$NVME_RAW" "$NVME_FAR"
else
	for drive in "$NVME_RAW" "$NVME_FAR"; do
		is "$(path "$drive")" p2pdma "paths: a way to $drive"
	done
	tap data reached "$NVME_RAW" "$NVME_FAR"
fi
check "the modules can be unloaded" unload_modules
finish
