// SPDX-License-Identifier: GPL-2.0
/*
 * Shadow buffers as memory of the process: mmap's checks (6.1), contents (6.2), flags (6.3), what
 * the process may do to the mapping (6.5), any number of them (6.8), and I/O of others through it
 * (field report O3). No GPU is needed.
 *
 * usage: mmap DIRECTORY
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define RW	(PROT_READ | PROT_WRITE)
#define PAGE	4096
#define SIZE	(256 * KIB)

static int node;

/* try_mmap: 0, or the negative errno of such an mmap. */
static int try_mmap(int fd, size_t length, int prot, int flags, off_t offset)
{
	void *p = mmap(NULL, length, prot, flags, fd, offset);

	if (p == MAP_FAILED)
		return -errno;
	munmap(p, length);
	return 0;
}

static void test_lengths(void)
{
	static const struct {
		size_t length;
		int want;
		const char *row;
	} lengths[] = {
		{ 4 * KIB, 0, "4 KiB" }, { 8 * KIB, 0, "8 KiB" }, { 12 * KIB, 0, "12 KiB" },
		{ 16 * KIB, 0, "16 KiB" }, { 20 * KIB, 0, "20 KiB" }, { 24 * KIB, 0, "24 KiB" },
		{ 28 * KIB, 0, "28 KiB" }, { 32 * KIB, 0, "32 KiB" }, { 36 * KIB, 0, "36 KiB" },
		{ 40 * KIB, 0, "40 KiB" }, { 44 * KIB, 0, "44 KiB" }, { 48 * KIB, 0, "48 KiB" },
		{ 52 * KIB, 0, "52 KiB" }, { 56 * KIB, 0, "56 KiB" }, { 60 * KIB, 0, "60 KiB" },
		{ 64 * KIB, 0, "64 KiB" }, { 128 * KIB, 0, "128 KiB" },
		{ 192 * KIB, 0, "192 KiB" }, { MIB, 0, "1 MiB" },
		{ MIB + 64 * KIB, 0, "1 MiB + 64 KiB" }, { 15 * MIB, 0, "15 MiB" },
		{ 16 * MIB - 64 * KIB, 0, "16 MiB - 64 KiB" }, { 16 * MIB, 0, "row 2: 16 MiB" },
		/* The kernel rounds lengths up to pages before the driver sees them. */
		{ 1, 0, "row 3: 1 byte is a page" }, { 2048, 0, "row 3: 2 KiB is a page" },
		{ 5000, 0, "row 3: 5000 bytes are two pages" },
		{ 63 * KIB, 0, "row 4: 63 KiB is 64 KiB in pages" },
		{ 127 * KIB, 0, "row 4: 127 KiB is 128 KiB in pages" },
		{ 16 * MIB - 1, 0, "row 2: 16 MiB - 1 is 16 MiB in pages" },
		{ 16 * MIB + 1, -EINVAL, "row 2: 16 MiB + 1" },
		{ 16 * MIB + 4 * KIB, -EINVAL, "row 2: 16 MiB + 4 KiB" },
		{ 16 * MIB + 64 * KIB, -EINVAL, "row 2: 16 MiB + 64 KiB" },
		{ 32 * MIB, -EINVAL, "row 2: 32 MiB" },
		{ 4096 * MIB, -EINVAL, "row 2: 4 GiB" },
		{ 4096 * MIB + 64 * KIB, -EINVAL, "row 2: 4 GiB + 64 KiB" },
		{ 64 * KIB + 1, -EINVAL, "row 4: 64 KiB + 1" },
		{ 68 * KIB, -EINVAL, "row 4: 68 KiB" }, { 96 * KIB, -EINVAL, "row 4: 96 KiB" },
		{ 124 * KIB, -EINVAL, "row 4: 124 KiB" },
		{ MIB + 4 * KIB, -EINVAL, "row 4: 1 MiB + 4 KiB" },
		{ 16 * MIB - 4 * KIB, -EINVAL, "row 4: 16 MiB - 4 KiB" },
	};
	unsigned int i;

	for (i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		tap_is(try_mmap(node, lengths[i].length, RW, MAP_SHARED, 0), lengths[i].want,
		       "6.1 %s: %s", lengths[i].row, lengths[i].want ? "EINVAL" : "works");
}

static void test_checks(void)
{
	static const struct {
		const char *row;
		off_t offset;
		size_t length;
		int prot, flags, want;
	} checks[] = {
		{ "row 1: offset 4 KiB: EIO", PAGE, SIZE, RW, MAP_SHARED, -EIO },
		{ "row 1: offset 64 KiB: EIO", 65536, SIZE, RW, MAP_SHARED, -EIO },
		{ "row 1: offset 1 TiB: EIO", 1L << 40, SIZE, RW, MAP_SHARED, -EIO },
		{ "row 1 before 2: EIO", PAGE, 32 * MIB, RW, MAP_SHARED, -EIO },
		{ "row 1 before 4: EIO", PAGE, 68 * KIB, RW, MAP_SHARED, -EIO },
		{ "row 1 before 5: EIO", PAGE, SIZE, PROT_READ, MAP_SHARED, -EIO },
		{ "row 1 before 6: EIO", PAGE, SIZE, RW | PROT_EXEC, MAP_SHARED, -EIO },
		{ "row 1 before 7: EIO", PAGE, SIZE, RW, MAP_PRIVATE, -EIO },
		{ "row 5: PROT_READ only: EINVAL", 0, SIZE, PROT_READ, MAP_SHARED, -EINVAL },
		{ "row 5: PROT_WRITE only: EINVAL", 0, SIZE, PROT_WRITE, MAP_SHARED, -EINVAL },
		{ "row 5: PROT_NONE: EINVAL", 0, SIZE, PROT_NONE, MAP_SHARED, -EINVAL },
		{ "row 6: PROT_EXEC: EINVAL", 0, SIZE, RW | PROT_EXEC, MAP_SHARED, -EINVAL },
		{ "row 7: MAP_PRIVATE: EINVAL", 0, SIZE, RW, MAP_PRIVATE, -EINVAL },
		{ "MAP_SHARED works", 0, SIZE, RW, MAP_SHARED, 0 },
		{ "MAP_SHARED | MAP_POPULATE works", 0, SIZE, RW, MAP_SHARED | MAP_POPULATE, 0 },
		{ "MAP_SHARED | MAP_LOCKED works", 0, SIZE, RW, MAP_SHARED | MAP_LOCKED, 0 },
		{ "MAP_SHARED | MAP_NORESERVE works", 0, SIZE, RW,
		  MAP_SHARED | MAP_NORESERVE, 0 },
	};
	unsigned int i;
	int fd;

	for (i = 0; i < sizeof(checks) / sizeof(*checks); i++)
		tap_is(try_mmap(node, checks[i].length, checks[i].prot, checks[i].flags,
				checks[i].offset), checks[i].want, "6.1 %s", checks[i].row);
	/* Row 8, ENOMEM: without memory the kernel kills processes first, and that fails the run. */
	fd = nvfs_open(0, O_RDONLY);
	tap_is(try_mmap(fd, SIZE, PROT_READ, MAP_SHARED, 0), -EINVAL,
	       "6.1 row 5: PROT_READ of a node opened O_RDONLY (no VM_MAYWRITE): EINVAL");
	close(fd);
}

static long available_kib(void)
{
	char text[2048], *at;

	if (nvfs_read_text("/proc/meminfo", text, sizeof(text)) < 0)
		return -1;
	at = strstr(text, "MemAvailable:");
	return at ? atol(at + 13) : -1;
}

static bool is_zero(const char *p, size_t size)
{
	return !size || (!*p && !memcmp(p, p + 1, size - 1));
}

static long fault_count(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

static void test_contents(void)
{
	char *p = nvfs_mmap(node, 16 * MIB);
	long faults, read_faults;
	unsigned int i;
	bool zero;

	if (!p)
		tap_bail("no shadow buffer");
	faults = fault_count();
	zero = is_zero(p, 16 * MIB);
	read_faults = fault_count() - faults;
	memset(p, 0xa5, 16 * MIB);
	faults = fault_count() - faults - read_faults;
	tap_ok(zero, "6.2: all of 16 MiB is zero");
	/* Pages are made by the first touch, so that a buffer that nobody touches costs nothing. */
	tap_ok(faults < 16, "6.2: no fault at a later touch");
	tap_diag("%ld faults by reading, %ld by writing", read_faults, faults);
	tap_ok(p[0] == (char)0xa5 && p[16 * MIB - 1] == (char)0xa5, "6.2: what is written stays");
	munmap(p, 16 * MIB);
	for (i = 0, zero = true; i < 4; i++) {
		p = nvfs_mmap(node, 16 * MIB);
		zero = zero && p && is_zero(p, 16 * MIB);
		if (p) {
			memset(p, 0x5a, 16 * MIB);
			munmap(p, 16 * MIB);
		}
	}
	tap_ok(zero, "6.2: zero again after others used the memory");
	p = nvfs_mmap(node, 12 * KIB);
	tap_ok(p && is_zero(p, 12 * KIB), "6.2: all of 12 KiB is zero");
	if (p)
		munmap(p, 12 * KIB);
}

/* smaps_flags: the VmFlags line of the mapping at p, with a blank at both ends. */
static bool smaps_flags(const void *p, char flags[512])
{
	char line[512], start[32];
	bool here = false;
	FILE *f = fopen("/proc/self/smaps", "r");

	snprintf(start, sizeof(start), "%lx-", (unsigned long)p);
	*flags = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, start, strlen(start)))
			here = true;
		if (here && !strncmp(line, "VmFlags:", 8)) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(flags, 512, "%s ", line + 8);
			break;
		}
	}
	if (f)
		fclose(f);
	return *flags;
}

