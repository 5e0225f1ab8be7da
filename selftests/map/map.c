// SPDX-License-Identifier: GPL-2.0
/*
 * MAP (section 7), and how a buffer is found from an address (6.6, 6.7). Every row of 7.2 is made
 * to fail, with legacy and with persistent pins; then the GPU driver must hold nothing, and the
 * same shadow buffer must take a good MAP and an I/O.
 *
 * usage: map DIRECTORY
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define RW		(PROT_READ | PROT_WRITE)
#define PAGE		4096UL
#define GPU_PAGE	65536UL
#define WINDOW		(256 * KIB)
#define GPU_SIZE	(2 * MIB)
#define IO_SIZE		(64 * KIB)
#define SEED		7

static struct gpu gpu;
static struct fake_nvidia_info info;
static uint64_t gpu_va;
static int node, file;
static const char *mode;	/* of the pins */
static char *no_access, *read_only, *ordinary;	/* memory of such a kind, WINDOW bytes */

static char *memory(size_t size, int prot)
{
	char *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		tap_bail("no memory");
	return p;
}

static struct fake_nvidia_counts counts(void)
{
	struct fake_nvidia_counts c = { 0 };

	gpu_counts(&gpu, &c);
	return c;
}

static uint64_t pin_calls(const struct fake_nvidia_counts *c)
{
	return c->calls[FAKE_NVIDIA_GET_PAGES] + c->calls[FAKE_NVIDIA_GET_PAGES_PERSISTENT];
}

static bool same_holdings(const struct fake_nvidia_counts *a, const struct fake_nvidia_counts *b)
{
	return a->tables == b->tables && a->mappings == b->mappings &&
	       a->pinned_pages == b->pinned_pages && a->misuse == b->misuse;
}

/* settled: whether the GPU driver holds what it held before; a release may take a moment. */
static bool settled(const struct fake_nvidia_counts *before)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	struct fake_nvidia_counts now = counts();

	while (!same_holdings(before, &now) && nvfs_seconds() < end) {
		sched_yield();
		now = counts();
	}
	if (same_holdings(before, &now))
		return true;
	tap_diag("tables %llu, was %llu; mappings %llu, was %llu; pages %llu, was %llu; misuse %llu, was %llu",
		 now.tables, before->tables, now.mappings, before->mappings, now.pinned_pages,
		 before->pinned_pages, now.misuse, before->misuse);
	return false;
}

/* fresh: a shadow buffer that waits for a MAP of the whole GPU buffer. */
static struct nvfs_buffer fresh(size_t window)
{
	struct nvfs_buffer buf;

	if (nvfs_shadow(&buf, node, window))
		tap_bail("no shadow buffer");
	buf.gpu_va = gpu_va;
	buf.gpu_size = GPU_SIZE;
	buf.pdevinfo = info.pdevinfo;
	return buf;
}

/* io_works: a READ of `size` bytes, compared in GPU memory. */
static bool io_works_at(const struct nvfs_buffer *buf, uint64_t devptroff, size_t size)
{
	uint64_t va = buf->gpu_va + devptroff;
	int64_t bad = 0;
	ssize_t ret;

	gpu_set(&gpu, va, 0xa5, size);
	ret = nvfs_read(buf, file, 0, size, devptroff);
	if (ret == (ssize_t)size && !gpu_check(&gpu, va, size, SEED, &bad) && bad < 0)
		return true;
	tap_diag("READ of %zu at %llx: %zd, first bad word %lld", size, (long long)devptroff, ret,
		 (long long)bad);
	return false;
}

static bool io_works(const struct nvfs_buffer *buf)
{
	return io_works_at(buf, 0, IO_SIZE);
}

static ssize_t map_with(const struct nvfs_buffer *buf, void (*spoil)(union nvfs_ioctl_arg *arg))
{
	union nvfs_ioctl_arg arg = nvfs_map_arg(buf);
	ssize_t ret;

	spoil(&arg);
	ret = nvfs_request(node, NVFS_IOCTL_MAP, &arg);
	gpu_reset(&gpu);
	return ret;
}

/* One thing wrong each; combined below where the order is tested. */
#define SPOIL(name, statement)						\
	static void name(union nvfs_ioctl_arg *arg) { (void)arg; statement; }

static void fail_pin(int error)
{
	gpu_fault(&gpu, FAKE_NVIDIA_GET_PAGES, error, 0, 1, 0);
	gpu_fault(&gpu, FAKE_NVIDIA_GET_PAGES_PERSISTENT, error, 0, 1, 0);
}

