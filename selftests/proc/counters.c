// SPDX-License-Identifier: GPL-2.0
/*
 * The numbers of stats (19.8) and of counters: after each action all of them are compared, so that
 * those it moves move by a known amount and all others stay.
 *
 * usage: counters p2pdma DIRECTORY OTHER-DIRECTORY [FAR-DISK]
 *        counters callback DISK PCI-ADDRESS
 *        counters sparse DIRECTORY
 *
 * DIRECTORY is on a drive of its own: its file system is shut down. OTHER-DIRECTORY has no drive.
 * /dev/loop0 is a loop device.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/numbers.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"
#include "../lib/vendor.h"

#define SHUTDOWN	_IOR('X', 125, uint32_t)
#define GPU_SIZE	(8 * MIB)
#define THREADS		16
#define EACH		25

static struct gpu gpu;
static struct fake_nvidia_info info;
static int node;

static void test_file(void)
{
	char text[8192], *line;
	struct stat st;

	tap_ok(!stat(NVFS_PROC "counters", &st) && st.st_mode == (S_IFREG | 0444),
	       "counters: a regular file, mode 0444");
	nvfs_read_text(NVFS_PROC "counters", text, sizeof(text));
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		size_t name = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789_");

		if (!name || line[name] != ' ' ||
		    line[name + 1 + strspn(line + name + 1, "0123456789")])
			break;
	}
	tap_ok(!line, "each line is a name, a blank and a number%s%s", line ? ": " : "",
	       line ? line : "");
}

static void test_maps(struct nvfs_buffer *buf, uint64_t va)
{
	struct nvfs_buffer other;

	begin();
	nvfs_shadow(buf, node, MIB);
	buf->gpu_va = va;
	buf->pdevinfo = info.pdevinfo;
	moved("mmap", BY("Mmap n", 1), BY("Mmap ok", 1), NULL);
	begin();
	tap_is(nvfs_map(buf), -EINVAL, "a MAP of 0 bytes");
	moved("it fails", BY("Bar1-map n", 1), BY("Bar1-map err", 1), BY("pins_failed", 1), NULL);
	begin();
	buf->gpu_size = GPU_SIZE;
	tap_is(nvfs_map(buf), 0, "a MAP");
	moved("it works", BY("Bar1-map n", 1), BY("Bar1-map ok", 1), BY("Bar1-map active", 1),
	      BY("pins_total", 1), BY("pins_now", 1), NULL);
	nvfs_register(&other, node, va, GPU_SIZE, MIB, info.pdevinfo);
	begin();
	nvfs_unregister(&other);
	moved("munmap of a mapped buffer", BY("Mmap munmap", 1), BY("Bar1-map free", 1),
	      BY("Bar1-map active", -1), BY("unpins_total", 1), BY("pins_now", -1), NULL);
	nvfs_shadow(&other, node, MIB);
	begin();
	nvfs_unregister(&other);
	moved("munmap of another", BY("Mmap munmap", 1), NULL);
	begin();
	nvfs_mmap(node, 68 * KIB);
	moved("an mmap that fails", BY("Mmap n", 1), BY("Mmap err", 1), NULL);
}

static void test_io(struct nvfs_buffer *buf, int file)
{
	unsigned int i;

	begin();
	for (i = 0; i < 5; i++)
		nvfs_read(buf, file, 0, MIB, 0);
	moved("5 reads of 1 MiB", BY("Reads n", 5), BY("Reads ok", 5), BY("Reads readMiB", 5),
	      BY("read_p2pdma_ios", 5), BY("read_p2pdma_bytes", 5 * MIB), NULL);
	nvfs_write(buf, file, 0, MIB, 0);	/* no pages are cached after this */
	begin();
	for (i = 0; i < 3; i++)
		nvfs_write(buf, file, 0, MIB, 0);
	moved("3 writes of 1 MiB", BY("Writes n", 3), BY("Writes ok", 3), BY("Writes writeMiB", 3),
	      BY("write_p2pdma_ios", 3), BY("write_p2pdma_bytes", 3 * MIB), NULL);
	begin();
	nvfs_submit(buf, NVFS_IOCTL_READ, file, 0, MIB, 0);
	nvfs_wait(buf);
	moved("an asynchronous read", BY("Reads n", 1), BY("Reads ok", 1), BY("Reads readMiB", 1),
	      BY("read_p2pdma_ios", 1), BY("read_p2pdma_bytes", MIB), NULL);
	begin();
	nvfs_submit(buf, NVFS_IOCTL_WRITE, file, 0, MIB, 0);
	nvfs_wait(buf);
	moved("an asynchronous write", BY("Writes n", 1), BY("Writes ok", 1),
	      BY("Writes writeMiB", 1), BY("write_p2pdma_ios", 1),
	      BY("write_p2pdma_bytes", MIB), NULL);
	begin();
	nvfs_read(buf, file, 16 * MIB, MIB, 0);
	moved("a read at the end of the file", BY("Reads n", 1), BY("Reads ok", 1),
	      BY("read_p2pdma_ios", 1), NULL);
	begin();
	nvfs_read(buf, file, 1, MIB, 0);
	moved("a read that fails its checks", BY("Reads n", 1), BY("Reads err", 1),
	      BY("read_rejected", 1), NULL);
	begin();
	nvfs_write(buf, file, 0, 1, 0);
	moved("a write that fails its checks", BY("Writes n", 1), BY("Writes err", 1),
	      BY("write_rejected", 1), NULL);
	nvfs_set_parameter("rw_stats_enabled", "0");
	begin();
	nvfs_read(buf, file, 0, MIB, 0);
	nvfs_write(buf, file, 0, MIB, 0);
	nvfs_read(buf, file, 1, MIB, 0);
	moved("with rw_stats off", BY("Reads err", 1), BY("read_rejected", 1),
	      BY("read_p2pdma_ios", 1), BY("read_p2pdma_bytes", MIB), BY("write_p2pdma_ios", 1),
	      BY("write_p2pdma_bytes", MIB), NULL);
	nvfs_set_parameter("rw_stats_enabled", "1");
}

