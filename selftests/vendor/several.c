// SPDX-License-Identifier: GPL-2.0
/*
 * Requests with pages of two buffers, on two GPUs, as the block layer makes them of neighbours:
 * contract §15.1 to 15.3, 16.5.
 *
 * GPU memory is pinned with a callback (use_legacy_p2p_allocation=1).
 *
 * usage: several nvme|plain|v2 DISK PCI-ADDRESS OTHER-PCI-ADDRESS (the disk's function, another one)
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "../lib/vendor.h"

#define PAGE	4096
#define PARTS	4

/* Each in one GPU page. */
static struct part {
	struct vendor *of;
	uint64_t offset, len;
} parts[PARTS];
static struct fake_storage_piece pieces[PARTS];

static struct vendor v, w;
static uint64_t other;

static long long out(void)
{
	return nvfs_counter("segments_now");
}

static void build(unsigned int flags)
{
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = NVFS_MAX_SG_ENTRIES;
	tap_is(vendor_build(&v, FAKE_STORAGE_READ, flags, pieces, PARTS), 0, "a request of two buffers%s",
	       flags & FAKE_STORAGE_BIO_EACH ? ", in four bios" : "");
}

static bool is_part(unsigned int i, const struct fake_storage_segment *segment)
{
	return i < PARTS && segment->len == parts[i].len &&
	       segment->addr == vendor_bus(parts[i].of, parts[i].offset);
}

/* Maps up to `most` segments by the iterator; how many are right and were given. */
static unsigned int iterate(unsigned int most)
{
	unsigned int n = 0;
	int64_t ret;

	for (ret = vendor_call(&v, FAKE_STORAGE_ITER_START, 0); ret == 1;
	     ret = vendor_call(&v, FAKE_STORAGE_ITER_NEXT, 0)) {
		if (v.call.status || !is_part(n, &v.call.segment[0]))
			tap_diag("segment %u is wrong", n);
		else
			n++;
		if (n == most)
			return n;
	}
	return ret ? 0 : n;
}

static void unmap(unsigned int n, bool irq)
{
	unsigned int good = 0, i;

	for (i = 0; i < n; i++)
		good += (irq ? vendor_call_in_irq : vendor_call)(&v, FAKE_STORAGE_UNMAP_PAGE, 0) == 0;
	tap_is(good, n, "%u are given back%s", n, irq ? " in a hard interrupt" : "");
}

static void test_iterator(void)
{
	unsigned int n;

	for (n = 1; n <= PARTS; n++) {
		tap_is(iterate(n), n, "%u segments are mapped", n);
		tap_is(out(), n, "as many are out");
		unmap(n, n % 2);
		tap_is(out(), 0, "none is out any more");
	}
	tap_is(iterate(PARTS + 1), PARTS, "the iterator ends after the last one");
	tap_is(v.call.status, 0, "with BLK_STS_OK");
	unmap(PARTS - 1, false);
	tap_is(out(), PARTS, "they go back together");
	unmap(1, true);
	tap_is(out(), 0, "with the last one");
	for (n = 1; n < PARTS; n++) {
		tap_is(iterate(n), n, "%u segments are mapped", n);
		unmap(n, false);
		tap_is(vendor_call(&v, FAKE_STORAGE_ITER_NEXT, 0), 0, "the rest is not to be had then: 0");
		tap_is(v.call.status, -EIO, "with BLK_STS_IOERR");
		tap_is(out(), 0, "and none is out");
	}
	tap_is(iterate(PARTS + 1), PARTS, "mapped from its start it is whole");
	unmap(PARTS, false);
	gpu_fault(&v.gpu, FAKE_NVIDIA_DMA_MAP_PAGES, -ENOMEM, 0, 1000, 0);
	tap_is(vendor_call_for(&v, FAKE_STORAGE_ITER_START, 0, other), 0, "no DMA mapping: 0");
	tap_is(v.call.status, -EIO, "with BLK_STS_IOERR");
	gpu_reset(&v.gpu);
	tap_is(out(), 0, "and nothing is out");
}

static void test_lists(void)
{
	unsigned int i, good = 0;

	tap_is(vendor_call(&v, FAKE_STORAGE_BLK_RQ_MAP_SG, 0), PARTS, "blk_rq_map_sg: %u", PARTS);
	tap_is(vendor_call(&v, FAKE_STORAGE_MAP_SG, PARTS), PARTS, "dma_map_sg: %u", PARTS);
	for (i = 0; i < v.call.nr; i++)
		good += is_part(i, &v.call.segment[i]);
	tap_is(good, PARTS, "each to its own buffer");
	tap_is(out(), PARTS, "as many are out");
	tap_is(vendor_call_in_irq(&v, FAKE_STORAGE_UNMAP_SG, PARTS), PARTS, "dma_unmap_sg: %u", PARTS);
	tap_is(out(), 0, "none is out any more");
	gpu_fault(&v.gpu, FAKE_NVIDIA_DMA_MAP_PAGES, -ENOMEM, 0, 1000, 0);
	tap_is(vendor_call_for(&v, FAKE_STORAGE_MAP_SG, PARTS, other), -1, "no DMA mapping: -1");
	gpu_reset(&v.gpu);
	tap_is(out(), 0, "and nothing is out");
	tap_is(vendor_call(&v, FAKE_STORAGE_UNMAP_SG, PARTS), PARTS, "unmap after that: %u", PARTS);
	tap_is(out(), 0, "gives nothing back");
	tap_is(vendor_call(&v, FAKE_STORAGE_BLK_RQ_MAP_SG, 0), PARTS, "the request again");
	tap_is(vendor_call(&v, FAKE_STORAGE_MAP_SG, PARTS), PARTS, "is mapped");
	tap_is(vendor_call(&v, FAKE_STORAGE_UNMAP_SG, PARTS), PARTS, "and unmapped");
}

