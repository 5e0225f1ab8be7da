// SPDX-License-Identifier: GPL-2.0
/*
 * The rounds: starts the processes, kills some of them, and looks at the end of each round whether
 * all is as it was before.
 *
 * usage: fuzz PLACE...; PLACE is a folder of a file system, or a block device of which all may be
 * overwritten; with a '-' before it no data can be moved there. The first one is the victim's.
 *
 * Environment: SEED (0: another one each time), FIRST call, CALLS or MINUTES, ONLY=KIND,KIND...,
 * GENES of the first round
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "fuzz.h"

#define ROUND_SECONDS	180	/* then the round is ended by force */
#define END_SECONDS	60	/* then something is stuck, or left */

/* By then all caches of the allocators have what they keep. */
#define WARM_ROUNDS	10
#define MEMORY_ROUNDS	3	/* more at least, to tell what they lose */
#define ENOUGH_KIB	(24 * 1024)

struct shared *shared;
struct place places[MAX_PLACES];
unsigned int nr_places;
bool callback;

static struct gpu gpu;

/* ---- chance ---- */

uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = a + 0x9e3779b97f4a7c15 * (b + 1);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t roll(uint64_t *rng, uint64_t below)
{
	*rng += 0x9e3779b97f4a7c15;
	return below ? mix(*rng, 0) % below : 0;
}

/* A number at some limit, or near the right one. */
uint64_t odd_number(uint64_t *rng, uint64_t sane)
{
	static const uint64_t limits[] = {
		0, 1, 2, 8, 255, 256, 257, 511, 512, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20,
		16 << 20, INT_MAX, 1UL << 31, UINT_MAX, 1UL << 32, 1UL << 44, 1UL << 62, LONG_MAX,
		LONG_MAX - 4095, 1UL << 63, -65536UL, -4096UL, -8UL, -1UL,
	};
	static const uint64_t steps[] = { 1, 8, 512, 4096, 65536, 1UL << 32 };

	switch (roll(rng, 5)) {
	case 0:
	case 1:
		return limits[roll(rng, sizeof(limits) / 8)];
	case 2:
		return roll(rng, 2) ? sane + steps[roll(rng, 6)] : sane - steps[roll(rng, 6)];
	case 3:
		return sane ^ 1UL << roll(rng, 64);
	default:
		return roll(rng, 0x7fffffffffffffff) & -(1UL << roll(rng, 17));
	}
}

/* ---- records ---- */

void begin(struct thread *t, const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
	   uint64_t e)
{
	t->now = t->now + 1 < t->ring->call + TRACED ? t->now + 1 : t->ring->call;
	*t->now = (struct call){
		.index = t->index, .name = name, .arg = { a, b, c, d, e }, .result = PENDING,
	};
}

long end(struct thread *t, long result)
{
	t->now->result = result;
	return result;
}

void wrong(struct thread *t, const char *fmt, ...)
{
	va_list args;

	if (__atomic_exchange_n(&shared->failed, true, __ATOMIC_SEQ_CST))
		return;
	shared->failed_worker = t ? t->process * THREADS + t->number : WORKERS;
	va_start(args, fmt);
	vsnprintf(shared->failure, sizeof(shared->failure), fmt, args);
	va_end(args);
	__atomic_store_n(&shared->stop, true, __ATOMIC_SEQ_CST);
}

static void print_calls(unsigned int worker)
{
	struct ring *ring = &shared->ring[worker];
	unsigned int i, last = 0;
	struct call *c;

	for (i = 0; i < TRACED; i++)
		if (ring->call[i].index > ring->call[last].index)
			last = i;
	tap_diag("the last calls of process %u, thread %u:", worker / THREADS, worker % THREADS);
	for (i = 1; i <= TRACED; i++) {
		c = &ring->call[(last + i) % TRACED];
		if (!c->name)
			continue;
		tap_diag("%4llu %-12s %#llx %#llx %#llx %#llx %#llx %#llx -> %s%ld",
			 (unsigned long long)c->index, c->name, (unsigned long long)c->arg[0],
			 (unsigned long long)c->arg[1], (unsigned long long)c->arg[2],
			 (unsigned long long)c->arg[3], (unsigned long long)c->arg[4],
			 (unsigned long long)c->arg[5], c->result == PENDING ? "not back " : "",
			 c->result == PENDING ? 0 : c->result);
	}
}

/* ---- what is there ---- */

struct state {
	uint64_t tables, mappings, pinned_pages, misuse;
	long long pins, dma_mappings, segments, shadow, maps, reads, writes, batches, user_pins;
};

static struct state look(void)
{
	struct fake_nvidia_counts counts;
	char text[16];
	struct state s;

