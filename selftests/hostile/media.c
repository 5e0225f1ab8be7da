// SPDX-License-Identifier: GPL-2.0
/*
 * A drive with bad sectors: the process is told what pread and pwrite would tell, nothing else
 * suffers.
 *
 * usage: media FILE READ-AT WRITE-AT; bytes at READ-AT cannot be read, those at WRITE-AT not
 * written. WAY=callback in the environment: the drive's driver has hooks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE	(512 * KIB)		/* of most requests */
#define AROUND	(20 * MIB)		/* written before and after a bad place */

static struct gpu gpu;
static struct nvfs_buffer buf;
static uint64_t va;
static const char *way;
static char *cpu;
static int fd;

static long long counter(const char *direction, const char *what)
{
	char name[64];

	snprintf(name, sizeof(name), "%s_%s_%s", direction, way, what);
	return nvfs_counter(name);
}

static uint64_t word_of(off_t at)
{
	return at / 8;
}

/* The file's bytes around a place, which can be written there. */
static void prepare(off_t at)
{
	off_t next, step = 4L << 20;

	for (next = at - (off_t)AROUND; next < at + (off_t)AROUND; next += step) {
		pattern_fill(cpu, step, 1, word_of(next));
		if (pwrite(fd, cpu, step, next) != step)
			tap_bail("cannot prepare %lld: %s", (long long)next, strerror(errno));
	}
}

static bool good_read(off_t at, uint64_t size)
{
	int64_t bad;

	gpu_set(&gpu, va, 0xee, size);
	return nvfs_read(&buf, fd, at, size, 0) == (ssize_t)size &&
	       !gpu_check_from(&gpu, va, size, 1, word_of(at), &bad) && bad < 0;
}

static ssize_t batch_read(off_t at)
{
	union nvfs_ioctl_arg entry = nvfs_io_arg(&buf, fd, at, SIZE, 0), arg;

	memset(&arg, 0, sizeof(arg));
	arg.batch.nents = 1;
	arg.batch.io_entries = &entry.io;
	return nvfs_ioctl(buf.node, NVFS_IOCTL_BATCH_IO, &arg);
}

static bool all_are(uint64_t offset, uint64_t size, uint8_t byte)
{
	static uint8_t data[8 * MIB];
	uint64_t i;

	if (gpu_read(&gpu, va + offset, data, size))
		return false;
	for (i = 0; i < size; i++)
		if (data[i] != byte)
			return false;
	return true;
}

static void bad_read(off_t bad)
{
	long long errors = counter("read", "errors");
	off_t at = (bad & ~4095L) - SIZE / 2;
	ssize_t want;

	want = pread(fd, cpu, SIZE, at) < 0 ? -errno : 0;
	tap_ok(want < 0, "pread of a bad sector fails: %s", strerror(-want));
	gpu_set(&gpu, va, 0xee, 24 * MIB);
	tap_is(nvfs_read(&buf, fd, at, SIZE, 0), want, "so does READ");
	tap_ok(all_are(SIZE, SIZE, 0xee), "what follows in GPU memory is untouched");
	tap_ok(good_read(at - SIZE, SIZE) && good_read(at + SIZE, SIZE),
	       "READs before and after it are good");
	buf.meta->result = 1;
	nvfs_submit(&buf, NVFS_IOCTL_READ, fd, at, SIZE, 0);
	tap_is(nvfs_wait(&buf), want, "async READ");
	tap_ok(good_read(at + SIZE, SIZE), "and the next one is good");
	tap_is(batch_read(at), -EPERM, "BATCH_IO");
	tap_ok(good_read(at - SIZE, SIZE), "and the next READ is good");
	tap_is(nvfs_read(&buf, fd, bad - 18 * MIB, 20 * MIB, 0), want,
	       "READ in parts, of which the last is bad");
	tap_ok(good_read(bad - 18 * MIB, 4 * MIB), "the first ones are good");
	tap_is(counter("read", "errors") - errors, 4, "each is counted");
}

static void bad_write(off_t bad)
{
	long long errors = counter("write", "errors");
	off_t at = (bad & ~4095L) - SIZE / 2;
	ssize_t want;

	pattern_fill(cpu, SIZE, 1, word_of(at));
	want = pwrite(fd, cpu, SIZE, at) < 0 ? -errno : 0;
	tap_ok(want < 0, "pwrite to a bad sector fails: %s", strerror(-want));
	gpu_fill_from(&gpu, va, SIZE, 1, word_of(at));
	tap_is(nvfs_write(&buf, fd, at, SIZE, 0), want, "so does WRITE");
	nvfs_submit(&buf, NVFS_IOCTL_WRITE, fd, at, SIZE, 0);
	tap_is(nvfs_wait(&buf), want, "async WRITE");
	gpu_fill_from(&gpu, va, SIZE, 1, word_of(at + SIZE));
	tap_is(nvfs_write(&buf, fd, at + SIZE, SIZE, 0), (long long)SIZE, "a WRITE after it");
	tap_ok(good_read(at + SIZE, SIZE), "is good");
	tap_is(counter("write", "errors") - errors, 2, "each is counted");
}

int main(int argc, char **argv)
{
	struct fake_nvidia_counts counts;
	struct fake_nvidia_info info;
	off_t read_at, write_at;
	double end;
	int node;

	if (argc != 4)
		tap_bail("usage: %s FILE READ-AT WRITE-AT", argv[0]);
	way = getenv("WAY") && !strcmp(getenv("WAY"), "callback") ? "callback" : "p2pdma";
	read_at = atoll(argv[2]);
	write_at = atoll(argv[3]);
	fd = open(argv[1], O_RDWR | O_DIRECT);
	cpu = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	node = nvfs_open(0, O_RDWR);
	if (fd < 0 || node < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, 32 * MIB, 0, &va) ||
	    nvfs_register(&buf, node, va, 32 * MIB, MIB, info.pdevinfo))
		tap_bail("no buffer: %s", strerror(errno));
	prepare(read_at);
	bad_read(read_at);
	bad_write(write_at);
	nvfs_unregister(&buf);
	end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	do {
		if (gpu_counts(&gpu, &counts))
			tap_bail("no counts");
	} while ((counts.tables || counts.pinned_pages || counts.mappings) && nvfs_seconds() < end);
	tap_ok(!counts.tables && !counts.pinned_pages && !counts.mappings, "nothing is left pinned");
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	return tap_plan();
}
