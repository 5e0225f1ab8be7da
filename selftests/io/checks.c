// SPDX-License-Identifier: GPL-2.0
/*
 * READ and WRITE: the checks of 9.1 in their order, permissions (9.2), device numbers (9.3). Each
 * row is tried alone and together with a later row, which must not be looked at; then nothing may
 * have been done: file, GPU memory and meta block as they were, and the buffer takes the next I/O.
 *
 * usage: checks DIRECTORY BLOCK-DEVICE (both on drives that GPU 0 reaches; the device is scratch)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define PAGE		4096UL
#define GPU_SIZE	(256 * KIB)
#define IO_SIZE		(64 * KIB)
#define FILE_SIZE	(256 * KIB)
#define SEED		11

/* What a request is made of. */
struct request {
	union nvfs_ioctl_arg arg;
	bool write;
	bool async;
};

static struct gpu gpu;
static uint64_t gpu_va;
static struct nvfs_buffer live, dead, unaligned;
static struct {
	int rdwr, rdonly, wronly, neither, path, buffered;	/* of the test file */
	int node_rdwr, node_rdonly, node_wronly;		/* a file without read and write */
	int pipe_read, pipe_write;
	int block, block_rdonly, block_buffered;
	int closed;
} fd;
static uint64_t block_offset = 64 * MIB;

/* use: takes another file; all numbers are right for it. */
static void use(struct request *r, int which)
{
	union nvfs_ioctl_arg right = nvfs_io_arg(&live, which, 0, 0, 0);

	r->arg.io.fd = which;
	r->arg.io.file.inum = right.io.file.inum;
	r->arg.io.file.majdev = right.io.file.majdev;
	r->arg.io.file.mindev = right.io.file.mindev;
}

static void use_buffer(struct request *r, const struct nvfs_buffer *buf)
{
	r->arg.io.cpuvaddr = (uintptr_t)buf->shadow;
}

#define SPOIL(name, statement) \
	static void name(struct request *r) { (void)r; statement; }

SPOIL(nothing, )
/* Rows 1 to 3 */
SPOIL(offset_minus_page, r->arg.io.offset = -4096)
SPOIL(offset_minus_1, r->arg.io.offset = -1)
SPOIL(offset_min, r->arg.io.offset = INT64_MIN)
SPOIL(offset_1, r->arg.io.offset = 1)
SPOIL(offset_512, r->arg.io.offset = 512)
SPOIL(offset_4095, r->arg.io.offset = 4095)
SPOIL(size_1, r->arg.io.size = 1)
SPOIL(size_512, r->arg.io.size = 512)
SPOIL(size_over, r->arg.io.size = IO_SIZE + 1)
SPOIL(size_odd_huge, r->arg.io.size = ~0UL)
SPOIL(end_2_63, r->arg.io.offset = 0x7ffffffffffff000; r->arg.io.size = 4096)
SPOIL(end_over_2_63, r->arg.io.offset = 0x7ffffffffffff000)
SPOIL(end_2_62_twice, r->arg.io.offset = 1L << 62; r->arg.io.size = 1UL << 62)
SPOIL(size_2_63, r->arg.io.size = 1UL << 63)
SPOIL(size_minus_page, r->arg.io.size = -PAGE)
/* Row 4 */
SPOIL(fd_minus_1, r->arg.io.fd = -1)
SPOIL(fd_min, r->arg.io.fd = INT_MIN)
SPOIL(fd_max, r->arg.io.fd = INT_MAX)
SPOIL(fd_closed, r->arg.io.fd = fd.closed)
SPOIL(fd_path, use(r, fd.path))
/* Row 5: the file is not open for what is asked. */
SPOIL(no_permission, use(r, r->write ? fd.rdonly : fd.wronly))
/* Row 6, 9 */
SPOIL(inum_0, r->arg.io.file.inum = 0)
SPOIL(inum_plus_1, r->arg.io.file.inum += 1)
SPOIL(inum_high_bit, r->arg.io.file.inum |= 1UL << 40)
SPOIL(inum_all_ones, r->arg.io.file.inum = ~0UL)
/* Row 7, 10 on a block special file */
SPOIL(block_major_0, use(r, fd.block); r->arg.io.offset = block_offset; r->arg.io.file.majdev = 0)
SPOIL(block_major_1, use(r, fd.block); r->arg.io.offset = block_offset; r->arg.io.file.majdev += 1)
SPOIL(block_minor_1, use(r, fd.block); r->arg.io.offset = block_offset; r->arg.io.file.mindev += 1)
SPOIL(block_inum_1, use(r, fd.block); r->arg.io.offset = block_offset; r->arg.io.file.inum += 1)

static void block_numbers_of_file(struct request *r)
{
	union nvfs_ioctl_arg other = nvfs_io_arg(&live, fd.rdwr, 0, 0, 0);

	use(r, fd.block);
	r->arg.io.offset = block_offset;
	r->arg.io.file.majdev = other.io.file.majdev;
	r->arg.io.file.mindev = other.io.file.mindev;
}