	if (gpu_counts(&gpu, &counts))
		tap_bail("no counts");
	/* The CPUs keep what they counted for a while. */
	nvfs_read_text("/proc/sys/vm/stat_refresh", text, sizeof(text));
	s.tables = counts.tables;
	s.mappings = counts.mappings;
	s.pinned_pages = counts.pinned_pages;
	s.misuse = counts.misuse;
	s.pins = nvfs_counter("pins_now");
	s.dma_mappings = nvfs_counter("dma_mappings_now");
	s.segments = nvfs_counter("segments_now");
	s.shadow = nvfs_stat("Active Shadow-Buffer (MiB)", "");
	s.maps = nvfs_stat("Bar1-map", "active");
	s.reads = nvfs_stat("Ops", "Read");
	s.writes = nvfs_stat("Ops", "Write");
	s.batches = nvfs_stat("Ops", "BatchIO");
	s.user_pins = nvfs_number("/proc/vmstat", "nr_foll_pin_acquired") -
		      nvfs_number("/proc/vmstat", "nr_foll_pin_released");
	return s;
}

static long long callback_transfers(void)
{
	return nvfs_counter("read_callback_ios") +
	       nvfs_counter("write_callback_ios");
}

static void print_state(const char *when, const struct state *s)
{
	tap_diag("%s: %llu tables, %llu DMA mappings, %llu pages pinned, %llu misuse; counters: %lld pins, %lld mappings, %lld segments; stats: %lld MiB, %lld maps, %lld %lld %lld under way; %lld pins of user memory",
		 when, (unsigned long long)s->tables, (unsigned long long)s->mappings,
		 (unsigned long long)s->pinned_pages, (unsigned long long)s->misuse, s->pins,
		 s->dma_mappings, s->segments, s->shadow, s->maps, s->reads, s->writes, s->batches,
		 s->user_pins);
}

/* It differs by 40 MiB from one round to the next; only what is never there again is lost. */
static long long free_memory(void)
{
	char text[4096], *at;

	nvfs_write_text("/proc/sys/vm/drop_caches", "3");
	nvfs_read_text("/proc/meminfo", text, sizeof(text));
	at = strstr(text, "MemAvailable:");
	return at ? strtoll(at + 13, NULL, 10) : 0;
}

/* Also in the kernel's log, so that what it says can be told to belong to a round. */
static void announce(const char *fmt, ...)
{
	char text[900];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	nvfs_write_text("/dev/kmsg", text);
}

/* ---- one process ---- */

static __thread struct thread *self;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (self && self->may_fault)
		siglongjmp(self->fault, 1);
	wrong(self, "signal %d at %p", signal, info->si_addr);
	_exit(1);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void *work(void *arg)
{
	struct thread *t = arg;

	self = t;
	guide_begin(t);
	while (t->index < CALLS && !shared->stop) {
		guide_call(t);
		one_call(t);
	}
	guide_call(t);
	return NULL;
}

static void process(unsigned int number, int mail)
{
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
	struct sigaction alarm = { .sa_handler = on_alarm };
	pthread_t id[THREADS + 1];
	unsigned int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGBUS, &fault, NULL);
	sigaction(SIGALRM, &alarm, NULL);
	sigaction(SIGPIPE, &alarm, NULL);
	make_world(number, mail);
	for (i = 0; i <= THREADS; i++)
		if (pthread_create(&id[i], NULL, i < THREADS ? work : disturb, &me.thread[i]))
			tap_bail("no thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	__atomic_store_n(&me.done, true, __ATOMIC_RELAXED);
	pthread_join(id[THREADS], NULL);
	/* Buffers go with the process. */
	_exit(0);
}

/* ---- one round ---- */

static bool prepare_files(void)
{
	char path[256], junk[4096];
	unsigned int i, j;
	int fd;

	memset(junk, 0x11, sizeof(junk));
	for (i = 0; i < nr_places; i++) {
		if (places[i].block)
			continue;
		snprintf(path, sizeof(path), "%s/work", places[i].path);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || ftruncate(fd, 0) || ftruncate(fd, FILE_BYTES)) {
			tap_diag("%s: %s", path, strerror(errno));
			return false;
		}
		/* Half of it is a hole. */
		for (j = 0; j < FILE_BYTES / 2; j += sizeof(junk))
			if (pwrite(fd, junk, sizeof(junk), j) != sizeof(junk))
				return false;
		close(fd);
	}
	return true;
}

/* A round depends on none before it. */
static void reset_parameters(uint64_t *rng)
{
	nvfs_set_parameter("p2pdma", "auto");
	nvfs_set_parameter("rw_stats_enabled", "1");
	nvfs_set_parameter("peer_stats_enabled", "0");
	nvfs_set_parameter("use_legacy_p2p_allocation", roll(rng, 2) ? "1" : "0");
	gpu_reset(&gpu);
}

