// SPDX-License-Identifier: GPL-2.0
/*
 * The bytes: what READ leaves in GPU memory, seen by the host in the BAR's backing file, and what
 * WRITE leaves on the drive, seen by ordinary direct I/O.
 *
 * usage: data KIND PATH...  (KIND: matrix, a file or a block device each; edges, a directory;
 * refused REASON, files that GPU 0 cannot be used with; reached, files that it can; once, a file)
 *
 * In the environment: WAY=callback says that the drives' driver has hooks, so that data goes through
 * the shadow buffer in chunks; WINDOW is the shadow buffer's length in KiB; LARGEST is the size of the
 * matrix's longest requests in MiB.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/host.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define GPU_SIZE (128 * MIB)
#define FAR_OFFSET (5 * 1024 * (int64_t)MIB)

static struct gpu gpu;
static struct fake_nvidia_info info;
static int node;
static char *host_memory;
static uint64_t seed = 100;
static bool callback;
static size_t window = MIB;
static uint64_t largest = GPU_SIZE;

/* How much of an asynchronous request is done: with hooks, what the shadow buffer holds. */
static uint64_t done_of(uint64_t size, bool async)
{
	return callback && async && size > window ? window : size;
}

/* Compares GPU memory with the pattern, extent by extent, in the backing file. */
static bool bar_has_pattern(uint64_t va, uint64_t size, uint64_t pattern)
{
	uint64_t done = 0, at, len;
	char line[128], reply[128];
	unsigned int extents = 0;
	int64_t bad;

	/* Of scrambled memory the host looks at the first pages; the rest is read here. */
	while (done < size && extents++ < 8) {
		if (gpu_where(&gpu, va + done, &at, &len))
			return false;
		if (len > size - done)
			len = size - done;
		if (done == 0) {
			snprintf(line, sizeof(line), "compare gpu0 %llu %llu %llu",
				 (unsigned long long)at, (unsigned long long)len,
				 (unsigned long long)pattern);
			if (host_request(line, reply, sizeof(reply)) || strncmp(reply, "ok", 2)) {
				tap_diag("host says %s", reply);
				return false;
			}
		}
		done += len;
	}
	if (done >= size && extents == 1)
		return true;
	if (gpu_check(&gpu, va, size, pattern, &bad) || bad != -1) {
		tap_diag("first bad word %lld", (long long)bad);
		return false;
	}
	return true;
}

static ssize_t transfer(struct nvfs_buffer *buf, bool write, bool async, int fd, int64_t offset,
			uint64_t size, uint64_t at)
{
	ssize_t ret;

	if (!async)
		return write ? nvfs_write(buf, fd, offset, size, at) :
			       nvfs_read(buf, fd, offset, size, at);
	ret = nvfs_submit(buf, write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, fd, offset, size, at);
	if (ret < 0)
		return ret;
	return nvfs_wait(buf);
}

static bool host_io(int fd, bool write, uint64_t size, int64_t offset)
{
	uint64_t done = 0;
	ssize_t n;

	while (done < size) {
		n = write ? pwrite(fd, host_memory + done, size - done, offset + done) :
			    pread(fd, host_memory + done, size - done, offset + done);
		if (n <= 0)
			return false;
		done += n;
	}
	return true;
}

/* All bytes from `from` to `to` of GPU memory, read back, are `byte`. */
static bool all_are(struct nvfs_buffer *buf, uint64_t from, uint64_t to, uint8_t byte)
{
	uint64_t i;

	if (gpu_read(&gpu, buf->gpu_va + from, host_memory, to - from))
		return false;
	for (i = 0; i < to - from; i++) {
		if ((uint8_t)host_memory[i] != byte) {
			tap_diag("byte %llu is %#x", (unsigned long long)(from + i),
				 (uint8_t)host_memory[i]);
			return false;
		}
	}
	return true;
}

static void one(struct nvfs_buffer *buf, const char *path, int fd, bool write, bool async,
		uint64_t size, bool scrambled, int64_t offset)
{
	uint64_t done = done_of(size, async);
	bool good;
	ssize_t n;

	seed++;
	if (write) {
		good = !gpu_fill(&gpu, buf->gpu_va, size, seed);
		n = transfer(buf, true, async, fd, offset, size, 0);
		good = good && n == (ssize_t)done && host_io(fd, false, done, offset) &&
		       pattern_check(host_memory, done, seed, 0) == -1;
	} else {
		pattern_fill(host_memory, size, seed, 0);
		good = host_io(fd, true, size, offset) && !gpu_set(&gpu, buf->gpu_va, 0xa5, size);
		n = transfer(buf, false, async, fd, offset, size, 0);
		good = good && n == (ssize_t)done && bar_has_pattern(buf->gpu_va, done, seed) &&
		       all_are(buf, done, size, 0xa5);
	}
	tap_ok(good, "%s: %s %s %llu KiB %s at %lld KiB", path, async ? "async" : "sync",
	       write ? "write" : "read", (unsigned long long)(size / KIB), scrambled ? "scrambled" : "contiguous",
	       (long long)(offset / (int64_t)KIB));
	if (n != (ssize_t)done)
		tap_diag("result %zd", n);
}

