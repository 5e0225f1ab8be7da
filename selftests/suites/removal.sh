# SPDX-License-Identifier: GPL-2.0
# Drives and GPUs that reset or go away during transfers. WAY=callback: by hooks (run --hook).
export WAY="${WAY:-}"
mount_ext4
mount_xfs
mount_far
controller() { echo "/sys/class/nvme/$(basename "${1%n1}")"; }
load_modules
tap removal reset /mnt/ext4/file "$(controller "$NVME_EXT4")"
echo 3000 > "/sys/block/${NVME_XFS#/dev/}/queue/io_timeout"
tap removal lost /mnt/xfs/file "/sys/bus/pci/devices/$PCI_XFS"
if may_unplug_drive; then
	tap removal unplug "$NVME_MD1" md1
	tap removal unplug /mnt/xfs/file xfs
	umount -l /mnt/xfs
fi
! may_unplug_gpu || tap removal gpu /mnt/far/file gpu1
# Pins hold a GPU by its P2PDMA pages.
[ "$WAY" = callback ] || tap removal gpu-held /mnt/ext4/file gpu0
check "2.6: unload" unload_modules
finish