/* What the processes could write to has nothing of the victim's GPU memory. */
static bool secrets_kept(void)
{
	static char data[FILE_BYTES] __attribute__((aligned(4096)));
	char path[256];
	unsigned int i;
	ssize_t n;
	int fd;

	for (i = 0; i < nr_places; i++) {
		snprintf(path, sizeof(path), "%s%s", places[i].path, places[i].block ? "" : "/work");
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = pread(fd, data, sizeof(data), 0);
		close(fd);
		if (n > 0 && is_secret(data, n))
			return false;
	}
	return true;
}

static void print_stacks(void)
{
	nvfs_write_text("/proc/sysrq-trigger", "w");
	nvfs_write_text("/proc/sysrq-trigger", "t");
}

/* Waits for all processes; one in two rounds kills one of them at some moment. */
static void run_processes(uint64_t *rng)
{
	struct timespec tick = { .tv_nsec = 2000000 };
	unsigned int victim = roll(rng, 2 * PROCESSES), i, left = 0;
	struct ring *watched = &shared->ring[victim % PROCESSES * THREADS];
	uint64_t moment = roll(rng, CALLS) + watched->calls;
	double force = nvfs_seconds() + ROUND_SECONDS, limit = force + END_SECONDS;
	int mail[2], status;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, mail))
		tap_bail("no socket");
	fflush(stdout);
	for (i = 0; i < PROCESSES; i++) {
		pid = fork();
		if (!pid) {
			gpu_close(&gpu);
			process(i, mail[i & 1]);
		}
		if (pid < 0)
			tap_bail("no process");
		__atomic_store_n(&shared->pid[i], pid, __ATOMIC_SEQ_CST);
		left++;
	}
	close(mail[0]);
	close(mail[1]);
	/* Children of the processes are ours when these are gone. */
	for (;;) {
		pid = waitpid(-1, &status, WNOHANG | __WALL);
		if (pid < 0 && errno == ECHILD)
			break;
		if (pid > 0) {
			if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
				wrong(NULL, "process %d: signal %d", pid, WTERMSIG(status));
			for (i = 0; i < PROCESSES; i++)
				left -= shared->pid[i] == pid;
			if (!left)
				break;
			continue;
		}
		if (victim < PROCESSES && __atomic_load_n(&watched->calls, __ATOMIC_RELAXED) >= moment) {
			kill(shared->pid[victim], SIGKILL);
			victim = PROCESSES;
		}
		if (nvfs_seconds() > force) {
			wrong(NULL, "the round does not end");
			print_stacks();
			for (i = 0; i < PROCESSES; i++)
				kill(shared->pid[i], SIGKILL);
			force = limit;
		}
		if (nvfs_seconds() > limit) {
			tap_diag("a process cannot be killed");
			return;
		}
		nanosleep(&tick, NULL);
	}
	/* Those whose parent was killed. */
	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
		;
}

static bool same(const struct state *a, const struct state *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static void check_round(const struct state *before)
{
	double limit = nvfs_seconds() + END_SECONDS;
	struct timespec tick = { .tv_nsec = 5000000 };
	struct state after;
	char why[200];

	gpu_reset(&gpu);
	nvfs_set_parameter("p2pdma", "auto");
	/* What the dying left goes by itself, soon. */
	for (;;) {
		after = look();
		if (same(&after, before) || nvfs_seconds() > limit)
			break;
		nanosleep(&tick, NULL);
	}
	if (!same(&after, before)) {
		wrong(NULL, "something is left");
		print_state("before", before);
		print_state("after", &after);
		print_stacks();
	}
	if (!check_victim(why, sizeof(why)))
		wrong(NULL, "the victim: %s", why);
	if (!secrets_kept())
		wrong(NULL, "a file has bytes of the victim's GPU memory");
}

static uint64_t sum(size_t offset)
{
	uint64_t all = 0;
	unsigned int i;

	for (i = 0; i < WORKERS; i++)
		all += *(uint64_t *)((char *)&shared->ring[i] + offset);
	return all;
}
#define SUM(field) ((unsigned long long)sum(offsetof(struct ring, field)))

/* How far the transfers came. */
static void print_reasons(void)
{
	char text[400] = "";
	size_t used = 0;
	uint64_t n;
	int i;

	for (i = 1; i < 128; i++) {
		n = sum(offsetof(struct ring, reason[i]));
		if (n && used < sizeof(text))
			used += snprintf(text + used, sizeof(text) - used, ", %llu %s",
					 (unsigned long long)n, strerrorname_np(i));
	}
	tap_diag("transfers failed: %s", used ? text + 2 : "none");
}

static uint64_t variable(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 0) : otherwise;
}

