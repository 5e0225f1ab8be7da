// SPDX-License-Identifier: GPL-2.0
/*
 * SET, GET and CLEAR of the RDMA record of a buffer (section 13), that it is never torn, and what a
 * storage driver sees of it for a buffer of more than 4 GiB (17.4). The GPU must have that much.
 *
 * usage: rdma DISK PCI-ADDRESS (DISK: one of fake_storage's)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"
#include "../lib/vendor.h"

#define PAGE		4096UL
#define GPU_SIZE	(8 * MIB)
#define OFFSET		512		/* of the registered memory in its GPU page */
#define SIZE		1001100UL	/* of the registered memory */
#define GIB		(1024 * MIB)
#define LARGE		(5 * GIB)

static struct gpu gpu;
static struct fake_nvidia_info info;
static uint64_t gpu_va;
static int node;
static struct nvfs_buffer buf;

/* set_arg: a record whose every byte depends on `seed`, 1 to 250. */
static union nvfs_ioctl_arg set_arg(const struct nvfs_buffer *of, unsigned int seed)
{
	union nvfs_ioctl_arg arg;

	memset(&arg, seed, sizeof(arg));
	arg.set_rdma.cpuvaddr = (uintptr_t)of->shadow;
	arg.set_rdma.version = seed + 1;
	arg.set_rdma.rkey[0] ^= 0xff;	/* the others must not be taken */
	arg.set_rdma.nkeys = 1;
	return arg;
}

static int set(const struct nvfs_buffer *of, unsigned int seed)
{
	union nvfs_ioctl_arg arg = set_arg(of, seed), given = arg;
	int ret = nvfs_ioctl(node, NVFS_IOCTL_SET_RDMA_REG_INFO, &arg);

	return memcmp(&arg, &given, sizeof(arg)) ? -EBADMSG : ret;
}

static int clear(uint64_t cpuvaddr)
{
	union nvfs_ioctl_arg arg, given;
	int ret;

	memset(&arg, 0x5a, sizeof(arg));
	arg.clear_rdma.cpuvaddr = cpuvaddr;
	given = arg;
	ret = nvfs_ioctl(node, NVFS_IOCTL_CLEAR_RDMA_REG_INFO, &arg);
	return memcmp(&arg, &given, sizeof(arg)) ? -EBADMSG : ret;
}

/* get: only the record is changed, and only on success. */
static int get(uint64_t cpuvaddr, unsigned char record[48])
{
	union nvfs_ioctl_arg arg, given;
	unsigned char *bytes = (void *)&arg;
	int ret;

	memset(&arg, 0x5a, sizeof(arg));
	arg.get_rdma.cpuvaddr = cpuvaddr;
	given = arg;
	ret = nvfs_ioctl(node, NVFS_IOCTL_GET_RDMA_REG_INFO, &arg);
	memcpy(record, bytes + 16, 48);
	if (!ret)
		memcpy(bytes + 16, (char *)&given + 16, 48);
	return memcmp(&arg, &given, sizeof(arg)) ? -EBADMSG : ret;
}

/* record_of: what GET must say after set() with that seed, byte by byte as in 4.7. */
static void record_of(const struct nvfs_buffer *of, unsigned int seed, unsigned char record[48])
{
	uint32_t size = of->gpu_size > 0xffffffff ? 0xffffffff : of->gpu_size;

	memset(record, seed, 48);
	record[0] = seed + 1;
	memcpy(record + 8, &of->gpu_va, 8);
	memcpy(record + 16, &size, 4);
	memset(record + 20, seed, 4);
	record[20] ^= 0xff;
	memset(record + 44, 0, 4);
}

static bool has(const struct nvfs_buffer *of, unsigned int seed)
{
	unsigned char got[48], want[48];

	if (get((uintptr_t)of->shadow, got))
		return false;
	record_of(of, seed, want);
	return !memcmp(got, want, 48);
}

static bool has_none(const struct nvfs_buffer *of)
{
	static const unsigned char none[48];
	unsigned char got[48];

	return !get((uintptr_t)of->shadow, got) && !memcmp(got, none, 48);
}

static void test_rows(void)
{
	unsigned int i, good = 0;

	tap_ok(has_none(&buf), "13.3: GET of a fresh buffer: all zero");
	tap_is(set(&buf, 2), 0, "13.2: SET");
	tap_ok(has(&buf, 2), "13.2, 13.3: GET has all fields, at their places; padding is 0");
	tap_is(set(&buf, 7), 0, "13.2: SET again");
	tap_ok(has(&buf, 7), "13.2: has the new record");
	tap_is(clear((uintptr_t)buf.shadow), 0, "13.4: CLEAR");
	tap_ok(has_none(&buf), "13.4: GET then: all zero");
	tap_is(clear((uintptr_t)buf.shadow), 0, "13.4: CLEAR of none");
	for (i = 1; i < 250; i++)
		good += set(&buf, i) == 0 && has(&buf, i);
	tap_is(good, 249, "13.2: any version from 2 on");
}

