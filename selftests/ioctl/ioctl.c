// SPDX-License-Identifier: GPL-2.0
/*
 * The ioctl's common rules: order of checks (3.2), how results travel (3.3 to 3.5), argument
 * layouts (section 4), REMOVE (section 5).
 *
 * usage: ioctl DIRECTORY (on a file system that a GPU can reach)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define PAGE		4096
#define SIZE		(1 * MIB)

/* 4.1 to 4.10: the header says what the contract says. */
#define AT(type, field, offset) \
	_Static_assert(offsetof(struct nvfs_##type, field) == (offset), #type "." #field)
#define SIZEOF(type, size) \
	_Static_assert(sizeof(struct nvfs_##type) == (size), #type)

SIZEOF(ioctl_map, 48);
AT(ioctl_map, size, 0);
AT(ioctl_map, pdevinfo, 8);
AT(ioctl_map, cpuvaddr, 16);
AT(ioctl_map, gpuvaddr, 24);
AT(ioctl_map, end_fence_addr, 32);
AT(ioctl_map, ioctl_return, 32);
AT(ioctl_map, sbuf_block, 40);
AT(ioctl_map, is_bounce_buffer, 44);
SIZEOF(file_args, 32);
AT(file_args, inum, 0);
AT(file_args, generation, 8);
AT(file_args, majdev, 12);
AT(file_args, mindev, 16);
AT(file_args, devptroff, 20);
SIZEOF(ioctl_io, 80);
AT(ioctl_io, cpuvaddr, 0);
AT(ioctl_io, offset, 8);
AT(ioctl_io, size, 16);
AT(ioctl_io, end_fence_value, 24);
AT(ioctl_io, ioctl_return, 32);
AT(ioctl_io, file, 40);
AT(ioctl_io, fd, 72);
AT(ioctl_io, flags, 76);
SIZEOF(ioctl_batch, 24);
AT(ioctl_batch, nents, 8);
AT(ioctl_batch, io_entries, 16);
SIZEOF(ioctl_set_rdma, 104);
AT(ioctl_set_rdma, gid, 8);
AT(ioctl_set_rdma, qp_num, 24);
AT(ioctl_set_rdma, lid, 28);
AT(ioctl_set_rdma, flags, 30);
AT(ioctl_set_rdma, version, 31);
AT(ioctl_set_rdma, dc_key, 32);
AT(ioctl_set_rdma, rkey, 36);
AT(ioctl_set_rdma, nkeys, 100);
SIZEOF(rdma_info, 48);
AT(rdma_info, flags, 1);
AT(rdma_info, lid, 2);
AT(rdma_info, qp_num, 4);
AT(rdma_info, rem_vaddr, 8);
AT(rdma_info, size, 16);
AT(rdma_info, rkey, 20);
AT(rdma_info, gid, 24);
AT(rdma_info, dc_key, 40);
SIZEOF(ioctl_get_rdma, 64);
AT(ioctl_get_rdma, gpu_buf_offset, 8);
AT(ioctl_get_rdma, info, 16);
SIZEOF(ioctl_clear_rdma, 8);
_Static_assert(sizeof(union nvfs_ioctl_arg) == 104, "union");
_Static_assert(_Alignof(union nvfs_ioctl_arg) == 8, "union");
/* 8.1 */
SIZEOF(meta, 3120);
AT(meta, result, 8);
AT(meta, state, 16);
AT(meta, hole_magic, 24);
AT(meta, hole_version, 32);
AT(meta, nholes, 36);
AT(meta, start_fd_offset, 40);
AT(meta, hole, 48);

static const struct {
	const char *name;
	unsigned long request;
	size_t size;		/* of its own structure */
} requests[] = {
	{ "READ", NVFS_IOCTL_READ, sizeof(struct nvfs_ioctl_io) },
	{ "MAP", NVFS_IOCTL_MAP, sizeof(struct nvfs_ioctl_map) },
	{ "WRITE", NVFS_IOCTL_WRITE, sizeof(struct nvfs_ioctl_io) },
};

static const struct {
	const char *name;
	unsigned long request;
	int refused;		/* errno for an argument of zeros */
} others[] = {
	{ "SET_RDMA", NVFS_IOCTL_SET_RDMA_REG_INFO, -EINVAL },
	{ "GET_RDMA", NVFS_IOCTL_GET_RDMA_REG_INFO, -EINVAL },
	{ "CLEAR_RDMA", NVFS_IOCTL_CLEAR_RDMA_REG_INFO, -EPERM },
	{ "BATCH_IO", NVFS_IOCTL_BATCH_IO, -EPERM },
};

static struct gpu gpu;
static int node, file;
static uint64_t gpu_va, pdevinfo;
static struct nvfs_buffer buffer;

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

/* pages: n fresh pages with one more, that cannot be touched, behind. */
static char *pages(size_t n)
{
	char *area = mmap(NULL, (n + 1) * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED || mprotect(area + n * PAGE, PAGE, PROT_NONE))
		tap_bail("no memory");
	return area;
}

/* good_arg: a request that works. MAP gets a shadow buffer of its own, in *buf. */
static union nvfs_ioctl_arg good_arg(unsigned long request, struct nvfs_buffer *buf)
{
	*buf = buffer;
	if (request != NVFS_IOCTL_MAP)
		return nvfs_io_arg(buf, file, 0, SIZE, 0);
	if (nvfs_shadow(buf, node, SIZE))
		tap_bail("no shadow buffer");
	buf->gpu_va = gpu_va;
	buf->gpu_size = SIZE;
	buf->pdevinfo = pdevinfo;
	return nvfs_map_arg(buf);
}

static void drop(struct nvfs_buffer *buf)
{
	if (buf->shadow != buffer.shadow)
		nvfs_unregister(buf);
}

static void test_layouts(void)
{
	unsigned char arg[104] = { 0 };
	char got[PAGE], want[PAGE];
	struct nvfs_buffer buf;
	struct stat st;

#define PUT(offset, type, value) do {				\
		type v = (value);				\
		memcpy(arg + (offset), &v, sizeof(v));		\
	} while (0)

	if (nvfs_shadow(&buf, node, 4 * SIZE))
		tap_bail("no shadow buffer");
	PUT(0, int64_t, SIZE);
	PUT(8, uint64_t, pdevinfo);
	PUT(16, uint64_t, (uintptr_t)buf.shadow);
	PUT(24, uint64_t, gpu_va);
	PUT(32, uint64_t, (uintptr_t)buf.meta);
	PUT(40, uint32_t, 4 * SIZE / 4096);
	PUT(44, uint16_t, 0);
	tap_is(nvfs_ioctl(node, 0x40047403, arg), 0, "4.1: MAP takes its fields where they belong");

	fstat(file, &st);
	memset(arg, 0, sizeof(arg));
	PUT(0, uint64_t, (uintptr_t)buf.shadow);
	PUT(8, int64_t, 8192);
	PUT(16, uint64_t, PAGE);
	PUT(40, uint64_t, st.st_ino);
	PUT(52, uint32_t, major(st.st_dev));
	PUT(56, uint32_t, minor(st.st_dev));
	PUT(60, uint64_t, 5 * 65536 + 4096);
	PUT(72, int32_t, file);
	PUT(76, uint8_t, 0x01);
	tap_is(nvfs_ioctl(node, 0x40047402, arg), 0, "4.2, 4.3: READ takes its fields where they belong");
	tap_is(*(int64_t *)(arg + 32), PAGE, "4.3: READ leaves the count at B32");
	pattern_fill(want, PAGE, 1, 8192 / 8);
	gpu_read(&gpu, gpu_va + 5 * 65536 + 4096, got, PAGE);
	tap_ok(!memcmp(got, want, PAGE), "4.2: devptroff is the 8 bytes at B60");

	PUT(60, uint64_t, 0);
	PUT(76, uint8_t, 0x71 | 0x80);
	tap_is(nvfs_ioctl(node, 0x40047402, arg), 0, "4.4: READ ignores optype and the reserved bit");
	nvfs_unregister(&buf);
}

static void test_bad_pointer(void)
{
	char *untouchable = pages(1) + PAGE;
	const struct {
		const char *name;
		void *pointer;
	} bad[] = {
		{ "NULL", NULL },
		{ "a page without access", untouchable },
		{ "a kernel address", (void *)0xffff888000000000 },
		{ "a non-canonical address", (void *)0x8000000000000000 },
		{ "the last byte of the address space", (void *)~0UL },
	};
	unsigned int i, j;

	for (j = 0; j < ARRAY_SIZE(bad); j++) {
		for (i = 0; i < ARRAY_SIZE(requests); i++)
			tap_is(nvfs_ioctl(node, requests[i].request, bad[j].pointer), -EFAULT,
			       "3.2: %s with %s: EFAULT", requests[i].name, bad[j].name);
		tap_is(nvfs_ioctl(node, NVFS_IOCTL_REMOVE, bad[j].pointer), 0,
		       "3.2, 5: REMOVE with %s: 0", bad[j].name);
		tap_is(nvfs_ioctl(node, _IOW('t', 9, int), bad[j].pointer), -EFAULT,
		       "3.2: an unknown number with %s: EFAULT", bad[j].name);
	}
}

static void test_unknown_number(void)
{
	const struct {
		const char *name;
		unsigned long request;
	} unknown[] = {
		{ "number 0", _IOW('t', 0, int) },
		{ "number 9", _IOW('t', 9, int) },
		{ "number 255", _IOW('t', 255, int) },
		{ "READ as _IO", _IO('t', 2) },
		{ "READ as _IOR", _IOR('t', 2, int) },
		{ "READ as _IOWR", _IOWR('t', 2, int) },
		{ "READ with size field 8", _IOW('t', 2, long) },
		{ "MAP with size field 104", _IOW('t', 3, union nvfs_ioctl_arg) },
		{ "READ with magic T", _IOW('T', 2, int) },
		{ "all bits", 0xffffffff },
	};
	char *arg = pages(1) + PAGE - 104;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(unknown); i++)
		tap_is(nvfs_ioctl(node, unknown[i].request, arg), -ENOTTY, "3.2: %s: ENOTTY",
		       unknown[i].name);
}

static void test_short_argument(void)
{
	char *end = pages(1) + PAGE;
	union nvfs_ioctl_arg arg;
	struct nvfs_buffer buf;
	unsigned int i;
	char *at;

	for (i = 0; i < ARRAY_SIZE(requests); i++) {
		arg = good_arg(requests[i].request, &buf);
		at = end - (requests[i].size - 1);
		memcpy(at, &arg, requests[i].size - 1);
		tap_is(nvfs_ioctl(node, requests[i].request, at), -EFAULT,
		       "3.2: %s with one byte less than its structure: EFAULT", requests[i].name);
		at = end - requests[i].size;
		memcpy(at, &arg, requests[i].size);
		tap_is(nvfs_ioctl(node, requests[i].request, at), 0,
		       "3.2: %s with just its structure readable works", requests[i].name);
		drop(&buf);
	}
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_REMOVE, end - 1), 0, "3.2: REMOVE with one byte: 0");
}

