// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a buffer while a transfer is under way: GPU memory freed, munmap, everything closed,
 * SIGKILL, at moments that differ from round to round. Afterwards nothing may be left.
 *
 * usage: life FILE ROUNDS; WAY=callback in the environment says that the drive's driver has hooks
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE (4 * MIB)

enum way { FREE, UNMAP, CLOSE, KILL, NR_WAYS };

static const char *const way_names[] = {
	"GPU memory freed during I/O", "munmap during I/O", "close during I/O", "SIGKILL from MAP on",
};

static const char *path;
static bool callback;

struct round {
	struct gpu gpu;
	struct nvfs_buffer buf;
	uint64_t va;
	uint64_t first_page;	/* where it lies in the BAR */
	int node, fd;
	bool async, write;
	ssize_t result;
};

/* Where a child was that was killed; shared with it. */
enum stage { BEGUN, MAPPED, AGAIN, NR_STAGES };

static const char *const stage_names[] = { "in MAP", "in the first transfer", "in a later one" };
static int *stage;
static unsigned int kills[NR_STAGES];

/* How often freed memory went to the next owner while a transfer could still be there. */
static unsigned int reused;

/* A pause of up to a millisecond, which is no synchronisation: only where the race falls. */
static void drift(unsigned int round)
{
	struct timespec pause = { .tv_nsec = (round * 7919 % 97) * 10000 };

	nanosleep(&pause, NULL);
}

/* Tells `ready`, unless it is -1, before the MAP. */
static void begin(struct round *r, unsigned int round, int ready)
{
	struct fake_nvidia_info info;
	uint64_t run;

	memset(r, 0, sizeof(*r));
	r->async = round & 1;
	r->write = round & 2;
	r->node = nvfs_open(round % 16, O_RDWR);
	r->fd = open(path, O_RDWR | O_DIRECT);
	if (r->node < 0 || r->fd < 0 || gpu_open(&r->gpu, 0) || gpu_info(&r->gpu, &info) ||
	    gpu_alloc(&r->gpu, SIZE, round & 4 ? FAKE_NVIDIA_SCRAMBLED : 0, &r->va) ||
	    gpu_where(&r->gpu, r->va, &r->first_page, &run) ||
	    (ready >= 0 && write(ready, "", 1) != 1) ||
	    nvfs_register(&r->buf, r->node, r->va, SIZE, MIB, info.pdevinfo))
		tap_bail("round %u does not begin: %s", round, strerror(errno));
}

/*
 * The next owner of the memory fills it with a byte that no transfer of this test carries, as soon
 * as the free call is back.
 */
static bool next_owner(struct round *r, unsigned int round, uint64_t *va)
{
	uint64_t first_page, run;

	if (gpu_alloc(&r->gpu, SIZE, round & 4 ? FAKE_NVIDIA_SCRAMBLED : 0, va) ||
	    gpu_where(&r->gpu, *va, &first_page, &run) || gpu_set(&r->gpu, *va, 0x5a, SIZE))
		return false;
	reused += first_page == r->first_page;
	return true;
}

static void *io(void *arg)
{
	struct round *r = arg;

	if (r->async)
		r->result = nvfs_submit(&r->buf, r->write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ,
					r->fd, 0, SIZE, 0);
	else
		r->result = r->write ? nvfs_write(&r->buf, r->fd, 0, SIZE, 0) :
				       nvfs_read(&r->buf, r->fd, 0, SIZE, 0);
	return NULL;
}

/*
 * A child that transfers for ever. In one half of the rounds the kill comes when it has mapped its
 * buffer, in the others from just before that on.
 */