static void test_refused(void)
{
	static const uint32_t nkeys[] = { 0, 2, 16, 17, ~0U, 1 << 16 };
	union nvfs_ioctl_arg arg;
	unsigned int i;

	for (i = 0; i < sizeof(nkeys) / sizeof(*nkeys); i++) {
		set(&buf, 9);
		arg = set_arg(&buf, 10);
		arg.set_rdma.nkeys = nkeys[i];
		tap_is(nvfs_ioctl(node, NVFS_IOCTL_SET_RDMA_REG_INFO, &arg), -EINVAL,
		       "13.2: SET with %u keys: EINVAL", nkeys[i]);
		tap_ok(has_none(&buf), "13.2: and the record is all zero");
	}
	for (i = 0; i < 2; i++) {
		set(&buf, 9);
		arg = set_arg(&buf, 10);
		arg.set_rdma.version = i;
		tap_is(nvfs_ioctl(node, NVFS_IOCTL_SET_RDMA_REG_INFO, &arg), -EINVAL,
		       "13.2: SET with version %u: EINVAL", i);
		tap_ok(has_none(&buf), "13.2: and the record is all zero");
	}
}

static void no_buffer(const char *name, uint64_t cpuvaddr)
{
	struct nvfs_buffer of = { .shadow = (char *)cpuvaddr };
	unsigned char record[48];

	tap_is(set(&of, 3), -EINVAL, "13.1: SET, %s: EINVAL", name);
	tap_is(get(cpuvaddr, record), -EINVAL, "13.1: GET, %s: EINVAL", name);
	tap_is(clear(cpuvaddr), -EPERM, "13.4: CLEAR, %s: EPERM", name);
}

static void test_no_buffer(void)
{
	struct nvfs_buffer unmapped;
	char *plain = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status;

	set(&buf, 4);
	no_buffer("NULL", 0);
	no_buffer("not the start", (uintptr_t)buf.shadow + PAGE);
	no_buffer("a crooked address", (uintptr_t)buf.shadow + 8);
	no_buffer("other memory", (uintptr_t)plain);
	no_buffer("a kernel address", 0xffff888000000000);
	nvfs_shadow(&unmapped, node, MIB);
	no_buffer("before MAP", (uintptr_t)unmapped.shadow);
	nvfs_unregister(&unmapped);
	fflush(stdout);
	if (!fork()) {
		unsigned char record[48];

		_exit(get((uintptr_t)buf.shadow, record) != -EINVAL ||
		      clear((uintptr_t)buf.shadow) != -EPERM);
	}
	wait(&status);
	tap_is(status, 0, "6.6: GET and CLEAR in a forked child are refused");
	tap_ok(has(&buf, 4), "13.1: and the record of the real buffer is as it was");
}

static void test_pointers(void)
{
	static const uint64_t bad[] = { 0, 0xffff888000000000, 0x8000000000000000, ~0UL };
	static const struct {
		const char *name;
		unsigned long request;
	} requests[] = {
		{ "SET", NVFS_IOCTL_SET_RDMA_REG_INFO },
		{ "GET", NVFS_IOCTL_GET_RDMA_REG_INFO },
		{ "CLEAR", NVFS_IOCTL_CLEAR_RDMA_REG_INFO },
	};
	union nvfs_ioctl_arg *arg = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i, j;

	for (i = 0; i < 3; i++)
		for (j = 0; j < sizeof(bad) / sizeof(*bad); j++)
			tap_is(nvfs_ioctl(node, requests[i].request, (void *)bad[j]), -EFAULT,
			       "3.2: %s at %#llx: EFAULT", requests[i].name,
			       (unsigned long long)bad[j]);
	arg->get_rdma.cpuvaddr = (uintptr_t)buf.shadow;
	mprotect(arg, PAGE, PROT_READ);
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_GET_RDMA_REG_INFO, arg), -EFAULT,
	       "3.5: GET to memory that cannot be written: EFAULT");
	munmap(arg, PAGE);
}

