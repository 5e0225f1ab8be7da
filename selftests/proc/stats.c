// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/driver/nvidia-fs: version, devcount, modules (19.2 to 19.4), and the lines and counters of
 * stats (19.8 to 19.10).
 *
 * usage: stats DIRECTORY (with the module freshly loaded)
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define STATS		NVFS_PROC "stats"
#define GPU_SIZE	(8 * MIB)
#define SEED		41

static struct gpu gpu;
static struct fake_nvidia_info info;
static uint64_t gpu_va;
static int node, file;

static void read_all(const char *path, char text[8192])
{
	if (nvfs_read_text(path, text, 8192) < 0)
		*text = '\0';
}

static void test_modes(void)
{
	static const char *const names[] = { "version", "devcount", "modules", "stats" };
	char path[64];
	struct stat st;
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), NVFS_PROC "%s", names[i]);
		memset(&st, 0, sizeof(st));
		tap_ok(!stat(path, &st) && st.st_mode == (S_IFREG | 0444) && !st.st_uid,
		       "19.1: %s: regular file of root, mode 0444", names[i]);
		if (st.st_mode != (S_IFREG | 0444))
			tap_diag("mode is %o", st.st_mode);
	}
}

static void test_small_files(void)
{
	char text[8192], before[32];

	read_all(NVFS_PROC "version", text);
	tap_is_text(text, "version: 2.28\n", "19.2: version");
	read_all(NVFS_PROC "devcount", text);
	tap_is_text(text, "16\n", "19.3: devcount");
	/* A node is open and a P2PDMA path exists. */
	read_all(NVFS_PROC "modules", text);
	tap_is_text(text, "nvme: (null)\nwekafsio: 1\n", "19.4: modules, with a P2PDMA path");
	read_all(NVFS_PARAMETERS "p2pdma", text);
	snprintf(before, sizeof(before), "%.31s", text);
	nvfs_set_parameter("p2pdma", "off");
	close(nvfs_open(0, O_RDWR));
	read_all(NVFS_PROC "modules", text);
	tap_is_text(text, "wekafsio: 1\n", "19.4: modules, with p2pdma=off and no vendor");
	nvfs_set_parameter("p2pdma", before);
	close(nvfs_open(0, O_RDWR));
	read_all(NVFS_PROC "modules", text);
	tap_is_text(text, "nvme: (null)\nwekafsio: 1\n", "19.4: modules, with p2pdma=auto again");
}

/* matches: `#` in the pattern stands for a number, all else for itself; to the end of the line. */
static bool matches(const char *line, const char *pattern)
{
	for (; *pattern; pattern++) {
		if (*pattern != '#') {
			if (*line++ != *pattern)
				return false;
			continue;
		}
		if (!isdigit((unsigned char)*line))
			return false;
		while (isdigit((unsigned char)*line))
			line++;
	}
	return *line == '\n';
}

struct line {
	const char *number;	/* in 19.8 */
	const char *pattern;
};

static const struct line head[] = {
	{ "1", "GDS Version: 1.17.1.22 " },
	{ "2", "NVFS statistics(ver: 4.0)" },
	{ "3", "NVFS Driver(version: 2.28.4)" },
	{ "4", "Mellanox PeerDirect Supported: False" },
};

static const struct line between[] = {
	{ "7", "" },
	{ "8", "Active Shadow-Buffer (MiB): #" },
	{ "9", "Active Process: #" },
};

static const struct line with_rw_stats[] = {
	{ "10", "Batches\t\t\t\t: n=# ok=# err=# Avg-Submit-Latency(usec)=#" },
	{ "11", "Reads\t\t\t\t: n=# ok=# err=# readMiB=# io_state_err=#" },
	{ "12", "Reads\t\t\t\t: Bandwidth(MiB/s)=# Avg-Latency(usec)=#" },
	{ "13", "Sparse Reads\t\t        : n=# io=# holes=# pages=# " },
	{ "14", "Writes\t\t\t\t: n=# ok=# err=# writeMiB=# io_state_err=# pg-cache=# pg-cache-fail=# pg-cache-eio=#" },
	{ "15", "Writes\t\t\t\t: Bandwidth(MiB/s)=# Avg-Latency(usec)=#" },
};

