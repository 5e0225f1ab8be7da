// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"
#include "nvfs.h"

static void no_compat(int signal)
{
	(void)signal;
	_exit(1);
}

bool nvfs_has_compat(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		long ret = 20;	/* getpid */

		/* The kernel would log a fault that is not handled. */
		signal(SIGSEGV, no_compat);
		__asm__ volatile("int $0x80" : "+a"(ret) : : "memory", "r8", "r9", "r10", "r11");
		_exit(ret != getpid());
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

int nvfs_open(unsigned int n, int flags)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/nvidia-fs%u", n);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

void *nvfs_mmap(int node, size_t length)
{
	void *shadow = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, node, 0);

	return shadow == MAP_FAILED ? NULL : shadow;
}

int nvfs_shadow(struct nvfs_buffer *buf, int node, size_t window)
{
	memset(buf, 0, sizeof(*buf));
	buf->node = node;
	buf->window = window;
	buf->shadow = nvfs_mmap(node, window);
	if (!buf->shadow)
		return -errno;
	buf->meta = mmap(NULL, sizeof(*buf->meta), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf->meta == MAP_FAILED) {
		buf->meta = NULL;
		nvfs_unregister(buf);
		return -ENOMEM;
	}
	return 0;
}

int nvfs_map(struct nvfs_buffer *buf)
{
	union nvfs_ioctl_arg arg = nvfs_map_arg(buf);

	return nvfs_request(buf->node, NVFS_IOCTL_MAP, &arg);
}

int nvfs_register(struct nvfs_buffer *buf, int node, uint64_t gpu_va, int64_t gpu_size,
		  size_t window, uint64_t pdevinfo)
{
	int ret = nvfs_shadow(buf, node, window);

	if (ret)
		return ret;
	buf->gpu_va = gpu_va;
	buf->gpu_size = gpu_size;
	buf->pdevinfo = pdevinfo;
	ret = nvfs_map(buf);
	if (ret)
		nvfs_unregister(buf);
	return ret;
}

void nvfs_unregister(struct nvfs_buffer *buf)
{
	if (buf->shadow)
		munmap(buf->shadow, buf->window);
	if (buf->meta)
		munmap(buf->meta, sizeof(*buf->meta));
	buf->shadow = NULL;
	buf->meta = NULL;
}

union nvfs_ioctl_arg nvfs_map_arg(const struct nvfs_buffer *buf)
{
	union nvfs_ioctl_arg arg;

	memset(&arg, 0, sizeof(arg));
	arg.map.size = buf->gpu_size;
	arg.map.pdevinfo = buf->pdevinfo;
	arg.map.cpuvaddr = (uintptr_t)buf->shadow;
	arg.map.gpuvaddr = buf->gpu_va;
	arg.map.end_fence_addr = (uintptr_t)buf->meta;
	arg.map.sbuf_block = buf->window / NVFS_BLOCK_SIZE;
	arg.map.is_bounce_buffer = buf->is_bounce_buffer;
	return arg;
}

union nvfs_ioctl_arg nvfs_io_arg(const struct nvfs_buffer *buf, int fd, int64_t offset,
				 uint64_t size, uint64_t devptroff)
{
	union nvfs_ioctl_arg arg;
	struct stat st;
	dev_t dev;

	memset(&arg, 0, sizeof(arg));
	arg.io.cpuvaddr = (uintptr_t)buf->shadow;
	arg.io.offset = offset;
	arg.io.size = size;
	arg.io.file.devptroff = devptroff;
	arg.io.fd = fd;
	arg.io.flags = NVFS_IO_SYNC;
	if (fstat(fd, &st))
		return arg;
	dev = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	arg.io.file.inum = st.st_ino;
	arg.io.file.majdev = major(dev);
	arg.io.file.mindev = minor(dev);
	return arg;
}

int nvfs_ioctl(int node, unsigned long request, void *arg)
{
	return ioctl(node, request, arg) ? -errno : 0;
}

ssize_t nvfs_request(int node, unsigned long request, union nvfs_ioctl_arg *arg)
{
	int ret = nvfs_ioctl(node, request, arg);

	if (!ret)
		return request == NVFS_IOCTL_MAP ? 0 : arg->io.ioctl_return;
	if (ret != -EPERM || arg->io.ioctl_return >= 0 || arg->io.ioctl_return < -4095)
		return -EPROTO;
	return arg->io.ioctl_return;
}

ssize_t nvfs_read(const struct nvfs_buffer *buf, int fd, int64_t offset, uint64_t size,
		  uint64_t devptroff)
{
	union nvfs_ioctl_arg arg = nvfs_io_arg(buf, fd, offset, size, devptroff);

	return nvfs_request(buf->node, NVFS_IOCTL_READ, &arg);
}

