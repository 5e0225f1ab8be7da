// SPDX-License-Identifier: GPL-2.0
/*
 * 16 threads that mmap, MAP, read and munmap buffers of their own, with two drives, while their GPU
 * memory is freed at random moments. What a read brings is right, and nobody else's memory changes.
 *
 * usage: churn SECONDS SEED FILE FILE
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define THREADS		16
#define FILE_SIZE	(8 * MIB)
#define GPU_SIZE	(512 * KIB)
#define WINDOW		(128 * KIB)

static struct gpu gpus[2];
static struct fake_nvidia_info info[2];
static const char *paths[2];
static bool stop;

static struct thread {
	pthread_t id;
	unsigned int number;
	uint64_t state;
	uint64_t va;		/* 0: nothing to be freed */
	uint64_t rounds, right, freed, left, full, bad;
	char *seen;
} threads[THREADS];

static uint64_t roll(uint64_t *state, uint64_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state % below;
}

static void wrong(struct thread *t, const char *what, ssize_t n)
{
	if (t->bad++ < 3)
		tap_diag("thread %u, round %llu: %s: %zd", t->number,
			 (unsigned long long)t->rounds, what, n);
}

/* `bytes` of the file from `offset` on are there, and nothing else changed. */
static bool right(struct thread *t, struct gpu *gpu, uint64_t va, uint64_t at, uint64_t offset,
		  uint64_t bytes, unsigned int file)
{
	uint64_t i;

	if (gpu_read(gpu, va, t->seen, GPU_SIZE))
		return false;
	if (pattern_check(t->seen + at, bytes, 600 + file, offset / 8) != -1)
		return false;
	for (i = 0; i < GPU_SIZE; i++)
		if ((i < at || i >= at + bytes) && t->seen[i] != (char)0xa5)
			return false;
	return true;
}

/* Takes the memory back from whoever may free it; false: it was freed. */
static bool claim(struct thread *t, bool shared)
{
	return !shared || __atomic_exchange_n(&t->va, 0, __ATOMIC_SEQ_CST);
}

/* One read of a part. False: the buffer is of no use any more. */
static bool one_read(struct thread *t, struct nvfs_buffer *buf, unsigned int which, bool shared,
		     const int *fds, bool last)
{
	uint64_t size = (roll(&t->state, GPU_SIZE / 4096) + 1) * 4096, told = size;
	uint64_t at = roll(&t->state, (GPU_SIZE - size) / NVFS_GPU_PAGE_SIZE + 1) * NVFS_GPU_PAGE_SIZE;
	uint64_t offset = roll(&t->state, (FILE_SIZE - size) / 4096) * 4096;
	unsigned int file = roll(&t->state, 2);
	bool async = roll(&t->state, 2);
	ssize_t n;

	gpu_set(&gpus[which], buf->gpu_va, 0xa5, GPU_SIZE);
	if (shared)
		__atomic_store_n(&t->va, buf->gpu_va | which, __ATOMIC_SEQ_CST);
	if (async) {
		n = nvfs_submit(buf, NVFS_IOCTL_READ, fds[file], offset, size, at);
		told = size < WINDOW ? size : WINDOW;
		/* The last one may be left to itself. */
		if (n >= 0 && last && roll(&t->state, 2)) {
			t->left++;
			return false;
		}
		n = n < 0 ? n : nvfs_wait(buf);
	} else {
		n = nvfs_read(buf, fds[file], offset, size, at);
	}
	if (!claim(t, shared)) {
		t->freed++;
		if (n != (ssize_t)told && n != -EIO && n != -EBUSY && n != -EINVAL)
			wrong(t, "result after a free", n);
		return false;
	}
	if (n != (ssize_t)told)
		wrong(t, "result", n);
	else if (!right(t, &gpus[which], buf->gpu_va, at, offset, told, file))
		wrong(t, "data", n);
	t->right += n == (ssize_t)told;
	return true;
}

