// SPDX-License-Identifier: GPL-2.0
/*
 * A memory cgroup that is full of shadow memory: who asks for more is told so, and nobody dies. The
 * memory is charged to whose it is, whoever touches it.
 *
 * usage: pressure CGROUP OTHER FILE; CGROUP is a new cgroup that may have LIMIT bytes, without swap,
 * OTHER a new one without limit.
 * WAY=callback in the environment: the drive's driver has hooks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define LIMIT	(48 * MIB)
#define SIZE	(16 * MIB)
#define BUFFERS	8		/* much more than fits */
#define PAGE	4096
#define MORE	100		/* buffers that are mapped when nothing is left */

static const char *group, *other, *path;
static bool callback;
static struct gpu gpu;
static struct nvfs_buffer buf[BUFFERS], small, more[MORE];

/* What the child saw, for the parent. */
struct seen {
	int touched;		/* pages until SIGBUS */
	int touched_again;	/* after an munmap */
	int kernel;		/* errno of read(2) to a new page */
	int mapped, refused, wrong;	/* MAPs of `more`: that worked, ENOMEM, other errnos */
	ssize_t moved;		/* READ through new shadow memory */
	long long errors;	/* of that in the statistics */
	ssize_t moved_again;	/* after an munmap */
	bool data;
};

static long in_cgroup(const char *cgroup, const char *file, const char *key)
{
	char name[256], text[4096], *at = text;

	snprintf(name, sizeof(name), "%s/%s", cgroup, file);
	if (nvfs_read_text(name, text, sizeof(text)) <= 0)
		return -1;
	if (key)
		at = strstr(text, key);
	return at ? atol(at + (key ? strlen(key) : 0)) : -1;
}

static long in_group(const char *file, const char *key)
{
	return in_cgroup(group, file, key);
}

static sigjmp_buf bus;
static char *refused;		/* the page that could not be touched */

static void on_bus(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	refused = info->si_addr;
	siglongjmp(bus, 1);
}

/* Touches page by page until that fails. Returns how many that were. */
static int touch(char *memory, size_t size)
{
	volatile int pages = 0;

	if (sigsetjmp(bus, 1))
		return pages;
	for (; pages < (int)(size / PAGE); pages++)
		((volatile char *)memory)[(size_t)pages * PAGE] = 1;
	return pages;
}

/*
 * The lack of memory for a page table is met by the kernel's killer, whoever touches what: it is none
 * of ours. So all shadow memory lies together, a page table before its 512 pages, and other memory is
 * taken until the limit is halfway in such a stretch.
 */
