# SPDX-License-Identifier: GPL-2.0
# Requests that wait for their disk are merged with neighbours, but never GPU and host memory.

check "the disk is there" lend_to_bench_disk "$PCI_XFS"
load_modules
tap merge /dev/bench_disk0 p2pdma
tap merge /dev/bench_disk0 callback
check "nvidia-fs can be unloaded" unload_modules
