// SPDX-License-Identifier: GPL-2.0
/*
 * Each result of the v1 functions: contract §15.
 *
 * usage: sglist nvme|plain DISK PCI-ADDRESS OTHER-PCI-ADDRESS (the disk's function, another one)
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "../lib/vendor.h"

#define PAGE	4096
#define GPU_PAGE	NVFS_GPU_PAGE_SIZE
#define MIDDLE	(GPU_PAGE - PAGE)
#define REQUEST	FAKE_STORAGE_BLK_RQ_MAP_SG
#define MAP	FAKE_STORAGE_MAP_SG
#define UNMAP	FAKE_STORAGE_UNMAP_SG

static struct vendor v;
static uint64_t other;

static bool plain(void)
{
	return v.table == FAKE_STORAGE_PLAIN;
}

/* A list as blk_rq_map_sg makes it, for a part of the shadow buffer. */
static int64_t request_list(uint64_t offset, uint64_t len)
{
	if (vendor_build_one(&v, 0, offset, len))
		return INT64_MIN;
	return vendor_call(&v, REQUEST, 0);
}

static void test_not_ours(void)
{
	static const struct {
		const char *name;
		enum fake_storage_op op;
		unsigned int without;
		bool cpu;
	} cases[] = {
		{ "no request", FAKE_STORAGE_READ, FAKE_STORAGE_REQUEST, false },
		{ "no queue", FAKE_STORAGE_READ, FAKE_STORAGE_QUEUE, false },
		{ "no bio", FAKE_STORAGE_READ, FAKE_STORAGE_BIO, false },
		{ "a request without data", FAKE_STORAGE_NO_BIO, 0, false },
		{ "neither READ nor WRITE", FAKE_STORAGE_DRV_IN, 0, false },
		{ "special payload", FAKE_STORAGE_SPECIAL, 0, false },
		{ "CPU pages, READ", FAKE_STORAGE_READ, 0, true },
		{ "CPU pages, WRITE", FAKE_STORAGE_WRITE, 0, true },
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake_storage_piece piece = {
			(uintptr_t)(cases[i].cpu ? v.cpu : v.buf.shadow), VENDOR_IO };

		memset(&v.build, 0, sizeof(v.build));
		v.build.room = NVFS_MAX_SG_ENTRIES;
		tap_is(vendor_build(&v, cases[i].op, 0, &piece, 1), 0, "%s: built", cases[i].name);
		tap_is(vendor_call_without(&v, REQUEST, 0, cases[i].without), 0,
		       "blk_rq_map_sg, %s: 0", cases[i].name);
		tap_ok(!(v.call.touched & FAKE_STORAGE_LIST_TOUCHED), "the list is untouched");
	}
}

static void test_request_refused(void)
{
	struct fake_storage_piece mixed[] = {
		{ (uintptr_t)vendor_shadow(&v), PAGE }, { (uintptr_t)v.cpu, PAGE } };
	struct fake_storage_piece swapped[] = { mixed[1], mixed[0] };
	struct fake_storage_piece many[NVFS_MAX_SG_ENTRIES + 1], big[32];
	long long before;
	size_t i;

	vendor_build_one(&v, 0, 0, VENDOR_IO);
	tap_is(vendor_call_without(&v, REQUEST, 0, FAKE_STORAGE_LIST), -1, "no list: -1");

	before = nvfs_stat("Error", "cpu-gpu-pages");
	v.build.phys_segments = 0;
	vendor_build(&v, FAKE_STORAGE_READ, 0, mixed, 2);
	tap_is(vendor_call(&v, REQUEST, 0), -1, "GPU pages, then CPU pages: -1");
	v.build.phys_segments = 0;
	vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_BIO_EACH, swapped, 2);
	tap_is(vendor_call(&v, REQUEST, 0), -1, "CPU pages, then GPU pages, in two bios: -1");
	tap_is(nvfs_stat("Error", "cpu-gpu-pages"), before + 2, "cpu-gpu-pages counts both");

	memset(&v.build, 0, sizeof(v.build));
	v.build.room = 2;
	vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_BY_ITSELF, mixed, 2);
	tap_is(vendor_call(&v, REQUEST, 0), 0, "both, but not of a transfer: 0");
	tap_ok(!(v.call.touched & FAKE_STORAGE_LIST_TOUCHED), "the list is untouched");
	tap_is(nvfs_stat("Error", "cpu-gpu-pages"), before + 2, "cpu-gpu-pages does not count it");

	vendor_build_one(&v, FAKE_STORAGE_INTEGRITY, 0, VENDOR_IO);
	tap_is(vendor_call(&v, REQUEST, 0), -1, "integrity data: -1");

	for (i = 0; i < 32; i++)
		big[i] = (struct fake_storage_piece){ (uintptr_t)vendor_shadow(&v), VENDOR_IO };
	big[31].len = NVFS_MAX_REQUEST_BYTES - 31 * VENDOR_IO + PAGE;
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = NVFS_MAX_SG_ENTRIES;
	tap_is(vendor_build(&v, FAKE_STORAGE_READ, 0, big, 32), 0, "a request of 8327168 bytes");
	tap_is(vendor_call(&v, REQUEST, 0), -1, "is too long: -1");

	tap_is(request_list(VENDOR_IO, PAGE), -1, "a page behind the I/O under way: -1");
	tap_is(request_list(VENDOR_IO - PAGE, 2 * PAGE), -1, "pages that begin in it: -1");

	/* No two of these pages are neighbours. */
	for (i = 0; i < NVFS_MAX_SG_ENTRIES + 1; i++)
		many[i] = (struct fake_storage_piece){
			(uintptr_t)vendor_shadow(&v) + (i * 2 % 64) * PAGE, PAGE };
	before = nvfs_stat("Error", "sg-ext");
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = NVFS_MAX_SG_ENTRIES;
	vendor_build(&v, FAKE_STORAGE_READ, 0, many, NVFS_MAX_SG_ENTRIES);
	tap_is(vendor_call(&v, REQUEST, 0), NVFS_MAX_SG_ENTRIES, "127 segments fit");
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = NVFS_MAX_SG_ENTRIES;
	vendor_build(&v, FAKE_STORAGE_READ, 0, many, NVFS_MAX_SG_ENTRIES + 1);
	tap_is(vendor_call(&v, REQUEST, 0), -1, "128 segments do not: -1");
	tap_ok(!(v.call.touched & FAKE_STORAGE_ROOM_TOUCHED), "the list is as it was");
	v.build.room = v.build.phys_segments = 1;
	vendor_build(&v, FAKE_STORAGE_READ, 0, many, NVFS_MAX_SG_ENTRIES + 1);
	tap_is(vendor_call(&v, REQUEST, 0), -1, "nor behind a list of one entry: -1");
	tap_ok(!(v.call.touched & FAKE_STORAGE_ROOM_TOUCHED), "which ends where it did");
	tap_is(nvfs_stat("Error", "sg-ext"), before + 2, "sg-ext counts both");
}