/* The record belongs to one buffer, and ends with it. */
static void test_life(void)
{
	struct nvfs_buffer second;

	if (nvfs_register(&second, node, gpu_va + MIB, MIB, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	set(&buf, 5);
	tap_ok(has_none(&second), "13.5: another buffer has its own record");
	set(&second, 6);
	tap_ok(has(&buf, 5) && has(&second, 6), "13.5: each its own");
	nvfs_unregister(&second);
	tap_ok(has(&buf, 5), "13.5: the end of one leaves the other");
	if (nvfs_register(&second, node, gpu_va + MIB, MIB, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	tap_ok(has_none(&second), "13.5: a new buffer has none");
	nvfs_unregister(&second);
}

static struct vendor v;

/* What the driver of a disk is told of a read of `size` bytes to a place in the large buffer. */
static void test_place(uint64_t at, uint64_t size)
{
	uint64_t chunk = size < VENDOR_WINDOW ? size : VENDOR_WINDOW;
	unsigned char want[48];
	uint32_t bytes = chunk;
	int64_t bad = 0;

	gpu_set(&v.gpu, v.buf.gpu_va + at, 0, size);
	vendor_start(&v, at, size);
	vendor_build_one(&v, FAKE_STORAGE_FILL, 0, chunk);
	memset(&v.call.info, 0x5a, sizeof(v.call.info));
	tap_is(vendor_call(&v, FAKE_STORAGE_RDMA_INFO, v.build.entries), v.build.entries,
	       "17.4: a read of %llu KiB at %#llx", (unsigned long long)size / KIB,
	       (unsigned long long)at);
	record_of(&v.buf, 3, want);
	at += v.buf.gpu_va;
	memcpy(want + 8, &at, 8);
	memcpy(want + 16, &bytes, 4);
	tap_ok(!memcmp(&v.call.info, want, 48), "17.4: the record of its chunk: %#llx, %u bytes",
	       (unsigned long long)v.call.info.rem_vaddr, v.call.info.size);
	tap_is(vendor_end(&v), size, "the read is good");
	tap_ok(!gpu_check(&v.gpu, at, size, 7, &bad) && bad == -1, "and its data is there");
}

/* Sizes and offsets of 4 GiB and more: neither fits the record, but each chunk does. */
static void test_large(const char *disk, const char *address)
{
	char *data = aligned_alloc(PAGE, 3 * MIB);
	uint64_t va;

	vendor_open(&v, FAKE_STORAGE_PLAIN, disk, address);
	if (gpu_alloc(&v.gpu, LARGE, 0, &va) ||
	    nvfs_register(&v.buf, v.node, va, LARGE, VENDOR_WINDOW, info.pdevinfo))
		tap_bail("the GPU has no 5 GiB");
	pattern_fill(data, 3 * MIB, 7, 0);
	if (pwrite(v.disk, data, 3 * MIB, 0) != (ssize_t)(3 * MIB))
		tap_bail("the disk cannot be written");
	set(&v.buf, 3);
	tap_ok(has(&v.buf, 3), "13.2: size is at most 0xffffffff");
	test_place(0, VENDOR_IO);
	test_place(4 * GIB - VENDOR_IO, VENDOR_IO);
	test_place(4 * GIB - 64 * KIB, VENDOR_IO);
	test_place(4 * GIB - 512 * KIB, 3 * MIB);
	test_place(4 * GIB, VENDOR_IO);
	test_place(4 * GIB + 64 * KIB + PAGE, 32 * KIB);
	test_place(LARGE - VENDOR_IO, VENDOR_IO);
	vendor_forget(&v);
	free(data);
}

static bool stop;

static void *writer(void *arg)
{
	unsigned int seed = (uintptr_t)arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		set(&buf, seed);
		if (seed == 3)
			clear((uintptr_t)buf.shadow);
	}
	return NULL;
}

/* Three writers and a reader: it sees one of four records, and at some time each of them. */
static void test_torn(void)
{
	static const unsigned char none[48];
	unsigned int seen[4] = { 0 }, torn = 0, failed = 0, i, round;
	unsigned char got[48], want[4][48];
	pthread_t threads[3];
	double end = nvfs_seconds() + 60;
	int ret;

	/* The reader may come before the first writer. */
	set(&buf, 1);
	memset(want, 0, sizeof(want));
	for (i = 1; i < 4; i++)
		record_of(&buf, i, want[i]);
	for (i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, writer, (void *)(uintptr_t)(i + 1));
	for (round = 0; nvfs_seconds() < end; round++) {
		if (round >= 20000 && seen[0] && seen[1] && seen[2] && seen[3])
			break;
		ret = get((uintptr_t)buf.shadow, got);
		if (ret) {
			if (!failed++)
				tap_diag("GET: %s", strerror(-ret));
			continue;
		}
		for (i = 0; i < 4 && memcmp(got, want[i], 48); i++)
			;
		if (i < 4)
			seen[i]++;
		else if (!torn++)
			for (i = 0; i < 48; i += 8)
				tap_diag("%2u: %016llx", i, *(unsigned long long *)(got + i));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	tap_is(failed, 0, "13.5: no GET fails meanwhile");
	tap_is(torn, 0, "13.5: no record is torn");
	tap_ok(seen[0] && seen[1] && seen[2] && seen[3] && !memcmp(want[0], none, 48),
	       "13.5: and each was seen");
	tap_diag("%u times: none %u, then %u, %u, %u", round, seen[0], seen[1], seen[2], seen[3]);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		tap_bail("usage: %s DISK PCI-ADDRESS", argv[0]);
	node = nvfs_open(0, O_RDWR);
	if (node < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, GPU_SIZE, 0, &gpu_va))
		tap_bail("no node or no GPU");
	if (nvfs_register(&buf, node, gpu_va + OFFSET, SIZE, MIB, info.pdevinfo))
		tap_bail("MAP failed");

	test_rows();
	test_refused();
	test_no_buffer();
	test_pointers();
	test_life();
	test_large(argv[1], argv[2]);
	test_torn();
	return tap_plan();
}
