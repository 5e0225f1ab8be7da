// SPDX-License-Identifier: GPL-2.0
/*
 * What an I/O costs, in instructions that the counting plugin tells (run --bench). Each measure is a
 * line `bench: {...}` for bench.py, with costs of one operation: of the cheapest repeat, and of the
 * dearest. A line `bench: {"bad": ...}` is a measure that does not count.
 *
 * usage: bench DISK PART...
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"
#include "counter.h"

#define BLOCK		4096UL
#define GPU_PAGE	65536UL
#define HUGE		(2 * MIB)
#define MOST		(128 * MIB)
#define BATCH		256
#define SEEN		"/sys/module/bench_disk/parameters/seen"

static const char *disk_path, *disk_kind;
static int disk, node, cpus;
static struct gpu gpu;
static struct fake_nvidia_info gpu_info_;

/* --- Counting. */

/* One measure: `run` does `ops` operations of `bytes` bytes each. */
struct measure {
	const char *what;
	const char *op;
	size_t size;		/* for the report */
	size_t shadow;
	size_t bytes;		/* that each operation moves */
	unsigned int ops;
	unsigned int repeats;
	bool host;		/* the bytes are host memory's */
	bool unseen;		/* the disk does not tell */
	bool (*run)(void *data, unsigned int ops);
	void *data;
};

static struct counts before, after;
static bool profiled;	/* the last repeat of each measure */

struct seen {
	unsigned long long gpu, host, requests, segments;
};

static struct seen seen_now(void)
{
	struct seen seen = {};
	char text[128];

	if (nvfs_read_text(SEEN, text, sizeof(text)) > 0)
		sscanf(text, "%llu %llu %llu %llu", &seen.gpu, &seen.host, &seen.requests,
		       &seen.segments);
	return seen;
}

/*
 * After boot the kernel still tests its ciphers, millions of instructions that would be counted with
 * the first measures. It has done when it does next to nothing while we do nothing.
 */
static void wait_until_quiet(void)
{
	struct timespec pause = { .tv_nsec = 100000000 };
	unsigned int i;

	for (i = 0; i < 600; i++) {
		COUNTER_ASK(COUNTER_READ, &before);
		nanosleep(&pause, NULL);
		COUNTER_ASK(COUNTER_READ, &after);
		if (after.kernel - before.kernel < 2000000)
			return;
	}
	tap_bail("the guest is never idle");
}

static uint64_t cost(uint64_t from, uint64_t to, unsigned int ops)
{
	return (to - from + ops / 2) / ops;
}

static void bad(const struct measure *m, const char *why)
{
	printf("bench: {\"bad\": \"%s %s %zu %zu: %s\"}\n", m->what, m->op, m->size, m->shadow, why);
	tap_ok(false, "%s %s of %zu bytes, shadow %zu: %s", m->what, m->op, m->size, m->shadow, why);
}

/* How often another thread took the CPU from this one. */
static long preempted(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) ? 0 : usage.ru_nivcsw;
}

