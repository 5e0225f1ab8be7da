// SPDX-License-Identifier: GPL-2.0
/*
 * The sweep: each operation with its first point of failure made to fail (an allocation, a copy
 * from or to the process, or one of nvidia-fs's own fault points), then with its second, and so on
 * until it has no more. It works nevertheless, or fails with an errno that it may fail with; then it
 * works when it is tried again, with the right data, and at the end nothing is left.
 *
 * usage: sweep register DIRECTORY PCI-ADDRESS
 *	  sweep p2pdma DIRECTORY
 *	  sweep callback DISK DIRECTORY
 *	  sweep load MODULE [PARAMETERS]
 *
 * It needs a kernel with fault injection. ROUNDS in the environment: how often each sweep is done,
 * so that kmemleak can see what a single one leaks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

#define IO		(64 * KIB)
#define GPU_SIZE	(1 * MIB)
#define BUFFERS		4
#define MAX_POINTS	5000
#define SECONDS		20

static int fail_nth, node, file, other;
static struct gpu gpu;
static struct fake_nvidia_info info;
static uint64_t va;
static struct nvfs_buffer buf[BUFFERS];
static union nvfs_ioctl_arg arg;
static struct nvfs_ioctl_io entries[BUFFERS];
static uint64_t seed;		/* of the file's pattern */
static char *host;		/* IO bytes */

/* `allowed`: what may come out of it besides success; 0 ends the list. */
struct op {
	const char *name;
	void (*prepare)(void);
	long (*run)(void);	/* with a fault; 0 or more, or a negative errno */
	long (*settle)(long);	/* waits for its end; the result that counts */
	bool (*right)(void);	/* after a good one */
	void (*undo)(void);
	int allowed[6];
};

static unsigned int foreign;	/* so many first points are not nvidia-fs's */

static void set_number(const char *path, const char *value)
{
	if (nvfs_write_text(path, value) < 0)
		tap_bail("cannot write to %s", path);
}

