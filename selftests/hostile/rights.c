// SPDX-License-Identifier: GPL-2.0
/*
 * READ and WRITE give nobody a right that read and write of the same descriptor do not: whatever
 * the file system, a limit or a watcher refuses to those, it refuses to ours, with the same errno.
 *
 * usage: rights DIRECTORY [DEVICE]	each case, as root; DEVICE is swapped to
 *        rights user DIRECTORY		what any user may do, and may not
 *        rights end DIRECTORY		the file system is shut down by this
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE	(64 * KIB)
#define NOBODY	65534

static struct gpu gpu;
static struct nvfs_buffer buf;
static uint64_t va;
static char path[256];
static const char *directory;
static char *cpu;		/* what pwrite and pread use: the bytes that GPU memory has */

static bool begin(void)
{
	struct fake_nvidia_info info;
	int node = nvfs_open(0, O_RDWR);

	return node >= 0 && !gpu_open(&gpu, 0) && !gpu_info(&gpu, &info) &&
	       !gpu_alloc(&gpu, MIB, 0, &va) &&
	       !nvfs_register(&buf, node, va, MIB, MIB, info.pdevinfo);
}

static const char *in_directory(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

/* A new file of SIZE bytes of the pattern 1. */
static void make(const char *name)
{
	int fd;

	unlink(in_directory(name));
	fd = nvfs_file(path, SIZE, 1);
	if (fd < 0 || fchmod(fd, 0666))
		tap_bail("cannot make %s: %s", path, strerror(errno));
	close(fd);
}

static bool has_pattern(uint64_t seed, off_t at)
{
	static char data[SIZE];
	int fd = open(path, O_RDONLY);
	bool good = pread(fd, data, SIZE, at) == (ssize_t)SIZE &&
		    pattern_check(data, SIZE, seed, 0) < 0;

	close(fd);
	return good;
}

static off_t size_of_file(void)
{
	struct stat st;

	return stat(path, &st) ? -1 : st.st_size;
}

/* Our WRITE and the system's, of the same bytes; each may fail, or move `want` bytes. */
static void write_is(const char *what, int fd, off_t at, ssize_t want)
{
	ssize_t ret;

	gpu_fill(&gpu, va, SIZE, 2);
	pattern_fill(cpu, SIZE, 2, 0);
	ret = pwrite(fd, cpu, SIZE, at);
	tap_is(ret < 0 ? -errno : ret, want, "%s: pwrite", what);
	tap_is(nvfs_write(&buf, fd, at, SIZE, 0), want, "%s: WRITE", what);
	ret = nvfs_submit(&buf, NVFS_IOCTL_WRITE, fd, at, SIZE, 0);
	if (want == -EBADF)
		tap_is(ret, want, "%s: async WRITE", what);
	else
		tap_is(nvfs_wait(&buf), want, "%s: async WRITE", what);
}

static void read_is(const char *what, int fd, ssize_t want)
{
	ssize_t ret = pread(fd, cpu, SIZE, 0);
	int64_t bad = 0;

	tap_is(ret < 0 ? -errno : ret, want, "%s: pread", what);
	gpu_fill(&gpu, va, SIZE, 3);
	tap_is(nvfs_read(&buf, fd, 0, SIZE, 0), want, "%s: READ", what);
	if (want < 0)
		tap_ok(!gpu_check(&gpu, va, SIZE, 3, &bad) && bad < 0, "%s: nothing came", what);
}

static ssize_t read_allowed(int fd, bool async)
{
	union nvfs_ioctl_arg arg = nvfs_io_arg(&buf, fd, 0, SIZE, 0);
	ssize_t ret;

	arg.io.flags |= NVFS_IO_ALLOWREADS;
	if (!async)
		return nvfs_request(buf.node, NVFS_IOCTL_READ, &arg);
	ret = nvfs_submit(&buf, NVFS_IOCTL_READ, fd, 0, SIZE, 0);
	return ret < 0 ? ret : nvfs_wait(&buf);
}

static int set_flags(int fd, unsigned int set)
{
	unsigned int flags;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags))
		return -errno;
	flags = (flags & ~(FS_IMMUTABLE_FL | FS_APPEND_FL)) | set;
	return ioctl(fd, FS_IOC_SETFLAGS, &flags) ? -errno : 0;
}

