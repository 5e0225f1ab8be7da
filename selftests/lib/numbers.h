/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The numbers of stats (19.8) and of counters: all of them are compared, so that those which an
 * action moves move by a known amount and all others stay.
 */
#ifndef SELFTESTS_NUMBERS_H
#define SELFTESTS_NUMBERS_H

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvfs.h"
#include "tap.h"

/* All numbers that there are. Those of counters have their name, others "LINE KEY". */
struct snapshot {
	unsigned int count;
	struct {
		char name[64];
		long long value;
	} number[128];
};

static struct snapshot before;

static void add_number(struct snapshot *s, const char *line, const char *key, long long value)
{
	if (s->count == sizeof(s->number) / sizeof(*s->number))
		tap_bail("more numbers than expected");
	snprintf(s->number[s->count].name, sizeof(s->number->name), "%.30s%s%.30s", line,
		 *line ? " " : "", key);
	s->number[s->count++].value = value;
}

/* Averages, and what a GPU's line says, are not counters. */
static void add_stats_line(struct snapshot *s, char *line)
{
	char *colon = strchr(line, ':'), *word;
	size_t len;

	if (!colon || !strncmp(line, "GPU ", 4))
		return;
	*colon = '\0';
	for (len = strlen(line); len && isspace((unsigned char)line[len - 1]); len--)
		line[len - 1] = '\0';
	for (word = strtok(colon + 1, " "); word; word = strtok(NULL, " ")) {
		char *equal = strchr(word, '=');

		if (!equal || strstr(word, "(usec)") || strstr(word, "(MiB/s)"))
			continue;
		*equal = '\0';
		add_number(s, line, word, atoll(equal + 1));
	}
}

static void take(struct snapshot *s)
{
	char text[8192], *line, *next;

	s->count = 0;
	if (nvfs_read_text(NVFS_PROC "counters", text, sizeof(text)) < 0)
		tap_bail("no counters");
	for (line = text; *line; line = next) {
		char *blank = strchr(line, ' ');

		next = strchr(line, '\n');
		if (!blank || !next || blank > next)
			tap_bail("not a line of `name value`: %s", line);
		*blank = *next++ = '\0';
		add_number(s, "", line, atoll(blank + 1));
	}
	if (nvfs_read_text(NVFS_PROC "stats", text, sizeof(text)) < 0)
		tap_bail("no stats");
	for (line = text; *line; line = next) {
		next = strchr(line, '\n');
		*next++ = '\0';
		add_stats_line(s, line);
	}
}

/* begin: what happens from here on is compared. */
static __attribute__((unused)) void begin(void)
{
	take(&before);
}

/* moved: (const char *, long long) pairs up to a NULL are all that has moved since begin(). */
static __attribute__((unused)) void moved(const char *what, ...)
{
	static struct snapshot now;
	unsigned int wrong = 0, found = 0, wanted = 0, i;
	const char *name;
	va_list args;

	take(&now);
	if (now.count != before.count)
		tap_bail("%u numbers, were %u", now.count, before.count);
	for (i = 0; i < now.count; i++) {
		long long got = now.number[i].value - before.number[i].value, want = 0;

		va_start(args, what);
		while ((name = va_arg(args, const char *))) {
			long long by = va_arg(args, long long);

			if (!strcmp(name, now.number[i].name)) {
				want = by;
				found++;
			}
		}
		va_end(args);
		if (got != want) {
			tap_diag("%s: got %+lld, want %+lld", now.number[i].name, got, want);
			wrong++;
		}
	}
	va_start(args, what);
	for (; va_arg(args, const char *); wanted++)
		(void)va_arg(args, long long);
	va_end(args);
	tap_ok(!wrong && found == wanted, "%s", what);
	if (found != wanted)
		tap_diag("%u of %u names are there", found, wanted);
}

/* Short for the pairs. */
#define BY(name, value)	(name), (long long)(value)

static __attribute__((unused)) long long number(const char *name)
{
	struct snapshot s;
	unsigned int i;

	take(&s);
	for (i = 0; i < s.count; i++)
		if (!strcmp(s.number[i].name, name))
			return s.number[i].value;
	return -ENOENT;
}

#endif /* SELFTESTS_NUMBERS_H */