/* unchanged: all bytes of the argument but the eight at B32. */
static bool unchanged(const void *one, const void *other)
{
	const char *a = one, *b = other;

	return !memcmp(a, b, 32) && !memcmp(a + 40, b + 40, 104 - 40);
}

/* fill_gaps: marks what the kernel has no business to look at. */
static void fill_gaps(unsigned long request, union nvfs_ioctl_arg *arg)
{
	size_t size = request == NVFS_IOCTL_MAP ? sizeof(arg->map) : sizeof(arg->io);

	memset((char *)arg + size, 0xc3, sizeof(*arg) - size);
	if (request == NVFS_IOCTL_MAP) {
		memset(arg->map.padding, 0x3c, sizeof(arg->map.padding));
		return;
	}
	memset(arg->io.padding, 0x3c, sizeof(arg->io.padding));
	memset((char *)arg + 68, 0x3c, 4);
	arg->io.ioctl_return = 0x0123456789abcdef;
}

static void test_results(void)
{
	union nvfs_ioctl_arg arg, before;
	struct nvfs_buffer buf;
	unsigned int i;
	bool map;

	for (i = 0; i < ARRAY_SIZE(requests); i++) {
		const char *name = requests[i].name;

		map = requests[i].request == NVFS_IOCTL_MAP;
		arg = good_arg(requests[i].request, &buf);
		fill_gaps(requests[i].request, &arg);
		if (map)
			arg.map.size = 0;
		else
			arg.io.offset = 1;
		before = arg;
		tap_is(nvfs_ioctl(node, requests[i].request, &arg), -EPERM,
		       "3.3: %s that fails: errno EPERM", name);
		tap_is(arg.io.ioctl_return, -EINVAL, "3.3: %s that fails: reason at B32", name);
		tap_ok(unchanged(&arg, &before), "3.3: %s that fails: other bytes as they were",
		       name);

		drop(&buf);
		arg = good_arg(requests[i].request, &buf);
		fill_gaps(requests[i].request, &arg);
		before = arg;
		tap_is(nvfs_ioctl(node, requests[i].request, &arg), 0, "3.3: %s that works: 0",
		       name);
		if (map)
			tap_ok(arg.map.end_fence_addr == before.map.end_fence_addr,
			       "3.3: MAP that works: B32 still is end_fence_addr");
		else
			tap_is(arg.io.ioctl_return, SIZE, "3.3: %s that works: bytes at B32",
			       name);
		tap_ok(unchanged(&arg, &before), "3.3: %s that works: other bytes as they were",
		       name);
		drop(&buf);
	}

	memset(&arg, 0x5a, sizeof(arg));
	before = arg;
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_REMOVE, &arg), 0, "3.3: REMOVE: 0");
	tap_ok(!memcmp(&arg, &before, sizeof(arg)), "3.3: REMOVE: all bytes as they were");
}

