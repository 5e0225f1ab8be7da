// SPDX-License-Identifier: GPL-2.0
/*
 * Files with holes, through hooks: the table in the meta block, the result, GPU memory and the
 * counters, against what the file's blocks say (contract 8.4, 10.4).
 *
 * usage: holes DIRECTORY
 *        holes small DIRECTORY		of a file system with blocks of 1 KiB
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define BLOCK	4096
#define BLOCKS	4096U		/* of a file, and of the largest shadow buffer */
#define SIZE	((uint64_t)BLOCKS * BLOCK)
#define SEED	300
#define XFS_MAGIC 0x58465342

static struct gpu gpu;
static struct fake_nvidia_info info;
static int node;
static const char *directory;
static char *memory, *seen;
static bool hole[BLOCKS];

struct stats {
	long long n, io, holes, pages;
};

static struct stats stats(void)
{
	return (struct stats) {
		nvfs_stat("Sparse Reads", "n"), nvfs_stat("Sparse Reads", "io"),
		nvfs_stat("Sparse Reads", "holes"), nvfs_stat("Sparse Reads", "pages"),
	};
}

/* The first `regions` even blocks, and then one of `last` blocks unless that is 0. */
static void comb(unsigned int regions, unsigned int last, unsigned int first)
{
	unsigned int i;

	memset(hole, 0, sizeof(hole));
	for (i = 0; i < regions; i++)
		hole[first + 2 * i] = true;
	for (i = 0; i < last; i++)
		hole[first + 2 * regions + i] = true;
}

static void random_blocks(unsigned int seed, unsigned int longest)
{
	unsigned int at = 0, len;
	bool is = seed & 1;

	while (at < BLOCKS) {
		seed = seed * 1103515245 + 12345;
		len = (seed >> 16) % longest + 1;
		for (; len-- && at < BLOCKS; at++)
			hole[at] = is;
		is = !is;
	}
}

/* A new file with data where there is no hole. */
static int make(bool unwritten)
{
	char path[256];
	unsigned int i, end;
	int fd;

	snprintf(path, sizeof(path), "%s/holes", directory);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, SIZE) || (unwritten && fallocate(fd, 0, 0, SIZE)))
		tap_bail("%s: %s", path, strerror(errno));
	for (i = 0; i < BLOCKS; i = end) {
		for (end = i; end < BLOCKS && !hole[end]; end++)
			;
		if (end > i && pwrite(fd, memory + (uint64_t)i * BLOCK,
				      (uint64_t)(end - i) * BLOCK, (uint64_t)i * BLOCK) < 0)
			tap_bail("%s: %s", path, strerror(errno));
		end += end == i;
	}
	if (fsync(fd) || close(fd))
		tap_bail("%s: %s", path, strerror(errno));
	fd = open(path, O_RDWR | O_DIRECT);
	if (fd < 0)
		tap_bail("%s: %s", path, strerror(errno));
	return fd;
}