/* All allocations, also those that may sleep, of any size and kind; and no backtraces. */
static void set_up_faults(void)
{
	static const char *const silent[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
	char path[128];
	unsigned int i;

	for (i = 0; i < sizeof(silent) / sizeof(*silent); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose", silent[i]);
		set_number(path, getenv("VERBOSE") ?: "0");
	}
	set_number("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	set_number("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	set_number("/sys/kernel/debug/fail_page_alloc/ignore-gfp-highmem", "N");
	set_number("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (fail_nth < 0)
		tap_bail("the kernel has no fault injection");
}

static void silence_own_points(void)
{
	glob_t points;
	size_t i;

	if (glob("/sys/kernel/debug/nvfs_inject_fault/*/verbose", 0, NULL, &points))
		tap_bail("there are no fault points");
	for (i = 0; i < points.gl_pathc; i++)
		set_number(points.gl_pathv[i], getenv("VERBOSE") ?: "0");
	globfree(&points);
}

/* with_fault: runs it with its `nth` point of failure failing. Returns whether it had so many. */
static bool with_fault(const struct op *op, unsigned int nth, long *result)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", nth);

	if (pwrite(fail_nth, text, len, 0) != len)
		tap_bail("fail-nth cannot be written");
	*result = op->run();
	/* This is a copy to the process too: it fails if it is the one that comes next. */
	len = pread(fail_nth, text, sizeof(text), 0);
	pwrite(fail_nth, "0", 1, 0);
	return len > 0 && *text == '0';
}

/* points_of: how many points of failure that has. */
static unsigned int points_of(long (*run)(void))
{
	char text[16] = "";

	if (pwrite(fail_nth, "1000000", 7, 0) != 7)
		tap_bail("fail-nth cannot be written");
	run();
	pread(fail_nth, text, sizeof(text) - 1, 0);
	pwrite(fail_nth, "0", 1, 0);
	return 1000000 - atoi(text);
}

static bool allowed(const struct op *op, long result)
{
	unsigned int i;

	for (i = 0; op->allowed[i]; i++)
		if (result == -op->allowed[i])
			return true;
	return result >= 0;
}

static unsigned int sweep_once(const struct op *op, unsigned int *failures, unsigned int *points)
{
	unsigned int bad = 0, nth;
	bool hit = true;
	long result, again;

	*failures = 0;
	for (nth = foreign + 1; hit && nth < MAX_POINTS; nth++) {
		const char *wrong = NULL;

		if (op->prepare)
			op->prepare();
		hit = with_fault(op, nth, &result);
		if (op->settle)
			result = op->settle(result);
		if (result < 0 && hit) {
			++*failures;
			if (!allowed(op, result))
				wrong = "an errno that is not allowed";
			again = op->run();
			if (op->settle)
				again = op->settle(again);
			if (again < 0) {
				tap_diag("%s, again: %s", op->name, strerror(-again));
				wrong = "it does not work the next time";
			}
		} else if (result < 0) {
			wrong = "it fails without a fault";
		}
		if (!wrong && op->right && !op->right())
			wrong = "the data is wrong";
		if (op->undo)
			op->undo();
		if (wrong && bad++ < 5)
			tap_diag("%s, point %u: %s (result %ld)", op->name, nth, wrong, result);
	}
	*points = nth - 2 - foreign;
	return bad + hit;
}

static void sweep(const struct op *op, unsigned int rounds)
{
	unsigned int bad = 0, failures = 0, points = 0, i;
	double start = nvfs_seconds();

	for (i = 0; i < rounds && !bad; i++)
		bad = sweep_once(op, &failures, &points);
	tap_ok(!bad, "%s: each point", op->name);
	if (op->allowed[0])
		tap_ok(failures, "%s: some make it fail", op->name);
	tap_diag("%s: %u points, %u failures, %u rounds, %.1f s", op->name, points, failures, i,
		 nvfs_seconds() - start);
}

static void sweep_all(const struct op *ops, size_t count)
{
	unsigned int rounds = atoi(getenv("ROUNDS") ?: "1");
	const char *only = getenv("ONLY");
	size_t i;

	for (i = 0; i < count; i++)
		if (!only || !strcmp(only, ops[i].name))
			sweep(&ops[i], rounds);
}

#define SWEEP_ALL(ops)	sweep_all(ops, sizeof(ops) / sizeof(*(ops)))

/* request: the errno of the system call, but for EPERM the reason behind it. */
static long request(unsigned long number, union nvfs_ioctl_arg *of)
{
	long ret = nvfs_ioctl(node, number, of);

	if (ret == -EPERM && number != NVFS_IOCTL_BATCH_IO)
		return of->io.ioctl_return;
	return ret;
}

static uint64_t buffer_va(unsigned int i)
{
	return va + i * GPU_SIZE;
}

static void register_buffer(unsigned int i)
{
	if (nvfs_register(&buf[i], node, buffer_va(i), GPU_SIZE, GPU_SIZE, info.pdevinfo))
		tap_bail("MAP failed");
}

static void unregister_all(void)
{
	unsigned int i;

	for (i = 0; i < BUFFERS; i++)
		nvfs_unregister(&buf[i]);
}

/* quiet: what is under way on a buffer is over, and it takes the next one. */
static bool quiet(unsigned int i)
{
	double end = nvfs_seconds() + SECONDS;
	ssize_t ret;

	do {
		ret = nvfs_read(&buf[i], file, 0, 4 * KIB, GPU_SIZE - 4 * KIB);
		if (ret != -EBUSY)
			return ret == (ssize_t)(4 * KIB);
		sched_yield();
	} while (nvfs_seconds() < end);
	return false;
}

/* --- open, mmap, the pages, MAP, munmap */

static int opened;

static long run_open(void)
{
	opened = open("/dev/nvidia-fs1", O_RDWR);
	return opened < 0 ? -errno : 0;
}

static void undo_open(void)
{
	if (opened >= 0)
		close(opened);
}

static void *mapped;
static long long munmaps;

static void prepare_mmap(void)
{
	munmaps = nvfs_stat("Mmap", "munmap");
}

static long run_mmap(void)
{
	mapped = mmap(NULL, GPU_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, node, 0);
	return mapped == MAP_FAILED ? -errno : 0;
}

/* One that failed is not one that was unmapped. */
static bool right_mmap(void)
{
	return nvfs_stat("Mmap", "munmap") == munmaps;
}

static void undo_mmap(void)
{
	if (mapped != MAP_FAILED)
		munmap(mapped, GPU_SIZE);
}

static void prepare_touch(void)
{
	if (run_mmap())
		tap_bail("mmap failed");
}

static sigjmp_buf refused;

static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(refused, 1);
}

static long run_touch(void)
{
	if (sigsetjmp(refused, 1))
		return -ENOMEM;
	signal(SIGBUS, on_bus);
	memset(mapped, 0x5a, IO);
	return 0;
}

static bool right_touch(void)
{
	return *(char *)mapped == 0x5a && ((char *)mapped)[IO - 1] == 0x5a;
}

static void prepare_map(void)
{
	if (nvfs_shadow(&buf[0], node, GPU_SIZE))
		tap_bail("mmap failed");
	buf[0].gpu_va = va;
	buf[0].gpu_size = GPU_SIZE;
	buf[0].pdevinfo = info.pdevinfo;
	arg = nvfs_map_arg(&buf[0]);
}

/* On success nothing is copied back. */
static long run_map(void)
{
	union nvfs_ioctl_arg copy = arg;
	long ret = nvfs_ioctl(node, NVFS_IOCTL_MAP, &copy);

	return ret == -EPERM ? copy.io.ioctl_return : ret;
}

static bool right_map(void)
{
	return quiet(0);
}

static void prepare_unmap(void)
{
	register_buffer(0);
	mapped = buf[0].shadow;
}

static long run_unmap(void)
{
	if (munmap(mapped, GPU_SIZE))
		return -errno;
	buf[0].shadow = NULL;
	return 0;
}

static uint64_t freed_va;

static void prepare_free(void)
{
	if (gpu_alloc(&gpu, GPU_SIZE, 0, &freed_va) ||
	    nvfs_register(&buf[0], node, freed_va, GPU_SIZE, GPU_SIZE, info.pdevinfo) || !quiet(0))
		tap_bail("MAP failed");
}

static long run_free(void)
{
	return gpu_free(&gpu, freed_va);
}

static bool right_free(void)
{
	return buf[0].meta->state == NVFS_META_DIED;
}

/* --- READ and WRITE */

static void write_file(uint64_t new)
{
	pattern_fill(host, IO, new, 0);
	if (pwrite(file, host, IO, 0) != (ssize_t)IO)
		tap_bail("the file cannot be written");
	seed = new;
}

static void prepare_read(void)
{
	register_buffer(0);
	gpu_set(&gpu, va, 0, IO);
	arg = nvfs_io_arg(&buf[0], file, 0, IO, 0);
}

static long run_io(unsigned long number)
{
	union nvfs_ioctl_arg copy;

	/* The fence value of an earlier try may be there already. */
	if (!(arg.io.flags & NVFS_IO_SYNC))
		arg.io.end_fence_value = ++buf[0].fence;
	copy = arg;
	return request(number, &copy);
}

static long run_read(void)
{
	return run_io(NVFS_IOCTL_READ);
}

static bool right_read(void)
{
	int64_t bad = 0;

	return !gpu_check(&gpu, va, IO, seed, &bad) && bad == -1;
}

static void prepare_write(void)
{
	register_buffer(0);
	gpu_fill(&gpu, va, IO, ++seed);
	arg = nvfs_io_arg(&buf[0], file, 0, IO, 0);
}

/* So that there is something to be flushed. */
static void prepare_cached_write(void)
{
	prepare_write();
	if (pwrite(other, host, 4 * KIB, 4 * KIB) != (ssize_t)(4 * KIB))
		tap_bail("the page cache cannot be written");
}

static long run_write(void)
{
	return run_io(NVFS_IOCTL_WRITE);
}

static bool right_write(void)
{
	return pread(file, host, IO, 0) == (ssize_t)IO && pattern_check(host, IO, seed, 0) == -1;
}

static void prepare_async_read(void)
{
	prepare_read();
	arg.io.flags = NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS;
}

static void prepare_async_write(void)
{
	prepare_write();
	arg.io.flags = NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS;
}

/* What fails with EFAULT may have been started, if it was the copy of its result. */
static long settle_async(long result)
{
	double end = nvfs_seconds() + SECONDS;

	if (result == -EFAULT)
		return quiet(0) ? result : -ETIMEDOUT;
	if (result < 0)
		return result;
	while (nvfs_fence(&buf[0]) != buf[0].fence)
		if (nvfs_seconds() > end)
			return -ETIMEDOUT;
		else
			sched_yield();
	return __atomic_load_n(&buf[0].meta->result, __ATOMIC_RELAXED);
}

/* Two asynchronous reads, a synchronous one and an asynchronous write, the last of other bytes. */
static void prepare_batch(void)
{
	unsigned int i;

	for (i = 0; i < BUFFERS; i++) {
		register_buffer(i);
		gpu_set(&gpu, buffer_va(i), 0, IO);
		entries[i] = nvfs_io_arg(&buf[i], file, i == 3 ? IO : 0, IO, 0).io;
		if (i == 2)
			continue;
		entries[i].flags = NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS;
		entries[i].end_fence_value = 1;
	}
	gpu_fill(&gpu, buffer_va(3), IO, seed + 1);
	entries[3].flags |= 1 << 4;	/* optype: WRITE */
	memset(&arg, 0, sizeof(arg));
	arg.batch.nents = BUFFERS;
	arg.batch.io_entries = entries;
}

static long run_batch(void)
{
	union nvfs_ioctl_arg copy = arg;

	return request(NVFS_IOCTL_BATCH_IO, &copy);
}

static long settle_batch(long result)
{
	unsigned int i;

	for (i = 0; i < BUFFERS; i++)
		if (!quiet(i))
			return -ETIMEDOUT;
	return result;
}

static bool right_batch(void)
{
	unsigned int i, good = 0;
	int64_t bad;

	for (i = 0; i < 3; i++)
		good += !gpu_check(&gpu, buffer_va(i), IO, seed, &bad) && bad == -1;
	return good == 3 && pread(file, host, IO, IO) == (ssize_t)IO &&
	       pattern_check(host, IO, seed + 1, 0) == -1;
}

/* --- RDMA */

static void prepare_rdma(void)
{
	register_buffer(0);
	memset(&arg, 0, sizeof(arg));
	arg.set_rdma.cpuvaddr = (uintptr_t)buf[0].shadow;
	arg.set_rdma.version = 2;
	arg.set_rdma.nkeys = 1;
}

static long run_rdma(void)
{
	union nvfs_ioctl_arg get = { .get_rdma = { .cpuvaddr = arg.set_rdma.cpuvaddr } };
	union nvfs_ioctl_arg clear = { .clear_rdma = { .cpuvaddr = arg.set_rdma.cpuvaddr } };
	int ret = nvfs_ioctl(node, NVFS_IOCTL_SET_RDMA_REG_INFO, &arg);

	ret = ret ?: nvfs_ioctl(node, NVFS_IOCTL_GET_RDMA_REG_INFO, &get);
	return ret ?: nvfs_ioctl(node, NVFS_IOCTL_CLEAR_RDMA_REG_INFO, &clear);
}

/* --- /proc */

static const char *proc_file;
static char proc_want[65536], proc_got[65536];

static long run_proc(void)
{
	ssize_t len = nvfs_read_text(proc_file, proc_got, sizeof(proc_got));

	return len < 0 ? len : 0;
}

/* `paths` says what it cannot tell. */
static bool right_proc(void)
{
	return !strcmp(proc_got, proc_want) ||
	       (strstr(proc_file, "paths") && strstr(proc_got, "out of memory"));
}

static long run_reset(void)
{
	ssize_t ret = nvfs_write_text(NVFS_PROC "stats", "0");

	return ret < 0 ? ret : 0;
}

static void sweep_proc(void)
{
	static const char *const names[] = { "version", "devcount", "modules", "bridges",
		"peer_distance", "peer_affinity", "stats", "paths", "counters" };
	char path[64], name[64];
	struct op op = { .name = name, .run = run_proc, .right = right_proc,
			 .allowed = { ENOMEM, EFAULT } };
	unsigned int i;

	/* Averages change with time. */
	nvfs_set_parameter("rw_stats_enabled", "0");
	nvfs_set_parameter("peer_stats_enabled", "1");
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), NVFS_PROC "%s", names[i]);
		snprintf(name, sizeof(name), "a read of %s", names[i]);
		proc_file = path;
		if (nvfs_read_text(path, proc_want, sizeof(proc_want)) < 0)
			tap_bail("no %s", path);
		sweep_all(&op, 1);
	}
	nvfs_set_parameter("peer_stats_enabled", "0");
	op = (struct op){ .name = "a write to stats", .run = run_reset,
			  .allowed = { ENOMEM, EFAULT } };
	sweep_all(&op, 1);
}

