// SPDX-License-Identifier: GPL-2.0
/*
 * Completion (section 10) and the meta block (section 8): what an asynchronous request leaves in
 * which order, size 0, end of file, what the file description keeps, and one I/O at a time.
 *
 * usage: async DIRECTORY [FAR-BLOCK-DEVICE]
 *
 * The directory is on the drive `ext4`, which the host slows down for some tests. The far device
 * is one that GPU 0 cannot reach (EREMOTEIO); it is not written.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/host.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define PAGE		4096UL
#define GPU_SIZE	(64 * MIB)
#define FILE_SIZE	(64 * MIB)
#define SMALL		(64 * KIB)
#define SEED		31

static struct gpu gpu;
static struct fake_nvidia_info info;
static uint64_t gpu_va;
static int node, file;
static struct nvfs_buffer big;		/* window of 16 MiB */
static const char *dir;

static const struct {
	const char *name;
	unsigned long request;
} ops[] = {
	{ "READ", NVFS_IOCTL_READ },
	{ "WRITE", NVFS_IOCTL_WRITE },
};

static bool same_bytes(const void *data, int byte, size_t size)
{
	const char *p = data;

	return !size || (p[0] == (char)byte && !memcmp(p, p + 1, size - 1));
}

static bool gpu_is(uint64_t at, size_t size, uint64_t offset)
{
	int64_t bad = 0;

	return !gpu_check_from(&gpu, gpu_va + at, size, SEED, offset / 8, &bad) && bad < 0;
}

static void clear_gpu(size_t size)
{
	gpu_set(&gpu, gpu_va, 0xa5, size);
}

static bool next_works(struct nvfs_buffer *buf)
{
	ssize_t ret = nvfs_read(buf, file, 0, SMALL, 0);

	if (ret != SMALL)
		tap_diag("the next READ: %zd (%s)", ret, ret < 0 ? strerror(-ret) : "bytes");
	return ret == SMALL;
}

