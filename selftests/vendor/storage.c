// SPDX-License-Identifier: GPL-2.0
/*
 * fake_storage itself, with no table registered.
 *
 * usage: storage DISK
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

#define PAGE	4096
#define SIZE	(4 * MIB)

static int control, disk;
static char *memory;

/* Written, and read back into other bytes. */
static bool round_trip(int64_t offset, size_t size, uint64_t seed)
{
	pattern_fill(memory, size, seed, 0);
	if (pwrite(disk, memory, size, offset) != (ssize_t)size)
		return false;
	memset(memory, 0, size);
	return pread(disk, memory, size, offset) == (ssize_t)size &&
	       pattern_check(memory, size, seed, 0) == -1;
}

static void test_disk(void)
{
	static const size_t sizes[] = { 512, 4096, 12288, 65536, MIB + 512, SIZE };
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		tap_ok(round_trip(512 * i, sizes[i], 10 + i), "%zu bytes at %zu", sizes[i],
		       512 * i);
		tap_ok(round_trip(6 * 1024 * (int64_t)MIB - 512, sizes[i], 20 + i),
		       "%zu bytes beyond 4 GiB", sizes[i]);
	}
	memset(memory, 1, PAGE);
	tap_ok(pread(disk, memory, PAGE, 3 * 1024 * (int64_t)MIB) == PAGE && !memory[0] &&
		       !memcmp(memory, memory + 1, PAGE - 1),
	       "what was never written is zero");
}

/* The knobs that need a table change nothing without one. */
static void test_knobs(void)
{
	static const struct {
		const char *name;
		unsigned int value;
	} knobs[] = {
		{ "table", FAKE_STORAGE_PLAIN }, { "fail_every", 1 }, { "requeue_every", 1 },
		{ "unmap_us", 50 }, { "end_first", 1 }, { "unmap_failed", 1 },
		{ "ignore_status", 1 }, { "hold_ms", 5 },
	};
	struct fake_storage_counts counts;
	size_t i;

	for (i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		tap_is(storage_set(knobs[i].name, knobs[i].value), 0, "%s is set", knobs[i].name);
		tap_ok(round_trip(0, 65536, 40 + i), "a round trip with it");
	}
	for (i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++)
		storage_set(knobs[i].name, 0);
	storage_counts(control, &counts);
	tap_is(counts.cpu, counts.requests, "all requests went the CPU way");
	tap_is(counts.gpu + counts.refused + counts.failed + counts.requeued + counts.late +
		       counts.stray + counts.broken,
	       0, "and nothing else happened");
	tap_is(counts.registered[FAKE_STORAGE_NVME] + counts.registered[FAKE_STORAGE_PLAIN] +
		       counts.registered[FAKE_STORAGE_V2],
	       0, "nothing is registered");
}

static bool thread_done;

static void *reader(void *result)
{
	*(ssize_t *)result = pread(disk, memory, PAGE, 0);
	__atomic_store_n(&thread_done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void test_hold(enum fake_storage_hold where, const char *name)
{
	pthread_t thread;
	ssize_t got = 0;

	pattern_fill(memory, PAGE, 60 + where, 0);
	pwrite(disk, memory, PAGE, 0);
	memset(memory, 0, PAGE);
	tap_is(storage_hold(control, where), 0, "requests are held %s", name);
	thread_done = false;
	pthread_create(&thread, NULL, reader, &got);
	tap_is(storage_wait_held(control, 1), 0, "one is");
	tap_ok(!__atomic_load_n(&thread_done, __ATOMIC_SEQ_CST), "it is not over");
	tap_ok((pattern_check(memory, PAGE, 60 + where, 0) == -1) == (where == FAKE_STORAGE_MOVED),
	       "its data is %s", where == FAKE_STORAGE_MOVED ? "there" : "not there");
	tap_is(storage_hold(control, FAKE_STORAGE_RUN), 0, "it goes on");
	pthread_join(thread, NULL);
	tap_is(got, PAGE, "to its end");
	tap_is(pattern_check(memory, PAGE, 60 + where, 0), -1, "and is right");
}

static void test_calls(void)
{
	struct fake_storage_piece pieces[] = {
		{ (uintptr_t)memory + 512, 3 * PAGE },
		{ 0, 100 },
		{ (uintptr_t)memory + 16 * PAGE, 70000 },
	};
	struct fake_storage_build build = { .nr = 3, .flags = FAKE_STORAGE_FILL, .max_entry = 4096 };
	struct fake_storage_call call = { .table = FAKE_STORAGE_PLAIN,
					  .function = FAKE_STORAGE_IS_GPU_PAGE };

	tap_is(storage_call(control, &call), -EINVAL, "a call before a build is refused");
	tap_is(storage_build(control, &build, pieces), 0, "a list is built");
	tap_ok(build.entries >= 3 + 1 + 18 && build.entries <= 4 + 1 + 18, "its %u entries are short",
	       build.entries);
	tap_ok(build.phys_segments >= 2 && build.phys_segments <= 4 + 18,
	       "the request has %u segments", build.phys_segments);
	tap_is(storage_call(control, &call), -ENXIO, "there is no table to call");
	call.table = FAKE_STORAGE_V2;
	call.function = FAKE_STORAGE_MAP_SG;
	tap_is(storage_call(control, &call), -EINVAL, "v2 has no sg list");
	call.function = FAKE_STORAGE_ITER_START;
	call.dev = 0xfffffffULL;
	tap_is(storage_call(control, &call), -ENODEV, "a PCI function that is not there");
	pieces[0].addr = 4096;
	tap_is(storage_build(control, &build, pieces), -EFAULT, "memory that is not there");
	pieces[0].addr = (uintptr_t)memory;
	for (build.op = FAKE_STORAGE_READ; build.op <= FAKE_STORAGE_NO_BIO; build.op++) {
		build.flags = FAKE_STORAGE_INTEGRITY | FAKE_STORAGE_BIO_EACH;
		build.phys_segments = 0;
		build.room = 9;
		tap_is(storage_build(control, &build, pieces), 0, "a request of kind %u", build.op);
	}
	build.op = 99;
	tap_is(storage_build(control, &build, pieces), -EINVAL, "and not of an unknown kind");
}

int main(int argc, char **argv)
{
	if (argc != 2)
		tap_bail("usage: storage DISK");
	control = storage_open();
	disk = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC);
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (control < 0 || disk < 0 || memory == MAP_FAILED)
		tap_bail("no %s: %s", argv[1], strerror(errno));

	test_disk();
	test_knobs();
	test_hold(FAKE_STORAGE_UNMAPPED, "before the table");
	test_hold(FAKE_STORAGE_MAPPED, "before data moves");
	test_hold(FAKE_STORAGE_MOVED, "after data moved");
	test_calls();
	return tap_plan();
}
