# SPDX-License-Identifier: GPL-2.0
# BATCH_IO, with two GPUs and the drives next to them.
mount_ext4
mount_far
mount -t tmpfs tmpfs /tmp
mount -t tracefs tracefs /sys/kernel/tracing 2> /dev/null
mount -t debugfs debugfs /sys/kernel/debug 2> /dev/null
export WAY="${WAY:-}"
load_modules
tap batch /mnt/ext4 /mnt/far
check "2.6: unload" unload_modules
finish