static uint64_t measure(const struct measure *m)
{
	uint64_t least = UINT64_MAX, most = 0;
	struct counts best = {};
	struct seen seen = {}, then;
	unsigned int i, tries = 0;
	long switches;

	/* The first repeat is dropped: it makes what is made once. */
	for (i = 0; i <= m->repeats;) {
		uint64_t kernel, bytes = (uint64_t)m->bytes * m->ops;

		then = seen_now();
		switches = preempted();
		if (profiled && i == m->repeats)
			COUNTER_ASK(COUNTER_PROFILE_BEGIN, &before);
		COUNTER_ASK(COUNTER_READ, &before);
		if (!m->run(m->data, m->ops)) {
			bad(m, "failed");
			return 0;
		}
		COUNTER_ASK(COUNTER_READ, &after);
		if (profiled && i == m->repeats)
			COUNTER_ASK(COUNTER_PROFILE_END, &before);
		seen = seen_now();
		if (!m->unseen && (m->host ? seen.host - then.host : seen.gpu - then.gpu) != bytes) {
			bad(m, "not all bytes reached the disk as they should");
			return 0;
		}
		/* What others did meanwhile would be counted, too. */
		if (!profiled && preempted() != switches && tries++ < 100) {
			wait_until_quiet();
			continue;
		}
		if (!i++)
			continue;
		kernel = cost(before.kernel, after.kernel, m->ops);
		if (kernel > most)
			most = kernel;
		if (kernel >= least)
			continue;
		least = kernel;
		best.rep = cost(before.rep, after.rep, m->ops);
		best.user = cost(before.user, after.user, m->ops);
		best.atomic = cost(before.atomic, after.atomic, m->ops);
		best.apart = cost(before.apart, after.apart, m->ops);
	}
	printf("bench: {\"what\": \"%s\", \"op\": \"%s\", \"size\": %zu, \"shadow\": %zu, \"disk\": \"%s\", "
	       "\"cpus\": %d, \"ops\": %u, \"kernel\": %llu, \"most\": %llu, \"rep\": %llu, \"user\": %llu, "
	       "\"atomic\": %llu, \"apart\": %llu, \"requests\": %.3f, \"segments\": %.3f}\n",
	       m->what, m->op, m->size, m->shadow, disk_kind, cpus, m->ops, (unsigned long long)least,
	       (unsigned long long)most, (unsigned long long)best.rep, (unsigned long long)best.user,
	       (unsigned long long)best.atomic, (unsigned long long)best.apart,
	       (double)(seen.requests - then.requests) / m->ops,
	       (double)(seen.segments - then.segments) / m->ops);
	tap_ok(true, "%s %s of %zu bytes, shadow %zu: %llu instructions", m->what, m->op, m->size,
	       m->shadow, (unsigned long long)least);
	return least;
}

/* So many that a repeat is long against what a timer tick adds. */
static unsigned int ops_for(size_t size)
{
	return size <= 64 * KIB ? 400 : size <= MIB ? 40 : size <= 16 * MIB ? 4 : 1;
}

/* --- The references: O_DIRECT into host memory. */

struct host_io {
	char *memory;
	size_t size;
	int fd;
	bool write;
};

static bool host_run(void *data, unsigned int ops)
{
	struct host_io *io = data;

	while (ops--) {
		ssize_t n = io->write ? pwrite(io->fd, io->memory, io->size, 0)
				      : pread(io->fd, io->memory, io->size, 0);

		if (n != (ssize_t)io->size)
			return false;
	}
	return true;
}

/* Huge pages, or small ones of which no two neighbours are neighbours, as in a machine that runs long. */
static char *host_memory(size_t size, bool huge)
{
	size_t i, n = size / BLOCK, step = 17;
	char *memory = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	if (memory == MAP_FAILED)
		tap_bail("no host memory");
	memory = (char *)(((uintptr_t)memory + HUGE - 1) & ~(HUGE - 1));
	if (madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE))
		tap_bail("madvise: %s", strerror(errno));
	/* 17 and the number of pages have no common factor. */
	for (i = 0; i < n; i++)
		memory[huge ? i * BLOCK : i * step % n * BLOCK] = 1;
	return memory;
}

static void host_rows(const char *what, bool huge, const size_t *sizes, unsigned int n, bool writes)
{
	char *memory = host_memory(MOST, huge);
	unsigned int i, write;

	for (i = 0; i < n; i++) {
		for (write = 0; write <= writes; write++) {
			struct host_io io = { memory, sizes[i], disk, write };

			measure(&(struct measure){
				.what = what, .op = write ? "write" : "read", .size = sizes[i],
				.bytes = sizes[i], .ops = ops_for(sizes[i]), .repeats = 5,
				.host = true, .unseen = strcmp(disk_kind, "inline"), .run = host_run,
				.data = &io,
			});
		}
	}
	munmap(memory, MOST);
}

/* --- Ours. */

struct our_io {
	struct nvfs_buffer buf;
	union nvfs_ioctl_arg arg;
	unsigned long request;
	bool async;
};

static void our_prepare(struct our_io *io, int fd, unsigned long request, size_t size, bool async)
{
	io->request = request;
	io->async = async;
	io->arg = nvfs_io_arg(&io->buf, fd, 0, size, 0);
	if (async)
		io->arg.io.flags &= ~NVFS_IO_SYNC;
}

/* The result of an asynchronous request; it asks no clock unless it has to wait. */
static ssize_t settled(const struct nvfs_buffer *buf)
{
	if (nvfs_fence(buf) != buf->fence)
		return nvfs_wait(buf);
	return __atomic_load_n(&buf->meta->result, __ATOMIC_RELAXED);
}