ssize_t nvfs_write(const struct nvfs_buffer *buf, int fd, int64_t offset, uint64_t size,
		   uint64_t devptroff)
{
	union nvfs_ioctl_arg arg = nvfs_io_arg(buf, fd, offset, size, devptroff);

	return nvfs_request(buf->node, NVFS_IOCTL_WRITE, &arg);
}

ssize_t nvfs_submit(struct nvfs_buffer *buf, unsigned long request, int fd, int64_t offset,
		    uint64_t size, uint64_t devptroff)
{
	union nvfs_ioctl_arg arg = nvfs_io_arg(buf, fd, offset, size, devptroff);

	arg.io.flags = NVFS_IO_HIPRI | NVFS_IO_ALLOWREADS;
	arg.io.end_fence_value = ++buf->fence;
	return nvfs_request(buf->node, request, &arg);
}

uint64_t nvfs_fence(const struct nvfs_buffer *buf)
{
	return __atomic_load_n(&buf->meta->end_fence_val, __ATOMIC_ACQUIRE);
}

ssize_t nvfs_wait(const struct nvfs_buffer *buf)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;

	while (nvfs_fence(buf) != buf->fence) {
		if (nvfs_seconds() > end)
			return -ETIMEDOUT;
		sched_yield();
	}
	return __atomic_load_n(&buf->meta->result, __ATOMIC_RELAXED);
}

double nvfs_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

ssize_t nvfs_read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got = 1;
	int err;

	if (fd < 0)
		return -errno;
	while (got > 0 && length < size - 1) {
		got = read(fd, text + length, size - 1 - length);
		if (got > 0)
			length += got;
	}
	err = errno;
	close(fd);
	text[length] = '\0';
	return got < 0 ? -err : (ssize_t)length;
}

ssize_t nvfs_write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text));
	if (ret < 0)
		ret = -errno;
	close(fd);
	return ret;
}

int nvfs_file(const char *path, size_t size, uint64_t seed)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	size_t room = (size + 7) & ~7UL;	/* the pattern comes in whole words */
	char *data = malloc(room + 1);
	int err = 0;

	if (fd < 0 || !data) {
		err = fd < 0 ? -errno : -ENOMEM;
		goto out;
	}
	pattern_fill(data, room, seed, 0);
	if (pwrite(fd, data, size, 0) != (ssize_t)size || fsync(fd))
		err = errno ? -errno : -EIO;
out:
	free(data);
	if (fd >= 0)
		close(fd);
	if (err)
		return err;
	fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

long nvfs_parameter(const char *name)
{
	char path[128], text[32];
	ssize_t ret;

	snprintf(path, sizeof(path), NVFS_PARAMETERS "%s", name);
	ret = nvfs_read_text(path, text, sizeof(text));
	return ret < 0 ? ret : strtol(text, NULL, 10);
}

int nvfs_set_parameter(const char *name, const char *value)
{
	char path[128];
	ssize_t ret;

	snprintf(path, sizeof(path), NVFS_PARAMETERS "%s", name);
	ret = nvfs_write_text(path, value);
	return ret < 0 ? ret : 0;
}

long long nvfs_stat(const char *line, const char *key)
{
	char text[8192], wanted[64];
	char *at, *next;

	if (nvfs_read_text(NVFS_PROC "stats", text, sizeof(text)) < 0)
		return -ENOENT;
	snprintf(wanted, sizeof(wanted), "%s%s", key, *key ? "=" : ":");
	for (at = text; *at; at = next) {
		next = at + strcspn(at, "\n");
		if (*next)
			*next++ = '\0';
		if (strncmp(at, line, strlen(line)))
			continue;
		/* The key is a whole word: `n=` is not the end of `active=`. */
		for (at += strlen(line); (at = strstr(at, wanted)); at++) {
			if (!*key || strchr(" \t:", at[-1]))
				return strtoll(at + strlen(wanted), NULL, 10);
		}
	}
	return -ENOENT;
}

long long nvfs_number(const char *path, const char *name)
{
	size_t length = strlen(name);
	char text[16384], *at;

	if (nvfs_read_text(path, text, sizeof(text)) < 0)
		return -ENOENT;
	for (at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (!strncmp(at, name, length) && at[length] == ' ')
			return atoll(at + length);
	}
	return -ENOENT;
}

long long nvfs_counter(const char *name)
{
	return nvfs_number(NVFS_PROC "counters", name);
}
