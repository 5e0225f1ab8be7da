// SPDX-License-Identifier: GPL-2.0
/*
 * Each result of the v2 functions: contract §16.
 *
 * usage: iterator DISK PCI-ADDRESS OTHER-PCI-ADDRESS (the disk's function, another one)
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "../lib/vendor.h"

#define PAGE	4096
#define MIDDLE	(NVFS_GPU_PAGE_SIZE - PAGE)
#define START	FAKE_STORAGE_ITER_START
#define NEXT	FAKE_STORAGE_ITER_NEXT
#define UNMAP	FAKE_STORAGE_UNMAP_PAGE

static struct vendor v;
static uint64_t other;

static struct fake_storage_piece gpu_piece(uint64_t offset, uint64_t len)
{
	return (struct fake_storage_piece){ (uintptr_t)vendor_shadow(&v) + offset, len };
}

static int build(enum fake_storage_op op, unsigned int flags,
		 const struct fake_storage_piece *pieces, unsigned int n)
{
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = 1;
	return vendor_build(&v, op, flags, pieces, n);
}

static void unmap(unsigned int segments)
{
	unsigned int good = 0, i;

	for (i = 0; i < segments; i++)
		good += vendor_call(&v, UNMAP, 0) == 0;
	tap_is(good, segments, "dma_unmap_page for each of %u segments: 0", segments);
}

/* Walks the request that was built; all its bytes must be at `offset` of the I/O. */
static void walk(uint64_t offset, uint64_t len, unsigned int segments, const char *name)
{
	uint64_t done = 0;
	unsigned int n = 0;
	bool right = true;
	int64_t ret;

	for (ret = vendor_call(&v, START, 0); ret == 1; ret = vendor_call(&v, NEXT, 0)) {
		if (n == 0)
			tap_ok(!(v.call.touched & FAKE_STORAGE_STATE_TOUCHED),
			       "%s: the state is untouched", name);
		right &= v.call.status == 0 &&
			 vendor_segments_right(&v, offset + done, v.call.segment[0].len);
		done += v.call.segment[0].len;
		n++;
	}
	tap_is(ret, 0, "%s: it ends with 0", name);
	tap_is(v.call.status, 0, "and BLK_STS_OK");
	tap_ok(right, "the segments are at the right places");
	tap_is(n, segments, "there are %u", segments);
	tap_is(done, len, "they have all bytes");
	unmap(n);
}

static void test_not_ours(void)
{
	static const struct {
		const char *name;
		enum fake_storage_op op;
		unsigned int without;
	} cases[] = {
		{ "no request", FAKE_STORAGE_READ, FAKE_STORAGE_REQUEST },
		{ "no bio", FAKE_STORAGE_READ, FAKE_STORAGE_BIO },
		{ "a request without data", FAKE_STORAGE_NO_BIO, 0 },
		{ "neither READ nor WRITE", FAKE_STORAGE_DRV_IN, 0 },
		{ "special payload", FAKE_STORAGE_SPECIAL, 0 },
	};
	struct fake_storage_piece gpu = gpu_piece(0, VENDOR_IO), cpu = { (uintptr_t)v.cpu, PAGE };
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tap_is(build(cases[i].op, 0, &gpu, 1), 0, "%s: built", cases[i].name);
		tap_is(vendor_call_without(&v, START, 0, cases[i].without), 0, "iter_start, %s: 0",
		       cases[i].name);
		tap_ok(!(v.call.touched & FAKE_STORAGE_ITER_TOUCHED), "the iterator is untouched");
	}
	for (i = FAKE_STORAGE_READ; i <= FAKE_STORAGE_WRITE; i++) {
		build(i, 0, &cpu, 1);
		tap_is(vendor_call(&v, START, 0), 0, "CPU pages, %s: 0", i ? "WRITE" : "READ");
		tap_is(v.call.status, 0, "with BLK_STS_OK");
	}
}

