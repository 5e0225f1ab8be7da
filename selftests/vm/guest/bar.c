// SPDX-License-Identifier: GPL-2.0
/*
 * bar FILE OFFSET [VALUE]: writes 64 bits to a BAR, or prints those that are there; FILE is the BAR's
 * in sysfs. Needs no /dev/mem.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
	volatile uint64_t *page;
	uint64_t offset;
	int fd;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: bar FILE OFFSET [VALUE]\n");
		return 2;
	}
	offset = strtoull(argv[2], NULL, 0);
	fd = open(argv[1], O_RDWR);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset & -4096);
	if (page == MAP_FAILED) {
		perror(argv[1]);
		return 1;
	}
	page += offset % 4096 / sizeof(*page);
	if (argc == 4)
		*page = strtoull(argv[3], NULL, 0);
	else
		printf("%#llx\n", (unsigned long long)*page);
	return 0;
}