/* Row 8 */
static void generation_wrong(struct request *r)
{
	int generation = 0;

	ioctl(fd.rdwr, FS_IOC_GETVERSION, &generation);
	r->arg.io.file.generation = generation + 1 ? generation + 1 : 1;
}

SPOIL(generation_all_ones, r->arg.io.file.generation = ~0U)
/* Row 10 */
SPOIL(major_plus_1, r->arg.io.file.majdev += 1)
SPOIL(major_0, r->arg.io.file.majdev = 0)
SPOIL(major_high_bits, r->arg.io.file.majdev |= 1U << 31)
SPOIL(minor_plus_1, r->arg.io.file.mindev += 1)
SPOIL(minor_high_bits, r->arg.io.file.mindev |= 1U << 20)
SPOIL(device_all_ones, r->arg.io.file.majdev = r->arg.io.file.mindev = ~0U)
/* Row 11 */
SPOIL(address_0, r->arg.io.cpuvaddr = 0)
SPOIL(address_odd, r->arg.io.cpuvaddr += 1)
SPOIL(address_second_page, r->arg.io.cpuvaddr += PAGE)
SPOIL(address_dead_odd, r->arg.io.cpuvaddr = (uintptr_t)dead.shadow + 512)
SPOIL(address_dead_page, r->arg.io.cpuvaddr = (uintptr_t)dead.shadow + PAGE)
SPOIL(address_meta, r->arg.io.cpuvaddr = (uintptr_t)live.meta)
/* Row 12 */
SPOIL(buffer_dead, use_buffer(r, &dead))
/* Rows 13 to 17 */
SPOIL(not_direct, use(r, fd.buffered))
SPOIL(block_not_direct, use(r, fd.block_buffered); r->arg.io.offset = block_offset)
SPOIL(fence_0, r->arg.io.end_fence_value = 0)
SPOIL(devptroff_1, r->arg.io.file.devptroff = 1)
SPOIL(devptroff_512, r->arg.io.file.devptroff = 512)
SPOIL(devptroff_4095, r->arg.io.file.devptroff = 4095)
SPOIL(buffer_unaligned, use_buffer(r, &unaligned))
SPOIL(unaligned_by_two, use_buffer(r, &unaligned); r->arg.io.file.devptroff = 512)
SPOIL(size_above, r->arg.io.size = GPU_SIZE + PAGE)
SPOIL(size_2_62, r->arg.io.size = 1UL << 62)
SPOIL(devptroff_end, r->arg.io.file.devptroff = GPU_SIZE)
SPOIL(devptroff_near_end, r->arg.io.file.devptroff = GPU_SIZE - PAGE)
SPOIL(devptroff_2_63, r->arg.io.file.devptroff = 1UL << 63)
SPOIL(devptroff_wraps, r->arg.io.file.devptroff = -IO_SIZE)
SPOIL(devptroff_wraps_page, r->arg.io.file.devptroff = -PAGE)
SPOIL(over_page, r->arg.io.file.devptroff = PAGE)
SPOIL(over_page_end, r->arg.io.file.devptroff = 61440; r->arg.io.size = 8192)
SPOIL(over_page_later, r->arg.io.file.devptroff = 65536 + 32768; r->arg.io.size = 36864)
/* What comes after row 17: a file that P2PDMA cannot reach. */
SPOIL(unreachable, use(r, r->write ? fd.pipe_write : fd.pipe_read))

enum which { BOTH, ONLY_ASYNC };

struct row {
	const char *name;
	void (*spoil)(struct request *r);
	void (*later)(struct request *r);
	int reason;
	enum which which;
};

