# SPDX-License-Identifier: GPL-2.0
# 16 threads and two drives, through hooks (run --hook). LAST=, SEED= (0: another one each time).
mount_ext4
mount_xfs
load_modules
tap churn "${LAST:-20}" "${SEED:-0}" /mnt/ext4/file /mnt/xfs/file
tap settled "at the end"
hook=/sys/kernel/debug/nvme_hook
is "$(cat $hook/unmapped)" "$(cat $hook/segments)" "the drives' driver gave all segments back"
is "$(cat $hook/in_flight)" 0 "and has no call under way"
check "the modules can be unloaded" unload_modules
finish
