// SPDX-License-Identifier: GPL-2.0
/*
 * Nobody reaches memory that is not theirs: GPU memory that was freed and has another owner,
 * buffers of another process, shadow memory that another process had.
 *
 * usage: isolation FILE; as root. WAY=callback in the environment: the drive's driver has hooks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE	(1 * MIB)
#define PAGE	4096
#define NOBODY	65534
#define SECRET	0x5ec2e7

static const char *path;
static bool by_callback;	/* the drive has hooks */

/* What a process needs to do transfers. */
struct user {
	struct gpu gpu;
	struct fake_nvidia_info info;
	int node;
	uint64_t va;
	struct nvfs_buffer buf;
};

static bool user_open(struct user *u)
{
	memset(u, 0, sizeof(*u));
	u->node = nvfs_open(0, O_RDWR);
	return u->node >= 0 && !gpu_open(&u->gpu, 0) && !gpu_info(&u->gpu, &u->info);
}

static bool user_begin(struct user *u)
{
	return user_open(u) && !gpu_alloc(&u->gpu, SIZE, 0, &u->va) &&
	       !nvfs_register(&u->buf, u->node, u->va, SIZE, SIZE, u->info.pdevinfo);
}

static void user_end(struct user *u)
{
	nvfs_unregister(&u->buf);
	close(u->node);
	gpu_close(&u->gpu);
}

/* Runs f in a child, with another user id if that is not 0. Returns its exit code, or -1. */
static int in_child(uid_t uid, int (*f)(void *), void *arg)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (uid && (setgid(uid) || setuid(uid)))
			_exit(100);
		_exit(f(arg));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static bool all_are(const void *memory, uint8_t byte, size_t size)
{
	const uint8_t *p = memory;
	size_t i;

	for (i = 0; i < size; i++)
		if (p[i] != byte)
			return false;
	return true;
}

/* any_of: whether one of SIZE bytes' words is of that pattern. */
static bool any_of(const char *memory, uint64_t seed)
{
	const uint64_t *word = (const uint64_t *)memory;
	size_t i, words = SIZE / sizeof(*word);

	for (i = 0; i < words; i++)
		if (word[i] - pattern_word(seed, 0) < words)
			return true;
	return false;
}

/* ---- a process's memory, through other doors ---- */

struct door {
	pid_t target;
	char *address;
};

/* EPERM or EACCES by all doors. */
static int doors_closed(void *arg)
{
	struct door *door = arg;
	char name[64], data[8];
	struct iovec mine = { data, 8 }, theirs = { door->address, 8 };

	snprintf(name, sizeof(name), "/proc/%d/mem", door->target);
	if (open(name, O_RDWR) >= 0 || errno != EACCES)
		return 1;
	if (process_vm_readv(getpid(), &mine, 1, &mine, 1, 0) != 8)
		return 2;
	if (process_vm_readv(door->target, &mine, 1, &theirs, 1, 0) >= 0 || errno != EPERM)
		return 3;
	if (process_vm_writev(door->target, &mine, 1, &theirs, 1, 0) >= 0 || errno != EPERM)
		return 4;
	return ptrace(PTRACE_ATTACH, door->target, 0, 0) >= 0 || errno != EPERM ? 5 : 0;
}

/* Root sees by all doors what the process itself sees: 0xa5, and nothing when it is unmapped. */
static int doors_show(void *arg)
{
	struct door *door = arg;
	char name[64], data[64] = { 0 };
	struct iovec mine = { data, 64 }, theirs = { door->address, 64 };
	int status, mem;
	long word;

	snprintf(name, sizeof(name), "/proc/%d/mem", door->target);
	mem = open(name, O_RDWR);
	if (mem < 0 || pread(mem, data, 64, (uintptr_t)door->address) != 64 ||
	    !all_are(data, 0xa5, 64))
		return 1;
	memset(data, 0, 64);
	if (process_vm_readv(door->target, &mine, 1, &theirs, 1, 0) != 64 ||
	    !all_are(data, 0xa5, 64))
		return 2;
	if (ptrace(PTRACE_ATTACH, door->target, 0, 0) || waitpid(door->target, &status, 0) < 0)
		return 3;
	errno = 0;
	word = ptrace(PTRACE_PEEKDATA, door->target, door->address, 0);
	if (errno || !all_are(&word, 0xa5, sizeof(word)))
		return 4;
	if (ptrace(PTRACE_POKEDATA, door->target, door->address, word) ||
	    ptrace(PTRACE_DETACH, door->target, 0, 0))
		return 5;
	return 0;
}