static const struct row rows[] = {
	{ "row 1: offset -4096", offset_minus_page, nothing, -EINVAL, BOTH },
	{ "row 1: offset -1", offset_minus_1, nothing, -EINVAL, BOTH },
	{ "row 1: offset -2^63", offset_min, nothing, -EINVAL, BOTH },
	{ "row 1 before 5", offset_minus_page, no_permission, -EINVAL, BOTH },
	{ "row 1 before 8", offset_min, generation_wrong, -EINVAL, BOTH },
	{ "row 1 before 12", offset_minus_page, buffer_dead, -EINVAL, BOTH },
	{ "row 2: offset 1", offset_1, nothing, -EINVAL, BOTH },
	{ "row 2: offset 512", offset_512, nothing, -EINVAL, BOTH },
	{ "row 2: offset 4095", offset_4095, nothing, -EINVAL, BOTH },
	{ "row 2: size 1", size_1, nothing, -EINVAL, BOTH },
	{ "row 2: size 512", size_512, nothing, -EINVAL, BOTH },
	{ "row 2: size 64 KiB + 1", size_over, nothing, -EINVAL, BOTH },
	{ "row 2: size 2^64 - 1", size_odd_huge, nothing, -EINVAL, BOTH },
	{ "row 2 before 5", size_512, no_permission, -EINVAL, BOTH },
	{ "row 2 before 10", offset_512, major_plus_1, -EINVAL, BOTH },
	{ "row 2 before 12", offset_512, buffer_dead, -EINVAL, BOTH },
	{ "row 3: the end is 2^63", end_2_63, nothing, -EINVAL, BOTH },
	{ "row 3: the end is above 2^63", end_over_2_63, nothing, -EINVAL, BOTH },
	{ "row 3: 2^62 + 2^62", end_2_62_twice, nothing, -EINVAL, BOTH },
	{ "row 3: size 2^63", size_2_63, nothing, -EINVAL, BOTH },
	{ "row 3: size -4096", size_minus_page, nothing, -EINVAL, BOTH },
	{ "row 3 before 5", size_2_63, no_permission, -EINVAL, BOTH },
	{ "row 3 before 9", end_2_63, inum_plus_1, -EINVAL, BOTH },
	{ "row 3 before 12", end_over_2_63, buffer_dead, -EINVAL, BOTH },
	{ "row 4: fd -1", fd_minus_1, nothing, -EINVAL, BOTH },
	{ "row 4: fd -2^31", fd_min, nothing, -EINVAL, BOTH },
	{ "row 4: fd 2^31 - 1", fd_max, nothing, -EINVAL, BOTH },
	{ "row 4: closed fd", fd_closed, nothing, -EINVAL, BOTH },
	{ "row 4: O_PATH", fd_path, nothing, -EINVAL, BOTH },
	{ "row 4 before 8", fd_path, generation_wrong, -EINVAL, BOTH },
	{ "row 4 before 10", fd_minus_1, major_plus_1, -EINVAL, BOTH },
	{ "row 4 before 12", fd_closed, buffer_dead, -EINVAL, BOTH },
	{ "row 5: no permission", no_permission, nothing, -EBADF, BOTH },
	{ "row 5 before 6", no_permission, inum_0, -EBADF, BOTH },
	{ "row 5 before 8", no_permission, generation_wrong, -EBADF, BOTH },
	{ "row 5 before 10", no_permission, minor_plus_1, -EBADF, BOTH },
	{ "row 5 before 11", no_permission, address_0, -EBADF, BOTH },
	{ "row 5 before 12", no_permission, buffer_dead, -EBADF, BOTH },
	{ "row 5 before 15", no_permission, devptroff_512, -EBADF, BOTH },
	{ "row 6: inum 0", inum_0, nothing, -EINVAL, BOTH },
	{ "row 6 before 8", inum_0, generation_wrong, -EINVAL, BOTH },
	{ "row 6 before 10", inum_0, major_plus_1, -EINVAL, BOTH },
	{ "row 6 before 12", inum_0, buffer_dead, -EINVAL, BOTH },
	{ "row 7: block device, majdev 0", block_major_0, nothing, -EINVAL, BOTH },
	{ "row 7 before 8", block_major_0, generation_all_ones, -EINVAL, BOTH },
	{ "row 7 before 9", block_major_0, inum_plus_1, -EINVAL, BOTH },
	{ "row 7 before 12", block_major_0, buffer_dead, -EINVAL, BOTH },
	{ "row 8: generation + 1", generation_wrong, nothing, -ESTALE, BOTH },
	{ "row 8 before 11", generation_wrong, address_0, -ESTALE, BOTH },
	{ "row 8 before 12", generation_wrong, buffer_dead, -ESTALE, BOTH },
	{ "row 8 before 13", generation_wrong, not_direct, -ESTALE, BOTH },
	{ "row 8 before 16", generation_wrong, size_above, -ESTALE, BOTH },
	{ "row 9: inum + 1", inum_plus_1, nothing, -ESTALE, BOTH },
	{ "row 9: inum + 2^40", inum_high_bit, nothing, -ESTALE, BOTH },
	{ "row 9: inum 2^64 - 1", inum_all_ones, nothing, -ESTALE, BOTH },
	{ "row 9: block device, inum + 1", block_inum_1, nothing, -ESTALE, BOTH },
	{ "row 9 before 11", inum_plus_1, address_odd, -ESTALE, BOTH },
	{ "row 9 before 12", inum_plus_1, buffer_dead, -ESTALE, BOTH },
	{ "row 9 before 15", inum_plus_1, devptroff_1, -ESTALE, BOTH },
	{ "row 10: majdev + 1", major_plus_1, nothing, -ESTALE, BOTH },
	{ "row 10: majdev 0", major_0, nothing, -ESTALE, BOTH },
	{ "row 10: majdev + 2^31", major_high_bits, nothing, -ESTALE, BOTH },
	{ "row 10: mindev + 1", minor_plus_1, nothing, -ESTALE, BOTH },
	{ "row 10: mindev + 2^20", minor_high_bits, nothing, -ESTALE, BOTH },
	{ "row 10: both 2^32 - 1", device_all_ones, nothing, -ESTALE, BOTH },
	{ "row 10, 9.3: block device, majdev + 1", block_major_1, nothing, -ESTALE, BOTH },
	{ "row 10, 9.3: block device, mindev + 1", block_minor_1, nothing, -ESTALE, BOTH },
	{ "row 10, 9.3: block device, numbers of another", block_numbers_of_file, nothing,
	  -ESTALE, BOTH },
	{ "row 10 before 11", major_plus_1, address_second_page, -ESTALE, BOTH },
	{ "row 10 before 12", minor_plus_1, buffer_dead, -ESTALE, BOTH },
	{ "row 10 before 16", minor_plus_1, devptroff_wraps, -ESTALE, BOTH },
	{ "row 11: cpuvaddr 0", address_0, nothing, -EINVAL, BOTH },
	{ "row 11: cpuvaddr + 1", address_odd, nothing, -EINVAL, BOTH },
	{ "row 11: cpuvaddr + 4096", address_second_page, nothing, -EINVAL, BOTH },
	{ "row 11: ordinary memory", address_meta, nothing, -EINVAL, BOTH },
	{ "row 11 before 12: cpuvaddr + 512", address_dead_odd, nothing, -EINVAL, BOTH },
	{ "row 11 before 12: cpuvaddr + 4096", address_dead_page, nothing, -EINVAL, BOTH },
	{ "row 12: the GPU memory is gone", buffer_dead, nothing, -EBUSY, BOTH },
	{ "row 12 before 13", buffer_dead, not_direct, -EBUSY, BOTH },
	{ "row 12 before 14", buffer_dead, fence_0, -EBUSY, ONLY_ASYNC },
	{ "row 12 before 15", buffer_dead, devptroff_512, -EBUSY, BOTH },
	{ "row 12 before 16", buffer_dead, size_above, -EBUSY, BOTH },
	{ "row 12 before 17", buffer_dead, over_page, -EBUSY, BOTH },
	{ "row 13: not O_DIRECT", not_direct, nothing, -EINVAL, BOTH },
	{ "row 13: block device, not O_DIRECT", block_not_direct, nothing, -EINVAL, BOTH },
	{ "row 14: fence value 0", fence_0, nothing, -EINVAL, ONLY_ASYNC },
	{ "row 14 before the path", fence_0, unreachable, -EINVAL, ONLY_ASYNC },
	{ "row 15: devptroff 1", devptroff_1, nothing, -EINVAL, BOTH },
	{ "row 15: devptroff 512", devptroff_512, nothing, -EINVAL, BOTH },
	{ "row 15: devptroff 4095", devptroff_4095, nothing, -EINVAL, BOTH },
	{ "row 15: gpuvaddr + 512, devptroff 0", buffer_unaligned, nothing, -EINVAL, BOTH },
	{ "row 15: gpuvaddr + 512, devptroff 512", unaligned_by_two, nothing, -EINVAL, BOTH },
	{ "row 15 before the path", devptroff_512, unreachable, -EINVAL, BOTH },
	{ "row 16: size above the GPU's", size_above, nothing, -EINVAL, BOTH },
	{ "row 16: size 2^62", size_2_62, nothing, -EINVAL, BOTH },
	{ "row 16: devptroff at the end", devptroff_end, nothing, -EINVAL, BOTH },
	{ "row 16: devptroff 4 KiB before the end", devptroff_near_end, nothing, -EINVAL, BOTH },
	{ "row 16: devptroff 2^63", devptroff_2_63, nothing, -EINVAL, BOTH },
	{ "row 16: devptroff -64 KiB", devptroff_wraps, nothing, -EINVAL, BOTH },
	{ "row 16: devptroff -4096", devptroff_wraps_page, nothing, -EINVAL, BOTH },
	{ "row 16 before the path", size_above, unreachable, -EINVAL, BOTH },
	{ "row 17: 64 KiB at 4 KiB", over_page, nothing, -EINVAL, BOTH },
	{ "row 17: 8 KiB at 60 KiB", over_page_end, nothing, -EINVAL, BOTH },
	{ "row 17: 36 KiB at 96 KiB", over_page_later, nothing, -EINVAL, BOTH },
	{ "row 17 before the path", over_page, unreachable, -EINVAL, BOTH },
	/* P2PDMA mode refuses what cannot work before the first byte moves. */
	{ "after row 17: a pipe: EOPNOTSUPP", unreachable, nothing, -EOPNOTSUPP, BOTH },
};