SPOIL(address_zero, arg->map.cpuvaddr = 0)
SPOIL(address_odd, arg->map.cpuvaddr += 1)
SPOIL(address_512, arg->map.cpuvaddr += 512)
SPOIL(address_kernel, arg->map.cpuvaddr = 0xffff888000000000)
SPOIL(address_top, arg->map.cpuvaddr = ~0xfffUL)
SPOIL(address_non_canonical, arg->map.cpuvaddr = 1UL << 63)
SPOIL(address_no_access, arg->map.cpuvaddr = (uintptr_t)no_access)
SPOIL(address_read_only, arg->map.cpuvaddr = (uintptr_t)read_only)
SPOIL(address_ordinary, arg->map.cpuvaddr = (uintptr_t)ordinary)
SPOIL(address_middle, arg->map.cpuvaddr += PAGE; arg->map.sbuf_block = 1)
SPOIL(address_last_page, arg->map.cpuvaddr += WINDOW - PAGE; arg->map.sbuf_block = 1)
SPOIL(blocks_zero, arg->map.sbuf_block = 0)
SPOIL(blocks_4097, arg->map.sbuf_block = 4097)
SPOIL(blocks_one_more, arg->map.sbuf_block += 1)
SPOIL(blocks_double, arg->map.sbuf_block *= 2)
SPOIL(blocks_wrap_32, arg->map.sbuf_block = 1 << 20)
SPOIL(blocks_top_bit, arg->map.sbuf_block = 1U << 31)
SPOIL(blocks_all_ones, arg->map.sbuf_block = ~0U)
SPOIL(fence_zero, arg->map.end_fence_addr = 0)
SPOIL(fence_8, arg->map.end_fence_addr += 8)
SPOIL(fence_2048, arg->map.end_fence_addr += 2048)
SPOIL(fence_odd_no_access, arg->map.end_fence_addr = (uintptr_t)no_access + 1)
SPOIL(fence_no_access, arg->map.end_fence_addr = (uintptr_t)no_access)
SPOIL(fence_read_only, arg->map.end_fence_addr = (uintptr_t)read_only)
SPOIL(fence_kernel, arg->map.end_fence_addr = 0xffff888000000000)
SPOIL(fence_non_canonical, arg->map.end_fence_addr = 1UL << 63)
SPOIL(fence_last_page, arg->map.end_fence_addr = -4096UL)
SPOIL(size_zero, arg->map.size = 0)
SPOIL(size_minus_1, arg->map.size = -1)
SPOIL(size_minus_page, arg->map.size = -(int64_t)GPU_PAGE)
SPOIL(size_min, arg->map.size = INT64_MIN)
SPOIL(size_max, arg->map.size = INT64_MAX)
SPOIL(size_too_long, arg->map.size = GPU_SIZE + 1)
SPOIL(range_wraps, arg->map.gpuvaddr = ~0xffffUL; arg->map.size = 2 * GPU_PAGE)
SPOIL(range_last_byte, arg->map.gpuvaddr = ~0UL; arg->map.size = 1)
SPOIL(range_past_last_byte, arg->map.gpuvaddr = ~0UL; arg->map.size = 2)
SPOIL(range_unknown, arg->map.gpuvaddr = 0x10000)
SPOIL(range_null, arg->map.gpuvaddr = 0)
SPOIL(small_size, arg->map.size = 8192; arg->map.sbuf_block = 1)
SPOIL(small_offset, arg->map.gpuvaddr += 4096; arg->map.size = 4096; arg->map.sbuf_block = 1)
SPOIL(small_over_page, arg->map.gpuvaddr += 61440; arg->map.size = 8192; arg->map.sbuf_block = 16)
SPOIL(small_65535, arg->map.size = 65535; arg->map.sbuf_block = 15)
SPOIL(small_odd, arg->map.gpuvaddr += 1; arg->map.size = 4096; arg->map.sbuf_block = 1)
SPOIL(pin_einval, fail_pin(-EINVAL))
SPOIL(pin_enomem, fail_pin(-ENOMEM))
SPOIL(pin_eio, fail_pin(-EIO))
SPOIL(version_0, gpu_table(&gpu, 0, 1))
SPOIL(version_3, gpu_table(&gpu, 0x00030000, 1))
SPOIL(version_4_2, gpu_table(&gpu, 0x00040002, 1))
SPOIL(version_ff, gpu_table(&gpu, 0xffff0002, 1))
SPOIL(page_size_4k, gpu_table(&gpu, 0x00020000, 0))
SPOIL(page_size_128k, gpu_table(&gpu, 0x00020000, 2))
SPOIL(page_size_v1, gpu_table(&gpu, 0x00010002, 2))
SPOIL(page_size_odd, gpu_table(&gpu, 0x00020000, 0x10001))
SPOIL(nothing, )

struct row {
	const char *name;
	void (*spoil)(union nvfs_ioctl_arg *arg);
	void (*also)(union nvfs_ioctl_arg *arg);	/* a later row */
	int reason;
};

