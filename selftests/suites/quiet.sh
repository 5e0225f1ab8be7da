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
if [ "$TB_TOPOLOGY" = acs ]; then
	closed() { dmesg | grep -c 'Host bridge not in P2PDMA whitelist'; }
	before=$(closed)
	cat /proc/driver/nvidia-fs/paths > /dev/null
	is "$(closed)" "$before" "the kernel is not asked again about a host bridge"
	echo 1 > "/sys/bus/pci/devices/$PCI_RAW/remove"
	cat /proc/driver/nvidia-fs/paths /proc/driver/nvidia-fs/paths > /dev/null
	is "$(closed)" $((before + 1)) "but once after a function went"
fi
check "2.6: unload" unload_modules
finish
