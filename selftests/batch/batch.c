// SPDX-License-Identifier: GPL-2.0
/*
 * BATCH_IO (section 12): number of entries, order, partial failure, results, counters, and its end
 * by a signal.
 *
 * usage: batch DIRECTORY FAR-DIRECTORY
 *
 * The directory is on the drive `ext4`, which the host slows down for some tests, the far directory
 * on one that GPU 1 can reach.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/host.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define PAGE		4096UL
#define PIECE		(64 * KIB)	/* of a small buffer */
#define NR_SMALL	(NVFS_MAX_BATCH + 1)
#define BIG_AT		(24 * MIB)
#define BIG_SIZE	(40 * MIB)
#define GPU_SIZE	(64 * MIB)
#define FILE_SIZE	(64 * MIB)
#define FENCE		0x64		/* for all entries, as libcufile does */
#define SEED		51
#define TRACING		"/sys/kernel/tracing/"

#define SYNC		NVFS_IO_SYNC
#define WRITE		(1 << NVFS_IO_OPTYPE_SHIFT)

static struct gpu gpu, gpu1;
static struct fake_nvidia_info info;
static uint64_t gpu_va, gpu1_va;
static int node, file, out, far_file, tmpfs_file;
static struct nvfs_buffer small[NR_SMALL], big, other;
static struct nvfs_ioctl_io entries[NR_SMALL];
static const char *dir;

static bool same_bytes(const void *data, int byte, size_t size)
{
	const char *p = data;

	return !size || (p[0] == (char)byte && !memcmp(p, p + 1, size - 1));
}

/* throttle: lets the drive `ext4` read and write so many bytes a second, 0 for all. */
static void throttle(unsigned long bps)
{
	int ret = host_throttle("ext4", bps);

	if (ret)
		tap_bail("no throttle: %s", strerror(-ret));
}

static void hold(void)
{
	int ret = host_hold("ext4", file);

	if (ret)
		tap_bail("no hold: %s", strerror(-ret));
}

/* entry: the whole of a buffer, or `size` bytes, at a file offset. */
static struct nvfs_ioctl_io entry(const struct nvfs_buffer *buf, int fd, int64_t offset,
				  uint64_t size, uint8_t flags)
{
	struct nvfs_ioctl_io io = nvfs_io_arg(buf, fd, offset, size, 0).io;

	io.flags = NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS | flags;
	io.end_fence_value = FENCE;
	io.ioctl_return = -12345;
	return io;
}

/*
 * batch: the request, with its rules: the errno of a failure is EPERM (returned as it is), nothing
 * the user gave is changed.
 */
static int batch(int on, struct nvfs_ioctl_io *list, uint64_t nents)
{
	size_t bytes = nents <= NR_SMALL && list ? nents * sizeof(*list) : 0;
	static struct nvfs_ioctl_io before[NR_SMALL];
	union nvfs_ioctl_arg arg, given;
	int ret;

	memset(&arg, 0x5a, sizeof(arg));
	arg.batch.ctx_id = 7;
	arg.batch.nents = nents;
	arg.batch.io_entries = list;
	given = arg;
	if (list == entries)
		memcpy(before, list, bytes);
	ret = nvfs_ioctl(on, NVFS_IOCTL_BATCH_IO, &arg);
	if (memcmp(&arg, &given, sizeof(arg)) || (list == entries && memcmp(before, list, bytes))) {
		tap_diag("12.2, 12.3: the argument or an entry was changed");
		return -EBADMSG;
	}
	return ret;
}

/* poison: makes the meta block show what is written to it. */
static void poison(struct nvfs_buffer *buf)
{
	memset(buf->meta, 0x77, PAGE);
}

static bool untouched(const struct nvfs_buffer *buf)
{
	return same_bytes(buf->meta, 0x77, PAGE);
}

/* ended: the fence value comes, with that result, and nothing else is written. */
static bool ended(struct nvfs_buffer *buf, ssize_t result)
{
	ssize_t ret;

	buf->fence = FENCE;
	ret = nvfs_wait(buf);
	if (ret == result && same_bytes((char *)buf->meta + 16, 0x77, PAGE - 16))
		return true;
	tap_diag("result %zd, want %zd", ret, result);
	return false;
}

static bool gpu_has(uint64_t va, size_t size, uint64_t offset)
{
	int64_t bad = 0;

	return !gpu_check_from(&gpu, va, size, SEED, offset / 8, &bad) && bad < 0;
}

static bool gpu_is_clear(uint64_t va, size_t size)
{
	static char data[MIB];

	return !gpu_read(&gpu, va, data, size) && same_bytes(data, 0xa5, size);
}

static bool file_has(int fd, int64_t offset, size_t size, uint64_t seed, int64_t from)
{
	static char data[MIB] __attribute__((aligned(4096)));

	return pread(fd, data, size, offset) == (ssize_t)size &&
	       pattern_check(data, size, seed, from / 8) < 0;
}

static bool ready(struct nvfs_buffer *buf)
{
	ssize_t ret = nvfs_read(buf, buf == &other ? far_file : file, 0, PAGE, 0);

	if (ret != PAGE)
		tap_diag("the next READ: %zd", ret);
	return ret == PAGE;
}

