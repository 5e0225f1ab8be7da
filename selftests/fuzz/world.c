// SPDX-License-Identifier: GPL-2.0
/* What a process has at the start of a round, and the thread that changes things behind its back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "fuzz.h"

struct process me;

static void *map_at(void *address, size_t length, int prot, int flags, int fd)
{
	void *at = mmap(address, length, prot, flags | MAP_FIXED, fd, 0);

	if (at == MAP_FAILED)
		tap_bail("no memory at %p: %s", address, strerror(errno));
	return at;
}

/* Opens a file, unless it cannot be: what file systems refuse differs. */
static void add(const char *path, int flags, bool moves)
{
	struct file *f = &me.file[me.nr_files];
	int fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0600);

	if (fd < 0 || me.nr_files == MAX_FILES)
		return;
	f->fd = fd;
	f->name = path;
	if (fstat(fd, &f->st))
		tap_bail("no stat of %s", path);
	f->path_only = flags & O_PATH;
	f->read = !f->path_only && (flags & O_ACCMODE) != O_WRONLY;
	f->write = !f->path_only && (flags & O_ACCMODE) != O_RDONLY;
	f->direct = flags & O_DIRECT;
	f->regular = S_ISREG(f->st.st_mode);
	f->block = S_ISBLK(f->st.st_mode);
	f->moves = moves && (f->regular || f->block);
	me.nr_files++;
}

static void add_fd(int fd, const char *name)
{
	struct file *f = &me.file[me.nr_files];
	int flags;

	if (fd < 0 || me.nr_files == MAX_FILES)
		return;
	/* Pipes and sockets take the flag too. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT | O_NONBLOCK);
	flags = fcntl(fd, F_GETFL);
	f->fd = fd;
	f->name = name;
	fstat(fd, &f->st);
	f->read = (flags & O_ACCMODE) != O_WRONLY;
	f->write = (flags & O_ACCMODE) != O_RDONLY;
	f->direct = flags & O_DIRECT;
	f->regular = S_ISREG(f->st.st_mode);
	me.nr_files++;
}

static void open_place(const struct place *place)
{
	static char paths[MAX_PLACES][2][256];
	char *work = paths[place - places][0], *canary = paths[place - places][1];

	if (place->block) {
		add(place->path, O_RDWR | O_DIRECT, place->moves);
		add(place->path, O_RDONLY | O_DIRECT, place->moves);
		add(place->path, O_RDWR, false);
		return;
	}
	snprintf(work, 256, "%s/work", place->path);
	snprintf(canary, 256, "%s/canary", place->path);
	/* Twice, so that it is taken more often. */
	add(work, O_RDWR | O_DIRECT, place->moves);
	add(work, O_RDWR | O_DIRECT, place->moves);
	add(work, O_RDONLY | O_DIRECT, place->moves);
	add(work, O_WRONLY | O_DIRECT, place->moves);
	add(work, O_RDWR | O_DIRECT | O_SYNC, place->moves);
	add(work, O_WRONLY | O_DIRECT | O_APPEND, place->moves);
	add(work, O_RDWR, false);
	add(work, O_PATH, false);
	add(canary, O_RDONLY | O_DIRECT, place->moves);
	add(place->path, O_RDONLY | O_DIRECTORY, false);
	add(place->path, O_RDONLY | O_DIRECTORY | O_DIRECT, false);
}

static void open_files(void)
{
	int ends[2];
	unsigned int i;

	for (i = 0; i < nr_places; i++)
		open_place(&places[i]);
	add("/proc/self/mem", O_RDWR | O_DIRECT, false);
	add("/proc/self/maps", O_RDONLY, false);
	add(NVFS_PROC "stats", O_RDONLY, false);
	add("/sys/kernel/debug", O_RDONLY | O_DIRECTORY, false);
	add("/dev/zero", O_RDWR | O_DIRECT, false);
	add("/dev/null", O_RDWR, false);
	add("/dev/nvidia-fs1", O_RDWR | O_DIRECT, false);
	add("/dev/nvidia-fs2", O_RDWR, false);
	add("/dev/fake_nvidia0", O_RDWR, false);
	if (!pipe2(me.pipe, O_CLOEXEC)) {
		add_fd(me.pipe[0], "pipe, to read");
		add_fd(me.pipe[1], "pipe, to write");
	}
	if (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		add_fd(ends[0], "socket");
		add_fd(ends[1], "its other end");
	}
	add_fd(eventfd(1, EFD_CLOEXEC), "eventfd");
	add_fd(epoll_create1(EPOLL_CLOEXEC), "epoll");
	add_fd(memfd_create("memfd", MFD_CLOEXEC), "memfd");
}