static const struct row rows[] = {
	{ "row 1: cpuvaddr 0", address_zero, nothing, -EINVAL },
	{ "row 1: cpuvaddr + 1", address_odd, nothing, -EINVAL },
	{ "row 1: cpuvaddr + 512", address_512, nothing, -EINVAL },
	{ "row 1 before 9", address_zero, fence_no_access, -EINVAL },
	{ "row 1 before 13", address_odd, pin_eio, -EINVAL },
	{ "row 2: no access", address_no_access, nothing, -EINVAL },
	{ "row 2: read-only memory", address_read_only, nothing, -EINVAL },
	{ "row 2: kernel address", address_kernel, nothing, -EINVAL },
	{ "row 2: top of the address space", address_top, nothing, -EINVAL },
	{ "row 2: non-canonical address", address_non_canonical, nothing, -EINVAL },
	{ "row 2 before 9", address_no_access, fence_no_access, -EINVAL },
	{ "row 2 before 13", address_read_only, pin_eio, -EINVAL },
	{ "row 3: 4097 blocks", blocks_4097, nothing, -EINVAL },
	{ "row 3: 2^20 blocks", blocks_wrap_32, nothing, -EINVAL },
	{ "row 3: 2^31 blocks", blocks_top_bit, nothing, -EINVAL },
	{ "row 3: 2^32 - 1 blocks", blocks_all_ones, nothing, -EINVAL },
	{ "row 3 before 9", blocks_all_ones, fence_no_access, -EINVAL },
	{ "row 4: ordinary memory", address_ordinary, nothing, -EINVAL },
	{ "row 4: second page of the buffer", address_middle, nothing, -EINVAL },
	{ "row 4: last page of the buffer", address_last_page, nothing, -EINVAL },
	{ "row 4: 0 blocks", blocks_zero, nothing, -EINVAL },
	{ "row 4 before 9", address_ordinary, fence_no_access, -EINVAL },
	{ "row 4 before 13", address_middle, pin_eio, -EINVAL },
	{ "row 5: a block more than there is", blocks_one_more, nothing, -EINVAL },
	{ "row 5: twice the blocks", blocks_double, nothing, -EINVAL },
	{ "row 5 before 9", blocks_one_more, fence_no_access, -EINVAL },
	{ "row 7: end_fence_addr 0", fence_zero, nothing, -EINVAL },
	{ "row 7 before 13", fence_zero, pin_eio, -EINVAL },
	{ "row 8: end_fence_addr + 8", fence_8, nothing, -EINVAL },
	{ "row 8: end_fence_addr + 2048", fence_2048, nothing, -EINVAL },
	{ "row 8 before 9", fence_odd_no_access, nothing, -EINVAL },
	{ "row 8 before 13", fence_8, pin_eio, -EINVAL },
	{ "row 9: no access", fence_no_access, nothing, -EFAULT },
	{ "row 9: read-only memory", fence_read_only, nothing, -EFAULT },
	{ "row 9: kernel address", fence_kernel, nothing, -EFAULT },
	{ "row 9: non-canonical address", fence_non_canonical, nothing, -EFAULT },
	{ "row 9: the last page of all addresses", fence_last_page, nothing, -EFAULT },
	{ "row 9 before 11", fence_no_access, size_zero, -EFAULT },
	{ "row 9 before 12", fence_no_access, small_size, -EFAULT },
	{ "row 9 before 13", fence_read_only, pin_eio, -EFAULT },
	{ "row 11: size 0", size_zero, nothing, -EINVAL },
	{ "row 11: size -1", size_minus_1, nothing, -EINVAL },
	{ "row 11: size -65536", size_minus_page, nothing, -EINVAL },
	{ "row 11: the range wraps", range_wraps, nothing, -EINVAL },
	{ "row 11: the range passes the last byte", range_past_last_byte, nothing, -EINVAL },
	{ "row 11 before 13", size_zero, pin_eio, -EINVAL },
	{ "row 12: 8 KiB with 1 block", small_size, nothing, -EINVAL },
	{ "row 12: 4 KiB at 4 KiB with 1 block", small_offset, nothing, -EINVAL },
	{ "row 12: 4 KiB at byte 1 with 1 block", small_odd, nothing, -EINVAL },
	{ "row 12: 8 KiB at 60 KiB with 16 blocks", small_over_page, nothing, -EINVAL },
	{ "row 12: 65535 bytes with 15 blocks", small_65535, nothing, -EINVAL },
	{ "row 12 before 13", small_size, pin_eio, -EINVAL },
	/* From here on the GPU driver is asked. */
	{ "row 13: EINVAL of the GPU driver", pin_einval, nothing, -EINVAL },
	{ "row 13: ENOMEM of the GPU driver", pin_enomem, nothing, -ENOMEM },
	{ "row 13: EIO of the GPU driver", pin_eio, nothing, -EIO },
	{ "row 13 before 14", pin_eio, version_3, -EIO },
	{ "row 13: size past the end of the GPU memory", size_too_long, nothing, -EINVAL },
	{ "row 13: unknown GPU memory", range_unknown, nothing, -EINVAL },
	{ "row 13: gpuvaddr 0", range_null, nothing, -EINVAL },
	{ "row 14: table version 0x00030000", version_3, nothing, -EINVAL },
	{ "row 14: table version 0", version_0, nothing, -EINVAL },
	{ "row 14: table version 0x00040002", version_4_2, nothing, -EINVAL },
	{ "row 14: table version 0xffff0002", version_ff, nothing, -EINVAL },
	{ "row 15: page size 4 KiB", page_size_4k, nothing, -EINVAL },
	{ "row 15: page size 128 KiB", page_size_128k, nothing, -EINVAL },
	{ "row 15: page size 128 KiB, table version 1", page_size_v1, nothing, -EINVAL },
	{ "row 15: page size 0x10001", page_size_odd, nothing, -EINVAL },
	/* Sizes that may be refused early or by the GPU driver. */
	{ "row 13: size -2^63", size_min, nothing, -EINVAL },
	{ "row 13: size 2^63 - 1", size_max, nothing, -EINVAL },
	{ "row 13: the last byte of the address space", range_last_byte, nothing, -EINVAL },
};

