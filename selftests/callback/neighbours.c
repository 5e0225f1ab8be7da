// SPDX-License-Identifier: GPL-2.0
/*
 * Requests whose places on the disk follow one another, at the same time: of several buffers, on
 * two GPUs, of several processes, of ordinary memory, and of shadow memory that a process reads and
 * writes by itself. The block layer may make one request of them; whatever it does, the bytes must be
 * right and nobody may get an error, but for the last one.
 *
 * usage: neighbours DISK STAT ROUNDS NAME (STAT: the disk's file of that name in sysfs)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define PROCESSES	5
#define ORDINARY	3	/* this one has ordinary memory */
#define BY_ITSELF	4	/* and this one shadow memory that is mapped to no GPU */
#define RUN		4	/* neighbours of one process */
#define MINE		(2 * RUN)
#define PIECES		(PROCESSES * MINE)
#define PIECE		(32 * KIB)
#define SIZE		(PIECES * PIECE)

static struct shared {
	pthread_barrier_t barrier;
	unsigned int wrong;
} *shared;

static struct gpu gpus[2];
static struct nvfs_buffer bufs[MINE];
static struct iocb iocbs[MINE];
static aio_context_t aio;
static char *memory;
static unsigned int me;
static int node, disk;

static void together(void)
{
	pthread_barrier_wait(&shared->barrier);
}

static void check(bool good, const char *what, unsigned int i, long long got)
{
	if (!good && __atomic_fetch_add(&shared->wrong, 1, __ATOMIC_SEQ_CST) < 5)
		tap_diag("process %u, %s of piece %u: %lld", me, what, i, got);
}

static bool has_gpu(void)
{
	return me < ORDINARY;
}

/* The place of a process's i-th piece among all. */
static unsigned int place_of(unsigned int process, unsigned int i)
{
	return (i / RUN * PROCESSES + process) * RUN + i % RUN;
}

static unsigned int place(unsigned int i)
{
	return place_of(me, i);
}

static void batch(bool write)
{
	static struct nvfs_ioctl_io entries[MINE];
	union nvfs_ioctl_arg arg;
	unsigned int i;
	ssize_t n;

	memset(&arg, 0, sizeof(arg));
	for (i = 0; i < MINE; i++) {
		entries[i] = nvfs_io_arg(&bufs[i], disk, place(i) * PIECE, PIECE, 0).io;
		entries[i].flags = NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS |
				   write << NVFS_IO_OPTYPE_SHIFT;
		entries[i].end_fence_value = ++bufs[i].fence;
	}
	arg.batch.nents = MINE;
	arg.batch.io_entries = entries;
	n = nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, &arg);
	check(!n, "batch", 0, n);
	for (i = 0; i < MINE; i++) {
		n = nvfs_wait(&bufs[i]);
		check(n == (ssize_t)PIECE, write ? "write" : "read", place(i), n);
	}
}

static void native(bool write)
{
	struct io_event events[MINE];
	struct iocb *list[MINE];
	unsigned int i;
	long n;

	for (i = 0; i < MINE; i++) {
		iocbs[i] = (struct iocb){
			.aio_lio_opcode = write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
			.aio_fildes = disk, .aio_buf = (uintptr_t)memory + i * PIECE,
			.aio_nbytes = PIECE, .aio_offset = place(i) * PIECE, .aio_data = i };
		list[i] = &iocbs[i];
	}
	n = syscall(SYS_io_submit, aio, MINE, list);
	check(n == MINE, "submit", 0, n);
	n = syscall(SYS_io_getevents, aio, MINE, MINE, events, NULL);
	check(n == MINE, "events", 0, n);
	for (i = 0; i < MINE; i++)
		check(events[i].res == (int64_t)PIECE || (me == BY_ITSELF && events[i].res == -EIO),
		      write ? "ordinary write" : "ordinary read", place(events[i].data),
		      events[i].res);
}

static void fill(uint64_t seed)
{
	unsigned int i;

	for (i = 0; i < MINE; i++) {
		uint64_t first = place(i) * PIECE / 8;

		if (!has_gpu())
			pattern_fill(memory + i * PIECE, PIECE, seed, first);
		else
			gpu_fill_from(&gpus[i % 2], bufs[i].gpu_va, PIECE, seed, first);
	}
}