/* The second buffer has no I/O under way. */
static void test_idle(void)
{
	build(0);
	if (v.table != FAKE_STORAGE_V2) {
		tap_is(vendor_call(&v, FAKE_STORAGE_BLK_RQ_MAP_SG, 0), -1,
		       "a page of no I/O under way: -1");
	} else {
		tap_is(iterate(PARTS), 0, "a page of no I/O under way is next: 0");
		tap_is(v.call.status, -EIO, "with BLK_STS_IOERR");
	}
	tap_is(out(), 0, "none is out");
}

/*
 * The calls above for another function were refused at the first buffer. The end of a transfer makes
 * the memory known to that function, of either buffer.
 */
static void test_unforeseen(void)
{
	struct vendor *both[] = { &v, &w };
	unsigned int i;

	tap_is(vendor_end(&v), VENDOR_IO, "the first read is good");
	tap_is(vendor_end(&w), VENDOR_IO, "the second one, too");
	for (i = 0; i < 2; i++) {
		struct vendor *of = both[i];
		struct fake_nvidia_counts before, after;
		ssize_t n;

		gpu_counts(&of->gpu, &before);
		n = nvfs_submit(&of->buf, NVFS_IOCTL_READ, of->disk, 0, VENDOR_IO, 0);
		tap_is(n < 0 ? n : nvfs_wait(&of->buf), VENDOR_IO, "buffer %u: a read", i);
		gpu_counts(&of->gpu, &after);
		tap_is(after.mappings - before.mappings, 1, "makes a mapping");
	}
	vendor_start(&v, 0, VENDOR_IO);
	vendor_start_beside(&w, 0, VENDOR_IO);
}

static void *free_second(void *done)
{
	gpu_free(&w.gpu, w.buf.gpu_va);
	__atomic_store_n((bool *)done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* The second buffer's GPU memory is freed while the request has its segments. */
static void test_free(void)
{
	long long callbacks = nvfs_counter("free_callbacks_total");
	static bool done;
	pthread_t thread;

	if (v.table == FAKE_STORAGE_V2)
		tap_is(iterate(PARTS + 1), PARTS, "the request is mapped once more");
	else
		tap_is(vendor_call(&v, FAKE_STORAGE_MAP_SG, PARTS), PARTS,
		       "the request is mapped once more");
	tap_is(vendor_end(&v), VENDOR_IO, "the first read is good");
	tap_is(vendor_end(&w), VENDOR_IO, "the second one, too");
	pthread_create(&thread, NULL, free_second, &done);
	while (nvfs_counter("free_callbacks_total") == callbacks)
		sched_yield();
	tap_ok(!__atomic_load_n(&done, __ATOMIC_SEQ_CST), "freeing GPU memory waits");
	if (v.table == FAKE_STORAGE_V2)
		unmap(PARTS, false);
	else
		tap_is(vendor_call(&v, FAKE_STORAGE_UNMAP_SG, PARTS), PARTS, "they are given back");
	pthread_join(thread, NULL);
	tap_is(out(), 0, "until none is out");
}

int main(int argc, char **argv)
{
	static const char * const names[] = { "none", "nvme", "plain", "v2" };
	enum fake_storage_table table = FAKE_STORAGE_NVME;
	int64_t bad;
	unsigned int i;

	if (argc != 5)
		tap_bail("usage: several nvme|plain|v2 DISK PCI-ADDRESS OTHER-PCI-ADDRESS");
	while (table < FAKE_STORAGE_V2 && strcmp(argv[1], names[table]))
		table++;
	if (nvfs_set_parameter("use_legacy_p2p_allocation", "1"))
		tap_bail("no legacy pins");
	vendor_open(&v, table, argv[2], argv[3]);
	vendor_beside(&w, &v);
	other = vendor_pci(argv[4]);
	pattern_fill(v.cpu, VENDOR_IO, 7, 0);
	if (pwrite(v.disk, v.cpu, VENDOR_IO, 0) != (ssize_t)VENDOR_IO)
		tap_bail("the disk cannot be written");
	tap_is(vendor_buffer(&v, 0) || vendor_buffer(&w, FAKE_NVIDIA_SCRAMBLED), 0, "two buffers");
	parts[0] = (struct part){ &v, 0, 3 * PAGE };
	parts[1] = (struct part){ &w, 2 * PAGE, 2 * PAGE };
	parts[2] = (struct part){ &v, 8 * PAGE, PAGE };
	parts[3] = (struct part){ &w, NVFS_GPU_PAGE_SIZE, 4 * PAGE };
	for (i = 0; i < PARTS; i++)
		pieces[i] = (struct fake_storage_piece){
			(uintptr_t)parts[i].of->buf.shadow + parts[i].offset, parts[i].len };

	vendor_start(&v, 0, VENDOR_IO);
	test_idle();
	vendor_start_beside(&w, 0, VENDOR_IO);
	for (i = 0; i < 2; i++) {
		build(i ? FAKE_STORAGE_BIO_EACH : 0);
		if (table == FAKE_STORAGE_V2)
			test_iterator();
		else
			test_lists();
	}
	test_unforeseen();
	test_free();
	tap_is(gpu_check(&v.gpu, v.buf.gpu_va, VENDOR_IO, 7, &bad) ?: bad, -1,
	       "the bytes of the first are right");
	vendor_forget(&v);
	nvfs_unregister(&w.buf);
	return tap_plan();
}
