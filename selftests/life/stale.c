// SPDX-License-Identifier: GPL-2.0
/*
 * What was found out once must not be believed for ever, nor be held on to.
 *
 * usage: stale KIND ARGUMENT...
 *   cache DEVICE		writes while a mapping of the device is written to: never by the CPU
 *   dead FILE UNBIND		a buffer whose GPU memory is gone holds up nobody: runs UNBIND
 *   raid ARRAY ADD DEVICE	a drive out of reach joins the array of a buffer: runs ADD DEVICE
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

#define SIZE	(4 * MIB)
#define AT	(64 * (off_t)MIB)

static struct gpu gpu;
static struct nvfs_buffer buf;
static uint64_t va;
static int node;

static void begin(void)
{
	struct fake_nvidia_info info;

	node = nvfs_open(0, O_RDWR);
	if (node < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, SIZE, 0, &va) ||
	    nvfs_register(&buf, node, va, SIZE, MIB, info.pdevinfo))
		tap_bail("no buffer");
}

static bool stop;
static volatile char *mapping;

static void *store(void *arg)
{
	size_t i = 0;

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		mapping[i] = 1;
		i = (i + 4096) % (8 * 4096);
	}
	return NULL;
}

static long long pages_dirtied(void)
{
	static char text[65536];
	char *at;

	if (nvfs_read_text("/proc/vmstat", text, sizeof(text)) <= 0)
		return -1;
	at = strstr(text, "\nnr_dirtied ");
	return at ? atoll(at + strlen("\nnr_dirtied ")) : -1;
}

static void cache(const char *device)
{
	unsigned int i, good = 0, by_cpu = 0, rounds = 60;
	int fd = open(device, O_RDWR | O_DIRECT), other = open(device, O_RDWR);
	long long before, n, most = 0;
	pthread_t thread;

	begin();
	mapping = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, other, AT);
	if (fd < 0 || mapping == MAP_FAILED || pthread_create(&thread, NULL, store, NULL))
		tap_bail("%s: %s", device, strerror(errno));
	for (i = 0; i < rounds; i++) {
		before = pages_dirtied();
		good += nvfs_write(&buf, fd, AT, MIB, 0) == (ssize_t)MIB;
		/* The thread makes a few pages dirty meanwhile; a fallback makes all 256. */
		n = pages_dirtied() - before;
		by_cpu += n >= 256;
		if (n > most)
			most = n;
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	tap_is(good, rounds, "%s: all writes are good", device);
	tap_is(by_cpu, 0, "%s: none of them by the CPU, through the page cache", device);
	/* Eight before, eight for each of two times that they are written back, and eight after. */
	tap_ok(most <= 64, "%s: nor is it tried again and again: %lld pages", device, most);
}

static void dead(const char *path, const char *unbind)
{
	int fd = open(path, O_RDWR | O_DIRECT);

	begin();
	tap_is(nvfs_read(&buf, fd, 0, MIB, 0), (long long)MIB, "a read");
	tap_is(gpu_free(&gpu, va), 0, "the GPU memory is freed");
	tap_is(buf.meta->state, NVFS_META_DIED, "the buffer is dead");
	close(fd);
	gpu_close(&gpu);
	/* A hang here is ended by the time limit of the suite. */
	tap_is(system(unbind), 0, "the GPU's driver is unbound meanwhile");
}

static void raid(const char *array, const char *add, const char *device)
{
	int fd = open(array, O_RDWR | O_DIRECT);
	char command[512];

	begin();
	gpu_fill(&gpu, va, SIZE, 5);
	tap_is(nvfs_write(&buf, fd, 0, SIZE, 0), (long long)SIZE, "a write to the array");
	snprintf(command, sizeof(command), "%s %s", add, device);
	tap_is(system(command), 0, "a drive out of reach joins");
	tap_is(nvfs_write(&buf, fd, 0, SIZE, 0), -EREMOTEIO, "the next write is refused");
	tap_is(nvfs_read(&buf, fd, 0, SIZE, 0), -EREMOTEIO, "and a read");
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "cache"))
		cache(argv[2]);
	else if (argc == 4 && !strcmp(argv[1], "dead"))
		dead(argv[2], argv[3]);
	else if (argc == 5 && !strcmp(argv[1], "raid"))
		raid(argv[2], argv[3], argv[4]);
	else
		tap_bail("usage: %s KIND ARGUMENT...", argv[0]);
	nvfs_unregister(&buf);
	return tap_plan();
}