/* ---- how the file was opened, and what it is ---- */

static void by_mode(void)
{
	int fd;

	make("mode");
	fd = open(path, O_RDONLY | O_DIRECT);
	write_is("a file open for reading", fd, 0, -EBADF);
	close(fd);
	fd = open(path, O_WRONLY | O_DIRECT);
	read_is("a file open for writing", fd, -EBADF);
	close(fd);
	tap_ok(has_pattern(1, 0), "neither was changed");
}

static void by_flags(void)
{
	struct statfs fs;
	int fd, other;

	make("immutable");
	fd = open(path, O_RDWR | O_DIRECT);
	other = open(path, O_RDONLY);
	if (statfs(path, &fs) || set_flags(other, FS_IMMUTABLE_FL))
		tap_bail("no immutable files");
	tap_ok(open(path, O_RDWR | O_DIRECT) < 0 && errno == EPERM,
	       "an immutable file is not opened for writing");
	if (fs.f_type == EXT4_SUPER_MAGIC) {
		write_is("a file that was made immutable", fd, 0, -EPERM);
		tap_ok(has_pattern(1, 0), "and it was not changed");
	}
	set_flags(other, 0);
	close(fd);
	close(other);

	make("append");
	other = open(path, O_RDONLY);
	if (set_flags(other, FS_APPEND_FL))
		tap_bail("no append-only files");
	tap_ok(open(path, O_RDWR | O_DIRECT) < 0 && errno == EPERM,
	       "an append-only file is opened for appending only");
	fd = open(path, O_RDWR | O_APPEND | O_DIRECT);
	write_is("an append-only file", fd, 0, SIZE);
	tap_is(size_of_file(), 4 * SIZE, "each write was appended");
	tap_ok(has_pattern(1, 0), "what was there was not changed");
	tap_ok(has_pattern(2, SIZE) && has_pattern(2, 2 * SIZE) && has_pattern(2, 3 * SIZE),
	       "and each has its bytes");
	set_flags(other, 0);
	close(fd);
	close(other);
}

static void swapped(const char *device)
{
	char command[512];
	int fd;

	make("swap");
	fd = open(path, O_RDWR | O_DIRECT);
	snprintf(command, sizeof(command), "mkswap %s > /dev/null 2>&1", path);
	if (system(command))
		tap_bail("mkswap failed");
	fsync(fd);
	if (swapon(path, 0))
		tap_bail("swapon %s: %s", path, strerror(errno));
	write_is("a swap file", fd, 0, -ETXTBSY);
	tap_is(swapoff(path), 0, "and it is whole");
	close(fd);
	if (!device)
		return;
	fd = open(device, O_RDWR | O_DIRECT);
	snprintf(command, sizeof(command), "mkswap %s > /dev/null 2>&1", device);
	if (fd < 0 || system(command) || swapon(device, 0))
		tap_bail("swapon %s: %s", device, strerror(errno));
	write_is("a swap device", fd, 0, -ETXTBSY);
	tap_is(swapoff(device), 0, "and it is whole");
	close(fd);
}

