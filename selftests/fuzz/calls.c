// SPDX-License-Identifier: GPL-2.0
/* The calls: each makes arguments that are mostly right, spoils some, and judges the answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "fuzz.h"

#define BLOCK		NVFS_BLOCK_SIZE
#define GPAGE		NVFS_GPU_PAGE_SIZE
#define CHILD_CALLS	12

#define CHANCE(t, n)	(roll(&(t)->rng, n) == 0)

static uint64_t below(struct thread *t, uint64_t n)
{
	return roll(&t->rng, n);
}

static long error(long ret)
{
	return ret < 0 ? -errno : ret;
}

/* Touches memory that may not be there. */
static __attribute__((noinline)) bool copy(struct thread *t, void *to, const void *from, size_t size)
{
	bool good = false;

	t->may_fault = true;
	if (!sigsetjmp(t->fault, 0)) {
		memcpy(to, from, size);
		good = true;
	}
	t->may_fault = false;
	return good;
}

/* ---- where arguments are ---- */

struct spot {
	uint64_t address;
	enum { GOOD, BAD, ODD } kind;	/* stays as it was written; cannot be read; neither */
};

static struct spot put_good(struct thread *t, const void *arg, size_t size)
{
	/* Right before the hole, now and then. */
	char *at = t->page + (CHANCE(t, 4) ? 40 * KIB - (CHANCE(t, 2) ? size : 104) : 64);

	if (at + size > t->page + 40 * KIB)
		at = t->page + 40 * KIB - size;
	memcpy(at, arg, size);
	return (struct spot){ (uintptr_t)at, GOOD };
}

/* The argument's `size` bytes go to some place, as it must be for one in `odds` calls. */
static struct spot put(struct thread *t, const void *arg, size_t size, unsigned int odds)
{
	static const uint64_t nowhere[] = {
		0, 1, 8, 4095, 0xffff888000000000, 0xffffffff81000000, 0xffffffffffffffff,
		0xfffffffffffff000, 0x0000800000000000, 0x0000800000000000 - 8, 0x00007ffffffff000,
		0x4141414141414141, 0x8000000000000000, 0xdead000000000100,
	};
	size_t part = below(t, size + 1);
	char *at;

	if (!CHANCE(t, odds))
		return put_good(t, arg, size);
	switch (below(t, 10)) {
	case 0:
	case 1:
		return (struct spot){ nowhere[below(t, sizeof(nowhere) / 8)], BAD };
	case 2:
		return (struct spot){ (uintptr_t)hostile_page(NO_ACCESS) + below(t, 64) * 8, BAD };
	case 3:
		/* The start of it only. */
		at = t->page + 40 * KIB - part;
		memcpy(at, arg, part);
		return (struct spot){ (uintptr_t)at, ODD };
	case 4:
		memcpy(hostile_page(ALIAS), arg, size < 4096 ? size : 4096);
		return (struct spot){ (uintptr_t)hostile_page(READ_ONLY), ODD };
	case 5:
		at = hostile_page(FLIPPING) + below(t, 4096);
		copy(t, at, arg, size);
		return (struct spot){ (uintptr_t)at, ODD };
	case 6:
		at = hostile_page(HOT);
		memcpy(at, arg, size < 4096 ? size : 4096);
		return (struct spot){ (uintptr_t)at, ODD };
	case 7:
		at = (char *)shared->page[1];
		memcpy(at, arg, size < 4096 ? size : 4096);
		return (struct spot){ (uintptr_t)at, ODD };
	case 8:
		/* In shadow memory. */
		at = me.slot[THREADS * PRIVATE_SLOTS + below(t, SHARED_SLOTS)].address + below(t, 8192);
		if (size <= 4096)
			copy(t, at, arg, size);
		return (struct spot){ (uintptr_t)at, ODD };
	default:
		at = hostile_page(OF_A_FILE) + 256;
		copy(t, at, arg, size < 2048 ? size : 2048);
		return (struct spot){ (uintptr_t)at, ODD };
	}
}

/* An address that is no start of a shadow buffer of ours. */
static uint64_t no_buffer(struct thread *t, const struct slot *slot)
{
	uint64_t at;

	switch (below(t, 8)) {
	case 0:
		return 0;
	case 1:
		return VICTIM_SHADOW;
	case 2:
		return (uintptr_t)slot->address + 4096;
	case 3:
		return (uintptr_t)slot->address + 1 + below(t, 4095);
	case 4:
		return (uintptr_t)t->page;
	case 5:
		return 0xffff888000000000 + below(t, 1 << 20) * 4096;
	case 6:
		return (uintptr_t)hostile_page(OF_A_FILE);
	default:
		at = (uintptr_t)slot->address + (1UL << (12 + below(t, 50)));
		/* Another thread may have a buffer at the start of a slot. */
		if (at - SLOT_BASE < NR_SLOTS * SLOT_ROOM && (at - SLOT_BASE) % SLOT_ROOM == 0)
			at += 4096;
		return at;
	}
}

/* ---- requests ---- */

struct node {
	int fd;
	bool sure;		/* a node for certain */
};

static struct node some_node(struct thread *t)
{
	if (!CHANCE(t, 4))
		return (struct node){ me.node[below(t, 2)], true };
	return (struct node){ me.node[2 + below(t, NR_NODES - 2)], false };
}

/* An ioctl as a 32-bit program makes it, from the low memory of the thread. */
static long compat_ioctl(struct thread *t, int node, unsigned long request, const void *arg,
			 size_t size, void *back)
{
	char *low = (char *)LOW_BASE + t->number * 64 * KIB;
	long ret = 54;	/* ioctl */

	memcpy(low, arg, size);
	asm volatile("int $0x80" : "+a"(ret)
		     : "b"((long)node), "c"(request), "d"((long)low)
		     : "memory", "r8", "r9", "r10", "r11");
	memcpy(back, low, size);
	return (int)ret;
}

static bool has_compat;