static void test_batch(struct nvfs_buffer *buf, int file)
{
	struct nvfs_ioctl_io entries[2];
	union nvfs_ioctl_arg arg;
	unsigned int i;

	for (i = 0; i < 2; i++)
		entries[i] = nvfs_io_arg(buf, file, i * MIB, MIB, 0).io;
	memset(&arg, 0, sizeof(arg));
	arg.batch.nents = 1;
	arg.batch.io_entries = entries;
	begin();
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, &arg), 0, "a batch of one read");
	moved("counts as one", BY("Batches n", 1), BY("Batches ok", 1), BY("Reads n", 1),
	      BY("Reads ok", 1), BY("Reads readMiB", 1), BY("read_p2pdma_ios", 1),
	      BY("read_p2pdma_bytes", MIB), NULL);
	/* The buffer of the second is busy with the first, which then is ended unstarted. */
	arg.batch.nents = 2;
	begin();
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, &arg), -EPERM, "one of two on one buffer");
	moved("fails", BY("Batches n", 1), BY("Batches err", 1), BY("Reads n", 1),
	      BY("Reads err", 1), BY("read_rejected", 1), NULL);
}

static void refused_read(struct nvfs_buffer *buf, const char *path, const char *reason, int error)
{
	int fd = open(path, O_RDWR | O_DIRECT);

	begin();
	tap_is(nvfs_read(buf, fd, 0, MIB, 0), error, "a read of %s", path);
	moved(reason, BY("Reads n", 1), BY("Reads err", 1), BY(reason, 1), NULL);
	close(fd);
}

