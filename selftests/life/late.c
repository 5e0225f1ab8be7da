// SPDX-License-Identifier: GPL-2.0
/*
 * Free callbacks that a put does not wait for, two for a pin: none may be under way when the pin is
 * gone, nor when the module is.
 *
 * usage: late callback FILE ROUNDS	GPU memory is freed while munmap gives it back
 *        late map FILE ROUNDS		while a MAP that has failed does, which is then tried again
 *        late unload FILE		as `callback`, and the module is unloaded at once
 * FILE is on a disk with hooks, so that there is a DMA mapping to hold up the munmap at.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"
#include "../lib/tap.h"

#define SIZE	MIB
#define HOLD	60000	/* ms, at most */
#define DELAY	100	/* ms */

static struct gpu gpu;
static struct fake_nvidia_info info;
static struct nvfs_buffer buf;
static uint64_t va;
static int node, fd;
static bool now;	/* the memory is to be freed */

static uint64_t begun(enum fake_nvidia_call call)
{
	struct fake_nvidia_counts counts;

	if (gpu_counts(&gpu, &counts))
		tap_bail("no counts");
	return counts.calls[call];
}

static void *unmap(void *arg)
{
	(void)arg;
	munmap(buf.shadow, buf.window);
	return NULL;
}

static void *map_badly(void *result)
{
	*(ssize_t *)result = nvfs_map(&buf);
	return NULL;
}

static void *free_memory(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&now, __ATOMIC_ACQUIRE))
		sched_yield();
	gpu_free(&gpu, va);
	return NULL;
}

/*
 * Runs `ending`, and free_memory() from when `call` has come, which returns when a callback has
 * begun.
 */
static void meet(void *(*ending)(void *), void *arg, enum fake_nvidia_call call, pthread_t *freeing)
{
	long long callbacks = nvfs_stat("Bar1-map", "callbacks");
	uint64_t before = begun(call);
	pthread_t thread;
	double end;

	gpu_fault(&gpu, call, 0, 0, 0, HOLD);
	/* Both at once: during the munmap there is no memory for a new thread's stack. */
	now = false;
	if (pthread_create(freeing, NULL, free_memory, NULL) ||
	    pthread_create(&thread, NULL, ending, arg))
		tap_bail("no thread");
	while (begun(call) == before)
		sched_yield();
	__atomic_store_n(&now, true, __ATOMIC_RELEASE);
	end = nvfs_seconds() + HOLD / 1000;
	while (nvfs_stat("Bar1-map", "callbacks") == callbacks && nvfs_seconds() < end)
		sched_yield();
	gpu_fault(&gpu, call, 0, 0, 0, 0);
	pthread_join(thread, NULL);
}

static void begin(bool map)
{
	struct fake_nvidia_table good = { .version = 0x00020000, .page_size = 1 };

	gpu_table(&gpu, map ? good.version : 0x00030000, good.page_size);
	if (gpu_alloc(&gpu, SIZE, 0, &va) || nvfs_shadow(&buf, node, SIZE))
		tap_bail("no buffer: %s", strerror(errno));
	buf.gpu_va = va;
	buf.gpu_size = SIZE;
	buf.pdevinfo = info.pdevinfo;
	if (map && (nvfs_map(&buf) || nvfs_read(&buf, fd, 0, SIZE, 0) != (ssize_t)SIZE))
		tap_bail("no transfer");
}

/* One that was taken back in a callback which the munmap had to wait for. */
static bool late_callback(pthread_t *freeing)
{
	struct fake_nvidia_counts before, after;

	begin(true);
	gpu_counts(&gpu, &before);
	gpu_fault(&gpu, FAKE_NVIDIA_FREE_PAGE_TABLE, 0, 0, 0, DELAY);
	meet(unmap, NULL, FAKE_NVIDIA_DMA_UNMAP_PAGES, freeing);
	gpu_counts(&gpu, &after);
	munmap(buf.meta, 4096);
	return after.callbacks - before.callbacks == 2 &&
	       after.ok[FAKE_NVIDIA_FREE_PAGE_TABLE] - before.ok[FAKE_NVIDIA_FREE_PAGE_TABLE] == 1;
}

static bool late_map(void)
{
	uint64_t other;
	pthread_t freeing;
	ssize_t result = 0;
	bool good;

	begin(false);
	meet(map_badly, &result, FAKE_NVIDIA_PUT_PAGES, &freeing);
	good = result < 0;
	gpu_table(&gpu, 0x00020000, 1);
	if (gpu_alloc(&gpu, SIZE, 0, &other))
		tap_bail("no memory");
	buf.gpu_va = other;
	good = !nvfs_map(&buf) && good;
	pthread_join(freeing, NULL);
	good = nvfs_read(&buf, fd, 0, SIZE, 0) == (ssize_t)SIZE && good;
	nvfs_unregister(&buf);
	gpu_free(&gpu, other);
	return good;
}

int main(int argc, char **argv)
{
	unsigned int round, rounds = argc == 4 ? atoi(argv[3]) : 1, good = 0;
	struct fake_nvidia_counts before, after;
	pthread_t freeing;
	double end;
	int ret;

	if (argc < 3)
		tap_bail("usage: %s callback|map|unload FILE [ROUNDS]", argv[0]);
	node = nvfs_open(0, O_RDWR);
	fd = open(argv[2], O_RDONLY | O_DIRECT);
	if (node < 0 || fd < 0 || gpu_open(&gpu, 0) || gpu_info(&gpu, &info) ||
	    gpu_counts(&gpu, &before) ||
	    gpu_callbacks(&gpu, FAKE_NVIDIA_PUT_RETURNS | FAKE_NVIDIA_TWICE) ||
	    nvfs_set_parameter("use_legacy_p2p_allocation", "1"))
		tap_bail("cannot begin: %s", strerror(errno));
	if (!strcmp(argv[1], "callback")) {
		for (round = 0; round < rounds; round++) {
			good += late_callback(&freeing);
			pthread_join(freeing, NULL);
		}
		tap_is(good, rounds, "munmap waits for the callbacks, whatever the put does");
	} else if (!strcmp(argv[1], "map")) {
		for (round = 0; round < rounds; round++)
			good += late_map();
		tap_is(good, rounds, "so does a MAP that fails: the next one is as new");
	} else {
		tap_ok(late_callback(&freeing), "munmap waits for the callbacks");
		close(node);
		end = nvfs_seconds() + NVFS_WAIT_SECONDS;
		do
			ret = syscall(SYS_delete_module, "nvidia_fs", O_NONBLOCK) ? -errno : 0;
		while (ret == -EWOULDBLOCK && nvfs_seconds() < end);
		tap_is(ret, 0, "and the module can be unloaded at once");
		pthread_join(freeing, NULL);
	}
	gpu_reset(&gpu);
	if (gpu_counts(&gpu, &after))
		tap_bail("no counts");
	tap_is(after.callbacks, after.callbacks_done, "all callbacks have returned");
	tap_ok(after.callbacks > before.callbacks, "%llu of them",
	       (unsigned long long)(after.callbacks - before.callbacks));
	tap_ok(!after.tables && !after.mappings, "nothing is left pinned");
	tap_is(after.misuse, 0, "the GPU driver was not misused");
	return tap_plan();
}
