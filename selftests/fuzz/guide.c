// SPDX-License-Identifier: GPL-2.0
/*
 * What a thread does in a round: its program. It is made of stretches, and each of these is what some
 * thread of some round would do by itself.
 *
 * Where the kernel has KCOV, and the module is built for it as on the debug kernel, a stretch that
 * reaches code of the module in an order that none did before is kept, with all before it in the
 * round. One program in two begins with one that was kept.
 */
#include <fcntl.h>
#include <linux/kcov.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "fuzz.h"

#define TRACE_WORDS	(64 * 1024)

/* For each thread that calls, where the kernel writes to; word 0 is how many there are. */
static struct trace {
	int fd;
	uint64_t *words;
} traces[THREADS];

static struct guide *guide(void)
{
	return &shared->guide;
}

static struct stretch own(unsigned int worker)
{
	return (struct stretch){ shared->round, worker };
}

/* The programs of a round that is about to begin. */
void guide_round(uint64_t *rng, const char *genes)
{
	struct guide *g = guide();
	unsigned int worker, i, n, known = g->nr_kept < MAX_KEPT ? g->nr_kept : MAX_KEPT;
	unsigned long long round;
	const struct kept *kept;
	int used;

	for (worker = 0; worker < WORKERS; worker++) {
		for (i = 0; i < STRETCHES; i++)
			g->program[worker][i] = own(worker);
		if (!known || roll(rng, 2))
			continue;
		kept = &g->kept[roll(rng, known)];
		for (i = 0; i < kept->nr; i++)
			g->program[worker][i] = kept->stretch[i];
		/* Some with a change in the midst. */
		if (kept->nr > 1 && !roll(rng, 3))
			g->program[worker][roll(rng, kept->nr)] = own(worker);
	}
	if (!genes)
		return;
	/* Those of a failure: WORKER:ROUND.WORKER*STRETCHES+..,.. */
	while (sscanf(genes, "%u:%n", &worker, &used) == 1 && worker < WORKERS) {
		genes += used;
		i = 0;
		while (sscanf(genes, "%llu.%u*%u%n", &round, &known, &n, &used) == 3) {
			genes += used;
			while (n-- && i < STRETCHES)
				g->program[worker][i++] = (struct stretch){ round, known };
			if (*genes == '+')
				genes++;
		}
		if (*genes == ',')
			genes++;
	}
}

/* What is not a thread's own in this round, for GENES. */
void guide_tell(char *text, size_t size)
{
	const struct stretch *s;
	unsigned int worker, i, n, last;
	size_t used = 0;

	*text = '\0';
	for (worker = 0; worker < WORKERS; worker++) {
		s = guide()->program[worker];
		for (last = STRETCHES; last && s[last - 1].round == shared->round &&
		     s[last - 1].worker == worker; last--)
			;
		for (i = 0; i < last && used < size; i += n) {
			for (n = 1; i + n < last && s[i + n].round == s[i].round &&
			     s[i + n].worker == s[i].worker; n++)
				;
			used += i ? snprintf(text + used, size - used, "+") :
				    snprintf(text + used, size - used, "%s%u:", used ? "," : " GENES=", worker);
			if (used < size)
				used += snprintf(text + used, size - used, "%llu.%u*%u",
						 (unsigned long long)s[i].round, s[i].worker, n);
		}
	}
}

/* In a process that has all its rights, before its threads. */
void guide_open(void)
{
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		traces[i].words = MAP_FAILED;
		traces[i].fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);
		if (traces[i].fd < 0)
			continue;
		if (!ioctl(traces[i].fd, KCOV_INIT_TRACE, TRACE_WORDS))
			traces[i].words = mmap(NULL, TRACE_WORDS * sizeof(uint64_t),
					       PROT_READ | PROT_WRITE, MAP_SHARED, traces[i].fd, 0);
	}
}

/* In a thread that is about to make calls. */
void guide_begin(struct thread *t)
{
	struct trace *trace = &traces[t->number];

	if (trace->words != MAP_FAILED && ioctl(trace->fd, KCOV_ENABLE, KCOV_TRACE_PC))
		trace->words = MAP_FAILED;
	/* The thread keeps what it has enabled. */
	if (trace->fd >= 0)
		close(trace->fd);
}

/* Whether the last stretch went from somewhere to somewhere in the module as none did before. */
static bool is_new(uint64_t *words)
{
	uint64_t n = __atomic_load_n(&words[0], __ATOMIC_RELAXED), i, bit, last = 0;
	uint8_t *byte, mask;
	bool found = false;

	for (i = 1; i <= n && i < TRACE_WORDS; i++) {
		bit = mix(last, words[i]) % (8 * sizeof(guide()->seen));
		last = words[i];
		byte = &guide()->seen[bit / 8];
		mask = 1 << bit % 8;
		if (__atomic_load_n(byte, __ATOMIC_RELAXED) & mask)
			continue;
		if (!(__atomic_fetch_or(byte, mask, __ATOMIC_RELAXED) & mask)) {
			__atomic_fetch_add(&guide()->reached, 1, __ATOMIC_RELAXED);
			found = true;
		}
	}
	return found;
}

static void keep(unsigned int worker, unsigned int nr)
{
	uint64_t at = __atomic_fetch_add(&guide()->nr_kept, 1, __ATOMIC_RELAXED);
	struct kept *kept = &guide()->kept[at % MAX_KEPT];

	/* Read after the round only. */
	memcpy(kept->stretch, guide()->program[worker], nr * sizeof(kept->stretch[0]));
	kept->nr = nr;
}

/* Before each call, and after the last one. */
void guide_call(struct thread *t)
{
	unsigned int worker = t->process * THREADS + t->number, nr = t->index / STRETCH;
	uint64_t *words = traces[t->number].words;
	const struct stretch *s;

	if (t->child || t->index % STRETCH)
		return;
	if (words != MAP_FAILED) {
		if (nr && is_new(words))
			keep(worker, nr);
		__atomic_store_n(&words[0], 0, __ATOMIC_RELAXED);
	}
	if (nr == STRETCHES)
		return;
	s = &guide()->program[worker][nr];
	t->rng = mix(mix(mix(shared->seed, s->round), s->worker), nr) | 1;
}