static struct request good_request(bool write, bool async)
{
	struct request r = { .write = write, .async = async };

	r.arg = nvfs_io_arg(&live, fd.rdwr, 0, IO_SIZE, 0);
	if (async) {
		r.arg.io.flags = 0;
		r.arg.io.end_fence_value = ++live.fence;
	}
	return r;
}

static ssize_t perform(struct request *r)
{
	return nvfs_request(live.node, r->write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, &r->arg);
}

static bool same_bytes(const void *data, int byte, size_t size)
{
	const char *p = data;

	return p[0] == (char)byte && !memcmp(p, p + 1, size - 1);
}

static bool file_unchanged(void)
{
	static char data[FILE_SIZE] __attribute__((aligned(4096)));
	struct stat st;

	fstat(fd.rdwr, &st);
	return st.st_size == FILE_SIZE && pread(fd.rdwr, data, FILE_SIZE, 0) == FILE_SIZE &&
	       pattern_check(data, FILE_SIZE, SEED, 0) < 0;
}

static bool gpu_unchanged(void)
{
	static char data[GPU_SIZE];

	return !gpu_read(&gpu, gpu_va, data, GPU_SIZE) && same_bytes(data, 0xa5, GPU_SIZE);
}

static bool block_unchanged(void)
{
	static char data[IO_SIZE] __attribute__((aligned(4096)));

	return pread(fd.block, data, IO_SIZE, block_offset) == IO_SIZE &&
	       same_bytes(data, 0x3c, IO_SIZE);
}

