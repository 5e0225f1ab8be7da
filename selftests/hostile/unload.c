// SPDX-License-Identifier: GPL-2.0
/*
 * The module is unloaded while transfers of buffers that nobody has any more are held up, and then
 * their drive or GPU fails.
 *
 * usage: unload FAULT DRIVE GPU AFTER [DEVICE | READ-AT WRITE-AT]
 *
 * DRIVE is the drive itself, without a file system, and GPU a number. GPU 0 and the drive AFTER
 * work when all is over. Faults:
 *	reset		the controller is reset
 *	lost		it has lost its bus, and the block layer's time limit finds out
 *	unplug		the drive goes: DEVICE is QEMU's name
 *	media		bytes at READ-AT cannot be read, those at WRITE-AT not written
 *	gpu		the GPU goes, with the memory: DEVICE is QEMU's name
 *	unbind		so does its driver, which pins hold: DEVICE is its PCI address
 *	kill		nothing but the processes, by SIGKILL while they wait for a transfer
 *	timeout, late	its answers are lost, and the requests are not, or are, tried again: only on
 *			the debug kernel
 * WAY=callback in the environment: the drives' driver has hooks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/disk.h"
#include "../lib/gpu.h"
#include "../lib/host.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE		(64 * KIB)	/* one request of the drive */
#define READ_SEED	5
#define WRITE_SEED	6
#define RETRIES		"/sys/module/nvme_core/parameters/max_retries"
#define DRIVER		"/sys/bus/pci/drivers/fake_nvidia/"

struct orphan {
	struct gpu gpu;
	struct nvfs_buffer buf;
	uint64_t va;
	off_t at;
	bool write;
	ssize_t want;	/* its result; 1: any error */
	pid_t child;	/* whose it was */
	int go[2];	/* to the child, and back */
};

static const char *fault, *device;
static int drive, gpu_index;

static bool is(const char *name)
{
	return !strcmp(fault, name);
}

static void must(int ret, const char *what)
{
	if (ret)
		tap_bail("%s: %s", what, strerror(-ret));
}

/* Writes the pattern, or reads and compares it. *result, unless NULL: bytes or a negative errno. */
static bool on_drive(int fd, off_t at, uint64_t seed, bool write, ssize_t *result)
{
	static char data[SIZE] __attribute__((aligned(4096)));
	ssize_t ret;

	if (write)
		pattern_fill(data, SIZE, seed, 0);
	else
		memset(data, 0xff, SIZE);
	ret = write ? pwrite(fd, data, SIZE, at) : pread(fd, data, SIZE, at);
	if (result)
		*result = ret < 0 ? -errno : ret;
	return ret == (ssize_t)SIZE && (write || pattern_check(data, SIZE, seed, 0) < 0);
}

/* A buffer that has been used, so that the next transfer waits for nothing but its data. */
static void begin(struct orphan *o, int fd, int gpu)
{
	struct fake_nvidia_info info;
	int node = nvfs_open(0, O_RDWR);

	if (node < 0 || gpu_open(&o->gpu, gpu) || gpu_info(&o->gpu, &info) ||
	    gpu_alloc(&o->gpu, SIZE, 0, &o->va) ||
	    nvfs_register(&o->buf, node, o->va, SIZE, SIZE, info.pdevinfo) ||
	    nvfs_read(&o->buf, fd, 0, SIZE, 0) != (ssize_t)SIZE ||
	    (o->write ? gpu_fill(&o->gpu, o->va, SIZE, WRITE_SEED) :
			gpu_set(&o->gpu, o->va, 0xee, SIZE)))
		tap_bail("no buffer: %s", strerror(errno));
}

static bool over(const struct orphan *o)
{
	return nvfs_fence(&o->buf) == o->buf.fence;
}

static bool asleep(pid_t pid)
{
	char name[64], text[512], *at;

	snprintf(name, sizeof(name), "/proc/%d/stat", pid);
	if (nvfs_read_text(name, text, sizeof(text)) <= 0)
		return false;
	at = strrchr(text, ')');
	return at && at[2] == 'D';
}

/* The same, by a child that then does a transfer, as a batch of one, when it is told to. */
static void begin_child(struct orphan *o, int fd)
{
	union nvfs_ioctl_arg io, batch = { .batch = { .nents = 1, .io_entries = &io.io } };
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, o->go))
		tap_bail("no socket");
	o->child = fork();
	if (!o->child) {
		begin(o, fd, gpu_index);
		io = nvfs_io_arg(&o->buf, fd, o->at, SIZE, 0);
		io.io.flags |= o->write << NVFS_IO_OPTYPE_SHIFT;
		if (write(o->go[1], "", 1) == 1 && read(o->go[1], &byte, 1) == 1)
			nvfs_ioctl(o->buf.node, NVFS_IOCTL_BATCH_IO, &batch);
		_exit(1);
	}
	close(o->go[1]);
	if (read(o->go[0], &byte, 1) != 1 || gpu_open(&o->gpu, gpu_index))
		tap_bail("no buffer of a child");
}