static void test_refused(struct nvfs_buffer *buf, int file, const char *directory,
			 const char *other, const char *far)
{
	int flags = 0, fd;
	char path[256];

	nvfs_set_parameter("p2pdma", "off");
	begin();
	tap_is(nvfs_read(buf, file, 0, MIB, 0), -EOPNOTSUPP, "a read with p2pdma=off");
	moved("is refused for that", BY("Reads n", 1), BY("Reads err", 1), BY("refused_off", 1),
	      NULL);
	nvfs_set_parameter("p2pdma", "auto");

	snprintf(path, sizeof(path), "%s/file", other);
	fd = nvfs_file(path, MIB, 1);
	begin();
	tap_is(nvfs_write(buf, fd, 0, MIB, 0), -EOPNOTSUPP, "a write to a file on no drive");
	moved("is refused for that", BY("Writes n", 1), BY("Writes err", 1),
	      BY("refused_no_device", 1), NULL);
	close(fd);
	refused_read(buf, "/dev/loop0", "refused_driver", -EOPNOTSUPP);
	/* With delayed allocation ext4 heeds no such flag: the suite mounts without. */
	snprintf(path, sizeof(path), "%s/journalled", directory);
	close(nvfs_file(path, MIB, 1));
	fd = open(path, O_RDWR);
	ioctl(fd, FS_IOC_GETFLAGS, &flags);
	flags |= FS_JOURNAL_DATA_FL;
	if (ioctl(fd, FS_IOC_SETFLAGS, &flags))
		tap_bail("no data journal");
	close(fd);
	refused_read(buf, path, "refused_buffered", -EOPNOTSUPP);
	if (!far)
		return;
	refused_read(buf, far, "refused_topology", -EREMOTEIO);
}

static void test_cache(struct nvfs_buffer *buf, int file, const char *path)
{
	int plain = open(path, O_RDWR);
	char byte = 1;

	if (plain < 0 || pwrite(plain, &byte, 1, 0) != 1)
		tap_bail("cannot write through the page cache");
	begin();
	tap_is(nvfs_write(buf, file, 0, MIB, 0), MIB, "a write over cached pages");
	moved("flushes them once", BY("Writes n", 1), BY("Writes ok", 1), BY("Writes writeMiB", 1),
	      BY("Writes pg-cache", 1), BY("write_p2pdma_ios", 1),
	      BY("write_p2pdma_bytes", MIB), NULL);
	close(plain);
}

/* Leaves the file system shut down. */
static void test_file_system_errors(struct nvfs_buffer *buf, int file, const char *path)
{
	int plain = open(path, O_RDWR);
	uint32_t without_log = 2;
	char byte = 1;

	nvfs_write(buf, file, 8 * MIB, MIB, 0);
	if (plain < 0 || pwrite(plain, &byte, 1, 0) != 1 || ioctl(plain, SHUTDOWN, &without_log))
		tap_bail("cannot shut the file system down");
	begin();
	tap_is(nvfs_write(buf, file, 0, MIB, 0), -EIO, "a write over pages that cannot be flushed");
	moved("tries five times", BY("Writes n", 1), BY("Writes err", 1),
	      BY("Writes pg-cache", 5), BY("Writes pg-cache-fail", 5),
	      BY("Writes pg-cache-eio", 1), BY("write_p2pdma_ios", 1),
	      BY("write_p2pdma_errors", 1), NULL);
	begin();
	tap_is(nvfs_write(buf, file, 8 * MIB, MIB, 0), -EIO, "a write that the file system fails");
	moved("is an error of the file system", BY("Writes n", 1), BY("Writes io_state_err", 1),
	      BY("write_p2pdma_ios", 1), BY("write_p2pdma_errors", 1), NULL);
	begin();
	tap_is(nvfs_read(buf, file, 8 * MIB, MIB, 0), -EIO, "a read that the file system fails");
	moved("is an error of the file system", BY("Reads n", 1), BY("Reads io_state_err", 1),
	      BY("read_p2pdma_ios", 1), BY("read_p2pdma_errors", 1), NULL);
	close(plain);
}

