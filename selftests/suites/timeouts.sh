# SPDX-License-Identifier: GPL-2.0
# Answers of a drive that the kernel does not hear; only on the debug kernel.
export WAY="${WAY:-}"
check "answers can be lost" [ -e /sys/kernel/debug/fail_io_timeout/times ]
load_modules
tap removal late "$NVME_MD0"
tap removal timeout "$NVME_MD0"
tap unload late "$NVME_MD1" 0 "$NVME_MD0"
tap unload timeout "$NVME_MD1" 0 "$NVME_MD0"
check "2.6: unload" unload_modules
finish
