// SPDX-License-Identifier: GPL-2.0
/*
 * The first I/O of a GPU, by many processes at once: one of them makes the pages of the whole BAR,
 * which takes a while, and the others must neither use pages that are not there yet nor be refused.
 *
 * usage: first_io DIRECTORY
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define PROCESSES	8
#define SIZE		(1 * MIB)
#define SEED		77

/* Returns 0, or the step that failed. */
static int one(const char *path, int start)
{
	struct fake_nvidia_info info;
	struct nvfs_buffer buf;
	int64_t bad = 0;
	struct gpu gpu;
	uint64_t va;
	int node = nvfs_open(0, O_RDWR), file = open(path, O_RDONLY | O_DIRECT);
	ssize_t ret;
	char byte;

	if (node < 0 || file < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info))
		return 1;
	if (gpu_alloc(&gpu, SIZE, 0, &va) ||
	    nvfs_register(&buf, node, va, SIZE, SIZE, info.pdevinfo))
		return 2;
	if (read(start, &byte, 1) != 0)
		return 3;
	ret = nvfs_read(&buf, file, 0, SIZE, 0);
	if (ret != SIZE) {
		fprintf(stderr, "# READ: %zd\n", ret);
		return 4;
	}
	return gpu_check(&gpu, va, SIZE, SEED, &bad) || bad >= 0 ? 5 : 0;
}

int main(int argc, char **argv)
{
	int start[2], status, wrong = 0;
	double begin;
	char *path;
	int i;

	if (argc != 2 || asprintf(&path, "%s/first_io", argv[1]) < 0 || pipe(start))
		return 2;
	tap_ok(nvfs_file(path, SIZE, SEED) >= 0, "a file");
	for (i = 0; i < PROCESSES; i++) {
		if (fork() == 0) {
			close(start[1]);
			_exit(one(path, start[0]));
		}
	}
	sleep(3);
	begin = nvfs_seconds();
	close(start[1]);
	while (wait(&status) > 0) {
		if (status) {
			tap_diag("status %#x", status);
			wrong++;
		}
	}
	tap_diag("%.2f s", nvfs_seconds() - begin);
	tap_ok(!wrong, "%d processes read at once", PROCESSES);
	return tap_plan();
}
