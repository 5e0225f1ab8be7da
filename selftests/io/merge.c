// SPDX-License-Identifier: GPL-2.0
/*
 * Neighbouring requests of host and GPU memory that wait in the queue of a disk: the block layer merges
 * those of one kind, and none of both kinds, also if a program gives its own the hint of ours. Through
 * hooks, memory of two GPUs is of one kind.
 *
 * usage: merge DISK p2pdma|callback (one of bench_disk)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../rust/helpers/ioprio.h"
#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define BLOCK		4096
#define ROUNDS	10
#define GPU_PAGE	65536
#define PARAMETERS	"/sys/module/bench_disk/parameters/"

#define NOBODY		65534

static const char *name;
static bool callback;
static int disk, node;
static struct gpu gpus[2];
static struct fake_nvidia_info infos[2];
static aio_context_t context;
static char *host;

/*
 * `r`: host memory; `s`: such with the priority that comes nearest to ours and needs no privilege;
 * `g`, `h`: memory of GPU 0, GPU 1. One block each, on the disk side by side.
 */
struct pattern {
	const char *memory;
	unsigned int requests;	/* that the disk has to see, .. */
	unsigned int callback;	/* .. and in callback mode */
};

static const struct pattern patterns[] = {
	{ "rr", 1, 1 }, { "gg", 1, 1 }, { "rg", 2, 2 }, { "gr", 2, 2 }, { "rgr", 3, 3 },
	{ "grg", 3, 3 }, { "rrggrr", 3, 3 }, { "gh", 2, 1 }, { "hgh", 3, 1 },
	{ "ss", 1, 1 }, { "sg", 2, 2 }, { "gs", 2, 2 }, { "sgs", 3, 3 }, { "gsg", 3, 3 },
};

static bool is_host(char memory)
{
	return memory == 'r' || memory == 's';
}

/* A priority of the best-effort class, as processes have it, with our hint. */
static int nearest(int class)
{
	int hint = callback ? NVFS_IOPRIO_SHADOW : NVFS_IOPRIO_MAP;

	return IOPRIO_PRIO_VALUE_HINT(class, IOPRIO_BE_NORM, hint);
}

static unsigned long long seen(unsigned int which)
{
	unsigned long long n[5] = {};
	char text[200];

	nvfs_read_text(PARAMETERS "seen", text, sizeof(text));
	sscanf(text, "%llu %llu %llu %llu %llu", &n[0], &n[1], &n[2], &n[3], &n[4]);
	return n[which];
}

static void scheduler(const char *which)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/block/%s/queue/scheduler", name);
	if (nvfs_write_text(path, which) < 0)
		tap_bail("no scheduler %s", which);
}

static void host_read(int64_t offset, char memory)
{
	struct iocb iocb = {
		.aio_fildes = disk, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)host,
		.aio_nbytes = BLOCK, .aio_offset = offset,
	}, *list = &iocb;

	if (memory == 's') {
		iocb.aio_flags = IOCB_FLAG_IOPRIO;
		iocb.aio_reqprio = nearest(IOPRIO_CLASS_BE);
	}
	if (syscall(SYS_io_submit, context, 1, &list) != 1)
		tap_bail("io_submit: %s", strerror(errno));
}

static struct nvfs_buffer buffer(int gpu)
{
	struct nvfs_buffer buf;
	uint64_t va;

	if (gpu_alloc(&gpus[gpu], GPU_PAGE, 0, &va) ||
	    nvfs_register(&buf, node, va, GPU_PAGE, GPU_PAGE, infos[gpu].pdevinfo))
		tap_bail("no buffer");
	/* The way is found, and how it goes decided, now. */
	if (nvfs_read(&buf, disk, 0, BLOCK, 0) != BLOCK)
		tap_bail("no READ to GPU %d", gpu);
	return buf;
}