/* One request: 0 or the negative errno; `arg` has what came back, when it was at a good place. */
static long request(struct thread *t, struct node node, unsigned long number, const char *name,
		    void *arg, size_t size, struct spot spot)
{
	uint64_t word[10] = { 0 };
	long ret;

	memcpy(word, arg, size < sizeof(word) ? size : sizeof(word));
	begin(t, name, spot.address, word[0], word[1], word[2], word[3]);
	t->now->arg[5] = word[9];
	t->ring->requests++;
	if (has_compat && spot.kind == GOOD && size <= 4096 && CHANCE(t, 12)) {
		ret = compat_ioctl(t, node.fd, number, arg, size, arg);
	} else {
		ret = error(syscall(SYS_ioctl, node.fd, number, spot.address));
		if (spot.kind == GOOD)
			memcpy(arg, (void *)spot.address, size);
	}
	end(t, ret);
	if (!node.sure)
		return ret;
	if (ret > 0)
		wrong(t, "%s returned %ld", name, ret);
	if (spot.kind == BAD && ret != -EFAULT && number != NVFS_IOCTL_REMOVE)
		wrong(t, "%s of an argument that cannot be read: %ld", name, ret);
	return ret;
}

static void forget(struct slot *slot)
{
	slot->len = 0;
	slot->mapped = slot->has_record = false;
}

static void call_mmap(struct thread *t)
{
	static const uint64_t lengths[] = { 4 * KIB, 8 * KIB, 60 * KIB, 64 * KIB, 128 * KIB,
					    1024 * KIB, 64 * KIB, 256 * KIB };
	static const int flag_bits[] = { MAP_POPULATE, MAP_LOCKED, MAP_NORESERVE, MAP_NONBLOCK };
	struct file node = { .read = true, .write = true };
	int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_FIXED, which = 0;
	uint64_t len = lengths[below(t, 8)], offset = 0, word, i;
	struct expectation expected;
	bool private;
	struct slot *slot = some_slot(t, &private);
	unsigned int tries = CHANCE(t, 6) ? 0 : 6;
	long ret;

	/* Mostly where there is none. */
	while (private && slot->len && tries--)
		slot = some_slot(t, &private);
	if (CHANCE(t, 3)) {
		switch (below(t, 6)) {
		case 0:
			len = odd_number(&t->rng, len);
			break;
		case 1:
			offset = odd_number(&t->rng, 0);
			break;
		case 2:
			prot = below(t, 8);
			break;
		case 3:
			flags = MAP_PRIVATE | MAP_FIXED;
			break;
		case 4:
			which = 1;
			node.write = false;
			break;
		default:
			len = CHANCE(t, 2) ? 16 * MIB : 16 * MIB + 4096;
		}
	}
	/* Nothing that would go over the room of a slot. */
	if (len > SLOT_ROOM / 2 && len < (uint64_t)1 << 47)
		len = SLOT_ROOM / 2;
	if (CHANCE(t, 8))
		flags |= flag_bits[below(t, 4)];
	expected = expect_mmap(&node, len, prot, flags, offset);
	begin(t, "mmap", (uintptr_t)slot->address, len, prot, flags, offset);
	ret = end(t, error(syscall(SYS_mmap, slot->address, len, prot, flags, me.node[which], offset)));
	if (ret == (long)slot->address)
		ret = 0;
	/* What there was goes first; it is refused when only part of it would go. */
	if (slot->unknown) {
		expected.errors |= E(ENOMEM) | E(EPERM) | E(EINVAL);
	} else if (slot->len && ((len + 4095) & -4096UL) < slot->len) {
		expected.errors |= E(ENOMEM);
		expected.success = false;
	} else if (ret && slot->len) {
		munmap(slot->address, slot->len);
		forget(slot);
	}
	if (!as_expected(&expected, ret))
		wrong(t, "mmap: %ld", ret);
	if (ret)
		return;
	forget(slot);
	slot->prot = prot;
	slot->len = (len + 4095) & -4096UL;
	/* Nothing of anybody shows. */
	if (!private)
		return;
	for (i = 0; i < slot->len; i += 4096 * (1 + below(t, 16)))
		if (copy(t, &word, slot->address + i, sizeof(word)) && word)
			wrong(t, "new shadow memory is not zero");
}

static void call_munmap(struct thread *t)
{
	bool private, whole = !CHANCE(t, 3);
	struct slot *slot = some_slot(t, &private);
	uint64_t len = slot->len ? slot->len : 64 * KIB, at = 0, part = len;
	long ret;

	if (!whole) {
		at = below(t, len / 4096) * 4096;
		part = (1 + below(t, (len - at) / 4096)) * 4096;
		whole = part == len;
	}
	begin(t, "munmap", (uintptr_t)slot->address + at, part, whole, 0, 0);
	ret = end(t, error(munmap(slot->address + at, part)));
	if (private && slot->len && ret != (whole ? 0 : -ENOMEM))
		wrong(t, "munmap of %s: %ld", whole ? "a buffer" : "a part", ret);
	if (whole && !ret)
		forget(slot);
}

static void call_mprotect(struct thread *t)
{
	bool private, whole = !CHANCE(t, 3);
	struct slot *slot = some_slot(t, &private);
	uint64_t len = slot->len ? slot->len : 64 * KIB, at = 0, part = len;
	int prot = CHANCE(t, 3) ? below(t, 8) : PROT_READ | PROT_WRITE;
	long ret;

	if (!whole) {
		at = below(t, len / 4096) * 4096;
		part = (1 + below(t, (len - at) / 4096)) * 4096;
		whole = part == len;
	}
	begin(t, "mprotect", (uintptr_t)slot->address + at, part, prot, 0, 0);
	ret = end(t, error(mprotect(slot->address + at, part, prot)));
	if (!private || !slot->len)
		return;
	/* A file system may be mounted noexec. */
	if (ret == -EACCES && prot & PROT_EXEC)
		return;
	if (!whole && prot != slot->prot && ret != -ENOMEM)
		wrong(t, "mprotect of a part: %ld", ret);
	if (whole && ret)
		wrong(t, "mprotect of a buffer: %ld", ret);
	if (whole && !ret)
		slot->prot = prot;
}