/* --- all of them */

#define IO_ERRNOS	{ ENOMEM, EFAULT, EBUSY, EIO }

static const struct op maps[] = {
	{ "open", NULL, run_open, NULL, NULL, undo_open, { ENOMEM, EFAULT } },
	{ "mmap", prepare_mmap, run_mmap, NULL, right_mmap, undo_mmap, { ENOMEM } },
	{ "the shadow pages", prepare_touch, run_touch, NULL, right_touch, undo_mmap,
	  { ENOMEM } },
	{ "MAP", prepare_map, run_map, NULL, right_map, unregister_all,
	  { ENOMEM, EFAULT, EINVAL } },
	{ "munmap", prepare_unmap, run_unmap, NULL, NULL, unregister_all, { 0 } },
};

/* While nobody has a node open: the storage drivers are offered our tables, and the last close takes them. */
static const struct op first_open = {
	"the first open", NULL, run_open, NULL, NULL, undo_open, { ENOMEM, EFAULT }
};

static const struct op free_gpu_memory = {
	"GPU memory is freed", prepare_free, run_free, NULL, right_free, unregister_all,
	{ EFAULT }
};

static const struct op transfers[] = {
	{ "READ", prepare_read, run_read, NULL, right_read, unregister_all, IO_ERRNOS },
	{ "WRITE", prepare_write, run_write, NULL, right_write, unregister_all, IO_ERRNOS },
	{ "asynchronous READ", prepare_async_read, run_read, settle_async, right_read,
	  unregister_all, IO_ERRNOS },
	{ "asynchronous WRITE", prepare_async_write, run_write, settle_async, right_write,
	  unregister_all, IO_ERRNOS },
	{ "BATCH_IO", prepare_batch, run_batch, settle_batch, right_batch, unregister_all,
	  { EPERM, EFAULT } },
};

