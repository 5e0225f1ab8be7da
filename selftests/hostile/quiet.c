// SPDX-License-Identifier: GPL-2.0
/*
 * What programs can provoke neither floods the log, nor tells kernel addresses, nor waits for RCU.
 *
 * usage: quiet FILE FAR-DEVICE; the device is out of the GPU's reach
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE	(64 * KIB)
#define CALLS	10000
#define LINES	50
#define BUFFERS	200

static struct gpu gpu;
static struct fake_nvidia_info info;
static int node, fd, cached, far, memory, pipes[2];
static struct nvfs_buffer buf, dead, unmapped;
static uint64_t va;

/* ---- the log ---- */

/* Whether a text has what looks like an address of the kernel's. */
static bool has_address(const char *text)
{
	size_t digits = 0, f = 0;

	for (; *text; text++) {
		if (!isxdigit((unsigned char)*text)) {
			digits = f = 0;
			continue;
		}
		if (digits == f && tolower((unsigned char)*text) == 'f')
			f++;
		digits++;
		if (f >= 4 && digits >= 16)
			return true;
	}
	return false;
}

/* Reads what is new; counts all lines, those of the module, and among them those with addresses. */
static void read_log(int kmsg, unsigned int *all, unsigned int *ours, unsigned int *addresses)
{
	char line[8192];
	ssize_t got;

	*all = *ours = *addresses = 0;
	for (;;) {
		got = read(kmsg, line, sizeof(line) - 1);
		if (got < 0 && errno == EPIPE)
			tap_bail("the log overflowed");
		if (got <= 0)
			return;
		line[got] = '\0';
		++*all;
		if (!strstr(line, "nvidia-fs") && !strstr(line, "nvidia_fs"))
			continue;
		++*ours;
		if (has_address(line)) {
			++*addresses;
			tap_diag("%.300s", line);
		}
	}
}

static int log_open(int whence)
{
	int kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);

	if (kmsg < 0 || lseek(kmsg, 0, whence) < 0)
		tap_bail("no log");
	return kmsg;
}

/* ---- calls that fail ---- */

static union nvfs_ioctl_arg io(int file)
{
	return nvfs_io_arg(&buf, file, 0, SIZE, 0);
}

static int bad_number(void)
{
	union nvfs_ioctl_arg arg = io(fd);

	return nvfs_ioctl(node, _IOW('t', 99, int), &arg);
}

static int bad_pointer(void)
{
	return nvfs_ioctl(node, NVFS_IOCTL_READ, (void *)8);
}

static int bad_offset(void)
{
	return nvfs_read(&buf, fd, 17, SIZE, 0);
}

static int bad_fd(void)
{
	return nvfs_read(&buf, -1, 0, SIZE, 0);
}

static int bad_kind(void)
{
	return nvfs_write(&buf, pipes[1], 0, SIZE, 0);
}

static int bad_inode(void)
{
	union nvfs_ioctl_arg arg = io(fd);

	arg.io.file.inum++;
	return nvfs_request(node, NVFS_IOCTL_WRITE, &arg);
}

static int not_direct(void)
{
	return nvfs_read(&buf, cached, 0, SIZE, 0);
}

static int not_mapped(void)
{
	return nvfs_read(&unmapped, fd, 0, SIZE, 0);
}

static int out_of_range(void)
{
	return nvfs_read(&buf, fd, 0, SIZE, 1UL << 40);
}

static int gpu_memory_gone(void)
{
	return nvfs_write(&dead, fd, 0, SIZE, 0);
}

static int file_in_memory(void)
{
	return nvfs_read(&buf, memory, 0, SIZE, 0);
}

/* A drive with hooks is out of reach if the GPU driver has no mapping for it. */
static int no_mapping(int (*request)(void))
{
	int ret;

	gpu_fault(&gpu, FAKE_NVIDIA_DMA_MAP_PAGES, -EIO, 0, 1, 0);
	ret = request();
	gpu_reset(&gpu);
	return ret;
}

static int read_far(void)
{
	return nvfs_read(&buf, far, 0, SIZE, 0);
}

static int out_of_reach(void)
{
	return no_mapping(read_far);
}

static int write_far(void)
{
	return nvfs_submit(&buf, NVFS_IOCTL_WRITE, far, 0, SIZE, 0);
}

static int async_out_of_reach(void)
{
	return no_mapping(write_far);
}

static int empty_batch(void)
{
	union nvfs_ioctl_arg arg;

	memset(&arg, 0, sizeof(arg));
	return nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, &arg);
}

static int batch_far(void)
{
	union nvfs_ioctl_arg arg, entry = io(far);

	memset(&arg, 0, sizeof(arg));
	arg.batch.nents = 1;
	arg.batch.io_entries = &entry.io;
	return nvfs_ioctl(node, NVFS_IOCTL_BATCH_IO, &arg);
}

