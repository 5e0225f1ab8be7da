// SPDX-License-Identifier: GPL-2.0
/*
 * Devices that reset, do not answer, or go away during transfers.
 *
 * usage: removal reset FILE CONTROLLER	the controller's folder in sysfs: it is reset, again and again
 *        removal lost FILE FUNCTION	the PCI function's folder: it loses its bus
 *        removal timeout FILE	none of its answers is heard, and no request is tried again
 *        removal late FILE	some are not, and the requests are tried again
 *        removal unplug FILE DRIVE
 *        removal gpu FILE GPU		pins that go with the memory; the name is QEMU's
 *        removal gpu-held FILE GPU	pins that hold it
 *
 * WAY=callback in the environment: the drives' driver has hooks. `timeout` and `late` need the debug
 * kernel.
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
#include <unistd.h>

#include "../lib/disk.h"
#include "../lib/gpu.h"
#include "../lib/host.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define THREADS	3
#define SIZE	(1 * MIB)

#define RETRIES	"/sys/module/nvme_core/parameters/max_retries"
#define PATIENCE	5	/* seconds */

/* A thread that writes and reads its part of the file, for ever. */
struct worker {
	struct gpu gpu;
	struct nvfs_buffer buf;
	uint64_t va;
	int node, fd;
	unsigned int number;
	bool until_error;
	unsigned long good, failed, wrong;
	int first_error;
	union nvfs_ioctl_arg arg;	/* of a request, as long as the file could be looked at */
	pthread_t thread;
};

static struct worker workers[THREADS];
static const char *path;
static int gpu_index;
static bool stop;

static void begin(struct worker *w)
{
	struct fake_nvidia_info info;

	w->node = nvfs_open(w->number, O_RDWR);
	w->fd = open(path, O_RDWR | O_DIRECT);
	if (w->node < 0 || w->fd < 0 || gpu_open(&w->gpu, gpu_index) ||
	    gpu_info(&w->gpu, &info) || gpu_alloc(&w->gpu, SIZE, 0, &w->va) ||
	    nvfs_register(&w->buf, w->node, w->va, SIZE, SIZE, info.pdevinfo))
		tap_bail("no buffer: %s", strerror(errno));
	w->arg = nvfs_io_arg(&w->buf, w->fd, w->number * SIZE, SIZE, 0);
}

static ssize_t transfer(struct worker *w, bool write, bool async)
{
	off_t at = w->number * SIZE;
	ssize_t ret;

	if (!async)
		return write ? nvfs_write(&w->buf, w->fd, at, SIZE, 0) :
			       nvfs_read(&w->buf, w->fd, at, SIZE, 0);
	ret = nvfs_submit(&w->buf, write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, w->fd, at, SIZE, 0);
	if (ret < 0)
		return ret;
	while (nvfs_fence(&w->buf) != w->buf.fence)
		sched_yield();
	return w->buf.meta->result;
}

static bool one(struct worker *w, unsigned int round)
{
	ssize_t ret;
	int64_t bad;
	bool filled;

	/* The bytes of a GPU that is being removed cannot be looked at. */
	filled = !gpu_fill(&w->gpu, w->va, SIZE, round);
	ret = transfer(w, true, round & 1);
	if (ret == (ssize_t)SIZE) {
		gpu_set(&w->gpu, w->va, 0xee, SIZE);
		ret = transfer(w, false, round & 2);
		if (ret == (ssize_t)SIZE) {
			if (filled && !gpu_check(&w->gpu, w->va, SIZE, round, &bad) && bad >= 0)
				w->wrong++;
			w->good++;
			return true;
		}
	}
	w->failed++;
	if (!w->first_error)
		w->first_error = ret < 0 ? ret : -ERANGE;
	return false;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned int round = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		if (!one(w, ++round) && w->until_error)
			break;
	return NULL;
}

