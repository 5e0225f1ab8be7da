// SPDX-License-Identifier: GPL-2.0
/*
 * The tracepoints of group nvidia_fs: which are hit, and all of their fields. Numbers of
 * microseconds are told apart from 0 only.
 *
 * usage: trace p2pdma DIRECTORY
 *        trace callback DISK PCI-ADDRESS
 *        trace work DIRECTORY DISK PCI-ADDRESS
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"
#include "../lib/vendor.h"

#define TRACEFS		"/sys/kernel/tracing/"
#define EVENTS		TRACEFS "events/nvidia_fs/"

static char want[4096];

/* expect: adds a line. */
TAP_PRINTF(1, 2) static void expect(const char *fmt, ...)
{
	size_t len = strlen(want);
	va_list args;

	va_start(args, fmt);
	vsnprintf(want + len, sizeof(want) - len, fmt, args);
	va_end(args);
	strcat(want, "\n");
}

static void clear(void)
{
	close(open(TRACEFS "trace", O_WRONLY | O_TRUNC));
}

/* Puts a sign for each number of microseconds. */
static void hide_time(char *line)
{
	char *time = strstr(line, "latency_us=");
	bool some;

	if (!time)
		return;
	time += strlen("latency_us=");
	some = *time >= '1' && *time <= '9';
	while (isdigit((unsigned char)*time))
		memmove(time, time + 1, strlen(time));
	memmove(time + 1, time, strlen(time) + 1);
	*time = some ? '+' : '0';
}

/* traced: the events since the last call are those that were expected, in this order. */
static void traced(const char *what)
{
	static char text[65536], got[8192];
	char *line, *save;

	*got = '\0';
	if (nvfs_read_text(TRACEFS "trace", text, sizeof(text)) < 0)
		tap_bail("no trace");
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *event = strstr(line, ": nvfs_");

		if (*line == '#' || !event)
			continue;
		hide_time(event);
		strncat(got, event + 2, sizeof(got) - strlen(got) - 2);
		strcat(got, "\n");
	}
	tap_is_text(got, want, "%s", what);
	*want = '\0';
	clear();
}

static void enable(const char *event, bool on)
{
	char path[128];

	snprintf(path, sizeof(path), EVENTS "%s%senable", event, *event ? "/" : "");
	if (nvfs_write_text(path, on ? "1" : "0") < 0)
		tap_bail("cannot write to %s", path);
}

static void start(void)
{
	if (access(EVENTS, F_OK))
		mount("tracefs", TRACEFS, "tracefs", 0, NULL);
	tap_ok(!access(EVENTS, F_OK), "there is a group nvidia_fs");
	/* The order of what happens on two CPUs is not sure by a clock of each. */
	if (nvfs_write_text(TRACEFS "trace_clock", "counter") < 0)
		tap_bail("no trace clock");
	clear();
	enable("", true);
}

/* As the events write it. */
static const char *pci(uint64_t pdevinfo)
{
	static char text[2][32];
	static unsigned int turn;
	char *s = text[turn++ % 2];

	snprintf(s, sizeof(text[0]), "%04x:%02x:%02x.%x", (unsigned int)(pdevinfo >> 32),
		 (unsigned int)(pdevinfo >> 8) & 0xff, (unsigned int)(pdevinfo >> 3) & 0x1f,
		 (unsigned int)pdevinfo & 7);
	return s;
}

static void test_events(void)
{
	static const char *const names[] = { "map", "unmap", "submit", "complete", "refuse",
					     "dma_map", "dma_unmap", "free_callback" };
	char path[128];
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), EVENTS "nvfs_%s/format", names[i]);
		tap_ok(!access(path, R_OK), "there is nvfs_%s", names[i]);
	}
}

