/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fuzzer: rounds of random calls by several processes, each with several threads.
 *
 * What a thread does depends on the seed, the round and its place alone, never on a clock, and where
 * there is coverage on what earlier rounds reached, which is told (guide.c); only the order in which
 * threads meet differs from run to run. A round begins with everything closed and
 * ends with everything closed, so any round can be run by itself.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../lib/gpu.h"
#include "../lib/nvfs.h"

#define PROCESSES	3
#define THREADS		2	/* of each, that call; one more gets in their way */
#define WORKERS		(PROCESSES * THREADS)
#define CALLS		250	/* of a thread in a round */
#define ROUND_CALLS	(WORKERS * CALLS)

#define FILE_BYTES	(2 * MIB)
#define MAX_PLACES	8	/* file systems and block devices */
#define MAX_FILES	96
#define NR_NODES	6	/* the first two are never closed */
#define NR_RANGES	10
#define PRIVATE_SLOTS	4	/* of a thread */
#define SHARED_SLOTS	3	/* of a process */
#define SLOT_METAS	16	/* meta blocks of a slot */
#define NR_SLOTS	(THREADS * PRIVATE_SLOTS + SHARED_SLOTS)

/* The same addresses in every process, where the kernel puts nothing by itself. */
#define SLOT_BASE	0x100000000000UL
#define SLOT_ROOM	(64 * MIB)
#define VICTIM_SHADOW	0x0e0000000000UL

#define TRACED		40	/* the last calls of a thread that are kept */

/* The numbers that file descriptors without an owner have. */
#define HOT_FD		200
#define LOOSE_NODE_FD	210
#define NO_FD		900

/* A set of errnos. */
typedef unsigned __int128 errnos;
#define E(errno)	((errnos)1 << (errno))

struct call {
	uint64_t index;
	const char *name;
	uint64_t arg[6];
	long result;		/* or PENDING */
};
#define PENDING		(-999999L)

struct ring {
	uint64_t calls;		/* so far, of this thread and the children that it forked */
	uint64_t requests;	/* ioctls of nodes */
	uint64_t moved;		/* good transfers of at least a byte */
	uint64_t mapped;	/* good MAPs */
	uint64_t fences;	/* asynchronous transfers seen to end */
	uint64_t reason[128];	/* of failed transfers, by errno */
	struct call call[TRACED];
};

#define STRETCH		25	/* calls of a thread that follow from one number */
#define STRETCHES	(CALLS / STRETCH)
#define MAX_KEPT	4096

/* What a thread of a round would do by itself. */
struct stretch {
	uint64_t round;
	unsigned int worker;
};

struct guide {
	struct stretch program[WORKERS][STRETCHES];	/* of this round */
	uint64_t reached;		/* steps in the module that were seen */
	uint64_t nr_kept;		/* so far; there is room for the last ones */
	struct kept {
		unsigned int nr;
		struct stretch stretch[STRETCHES];
	} kept[MAX_KEPT];
	uint8_t seen[64 * 1024];
};

/* What all processes of a run see. */
struct shared {
	uint64_t seed, round;
	bool stop;
	bool failed;
	char failure[400];
	unsigned int failed_worker;
	uint64_t victim_va[2];	/* GPU memory of the victim */
	pid_t pid[PROCESSES];
	struct ring ring[WORKERS];
	struct guide guide;
	/* Arguments and meta blocks that other processes can change. */
	_Alignas(4096) uint8_t page[4][4096];
};

extern struct shared *shared;

/* Where files are: an argument of the program. */
struct place {
	const char *path;
	bool block;		/* a block device, else a folder */
	bool moves;		/* data can be moved between it and a GPU */
};

extern struct place places[MAX_PLACES];
extern unsigned int nr_places;
extern bool callback;		/* some storage driver has hooks */

struct file {
	int fd;
	const char *name;
	struct stat st;
	bool read, write, direct, path_only, regular, block;
	bool moves;
};

/* A place for one shadow buffer. Private ones are touched by one thread only. */
struct slot {
	char *address;
	uint64_t len;		/* 0: nothing there */
	int prot;
	bool mapped;		/* by MAP */
	bool unknown;		/* nothing is known but the address */
	bool stray;		/* some transfer may still write to the meta block */
	uint64_t gpu_va, gpu_size;
	uint64_t fence;
	unsigned int maps;	/* so far; each has the next of the meta blocks */
	struct nvfs_meta *meta, *used;
	bool has_record;
	struct nvfs_rdma_info record;
};

struct range {
	uint64_t va, size;
	unsigned int gpu;
};

struct thread {
	unsigned int process, number;
	bool child;
	uint64_t rng;
	uint64_t index;
	struct ring *ring;
	struct call *now;
	char *page;		/* two pages and a hole, only ours */
	sigjmp_buf fault;
	volatile bool may_fault;
};

/* Of this process. */
struct process {
	struct file file[MAX_FILES];
	unsigned int nr_files;
	int node[NR_NODES];
	struct gpu gpu[2];
	struct fake_nvidia_info info[2];
	struct range range[NR_RANGES];
	struct slot slot[NR_SLOTS];
	struct thread thread[THREADS + 1];
	int mail;		/* to and from other processes */
	int pipe[2];
	bool done;		/* the threads that call are through */
};

extern struct process me;

/* Pages of a process that are of no use, or change; all in one piece. */
enum hostile {
	READ_ONLY,	/* an alias of ALIAS */
	ALIAS,
	NO_ACCESS,
	FLIPPING,	/* mapped and unmapped by the disturbing thread */
	HOT,		/* written to by it */
	OF_A_FILE,
	NR_HOSTILE,
};
#define HOSTILE_BASE	0x110000000000UL
#define LOW_BASE	0x40000000UL
static inline char *hostile_page(enum hostile which)
{
	return (char *)(HOSTILE_BASE + 2 * 4096UL * which);
}

/* fuzz.c: chance. */
uint64_t mix(uint64_t a, uint64_t b);
uint64_t roll(uint64_t *rng, uint64_t below);
uint64_t odd_number(uint64_t *rng, uint64_t sane);

/* fuzz.c: the first failure is kept. */
__attribute__((format(printf, 2, 3))) void wrong(struct thread *t, const char *fmt, ...);

/* Before and after each call. */
void begin(struct thread *t, const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
	   uint64_t e);
long end(struct thread *t, long result);

/* guide.c */
void guide_round(uint64_t *rng, const char *genes);
void guide_tell(char *text, size_t size);
void guide_open(void);
void guide_begin(struct thread *t);
void guide_call(struct thread *t);

/* world.c */
void make_world(unsigned int process, int mail);
void *disturb(void *thread);
struct slot *some_slot(struct thread *t, bool *private);
struct range some_range(struct thread *t);

/* calls.c */
void one_call(struct thread *t);
void list_calls(const char *wanted);

/* expect.c */
struct expectation {
	errnos errors;		/* that may come */
	bool success;		/* may it succeed? */
};

struct expectation expect_mmap(const struct file *node, uint64_t len, int prot, int flags,
			       uint64_t offset);
struct expectation expect_map(const struct nvfs_ioctl_map *arg, const struct slot *slot);
struct expectation expect_io(const struct nvfs_ioctl_io *arg, bool write, const struct slot *slot,
			     const struct file *file);
/* Whether a result, 0 or more or a negative errno, is as expected. */
bool as_expected(const struct expectation *expected, long result);

/* victim.c: a process with a mapped buffer, which nothing may touch. */
void start_victim(const char *folder);
bool check_victim(char *why, size_t size);
bool is_secret(const void *data, size_t size);
void stop_victim(void);

#endif /* FUZZ_H */