static void start(bool until_error)
{
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		workers[i].number = i;
		workers[i].until_error = until_error;
		begin(&workers[i]);
	}
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			tap_bail("no thread");
}

static unsigned long rounds(void)
{
	unsigned long all = 0;
	unsigned int i;

	for (i = 0; i < THREADS; i++)
		all += __atomic_load_n(&workers[i].good, __ATOMIC_RELAXED);
	return all;
}

/* Until the workers have done so many more. */
static bool more_rounds(unsigned long n)
{
	unsigned long before = rounds();
	double end = nvfs_seconds() + 120;

	while (rounds() < before + n) {
		if (nvfs_seconds() > end)
			return false;
		sched_yield();
	}
	return true;
}

/* The workers, once they have shown that they work. */
static void run(bool until_error)
{
	start(until_error);
	if (!more_rounds(3))
		tap_bail("the workers stand still");
}

static unsigned long joined(unsigned long *failed, unsigned long *wrong)
{
	unsigned int i;

	*failed = *wrong = 0;
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		*failed += workers[i].failed;
		*wrong += workers[i].wrong;
		if (workers[i].failed)
			tap_diag("worker %u: %lu rounds, %lu failed, first %s", i, workers[i].good,
				 workers[i].failed, strerror(-workers[i].first_error));
	}
	return rounds();
}

static void leave(void)
{
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		nvfs_unregister(&workers[i].buf);
		close(workers[i].node);
		close(workers[i].fd);
		gpu_close(&workers[i].gpu);
	}
}

static void unplug(const char *name)
{
	int ret = host_unplug(name);

	if (ret)
		tap_bail("%s is not unplugged: %s", name, strerror(-ret));
}

static void module_is_busy(void)
{
	tap_ok(syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK) < 0 && errno == EWOULDBLOCK,
	       "unload meanwhile: the module is in use");
}

/* A child with the same load is killed in the middle of it, while the controller is reset. */
static bool killed(const char *reset_controller)
{
	int ready[2], status;
	pid_t pid, resetter;
	char byte;
	bool good;

	if (pipe(ready))
		tap_bail("no pipe");
	pid = fork();
	if (!pid) {
		start(false);
		if (write(ready[1], "", 1) != 1)
			_exit(3);
		for (;;)
			pause();
	}
	close(ready[1]);
	good = read(ready[0], &byte, 1) == 1;
	close(ready[0]);
	resetter = fork();
	if (!resetter)
		_exit(nvfs_write_text(reset_controller, "1") != 1);
	/* No synchronisation: only where in the reset it falls. */
	usleep(rand() % 150000);
	kill(pid, SIGKILL);
	good = waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGKILL && good;
	return waitpid(resetter, &status, 0) == resetter && !status && good;
}

static void reset(const char *controller)
{
	unsigned long failed, wrong, good;
	unsigned int i, resets = 0, kills = 0;
	char name[256];

	snprintf(name, sizeof(name), "%s/reset_controller", controller);
	run(false);
	for (i = 0; i < 6; i++) {
		resets += nvfs_write_text(name, "1") == 1;
		if (!more_rounds(2))
			tap_bail("the workers stand still");
	}
	module_is_busy();
	stop = true;
	good = joined(&failed, &wrong);
	tap_is(resets, 6, "the controller was reset 6 times");
	tap_ok(good > 0, "%lu rounds of WRITE and READ", good);
	tap_is(failed, 0, "none failed");
	tap_is(wrong, 0, "none had wrong bytes");
	leave();
	stop = false;
	srand(1);
	for (i = 0; i < 6; i++)
		kills += killed(name);
	tap_is(kills, 6, "SIGKILL during a reset, 6 times");
}

