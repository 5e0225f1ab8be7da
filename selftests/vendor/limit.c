// SPDX-License-Identifier: GPL-2.0
/*
 * No segment goes over GPU page 65535 of a buffer, in whatever pieces a request has it, so that its
 * length has 32 bits: contract 15.1, 16.2. The GPU must have 5 GiB.
 *
 * usage: limit nvme|plain|v2 DISK PCI-ADDRESS (the disk's function)
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "../lib/tap.h"
#include "../lib/vendor.h"

#define PAGE	4096UL
#define LARGE	(5 * 1024 * MIB)
#define AT	(65533UL * NVFS_GPU_PAGE_SIZE)	/* of the read, in the buffer */
#define LIMIT	(2UL * NVFS_GPU_PAGE_SIZE)	/* of segments, in the read */

static struct vendor v;

/* A page before and one behind a place of the read, in bios of their own. */
static void test(uint64_t offset, unsigned int segments, const char *what)
{
	struct fake_storage_piece pieces[] = {
		{ (uintptr_t)vendor_shadow(&v) + offset - PAGE, PAGE },
		{ (uintptr_t)vendor_shadow(&v) + offset, PAGE },
	};
	unsigned int n = 0;
	int64_t ret;

	memset(&v.build, 0, sizeof(v.build));
	v.build.room = 2;
	tap_is(vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_BIO_EACH, pieces, 2), 0,
	       "%s: a request of two bios", what);
	if (v.table != FAKE_STORAGE_V2) {
		tap_is(vendor_call(&v, FAKE_STORAGE_BLK_RQ_MAP_SG, 0), segments, "%s: %u entries",
		       what, segments);
		tap_is(vendor_call(&v, FAKE_STORAGE_MAP_SG, segments), segments, "are mapped");
		tap_ok(vendor_segments_right(&v, offset - PAGE, 2 * PAGE), "to the right places");
		tap_is(vendor_call(&v, FAKE_STORAGE_UNMAP_SG, segments), segments, "and unmapped");
		return;
	}
	for (ret = vendor_call(&v, FAKE_STORAGE_ITER_START, 0); ret == 1;
	     ret = vendor_call(&v, FAKE_STORAGE_ITER_NEXT, 0)) {
		tap_ok(vendor_segments_right(&v, offset - PAGE + n * PAGE, 2 * PAGE / segments),
		       "%s: segment %u is at the right place", what, n);
		n++;
	}
	tap_is(n, segments, "%s: there are %u", what, segments);
	tap_is(v.call.status, 0, "and no error");
	while (n--)
		tap_is(vendor_call(&v, FAKE_STORAGE_UNMAP_PAGE, 0), 0, "unmapped");
}

int main(int argc, char **argv)
{
	static const char * const names[] = { "none", "nvme", "plain", "v2" };
	enum fake_storage_table table = FAKE_STORAGE_NVME;
	uint64_t va;

	if (argc != 4)
		tap_bail("usage: limit nvme|plain|v2 DISK PCI-ADDRESS");
	while (table < FAKE_STORAGE_V2 && strcmp(argv[1], names[table]))
		table++;
	vendor_open(&v, table, argv[2], argv[3]);
	tap_is(gpu_alloc(&v.gpu, LARGE, 0, &va), 0, "5 GiB of GPU memory");
	tap_is(nvfs_register(&v.buf, v.node, va, LARGE, VENDOR_WINDOW, v.info.pdevinfo), 0,
	       "a buffer of 5 GiB");
	vendor_start(&v, AT, VENDOR_IO);
	test(LIMIT - NVFS_GPU_PAGE_SIZE, 1, "over another GPU page");
	test(LIMIT, 2, "over GPU page 65535");
	test(LIMIT + NVFS_GPU_PAGE_SIZE, 1, "over the next one");
	tap_is(vendor_end(&v), VENDOR_IO, "the held read is good");
	vendor_forget(&v);
	return tap_plan();
}