static void read_only(const char *device)
{
	int fd, read_only = 1, off = 0;

	make("mount");
	fd = open(path, O_RDWR | O_DIRECT);
	tap_ok(mount("none", directory, NULL, MS_REMOUNT | MS_RDONLY, NULL) && errno == EBUSY,
	       "no file system with a file open for writing becomes read-only");
	mkdir("/mnt/bind", 0755);
	if (mount(directory, "/mnt/bind", NULL, MS_BIND, NULL) ||
	    mount("none", "/mnt/bind", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
		tap_bail("no bind mount: %s", strerror(errno));
	tap_ok(open("/mnt/bind/mount", O_RDWR | O_DIRECT) < 0 && errno == EROFS,
	       "by a read-only mount no file is opened for writing");
	close(fd);
	fd = open("/mnt/bind/mount", O_RDONLY | O_DIRECT);
	write_is("a file of a read-only mount", fd, 0, -EBADF);
	read_is("a file of a read-only mount", fd, SIZE);
	close(fd);
	umount("/mnt/bind");
	if (!device)
		return;
	fd = open(device, O_RDWR | O_DIRECT);
	if (fd < 0 || ioctl(fd, BLKROSET, &read_only))
		tap_bail("no read-only device");
	write_is("a device that was made read-only", fd, 0, -EPERM);
	ioctl(fd, BLKROSET, &off);
	close(fd);
}

static void sealed(void)
{
	int fd = memfd_create("sealed", MFD_ALLOW_SEALING), direct;
	char name[64];

	if (fd < 0 || ftruncate(fd, SIZE))
		tap_bail("no memfd");
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	direct = open(name, O_RDWR | O_DIRECT);
	if (direct < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE))
		tap_bail("no seal");
	tap_ok(pwrite(direct, cpu, SIZE, 0) < 0 && errno == EPERM, "a sealed file: pwrite: EPERM");
	tap_is(nvfs_write(&buf, direct, 0, SIZE, 0), -EOPNOTSUPP, "a sealed file: WRITE");
	close(direct);
	close(fd);
}

/* ---- limits ---- */

static void full(void)
{
	struct statfs fs;
	off_t room;
	int fd, filler;

	make("full");
	fd = open(path, O_RDWR | O_DIRECT);
	filler = open(in_directory("filler"), O_RDWR | O_CREAT, 0600);
	for (room = 1L << 33; room >= 4096; room /= 2)
		while (!fallocate(filler, FALLOC_FL_KEEP_SIZE,
				  lseek(filler, room, SEEK_CUR) - room, room))
			;
	if (statfs(path, &fs))
		tap_bail("no statfs");
	tap_diag("%lu blocks left", (unsigned long)fs.f_bavail);
	in_directory("full");
	write_is("a full disk", fd, 64 * MIB, -ENOSPC);
	tap_is(size_of_file(), SIZE, "and the file is not longer");
	tap_ok(has_pattern(1, 0), "nor changed");
	close(filler);
	unlink(in_directory("filler"));
	in_directory("full");
	sync();
	write_is("room again", fd, 64 * MIB, SIZE);
	tap_ok(has_pattern(2, 64 * MIB), "with the right bytes");
	close(fd);
}

static volatile sig_atomic_t signals;

static void count(int signal)
{
	(void)signal;
	signals++;
}

static void limits(void)
{
	struct rlimit before, limit;
	int fd;

	make("limit");
	fd = open(path, O_RDWR | O_DIRECT);
	signal(SIGXFSZ, count);
	getrlimit(RLIMIT_FSIZE, &before);
	limit = before;
	limit.rlim_cur = SIZE;
	setrlimit(RLIMIT_FSIZE, &limit);
	write_is("beyond RLIMIT_FSIZE", fd, SIZE, -EFBIG);
	tap_is(signals, 3, "each with a SIGXFSZ");
	write_is("below RLIMIT_FSIZE", fd, 0, SIZE);
	limit.rlim_cur = SIZE + 32 * KIB;
	setrlimit(RLIMIT_FSIZE, &limit);
	write_is("over RLIMIT_FSIZE", fd, SIZE, 32 * KIB);
	setrlimit(RLIMIT_FSIZE, &before);
	tap_is(size_of_file(), SIZE + 32 * KIB, "the file is as long as the limit");
	tap_ok(has_pattern(2, 0), "with the right bytes");
	close(fd);
}

/* ---- watchers ---- */

static int fan;

static void *deny(void *arg)
{
	/* With room for what follows one event. */
	union {
		struct fanotify_event_metadata event;
		char room[256];
	} one;
	struct fanotify_response response;

	(void)arg;
	while (read(fan, &one, sizeof(one)) >= (ssize_t)sizeof(one.event)) {
		response = (struct fanotify_response){ one.event.fd, FAN_DENY };
		if (write(fan, &response, sizeof(response)) != sizeof(response))
			break;
		close(one.event.fd);
	}
	return NULL;
}

/* The file at `path` gets a watcher of that class, which is asked about events of `mask`. */
static void watch(unsigned int class, uint64_t mask)
{
	fan = fanotify_init(class, O_RDONLY);
	if (fan < 0 || fanotify_mark(fan, FAN_MARK_ADD, mask, AT_FDCWD, path))
		tap_bail("no fanotify: %s", strerror(errno));
}

static void watched(void)
{
	pthread_t thread;
	int64_t bad;
	int fd;

	make("watched");
	watch(FAN_CLASS_CONTENT, FAN_ACCESS_PERM);
	if (pthread_create(&thread, NULL, deny, NULL))
		tap_bail("no thread");
	/* The kernel asks watchers that are there when a file is opened. */
	fd = open(path, O_RDWR | O_DIRECT);
	read_is("a file whose watcher denies access", fd, -EPERM);
	gpu_fill(&gpu, va, SIZE, 3);
	nvfs_submit(&buf, NVFS_IOCTL_READ, fd, 0, SIZE, 0);
	tap_is(nvfs_wait(&buf), -EPERM, "and async READ");
	tap_ok(!gpu_check(&gpu, va, SIZE, 3, &bad) && bad < 0, "of which nothing came");
	fanotify_mark(fan, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL);
	read_is("a file without watcher", fd, SIZE);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	close(fan);
	close(fd);

	/* Who fills files on demand is asked before writes too. */
	make("filled");
	watch(FAN_CLASS_PRE_CONTENT, FAN_PRE_ACCESS);
	if (pthread_create(&thread, NULL, deny, NULL))
		tap_bail("no thread");
	fd = open(path, O_RDWR | O_DIRECT);
	write_is("a file whose filler denies it", fd, 0, -EPERM);
	fanotify_mark(fan, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL);
	tap_ok(has_pattern(1, 0), "nothing was written");
	write_is("a file without filler", fd, 0, SIZE);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	close(fan);
	close(fd);

	/* A descriptor for writing reads by a new open, for which a watcher is asked. */
	make("judged");
	fd = open(path, O_WRONLY | O_DIRECT);
	watch(FAN_CLASS_CONTENT, FAN_OPEN_PERM);
	if (pthread_create(&thread, NULL, deny, NULL))
		tap_bail("no thread");
	gpu_fill(&gpu, va, SIZE, 3);
	tap_is(read_allowed(fd, false), -EBADF, "a file whose watcher denies to open it: allowreads");
	tap_is(read_allowed(fd, true), -EBADF, "also async");
	tap_ok(!gpu_check(&gpu, va, SIZE, 3, &bad) && bad < 0, "nothing came");
	fanotify_mark(fan, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL);
	tap_is(read_allowed(fd, false), SIZE, "and without the watcher");
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	close(fan);
	close(fd);
}

/*
 * An entry of a batch whose file's watcher thinks it over keeps the other entries' GPU memory from
 * nobody: it is freed meanwhile.
 */
static union nvfs_ioctl_arg two[2];
static uint64_t freed_va;
static long batch_result;
static int free_result;

static void *do_batch(void *arg)
{
	union nvfs_ioctl_arg batch = { .batch = { .nents = 2 } };
	struct nvfs_ioctl_io entries[] = { two[0].io, two[1].io };

	(void)arg;
	batch.batch.io_entries = entries;
	batch_result = nvfs_ioctl(buf.node, NVFS_IOCTL_BATCH_IO, &batch);
	return NULL;
}

static void *do_free(void *arg)
{
	(void)arg;
	free_result = gpu_free(&gpu, freed_va);
	return NULL;
}

static void held_by_watcher(void)
{
	struct timespec end = { .tv_sec = time(NULL) + NVFS_WAIT_SECONDS };
	struct fanotify_event_metadata event;
	struct fanotify_response response;
	struct fake_nvidia_info info;
	pthread_t batch, freer;
	struct nvfs_buffer other;
	int fd, slow;

	make("slow");
	slow = open(path, O_WRONLY | O_DIRECT);
	watch(FAN_CLASS_CONTENT, FAN_OPEN_PERM);
	make("fast");
	fd = open(path, O_RDWR | O_DIRECT);
	nvfs_set_parameter("use_legacy_p2p_allocation", "1");
	if (gpu_info(&gpu, &info) || gpu_alloc(&gpu, SIZE, 0, &freed_va) ||
	    nvfs_register(&other, buf.node, freed_va, SIZE, SIZE, info.pdevinfo))
		tap_bail("no buffer");
	nvfs_set_parameter("use_legacy_p2p_allocation", "0");
	two[0] = nvfs_io_arg(&other, fd, 0, SIZE, 0);
	two[1] = nvfs_io_arg(&buf, slow, 0, SIZE, 0);
	two[1].io.flags |= NVFS_IO_ALLOWREADS;
	if (pthread_create(&batch, NULL, do_batch, NULL) ||
	    read(fan, &event, sizeof(event)) != sizeof(event) ||
	    pthread_create(&freer, NULL, do_free, NULL))
		tap_bail("no batch");
	tap_is(pthread_timedjoin_np(freer, NULL, &end), 0,
	       "GPU memory of a batch is freed while the watcher of another entry thinks");
	tap_is(free_result, 0, "without an error");
	response = (struct fanotify_response){ event.fd, FAN_ALLOW };
	if (write(fan, &response, sizeof(response)) != sizeof(response))
		tap_bail("no answer");
	pthread_join(batch, NULL);
	tap_is(batch_result, -EPERM, "then the batch fails");
	tap_is(other.meta->state, NVFS_META_DIED, "as its buffer is dead");
	read_is("a file of such a batch", fd, SIZE);
	nvfs_unregister(&other);
	close(event.fd);
	close(fan);
	close(slow);
	close(fd);
}

/* ---- a frozen file system ---- */

static ssize_t result;

static pid_t writer;

static void *write_frozen(void *arg)
{
	__atomic_store_n(&writer, gettid(), __ATOMIC_RELEASE);
	result = nvfs_write(&buf, *(int *)arg, 0, SIZE, 0);
	return NULL;
}

/* The state letter of the writer, 0 before it began. */
static char state(void)
{
	char name[64], text[512];

	snprintf(name, sizeof(name), "/proc/%d/stat", __atomic_load_n(&writer, __ATOMIC_ACQUIRE));
	return nvfs_read_text(name, text, sizeof(text)) > 0 ? strrchr(text, ')')[2] : 0;
}

static void frozen(void)
{
	pthread_t thread;
	double end;
	int fd, other;

	make("frozen");
	fd = open(path, O_RDWR | O_DIRECT);
	other = open(directory, O_RDONLY);
	gpu_fill(&gpu, va, SIZE, 2);
	if (ioctl(other, FIFREEZE, 0))
		tap_bail("no freeze: %s", strerror(errno));
	tap_is(nvfs_read(&buf, fd, 0, SIZE, 0), SIZE, "a frozen file system: READ");
	gpu_fill(&gpu, va, SIZE, 2);
	if (pthread_create(&thread, NULL, write_frozen, &fd))
		tap_bail("no thread");
	end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	while (state() != 'D' && nvfs_seconds() < end)
		sched_yield();
	tap_is(state(), 'D', "a frozen file system: WRITE waits");
	tap_is(nvfs_read(&buf, fd, 0, SIZE, 0), -EBUSY, "and has its buffer");
	tap_ok(has_pattern(1, 0), "and writes nothing");
	if (ioctl(other, FITHAW, 0))
		tap_bail("no thaw: %s", strerror(errno));
	pthread_join(thread, NULL);
	tap_is(result, SIZE, "it is done when it is thawed");
	tap_ok(has_pattern(2, 0), "with the right bytes");
	/* A freeze waits for what is under way. */
	make("frozen");
	close(fd);
	fd = open(path, O_RDWR | O_DIRECT);
	nvfs_submit(&buf, NVFS_IOCTL_WRITE, fd, 0, SIZE, 0);
	ioctl(other, FIFREEZE, 0);
	tap_is(nvfs_fence(&buf), buf.fence, "a freeze waits for the async WRITE under way");
	ioctl(other, FITHAW, 0);
	close(fd);
	close(other);
}

/* ---- any user ---- */

static int in_child(int (*f)(void), uid_t id)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (setgid(id) || setuid(id))
			_exit(100);
		_exit(f());
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int as_nobody(int (*f)(void))
{
	return in_child(f, NOBODY);
}

/* A file that may be written by all and be read by its owner. */
static int drop_box(void)
{
	int fd = open(path, O_WRONLY | O_DIRECT);
	int64_t bad;

	if (fd < 0 || open(path, O_RDONLY) >= 0 || !begin() || gpu_fill(&gpu, va, SIZE, 2))
		return 1;
	if (nvfs_write(&buf, fd, SIZE, SIZE, 0) != SIZE)
		return 2;
	if (read_allowed(fd, false) != -EBADF || read_allowed(fd, true) != -EBADF)
		return 3;
	return !gpu_check(&gpu, va, SIZE, 2, &bad) && bad < 0 ? 0 : 4;
}

/* No write leaves a set-user-id file of root's with that bit. */
static int set_user_id(void)
{
	int fd = open(path, O_WRONLY | O_DIRECT);

	return fd >= 0 && begin() && nvfs_write(&buf, fd, 0, SIZE, 0) == SIZE ? 0 : 1;
}

/* No privilege, no locked memory: all works. */
static int plain(void)
{
	static const char *const files[] = {
		NVFS_PROC "stats", NVFS_PARAMETERS "max_devices", NVFS_PARAMETERS "p2pdma",
		NVFS_PARAMETERS "use_legacy_p2p_allocation", NVFS_PARAMETERS "rw_stats_enabled",
	};
	struct rlimit none = { 0, 0 };
	int fd = open(path, O_RDWR | O_DIRECT);
	int64_t bad = 0;
	size_t i;

	if (setrlimit(RLIMIT_MEMLOCK, &none) || fd < 0 || !begin())
		return 1;
	if (nvfs_read(&buf, fd, 0, SIZE, 0) != SIZE || gpu_check(&gpu, va, SIZE, 1, &bad) ||
	    bad >= 0)
		return 2;
	gpu_fill(&gpu, va, SIZE, 2);
	if (nvfs_write(&buf, fd, 0, SIZE, 0) != SIZE || !has_pattern(2, 0))
		return 3;
	for (i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (open(files[i], O_WRONLY) >= 0 || errno != EACCES)
			return 4;
	return 0;
}

/* A security module denies: in a sandbox that may not do what is special to the devices it opens. */
static int sandboxed(void)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = LANDLOCK_ACCESS_FS_IOCTL_DEV };
	int fd = open(path, O_RDWR | O_DIRECT), set, node;
	union nvfs_ioctl_arg arg;
	int64_t bad;

	if (fd < 0 || !begin())
		return 1;
	set = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (set < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_landlock_restrict_self, set, 0))
		return 2;
	/* What was open before still can. */
	if (nvfs_read(&buf, fd, 0, SIZE, 0) != SIZE)
		return 3;
	node = nvfs_open(0, O_RDWR);
	arg = nvfs_io_arg(&buf, fd, 0, SIZE, 0);
	if (node < 0 || gpu_fill(&gpu, va, SIZE, 2) ||
	    nvfs_ioctl(node, NVFS_IOCTL_READ, &arg) != -EACCES)
		return 4;
	return !gpu_check(&gpu, va, SIZE, 2, &bad) && bad < 0 ? 0 : 5;
}