static void call_mremap(struct thread *t)
{
	bool private;
	struct slot *slot = some_slot(t, &private);
	static const uint64_t sizes[] = { 0, 4096, 8192, 65536, 131072, 1 << 20 };
	uint64_t len = slot->len ? slot->len : 64 * KIB, old = len, new = len;
	int flags = below(t, 8);
	char *to = slot->address + SLOT_ROOM / 2;
	long ret;

	if (CHANCE(t, 2))
		old = sizes[below(t, 6)];
	if (CHANCE(t, 2))
		new = sizes[below(t, 6)];
	begin(t, "mremap", (uintptr_t)slot->address, old, new, flags, (uintptr_t)to);
	ret = end(t, error(syscall(SYS_mremap, slot->address, old, new, flags, to)));
	if (!private || !slot->len)
		return;
	if (ret > 0 && (ret != (long)slot->address || new > old || (new < old && new < slot->len)))
		wrong(t, "mremap of %#lx to %#lx bytes: %#lx", old, new, ret);
}

static void call_madvise(struct thread *t)
{
	bool private;
	struct slot *slot = some_slot(t, &private);
	uint64_t len = slot->len ? slot->len : 64 * KIB, at = 0;
	int advice = CHANCE(t, 8) ? 102 + below(t, 2) : below(t, 27);

	if (CHANCE(t, 2)) {
		at = below(t, len / 4096) * 4096;
		len = (1 + below(t, (len - at) / 4096)) * 4096;
	}
	begin(t, "madvise", (uintptr_t)slot->address + at, len, advice, 0, 0);
	end(t, error(madvise(slot->address + at, len, advice)));
}

/* What else can be done to memory. */
static void call_memory(struct thread *t)
{
	bool private;
	struct slot *slot = some_slot(t, &private);
	uint64_t len = slot->len ? slot->len : 64 * KIB, at = below(t, len / 4096) * 4096, page = 4096;
	struct iovec here = { t->page + 8192, 4096 }, there = { slot->address + at, 4096 };
	struct timespec soon = { .tv_nsec = 100000 };
	int fd = me.file[below(t, me.nr_files)].fd, status = -1, node = 0;
	static const char *const views[] = { "/proc/self/smaps", "/proc/self/numa_maps",
					     "/proc/self/pagemap", "/proc/self/maps" };
	unsigned char resident[16];
	unsigned int what = below(t, 15);
	void *address = slot->address + at;
	long ret;

	begin(t, "memory", (uintptr_t)address, what, fd, 0, 0);
	switch (what) {
	case 0:
		ret = copy(t, address, &page, sizeof(page));
		break;
	case 1:
		ret = syscall(SYS_process_vm_readv, shared->pid[below(t, PROCESSES)], &here, 1, &there, 1, 0);
		break;
	case 2:
		memset(here.iov_base, 0, 4096);
		ret = syscall(SYS_process_vm_writev, shared->pid[below(t, PROCESSES)], &here, 1, &there, 1, 0);
		break;
	case 3:
		ret = vmsplice(me.pipe[1], &there, 1, SPLICE_F_NONBLOCK);
		break;
	case 4:
		ret = read(me.pipe[0], here.iov_base, 4096);
		break;
	case 5:
		/* Shadow memory as the target of direct I/O past the module. */
		ret = pread(me.file[below(t, 6)].fd, address, 4096, below(t, 16) * 4096);
		break;
	case 6:
		ret = pwrite(me.file[1].fd, address, 4096, below(t, 16) * 4096);
		break;
	case 7:
		ret = syscall(SYS_futex, address, FUTEX_WAKE, 1, NULL, NULL, 0);
		break;
	case 8:
		ret = syscall(SYS_futex, address, FUTEX_WAIT, 0, &soon, NULL, 0);
		break;
	case 9:
		ret = CHANCE(t, 2) ? mlock(address, page) : munlock(address, page);
		break;
	case 10:
		ret = mincore(address, page, resident);
		break;
	case 11:
		ret = msync(address, page, MS_SYNC);
		break;
	case 12:
		ret = syscall(SYS_move_pages, 0, 1UL, &address, CHANCE(t, 2) ? &node : NULL, &status, 0);
		break;
	case 13:
		ret = syscall(SYS_mbind, address, page, 2, &page, 64UL, 1);
		break;
	default:
		fd = open(views[below(t, 4)], O_RDONLY | O_CLOEXEC);
		while ((ret = pread(fd, t->page + 8192, 4096, below(t, 16) * 512)) > 0 && CHANCE(t, 2))
			;
		close(fd);
	}
	end(t, error(ret));
}