/* raw_submit: an asynchronous request with that fence value; buf->fence stays as it is. */
static ssize_t raw_submit(struct nvfs_buffer *buf, unsigned long request, int fd, int64_t offset,
			  uint64_t size, uint64_t devptroff, uint64_t fence)
{
	union nvfs_ioctl_arg arg = nvfs_io_arg(buf, fd, offset, size, devptroff);

	arg.io.flags = NVFS_IO_ALLOWREADS;
	arg.io.end_fence_value = fence;
	return nvfs_request(node, request, &arg);
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

static void test_queued(void)
{
	static char data[MIB] __attribute__((aligned(4096)));
	ssize_t ret;

	clear_gpu(MIB);
	memset(big.meta, 0x77, PAGE);
	ret = nvfs_submit(&big, NVFS_IOCTL_READ, file, MIB, MIB, 0);
	tap_ok(!ret || ret == MIB, "10.2: async READ of 1 MiB: queued (0) or complete (the bytes)");
	tap_is(nvfs_wait(&big), MIB, "10.2: its result when its fence value is there");
	tap_ok(gpu_is(0, MIB, MIB), "8.3: the data is in GPU memory then");
	tap_ok(same_bytes((char *)big.meta + 16, 0x77, PAGE - 16),
	       "8.2: a dense async READ writes fence and result only, no state, no table");

	gpu_fill_from(&gpu, gpu_va, MIB, SEED, 2 * MIB / 8);
	memset(big.meta, 0x77, PAGE);
	ret = nvfs_submit(&big, NVFS_IOCTL_WRITE, file, 2 * MIB, MIB, 0);
	tap_ok(!ret || ret == MIB, "10.2: async WRITE of 1 MiB: queued (0) or complete (the bytes)");
	tap_is(nvfs_wait(&big), MIB, "10.2: its result when its fence value is there");
	tap_ok(pread(file, data, MIB, 2 * MIB) == MIB &&
	       pattern_check(data, MIB, SEED, 2 * MIB / 8) < 0, "10.2: the data is in the file");
	tap_ok(same_bytes((char *)big.meta + 16, 0x77, PAGE - 16),
	       "8.2: an async WRITE writes fence and result only");

	memset(big.meta, 0x77, PAGE);
	tap_is(nvfs_read(&big, file, 0, MIB, 0), MIB, "10.1: sync READ");
	tap_ok(same_bytes(big.meta, 0x77, PAGE), "8.2: a dense sync READ writes no meta block");
	tap_is(nvfs_write(&big, file, 0, MIB, 0), MIB, "10.1: sync WRITE");
	tap_ok(same_bytes(big.meta, 0x77, PAGE), "8.2: a sync WRITE writes no meta block");
}

/*
 * 8.3: when the fence value is there, so is the result, and the buffer takes the next I/O. The
 * result is a different one each time, and wrong before.
 */
static void test_order(void)
{
	enum { ROUNDS = 400 };
	unsigned int round, wrong = 0, busy = 0, failed = 0, late = 0;
	ssize_t ret, size;

	for (round = 0; round < ROUNDS; round++) {
		size = (1 + round % 16) * PAGE;
		big.meta->result = -77;
		ret = nvfs_submit(&big, ops[round % 2].request, file, 0, size, 0);
		if (ret == -EBUSY)
			busy++;
		else if (ret < 0)
			failed++;
		if (ret < 0)
			continue;
		ret = nvfs_wait(&big);
		if (ret == -ETIMEDOUT)
			late++;
		else if (ret != size)
			wrong++;
	}
	tap_is(busy, 0, "8.3: the buffer is READY when the fence value is seen, %d times", ROUNDS);
	tap_is(wrong, 0, "8.3: the result is there when the fence value is seen, %d times", ROUNDS);
	tap_is(failed + late, 0, "8.3: no request failed or was forgotten");
}

/* "Exactly one fence write happens": whatever the user makes of the block later stays. */
static void test_one_fence(void)
{
	nvfs_submit(&big, NVFS_IOCTL_READ, file, 0, SMALL, 0);
	nvfs_wait(&big);
	memset(big.meta, 0x77, PAGE);
	nvfs_read(&big, file, 0, MIB, 0);
	nvfs_write(&big, file, 0, MIB, 0);
	tap_ok(same_bytes(big.meta, 0x77, PAGE), "10.2: no second fence write comes later");
}

/* 25.5: the fence is compared for equality, so all 64 bits count, in any order of values. */
static void test_fence_values(void)
{
	static const uint64_t values[] = {
		1, 0xffffffff, 0x100000000, 1UL << 63, ~0UL, 100, 100, 5,
	};
	unsigned int i, good = 0;
	double end;

	for (i = 0; i < sizeof(values) / sizeof(*values); i++) {
		big.meta->end_fence_val = 0;
		if (raw_submit(&big, NVFS_IOCTL_READ, file, 0, PAGE, 0, values[i]) < 0)
			continue;
		end = nvfs_seconds() + NVFS_WAIT_SECONDS;
		while (!nvfs_fence(&big) && nvfs_seconds() < end)
			sched_yield();
		good += nvfs_fence(&big) == values[i] && big.meta->result == PAGE;
	}
	tap_is(good, sizeof(values) / sizeof(*values), "8.3: any fence value but 0 is stored whole");
}

/* 10.2: failing in 9.1 leaves the meta block; other rows are in `checks`. */
static void test_refused_early(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		memset(big.meta, 0x77, PAGE);
		tap_is(raw_submit(&big, ops[i].request, file, 0, SMALL, 0, 0), -EINVAL,
		       "10.2: async %s with fence value 0: EINVAL", ops[i].name);
		tap_is(raw_submit(&big, ops[i].request, file, 0, SMALL, 512, 9), -EINVAL,
		       "10.2: async %s that fails in 9.1 row 15: EINVAL", ops[i].name);
		tap_is(raw_submit(&big, ops[i].request, -1, 0, SMALL, 0, 9), -EINVAL,
		       "10.2: async %s that fails in 9.1 row 4: EINVAL", ops[i].name);
		tap_ok(next_works(&big), "10.2: the buffer is READY");
		tap_ok(same_bytes(big.meta, 0x77, PAGE), "10.2: and the meta block not written");
	}
}