/*
 * A sandbox in which files are opened for `rights` only; what is open already stays so. Whether a
 * descriptor for writing can read goes by that.
 */
static int confined(__u64 rights)
{
	struct landlock_ruleset_attr attr = {
		.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE,
	};
	struct landlock_path_beneath_attr rule = { .allowed_access = rights };
	bool readable = rights & LANDLOCK_ACCESS_FS_READ_FILE;
	ssize_t want = readable ? (ssize_t)SIZE : -EBADF;
	int64_t bad = 0;
	int fd, set;

	rule.parent_fd = open("/", O_PATH);
	if (!begin())
		return 1;
	set = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (set < 0 || syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, set, 0))
		return 2;
	fd = open(path, O_WRONLY | O_DIRECT);
	if (fd < 0 || (open(path, O_RDONLY) >= 0) != readable)
		return 3;
	if (gpu_fill(&gpu, va, SIZE, 2) || read_allowed(fd, false) != want)
		return 4;
	if (gpu_check(&gpu, va, SIZE, readable ? 1 : 2, &bad) || bad >= 0)
		return 5;
	if (gpu_fill(&gpu, va, SIZE, 2) || read_allowed(fd, true) != want)
		return 6;
	if (gpu_check(&gpu, va, SIZE, readable ? 1 : 2, &bad) || bad >= 0)
		return 7;
	return 0;
}

