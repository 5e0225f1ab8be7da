# SPDX-License-Identifier: GPL-2.0
# A READ of 4 KiB does not cost more than it did (run --bench --smp 1). Recorded with kernel
# 7.3.4+deb13-amd64, as thousandths of a pread, so that another kernel makes little difference.

check "the disk is there" lend_to_bench_disk "$PCI_XFS"
load_modules
tap bench /dev/bench_disk0 check=1191:1308
check "nvidia-fs can be unloaded" unload_modules