/* next_works: the live buffer takes an I/O; GPU memory is 0xa5 again then. */
static bool next_works(void)
{
	int64_t bad = 0;
	ssize_t ret = nvfs_read(&live, fd.rdwr, PAGE, PAGE, 0);
	bool good = ret == (ssize_t)PAGE;

	if (!good)
		tap_diag("the next READ: %zd", ret);
	good = good && !gpu_check_from(&gpu, gpu_va, PAGE, SEED, PAGE / 8, &bad) && bad < 0;
	gpu_set(&gpu, gpu_va, 0xa5, PAGE);
	return good;
}

static const char *error_name(int error)
{
	switch (error) {
	case -EINVAL:	  return "EINVAL";
	case -EBADF:	  return "EBADF";
	case -EBUSY:	  return "EBUSY";
	case -ESTALE:	  return "ESTALE";
	case -EOPNOTSUPP: return "EOPNOTSUPP";
	default:	  return "an error";
	}
}

static void test_row(const struct row *row, bool write)
{
	const char *op = write ? "WRITE" : "READ";
	bool meta_kept = true, good;
	int async;

	memset(dead.meta, 0x77, PAGE);
	memset(unaligned.meta, 0x77, PAGE);
	for (async = row->which == ONLY_ASYNC; async < 2; async++) {
		struct request r = good_request(write, async);

		memset(live.meta, 0x77, PAGE);
		row->spoil(&r);
		row->later(&r);
		alarm(60);	/* a pipe must not be waited for */
		tap_is(perform(&r), row->reason, "9.1 %s, %s %s: %s", row->name, op,
		       async ? "async" : "sync", error_name(row->reason));
		alarm(0);
		/* Past 9.1 an async request has its fence (10.2): the last row. */
		if (row->spoil == unreachable && async)
			tap_ok(nvfs_wait(&live) == row->reason,
			       "10.2: %s async, refused after 9.1: result and fence", op);
		else
			meta_kept = meta_kept && same_bytes(live.meta, 0x77, PAGE);
	}
	meta_kept = meta_kept && same_bytes(dead.meta, 0x77, PAGE) &&
		    same_bytes(unaligned.meta, 0x77, PAGE);
	good = file_unchanged() && gpu_unchanged() && block_unchanged();
	if (!good)
		tap_diag("file %s, GPU memory %s, block device %s",
			 file_unchanged() ? "kept" : "CHANGED", gpu_unchanged() ? "kept" : "CHANGED",
			 block_unchanged() ? "kept" : "CHANGED");
	if (!meta_kept)
		tap_diag("a meta block was written");
	good = next_works() && good;
	tap_ok(good && meta_kept, "9.1 %s, %s: nothing is done, and the next I/O works",
	       row->name, op);
}