static bool asks_driver(const struct row *row)
{
	return !strncmp(row->name, "row 13", 6) || row->spoil == version_3 ||
	       !strncmp(row->name, "row 14", 6) || !strncmp(row->name, "row 15", 6);
}

/* An area with a hole of WINDOW bytes for a shadow buffer, untouchable memory around it. */
static struct nvfs_buffer fresh_guarded(void)
{
	char *area = memory(3 * WINDOW, PROT_NONE);
	struct nvfs_buffer buf = fresh(WINDOW);

	munmap(buf.shadow, WINDOW);
	buf.shadow = mmap(area + WINDOW, WINDOW, RW, MAP_SHARED | MAP_FIXED, node, 0);
	if (buf.shadow == MAP_FAILED)
		tap_bail("no shadow buffer");
	return buf;
}

static void test_row(const struct row *row)
{
	struct fake_nvidia_counts before = counts(), after;
	struct nvfs_buffer buf = fresh_guarded();
	union nvfs_ioctl_arg arg = nvfs_map_arg(&buf);
	ssize_t ret;
	bool good;

	row->spoil(&arg);
	row->also(&arg);
	ret = nvfs_request(node, NVFS_IOCTL_MAP, &arg);
	gpu_reset(&gpu);
	tap_is(ret, row->reason, "7.2 %s, %s: %s", row->name, mode,
	       row->reason == -EINVAL ? "EINVAL" : row->reason == -EFAULT ? "EFAULT" :
	       row->reason == -ENOMEM ? "ENOMEM" : "EIO");
	good = settled(&before);
	after = counts();
	if (!asks_driver(row) && pin_calls(&after) != pin_calls(&before)) {
		tap_diag("the GPU driver was asked");
		good = false;
	}
	ret = nvfs_map(&buf);
	if (ret)
		tap_diag("MAP again: %zd (%s)", ret, strerror(-ret));
	good = good && !ret && io_works(&buf);
	nvfs_unregister(&buf);
	good = settled(&before) && good;
	tap_ok(good, "7.2 %s, %s: nothing leaks, and the next MAP works", row->name, mode);
}

static void test_without_retry(void)
{
	struct fake_nvidia_counts before = counts();
	struct nvfs_buffer buf = fresh(WINDOW);

	map_with(&buf, pin_eio);
	nvfs_unregister(&buf);
	tap_ok(settled(&before), "7.2, %s: munmap after a MAP that failed at row 13", mode);
	buf = fresh(WINDOW);
	map_with(&buf, version_3);
	nvfs_unregister(&buf);
	tap_ok(settled(&before), "7.2, %s: munmap after a MAP that failed at row 14", mode);
}