static int write_only(void)
{
	return confined(LANDLOCK_ACCESS_FS_WRITE_FILE);
}

static int read_and_write(void)
{
	return confined(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
}

static bool write_file(const char *name, const char *text)
{
	return nvfs_write_text(name, text) == (ssize_t)strlen(text);
}

static bool may_write(const char *name)
{
	int fd = open(name, O_WRONLY);

	return fd >= 0 || errno != EACCES;
}

/*
 * A container: a user namespace whose root is nobody, other mounts, other processes; of /dev and
 * /proc there are the nodes only.
 */
static int contained(void)
{
	int fd, status, i;
	char name[64];
	pid_t pid;

	/* Its own files in /proc are root's else, as it was. */
	prctl(PR_SET_DUMPABLE, 1);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID))
		return 10;
	if (!write_file("/proc/self/setgroups", "deny") ||
	    !write_file("/proc/self/uid_map", "0 65534 1") ||
	    !write_file("/proc/self/gid_map", "0 65534 1"))
		return 11;
	pid = fork();
	if (pid)
		return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 12;
	if (may_write("/proc/driver/nvidia-fs/stats") ||
	    may_write("/sys/module/nvidia_fs/parameters/rw_stats_enabled") ||
	    may_write("/sys/module/nvidia_fs/parameters/p2pdma"))
		_exit(20);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/tmp", "tmpfs", 0, NULL) || mkdir("/tmp/dev", 0755) ||
	    mkdir("/tmp/data", 0755))
		_exit(13);
	for (i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), i ? "/tmp/dev/fake_nvidia0" : "/tmp/dev/nvidia-fs0");
		fd = open(name, O_CREAT | O_RDWR, 0600);
		close(fd);
		if (mount(name + 4, name, NULL, MS_BIND, NULL))
			_exit(14);
	}
	if (mount(directory, "/tmp/data", NULL, MS_BIND, NULL) || chroot("/tmp") || chdir("/"))
		_exit(15);
	if (mknod("/dev/mem", S_IFCHR | 0666, makedev(1, 1)) == 0)
		_exit(16);
	directory = "/data";
	fd = open(in_directory("plain"), O_RDWR | O_DIRECT);
	if (fd < 0 || !begin())
		_exit(17);
	if (nvfs_write(&buf, fd, 0, SIZE, 0) != SIZE || nvfs_read(&buf, fd, 0, SIZE, 0) != SIZE)
		_exit(18);
	/* Root of a user namespace has no right to what is not its own. */
	fd = open(in_directory("box"), O_WRONLY | O_DIRECT);
	if (fd < 0 || read_allowed(fd, false) != -EBADF)
		_exit(19);
	_exit(0);
}

