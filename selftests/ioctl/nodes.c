// SPDX-License-Identifier: GPL-2.0
/*
 * Device nodes: number, mode, major, class (2.1), equality (2.2), open modes (2.3, 2.4), and what
 * pins the module.
 *
 * usage: nodes COUNT
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define CLASS	"/sys/class/nvidia-fs-class/"

static int registered_major(void)
{
	char line[128], name[64];
	int number, found = -ENOENT;
	FILE *f = fopen("/proc/devices", "r");

	while (f && fgets(line, sizeof(line), f) && strncmp(line, "Block", 5))
		if (sscanf(line, "%d %63s", &number, name) == 2 && !strcmp(name, "nvidia-fs"))
			found = number;
	if (f)
		fclose(f);
	return found;
}

static int count_entries(const char *dir, const char *prefix)
{
	struct dirent *entry;
	DIR *d = opendir(dir);
	int n = 0;

	if (!d)
		return -errno;
	while ((entry = readdir(d)))
		n += !strncmp(entry->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

static int module_references(void)
{
	char text[32];

	if (nvfs_read_text("/sys/module/nvidia_fs/refcnt", text, sizeof(text)) < 0)
		return -ENOENT;
	return atoi(text);
}

static void test_nodes(unsigned int count)
{
	int number = registered_major();
	char path[64], text[32], want[32];
	struct stat st;
	unsigned int i;

	tap_ok(number > 0, "2.1: /proc/devices has a major named nvidia-fs");
	tap_is(count_entries(CLASS, "nvidia-fs"), count, "2.1: class nvidia-fs-class, %u devices",
	       count);
	tap_is(count_entries("/dev", "nvidia-fs"), count, "2.1: /dev has %u nodes", count);
	for (i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "/dev/nvidia-fs%u", i);
		if (stat(path, &st)) {
			tap_ok(false, "2.1: %s: %s", path, strerror(errno));
			continue;
		}
		tap_ok(S_ISCHR(st.st_mode) && (st.st_mode & 07777) == 0666 && !st.st_uid,
		       "2.1: %s: character device of root, mode 0666", path);
		if (!S_ISCHR(st.st_mode) || (st.st_mode & 07777) != 0666)
			tap_diag("mode is %o", st.st_mode);
		tap_ok((int)major(st.st_rdev) == number && minor(st.st_rdev) == i,
		       "2.1: %s: that major, minor %u", path, i);
		snprintf(path, sizeof(path), CLASS "nvidia-fs%u/dev", i);
		snprintf(want, sizeof(want), "%d:%u\n", number, i);
		if (nvfs_read_text(path, text, sizeof(text)) < 0)
			*text = '\0';
		tap_is_text(text, want, "2.1: %s", path);
	}
	snprintf(path, sizeof(path), "/dev/nvidia-fs%u", count);
	tap_ok(stat(path, &st) && errno == ENOENT, "2.1: no %s", path);
	snprintf(want, sizeof(want), "%u\n", count);
	if (nvfs_read_text(NVFS_PROC "devcount", text, sizeof(text)) < 0)
		*text = '\0';
	tap_is_text(text, want, "19.3: devcount says so");
}

static void test_open(unsigned int count)
{
	static const struct {
		const char *name;
		int flags;
	} modes[] = {
		{ "O_RDONLY", O_RDONLY },
		{ "O_WRONLY", O_WRONLY },
		{ "O_RDWR", O_RDWR },
		{ "O_RDWR | O_NONBLOCK", O_RDWR | O_NONBLOCK },
		{ "access mode 3", 3 },
	};
	unsigned int i, good = 0;
	char byte = 0;
	void *p;
	int fd;

	for (i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		fd = nvfs_open(0, modes[i].flags);
		tap_ok(fd >= 0, "2.4: open with %s", modes[i].name);
		close(fd);
	}
	for (i = 0; i < count; i++) {
		fd = nvfs_open(i, O_RDWR);
		p = nvfs_mmap(fd, 64 * KIB);
		good += fd >= 0 && p && !nvfs_ioctl(fd, NVFS_IOCTL_REMOVE, NULL);
		if (p)
			munmap(p, 64 * KIB);
		close(fd);
	}
	tap_is(good, count, "2.2: each node can be opened, mapped, and takes ioctls");

	fd = nvfs_open(0, O_RDONLY);
	p = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	tap_ok(p == MAP_FAILED && errno == EACCES,
	       "2.4: shared writable mmap of a node opened O_RDONLY: EACCES");
	tap_is(nvfs_ioctl(fd, NVFS_IOCTL_REMOVE, NULL), 0, "2.4: ioctl on it works");
	close(fd);

	fd = nvfs_open(0, O_WRONLY);
	p = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	tap_ok(p == MAP_FAILED && errno == EACCES, "2.4: mmap of a node opened O_WRONLY: EACCES");
	close(fd);

	fd = nvfs_open(0, O_RDWR);
	tap_ok(read(fd, &byte, 1) < 0 && errno == EINVAL, "2.3: no read");
	tap_ok(write(fd, &byte, 1) < 0 && errno == EINVAL, "2.3: no write");
	close(fd);
}

static void test_other_user(void)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		int fd;

		if (setgid(65534) || setuid(65534))
			_exit(3);
		fd = nvfs_open(0, O_RDWR);
		_exit(fd < 0 ? 1 : !nvfs_mmap(fd, 64 * KIB) ? 2 : 0);
	}
	waitpid(pid, &status, 0);
	tap_is(status, 0, "2.1: a user who is not root can open and map a node");
}

/* 2.3: the module stays while a node is open or a mapping exists. */
static void test_references(void)
{
	int idle = module_references(), fd;
	void *p;

	tap_is(idle, 0, "2.3: nothing holds an idle module");
	fd = nvfs_open(0, O_RDWR);
	tap_ok(module_references() > idle, "2.3: an open node holds the module");
	/* Never asked of a module that might go: the tests after this one need it. */
	if (module_references() > idle)
		tap_ok(syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK) && errno == EAGAIN,
		       "2.3: unload with an open node: EAGAIN");
	p = nvfs_mmap(fd, 64 * KIB);
	close(fd);
	tap_ok(module_references() > idle, "2.3: a mapping whose node is closed holds the module");
	if (module_references() > idle)
		tap_ok(syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK) && errno == EAGAIN,
		       "2.3: unload with a mapping: EAGAIN");
	munmap(p, 64 * KIB);
	tap_is(module_references(), idle, "2.3: nothing holds it after munmap");
}

int main(int argc, char **argv)
{
	unsigned int count = argc == 2 ? atoi(argv[1]) : 0;

	if (!count)
		tap_bail("usage: %s COUNT", argv[0]);
	test_nodes(count);
	test_open(count);
	test_other_user();
	test_references();
	return tap_plan();
}