/* fresh: the first n entries read piece by piece, each into its own clear buffer. */
static void fresh(unsigned int n)
{
	unsigned int i;

	gpu_set(&gpu, gpu_va, 0xa5, n * PIECE);
	for (i = 0; i < n; i++) {
		poison(&small[i]);
		entries[i] = entry(&small[i], file, i * PIECE, PIECE, 0);
	}
}

static void test_sizes(void)
{
	static const unsigned int sizes[] = { 1, 2, 128, 256 };
	static const uint64_t wrong[] = { 0, 257, 1UL << 32, (1UL << 32) + 1, 1UL << 63, ~0UL };
	unsigned int i, n, good;

	for (n = 0; n < sizeof(sizes) / sizeof(*sizes); n++) {
		fresh(sizes[n] + 1);
		tap_is(batch(node, entries, sizes[n]), 0, "12.1: %u entries", sizes[n]);
		for (i = good = 0; i < sizes[n]; i++)
			good += ended(&small[i], PIECE) &&
				gpu_has(gpu_va + i * PIECE, PIECE, i * PIECE) && ready(&small[i]);
		tap_is(good, sizes[n], "12.1: fence, result, data, and the buffer READY of %u",
		       sizes[n]);
		tap_ok(untouched(&small[sizes[n]]), "12.1: and not of the one behind");
	}
	fresh(NR_SMALL);
	for (n = 0; n < sizeof(wrong) / sizeof(*wrong); n++)
		tap_is(batch(node, entries, wrong[n]), -EPERM, "12.1: %#llx entries: refused",
		       (unsigned long long)wrong[n]);
	for (i = good = 0; i < NR_SMALL; i++)
		good += untouched(&small[i]);
	tap_is(good, NR_SMALL, "12.1: no meta block was written");
	tap_ok(gpu_is_clear(gpu_va, MIB), "12.1: nor GPU memory");
	tap_ok(ready(&small[0]) && ready(&small[256]), "12.1: and the buffers are READY");
}

static void test_writes(void)
{
	unsigned int i, good = 0;

	gpu_fill(&gpu, gpu_va, NVFS_MAX_BATCH * PIECE, SEED + 1);
	for (i = 0; i < NVFS_MAX_BATCH; i++) {
		poison(&small[i]);
		/* In reverse, so that neighbours in the file are not neighbours in the list. */
		entries[i] = entry(&small[i], out, (NVFS_MAX_BATCH - 1 - i) * PIECE, PIECE, WRITE);
	}
	tap_is(batch(node, entries, NVFS_MAX_BATCH), 0, "12.1: 256 writes");
	for (i = 0; i < NVFS_MAX_BATCH; i++)
		good += ended(&small[i], PIECE) &&
			file_has(out, (NVFS_MAX_BATCH - 1 - i) * PIECE, PIECE, SEED + 1, i * PIECE);
	tap_is(good, NVFS_MAX_BATCH, "12.1: fence, result and data of 256");
}

enum bad {
	FD, FENCE_0, ALIGNMENT, NO_BUFFER, BUSY, UNREADABLE, IDENTITY, NOT_DIRECT, TOO_LONG,
	OPTYPE, /* 2 to 7 */
	NR_BAD = OPTYPE + 6
};

static const char *const bad_names[] = {
	"no such file", "fence value 0", "a crooked offset", "no such buffer",
	"a buffer of the batch", "not readable", "another inode number", "a file without O_DIRECT",
	"too long", "optype 2", "optype 3", "optype 4", "optype 5", "optype 6", "optype 7",
};

/* Whether entry i of these tests is a synchronous one. */
static bool is_sync(unsigned int i)
{
	return i == 2 || i == 5;
}

static void test_bad_entry(enum bad bad, unsigned int k, int buffered)
{
	unsigned int i, good = 0;
	struct nvfs_ioctl_io *list = entries, *bad_one;
	char *area = NULL;

	fresh(8);
	for (i = 0; i < 8; i++)
		entries[i].flags |= is_sync(i) ? SYNC : 0;
	bad_one = &entries[k];
	switch (bad) {
	case FD:
		bad_one->fd = 999;
		break;
	case FENCE_0:
		bad_one->flags &= ~SYNC;
		bad_one->end_fence_value = 0;
		break;
	case ALIGNMENT:
		bad_one->offset += 512;
		break;
	case NO_BUFFER:
		bad_one->cpuvaddr += PAGE;
		break;
	case BUSY:
		bad_one->cpuvaddr = entries[k - 1].cpuvaddr;
		break;
	case IDENTITY:
		bad_one->file.inum++;
		break;
	case NOT_DIRECT:
		bad_one->fd = buffered;
		break;
	case TOO_LONG:
		bad_one->size += PAGE;
		break;
	case UNREADABLE:
		/* Its last byte is on a page that cannot be touched. */
		area = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
		mprotect(area + PAGE, PAGE, PROT_NONE);
		list = (void *)(area + PAGE - (k + 1) * sizeof(*list) + 8);
		memcpy(list, entries, (k + 1) * sizeof(*list) - 8);
		break;
	default:
		bad_one->flags |= (2 + bad - OPTYPE) << NVFS_IO_OPTYPE_SHIFT;
	}
	if (batch(node, list, 8) == -EPERM)
		good++;
	for (i = 0; i < 8; i++) {
		if (i >= k || is_sync(i))
			good += untouched(&small[i]);
		else
			good += nvfs_fence(&small[i]) == FENCE && ended(&small[i], -EINVAL);
		good += ready(&small[i]);
	}
	/* What `ready` has read is the first block of each. */
	for (i = 0; i < 8; i++)
		good += gpu_is_clear(gpu_va + i * PIECE + PAGE, PIECE - PAGE);
	tap_is(good, 25, "12.1: entry %u of 8 with %s: EPERM; EINVAL for those before, no other "
	       "touched, all READY", k, bad_names[bad]);
	if (area)
		munmap(area, 2 * PAGE);
}