static const struct op cached_write = {
	"WRITE over cached pages", prepare_cached_write, run_write, NULL, right_write,
	unregister_all, IO_ERRNOS
};

static const struct op rdma = {
	"SET, GET and CLEAR", prepare_rdma, run_rdma, NULL, NULL, unregister_all, { EFAULT }
};

static void open_all(const char *path)
{
	struct stat st;

	node = nvfs_open(0, O_RDWR);
	if (!stat(path, &st) && S_ISBLK(st.st_mode))
		file = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	else
		file = nvfs_file(path, MIB, 1);
	other = open(path, O_RDWR | O_CLOEXEC);
	host = aligned_alloc(4096, IO);
	if (node < 0 || file < 0 || other < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, BUFFERS * GPU_SIZE, 0, &va))
		tap_bail("node %d, file %d, or no GPU", node, file);
	/* Files of all modes are whole MiBs: what is written next does not change their blocks. */
	write_file(1);
	if (pwrite(file, host, IO, IO) != (ssize_t)IO || fsync(file))
		tap_bail("the file cannot be written");
}

/* How many pages of user memory are pinned, of all processes. */
static long long user_pins(void)
{
	long long acquired, released;

	/* Folds the counters of all CPUs. */
	nvfs_write_text("/proc/sys/vm/stat_refresh", "1");
	acquired = nvfs_number("/proc/vmstat", "nr_foll_pin_acquired");
	released = nvfs_number("/proc/vmstat", "nr_foll_pin_released");
	if (acquired < 0 || released < 0)
		tap_bail("no count of pins");
	return acquired - released;
}