static const struct line without_rw_stats[] = {
	{ "11'", "Reads\t\t\t\t: err=# io_state_err=#" },
	{ "13", "Sparse Reads\t\t        : n=# io=# holes=# pages=# " },
	{ "14'", "Writes\t\t\t\t: err=# io_state_err=# pg-cache=# pg-cache-fail=# pg-cache-eio=#" },
};

static const struct line tail[] = {
	{ "16", "Mmap\t\t\t\t: n=# ok=# err=# munmap=#" },
	{ "17", "Bar1-map\t\t\t: n=# ok=# err=# free=# callbacks=# active=# delay-frees=#" },
	{ "18", "Error\t\t\t\t: cpu-gpu-pages=# sg-ext=# dma-map=# dma-ref=#" },
	{ "19", "Ops\t\t\t\t: Read=# Write=# BatchIO=#" },
};

/* check_lines: the next lines of the text, one by one. Moves *at behind them. */
static void check_lines(const char *when, const char **at, const struct line *lines,
			unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		bool good = matches(*at, lines[i].pattern);

		tap_ok(good, "19.8 line %s, %s", lines[i].number, when);
		if (!good) {
			tap_diag("got  \"%.*s\"", (int)strcspn(*at, "\n"), *at);
			tap_diag("want \"%s\"", lines[i].pattern);
		}
		*at += strcspn(*at, "\n");
		*at += **at == '\n';
	}
}

#define CHECK(when, at, lines)	check_lines(when, at, lines, sizeof(lines) / sizeof(*(lines)))

static void gpu_line_pattern(char *text, size_t size, bool peer_stats)
{
	const uint8_t *u = info.uuid;

	snprintf(text, size,
		 "GPU %04x:%02x:%02x.%u  uuid:%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
		 "%02x%02x%02x%02x%02x%02x : Registered_MiB=# Cache_MiB=# max_pinned_MiB=# %s",
		 (unsigned int)(info.pdevinfo >> 32), (unsigned int)(info.pdevinfo >> 8) & 0xff,
		 (unsigned int)(info.pdevinfo >> 3) & 0x1f, (unsigned int)info.pdevinfo & 7,
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
		 u[13], u[14], u[15], peer_stats ? "cross_root_port(%)=#" : "");
}

static void test_format(bool rw, bool peer, const char *level, const char *when)
{
	char text[8192], io_line[64], level_line[64], gpu_line[256];
	struct line fifth_and_sixth[] = { { "5", io_line }, { "6", level_line } };
	struct line last[] = { { "20 (19.9)", gpu_line } };
	const char *at = text;

	nvfs_set_parameter("rw_stats_enabled", rw ? "1" : "0");
	nvfs_set_parameter("peer_stats_enabled", peer ? "1" : "0");
	nvfs_set_parameter("dbg_enabled", strcmp(level, "debug") ? "0" : "1");
	nvfs_set_parameter("info_enabled", strcmp(level, "warn") ? "1" : "0");
	snprintf(io_line, sizeof(io_line), "IO stats: %s, peer IO stats: %s",
		 rw ? "Enabled" : "Disabled", peer ? "Enabled" : "Disabled");
	snprintf(level_line, sizeof(level_line), "Logging level: %s", level);
	gpu_line_pattern(gpu_line, sizeof(gpu_line), peer);
	read_all(STATS, text);
	nvfs_set_parameter("rw_stats_enabled", "0");
	nvfs_set_parameter("peer_stats_enabled", "0");
	nvfs_set_parameter("dbg_enabled", "0");
	nvfs_set_parameter("info_enabled", "1");

	CHECK(when, &at, head);
	CHECK(when, &at, fifth_and_sixth);
	CHECK(when, &at, between);
	if (rw)
		CHECK(when, &at, with_rw_stats);
	else
		CHECK(when, &at, without_rw_stats);
	CHECK(when, &at, tail);
	CHECK(when, &at, last);
	tap_ok(!*at, "19.8, %s: no line more", when);
	if (*at)
		tap_diag("\"%s\"", at);
}

/* A number of stats, and what it was. */
struct counter {
	const char *line, *key;
	long long before;
};

static struct counter counter(const char *line, const char *key)
{
	struct counter c = { line, key, nvfs_stat(line, key) };

	return c;
}

static void grew(const struct counter *c, long long by, const char *what)
{
	long long now = nvfs_stat(c->line, c->key);

	tap_is(now - c->before, by, "19.8: %s %s%s: %+lld by %s", c->line, *c->key ? c->key : "",
	       *c->key ? "" : "(its number)", by, what);
	if (now < 0)
		tap_diag("no such number: %lld", now);
}