/* 9.2, whatever row 8 says of the file. */
static void test_permissions(void)
{
	static const struct {
		const char *name;
		bool write;
		int *file;
		bool allowreads;
		int reason;
	} cases[] = {
		{ "READ, O_WRONLY", false, &fd.wronly, false, -EBADF },
		{ "READ, neither reading nor writing", false, &fd.neither, false, -EBADF },
		{ "READ, neither, allowreads", false, &fd.neither, true, -EBADF },
		{ "READ, O_WRONLY of a file without write", false, &fd.node_wronly, false, -EBADF },
		{ "READ, O_WRONLY of a file without write, allowreads", false, &fd.node_wronly,
		  true, -EINVAL },
		{ "READ, O_RDONLY of a file without read", false, &fd.node_rdonly, false, -EINVAL },
		{ "READ, O_RDWR of a file without read", false, &fd.node_rdwr, false, -EINVAL },
		{ "READ, O_RDWR of a file without read, allowreads", false, &fd.node_rdwr, true,
		  -EINVAL },
		{ "READ, write end of a pipe", false, &fd.pipe_write, false, -EBADF },
		{ "WRITE, O_RDONLY", true, &fd.rdonly, false, -EBADF },
		{ "WRITE, O_RDONLY, allowreads", true, &fd.rdonly, true, -EBADF },
		{ "WRITE, neither reading nor writing", true, &fd.neither, false, -EBADF },
		{ "WRITE, O_RDONLY of a file without write", true, &fd.node_rdonly, false, -EBADF },
		{ "WRITE, O_RDWR of a file without write", true, &fd.node_rdwr, false, -EINVAL },
		{ "WRITE, O_WRONLY of a file without write", true, &fd.node_wronly, false, -EINVAL },
		{ "WRITE, read end of a pipe", true, &fd.pipe_read, false, -EBADF },
		{ "WRITE, O_RDONLY of a block device", true, &fd.block_rdonly, false, -EBADF },
	};
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct request r = good_request(cases[i].write, false);

		use(&r, *cases[i].file);
		if (cases[i].allowreads)
			r.arg.io.flags |= NVFS_IO_ALLOWREADS;
		/* Row 8 would say ESTALE, so that EINVAL is that of row 5. */
		r.arg.io.file.generation = 0xfffffff1;
		tap_is(perform(&r), cases[i].reason, "9.2 %s: %s", cases[i].name,
		       error_name(cases[i].reason));
	}
	tap_ok(file_unchanged() && gpu_unchanged() && next_works(), "9.2: nothing is done");
}

static bool gpu_has_file(uint64_t devptroff, size_t size, uint64_t offset)
{
	int64_t bad = 0;

	return !gpu_check_from(&gpu, gpu_va + devptroff, size, SEED, offset / 8, &bad) && bad < 0;
}

static void clear_gpu(void)
{
	gpu_set(&gpu, gpu_va, 0xa5, GPU_SIZE);
}

static void test_permitted(void)
{
	static const struct {
		const char *name;
		bool write;
		int *file;
		uint8_t flags;
	} cases[] = {
		{ "READ, O_RDONLY", false, &fd.rdonly, 0 },
		{ "READ, O_RDWR", false, &fd.rdwr, 0 },
		{ "READ, O_RDWR, allowreads", false, &fd.rdwr, NVFS_IO_ALLOWREADS },
		{ "READ, O_RDONLY, allowreads", false, &fd.rdonly, NVFS_IO_ALLOWREADS },
		{ "READ, O_WRONLY, allowreads", false, &fd.wronly, NVFS_IO_ALLOWREADS },
		{ "READ, hipri", false, &fd.rdwr, NVFS_IO_HIPRI },
		{ "WRITE, O_WRONLY", true, &fd.wronly, 0 },
		{ "WRITE, O_RDWR", true, &fd.rdwr, 0 },
		{ "WRITE, hipri and allowreads", true, &fd.rdwr,
		  NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS },
	};
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct request r = good_request(cases[i].write, false);
		ssize_t ret;

		/* A WRITE writes what is there already. */
		if (cases[i].write)
			gpu_fill(&gpu, gpu_va, IO_SIZE, SEED);
		use(&r, *cases[i].file);
		r.arg.io.flags |= cases[i].flags;
		ret = perform(&r);
		tap_ok(ret == IO_SIZE && gpu_has_file(0, IO_SIZE, 0) && file_unchanged(),
		       "9.2 %s works", cases[i].name);
		if (ret != IO_SIZE)
			tap_diag("%zd (%s)", ret, ret < 0 ? strerror(-ret) : "bytes");
		clear_gpu();
	}
}