static void map_pages(void)
{
	int alias = memfd_create("alias", MFD_CLOEXEC), file;
	char path[256];
	unsigned int i;

	if (ftruncate(alias, 4096))
		tap_bail("no memfd");
	map_at(hostile_page(READ_ONLY), 4096, PROT_READ, MAP_SHARED, alias);
	map_at(hostile_page(ALIAS), 4096, PROT_READ | PROT_WRITE, MAP_SHARED, alias);
	close(alias);
	map_at(hostile_page(NO_ACCESS), 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	map_at(hostile_page(FLIPPING), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	map_at(hostile_page(HOT), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	snprintf(path, sizeof(path), "%s/work", places[0].path);
	file = open(path, O_RDWR | O_CLOEXEC);
	map_at(hostile_page(OF_A_FILE), 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file);
	close(file);
	for (i = 0; i < THREADS; i++) {
		me.thread[i].page = map_at((char *)HOSTILE_BASE + MIB + i * 64 * KIB, 40 * KIB,
					   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		map_at((char *)LOW_BASE + i * 64 * KIB, 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1);
	}
	for (i = 0; i < NR_SLOTS; i++) {
		me.slot[i].address = (char *)SLOT_BASE + i * SLOT_ROOM;
		me.slot[i].meta = map_at((char *)HOSTILE_BASE + 8 * MIB + i * 64 * KIB,
					 SLOT_METAS * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		me.slot[i].unknown = i >= THREADS * PRIVATE_SLOTS;
	}
}

/* In a process that has no other thread yet. */
void make_world(unsigned int process, int mail)
{
	struct thread *t;
	bool ordinary;
	unsigned int i;

	me.mail = mail;
	/* One in two is an ordinary user, but with files that root has opened. */
	ordinary = mix(shared->seed, shared->round * PROCESSES + process) & 1;
	open_files();
	for (i = 0; i < 2; i++) {
		if (gpu_open(&me.gpu[i], i) || gpu_info(&me.gpu[i], &me.info[i]))
			tap_bail("no GPU %u", i);
	}
	for (i = 0; i < NR_RANGES / 2; i++) {
		me.range[i].size = (1 + i) * 256 * KIB;
		if (gpu_alloc(&me.gpu[0], me.range[i].size, i & 1, &me.range[i].va))
			me.range[i].va = 0;
	}
	map_pages();
	for (i = 0; i < NR_NODES; i++) {
		me.node[i] = nvfs_open((process + i) % 16, i == 1 ? O_RDONLY : O_RDWR);
		if (me.node[i] < 0)
			tap_bail("no node: %s", strerror(-me.node[i]));
		if (i >= 2) {
			dup2(me.node[i], LOOSE_NODE_FD + i);
			close(me.node[i]);
			me.node[i] = LOOSE_NODE_FD + i;
		}
	}
	for (i = 0; i <= THREADS; i++) {
		t = &me.thread[i];
		t->process = process;
		t->number = i;
		t->rng = mix(mix(shared->seed, shared->round), process * 16 + i) | 1;
		t->ring = &shared->ring[process * THREADS + i % THREADS];
		t->now = t->ring->call;
	}
	guide_open();
	if (ordinary && (setregid(65534, 65534) || setreuid(65534, 65534)))
		tap_bail("no other user");
}

struct slot *some_slot(struct thread *t, bool *private)
{
	*private = roll(&t->rng, 5) < 4;
	if (*private)
		return &me.slot[t->number * PRIVATE_SLOTS + roll(&t->rng, PRIVATE_SLOTS)];
	return &me.slot[THREADS * PRIVATE_SLOTS + roll(&t->rng, SHARED_SLOTS)];
}

/* A range that was there just now, or none. */
struct range some_range(struct thread *t)
{
	unsigned int first = roll(&t->rng, NR_RANGES), i;
	struct range r = { 0 };

	for (i = 0; i < NR_RANGES; i++) {
		struct range *in = &me.range[(first + i) % NR_RANGES];

		r.va = __atomic_load_n(&in->va, __ATOMIC_ACQUIRE);
		r.size = __atomic_load_n(&in->size, __ATOMIC_RELAXED);
		r.gpu = __atomic_load_n(&in->gpu, __ATOMIC_RELAXED);
		if (r.va)
			return r;
	}
	r.va = 0;
	return r;
}

/* Writes what the kernel may just be reading. */
static void scribble(struct thread *t)
{
	uint64_t *word = (uint64_t *)hostile_page(HOT);
	unsigned int i = roll(&t->rng, 16);
	struct range r;

	if (roll(&t->rng, 8) == 0)
		i = roll(&t->rng, 512);
	switch (roll(&t->rng, 6)) {
	case 0:
		r = some_range(t);
		word[i] = r.va + roll(&t->rng, 3) * 4096;
		break;
	case 1:
		word[i] = (uintptr_t)me.slot[THREADS * PRIVATE_SLOTS + roll(&t->rng, SHARED_SLOTS)].address;
		break;
	case 2:
		word[i] = roll(&t->rng, 16) * 4096;
		break;
	case 3:
		((uint32_t *)word)[2 * i + roll(&t->rng, 2)] = me.file[roll(&t->rng, me.nr_files)].fd;
		break;
	case 4:
		((uint8_t *)word)[roll(&t->rng, 128)] = roll(&t->rng, 256);
		break;
	default:
		word[i] = odd_number(&t->rng, word[i]);
	}
	/* Also what other processes read. */
	if (roll(&t->rng, 4) == 0)
		((uint64_t *)shared->page[1])[roll(&t->rng, 512)] = word[i];
}

static void flip(struct thread *t)
{
	void *page = hostile_page(FLIPPING);

	switch (roll(&t->rng, 4)) {
	case 0:
		munmap(page, 4096);
		break;
	case 1:
		mprotect(page, 4096, PROT_READ);
		break;
	case 2:
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
		break;
	default:
		mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
}

void *disturb(void *arg)
{
	struct thread *t = arg;
	struct itimerval timer = { 0 };

	timer.it_interval.tv_usec = timer.it_value.tv_usec = 2000 + roll(&t->rng, 20000);
	setitimer(ITIMER_REAL, &timer, NULL);
	while (!__atomic_load_n(&me.done, __ATOMIC_RELAXED) && !shared->stop) {
		struct timespec pause = { .tv_nsec = 50000 + roll(&t->rng, 400000) };
		unsigned int i, n = roll(&t->rng, 40);

		for (i = 0; i < n; i++)
			scribble(t);
		flip(t);
		/* One number, ever another file. */
		if (roll(&t->rng, 2))
			dup2(me.file[roll(&t->rng, me.nr_files)].fd, HOT_FD);
		else
			close(HOT_FD);
		nanosleep(&pause, NULL);
	}
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_REAL, &timer, NULL);
	return NULL;
}