static bool our_run(void *data, unsigned int ops)
{
	struct our_io *io = data;

	while (ops--) {
		if (io->async)
			io->arg.io.end_fence_value = ++io->buf.fence;
		if (ioctl(io->buf.node, io->request, &io->arg))
			return false;
		if (!io->async) {
			if (io->arg.io.ioctl_return != (int64_t)io->arg.io.size)
				return false;
		} else if (settled(&io->buf) != (ssize_t)io->arg.io.size) {
			return false;
		}
	}
	return true;
}

static void mode(const char *p2pdma)
{
	if (nvfs_set_parameter("p2pdma", p2pdma))
		tap_bail("parameter p2pdma");
}

static void buffer_make(struct nvfs_buffer *buf, uint64_t va, size_t size, size_t shadow)
{
	int ret = nvfs_register(buf, node, va, size, shadow, gpu_info_.pdevinfo);

	if (ret)
		tap_bail("no buffer of %zu bytes, shadow %zu: %d", size, shadow, ret);
}

static uint64_t gpu_make(size_t size, bool scrambled)
{
	uint64_t va;
	int ret = gpu_alloc(&gpu, size, scrambled ? FAKE_NVIDIA_SCRAMBLED : 0, &va);

	if (ret)
		tap_bail("no GPU memory: %d", ret);
	return va;
}

static void our_rows(const char *what, bool scrambled, size_t shadow, const size_t *sizes,
		     unsigned int n, bool writes)
{
	size_t most = sizes[n - 1] < GPU_PAGE ? GPU_PAGE : sizes[n - 1];
	uint64_t va = gpu_make(most, scrambled);
	struct our_io io;
	unsigned int i, write;

	buffer_make(&io.buf, va, most, shadow);
	for (i = 0; i < n; i++) {
		for (write = 0; write <= writes; write++) {
			our_prepare(&io, disk, write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, sizes[i],
				    false);
			measure(&(struct measure){
				.what = what, .op = write ? "write" : "read", .size = sizes[i],
				.shadow = shadow, .bytes = sizes[i], .ops = ops_for(sizes[i]),
				.repeats = 5, .unseen = strcmp(disk_kind, "inline"), .run = our_run,
				.data = &io,
			});
		}
	}
	nvfs_unregister(&io.buf);
	gpu_free(&gpu, va);
}

static void async_rows(const char *what, size_t size)
{
	uint64_t va = gpu_make(GPU_PAGE, false);
	struct our_io io;

	buffer_make(&io.buf, va, GPU_PAGE, 64 * KIB);
	our_prepare(&io, disk, NVFS_IOCTL_READ, size, true);
	measure(&(struct measure){
		.what = what, .op = "async read", .size = size, .shadow = 64 * KIB, .bytes = size,
		.ops = ops_for(size), .repeats = 5, .unseen = strcmp(disk_kind, "inline"),
		.run = our_run, .data = &io,
	});
	nvfs_unregister(&io.buf);
	gpu_free(&gpu, va);
}

/* --- Batches. */

struct aio {
	aio_context_t context;
	struct iocb iocbs[BATCH], *list[BATCH];
	struct io_event events[BATCH];
	bool fetch;
	long pending;
};

static bool aio_run(void *data, unsigned int ops)
{
	struct aio *aio = data;

	while (ops) {
		if (syscall(SYS_io_submit, aio->context, BATCH, aio->list) != BATCH)
			return false;
		aio->pending = BATCH;
		if (aio->fetch && syscall(SYS_io_getevents, aio->context, BATCH, BATCH, aio->events,
					  NULL) != BATCH)
			return false;
		ops -= BATCH;
	}
	return true;
}