static void user(void)
{
	struct stat st;
	int fd;

	make("box");
	chmod(path, 0222);
	tap_is(as_nobody(drop_box), 0, "a descriptor for writing reads no file that its process may not");
	chmod(path, 0666);
	fd = open(path, O_WRONLY | O_DIRECT);
	if (!begin())
		tap_bail("no buffer");
	tap_is(read_allowed(fd, false), SIZE, "but one that it may, with allowreads");
	tap_is(read_allowed(fd, true), SIZE, "also async");
	close(fd);
	chmod(path, 0222);
	make("setuid");
	chmod(path, 06777);
	tap_is(as_nobody(set_user_id), 0, "a WRITE to a set-user-id file");
	stat(path, &st);
	tap_is(st.st_mode & 07777, 0777, "takes the bits away");
	make("plain");
	tap_is(as_nobody(plain), 0, "any user, without lockable memory: READ and WRITE, but no parameter");
	tap_is(as_nobody(sandboxed), 0, "but not in a sandbox without ioctls of devices");
	make("plain");
	tap_is(as_nobody(write_only), 0, "a descriptor for writing does not read in a sandbox that may only write");
	tap_is(as_nobody(read_and_write), 0, "but in one that may read as well");
	tap_is(as_nobody(contained), 0, "so in a container with the nodes only");
}