/* split: the argument over two pages, with B<at> as the first byte of the second. */
static char *split(const union nvfs_ioctl_arg *arg, size_t at, int first, int second)
{
	char *area = pages(2);

	memcpy(area + PAGE - at, arg, sizeof(*arg));
	mprotect(area, PAGE, first);
	mprotect(area + PAGE, PAGE, second);
	return area + PAGE - at;
}

/* 3.4: that nothing but B32 to B39 is written is seen by making all else read-only. */
static void test_only_b32_written(void)
{
	const int rw = PROT_READ | PROT_WRITE;
	union nvfs_ioctl_arg arg;
	struct nvfs_buffer buf;
	unsigned int i;
	char *at;
	int ret;

	for (i = 0; i < ARRAY_SIZE(requests); i++) {
		const char *name = requests[i].name;
		bool map = requests[i].request == NVFS_IOCTL_MAP;

		arg = good_arg(requests[i].request, &buf);
		if (map)
			arg.map.size = 0;
		else
			arg.io.size = 1;
		at = split(&arg, 32, PROT_READ, rw);
		ret = nvfs_ioctl(node, requests[i].request, at);
		tap_ok(ret == -EPERM && *(int64_t *)(at + 32) == -EINVAL,
		       "3.4: %s that fails does not write below B32", name);
		at = split(&arg, 40, rw, PROT_READ);
		ret = nvfs_ioctl(node, requests[i].request, at);
		tap_ok(ret == -EPERM && *(int64_t *)(at + 32) == -EINVAL,
		       "3.4: %s that fails does not write above B39", name);
		drop(&buf);
		if (map)
			continue;
		arg = good_arg(requests[i].request, &buf);
		at = split(&arg, 32, PROT_READ, rw);
		ret = nvfs_ioctl(node, requests[i].request, at);
		tap_ok(!ret && *(int64_t *)(at + 32) == SIZE,
		       "3.4: %s that works does not write below B32", name);
		at = split(&arg, 40, rw, PROT_READ);
		ret = nvfs_ioctl(node, requests[i].request, at);
		tap_ok(!ret && *(int64_t *)(at + 32) == SIZE,
		       "3.4: %s that works does not write above B39", name);
	}
}