static void call_map(struct thread *t)
{
	bool private;
	struct slot *slot = some_slot(t, &private);
	union nvfs_ioctl_arg arg;
	struct nvfs_ioctl_map *map = &arg.map, given;
	unsigned int tries = 4;
	struct range r = some_range(t);
	struct expectation expected;
	struct node node = some_node(t);
	struct spot spot;
	uint64_t at;
	long ret;

	/* Mostly one that can be mapped. */
	while (private && (slot->mapped || !slot->len) && tries--)
		slot = some_slot(t, &private);
	memset(&arg, 0, sizeof(arg));
	map->cpuvaddr = (uintptr_t)slot->address;
	map->pdevinfo = me.info[r.gpu].pdevinfo;
	at = r.size ? below(t, r.size / GPAGE) * GPAGE : 0;
	if (CHANCE(t, 4))
		at += below(t, 16) * 4096;
	else if (CHANCE(t, 8))
		at += below(t, 4096);
	map->gpuvaddr = r.va + at;
	map->size = at < r.size ? r.size - at : 4096;
	if (CHANCE(t, 3) && map->size > 4096)
		map->size = 1 + below(t, map->size);
	map->end_fence_addr = (uintptr_t)slot->meta + slot->maps % SLOT_METAS * 4096;
	if (CHANCE(t, 6))
		map->end_fence_addr = (uintptr_t)shared->page[2 + below(t, 2)];
	map->sbuf_block = slot->len / BLOCK;
	if (CHANCE(t, 5) && map->sbuf_block)
		map->sbuf_block = 1 + below(t, map->sbuf_block);
	map->is_bounce_buffer = below(t, 3);
	if (CHANCE(t, 3)) {
		switch (below(t, 9)) {
		case 0:
			map->size = odd_number(&t->rng, map->size);
			break;
		case 1:
			map->pdevinfo = odd_number(&t->rng, map->pdevinfo);
			break;
		case 2:
			map->cpuvaddr = no_buffer(t, slot);
			break;
		case 3:
			map->gpuvaddr = odd_number(&t->rng, map->gpuvaddr);
			break;
		case 4:
			/* What is another process's. */
			map->gpuvaddr = shared->victim_va[below(t, 2)];
			break;
		case 5:
			map->end_fence_addr = odd_number(&t->rng, map->end_fence_addr);
			/* Not that of another slot. */
			if (map->end_fence_addr - (uintptr_t)me.slot[0].meta < NR_SLOTS * 64 * KIB)
				map->end_fence_addr |= 8;
			break;
		case 6:
			map->end_fence_addr = (uintptr_t)hostile_page(below(t, NR_HOSTILE));
			break;
		case 7:
			/* A meta block in shadow memory, perhaps its own. */
			map->end_fence_addr = (uintptr_t)(CHANCE(t, 2) ? slot->address :
				me.slot[THREADS * PRIVATE_SLOTS].address);
			break;
		default:
			map->sbuf_block = odd_number(&t->rng, map->sbuf_block);
		}
	}
	given = *map;
	spot = put(t, &arg, CHANCE(t, 2) ? sizeof(arg) : sizeof(*map), private ? 30 : 3);
	/* What an odd place does to a private buffer is not known. */
	if (spot.kind == ODD && private)
		spot = put_good(t, &arg, sizeof(arg));
	expected = expect_map(map, map->cpuvaddr == (uintptr_t)slot->address ? slot : NULL);
	if (given.gpuvaddr == shared->victim_va[0] || given.gpuvaddr == shared->victim_va[1])
		expected.success = false;
	ret = request(t, node, NVFS_IOCTL_MAP, "MAP", &arg, sizeof(*map), spot);
	if (!ret)
		t->ring->mapped++;
	if (spot.kind != GOOD || !private || (!node.sure && ret))
		return;
	if (ret && ret != -EPERM) {
		wrong(t, "MAP: errno %ld", -ret);
		return;
	}
	if (!as_expected(&expected, ret ? map->ioctl_return : 0)) {
		wrong(t, "MAP of %#llx+%#llx at %#llx: %ld, reason %lld",
		      (unsigned long long)given.gpuvaddr, (unsigned long long)given.size,
		      (unsigned long long)given.cpuvaddr, ret, (long long)map->ioctl_return);
		return;
	}
	if (ret)
		return;
	map->end_fence_addr = given.end_fence_addr;
	if (memcmp(map, &given, sizeof(given)))
		wrong(t, "MAP has changed its argument");
	slot->mapped = true;
	slot->gpu_va = given.gpuvaddr;
	slot->gpu_size = given.size;
	slot->used = given.end_fence_addr - (uintptr_t)slot->meta < SLOT_METAS * 4096 ?
			     (struct nvfs_meta *)given.end_fence_addr : NULL;
	/* Its meta block is its own, as of old transfers there is none that still comes. */
	slot->stray = false;
	slot->maps++;
}

/* ---- READ and WRITE ---- */

struct io {
	struct nvfs_ioctl_io arg;
	struct slot *slot;
	bool private;
	const struct file *file;	/* NULL: not known */
};

static const struct file *some_file(struct thread *t)
{
	/* Mostly where data can be moved. */
	if (!CHANCE(t, 5)) {
		unsigned int i, first = below(t, me.nr_files);

		for (i = 0; i < me.nr_files; i++) {
			const struct file *f = &me.file[(first + i) % me.nr_files];

			if (f->moves && f->direct)
				return f;
		}
	}
	return &me.file[below(t, me.nr_files)];
}

static void spoil_io(struct thread *t, struct io *io)
{
	struct nvfs_ioctl_io *arg = &io->arg;
	static const int fds[] = { -1, INT_MIN, INT_MAX, NO_FD, 1 << 20 };

	switch (below(t, 13)) {
	case 0:
		arg->cpuvaddr = no_buffer(t, io->slot);
		break;
	case 1:
		arg->offset = odd_number(&t->rng, arg->offset);
		break;
	case 2:
	case 3:
		arg->size = odd_number(&t->rng, arg->size);
		break;
	case 4:
		arg->end_fence_value = 0;
		break;
	case 5:
		arg->file.inum = odd_number(&t->rng, arg->file.inum);
		break;
	case 6:
		arg->file.generation = below(t, 1UL << 32);
		break;
	case 7:
		arg->file.majdev = odd_number(&t->rng, arg->file.majdev);
		break;
	case 8:
		arg->file.mindev = odd_number(&t->rng, arg->file.mindev);
		break;
	case 9:
	case 10:
		arg->file.devptroff = odd_number(&t->rng, arg->file.devptroff);
		break;
	case 11:
		arg->fd = CHANCE(t, 2) ? HOT_FD : fds[below(t, 5)];
		io->file = NULL;
		break;
	default:
		arg->flags = below(t, 256);
	}
}