static void test_bad_entries(void)
{
	char path[256];
	unsigned int bad, k;
	int buffered;

	snprintf(path, sizeof(path), "%s/batch.tmp", dir);
	buffered = open(path, O_RDWR);
	for (bad = 0; bad < NR_BAD; bad++)
		for (k = bad == BUSY; k < 8; k++)
			test_bad_entry(bad, k, buffered);
	close(buffered);
}

static void test_one_buffer(void)
{
	fresh(2);
	entries[1].cpuvaddr = entries[0].cpuvaddr;
	tap_is(batch(node, entries, 2), -EPERM, "12.1: two entries on one buffer: EPERM");
	tap_is(nvfs_fence(&small[0]), FENCE, "12.1: the first's fence value is there");
	tap_ok(ended(&small[0], -EINVAL), "12.1: with EINVAL, not EBUSY");
	tap_ok(ready(&small[0]), "12.1: and the buffer is READY");
}

/* 12.1 step 6: entry k fails when it is started. */
static void test_late_failure(unsigned int k, bool with_sync)
{
	unsigned int i, good = 0;

	fresh(8);
	for (i = 0; with_sync && i < 8; i++)
		entries[i].flags |= is_sync(i) ? SYNC : 0;
	entries[k] = entry(&small[k], tmpfs_file, 0, PIECE, entries[k].flags & SYNC);
	good += batch(node, entries, 8) == -EPERM;
	for (i = 0; i < 8; i++) {
		bool sync = entries[i].flags & SYNC, read = i < k;

		/* All asynchronous ones are started before a synchronous one can fail. */
		if (entries[k].flags & SYNC && !sync)
			read = true;
		if (sync)
			good += untouched(&small[i]);
		else if (i == k)
			good += nvfs_fence(&small[i]) == FENCE && ended(&small[i], -EOPNOTSUPP);
		else
			good += ended(&small[i], read ? (ssize_t)PIECE : -EINVAL);
		good += read ? gpu_has(gpu_va + i * PIECE, PIECE, i * PIECE) :
			       gpu_is_clear(gpu_va + i * PIECE, PIECE);
		good += ready(&small[i]);
	}
	tap_is(good, 25, "12.1: entry %u of 8%s fails when started: EPERM; those before are done, "
	       "those after have EINVAL", k, with_sync ? ", 2 and 5 synchronous," : "");
}

/* Files, GPUs, directions, both kinds, from a node that knows none of the buffers. */
static void test_mixed(void)
{
	int elsewhere = nvfs_open(7, O_RDWR);
	int64_t bad;

	fresh(6);
	gpu_set(&gpu, gpu_va + BIG_AT, 0xa5, BIG_SIZE);
	gpu_set(&gpu1, gpu1_va, 0xa5, MIB);
	gpu_fill(&gpu, gpu_va + 4 * PIECE, 2 * PIECE, SEED + 2);
	poison(&big);
	poison(&other);
	entries[0] = entry(&other, far_file, MIB, MIB, 0);
	entries[1] = entry(&small[4], out, 0, PIECE, WRITE);
	entries[2] = entry(&big, file, 0, BIG_SIZE, SYNC);
	entries[3] = entry(&small[0], out, 20 * MIB, PIECE, 0);
	entries[4] = entry(&small[5], out, PIECE, PIECE, WRITE | SYNC);
	entries[5] = entry(&small[1], file, MIB, 0, 0);
	entries[6] = entry(&small[2], file, FILE_SIZE - PAGE, PIECE, 0);
	entries[7] = entry(&small[3], file, 3 * PIECE, PIECE, SYNC);
	tap_is(batch(elsewhere, entries, 8), 0, "12.1, 25.8: a mixed batch on another node");
	close(elsewhere);
	tap_ok(gpu_has(gpu_va + BIG_AT, BIG_SIZE, 0), "12.1: sync READ of 40 MiB");
	tap_ok(gpu_has(gpu_va + 3 * PIECE, PIECE, 3 * PIECE), "12.1: sync READ of 64 KiB");
	tap_ok(file_has(out, PIECE, PIECE, SEED + 2, PIECE), "12.1: sync WRITE");
	tap_ok(untouched(&big) && untouched(&small[3]) && untouched(&small[5]),
	       "12.2: no meta block of a sync entry is written");
	tap_ok(ended(&other, MIB) && !gpu_check_from(&gpu1, gpu1_va, MIB, SEED, MIB / 8, &bad) &&
	       bad < 0, "12.1: async READ of another drive into another GPU");
	tap_ok(ended(&small[4], PIECE) && file_has(out, 0, PIECE, SEED + 2, 0),
	       "12.1: async WRITE");
	tap_ok(ended(&small[0], 0) && gpu_is_clear(gpu_va, PIECE), "12.1: async READ past the end");
	tap_ok(ended(&small[1], 0) && gpu_is_clear(gpu_va + PIECE, PIECE),
	       "12.1: async READ of size 0");
	tap_ok(ended(&small[2], PAGE) && gpu_has(gpu_va + 2 * PIECE, PAGE, FILE_SIZE - PAGE),
	       "12.1: async READ across the end");
	tap_ok(ready(&big) && ready(&other) && ready(&small[0]) && ready(&small[1]) &&
	       ready(&small[2]) && ready(&small[3]) && ready(&small[4]) && ready(&small[5]),
	       "12.1: and all buffers are READY");
}