/* Rows 3 to 5 and 6.7 with something behind the shadow buffer. */
static void test_neighbours(void)
{
	char *area = memory(33 * MIB, PROT_NONE);
	struct nvfs_buffer buf = fresh(WINDOW);
	union nvfs_ioctl_arg arg;
	char *own = buf.shadow;
	const struct {
		const char *name;
		size_t first, second;
		uint32_t blocks;
	} cases[] = {
		{ "6.7: a block of the next shadow buffer", WINDOW, WINDOW, WINDOW / PAGE + 1 },
		{ "6.7: all of the next shadow buffer", WINDOW, WINDOW, 2 * WINDOW / PAGE },
		{ "row 3: 4097 blocks in two shadow buffers", 16 * MIB, 64 * KIB, 4097 },
		{ "row 3: 8192 blocks in two shadow buffers", 16 * MIB, 16 * MIB, 8192 },
	};
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *next = area + cases[i].first;

		buf.shadow = mmap(area, cases[i].first, RW, MAP_SHARED | MAP_FIXED, node, 0);
		mmap(next, cases[i].second, RW, MAP_SHARED | MAP_FIXED, node, 0);
		arg = nvfs_map_arg(&buf);
		arg.map.sbuf_block = cases[i].blocks;
		tap_is(nvfs_request(node, NVFS_IOCTL_MAP, &arg), -EINVAL, "7.2 %s, %s: EINVAL",
		       cases[i].name, mode);
		tap_ok(!nvfs_map(&buf) && io_works(&buf),
		       "7.2 %s, %s: the next MAP works", cases[i].name, mode);
		mmap(area, 33 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	buf.shadow = mmap(area, WINDOW, RW, MAP_SHARED | MAP_FIXED, node, 0);
	mmap(area + WINDOW, WINDOW, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	arg = nvfs_map_arg(&buf);
	arg.map.sbuf_block += 1;
	tap_is(nvfs_request(node, NVFS_IOCTL_MAP, &arg), -EINVAL,
	       "7.2 row 5: a block of ordinary memory behind, %s: EINVAL", mode);
	/* The page before is shadow memory, but of another buffer. */
	mmap(area + WINDOW, WINDOW, RW, MAP_SHARED | MAP_FIXED, node, 0);
	arg = nvfs_map_arg(&buf);
	arg.map.cpuvaddr += WINDOW - PAGE;
	arg.map.sbuf_block = 2;
	tap_is(nvfs_request(node, NVFS_IOCTL_MAP, &arg), -EINVAL,
	       "7.2 row 4: last page of one and first of the next, %s: EINVAL", mode);
	munmap(area, 33 * MIB);
	buf.shadow = own;
	nvfs_unregister(&buf);
}

static void test_second_map(void)
{
	struct fake_nvidia_counts before = counts(), first, after;
	struct nvfs_buffer buf = fresh(WINDOW);

	if (nvfs_map(&buf))
		tap_bail("MAP failed");
	first = counts();
	tap_is(nvfs_map(&buf), -EINVAL, "7.2 row 10, %s: a second MAP: EINVAL", mode);
	tap_ok(io_works(&buf), "7.2 row 10, %s: the first mapping does I/O", mode);
	tap_is(map_with(&buf, pin_eio), -EINVAL, "7.2 row 10 before 13, %s: EINVAL", mode);
	tap_is(map_with(&buf, size_zero), -EINVAL, "7.2 row 10 and 11, %s: EINVAL", mode);
	tap_is(map_with(&buf, fence_no_access), -EFAULT, "7.2 row 9 before 10, %s: EFAULT", mode);
	tap_is(map_with(&buf, address_middle), -EINVAL, "7.2 row 4 and 10, %s: EINVAL", mode);
	after = counts();
	tap_is(pin_calls(&after), pin_calls(&first), "7.2 row 10, %s: the GPU driver is not asked",
	       mode);
	tap_ok(same_holdings(&first, &after) && io_works(&buf),
	       "7.2 row 10, %s: the first mapping is unharmed", mode);
	nvfs_unregister(&buf);
	tap_ok(settled(&before), "7.2 row 10, %s: munmap releases it", mode);
}

struct map_try {
	pthread_t thread;
	pthread_barrier_t *start;
	struct nvfs_buffer *buf;
	ssize_t ret;
};

static void *try_map(void *data)
{
	struct map_try *try = data;

	pthread_barrier_wait(try->start);
	try->ret = nvfs_map(try->buf);
	return NULL;
}

static void test_racing_maps(void)
{
	enum { ROUNDS = 50, THREADS = 2 };
	struct fake_nvidia_counts before = counts();
	unsigned int round, i, good = 0, works = 0;
	struct map_try tries[THREADS];
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, THREADS);
	for (round = 0; round < ROUNDS; round++) {
		struct nvfs_buffer buf = fresh(WINDOW);

		for (i = 0; i < THREADS; i++) {
			tries[i] = (struct map_try){ .start = &start, .buf = &buf };
			pthread_create(&tries[i].thread, NULL, try_map, &tries[i]);
		}
		for (i = 0; i < THREADS; i++)
			pthread_join(tries[i].thread, NULL);
		good += tries[0].ret + tries[1].ret == -EINVAL;
		works += nvfs_read(&buf, file, 0, PAGE, 0) == PAGE;
		nvfs_unregister(&buf);
	}
	tap_is(good, ROUNDS, "7.1, %s: of two MAPs at once one works, one gets EINVAL", mode);
	tap_is(works, ROUNDS, "7.1, %s: and the buffer does I/O", mode);
	tap_ok(settled(&before), "7.1, %s: and nothing leaks", mode);
}

/* 6, 18.3: what must not matter. */
static void test_accepted(void)
{
	static const uint64_t pdevinfos[] = { 0, ~0UL, 0x8300, 1UL << 63, 0x123456789abcdef0 };
	static const uint32_t versions[] = { 0x00010002, 0x00020000 };
	static const uint16_t bounces[] = { 0, 1, 2, 0xffff };
	static const uint32_t blocks[] = { 1, 16, 63, WINDOW / PAGE };
	struct fake_nvidia_counts before = counts();
	union nvfs_ioctl_arg arg;
	struct nvfs_buffer buf;
	unsigned int i;

	for (i = 0; i < sizeof(pdevinfos) / sizeof(*pdevinfos); i++) {
		buf = fresh(WINDOW);
		buf.pdevinfo = pdevinfos[i];
		tap_ok(!nvfs_map(&buf) && io_works(&buf), "7.2 row 6, %s: pdevinfo 0x%llx works",
		       mode, (unsigned long long)pdevinfos[i]);
		nvfs_unregister(&buf);
	}
	for (i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		buf = fresh(WINDOW);
		gpu_table(&gpu, versions[i], 1);
		tap_ok(!nvfs_map(&buf) && io_works(&buf),
		       "7.2 row 14, %s: table version 0x%08x works", mode, versions[i]);
		gpu_reset(&gpu);
		nvfs_unregister(&buf);
	}
	for (i = 0; i < sizeof(bounces) / sizeof(*bounces); i++) {
		buf = fresh(WINDOW);
		buf.is_bounce_buffer = bounces[i];
		tap_ok(!nvfs_map(&buf) && io_works(&buf), "4.1, %s: is_bounce_buffer %u works",
		       mode, bounces[i]);
		nvfs_unregister(&buf);
	}
	for (i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
		buf = fresh(WINDOW);
		arg = nvfs_map_arg(&buf);
		arg.map.sbuf_block = blocks[i];
		memset(arg.map.padding, 0xff, sizeof(arg.map.padding));
		tap_ok(!nvfs_request(node, NVFS_IOCTL_MAP, &arg) && io_works_at(&buf, 0, PAGE),
		       "7.2 row 5, %s: %u of %lu blocks work", mode, blocks[i], WINDOW / PAGE);
		nvfs_unregister(&buf);
	}
	tap_ok(settled(&before), "7.2, %s: all of it is released", mode);
}

/* 7.3, 7.4, 25.2: any alignment, any size; the pin covers the GPU pages around. */
static void test_ranges(void)
{
	static const struct {
		const char *name;
		uint64_t at;
		int64_t size;
		size_t window;
	} ranges[] = {
		{ "64 KiB", 0, 65536, 64 * KIB },
		{ "1 byte", 0, 1, 4 * KIB },
		{ "1 byte at the end of a page", 65535, 1, 64 * KIB },
		{ "4 KiB at 512", 512, 4096, 8 * KIB },
		{ "64 KiB at 512", 512, 65536, 128 * KIB },
		{ "64 KiB at 4 KiB", 4096, 65536, 128 * KIB },
		{ "64 KiB at 64 KiB + 1", 65537, 65536, 128 * KIB },
		{ "8 KiB over a page's end, 17 blocks' worth", 61440, 8192, 128 * KIB },
		{ "1,000,000 bytes", 0, 1000000, MIB },
		{ "1,000,000 bytes at 512", 512, 1000000, MIB },
		{ "1,001,100 bytes at 4 KiB", 4096, 1001100, MIB },
		{ "2 MiB with a shadow buffer of 4 KiB", 0, GPU_SIZE, 4 * KIB },
		{ "64 KiB with a shadow buffer of 16 MiB", 0, 65536, 16 * MIB },
		/* Row 11 lets size 0 pass when the address is not that of a page. */
		{ "0 bytes at 512", 512, 0, 64 * KIB },
	};
	unsigned int i;

	for (i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		uint64_t o = ranges[i].at % GPU_PAGE;
		uint64_t pages = (o + ranges[i].size + GPU_PAGE - 1) / GPU_PAGE;
		struct fake_nvidia_counts before = counts(), after;
		struct nvfs_buffer buf = fresh(ranges[i].window);
		bool good = true;

		buf.gpu_va += ranges[i].at;
		buf.gpu_size = ranges[i].size;
		tap_is(nvfs_map(&buf), 0, "7.4, %s: %s", mode, ranges[i].name);
		after = counts();
		tap_is(after.pinned_pages - before.pinned_pages, pages,
		       "7.4, %s: %s: %llu GPU pages are pinned", mode, ranges[i].name,
		       (unsigned long long)pages);
		if (o % PAGE == 0 && ranges[i].size >= (int64_t)PAGE)
			good = io_works_at(&buf, 0, PAGE);
		nvfs_unregister(&buf);
		tap_ok(good && settled(&before), "7.4, %s: %s: I/O where aligned, and release",
		       mode, ranges[i].name);
	}
}

static void test_four_times(void)
{
	struct fake_nvidia_counts before = counts(), after;
	struct nvfs_buffer bufs[4];
	unsigned int i, good = 0;

	for (i = 0; i < 4; i++) {
		bufs[i] = fresh(WINDOW);
		good += !nvfs_map(&bufs[i]);
	}
	tap_is(good, 4, "25.2, %s: the same GPU range is mapped four times at once", mode);
	after = counts();
	tap_is(after.pinned_pages - before.pinned_pages, 4 * GPU_SIZE / GPU_PAGE,
	       "25.2, %s: each with a pin of its own", mode);
	for (i = 0, good = 0; i < 4; i++)
		good += io_works_at(&bufs[i], i * 128 * KIB, IO_SIZE);
	tap_is(good, 4, "25.2, %s: each does I/O", mode);
	for (i = 0; i < 3; i++)
		nvfs_unregister(&bufs[i]);
	tap_ok(io_works(&bufs[3]), "25.2, %s: the last does I/O when the others are gone", mode);
	nvfs_unregister(&bufs[3]);
	tap_ok(settled(&before), "25.2, %s: nothing is left", mode);
}

/* 7.5: the call is chosen at MAP and remembered. */
static void test_pin_calls(bool legacy)
{
	const enum fake_nvidia_call get[] = { FAKE_NVIDIA_GET_PAGES_PERSISTENT,
					      FAKE_NVIDIA_GET_PAGES };
	const enum fake_nvidia_call put[] = { FAKE_NVIDIA_PUT_PAGES_PERSISTENT,
					      FAKE_NVIDIA_PUT_PAGES };
	struct fake_nvidia_counts before = counts(), after;
	struct nvfs_buffer buf = fresh(WINDOW);

	if (nvfs_map(&buf))
		tap_bail("MAP failed");
	after = counts();
	tap_ok(after.ok[get[legacy]] == before.ok[get[legacy]] + 1 &&
	       after.calls[get[!legacy]] == before.calls[get[!legacy]],
	       "7.5, %s: MAP makes one %s call", mode,
	       legacy ? "get_pages" : "get_pages_persistent");
	nvfs_set_parameter("use_legacy_p2p_allocation", legacy ? "0" : "1");
	tap_ok(io_works(&buf), "7.5, %s: I/O after the parameter changed", mode);
	nvfs_unregister(&buf);
	settled(&before);
	after = counts();
	tap_ok(after.ok[put[legacy]] == before.ok[put[legacy]] + 1 &&
	       after.calls[put[!legacy]] == before.calls[put[!legacy]],
	       "7.5, %s: munmap makes the put call of the same kind", mode);
	tap_is(after.misuse, before.misuse, "7.5, %s: and no wrong call", mode);
	nvfs_set_parameter("use_legacy_p2p_allocation", legacy ? "1" : "0");
}

/* in_child: what a forked child finds; exit codes are small numbers. */
static int in_child(int (*step)(struct nvfs_buffer *), struct nvfs_buffer *buf)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		alarm(30);
		_exit(step(buf));
	}
	waitpid(pid, &status, 0);
	return status;
}

