// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of a hooked disk that do not get GPU addresses: the transfer is never told as a success
 * (contract 10.5, 10.7).
 *
 * usage: ways cpu DISK               the disk takes the CPU's way for all (fake_storage's table=0)
 *        ways moved HOW A B          A is the only member of the raid1 /dev/md1, which is moved to B,
 *                                    and so on; at the end it is on A
 *        ways turned FILE COMMAND ERRNO  COMMAND is run between transfers that work and ones that
 *                                    are refused
 *        ways unforeseen HOW DISK PCI...  the PCI functions do the disk's DMA, one for each second
 *                                    request, and DISK makes two requests of a transfer
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
#include "../lib/vendor.h"

#define SIZE	(1 * MIB)

static struct gpu gpu;
static struct fake_nvidia_info info;
static struct nvfs_buffer buf;
static int node;
static char *memory;
static const char array[] = "/dev/md1";

static void begin(void)
{
	uint64_t va;

	if (gpu_alloc(&gpu, SIZE, 0, &va) ||
	    nvfs_register(&buf, node, va, SIZE, SIZE, info.pdevinfo))
		tap_bail("no buffer");
}

static void end(void)
{
	nvfs_unregister(&buf);
	gpu_free(&gpu, buf.gpu_va);
}

static ssize_t transfer(bool write, bool async, int fd, uint64_t size)
{
	ssize_t n;

	if (!async)
		return write ? nvfs_write(&buf, fd, 0, size, 0) : nvfs_read(&buf, fd, 0, size, 0);
	n = nvfs_submit(&buf, write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, fd, 0, size, 0);
	return n < 0 ? n : nvfs_wait(&buf);
}

static bool gpu_is(uint8_t byte)
{
	uint64_t i;

	if (gpu_read(&gpu, buf.gpu_va, memory, SIZE))
		return false;
	for (i = 0; i < SIZE; i++)
		if ((uint8_t)memory[i] != byte)
			return false;
	return true;
}

/* A read brings what the disk has, and a write what the GPU has. */
static bool works(int fd, bool async, uint64_t seed)
{
	int64_t bad;

	pattern_fill(memory, SIZE, seed, 0);
	if (pwrite(fd, memory, SIZE, 0) != SIZE || gpu_set(&gpu, buf.gpu_va, 0xa5, SIZE) ||
	    transfer(false, async, fd, SIZE) != SIZE ||
	    gpu_check(&gpu, buf.gpu_va, SIZE, seed, &bad) || bad != -1)
		return false;
	return !gpu_fill(&gpu, buf.gpu_va, SIZE, seed + 1) &&
	       transfer(true, async, fd, SIZE) == SIZE && pread(fd, memory, SIZE, 0) == SIZE &&
	       pattern_check(memory, SIZE, seed + 1, 0) == -1;
}

static void cpu(const char *disk)
{
	static const uint64_t sizes[] = { 4096, 64 * KIB, SIZE };
	int fd = open(disk, O_RDWR | O_DIRECT);
	unsigned int async, i;

	begin();
	for (async = 0; async < 2; async++) {
		const char *how = async ? "async" : "sync";

		storage_set("table", FAKE_STORAGE_V2);
		tap_ok(works(fd, async, 70), "%s: with hooks, data moves", how);
		storage_set("table", FAKE_STORAGE_NONE);
		for (i = 0; i < 3; i++) {
			pattern_fill(memory, SIZE, 72, 0);
			if (pwrite(fd, memory, SIZE, 0) != SIZE)
				tap_bail("%s: %s", disk, strerror(errno));
			gpu_set(&gpu, buf.gpu_va, 0xa5, SIZE);
			memset(buf.meta, 0, sizeof(*buf.meta));
			buf.fence = 0;
			tap_is(transfer(false, async, fd, sizes[i]), -EIO,
			       "%s read of %llu: what went by the CPU is an error", how,
			       (unsigned long long)sizes[i]);
			tap_ok(buf.meta->state == 0, "%s read: it is not told as a hole", how);
			tap_ok(gpu_is(0xa5), "%s read: GPU memory is untouched", how);
			tap_is(transfer(true, async, fd, sizes[i]), -EIO,
			       "%s write of %llu: is one, too", how, (unsigned long long)sizes[i]);
		}
		/* One piece of several that was not mapped: a block of data among holes. */
		memset(memory, 0, SIZE);
		memory[SIZE - 1] = 1;
		pwrite(fd, memory, SIZE, 0);
		tap_is(transfer(false, async, fd, SIZE), -EIO,
		       "%s: one byte is enough to tell data from a hole", how);
		/* The shadow memory has old data of other reads: zeros are written over it. */
		memset(memory, 0, SIZE);
		pwrite(fd, memory, SIZE, 0);
		tap_is(transfer(false, async, fd, SIZE), SIZE, "%s: zeros are as good as a hole",
		       how);
		tap_ok(buf.meta->state == 1 && buf.meta->nholes == 1 &&
		       buf.meta->hole[0].npages == SIZE / 4096, "%s: and told as one", how);
	}
	storage_set("table", FAKE_STORAGE_V2);
	tap_ok(works(fd, false, 80), "with hooks again, data moves");
	end();
}