/* 3.5: results that cannot be stored. */
static void test_read_only_argument(void)
{
	union nvfs_ioctl_arg arg;
	struct nvfs_buffer buf;
	char *at;
	int ret;

	arg = good_arg(NVFS_IOCTL_READ, &buf);
	at = split(&arg, 0, PROT_READ, PROT_READ);
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_READ, at), -EPERM,
	       "3.5: READ into a read-only argument: EPERM");
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_WRITE, at), -EPERM,
	       "3.5: WRITE into a read-only argument: EPERM");
	tap_is(nvfs_read(&buffer, file, 0, SIZE, 0), SIZE, "3.5: the buffer takes the next I/O");

	arg = good_arg(NVFS_IOCTL_MAP, &buf);
	arg.map.sbuf_block = 0;
	at = split(&arg, 0, PROT_READ, PROT_READ);
	tap_is(nvfs_ioctl(node, NVFS_IOCTL_MAP, at), -EFAULT,
	       "3.5: MAP that fails, into a read-only argument: EFAULT");
	/* A good MAP has nothing to write (3.4); a module that does so fails, mapping kept. */
	arg.map.sbuf_block = SIZE / NVFS_BLOCK_SIZE;
	at = split(&arg, 0, PROT_READ, PROT_READ);
	ret = nvfs_ioctl(node, NVFS_IOCTL_MAP, at);
	tap_ok(!ret || ret == -EFAULT, "3.5: MAP from a read-only argument: 0 or EFAULT");
	tap_is(nvfs_read(&buf, file, 0, SIZE, 0), SIZE, "3.5: and the mapping is there");
	nvfs_unregister(&buf);
}