static void test_mmap_counters(void)
{
	struct counter n = counter("Mmap", "n"), ok = counter("Mmap", "ok"),
		       err = counter("Mmap", "err"), unmap = counter("Mmap", "munmap"),
		       active = counter("Active Shadow-Buffer (MiB)", "");
	void *p = nvfs_mmap(node, 16 * MIB);

	grew(&n, 1, "mmap");
	grew(&ok, 1, "mmap");
	grew(&err, 0, "mmap");
	grew(&unmap, 0, "mmap");
	grew(&active, 16, "mmap of 16 MiB");
	munmap(p, 16 * MIB);
	grew(&unmap, 1, "munmap");
	grew(&active, 0, "mmap and munmap");
	nvfs_mmap(node, 68 * KIB);
	grew(&n, 2, "mmap that failed");
	grew(&ok, 1, "mmap that failed");
	grew(&err, 1, "mmap that failed");
	if (mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, node, 65536) != MAP_FAILED)
		tap_diag("an mmap with an offset worked");
	grew(&n, 2, "mmap with an offset");
	grew(&err, 1, "mmap with an offset");
}

static void test_processes(void)
{
	long long before = nvfs_stat("Active Process", "");
	int nodes[16];
	unsigned int i;

	/* One node is open all the time: 1 / 16 is 0, 17 / 16 is 1. */
	tap_is(before, 0, "19.8: Active Process with one open node: 0");
	for (i = 0; i < 16; i++)
		nodes[i] = nvfs_open(i, O_RDWR);
	tap_is(nvfs_stat("Active Process", ""), 1, "19.8: Active Process with 17 open nodes: 1");
	for (i = 0; i < 16; i++)
		close(nodes[i]);
	tap_is(nvfs_stat("Active Process", ""), 0, "19.8: Active Process when they are closed: 0");
}

