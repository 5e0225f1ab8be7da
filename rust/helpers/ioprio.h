/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hints of the I/O priorities of our transfers, of 10 bits. The block layer merges only what is
 * of one priority, so each kind of memory has hints that no other has. Also for the selftests.
 */
#ifndef NVFS_IOPRIO_H
#define NVFS_IOPRIO_H

enum nvfs_ioprio {
	/* Those below mean something to ATA and SCSI devices; none does to NVMe. */
	NVFS_IOPRIO_MAP = 8,	/* of P2PDMA memory: the first page map's, .. */
	NVFS_IOPRIO_MAPS = 512,	/* .. and so many follow */
	NVFS_IOPRIO_SHADOW = NVFS_IOPRIO_MAP + NVFS_IOPRIO_MAPS,	/* of shadow memory */
	NVFS_IOPRIO_END,
};

#endif /* NVFS_IOPRIO_H */