static int child_io(struct nvfs_buffer *buf)
{
	return nvfs_read(buf, file, 0, IO_SIZE, 0) != -EINVAL;
}

static int child_io_on_own_shadow(struct nvfs_buffer *buf)
{
	if (mmap(buf->shadow, WINDOW, RW, MAP_SHARED | MAP_FIXED, node, 0) != buf->shadow)
		return 2;
	return nvfs_read(buf, file, 0, IO_SIZE, 0) != -EINVAL;
}

static int child_map(struct nvfs_buffer *buf)
{
	return nvfs_map(buf) != -EINVAL;
}

static int child_pins_gpu_memory_of_parent(struct nvfs_buffer *unused)
{
	struct nvfs_buffer buf = fresh(WINDOW);

	(void)unused;
	return nvfs_map(&buf) != -EINVAL;
}

static void test_processes(void)
{
	struct fake_nvidia_counts before = counts();
	struct nvfs_buffer buf = fresh(WINDOW);

	tap_is(in_child(child_map, &buf), 0,
	       "6.6, %s: MAP with the shadow buffer of another process: EINVAL", mode);
	if (nvfs_map(&buf))
		tap_bail("MAP failed");
	tap_is(in_child(child_io, &buf), 0,
	       "6.3, 6.6, %s: I/O of a forked child with that address: EINVAL", mode);
	tap_is(in_child(child_io_on_own_shadow, &buf), 0,
	       "6.6, %s: the same with a shadow buffer of its own there, before MAP: EINVAL", mode);
	tap_is(in_child(child_pins_gpu_memory_of_parent, NULL), 0,
	       "7.8, %s: GPU memory of another process: the GPU driver's EINVAL", mode);
	tap_ok(io_works(&buf), "6.6, %s: the parent's buffer is unharmed", mode);
	nvfs_unregister(&buf);
	tap_ok(settled(&before), "6.6, %s: and released", mode);
}

