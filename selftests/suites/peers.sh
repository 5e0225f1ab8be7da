# SPDX-License-Identifier: GPL-2.0
# 19.5 to 19.7, 19.9, 20: bridges, peer_distance, peer_affinity, cross_root_port. What is expected
# was worked out by hand from the contract, for each tree of vm.py.
proc=/proc/driver/nvidia-fs
parameter=/sys/module/nvidia_fs/parameters/peer_stats_enabled
tab=$(printf '\t')
header="gpu${tab}${tab}peer${tab}${tab}peerrank${tab}p2pdist${tab}link${tab}gen${tab}numa${tab}np2p${tab}class"

# row GPU PEER DISTANCE [LINK [NODE [CLASS [COUNT]]]]: a pair. The rank is the distance, then 160
# less lanes times generation: 9f with a link of one lane of generation 1, a0 without.
row() {
	low=9f
	[ "${4:-0x01}" = 0x01 ] || low=a0
	printf '0000:%s \t0000:%s \t0x%s00%s\t0x%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" $low "$3" \
		"${4:-0x01}" "${4:-0x01}" "${5:-0xffffffff}" "${7:-0}" "${6:-nvme}"
}

# rows GPU DISTANCE LINK NODE CLASS PEER...: pairs that are alike.
rows() {
	of=$1 far=$2 link=$3 node=$4 class=$5
	shift 5
	for peer; do row "$of" "$peer" "$far" "$link" "$node" "$class"; done
}

# Same switch: 1 + 1 + 1. Other root port, node unknown at both: 127 + 3 + 1 + 1 = 0x84. Other node,
# known at one: 254 + 3 + 3 + 1 = 0x105, and 254 + 3 + 1 + 1 = 0x103.
tree_switch() {
	rows 03:00.0 0003 0x01 0xffffffff nvme 04:00.0 05:00.0 06:00.0 07:00.0
	row 03:00.0 08:00.0 0084
	row 03:00.0 84:00.0 0105 0x01 0x01
	rows 83:00.0 0105 0x01 0xffffffff nvme 04:00.0 05:00.0 06:00.0 07:00.0
	row 83:00.0 08:00.0 0103
	row 83:00.0 84:00.0 0003 0x01 0x01
}

# Each below its own port: 127 + 1 + 1 + 1 = 0x82, or 254 + 3 = 0x101 to another node.
tree_rootports() {
	rows 01:00.0 0082 0x01 0xffffffff nvme 02:00.0 03:00.0 04:00.0 05:00.0 06:00.0
	row 01:00.0 82:00.0 0101 0x01 0x01
	rows 81:00.0 0101 0x01 0xffffffff nvme 02:00.0 03:00.0 04:00.0 05:00.0 06:00.0
	row 81:00.0 82:00.0 0082 0x01 0x01
}

# All below one port: 0 + 0 + 1.
tree_oneport() {
	for gpu in 01:00.0 01:00.5; do
		rows $gpu 0001 0x01 0xffffffff nvme 01:00.1 01:00.2 01:00.3 01:00.4 01:00.6 01:00.7
	done
}

# Both nodes known: 127 + 3 = 0x82 at the same, 254 + 3 = 0x101 else. 00:01.0 is on the root bus of
# a bridge without node: no bridge above it, no link, 254 + 1 + 0 + 1 = 0x100.
tree_nodes() {
	row 41:00.0 00:01.0 0100 0x00
	rows 41:00.0 0082 0x01 0x00 nvme 42:00.0 43:00.0 44:00.0 45:00.0
	row 41:00.0 82:00.0 0101 0x01 0x01
	row 81:00.0 00:01.0 0100 0x00
	rows 81:00.0 0101 0x01 0x00 nvme 42:00.0 43:00.0 44:00.0 45:00.0
	row 81:00.0 82:00.0 0082 0x01 0x01
}

# GPU 06:00.0 is below 05:00, 04:00, 03:00 (middle), 02:00, 01:00, 00:01; drive 04:00.1 just below
# middle, 2 + 0 + 1; 07:00.0 at the same lower switch, 3; 08:00.0 at the upper one, 4 + 1 + 1; the
# others below one port each, 127 + 6 + 1 + 1 = 0x87, 254 + 8 = 0x106. From GPU 81:00.0, below one
# port at a node: 254 + 1 + 4 + 1 = 0x104, with 6 bridges 0x106, with 2 (08:00.0 has 4) and so on.
# With ACS on in middle: the three bridges above it are added for 04:00.1 alone, as the other pairs
# meet elsewhere. ACS on in the root port changes nothing.
tree_acs() {
	row 06:00.0 04:00.1 "${1:-0003}"
	row 06:00.0 07:00.0 0003 0x01 0xffffffff nvme "${2:-0}"
	row 06:00.0 08:00.0 0006
	rows 06:00.0 0087 0x01 0xffffffff nvme 09:00.0 0a:00.0
	row 06:00.0 82:00.0 0106 0x01 0x01
	row 81:00.0 04:00.1 0104
	row 81:00.0 07:00.0 0106
	row 81:00.0 08:00.0 0103
	rows 81:00.0 0101 0x01 0xffffffff nvme 09:00.0 0a:00.0
	row 81:00.0 82:00.0 0082 0x01 0x01
}