static int doors_gone(void *arg)
{
	struct door *door = arg;
	char name[64], data[64];
	struct iovec mine = { data, 64 }, theirs = { door->address, 64 };
	int mem;

	snprintf(name, sizeof(name), "/proc/%d/mem", door->target);
	mem = open(name, O_RDWR);
	if (mem < 0 || pread(mem, data, 64, (uintptr_t)door->address) >= 0 || errno != EIO)
		return 1;
	return process_vm_readv(door->target, &mine, 1, &theirs, 1, 0) >= 0 || errno != EFAULT;
}

/* Whether root finds nothing of SECRET in it, by all doors. */
static int doors_show_no_secret(void *arg)
{
	static char data[SIZE];
	struct door *door = arg;
	struct iovec mine = { data, SIZE }, theirs = { door->address, SIZE };
	char name[64];
	size_t at;
	int mem;

	snprintf(name, sizeof(name), "/proc/%d/mem", door->target);
	mem = open(name, O_RDWR);
	if (mem < 0 || pread(mem, data, SIZE, (uintptr_t)door->address) != (ssize_t)SIZE ||
	    any_of(data, SECRET))
		return 1;
	if (process_vm_readv(door->target, &mine, 1, &theirs, 1, 0) != (ssize_t)SIZE ||
	    any_of(data, SECRET))
		return 2;
	if (ptrace(PTRACE_ATTACH, door->target, 0, 0) || waitpid(door->target, NULL, 0) < 0)
		return 3;
	for (at = 0; at < SIZE; at += PAGE) {
		errno = 0;
		*(long *)(data + at) = ptrace(PTRACE_PEEKDATA, door->target, door->address + at, 0);
		if (errno)
			return 4;
	}
	if (ptrace(PTRACE_DETACH, door->target, 0, 0))
		return 5;
	return any_of(data, SECRET) ? 6 : 0;
}

/* ---- GPU memory that has another owner now ---- */

/* Shared with the owner. */
struct next {
	pid_t pid;
	uint64_t bar_offset;	/* of the memory that was freed */
	bool same;		/* the next owner got it */
	bool unharmed;		/* and finds in it what it put there */
	int told[2], tell[2];	/* to and from the next owner */
};

static void next_owner(struct next *next)
{
	uint64_t va, at, run;
	struct user u;
	int64_t bad;
	char byte;
	int i;

	/* The stand-in driver goes through its memory in order, so this is found soon. */
	next->same = false;
	if (!user_open(&u))
		_exit(1);
	for (i = 0; i < 4096 && !next->same; i++) {
		if (gpu_alloc(&u.gpu, SIZE, 0, &va) || gpu_where(&u.gpu, va, &at, &run))
			break;
		next->same = at == next->bar_offset;
	}
	if (next->same && gpu_fill(&u.gpu, va, SIZE, SECRET))
		_exit(2);
	if (write(next->tell[1], "", 1) != 1 || read(next->told[0], &byte, 1) != 1)
		_exit(3);
	next->unharmed = next->same && !gpu_check(&u.gpu, va, SIZE, SECRET, &bad) && bad < 0;
	_exit(0);
}