static ssize_t io_at(unsigned long request, const void *cpuvaddr)
{
	struct nvfs_buffer fake = { .shadow = (char *)cpuvaddr };
	union nvfs_ioctl_arg arg = nvfs_io_arg(&fake, file, 0, IO_SIZE, 0);

	return nvfs_request(node, request, &arg);
}

/* 6.6 */
static void test_lookup(void)
{
	static const struct {
		const char *name;
		unsigned long request;
	} ops[] = { { "READ", NVFS_IOCTL_READ }, { "WRITE", NVFS_IOCTL_WRITE } };
	struct nvfs_buffer buf, other;
	unsigned int i, j;
	char *p;

	for (i = 0; i < 2; i++) {
		const char *name = ops[i].name;
		unsigned long op = ops[i].request;

		buf = fresh(WINDOW);
		other = fresh(WINDOW);
		tap_is(io_at(op, buf.shadow), -EINVAL, "6.6, %s: %s before MAP: EINVAL", mode,
		       name);
		if (nvfs_map(&buf))
			tap_bail("MAP failed");
		const struct {
			const char *name;
			const void *at;
		} wrong[] = {
			{ "0", NULL },
			{ "not aligned, + 1", buf.shadow + 1 },
			{ "not aligned, + 512", buf.shadow + 512 },
			{ "second page", buf.shadow + PAGE },
			{ "last page", buf.shadow + WINDOW - PAGE },
			{ "ordinary memory", ordinary },
			{ "no access", no_access },
			{ "read-only memory", read_only },
			{ "kernel address", (void *)0xffff888000000000 },
			{ "non-canonical address", (void *)(1UL << 63) },
			{ "a buffer that was never mapped", other.shadow },
			{ "the meta block", buf.meta },
		};
		for (j = 0; j < sizeof(wrong) / sizeof(*wrong); j++)
			tap_is(io_at(op, wrong[j].at), -EINVAL, "6.6, %s: %s, cpuvaddr %s: EINVAL",
			       mode, name, wrong[j].name);
		tap_ok(io_works(&buf), "6.6, %s: the buffer itself works", mode);
		if (!mprotect(buf.shadow, WINDOW, PROT_READ)) {
			tap_is(io_at(op, buf.shadow), -EINVAL,
			       "6.6, %s: %s, mapping made read-only: EINVAL", mode, name);
			mprotect(buf.shadow, WINDOW, RW);
			tap_ok(io_works(&buf), "6.6, %s: and works when writable again", mode);
		} else {
			tap_skip("mprotect is refused", "6.6, %s: %s, read-only", mode, name);
		}
		p = buf.shadow;
		munmap(p, WINDOW);
		tap_is(io_at(op, p), -EINVAL, "6.6, 11.3, %s: %s after munmap: EINVAL", mode, name);
		buf.shadow = mmap(p, WINDOW, RW, MAP_SHARED | MAP_FIXED, node, 0);
		tap_is(io_at(op, p), -EINVAL,
		       "6.6, %s: %s with a new buffer at the old address: EINVAL", mode, name);
		nvfs_unregister(&buf);
		nvfs_unregister(&other);
	}
}