static void lost(const char *function)
{
	unsigned long failed, wrong;
	uint16_t command, none = 0;
	char name[256];
	int config;

	snprintf(name, sizeof(name), "%s/config", function);
	config = open(name, O_RDWR);
	if (config < 0 || pread(config, &command, 2, 4) != 2)
		tap_bail("%s: %s", name, strerror(errno));
	run(false);
	if (pwrite(config, &none, 2, 4) != 2)
		tap_bail("%s: %s", name, strerror(errno));
	module_is_busy();
	tap_ok(more_rounds(3), "the controller is lost, and comes back");
	stop = true;
	joined(&failed, &wrong);
	tap_is(wrong, 0, "no wrong bytes");
	tap_ok(one(&workers[0], 99), "WRITE and READ afterwards");
	close(config);
	leave();
}

/* Requests to a drive that is gone end as pread and pwrite do. */
static void as_the_system(struct worker *w, bool write)
{
	static char data[SIZE] __attribute__((aligned(4096)));
	off_t at = w->number * SIZE;
	ssize_t want = write ? pwrite(w->fd, data, SIZE, at) : pread(w->fd, data, SIZE, at), ret;

	want = want < 0 ? -errno : want;
	ret = nvfs_request(w->node, write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, &w->arg);
	/* A file system that was shut down does not tell whether it does direct I/O. */
	tap_ok(ret == want || (want < 0 && ret == -EOPNOTSUPP), "%s: %s, the system's: %s",
	       write ? "WRITE" : "READ", strerror(ret < 0 ? -ret : 0),
	       strerror(want < 0 ? -want : 0));
}

static void must(int ret, const char *what)
{
	if (ret)
		tap_bail("%s: %s", what, strerror(-ret));
}

/* All workers have got on since the answers that were not heard. */
static bool all_get_on(void)
{
	double end = nvfs_seconds() + 120;
	unsigned long before[THREADS];
	unsigned int i;

	while (disk_answers_left() > 0)
		if (nvfs_seconds() > end)
			return false;
	for (i = 0; i < THREADS; i++)
		before[i] = __atomic_load_n(&workers[i].good, __ATOMIC_RELAXED);
	for (i = 0; i < THREADS; i++) {
		while (__atomic_load_n(&workers[i].good, __ATOMIC_RELAXED) < before[i] + 2) {
			if (nvfs_seconds() > end)
				return false;
			sched_yield();
		}
	}
	return true;
}

static void timeout(bool again)
{
	int fd = open(path, O_RDONLY);
	unsigned long failed, wrong;
	char text[16], old[16];
	double begun;

	snprintf(text, sizeof(text), "%u", PATIENCE * 1000);
	must(disk_set(fd, "queue/io_timeout", text), "no time limit");
	if (nvfs_read_text(RETRIES, old, sizeof(old)) <= 0 ||
	    (!again && nvfs_write_text(RETRIES, "0") != 1))
		tap_bail("no " RETRIES);
	run(!again);
	begun = nvfs_seconds();
	must(disk_drop_answers(fd, again ? THREADS : -1), "answers are heard");
	module_is_busy();
	if (again) {
		tap_ok(all_get_on(), "%u answers were lost, and all get on", THREADS);
		stop = true;
	}
	joined(&failed, &wrong);
	must(disk_drop_answers(fd, 0), "answers are not heard");
	nvfs_write_text(RETRIES, old);
	tap_ok(nvfs_seconds() - begun >= PATIENCE, "that took a time limit: %.1f s",
	       nvfs_seconds() - begun);
	if (again)
		tap_is(failed, 0, "no request failed");
	else
		tap_is(failed, THREADS, "the drive does not answer: requests fail");
	tap_is(wrong, 0, "no wrong bytes");
	tap_ok(one(&workers[0], 99), "WRITE and READ afterwards");
	as_the_system(&workers[0], false);
	close(fd);
	leave();
}

