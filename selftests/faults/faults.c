// SPDX-License-Identifier: GPL-2.0
/*
 * Fault points (section 21, and ours): each fails what it says, with the errno it says, is counted as
 * that and nothing else, and leaves things such that the next try works.
 *
 * usage: faults DIRECTORY DISK (DISK: one of fake_storage's)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/numbers.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

#define FAULTS	"/sys/kernel/debug/nvfs_inject_fault/"
#define CACHED	(512 * KIB)	/* of the file, where its page cache is used */

static const char *const names[] = {
	"dma_error", "rw_verify_area_error", "end_fence_get_user_pages_fast_error",
	"invalid_p2p_get_page", "io_transit_state_fail", "pin_shadow_pages_error",
	"vm_insert_page_error", "p2p_get_pages_error", "p2pdma_add_resource_error",
	"page_cache_flush_error", "file_io_error",
};

static struct gpu gpu;
static struct fake_nvidia_info info;
static uint64_t va;
static int node;

static void set(const char *name, const char *attribute, const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), FAULTS "%s/%s", name, attribute);
	if (nvfs_write_text(path, value) < 0)
		tap_bail("cannot write to %s", path);
}

/* arm: the next times. What moves from here on is compared. */
static void arm(const char *name, const char *times)
{
	set(name, "verbose", "0");
	set(name, "interval", "1");
	set(name, "times", times);
	set(name, "probability", "100");
	begin();
}

static void disarm(const char *name)
{
	set(name, "probability", "0");
}

static void test_mmap(struct nvfs_buffer *buf)
{
	void *p;

	arm("vm_insert_page_error", "1");
	p = nvfs_mmap(node, MIB);
	tap_ok(!p && errno == ENOMEM, "vm_insert_page_error: mmap fails with ENOMEM");
	moved("counted as that", BY("Mmap n", 1), BY("Mmap err", 1), NULL);
	disarm("vm_insert_page_error");
	tap_is(nvfs_shadow(buf, node, MIB), 0, "the next one works");
}

static void test_map(struct nvfs_buffer *buf, const char *name, int error)
{
	struct fake_nvidia_counts counts;

	arm(name, "1");
	tap_is(nvfs_map(buf), error, "%s: MAP fails with %s", name, strerror(-error));
	moved("counted as that", BY("Bar1-map n", 1), BY("Bar1-map err", 1), BY("pins_failed", 1),
	      NULL);
	disarm(name);
	gpu_counts(&gpu, &counts);
	tap_ok(!counts.tables && !counts.pinned_pages && !counts.misuse,
	       "the GPU driver has everything back");
}

static void map_again(struct nvfs_buffer *buf)
{
	nvfs_unregister(buf);
	if (nvfs_register(buf, node, va, MIB, MIB, info.pdevinfo))
		tap_bail("MAP failed");
}

static void read_fails(struct nvfs_buffer *buf, int file, const char *name, int error)
{
	arm(name, "1");
	tap_is(nvfs_read(buf, file, 0, 64 * KIB, 0), error, "%s: READ fails with %s", name,
	       strerror(-error));
}

static void read_works(struct nvfs_buffer *buf, int file, const char *name)
{
	int64_t bad = 0;

	disarm(name);
	gpu_set(&gpu, va, 0, 64 * KIB);
	tap_is(nvfs_read(buf, file, 0, 64 * KIB, 0), 64 * KIB, "the next one works");
	tap_ok(!gpu_check(&gpu, va, 64 * KIB, 1, &bad) && bad == -1, "its data is right");
}

static void async_write_fails(struct nvfs_buffer *buf, int file, const char *name, int error)
{
	ssize_t ret;

	gpu_fill(&gpu, va, 64 * KIB, 1);
	arm(name, "1");
	ret = nvfs_submit(buf, NVFS_IOCTL_WRITE, file, 0, 64 * KIB, 0);
	tap_is(ret ? ret : nvfs_wait(buf), error, "%s: an asynchronous WRITE fails with %s", name,
	       strerror(-error));
}

static void async_write_works(struct nvfs_buffer *buf, int file, const char *name)
{
	disarm(name);
	nvfs_submit(buf, NVFS_IOCTL_WRITE, file, 0, 64 * KIB, 0);
	tap_is(nvfs_wait(buf), 64 * KIB, "the next one works");
}

static void test_io(struct nvfs_buffer *buf, int file)
{
	read_fails(buf, file, "p2pdma_add_resource_error", -EOPNOTSUPP);
	moved("counted as that", BY("Reads n", 1), BY("Reads err", 1), BY("refused_bar", 1), NULL);
	read_works(buf, file, "p2pdma_add_resource_error");

	read_fails(buf, file, "rw_verify_area_error", -EFAULT);
	moved("counted as that", BY("Reads n", 1), BY("Reads err", 1), BY("read_p2pdma_ios", 1),
	      BY("read_p2pdma_errors", 1), NULL);
	read_works(buf, file, "rw_verify_area_error");
	async_write_fails(buf, file, "rw_verify_area_error", -EFAULT);
	moved("counted as that", BY("Writes n", 1), BY("Writes err", 1), BY("write_p2pdma_ios", 1),
	      BY("write_p2pdma_errors", 1), NULL);
	async_write_works(buf, file, "rw_verify_area_error");

	read_fails(buf, file, "io_transit_state_fail", -EBUSY);
	moved("counted as that", BY("Reads n", 1), BY("Reads err", 1), BY("read_rejected", 1),
	      NULL);
	read_works(buf, file, "io_transit_state_fail");
	async_write_fails(buf, file, "io_transit_state_fail", -EBUSY);
	moved("counted as that", BY("Writes n", 1), BY("Writes err", 1), BY("write_rejected", 1),
	      NULL);
	async_write_works(buf, file, "io_transit_state_fail");

	read_fails(buf, file, "file_io_error", -EIO);
	moved("counted as that", BY("Reads n", 1), BY("Reads io_state_err", 1),
	      BY("read_p2pdma_ios", 1), BY("read_p2pdma_errors", 1), NULL);
	read_works(buf, file, "file_io_error");
	async_write_fails(buf, file, "file_io_error", -EIO);
	moved("counted as that", BY("Writes n", 1), BY("Writes err", 1),
	      BY("Writes io_state_err", 1), BY("write_p2pdma_ios", 1),
	      BY("write_p2pdma_errors", 1), NULL);
	async_write_works(buf, file, "file_io_error");
}