/* late_failure: an async request that passes 9.1 and fails has errno, result and fence. */
static void late_failure(struct nvfs_buffer *buf, const char *name, unsigned long request, int fd,
			 int64_t offset, uint64_t size, uint64_t devptroff, int reason)
{
	union nvfs_ioctl_arg arg = nvfs_io_arg(buf, fd, offset, size, devptroff);

	alarm(60);
	clear_gpu(size ? size + devptroff : PAGE);
	memset(buf->meta, 0x77, PAGE);
	tap_is(nvfs_request(node, request, &arg), reason, "10.1: sync %s: %s", name,
	       strerror(-reason));
	tap_ok(same_bytes(buf->meta, 0x77, PAGE), "10.1: sync %s: no fence", name);
	tap_is(nvfs_submit(buf, request, fd, offset, size, devptroff), reason,
	       "10.2: async %s: %s at once", name, strerror(-reason));
	tap_is(nvfs_fence(buf), buf->fence, "10.2: async %s: the fence is there already", name);
	tap_is(nvfs_wait(buf), reason, "10.2: async %s: result is the errno", name);
	tap_ok(next_works(buf), "10.2: async %s: the buffer is READY", name);
	alarm(0);
}

static void test_late_failures(const char *far_device)
{
	struct nvfs_buffer small;
	int pipes[2], fd;

	late_failure(&big, "WRITE past what the file system can hold", NVFS_IOCTL_WRITE, file,
		     1L << 60, PAGE, 0, -EFBIG);

	/* 7.3, 9.5: 32 KiB of window, and 32 KiB that begin in its middle. */
	if (nvfs_register(&small, node, gpu_va, GPU_SIZE, 32 * KIB, info.pdevinfo))
		tap_bail("MAP failed");
	tap_is(nvfs_read(&small, file, 0, 32 * KIB, 0), 32 * KIB,
	       "7.3: 32 KiB at 0 with a shadow buffer of 32 KiB");
	tap_is(nvfs_read(&small, file, 0, 32 * KIB, 64 * KIB), 32 * KIB,
	       "7.3: 32 KiB at 64 KiB with a shadow buffer of 32 KiB");
	/* P2PDMA does not use the shadow buffer, so nothing has to fit it. */
	tap_is(nvfs_read(&small, file, 0, 32 * KIB, 32 * KIB), 32 * KIB,
	       "9.5: 32 KiB at 32 KiB with a shadow buffer of 32 KiB");
	nvfs_unregister(&small);

	/* pipe2 marks the write end only. */
	if (pipe2(pipes, O_DIRECT) || fcntl(pipes[0], F_SETFL, O_DIRECT))
		tap_bail("no pipe");
	late_failure(&big, "READ of a pipe", NVFS_IOCTL_READ, pipes[0], 0, PAGE, 0, -EOPNOTSUPP);
	late_failure(&big, "WRITE to a pipe", NVFS_IOCTL_WRITE, pipes[1], 0, PAGE, 0, -EOPNOTSUPP);

	fd = open("/tmp/async.tmp", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (fd >= 0 && !ftruncate(fd, SMALL)) {
		late_failure(&big, "READ of tmpfs", NVFS_IOCTL_READ, fd, 0, SMALL, 0, -EOPNOTSUPP);
		late_failure(&big, "WRITE to tmpfs", NVFS_IOCTL_WRITE, fd, 0, SMALL, 0,
			     -EOPNOTSUPP);
	} else {
		tap_skip("no O_DIRECT on /tmp", "tmpfs: EOPNOTSUPP");
	}
	if (!far_device)
		return;
	fd = open(far_device, O_RDWR | O_DIRECT);
	if (fd < 0)
		tap_bail("cannot open %s", far_device);
	late_failure(&big, "READ of a far drive", NVFS_IOCTL_READ, fd, 0, SMALL, 0, -EREMOTEIO);
	late_failure(&big, "WRITE to a far drive", NVFS_IOCTL_WRITE, fd, 0, SMALL, 0, -EREMOTEIO);
}

static void test_size_0(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		union nvfs_ioctl_arg arg = nvfs_io_arg(&big, file, 0, 0, 0);
		ssize_t ret;

		memset(big.meta, 0x77, PAGE);
		tap_is(nvfs_request(node, ops[i].request, &arg), 0, "10.1: sync %s of size 0: 0",
		       ops[i].name);
		tap_ok(same_bytes(big.meta, 0x77, PAGE), "10.1: and no fence");
		ret = nvfs_submit(&big, ops[i].request, file, 0, 0, 0);
		tap_is(ret, 0, "10.2: async %s of size 0: 0", ops[i].name);
		tap_is(nvfs_wait(&big), 0, "10.2: and result 0 with its fence value");
		tap_ok(next_works(&big), "10.2: and the buffer is READY");
	}
}