static void test_callback(void)
{
	struct nvfs_buffer buf;
	uint64_t va;

	nvfs_set_parameter("use_legacy_p2p_allocation", "1");
	if (gpu_alloc(&gpu, MIB, 0, &va) ||
	    nvfs_register(&buf, node, va, MIB, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	begin();
	gpu_free(&gpu, va);
	moved("GPU memory is freed", BY("Bar1-map callbacks", 1), BY("free_callbacks_total", 1),
	      NULL);
	begin();
	nvfs_unregister(&buf);
	moved("then its buffer", BY("Mmap munmap", 1), BY("Bar1-map active", -1),
	      BY("unpins_total", 1), BY("pins_now", -1), NULL);
}

struct worker {
	pthread_t thread;
	struct nvfs_buffer buf;
	int file;
	unsigned int bad;
};

static void *work(void *data)
{
	struct worker *w = data;
	unsigned int i;

	for (i = 0; i < EACH; i++) {
		w->bad += nvfs_read(&w->buf, w->file, 0, 64 * KIB, 0) != (ssize_t)(64 * KIB);
		w->bad += nvfs_read(&w->buf, w->file, 1, 64 * KIB, 0) != -EINVAL;
		nvfs_submit(&w->buf, NVFS_IOCTL_WRITE, w->file, 0, 4 * KIB, 0);
		w->bad += nvfs_wait(&w->buf) != (ssize_t)(4 * KIB);
	}
	return NULL;
}

static void test_threads(const char *directory)
{
	static struct worker workers[THREADS];
	long long pins = number("pins_now");
	unsigned int i, bad = 0;
	char path[256];
	uint64_t va;
	double end;

	for (i = 0; i < THREADS; i++) {
		snprintf(path, sizeof(path), "%s/thread%u", directory, i);
		workers[i].file = nvfs_file(path, MIB, i);
		if (workers[i].file < 0 || gpu_alloc(&gpu, 64 * KIB, 0, &va) ||
		    nvfs_register(&workers[i].buf, node, va, 64 * KIB, 64 * KIB, info.pdevinfo))
			tap_bail("no file or buffer %u", i);
		nvfs_write(&workers[i].buf, workers[i].file, 0, 64 * KIB, 0);
	}
	begin();
	for (i = 0; i < THREADS; i++)
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		bad += workers[i].bad;
	}
	tap_is(bad, 0, "%u requests by %u threads", 3 * EACH * THREADS, THREADS);
	moved("the sums are exact", BY("Reads n", 2 * EACH * THREADS),
	      BY("Reads ok", EACH * THREADS), BY("Reads err", EACH * THREADS),
	      BY("Reads readMiB", EACH * THREADS / 16), BY("Writes n", EACH * THREADS),
	      BY("Writes ok", EACH * THREADS), BY("Writes writeMiB", 1),
	      BY("read_rejected", EACH * THREADS), BY("read_p2pdma_ios", EACH * THREADS),
	      BY("read_p2pdma_bytes", EACH * THREADS * 64 * KIB),
	      BY("write_p2pdma_ios", EACH * THREADS),
	      BY("write_p2pdma_bytes", EACH * THREADS * 4 * KIB), NULL);
	for (i = 0; i < THREADS; i++) {
		nvfs_unregister(&workers[i].buf);
		close(workers[i].file);
	}
	/* An asynchronous I/O lets go of its buffer after the fence value, maybe after munmap. */
	end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	while (number("pins_now") != pins && nvfs_seconds() < end)
		sched_yield();
	tap_is(number("pins_now"), pins, "their buffers are gone");
}

static void test_reset(void)
{
	long long ios = number("read_p2pdma_ios"), pins = number("pins_total");

	nvfs_write_text(NVFS_PROC "stats", "0");
	tap_is(number("Reads n"), 0, "writing to stats resets stats");
	tap_ok(ios > 0 && number("read_p2pdma_ios") == ios && number("pins_total") == pins,
	       "and leaves counters alone");
	tap_is(nvfs_write_text(NVFS_PROC "counters", "0"), -EACCES, "which cannot be written");
}

/* Averages over a window of whole seconds, which begins with the reset. */
static void test_rates(struct nvfs_buffer *buf, int file)
{
	long long count = 0, rate, latency;
	double before_reset = nvfs_seconds(), start, early, late;
	bool stay;

	nvfs_write_text(NVFS_PROC "stats", "0");
	start = nvfs_seconds();
	for (; nvfs_seconds() < start + 1.2; count++)
		nvfs_read(buf, file, 0, MIB, 0);
	early = nvfs_seconds() - start;
	rate = nvfs_stat("Reads", "Bandwidth(MiB/s)");
	late = nvfs_seconds() - before_reset + 0.01;
	latency = nvfs_stat("Reads", "Avg-Latency(usec)");
	tap_ok(rate >= count / (long long)late && rate <= count / (long long)early,
	       "19.8: Bandwidth: MiB by whole seconds");
	tap_ok(latency > 0 && latency <= early * 1000000 / count,
	       "19.8: Avg-Latency: not 0, and no more than the time that there was");
	tap_diag("%lld MiB in %.2f to %.2f s: %lld MiB/s, %lld us", count, early, late, rate,
		 latency);
	nvfs_read(buf, file, 0, MIB, 0);
	stay = nvfs_stat("Reads", "Bandwidth(MiB/s)") == rate &&
	       nvfs_stat("Reads", "Avg-Latency(usec)") == latency;
	/* The window began with `rate`, after `early`. When it is a second old, both may change. */
	if (nvfs_seconds() - start - early < 1)
		tap_ok(stay, "19.8: both stay for a second");
	tap_is(nvfs_stat("Writes", "Bandwidth(MiB/s)") + nvfs_stat("Writes", "Avg-Latency(usec)"),
	       0, "19.8: those of writes do not move");
}

static int test_p2pdma(const char *directory, const char *other, const char *far)
{
	struct nvfs_buffer buf;
	char path[256];
	uint64_t va;
	int file;

	snprintf(path, sizeof(path), "%s/counters.tmp", directory);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, 16 * MIB, 1);
	if (node < 0 || file < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, GPU_SIZE, 0, &va))
		tap_bail("node %d, file %d, or no GPU", node, file);
	nvfs_set_parameter("rw_stats_enabled", "1");
	test_file();
	test_maps(&buf, va);
	test_io(&buf, file);
	test_batch(&buf, file);
	test_refused(&buf, file, directory, other, far);
	test_cache(&buf, file, path);
	test_callback();
	test_reset();
	test_rates(&buf, file);
	test_threads(directory);
	test_file_system_errors(&buf, file, path);
	nvfs_unregister(&buf);
	return tap_plan();
}