/* 2.2: nodes are equal. 6.5: what the process tried before MAP must not show. */
static void test_nodes_and_history(void)
{
	struct nvfs_buffer buf = fresh(WINDOW);
	int third = nvfs_open(3, O_RDWR), ninth = nvfs_open(9, O_RDWR);
	/* A refused mremap clears its target all the same. */
	char *there = memory(WINDOW, PROT_NONE);

	munmap(buf.shadow, PAGE);
	mremap(buf.shadow, WINDOW, 2 * WINDOW, MREMAP_MAYMOVE);
	mremap(buf.shadow, WINDOW, WINDOW, MREMAP_MAYMOVE | MREMAP_FIXED, there);
	buf.node = third;
	tap_is(nvfs_map(&buf), 0,
	       "2.2, 6.5, %s: MAP through another node, after refused munmap and mremap", mode);
	buf.node = ninth;
	tap_ok(io_works(&buf), "2.2, %s: I/O through a third node", mode);
	munmap(buf.shadow, PAGE);
	mremap(buf.shadow, WINDOW, WINDOW, MREMAP_MAYMOVE | MREMAP_FIXED, there);
	close(third);
	tap_ok(io_works(&buf), "6.5, %s: I/O after refused munmap and mremap, the node closed", mode);
	nvfs_unregister(&buf);
	close(ninth);
}

static void test_meta_untouched(void)
{
	struct nvfs_buffer buf = fresh(WINDOW);
	char *meta = (char *)buf.meta;

	memset(meta, 0x77, PAGE);
	map_with(&buf, pin_eio);
	nvfs_map(&buf);
	nvfs_map(&buf);
	tap_ok(meta[0] == 0x77 && !memcmp(meta, meta + 1, PAGE - 1),
	       "7.7, 8.2, %s: MAP does not write the meta block", mode);
	nvfs_unregister(&buf);
}

static void test_all(bool legacy)
{
	unsigned int i;

	mode = legacy ? "legacy" : "persistent";
	if (nvfs_set_parameter("use_legacy_p2p_allocation", legacy ? "1" : "0"))
		tap_bail("cannot write use_legacy_p2p_allocation");
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		test_row(&rows[i]);
	test_without_retry();
	test_neighbours();
	test_second_map();
	test_racing_maps();
	test_accepted();
	test_ranges();
	test_four_times();
	test_pin_calls(legacy);
	test_processes();
	test_lookup();
	test_nodes_and_history();
	test_meta_untouched();
}

int main(int argc, char **argv)
{
	struct fake_nvidia_counts before, after;
	char path[256];

	if (argc != 2)
		tap_bail("usage: %s DIRECTORY", argv[0]);
	snprintf(path, sizeof(path), "%s/map.tmp", argv[1]);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, MIB, SEED);
	if (node < 0 || file < 0 || gpu_open(&gpu, 0))
		tap_bail("node %d, file %d, or no GPU", node, file);
	if (gpu_alloc(&gpu, GPU_SIZE, 0, &gpu_va) || gpu_info(&gpu, &info))
		tap_bail("no GPU memory");
	no_access = memory(WINDOW, PROT_NONE);
	read_only = memory(WINDOW, PROT_READ);
	ordinary = memory(WINDOW, RW);
	memset(ordinary, 1, WINDOW);
	gpu_reset(&gpu);
	before = counts();

	test_all(true);
	test_all(false);

	tap_ok(settled(&before), "the GPU driver holds what it held before");
	after = counts();
	tap_is(after.misuse, before.misuse, "no wrong call to the GPU driver");
	unlink(path);
	return tap_plan();
}