/* Reads blocks from `first` on, and compares all that can be seen afterwards. */
static bool read_one(struct nvfs_buffer *buf, int fd, bool async, unsigned int first,
		     unsigned int count)
{
	unsigned int window = buf->window / BLOCK, chunk = 0, in = 0, done, end, i, regions = 0;
	unsigned int looked;
	static struct nvfs_hole want[NVFS_MAX_HOLES];
	struct stats before = stats(), after;
	struct nvfs_meta *meta = buf->meta;
	unsigned int pages = 0, reads = 0;
	struct statfs fs;
	struct stat st;
	bool sparse, good = true, full = true;
	ssize_t n, told = 0;

	/* Chunk by chunk, until one has a hole. */
	for (done = 0; done < count && !regions; done += in) {
		chunk = done;
		in = count - done < window ? count - done : window;
		reads++;
		for (i = 0; i < in; i = end) {
			for (end = i; end < in && hole[first + chunk + end]; end++)
				;
			if (end > i && regions == NVFS_MAX_HOLES) {
				in = i;
				break;
			}
			if (end > i) {
				want[regions++] = (struct nvfs_hole) { i, end - i };
				pages += end - i;
			}
			end += end == i;
		}
		if (async) {
			done += in;
			break;
		}
	}
	told = (ssize_t)done * BLOCK;

	fstat(fd, &st);
	fstatfs(fd, &fs);
	/* XFS counts its blocks where nobody else sees them. */
	sparse = st.st_blocks * 512 < st.st_size || fs.f_type == XFS_MAGIC;
	looked = count + 16 < BLOCKS ? count + 16 : BLOCKS;
	if (gpu_set(&gpu, buf->gpu_va, 0xa5, (uint64_t)looked * BLOCK))
		return false;
	memset(meta, 0xee, sizeof(*meta));
	meta->end_fence_val = 0;
	if (async) {
		n = nvfs_submit(buf, NVFS_IOCTL_READ, fd, (int64_t)first * BLOCK,
				(uint64_t)count * BLOCK, 0);
		full = n > 0;
		n = n < 0 ? n : nvfs_wait(buf);
	} else {
		n = nvfs_read(buf, fd, (int64_t)first * BLOCK, (uint64_t)count * BLOCK, 0);
	}
	if (n != told) {
		tap_diag("result %zd, want %zd", n, told);
		good = false;
	}
	if (regions || sparse) {
		if (meta->state != (regions ? 1 : 0) || meta->nholes != regions ||
		    meta->hole_magic != NVFS_HOLE_MAGIC || meta->hole_version != 1 ||
		    meta->start_fd_offset != (int64_t)(first + chunk) * BLOCK ||
		    memcmp(meta->hole, want, regions * sizeof(*want))) {
			tap_diag("state %u, %u holes from %lld, want %u from %u", meta->state,
				 meta->nholes, (long long)meta->start_fd_offset, regions,
				 (first + chunk) * BLOCK);
			good = false;
		}
	} else if (meta->state != 0xeeeeeeee || meta->nholes != 0xeeeeeeee ||
		   meta->hole[0].start != 0xeeee) {
		tap_diag("a table for a dense file");
		good = false;
	}
	if (gpu_read(&gpu, buf->gpu_va, seen, (uint64_t)looked * BLOCK))
		return false;
	for (i = 0; i < looked; i++) {
		const char *block = seen + (uint64_t)i * BLOCK;

		/* What is behind a cut may be there. */
		if (i >= done && i < count && !async && i < chunk + window)
			continue;
		if (i >= done && i < count && i < window)
			continue;
		if (i < done && !hole[first + i]) {
			if (!memcmp(block, memory + (uint64_t)(first + i) * BLOCK, BLOCK))
				continue;
		} else if ((uint8_t)block[0] == 0xa5 && !memcmp(block, block + 1, BLOCK - 1)) {
			continue;
		}
		tap_diag("block %u of the %s is wrong", i, hole[first + i] ? "holes" : "data");
		good = false;
		break;
	}
	after = stats();
	if (after.n - before.n != (sparse ? reads : 0) || after.holes - before.holes != regions ||
	    after.pages - before.pages != pages || after.io - before.io != (regions && full)) {
		tap_diag("n %lld, io %lld, holes %lld, pages %lld", after.n - before.n,
			 after.io - before.io, after.holes - before.holes,
			 after.pages - before.pages);
		good = false;
	}
	return good;
}

static void begin(struct nvfs_buffer *buf, size_t window, uint64_t flags)
{
	uint64_t va;

	if (gpu_alloc(&gpu, SIZE, flags, &va) ||
	    nvfs_register(buf, node, va, SIZE, window, info.pdevinfo))
		tap_bail("no buffer");
}

static void end(struct nvfs_buffer *buf)
{
	nvfs_unregister(buf);
	gpu_free(&gpu, buf->gpu_va);
}

/* With real holes, or unwritten extents, or both. */
enum kinds { HOLES = 1, UNWRITTEN = 2, BOTH = 3 };

static void test(struct nvfs_buffer *buf, enum kinds kinds, const char *what, unsigned int first,
		 unsigned int count)
{
	unsigned int unwritten, async;

	for (unwritten = 0; unwritten < 2; unwritten++) {
		int fd;

		if (!(kinds & 1 << unwritten))
			continue;
		fd = make(unwritten);
		for (async = 0; async < 2; async++)
			tap_ok(read_one(buf, fd, async, first, count), "%s: %s, %s, %s", directory,
			       what, unwritten ? "unwritten" : "holes", async ? "async" : "sync");
		close(fd);
	}
}

/* ---- blocks of 1 KiB ---- */

#define KIB1	1024

/* `map`: a letter for each KiB of the file: `d` data, `.` a hole. */
static const struct {
	const char *what, *map;
	long result;
	struct nvfs_hole hole;
} small[] = {
	{ "a dense file", "dddddddddddd", 12288, { 0, 0 } },
	{ "a dense file of 5 KiB", "ddddd", 5120, { 0, 0 } },
	{ "a hole of a block", "dddd....dddd", 12288, { 1, 1 } },
	{ "a hole of two blocks at the end", "dddd........", 12288, { 1, 2 } },
	{ "a hole that ends with the file", "dddd.", 5120, { 1, 1 } },
	{ "a hole in a block", "d.dddddddddd", -EIO, { 0, 0 } },
	{ "a hole that begins in a block", "ddd.....dddd", -EIO, { 0, 0 } },
	{ "a hole that ends in a block", "dddd.....ddd", -EIO, { 0, 0 } },
	{ "a hole in the last block", "ddddd.", -EIO, { 0, 0 } },
};

