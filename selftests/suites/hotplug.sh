# SPDX-License-Identifier: GPL-2.0
# PCI functions go with their bus, and all that the bus needed is freed, while they are looked at. What
# tells is the debug kernel's KASAN.
proc=/proc/driver/nvidia-fs
rounds=${ROUNDS:-100}

# reader FILE: reads it until the end; how often, and how often it had a function that comes and goes.
# All of a file is made for the first line of it, and that starts no process.
reader() {
	read=0 seen=0
	while [ ! -e /tmp/done ]; do
		for _ in 1 2 3; do read -r _ < "$proc/$1"; done
		! grep -q 1cafe: "$proc/$1" || { seen=$((seen + 1)) && : > "/tmp/seen.$1"; }
		read=$((read + 4))
	done
	echo "$read $seen" > "/tmp/$1"
}

load_modules
echo 1 > /sys/module/nvidia_fs/parameters/peer_stats_enabled
before=$(cat $proc/peer_distance $proc/paths)
for file in peer_distance peer_affinity paths modules bridges; do reader $file & done
check "$rounds buses come and go" insmod /modules/fake_bus.ko rounds="$rounds"
# Whether a reader meets one is chance.
tries=1
until [ -e /tmp/seen.peer_distance ] && [ -e /tmp/seen.paths ] || [ $tries = 20 ]; do
	rmmod fake_bus && insmod /modules/fake_bus.ko rounds="$rounds" || break
	tries=$((tries + 1))
done
touch /tmp/done
wait
for file in peer_distance peer_affinity paths modules bridges; do
	read -r read seen < "/tmp/$file"
	echo "# $file: read $read times, functions of such a bus in $seen of $((read / 4))"
	case $file in
	peer_distance | paths) check "$file had them" [ "$seen" -gt 0 ] ;;
	*) check "$file was read" [ "$read" -gt 0 ] ;;
	esac
done
is "$(cat $proc/peer_distance $proc/paths)" "$before" "all is as before"
rmmod fake_bus
check "2.6: unload" unload_modules
finish