/* nothing_left: the GPU driver has all back, and the module counts nothing. */
static void nothing_left(void)
{
	struct fake_nvidia_counts counts;
	double end = nvfs_seconds() + SECONDS;
	char text[8192];

	do {
		if (gpu_counts(&gpu, &counts) ||
		    nvfs_read_text(NVFS_PROC "counters", text, sizeof(text)) < 0)
			tap_bail("no counts");
		if (!counts.tables && !counts.mappings && strstr(text, "pins_now 0\n") &&
		    !user_pins())
			break;
		sched_yield();
	} while (nvfs_seconds() < end);
	tap_ok(!counts.tables && !counts.mappings && !counts.pinned_pages && !counts.misuse,
	       "the GPU driver has everything back");
	tap_ok(strstr(text, "pins_now 0\n") && strstr(text, "dma_mappings_now 0\n") &&
	       strstr(text, "segments_now 0\n"), "nothing is counted as being there");
	tap_is(user_pins(), 0, "no user memory is pinned");
	tap_is(nvfs_stat("Bar1-map", "active"), 0, "no buffer is active");
	tap_is(nvfs_stat("Active Shadow-Buffer (MiB)", ""), 0, "there is no shadow buffer");
	tap_is(nvfs_stat("Ops", "Read"), 0, "nothing is being read");
	tap_is(nvfs_stat("Ops", "Write"), 0, "nor written");
	tap_is(nvfs_stat("Ops", "BatchIO"), 0, "nor is there a batch");
}