static struct vendor v;

/* Direct calls while a read of VENDOR_IO is held. */
static void test_calls(void)
{
	struct fake_storage_piece cpu = { (uintptr_t)v.cpu, 4 * KIB };
	struct fake_storage_piece mixed[] = { { (uintptr_t)vendor_shadow(&v), 4 * KIB }, cpu };
	struct fake_storage_piece beyond[] = { mixed[0],
		{ (uintptr_t)vendor_shadow(&v) + VENDOR_IO, 4 * KIB } };
	struct fake_storage_piece many[NVFS_MAX_SG_ENTRIES + 1];
	unsigned int i;

	memset(&v.build, 0, sizeof(v.build));
	if (v.table == FAKE_STORAGE_V2) {
		v.build.room = 1;
		vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_BIO_EACH, mixed, 2);
		begin();
		tap_is(vendor_call(&v, FAKE_STORAGE_ITER_START, 0), 0, "a mixed request");
		moved("is cpu-gpu-pages", BY("Error cpu-gpu-pages", 1), NULL);
		vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_BIO_EACH, &cpu, 1);
		begin();
		vendor_call(&v, FAKE_STORAGE_ITER_START, 0);
		moved("one of CPU pages is not", NULL);
		vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_BIO_EACH, beyond, 2);
		begin();
		tap_is(vendor_call(&v, FAKE_STORAGE_ITER_START, 0), 0,
		       "a request whose second page is not of the transfer");
		moved("leaves no segment out", NULL);
		vendor_build(&v, FAKE_STORAGE_READ, 0, mixed, 1);
		begin();
		vendor_call(&v, FAKE_STORAGE_ITER_START, 0);
		moved("a segment is taken", BY("segments_total", 1), BY("segments_now", 1), NULL);
		begin();
		vendor_call(&v, FAKE_STORAGE_UNMAP_PAGE, 0);
		moved("and given back", BY("segments_returned", 1), BY("segments_now", -1), NULL);
		return;
	}
	v.build.room = NVFS_MAX_SG_ENTRIES;
	vendor_build(&v, FAKE_STORAGE_READ, 0, mixed, 2);
	begin();
	tap_is(vendor_call(&v, FAKE_STORAGE_BLK_RQ_MAP_SG, 0), -1, "a mixed request");
	moved("is cpu-gpu-pages", BY("Error cpu-gpu-pages", 1), NULL);
	for (i = 0; i < NVFS_MAX_SG_ENTRIES + 1; i++)
		many[i] = (struct fake_storage_piece){
			(uintptr_t)vendor_shadow(&v) + (i * 2 % 64) * 4 * KIB, 4 * KIB };
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = NVFS_MAX_SG_ENTRIES;
	vendor_build(&v, FAKE_STORAGE_READ, 0, many, NVFS_MAX_SG_ENTRIES + 1);
	begin();
	tap_is(vendor_call(&v, FAKE_STORAGE_BLK_RQ_MAP_SG, 0), -1, "128 segments");
	moved("are sg-ext", BY("Error sg-ext", 1), NULL);
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = NVFS_MAX_SG_ENTRIES;
	vendor_build(&v, FAKE_STORAGE_READ, 0, many, 3);
	begin();
	tap_is(vendor_call(&v, FAKE_STORAGE_BLK_RQ_MAP_SG, 0), 3, "three");
	moved("count nothing", NULL);
	begin();
	tap_is(vendor_call(&v, FAKE_STORAGE_MAP_SG, 3), 3, "nor do they when they are mapped");
	moved("but as segments", BY("segments_total", 3), BY("segments_now", 3), NULL);
	begin();
	tap_is(vendor_call(&v, FAKE_STORAGE_UNMAP_SG, 3), 3, "and unmapped");
	moved("but as segments", BY("segments_returned", 3), BY("segments_now", -3), NULL);
	begin();
	tap_is(vendor_call(&v, FAKE_STORAGE_UNMAP_SG, 3), 3, "and again");
	moved("that is dma-ref", BY("Error dma-ref", 1), NULL);
}