static bool killed_round(unsigned int round)
{
	static unsigned int seed = 1;
	struct timespec pause = { .tv_nsec = rand_r(&seed) % 20000 * 1000L };
	bool mapped = round & 8;
	int ready[2], status;
	struct round r;
	bool good;
	pid_t child;
	char byte;

	if (pipe(ready))
		return false;
	__atomic_store_n(stage, BEGUN, __ATOMIC_RELAXED);
	child = fork();
	if (child < 0)
		return false;
	if (!child) {
		begin(&r, round, mapped ? -1 : ready[1]);
		__atomic_store_n(stage, MAPPED, __ATOMIC_RELAXED);
		if (mapped && write(ready[1], "", 1) != 1)
			_exit(3);
		for (;;) {
			io(&r);
			if (r.async && r.result == 0)
				nvfs_wait(&r.buf);
			__atomic_store_n(stage, AGAIN, __ATOMIC_RELAXED);
		}
	}
	close(ready[1]);
	good = read(ready[0], &byte, 1) == 1;
	close(ready[0]);
	/* No synchronisation either. */
	nanosleep(&pause, NULL);
	kill(child, SIGKILL);
	good = waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGKILL && good;
	kills[__atomic_load_n(stage, __ATOMIC_RELAXED)]++;
	return good;
}

static bool all_are(struct round *r, uint64_t va, uint8_t byte)
{
	static uint8_t memory[SIZE];
	size_t i;

	if (gpu_read(&r->gpu, va, memory, SIZE))
		return false;
	for (i = 0; i < SIZE; i++) {
		if (memory[i] != byte) {
			tap_diag("byte %zu of the next owner is %#x", i, memory[i]);
			return false;
		}
	}
	return true;
}

static bool one_round(enum way way, unsigned int round)
{
	struct round r;
	pthread_t thread;
	bool good = true;
	uint64_t next;

	if (way == KILL)
		return killed_round(round);
	begin(&r, round, -1);
	if (pthread_create(&thread, NULL, io, &r))
		return false;
	drift(round);
	switch (way) {
	case FREE:
		good = !gpu_free(&r.gpu, r.va) && next_owner(&r, round, &next);
		break;
	case UNMAP:
		munmap(r.buf.shadow, r.buf.window);
		break;
	default:
		close(r.node);
		gpu_close(&r.gpu);
	}
	pthread_join(thread, NULL);
	/* A request that was there first ends by itself, into the meta block. */
	if (r.async && r.result == 0)
		good = nvfs_wait(&r.buf) != -ETIMEDOUT && good;
	if (way == FREE && good)
		good = all_are(&r, next, 0x5a);
	/* -EPROTO: the node was closed before the request came, so it ended with EBADF. */
	if (r.result < 0 && r.result != -EIO && r.result != -EBUSY && r.result != -EINVAL &&
	    !(way == CLOSE && r.result == -EPROTO) &&
	    /* With hooks, the file system itself may miss the shadow buffer. */
	    !(way == UNMAP && callback && r.result == -EFAULT)) {
		tap_diag("%s, round %u: %zd", way_names[way], round, r.result);
		good = false;
	}
	if (way != UNMAP)
		nvfs_unregister(&r.buf);
	else
		munmap(r.buf.meta, 4096);
	close(r.fd);
	if (way != CLOSE) {
		close(r.node);
		gpu_close(&r.gpu);
	}
	return good;
}

/* Memory that is free, without what caches and the lists of each CPU hold back. */
static long long available(void)
{
	nvfs_write_text("/proc/sys/vm/drop_caches", "3");
	nvfs_write_text("/proc/sys/vm/compact_memory", "1");
	return nvfs_number("/proc/meminfo", "MemAvailable:");
}

/* Waits, by the clock, for what the last dying process still holds. */
static bool settles(struct gpu *gpu, struct fake_nvidia_counts *counts)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;

	do {
		if (gpu_counts(gpu, counts))
			return false;
		/* A put that is done is counted after its table went. */
		if (!counts->tables && !counts->pinned_pages &&
		    nvfs_stat("Bar1-map", "active") == 0)
			return !gpu_counts(gpu, counts);
		sched_yield();
	} while (nvfs_seconds() < end);
	return false;
}

