# SPDX-License-Identifier: GPL-2.0
# Completion, and the meta block. `far` is out of reach of GPU 0, unless the CPU may cross bridges.
mount_ext4
mount -t tmpfs tmpfs /tmp
load_modules
if [ "$TB_CPU" = max ]; then
	tap async /mnt/ext4 "$NVME_FAR"
else
	tap async /mnt/ext4
fi
check "2.6: unload" unload_modules