static int batch_out_of_reach(void)
{
	return no_mapping(batch_far);
}

static int map_of_nothing(void)
{
	union nvfs_ioctl_arg arg = nvfs_map_arg(&unmapped);

	arg.map.gpuvaddr = va + (1UL << 40);
	arg.map.size = SIZE;
	return nvfs_request(node, NVFS_IOCTL_MAP, &arg);
}

static int map_without_buffer(void)
{
	union nvfs_ioctl_arg arg = nvfs_map_arg(&unmapped);

	arg.map.cpuvaddr = (uintptr_t)buf.meta;
	return nvfs_request(node, NVFS_IOCTL_MAP, &arg);
}

static int map_of_wrong_pages(void)
{
	union nvfs_ioctl_arg arg = nvfs_map_arg(&unmapped);
	int ret;

	arg.map.gpuvaddr = va;
	arg.map.size = SIZE;
	gpu_table(&gpu, 0x00010002, 7);
	ret = nvfs_request(node, NVFS_IOCTL_MAP, &arg);
	gpu_reset(&gpu);
	return ret;
}

static int map_refused(void)
{
	union nvfs_ioctl_arg arg = nvfs_map_arg(&unmapped);
	int ret;

	arg.map.gpuvaddr = va;
	arg.map.size = SIZE;
	gpu_fault(&gpu, FAKE_NVIDIA_GET_PAGES, -ENOMEM, 0, 1, 0);
	gpu_fault(&gpu, FAKE_NVIDIA_GET_PAGES_PERSISTENT, -ENOMEM, 0, 1, 0);
	ret = nvfs_request(node, NVFS_IOCTL_MAP, &arg);
	gpu_reset(&gpu);
	return ret;
}

static int bad_mmap(void)
{
	return nvfs_mmap(node, 68 * KIB) ? 0 : -errno;
}

static int no_record(void)
{
	union nvfs_ioctl_arg arg;

	memset(&arg, 0, sizeof(arg));
	return nvfs_ioctl(node, NVFS_IOCTL_GET_RDMA_REG_INFO, &arg);
}

static int bad_record(void)
{
	union nvfs_ioctl_arg arg;

	memset(&arg, 0, sizeof(arg));
	arg.set_rdma.cpuvaddr = (uintptr_t)unmapped.shadow;
	return nvfs_ioctl(node, NVFS_IOCTL_SET_RDMA_REG_INFO, &arg);
}

static int (*const failing[])(void) = {
	bad_number, bad_pointer, bad_offset, bad_fd, bad_kind, bad_inode, not_direct, not_mapped,
	out_of_range, gpu_memory_gone, file_in_memory, out_of_reach, async_out_of_reach,
	empty_batch, batch_out_of_reach, map_of_nothing, map_without_buffer, map_of_wrong_pages,
	map_refused, bad_mmap, no_record, bad_record,
};
#define KINDS (sizeof(failing) / sizeof(*failing))

static void calls(void)
{
	unsigned int i, succeeded = 0, all, ours, addresses, kinds = 0;
	int kmsg = log_open(SEEK_END);
	double start = nvfs_seconds();

	for (i = 0; i < CALLS; i++) {
		if (failing[i % KINDS]() >= 0) {
			succeeded++;
			kinds |= 1u << i % KINDS;
		}
	}
	read_log(kmsg, &all, &ours, &addresses);
	tap_is(succeeded, 0, "%u calls of %zu kinds fail", CALLS, KINDS);
	if (succeeded)
		tap_diag("kinds %#x did not", kinds);
	tap_ok(all < LINES, "they make less than %u lines in the log: %u", LINES, all);
	tap_ok(ours > 0, "%u of them ours", ours);
	tap_diag("%.1f s", nvfs_seconds() - start);
	close(kmsg);
}

/* The kernel has lines of its own for what is out of reach. */
static void reads(void)
{
	static char text[65536];
	unsigned int i, all, ours, addresses, good = 0;
	int kmsg = log_open(SEEK_END);

	for (i = 0; i < CALLS / 20; i++)
		good += nvfs_read_text(NVFS_PROC "paths", text, sizeof(text)) > 0 &&
			nvfs_read_text(NVFS_PROC "modules", text, sizeof(text)) > 0;
	read_log(kmsg, &all, &ours, &addresses);
	tap_is(good, CALLS / 20, "paths and modules are read");
	tap_ok(all < LINES, "that makes less than %u lines in the log: %u", LINES, all);
	close(kmsg);
}

static unsigned int addresses_in(const char *directory)
{
	static char text[65536];
	struct dirent *entry;
	unsigned int n = 0;
	char path[512];
	DIR *dir = opendir(directory);

	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s%s", directory, entry->d_name);
		if (entry->d_name[0] != '.' && nvfs_read_text(path, text, sizeof(text)) > 0 &&
		    has_address(text)) {
			tap_diag("%s", path);
			n++;
		}
	}
	if (dir)
		closedir(dir);
	return n;
}