/* Its child waits for the transfer, and is killed. Whether both is so. */
static bool kill_child(struct orphan *o)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	int status = 0;

	if (write(o->go[0], "", 1) != 1)
		return false;
	while (!asleep(o->child) && nvfs_seconds() < end)
		sched_yield();
	if (!asleep(o->child) || kill(o->child, SIGKILL))
		return false;
	return waitpid(o->child, &status, 0) == o->child && WIFSIGNALED(status);
}

/* A child that unloads the module; back when it has begun to, and sleeps there. */
static pid_t unload(void)
{
	double end = nvfs_seconds() + 60;
	char state[16];
	pid_t pid = fork();

	if (!pid)
		_exit(syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK) ? errno : 0);
	while (nvfs_seconds() < end) {
		if (nvfs_read_text("/sys/module/nvidia_fs/initstate", state, sizeof(state)) > 0 &&
		    !strncmp(state, "going", 5) && asleep(pid))
			break;
		sched_yield();
	}
	return pid;
}

/* Waits for a child that ends with 0, but not for ever. */
static bool ended_well(pid_t pid, const char *what)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;
	int status = 0;
	pid_t got;

	while (!(got = waitpid(pid, &status, WNOHANG)) && nvfs_seconds() < end)
		sched_yield();
	if (!got)
		tap_bail("%s does not end", what);
	if (got == pid && WIFEXITED(status) && WEXITSTATUS(status))
		tap_diag("%s: %s", what, strerror(WEXITSTATUS(status)));
	return got == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static void hold(void)
{
	if (is("timeout") || is("late")) {
		must(disk_set(drive, "queue/io_timeout", "5000"), "no time limit");
		if (is("timeout") && nvfs_write_text(RETRIES, "0") != 1)
			tap_bail("no " RETRIES);
		must(disk_drop_answers(drive, is("late") ? 2 : -1), "answers are heard");
		return;
	}
	/* pciehp leaves five seconds to think better of it. */
	must(disk_set(drive, "queue/io_timeout", is("lost") ? "3000" :
		      is("unplug") ? "15000" : "30000"), "no time limit");
	must(disk_lose(drive), "it is not lost");
}

/* What lets the transfers end. Returns a child that does a part of it. */
static pid_t fail(void)
{
	pid_t pid = 0;

	if (is("unplug") || is("gpu"))
		must(host_unplug(device), "not unplugged");
	if (is("unbind")) {
		pid = fork();
		if (!pid)
			_exit(nvfs_write_text(DRIVER "unbind", device) < 0);
	}
	if (is("gpu") || is("unbind"))
		tap_ok(gpu_unbound(gpu_index), "the GPU's driver is being unbound");
	if (is("reset") || is("media") || is("gpu") || is("unbind") || is("kill"))
		must(disk_reset(drive), "no reset");
	return pid;
}

static void end_fault(pid_t helper, const char *retries)
{
	if (is("timeout") || is("late")) {
		if (is("late"))
			tap_is(disk_answers_left(), 0, "two answers were lost");
		must(disk_drop_answers(drive, 0), "answers are not heard");
		nvfs_write_text(RETRIES, retries);
	}
	if (is("unplug") || is("gpu"))
		tap_is(host_unplugged(device), 0, "%s is gone", device);
	if (!helper)
		return;
	tap_ok(ended_well(helper, "unbind"), "the GPU's driver is unbound");
	must(nvfs_write_text(DRIVER "bind", device) < 0 ? -EIO : 0, "not bound");
}

static void result(struct orphan *o)
{
	const char *name = o->write ? "WRITE" : "READ";
	ssize_t got = o->child ? o->want : __atomic_load_n(&o->buf.meta->result, __ATOMIC_RELAXED);
	int64_t bad;

	if (o->want == 1)
		tap_ok(got < 0 && got > -4096, "the %s failed: %zd (%s)", name, got,
		       got < 0 ? strerror(-got) : "whole");
	else if (!o->child)
		tap_is(got, o->want, "the result of the %s", name);
	if (o->want != (ssize_t)SIZE)
		return;
	if (o->write)
		tap_ok(on_drive(drive, o->at, WRITE_SEED, false, NULL), "its bytes are on the drive");
	else if (!is("gpu") && !is("unbind") && !o->child)
		tap_ok(!gpu_check(&o->gpu, o->va, SIZE, READ_SEED, &bad) && bad < 0,
		       "its bytes are in GPU memory");
}