static void test_bad_pointers(void)
{
	static const uint64_t bad[] = {
		0, 8, 0xffff888000000000, 0x8000000000000000, ~0UL, ~0UL - 79,
	};
	union nvfs_ioctl_arg *arg = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i;
	int status;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		tap_is(batch(node, (void *)bad[i], 1), -EPERM, "12.1: entries at %#llx: EPERM",
		       (unsigned long long)bad[i]);
		tap_is(nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, (void *)bad[i]), -EFAULT,
		       "3.2: the argument at %#llx: EFAULT", (unsigned long long)bad[i]);
	}
	fresh(1);
	arg->batch.nents = 1;
	arg->batch.io_entries = entries;
	mprotect(arg, PAGE, PROT_READ);
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, arg), -EPERM,
	       "3.5: an argument that cannot be written: EPERM");
	tap_ok(ended(&small[0], PIECE) && gpu_has(gpu_va, PIECE, 0), "3.5: the entry is done");
	munmap(arg, PAGE);

	fresh(1);
	if (!fork())
		_exit(-batch(node, entries, 1));
	wait(&status);
	tap_is(WEXITSTATUS(status), EPERM, "6.6: in a forked child: EPERM");
	tap_ok(untouched(&small[0]), "6.6: and the parent's meta block is untouched");
}

static void *batch_of_2(void *list)
{
	return (void *)(intptr_t)batch(node, list, 2);
}

/*
 * The process may hold up the copy of an entry for as long as it likes, here by userfaultfd; no
 * buffer may be busy meanwhile, because freeing GPU memory waits for busy buffers.
 */
static void test_held_copy(void)
{
	char *area = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0), *page = aligned_alloc(PAGE, PAGE);
	struct nvfs_ioctl_io *list = (void *)(area + PAGE - sizeof(*list));
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)area + PAGE, PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_copy copy = {
		.dst = (uintptr_t)area + PAGE, .src = (uintptr_t)page, .len = PAGE,
	};
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffd_msg msg;
	pthread_t thread;
	void *ret;

	fresh(2);
	list[0] = entries[0];
	memset(page, 0, PAGE);
	memcpy(page, &entries[1], sizeof(entries[1]));
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &range)) {
		tap_skip("no userfaultfd", "no buffer is busy while entries are copied");
		return;
	}
	pthread_create(&thread, NULL, batch_of_2, list);
	if (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
		tap_diag("no fault: %s", strerror(errno));
	tap_ok(ready(&small[0]), "no buffer is busy while entries are copied");
	ioctl(uffd, UFFDIO_COPY, &copy);
	pthread_join(thread, &ret);
	tap_is((intptr_t)ret, 0, "12.1: and then the batch is done");
	tap_ok(ended(&small[0], PIECE) && ended(&small[1], PIECE) &&
	       gpu_has(gpu_va, 2 * PIECE, 0), "12.1: with the right data");
	close(uffd);
	munmap(area, 2 * PAGE);
	free(page);
}

/* watcher: what a second thread sees while a batch is under way, which it then lets end. */
struct watcher {
	struct nvfs_buffer *buf;	/* whose fence value it waits for */
	bool returned;			/* the batch's ioctl has */
	bool early;			/* the fence value came before that */
	long long batches, reads, busy;
};

static void *watch(void *arg)
{
	struct watcher *w = arg;
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS, seen;

	while (nvfs_fence(w->buf) != FENCE && nvfs_seconds() < end)
		sched_yield();
	seen = nvfs_seconds();
	w->batches = nvfs_stat("Ops", "BatchIO");
	w->reads = nvfs_stat("Ops", "Read");
	w->busy = nvfs_read(&big, file, 0, PAGE, 0);
	w->early = nvfs_fence(w->buf) == FENCE && !__atomic_load_n(&w->returned, __ATOMIC_SEQ_CST);
	/* The batch is to have a latency of more than a second; it has begun before `seen`. */
	while (nvfs_seconds() < seen + 1.2)
		sched_yield();
	/* The other thread is in its ioctl, so the host is for this one to ask. */
	throttle(0);
	return NULL;
}

