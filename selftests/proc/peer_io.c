// SPDX-License-Identifier: GPL-2.0
/*
 * I/O of a known number of parts between a GPU and a file, for the DMA counts: 4 parts, of a read
 * of 1 MiB, one of 20 MiB (2 parts) and an asynchronous write of 1 MiB.
 *
 * usage: peer_io GPU FILE [PDEVINFO] (the file has 20 MiB at least)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define GPU_SIZE	(20 * MIB)

int main(int argc, char **argv)
{
	struct fake_nvidia_info info;
	struct nvfs_buffer buf;
	uint64_t va, pdevinfo;
	struct gpu gpu;
	int node, file;
	ssize_t ret;

	if (argc < 3)
		tap_bail("usage: %s GPU FILE [PDEVINFO]", argv[0]);
	node = nvfs_open(0, O_RDWR);
	file = open(argv[2], O_RDWR | O_DIRECT);
	if (node < 0 || file < 0 || gpu_open(&gpu, atoi(argv[1])) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, GPU_SIZE, 0, &va))
		tap_bail("node %d, file %d, or no GPU", node, file);
	pdevinfo = argc > 3 ? strtoull(argv[3], NULL, 0) : info.pdevinfo;
	if (nvfs_register(&buf, node, va, GPU_SIZE, MIB, pdevinfo))
		tap_bail("MAP failed");
	tap_is(nvfs_read(&buf, file, 0, MIB, 0), MIB, "a read of one part");
	tap_is(nvfs_read(&buf, file, 0, GPU_SIZE, 0), GPU_SIZE, "a read of two parts");
	/* The file system may be done with it at once. */
	ret = nvfs_submit(&buf, NVFS_IOCTL_WRITE, file, 0, MIB, 0);
	tap_ok(!ret || ret == (ssize_t)MIB, "an asynchronous write");
	tap_is(nvfs_wait(&buf), MIB, "it is complete");
	nvfs_unregister(&buf);
	return tap_plan();
}
