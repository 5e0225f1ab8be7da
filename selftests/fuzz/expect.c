// SPDX-License-Identifier: GPL-2.0
/* What the contract lets a call answer, as far as its arguments tell. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fuzz.h"

#define BLOCK	NVFS_BLOCK_SIZE
#define GPAGE	NVFS_GPU_PAGE_SIZE

/* What a transfer may end with once its arguments are right. */
#define IN_TRANSFER	(E(EIO) | E(EOPNOTSUPP) | E(EREMOTEIO) | E(ENOMEM) | E(ENOSPC) | E(EFBIG) | \
			 E(EINVAL) | E(EFAULT) | E(EINTR) | E(EBUSY) | E(EAGAIN))

bool as_expected(const struct expectation *expected, long result)
{
	if (result >= 0)
		return expected->success;
	return result > -128 && expected->errors & E(-result);
}

/* It fails here at the latest: with this errno, or one of an earlier check that may fail. */
static struct expectation fails(errnos so_far, int error)
{
	return (struct expectation){ .errors = so_far | E(error) };
}

struct expectation expect_mmap(const struct file *node, uint64_t len, int prot, int flags,
			       uint64_t offset)
{
	errnos so_far = E(ENOMEM);

	if (!len)
		return fails(so_far, EINVAL);
	if (len > -4096UL)
		return fails(so_far, EINVAL);
	len = (len + 4095) & -4096UL;
	if (offset % 4096)
		return fails(so_far, EINVAL);
	if (offset + len < offset)
		return fails(so_far, EOVERFLOW);
	/* The mapping code looks for room first, and never lets anything that long in. */
	so_far |= E(EINVAL) | E(EOVERFLOW);
	if (flags & MAP_LOCKED)
		so_far |= E(EAGAIN) | E(EPERM);
	/* A file system may be mounted noexec. */
	if (prot & PROT_EXEC)
		so_far |= E(EPERM);
	if (!node->read || ((flags & MAP_SHARED) && (prot & PROT_WRITE) && !node->write))
		return fails(so_far, EACCES);
	if (offset)
		return fails(so_far, EIO);
	if (len > NVFS_MAX_SHADOW_BYTES || (len > 64 * KIB && len % (64 * KIB)) ||
	    !(flags & MAP_SHARED) || !node->write || (prot & 7) != (PROT_READ | PROT_WRITE))
		return fails(so_far, EINVAL);
	return (struct expectation){ .errors = so_far & ~E(EINVAL), .success = true };
}

struct expectation expect_map(const struct nvfs_ioctl_map *arg, const struct slot *slot)
{
	/* The GPU driver may be told to fail, or not to have the memory. */
	errnos so_far = E(ENOMEM) | E(EFAULT) | E(EINVAL) | E(EIO);
	uint64_t start = arg->gpuvaddr & -(uint64_t)GPAGE;

	if (!slot || !slot->len || slot->mapped || !(slot->prot & PROT_WRITE) || !arg->sbuf_block ||
	    arg->sbuf_block > slot->len / BLOCK || !arg->end_fence_addr ||
	    arg->end_fence_addr % BLOCK || arg->end_fence_addr > LONG_MAX ||
	    arg->size < 0 || (!arg->size && arg->gpuvaddr == start) ||
	    arg->gpuvaddr > LONG_MAX - (uint64_t)arg->size ||
	    (arg->size < GPAGE &&
	     (uint64_t)arg->sbuf_block * BLOCK < arg->gpuvaddr % GPAGE + arg->size) ||
	    start < 0x200000000000)
		return (struct expectation){ .errors = so_far };
	return (struct expectation){ .errors = so_far, .success = true };
}

/* Contract section 9.1, in its order. */
struct expectation expect_io(const struct nvfs_ioctl_io *arg, bool write, const struct slot *slot,
			     const struct file *file)
{
	bool sync = arg->flags & NVFS_IO_SYNC;
	errnos so_far = 0;
	uint64_t g, o;
	dev_t dev;

	if (arg->offset < 0 || arg->offset % BLOCK || arg->size % BLOCK || arg->size > LONG_MAX ||
	    arg->offset + arg->size > LONG_MAX)
		return fails(so_far, EINVAL);
	if (arg->fd < 0 || arg->fd >= NO_FD || (file && file->path_only))
		return fails(so_far, EINVAL);
	if (!file)
		so_far |= E(EINVAL) | E(EBADF) | E(ESTALE);
	if (file && (write ? !file->write :
		     !file->read && !((arg->flags & NVFS_IO_ALLOWREADS) && file->write &&
					(!geteuid() || (file->st.st_mode & S_IROTH)))))
		return fails(so_far, EBADF);
	/* It may be opened for it and have no such operation. */
	if (file && !file->regular && !file->block)
		so_far |= E(EINVAL);
	if (!arg->file.inum)
		return fails(so_far, EINVAL);
	if (file) {
		dev = file->block ? file->st.st_rdev : file->st.st_dev;
		if (file->block && !arg->file.majdev)
			return fails(so_far, EINVAL);
		/* Nobody here knows the generation. */
		if (arg->file.generation)
			so_far |= E(ESTALE);
		if (arg->file.inum != file->st.st_ino || arg->file.majdev != major(dev) ||
		    arg->file.mindev != minor(dev))
			return fails(so_far, ESTALE);
	}
	if (!slot || !slot->len || !slot->mapped || !(slot->prot & PROT_WRITE))
		return fails(so_far, EINVAL);
	so_far |= E(EBUSY);
	if (file && !file->direct)
		return fails(so_far, EINVAL);
	if (!sync && !arg->end_fence_value)
		return fails(so_far, EINVAL);
	g = slot->gpu_va % GPAGE + arg->file.devptroff;
	o = g % GPAGE;
	if (g % BLOCK || arg->size > slot->gpu_size || arg->file.devptroff > slot->gpu_size - arg->size ||
	    (o && arg->size > GPAGE - o))
		return fails(so_far, EINVAL);
	return (struct expectation){
		.errors = so_far | IN_TRANSFER,
		.success = !file || file->moves,
	};
}
