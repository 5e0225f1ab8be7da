# SPDX-License-Identifier: GPL-2.0
# Failing calls and the log; munmap and RCU. With --topology acs the drive that is out of reach is so by
# ACS, of which the kernel has a line to log whenever it is asked.
far=$NVME_FAR
if [ "$TB_TOPOLOGY" = acs ]; then
	far=$NVME_MD0
	# Request redirect, in the port between the switches.
	printf '\x1d\x00' | dd of=/sys/bus/pci/devices/0000:03:00.0/config bs=1 seek=$((0x14e)) conv=notrunc 2> /dev/null
fi
mount_xfs
load_modules
tap quiet /mnt/xfs/file "$far"
check "2.6: unload" unload_modules
finish
