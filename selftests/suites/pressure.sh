# SPDX-License-Identifier: GPL-2.0
# Shadow memory against a memory cgroup.
mount_ext4
export WAY="${WAY:-}"
mkdir /tmp/cgroup
mount -t cgroup2 none /tmp/cgroup
echo +memory > /tmp/cgroup/cgroup.subtree_control
mkdir /tmp/cgroup/small /tmp/cgroup/other
echo 50331648 > /tmp/cgroup/small/memory.max
load_modules
tap pressure /tmp/cgroup/small /tmp/cgroup/other /mnt/ext4/file
check "the cgroups are empty" rmdir /tmp/cgroup/small /tmp/cgroup/other
check "2.6: unload" unload_modules
finish
