/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For tests of the tables' return codes: an nvidia-fs read of a fake_storage disk that is held
 * before the disk calls its table, and direct calls meanwhile with the pages of its buffer.
 */
#ifndef SELFTESTS_VENDOR_H
#define SELFTESTS_VENDOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu.h"
#include "nvfs.h"
#include "storage.h"

#define VENDOR_WINDOW	(1 * MIB)	/* shadow buffer */
#define VENDOR_GPU	(16 * MIB)
#define VENDOR_IO	(256 * KIB)	/* of the held read: the first quarter of the shadow buffer */

struct vendor {
	enum fake_storage_table table;
	struct gpu gpu;
	struct fake_nvidia_info info;
	int node, disk, control;
	uint64_t dev;		/* the disk's PCI function, as in fake_storage_call */
	char *cpu;		/* VENDOR_WINDOW of ordinary memory */
	struct nvfs_buffer buf;
	/* The read under way, or write. */
	bool write;
	pthread_t thread;
	uint64_t at;		/* its first byte in the buffer's GPU memory */
	uint64_t size;
	ssize_t result;
	/* The last build and call. */
	struct fake_storage_build build;
	struct fake_storage_call call;
};

/* vendor_open: all but the buffer; ends the program when something is missing. */
void vendor_open(struct vendor *v, enum fake_storage_table table, const char *disk,
		 const char *pci_address);

/* vendor_buffer: a new buffer, with FAKE_NVIDIA_ flags. vendor_forget: unmaps it. */
int vendor_buffer(struct vendor *v, uint64_t flags);
void vendor_forget(struct vendor *v);

/* vendor_beside: another one, with the same files, that has buffers on the second GPU. */
void vendor_beside(struct vendor *other, const struct vendor *v);

/*
 * vendor_start: begins a read to a place in GPU memory, or a write from there if `write` is set, and
 * waits until it is held; ends the program when it never is. vendor_start_beside: also while another
 * one's is held. vendor_end: lets it go on, and returns its result.
 */
void vendor_start(struct vendor *v, uint64_t at, uint64_t size);
void vendor_start_beside(struct vendor *v, uint64_t at, uint64_t size);
ssize_t vendor_end(struct vendor *v);

/* vendor_shadow: where the read under way begins in the shadow buffer. */
char *vendor_shadow(struct vendor *v);

/* vendor_build: of n pieces. vendor_build_one: of part of the shadow buffer, from there. */
int vendor_build(struct vendor *v, enum fake_storage_op op, unsigned int flags,
		 const struct fake_storage_piece *pieces, unsigned int n);
int vendor_build_one(struct vendor *v, unsigned int flags, uint64_t offset, uint64_t len);

/* vendor_call: the result, or INT64_MIN when there was no call. */
int64_t vendor_call(struct vendor *v, enum fake_storage_function function, int nents);
int64_t vendor_call_without(struct vendor *v, enum fake_storage_function function, int nents,
			    unsigned int without);
int64_t vendor_call_for(struct vendor *v, enum fake_storage_function function, int nents,
			uint64_t dev);
int64_t vendor_call_in_irq(struct vendor *v, enum fake_storage_function function, int nents);

/* vendor_bus: the bus address of a byte of the read under way. */
uint64_t vendor_bus(struct vendor *v, uint64_t offset);

/* vendor_segments_right: whether the last call's segments are the bytes from `offset` on. */
bool vendor_segments_right(struct vendor *v, uint64_t offset, uint64_t len);

/* vendor_pci: a PCI address as fake_storage_call.dev. */
uint64_t vendor_pci(const char *address);

#endif /* SELFTESTS_VENDOR_H */
