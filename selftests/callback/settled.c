// SPDX-License-Identifier: GPL-2.0
/*
 * Nothing is left of what was done by hooks: no segment is out, nobody has broken a contract, and
 * the GPU driver has no pin, table or mapping of ours.
 *
 * usage: settled WHEN
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

static struct fake_storage_counts storage;
static struct fake_nvidia_counts nvidia;

static unsigned int in_flight(void)
{
	unsigned int i, sum = 0;

	for (i = 0; i < FAKE_STORAGE_NR_TABLES; i++)
		sum += storage.in_flight[i];
	return sum;
}

int main(int argc, char **argv)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	int control = storage_open();
	struct gpu gpu;

	if (argc != 2 || gpu_open(&gpu, 0) || (control < 0 && control != -ENOENT))
		tap_bail("usage: %s WHEN", argv[0]);
	/* What a dying process or a late unmap still holds goes by itself. */
	do {
		if (gpu_counts(&gpu, &nvidia) || (control >= 0 && storage_counts(control, &storage)))
			tap_bail("no counts");
		if (!nvidia.tables && !nvidia.mappings && !nvidia.pinned_pages && !in_flight())
			break;
		sched_yield();
	} while (nvfs_seconds() < end);
	if (control >= 0) {
		tap_is(in_flight(), 0, "%s: the disks have nothing mapped", argv[1]);
		tap_is(storage.broken, 0, "%s: no table broke its contract", argv[1]);
		tap_is(storage.stray, 0, "%s: no bus address was wrong", argv[1]);
		tap_diag("%llu requests: %llu mapped, %llu by the CPU, %llu refused, %llu failed, %llu requeued, %llu unmapped late",
			 (unsigned long long)storage.requests, (unsigned long long)storage.gpu,
			 (unsigned long long)storage.cpu, (unsigned long long)storage.refused,
			 (unsigned long long)storage.failed, (unsigned long long)storage.requeued,
			 (unsigned long long)storage.late);
	}
	tap_is(nvidia.tables, 0, "%s: no page table is left", argv[1]);
	tap_is(nvidia.mappings, 0, "%s: no mapping is left", argv[1]);
	tap_is(nvidia.pinned_pages, 0, "%s: no page is pinned", argv[1]);
	tap_is(nvidia.misuse, 0, "%s: the GPU driver was not misused", argv[1]);
	return tap_plan();
}
