// SPDX-License-Identifier: GPL-2.0
/*
 * A drive that does not answer for a minute: who waits for it sleeps, and all end well when it does.
 *
 * usage: held throttle DRIVE FILE	a drive that QEMU slows down, by its serial
 *        held hold FILE		fake_storage
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/host.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

#define SIZE	(8 * MIB)
#define SECONDS	60
#define MANY	60
#define LINES	20

static const char *drive, *path;
static int control = -1;

/* Holds what comes from now on, or lets all go. */
static void hold(bool on)
{
	int ret;

	if (!drive) {
		if (storage_hold(control, on ? FAKE_STORAGE_MAPPED : FAKE_STORAGE_RUN))
			tap_bail("no hold");
		return;
	}
	/* 8 MiB take two minutes. */
	ret = host_throttle(drive, on ? 65536 : 0);
	if (ret)
		tap_bail("no throttle: %s", strerror(-ret));
}

struct one {
	struct gpu gpu;
	struct nvfs_buffer buf;
	uint64_t va;
	int node, fd;
	pid_t reader, freer;	/* threads */
	ssize_t result;
	int freed;
};

/* With a first READ, so that the next one waits for nothing but its data. */
static void begin(struct one *o)
{
	struct fake_nvidia_info info;

	memset(o, 0, sizeof(*o));
	o->node = nvfs_open(0, O_RDWR);
	o->fd = open(path, O_RDONLY | O_DIRECT);
	if (o->node < 0 || o->fd < 0 || gpu_open(&o->gpu, 0) || gpu_info(&o->gpu, &info) ||
	    gpu_alloc(&o->gpu, SIZE, 0, &o->va) || gpu_set(&o->gpu, o->va, 0, SIZE) ||
	    nvfs_register(&o->buf, o->node, o->va, SIZE, SIZE, info.pdevinfo) ||
	    nvfs_read(&o->buf, o->fd, 0, SIZE, 0) != (ssize_t)SIZE ||
	    gpu_set(&o->gpu, o->va, 0, SIZE))
		tap_bail("no buffer: %s", strerror(errno));
}

static void *do_read(void *arg)
{
	struct one *o = arg;

	__atomic_store_n(&o->reader, gettid(), __ATOMIC_RELEASE);
	o->result = nvfs_read(&o->buf, o->fd, 0, SIZE, 0);
	return NULL;
}

static void *do_free(void *arg)
{
	struct one *o = arg;

	__atomic_store_n(&o->freer, gettid(), __ATOMIC_RELEASE);
	o->freed = gpu_free(&o->gpu, o->va);
	return NULL;
}

static pthread_t thread(void *(*f)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, f, arg))
		tap_bail("no thread");
	return t;
}

/* State of a thread and the CPU time that it has used, in ticks of 10 ms. */
static char state(pid_t tid, long *ticks)
{
	char name[64], text[512], *at;
	long user = 0, system = 0;

	snprintf(name, sizeof(name), "/proc/%d/task/%d/stat", tid, tid);
	if (nvfs_read_text(name, text, sizeof(text)) <= 0)
		return 0;
	at = strrchr(text, ')') + 2;
	sscanf(at, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system);
	if (ticks)
		*ticks = user + system;
	return *at;
}

/* Waits until a thread sleeps where no signal wakes it. */
static void wait_asleep(pid_t *tid)
{
	double end = nvfs_seconds() + 60;
	pid_t known;

	do {
		if (nvfs_seconds() > end)
			tap_bail("a thread does not wait");
		sched_yield();
		known = __atomic_load_n(tid, __ATOMIC_ACQUIRE);
	} while (!known || state(known, NULL) != 'D');
}

/* Time of all CPUs that processes and the kernel used, in ticks. */
static long used(void)
{
	char text[16384];
	long user, nice, system;

	if (nvfs_read_text("/proc/stat", text, sizeof(text)) <= 0 ||
	    sscanf(text, "cpu %ld %ld %ld", &user, &nice, &system) != 3)
		return 0;
	return user + nice + system;
}

static void nap(unsigned int seconds)
{
	struct timespec time = { .tv_sec = seconds };

	nanosleep(&time, NULL);
}

