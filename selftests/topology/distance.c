// SPDX-License-Identifier: GPL-2.0
/*
 * Prints the kernel's own peer-to-peer distance between a GPU and a PCI function, so that a suite
 * can tell that it stands in the topology that it is about.
 *
 * usage: distance GPU DOMAIN:BUS:SLOT.FUNCTION
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "../lib/gpu.h"

int main(int argc, char **argv)
{
	struct fake_nvidia_distance d = { 0 };
	unsigned int domain, bus, slot, function;
	struct gpu gpu;

	if (argc != 3 ||
	    sscanf(argv[2], "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
		fprintf(stderr, "usage: %s GPU DOMAIN:BUS:SLOT.FUNCTION\n", argv[0]);
		return 2;
	}
	d.pdevinfo = (uint64_t)domain << 32 | bus << 8 | slot << 3 | function;
	if (gpu_open(&gpu, atoi(argv[1])) || ioctl(gpu.fd, FAKE_NVIDIA_DISTANCE, &d)) {
		perror(argv[2]);
		return 1;
	}
	printf("%lld\n", (long long)d.distance);
	return 0;
}
