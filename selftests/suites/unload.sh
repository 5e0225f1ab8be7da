# SPDX-License-Identifier: GPL-2.0
# Unload while a drive or a GPU fails: run --errors md0. WAY=callback: by hooks (run --hook).
export WAY="${WAY:-}"
load_modules
tap unload reset "$NVME_MD0" 0 "$NVME_MD0"
tap unload lost "$NVME_MD1" 0 "$NVME_MD1"
tap unload media "$NVME_MD0" 0 "$NVME_MD0" 671088640 838860800
! may_unplug_drive || tap unload unplug "$NVME_MD1" 0 "$NVME_MD0" md1
! may_unplug_gpu || tap unload gpu "$NVME_FAR" 1 "$NVME_MD0" gpu1
tap unload unbind "$NVME_MD0" 0 "$NVME_MD0" "$PCI_GPU0"
tap unload kill "$NVME_MD0" 0 "$NVME_MD0"
check "2.6: unload" unload_modules
finish