/* Requests of later issues: whatever they answer, they do no harm. */
static void test_others(void)
{
	static char zeros[104];
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(others); i++) {
		ret = nvfs_ioctl(node, others[i].request, NULL);
		tap_is(ret, -EFAULT, "3.2: %s with NULL: EFAULT", others[i].name);
		ret = nvfs_ioctl(node, others[i].request, zeros);
		tap_is(ret, others[i].refused, "3.3: %s with an empty argument: %s",
		       others[i].name, strerror(-others[i].refused));
	}
	tap_is(nvfs_read(&buffer, file, 0, SIZE, 0), SIZE, "the buffer takes the next I/O");
}

/* 2.3: the entry for 32-bit programs, which a 64-bit program reaches by the old interrupt. */
static long ioctl_compat(int fd, unsigned long request, void *arg)
{
	long ret;

	__asm__ volatile("int $0x80" : "=a"(ret)
			 : "a"(54), "b"((long)fd), "c"(request), "d"(arg)
			 : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

static void test_compat(void)
{
	union nvfs_ioctl_arg *arg = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	if (!nvfs_has_compat()) {
		tap_skip("no 32-bit system calls", "2.3: compat ioctl");
		return;
	}
	*arg = nvfs_io_arg(&buffer, file, 0, PAGE, 0);
	tap_is(ioctl_compat(node, NVFS_IOCTL_READ, arg), 0, "2.3: compat READ works");
	tap_is(arg->io.ioctl_return, PAGE, "2.3: compat READ leaves the count");
	tap_is(ioctl_compat(node, _IOW('t', 9, int), arg), -ENOTTY,
	       "2.3: compat, unknown number: ENOTTY");
}

int main(int argc, char **argv)
{
	struct fake_nvidia_info info;
	char path[256];

	if (argc != 2)
		tap_bail("usage: %s DIRECTORY", argv[0]);
	snprintf(path, sizeof(path), "%s/ioctl.tmp", argv[1]);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, SIZE, 1);
	if (node < 0 || file < 0 || gpu_open(&gpu, 0))
		tap_bail("node %d, file %d, or no GPU", node, file);
	if (gpu_alloc(&gpu, SIZE, 0, &gpu_va) || gpu_info(&gpu, &info))
		tap_bail("no GPU memory");
	pdevinfo = info.pdevinfo;
	if (nvfs_register(&buffer, node, gpu_va, SIZE, SIZE, pdevinfo))
		tap_bail("MAP failed");
	tap_is(nvfs_read(&buffer, file, 0, SIZE, 0), SIZE, "a plain READ works");

	test_bad_pointer();
	test_unknown_number();
	test_short_argument();
	test_results();
	test_only_b32_written();
	test_read_only_argument();
	test_layouts();
	test_others();
	test_compat();
	unlink(path);
	return tap_plan();
}