static int test_p2pdma(const char *directory)
{
	struct nvfs_buffer buf;
	struct gpu gpu;
	struct fake_nvidia_info info;
	char path[256], dev[32];
	struct stat st;
	uint64_t va;
	int node, file;

	snprintf(path, sizeof(path), "%s/trace.tmp", directory);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, MIB, 1);
	if (node < 0 || file < 0 || fstat(file, &st) || gpu_open(&gpu, 0) ||
	    gpu_info(&gpu, &info) || gpu_alloc(&gpu, 2 * MIB, 0, &va))
		tap_bail("node %d, file %d, or no GPU", node, file);
	snprintf(dev, sizeof(dev), "%u,%u", major(st.st_dev), minor(st.st_dev));
	nvfs_set_parameter("use_legacy_p2p_allocation", "1");
	nvfs_set_parameter("rw_stats_enabled", "0");
	start();
	test_events();

	nvfs_shadow(&buf, node, MIB);
	buf.gpu_va = va + 4096;
	buf.pdevinfo = info.pdevinfo;
	buf.gpu_size = -1;
	nvfs_map(&buf);
	expect("nvfs_map: gpu=0000:00:00.0 va=0x%llx bytes=18446744073709551615 shadow=1048576 result=-22",
	       (unsigned long long)va + 4096);
	traced("a MAP that fails");
	buf.gpu_size = 1500000;
	nvfs_map(&buf);
	expect("nvfs_map: gpu=%s va=0x%llx bytes=1500000 shadow=1048576 result=0",
	       pci(info.pdevinfo), (unsigned long long)va + 4096);
	traced("a MAP");

	nvfs_read(&buf, file, 128 * KIB, 64 * KIB, 61440);
	expect("nvfs_submit: gpu=%s dev=%s op=read path=p2pdma offset=131072 bytes=65536 sync=1",
	       pci(info.pdevinfo), dev);
	expect("nvfs_complete: gpu=%s dev=%s op=read path=p2pdma offset=131072 bytes=65536 result=65536 latency_us=+",
	       pci(info.pdevinfo), dev);
	traced("a read");
	nvfs_submit(&buf, NVFS_IOCTL_WRITE, file, 0, 4 * KIB, 0);
	nvfs_wait(&buf);
	expect("nvfs_submit: gpu=%s dev=%s op=write path=p2pdma offset=0 bytes=4096 sync=0",
	       pci(info.pdevinfo), dev);
	expect("nvfs_complete: gpu=%s dev=%s op=write path=p2pdma offset=0 bytes=4096 result=4096 latency_us=+",
	       pci(info.pdevinfo), dev);
	traced("an asynchronous write");
	nvfs_read(&buf, file, 1020 * KIB, 8 * KIB, 0);
	expect("nvfs_submit: gpu=%s dev=%s op=read path=p2pdma offset=1044480 bytes=8192 sync=1",
	       pci(info.pdevinfo), dev);
	expect("nvfs_complete: gpu=%s dev=%s op=read path=p2pdma offset=1044480 bytes=8192 result=4096 latency_us=+",
	       pci(info.pdevinfo), dev);
	traced("a read over the end of the file");
	nvfs_read(&buf, file, 1, 4 * KIB, 0);
	traced("one that does not pass its checks is not traced");

	nvfs_set_parameter("p2pdma", "off");
	nvfs_read(&buf, file, 0, 4 * KIB, 0);
	nvfs_set_parameter("p2pdma", "auto");
	expect("nvfs_refuse: gpu=%s dev=%s op=read reason=off result=-95", pci(info.pdevinfo), dev);
	traced("a refused read");

	nvfs_write_text(EVENTS "nvfs_complete/filter", "result < 65536 && path == 0");
	enable("nvfs_submit", false);
	nvfs_read(&buf, file, 0, 64 * KIB, 61440);
	nvfs_read(&buf, file, 0, 4 * KIB, 0);
	expect("nvfs_complete: gpu=%s dev=%s op=read path=p2pdma offset=0 bytes=4096 result=4096 latency_us=+",
	       pci(info.pdevinfo), dev);
	traced("only what is asked for");
	nvfs_write_text(EVENTS "nvfs_complete/filter", "0");
	enable("nvfs_submit", true);

	gpu_free(&gpu, va);
	expect("nvfs_free_callback: gpu=%s va=0x%llx bytes=1500000 latency_us=0",
	       pci(info.pdevinfo), (unsigned long long)va + 4096);
	{
		/* A callback that waits for nobody may take a microsecond. */
		char *time = want + strlen(want) - 2;
		char text[4096];
		const char *plus;

		nvfs_read_text(TRACEFS "trace", text, sizeof(text));
		plus = strstr(text, "latency_us=");
		if (plus && plus[strlen("latency_us=")] != '0')
			*time = '+';
	}
	traced("GPU memory is freed");
	nvfs_unregister(&buf);
	expect("nvfs_unmap: gpu=%s va=0x%llx bytes=1500000", pci(info.pdevinfo),
	       (unsigned long long)va + 4096);
	traced("munmap");

	enable("", false);
	if (gpu_alloc(&gpu, MIB, 0, &va) ||
	    nvfs_register(&buf, node, va, MIB, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	nvfs_read(&buf, file, 0, 4 * KIB, 0);
	nvfs_unregister(&buf);
	traced("nothing when all are off");
	unlink(path);
	return tap_plan();
}

static struct vendor v;

static int test_callback(const char *disk, const char *address)
{
	const uint64_t half = VENDOR_IO / 2;
	struct fake_storage_piece pieces[] = { { 0, half } };
	struct stat st;
	char dev[32];
	unsigned long long bus, first;

	vendor_open(&v, FAKE_STORAGE_V2, disk, address);
	if (vendor_buffer(&v, 0) || fstat(v.disk, &st))
		tap_bail("no buffer");
	snprintf(dev, sizeof(dev), "%u,%u", major(st.st_rdev), minor(st.st_rdev));
	start();
	vendor_start(&v, 0, VENDOR_IO);
	expect("nvfs_submit: gpu=%s dev=%s op=read path=callback offset=0 bytes=%lu sync=1",
	       pci(v.info.pdevinfo), dev, (unsigned long)VENDOR_IO);
	traced("a read begins");

	first = vendor_bus(&v, 0);
	bus = vendor_bus(&v, half);
	pieces[0].addr = (uintptr_t)vendor_shadow(&v) + half;
	memset(&v.build, 0, sizeof(v.build));
	v.build.room = 1;
	vendor_build(&v, FAKE_STORAGE_READ, 0, pieces, 1);
	tap_is(vendor_call(&v, FAKE_STORAGE_ITER_START, 0), 1, "a segment is taken");
	expect("nvfs_dma_map: gpu=%s peer=%s addr=0x%llx bytes=%llu", pci(v.info.pdevinfo),
	       pci(v.dev), bus, (unsigned long long)half);
	traced("and traced");
	vendor_call(&v, FAKE_STORAGE_UNMAP_PAGE, 0);
	/* What the driver says, and this one says nothing. */
	expect("nvfs_dma_unmap: gpu=%s addr=0x0 bytes=0", pci(v.info.pdevinfo));
	traced("and given back");
	v.table = FAKE_STORAGE_NVME;
	vendor_build_one(&v, FAKE_STORAGE_FILL, 0, 4 * KIB);
	tap_is(vendor_call(&v, FAKE_STORAGE_MAP_SG, 1), 1, "a list of one");
	vendor_call(&v, FAKE_STORAGE_UNMAP_SG, 1);
	expect("nvfs_dma_map: gpu=%s peer=%s addr=0x%llx bytes=4096", pci(v.info.pdevinfo),
	       pci(v.dev), first);
	expect("nvfs_dma_unmap: gpu=%s addr=0x%llx bytes=4096", pci(v.info.pdevinfo), first);
	traced("and given back");
	tap_is(vendor_end(&v), VENDOR_IO, "the read ends");
	expect("nvfs_dma_map: gpu=%s peer=%s addr=0x%llx bytes=%lu", pci(v.info.pdevinfo),
	       pci(v.dev), first, (unsigned long)VENDOR_IO);
	expect("nvfs_dma_unmap: gpu=%s addr=0x0 bytes=0", pci(v.info.pdevinfo));
	expect("nvfs_complete: gpu=%s dev=%s op=read path=callback offset=0 bytes=%lu result=%lu latency_us=+",
	       pci(v.info.pdevinfo), dev, (unsigned long)VENDOR_IO, (unsigned long)VENDOR_IO);
	traced("with the driver's own segments");
	vendor_forget(&v);
	enable("", false);
	return tap_plan();
}

/*
 * What the questions of docs/admin.md are asked about: by P2PDMA 5 reads, 3 writes and one that
 * fails, and 2 reads that are refused; by callback a read of more than 20 ms.
 */
static int work(const char *directory, const char *disk, const char *address)
{
	struct rlimit limit = { MIB, MIB };
	struct nvfs_buffer buf;
	char path[256];
	uint64_t va;
	int file, i;

	vendor_open(&v, FAKE_STORAGE_V2, disk, address);
	snprintf(path, sizeof(path), "%s/work.tmp", directory);
	file = nvfs_file(path, MIB, 1);
	if (file < 0 || vendor_buffer(&v, 0) || gpu_alloc(&v.gpu, MIB, 0, &va) ||
	    nvfs_register(&buf, v.node, va, MIB, MIB, v.info.pdevinfo))
		tap_bail("file %d, or no buffers", file);
	for (i = 0; i < 5; i++)
		tap_is(nvfs_read(&buf, file, 0, 64 * KIB, 0), 64 * KIB, "a read");
	for (i = 0; i < 3; i++)
		tap_is(nvfs_write(&buf, file, 0, 4 * KIB, 0), 4 * KIB, "a write");
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	tap_is(nvfs_write(&buf, file, MIB, 4 * KIB, 0), -EFBIG, "one that fails");
	nvfs_set_parameter("p2pdma", "off");
	for (i = 0; i < 2; i++)
		tap_is(nvfs_read(&buf, file, 0, 4 * KIB, 0), -EOPNOTSUPP, "a refused one");
	nvfs_set_parameter("p2pdma", "auto");
	vendor_start(&v, 0, VENDOR_IO);
	usleep(20000);
	tap_is(vendor_end(&v), VENDOR_IO, "a slow one");
	vendor_forget(&v);
	nvfs_unregister(&buf);
	unlink(path);
	return tap_plan();
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "p2pdma"))
		return test_p2pdma(argv[2]);
	if (argc == 5 && !strcmp(argv[1], "work"))
		return work(argv[2], argv[3], argv[4]);
	if (argc != 4 || strcmp(argv[1], "callback"))
		tap_bail("usage: see the source");
	return test_callback(argv[2], argv[3]);
}