static bool data_right(struct one *o)
{
	int64_t bad;

	return !gpu_check(&o->gpu, o->va, SIZE, 5, &bad) && bad < 0;
}

/* Shared with the child. */
struct child {
	bool ready, held;
	pid_t reader;
};

static void wait_until(const bool *it)
{
	while (!__atomic_load_n(it, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void waiters(void)
{
	struct child *child = mmap(NULL, sizeof(*child), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long before[4], after[4];
	struct one reading, unmapped, o;
	pthread_t read, freeing;
	double start, end;
	int status = 0, i;
	pid_t pid;

	begin(&reading);
	begin(&unmapped);
	pid = fork();
	if (!pid) {
		begin(&o);
		__atomic_store_n(&child->ready, true, __ATOMIC_RELEASE);
		wait_until(&child->held);
		thread(do_read, &o);
		wait_asleep(&o.reader);
		__atomic_store_n(&child->reader, o.reader, __ATOMIC_RELEASE);
		for (;;)
			nap(600);
	}
	wait_until(&child->ready);
	hold(true);
	__atomic_store_n(&child->held, true, __ATOMIC_RELEASE);
	read = thread(do_read, &reading);
	wait_asleep(&reading.reader);
	freeing = thread(do_free, &reading);
	wait_asleep(&reading.freer);
	wait_asleep(&child->reader);
	kill(pid, SIGKILL);
	tap_is(nvfs_submit(&unmapped.buf, NVFS_IOCTL_READ, unmapped.fd, 0, SIZE, 0), 0,
	       "an async READ is held");
	start = nvfs_seconds();
	munmap(unmapped.buf.shadow, unmapped.buf.window);
	end = nvfs_seconds();
	tap_ok(end - start < 5, "munmap does not wait for it: %.3f s", end - start);
	nap(3);
	state(reading.reader, &before[0]);
	state(reading.freer, &before[1]);
	state(child->reader, &before[2]);
	before[3] = used();
	nap(SECONDS);
	tap_is(state(reading.reader, &after[0]), 'D', "a READ still sleeps after %u s", SECONDS);
	tap_is(state(reading.freer, &after[1]), 'D', "so does the free of its GPU memory");
	tap_is(state(child->reader, &after[2]), 'D', "and one that was killed");
	after[3] = used();
	for (i = 0; i < 3; i++)
		tap_ok(after[i] - before[i] < 20, "it used no CPU: %ld ticks", after[i] - before[i]);
	tap_ok(after[3] - before[3] < SECONDS * 50, "nor did the kernel for them: %ld ticks",
	       after[3] - before[3]);
	tap_ok(syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK) < 0 && errno == EWOULDBLOCK,
	       "the module is in use");
	hold(false);
	pthread_join(read, NULL);
	pthread_join(freeing, NULL);
	tap_is(reading.result, (long long)SIZE, "the drive answers: the READ is whole");
	tap_is(reading.freed, 0, "the GPU memory is free");
	tap_is(reading.buf.meta->state, NVFS_META_DIED, "and the buffer dead");
	tap_ok(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	       "who was killed is gone");
	tap_is(nvfs_wait(&unmapped.buf), (long long)SIZE, "the async READ is whole");
	tap_ok(data_right(&unmapped), "with the right bytes");
	nvfs_unregister(&reading.buf);
	close(reading.node);
	close(unmapped.node);
	gpu_close(&reading.gpu);
	gpu_close(&unmapped.gpu);
}

/* The GPU memory of many buffers is freed while their transfers are held. */
struct some {
	struct gpu *gpu;
	struct nvfs_buffer buf;
	int freed;
};

static void *free_some(void *arg)
{
	struct some *s = arg;

	s->freed = gpu_free(s->gpu, s->buf.gpu_va);
	return NULL;
}

static unsigned int lines_of_frees(int kmsg)
{
	char line[2048];
	unsigned int n = 0;
	ssize_t got;

	while ((got = read(kmsg, line, sizeof(line) - 1)) >= 0 || errno == EPIPE) {
		line[got < 0 ? 0 : got] = '\0';
		n += !!strstr(line, "is being freed");
	}
	return n;
}

static void many(void)
{
	static struct some some[MANY];
	unsigned int i, begun = 0, whole = 0, freed = 0, lines;
	int kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	pthread_t threads[MANY];
	struct one o;
	uint64_t va;

	begin(&o);
	if (kmsg < 0 || lseek(kmsg, 0, SEEK_END) < 0)
		tap_bail("no log");
	hold(true);
	for (i = 0; i < MANY; i++) {
		some[i].gpu = &o.gpu;
		if (gpu_alloc(&o.gpu, 64 * KIB, 0, &va) ||
		    nvfs_register(&some[i].buf, o.node, va, 64 * KIB, 64 * KIB, o.buf.pdevinfo))
			tap_bail("no buffer");
		begun += nvfs_submit(&some[i].buf, NVFS_IOCTL_READ, o.fd, 0, 64 * KIB, 0) >= 0;
	}
	tap_is(begun, MANY, "async READs of %u buffers are under way", MANY);
	for (i = 0; i < MANY; i++)
		threads[i] = thread(free_some, &some[i]);
	/* A drive that is slow has finished some of them. */
	nap(13);
	lines = lines_of_frees(kmsg);
	tap_ok(lines > 0, "the log tells that their GPU memory cannot be freed");
	tap_ok(lines < LINES, "in less than %u lines: %u", LINES, lines);
	hold(false);
	for (i = 0; i < MANY; i++) {
		pthread_join(threads[i], NULL);
		freed += !some[i].freed;
		whole += nvfs_wait(&some[i].buf) == 64 * KIB;
		nvfs_unregister(&some[i].buf);
	}
	tap_is(freed, MANY, "the drive answers: all is free");
	tap_is(whole, MANY, "and the READs are whole");
	nvfs_unregister(&o.buf);
	close(o.node);
	close(o.fd);
	gpu_close(&o.gpu);
	close(kmsg);
}

/* The module is unloaded while a transfer of a buffer that nobody has any more is held. */
static void unload(void)
{
	long before, after;
	struct one last;
	int status;
	pid_t pid;

	begin(&last);
	hold(true);
	tap_is(nvfs_submit(&last.buf, NVFS_IOCTL_READ, last.fd, 0, SIZE, 0), 0,
	       "an async READ is held");
	munmap(last.buf.shadow, last.buf.window);
	close(last.node);
	pid = fork();
	if (!pid)
		_exit(syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK) ? errno : 0);
	wait_asleep(&pid);
	nap(3);
	state(pid, &before);
	nap(SECONDS / 4);
	tap_is(state(pid, &after), 'D', "unload waits for it");
	tap_ok(after - before < 20, "it used no CPU: %ld ticks", after - before);
	hold(false);
	tap_ok(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
	       "the drive answers: the module is unloaded");
	tap_is(nvfs_wait(&last.buf), (long long)SIZE, "the async READ is whole");
	tap_ok(data_right(&last), "with the right bytes");
	close(last.fd);
	gpu_close(&last.gpu);
}

int main(int argc, char **argv)
{
	struct fake_nvidia_counts counts;
	struct gpu gpu;
	int fd;

	if (argc == 4 && !strcmp(argv[1], "throttle"))
		drive = argv[2];
	else if (argc != 3 || strcmp(argv[1], "hold"))
		tap_bail("usage: %s throttle DRIVE FILE | hold FILE", argv[0]);
	path = argv[argc - 1];
	if (!drive)
		control = storage_open();
	fd = nvfs_file(path, SIZE, 5);
	if (fd < 0 || nvfs_set_parameter("use_legacy_p2p_allocation", "1"))
		tap_bail("cannot make %s", path);
	close(fd);
	waiters();
	many();
	unload();
	if (gpu_open(&gpu, 0) || gpu_counts(&gpu, &counts))
		tap_bail("no counts");
	tap_ok(!counts.tables && !counts.pinned_pages && !counts.mappings, "nothing is left pinned");
	tap_is(counts.callbacks_done, counts.callbacks, "each callback returned");
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	return tap_plan();
}