static void one_round(struct thread *t, const int *fds, int node)
{
	unsigned int which = roll(&t->state, 2), i;
	/* Two in three may be freed while they are used. */
	bool shared = roll(&t->state, 3), alive = true;
	struct nvfs_buffer buf = { 0 };
	uint64_t va;
	int ret;

	ret = gpu_alloc(&gpus[which], GPU_SIZE, roll(&t->state, 2) ? FAKE_NVIDIA_SCRAMBLED : 0,
			&va);
	/* Memory that was freed is gone only when its pins are. */
	if (ret) {
		t->full++;
		return;
	}
	if (shared)
		__atomic_store_n(&t->va, va | which, __ATOMIC_SEQ_CST);
	ret = nvfs_register(&buf, node, va, GPU_SIZE, WINDOW, info[which].pdevinfo);
	alive = claim(t, shared);
	if (alive && ret)
		wrong(t, "MAP", ret);
	for (i = roll(&t->state, 4); !ret && alive && i < 4; i++) {
		if (!one_read(t, &buf, which, shared, fds, i == 3)) {
			/* What was left to itself is still shared. */
			alive = i == 3 && claim(t, shared);
			break;
		}
	}
	nvfs_unregister(&buf);
	if (alive)
		gpu_free(&gpus[which], va);
	t->rounds++;
}

static void *churn(void *arg)
{
	struct thread *t = arg;
	int fds[2], node = nvfs_open(t->number, O_RDWR);

	fds[0] = open(paths[0], O_RDONLY | O_DIRECT);
	fds[1] = open(paths[1], O_RDONLY | O_DIRECT);
	t->seen = malloc(GPU_SIZE);
	if (node < 0 || fds[0] < 0 || fds[1] < 0 || !t->seen)
		tap_bail("thread %u: no node or file", t->number);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && t->bad < 3) {
		one_round(t, fds, node);
		/* A node of its own, now and then. */
		if (!roll(&t->state, 20)) {
			close(node);
			node = nvfs_open(t->number, O_RDWR);
		}
	}
	close(node);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t rounds = 0, reads = 0, freed = 0, left = 0, bad = 0, full = 0, state, legacy = 0;
	double end;
	unsigned int i, seed;

	if (argc != 5)
		tap_bail("usage: %s SECONDS SEED FILE FILE", argv[0]);
	seed = strtoul(argv[2], NULL, 0);
	if (!seed)
		seed = (unsigned int)(nvfs_seconds() * 1e6) | 1;
	tap_diag("seed %u", seed);
	state = seed * 0x9e3779b97f4a7c15;
	for (i = 0; i < 2; i++) {
		int fd;

		paths[i] = argv[3 + i];
		fd = nvfs_file(paths[i], FILE_SIZE, 600 + i);
		if (fd < 0 || gpu_open(&gpus[i], i) || gpu_info(&gpus[i], &info[i]))
			tap_bail("no file %s or no GPU", paths[i]);
		close(fd);
	}
	for (i = 0; i < THREADS; i++) {
		threads[i].number = i;
		threads[i].state = roll(&state, -1) | 1;
		if (pthread_create(&threads[i].id, NULL, churn, &threads[i]))
			tap_bail("no thread");
	}
	end = nvfs_seconds() + atoi(argv[1]);
	while (nvfs_seconds() < end) {
		struct timespec pause = { .tv_nsec = roll(&state, 3000000) };
		uint64_t va = __atomic_exchange_n(&threads[roll(&state, THREADS)].va, 0,
						  __ATOMIC_SEQ_CST);

		if (va && gpu_free(&gpus[va & 1], va & ~1UL))
			bad++;
		if (!roll(&state, 500))
			nvfs_set_parameter("use_legacy_p2p_allocation", legacy++ & 1 ? "1" : "0");
		nanosleep(&pause, NULL);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i].id, NULL);
		rounds += threads[i].rounds;
		reads += threads[i].right;
		freed += threads[i].freed;
		left += threads[i].left;
		bad += threads[i].bad;
		full += threads[i].full;
	}
	tap_is(bad, 0, "seed %u: all is right", seed);
	tap_ok(reads > 100 && freed > 10 && left > 10,
	       "%llu buffers, %llu reads, %llu times freed during one, %llu left to themselves",
	       (unsigned long long)rounds, (unsigned long long)reads, (unsigned long long)freed,
	       (unsigned long long)left);
	tap_ok(full < rounds / 10 + 10, "%llu times there was no GPU memory", (unsigned long long)full);
	return tap_plan();
}
