// SPDX-License-Identifier: GPL-2.0
/*
 * Random requests through hooks, with a disk that requeues, fails and unmaps late, and a GPU driver
 * that fails to pin and to map, against a model of each byte of the disk and of GPU memory. Two
 * GPUs, two buffers each, one request on each at a time.
 *
 * usage: model DISK REQUESTS SEED
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

#define BLOCK		4096UL
#define BUFFERS		4
#define AREA		MIB			/* of the disk, for one request */
#define DISK		(BUFFERS * AREA)
#define DISK_AT		(5 * 1024 * (int64_t)MIB)
#define PINNED		(2 * MIB)		/* GPU memory of a buffer, with its surroundings */
#define REST		(64 * KIB)		/* that is looked at around a request */
#define DIAGS		5

struct side {
	struct gpu *gpu;
	struct nvfs_buffer buf;
	uint64_t va;		/* of all the memory */
	uint64_t from;		/* where MAP's range begins in it */
	char *model;		/* PINNED bytes */
	/* The request under way. */
	bool write, async, batch;
	uint64_t at;		/* in `model` */
	uint64_t size, told;
	uint64_t disk_at;
	ssize_t result;
};

static struct gpu gpus[2];
static struct side sides[BUFFERS];
static char *disk_model, *seen;
static int node, disk, control;
static uint64_t state;
static unsigned int bad, failures, requests, shorter, unpinned, unmapped;

static uint64_t roll(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static void wrong(const struct side *s, const char *what, uint64_t where)
{
	if (bad++ < DIAGS)
		tap_diag("%s at %llu: request %u, buffer %d: %s %s of %llu, memory %llu, disk %llu, result %zd",
			 what, (unsigned long long)where, requests, (int)(s - sides),
			 s->async ? "async" : "sync", s->write ? "write" : "read",
			 (unsigned long long)s->size, (unsigned long long)s->at,
			 (unsigned long long)s->disk_at, s->result);
}

static int map(unsigned int i)
{
	static const size_t windows[BUFFERS] = { 64 * KIB, MIB, 256 * KIB, 128 * KIB };
	struct side *s = &sides[i];
	struct fake_nvidia_info info;

	return gpu_info(s->gpu, &info) ?:
	       nvfs_register(&s->buf, node, s->va + s->from, PINNED - 2 * s->from, windows[i],
			     info.pdevinfo);
}

static void make(unsigned int i)
{
	struct side *s = &sides[i];

	s->gpu = &gpus[i / 2];
	s->from = i % 2 ? 2 * BLOCK : 0;
	s->model = malloc(PINNED);
	if (gpu_alloc(s->gpu, PINNED, i % 2 ? FAKE_NVIDIA_SCRAMBLED : 0, &s->va) || map(i) ||
	    gpu_fill(s->gpu, s->va, PINNED, 10 + i))
		tap_bail("no buffer %u", i);
	pattern_fill(s->model, PINNED, 10 + i, 0);
}

/* How often the GPU driver failed to map. */
static uint64_t map_failures(void)
{
	struct fake_nvidia_counts counts;

	if (gpu_counts(&gpus[0], &counts))
		tap_bail("no counts of the GPU driver");
	return counts.calls[FAKE_NVIDIA_DMA_MAP_PAGES] - counts.ok[FAKE_NVIDIA_DMA_MAP_PAGES];
}

/* Buffers are mapped anew; the GPU driver fails for some, and for some of the requests to come. */
static void map_again(void)
{
	unsigned int i;

	for (i = 0; i < BUFFERS; i++) {
		struct side *s = &sides[i];
		unsigned int fail = roll(3);
		int ret;

		if (roll(2))
			continue;
		nvfs_unregister(&s->buf);
		gpu_fault(s->gpu, FAKE_NVIDIA_GET_PAGES, -ENOMEM, 0, fail, 0);
		gpu_fault(s->gpu, FAKE_NVIDIA_GET_PAGES_PERSISTENT, -ENOMEM, 0, fail, 0);
		while ((ret = map(i)) && fail) {
			if (ret != -ENOMEM)
				wrong(s, "MAP", -ret);
			unpinned++;
			fail--;
		}
		if (ret || fail)
			tap_bail("MAP gave %d, %u failures are left", ret, fail);
	}
	for (i = 0; i < 2; i++) {
		gpu_reset(&gpus[i]);
		gpu_fault(&gpus[i], FAKE_NVIDIA_DMA_MAP_PAGES, -ENOMEM, roll(2), roll(3), 0);
	}
}

/* The disk does other things from now on. */
static void turn_knobs(bool failing)
{
	static const unsigned int every[] = { 0, 0, 1, 2, 5 };

	storage_set("table", FAKE_STORAGE_NVME + roll(3));
	storage_set("requeue_every", every[roll(5)]);
	storage_set("unmap_us", roll(3) * 20);
	storage_set("end_first", roll(2));
	storage_set("unmap_failed", roll(2));
	storage_set("ignore_status", roll(2));
	storage_set("fail_every", failing ? 1 + roll(12) : 0);
}

static void choose(struct side *s, unsigned int area)
{
	uint64_t in_page, room = PINNED - 2 * s->from;

	s->write = roll(2);
	s->async = roll(2);
	/* Anywhere in one GPU page, or from the start of one on. */
	if (roll(2)) {
		s->at = s->from + roll(room / BLOCK) * BLOCK;
		in_page = s->at % NVFS_GPU_PAGE_SIZE;
		s->size = NVFS_GPU_PAGE_SIZE - in_page;
	} else {
		s->at = roll(PINNED / NVFS_GPU_PAGE_SIZE) * NVFS_GPU_PAGE_SIZE;
		if (s->at < s->from)
			s->at = s->from;
		in_page = s->at % NVFS_GPU_PAGE_SIZE;
		s->size = in_page ? NVFS_GPU_PAGE_SIZE - in_page : AREA;
	}
	if (s->size > s->from + room - s->at)
		s->size = s->from + room - s->at;
	s->size = (roll(s->size / BLOCK) + 1) * BLOCK;
	if (s->size > 256 * KIB && roll(4))
		s->size = (roll(64) + 1) * BLOCK;
	/* An asynchronous request has one chunk. */
	s->told = s->async && s->size > s->buf.window ? s->buf.window : s->size;
	shorter += s->told < s->size;
	s->disk_at = area * AREA + roll((AREA - s->size) / BLOCK + 1) * BLOCK;
	requests++;
}

static void start(struct side *s)
{
	int64_t offset = DISK_AT + s->disk_at;
	uint64_t at = s->at - s->from;

	if (s->async)
		s->result = nvfs_submit(&s->buf, s->write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, disk,
					offset, s->size, at);
	else
		s->result = s->write ? nvfs_write(&s->buf, disk, offset, s->size, at) :
				       nvfs_read(&s->buf, disk, offset, s->size, at);
}

/* The asynchronous ones, by one ioctl. */
static void start_batch(struct side **list, unsigned int n)
{
	struct nvfs_ioctl_io entries[BUFFERS];
	union nvfs_ioctl_arg arg;
	unsigned int i;
	int ret;

	memset(&arg, 0, sizeof(arg));
	for (i = 0; i < n; i++) {
		struct side *s = list[i];

		entries[i] = nvfs_io_arg(&s->buf, disk, DISK_AT + s->disk_at, s->size,
					 s->at - s->from).io;
		entries[i].flags = NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS;
		if (s->write)
			entries[i].flags |= 1 << NVFS_IO_OPTYPE_SHIFT;
		entries[i].end_fence_value = ++s->buf.fence;
		s->result = 0;
	}
	arg.batch.nents = n;
	arg.batch.io_entries = entries;
	ret = nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, &arg);
	if (ret && ret != -EPERM)
		tap_bail("batch: %d", ret);
}