/* `gpu_runs`: contiguous runs of GPU memory under the whole I/O. */
static void test_request(uint64_t size, unsigned int gpu_runs)
{
	/* The queue's longest segment is 64 KiB. */
	unsigned int want = plain() ? (size + GPU_PAGE - 1) / GPU_PAGE : gpu_runs;
	struct fake_storage_piece apart[9];
	uint64_t sum = 0;
	unsigned int i;

	memset(&v.build, 0, sizeof(v.build));
	v.build.room = v.build.phys_segments = 1;
	tap_is(vendor_build(&v, FAKE_STORAGE_READ, 0,
			    &(struct fake_storage_piece){ (uintptr_t)vendor_shadow(&v), size }, 1),
	       0, "%llu bytes in a list of one entry", (unsigned long long)size);
	tap_is(vendor_call(&v, REQUEST, 0), want, "blk_rq_map_sg: %u", want);
	tap_is(v.call.nr, want, "the last entry is marked");
	tap_is(v.call.phys_segments, want, "the request has as many segments");
	for (i = 0; i < v.call.nr; i++)
		sum += v.call.segment[i].len;
	tap_is(sum, size, "the entries have all bytes");

	tap_is(vendor_call(&v, MAP, want), want, "dma_map_sg: %u", want);
	tap_ok(vendor_segments_right(&v, 0, size), "to the right places");
	tap_is(vendor_call(&v, UNMAP, want), want, "dma_unmap_sg: %u", want);

	tap_is(vendor_call(&v, REQUEST, 0), want, "the same request again: %u", want);
	tap_is(vendor_call(&v, MAP, want), want, "is mapped again");
	tap_ok(vendor_segments_right(&v, 0, size), "to the right places");
	tap_is(vendor_call_in_irq(&v, UNMAP, want), want, "and unmapped in a hard interrupt");

	for (i = 0; i < 9; i++)
		apart[i] = (struct fake_storage_piece){
			(uintptr_t)vendor_shadow(&v) + i * 2 % 16 * PAGE, PAGE };
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = 20;
	vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_CHAINED, apart, 9);
	tap_is(vendor_call(&v, REQUEST, 0), 9, "a chained list takes 9 entries");
	tap_is(v.call.nr, 9, "and they are found along the chain");
}

