// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "nvfs.h"
#include "storage.h"

static int request(int fd, unsigned long number, void *arg)
{
	return ioctl(fd, number, arg) ? -errno : 0;
}

int storage_open(void)
{
	int fd = open("/dev/fake_storage_control", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int storage_build(int fd, struct fake_storage_build *build,
		  const struct fake_storage_piece *pieces)
{
	build->pieces = (uintptr_t)pieces;
	return request(fd, FAKE_STORAGE_BUILD, build);
}

int storage_call(int fd, struct fake_storage_call *call)
{
	return request(fd, FAKE_STORAGE_CALL, call);
}

int storage_hold(int fd, enum fake_storage_hold where)
{
	__u32 n = where;

	return request(fd, FAKE_STORAGE_HOLD, &n);
}

int storage_wait_held(int fd, unsigned int n)
{
	return request(fd, FAKE_STORAGE_WAIT_HELD, &n);
}

int storage_counts(int fd, struct fake_storage_counts *counts)
{
	return request(fd, FAKE_STORAGE_COUNTS, counts);
}

int storage_set(const char *parameter, unsigned int value)
{
	char path[128], text[16];
	ssize_t ret;

	snprintf(path, sizeof(path), "/sys/module/fake_storage/parameters/%s", parameter);
	snprintf(text, sizeof(text), "%u", value);
	ret = nvfs_write_text(path, text);
	return ret < 0 ? ret : 0;
}
