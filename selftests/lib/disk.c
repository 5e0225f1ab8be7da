// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "nvfs.h"

#define FAULT	"/sys/kernel/debug/fail_io_timeout/"

#define PCI_COMMAND	4

static int attribute_of(int fd, const char *attribute, char *path, size_t size)
{
	struct stat st;
	dev_t dev;

	if (fstat(fd, &st))
		return -errno;
	dev = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	snprintf(path, size, "/sys/dev/block/%u:%u/%s", major(dev), minor(dev), attribute);
	return 0;
}

static int set(const char *path, const char *text)
{
	ssize_t ret = nvfs_write_text(path, text);

	return ret < 0 ? ret : 0;
}

int disk_set(int fd, const char *attribute, const char *text)
{
	char path[256];
	int ret = attribute_of(fd, attribute, path, sizeof(path));

	return ret ? ret : set(path, text);
}

int disk_lose(int fd)
{
	const uint16_t none = 0;
	char path[256];
	int config, ret = attribute_of(fd, "device/device/config", path, sizeof(path));

	if (ret)
		return ret;
	config = open(path, O_RDWR | O_CLOEXEC);
	if (config < 0)
		return -errno;
	if (pwrite(config, &none, sizeof(none), PCI_COMMAND) != sizeof(none))
		ret = -EIO;
	close(config);
	return ret;
}

int disk_reset(int fd)
{
	return disk_set(fd, "device/reset_controller", "1");
}

int disk_drop_answers(int fd, int times)
{
	char text[16];
	int ret;

	snprintf(text, sizeof(text), "%d", times);
	ret = set(FAULT "interval", "1");
	if (!ret)
		ret = set(FAULT "times", text);
	if (!ret)
		ret = set(FAULT "probability", times ? "100" : "0");
	return ret ? ret : disk_set(fd, "io-timeout-fail", times ? "1" : "0");
}

int disk_answers_left(void)
{
	char text[32];
	ssize_t ret = nvfs_read_text(FAULT "times", text, sizeof(text));

	return ret < 0 ? ret : atoi(text);
}