/*
 * What a request made of `len` bytes: `now` against the model's old bytes, or new ones. Both are
 * allowed, block by block, after a failure.
 */
static void compare(struct side *s, const char *what, char *model, const char *source,
		    const char *now, uint64_t len)
{
	uint64_t at;

	for (at = 0; at < len; at += BLOCK) {
		bool news = at < s->told && (s->result >= 0 || memcmp(now + at, model + at, BLOCK));
		const char *want = news ? source + at : model + at;

		if (memcmp(now + at, want, BLOCK))
			wrong(s, what, at);
		memcpy(model + at, now + at, BLOCK);
	}
}

static bool all_in(struct side *s)
{
	return !gpu_read(s->gpu, s->va, seen, PINNED) && !memcmp(seen, s->model, PINNED);
}

static void check(struct side *s)
{
	uint64_t from = s->at > REST ? s->at - REST : 0;
	uint64_t to = s->at + s->size + REST < PINNED ? s->at + s->size + REST : PINNED;
	uint64_t disk_from = s->disk_at > REST ? s->disk_at - REST : 0;
	uint64_t disk_to = s->disk_at + s->size + REST < DISK ? s->disk_at + s->size + REST : DISK;

	/* The first failure ends a batch. */
	if (s->result != (ssize_t)s->told && s->result != -EIO &&
	    !(s->batch && s->result == -EINVAL))
		wrong(s, "result", 0);
	if (s->write) {
		if (pread(disk, seen, s->size, DISK_AT + s->disk_at) != (ssize_t)s->size)
			tap_bail("the disk cannot be read");
		compare(s, "disk", disk_model + s->disk_at, s->model + s->at, seen, s->size);
	} else {
		gpu_read(s->gpu, s->va + s->at, seen, s->size);
		compare(s, "GPU memory", s->model + s->at, disk_model + s->disk_at, seen, s->size);
	}
	gpu_read(s->gpu, s->va + from, seen, to - from);
	if (memcmp(seen, s->model + from, to - from))
		wrong(s, "around GPU memory", from);
	/* Areas of the other requests are looked at by those. */
	if (disk_from < s->disk_at / AREA * AREA)
		disk_from = s->disk_at / AREA * AREA;
	if (disk_to > (s->disk_at / AREA + 1) * AREA)
		disk_to = (s->disk_at / AREA + 1) * AREA;
	if (pread(disk, seen, disk_to - disk_from, DISK_AT + disk_from) !=
	    (ssize_t)(disk_to - disk_from))
		tap_bail("the disk cannot be read");
	if (memcmp(seen, disk_model + disk_from, disk_to - disk_from))
		wrong(s, "around the disk's place", disk_from);
}