static void run(const char *command)
{
	if (system(command))
		tap_bail("%s: does not work", command);
}

/* The array is made of `to` alone from now on. */
static void move(const char *from, const char *to)
{
	char line[512];

	snprintf(line, sizeof(line),
		 "mdadm --quiet %s --add %s && "
		 "until grep -q '^in_sync' /sys/block/%s/md/dev-%s/state; do sleep 0.1; done && "
		 "mdadm --quiet %s --fail %s && "
		 "until grep -q none /sys/block/%s/md/dev-%s/slot; do sleep 0.1; done && "
		 "mdadm --quiet %s --remove %s && mdadm --quiet --zero-superblock %s",
		 array, to, array + 5, to + 5, array, from, array + 5, from + 5, array, from, from);
	run(line);
}

static void moved(const char *how, const char *a, const char *b)
{
	int fd = open(array, O_RDWR | O_DIRECT);
	unsigned int async, write;
	const char *other;
	int64_t bad;
	ssize_t n;

	if (fd < 0)
		tap_bail("%s: %s", array, strerror(errno));
	for (async = 0; async < 2; async++) {
		for (write = 0; write < 2; write++) {
			const char *what = write ? "write" : "read";

			begin();
			tap_ok(works(fd, async, 90), "%s: data moves", how);
			move(a, b);
			other = a;
			a = b;
			b = other;
			pattern_fill(memory, SIZE, 92, 0);
			if (pwrite(fd, memory, SIZE, 0) != SIZE)
				tap_bail("%s: %s", array, strerror(errno));
			gpu_fill(&gpu, buf.gpu_va, SIZE, 93);
			n = transfer(write, async, fd, SIZE);
			tap_is(n, SIZE, "%s: %s %s of another disk is good", how,
			       async ? "async" : "sync", what);
			if (write)
				tap_ok(pread(fd, memory, SIZE, 0) == SIZE &&
				       pattern_check(memory, SIZE, 93, 0) == -1,
				       "%s: %s: and is right", how, what);
			else
				tap_ok(!gpu_check(&gpu, buf.gpu_va, SIZE, 92, &bad) && bad == -1,
				       "%s: %s: GPU memory is right", how, what);
			tap_ok(works(fd, async, 94), "%s: the next ones work", how);
			end();
		}
	}
	close(fd);
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDWR | O_DIRECT);

	if (fd < 0)
		tap_bail("%s: %s", path, strerror(errno));
	return fd;
}

/* What a buffer knows of a file is looked at again, and then refused. */
static void turned(const char *path, const char *command, int error)
{
	unsigned int async, write;
	int fd = open_file(path);

	begin();
	tap_ok(works(fd, false, 50) && works(fd, true, 52), "%s: data moves", path);
	close(fd);
	run(command);
	fd = open_file(path);
	pattern_fill(memory, SIZE, 54, 0);
	if (pwrite(fd, memory, SIZE, 0) != SIZE)
		tap_bail("%s: %s", path, strerror(errno));
	for (async = 0; async < 2; async++) {
		for (write = 0; write < 2; write++) {
			const char *what = async ? write ? "async write" : "async read" :
					   write ? "sync write" : "sync read";

			gpu_set(&gpu, buf.gpu_va, 0xa5, SIZE);
			tap_is(transfer(write, async, fd, SIZE), -error, "%s: then %s is refused",
			       path, what);
			tap_ok(gpu_is(0xa5), "%s: %s: GPU memory is untouched", path, what);
			tap_ok(pread(fd, memory, SIZE, 0) == SIZE &&
			       pattern_check(memory, SIZE, 54, 0) == -1,
			       "%s: %s: so is the disk", path, what);
		}
	}
	close(fd);
	end();
}