static void make_io(struct thread *t, struct io *io)
{
	struct nvfs_ioctl_io *arg = &io->arg;
	uint64_t start, room, blocks;
	unsigned int tries = 4;
	dev_t dev;

	memset(io, 0, sizeof(*io));
	io->slot = some_slot(t, &io->private);
	/* Mostly one that is mapped. */
	while (!io->slot->mapped && io->private && tries--)
		io->slot = some_slot(t, &io->private);
	io->file = some_file(t);
	arg->cpuvaddr = (uintptr_t)io->slot->address;
	arg->fd = io->file->fd;
	arg->flags = (CHANCE(t, 2) ? NVFS_IO_SYNC : 0) | (CHANCE(t, 8) ? below(t, 8) << 1 : 0);
	dev = io->file->block ? io->file->st.st_rdev : io->file->st.st_dev;
	arg->file.inum = io->file->st.st_ino;
	arg->file.majdev = major(dev);
	arg->file.mindev = minor(dev);
	arg->end_fence_value = ++io->slot->fence;
	/* From the start of the pinned memory; bytes before the buffer's own are not reached. */
	start = below(t, (io->slot->gpu_size + GPAGE - 1) / GPAGE) * GPAGE;
	if (CHANCE(t, 3))
		start += below(t, 16) * 4096;
	if (start < io->slot->gpu_va % GPAGE)
		start += GPAGE;
	arg->file.devptroff = start - io->slot->gpu_va % GPAGE;
	room = arg->file.devptroff < io->slot->gpu_size ? io->slot->gpu_size - arg->file.devptroff : 0;
	if (start % GPAGE && room > GPAGE - start % GPAGE)
		room = GPAGE - start % GPAGE;
	blocks = 1 + below(t, CHANCE(t, 8) ? 512 : 24);
	if (blocks > room / BLOCK)
		blocks = room / BLOCK;
	arg->size = blocks * BLOCK;
	arg->offset = below(t, FILE_BYTES / BLOCK + 4) * BLOCK;
	if (CHANCE(t, 4))
		spoil_io(t, io);
	if (CHANCE(t, 24))
		spoil_io(t, io);
}

static struct expectation expect(const struct io *io, bool write)
{
	bool same = io->arg.cpuvaddr == (uintptr_t)io->slot->address;

	return expect_io(&io->arg, write, same ? io->slot : NULL, io->file);
}

/* An asynchronous transfer was accepted: its end must come. */
static void await(struct thread *t, struct slot *slot, uint64_t fence)
{
	double limit = nvfs_seconds() + 60;
	int64_t result;

	begin(t, "wait", (uintptr_t)slot->address, fence, 0, 0, 0);
	while (__atomic_load_n(&slot->used->end_fence_val, __ATOMIC_ACQUIRE) != fence) {
		if (shared->stop)
			return;
		if (nvfs_seconds() > limit) {
			wrong(t, "the end of an asynchronous transfer does not come");
			return;
		}
		sched_yield();
	}
	result = end(t, slot->used->result);
	t->ring->fences++;
	if (result < -127 || result > (int64_t)slot->gpu_size)
		wrong(t, "an asynchronous transfer ended with %lld", (long long)result);
}

static void call_io(struct thread *t, bool write)
{
	struct io io;
	union nvfs_ioctl_arg arg;
	struct expectation expected;
	struct node node = some_node(t);
	struct spot spot;
	bool sync;
	long ret, told;

	make_io(t, &io);
	expected = expect(&io, write);
	memset(&arg, 0, sizeof(arg));
	arg.io = io.arg;
	arg.io.ioctl_return = 12345;
	spot = put(t, &arg, CHANCE(t, 2) ? sizeof(arg) : sizeof(arg.io), io.private ? 40 : 4);
	if (spot.kind == ODD && io.private)
		spot = put_good(t, &arg, sizeof(arg));
	/* Who waits for the fence must know all transfers that may write it. */
	sync = io.arg.flags & NVFS_IO_SYNC;
	ret = request(t, node, write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, write ? "WRITE" : "READ",
		      &arg, sizeof(arg.io), spot);
	if (!node.sure) {
		io.slot->stray |= !sync;
		return;
	}
	if (spot.kind != GOOD)
		return;
	if (ret && ret != -EPERM) {
		wrong(t, "%s: errno %ld", write ? "WRITE" : "READ", -ret);
		return;
	}
	told = arg.io.ioctl_return;
	t->ring->moved += !ret && told > 0;
	if (ret && told < 0 && told > -128)
		t->ring->reason[-told]++;
	arg.io.ioctl_return = io.arg.ioctl_return;
	if (memcmp(&arg.io, &io.arg, sizeof(io.arg)))
		wrong(t, "READ or WRITE has changed its argument");
	if (!ret && (told < 0 || (uint64_t)told > io.arg.size))
		wrong(t, "%s of %#llx bytes brought %ld", write ? "WRITE" : "READ",
		      (unsigned long long)io.arg.size, told);
	if (ret && told >= 0)
		wrong(t, "a failed %s has the reason %ld", write ? "WRITE" : "READ", told);
	/* Of a shared buffer nothing else is known. */
	if (!io.private)
		return;
	if (!as_expected(&expected, told))
		wrong(t, "%s of %#llx bytes, offset %#llx, devptroff %#llx, fd %d (%s), flags %#x, gpu %#llx+%#llx: %ld",
		      write ? "WRITE" : "READ", (unsigned long long)io.arg.size,
		      (unsigned long long)io.arg.offset, (unsigned long long)io.arg.file.devptroff,
		      io.arg.fd, io.file ? io.file->name : "?", io.arg.flags,
		      (unsigned long long)io.slot->gpu_va, (unsigned long long)io.slot->gpu_size, told);
	if (ret || sync || io.slot->stray || !io.slot->used)
		return;
	if (!CHANCE(t, 3))
		await(t, io.slot, io.arg.end_fence_value);
	else
		io.slot->stray = true;
}

static void call_read(struct thread *t)
{
	call_io(t, false);
}

