# SPDX-License-Identifier: GPL-2.0
# Nodes, parameters, and the ioctl's common rules.
mount_ext4

insmod /modules/nvidia-fs.ko max_devices=3
is "$(cat /sys/module/nvidia_fs/parameters/max_devices)" 3 "1.4: max_devices=3 shows 3"
tap nodes 3
echo 16 > /sys/module/nvidia_fs/parameters/max_devices
is "$(cat /proc/driver/nvidia-fs/devcount)" 3 "1.4: a write to max_devices changes no node"
rmmod nvidia_fs
is "$(ls -d /dev/nvidia-fs* /sys/class/nvidia-fs-class /proc/driver/nvidia-fs 2>/dev/null)" "" \
	"2.6: nodes, class and proc directory are gone after unload"
is "$(grep -c nvidia-fs /proc/devices)" 0 "2.6: and so is the major"

insmod /modules/nvidia-fs.ko max_devices=0
is "$(cat /sys/module/nvidia_fs/parameters/max_devices)" 0 "1.4: max_devices=0 shows 0"
tap nodes 16
rmmod nvidia_fs

insmod /modules/nvidia-fs.ko max_devices=40
is "$(cat /sys/module/nvidia_fs/parameters/max_devices)" 40 "1.4: max_devices=40 shows 40"
tap nodes 16
rmmod nvidia_fs

# What the administrator says at load is honoured (1.5), and nonsense is refused.
insmod /modules/nvidia-fs.ko use_legacy_p2p_allocation=0 rw_stats_enabled=1
is "$(cat /sys/module/nvidia_fs/parameters/use_legacy_p2p_allocation)" 0 \
	"1.5: use_legacy_p2p_allocation=0 at load"
is "$(cat /sys/module/nvidia_fs/parameters/rw_stats_enabled)" 1 "1.4: rw_stats_enabled=1 at load"
rmmod nvidia_fs
insmod /modules/nvidia-fs.ko use_legacy_p2p_allocation=1
is "$(cat /sys/module/nvidia_fs/parameters/use_legacy_p2p_allocation)" 1 \
	"1.5: use_legacy_p2p_allocation=1 at load"
rmmod nvidia_fs
if insmod /modules/nvidia-fs.ko max_devices=many 2>/dev/null; then
	not_ok "1.4: max_devices=many: not loaded"
	rmmod nvidia_fs
else
	ok "1.4: max_devices=many: not loaded"
fi

tap early /modules/nvidia-fs.ko 20

load_modules
tap params
tap nodes 16
tap ioctl /mnt/ext4
check "2.6: unload" unload_modules