static void test_vendor(enum fake_storage_table table, const char *disk, const char *address)
{
	struct fake_storage_counts first, last;

	vendor_open(&v, table, disk, address);
	nvfs_set_parameter("use_legacy_p2p_allocation", "1");
	nvfs_set_parameter("rw_stats_enabled", "1");
	if (vendor_buffer(&v, 0))
		tap_bail("no buffer");
	tap_diag("table %d", table);
	gpu_fault(&v.gpu, FAKE_NVIDIA_DMA_MAP_PAGES, -ENOMEM, 0, 1, 0);
	begin();
	tap_is(nvfs_read(&v.buf, v.disk, 0, MIB, 0), -EIO, "the GPU driver makes no mapping");
	moved("that is dma-map", BY("Reads n", 1), BY("Reads err", 1), BY("Error dma-map", 1),
	      BY("dma_mappings_failed", 1), BY("refused_mapping", 1), NULL);
	gpu_reset(&v.gpu);

	storage_counts(v.control, &first);
	begin();
	tap_is(nvfs_read(&v.buf, v.disk, 0, MIB, 0), MIB, "the same read, with a mapping");
	storage_counts(v.control, &last);
	tap_ok(last.segments > first.segments, "the driver had segments");
	moved("is counted", BY("Reads n", 1), BY("Reads ok", 1), BY("Reads readMiB", 1),
	      BY("read_callback_ios", 1), BY("read_callback_bytes", MIB),
	      BY("dma_mappings_total", 1), BY("dma_mappings_now", 1),
	      BY("segments_total", last.segments - first.segments),
	      BY("segments_returned", last.segments - first.segments), NULL);
	storage_counts(v.control, &first);
	begin();
	tap_is(nvfs_write(&v.buf, v.disk, 0, MIB, 0), MIB, "a write");
	storage_counts(v.control, &last);
	moved("is counted", BY("Writes n", 1), BY("Writes ok", 1), BY("Writes writeMiB", 1),
	      BY("write_callback_ios", 1), BY("write_callback_bytes", MIB),
	      BY("segments_total", last.segments - first.segments),
	      BY("segments_returned", last.segments - first.segments), NULL);

	storage_set("fail_every", 1);
	storage_counts(v.control, &first);
	begin();
	tap_is(nvfs_read(&v.buf, v.disk, 0, MIB, 0), -EIO, "a read that the disk fails");
	storage_counts(v.control, &last);
	moved("is an error of the file system", BY("Reads n", 1), BY("Reads io_state_err", 1),
	      BY("read_callback_ios", 1), BY("read_callback_errors", 1),
	      BY("segments_total", last.segments - first.segments),
	      BY("segments_returned", last.segments - first.segments), NULL);
	storage_counts(v.control, &first);
	begin();
	tap_is(nvfs_write(&v.buf, v.disk, 0, MIB, 0), -EIO, "a write that the disk fails");
	storage_counts(v.control, &last);
	moved("is one, too", BY("Writes n", 1), BY("Writes io_state_err", 1),
	      BY("write_callback_ios", 1), BY("write_callback_errors", 1),
	      BY("segments_total", last.segments - first.segments),
	      BY("segments_returned", last.segments - first.segments), NULL);
	storage_set("fail_every", 0);

	vendor_start(&v, 0, VENDOR_IO);
	test_calls();
	vendor_end(&v);

	begin();
	gpu_free(&v.gpu, v.buf.gpu_va);
	moved("freeing the GPU memory frees its mapping", BY("Bar1-map callbacks", 1),
	      BY("free_callbacks_total", 1), BY("dma_unmappings_total", 1),
	      BY("dma_mappings_now", -1), NULL);
	nvfs_unregister(&v.buf);
	if (vendor_buffer(&v, 0) || nvfs_read(&v.buf, v.disk, 0, MIB, 0) != MIB)
		tap_bail("no second buffer");
	begin();
	nvfs_unregister(&v.buf);
	moved("so does munmap", BY("Mmap munmap", 1), BY("Bar1-map free", 1),
	      BY("Bar1-map active", -1), BY("unpins_total", 1), BY("pins_now", -1),
	      BY("dma_unmappings_total", 1), BY("dma_mappings_now", -1), NULL);
	close(v.disk);
	close(v.control);
	close(v.node);
	gpu_close(&v.gpu);
}