static void refused(const char *name)
{
	tap_is(vendor_call(&v, START, 0), 0, "%s: 0", name);
	tap_is(v.call.status, -EIO, "with BLK_STS_IOERR");
}

static void test_refused(void)
{
	struct fake_storage_piece gpu = gpu_piece(0, VENDOR_IO), big[32];
	struct fake_storage_piece mixed[] = { gpu_piece(0, PAGE), { (uintptr_t)v.cpu, PAGE } };
	struct fake_storage_piece swapped[] = { mixed[1], mixed[0] };
	struct fake_storage_piece behind = gpu_piece(VENDOR_IO, PAGE);
	struct fake_storage_piece over = gpu_piece(VENDOR_IO - PAGE, 2 * PAGE);
	size_t i;

	build(FAKE_STORAGE_READ, FAKE_STORAGE_INTEGRITY, &gpu, 1);
	refused("integrity data");
	build(FAKE_STORAGE_READ, 0, &behind, 1);
	refused("a page behind the I/O under way");
	build(FAKE_STORAGE_READ, 0, &over, 1);
	refused("pages that begin in it");
	for (i = 0; i < 32; i++)
		big[i] = gpu_piece(0, VENDOR_IO);
	big[31].len = NVFS_MAX_REQUEST_BYTES - 31 * VENDOR_IO + PAGE;
	tap_is(build(FAKE_STORAGE_READ, 0, big, 32), 0, "a request of 8327168 bytes");
	refused("is too long");
	build(FAKE_STORAGE_READ, 0, mixed, 2);
	refused("GPU pages, then CPU pages");
	build(FAKE_STORAGE_READ, FAKE_STORAGE_BIO_EACH, swapped, 2);
	refused("CPU pages, then GPU pages, in two bios");
	build(FAKE_STORAGE_READ, FAKE_STORAGE_BY_ITSELF, mixed, 2);
	tap_is(vendor_call(&v, START, 0), 0, "both, but not of a transfer: 0");
	tap_is(v.call.status, 0, "with BLK_STS_OK");

	build(FAKE_STORAGE_READ, 0, &gpu, 1);
	tap_is(vendor_call_for(&v, START, 0, FAKE_STORAGE_DEV_NOT_PCI), 0, "not a PCI device: 0");
	tap_is(v.call.status, -EIO, "with BLK_STS_IOERR");
	gpu_fault(&v.gpu, FAKE_NVIDIA_DMA_MAP_PAGES, -ENOMEM, 0, 1000, 0);
	tap_is(vendor_call_for(&v, START, 0, other), 0, "no DMA mapping: 0");
	tap_is(v.call.status, -EIO, "with BLK_STS_IOERR");
	gpu_reset(&v.gpu);
	walk(0, VENDOR_IO, 1, "the same request after errors");
}

static void test_walks(uint64_t size, unsigned int runs)
{
	struct fake_storage_piece whole = gpu_piece(0, size);
	struct fake_storage_piece apart[] = { gpu_piece(0, 3 * PAGE), gpu_piece(8 * PAGE, PAGE) };
	struct fake_storage_piece joined[] = { gpu_piece(0, 3 * PAGE),
					       gpu_piece(3 * PAGE, 5 * PAGE) };
	struct fake_storage_piece sectors = gpu_piece(512, 2 * PAGE);

	build(FAKE_STORAGE_READ, 0, &whole, 1);
	walk(0, size, runs, "the whole I/O");
	walk(0, size, runs, "the same request again");
	build(FAKE_STORAGE_READ, FAKE_STORAGE_BIO_EACH, joined, 2);
	walk(0, 8 * PAGE, 1, "two bios of neighbours");
	build(FAKE_STORAGE_READ, 0, &sectors, 1);
	walk(512, 2 * PAGE, 1, "from the second sector on");

	build(FAKE_STORAGE_READ, 0, apart, 2);
	tap_is(vendor_call(&v, START, 0), 1, "pages that are not neighbours: 1");
	tap_is(v.call.segment[0].len, 3 * PAGE, "the first ones");
	tap_ok(vendor_segments_right(&v, 0, 3 * PAGE), "at the right place");
	tap_is(vendor_call(&v, NEXT, 0), 1, "then 1");
	tap_is(v.call.segment[0].len, PAGE, "the last one");
	tap_ok(vendor_segments_right(&v, 8 * PAGE, PAGE), "at the right place");
	tap_is(vendor_call(&v, NEXT, 0), 0, "then 0");
	tap_is(v.call.status, 0, "with BLK_STS_OK");
	tap_is(vendor_call_without(&v, UNMAP, 0, FAKE_STORAGE_COOKIE), -1,
	       "dma_unmap_page without a cookie: -1");
	tap_is(vendor_call_in_irq(&v, UNMAP, 0), 0, "in a hard interrupt: 0");
	tap_is(vendor_call_for(&v, UNMAP, 0, FAKE_STORAGE_DEV_NOT_PCI), 0, "for any device: 0");
}

