# SPDX-License-Identifier: GPL-2.0
# KUnit: what only the kernel side of the module can show. The kernel runs it when the module is
# loaded: --flavour debug --append "kunit.enable=1 kunit.autorun=1".
load_modules
dmesg | sed 's/^\[[^]]*\] *//' | sed -n '/^KTAP version/,$p' > /tmp/ktap
awk '$1 == "#" && $2 == "Subtest:" { suite = $3 }
	suite !~ /^nvfs_/ { next }
	$1 == "ok" && suite != $3 { print "ok", suite ":", $3 }
	$1 == "not" && suite != $4 { print "not_ok", suite ":", $4 }' /tmp/ktap > /tmp/results
while read -r verdict text; do
	"$verdict" "$text"
done < /tmp/results
for suite in completion extents percpu pin published reaper shadow; do
	check "all of nvfs_$suite passed" grep -q "^ok [0-9]* nvfs_$suite\$" /tmp/ktap
done
[ $failed = 0 ] || sed 's/^/# /' /tmp/ktap
check "unload" unload_modules
finish