/* An asynchronous entry on a quick drive, behind a synchronous one on a drive that is held. */
static void test_start_before_wait(void)
{
	struct watcher w = { .buf = &other };
	pthread_t thread;
	long long latency;

	nvfs_set_parameter("rw_stats_enabled", "1");
	nvfs_write_text(NVFS_PROC "stats", "0");
	gpu_set(&gpu, gpu_va + BIG_AT, 0xa5, 12 * MIB);
	poison(&big);
	poison(&other);
	hold();
	entries[0] = entry(&big, file, 0, 12 * MIB, SYNC);
	entries[1] = entry(&other, far_file, 0, PIECE, 0);
	pthread_create(&thread, NULL, watch, &w);
	tap_is(batch(node, entries, 2), 0, "12.1: a slow sync entry before a quick async one");
	__atomic_store_n(&w.returned, true, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	tap_ok(w.early, "12.1: the async one is started before the sync one is waited for");
	tap_is(w.batches, 1, "19.8: Ops BatchIO is 1 meanwhile");
	tap_is(w.reads, 1, "19.8: Ops Read is 1 meanwhile");
	tap_is(w.busy, -EBUSY, "9.1 row 12: the sync one's buffer is busy meanwhile");
	tap_ok(ended(&other, PIECE) && gpu_has(gpu_va + BIG_AT, 12 * MIB, 0), "12.1: both are right");
	tap_is(nvfs_stat("Ops", "BatchIO"), 0, "19.8: Ops BatchIO is 0 then");
	tap_is(nvfs_stat("Ops", "Read"), 0, "19.8: Ops Read is 0 then");
	latency = nvfs_stat("Batches", "Avg-Submit-Latency(usec)");
	tap_ok(latency > 1000000 && latency < 60000000,
	       "19.8: Avg-Submit-Latency is that of this batch, of some seconds");
	tap_diag("%lld us", latency);
	nvfs_set_parameter("rw_stats_enabled", "0");
}

/* unplugged: the longest list of requests that this program gave to a drive at once. */
static unsigned int unplugged(void)
{
	static char text[1 << 20];
	unsigned int most = 0, n;
	char *at = text;

	nvfs_read_text(TRACING "trace", text, sizeof(text));
	while ((at = strstr(at, "block_unplug: [batch] "))) {
		at += strlen("block_unplug: [batch] ");
		n = atoi(at);
		most = n > most ? n : most;
	}
	return most;
}

static void test_plug(void)
{
	unsigned int i, round, most = 0;

	if (nvfs_write_text(TRACING "events/block/block_unplug/enable", "1") < 0) {
		tap_skip("no tracing", "requests go out together");
		return;
	}
	for (round = 0; round < 50 && most < 8; round++) {
		nvfs_write_text(TRACING "trace", "0");
		fresh(8);
		/* Neighbours in the file would be one request. */
		for (i = 0; i < 8; i++)
			entries[i].offset *= 2;
		if (batch(node, entries, 8))
			break;
		for (i = 0; i < 8; i++)
			ended(&small[i], PIECE);
		most = unplugged();
	}
	nvfs_write_text(TRACING "events/block/block_unplug/enable", "0");
	tap_is(most, 8, "8 reads go to the drive as one list");
}

static const struct {
	const char *line, *key;
} keys[] = {
	{ "Batches", "n" }, { "Batches", "ok" }, { "Batches", "err" },
	{ "Reads", "n" }, { "Reads", "ok" }, { "Reads", "err" }, { "Reads", "readMiB" },
	{ "Reads", "io_state_err" },
	{ "Writes", "n" }, { "Writes", "ok" }, { "Writes", "err" }, { "Writes", "writeMiB" },
	{ "Writes", "io_state_err" },
	{ "Ops", "Read" }, { "Ops", "Write" }, { "Ops", "BatchIO" },
};

#define NR_KEYS	(sizeof(keys) / sizeof(*keys))

static void counters(long long now[NR_KEYS])
{
	unsigned int i;

	nvfs_set_parameter("rw_stats_enabled", "1");
	for (i = 0; i < NR_KEYS; i++)
		now[i] = nvfs_stat(keys[i].line, keys[i].key);
}

/* moved: the counters have moved by so much. */
static void moved(const long long before[NR_KEYS], const long long want[NR_KEYS], const char *name)
{
	long long now[NR_KEYS];
	unsigned int i, good = 0;

	counters(now);
	for (i = 0; i < NR_KEYS; i++) {
		good += now[i] - before[i] == want[i];
		if (now[i] - before[i] != want[i])
			tap_diag("%s %s: %+lld, want %+lld", keys[i].line, keys[i].key,
				 now[i] - before[i], want[i]);
	}
	tap_is(good, NR_KEYS, "19.8: counters, %s", name);
}

static void test_counters(bool rw)
{
	static const long long good_one[2][NR_KEYS] = {
		{ 0, 1 }, { 1, 1, 0, 3, 3, 0, 14, 0, 1, 1, 0, 1 },
	}, bad_check[2][NR_KEYS] = {
		{ 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 1 }, { 1, 0, 1, 2, 0, 2, 0, 0, 1, 0, 1 },
	}, bad_number[2][NR_KEYS] = {
		{ 0, 0, 1 }, { 1, 0, 1 },
	}, bad_start[2][NR_KEYS] = {
		{ 0, 0, 1, 0, 0, 2 }, { 1, 0, 1, 3, 1, 2, 1 },
	};
	const char *on = rw ? "rw_stats on" : "rw_stats off";
	struct nvfs_buffer three[3];
	long long before[NR_KEYS];
	char name[128];
	unsigned int i;

	for (i = 0; i < 3; i++)
		if (nvfs_register(&three[i], node, gpu_va + i * MIB, MIB, MIB, info.pdevinfo))
			tap_bail("MAP failed");
	for (i = 0; i < 4; i++) {
		static const char *const names[] = {
			"3 reads and a write", "the last entry bad", "no entry",
			"the second of 3 fails when started",
		};
		const long long *want[] = {
			good_one[rw], bad_check[rw], bad_number[rw], bad_start[rw],
		};
		int nents[] = { 4, 4, 0, 3 };

		counters(before);
		nvfs_set_parameter("rw_stats_enabled", rw ? "1" : "0");
		poison(&three[0]);
		poison(&three[1]);
		poison(&three[2]);
		entries[0] = entry(&three[0], file, 0, MIB, 0);
		entries[1] = entry(&three[1], file, 0, MIB, SYNC);
		entries[2] = entry(&three[2], out, 0, MIB, WRITE);
		entries[3] = entry(&big, file, 0, 12 * MIB, SYNC);
		if (i == 1)
			entries[3].fd = -1;
		if (i == 3) {
			entries[1] = entry(&three[1], tmpfs_file, 0, PIECE, 0);
			entries[2] = entry(&three[2], file, 0, MIB, 0);
		}
		tap_is(batch(node, entries, nents[i]), i ? -EPERM : 0, "12.1: %s", names[i]);
		if (i == 0 || i == 3)
			ended(&three[0], MIB);
		if (i == 0)
			ended(&three[2], MIB);
		snprintf(name, sizeof(name), "%s, %s", names[i], on);
		moved(before, want[i], name);
	}
	nvfs_set_parameter("rw_stats_enabled", "0");
	for (i = 0; i < 3; i++)
		nvfs_unregister(&three[i]);
}

static void test_reset(void)
{
	long long now[NR_KEYS];
	unsigned int i, good = 0;

	nvfs_write_text(NVFS_PROC "stats", "0");
	counters(now);
	for (i = 0; i < NR_KEYS; i++)
		good += now[i] == 0;
	tap_is(good, NR_KEYS, "19.10: a reset sets all of them to 0");
	tap_is(nvfs_stat("Batches", "Avg-Submit-Latency(usec)"), 0, "19.10: and the latency");
	nvfs_set_parameter("rw_stats_enabled", "0");
}

enum { THREADS = 8, ROUNDS = 50 };

static void *many(void *arg)
{
	unsigned int first = (uintptr_t)arg * 4, round, i;
	struct nvfs_ioctl_io list[4];
	uintptr_t good = 0;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < 4; i++) {
			poison(&small[first + i]);
			list[i] = entry(&small[first + i], file, (first + i) * PIECE, PIECE,
					i == round % 4 ? SYNC : 0);
		}
		good += batch(node, list, 4) == 0;
		for (i = 0; i < 4; i++)
			if (!(list[i].flags & SYNC))
				good += ended(&small[first + i], PIECE);
	}
	return (void *)good;
}