/* A driver that does not heed a refusal has written what the shadow buffer has. */
static void test_heedless(void)
{
	struct fake_storage_piece first;

	v.write = true;
	vendor_start(&v, 0, VENDOR_IO);
	first = gpu_piece(0, PAGE);
	build(FAKE_STORAGE_WRITE, 0, &first, 1);
	tap_is(vendor_call_for(&v, START, 0, FAKE_STORAGE_DEV_NOT_PCI), 0, "a write is refused");
	tap_is(v.call.status, -EIO, "with BLK_STS_IOERR");
	tap_is(vendor_end(&v), -EIO, "and fails, though all of it is mapped afterwards");
	vendor_start(&v, 0, VENDOR_IO);
	tap_is(vendor_end(&v), VENDOR_IO, "the next one is good");
	v.write = false;
}

static void test_buffer(bool scrambled)
{
	struct fake_storage_piece first;
	int64_t bad;

	tap_is(vendor_buffer(&v, scrambled ? FAKE_NVIDIA_SCRAMBLED : 0), 0, "a %s buffer",
	       scrambled ? "scrambled" : "contiguous");
	vendor_start(&v, 0, VENDOR_IO);
	test_not_ours();
	test_walks(VENDOR_IO, scrambled ? 4 : 1);
	if (!scrambled)
		test_refused();
	tap_is(vendor_end(&v), VENDOR_IO, "the held read is good");
	tap_is(gpu_check(&v.gpu, v.buf.gpu_va, VENDOR_IO, 7, &bad) ?: bad, -1, "and its bytes");

	/* Such a read may not leave its GPU page. */
	vendor_start(&v, MIB + PAGE, MIDDLE);
	test_walks(MIDDLE, 1);
	tap_is(vendor_end(&v), MIDDLE, "a read into the middle of a GPU page is good");

	/* After `test_refused` it would be tried again, for the function that is known now. */
	if (scrambled)
		test_heedless();

	first = gpu_piece(0, PAGE);
	build(FAKE_STORAGE_READ, 0, &first, 1);
	refused("with no I/O under way");
	vendor_forget(&v);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		tap_bail("usage: iterator DISK PCI-ADDRESS OTHER-PCI-ADDRESS");
	vendor_open(&v, FAKE_STORAGE_V2, argv[1], argv[2]);
	other = vendor_pci(argv[3]);
	pattern_fill(v.cpu, VENDOR_IO, 7, 0);
	if (pwrite(v.disk, v.cpu, VENDOR_IO, 0) != (ssize_t)VENDOR_IO)
		tap_bail("the disk cannot be written");
	build(FAKE_STORAGE_NO_BIO, 0, NULL, 0);
	tap_is(vendor_call(&v, FAKE_STORAGE_FEATURES, 0), 0x6c, "the table's features");
	test_buffer(false);
	test_buffer(true);
	return tap_plan();
}