static void aio_rows(void)
{
	static struct aio aio;
	char *memory = host_memory(MIB, false);
	unsigned int i;

	if (syscall(SYS_io_setup, 4 * BATCH, &aio.context))
		tap_bail("io_setup");
	for (i = 0; i < BATCH; i++) {
		aio.iocbs[i] = (struct iocb){
			.aio_fildes = disk, .aio_lio_opcode = IOCB_CMD_PREAD,
			.aio_buf = (uintptr_t)memory + i * BLOCK, .aio_nbytes = BLOCK,
			.aio_offset = i * BLOCK * 16,
		};
		aio.list[i] = &aio.iocbs[i];
	}
	aio.fetch = true;
	measure(&(struct measure){
		.what = "io_submit + io_getevents", .op = "batch", .size = BLOCK, .bytes = BLOCK,
		.ops = BATCH, .repeats = 6, .host = true, .unseen = strcmp(disk_kind, "inline"),
		.run = aio_run, .data = &aio,
	});
	/* Each submit finds room: the context takes four. */
	for (i = 0; i < 5; i++) {
		uint64_t cost_;

		COUNTER_ASK(COUNTER_READ, &before);
		if (syscall(SYS_io_submit, aio.context, BATCH, aio.list) != BATCH)
			tap_bail("io_submit");
		COUNTER_ASK(COUNTER_READ, &after);
		syscall(SYS_io_getevents, aio.context, BATCH, BATCH, aio.events, NULL);
		cost_ = cost(before.kernel, after.kernel, BATCH);
		if (!i || cost_ < (uint64_t)aio.pending)
			aio.pending = cost_;
	}
	printf("bench: {\"what\": \"io_submit\", \"op\": \"batch\", \"size\": 4096, \"shadow\": 0, "
	       "\"disk\": \"%s\", \"cpus\": %d, \"kernel\": %ld}\n", disk_kind, cpus, aio.pending);
	tap_diag("io_submit alone: %ld instructions", aio.pending);
	syscall(SYS_io_destroy, aio.context);
	munmap(memory, MIB);
}

struct batch {
	struct nvfs_buffer buf[BATCH];
	struct nvfs_ioctl_io entries[BATCH];
};

static bool batch_run(void *data, unsigned int ops)
{
	struct batch *batch = data;
	unsigned int i;

	while (ops) {
		union nvfs_ioctl_arg arg = {
			.batch = { .nents = BATCH, .io_entries = batch->entries },
		};

		for (i = 0; i < BATCH; i++)
			batch->entries[i].end_fence_value = ++batch->buf[i].fence;
		if (ioctl(node, NVFS_IOCTL_BATCH_IO, &arg))
			return false;
		for (i = 0; i < BATCH; i++)
			if (settled(&batch->buf[i]) != (ssize_t)BLOCK)
				return false;
		ops -= BATCH;
	}
	return true;
}

static void batch_rows(const char *what)
{
	static struct batch batch;
	uint64_t va = gpu_make(BATCH * GPU_PAGE, false);
	unsigned int i;

	for (i = 0; i < BATCH; i++) {
		struct our_io io;

		buffer_make(&batch.buf[i], va + i * GPU_PAGE, GPU_PAGE, 64 * KIB);
		io.buf = batch.buf[i];
		our_prepare(&io, disk, NVFS_IOCTL_READ, BLOCK, true);
		batch.entries[i] = io.arg.io;
		batch.entries[i].offset = i * BLOCK * 16;
	}
	measure(&(struct measure){
		.what = what, .op = "batch", .size = BLOCK, .shadow = 64 * KIB, .bytes = BLOCK,
		.ops = BATCH, .repeats = 6, .unseen = strcmp(disk_kind, "inline"), .run = batch_run,
		.data = &batch,
	});
	for (i = 0; i < BATCH; i++)
		nvfs_unregister(&batch.buf[i]);
	gpu_free(&gpu, va);
}

/* --- Registration. */

struct registration {
	uint64_t va;
	size_t size, shadow;
	bool io;		/* with a first READ */
	struct counts mmap, map, first, unmap, late;
};

enum { PAUSE_US = 20000 };

static void add(struct counts *sum)
{
	COUNTER_ASK(COUNTER_READ, &after);
	sum->kernel += after.kernel - before.kernel;
	sum->rep += after.rep - before.rep;
	sum->apart += after.apart - before.apart;
	before = after;
}

