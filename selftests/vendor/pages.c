// SPDX-License-Identifier: GPL-2.0
/*
 * Each result of the functions that all tables have: contract §17.
 *
 * usage: pages nvme|plain|v2 DISK PCI-ADDRESS OTHER-PCI-ADDRESS (the disk's function, another one)
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "../lib/vendor.h"

#define PAGE		4096
#define NONE		(long long)NVFS_NO_INDEX
#define IO_PAGES	(VENDOR_IO / PAGE)

static struct vendor v;
static uint64_t other;

static int64_t of_page(enum fake_storage_function function, unsigned int index)
{
	v.call.index = index;
	return vendor_call(&v, function, 0);
}

static void test_pages(bool under_way)
{
	struct fake_storage_piece pieces[] = { { (uintptr_t)v.buf.shadow, 2 * VENDOR_IO },
					       { (uintptr_t)v.cpu, PAGE } };
	int64_t index, near, far;

	memset(&v.build, 0, sizeof(v.build));
	v.build.room = 1;
	tap_is(vendor_build(&v, FAKE_STORAGE_READ, 0, pieces, 2), 0, "pages %s",
	       under_way ? "of an I/O under way" : "of no I/O");
	tap_is(of_page(FAKE_STORAGE_IS_GPU_PAGE, 0), 1, "is_gpu_page: the first");
	tap_is(of_page(FAKE_STORAGE_IS_GPU_PAGE, IO_PAGES - 1), 1, "the last of the I/O");
	tap_is(of_page(FAKE_STORAGE_IS_GPU_PAGE, IO_PAGES), 1, "one behind the I/O");
	tap_is(of_page(FAKE_STORAGE_IS_GPU_PAGE, 2 * IO_PAGES), 0, "not a CPU page");
	tap_is(vendor_call_without(&v, FAKE_STORAGE_IS_GPU_PAGE, 0, FAKE_STORAGE_PAGE), 0,
	       "nor no page");
	v.call.index = 3;
	tap_is(vendor_call_in_irq(&v, FAKE_STORAGE_IS_GPU_PAGE, 0), 1, "in a hard interrupt");

	tap_is(of_page(FAKE_STORAGE_GPU_INDEX, 2 * IO_PAGES), NONE, "gpu_index: not a CPU page");
	tap_is(of_page(FAKE_STORAGE_GPU_INDEX, IO_PAGES), NONE, "nor one behind the I/O");
	tap_is(vendor_call_without(&v, FAKE_STORAGE_GPU_INDEX, 0, FAKE_STORAGE_PAGE), NONE,
	       "nor no page");
	index = of_page(FAKE_STORAGE_GPU_INDEX, 0);
	if (!under_way) {
		tap_is(index, NONE, "nor one of no I/O");
		return;
	}
	tap_ok(index >= 0 && index < 64, "the first page's GPU has index %lld", (long long)index);
	tap_is(of_page(FAKE_STORAGE_GPU_INDEX, IO_PAGES - 1), index, "the last page's too");

	v.call.index = index;
	near = vendor_call(&v, FAKE_STORAGE_DEVICE_PRIORITY, 0);
	far = vendor_call_for(&v, FAKE_STORAGE_DEVICE_PRIORITY, 0, other);
	tap_ok(near < NONE && far < NONE, "device_priority: %#llx and %#llx", (long long)near,
	       (long long)far);
	tap_ok(near != far, "the two functions differ");
	tap_is(vendor_call_for(&v, FAKE_STORAGE_DEVICE_PRIORITY, 0, FAKE_STORAGE_DEV_NOT_PCI), NONE,
	       "none for a device that is not PCI");
	v.call.index = 64;
	tap_is(vendor_call(&v, FAKE_STORAGE_DEVICE_PRIORITY, 0), NONE, "nor for a bad index");
	v.call.index = NVFS_NO_INDEX;
	tap_is(vendor_call(&v, FAKE_STORAGE_DEVICE_PRIORITY, 0), NONE, "nor for no index");
}

static int64_t rdma(int nents, unsigned int without)
{
	memset(&v.call.info, 0x5a, sizeof(v.call.info));
	return vendor_call_without(&v, FAKE_STORAGE_RDMA_INFO, nents, without);
}

static void untouched(const char *name)
{
	tap_ok(!(v.call.touched & FAKE_STORAGE_RECORD_TOUCHED), "%s: the record is untouched", name);
}

static void zeroed(const char *name)
{
	static const struct nvfs_rdma_info zero;

	tap_ok(!memcmp(&v.call.info, &zero, sizeof(zero)), "%s: the record is zeroed", name);
}

static void build(const struct fake_storage_piece *pieces, unsigned int n)
{
	memset(&v.build, 0, sizeof(v.build));
	vendor_build(&v, FAKE_STORAGE_READ, FAKE_STORAGE_FILL, pieces, n);
}

static void test_rdma(void)
{
	union nvfs_ioctl_arg set = { .set_rdma = {
		.cpuvaddr = (uintptr_t)v.buf.shadow, .gid = { 11, 12 }, .qp_num = 13, .lid = 14,
		.flags = 1, .version = 2, .dc_key = 15, .rkey = { 16 }, .nkeys = 1 } };
	union nvfs_ioctl_arg clear = { .clear_rdma = { .cpuvaddr = (uintptr_t)v.buf.shadow } };
	char *shadow = v.buf.shadow;
	struct fake_storage_piece cpu = { (uintptr_t)v.cpu, PAGE };
	struct fake_storage_piece one = { (uintptr_t)shadow + 2 * PAGE, 4 * PAGE };
	struct fake_storage_piece hole[] = { one, { 0, PAGE } }, first_hole[] = { { 0, PAGE }, one };
	struct fake_storage_piece mixed[] = { one, cpu };
	struct fake_storage_piece gap[] = { one, { (uintptr_t)shadow + 20 * PAGE, PAGE } };
	struct fake_storage_piece over = { (uintptr_t)shadow + VENDOR_IO - PAGE, 2 * PAGE };

	build(&one, 1);
	tap_is(rdma(v.build.entries, 0), -1, "rdma info of a buffer without a record: -1");
	untouched("not set");
	tap_is(nvfs_ioctl(v.node, NVFS_IOCTL_SET_RDMA_REG_INFO, &set), 0, "the record is set");

	tap_is(rdma(0, 0), -2, "no entries: -2");
	untouched("no entries");
	tap_is(rdma(-1, 0), -2, "a negative count: -2");
	untouched("a negative count");
	tap_is(rdma(v.build.entries, FAKE_STORAGE_RECORD), -2, "no record: -2");
	build(&cpu, 1);
	tap_is(rdma(1, 0), -2, "a CPU page first: -2");
	untouched("a CPU page first");
	build(first_hole, 2);
	tap_is(rdma(v.build.entries, 0), -1, "no page first: -1");
	untouched("no page first");
	build(hole, 2);
	tap_is(rdma(v.build.entries, 0), -2, "no page later: -2");
	zeroed("no page later");
	build(mixed, 2);
	tap_is(rdma(v.build.entries, 0), -2, "a CPU page later: -2");
	zeroed("a CPU page later");
	build(gap, 2);
	tap_is(rdma(v.build.entries, 0), -1, "pages with a gap: -1");
	zeroed("pages with a gap");
	build(&over, 1);
	tap_is(rdma(v.build.entries, 0), -1, "beyond the I/O under way: -1");
	zeroed("beyond the I/O");

	build(&one, 1);
	tap_is(rdma(v.build.entries, 0), v.build.entries, "4 pages: %u", v.build.entries);
	tap_is(v.call.info.rem_vaddr, v.buf.gpu_va + v.at, "rem_vaddr");
	tap_is(v.call.info.size, VENDOR_IO, "size");
	tap_is(v.call.info.version, 2, "version");
	tap_is(v.call.info.flags, 1, "flags");
	tap_is(v.call.info.lid, 14, "lid");
	tap_is(v.call.info.qp_num, 13, "qp_num");
	tap_is(v.call.info.rkey, 16, "rkey");
	tap_is(v.call.info.dc_key, 15, "dc_key");
	tap_ok(v.call.info.gid[0] == 11 && v.call.info.gid[1] == 12, "gid");

	tap_is(nvfs_ioctl(v.node, NVFS_IOCTL_CLEAR_RDMA_REG_INFO, &clear), 0, "it is cleared");
	tap_is(rdma(v.build.entries, 0), -1, "then -1");
}

int main(int argc, char **argv)
{
	static const char * const names[] = { "none", "nvme", "plain", "v2" };
	enum fake_storage_table table = FAKE_STORAGE_NVME;

	if (argc != 5)
		tap_bail("usage: pages nvme|plain|v2 DISK PCI-ADDRESS OTHER-PCI-ADDRESS");
	while (table < FAKE_STORAGE_V2 && strcmp(argv[1], names[table]))
		table++;
	vendor_open(&v, table, argv[2], argv[3]);
	other = vendor_pci(argv[4]);
	pattern_fill(v.cpu, VENDOR_IO, 7, 0);
	if (pwrite(v.disk, v.cpu, VENDOR_IO, 0) != (ssize_t)VENDOR_IO)
		tap_bail("the disk cannot be written");

	tap_is(vendor_buffer(&v, FAKE_NVIDIA_SCRAMBLED), 0, "a buffer");
	test_pages(false);
	vendor_start(&v, MIB, VENDOR_IO);
	test_pages(true);
	test_rdma();
	tap_is(vendor_end(&v), VENDOR_IO, "the held read is good");
	test_pages(false);
	vendor_forget(&v);
	return tap_plan();
}