static void test_flags(void)
{
	static const char *const wanted[] = { "rd", "wr", "sh", "dd", "de", "dc", "mm" };
	static const char *const unwanted[] = { "io", "pf", "ex" };
	char *p = nvfs_mmap(node, SIZE);
	char flags[512], word[8];
	unsigned int i;

	tap_ok(smaps_flags(p, flags), "6.3: the mapping is in smaps");
	tap_diag("VmFlags:%s", flags);
	for (i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		snprintf(word, sizeof(word), " %s ", wanted[i]);
		tap_ok(strstr(flags, word), "6.3: flag %s is set", wanted[i]);
	}
	for (i = 0; i < sizeof(unwanted) / sizeof(*unwanted); i++) {
		snprintf(word, sizeof(word), " %s ", unwanted[i]);
		tap_ok(!strstr(flags, word), "6.3, O3: flag %s is not set", unwanted[i]);
	}
	munmap(p, SIZE);
}

static sigjmp_buf caught;

static void on_signal(int sig)
{
	siglongjmp(caught, sig);
}

/* touch: writes to every page. Returns 0 or the signal that it got. */
static int touch(char *p, size_t size)
{
	struct sigaction act = { .sa_handler = on_signal }, segv, bus;
	int sig;
	size_t i;

	sigaction(SIGSEGV, &act, &segv);
	sigaction(SIGBUS, &act, &bus);
	sig = sigsetjmp(caught, 1);
	if (!sig)
		for (i = 0; i < size; i += PAGE)
			((volatile char *)p)[i]++;
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return sig;
}