static void addresses(void)
{
	unsigned int all, ours, addresses;
	int kmsg = log_open(SEEK_SET);

	tap_ok(has_address("at ffff888012345678") && !has_address("0x00000000ffffffff"),
	       "an address would be seen");
	read_log(kmsg, &all, &ours, &addresses);
	tap_is(addresses, 0, "no kernel address in %u lines of ours", ours);
	tap_is(addresses_in(NVFS_PROC) + addresses_in(NVFS_PARAMETERS), 0,
	       "nor in what can be read in /proc and /sys");
	close(kmsg);
}

/* ---- munmap while no grace period ends ---- */

static int reader;
static bool waited;

static void *hold(void *arg)
{
	(void)arg;
	do
		reader = gpu_hold_rcu(&gpu, 15000);
	while (reader == -EBUSY);
	return NULL;
}

/* Is over when a grace period is. */
static void *wait_for_rcu(void *arg)
{
	(void)arg;
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	__atomic_store_n(&waited, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Of buffers that have been used, with both kinds of pins. */
static void munmap_in_rcu(bool legacy)
{
	static struct nvfs_buffer many[BUFFERS];
	pthread_t holding, waiting;
	unsigned int i, bad = 0;
	double start;

	nvfs_set_parameter("use_legacy_p2p_allocation", legacy ? "1" : "0");
	waited = false;
	for (i = 0; i < BUFFERS; i++) {
		if (nvfs_register(&many[i], node, va, SIZE, SIZE, info.pdevinfo))
			tap_bail("MAP failed");
		if (nvfs_read(&many[i], fd, 0, SIZE, 0) != (ssize_t)SIZE)
			tap_bail("READ failed");
	}
	if (pthread_create(&holding, NULL, hold, NULL))
		tap_bail("no thread");
	/* A second reader is refused as soon as the first is there. */
	while (gpu_hold_rcu(&gpu, 1) != -EBUSY)
		sched_yield();
	if (pthread_create(&waiting, NULL, wait_for_rcu, NULL))
		tap_bail("no thread");
	start = nvfs_seconds();
	for (i = 0; i < BUFFERS; i++)
		bad += munmap(many[i].shadow, many[i].window) != 0;
	tap_is(bad, 0, "%s pins: munmap of %u idle buffers while no RCU grace period ends",
	       legacy ? "legacy" : "persistent", BUFFERS);
	tap_diag("%.3f s", nvfs_seconds() - start);
	tap_ok(!__atomic_load_n(&waited, __ATOMIC_ACQUIRE), "none had ended then");
	gpu_hold_rcu(&gpu, 0);
	pthread_join(holding, NULL);
	tap_is(reader, 0, "nor did the reader have to give up");
	pthread_join(waiting, NULL);
	for (i = 0; i < BUFFERS; i++)
		munmap(many[i].meta, 4096);
}

int main(int argc, char **argv)
{
	struct fake_nvidia_counts counts;
	uint64_t gone;
	double end;

	if (argc != 3)
		tap_bail("usage: %s FILE FAR-DEVICE", argv[0]);
	nvfs_set_parameter("use_legacy_p2p_allocation", "1");
	node = nvfs_open(0, O_RDWR);
	fd = nvfs_file(argv[1], MIB, 1);
	cached = open(argv[1], O_RDWR);
	far = open(argv[2], O_RDWR | O_DIRECT);
	memory = memfd_create("memory", 0);
	if (node < 0 || fd < 0 || cached < 0 || far < 0 || memory < 0 || ftruncate(memory, MIB) ||
	    pipe(pipes) || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, MIB, 0, &va) || gpu_alloc(&gpu, MIB, 0, &gone) ||
	    nvfs_register(&buf, node, va, MIB, MIB, info.pdevinfo) ||
	    nvfs_register(&dead, node, gone, MIB, MIB, info.pdevinfo) || gpu_free(&gpu, gone) ||
	    nvfs_shadow(&unmapped, node, MIB))
		tap_bail("no buffers");
	fcntl(memory, F_SETFL, O_DIRECT);
	tap_is(out_of_reach(), access("/sys/kernel/debug/nvme_hook", F_OK) ? -EREMOTEIO : -EIO,
	       "READ from a drive out of reach");
	calls();
	reads();
	addresses();
	munmap_in_rcu(true);
	munmap_in_rcu(false);
	nvfs_unregister(&buf);
	nvfs_unregister(&dead);
	nvfs_unregister(&unmapped);
	close(node);
	end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	do {
		if (gpu_counts(&gpu, &counts))
			tap_bail("no counts");
	} while ((counts.tables || counts.pinned_pages) && nvfs_seconds() < end);
	tap_ok(!counts.tables && !counts.pinned_pages, "nothing is left pinned");
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	return tap_plan();
}
