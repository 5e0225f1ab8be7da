// SPDX-License-Identifier: GPL-2.0
/*
 * The demonstration: 64 MiB of GPU 0's memory go to a file through /dev/nvidia-fs, and from the
 * file to GPU 1; then the SHA-256 of the file, of what the program sees in GPU 1, and of what the
 * host sees behind GPU 1's BAR must be the same.
 *
 * usage: demo FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/host.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE	(64 * MIB)
#define WINDOW	(16 * MIB)
#define SEED	2026
#define HEX	64

struct side {
	struct gpu gpu;
	struct nvfs_buffer buf;
	uint64_t va;
};

static double began;

static void phase(const char *what)
{
	double now = nvfs_seconds();

	tap_diag("time: %-44s %6.2f s", what, now - began);
	began = nvfs_seconds();
}

static void set_up(struct side *side, int index, int node)
{
	struct fake_nvidia_info info;
	int ret;

	if (gpu_open(&side->gpu, index) || gpu_info(&side->gpu, &info) ||
	    gpu_alloc(&side->gpu, SIZE, 0, &side->va))
		tap_bail("no memory of GPU %d", index);
	ret = nvfs_register(&side->buf, node, side->va, SIZE, WINDOW, info.pdevinfo);
	if (ret)
		tap_bail("MAP of GPU %d: %s", index, strerror(-ret));
}

/* The first word of what sha256sum says; data goes to its input unless it is NULL. */
static bool sha256sum(const char *file, struct side *side, char *hex)
{
	static char chunk[MIB];
	char command[512], path[] = "/tmp/demo.sum";
	FILE *f;
	bool good;

	if (file)
		snprintf(command, sizeof(command), "sha256sum '%s' > %s", file, path);
	else
		snprintf(command, sizeof(command), "sha256sum > %s", path);
	f = popen(command, "w");
	if (!f)
		return false;
	good = true;
	for (uint64_t at = 0; side && good && at < SIZE; at += sizeof(chunk))
		good = !gpu_read(&side->gpu, side->va + at, chunk, sizeof(chunk)) &&
		       fwrite(chunk, 1, sizeof(chunk), f) == sizeof(chunk);
	if (pclose(f))
		return false;
	if (nvfs_read_text(path, command, sizeof(command)) < HEX)
		return false;
	memcpy(hex, command, HEX);
	hex[HEX] = '\0';
	return good;
}

static void print_file(const char *path)
{
	static char text[16384];
	char *rest = text, *line;

	if (nvfs_read_text(path, text, sizeof(text)) < 0) {
		tap_ok(false, "%s can be read", path);
		return;
	}
	tap_diag("%s:", path);
	while ((line = strsep(&rest, "\n")))
		if (*line)
			tap_diag("  %s", line);
}

int main(int argc, char **argv)
{
	char of_file[HEX + 1] = "-", of_gpu[HEX + 1] = "-", of_bar[HOST_LINE] = "-", line[128];
	uint64_t bar_offset = 0, contiguous = 0;
	struct side from = {}, to = {};
	int node, file;

	if (argc != 2)
		tap_bail("usage: demo FILE");
	began = nvfs_seconds();
	node = nvfs_open(0, O_RDWR);
	if (node < 0)
		tap_bail("/dev/nvidia-fs0: %s", strerror(-node));
	set_up(&from, 0, node);
	set_up(&to, 1, node);
	phase("map 64 MiB of each GPU");

	if (gpu_fill(&from.gpu, from.va, SIZE, SEED) || gpu_set(&to.gpu, to.va, 0xa5, SIZE))
		tap_bail("GPU memory cannot be written");
	phase("fill GPU 0 with a pattern, GPU 1 with 0xa5");

	file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
	if (file < 0)
		tap_bail("%s: %m", argv[1]);
	tap_is(nvfs_write(&from.buf, file, 0, SIZE, 0), SIZE, "GPU 0 to the file: 64 MiB");
	tap_ok(!fsync(file), "fsync");
	phase("write: GPU 0 to the file, fsync");

	tap_ok(nvfs_write_text("/proc/sys/vm/drop_caches", "3") >= 0, "drop the page cache");
	began = nvfs_seconds();
	tap_is(nvfs_read(&to.buf, file, 0, SIZE, 0), SIZE, "the file to GPU 1: 64 MiB");
	phase("read: the file to GPU 1");

	tap_ok(sha256sum(argv[1], NULL, of_file), "sha256sum of the file");
	phase("SHA-256 of the file, read from the drive");
	tap_ok(sha256sum(NULL, &to, of_gpu), "sha256sum of GPU 1's memory");
	phase("SHA-256 of GPU 1's memory");
	if (tap_ok(!gpu_where(&to.gpu, to.va, &bar_offset, &contiguous) && contiguous >= SIZE,
		   "GPU 1's memory is in one piece in its BAR")) {
		snprintf(line, sizeof(line), "sha256 gpu1 %" PRIu64 " %lu", bar_offset, SIZE);
		tap_ok(!host_request(line, of_bar, sizeof(of_bar)), "the host answers");
	}
	phase("SHA-256 of the BAR's backing file, by the host");

	tap_diag("SHA-256 of the file:                      %s", of_file);
	tap_diag("SHA-256 of GPU 1, seen by the program:    %s", of_gpu);
	tap_diag("SHA-256 of GPU 1's BAR, seen by the host: %.64s", of_bar);
	tap_is_text(of_gpu, of_file, "GPU memory and the file are the same");
	tap_is_text(of_bar, of_file, "the BAR's backing file and the file are the same");

	print_file(NVFS_PROC "paths");
	print_file(NVFS_PROC "stats");
	nvfs_unregister(&from.buf);
	nvfs_unregister(&to.buf);
	close(file);
	return tap_plan();
}