static void test_p2pdma(const char *directory)
{
	unsigned int legacy;
	char path[256];

	snprintf(path, sizeof(path), "%s/sweep.tmp", directory);
	sweep_all(&first_open, 1);
	open_all(path);
	nvfs_set_parameter("rw_stats_enabled", "1");
	for (legacy = 0; legacy < 2; legacy++) {
		nvfs_set_parameter("use_legacy_p2p_allocation", legacy ? "1" : "0");
		tap_diag(legacy ? "pins with callbacks" : "persistent pins");
		if (legacy)
			sweep_all(&maps[3], 1);
		else
			SWEEP_ALL(maps);
	}
	sweep_all(&free_gpu_memory, 1);
	SWEEP_ALL(transfers);
	sweep_all(&cached_write, 1);
	sweep_all(&rdma, 1);
	sweep_proc();
	nothing_left();
	unlink(path);
}

static void test_callback(const char *disk, const char *directory)
{
	char path[256];

	if (storage_set("table", FAKE_STORAGE_V2))
		tap_bail("no parameter `table`");
	nvfs_set_parameter("use_legacy_p2p_allocation", "1");
	sweep_all(&first_open, 1);
	open_all(disk);
	SWEEP_ALL(transfers);
	sweep_all(&free_gpu_memory, 1);
	close(file);
	close(other);
	snprintf(path, sizeof(path), "%s/sweep.tmp", directory);
	open_all(path);
	tap_diag("a file");
	SWEEP_ALL(transfers);
	nothing_left();
	unlink(path);
}