static void call_write(struct thread *t)
{
	call_io(t, true);
}

static void call_batch(struct thread *t)
{
	static __thread struct io io[NVFS_MAX_BATCH];
	static __thread struct nvfs_ioctl_io entry[NVFS_MAX_BATCH + 1];
	unsigned int n = CHANCE(t, 20) ? NVFS_MAX_BATCH : 1 + below(t, 6), i, j;
	struct nvfs_ioctl_batch batch = { .ctx_id = t->index, .nents = n };
	struct spot entries, spot;
	struct node node = some_node(t);
	bool sure = node.sure, success = true, known[NVFS_MAX_BATCH];
	long ret;

	for (i = 0; i < n; i++) {
		bool write = CHANCE(t, 2);

		make_io(t, &io[i]);
		io[i].arg.flags &= ~0x70;
		io[i].arg.flags |= write << NVFS_IO_OPTYPE_SHIFT;
		if (CHANCE(t, 60)) {
			io[i].arg.flags |= (1 + below(t, 7)) << NVFS_IO_OPTYPE_SHIFT;
			write = io[i].arg.flags & 0x10;
			success &= !(io[i].arg.flags & 0x60);
		}
		if (!io[i].private)
			sure = false;
		/* A transfer of a size of its own may fail; what must fail must. */
		else if (!expect(&io[i], write).success)
			success = false;
		for (j = 0; j < i; j++)
			success &= io[j].arg.cpuvaddr != io[i].arg.cpuvaddr;
		entry[i] = io[i].arg;
	}
	entries = put(t, entry, n * sizeof(*entry), 12);
	sure &= entries.kind == GOOD;
	batch.io_entries = (void *)entries.address;
	if (CHANCE(t, 10)) {
		batch.nents = odd_number(&t->rng, n);
		success &= batch.nents - 1 < NVFS_MAX_BATCH;
		sure &= batch.nents == n;
	}
	success &= entries.kind != BAD;
	/* After the entries, which are as long as the room. */
	memcpy(t->page, &batch, sizeof(batch));
	spot = (struct spot){ (uintptr_t)t->page, GOOD };
	if (CHANCE(t, 20)) {
		spot = put(t, &batch, sizeof(batch), 1);
		sure = false;
		if (spot.kind == GOOD)
			spot.kind = ODD;
	}
	for (i = 0; i < n; i++)
		known[i] = io[i].private && io[i].slot->used && !io[i].slot->stray;
	for (i = 0; i < n; i++)
		if (io[i].private)
			io[i].slot->stray = true;
	ret = request(t, node, NVFS_IOCTL_BATCH_IO, "BATCH_IO", &batch, sizeof(batch), spot);
	if (!node.sure || spot.kind != GOOD)
		return;
	if (ret && ret != -EPERM)
		wrong(t, "BATCH_IO: errno %ld", -ret);
	if (!ret && sure && !success)
		wrong(t, "BATCH_IO of %u entries, one of which must fail, succeeds", n);
	/* Each is on a buffer of its own, and is the only one that may still tell its end there. */
	for (i = 0; !ret && sure && success && i < n; i++)
		if (known[i] && !(io[i].arg.flags & NVFS_IO_SYNC)) {
			await(t, io[i].slot, io[i].arg.end_fence_value);
			io[i].slot->stray = false;
		}
}

/* ---- RDMA records and the rest ---- */

static void call_rdma(struct thread *t)
{
	bool private;
	struct slot *slot = some_slot(t, &private);
	union nvfs_ioctl_arg arg;
	struct node node = some_node(t);
	struct spot spot;
	unsigned int what = below(t, 3), i;
	bool there, good = true;
	long ret;

	memset(&arg, 0, sizeof(arg));
	arg.set_rdma.cpuvaddr = (uintptr_t)slot->address;
	if (CHANCE(t, 6))
		arg.set_rdma.cpuvaddr = no_buffer(t, slot);
	there = arg.set_rdma.cpuvaddr == (uintptr_t)slot->address && slot->len && slot->mapped &&
		slot->prot & PROT_WRITE;
	if (what == 0) {
		for (i = 8; i < 100; i++)
			((uint8_t *)&arg)[i] = below(t, 256);
		arg.set_rdma.version = CHANCE(t, 6) ? below(t, 256) : 2;
		arg.set_rdma.nkeys = CHANCE(t, 6) ? odd_number(&t->rng, 1) : 1;
		good = arg.set_rdma.version >= 2 && arg.set_rdma.nkeys == 1;
	}
	spot = put(t, &arg, sizeof(arg), private ? 40 : 4);
	if (spot.kind == ODD && private)
		spot = put_good(t, &arg, sizeof(arg));
	switch (what) {
	case 0:
		ret = request(t, node, NVFS_IOCTL_SET_RDMA_REG_INFO, "SET_RDMA", &arg, 104, spot);
		break;
	case 1:
		ret = request(t, node, NVFS_IOCTL_GET_RDMA_REG_INFO, "GET_RDMA", &arg, 64, spot);
		break;
	default:
		ret = request(t, node, NVFS_IOCTL_CLEAR_RDMA_REG_INFO, "CLEAR_RDMA", &arg, 8, spot);
	}
	if (!private)
		return;
	if (!node.sure)
		slot->has_record = false;
	if (spot.kind != GOOD || !node.sure)
		return;
	if (ret && ret != (what == 2 ? -EPERM : -EINVAL))
		wrong(t, "RDMA request: errno %ld", -ret);
	if (!ret && !there)
		wrong(t, "an RDMA request without a buffer succeeds");
	if (ret && there && good)
		wrong(t, "an RDMA request fails: %ld", ret);
	if (!ret && !good)
		wrong(t, "a wrong SET_RDMA succeeds");
	if (!there)
		return;
	if (what == 1) {
		if (slot->has_record && memcmp(&arg.get_rdma.info, &slot->record, 44))
			wrong(t, "GET_RDMA brings another record");
		return;
	}
	memset(&slot->record, 0, sizeof(slot->record));
	slot->has_record = true;
	if (what == 0 && good) {
		slot->record = (struct nvfs_rdma_info){
			.version = arg.set_rdma.version,
			.flags = arg.set_rdma.flags,
			.lid = arg.set_rdma.lid,
			.qp_num = arg.set_rdma.qp_num,
			.rem_vaddr = slot->gpu_va,
			.size = slot->gpu_size > UINT_MAX ? UINT_MAX : slot->gpu_size,
			.rkey = arg.set_rdma.rkey[0],
			.gid = { arg.set_rdma.gid[0], arg.set_rdma.gid[1] },
			.dc_key = arg.set_rdma.dc_key,
		};
	}
}