static void test_map_refused(bool scrambled)
{
	struct fake_storage_piece mixed[] = {
		{ (uintptr_t)vendor_shadow(&v), PAGE }, { (uintptr_t)v.cpu, PAGE } };
	struct fake_storage_piece cpu = { (uintptr_t)v.cpu, PAGE };
	long long before;
	int64_t n = request_list(0, VENDOR_IO);

	tap_is(vendor_call(&v, MAP, 0), -1, "dma_map_sg of 0 entries: -1");
	tap_is(vendor_call_for(&v, MAP, n, FAKE_STORAGE_DEV_NOT_PCI), -1,
	       "for a device that is not PCI: -1");

	memset(&v.build, 0, sizeof(v.build));
	vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_FILL, &cpu, 1);
	tap_is(vendor_call(&v, MAP, 1), -2, "a list of CPU pages: -2");
	tap_is(vendor_call(&v, UNMAP, 1), 0, "its unmap: 0");

	before = nvfs_stat("Error", "cpu-gpu-pages");
	vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_FILL, mixed, 2);
	tap_is(vendor_call(&v, MAP, 2), -1, "a mixed list: -1");
	tap_is(vendor_call(&v, UNMAP, 2), -1, "its unmap: -1");
	tap_ok(nvfs_stat("Error", "cpu-gpu-pages") > before, "cpu-gpu-pages counts it");

	vendor_build_one(&v, FAKE_STORAGE_FILL, VENDOR_IO, PAGE);
	tap_is(vendor_call(&v, MAP, 1), -1, "a page behind the I/O under way: -1");

	/* An entry over the end of a GPU page, as a network file system makes it. */
	if (vendor_build_one(&v, FAKE_STORAGE_FILL, GPU_PAGE - PAGE, 2 * PAGE) ||
	    v.build.entries != 1) {
		tap_skip("the shadow pages are not neighbours", "an entry over two GPU pages");
		return;
	}
	if (scrambled) {
		tap_is(vendor_call(&v, MAP, 1), -1, "an entry over GPU pages far apart: -1");
		return;
	}
	tap_is(vendor_call(&v, MAP, 1), 1, "an entry over neighbouring GPU pages: 1");
	tap_ok(vendor_segments_right(&v, GPU_PAGE - PAGE, 2 * PAGE), "to the right place");
	tap_is(vendor_call(&v, UNMAP, 1), 1, "unmapped");
}

/* A mapping for a function that nobody foresaw, while the GPU driver refuses. */
static void test_map_fails(void)
{
	int64_t n = request_list(0, VENDOR_IO), ret;
	long long before;

	gpu_fault(&v.gpu, FAKE_NVIDIA_DMA_MAP_PAGES, -ENOMEM, 0, 1000, 0);
	ret = vendor_call_for(&v, MAP, n, other);
	tap_is(ret, -1, "no DMA mapping: -1");
	gpu_reset(&v.gpu);

	before = nvfs_stat("Error", "dma-ref");
	tap_is(vendor_call(&v, UNMAP, n), n, "unmap after a failed map: %lld", (long long)n);
	tap_ok(nvfs_stat("Error", "dma-ref") > before, "dma-ref counts it");
	tap_is(vendor_call(&v, MAP, n), n, "the list can be mapped still");
	tap_is(vendor_call(&v, UNMAP, n), n, "and unmapped");
}

static void test_buffer(bool scrambled)
{
	int64_t bad;

	tap_is(vendor_buffer(&v, scrambled ? FAKE_NVIDIA_SCRAMBLED : 0), 0, "a %s buffer",
	       scrambled ? "scrambled" : "contiguous");
	vendor_start(&v, 0, VENDOR_IO);
	test_not_ours();
	test_request_refused();
	test_request(VENDOR_IO, scrambled ? 4 : 1);
	test_map_refused(scrambled);
	test_map_fails();
	tap_is(vendor_end(&v), VENDOR_IO, "the held read is good");
	tap_is(gpu_check(&v.gpu, v.buf.gpu_va, VENDOR_IO, 7, &bad) ?: bad, -1, "and its bytes");

	/* Such a read may not leave its GPU page. */
	vendor_start(&v, MIB + PAGE, MIDDLE);
	test_request(MIDDLE, 1);
	tap_is(vendor_end(&v), MIDDLE, "a read into the middle of a GPU page is good");

	tap_is(vendor_build_one(&v, 0, 0, PAGE), 0, "with no I/O under way");
	tap_is(vendor_call(&v, REQUEST, 0), -1, "blk_rq_map_sg: -1");
	vendor_forget(&v);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		tap_bail("usage: sglist nvme|plain DISK PCI-ADDRESS OTHER-PCI-ADDRESS");
	vendor_open(&v, strcmp(argv[1], "plain") ? FAKE_STORAGE_NVME : FAKE_STORAGE_PLAIN, argv[2],
		    argv[3]);
	other = vendor_pci(argv[4]);
	pattern_fill(v.cpu, VENDOR_IO, 7, 0);
	if (pwrite(v.disk, v.cpu, VENDOR_IO, 0) != (ssize_t)VENDOR_IO)
		tap_bail("the disk cannot be written");
	vendor_build(&v, FAKE_STORAGE_NO_BIO, 0, NULL, 0);
	tap_is(vendor_call(&v, FAKE_STORAGE_FEATURES, 0), 0x1f, "the table's features");
	test_buffer(false);
	test_buffer(true);
	return tap_plan();
}
