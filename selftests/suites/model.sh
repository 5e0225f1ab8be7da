# SPDX-License-Identifier: GPL-2.0
# Random requests against a model. REQUESTS=, SEED= (0: another one each time).
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_XFS"
load_modules
tap model /dev/fake_storage0 "${REQUESTS:-2000}" "${SEED:-0}"
tap settled "at the end"
check "all can be unloaded" rmmod nvidia_fs fake_nvidia fake_nvme_v2 fake_storage
finish