/* Sums are exact when many threads count. */
static void test_threads(void)
{
	static const long long want[NR_KEYS] = {
		THREADS * ROUNDS, THREADS * ROUNDS, 0, 4 * THREADS * ROUNDS, 4 * THREADS * ROUNDS,
		0, THREADS * ROUNDS * 4 / 16,
	};
	pthread_t threads[THREADS];
	long long before[NR_KEYS];
	unsigned int i, good = 0;
	void *ret;

	gpu_set(&gpu, gpu_va, 0xa5, 4 * THREADS * PIECE);
	nvfs_write_text(NVFS_PROC "stats", "0");
	counters(before);
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, many, (void *)(uintptr_t)i);
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &ret);
		good += (uintptr_t)ret;
	}
	tap_is(good, THREADS * ROUNDS * 4, "12.1: %u threads, %u batches each", THREADS, ROUNDS);
	moved(before, want, "of all threads");
	nvfs_set_parameter("rw_stats_enabled", "0");
	tap_ok(gpu_has(gpu_va, 4 * THREADS * PIECE, 0), "12.1: and the data is right");
}

/* until: waits, by the clock, for a number of stats. */
static bool until(const char *line, const char *key, long long value)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;

	while (nvfs_stat(line, key) != value) {
		if (nvfs_seconds() > end)
			return false;
		sched_yield();
	}
	return true;
}

/*
 * in_flight: waits until the drive has the better part of 16 MiB to read or to write, which are 32
 * requests. The journal writes less.
 */
