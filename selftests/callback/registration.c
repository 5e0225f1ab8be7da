// SPDX-License-Identifier: GPL-2.0
/*
 * When storage drivers get and lose our tables, and what is told of those that cannot (contract
 * 14.4 to 14.7, 19.4). fake_storage and fake_nvme_v2 are loaded, no node was opened yet.
 *
 * usage: registration DISK
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/storage.h"
#include "../lib/tap.h"

#define ALL	"nvme: (null)\nnvme_rdma: (null)\nwekafsio: 1\nrpcrdma: (null)\n"
#define NONE	"wekafsio: 1\n"
#define OPENS	10000
#define LINES	50

static struct gpu gpu;
static struct fake_nvidia_info info;
static int control, disk, kmsg;
static char text[1 << 16];

static const char *modules(void)
{
	nvfs_read_text(NVFS_PROC "modules", text, sizeof(text));
	return text;
}

/* Deregistration by munmap comes a little later. */
static const char *modules_become(const char *want)
{
	double end = nvfs_seconds() + NVFS_WAIT_SECONDS;

	while (strcmp(modules(), want) && nvfs_seconds() < end)
		sched_yield();
	return text;
}

/* The lines of `paths` that are no path. */
static const char *remarks(void)
{
	const char *at;

	nvfs_read_text(NVFS_PROC "paths", text, sizeof(text));
	at = strstr(text, "\n# ");
	return at ? at + 1 : "";
}

static int registered(enum fake_storage_table table)
{
	struct fake_storage_counts counts;

	return storage_counts(control, &counts) ? -1 : (int)counts.registered[table];
}

static bool none_registered(void)
{
	return !registered(FAKE_STORAGE_NVME) && !registered(FAKE_STORAGE_PLAIN) &&
	       !registered(FAKE_STORAGE_V2);
}

/* How many lines of the log since the last call have a text. */
static unsigned int logged(const char *what)
{
	char line[2048];
	unsigned int n = 0;
	ssize_t got;

	for (;;) {
		got = read(kmsg, line, sizeof(line) - 1);
		if (got < 0 && errno == EPIPE)
			continue;
		if (got < 0)
			return n;
		line[got] = '\0';
		n += !!strstr(line, what);
	}
}

static int open_node(unsigned int n)
{
	int fd = nvfs_open(n, O_RDWR);

	if (fd < 0)
		tap_bail("no node %u", n);
	return fd;
}

static void run(const char *command)
{
	if (system(command))
		tap_bail("%s", command);
}

static bool works(int node, uint64_t seed)
{
	static char memory[64 * KIB] __attribute__((aligned(4096)));
	struct nvfs_buffer buf = { 0 };
	int64_t bad = 0;
	uint64_t va;
	bool good;

	pattern_fill(memory, sizeof(memory), seed, 0);
	if (pwrite(disk, memory, sizeof(memory), 0) != sizeof(memory) ||
	    gpu_alloc(&gpu, 64 * KIB, 0, &va) ||
	    nvfs_register(&buf, node, va, 64 * KIB, 64 * KIB, info.pdevinfo))
		return false;
	good = nvfs_read(&buf, disk, 0, 64 * KIB, 0) == 64 * KIB &&
	       !gpu_check(&gpu, va, 64 * KIB, seed, &bad) && bad == -1;
	nvfs_unregister(&buf);
	gpu_free(&gpu, va);
	return good;
}

static void test_users(void)
{
	int node, other;
	char *shadow;

	tap_is_text(modules(), NONE, "before the first open nothing is registered");
	tap_ok(none_registered(), "and no driver has a table");
	node = open_node(0);
	tap_is_text(modules(), ALL, "after an open all are");
	tap_ok(registered(FAKE_STORAGE_NVME) == 1 && registered(FAKE_STORAGE_PLAIN) == 1 &&
	       registered(FAKE_STORAGE_V2) == 1, "and have their tables");
	other = open_node(3);
	close(node);
	tap_is_text(modules(), ALL, "as long as any node is open");
	close(other);
	tap_is_text(modules(), NONE, "and not after the last close");
	tap_ok(none_registered(), "and the tables are back");

	node = open_node(1);
	shadow = nvfs_mmap(node, MIB);
	close(node);
	tap_is_text(modules(), ALL, "a mapped buffer is a user, too");
	tap_ok(registered(FAKE_STORAGE_V2) == 1, "and keeps the tables");
	munmap(shadow, MIB);
	tap_is_text(modules_become(NONE), NONE, "until it is unmapped");
	tap_ok(none_registered(), "then they are back");
}

