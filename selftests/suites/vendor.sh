# SPDX-License-Identifier: GPL-2.0
# Each result of each function of the tables, by direct calls. It needs callback mode.

insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has two drives' PCI functions" lend_to_fake_storage "$PCI_XFS" "$PCI_RAW"
load_modules
disk=/dev/fake_storage0
tap sglist nvme $disk "$PCI_XFS" "$PCI_RAW"
tap sglist plain $disk "$PCI_XFS" "$PCI_RAW"
tap iterator $disk "$PCI_XFS" "$PCI_RAW"
for table in nvme plain v2; do
	tap pages $table $disk "$PCI_XFS" "$PCI_RAW"
	tap several $table $disk "$PCI_XFS" "$PCI_RAW"
done
check "nvidia-fs can be unloaded" rmmod nvidia_fs
check "and the GPU driver" rmmod fake_nvidia
check "and fake_storage" rmmod fake_nvme_v2 fake_storage
