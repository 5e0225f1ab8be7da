# SPDX-License-Identifier: GPL-2.0
# The RDMA record of a buffer, and segments of one of 5 GiB: run with --bar 8G.
insmod /modules/fake_storage.ko && insmod /modules/fake_nvme_v2.ko
check "fake_storage has a drive's PCI function" lend_to_fake_storage "$PCI_RAW"
load_modules
# Nothing here looks at what was freed, and it is 5 GiB each time.
echo N > /sys/module/fake_nvidia/parameters/poison
tap rdma /dev/fake_storage0 "$PCI_RAW"
for table in nvme plain v2; do
	tap limit $table /dev/fake_storage0 "$PCI_RAW"
done
check "2.6: unload" unload_modules
finish