static bool registration_once(struct registration *r, int meta_shift)
{
	static char meta[2][BLOCK] __attribute__((aligned(4096)));
	struct nvfs_buffer buf = {
		.node = node, .window = r->shadow, .gpu_va = r->va, .gpu_size = r->size,
		.pdevinfo = gpu_info_.pdevinfo, .meta = (void *)meta[meta_shift],
	};
	union nvfs_ioctl_arg arg;
	bool good;

	meta[meta_shift][0] = 0;
	COUNTER_ASK(COUNTER_READ, &before);
	buf.shadow = nvfs_mmap(node, r->shadow);
	add(&r->mmap);
	if (!buf.shadow)
		return false;
	arg = nvfs_map_arg(&buf);
	good = !ioctl(node, NVFS_IOCTL_MAP, &arg);
	add(&r->map);
	if (good && r->io) {
		arg = nvfs_io_arg(&buf, disk, 0, BLOCK, 0);
		before = after;
		good = !ioctl(node, NVFS_IOCTL_READ, &arg) && arg.io.ioctl_return == (int64_t)BLOCK;
		add(&r->first);
	}
	before = after;
	munmap(buf.shadow, r->shadow);
	add(&r->unmap);
	/* What was put off to a work queue is part of it. */
	usleep(PAUSE_US);
	add(&r->late);
	return good;
}

static void registration_row(const char *what, size_t size, size_t shadow, bool io)
{
	struct registration r = { .va = gpu_make(size, false), .size = size, .shadow = shadow, .io = io };
	struct counts idle = {};
	const unsigned int n = 8;
	unsigned int i;
	bool good = registration_once(&r, 0);
	struct {
		const char *step;
		struct counts *counts;
	} steps[] = { { "mmap", &r.mmap }, { "MAP", &r.map }, { "first READ", &r.first },
		      { "munmap", &r.unmap } };

	memset(&r.mmap, 0, sizeof(r.mmap));
	memset(&r.map, 0, sizeof(r.map));
	memset(&r.first, 0, sizeof(r.first));
	memset(&r.unmap, 0, sizeof(r.unmap));
	memset(&r.late, 0, sizeof(r.late));
	for (i = 0; good && i < n; i++)
		good = registration_once(&r, 0);
	gpu_free(&gpu, r.va);
	tap_ok(good, "%s: registration of %zu bytes, shadow %zu", what, size, shadow);
	COUNTER_ASK(COUNTER_READ, &before);
	for (i = 0; i < n; i++)
		usleep(PAUSE_US);
	add(&idle);
	if (r.late.kernel > idle.kernel)
		r.unmap.kernel += r.late.kernel - idle.kernel;
	r.unmap.rep += r.late.rep;
	r.unmap.apart += r.late.apart;
	for (i = 0; good && i < 4; i++)
		printf("bench: {\"what\": \"%s\", \"op\": \"%s\", \"size\": %zu, \"shadow\": %zu, "
		       "\"disk\": \"%s\", \"cpus\": %d, \"kernel\": %llu, \"rep\": %llu, \"apart\": %llu}\n",
		       what, steps[i].step, size, shadow, disk_kind, cpus,
		       (unsigned long long)(steps[i].counts->kernel / n),
		       (unsigned long long)(steps[i].counts->rep / n),
		       (unsigned long long)(steps[i].counts->apart / n));
	tap_diag("mmap %llu, MAP %llu, first READ %llu, munmap %llu; rep %llu, of the GPU driver %llu",
		 (unsigned long long)(r.mmap.kernel / n), (unsigned long long)(r.map.kernel / n),
		 (unsigned long long)(r.first.kernel / n), (unsigned long long)(r.unmap.kernel / n),
		 (unsigned long long)((r.mmap.rep + r.map.rep + r.first.rep + r.unmap.rep) / n),
		 (unsigned long long)((r.map.apart + r.unmap.apart) / n));
}

static long long memory_free(void)
{
	char text[4096];
	const char *line;

	if (nvfs_read_text("/proc/meminfo", text, sizeof(text)) < 0)
		return 0;
	line = strstr(text, "MemFree:");
	return line ? atoll(line + 8) * 1024 : 0;
}

