# SPDX-License-Identifier: GPL-2.0
# The demonstration; `make demo` runs it, with a CPU that forwards between host bridges.
mount_ext4
mount -t tmpfs tmpfs /tmp
load_modules rw_stats_enabled=1
tap demo /mnt/ext4/demo
check "unload" unload_modules