static void call_other(struct thread *t)
{
	union nvfs_ioctl_arg arg;
	struct node node = some_node(t);
	/* Numbers of the nodes only: others mean something to the VFS. */
	unsigned int number = CHANCE(t, 2) ? 1 : CHANCE(t, 2) ? 9 + below(t, 200) : 0;
	unsigned long request_number = _IOW(NVFS_IOCTL_MAGIC, number, int);
	struct spot spot;
	long ret;

	memset(&arg, 0, sizeof(arg));
	if (CHANCE(t, 4))
		request_number = _IOC(below(t, 4), NVFS_IOCTL_MAGIC, below(t, 12), 5 + below(t, 16000));
	spot = put(t, &arg, sizeof(arg), 4);
	ret = request(t, node, request_number, "other ioctl", &arg, sizeof(arg), spot);
	if (!node.sure || spot.kind != GOOD)
		return;
	if (request_number == NVFS_IOCTL_REMOVE ? ret != 0 : ret != -ENOTTY)
		wrong(t, "ioctl %#lx: %ld", request_number, ret);
}

static void call_open(struct thread *t)
{
	static const int modes[] = { O_RDWR, O_RDWR, O_RDONLY, O_WRONLY, O_PATH, O_RDWR | O_DIRECT };
	unsigned int i = 2 + below(t, NR_NODES - 2);
	int fd, mode = modes[below(t, 6)];

	begin(t, "open", i, mode, 0, 0, 0);
	fd = nvfs_open(below(t, 16), mode);
	end(t, fd);
	if (fd < 0) {
		/* The VFS opens it first, and closes it again. */
		if (fd != -EINVAL || !(mode & O_DIRECT))
			wrong(t, "open: %d", fd);
		return;
	}
	dup2(fd, me.node[i]);
	close(fd);
	if (CHANCE(t, 8))
		close(me.node[i]);
}

static void call_alloc(struct thread *t)
{
	static const uint64_t sizes[] = { GPAGE, GPAGE, 128 * KIB, 256 * KIB, MIB, 3 * MIB };
	struct range *r = &me.range[below(t, NR_RANGES)];
	unsigned int gpu = CHANCE(t, 6);
	uint64_t va, size = sizes[below(t, 6)];
	int ret;

	if (r->va)
		return;
	begin(t, "GPU alloc", gpu, size, 0, 0, 0);
	ret = gpu_alloc(&me.gpu[gpu], size, below(t, 2), &va);
	end(t, ret);
	if (ret)
		return;
	r->size = size;
	r->gpu = gpu;
	/* Another thread may have been quicker; what is then lost goes at exit. */
	__atomic_store_n(&r->va, va, __ATOMIC_RELEASE);
}

static void call_free(struct thread *t)
{
	struct range *r = &me.range[below(t, NR_RANGES)];
	unsigned int gpu = r->gpu;
	uint64_t va = __atomic_exchange_n(&r->va, 0, __ATOMIC_ACQ_REL);

	if (!va)
		return;
	begin(t, "GPU free", gpu, va, 0, 0, 0);
	end(t, gpu_free(&me.gpu[gpu], va));
}

static void call_gpu_fault(struct thread *t)
{
	static const enum fake_nvidia_call calls[] = {
		FAKE_NVIDIA_GET_PAGES, FAKE_NVIDIA_GET_PAGES_PERSISTENT, FAKE_NVIDIA_DMA_MAP_PAGES,
		FAKE_NVIDIA_PUT_PAGES, FAKE_NVIDIA_FREE_PAGE_TABLE,
	};
	unsigned int which = below(t, 5);
	/* What gives back is only made slow. */
	int failure = which < 3 ? CHANCE(t, 2) ? -ENOMEM : -EINVAL : 0;

	begin(t, "GPU fault", calls[which], failure, 0, 0, 0);
	end(t, gpu_fault(&me.gpu[0], calls[which], failure, below(t, 4), below(t, 3), below(t, 3)));
}

static void call_files(struct thread *t)
{
	/* Only what is open for writing can be hurt, so not the victim's file. */
	struct file *f = &me.file[below(t, me.nr_files)];
	unsigned int what = below(t, 6);
	uint64_t at = below(t, 512) * 4096, len = (1 + below(t, 64)) * 4096;
	long ret = 0;

	if (!f->regular || !f->moves)
		return;
	begin(t, "file", what, f->fd, at, len, 0);
	switch (what) {
	case 0:
		ret = f->write ? ftruncate(f->fd, CHANCE(t, 4) ? at + below(t, 4096) : FILE_BYTES) : 0;
		break;
	case 1:
		ret = fallocate(f->fd, 3, at, len);	/* a hole */
		break;
	case 2:
		ret = fallocate(f->fd, CHANCE(t, 2) ? 0 : 16, at, len);
		break;
	case 3:
		ret = fsync(f->fd);
		break;
	case 4:
		/* Through the page cache, by way of the mapped page's file. */
		ret = copy(t, hostile_page(OF_A_FILE) + 512, &at, sizeof(at)) - 1;
		break;
	default:
		ret = posix_fadvise(f->fd, at, len, POSIX_FADV_DONTNEED);
	}
	end(t, error(ret));
}