static struct next *next_begin(uint64_t bar_offset)
{
	struct next *next = mmap(NULL, sizeof(*next), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	char byte;

	if (next == MAP_FAILED || pipe(next->told) || pipe(next->tell))
		tap_bail("no pipe");
	next->bar_offset = bar_offset;
	pid = fork();
	if (!pid)
		next_owner(next);
	next->pid = pid;
	close(next->tell[1]);
	if (pid < 0 || read(next->tell[0], &byte, 1) != 1)
		tap_bail("no next owner");
	return next;
}

static bool next_end(struct next *next)
{
	int status;

	return write(next->told[1], "", 1) == 1 && waitpid(next->pid, &status, 0) == next->pid &&
	       WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static ssize_t batch(const struct nvfs_buffer *buf, int fd, unsigned int op)
{
	union nvfs_ioctl_arg entry = nvfs_io_arg(buf, fd, 0, SIZE, 0), arg;

	memset(&arg, 0, sizeof(arg));
	entry.io.flags |= op << NVFS_IO_OPTYPE_SHIFT;
	arg.batch.nents = 1;
	arg.batch.io_entries = &entry.io;
	return nvfs_ioctl(buf->node, NVFS_IOCTL_BATCH_IO, &arg);
}

/* All that can be asked of a buffer; the reasons are those of a buffer whose memory is gone. */
static void dead_buffer(struct user *u, int fd)
{
	struct nvfs_buffer other = u->buf;
	union nvfs_ioctl_arg arg = nvfs_map_arg(&u->buf);

	tap_is(nvfs_read(&u->buf, fd, 0, SIZE, 0), -EBUSY, "READ to memory that was freed");
	tap_is(nvfs_write(&u->buf, fd, 0, SIZE, 0), -EBUSY, "WRITE from it");
	tap_is(nvfs_submit(&u->buf, NVFS_IOCTL_READ, fd, 0, SIZE, 0), -EBUSY, "async READ to it");
	tap_is(nvfs_submit(&u->buf, NVFS_IOCTL_WRITE, fd, 0, SIZE, 0), -EBUSY,
	       "async WRITE from it");
	tap_is(batch(&u->buf, fd, 0), -EPERM, "BATCH_IO to it");
	tap_is(batch(&u->buf, fd, 1), -EPERM, "BATCH_IO from it");
	tap_is(nvfs_request(u->node, NVFS_IOCTL_MAP, &arg), -EINVAL, "MAP of it again");
	other.node = nvfs_open(7, O_RDWR);
	tap_is(nvfs_read(&other, fd, 0, SIZE, 0), -EBUSY, "READ by another node");
	tap_is(nvfs_write(&other, fd, 0, SIZE, 0), -EBUSY, "WRITE by another node");
	close(other.node);
	other = (struct nvfs_buffer){ 0 };
	tap_is(nvfs_register(&other, u->node, u->va, SIZE, SIZE, u->info.pdevinfo), -EINVAL,
	       "a new buffer of the address it had");
}

static int dead_in_child(void *arg)
{
	struct user *u = arg;
	int fd = open(path, O_RDWR | O_DIRECT);

	return !(nvfs_read(&u->buf, fd, 0, SIZE, 0) == -EINVAL &&
		 nvfs_write(&u->buf, fd, 0, SIZE, 0) == -EINVAL);
}

static void freed_memory(int fd)
{
	static char before[SIZE], after[SIZE];
	struct door door = { .target = getpid() };
	uint64_t at, run;
	struct next *next;
	struct user u;

	nvfs_set_parameter("use_legacy_p2p_allocation", "1");
	if (!user_begin(&u) || gpu_where(&u.gpu, u.va, &at, &run))
		tap_bail("no buffer");
	tap_is(nvfs_read(&u.buf, fd, 0, SIZE, 0), (long long)SIZE, "READ, while it is ours");
	if (pread(fd, before, SIZE, 0) != (ssize_t)SIZE)
		tap_bail("cannot read the file");
	tap_is(gpu_free(&u.gpu, u.va), 0, "the GPU memory is freed");
	next = next_begin(at);
	tap_ok(next->same, "another process has it now");
	dead_buffer(&u, fd);
	tap_is(in_child(0, dead_in_child, &u), 0, "READ and WRITE in a forked child");
	tap_ok(by_callback ? !any_of(u.buf.shadow, SECRET) : all_are(u.buf.shadow, 0, SIZE),
	       "the shadow buffer shows nothing of it");
	door.address = u.buf.shadow;
	tap_is(in_child(NOBODY, doors_closed, &door), 0,
	       "/proc/PID/mem, process_vm_readv, ptrace: closed to another user");
	tap_is(in_child(0, doors_show_no_secret, &door), 0, "and they show root nothing of it");
	tap_ok(next_end(next) && next->unharmed, "the other process finds its own bytes");
	tap_ok(pread(fd, after, SIZE, 0) == (ssize_t)SIZE && !memcmp(before, after, SIZE),
	       "and the file has none of them");
	user_end(&u);

	/* Persistent: the memory is not free before munmap. */
	nvfs_set_parameter("use_legacy_p2p_allocation", "0");
	if (!user_begin(&u) || gpu_where(&u.gpu, u.va, &at, &run) ||
	    gpu_fill(&u.gpu, u.va, SIZE, 77))
		tap_bail("no buffer");
	tap_is(gpu_free(&u.gpu, u.va), 0, "persistent: the GPU memory is freed");
	next = next_begin(at);
	tap_ok(!next->same, "persistent: nobody else gets it while it is mapped");
	next_end(next);
	tap_is(nvfs_write(&u.buf, fd, 0, SIZE, 0), (long long)SIZE, "persistent: WRITE from it");
	tap_ok(pread(fd, after, SIZE, 0) == (ssize_t)SIZE && pattern_check(after, SIZE, 77, 0) < 0,
	       "persistent: of what was in it");
	nvfs_unregister(&u.buf);
	next = next_begin(at);
	tap_ok(next->same && next_end(next) && next->unharmed, "persistent: after munmap another has it");
	user_end(&u);
}

/* ---- buffers of another process ---- */

static bool no_buffer_there(int node, struct user *u, int fd)
{
	struct nvfs_buffer theirs = u->buf;
	union nvfs_ioctl_arg arg = nvfs_map_arg(&theirs), rdma;
	bool good;

	theirs.node = node;
	memset(&rdma, 0, sizeof(rdma));
	rdma.get_rdma.cpuvaddr = (uintptr_t)theirs.shadow;
	good = nvfs_read(&theirs, fd, 0, SIZE, 0) == -EINVAL;
	good = nvfs_write(&theirs, fd, 0, SIZE, 0) == -EINVAL && good;
	good = nvfs_submit(&theirs, NVFS_IOCTL_READ, fd, 0, SIZE, 0) == -EINVAL && good;
	good = batch(&theirs, fd, 1) == -EPERM && good;
	good = nvfs_request(node, NVFS_IOCTL_MAP, &arg) == -EINVAL && good;
	good = nvfs_ioctl(node, NVFS_IOCTL_GET_RDMA_REG_INFO, &rdma) == -EINVAL && good;
	return nvfs_ioctl(node, NVFS_IOCTL_CLEAR_RDMA_REG_INFO, &rdma) == -EPERM && good;
}

static int by_inherited_fd(void *arg)
{
	struct user *u = arg;

	return !no_buffer_there(u->node, u, open(path, O_RDWR | O_DIRECT));
}

static int by_own_fd(void *arg)
{
	return !no_buffer_there(nvfs_open(3, O_RDWR), arg, open(path, O_RDWR | O_DIRECT));
}

/* A shadow buffer of the child's own, at the very address. */
static int by_same_address(void *arg)
{
	struct user *u = arg, mine;
	int fd = open(path, O_RDWR | O_DIRECT);
	struct nvfs_buffer buf = u->buf;
	bool good;

	buf.shadow = mmap(u->buf.shadow, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			  u->node, 0);
	if (buf.shadow != u->buf.shadow)
		return 1;
	/* MAP finds it, but the GPU memory is not the child's. */
	good = no_buffer_there(u->node, u, fd);
	if (!user_open(&mine) || gpu_alloc(&mine.gpu, SIZE, 0, &buf.gpu_va) ||
	    gpu_fill(&mine.gpu, buf.gpu_va, SIZE, 99) || nvfs_map(&buf))
		return 2;
	good = all_are(buf.shadow, 0, SIZE) && good;
	return !(nvfs_write(&buf, fd, SIZE, SIZE, 0) == (ssize_t)SIZE && good);
}

/* A node that was opened by another user. */
static int by_passed_fd(void *arg)
{
	struct user *u = arg;
	int pair[2], fd = open(path, O_RDWR | O_DIRECT), node;
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &u->node, sizeof(int));
	if (sendmsg(pair[0], &message, 0) != 1 || recvmsg(pair[1], &message, 0) != 1)
		return 2;
	memcpy(&node, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return node == u->node || !no_buffer_there(node, u, fd);
}

static void other_process(int fd)
{
	static char data[SIZE];
	struct user u;
	int64_t bad;

	if (!user_begin(&u) || gpu_fill(&u.gpu, u.va, SIZE, SECRET))
		tap_bail("no buffer");
	memset(u.buf.shadow, 0xa5, SIZE);
	tap_is(in_child(0, by_inherited_fd, &u), 0, "no request of a forked child finds the buffer");
	tap_is(in_child(0, by_own_fd, &u), 0, "nor by a node that the child opened");
	tap_is(in_child(NOBODY, by_inherited_fd, &u), 0, "nor of a child of another user");
	tap_is(in_child(NOBODY, by_passed_fd, &u), 0, "nor by a descriptor that was passed");
	tap_is(in_child(0, by_same_address, &u), 0,
	       "a child's own buffer at the same address is another one");
	tap_ok(pread(fd, data, SIZE, SIZE) == (ssize_t)SIZE && pattern_check(data, SIZE, 99, 0) < 0,
	       "and has the child's bytes");
	tap_ok(!gpu_check(&u.gpu, u.va, SIZE, SECRET, &bad) && bad < 0, "ours are unharmed");
	tap_ok(all_are(u.buf.shadow, 0xa5, SIZE), "so is our shadow buffer");
	tap_is(nvfs_write(&u.buf, fd, 0, SIZE, 0), (long long)SIZE, "and our next WRITE");
	tap_ok(pread(fd, data, SIZE, 0) == (ssize_t)SIZE && pattern_check(data, SIZE, SECRET, 0) < 0,
	       "has our bytes");
	user_end(&u);
}

/* ---- a live shadow buffer, through other doors ---- */

static void doors(int fd)
{
	struct door door = { .target = getpid() };
	struct user u;
	int64_t bad;

	if (!user_begin(&u) || gpu_fill(&u.gpu, u.va, SIZE, SECRET))
		tap_bail("no buffer");
	door.address = u.buf.shadow + 64 * KIB;
	if (nvfs_write(&u.buf, fd, 0, SIZE, 0) != (ssize_t)SIZE)
		tap_bail("WRITE failed");
	memset(u.buf.shadow, 0xa5, SIZE);
	tap_is(in_child(NOBODY, doors_closed, &door), 0,
	       "/proc/PID/mem, process_vm_readv, ptrace: closed to another user");
	tap_is(in_child(0, doors_show, &door), 0, "they show root the shadow buffer's own bytes");
	tap_is(nvfs_read(&u.buf, fd, 0, SIZE, 0), (long long)SIZE, "READ");
	tap_ok(!gpu_check(&u.gpu, u.va, SIZE, SECRET, &bad) && bad < 0, "to GPU memory");
	tap_is(in_child(0, doors_show, &door), 0, "and still they do not show GPU memory");
	munmap(u.buf.shadow, SIZE);
	tap_is(in_child(0, doors_gone, &door), 0, "nor anything after munmap");
	munmap(u.buf.meta, PAGE);
	u.buf.shadow = NULL;
	u.buf.meta = NULL;
	user_end(&u);
}

/* ---- memory that others had ---- */

/* Many lengths, so that folios of all orders come back. */
static const size_t lengths[] = { 4 * KIB, 12 * KIB, 60 * KIB, 64 * KIB, 192 * KIB, 2 * MIB,
				  4 * MIB, 16 * MIB };
#define NR_LENGTHS (sizeof(lengths) / sizeof(*lengths))

/* Fills shadow buffers of all lengths, then leaves without unmapping them. */
static int fill(void *arg)
{
	int node = nvfs_open(0, O_RDWR);
	size_t i;

	(void)arg;
	for (i = 0; i < NR_LENGTHS; i++) {
		char *p = nvfs_mmap(node, lengths[i]);

		if (!p)
			return 1;
		memset(p, 0xa5, lengths[i]);
	}
	return 0;
}

/* Whether new ones are all zero: touched page by page, backwards, or by the kernel. */
static int look(void *arg)
{
	static char copy[16 * MIB];
	int node = nvfs_open(0, O_RDWR), out[2];
	size_t i, at;

	(void)arg;
	if (pipe(out))
		return 1;
	for (i = 0; i < NR_LENGTHS; i++) {
		char *p = nvfs_mmap(node, lengths[i]);
		struct iovec mine = { copy, lengths[i] }, theirs = { p, lengths[i] };

		if (!p)
			return 2;
		switch (i % 3) {
		case 0:
			for (at = lengths[i]; at; at -= PAGE)
				if (p[at - 1])
					return 3;
			break;
		case 1:
			if (write(out[1], p, PAGE) != PAGE || read(out[0], copy, PAGE) != PAGE ||
			    !all_are(copy, 0, PAGE))
				return 4;
			break;
		default:
			if (process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0) !=
			    (ssize_t)lengths[i] || !all_are(copy, 0, lengths[i]))
				return 5;
		}
		if (!all_are(p, 0, lengths[i]))
			return 6;
	}
	return 0;
}

/*
 * Pages that a pipe still has when their buffer is gone: they are not given to anybody, and show
 * what the process had put there.
 */
static int keep_in_pipe(void *arg)
{
	int node = nvfs_open(0, O_RDWR), out[2];
	char *p = nvfs_mmap(node, 64 * KIB), data[64 * KIB];
	struct iovec part = { p, 64 * KIB };
	bool good;

	(void)arg;
	if (!p || pipe(out))
		return 1;
	memset(p, 0x77, 64 * KIB);
	if (vmsplice(out[1], &part, 1, 0) != 64 * KIB)
		return 2;
	munmap(p, 64 * KIB);
	good = in_child(NOBODY, look, NULL) == 0 && in_child(NOBODY, fill, NULL) == 0;
	return !(read(out[0], data, sizeof(data)) == sizeof(data) &&
		 all_are(data, 0x77, sizeof(data)) && good);
}

/* What a READ leaves in a shadow buffer shows up in no other. */
static int dirty_by_reads(void *arg)
{
	int fd = open(path, O_RDWR | O_DIRECT), i;
	struct user u;

	(void)arg;
	for (i = 0; i < 4; i++) {
		if (!user_begin(&u))
			return 1;
		memset(u.buf.shadow, 0xa5, SIZE);
		if (nvfs_read(&u.buf, fd, 0, SIZE, 0) != (ssize_t)SIZE)
			return 2;
		user_end(&u);
	}
	return 0;
}

static void shadow_memory(void)
{
	unsigned int round, dirty = 0, shown = 0;

	for (round = 0; round < 6; round++) {
		dirty += in_child(round & 1 ? NOBODY : 0, fill, NULL) != 0;
		shown += in_child(round & 2 ? 0 : NOBODY, look, NULL) != 0;
	}
	tap_is(dirty, 0, "shadow buffers are filled by other processes");
	tap_is(shown, 0, "new ones are all zero, whoever touches them first");
	tap_is(in_child(NOBODY, keep_in_pipe, NULL), 0,
	       "pages that a pipe keeps after munmap go to nobody");
	tap_is(in_child(0, dirty_by_reads, NULL), 0, "shadow buffers are used for READs");
	tap_is(in_child(NOBODY, look, NULL), 0, "new ones are all zero then");
}

int main(int argc, char **argv)
{
	struct fake_nvidia_counts counts;
	struct gpu gpu;
	double end;
	int fd;

	if (argc != 2)
		tap_bail("usage: %s FILE", argv[0]);
	path = argv[1];
	by_callback = getenv("WAY") && !strcmp(getenv("WAY"), "callback");
	fd = nvfs_file(path, 2 * SIZE, 1);
	if (fd < 0 || chmod(path, 0666))
		tap_bail("cannot make %s", path);
	freed_memory(fd);
	other_process(fd);
	doors(fd);
	shadow_memory();
	if (gpu_open(&gpu, 0))
		tap_bail("no GPU");
	end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	do {
		if (gpu_counts(&gpu, &counts))
			tap_bail("no counts");
	} while ((counts.tables || counts.pinned_pages || counts.mappings) && nvfs_seconds() < end);
	tap_ok(!counts.tables && !counts.pinned_pages && !counts.mappings, "nothing is left pinned");
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	return tap_plan();
}
