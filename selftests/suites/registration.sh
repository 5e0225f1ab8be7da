# SPDX-License-Identifier: GPL-2.0
# Registration with storage drivers. P2PDMA is off, as it would show `nvme` of its own.
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_XFS"
load_modules p2pdma=off
tap registration /dev/fake_storage0
tap settled "at the end"
check "all can be unloaded" rmmod nvidia_fs fake_nvidia fake_nvme_v2 fake_storage
finish