/* Host memory that a buffer takes: with MAP and a first READ, nothing of its shadow memory touched. */
static void memory_row(const char *what, size_t size, size_t shadow)
{
	enum { N = 256 };
	static struct nvfs_buffer buf[N];
	uint64_t va = gpu_make(size, false);
	struct our_io io;
	long long start, end;
	unsigned int i;

	for (i = 0; i < 2 * N; i++) {
		if (i == N / 2)
			start = memory_free();
		if (i == N + N / 2)
			break;
		buffer_make(&buf[i % N], va, size, shadow);
		io.buf = buf[i % N];
		our_prepare(&io, disk, NVFS_IOCTL_READ, BLOCK, false);
		if (!our_run(&io, 1))
			tap_bail("first READ");
		if (i < N / 2)
			nvfs_unregister(&buf[i]);
	}
	end = memory_free();
	printf("bench: {\"what\": \"%s\", \"op\": \"memory\", \"size\": %zu, \"shadow\": %zu, \"disk\": \"%s\", "
	       "\"cpus\": %d, \"bytes\": %lld}\n", what, size, shadow, disk_kind, cpus, (start - end) / N);
	tap_ok(true, "%s: a buffer of %zu bytes takes %lld bytes of host memory", what, size,
	       (start - end) / N);
	for (i = 0; i < N; i++)
		nvfs_unregister(&buf[i]);
	gpu_free(&gpu, va);
}

/* --- Several CPUs. */

struct worker {
	pthread_t thread;
	pthread_barrier_t *barrier;
	struct our_io io;
	int cpu;
	bool good;
};

enum { WORKER_OPS = 1000, ROUNDS = 20 };

