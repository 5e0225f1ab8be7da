// SPDX-License-Identifier: GPL-2.0
/*
 * A disk that fails some of its mappings: a transfer with a failed one ends with EIO, all others are
 * right, and no byte outside of a transfer is touched.
 *
 * usage: failing DISK TABLE FAIL_EVERY
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

#define GPU_SIZE	(4 * MIB)
#define WINDOW		(256 * KIB)
#define AT		(MIB)		/* of all transfers, in GPU memory */
#define ROUNDS		48

static struct gpu gpu;
static struct nvfs_buffer buf;
static int disk, control;
static char *memory;

static uint64_t failed(void)
{
	struct fake_storage_counts counts;

	storage_counts(control, &counts);
	return counts.failed;
}

static bool all_are(uint64_t from, uint64_t to, uint8_t byte)
{
	uint64_t i;

	if (gpu_read(&gpu, buf.gpu_va + from, memory, to - from))
		return false;
	for (i = 0; i < to - from; i++)
		if ((uint8_t)memory[i] != byte)
			return false;
	return true;
}

static bool one(unsigned int round, unsigned int *failures)
{
	uint64_t size = (round % 7 + 1) * 64 * KIB, seed = 500 + round, before = failed();
	bool write = round & 1, async = round & 2, good;
	uint64_t want = async && size > WINDOW ? WINDOW : size;
	int64_t bad;
	ssize_t n;

	if (write) {
		good = !gpu_fill_from(&gpu, buf.gpu_va + AT, size, seed, 0);
	} else {
		pattern_fill(memory, size, seed, 0);
		good = pwrite(disk, memory, size, 0) == (ssize_t)size &&
		       !gpu_set(&gpu, buf.gpu_va, 0xa5, GPU_SIZE);
	}
	if (async) {
		n = nvfs_submit(&buf, write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, disk, 0, size, AT);
		if (n >= 0)
			n = nvfs_wait(&buf);
	} else {
		n = write ? nvfs_write(&buf, disk, 0, size, AT) : nvfs_read(&buf, disk, 0, size, AT);
	}
	if (failed() != before) {
		++*failures;
		good = good && n == -EIO;
	} else {
		good = good && n == (ssize_t)want;
		if (write)
			good = good && pread(disk, memory, want, 0) == (ssize_t)want &&
			       pattern_check(memory, want, seed, 0) == -1;
		else
			good = good && !gpu_check(&gpu, buf.gpu_va + AT, want, seed, &bad) &&
			       bad == -1;
	}
	if (!write)
		good = good && all_are(0, AT, 0xa5) && all_are(AT + want, GPU_SIZE, 0xa5);
	if (!good)
		tap_diag("round %u: %zd", round, n);
	return good;
}

int main(int argc, char **argv)
{
	unsigned int round, bad = 0, failures = 0, mode;
	struct fake_nvidia_info info;
	int node = nvfs_open(0, O_RDWR);

	if (argc != 4 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) || node < 0)
		tap_bail("usage: %s DISK TABLE FAIL_EVERY", argv[0]);
	disk = open(argv[1], O_RDWR | O_DIRECT);
	control = storage_open();
	memory = aligned_alloc(4096, GPU_SIZE);
	if (disk < 0 || control < 0 || !memory || storage_set("table", atoi(argv[2])))
		tap_bail("no disk");
	for (mode = 0; mode < 2; mode++) {
		uint64_t va;

		if (gpu_alloc(&gpu, GPU_SIZE, mode ? FAKE_NVIDIA_SCRAMBLED : 0, &va) ||
		    nvfs_register(&buf, node, va, GPU_SIZE, WINDOW, info.pdevinfo))
			tap_bail("no buffer");
		storage_set("fail_every", atoi(argv[3]));
		for (round = 0; round < ROUNDS; round++)
			bad += !one(round, &failures);
		storage_set("fail_every", 0);
		tap_is(bad, 0, "table %s, %s: each transfer is right or fails", argv[2],
		       mode ? "scrambled" : "contiguous");
		tap_ok(one(0, &failures), "table %s: and the next one is right", argv[2]);
		nvfs_unregister(&buf);
		gpu_free(&gpu, va);
	}
	tap_ok(failures >= 8 && failures < 2 * ROUNDS, "table %s: %u failed", argv[2], failures);
	return tap_plan();
}