/* fresh: a shadow buffer whose pages hold 1, 2, 3 .. */
static char *fresh(void)
{
	char *p = nvfs_mmap(node, SIZE);
	size_t i;

	if (!p)
		tap_bail("no shadow buffer");
	for (i = 0; i < SIZE; i += PAGE)
		memset(p + i, 1 + i / PAGE, PAGE);
	return p;
}

static bool unharmed(const char *p)
{
	size_t i;

	for (i = 0; i < SIZE; i += PAGE)
		if (p[i] != (char)(1 + i / PAGE) || memcmp(p + i, p + i + 1, PAGE - 1))
			return false;
	return true;
}

static void test_fork(void)
{
	char *p = fresh();
	char flags[512];
	int status = -1;
	pid_t pid;

	pid = fork();
	if (!pid)
		_exit(smaps_flags(p, flags) ? 1 : touch(p, PAGE));
	waitpid(pid, &status, 0);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == SIGSEGV,
	       "6.3, 6.5: a forked child has no mapping: SIGSEGV");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != SIGSEGV)
		tap_diag("status 0x%x", status);
	tap_ok(unharmed(p), "6.5: the parent's mapping is unharmed by fork");
	munmap(p, SIZE);
}

static void test_munmap(void)
{
	static const struct {
		const char *name;
		size_t at, length;
	} parts[] = {
		{ "the first page", 0, PAGE },
		{ "the last page", SIZE - PAGE, PAGE },
		{ "a page in the middle", SIZE / 2, PAGE },
		{ "the first half", 0, SIZE / 2 },
		{ "all but the last page", 0, SIZE - PAGE },
	};
	unsigned int i;
	char *p, *other;

	p = fresh();
	for (i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		int ret = munmap(p + parts[i].at, parts[i].length) ? -errno : 0;

		tap_is(ret, -ENOMEM, "6.5: munmap of %s: ENOMEM", parts[i].name);
	}
	tap_ok(unharmed(p), "6.5: refused munmaps leave the mapping unharmed");
	other = mmap(p + PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	tap_ok(other == MAP_FAILED, "6.5: mmap over a part: refused");
	tap_ok(unharmed(p), "6.5: and the mapping unharmed");
	tap_is(munmap(p, SIZE), 0, "6.5: munmap of the whole");
	tap_is(touch(p, PAGE), SIGSEGV, "6.5: it is gone then");

	p = fresh();
	other = mmap(p, SIZE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	tap_ok(other == p && is_zero(p, SIZE), "6.5: mmap over the whole replaces it");
	munmap(p, SIZE);
}

/*
 * A part that gets other flags than the rest has to be split off. madvise() turns ENOMEM into
 * EAGAIN.
 */
static void test_split(void)
{
	char *p = fresh();
	int ret;

	ret = mprotect(p, PAGE, PROT_READ) ? -errno : 0;
	tap_is(ret, -ENOMEM, "6.5: mprotect of the first page: ENOMEM");
	ret = mprotect(p + SIZE / 2, PAGE, PROT_NONE) ? -errno : 0;
	tap_is(ret, -ENOMEM, "6.5: mprotect of a page in the middle: ENOMEM");
	ret = mprotect(p + SIZE - PAGE, PAGE, PROT_READ) ? -errno : 0;
	tap_is(ret, -ENOMEM, "6.5: mprotect of the last page: ENOMEM");
	ret = madvise(p + PAGE, PAGE, MADV_RANDOM) ? -errno : 0;
	tap_ok(ret == -ENOMEM || ret == -EAGAIN, "6.5: madvise that splits: refused");
	ret = madvise(p, PAGE, MADV_SEQUENTIAL) ? -errno : 0;
	tap_ok(ret == -ENOMEM || ret == -EAGAIN, "6.5: madvise that splits at the start: refused");
	ret = mlock(p, PAGE) ? -errno : 0;
	tap_diag("mlock of the first page: %s", strerror(-ret));
	tap_ok(unharmed(p), "6.5: refused splits leave the mapping unharmed");
	tap_is(touch(p, SIZE), 0, "6.5: all of it is still writable");
	tap_is(munmap(p, SIZE), 0, "6.5: munmap of the whole works then");
}

static void test_mremap(void)
{
	char *room = mmap(NULL, 4 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *p = fresh();

	tap_ok(mremap(p, SIZE, 2 * SIZE, 0) == MAP_FAILED, "6.5: mremap growing: refused");
	tap_ok(unharmed(p), "6.5: and the mapping unharmed");
	tap_ok(mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE) == MAP_FAILED,
	       "6.5: mremap growing and moving: refused");
	tap_ok(unharmed(p), "6.5: and the mapping unharmed");
	tap_ok(mremap(p, SIZE, SIZE / 2, 0) == MAP_FAILED && errno == ENOMEM,
	       "6.5: mremap shrinking: ENOMEM");
	tap_ok(unharmed(p), "6.5: and the mapping unharmed");
	tap_ok(mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, room) == MAP_FAILED,
	       "6.5: mremap moving: refused");
	tap_ok(unharmed(p), "6.5: and the old mapping unharmed");
	tap_ok(mremap(p, SIZE, SIZE / 2, MREMAP_MAYMOVE | MREMAP_FIXED, room) == MAP_FAILED,
	       "6.5: mremap moving and shrinking: refused");
	tap_ok(unharmed(p), "6.5: and the old mapping unharmed");
	tap_ok(mremap(p + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room) == MAP_FAILED,
	       "6.5: mremap moving a part: refused");
	tap_ok(unharmed(p), "6.5: and the old mapping unharmed");
	tap_ok(mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP) == MAP_FAILED,
	       "6.5: mremap moving the pages only: refused");
	tap_ok(unharmed(p), "6.5: and the old mapping unharmed");
	tap_ok(mremap(p, 0, SIZE, MREMAP_MAYMOVE) == MAP_FAILED,
	       "6.5: mremap duplicating: refused");
	tap_ok(unharmed(p), "6.5: and the old mapping unharmed");
	tap_is(touch(p, SIZE), 0, "6.5: all of it is still writable");
	tap_is(munmap(p, SIZE), 0, "6.5: munmap of the whole works then");
	munmap(room, 4 * SIZE);
}

