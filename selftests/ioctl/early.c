// SPDX-License-Identifier: GPL-2.0
/*
 * A node that is opened while the module is being loaded: only when nothing can fail any more, as
 * else the module would go under the open file. So who gets the first node finds the last.
 *
 * usage: early MODULE ROUNDS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/nvfs.h"
#include "../lib/tap.h"

static bool early;

static void *open_first(void *arg)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	int fd;

	(void)arg;
	do
		fd = nvfs_open(0, O_RDWR);
	while (fd < 0 && nvfs_seconds() < end);
	early = fd < 0 || access("/dev/nvidia-fs15", F_OK);
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	int module = argc == 3 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	unsigned int round, rounds, bad = 0;
	pthread_t thread;

	if (module < 0)
		tap_bail("usage: %s MODULE ROUNDS", argv[0]);
	rounds = atoi(argv[2]);
	for (round = 0; round < rounds; round++) {
		if (pthread_create(&thread, NULL, open_first, NULL) ||
		    syscall(SYS_finit_module, module, "", 0))
			tap_bail("not loaded: %s", strerror(errno));
		pthread_join(thread, NULL);
		bad += early;
		if (syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK))
			tap_bail("not unloaded: %s", strerror(errno));
	}
	tap_is(bad, 0, "2.1: of %u loads none has a node that opens before all are there", rounds);
	return tap_plan();
}
