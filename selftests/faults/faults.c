// SPDX-License-Identifier: GPL-2.0
/*
 * Fault points (§21): each fails what it says, once, with the errno it says, and leaves things such
 * that the next try works. Without fault injection in the kernel there are none.
 *
 * usage: faults DIRECTORY [DISK] (DISK: one of fake_storage's)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

#define FAULTS	"/sys/kernel/debug/nvfs_inject_fault/"

static const char *const names[] = {
	"dma_error", "rw_verify_area_error", "end_fence_get_user_pages_fast_error",
	"invalid_p2p_get_page", "io_transit_state_fail", "pin_shadow_pages_error",
	"vm_insert_page_error",
};

static void set(const char *name, const char *attribute, const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), FAULTS "%s/%s", name, attribute);
	if (nvfs_write_text(path, value) < 0)
		tap_bail("cannot write to %s", path);
}

/* arm: the next time, once. */
static void arm(const char *name)
{
	set(name, "verbose", "0");
	set(name, "interval", "1");
	set(name, "times", "1");
	set(name, "probability", "100");
}

static void disarm(const char *name)
{
	set(name, "probability", "0");
}

static void test_map(struct nvfs_buffer *buf, const char *name, int error)
{
	arm(name);
	tap_is(nvfs_map(buf), error, "%s: MAP fails", name);
	disarm(name);
}

static void test_io(struct nvfs_buffer *buf, int file, const char *name, int error)
{
	arm(name);
	tap_is(nvfs_read(buf, file, 0, 64 * KIB, 0), error, "%s: READ fails", name);
	tap_is(nvfs_read(buf, file, 0, 64 * KIB, 0), 64 * KIB, "%s: the next one works", name);
	arm(name);
	tap_is(nvfs_submit(buf, NVFS_IOCTL_WRITE, file, 0, 64 * KIB, 0), error,
	       "%s: an asynchronous WRITE fails", name);
	nvfs_submit(buf, NVFS_IOCTL_WRITE, file, 0, 64 * KIB, 0);
	tap_is(nvfs_wait(buf), 64 * KIB, "%s: the next one works", name);
	disarm(name);
}

int main(int argc, char **argv)
{
	struct nvfs_buffer buf;
	struct gpu gpu;
	struct fake_nvidia_info info;
	char path[256];
	unsigned int i;
	uint64_t va;
	int node, file, disk;
	void *p;

	if (argc < 2)
		tap_bail("usage: %s DIRECTORY [DISK]", argv[0]);
	if (access(FAULTS, F_OK)) {
		tap_skip("the kernel has no fault injection", "fault points");
		return tap_plan();
	}
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), FAULTS "%s/probability", names[i]);
		tap_ok(!access(path, R_OK | W_OK), "there is %s", names[i]);
	}
	snprintf(path, sizeof(path), "%s/faults.tmp", argv[1]);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, MIB, 1);
	if (node < 0 || file < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, MIB, 0, &va))
		tap_bail("node %d, file %d, or no GPU", node, file);

	arm("vm_insert_page_error");
	p = nvfs_mmap(node, MIB);
	tap_ok(!p && errno == ENOMEM, "vm_insert_page_error: mmap fails with ENOMEM");
	disarm("vm_insert_page_error");
	tap_is(nvfs_shadow(&buf, node, MIB), 0, "the next one works");
	buf.gpu_va = va;
	buf.gpu_size = MIB;
	buf.pdevinfo = info.pdevinfo;
	test_map(&buf, "pin_shadow_pages_error", -EINVAL);
	test_map(&buf, "end_fence_get_user_pages_fast_error", -EFAULT);
	test_map(&buf, "invalid_p2p_get_page", -EFAULT);
	tap_is(nvfs_map(&buf), 0, "then MAP works");
	tap_is(nvfs_stat("Bar1-map", "active"), 1, "one is active");
	test_io(&buf, file, "rw_verify_area_error", -EFAULT);
	test_io(&buf, file, "io_transit_state_fail", -EBUSY);
	if (argc > 2) {
		storage_set("table", FAKE_STORAGE_V2);
		disk = open(argv[2], O_RDWR | O_DIRECT);
		test_io(&buf, disk, "dma_error", -EIO);
		close(disk);
	}
	nvfs_unregister(&buf);
	tap_is(nvfs_stat("Bar1-map", "active"), 0, "nothing is left");
	unlink(path);
	return tap_plan();
}