/* Only a hole of whole blocks can be told; of any other the GPU would have what was there before. */
static void test_small(struct nvfs_buffer *buf, unsigned int which, bool async)
{
	const char *map = small[which].map, *what = small[which].what;
	size_t n = strlen(map), i;
	bool right = true;
	char path[256];
	long result;
	int fd;

	snprintf(path, sizeof(path), "%s/small", directory);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, n * KIB1))
		tap_bail("%s: %s", path, strerror(errno));
	for (i = 0; i < n; i++)
		if (map[i] == 'd' && pwrite(fd, memory + i * KIB1, KIB1, i * KIB1) != KIB1)
			tap_bail("%s: %s", path, strerror(errno));
	if (fsync(fd) || close(fd) || (fd = open(path, O_RDWR | O_DIRECT)) < 0)
		tap_bail("%s: %s", path, strerror(errno));
	memset(buf->meta, 0xee, sizeof(*buf->meta));
	buf->meta->end_fence_val = 0;
	if (gpu_set(&gpu, buf->gpu_va, 0xa5, 16384))
		tap_bail("no GPU");
	if (async) {
		result = nvfs_submit(buf, NVFS_IOCTL_READ, fd, 0, 16384, 0);
		result = result < 0 ? result : nvfs_wait(buf);
	} else {
		result = nvfs_read(buf, fd, 0, 16384, 0);
	}
	what = async ? "async" : "sync";
	tap_is(result, small[which].result, "%s: %s, %s", directory, small[which].what, what);
	if (small[which].hole.npages)
		tap_ok(buf->meta->nholes == 1 && buf->meta->state == 1 &&
		       !memcmp(buf->meta->hole, &small[which].hole, sizeof(small[which].hole)),
		       "%s: and is told, %s", small[which].what, what);
	if (result > 0) {
		gpu_read(&gpu, buf->gpu_va, seen, 16384);
		for (i = 0; i < n; i++)
			right &= map[i] == 'd' ? !memcmp(seen + i * KIB1, memory + i * KIB1, KIB1) :
						 seen[i * KIB1] == (char)0xa5;
		tap_ok(right, "%s: the bytes are right, %s", small[which].what, what);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	struct nvfs_buffer buf = { 0 };
	unsigned int seed;
	char what[64];

	node = nvfs_open(0, O_RDWR);
	memory = aligned_alloc(BLOCK, SIZE);
	seen = aligned_alloc(BLOCK, SIZE);
	if (argc < 2 || node < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) || !memory || !seen)
		tap_bail("usage: %s DIRECTORY", argv[0]);
	directory = argv[1];
	pattern_fill(memory, SIZE, SEED, 0);
	if (argc == 3) {
		directory = argv[2];
		begin(&buf, MIB, 0);
		for (seed = 0; seed < 2 * sizeof(small) / sizeof(*small); seed++)
			test_small(&buf, seed / 2, seed & 1);
		end(&buf);
		return tap_plan();
	}

	begin(&buf, 16 * MIB, 0);
	comb(1, 0, 0);
	test(&buf, BOTH, "1 region", 0, BLOCKS);
	comb(0, 0, 0);
	test(&buf, HOLES, "a dense file after one with holes", 0, BLOCKS);
	comb(1, 0, BLOCKS - 1);
	test(&buf, HOLES, "the last block", 0, BLOCKS);
	comb(0, BLOCKS, 0);
	test(&buf, BOTH, "nothing else", 0, BLOCKS);
	comb(767, 0, 1);
	test(&buf, HOLES, "767 regions", 0, BLOCKS);
	comb(768, 0, 0);
	test(&buf, HOLES, "768 regions", 0, BLOCKS);
	comb(769, 0, 0);
	test(&buf, BOTH, "769 regions", 0, BLOCKS);
	comb(768, 5, 0);
	test(&buf, BOTH, "769 regions, the last of 5 blocks", 0, BLOCKS);
	comb(2000, 0, 1);
	test(&buf, UNWRITTEN, "2000 regions", 0, BLOCKS);
	comb(900, 0, 0);
	test(&buf, HOLES, "900 regions, from a hole on", 300, 2000);
	end(&buf);

	begin(&buf, MIB, FAKE_NVIDIA_SCRAMBLED);
	comb(3, 0, 300);
	test(&buf, BOTH, "the second of four chunks", 0, 1024);
	test(&buf, HOLES, "from the middle of the holes", 302, 600);
	for (seed = 1; seed <= 4; seed++) {
		random_blocks(seed, seed < 3 ? 700 : 9);
		snprintf(what, sizeof(what), "seed %u", seed);
		test(&buf, seed & 1 ? HOLES : UNWRITTEN, what, seed * 31, 1000);
	}
	end(&buf);
	return tap_plan();
}