static uint64_t dma_maps(void)
{
	struct fake_nvidia_counts counts;

	if (gpu_counts(&gpu, &counts))
		tap_bail("no counts");
	return counts.calls[FAKE_NVIDIA_DMA_MAP_PAGES];
}

/*
 * The first asynchronous transfer fails, nothing has moved by then, and the mappings are there for
 * the next one. A synchronous one is tried again.
 */
static void unforeseen(const char *how, const char *path, unsigned int n, char **names)
{
	int fd = open(path, O_RDWR | O_DIRECT);
	unsigned int async, write, i;
	uint64_t maps;
	int64_t bad;

	if (fd < 0)
		tap_bail("%s: %s", path, strerror(errno));
	for (async = 0; async < 2; async++) {
		for (write = 0; write < 2; write++) {
			const char *what = async ? write ? "async write" : "async read" :
					   write ? "sync write" : "sync read";

			begin();
			storage_set("adapter", 0);
			storage_set("second_adapter", 0);
			tap_ok(works(fd, async, 60), "%s: data moves", how);
			pattern_fill(memory, SIZE, 62, 0);
			if (pwrite(fd, memory, SIZE, 0) != SIZE ||
			    gpu_fill(&gpu, buf.gpu_va, SIZE, 63))
				tap_bail("%s: %s", path, strerror(errno));
			for (i = 0; i < n; i++)
				if (storage_set(i ? "second_adapter" : "adapter",
						vendor_pci(names[i])))
					tap_bail("no %s", names[i]);
			maps = dma_maps();
			if (async) {
				tap_is(transfer(write, async, fd, SIZE), -EIO,
				       "%s: the first %s fails", how, what);
				tap_ok(!gpu_check(&gpu, buf.gpu_va, SIZE, 63, &bad) && bad == -1,
				       "%s: %s: GPU memory is untouched", how, what);
				tap_is(dma_maps() - maps, n, "%s: the mappings are made", how);
			}
			tap_is(transfer(write, async, fd, SIZE), SIZE, "%s: %s is good", how, what);
			tap_is(dma_maps() - maps, n, "%s: with a mapping for each of %u", how, n);
			if (write)
				tap_ok(pread(fd, memory, SIZE, 0) == SIZE &&
				       pattern_check(memory, SIZE, 63, 0) == -1,
				       "%s: %s: and is right", how, what);
			else
				tap_ok(!gpu_check(&gpu, buf.gpu_va, SIZE, 62, &bad) && bad == -1,
				       "%s: %s: and is right", how, what);
			tap_ok(works(fd, async, 64), "%s: so are the next ones", how);
			end();
		}
	}
	storage_set("adapter", 0);
	storage_set("second_adapter", 0);
}

int main(int argc, char **argv)
{
	node = nvfs_open(0, O_RDWR);
	memory = aligned_alloc(4096, SIZE);
	if (argc < 3 || node < 0 || !memory || gpu_open(&gpu, 0) || gpu_info(&gpu, &info))
		tap_bail("usage: %s KIND ...", argv[0]);
	if (!strcmp(argv[1], "cpu"))
		cpu(argv[2]);
	else if (!strcmp(argv[1], "unforeseen") && argc > 4)
		unforeseen(argv[2], argv[3], argc - 4, argv + 4);
	else if (!strcmp(argv[1], "turned") && argc == 5)
		turned(argv[2], argv[3], atoi(argv[4]));
	else if (argc == 5)
		moved(argv[2], argv[3], argv[4]);
	return tap_plan();
}