static bool in_flight(bool write)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	unsigned int reads, writes;
	char path[64], text[64];
	struct stat st;

	fstat(file, &st);
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/inflight", major(st.st_dev),
		 minor(st.st_dev));
	while (nvfs_seconds() < end) {
		if (nvfs_read_text(path, text, sizeof(text)) > 0 &&
		    sscanf(text, "%u %u", &reads, &writes) == 2 && (write ? writes : reads) >= 8)
			return true;
		sched_yield();
	}
	return false;
}

static void killed_child(unsigned int flags)
{
	struct fake_nvidia_info info1;
	struct nvfs_buffer a, b, c;
	struct gpu mine, mine1;
	uint64_t va, va1;
	int fd = nvfs_open(3, O_RDWR);

	if (fd < 0 || gpu_open(&mine, 0) || gpu_alloc(&mine, 24 * MIB, 0, &va) ||
	    gpu_open(&mine1, 1) || gpu_info(&mine1, &info1) || gpu_alloc(&mine1, MIB, 0, &va1) ||
	    nvfs_register(&a, fd, va, 16 * MIB, 16 * MIB, info.pdevinfo) ||
	    nvfs_register(&b, fd, va1, MIB, MIB, info1.pdevinfo) ||
	    nvfs_register(&c, fd, va + 20 * MIB, MIB, MIB, info.pdevinfo))
		_exit(3);
	entries[0] = entry(&a, flags & WRITE ? out : file, 0, 16 * MIB, SYNC | flags);
	/* On another drive: a drive may do what two CPUs gave it in either order. */
	entries[1] = entry(&b, far_file, 0, MIB, 0);
	entries[2] = entry(&c, file, 0, MIB, SYNC);
	_exit(batch(fd, entries, 3) != 0);
}

/*
 * SIGKILL while a batch waits for a drive that is held. With persistent pins the process is gone
 * long before the transfer of 4 minutes could be over; with legacy pins the GPU driver waits for it
 * when the process's memory goes, so the drive is let go first, once the batch is over.
 */
static void test_killed(bool legacy, unsigned int flags)
{
	const char *what = flags & WRITE ? "WRITE" : "READ";
	const char *pins = legacy ? "legacy" : "persistent";
	long long before[NR_KEYS], now[NR_KEYS];
	struct fake_nvidia_counts counts, first;
	long long active = nvfs_stat("Bar1-map", "active");
	int status = 0;
	double start;
	pid_t child;
	bool busy;

	nvfs_set_parameter("use_legacy_p2p_allocation", legacy ? "1" : "0");
	gpu_counts(&gpu, &first);
	counters(before);
	hold();
	child = fork();
	if (!child)
		killed_child(flags);
	busy = until("Ops", "BatchIO", 1);
	/* Its asynchronous entry is done, so what is in flight is the first synchronous one. */
	busy = busy && until("Reads", "ok", before[4] + 1) && in_flight(flags & WRITE);
	tap_ok(busy, "a batch waits for a sync %s, %s pins", what, pins);
	start = nvfs_seconds();
	kill(child, SIGKILL);
	if (legacy) {
		tap_ok(until("Ops", "BatchIO", 0), "SIGKILL ends the ioctl");
		throttle(0);
	}
	waitpid(child, &status, 0);
	tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && nvfs_seconds() - start < 60,
	       "SIGKILL ends the process, although its transfer of 4 minutes is under way");
	tap_diag("after %.1f s, status %#x", nvfs_seconds() - start, status);
	if (!legacy) {
		tap_is(nvfs_stat("Ops", "BatchIO"), 0, "the batch is over");
		tap_ok(nvfs_stat("Ops", flags & WRITE ? "Write" : "Read") > 0,
		       "the transfer is not");
		tap_ok(nvfs_stat("Bar1-map", "active") > active, "its buffer is still there");
		throttle(0);
	}
	tap_ok(until("Ops", "Read", 0) && until("Ops", "Write", 0) &&
	       until("Bar1-map", "active", active), "the transfers end, and the buffers go");
	gpu_counts(&gpu, &counts);
	tap_is(counts.pinned_pages, first.pinned_pages, "no GPU page is left pinned");
	tap_is(counts.tables, first.tables, "no page table is left");
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	counters(now);
	tap_is(now[2] - before[2], 1, "19.8: Batches err");
	tap_is(now[3] + now[8] - before[3] - before[8], 3, "19.8: all entries were counted");
	tap_is(now[4] - before[4], 1, "19.8: the async one was good");
	tap_is(now[5] + now[10] - before[5] - before[10], 2, "19.8: the two sync ones were not");
	nvfs_set_parameter("rw_stats_enabled", "0");
}

static void killed_reader(void)
{
	struct nvfs_buffer own;
	struct gpu mine;
	uint64_t va;
	int fd = nvfs_open(3, O_RDWR);

	if (fd < 0 || gpu_open(&mine, 0) || gpu_alloc(&mine, 40 * MIB, 0, &va) ||
	    nvfs_register(&own, fd, va, 40 * MIB, 16 * MIB, info.pdevinfo))
		_exit(3);
	_exit(nvfs_read(&own, file, 0, 40 * MIB, 0) < 0);
}