static void use_page_cache(int plain)
{
	char byte = 1;

	if (pwrite(plain, &byte, 1, CACHED) != 1)
		tap_bail("cannot write through the page cache");
}

static void test_flush(struct nvfs_buffer *buf, int file, int plain)
{
	static const char name[] = "page_cache_flush_error";

	use_page_cache(plain);
	arm(name, "1");
	tap_is(nvfs_write(buf, file, CACHED, 64 * KIB, 0), 64 * KIB, "%s: once is no harm", name);
	moved("counted", BY("Writes n", 1), BY("Writes ok", 1), BY("Writes pg-cache", 2),
	      BY("Writes pg-cache-fail", 1), BY("write_p2pdma_ios", 1),
	      BY("write_p2pdma_bytes", 64 * KIB), NULL);
	disarm(name);
	use_page_cache(plain);
	arm(name, "5");
	tap_is(nvfs_write(buf, file, CACHED, 64 * KIB, 0), -EIO, "%s: WRITE fails after five",
	       name);
	moved("counted", BY("Writes n", 1), BY("Writes err", 1), BY("Writes pg-cache", 5),
	      BY("Writes pg-cache-fail", 5), BY("Writes pg-cache-eio", 1),
	      BY("write_p2pdma_ios", 1), BY("write_p2pdma_errors", 1), NULL);
	disarm(name);
	tap_is(nvfs_write(buf, file, CACHED, 64 * KIB, 0), 64 * KIB, "the next one works");
}

/* The mapping for the disk is made once a buffer. */
static void test_dma(struct nvfs_buffer *buf, const char *path)
{
	int disk = open(path, O_RDWR | O_DIRECT);

	if (disk < 0 || storage_set("table", FAKE_STORAGE_V2))
		tap_bail("no disk %s", path);
	map_again(buf);
	async_write_fails(buf, disk, "dma_error", -EIO);
	moved("counted as that", BY("Writes n", 1), BY("Writes err", 1), BY("refused_mapping", 1),
	      BY("Error dma-map", 1), BY("dma_mappings_failed", 1), NULL);
	async_write_works(buf, disk, "dma_error");
	map_again(buf);
	read_fails(buf, disk, "dma_error", -EIO);
	moved("counted as that", BY("Reads n", 1), BY("Reads err", 1), BY("refused_mapping", 1),
	      BY("Error dma-map", 1), BY("dma_mappings_failed", 1), NULL);
	read_works(buf, disk, "dma_error");
	close(disk);
}

int main(int argc, char **argv)
{
	struct fake_nvidia_counts counts;
	struct nvfs_buffer buf;
	char path[256];
	unsigned int i;
	int file, plain;

	if (argc != 3)
		tap_bail("usage: %s DIRECTORY DISK", argv[0]);
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), FAULTS "%s/probability", names[i]);
		tap_ok(!access(path, R_OK | W_OK), "there is %s", names[i]);
	}
	snprintf(path, sizeof(path), "%s/faults.tmp", argv[1]);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, MIB, 1);
	plain = open(path, O_RDWR);
	if (node < 0 || file < 0 || plain < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, MIB, 0, &va))
		tap_bail("node %d, file %d, or no GPU", node, file);
	nvfs_set_parameter("rw_stats_enabled", "1");
	/* What nvfs_file left in the page cache. */
	fsync(plain);
	posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED);

	test_mmap(&buf);
	buf.gpu_va = va;
	buf.gpu_size = MIB;
	buf.pdevinfo = info.pdevinfo;
	test_map(&buf, "pin_shadow_pages_error", -EINVAL);
	test_map(&buf, "end_fence_get_user_pages_fast_error", -EFAULT);
	test_map(&buf, "p2p_get_pages_error", -ENOMEM);
	test_map(&buf, "invalid_p2p_get_page", -EFAULT);
	tap_is(nvfs_map(&buf), 0, "then MAP works");
	test_io(&buf, file);
	test_flush(&buf, file, plain);
	test_dma(&buf, argv[2]);

	begin();
	nvfs_unregister(&buf);
	moved("munmap", BY("Mmap munmap", 1), BY("Bar1-map free", 1), BY("Bar1-map active", -1),
	      BY("unpins_total", 1), BY("pins_now", -1), BY("dma_unmappings_total", 1),
	      BY("dma_mappings_now", -1), NULL);
	gpu_counts(&gpu, &counts);
	tap_ok(!counts.tables && !counts.mappings && !counts.pinned_pages && !counts.misuse,
	       "the GPU driver has everything back");
	unlink(path);
	return tap_plan();
}