# eight SLOT...: its functions.
eight() { for slot; do for f in 0 1 2 3 4 5 6 7; do echo "$slot.$f"; done; done; }

# 32 network functions on the root bus (no bridge, no link), 8 below a port (1), 24 below a bridge to
# PCI below a port (2, no link), the drives as in rootports (1). The same again for the GPUs:
# 00:14.0 has no bridge, 01:00.0 and 0a:00.0 have 1, 09:04.0 has 2, and the nearest of them is that
# of the 24: 0 + 0 + 1. 81:00.0 has 1, at a node.
tree_many() {
	while read -r gpu direct port old drives other; do
		# shellcheck disable=SC2046 # a list of words
		rows "$gpu" "$direct" 0x00 0xffffffff network $(eight 00:10 00:11 00:12 00:13)
		# shellcheck disable=SC2046
		rows "$gpu" "$port" 0x01 0xffffffff network $(eight 07:00)
		# shellcheck disable=SC2046
		rows "$gpu" "$old" 0x00 0xffffffff network $(eight 09:01 09:02 09:03)
		rows "$gpu" "$drives" 0x01 0xffffffff nvme 02:00.0 03:00.0 04:00.0 05:00.0 06:00.0
		row "$gpu" 82:00.0 "$other" 0x01 0x01
	done <<-END
	00:14.0 0080 0081 0082 0081 0100
	01:00.0 0081 0082 0083 0082 0101
	09:04.0 0082 0083 0001 0083 0102
	0a:00.0 0081 0082 0083 0082 0101
	81:00.0 0100 0101 0102 0101 0082
	END
}

# distances TEXT COMMAND...: the file has the header, then the rows that the command prints; their
# order is not defined.
distances() {
	text=$1
	shift
	is "$(head -n 1 $proc/peer_distance)" "$header" "19.6: header, $text"
	is "$(sed 1d $proc/peer_distance | sort)" "$("$@" | sort)" "19.6: rows, $text"
}

# whole FILE TEXT COMMAND...: the file is what the command prints, byte for byte.
whole() {
	file=$1 text=$2
	shift 2
	is "$(cat "$proc/$file"; echo .)" "$("$@"; echo .)" "$text"
}

# addresses ADDRESS...: one a line.
addresses() { printf '0000:%s\n' "$@"; }

# affinity CROSS GPU COLUMN COUNT: the file when all DMA is of one GPU at one distance (0: none).
affinity() {
	printf 'GPU P2P DMA distribution based on pci-distance\n\n(last column indicates p2p via root complex)\n'
	for gpu in $gpus; do
		printf 'GPU :0000:%s :' "$gpu"
		n=1
		while [ $n -le 32 ]; do
			if [ "$gpu" = "$2" ] && [ $n = "$3" ]; then printf '%s ' "$4"; else printf '0 '; fi
			n=$((n + 1))
		done
		if [ "$gpu" = "$2" ]; then echo "$1"; else echo 0; fi
	done
}

# percent GPU: what stats says at the end of its line.
percent() { sed -n "s/^GPU 0000:$1  uuid:.* max_pinned_MiB=[0-9]* //p" $proc/stats; }

# set_acs BRIDGE BITS: the control word of ACS of one of QEMU's root ports, two hex digits.
set_acs() {
	# shellcheck disable=SC2059 # an escape
	printf "\\x$2\\x00" | dd of="/sys/bus/pci/devices/0000:$1/config" bs=1 seek=$((0x14e)) conv=notrunc 2>/dev/null
}

# until_true COMMAND...: repeats it until it succeeds, for 120 s.
until_true() {
	read -r now _ < /proc/uptime
	end=$((${now%.*} + 120))
	while ! "$@"; do
		read -r now _ < /proc/uptime
		[ "${now%.*}" -lt $end ] || return 1
	done
}

without_drive() { tree_rootports | grep -v 0000:06:00.0; }
with_card() { tree_rootports | sed '/0000:06:00.0/s/nvme/network/'; }

there() { [ -e "/sys/bus/pci/devices/0000:$1" ]; }
gone() { ! there "$1"; }

# No GPU is a GPU before its driver comes; then they are found without a reload.
insmod /modules/nvidia-fs.ko
whole peer_distance "19.6: only the header without GPUs" echo "$header"
insmod /modules/fake_nvidia.ko
for file in bridges peer_distance peer_affinity; do
	is "$(stat -c '%a %u %F' $proc/$file)" "444 0 regular empty file" "19.1: $file: mode and owner"