static void register_all(struct nvfs_buffer *buf, uint64_t flags, uint64_t *va)
{
	if (gpu_alloc(&gpu, GPU_SIZE, flags, va) ||
	    nvfs_register(buf, node, *va, GPU_SIZE, window, info.pdevinfo))
		tap_bail("no buffer");
}

static void matrix(char **paths)
{
	static const uint64_t sizes[] = { 4 * KIB, 64 * KIB, MIB, 17 * MIB, GPU_SIZE };
	struct nvfs_buffer buf;
	unsigned int i, mode;
	uint64_t va;
	char **path;
	int fd;

	for (mode = 0; mode < 2; mode++) {
		register_all(&buf, mode ? FAKE_NVIDIA_SCRAMBLED : 0, &va);
		for (path = paths; *path; path++) {
			fd = open(*path, O_RDWR | O_DIRECT);
			if (fd < 0)
				tap_bail("%s: %s", *path, strerror(errno));
			for (i = 0; i < 5 && sizes[i] <= largest; i++) {
				/* In chunks this is 17 MiB again, only longer. */
				if (callback && mode && sizes[i] == GPU_SIZE)
					continue;
				one(&buf, *path, fd, false, false, sizes[i], mode, 0);
				one(&buf, *path, fd, false, true, sizes[i], mode, 12 * KIB);
				one(&buf, *path, fd, true, false, sizes[i], mode, 3 * MIB);
				one(&buf, *path, fd, true, true, sizes[i], mode, 60 * KIB);
			}
			if (lseek(fd, 0, SEEK_END) > FAR_OFFSET + (int64_t)MIB) {
				one(&buf, *path, fd, true, false, MIB, mode, FAR_OFFSET);
				one(&buf, *path, fd, false, true, MIB, mode, FAR_OFFSET);
			}
			close(fd);
		}
		nvfs_unregister(&buf);
		gpu_free(&gpu, va);
	}
}

/* Each byte is the one or the other. */
static bool each_is(const char *bytes, size_t n, uint8_t one, uint8_t other)
{
	while (n--) {
		if ((uint8_t)bytes[n] != one && (uint8_t)bytes[n] != other)
			return false;
	}
	return true;
}

/* How much of a read that finds holes is done. */
static uint64_t told_of(uint64_t size)
{
	return callback && size > window ? window : size;
}

/* A MiB of a hole was read: as zeros, or, with hooks, as a hole in the meta block's table. */
static void are_zeros(struct nvfs_buffer *buf, const char *path, const char *how)
{
	struct nvfs_meta *meta = buf->meta;

	if (!callback) {
		tap_ok(all_are(buf, 0, MIB, 0), "%s %s: as zeros", path, how);
		return;
	}
	tap_ok(meta->state == 1 && meta->nholes == 1 && meta->hole[0].start == 0 &&
	       meta->hole[0].npages == told_of(MIB) / 4096 && meta->start_fd_offset == 0 &&
	       meta->hole_magic == NVFS_HOLE_MAGIC && meta->hole_version == 1,
	       "%s %s: the table tells of it", path, how);
	tap_ok(all_are(buf, 0, MIB, 0xa5), "%s %s: and GPU memory is untouched", path, how);
	memset(meta, 0, sizeof(*meta));
}

static void edges(const char *directory)
{
	struct nvfs_buffer buf;
	char path[256];
	unsigned int async;
	uint64_t va;
	int fd;

	register_all(&buf, 0, &va);
	snprintf(path, sizeof(path), "%s/edge", directory);
	for (async = 0; async < 2; async++) {
		const char *how = async ? "async" : "sync";
		/* With hooks, a chunk with holes is the last one. */
		long long told = told_of(MIB);

		unlink(path);
		fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
		if (fd < 0 || ftruncate(fd, MIB))
			tap_bail("%s: %s", path, strerror(errno));
		gpu_set(&gpu, va, 0xa5, 2 * MIB);
		tap_is(transfer(&buf, false, async, fd, 0, MIB, 0), told,
		       "%s %s: a hole is read, %lld bytes", path, how, told);
		are_zeros(&buf, path, how);
		tap_ok(all_are(&buf, MIB, 2 * MIB, 0xa5), "%s %s: and no more", path, how);

		if (fallocate(fd, 0, 0, MIB))
			tap_bail("fallocate: %s", strerror(errno));
		gpu_set(&gpu, va, 0xa5, 2 * MIB);
		tap_is(transfer(&buf, false, async, fd, 0, MIB, 0), told,
		       "%s %s: an unwritten extent is read, %lld bytes", path, how, told);
		are_zeros(&buf, path, how);

		pattern_fill(host_memory, 64 * KIB, 7, 0);
		if (!host_io(fd, true, 64 * KIB, 0) || ftruncate(fd, 10000) || fsync(fd))
			tap_bail("no file of 10000 bytes");
		gpu_set(&gpu, va, 0xa5, 64 * KIB);
		tap_is(transfer(&buf, false, async, fd, 0, 64 * KIB, 0), 10000,
		       "%s %s: a read over the end returns what is there", path, how);
		gpu_read(&gpu, va, host_memory, 64 * KIB);
		tap_ok(pattern_check(host_memory, 10000, 7, 0) == -1, "%s %s: and the data", path,
		       how);
		tap_ok(each_is(host_memory + 10000, 12288 - 10000, 0, 0xa5),
		       "%s %s: up to the end of its block zeros or nothing", path, how);
		tap_ok(all_are(&buf, 12288, 64 * KIB, 0xa5),
		       "%s %s: nothing behind the last block is touched", path, how);
		gpu_set(&gpu, va, 0xa5, 64 * KIB);
		tap_is(transfer(&buf, false, async, fd, 12288, 4 * KIB, 0), 0,
		       "%s %s: a read past the end returns 0", path, how);
		tap_ok(all_are(&buf, 0, 64 * KIB, 0xa5), "%s %s: and touches nothing", path, how);
		if (ftruncate(fd, 8192))
			tap_bail("no file of 8192 bytes");
		tap_is(transfer(&buf, false, async, fd, 8192, 4 * KIB, 0), 0,
		       "%s %s: a read that begins at the end returns 0", path, how);
		tap_ok(all_are(&buf, 0, 64 * KIB, 0xa5), "%s %s: and touches nothing", path, how);
		close(fd);
	}
	nvfs_unregister(&buf);
	gpu_free(&gpu, va);
}