/* What must pass 9.1. */
static void test_accepted(void)
{
	static const struct {
		const char *name;
		int64_t offset;
		uint64_t size, devptroff;
		ssize_t want;
	} reads[] = {
		{ "size 0", 0, 0, 0, 0 },
		{ "size 0 at the end of the GPU memory", 0, 0, GPU_SIZE, 0 },
		{ "size 0 at 4 KiB into a GPU page", 0, 0, PAGE, 0 },
		{ "size 0 at the last offset", 0x7ffffffffffff000, 0, 0, 0 },
		{ "the last 4 KiB of all offsets", 0x7fffffffffffe000, PAGE, 0, 0 },
		{ "offset 2^62", 1L << 62, PAGE, 0, 0 },
		{ "60 KiB at 4 KiB into a GPU page", PAGE, 61440, PAGE, 61440 },
		{ "the last 4 KiB of a GPU page", PAGE, PAGE, 61440, PAGE },
		{ "the last 4 KiB of the GPU memory", PAGE, PAGE, GPU_SIZE - PAGE, PAGE },
		{ "all of the GPU memory", 0, GPU_SIZE, 0, GPU_SIZE },
		{ "64 KiB + 4 KiB at a GPU page", 0, 65536 + PAGE, 65536, 65536 + PAGE },
	};
	struct request r;
	unsigned int i;
	ssize_t ret;

	for (i = 0; i < sizeof(reads) / sizeof(*reads); i++) {
		ret = nvfs_read(&live, fd.rdwr, reads[i].offset, reads[i].size,
				reads[i].devptroff);
		tap_ok(ret == reads[i].want && (!ret || gpu_has_file(reads[i].devptroff, ret,
								      reads[i].offset)),
		       "9.1: READ, %s: %zd bytes", reads[i].name, reads[i].want);
		if (ret != reads[i].want)
			tap_diag("%zd (%s)", ret, ret < 0 ? strerror(-ret) : "bytes");
		clear_gpu();
	}
	ret = nvfs_read(&unaligned, fd.rdwr, 0, PAGE, 3584);
	tap_ok(ret == (ssize_t)PAGE && gpu_has_file(PAGE, PAGE, 0),
	       "9.1 row 15: gpuvaddr + 512, devptroff 3584 works");
	clear_gpu();
	r = good_request(false, false);
	memset(r.arg.io.padding, 0xff, sizeof(r.arg.io.padding));
	memset((char *)&r.arg + 68, 0xff, 4);
	memset((char *)&r.arg + 80, 0xff, 24);
	r.arg.io.ioctl_return = -1;
	tap_is(perform(&r), IO_SIZE, "4.3: padding and what lies behind the argument are ignored");
	clear_gpu();
}

static void test_generation(void)
{
	struct request r = good_request(false, false);
	int generation = 0;

	if (ioctl(fd.rdwr, FS_IOC_GETVERSION, &generation) || !generation) {
		tap_skip("no generation", "9.1 row 8: the right generation");
		return;
	}
	r.arg.io.file.generation = generation;
	tap_is(perform(&r), IO_SIZE, "9.1 row 8: READ with the inode's generation works");
	r = good_request(false, true);
	r.arg.io.file.generation = generation;
	perform(&r);
	tap_is(nvfs_wait(&live), IO_SIZE, "9.1 row 8: async READ with the inode's generation works");
	clear_gpu();
}

static void test_block_device(void)
{
	static char want[IO_SIZE] __attribute__((aligned(4096))), got[IO_SIZE];
	struct request r = good_request(false, false);

	use(&r, fd.block);
	r.arg.io.offset = block_offset;
	gpu_set(&gpu, gpu_va, 0, IO_SIZE);
	tap_is(perform(&r), IO_SIZE, "9.3: READ of a block device");
	memset(want, 0x3c, IO_SIZE);
	tap_ok(!gpu_read(&gpu, gpu_va, got, IO_SIZE) && !memcmp(got, want, IO_SIZE),
	       "9.3: its bytes are in GPU memory");
	gpu_fill(&gpu, gpu_va, IO_SIZE, SEED + 1);
	r = good_request(true, false);
	use(&r, fd.block);
	r.arg.io.offset = block_offset;
	tap_is(perform(&r), IO_SIZE, "9.3: WRITE of a block device");
	tap_ok(pread(fd.block, want, IO_SIZE, block_offset) == IO_SIZE &&
	       pattern_check(want, IO_SIZE, SEED + 1, 0) < 0, "9.3: its bytes are on the device");
	clear_gpu();
}

/* 9.8: an empty file, and one that the page cache knows better than the disk. */
static void test_write_preparation(const char *path)
{
	static char data[IO_SIZE] __attribute__((aligned(4096)));
	int direct, cached;
	struct stat st;
	int64_t bad = 0;

	direct = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	cached = open(path, O_RDWR);
	if (direct < 0 || cached < 0)
		tap_bail("cannot make %s", path);
	tap_is(nvfs_write(&live, direct, 0, 0, 0), 0, "9.8: WRITE of size 0 to an empty file: 0");
	fstat(direct, &st);
	tap_is(st.st_size, 0, "9.8: and it stays empty");
	tap_is(nvfs_write(&live, direct, 0, IO_SIZE, PAGE), -EINVAL,
	       "9.8: WRITE that fails, to an empty file");
	fstat(direct, &st);
	tap_is(st.st_size, 0, "9.8: and it stays empty");
	gpu_fill(&gpu, gpu_va, IO_SIZE, 21);
	tap_is(nvfs_write(&live, direct, 0, IO_SIZE, 0), IO_SIZE, "9.8: WRITE to an empty file");
	fstat(direct, &st);
	tap_is(st.st_size, IO_SIZE, "9.8: and it is as long as what was written");

	memset(data, 0x66, IO_SIZE);
	tap_is(pwrite(cached, data, IO_SIZE, 0), IO_SIZE, "9.8: the page cache is made dirty");
	tap_is(nvfs_write(&live, direct, 0, IO_SIZE, 0), IO_SIZE, "9.8: WRITE under it");
	tap_ok(pread(cached, data, IO_SIZE, 0) == IO_SIZE && pattern_check(data, IO_SIZE, 21, 0) < 0,
	       "9.8: a buffered read gets what WRITE wrote");
	tap_ok(pread(direct, data, IO_SIZE, 0) == IO_SIZE && pattern_check(data, IO_SIZE, 21, 0) < 0,
	       "9.8: and so does a direct one");

	pattern_fill(data, IO_SIZE, 22, 0);
	tap_is(pwrite(cached, data, IO_SIZE, 0), IO_SIZE, "9.9: the page cache is made dirty");
	tap_is(nvfs_read(&live, direct, 0, IO_SIZE, 0), IO_SIZE, "9.9: READ under it");
	tap_ok(!gpu_check(&gpu, gpu_va, IO_SIZE, 22, &bad) && bad < 0,
	       "9.9: READ gets what was written to the cache");
	clear_gpu();
	close(direct);
	close(cached);
	unlink(path);
}