/* A READ by its own ioctl goes on to the end of what is in flight, the first 16 MiB, and no further. */
static void test_killed_read(void)
{
	long long before[NR_KEYS], now[NR_KEYS];
	pid_t child;
	bool busy;

	counters(before);
	hold();
	child = fork();
	if (!child)
		killed_reader();
	busy = until("Ops", "Read", 1) && in_flight(false);
	kill(child, SIGKILL);
	throttle(0);
	waitpid(child, NULL, 0);
	tap_ok(busy && until("Ops", "Read", 0), "SIGKILL ends a sync READ of several parts");
	counters(now);
	tap_is(now[4] - before[4], 0, "19.8: it is not good");
	tap_is(now[5] - before[5], 1, "19.8: but an error");
	nvfs_set_parameter("rw_stats_enabled", "0");
}

/*
 * Each thing that can fail in the kernel during the ioctl does so in turn, where the kernel can do
 * that: the batch as a whole fails or does not, and nothing is left busy.
 */
static void test_faults(void)
{
	unsigned int nth, i, refused = 0, wrong = 0;
	char text[32] = "0";
	int fd, ret;

	fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (fd < 0) {
		tap_skip("no fault injection", "12.1: ENOMEM");
		return;
	}
	nvfs_write_text("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	nvfs_write_text("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	for (nth = 1; nth < 200; nth++) {
		fresh(2);
		snprintf(text, sizeof(text), "%u", nth);
		if (pwrite(fd, text, strlen(text), 0) < 0)
			break;
		ret = batch(node, entries, 2);
		memset(text, 0, sizeof(text));
		if (pread(fd, text, sizeof(text) - 1, 0) < 0)
			break;
		pwrite(fd, "0", 1, 0);
		refused += ret == -EPERM;
		wrong += ret != 0 && ret != -EPERM && ret != -EFAULT;
		for (i = 0; i < 2; i++) {
			/* Each that has a fence value has a result to go with it. */
			small[i].fence = FENCE;
			if (ret == 0 && nvfs_wait(&small[i]) == -ETIMEDOUT)
				wrong++;
			/* One of a refused batch may still be under way. */
			while (nvfs_read(&small[i], file, 0, PAGE, 0) == -EBUSY)
				sched_yield();
			wrong += !ready(&small[i]);
		}
		if (atoi(text) > 0)
			break;
	}
	close(fd);
	tap_ok(refused > 0, "12.1: ENOMEM and the like: EPERM");
	tap_is(wrong, 0, "12.1: and nothing is lost or left busy");
	tap_diag("%u faults, %u refused", nth - 1, refused);
	tap_is(nvfs_stat("Ops", "Read"), 0, "19.8: Ops Read is 0");
}

static int open_file(const char *where, const char *name, size_t size, uint64_t seed)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", where, name);
	fd = nvfs_file(path, size, seed);
	if (fd < 0)
		tap_bail("cannot make %s: %s", path, strerror(-fd));
	return fd;
}

int main(int argc, char **argv)
{
	struct fake_nvidia_info info1;
	unsigned int i;

	if (argc != 3)
		tap_bail("usage: %s DIRECTORY FAR-DIRECTORY", argv[0]);
	dir = argv[1];
	node = nvfs_open(0, O_RDWR);
	file = open_file(dir, "batch.tmp", FILE_SIZE, SEED);
	out = open_file(dir, "batch.out", 20 * MIB, SEED);
	far_file = open_file(argv[2], "batch.tmp", 2 * MIB, SEED);
	tmpfs_file = open_file("/tmp", "batch.tmp", MIB, SEED);
	if (node < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, GPU_SIZE, 0, &gpu_va) || gpu_open(&gpu1, 1) ||
	    gpu_info(&gpu1, &info1) || gpu_alloc(&gpu1, MIB, 0, &gpu1_va))
		tap_bail("no node or no GPU");
	for (i = 0; i < NR_SMALL; i++)
		if (nvfs_register(&small[i], node, gpu_va + i * PIECE, PIECE, PIECE, info.pdevinfo))
			tap_bail("MAP %u failed", i);
	if (nvfs_register(&big, node, gpu_va + BIG_AT, BIG_SIZE, 16 * MIB, info.pdevinfo) ||
	    nvfs_register(&other, node, gpu1_va, MIB, MIB, info1.pdevinfo))
		tap_bail("MAP failed");

	if (host_patience(file, 600000))
		tap_bail("no io_timeout");
	test_sizes();
	test_writes();
	test_bad_entries();
	test_one_buffer();
	for (i = 0; i < 8; i++) {
		test_late_failure(i, false);
		test_late_failure(i, true);
	}
	test_mixed();
	test_bad_pointers();
	test_held_copy();
	test_start_before_wait();
	test_plug();
	test_counters(true);
	test_counters(false);
	test_reset();
	test_threads();
	for (i = 0; i < 4; i++)
		test_killed(i & 1, i & 2 ? WRITE : 0);
	test_killed_read();
	test_faults();
	host_patience(file, 30000);
	return tap_plan();
}