static void unplug_drive(const char *drive)
{
	unsigned long failed, wrong;

	run(true);
	unplug(drive);
	module_is_busy();
	joined(&failed, &wrong);
	tap_is(failed, THREADS, "the drive is unplugged: requests fail");
	tap_is(wrong, 0, "no wrong bytes before");
	tap_is(host_unplugged(drive), 0, "%s is gone", drive);
	as_the_system(&workers[0], true);
	as_the_system(&workers[1], false);
	leave();
}

static void unplug_gpu(const char *name, bool held)
{
	unsigned long failed, wrong;
	unsigned int i, dead = 0;

	gpu_index = name[strlen(name) - 1] - '0';
	nvfs_set_parameter("use_legacy_p2p_allocation", held ? "0" : "1");
	run(!held);
	unplug(name);
	module_is_busy();
	tap_ok(gpu_unbound(gpu_index), "the GPU's driver is being unbound");
	if (held) {
		/* The memory stays while buffers hold it. */
		stop = true;
	}
	joined(&failed, &wrong);
	for (i = 0; i < THREADS; i++)
		dead += workers[i].buf.meta->state == NVFS_META_DIED;
	if (!held) {
		tap_is(failed, THREADS, "requests fail from then on");
		tap_is(dead, THREADS, "all buffers are dead");
		tap_is(transfer(&workers[0], false, false), -EBUSY, "READ");
	} else {
		tap_is(dead, 0, "no buffer is dead");
	}
	tap_is(wrong, 0, "no wrong bytes");
	for (i = 0; i < THREADS; i++)
		nvfs_unregister(&workers[i].buf);
	tap_is(host_unplugged(name), 0, "%s is gone", name);
	leave();
}

/* All data went the way that is tested. */
static void by_the_way(void)
{
	bool callback = getenv("WAY") && !strcmp(getenv("WAY"), "callback");
	long long hooks = nvfs_counter("read_callback_ios") + nvfs_counter("write_callback_ios");
	long long bus = nvfs_counter("read_p2pdma_ios") + nvfs_counter("write_p2pdma_ios");

	tap_ok((callback ? hooks : bus) > 0, "data went by %s", callback ? "callback" : "p2pdma");
	tap_is(callback ? bus : hooks, 0, "and not otherwise");
}

int main(int argc, char **argv)
{
	struct fake_nvidia_counts counts;
	struct gpu gpu;
	double end;
	bool again;
	int fd;

	again = argc == 3 && !strcmp(argv[1], "late");
	if (argc != 4 && !again && (argc != 3 || strcmp(argv[1], "timeout")))
		tap_bail("usage: %s KIND FILE [DEVICE]", argv[0]);
	path = argv[2];
	fd = nvfs_file(path, THREADS * SIZE, 1);
	if (fd < 0)
		tap_bail("cannot make %s", path);
	close(fd);
	if (argc == 3)
		timeout(again);
	else if (!strcmp(argv[1], "reset"))
		reset(argv[3]);
	else if (!strcmp(argv[1], "lost"))
		lost(argv[3]);
	else if (!strcmp(argv[1], "unplug"))
		unplug_drive(argv[3]);
	else
		unplug_gpu(argv[3], !strcmp(argv[1], "gpu-held"));
	by_the_way();
	end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	while (nvfs_counter("pins_now") && nvfs_seconds() < end)
		sched_yield();
	tap_is(nvfs_counter("pins_now"), 0, "no GPU memory is mapped");
	tap_is(nvfs_stat("Bar1-map", "active"), 0, "nor bound");
	/* With the last GPU who counts its pins is gone. */
	if (gpu_open(&gpu, 0) && gpu_open(&gpu, 1))
		return tap_plan();
	do {
		if (gpu_counts(&gpu, &counts))
			tap_bail("no counts");
	} while ((counts.tables || counts.pinned_pages || counts.mappings) && nvfs_seconds() < end);
	tap_ok(!counts.tables && !counts.pinned_pages && !counts.mappings, "nothing is left pinned");
	tap_is(counts.callbacks_done, counts.callbacks, "each callback returned");
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	return tap_plan();
}
