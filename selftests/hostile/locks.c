// SPDX-License-Identifier: GPL-2.0
/*
 * A WRITE to a block device of fake_storage that waits for the device's page cache, while another
 * thread touches a mapping of the device and a third one changes that mapping.
 *
 * usage: locks DEVICE
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

#define SIZE	(64 * KIB)
#define FAR	(1L << 30)	/* where nothing is cached */
#define SECONDS	60

/* The threads' ids, for the parent. */
static struct ids {
	pid_t writing, touching, changing;
	ssize_t result;
	bool data;
} *ids;

static struct gpu gpu;
static struct nvfs_buffer buf;
static volatile char *mapping;
static int fd;

static void *do_write(void *arg)
{
	(void)arg;
	__atomic_store_n(&ids->writing, gettid(), __ATOMIC_RELEASE);
	ids->result = nvfs_write(&buf, fd, 0, SIZE, 0);
	return NULL;
}

static void *do_touch(void *arg)
{
	(void)arg;
	__atomic_store_n(&ids->touching, gettid(), __ATOMIC_RELEASE);
	return (void *)(long)mapping[0];
}

static void *do_change(void *arg)
{
	(void)arg;
	__atomic_store_n(&ids->changing, gettid(), __ATOMIC_RELEASE);
	mprotect((void *)mapping, SIZE, PROT_READ);
	return NULL;
}

static void child(const char *device, int go)
{
	int cached = open(device, O_RDWR);
	struct fake_nvidia_info info;
	pthread_t threads[3];
	uint64_t va;
	static char data[SIZE] __attribute__((aligned(4096)));
	int node = nvfs_open(0, O_RDWR), i;

	fd = open(device, O_RDWR | O_DIRECT);
	if (fd < 0 || cached < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, SIZE, 0, &va) || gpu_fill(&gpu, va, SIZE, 9) ||
	    nvfs_register(&buf, node, va, SIZE, SIZE, info.pdevinfo))
		_exit(1);
	mapping = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, cached, FAR);
	memset(data, 1, SIZE);
	/* A fault that reads ahead lets go of the mapping's lock before it waits. */
	if (mapping == MAP_FAILED || madvise((void *)mapping, SIZE, MADV_RANDOM) || pwrite(cached, data, SIZE, 0) != (ssize_t)SIZE)
		_exit(2);
	if (pthread_create(&threads[0], NULL, do_write, NULL) || read(go, data, 1) != 1 ||
	    pthread_create(&threads[1], NULL, do_touch, NULL) || read(go, data, 1) != 1 ||
	    pthread_create(&threads[2], NULL, do_change, NULL))
		_exit(3);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	ids->data = pread(fd, data, SIZE, 0) == (ssize_t)SIZE && pattern_check(data, SIZE, 9, 0) < 0;
	_exit(0);
}

/* Waits until a thread sleeps where no signal wakes it, or is over. */
static void wait_asleep(pid_t *tid)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	char name[64], text[512];
	pid_t known;

	for (;;) {
		known = __atomic_load_n(tid, __ATOMIC_ACQUIRE);
		snprintf(name, sizeof(name), "/proc/%d/stat", known);
		if (known && (nvfs_read_text(name, text, sizeof(text)) <= 0 ||
			      strrchr(text, ')')[2] == 'D'))
			return;
		if (nvfs_seconds() > end)
			tap_bail("a thread does not wait");
		sched_yield();
	}
}

int main(int argc, char **argv)
{
	int control = storage_open(), go[2], status = 0;
	pid_t pid, ended;
	double end;

	if (argc != 2 || control < 0)
		tap_bail("usage: %s DEVICE", argv[0]);
	ids = mmap(NULL, sizeof(*ids), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pipe(go) || storage_hold(control, FAKE_STORAGE_UNMAPPED))
		tap_bail("no hold");
	pid = fork();
	if (!pid)
		child(argv[1], go[0]);
	wait_asleep(&ids->writing);
	if (write(go[1], "", 1) != 1)
		tap_bail("no child");
	wait_asleep(&ids->touching);
	if (write(go[1], "", 1) != 1)
		tap_bail("no child");
	wait_asleep(&ids->changing);
	storage_hold(control, FAKE_STORAGE_RUN);
	end = nvfs_seconds() + SECONDS;
	do
		ended = waitpid(pid, &status, WNOHANG);
	while (!ended && !sched_yield() && nvfs_seconds() < end);
	tap_ok(ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
	       "WRITE, page fault and mprotect end, whoever waits for whom");
	tap_is(ids->result, SIZE, "the WRITE is whole");
	tap_ok(ids->data, "with the right bytes");
	return tap_plan();
}