static void take_places(int argc, char **argv)
{
	struct stat st;
	int i;

	for (i = 1; i < argc && nr_places < MAX_PLACES; i++) {
		struct place *place = &places[nr_places++];

		place->moves = *argv[i] != '-';
		place->path = argv[i] + !place->moves;
		if (stat(place->path, &st))
			tap_bail("no %s", place->path);
		place->block = S_ISBLK(st.st_mode);
	}
	if (!nr_places || places[0].block)
		tap_bail("usage: %s FOLDER PLACE...", argv[0]);
}

int main(int argc, char **argv)
{
	char why[200] = "no files", genes[700];
	unsigned int i;
	uint64_t seed = variable("SEED", 0), calls = variable("CALLS", 0), first = variable("FIRST", 0);
	double start = nvfs_seconds(), told = start, minutes = variable("MINUTES", 0);
	double prepared, running = 0;
	uint64_t round = first / ROUND_CALLS, rounds = 0;
	long long memory, least = LLONG_MAX, most = 0;
	struct state before;

	if (!seed)
		seed = (uint64_t)time(NULL) << 20 ^ getpid();
	callback = variable("CALLBACK", 0);
	take_places(argc, argv);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		tap_bail("no memory");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	shared->seed = seed;
	list_calls(getenv("ONLY"));
	start_victim(places[0].path);
	if (gpu_open(&gpu, 0))
		tap_bail("no GPU");
	tap_diag("SEED=%llu FIRST=%llu", (unsigned long long)seed, (unsigned long long)first);
	/* Its first transfer makes what stays. */
	if (!prepare_files() || !check_victim(why, sizeof(why)))
		tap_bail("it does not begin: %s", why);
	before = look();
	do {
		uint64_t rng = mix(mix(seed, round), 0xf022);

		shared->round = round++;
		guide_round(&rng, rounds ? NULL : getenv("GENES"));
		guide_tell(genes, sizeof(genes));
		announce("fuzz: SEED=%llu FIRST=%llu%s", (unsigned long long)seed,
			 (unsigned long long)shared->round * ROUND_CALLS, genes);
		if (!prepare_files())
			wrong(NULL, "no files");
		reset_parameters(&rng);
		prepared = nvfs_seconds();
		run_processes(&rng);
		running += nvfs_seconds() - prepared;
		check_round(&before);
		memory = free_memory();
		if (++rounds <= WARM_ROUNDS)
			least = memory < least ? memory : least;
		else
			most = memory > most ? memory : most;
		if (nvfs_seconds() - told > 60) {
			told = nvfs_seconds();
			tap_diag("%llu calls in %.0f s", SUM(calls), told - start);
		}
	} while (!shared->failed && (minutes > 0 ? nvfs_seconds() - start < 60 * minutes :
						   SUM(calls) < calls));
	if (!tap_ok(!shared->failed, "%llu calls, SEED=%llu", SUM(calls), (unsigned long long)seed)) {
		tap_diag("%s", shared->failure);
		tap_diag("again: SEED=%llu FIRST=%llu%s", (unsigned long long)seed,
			 (unsigned long long)shared->round * ROUND_CALLS, genes);
		for (i = 0; i < WORKERS; i++)
			if (shared->failed_worker == i || shared->failed_worker == WORKERS)
				print_calls(i);
	}
	tap_diag("%llu rounds, %.0f s (%.0f s in calls), %llu requests, %llu MAPs good, %llu transfers good, %llu ends awaited",
		 (unsigned long long)rounds, nvfs_seconds() - start, running, SUM(requests), SUM(mapped),
		 SUM(moved), SUM(fences));
	print_reasons();
	tap_diag("coverage: %llu steps, %llu programs kept", (unsigned long long)shared->guide.reached,
		 (unsigned long long)shared->guide.nr_kept);
	if (!access("/sys/kernel/debug/kcov", F_OK))
		tap_ok(shared->guide.reached > 1000, "the module tells what is reached of it");
	/* Else it tries nothing but refusals. */
	if (callback)
		tap_ok(getenv("ONLY") || callback_transfers() > (long long)SUM(calls) / 500,
		       "one call in 500 moves data by hooks: %lld", callback_transfers());
	tap_ok(getenv("ONLY") || (SUM(mapped) > SUM(calls) / 100 && SUM(moved) > SUM(calls) / 100),
	       "one call in a hundred maps, another one moves data");
	if (!access("/sys/kernel/debug/kmemleak", F_OK))
		tap_skip("KASAN keeps freed memory; kmemleak looks for leaks", "no memory is missing");
	else if (rounds < WARM_ROUNDS + MEMORY_ROUNDS)
		tap_skip("too few rounds to tell", "no memory is missing");
	else
		tap_ok(least - most < ENOUGH_KIB, "no memory is missing: at least %lld KiB were free, at most %lld KiB later",
		       least, most);
	stop_victim();
	return tap_plan();
}
