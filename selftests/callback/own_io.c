// SPDX-License-Identifier: GPL-2.0
/*
 * A process reads into its shadow memory by itself while that is part of a transfer: asynchronous
 * READs end, with all their bytes or EIO, in interrupts that must find nothing to wait for.
 *
 * usage: own_io FILE ROUNDS, whose disk has hooks
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE	(64 * KIB)

static struct nvfs_buffer buf;
static bool done;
static int file;

/* Refused by the hooks, as half of it is not part of the transfer, of which the other half is. */
static void *read_by_itself(void *arg)
{
	unsigned long *refused = arg;

	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		if (pread(file, buf.shadow, 2 * SIZE, SIZE) >= 0)
			continue;
		if (errno != EIO)
			tap_bail("pread: %s", strerror(errno));
		++*refused;
	}
	return NULL;
}

/* Its page faults take what the end of a transfer must not wait for. */
static void *touch(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		madvise(buf.shadow, 2 * SIZE, MADV_DONTNEED);
		*(volatile char *)buf.shadow;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long i, good = 0, bad = 0, rounds, refused = 0;
	struct fake_nvidia_info info;
	pthread_t id[2];
	struct gpu gpu;
	int64_t wrong;
	uint64_t va;
	int node;

	if (argc != 3)
		tap_bail("usage: %s FILE ROUNDS", argv[0]);
	rounds = strtoul(argv[2], NULL, 0);
	file = nvfs_file(argv[1], 4 * SIZE, 3);
	node = nvfs_open(0, O_RDWR);
	if (file < 0 || node < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, SIZE, 0, &va) || nvfs_register(&buf, node, va, SIZE, 2 * SIZE, info.pdevinfo))
		tap_bail("no buffer");
	/* Else what was refused looks like a hole. */
	memset(buf.shadow, 1, 2 * SIZE);
	pthread_create(&id[0], NULL, read_by_itself, &refused);
	pthread_create(&id[1], NULL, touch, NULL);
	for (i = 0; i < rounds; i++) {
		ssize_t n = nvfs_submit(&buf, NVFS_IOCTL_READ, file, 0, SIZE, 0);

		if (!n)
			n = nvfs_wait(&buf);
		good += n == (ssize_t)SIZE;
		bad += n == -EIO;
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	pthread_join(id[0], NULL);
	pthread_join(id[1], NULL);
	tap_is(good + bad, rounds, "%lu READs have all bytes, %lu have EIO", good, bad);
	tap_ok(good && bad && refused, "some of both, beside %lu of its own that were refused", refused);
	tap_is(nvfs_read(&buf, file, 0, SIZE, 0), SIZE, "then a READ is good");
	tap_is(gpu_check(&gpu, va, SIZE, 3, &wrong) ?: wrong, -1, "and its bytes");
	return tap_plan();
}