int main(int argc, char **argv)
{
	struct fake_nvidia_counts counts;
	unsigned int legacy, way, round, rounds, bad, all, i;
	long long before, after;
	struct gpu gpu;
	double end;

	if (argc != 3)
		tap_bail("usage: %s FILE ROUNDS", argv[0]);
	path = argv[1];
	rounds = atoi(argv[2]);
	callback = getenv("WAY") && !strcmp(getenv("WAY"), "callback");
	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (stage == MAP_FAILED)
		tap_bail("no memory");
	/* What the kernel keeps for the next time is there before the first look at the memory. */
	for (way = 0; way < NR_WAYS; way++)
		for (round = 0; round < 40; round++)
			one_round(way, round);
	before = available();
	reused = 0;
	for (legacy = 0; legacy < 2; legacy++) {
		nvfs_set_parameter("use_legacy_p2p_allocation", legacy ? "1" : "0");
		for (way = 0; way < NR_WAYS; way++) {
			for (round = bad = 0; round < rounds; round++)
				bad += !one_round(way, round);
			tap_is(bad, 0, "%s, %s pins, %u rounds", way_names[way],
			       legacy ? "legacy" : "persistent", rounds);
		}
	}
	for (i = all = 0; i < NR_STAGES; i++) {
		tap_diag("SIGKILL %s: %u", stage_names[i], kills[i]);
		all += kills[i];
	}
	tap_is(all, 40 + 2 * rounds, "as many were killed");
	tap_ok(kills[MAPPED] + kills[AGAIN] >= 16, "many of them in a transfer");
	if (gpu_open(&gpu, 0))
		tap_bail("no GPU");
	tap_ok(settles(&gpu, &counts), "no pin and no page table is left");
	tap_diag("%llu gets, %llu persistent, %llu callbacks", (unsigned long long)
		 counts.ok[FAKE_NVIDIA_GET_PAGES], (unsigned long long)
		 counts.ok[FAKE_NVIDIA_GET_PAGES_PERSISTENT],
		 (unsigned long long)counts.callbacks);
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	tap_is(counts.callbacks_done, counts.callbacks, "each callback returned");
	tap_is(counts.ok[FAKE_NVIDIA_PUT_PAGES_PERSISTENT],
	       counts.ok[FAKE_NVIDIA_GET_PAGES_PERSISTENT], "persistent: as many puts as gets");
	tap_is(counts.ok[FAKE_NVIDIA_FREE_PAGE_TABLE], counts.callbacks,
	       "legacy: each callback freed its table");
	tap_ok(counts.ok[FAKE_NVIDIA_PUT_PAGES] + counts.callbacks >=
	       counts.ok[FAKE_NVIDIA_GET_PAGES], "legacy: puts and callbacks cover the gets");
	tap_ok(reused >= rounds / 2, "freed memory went to another owner %u times, unharmed",
	       reused);
	/* Folds the counters of all CPUs. */
	nvfs_write_text("/proc/sys/vm/stat_refresh", "1");
	tap_ok(nvfs_number("/proc/vmstat", "nr_foll_pin_acquired") > 0, "user pages were pinned");
	tap_is(nvfs_number("/proc/vmstat", "nr_foll_pin_released"),
	       nvfs_number("/proc/vmstat", "nr_foll_pin_acquired"), "no user page is left pinned");
	/* The lists of each CPU go back by and by; a leak of 1,600 rounds would not. */
	end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	do
		after = available();
	while (before - after >= 8192 && nvfs_seconds() < end);
	/* On the debug kernel KASAN keeps what was freed, and kmemleak looks for leaks. */
	if (before - after >= 8192 && getenv("TB_FLAVOUR") && !strcmp(getenv("TB_FLAVOUR"), "debug"))
		tap_skip("KASAN keeps freed memory", "MemAvailable is what it was");
	else
		tap_ok(before - after < 8192, "MemAvailable is what it was: %lld KiB, then %lld", before,
		       after);
	return tap_plan();
}