/*
 * All wait behind a first one, and reach the queue in order, or in reverse. When the queue is run
 * meanwhile, which the kernel may do, one of them can slip through: then all is done once more.
 */
static void test(const struct pattern *pattern, bool reverse)
{
	size_t i, n = strlen(pattern->memory);
	unsigned int want = callback ? pattern->callback : pattern->requests, hosts, round = 0;
	unsigned long long mixed, requests;
	struct nvfs_buffer bufs[8];
	struct io_event events[8];
	bool good = true;

	for (i = 0; i < n; i++)
		if (!is_host(pattern->memory[i]))
			bufs[i] = buffer(pattern->memory[i] == 'h');
	mixed = seen(4);
again:
	scheduler("mq-deadline");
	requests = seen(2);
	hosts = 1;
	nvfs_write_text(PARAMETERS "hold", "1");
	host_read(1024 * BLOCK, 'r');
	for (i = 0; i < n; i++) {
		size_t k = reverse ? n - 1 - i : i;

		if (is_host(pattern->memory[k])) {
			host_read(k * BLOCK, pattern->memory[k]);
			hosts++;
		} else if (nvfs_submit(&bufs[k], NVFS_IOCTL_READ, disk, k * BLOCK, BLOCK, 0)) {
			tap_bail("no asynchronous READ");
		}
	}
	nvfs_write_text(PARAMETERS "hold", "0");
	if (syscall(SYS_io_getevents, context, hosts, hosts, events, NULL) != hosts)
		tap_bail("io_getevents");
	for (i = 0; i < hosts; i++)
		good &= events[i].res == BLOCK;
	for (i = 0; i < n; i++)
		if (!is_host(pattern->memory[i]))
			good &= nvfs_wait(&bufs[i]) == BLOCK;
	scheduler("none");
	if (seen(2) - requests != want + 1 && good && ++round < ROUNDS)
		goto again;
	tap_ok(good, "%s%s: all were read", pattern->memory, reverse ? " reversed" : "");
	tap_is(seen(4) - mixed, 0, "no request has both kinds of memory");
	tap_is(seen(2) - requests, want + 1, "as many requests as kinds in turn");
	for (i = 0; i < n; i++) {
		if (!is_host(pattern->memory[i])) {
			int gpu = pattern->memory[i] == 'h';

			nvfs_unregister(&bufs[i]);
			gpu_free(&gpus[gpu], bufs[i].gpu_va);
		}
	}
}

/* Only a privileged program can have the priority of ours. */
static void test_privilege(void)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		if (setuid(NOBODY) ||
		    !syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, nearest(IOPRIO_CLASS_RT)))
			_exit(0);
		_exit(errno);
	}
	waitpid(child, &status, 0);
	tap_is(WEXITSTATUS(status), EPERM, "who has no privilege does not get our class");
}

int main(int argc, char **argv)
{
	cpu_set_t one;
	size_t i;

	/* The disk has a queue for each CPU. */
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	if (argc != 3)
		tap_bail("usage: merge DISK p2pdma|callback");
	callback = !strcmp(argv[2], "callback");
	name = strrchr(argv[1], '/') + 1;
	disk = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC);
	node = nvfs_open(0, O_RDWR);
	host = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
		    -1, 0);
	if (disk < 0 || node < 0 || host == MAP_FAILED || syscall(SYS_io_setup, 16, &context))
		tap_bail("disk %d, node %d", disk, node);
	for (i = 0; i < 2; i++)
		if (gpu_open(&gpus[i], i) || gpu_info(&gpus[i], &infos[i]))
			tap_bail("no GPU %zu", i);
	nvfs_set_parameter("p2pdma", callback ? "off" : "only");
	test_privilege();
	for (i = 0; i < 2 * sizeof(patterns) / sizeof(patterns[0]); i++)
		test(&patterns[i / 2], i % 2);
	nvfs_set_parameter("p2pdma", "auto");
	return tap_plan();
}