static void test_refusal(void)
{
	static const char remark[] =
		"# nvme_rdma: its hooks are not used: nvme_rdma_v1_register_nvfs_dma_ops refuses with error -95\n";
	static const char line[] = "nvme_rdma: its nvidia-fs hooks are not used";
	int node, other;

	tap_is_text(remarks(), "", "`paths` has no remarks");
	storage_set("refuse", 1 << FAKE_STORAGE_NVME);
	logged("");
	node = open_node(0);
	tap_is_text(modules(), "nvme: (null)\nwekafsio: 1\nrpcrdma: (null)\n",
		    "a driver that refuses is not there");
	tap_is_text(remarks(), remark, "`paths` tells why");
	other = open_node(1);
	close(other);
	close(node);
	node = open_node(2);
	tap_is(logged(line), 1, "and the log, once");
	close(node);
	storage_set("refuse", 0);
	node = open_node(0);
	tap_is_text(modules(), ALL, "when it does not refuse any more, it is there");
	tap_is_text(remarks(), "", "and the remark is gone");
	close(node);
}

/* Each time the first user comes and the last goes, all drivers get their tables and lose them. */
static void test_log(void)
{
	double start = nvfs_seconds();
	unsigned int i, lines;

	logged("");
	for (i = 0; i < OPENS; i++)
		close(open_node(i % 4));
	lines = logged("");
	tap_ok(lines < LINES, "%u opens and closes make less than %u lines in the log: %u", OPENS,
	       LINES, lines);
	tap_ok(none_registered(), "and no driver keeps a table");
	/* A driver that changes its mind each time has something new to tell each time. */
	for (i = 0; i < 2 * LINES; i++) {
		storage_set("refuse", i % 2 << FAKE_STORAGE_NVME);
		close(open_node(0));
	}
	storage_set("refuse", 0);
	lines = logged("nvme_rdma");
	tap_ok(lines < LINES, "nor does a driver that cannot make up its mind: %u", lines);
	tap_diag("%.1f s", nvfs_seconds() - start);
}

/* A driver that needs a feature takes only tables of the generation that has it (contract 14.2). */
static void test_features(void)
{
	static const char v1[] = "nvme_rdma: (null)\nwekafsio: 1\nrpcrdma: (null)\n";
	static const char v2[] = "nvme: (null)\nwekafsio: 1\n";
	static const char * const takers[] = { v1, v1, ALL, ALL, v1, v2, v2, NONE };
	unsigned int bit;

	for (bit = 0; bit < sizeof(takers) / sizeof(takers[0]); bit++) {
		int node;

		storage_set("needs", 1 << bit);
		node = open_node(0);
		tap_is_text(modules(), takers[bit], "feature %#x is in the tables of its generation",
			    1 << bit);
		close(node);
	}
	storage_set("needs", 0);
	close(open_node(0));	/* the log tells of a change only */
	storage_set("needs", 0x1f);
	logged("");
	close(open_node(0));
	tap_is(logged("nvme: its nvidia-fs hooks are not used: nvme_v2_register_nvfs_dma_ops refuses with error -95"),
	       1, "who lacks one says so in the log");
	storage_set("needs", 0);
}

static void test_bad_pairs(void)
{
	static const char remark[] =
		"# lnet: its hooks are not used: one of lustre_v1_register_nvfs_dma_ops and lustre_v1_unregister_nvfs_dma_ops is missing\n"
		"# beegfs: its hooks are not used: beegfs_v1_register_nvfs_dma_ops is not exported for GPL modules\n";
	int node = open_node(0), other, i;
	unsigned int lines;

	logged("");
	run("insmod /modules/bad_vendor.ko");
	other = open_node(1);
	tap_is_text(modules(), ALL, "half a pair is not there, nor one that is not GPL");
	tap_is_text(remarks(), remark, "`paths` tells of the half pair and of the hidden one");
	close(other);
	close(node);
	for (i = 0; i < 3; i++)
		close(open_node(i));
	tap_is(logged("its nvidia-fs hooks are not used"), 2, "the log does, once each");
	run("rmmod bad_vendor");
	run("insmod /modules/bad_vendor.ko");
	for (i = 0; i < 3; i++)
		close(open_node(i));
	tap_is(logged("symbol beegfs_v1_register_nvfs_dma_ops"), 1,
	       "the kernel's log has the pair that is not GPL, once each time it is loaded");
	/* Any user can have modules loaded whose initialisation fails. */
	for (i = 0; i < LINES; i++) {
		if (!system("insmod /modules/no_hardware.ko 2> /dev/null"))
			tap_bail("no_hardware was loaded");
		close(open_node(0));
	}
	lines = logged("symbol beegfs_v1_register_nvfs_dma_ops");
	tap_ok(lines <= 5, "%u modules that fail make %u more", LINES, lines);
	node = open_node(0);
	run("rmmod bad_vendor");
	close(node);
	/* That it went is one of too many in a minute; that one comes is always seen. */
	run("rmmod fake_nvme_v2 && insmod /modules/fake_nvme_v2.ko");
	logged("");
	node = open_node(0);
	tap_is_text(remarks(), "", "without that driver the remark is gone");
	close(node);
	tap_is(logged("bad_vendor: "), 0, "none of its functions was called");
}

