// SPDX-License-Identifier: GPL-2.0
/*
 * The module without the GPU driver (field report O4): shadow buffers work, MAP checks its
 * arguments and then says ENODEV.
 *
 * usage: map_absent
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/nvfs.h"
#include "../lib/tap.h"

int main(void)
{
	int node = nvfs_open(0, O_RDWR), fd = open("/init", O_RDONLY);
	union nvfs_ioctl_arg arg;
	struct nvfs_buffer buf;
	const char *legacy;
	unsigned int i;

	if (node < 0 || nvfs_shadow(&buf, node, 64 * KIB))
		tap_bail("no shadow buffer");
	buf.gpu_va = 0x200000000000;
	buf.gpu_size = 64 * KIB;
	tap_ok(access("/sys/module/fake_nvidia", F_OK) && access("/sys/module/nvidia", F_OK),
	       "no GPU driver is loaded");
	for (i = 0; i < 2; i++) {
		legacy = i ? "1" : "0";
		nvfs_set_parameter("use_legacy_p2p_allocation", legacy);
		tap_is(nvfs_map(&buf), -ENODEV, "7.2 row 13, use_legacy_p2p_allocation=%s: ENODEV",
		       legacy);
		tap_is(nvfs_map(&buf), -ENODEV, "7.2 row 13, use_legacy_p2p_allocation=%s: again",
		       legacy);
	}
	arg = nvfs_map_arg(&buf);
	arg.map.sbuf_block = 0;
	tap_is(nvfs_request(node, NVFS_IOCTL_MAP, &arg), -EINVAL, "7.2 row 4 before 13: EINVAL");
	arg = nvfs_map_arg(&buf);
	arg.map.end_fence_addr = 4096;
	tap_is(nvfs_request(node, NVFS_IOCTL_MAP, &arg), -EFAULT, "7.2 row 9 before 13: EFAULT");
	arg = nvfs_map_arg(&buf);
	arg.map.size = 0;
	tap_is(nvfs_request(node, NVFS_IOCTL_MAP, &arg), -EINVAL, "7.2 row 11 before 13: EINVAL");
	tap_is(nvfs_read(&buf, fd, 0, 4096, 0), -EINVAL, "6.6: READ before MAP: EINVAL");
	memset(buf.shadow, 1, buf.window);
	tap_is(munmap(buf.shadow, buf.window), 0, "munmap works");
	tap_is(nvfs_stat("Bar1-map", "active"), 0, "19.8: no mapping is active");
	return tap_plan();
}
