// SPDX-License-Identifier: GPL-2.0
/*
 * A process that mounts something else on /sys must neither change what `stats` says nor make the
 * kernel open what it likes, such as a FIFO that nobody writes to.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define FOLDER "/sys/kernel/mm/memory_peers/nv_mem"

static void check(const char *what)
{
	char text[8192] = "";

	nvfs_read_text(NVFS_PROC "stats", text, sizeof(text));
	tap_ok(strstr(text, "\nMellanox PeerDirect Supported: False\n"), "%s on /sys is not looked at",
	       what);
}

int main(void)
{
	static const char *const folders[] = {
		"/sys/kernel", "/sys/kernel/mm", "/sys/kernel/mm/memory_peers", FOLDER,
	};
	unsigned int i;
	int fd;

	if (setgid(1000) || setuid(1000) || prctl(PR_SET_DUMPABLE, 1) || unshare(CLONE_NEWUSER | CLONE_NEWNS) ||
	    nvfs_write_text("/proc/self/setgroups", "deny") < 0 ||
	    nvfs_write_text("/proc/self/uid_map", "0 1000 1") < 0 ||
	    nvfs_write_text("/proc/self/gid_map", "0 1000 1") < 0 ||
	    mount("tmpfs", "/sys", "tmpfs", 0, NULL))
		tap_bail("no other /sys");
	for (i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		if (mkdir(folders[i], 0755))
			tap_bail("no %s", folders[i]);
	}
	fd = open(FOLDER "/version", O_WRONLY | O_CREAT, 0644);
	if (fd < 0 || write(fd, "1.0\n", 4) != 4 || close(fd))
		tap_bail("no file");
	check("a file");
	/* A hang here is ended by the time limit of the suite. */
	if (unlink(FOLDER "/version") || mkfifo(FOLDER "/version", 0644))
		tap_bail("no FIFO");
	check("a FIFO");
	return tap_plan();
}
