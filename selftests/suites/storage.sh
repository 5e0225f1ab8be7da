# SPDX-License-Identifier: GPL-2.0
# fake_storage as a plain driver: nothing is registered, and nvidia-fs is not even loaded.

check "fake_storage can be loaded" insmod /modules/fake_storage.ko
check "and what gives it v2" insmod /modules/fake_nvme_v2.ko
check "and the pairs that are wrong" insmod /modules/bad_vendor.ko
check "it has two drives' PCI functions" lend_to_fake_storage "$PCI_RAW" "$PCI_FAR"
check "and a disk for one" [ -b /dev/fake_storage0 ]
check "and for the other" [ -b /dev/fake_storage1 ]
tap storage /dev/fake_storage0

check "a file system is made" eval "mke2fs /dev/fake_storage1 1048576 > /dev/null"
check "and mounted" mount -t ext4 /dev/fake_storage1 /mnt/far
dd if=/dev/urandom of=/tmp/data bs=1M count=9 2>/dev/null
dd if=/tmp/data of=/mnt/far/data bs=3M oflag=direct 2>/dev/null
check "it is unmounted" umount /mnt/far
check "and mounted again" mount -t ext4 /dev/fake_storage1 /mnt/far
is "$(sha256sum < /mnt/far/data)" "$(sha256sum < /tmp/data)" "with the same file"
check "it is unmounted again" umount /mnt/far

check "a disk's function is unplugged" tell qmp '{"execute": "device_del", "arguments": {"id": "raw"}}'
check "it is gone for the host" tell event DEVICE_DELETED raw 120
check "the disk is gone" [ ! -e /dev/fake_storage0 ]
check "all can be unloaded" rmmod bad_vendor fake_nvme_v2 fake_storage
check "the other disk is gone" [ ! -e /dev/fake_storage1 ]