/* 9.5, 10.2: through a window of 1 MiB. */
static void test_window(void)
{
	struct nvfs_buffer buf;
	ssize_t ret;

	if (nvfs_register(&buf, node, gpu_va, GPU_SIZE, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	clear_gpu(4 * MIB);
	tap_is(nvfs_read(&buf, file, 0, 3 * MIB, 0), 3 * MIB,
	       "9.5: sync READ of 3 MiB, shadow buffer of 1 MiB: all");
	tap_ok(gpu_is(0, 3 * MIB, 0), "9.5: and the data is right");
	clear_gpu(4 * MIB);
	if (nvfs_submit(&buf, NVFS_IOCTL_READ, file, MIB, 2 * MIB, 64 * KIB) < 0)
		tap_diag("not queued");
	ret = nvfs_wait(&buf);
	/* One chunk by 10.2. P2PDMA mode has no window; what matters is that the result is true. */
	tap_ok(ret == MIB || ret == 2 * MIB,
	       "10.2: async READ of 2 MiB, shadow buffer of 1 MiB: result 1 MiB, or all");
	tap_diag("result %zd", ret);
	tap_ok(ret > 0 && gpu_is(64 * KIB, ret, MIB), "10.2: that much is right");
	clear_gpu(4 * MIB);
	nvfs_unregister(&buf);
}

/* eof_case: a read of `size` bytes at `offset` of a file of `length` bytes. */
static void eof_case(const char *name, size_t length, int64_t offset, uint64_t size)
{
	static char want[2 * MIB], got[2 * MIB], kept[2 * MIB];
	ssize_t left = offset < (int64_t)length ? length - offset : 0;
	size_t whole = (left + PAGE - 1) & ~(PAGE - 1), i;
	char path[256];
	int async, fd;
	ssize_t ret;
	bool good;

	snprintf(path, sizeof(path), "%s/eof.tmp", dir);
	fd = nvfs_file(path, length, SEED);
	if (fd < 0)
		tap_bail("cannot make %s", path);
	pattern_fill(want, sizeof(want), SEED, offset / 8);
	memset(kept, 0xa5, sizeof(kept));
	for (async = 0; async < 2; async++) {
		clear_gpu(size + SMALL);
		if (async) {
			ret = nvfs_submit(&big, NVFS_IOCTL_READ, fd, offset, size, 0);
			ret = ret < 0 ? ret : nvfs_wait(&big);
		} else {
			ret = nvfs_read(&big, fd, offset, size, 0);
		}
		tap_is(ret, left, "10.3: %s READ %s: %zd bytes", async ? "async" : "sync", name,
		       left);
		gpu_read(&gpu, gpu_va, got, size + SMALL);
		good = !memcmp(got, want, left);
		/* Past the end, to the end of the block, zeros may come from the disk. */
		for (i = left; i < whole; i++)
			good = good && (!got[i] || got[i] == (char)0xa5);
		good = good && !memcmp(got + whole, kept, size + SMALL - whole);
		tap_ok(good, "10.3: %s READ %s: GPU memory has that and no more",
		       async ? "async" : "sync", name);
	}
	close(fd);
	unlink(path);
}

static void test_eof(void)
{
	eof_case("across the end", 10000, 0, 64 * KIB);
	eof_case("across the end, from the middle", 10000, 4096, 64 * KIB);
	eof_case("across the end, within its block", 10000, 8192, 4 * KIB);
	eof_case("across the end, a block boundary", 8192, 0, 64 * KIB);
	eof_case("across the end of one byte", 1, 0, 64 * KIB);
	eof_case("up to the end", 64 * KIB, 0, 64 * KIB);
	eof_case("at the end", 8192, 8192, 64 * KIB);
	eof_case("in the block behind the end", 10000, 12288, 4 * KIB);
	eof_case("far behind the end", 10000, 1L << 40, 64 * KIB);
	eof_case("of an empty file", 0, 0, 64 * KIB);
	eof_case("across the end of a large file", MIB + 1234, 0, MIB + 512 * KIB);
}

/* 9.7: the position of the file description is nobody's business. */
static void test_position(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		union nvfs_ioctl_arg arg = nvfs_io_arg(&big, file, 0, SMALL, 0);

		lseek(file, 12345, SEEK_SET);
		nvfs_read(&big, file, 0, SMALL, 0);
		nvfs_request(node, ops[i].request, &arg);
		tap_is(lseek(file, 0, SEEK_CUR), 12345, "9.7: position after a sync %s",
		       ops[i].name);
		nvfs_submit(&big, ops[i].request, file, 0, SMALL, 0);
		nvfs_wait(&big);
		tap_is(lseek(file, 0, SEEK_CUR), 12345, "9.7: position after an async %s",
		       ops[i].name);
	}
}

/* in_flight: begins an async I/O of `size` bytes; false if it is over already. */
static bool in_flight(unsigned long request, int fd, size_t size)
{
	ssize_t ret = nvfs_submit(&big, request, fd, 0, size, 0);

	if (ret < 0)
		tap_diag("submit: %zd (%s)", ret, strerror(-ret));
	return ret >= 0 && nvfs_fence(&big) != big.fence;
}

/*
 * 9.1 row 12, 11.3: one I/O at a time. An EBUSY counts when the first I/O is seen in flight after
 * it, so the drive does not end it before.
 */
static void test_busy(void)
{
	const size_t size = 4 * MIB;
	struct nvfs_buffer other;
	unsigned int i, j, busy;
	double end;
	ssize_t ret;

	if (nvfs_register(&other, node, gpu_va + 32 * MIB, 16 * MIB, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	for (i = 0; i < 2; i++) {
		const char *first = ops[i].name;

		gpu_fill(&gpu, gpu_va, size, SEED);
		if (i == 0)
			clear_gpu(size);
		hold();
		if (!in_flight(ops[i].request, file, size)) {
			throttle(0);
			tap_ok(false, "9.1 row 12: an async %s could be seen in flight", first);
			continue;
		}
		for (j = 0; j < 2; j++) {
			union nvfs_ioctl_arg arg = nvfs_io_arg(&big, file, 0, PAGE, 0);

			tap_is(nvfs_request(node, ops[j].request, &arg), -EBUSY,
			       "9.1 row 12: sync %s while an async %s is in flight: EBUSY",
			       ops[j].name, first);
			tap_is(raw_submit(&big, ops[j].request, file, 0, PAGE, 0, 0x5151), -EBUSY,
			       "9.1 row 12: async %s while an async %s is in flight: EBUSY",
			       ops[j].name, first);
		}
		tap_ok(nvfs_fence(&big) != big.fence && nvfs_fence(&big) != 0x5151,
		       "9.1 row 12: the %s is still in flight, no fence was written", first);
		tap_is(nvfs_submit(&other, NVFS_IOCTL_READ, file, 0, PAGE, 0) < 0, false,
		       "9.1 row 12: another buffer of the same GPU memory takes an I/O");

		/*
		 * Tried again and again it works as soon as the first is over, not before. That
		 * takes about a second, so that some tries come before.
		 */
		throttle(4 * MIB);
		end = nvfs_seconds() + 60;
		busy = 0;
		do {
			ret = nvfs_read(&big, file, 16 * MIB, PAGE, 32 * MIB - SMALL);
			busy += ret == -EBUSY;
			sched_yield();
		} while (ret == -EBUSY && nvfs_seconds() < end);
		tap_is(ret, PAGE, "11.3: the second I/O works when the first is over");
		tap_is(nvfs_fence(&big), big.fence, "11.3: the first was over then");
		tap_diag("%u times EBUSY", busy);
		throttle(0);
		tap_is(big.meta->result, size, "11.3: the first %s is whole", first);
		if (i == 0)
			tap_ok(gpu_is(0, size, 0), "11.3: and its data is right");
		tap_is(nvfs_wait(&other), PAGE, "11.3: and so is that of the other buffer");
	}
	nvfs_unregister(&other);
}

static void test_busy_64m(void)
{
	ssize_t done;

	clear_gpu(GPU_SIZE);
	hold();
	tap_is(nvfs_submit(&big, NVFS_IOCTL_READ, file, 0, GPU_SIZE, 0), 0,
	       "10.2: async READ of 64 MiB on a drive that is held: queued (0)");
	tap_is(nvfs_read(&big, file, 0, PAGE, 0), -EBUSY,
	       "9.1 row 12: EBUSY for an I/O at once after an async READ of 64 MiB");
	throttle(0);
	done = nvfs_wait(&big);
	tap_diag("result %zd", done);
	tap_ok((done == 16 * MIB || done == (ssize_t)GPU_SIZE) && gpu_is(0, done, 0),
	       "10.2: the async READ of 64 MiB is right as far as its result says");
}

/* 9.10: the file outlives its descriptor, and its name. */
static void test_closed(void)
{
	static char data[2 * MIB] __attribute__((aligned(4096)));
	const size_t size = 2 * MIB;
	char path[256];
	int fd, keep;

	snprintf(path, sizeof(path), "%s/closed.tmp", dir);
	fd = nvfs_file(path, size, SEED);
	if (fd < 0)
		tap_bail("cannot make %s", path);
	clear_gpu(size);
	throttle(4 * MIB);
	nvfs_submit(&big, NVFS_IOCTL_READ, fd, 0, size, 0);
	close(fd);
	unlink(path);
	tap_is(nvfs_wait(&big), size, "9.10: async READ, the file closed and unlinked at once");
	throttle(0);
	tap_ok(gpu_is(0, size, 0), "9.10: its data is right");

	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	keep = open(path, O_RDONLY | O_DIRECT);
	throttle(4 * MIB);
	nvfs_submit(&big, NVFS_IOCTL_WRITE, fd, 0, size, 0);
	close(fd);
	tap_is(nvfs_wait(&big), size, "9.10: async WRITE, the file closed at once");
	throttle(0);
	tap_ok(pread(keep, data, size, 0) == (ssize_t)size && pattern_check(data, size, SEED, 0) < 0,
	       "9.10: its data is right");
	close(keep);
	unlink(path);
}

int main(int argc, char **argv)
{
	char path[256];

	if (argc != 2 && argc != 3)
		tap_bail("usage: %s DIRECTORY [FAR-BLOCK-DEVICE]", argv[0]);
	dir = argv[1];
	snprintf(path, sizeof(path), "%s/async.tmp", dir);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, FILE_SIZE, SEED);
	if (node < 0 || file < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, GPU_SIZE, 0, &gpu_va))
		tap_bail("node %d, file %d, or no GPU", node, file);
	if (nvfs_register(&big, node, gpu_va, GPU_SIZE, 16 * MIB, info.pdevinfo))
		tap_bail("MAP failed");

	test_queued();
	test_order();
	test_one_fence();
	test_fence_values();
	test_refused_early();
	test_late_failures(argc == 3 ? argv[2] : NULL);
	test_size_0();
	test_window();
	test_eof();
	test_position();
	if (host_patience(file, 600000))
		tap_bail("no io_timeout");
	test_busy();
	test_busy_64m();
	test_closed();
	host_patience(file, 30000);
	unlink(path);
	return tap_plan();
}