static void compare(uint64_t seed)
{
	unsigned int i;

	if (me == BY_ITSELF)
		return;
	for (i = 0; i < MINE; i++) {
		uint64_t first = place(i) * PIECE / 8;
		int64_t bad = -1;

		if (!has_gpu())
			bad = pattern_check(memory + i * PIECE, PIECE, seed, first);
		else if (gpu_check_from(&gpus[i % 2], bufs[i].gpu_va, PIECE, seed, first, &bad))
			bad = -2;
		check(bad == -1, "bytes", place(i), bad);
	}
}

static void open_all(const char *name)
{
	struct fake_nvidia_info info;
	unsigned int i;
	uint64_t va;

	disk = open(name, O_RDWR | O_DIRECT);
	memory = aligned_alloc(4096, SIZE);
	if (disk < 0 || !memory || syscall(SYS_io_setup, MINE, &aio))
		tap_bail("%s: %s", name, strerror(errno));
	if (me == ORDINARY)
		return;
	node = nvfs_open(0, O_RDWR);
	if (me == BY_ITSELF) {
		memory = mmap(NULL, MINE * PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, node, 0);
		if (memory == MAP_FAILED)
			tap_bail("no shadow memory");
		return;
	}
	if (node < 0 || gpu_open(&gpus[0], 0) || gpu_open(&gpus[1], 1))
		tap_bail("no node or GPU");
	for (i = 0; i < MINE; i++)
		if (gpu_info(&gpus[i % 2], &info) || gpu_alloc(&gpus[i % 2], PIECE, 0, &va) ||
		    nvfs_register(&bufs[i], node, va, PIECE, 64 * KIB, info.pdevinfo))
			tap_bail("no buffer");
}

/* Whether the disk has what all wrote whose writes must succeed. */
static void check_disk(uint64_t seed)
{
	unsigned int process, i;

	check(pread(disk, memory, SIZE, 0) == SIZE, "pread", 0, errno);
	for (process = 0; process < BY_ITSELF; process++) {
		for (i = 0; i < MINE; i++) {
			uint64_t at = place_of(process, i) * PIECE;

			check(pattern_check(memory + at, PIECE, seed, at / 8) == -1, "disk's bytes",
			      place_of(process, i), seed);
		}
	}
}

/* Process 0 looks at the disk after each round of writes. */
static void rounds(unsigned int n)
{
	void (*move)(bool write) = has_gpu() ? batch : native;
	unsigned int i;

	for (i = 0; i < n; i++) {
		fill(2 * i);
		together();
		move(true);
		together();
		if (me == 0)
			check_disk(2 * i);
		fill(2 * i + 1);
		together();
		move(false);
		compare(2 * i);
	}
	together();
}

/* Requests that were merged with others. */
static unsigned long merges(const char *stat)
{
	unsigned long reads = 0, writes = 0;
	char text[512];

	if (nvfs_read_text(stat, text, sizeof(text)) < 0 ||
	    sscanf(text, "%*u %lu %*u %*u %*u %lu", &reads, &writes) != 2)
		tap_bail("no %s", stat);
	return reads + writes;
}

int main(int argc, char **argv)
{
	pthread_barrierattr_t attr;
	pid_t children[PROCESSES];
	unsigned long before;
	long long mixed;
	unsigned int i;
	bool good = true;

	if (argc != 5)
		tap_bail("usage: %s DISK STAT ROUNDS NAME", argv[0]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &attr, PROCESSES);
	before = merges(argv[2]);
	mixed = nvfs_stat("Error", "cpu-gpu-pages");
	fflush(stdout);
	for (i = 1; i < PROCESSES; i++) {
		children[i] = fork();
		if (children[i])
			continue;
		me = i;
		open_all(argv[1]);
		rounds(strtoul(argv[3], NULL, 0));
		fflush(stdout);
		_exit(0);
	}
	open_all(argv[1]);
	rounds(strtoul(argv[3], NULL, 0));
	for (i = 1; i < PROCESSES; i++) {
		int status;

		good = waitpid(children[i], &status, 0) == children[i] && !status && good;
	}
	tap_ok(good, "%s: %u processes, %s rounds", argv[4], PROCESSES, argv[3]);
	tap_is(shared->wrong, 0, "%s: no error and no wrong byte", argv[4]);
	tap_is(nvfs_stat("Error", "cpu-gpu-pages"), mixed, "%s: none was mixed with ordinary memory",
	       argv[4]);
	tap_ok(merges(argv[2]) > before, "%s: %lu requests were merged", argv[4],
	       merges(argv[2]) - before);
	return tap_plan();
}