static void call_parameter(struct thread *t)
{
	static const char *const settings[][2] = {
		{ "p2pdma", "auto" }, { "p2pdma", "off" }, { "p2pdma", "only" }, { "p2pdma", "auto" },
		{ "rw_stats_enabled", "1" }, { "rw_stats_enabled", "0" },
		{ "peer_stats_enabled", "1" }, { "peer_stats_enabled", "0" },
		{ "use_legacy_p2p_allocation", "1" }, { "use_legacy_p2p_allocation", "0" },
		{ "dbg_enabled", "1" }, { "info_enabled", "0" }, { "max_devices", "3" },
		{ "p2pdma", "nonsense" }, { "rw_stats_enabled", "-1" }, { "rw_stats_enabled", "4294967295" },
	};
	unsigned int i = below(t, sizeof(settings) / sizeof(*settings));

	begin(t, "parameter", i, 0, 0, 0, 0);
	if (CHANCE(t, 8))
		end(t, nvfs_write_text(NVFS_PROC "stats", "0"));
	else
		end(t, nvfs_set_parameter(settings[i][0], settings[i][1]));
}

static void call_proc(struct thread *t)
{
	static const char *const files[] = { "stats", "counters", "modules", "bridges", "version",
					     "peer_distance", "peer_affinity", "devcount", "paths" };
	unsigned int i = below(t, 9), n;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), NVFS_PROC "%s", files[i]);
	begin(t, "proc", i, 0, 0, 0, 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (n = 0; n < 3; n++) {
		if (CHANCE(t, 2))
			lseek(fd, below(t, 3000), SEEK_SET);
		end(t, error(read(fd, t->page + 8192, 1 + below(t, 8000))));
	}
	close(fd);
}

/* Descriptors to and from other processes. */
static void call_mail(struct thread *t)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	int fd;

	begin(t, "mail", 0, 0, 0, 0, 0);
	if (CHANCE(t, 2)) {
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int));
		fd = CHANCE(t, 2) ? me.node[below(t, NR_NODES)] : me.file[below(t, me.nr_files)].fd;
		memcpy(CMSG_DATA(head), &fd, sizeof(int));
		end(t, error(sendmsg(me.mail, &msg, MSG_DONTWAIT)));
		return;
	}
	if (end(t, error(recvmsg(me.mail, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC))) < 0)
		return;
	head = CMSG_FIRSTHDR(&msg);
	if (!head)
		return;
	memcpy(&fd, CMSG_DATA(head), sizeof(int));
	dup2(fd, CHANCE(t, 2) ? HOT_FD : me.node[2 + below(t, NR_NODES - 2)]);
	close(fd);
}

/* A child has the descriptors, not the buffers; it may be killed at any moment. */
static void call_fork(struct thread *t)
{
	unsigned int i, now = below(t, 3);
	struct timespec pause = { .tv_nsec = below(t, 3000000) };
	pid_t pid;

	if (t->child)
		return;
	begin(t, "fork", now, 0, 0, 0, 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		t->child = true;
		t->rng = mix(t->rng, 0xc41d);
		for (i = 0; i < NR_SLOTS; i++) {
			forget(&me.slot[i]);
			me.slot[i].stray = true;
		}
		/* GPU memory belongs to who opened the device. */
		if (CHANCE(t, 2)) {
			gpu_open(&me.gpu[0], 0);
			memset(me.range, 0, sizeof(me.range));
		}
		for (i = 0; i < CHILD_CALLS && !shared->stop; i++)
			one_call(t);
		_exit(0);
	}
	end(t, error(pid));
	if (pid < 0)
		return;
	if (now == 0) {
		nanosleep(&pause, NULL);
		kill(pid, SIGKILL);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static const struct {
	const char *name;
	void (*call)(struct thread *t);
	unsigned int weight;
} kinds[] = {
	{ "mmap", call_mmap, 80 },
	{ "munmap", call_munmap, 25 },
	{ "mprotect", call_mprotect, 20 },
	{ "mremap", call_mremap, 15 },
	{ "madvise", call_madvise, 25 },
	{ "memory", call_memory, 40 },
	{ "map", call_map, 160 },
	{ "read", call_read, 200 },
	{ "write", call_write, 160 },
	{ "batch", call_batch, 60 },
	{ "rdma", call_rdma, 60 },
	{ "other", call_other, 30 },
	{ "open", call_open, 20 },
	{ "alloc", call_alloc, 60 },
	{ "free", call_free, 15 },
	{ "gpufault", call_gpu_fault, 4 },
	{ "files", call_files, 20 },
	{ "parameter", call_parameter, 6 },
	{ "proc", call_proc, 8 },
	{ "mail", call_mail, 12 },
	{ "fork", call_fork, 4 },
};
#define NR_KINDS (sizeof(kinds) / sizeof(*kinds))

static unsigned int weight[NR_KINDS], all_weights;

/* Only those named in `wanted`, separated by commas; all without it. */
void list_calls(const char *wanted)
{
	char list[256], name[32];
	unsigned int i;

	snprintf(list, sizeof(list), ",%s,", wanted ? wanted : "");
	for (i = 0; i < NR_KINDS; i++) {
		snprintf(name, sizeof(name), ",%s,", kinds[i].name);
		weight[i] = !wanted || !*wanted || strstr(list, name) ? kinds[i].weight : 0;
		all_weights += weight[i];
	}
	if (!all_weights)
		tap_bail("no such calls: %s", wanted);
	has_compat = nvfs_has_compat();
	tap_diag("32-bit ioctls: %s", has_compat ? "yes" : "no");
}

void one_call(struct thread *t)
{
	uint64_t n = below(t, all_weights);
	unsigned int i;

	for (i = 0; n >= weight[i]; i++)
		n -= weight[i];
	kinds[i].call(t);
	t->index++;
	__atomic_fetch_add(&t->ring->calls, 1, __ATOMIC_RELAXED);
}