static void refused(long reason, char **paths)
{
	struct nvfs_buffer buf;
	unsigned int async;
	uint64_t va;
	int fd;

	register_all(&buf, 0, &va);
	for (; *paths; paths++) {
		fd = open(*paths, O_RDWR | O_DIRECT);
		if (fd < 0)
			tap_bail("%s: %s", *paths, strerror(errno));
		for (async = 0; async < 2; async++) {
			const char *how = async ? "async" : "sync";

			gpu_set(&gpu, va, 0xa5, MIB);
			memset(host_memory, 0, MIB);
			tap_is(transfer(&buf, false, async, fd, 0, MIB, 0), -reason,
			       "%s: %s READ is refused with %s", *paths, how, strerror(reason));
			tap_ok(all_are(&buf, 0, MIB, 0xa5), "%s: %s: nothing came", *paths, how);
			if (!host_io(fd, false, MIB, 0))
				tap_bail("%s: cannot be read", *paths);
			memcpy(host_memory + MIB, host_memory, MIB);
			tap_is(transfer(&buf, true, async, fd, 0, MIB, 0), -reason,
			       "%s: %s WRITE is refused with %s", *paths, how, strerror(reason));
			if (!host_io(fd, false, MIB, 0))
				tap_bail("%s: cannot be read", *paths);
			tap_ok(!memcmp(host_memory + MIB, host_memory, MIB), "%s: %s: nothing went",
			       *paths, how);
		}
		close(fd);
	}
	nvfs_unregister(&buf);
	gpu_free(&gpu, va);
}

static void reached(char **paths)
{
	struct nvfs_buffer buf;
	uint64_t va;
	int fd;

	register_all(&buf, 0, &va);
	for (; *paths; paths++) {
		fd = open(*paths, O_RDWR | O_DIRECT);
		if (fd < 0)
			tap_bail("%s: %s", *paths, strerror(errno));
		one(&buf, *paths, fd, false, false, 17 * MIB, false, 0);
		one(&buf, *paths, fd, true, true, 17 * MIB, false, 0);
		close(fd);
	}
	nvfs_unregister(&buf);
	gpu_free(&gpu, va);
}

static void once(const char *path)
{
	struct nvfs_buffer buf;
	uint64_t va;
	int fd = open(path, O_RDWR | O_DIRECT);

	if (fd < 0)
		tap_bail("%s: %s", path, strerror(errno));
	register_all(&buf, 0, &va);
	one(&buf, path, fd, false, false, MIB, false, 0);
	nvfs_unregister(&buf);
	gpu_free(&gpu, va);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		tap_bail("usage: %s KIND PATH...", argv[0]);
	host_memory = mmap(NULL, GPU_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);
	node = nvfs_open(0, O_RDWR);
	if (host_memory == MAP_FAILED || node < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info))
		tap_bail("no GPU or no module");
	callback = getenv("WAY") && !strcmp(getenv("WAY"), "callback");
	if (getenv("WINDOW"))
		window = strtoul(getenv("WINDOW"), NULL, 0) * KIB;
	if (getenv("LARGEST"))
		largest = strtoul(getenv("LARGEST"), NULL, 0) * MIB;
	if (!strcmp(argv[1], "matrix"))
		matrix(argv + 2);
	else if (!strcmp(argv[1], "edges"))
		edges(argv[2]);
	else if (!strcmp(argv[1], "refused"))
		refused(atol(argv[2]), argv + 3);
	else if (!strcmp(argv[1], "once"))
		once(argv[2]);
	else
		reached(argv + 2);
	return tap_plan();
}