done
gpus=$("tree_$TB_TOPOLOGY" | sed 's/^0000:\([^ ]*\) .*/\1/' | uniq)
# In the kernel's order, which has the higher host bridge first.
[ "$TB_TOPOLOGY" != nodes ] || gpus="81:00.0 41:00.0"
distances "the tree $TB_TOPOLOGY" "tree_$TB_TOPOLOGY"
is "$(sed 1d $proc/peer_distance | cut -f 1 | uniq | sort | uniq -d)" "" "19.6: GPU major"
case $TB_IOMMU in
none) whole bridges "19.5: no bridge with ACS on" true ;;
*)
	# The kernel turns it on in all root ports; PCI-to-PCI bridges they are too.
	whole bridges "19.5: the root ports, with an IOMMU" addresses \
		00:01.0 00:02.0 00:03.0 00:04.0 00:05.0 00:06.0 80:00.0 80:01.0
	;;
esac
whole peer_affinity "19.7: empty when peer statistics are off" true
echo 1 > $parameter
whole peer_affinity "19.7: no DMA yet" affinity 0 none 0 0
echo 0 > $parameter

case $TB_TOPOLOGY in
switch)
	mount_ext4
	dd if=/dev/zero of=/mnt/ext4/file bs=1048576 count=20 conv=fsync 2>/dev/null
	tap peer_io 0 /mnt/ext4/file
	is "$(percent 03:00.0)" "" "19.9: no percentage when peer statistics are off"
	distances "nothing is counted then" tree_switch
	echo 1 > $parameter
	is "$(percent 03:00.0)" "cross_root_port(%)=0" "19.9: 0 of nothing"
	tap peer_io 0 /mnt/ext4/file 0x8300
	is "$(cut -f 2,8 $proc/peer_distance | sed -n '2p')" "0000:04:00.0 ${tab}4" "19.6, 20.8: four parts"
	is "$(sed 1d $proc/peer_distance | cut -f 8 | sort | uniq -c | tr -s ' ')" " 11 0
 1 4" "the other pairs have none, whatever GPU the program named"
	whole peer_affinity "19.7: at distance 3" affinity 0 03:00.0 3 4
	is "$(percent 03:00.0)" "cross_root_port(%)=0" "19.9: none crosses"
	if [ "$TB_CPU" = epyc ]; then
		tap peer_io 0 "$NVME_RAW"
		tap peer_io 0 "$NVME_RAW"
		whole peer_affinity "19.7: the last column" affinity 8 03:00.0 3 4
		is "$(percent 03:00.0)" "cross_root_port(%)=66" "19.9: 8 of 12 cross"
		is "$(grep -c '^GPU 0000:' $proc/stats)" 1 "19.9: a line for the GPU that had a MAP"
	fi
	echo > $proc/stats
	whole peer_affinity "19.10: a write to stats resets the counts" affinity 0 none 0 0
	distances "reset" tree_switch
	is "$(percent 03:00.0)" "cross_root_port(%)=0" "19.10: and the percentage"
	;;
rootports)
	if [ "$TB_IOMMU" = none ]; then
		# A drive goes, a network card comes in its place.
		check "a drive is unplugged" tell qmp '{"execute": "device_del", "arguments": {"id": "raw"}}'
		check "it is gone for the host" tell event DEVICE_DELETED raw 120
		check "it is gone for the guest" until_true gone 06:00.0
		distances "a drive less" without_drive
		check "a network card is plugged in" tell qmp '{"execute": "device_add", "arguments": {"driver": "e1000e", "id": "card", "bus": "port-raw", "romfile": ""}}'
		check "it is there for the guest" until_true there 06:00.0
		distances "a network card instead" with_card
	fi
	;;
acs)
	mount_xfs
	dd if=/dev/zero of=/mnt/xfs/file bs=1048576 count=20 conv=fsync 2>/dev/null
	echo 1 > $parameter
	tap peer_io 0 /mnt/xfs/file
	set_acs 03:00.0 1d
	whole bridges "19.5: ACS on in the middle" addresses 03:00.0
	distances "ACS on in the middle; counts stay" tree_acs 0006 4
	set_acs 00:01.0 01
	whole bridges "19.5: and in the root port" addresses 00:01.0 03:00.0
	distances "ACS on in the root port too" tree_acs 0006 4
	set_acs 03:00.0 00
	whole bridges "19.5: ACS off in the middle" addresses 00:01.0
	distances "ACS off in the middle" tree_acs 0003 4
	umount /mnt/xfs
	;;
esac

# GPUs go with their driver.
rmmod fake_nvidia
whole peer_distance "19.6: only the header again" echo "$header"
insmod /modules/fake_nvidia.ko
if [ "$TB_TOPOLOGY" = switch ]; then
	# Nobody has read a file since: the module was told.
	tap peer_io 0 /mnt/ext4/file
	whole peer_affinity "20.1: a GPU that came is known to MAP" affinity 0 03:00.0 3 4
	umount /mnt/ext4
fi
is "$(sed 1d $proc/peer_distance | cut -f 1 | uniq | wc -l)" "$(echo "$gpus" | wc -w)" "all GPUs are back"
check "2.6: unload" unload_modules
finish