static void test_map_counters(void)
{
	struct counter n = counter("Bar1-map", "n"), ok = counter("Bar1-map", "ok"),
		       err = counter("Bar1-map", "err"), freed = counter("Bar1-map", "free"),
		       active = counter("Bar1-map", "active"),
		       callbacks = counter("Bar1-map", "callbacks");
	struct nvfs_buffer buf;
	uint64_t va;

	nvfs_shadow(&buf, node, MIB);
	buf.gpu_va = gpu_va;
	buf.pdevinfo = info.pdevinfo;
	tap_is(nvfs_map(&buf), -EINVAL, "19.8: a MAP that fails");
	grew(&n, 1, "MAP that failed");
	grew(&ok, 0, "MAP that failed");
	grew(&err, 1, "MAP that failed");
	grew(&active, 0, "MAP that failed");
	buf.gpu_size = GPU_SIZE;
	tap_is(nvfs_map(&buf), 0, "19.8: a MAP that works");
	grew(&n, 2, "MAP");
	grew(&ok, 1, "MAP");
	grew(&err, 1, "MAP");
	grew(&active, 1, "MAP");
	grew(&freed, 0, "MAP");
	nvfs_map(&buf);
	grew(&err, 2, "second MAP");
	grew(&active, 1, "second MAP");
	nvfs_unregister(&buf);
	grew(&active, 0, "munmap");
	grew(&freed, 1, "munmap");
	tap_is(nvfs_stat("Bar1-map", "delay-frees"), 0, "19.8: Bar1-map delay-frees is 0");

	nvfs_set_parameter("use_legacy_p2p_allocation", "1");
	if (gpu_alloc(&gpu, MIB, 0, &va) ||
	    nvfs_register(&buf, node, va, MIB, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	gpu_free(&gpu, va);
	grew(&callbacks, 1, "free of the GPU memory");
	nvfs_unregister(&buf);
	grew(&active, 0, "munmap after it");
}

/* 19.9 */
static long long gpu_stat(const char *key)
{
	return nvfs_stat("GPU ", key);
}

static void test_gpu_line(void)
{
	static const struct {
		uint16_t bounce;
		long long registered, cache;
	} cases[] = { { 0, 8, 0 }, { 1, 0, 8 }, { 2, 8, 0 } };
	struct nvfs_buffer buf, second;
	unsigned int i;

	nvfs_write_text(STATS, "0");
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		nvfs_shadow(&buf, node, MIB);
		buf.gpu_va = gpu_va;
		buf.gpu_size = GPU_SIZE;
		buf.pdevinfo = info.pdevinfo;
		buf.is_bounce_buffer = cases[i].bounce;
		nvfs_map(&buf);
		tap_is(gpu_stat("Registered_MiB"), cases[i].registered,
		       "19.9: Registered_MiB, is_bounce_buffer %u", cases[i].bounce);
		tap_is(gpu_stat("Cache_MiB"), cases[i].cache,
		       "19.9: Cache_MiB, is_bounce_buffer %u", cases[i].bounce);
		nvfs_unregister(&buf);
	}
	tap_is(gpu_stat("Registered_MiB"), 0, "19.9: Registered_MiB is 0 again");
	tap_is(gpu_stat("Cache_MiB"), 0, "19.9: Cache_MiB is 0 again");
	tap_is(gpu_stat("max_pinned_MiB"), 8, "19.9: max_pinned_MiB stays");
	/* The bytes of MAP, not of the pages: two of 1,000,000 are 1 MiB, not 2. */
	if (nvfs_register(&buf, node, gpu_va, 1000000, MIB, info.pdevinfo) ||
	    nvfs_register(&second, node, gpu_va, 1000000, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	tap_is(gpu_stat("Registered_MiB"), 1, "19.9: Registered_MiB is the sum of exact sizes");
	nvfs_write_text(STATS, "1");
	tap_is(gpu_stat("Registered_MiB"), 1, "19.10: a reset keeps Registered_MiB");
	tap_is(gpu_stat("max_pinned_MiB"), 0, "19.10: and sets max_pinned_MiB to 0");
	nvfs_unregister(&buf);
	nvfs_unregister(&second);
}

/* io_counters: those of READ or WRITE, with rw_stats on or off. */
static void test_io_counters(struct nvfs_buffer *buf, bool write, bool rw)
{
	const char *line = write ? "Writes" : "Reads", *op = write ? "Write" : "Read";
	struct counter n, ok, err, mib, state;
	ssize_t (*io)(const struct nvfs_buffer *, int, int64_t, uint64_t, uint64_t) =
		write ? nvfs_write : nvfs_read;
	unsigned int i;

	nvfs_set_parameter("rw_stats_enabled", "1");	/* to see n and ok before */
	n = counter(line, "n");
	ok = counter(line, "ok");
	err = counter(line, "err");
	mib = counter(line, write ? "writeMiB" : "readMiB");
	state = counter(line, "io_state_err");
	nvfs_set_parameter("rw_stats_enabled", rw ? "1" : "0");
	for (i = 0; i < 5; i++)
		io(buf, file, 0, MIB, 0);
	nvfs_submit(buf, write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, file, 0, MIB, 0);
	nvfs_wait(buf);
	for (i = 0; i < 3; i++)
		io(buf, file, 1, MIB, 0);
	if (!rw)
		tap_is(nvfs_stat(line, "err") - err.before, 3,
		       "19.8: %s err in the short lines: +3", line);
	nvfs_set_parameter("rw_stats_enabled", "1");
	grew(&n, rw ? 9 : 0, rw ? "6 good and 3 bad requests" : "the same, rw_stats off");
	grew(&ok, rw ? 6 : 0, rw ? "6 good and 3 bad requests" : "the same, rw_stats off");
	grew(&err, 3, rw ? "6 good and 3 bad requests" : "the same, rw_stats off");
	grew(&mib, rw ? 6 : 0, rw ? "6 MiB" : "the same, rw_stats off");
	grew(&state, 0, "no error of the file system");
	tap_is(nvfs_stat("Ops", op), 0, "19.8: Ops %s is 0 when nothing is under way", op);
	nvfs_set_parameter("rw_stats_enabled", "0");
}

static void test_reset(const struct nvfs_buffer *buf)
{
	static const struct {
		const char *line, *key;
	} zero[] = {
		{ "Batches", "n" }, { "Batches", "ok" }, { "Batches", "err" },
		{ "Reads", "n" }, { "Reads", "ok" }, { "Reads", "err" }, { "Reads", "readMiB" },
		{ "Reads", "io_state_err" }, { "Reads", "Bandwidth(MiB/s)" },
		{ "Reads", "Avg-Latency(usec)" }, { "Sparse Reads", "n" },
		{ "Sparse Reads", "io" }, { "Sparse Reads", "holes" },
		{ "Sparse Reads", "pages" }, { "Writes", "n" }, { "Writes", "ok" },
		{ "Writes", "err" }, { "Writes", "writeMiB" }, { "Writes", "io_state_err" },
		{ "Writes", "pg-cache" }, { "Writes", "pg-cache-fail" },
		{ "Writes", "pg-cache-eio" }, { "Mmap", "n" }, { "Mmap", "ok" },
		{ "Mmap", "err" }, { "Mmap", "munmap" }, { "Bar1-map", "n" },
		{ "Bar1-map", "ok" }, { "Bar1-map", "err" }, { "Bar1-map", "free" },
		{ "Bar1-map", "callbacks" }, { "Error", "cpu-gpu-pages" },
		{ "Error", "sg-ext" }, { "Error", "dma-map" }, { "Error", "dma-ref" },
	};
	unsigned int i, good = 0, count = sizeof(zero) / sizeof(*zero);
	long long active, shadow;
	int status = -1;
	pid_t pid;

	nvfs_set_parameter("rw_stats_enabled", "1");
	nvfs_read(buf, file, 0, MIB, 0);
	nvfs_write(buf, file, 0, MIB, 0);
	nvfs_read(buf, file, 1, MIB, 0);
	active = nvfs_stat("Bar1-map", "active");
	shadow = nvfs_stat("Active Shadow-Buffer (MiB)", "");
	tap_ok(nvfs_stat("Reads", "ok") > 0 && nvfs_stat("Mmap", "n") > 0 && active > 0 &&
	       shadow > 0, "19.10: there is something to reset");
	pid = fork();
	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(3);
		_exit(nvfs_write_text(STATS, "0") != -EACCES);
	}
	waitpid(pid, &status, 0);
	tap_is(status, 0, "19.10: another user cannot reset");
	tap_ok(nvfs_stat("Reads", "ok") > 0, "19.10: and did not");
	tap_is(nvfs_write_text(STATS, "anything\n"), 9, "19.10: a write of 9 bytes returns 9");
	for (i = 0; i < count; i++) {
		long long now = nvfs_stat(zero[i].line, zero[i].key);

		good += now == 0;
		if (now)
			tap_diag("%s %s is %lld", zero[i].line, zero[i].key, now);
	}
	tap_is(good, count, "19.10: all counters and averages of lines 10 to 18 are 0");
	tap_is(nvfs_stat("Bar1-map", "active"), active, "19.10: Bar1-map active stays");
	tap_is(nvfs_stat("Active Shadow-Buffer (MiB)", ""), shadow,
	       "19.10: Active Shadow-Buffer stays");
	tap_is(nvfs_read(buf, file, 0, MIB, 0), MIB, "19.10: I/O goes on");
	tap_is(nvfs_stat("Reads", "ok"), 1, "19.10: and is counted from 0");
	nvfs_set_parameter("rw_stats_enabled", "0");
}

int main(int argc, char **argv)
{
	struct nvfs_buffer buf;
	char path[256], text[8192];

	if (argc != 2)
		tap_bail("usage: %s DIRECTORY", argv[0]);
	read_all(STATS, text);
	tap_ok(!strstr(text, "\nGPU "), "19.8: no GPU line before the first MAP");
	snprintf(path, sizeof(path), "%s/stats.tmp", argv[1]);
	node = nvfs_open(0, O_RDWR);
	file = nvfs_file(path, MIB, SEED);
	if (node < 0 || file < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, GPU_SIZE, 0, &gpu_va))
		tap_bail("node %d, file %d, or no GPU", node, file);

	test_modes();
	test_small_files();
	test_mmap_counters();
	test_processes();
	test_map_counters();
	test_gpu_line();
	test_format(false, false, "info", "rw_stats off");
	test_format(true, false, "info", "rw_stats on");
	test_format(false, true, "debug", "peer stats and debug on");
	test_format(true, true, "warn", "both on, no log");
	if (nvfs_register(&buf, node, gpu_va, GPU_SIZE, MIB, info.pdevinfo))
		tap_bail("MAP failed");
	test_io_counters(&buf, false, true);
	test_io_counters(&buf, true, true);
	test_io_counters(&buf, false, false);
	test_io_counters(&buf, true, false);
	test_reset(&buf);
	unlink(path);
	return tap_plan();
}