/* The same of a disk, which only root may open. */
static void device_in_sandbox(const char *device)
{
	int fd;

	snprintf(path, sizeof(path), "%s", device);
	fd = open(path, O_WRONLY | O_DIRECT);
	pattern_fill(cpu, SIZE, 1, 0);
	if (fd < 0 || pwrite(fd, cpu, SIZE, 0) != (ssize_t)SIZE)
		tap_bail("cannot write to %s", device);
	tap_is(read_allowed(fd, false), (long long)SIZE, "a disk that is open for writing, with allowreads");
	tap_is(in_child(write_only, 0), 0, "not in a sandbox that may only write");
	tap_is(in_child(read_and_write, 0), 0, "but in one that may read as well");
	close(fd);
}

static void end(void)
{
	union nvfs_ioctl_arg arg;
	__u32 flags = 0;
	int64_t bad;
	int fd, other = open(directory, O_RDONLY);

	make("end");
	fd = open(path, O_RDWR | O_DIRECT);
	/* Later, fstat fails as well. */
	arg = nvfs_io_arg(&buf, fd, 0, SIZE, 0);
	tap_is(nvfs_read(&buf, fd, 0, SIZE, 0), SIZE, "a file system, as long as it lives: READ");
	if (ioctl(other, _IOR('X', 125, __u32), &flags))
		tap_bail("no shutdown: %s", strerror(errno));
	gpu_fill(&gpu, va, SIZE, 2);
	pattern_fill(cpu, SIZE, 2, 0);
	tap_ok(pwrite(fd, cpu, SIZE, 0) < 0 && errno == EIO, "a file system that was shut down: pwrite");
	tap_is(nvfs_request(buf.node, NVFS_IOCTL_WRITE, &arg), -EIO,
	       "a file system that was shut down: WRITE");
	tap_ok(pread(fd, cpu, SIZE, 0) < 0 && errno == EIO, "a file system that was shut down: pread");
	tap_is(nvfs_request(buf.node, NVFS_IOCTL_READ, &arg), -EIO,
	       "a file system that was shut down: READ");
	tap_ok(!gpu_check(&gpu, va, SIZE, 2, &bad) && bad < 0, "nothing came");
}

int main(int argc, char **argv)
{
	if (argc < 2)
		tap_bail("usage: %s [user | end] DIRECTORY [DEVICE]", argv[0]);
	signal(SIGXFSZ, SIG_IGN);
	cpu = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!strcmp(argv[1], "user")) {
		directory = argv[2];
		user();
		return tap_plan();
	}
	directory = argv[argc > 2 && !strcmp(argv[1], "end") ? 2 : 1];
	if (!begin())
		tap_bail("no buffer");
	if (!strcmp(argv[1], "end")) {
		end();
		return tap_plan();
	}
	by_mode();
	by_flags();
	swapped(argv[2]);
	read_only(argv[2]);
	sealed();
	full();
	limits();
	watched();
	held_by_watcher();
	frozen();
	if (argv[2])
		device_in_sandbox(argv[2]);
	return tap_plan();
}
