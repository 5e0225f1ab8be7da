# SPDX-License-Identifier: GPL-2.0
# Random calls, see ../fuzz. CALLS= or MINUTES=, SEED= (0: another one each time), FIRST=, GENES=, ONLY=.
# With --hook, or STORAGE=1 (another driver with hooks), in callback mode.
export CALLS="${CALLS:-6000}" SEED="${SEED:-0}"
mount_ext4
mount_xfs
modprobe loop
mount -t tmpfs tmpfs /tmp
dd if=/dev/zero of=/tmp/image bs=1048576 count=4 2> /dev/null
losetup /dev/loop0 /tmp/image
if [ "$TB_NVME" = hooked ] || [ -n "${STORAGE:-}" ]; then
	export CALLBACK=1
fi
if [ -n "${STORAGE:-}" ]; then
	insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
	check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_RAW"
	NVME_RAW=/dev/fake_storage0
	echo "${TABLE:-3}" > /sys/module/fake_storage/parameters/table
fi
mount_md
dd if=/dev/zero of=/mnt/ext4/file bs=1048576 count=4 2> /dev/null
load_modules
tap fuzz /mnt/ext4 /mnt/xfs /mnt/md "$NVME_RAW" -/tmp -/dev/loop0
losetup -d /dev/loop0
if [ -n "${CALLBACK:-}" ]; then
	tap settled "at the end"
fi
check "the modules can be unloaded" unload_modules
check "and loaded again" load_modules
check "and work" eval "data once /mnt/ext4/file > /dev/null"
check "and can be unloaded" unload_modules
finish