static uint64_t failed(void)
{
	struct fake_storage_counts counts;

	storage_counts(control, &counts);
	return counts.failed;
}

static void round_of_requests(void)
{
	unsigned int i, n = 1 + roll(BUFFERS), first = roll(BUFFERS), nr_async = 0, eio = 0;
	bool batch = roll(4) == 0;
	struct side *asyncs[BUFFERS];
	uint64_t before = failed(), maps = map_failures(), after;

	for (i = 0; i < n; i++) {
		struct side *s = &sides[(first + i) % BUFFERS];

		choose(s, (first + 3 * i) % BUFFERS);
		s->batch = batch && s->async;
		if (s->batch)
			asyncs[nr_async++] = s;
	}
	if (nr_async)
		start_batch(asyncs, nr_async);
	for (i = 0; i < n; i++)
		if (!batch || !sides[(first + i) % BUFFERS].async)
			start(&sides[(first + i) % BUFFERS]);
	for (i = 0; i < n; i++) {
		struct side *s = &sides[(first + i) % BUFFERS];

		if (s->async)
			s->result = nvfs_wait(&s->buf);
		eio += s->result == -EIO;
	}
	maps = map_failures() - maps;
	unmapped += maps;
	after = failed() + maps;
	/* In one request of the block layer there may be several of ours. */
	if ((after != before) != (eio > 0))
		wrong(&sides[first], "failures", after - before);
	failures += eio;
	for (i = 0; i < n; i++)
		check(&sides[(first + i) % BUFFERS]);
}

int main(int argc, char **argv)
{
	struct fake_storage_counts counts;
	unsigned int i, all, seed, next = 0;
	double begin = nvfs_seconds();

	if (argc != 4)
		tap_bail("usage: %s DISK REQUESTS SEED", argv[0]);
	all = strtoul(argv[2], NULL, 0);
	seed = strtoul(argv[3], NULL, 0);
	if (!seed)
		seed = (unsigned int)(nvfs_seconds() * 1e6) | 1;
	tap_diag("seed %u", seed);
	state = seed * 0x9e3779b97f4a7c15;
	node = nvfs_open(0, O_RDWR);
	control = storage_open();
	disk = open(argv[1], O_RDWR | O_DIRECT);
	disk_model = aligned_alloc(BLOCK, DISK);
	seen = aligned_alloc(BLOCK, DISK);
	if (node < 0 || control < 0 || disk < 0 || gpu_open(&gpus[0], 0) || gpu_open(&gpus[1], 1))
		tap_bail("no GPU, disk or module");
	for (i = 0; i < BUFFERS; i++)
		make(i);
	pattern_fill(disk_model, DISK, seed, 0);
	if (pwrite(disk, disk_model, DISK, DISK_AT) != DISK)
		tap_bail("the disk cannot be written");
	while (requests < all && bad < DIAGS) {
		if (requests >= next) {
			map_again();
			turn_knobs(roll(2));
			next = requests + 32;
		}
		round_of_requests();
	}
	turn_knobs(false);
	tap_diag("MAP failed %u times, mapping for the disk %u times", unpinned, unmapped);
	tap_ok(unpinned > all / 200 && unmapped > all / 200, "the GPU driver failed, too");
	tap_ok(!bad, "seed %u: %u requests are as in the model, %u failed, %u were of one chunk of several",
	       seed, requests, failures, shorter);
	tap_ok(failures > all / 100 && failures < all / 2, "some failed");
	for (i = 0; i < BUFFERS; i++)
		tap_ok(all_in(&sides[i]), "all memory of buffer %u is", i);
	tap_ok(pread(disk, seen, DISK, DISK_AT) == DISK && !memcmp(seen, disk_model, DISK),
	       "all of the disk is");
	storage_counts(control, &counts);
	tap_is(counts.broken + counts.stray, 0, "the tables kept their contract");
	tap_diag("%.0f s", nvfs_seconds() - begin);
	return tap_plan();
}