static void open_files(const char *dir, const char *device)
{
	static char data[IO_SIZE] __attribute__((aligned(4096)));
	char path[256];
	int pipes[2];

	snprintf(path, sizeof(path), "%s/checks.tmp", dir);
	fd.rdwr = nvfs_file(path, FILE_SIZE, SEED);
	fd.rdonly = open(path, O_RDONLY | O_DIRECT);
	fd.wronly = open(path, O_WRONLY | O_DIRECT);
	fd.neither = open(path, O_ACCMODE | O_DIRECT);
	fd.path = open(path, O_PATH);
	fd.buffered = open(path, O_RDWR);
	fd.node_rdwr = nvfs_open(1, O_RDWR);
	fd.node_rdonly = nvfs_open(1, O_RDONLY);
	fd.node_wronly = nvfs_open(1, O_WRONLY);
	fd.block = open(device, O_RDWR | O_DIRECT);
	fd.block_rdonly = open(device, O_RDONLY | O_DIRECT);
	fd.block_buffered = open(device, O_RDWR);
	/* pipe2 marks the write end only. */
	if (pipe2(pipes, O_DIRECT) || fcntl(pipes[0], F_SETFL, O_DIRECT))
		tap_bail("no pipe");
	fd.pipe_read = pipes[0];
	fd.pipe_write = pipes[1];
	fd.closed = dup(fd.rdwr);
	close(fd.closed);
	if (fd.rdwr < 0 || fd.rdonly < 0 || fd.wronly < 0 || fd.neither < 0 || fd.path < 0 ||
	    fd.buffered < 0 || fd.block < 0 || fd.block_rdonly < 0 || fd.block_buffered < 0)
		tap_bail("cannot open %s or %s", path, device);
	memset(data, 0x3c, IO_SIZE);
	if (pwrite(fd.block, data, IO_SIZE, block_offset) != IO_SIZE)
		tap_bail("cannot write %s", device);
}

static void open_buffers(void)
{
	struct fake_nvidia_info info;
	uint64_t dead_va;
	int node = nvfs_open(0, O_RDWR);

	if (node < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, GPU_SIZE, 0, &gpu_va) || gpu_alloc(&gpu, GPU_SIZE, 0, &dead_va))
		tap_bail("no GPU");
	/* Only a legacy pin tells the module that the memory is gone. */
	if (nvfs_set_parameter("use_legacy_p2p_allocation", "1") ||
	    nvfs_register(&live, node, gpu_va, GPU_SIZE, GPU_SIZE, info.pdevinfo) ||
	    nvfs_register(&unaligned, node, gpu_va + 512, GPU_SIZE - 65536, GPU_SIZE,
			  info.pdevinfo) ||
	    nvfs_register(&dead, node, dead_va, GPU_SIZE, GPU_SIZE, info.pdevinfo))
		tap_bail("MAP failed");
	clear_gpu();

	memset(dead.meta, 0x77, PAGE);
	if (gpu_free(&gpu, dead_va))
		tap_bail("cannot free GPU memory");
	tap_is(dead.meta->state, NVFS_META_DIED, "8.2: state is DIED when the GPU memory is gone");
	dead.meta->state = 0x77777777;
	tap_ok(same_bytes(dead.meta, 0x77, PAGE), "8.2: and nothing else is written");
}

int main(int argc, char **argv)
{
	char path[256];
	unsigned int i;

	if (argc != 3)
		tap_bail("usage: %s DIRECTORY BLOCK-DEVICE", argv[0]);
	open_files(argv[1], argv[2]);
	open_buffers();
	tap_ok(next_works(), "a plain READ works");

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		test_row(&rows[i], false);
		test_row(&rows[i], true);
	}
	test_permissions();
	test_permitted();
	test_accepted();
	test_generation();
	snprintf(path, sizeof(path), "%s/checks2.tmp", argv[1]);
	test_write_preparation(path);
	test_block_device();	/* last: it writes what the rows compare */
	snprintf(path, sizeof(path), "%s/checks.tmp", argv[1]);
	unlink(path);
	return tap_plan();
}
