# SPDX-License-Identifier: GPL-2.0
# The tracepoints, and the questions of docs/admin.md.

# part FROM TO QUESTION: the code between two marks of docs/admin.md: what all need, and one question.
part() {
	sed -n "/^<!-- $1/,/^<!-- $2/s/^    //p" /admin.md | awk -v n="$3" '/^#/ { at++ } !at || at == n'
}
by_tracefs() { part suite and "$1"; }
by_tool() { part and end "$1"; }

# answer QUESTION: what the lines print when they wait for a known work.
answer() {
	by_tracefs "$1" > /tmp/lines
	(
		sleep() { trace work /mnt/ext4 /dev/fake_storage0 "$PCI_RAW" > /tmp/work || cat /tmp/work >&2; }
		. /tmp/lines
	)
}

# events: the events that lines name. fields: what a histogram or program takes. filter: what they let through.
events() { grep -o 'nvidia_fs[:/]nvfs_[a-z_]*' | tr / : | sort -u; }
fields() { grep -o "keys=[^']*\|args\.[a-z_]*" | sed 's/keys=//; s/\.log2//; s/args\.//' | tr , '\n' | sort -u; }
filter() { grep -o "'[^']*[<>][^']*'" | grep -v nvfs_; }

# device_number DEVICE: as events print it.
device_number() { tr : , < "/sys/class/block/${1##*/}/dev"; }

# names: of the fields in events as they are printed.
names() { sed 's/.*: *nvfs/nvfs/; s/=[^ ]*/=/g'; }

questions() {
	asked=/sys/kernel/tracing/events/nvidia_fs
	p2pdma=$(device_number "$NVME_EXT4") callback=$(device_number /dev/fake_storage0)
	gpu="gpu=$PCI_GPU0 dev="

	if [ -e $asked/nvfs_complete/hist ]; then
		answer 1 > /tmp/answer
		sed -n 's/^{ op: *\([01]\), path: *\([01]\), latency_us: ~ 2^\([0-9]*\) *} hitcount: *\([0-9]*\)$/\1\2 \3 \4/p' \
			/tmp/answer > /tmp/buckets
		is "$(awk '{ n[$1] += $3 } END { for (k in n) print k, n[k] }' /tmp/buckets | sort | tr '\n' ' ')" \
			"00 5 01 1 10 4 " "latency: requests by direction and path"
		# Such a bucket ends at its power of two.
		is "$(awk '$1 == "01" && $2 < 15 || $2 < 1' /tmp/buckets)" "" "and it is in microseconds"
		is "$(grep -o 'Hits: *[0-9]*' /tmp/answer | tr -s ' ')" "Hits: 10" "and of all requests"
		is "$(grep -v '^#' $asked/nvfs_complete/trigger)" "" "and it is off again"
	else
		ok "latency # SKIP this kernel has no histograms"
	fi

	answer 2 | sed 's/.*: nvfs/nvfs/' > /tmp/answer
	is "$(grep result=- /tmp/answer | sed 's/=[0-9]*$/=/')" \
		"nvfs_complete: ${gpu}$p2pdma op=write path=p2pdma offset=1048576 bytes=4096 result=-27 latency_us=" \
		"slow or failed: the one that failed"
	is "$(grep path=callback /tmp/answer | sed 's/=[0-9]*$/=/')" \
		"nvfs_complete: ${gpu}$callback op=read path=callback offset=0 bytes=262144 result=262144 latency_us=" \
		"and the slow one"
	is "$(awk -F= '!/result=-/ && $NF <= 10000' /tmp/answer)" "" "and none that is neither"
	is "$(cat $asked/nvfs_complete/enable $asked/nvfs_complete/filter | tr '\n' ' ')" "0 none " "and it is off again"

	answer 3 | sed 's/.*: nvfs/nvfs/' > /tmp/answer
	refused="nvfs_refuse: ${gpu}$p2pdma op=read reason=off result=-95"
	is "$(cat /tmp/answer)" "$refused
$refused" "refused: who, and why"
	is "$(cat $asked/nvfs_refuse/enable)" 0 "and it is off again"
	is "$(sed -n 's/.*shortened, `\(.*\)`.*/\1/p' /admin.md | names)" "$(echo "$refused" | names)" \
		"the example has these fields"

	for n in 1 2 3; do
		is "$(by_tool $n | events)" "$(by_tracefs $n | events)" "question $n is about the same event by a tool"
		is "$(by_tool $n | fields)" "$(by_tracefs $n | fields)" "and the same fields"
		is "$(by_tool $n | filter)" "$(by_tracefs $n | filter)" "and through the same filter"
	done
	is "$(by_tool 1 | fields | wc -l) $(by_tool 2 | filter | wc -l)" "3 1" "and there are fields and a filter"
	check "docs/admin.md has three questions, in two ways" [ "$(sed -n '/^<!-- suite/,/^<!-- end/s/^    //p' /admin.md | grep -c '^#')" = 6 ]
}

mount_ext4
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_RAW"
load_modules
tap trace p2pdma /mnt/ext4
tap trace callback /dev/fake_storage0 "$PCI_RAW"
questions
check "2.6: unload" unload_modules
check "the group is gone" [ ! -e /sys/kernel/tracing/events/nvidia_fs ]
