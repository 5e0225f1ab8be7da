/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Thin wrapper of the stand-in GPU driver's user interface, for tests. Functions that return int
 * give 0 or a negative errno.
 */
#ifndef SELFTESTS_GPU_H
#define SELFTESTS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../fake_nvidia/fake_nvidia.h"

struct gpu {
	int fd;
	int index;
};

/* Opens /dev/fake_nvidia<index>. Closing the last such open frees its ranges. */
int gpu_open(struct gpu *gpu, int index);
int gpu_close(struct gpu *gpu);
/* Waits for the node to go, as it does when the driver is unbound; false: it does not. */
bool gpu_unbound(int index);

int gpu_alloc(struct gpu *gpu, uint64_t size, uint64_t flags, uint64_t *va);
/* At a wanted address, a multiple of 64 KiB. */
int gpu_alloc_at(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t flags);
int gpu_free(struct gpu *gpu, uint64_t va);

/* Where a byte lies in the BAR; contiguous may be NULL. */
int gpu_where(struct gpu *gpu, uint64_t va, uint64_t *bar_offset, uint64_t *contiguous);

int gpu_read(struct gpu *gpu, uint64_t va, void *buf, size_t size);
int gpu_write(struct gpu *gpu, uint64_t va, const void *buf, size_t size);
int gpu_set(struct gpu *gpu, uint64_t va, uint8_t byte, uint64_t size);

/*
 * The pattern: the 64-bit little-endian word i is seed * 0x9e3779b97f4a7c15 + i. Sizes are
 * multiples of 8. first is the index of the first word, so that a part can be filled or checked.
 */
uint64_t pattern_word(uint64_t seed, uint64_t i);
void pattern_fill(void *buf, size_t size, uint64_t seed, uint64_t first);
/* The index of the first wrong word, counted from the start of buf, or -1. */
int64_t pattern_check(const void *buf, size_t size, uint64_t seed, uint64_t first);

int gpu_fill(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t seed);
/* Stores the index of the first wrong word, or -1, to bad, unless reading fails. */
int gpu_check(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t seed, int64_t *bad);
int gpu_fill_from(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t seed, uint64_t first);
int gpu_check_from(struct gpu *gpu, uint64_t va, uint64_t size, uint64_t seed, uint64_t first,
		   int64_t *bad);

int gpu_counts(struct gpu *gpu, struct fake_nvidia_counts *counts);
int gpu_info(struct gpu *gpu, struct fake_nvidia_info *info);

/* Let after calls through, then fail times with error; every one is delayed by delay_ms. */
int gpu_fault(struct gpu *gpu, enum fake_nvidia_call call, int error, unsigned int after,
	      unsigned int times, unsigned int delay_ms);
int gpu_table(struct gpu *gpu, uint32_t version, uint32_t page_size);
int gpu_reset(struct gpu *gpu);

/* FAKE_NVIDIA_PUT_RETURNS, FAKE_NVIDIA_TWICE */
int gpu_callbacks(struct gpu *gpu, uint64_t flags);

/* No RCU grace period ends before gpu_hold_rcu() with 0 by another thread, or so many ms. */
int gpu_hold_rcu(struct gpu *gpu, uint64_t ms);

#endif /* SELFTESTS_GPU_H */
