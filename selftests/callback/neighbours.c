// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of several buffers, on several GPUs, whose places on the disk follow one another, in one
 * batch: the block layer must not make one request of two buffers' data.
 *
 * usage: neighbours FILE
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define BUFFERS	32
#define PIECE	(64 * KIB)
#define SIZE	(BUFFERS * PIECE)

static struct gpu gpus[2];
static struct nvfs_buffer bufs[BUFFERS];
static int node, disk;
static char *memory;

/* Each buffer's piece, by one ioctl. */
static bool batch(bool write)
{
	static struct nvfs_ioctl_io entries[BUFFERS];
	union nvfs_ioctl_arg arg;
	unsigned int i;
	bool good = true;
	ssize_t n;

	memset(&arg, 0, sizeof(arg));
	for (i = 0; i < BUFFERS; i++) {
		entries[i] = nvfs_io_arg(&bufs[i], disk, i * PIECE, PIECE, 0).io;
		entries[i].flags = NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS |
				   write << NVFS_IO_OPTYPE_SHIFT;
		entries[i].end_fence_value = ++bufs[i].fence;
	}
	arg.batch.nents = BUFFERS;
	arg.batch.io_entries = entries;
	good = !nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, &arg);
	for (i = 0; i < BUFFERS; i++) {
		n = nvfs_wait(&bufs[i]);
		if (n != (ssize_t)PIECE)
			tap_diag("entry %u: %zd", i, n);
		good = good && n == (ssize_t)PIECE;
	}
	return good;
}

int main(int argc, char **argv)
{
	struct fake_nvidia_info info;
	unsigned int i;
	bool good;

	node = nvfs_open(0, O_RDWR);
	memory = aligned_alloc(4096, SIZE);
	if (argc != 2 || node < 0 || !memory || gpu_open(&gpus[0], 0) || gpu_open(&gpus[1], 1))
		tap_bail("usage: %s FILE", argv[0]);
	disk = open(argv[1], O_RDWR | O_DIRECT);
	for (i = 0; i < BUFFERS; i++) {
		uint64_t va;

		if (gpu_info(&gpus[i % 2], &info) || gpu_alloc(&gpus[i % 2], PIECE, 0, &va) ||
		    nvfs_register(&bufs[i], node, va, PIECE, PIECE, info.pdevinfo))
			tap_bail("no buffer");
	}
	pattern_fill(memory, SIZE, 700, 0);
	if (disk < 0 || pwrite(disk, memory, SIZE, 0) != SIZE || fsync(disk))
		tap_bail("%s: %s", argv[1], strerror(errno));
	tap_ok(batch(false), "%s: %u neighbours are read", argv[1], BUFFERS);
	for (i = 0, good = true; i < BUFFERS; i++) {
		int64_t bad = 0;

		good = !gpu_check_from(&gpus[i % 2], bufs[i].gpu_va, PIECE, 700, i * PIECE / 8,
				       &bad) && bad == -1 && good;
	}
	tap_ok(good, "%s: each by its own buffer", argv[1]);
	for (i = 0; i < BUFFERS; i++)
		gpu_fill_from(&gpus[i % 2], bufs[i].gpu_va, PIECE, 701, i * PIECE / 8);
	tap_ok(batch(true), "%s: they are written", argv[1]);
	tap_ok(pread(disk, memory, SIZE, 0) == SIZE && pattern_check(memory, SIZE, 701, 0) == -1,
	       "%s: each from its own buffer", argv[1]);
	return tap_plan();
}