static void test_coming_and_going(void)
{
	int node, other;

	storage_set("table", FAKE_STORAGE_V2);
	run("rmmod fake_nvme_v2");
	node = open_node(0);
	tap_is_text(modules(), "nvme_rdma: (null)\nwekafsio: 1\nrpcrdma: (null)\n",
		    "a driver is not there");
	run("insmod /modules/fake_nvme_v2.ko");
	tap_is_text(modules(), "nvme_rdma: (null)\nwekafsio: 1\nrpcrdma: (null)\n",
		    "nor when it is loaded later");
	other = open_node(1);
	tap_is_text(modules(), ALL, "but from the next open on");
	tap_ok(works(node, 400), "for users that were there before");
	tap_ok(system("rmmod fake_nvme_v2 2> /dev/null") != 0, "it cannot be unloaded");
	close(other);
	close(node);
	tap_is_text(modules_become(NONE), NONE, "without users");
	tap_ok(!system("rmmod fake_nvme_v2"), "it can");
	run("insmod /modules/fake_nvme_v2.ko");
	node = open_node(1);
	tap_is_text(modules(), ALL, "loaded again it is found again");
	tap_ok(works(node, 401), "and works");
	close(node);
}

static void *unmap(void *arg)
{
	struct nvfs_buffer *buf = arg;

	munmap(buf->shadow, buf->window);
	return NULL;
}

static void test_late_end(enum fake_storage_table table)
{
	struct nvfs_buffer buf = { 0 };
	int node = open_node(0);
	pthread_t thread;
	uint64_t va;

	storage_set("table", table);
	if (gpu_alloc(&gpu, MIB, 0, &va) ||
	    nvfs_register(&buf, node, va, MIB, MIB, info.pdevinfo))
		tap_bail("no buffer");
	storage_hold(control, FAKE_STORAGE_MAPPED);
	tap_is(nvfs_submit(&buf, NVFS_IOCTL_READ, disk, 0, 64 * KIB, 0), 0,
	       "table %u: a transfer is under way", table);
	storage_wait_held(control, 1);
	close(node);
	pthread_create(&thread, NULL, unmap, &buf);
	/* No order: were the tables taken back too early, it would be in this time. */
	usleep(200000);
	tap_is(registered(table), 1, "table %u: it keeps the driver registered", table);
	storage_hold(control, FAKE_STORAGE_RUN);
	pthread_join(thread, NULL);
	tap_is(nvfs_wait(&buf), 64 * KIB, "table %u: it ends", table);
	tap_is_text(modules_become(NONE), NONE, "table %u: then nothing is registered", table);
	tap_ok(none_registered(), "table %u: and the tables are back", table);
	nvfs_unregister(&buf);
	gpu_free(&gpu, va);
}

int main(int argc, char **argv)
{
	unsigned int table;

	control = storage_open();
	kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	if (argc != 2 || control < 0 || kmsg < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info))
		tap_bail("usage: %s DISK", argv[0]);
	disk = open(argv[1], O_RDWR | O_DIRECT);
	if (disk < 0)
		tap_bail("%s: %s", argv[1], strerror(errno));
	test_users();
	test_refusal();
	test_features();
	test_bad_pairs();
	test_coming_and_going();
	test_log();
	for (table = FAKE_STORAGE_NVME; table <= FAKE_STORAGE_V2; table++)
		test_late_end(table);
	return tap_plan();
}