static void *work(void *data)
{
	struct worker *w = data;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(w->cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	our_run(&w->io, 10);
	/* Ready; and go, once the counters were read. */
	pthread_barrier_wait(w->barrier);
	pthread_barrier_wait(w->barrier);
	w->good = our_run(&w->io, WORKER_OPS);
	pthread_barrier_wait(w->barrier);
	return NULL;
}

/* The same work on one CPU, and on each of all at once. */
static void scaling_row(const char *what, int n)
{
	static struct worker workers[16];
	pthread_barrier_t barrier;
	uint64_t va = gpu_make(16 * GPU_PAGE, false);
	uint64_t least = UINT64_MAX, most = 0;
	unsigned int i, round;
	bool good = true;

	for (round = 0; round < ROUNDS; round++) {
		uint64_t kernel;

		pthread_barrier_init(&barrier, NULL, n + 1);
		for (i = 0; i < (unsigned int)n; i++) {
			workers[i].cpu = i;
			workers[i].barrier = &barrier;
			buffer_make(&workers[i].io.buf, va + i * GPU_PAGE, GPU_PAGE, 64 * KIB);
			our_prepare(&workers[i].io, disk, NVFS_IOCTL_READ, BLOCK, false);
			pthread_create(&workers[i].thread, NULL, work, &workers[i]);
		}
		pthread_barrier_wait(&barrier);
		if (profiled && round == ROUNDS - 1)
			COUNTER_ASK(COUNTER_PROFILE_BEGIN, &before);
		COUNTER_ASK(COUNTER_READ, &before);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		COUNTER_ASK(COUNTER_READ, &after);
		if (profiled && round == ROUNDS - 1)
			COUNTER_ASK(COUNTER_PROFILE_END, &before);
		for (i = 0; i < (unsigned int)n; i++) {
			pthread_join(workers[i].thread, NULL);
			good &= workers[i].good;
			nvfs_unregister(&workers[i].io.buf);
		}
		kernel = cost(before.kernel, after.kernel, n * WORKER_OPS);
		if (kernel < least)
			least = kernel;
		if (kernel > most)
			most = kernel;
	}
	gpu_free(&gpu, va);
	tap_ok(good, "%s: %d CPUs at once: %llu instructions", what, n, (unsigned long long)least);
	printf("bench: {\"what\": \"%s\", \"op\": \"read by %d\", \"size\": 4096, \"shadow\": 65536, "
	       "\"disk\": \"%s\", \"cpus\": %d, \"ops\": %u, \"kernel\": %llu, \"most\": %llu}\n", what, n,
	       disk_kind, cpus, n * WORKER_OPS, (unsigned long long)least, (unsigned long long)most);
}

/* --- The parts. */

static const size_t all_sizes[] = { 4 * KIB, 64 * KIB, MIB, 16 * MIB, MOST };
static const size_t few_sizes[] = { 4 * KIB, 64 * KIB, MIB };
static const size_t shadows[] = { 64 * KIB, MIB, 16 * MIB };

#define SIZES(list)	list, sizeof(list) / sizeof((list)[0])

/* Text of the stand-in GPU driver is counted apart; before any of it has run. */
static void set_apart(void)
{
	char line[256], *end;
	FILE *file = fopen("/proc/kallsyms", "r");
	uint64_t range[2] = { UINT64_MAX, 0 };

	while (file && fgets(line, sizeof(line), file)) {
		uint64_t address = strtoull(line, &end, 16);

		if (!strstr(end, "[fake_nvidia]") || (end[1] | 0x20) != 't')
			continue;
		if (address < range[0])
			range[0] = address;
		if (address > range[1])
			range[1] = address;
	}
	if (file)
		fclose(file);
	if (range[1]) {
		range[1] = (range[1] | (BLOCK - 1)) + 1;
		COUNTER_ASK(COUNTER_APART, range);
	}
}

static void open_ours(void)
{
	if (gpu.fd > 0)
		return;
	set_apart();
	if (gpu_open(&gpu, 0) || gpu_info(&gpu, &gpu_info_))
		tap_bail("no GPU");
	node = nvfs_open(0, O_RDWR);
	if (node < 0)
		tap_bail("no node: %d", node);
}

/*
 * A READ of 4 KiB costs at most 3 % more than it did, in thousandths of a pread of the same disk in the
 * same boot: P2PDMA:CALLBACK.
 */
static void check(const char *recorded)
{
	static const char *const whats[] = { "p2pdma", "callback" };
	static const char *const modes[] = { "only", "auto" };
	static char *memory;
	unsigned int i, was[2];
	uint64_t reference;

	if (sscanf(recorded, "%u:%u", &was[0], &was[1]) != 2)
		tap_bail("check=P2PDMA:CALLBACK");
	memory = host_memory(HUGE, false);
	for (i = 0; i < 2; i++) {
		struct host_io host = { memory, BLOCK, disk, false };
		uint64_t va = gpu_make(GPU_PAGE, false), cost;
		struct our_io io;

		mode(modes[i]);
		reference = measure(&(struct measure){
			.what = "pread with tables", .op = "read", .size = BLOCK, .bytes = BLOCK,
			.ops = ops_for(BLOCK), .repeats = 5, .host = true, .run = host_run, .data = &host,
		});
		buffer_make(&io.buf, va, GPU_PAGE, 64 * KIB);
		our_prepare(&io, disk, NVFS_IOCTL_READ, BLOCK, false);
		cost = measure(&(struct measure){
			.what = whats[i], .op = "read", .size = BLOCK, .shadow = 64 * KIB, .bytes = BLOCK,
			.ops = ops_for(BLOCK), .repeats = 5, .run = our_run, .data = &io,
		});
		nvfs_unregister(&io.buf);
		gpu_free(&gpu, va);
		cost = reference ? cost * 1000 / reference : 0;
		tap_ok(cost && cost * 100 <= was[i] * 103ULL,
		       "a READ of 4 KiB by %s costs %llu thousandths of a pread, recorded are %u", whats[i],
		       (unsigned long long)cost, was[i]);
	}
}

static void part(const char *name)
{
	unsigned int i;

	tap_diag("part: %s", name);
	if (strncmp(name, "ref", 3))
		open_ours();
	if (!strcmp(name, "ref")) {
		host_rows("pread", false, SIZES(all_sizes), true);
		host_rows("pread huge", true, SIZES(all_sizes), true);
		aio_rows();
	} else if (!strcmp(name, "ref-quick")) {
		host_rows("pread", false, SIZES(few_sizes), false);
		host_rows("pread huge", true, SIZES(few_sizes), false);
		aio_rows();
	} else if (!strcmp(name, "ref-4k")) {
		host_rows("pread", false, all_sizes, 1, false);
	} else if (!strncmp(name, "check=", 6)) {
		check(name + 6);
	} else if (!strcmp(name, "nvme")) {
		mode("only");
		our_rows("p2pdma", false, 64 * KIB, SIZES(few_sizes), false);
	} else if (!strcmp(name, "p2pdma-4k")) {
		mode("only");
		our_rows("p2pdma", false, 64 * KIB, all_sizes, 1, false);
	} else if (!strcmp(name, "callback-4k")) {
		mode("auto");
		our_rows("callback", false, 64 * KIB, all_sizes, 1, false);
	} else if (!strcmp(name, "others")) {
		/* Their own O_DIRECT, while our tables are registered. */
		host_rows("pread with tables", false, SIZES(few_sizes), false);
		host_rows("pread huge with tables", true, SIZES(few_sizes), false);
	} else if (!strcmp(name, "p2pdma")) {
		mode("only");
		our_rows("p2pdma", false, 64 * KIB, SIZES(all_sizes), true);
		our_rows("p2pdma scrambled", true, 64 * KIB, SIZES(all_sizes), false);
		async_rows("p2pdma", 4 * KIB);
		async_rows("p2pdma", 64 * KIB);
		batch_rows("p2pdma");
	} else if (!strcmp(name, "p2pdma-quick")) {
		mode("only");
		our_rows("p2pdma", false, 64 * KIB, SIZES(few_sizes), true);
		our_rows("p2pdma scrambled", true, 64 * KIB, SIZES(few_sizes), false);
		batch_rows("p2pdma");
	} else if (!strcmp(name, "callback")) {
		mode("auto");
		for (i = 0; i < 3; i++) {
			our_rows("callback", false, shadows[i], SIZES(all_sizes), true);
			our_rows("callback scrambled", true, shadows[i], SIZES(all_sizes), false);
		}
		async_rows("callback", 4 * KIB);
		async_rows("callback", 64 * KIB);
		batch_rows("callback");
	} else if (!strcmp(name, "callback-quick")) {
		mode("auto");
		our_rows("callback", false, 64 * KIB, SIZES(few_sizes), true);
		our_rows("callback", false, 16 * MIB, SIZES(few_sizes), true);
		our_rows("callback scrambled", true, 16 * MIB, SIZES(few_sizes), false);
	} else if (!strcmp(name, "registration")) {
		mode("only");
		registration_row("p2pdma", 64 * KIB, 64 * KIB, true);
		registration_row("p2pdma", 16 * MIB, 16 * MIB, false);
		registration_row("p2pdma with READ", 16 * MIB, 16 * MIB, true);
		registration_row("p2pdma", 256 * MIB, 16 * MIB, true);
		memory_row("p2pdma", 16 * MIB, 16 * MIB);
		mode("auto");
		registration_row("callback", 64 * KIB, 64 * KIB, true);
		registration_row("callback", 16 * MIB, 16 * MIB, true);
		registration_row("callback", 256 * MIB, 16 * MIB, true);
	} else if (!strcmp(name, "registration-quick")) {
		mode("only");
		registration_row("p2pdma", 16 * MIB, 16 * MIB, false);
		memory_row("p2pdma", 16 * MIB, 16 * MIB);
		mode("auto");
		registration_row("callback", 16 * MIB, 16 * MIB, true);
	} else if (!strcmp(name, "statistics")) {
		mode("only");
		nvfs_set_parameter("rw_stats_enabled", "1");
		our_rows("p2pdma with statistics", false, 64 * KIB, all_sizes, 1, false);
		mode("auto");
		our_rows("callback with statistics", false, 64 * KIB, all_sizes, 1, false);
		nvfs_set_parameter("rw_stats_enabled", "0");
	} else if (!strcmp(name, "scaling")) {
		mode("only");
		for (i = 1; i <= (unsigned int)cpus; i *= 2)
			scaling_row("p2pdma", i);
		mode("auto");
		for (i = 1; i <= (unsigned int)cpus; i *= 2)
			scaling_row("callback", i);
	} else {
		tap_bail("no such part: %s", name);
	}
	if (node > 0)
		mode("auto");
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 3)
		tap_bail("usage: bench DISK PART...");
	disk_path = argv[1];
	disk_kind = strstr(disk_path, "bench_disk") ? "inline" : strstr(disk_path, "/mnt") ? "ext4" : "nvme";
	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	disk = open(disk_path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (disk < 0)
		tap_bail("%s: %s", disk_path, strerror(errno));
	COUNTER_ASK(COUNTER_READ, &before);
	if (!before.kernel)
		tap_bail("there is no counting plugin: run --bench");
	wait_until_quiet();
	profiled = getenv("PROFILE");
	for (i = 2; i < argc; i++)
		part(argv[i]);
	return tap_plan();
}