static void arrange(int node, uint64_t va, uint64_t pdevinfo)
{
	const unsigned long stretch = 513;
	char *at = mmap(NULL, (BUFFERS + 1) * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long left, ballast;
	unsigned int i;

	at = (char *)(((uintptr_t)at + 2 * MIB - 1) & -(2 * MIB));
	for (i = 0; i < BUFFERS; i++) {
		buf[i].node = node;
		buf[i].window = SIZE;
		buf[i].gpu_va = va;
		buf[i].gpu_size = SIZE;
		buf[i].pdevinfo = pdevinfo;
		buf[i].shadow = mmap(at + i * SIZE, SIZE, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_FIXED, node, 0);
		buf[i].meta = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (buf[i].shadow == MAP_FAILED || buf[i].meta == MAP_FAILED || nvfs_map(&buf[i]))
			_exit(2);
	}
	/* All that is not MAP's is there already. */
	for (i = 0; i < MORE; i++) {
		if (nvfs_shadow(&more[i], node, 64 * KIB))
			_exit(2);
		*(volatile char *)more[i].meta = 0;
		more[i].gpu_va = va;
		more[i].gpu_size = SIZE;
		more[i].pdevinfo = pdevinfo;
	}
	if (nvfs_shadow(&small, node, 256 * KIB))
		_exit(2);
	memset(small.shadow, 1, 256 * KIB);
	left = (LIMIT - in_group("memory.current", NULL)) / PAGE;
	ballast = (left + stretch / 2) % stretch;
	if (mmap(NULL, ballast * PAGE + PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) == MAP_FAILED)
		_exit(2);
}

static int enter(const char *cgroup)
{
	char name[256];

	snprintf(name, sizeof(name), "%s/cgroup.procs", cgroup);
	return nvfs_write_text(name, "0") != 1;
}

static void greedy(struct seen *seen)
{
	int node = nvfs_open(0, O_RDWR), fd = open(path, O_RDONLY | O_DIRECT), zero;
	struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
	struct fake_nvidia_info info;
	long long errors = nvfs_stat("Reads", "err");
	uint64_t va;
	int64_t bad = 0;
	unsigned int i;
	int ret;

	sigaction(SIGBUS, &action, NULL);
	zero = open("/dev/zero", O_RDONLY);
	if (enter(group) || fd < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_alloc(&gpu, SIZE, 0, &va))
		_exit(1);
	arrange(node, va, info.pdevinfo);
	seen->touched = touch(buf[0].shadow, BUFFERS * SIZE);
	/* A last page may still be found; not all that the buffer lacks. */
	while (read(zero, refused, PAGE) == PAGE)
		refused += PAGE;
	seen->kernel = -errno;
	for (i = 0; i < MORE; i++) {
		ret = nvfs_map(&more[i]);
		seen->mapped += !ret;
		seen->refused += ret == -ENOMEM;
		seen->wrong += ret && ret != -ENOMEM;
	}
	/*
	 * The last buffer has no memory at all, nor page tables, which are none of ours: their lack
	 * would be met by the kernel's killer. So some room is made for them.
	 */
	munmap(small.shadow, 256 * KIB);
	seen->moved = nvfs_read(&buf[BUFFERS - 1], fd, 0, SIZE, 0);
	munmap(buf[0].shadow, SIZE);
	buf[0].shadow = NULL;
	seen->errors = nvfs_stat("Reads", "err") - errors;
	seen->moved_again = nvfs_read(&buf[BUFFERS - 1], fd, 0, SIZE, 0);
	/* What the GPU is looked at by has page tables, too. */
	munmap(buf[1].shadow, SIZE);
	seen->data = !gpu_check(&gpu, va, SIZE, 5, &bad) && bad < 0;
	seen->touched_again = touch(buf[4].shadow, MIB);
	_exit(0);
}

/* Has some memory in the same cgroup, and only lives. */
static pid_t start_neighbour(void)
{
	int ready[2];
	pid_t pid;
	char byte;

	if (pipe(ready))
		return -1;
	pid = fork();
	if (!pid) {
		char *p = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		_exit(enter(group) || write(ready[1], p, 1) != 1 || pause() ? 1 : 0);
	}
	if (read(ready[0], &byte, 1) != 1)
		return -1;
	return pid;
}

/* Starts a process in a cgroup that says what `f` returns and then only lives. */
static pid_t start_in(const char *cgroup, uintptr_t (*f)(void), uintptr_t *said)
{
	uintptr_t result;
	int ready[2];
	pid_t pid;

	if (pipe(ready))
		tap_bail("no pipe");
	pid = fork();
	if (!pid) {
		result = enter(cgroup) ? 0 : f();
		_exit(write(ready[1], &result, sizeof(result)) != sizeof(result) || pause() ? 1 : 0);
	}
	close(ready[1]);
	if (pid < 0 || read(ready[0], said, sizeof(*said)) != sizeof(*said))
		tap_bail("no process");
	close(ready[0]);
	return pid;
}

static pid_t owner;
static uintptr_t owned;

static uintptr_t own(void)
{
	return (uintptr_t)nvfs_mmap(nvfs_open(0, O_RDWR), SIZE);
}

/* The bytes that come of another process's shadow memory. */
static uintptr_t look(void)
{
	static char data[256 * KIB];
	struct iovec here = { data, sizeof(data) }, there = { (void *)owned, sizeof(data) };
	uintptr_t got = 0;

	for (; got < SIZE; got += sizeof(data)) {
		if (process_vm_readv(owner, &here, 1, &there, 1, 0) != sizeof(data))
			break;
		there.iov_base = (char *)there.iov_base + sizeof(data);
	}
	return got;
}

/* Who may look at a process's memory does not pay for what it has not touched yet. */
static void looked_at(void)
{
	long before, after;
	uintptr_t got;
	pid_t looker;

	owner = start_in(group, own, &owned);
	if (!owned)
		tap_bail("no shadow memory");
	before = in_group("memory.current", NULL);
	looker = start_in(other, look, &got);
	after = in_group("memory.current", NULL);
	tap_is(got, SIZE, "shadow memory is read from another cgroup");
	tap_ok(after - before > (long)(SIZE - MIB), "it is charged to the cgroup of its process: %ld",
	       after - before);
	after = in_cgroup(other, "memory.current", NULL);
	tap_ok(after >= 0 && after < (long)(4 * MIB), "and not to the reader's: %ld", after);
	kill(looker, SIGKILL);
	waitpid(looker, NULL, 0);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
}

int main(int argc, char **argv)
{
	struct seen *seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct fake_nvidia_counts counts;
	int status, outside, fd;
	pid_t neighbour, pid;
	double end;
	char *p;

	if (argc != 4)
		tap_bail("usage: %s CGROUP OTHER FILE", argv[0]);
	group = argv[1];
	other = argv[2];
	path = argv[3];
	callback = getenv("WAY") && !strcmp(getenv("WAY"), "callback");
	fd = nvfs_file(path, SIZE, 5);
	neighbour = start_neighbour();
	if (fd < 0 || neighbour < 0 || in_group("memory.max", NULL) != LIMIT)
		tap_bail("no cgroup of %lu bytes", LIMIT);
	pid = fork();
	if (!pid)
		greedy(seen);
	waitpid(pid, &status, 0);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process fills its cgroup with shadow memory");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		tap_diag("status %#x", status);
	tap_ok(seen->touched > 0 && seen->touched <= (int)(LIMIT / PAGE),
	       "a touch beyond the limit is SIGBUS: after %d pages", seen->touched);
	tap_is(seen->kernel, -EFAULT, "read(2) to such memory");
	tap_ok(seen->mapped + seen->refused == MORE && seen->refused > 0,
	       "MAP works or is told ENOMEM: %d and %d, %d times else", seen->mapped, seen->refused,
	       seen->wrong);
	tap_is(seen->moved, callback ? -ENOMEM : (long long)SIZE, "READ with such memory");
	tap_is(seen->errors, callback, "it is counted if it failed");
	tap_is(seen->moved_again, (long long)SIZE, "READ after an munmap");
	tap_ok(seen->data, "with the right bytes");
	tap_is(seen->touched_again, (long long)(MIB / PAGE), "there is memory again");
	tap_ok(in_group("memory.events", "max ") > 0, "the limit was met");
	tap_is(in_group("memory.events", "oom_kill "), 0, "nobody was killed");
	tap_is(waitpid(neighbour, &status, WNOHANG), 0, "not the other process of the cgroup either");
	kill(neighbour, SIGKILL);
	waitpid(neighbour, &status, 0);
	outside = nvfs_open(0, O_RDWR);
	p = nvfs_mmap(outside, SIZE);
	if (p)
		memset(p, 1, SIZE);
	tap_ok(p && p[SIZE - 1] == 1, "outside of the cgroup there is memory");
	end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	while (in_group("memory.current", NULL) > (long)(4 * MIB) && nvfs_seconds() < end)
		sched_yield();
	tap_ok(in_group("memory.current", NULL) <= (long)(4 * MIB), "the cgroup has its memory back: %ld",
	       in_group("memory.current", NULL));
	looked_at();
	if (gpu_open(&gpu, 0) || gpu_counts(&gpu, &counts))
		tap_bail("no counts");
	tap_ok(!counts.tables && !counts.pinned_pages && !counts.mappings, "nothing is left pinned");
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	return tap_plan();
}