static int test_sparse(const char *directory)
{
	struct nvfs_buffer buf;
	char path[256], *data;
	uint64_t va;
	int file;

	snprintf(path, sizeof(path), "%s/sparse.tmp", directory);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, MIB, 1);
	if (node < 0 || file < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, MIB, 0, &va) || nvfs_register(&buf, node, va, MIB, MIB, info.pdevinfo))
		tap_bail("node %d, file %d, or no buffer", node, file);
	nvfs_set_parameter("rw_stats_enabled", "0");
	nvfs_read(&buf, file, 0, 4 * KIB, 0);
	begin();
	tap_is(nvfs_read(&buf, file, 0, 4 * KIB, 0), 4 * KIB, "a read of a dense file");
	moved("has no holes", BY("read_callback_ios", 1), BY("read_callback_bytes", 4 * KIB),
	      BY("segments_total", 1), BY("segments_returned", 1), NULL);

	/* Data in blocks 0..16 and 32..48 of 256. */
	data = aligned_alloc(4096, 64 * KIB);
	memset(data, 1, 64 * KIB);
	if (ftruncate(file, 0) || pwrite(file, data, 64 * KIB, 0) != 64 * KIB ||
	    pwrite(file, data, 64 * KIB, 128 * KIB) != 64 * KIB || ftruncate(file, MIB) ||
	    fsync(file))
		tap_bail("no sparse file");
	begin();
	tap_is(nvfs_read(&buf, file, 0, MIB, 0), MIB, "a read of a sparse file");
	moved("has two, of 16 and 208 blocks", BY("Sparse Reads n", 1), BY("Sparse Reads io", 1),
	      BY("Sparse Reads holes", 2), BY("Sparse Reads pages", 224), BY("holes_total", 2),
	      BY("hole_blocks_total", 224), BY("read_callback_ios", 1),
	      BY("read_callback_bytes", MIB), BY("segments_total", 2),
	      BY("segments_returned", 2), NULL);
	begin();
	tap_is(nvfs_read(&buf, file, 0, 64 * KIB, 0), 64 * KIB, "a read of data of it");
	moved("has none", BY("Sparse Reads n", 1), BY("read_callback_ios", 1),
	      BY("read_callback_bytes", 64 * KIB), BY("segments_total", 1),
	      BY("segments_returned", 1), NULL);
	nvfs_unregister(&buf);
	unlink(path);
	return tap_plan();
}

int main(int argc, char **argv)
{
	if (argc >= 4 && !strcmp(argv[1], "p2pdma"))
		return test_p2pdma(argv[2], argv[3], argv[4]);
	if (argc == 3 && !strcmp(argv[1], "sparse"))
		return test_sparse(argv[2]);
	if (argc != 4 || strcmp(argv[1], "callback"))
		tap_bail("usage: see the source");
	test_vendor(FAKE_STORAGE_V2, argv[2], argv[3]);
	test_vendor(FAKE_STORAGE_NVME, argv[2], argv[3]);
	return tap_plan();
}
