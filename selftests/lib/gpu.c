// SPDX-License-Identifier: GPL-2.0
/* Thin wrapper of the stand-in GPU driver's user interface. */
#define _GNU_SOURCE

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "gpu.h"
#include "nvfs.h"

#define CHUNK	(1024 * 1024)

static int call(struct gpu *gpu, unsigned long cmd, void *arg)
{
	return ioctl(gpu->fd, cmd, arg) < 0 ? -errno : 0;
}

int gpu_open(struct gpu *gpu, int index)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/fake_nvidia%d", index);
	gpu->index = index;
	gpu->fd = open(path, O_RDWR | O_CLOEXEC);
	return gpu->fd < 0 ? -errno : 0;
}

bool gpu_unbound(int index)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	char path[32];

	snprintf(path, sizeof(path), "/dev/fake_nvidia%d", index);
	while (!access(path, F_OK))
		if (nvfs_seconds() > end)
			return false;
		else
			sched_yield();
	return true;
}

int gpu_close(struct gpu *gpu)
{
	int ret = close(gpu->fd) < 0 ? -errno : 0;

	gpu->fd = -1;
	return ret;
}

int gpu_alloc(struct gpu *gpu, uint64_t size, uint64_t flags, uint64_t *va)
{
	struct fake_nvidia_alloc a = { .size = size, .flags = flags };
	int ret = call(gpu, FAKE_NVIDIA_ALLOC, &a);

	if (!ret)
		*va = a.va;
	return ret;
}

int gpu_alloc_at(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t flags)
{
	struct fake_nvidia_alloc a = { .size = size, .flags = flags, .va = va };

	return va ? call(gpu, FAKE_NVIDIA_ALLOC, &a) : -EINVAL;
}

int gpu_free(struct gpu *gpu, uint64_t va)
{
	__u64 arg = va;

	return call(gpu, FAKE_NVIDIA_FREE, &arg);
}

int gpu_where(struct gpu *gpu, uint64_t va, uint64_t *bar_offset, uint64_t *contiguous)
{
	struct fake_nvidia_where w = { .va = va };
	int ret = call(gpu, FAKE_NVIDIA_WHERE, &w);

	if (ret)
		return ret;
	*bar_offset = w.bar_offset;
	if (contiguous)
		*contiguous = w.contiguous;
	return 0;
}

int gpu_read(struct gpu *gpu, uint64_t va, void *buf, size_t size)
{
	struct fake_nvidia_copy c = { .va = va, .buf = (uintptr_t)buf, .size = size };

	return call(gpu, FAKE_NVIDIA_READ, &c);
}

int gpu_write(struct gpu *gpu, uint64_t va, const void *buf, size_t size)
{
	struct fake_nvidia_copy c = { .va = va, .buf = (uintptr_t)buf, .size = size };

	return call(gpu, FAKE_NVIDIA_WRITE, &c);
}

int gpu_set(struct gpu *gpu, uint64_t va, uint8_t byte, uint64_t size)
{
	size_t chunk = size < CHUNK ? size : CHUNK;
	void *buf = malloc(chunk ? chunk : 1);
	int ret = 0;

	if (!buf)
		return -ENOMEM;
	memset(buf, byte, chunk);
	for (uint64_t done = 0; done < size && !ret; done += chunk)
		ret = gpu_write(gpu, va + done, buf, size - done < chunk ? size - done : chunk);
	free(buf);
	return ret;
}

uint64_t pattern_word(uint64_t seed, uint64_t i)
{
	return seed * 0x9e3779b97f4a7c15 + i;
}

void pattern_fill(void *buf, size_t size, uint64_t seed, uint64_t first)
{
	for (size_t i = 0; i < size / 8; i++) {
		uint64_t word = htole64(pattern_word(seed, first + i));

		memcpy((char *)buf + i * 8, &word, 8);
	}
}

int64_t pattern_check(const void *buf, size_t size, uint64_t seed, uint64_t first)
{
	for (size_t i = 0; i < size / 8; i++) {
		uint64_t word;

		memcpy(&word, (const char *)buf + i * 8, 8);
		if (le64toh(word) != pattern_word(seed, first + i))
			return i;
	}
	return -1;
}

int gpu_fill_from(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t seed, uint64_t first)
{
	size_t chunk = size < CHUNK ? size : CHUNK;
	void *buf;
	int ret = 0;

	if (size % 8)
		return -EINVAL;
	buf = malloc(chunk ? chunk : 1);
	if (!buf)
		return -ENOMEM;
	for (uint64_t done = 0; done < size && !ret; done += chunk) {
		size_t n = size - done < chunk ? size - done : chunk;

		pattern_fill(buf, n, seed, first + done / 8);
		ret = gpu_write(gpu, va + done, buf, n);
	}
	free(buf);
	return ret;
}

int gpu_check_from(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t seed, uint64_t first,
		   int64_t *bad)
{
	size_t chunk = size < CHUNK ? size : CHUNK;
	int64_t wrong = -1;
	void *buf;
	int ret = 0;

	if (size % 8)
		return -EINVAL;
	buf = malloc(chunk ? chunk : 1);
	if (!buf)
		return -ENOMEM;
	for (uint64_t done = 0; done < size && !ret && wrong < 0; done += chunk) {
		size_t n = size - done < chunk ? size - done : chunk;

		ret = gpu_read(gpu, va + done, buf, n);
		if (!ret) {
			wrong = pattern_check(buf, n, seed, first + done / 8);
			if (wrong >= 0)
				wrong += done / 8;
		}
	}
	free(buf);
	if (!ret)
		*bad = wrong;
	return ret;
}

int gpu_fill(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t seed)
{
	return gpu_fill_from(gpu, va, size, seed, 0);
}

int gpu_check(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t seed, int64_t *bad)
{
	return gpu_check_from(gpu, va, size, seed, 0, bad);
}

int gpu_counts(struct gpu *gpu, struct fake_nvidia_counts *counts)
{
	return call(gpu, FAKE_NVIDIA_COUNTS, counts);
}

int gpu_info(struct gpu *gpu, struct fake_nvidia_info *info)
{
	return call(gpu, FAKE_NVIDIA_INFO, info);
}

int gpu_fault(struct gpu *gpu, enum fake_nvidia_call which, int error, unsigned int after,
	      unsigned int times, unsigned int delay_ms)
{
	struct fake_nvidia_fault f = {
		.call = which, .error = error, .after = after, .times = times, .delay_ms = delay_ms,
	};

	return call(gpu, FAKE_NVIDIA_FAULT, &f);
}

int gpu_table(struct gpu *gpu, uint32_t version, uint32_t page_size)
{
	struct fake_nvidia_table t = { .version = version, .page_size = page_size };

	return call(gpu, FAKE_NVIDIA_TABLE, &t);
}

int gpu_reset(struct gpu *gpu)
{
	return call(gpu, FAKE_NVIDIA_RESET, NULL);
}

int gpu_callbacks(struct gpu *gpu, uint64_t flags)
{
	return call(gpu, FAKE_NVIDIA_CALLBACKS, &flags);
}

int gpu_hold_rcu(struct gpu *gpu, uint64_t ms)
{
	return call(gpu, FAKE_NVIDIA_HOLD_RCU, &ms);
}