/*
 * in_child: runs a step that may loop for ever in a child with an alarm. Returns what the step
 * returned, or the negative signal that ended it.
 */
static int in_child(int (*step)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		alarm(20);
		_exit(step());
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int protect_and_back(int prot)
{
	char *p = fresh();

	if (mprotect(p, SIZE, prot))
		return 0;
	if (mprotect(p, SIZE, RW))
		return 1;
	touch(p, SIZE);
	return 0;
}

static int step_read_only(void)
{
	return protect_and_back(PROT_READ);
}

static int step_none(void)
{
	return protect_and_back(PROT_NONE);
}

static int step_exec(void)
{
	return protect_and_back(RW | PROT_EXEC);
}

static int step_write_to_read_only(void)
{
	char *p = fresh();

	if (mprotect(p, SIZE, PROT_READ))
		return 0;
	return touch(p, PAGE) != SIGSEGV;
}

/* Kernel code that writes through the mapping is no more lost than the process. */
static int step_read_into_it(void)
{
	char *p = nvfs_mmap(node, SIZE);
	int fd = open("/dev/zero", O_RDONLY);

	if (mprotect(p, SIZE, PROT_READ) || mprotect(p, SIZE, RW))
		return 0;
	return read(fd, p, SIZE) == 0;
}

static void test_mprotect(void)
{
	tap_is(in_child(step_read_only), 0,
	       "6.5: mprotect of the whole to read-only and back, then a write: no harm");
	tap_is(in_child(step_none), 0,
	       "6.5: mprotect of the whole to nothing and back, then a write: no harm");
	tap_is(in_child(step_exec), 0, "6.5: mprotect of the whole to executable: no harm");
	tap_is(in_child(step_write_to_read_only), 0,
	       "6.5: a write to it while read-only: SIGSEGV, or mprotect was refused");
	tap_is(in_child(step_read_into_it), 0,
	       "6.5: read() into a clean buffer after read-only and back: no harm");
}

static int advice;

static int step_advise(void)
{
	char *p = fresh();
	int sig;

	if (madvise(p, SIZE, advice))
		return unharmed(p) ? 0 : 1;
	sig = touch(p, SIZE);
	if (sig && sig != SIGBUS)
		return 2;
	/* Not refused and no signal: then nothing may be lost. touch() adds 1 to each page. */
	if (!sig && p[PAGE] != 3)
		return 3;
	return munmap(p, SIZE) ? 4 : 0;
}

static int step_advise_part(void)
{
	char *p = fresh();
	int sig;

	if (madvise(p + PAGE, PAGE, advice))
		return unharmed(p) ? 0 : 1;
	sig = touch(p + PAGE, PAGE);
	if (sig && sig != SIGBUS)
		return 2;
	if (!sig && p[PAGE] != 3)
		return 3;
	if (touch(p, PAGE) || touch(p + 2 * PAGE, SIZE - 2 * PAGE))
		return 5;
	return munmap(p, SIZE) ? 4 : 0;
}

static void test_madvise(void)
{
	static const struct {
		const char *name;
		int advice;
	} advices[] = {
		{ "MADV_DONTNEED", MADV_DONTNEED }, { "MADV_FREE", MADV_FREE },
		{ "MADV_REMOVE", MADV_REMOVE }, { "MADV_PAGEOUT", 21 }, { "MADV_COLD", 20 },
		{ "MADV_WILLNEED", MADV_WILLNEED }, { "MADV_POPULATE_WRITE", 23 },
		{ "MADV_DONTNEED_LOCKED", 24 }, { "MADV_HUGEPAGE", MADV_HUGEPAGE },
		{ "MADV_COLLAPSE", 25 }, { "MADV_MERGEABLE", MADV_MERGEABLE },
		{ "MADV_DODUMP", MADV_DODUMP }, { "MADV_GUARD_INSTALL", 102 },
	};
	unsigned int i;

	for (i = 0; i < sizeof(advices) / sizeof(*advices); i++) {
		advice = advices[i].advice;
		tap_is(in_child(step_advise), 0,
		       "6.5: %s, then touch: refused, SIGBUS, or nothing lost", advices[i].name);
	}
	advice = MADV_DONTNEED;
	tap_is(in_child(step_advise_part), 0,
	       "6.5: MADV_DONTNEED of one page: refused, SIGBUS, or nothing lost");
}

/* MADV_DOFORK takes "not in the child" back; whatever the child then has, no harm. */
static int step_fork_anyway(void)
{
	char *p = fresh();
	int status = -1, ret = 0;
	pid_t pid;

	if (madvise(p, SIZE, MADV_DOFORK))
		return 0;
	pid = fork();
	if (!pid) {
		touch(p, SIZE);
		munmap(p, PAGE);
		_exit(munmap(p, SIZE) ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	if (status)
		ret = 1;
	if (touch(p, SIZE))
		ret = 2;
	if (munmap(p, SIZE))
		ret = 3;
	return ret;
}

static int step_lock(void)
{
	char *p = fresh();

	if (mlock(p, SIZE))
		return unharmed(p) ? 0 : 1;
	if (touch(p, SIZE) || munlock(p, SIZE))
		return 2;
	return munmap(p, SIZE) ? 3 : 0;
}

static void test_others(void)
{
	tap_is(in_child(step_fork_anyway), 0,
	       "6.5: MADV_DOFORK and fork: parent and child can unmap, no harm");
	tap_is(in_child(step_lock), 0, "6.5: mlock and munlock of the whole: no harm");
}

static void test_many(void)
{
	enum { COUNT = 64 };
	char *p[COUNT];
	unsigned int i, good = 0;

	for (i = 0; i < COUNT; i++) {
		p[i] = nvfs_mmap(node, 64 * KIB);
		if (p[i])
			memset(p[i], i + 1, 64 * KIB);
	}
	for (i = 0; i < COUNT; i++)
		good += p[i] && p[i][0] == (char)(i + 1) && !memcmp(p[i], p[i] + 1, 64 * KIB - 1);
	tap_is(good, COUNT, "6.8: %d shadow buffers at once, each with memory of its own", COUNT);
	for (i = 0; i < COUNT; i++)
		if (p[i])
			munmap(p[i], 64 * KIB);
}

static void test_direct_io(const char *dir)
{
	static const size_t sizes[] = { 512, 4 * KIB, MIB };
	char *p = nvfs_mmap(node, MIB), *want = malloc(MIB);
	char path[256];
	unsigned int i;
	ssize_t ret;
	int fd;

	snprintf(path, sizeof(path), "%s/mmap.tmp", dir);
	fd = nvfs_file(path, MIB, 3);
	if (fd < 0 || !p || !want)
		tap_bail("cannot make %s", path);
	for (i = 0; i < 3; i++) {
		size_t size = sizes[i];

		memset(p, 0, MIB);
		pattern_fill(want, size, 3, 0);
		ret = pread(fd, p, size, 0) < 0 ? -errno : (ssize_t)size;
		tap_ok(ret == (ssize_t)size && !memcmp(p, want, size) &&
		       is_zero(p + size, MIB - size),
		       "6.4, O3: pread of %zu bytes, O_DIRECT, into a shadow buffer", size);
		if (ret < 0)
			tap_diag("%s", strerror(-ret));
		pattern_fill(p, size, 4 + i, 0);
		ret = pwrite(fd, p, size, 0) < 0 ? -errno : (ssize_t)size;
		memset(p, 0, size);
		pattern_fill(want, size, 4 + i, 0);
		tap_ok(ret == (ssize_t)size && pread(fd, p, size, 0) == (ssize_t)size &&
		       !memcmp(p, want, size),
		       "6.4, O3: pwrite of %zu bytes, O_DIRECT, from a shadow buffer", size);
		if (ret < 0)
			tap_diag("%s", strerror(-ret));
		pattern_fill(want, size, 3, 0);
		if (pwrite(fd, memcpy(p, want, size), size, 0) != (ssize_t)size)
			tap_diag("cannot restore the file");
	}
	/* One page at the very end, so that a piece starts inside a larger allocation. */
	pattern_fill(want, PAGE, 3, 0);
	tap_ok(pread(fd, p + MIB - PAGE, PAGE, 0) == PAGE && !memcmp(p + MIB - PAGE, want, PAGE),
	       "6.4, O3: pread into the last page of a shadow buffer");
	close(fd);
	unlink(path);
	munmap(p, MIB);
	free(want);
}

int main(int argc, char **argv)
{
	long before, after;

	if (argc != 2)
		tap_bail("usage: %s DIRECTORY", argv[0]);
	node = nvfs_open(0, O_RDWR);
	if (node < 0)
		tap_bail("cannot open a node: %s", strerror(-node));
	before = available_kib();
	test_lengths();
	test_checks();
	test_contents();
	test_flags();
	test_fork();
	test_munmap();
	test_split();
	test_mremap();
	test_mprotect();
	test_madvise();
	test_others();
	test_many();
	test_direct_io(argv[1]);
	after = available_kib();
	/* About 700 MiB were mapped and unmapped; the file system's cache is a few. */
	tap_ok(before - after < 64 * 1024, "6: all shadow memory came back");
	tap_diag("MemAvailable: %ld KiB before, %ld after", before, after);
	return tap_plan();
}