/* --- the pages of a BAR, which are made once for as long as the GPU's driver is bound */

static const char *gpu_address;

static void prepare_bar(void)
{
	if (gpu_open(&gpu, 0) || gpu_info(&gpu, &info) || gpu_alloc(&gpu, GPU_SIZE, 0, &va))
		tap_bail("no GPU");
	prepare_read();
}

static void bind_gpu(const char *what)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/fake_nvidia/%s", what);
	set_number(path, gpu_address);
}

static void undo_bar(void)
{
	nvfs_unregister(&buf[0]);
	gpu_close(&gpu);
	bind_gpu("unbind");
	bind_gpu("bind");
}

static const struct op bar = {
	"the first READ of a GPU", prepare_bar, run_read, NULL, right_read, undo_bar,
	{ ENOMEM, EFAULT, EBUSY, EIO, EOPNOTSUPP }
};

static void test_register(const char *directory)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/sweep.tmp", directory);
	open_all(path);
	gpu_close(&gpu);
	/*
	 * The kernel's own part of it does not survive: the direct map of new memory does not look
	 * whether it got its page tables (atomic allocations), and pci_p2pdma_add_resource() leaves
	 * an action behind that uses what it has freed. So here there are pages, and memory for
	 * those who can wait.
	 */
	set_number("/sys/kernel/debug/failslab/ignore-gfp-wait", "Y");
	set_number("/sys/kernel/debug/fail_page_alloc/min-order", "99");
	sweep_all(&bar, 1);
	set_number("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	set_number("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	if (gpu_open(&gpu, 0))
		tap_bail("no GPU");
	nothing_left();
	unlink(path);
}

/* --- load */

static int module;
static const char *parameters;

static long run_load(void)
{
	return syscall(SYS_finit_module, module, parameters, 0) ? -errno : 0;
}

/* It works without its files in /proc and debugfs. */
static bool right_load(void)
{
	int fd = open("/dev/nvidia-fs0", O_RDWR);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void undo_load(void)
{
	static const char *const gone[] = { "/sys/module/nvidia_fs", "/sys/class/nvidia-fs-class",
		"/proc/driver/nvidia-fs", "/dev/nvidia-fs0",
		"/sys/kernel/debug/nvfs_inject_fault" };
	unsigned int i;

	if (syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK))
		tap_bail("the module cannot be unloaded: %s", strerror(errno));
	for (i = 0; i < sizeof(gone) / sizeof(*gone); i++)
		if (!access(gone[i], F_OK))
			tap_bail("%s is still there", gone[i]);
}

static const struct op load = {
	"load", NULL, run_load, NULL, right_load, undo_load, { ENOMEM, EFAULT }
};

/* This is found out when all but sysfs and the module's own part is done. */
static long run_bad_load(void)
{
	return syscall(SYS_finit_module, module, "max_devices=x", 0) ? -errno : 0;
}

static void test_load(const char *path, const char *text)
{
	module = open(path, O_RDONLY | O_CLOEXEC);
	parameters = text ?: "";
	if (module < 0)
		tap_bail("no %s", path);
	foreign = points_of(run_bad_load);
	sweep_all(&load, 1);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		tap_bail("usage: see the source");
	set_up_faults();
	if (!strcmp(argv[1], "load")) {
		test_load(argv[2], argv[3]);
		return tap_plan();
	}
	silence_own_points();
	nvfs_set_parameter("rw_stats_enabled", "1");
	if (!strcmp(argv[1], "p2pdma")) {
		test_p2pdma(argv[2]);
	} else if (argc == 4 && !strcmp(argv[1], "callback")) {
		test_callback(argv[2], argv[3]);
	} else if (argc == 4 && !strcmp(argv[1], "register")) {
		gpu_address = argv[3];
		test_register(argv[2]);
	} else {
		tap_bail("usage: see the source");
	}
	return tap_plan();
}