/* The module as good as new. */
static void load_and_use(const char *after)
{
	int module = open("/modules/nvidia-fs.ko", O_RDONLY | O_CLOEXEC), fd;
	struct orphan o = { .write = true };
	int64_t bad;

	tap_is(syscall(SYS_finit_module, module, "", 0) ? -errno : 0, 0, "it can be loaded");
	close(module);
	fd = open(after, O_RDWR | O_DIRECT | O_CLOEXEC);
	begin(&o, fd, 0);
	tap_ok(nvfs_write(&o.buf, fd, 2 * MIB, SIZE, 0) == (ssize_t)SIZE &&
	       on_drive(fd, 2 * MIB, WRITE_SEED, false, NULL), "and writes");
	tap_ok(on_drive(fd, 2 * MIB, READ_SEED, true, NULL) &&
	       nvfs_read(&o.buf, fd, 2 * MIB, SIZE, 0) == (ssize_t)SIZE &&
	       !gpu_check(&o.gpu, o.va, SIZE, READ_SEED, &bad) && bad < 0, "and reads");
	nvfs_unregister(&o.buf);
	close(o.buf.node);
	close(fd);
	gpu_close(&o.gpu);
}

int main(int argc, char **argv)
{
	static struct orphan orphans[2] = { { .write = false }, { .at = MIB, .write = true } };
	const char *way = getenv("WAY") && !strcmp(getenv("WAY"), "callback") ? "callback" : "p2pdma";
	struct fake_nvidia_counts counts;
	char name[64], retries[16] = "";
	unsigned int i, under_way = 0;
	pid_t unloader, helper;
	long long before, callbacks;

	if (argc < 5 || argc > 7)
		tap_bail("usage: %s FAULT DRIVE GPU AFTER [DEVICE | READ-AT WRITE-AT]", argv[0]);
	fault = argv[1];
	gpu_index = atoi(argv[3]);
	device = argv[5];
	drive = open(argv[2], O_RDWR | O_DIRECT | O_CLOEXEC);
	if (drive < 0 || nvfs_read_text(RETRIES, retries, sizeof(retries)) <= 0)
		tap_bail("%s: %s", argv[2], strerror(errno));
	if (nvfs_set_parameter("use_legacy_p2p_allocation", is("reset") || is("unbind") || is("kill") ?
			       "0" : "1"))
		tap_bail("no parameter");
	snprintf(name, sizeof(name), "read_%s_ios", way);
	before = nvfs_counter(name);
	for (i = 0; i < 2; i++) {
		struct orphan *o = &orphans[i];

		o->want = is("unplug") || is("timeout") ? 1 : (ssize_t)SIZE;
		if (argc == 7) {
			o->at = atoll(argv[5 + i]) & ~4095L;
			on_drive(drive, o->at, WRITE_SEED, o->write, &o->want);
			tap_ok(o->want < 0, "%s: %s", o->write ? "pwrite" : "pread",
			       strerror(o->want < 0 ? -o->want : 0));
		} else if (!on_drive(drive, o->at, READ_SEED, true, NULL)) {
			tap_bail("cannot prepare %s", argv[2]);
		}
		if (is("kill"))
			begin_child(o, drive);
		else
			begin(o, drive, gpu_index);
	}
	tap_is(nvfs_counter(name) - before, 2, "data goes by %s", way);
	if (gpu_counts(&orphans[0].gpu, &counts))
		tap_bail("no counts");
	hold();
	for (i = 0; i < 2; i++) {
		struct orphan *o = &orphans[i];

		if (o->child) {
			under_way += kill_child(o);
			continue;
		}
		under_way += nvfs_submit(&o->buf, o->write ? NVFS_IOCTL_WRITE : NVFS_IOCTL_READ, drive,
					 o->at, SIZE, 0) == 0;
		munmap(o->buf.shadow, o->buf.window);
		close(o->buf.node);
	}
	tap_is(under_way, 2, "%s: a READ and a WRITE of buffers that nobody has any more", fault);
	unloader = unload();
	tap_ok(!waitpid(unloader, NULL, WNOHANG), "unload is under way");
	/* What nobody sees of a killed process is seen by who waits for it. */
	if (!is("kill"))
		tap_ok(!over(&orphans[0]) && !over(&orphans[1]), "and so are both");
	helper = fail();
	tap_ok(ended_well(unloader, "unload"), "the module is unloaded");
	if (!is("kill"))
		tap_ok(over(&orphans[0]) && over(&orphans[1]), "when both are over");
	tap_ok(access("/sys/module/nvidia_fs", F_OK) != 0, "and is not there any more");
	end_fault(helper, retries);
	callbacks = counts.callbacks;
	if (gpu_counts(&orphans[0].gpu, &counts))
		tap_bail("no counts");
	tap_ok(!counts.tables && !counts.pinned_pages && !counts.mappings, "nothing is left pinned");
	/* The GPU's driver waits for that of one range before it comes to the next. */
	callbacks = counts.callbacks - callbacks;
	tap_ok(is("gpu") ? callbacks >= 1 : !callbacks, "the GPU's driver called back: %lld times",
	       callbacks);
	tap_is(counts.callbacks_done, counts.callbacks, "each callback returned");
	tap_is(counts.misuse, 0, "the GPU driver was not misused");
	for (i = 0; i < 2; i++) {
		result(&orphans[i]);
		gpu_close(&orphans[i].gpu);
	}
	close(drive);
	load_and_use(argv[4]);
	return tap_plan();
}
