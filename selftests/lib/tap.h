/* SPDX-License-Identifier: GPL-2.0 */
/* The Test Anything Protocol on standard output: one line for each check, the plan at the end. */
#ifndef TAP_H
#define TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAP_PRINTF(fmt, args)	__attribute__((unused, format(printf, fmt, args)))

static unsigned int tap_count, tap_failures;

/* Lines go out whole and at once, so that a test that dies leaves what it had reached. */
static void tap_vline(const char *prefix, const char *fmt, va_list args)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, args);
	printf("%s%s\n", prefix, text);
	fflush(stdout);
}

static bool tap_vok(bool good, const char *fmt, va_list args)
{
	char prefix[32];

	if (!good)
		tap_failures++;
	snprintf(prefix, sizeof(prefix), "%sok %u - ", good ? "" : "not ", ++tap_count);
	tap_vline(prefix, fmt, args);
	return good;
}

/* tap_diag: a line for people. */
TAP_PRINTF(1, 2) static void tap_diag(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	tap_vline("# ", fmt, args);
	va_end(args);
}

/* tap_ok: one check. Returns whether it passed. */
TAP_PRINTF(2, 3) static bool tap_ok(bool good, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	tap_vok(good, fmt, args);
	va_end(args);
	return good;
}

/* tap_is: one check that a number is the wanted one. */
TAP_PRINTF(3, 4) static bool tap_is(long long got, long long want, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	tap_vok(got == want, fmt, args);
	va_end(args);
	if (got != want)
		tap_diag("got %lld (%s), want %lld (%s)", got,
			 got < 0 && got > -4096 ? strerror(-got) : "a number", want,
			 want < 0 && want > -4096 ? strerror(-want) : "a number");
	return got == want;
}

/* tap_is_text: one check that a string is the wanted one. */
TAP_PRINTF(3, 4) static bool tap_is_text(const char *got, const char *want, const char *fmt, ...)
{
	bool good = !strcmp(got, want);
	va_list args;

	va_start(args, fmt);
	tap_vok(good, fmt, args);
	va_end(args);
	if (!good) {
		tap_diag("got  \"%s\"", got);
		tap_diag("want \"%s\"", want);
	}
	return good;
}

/* tap_skip: a check that this machine cannot make. */
TAP_PRINTF(2, 3) static void tap_skip(const char *why, const char *fmt, ...)
{
	char what[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	tap_ok(true, "%s # SKIP %s", what, why);
}

/* tap_plan: the last line. Returns the exit code of the program. */
static __attribute__((unused)) int tap_plan(void)
{
	printf("1..%u\n", tap_count);
	fflush(stdout);
	return tap_failures ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* tap_bail: the test bed is not as it must be, nothing can be tested. */
TAP_PRINTF(1, 2) __attribute__((noreturn)) static void tap_bail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	tap_vline("Bail out! ", fmt, args);
	va_end(args);
	exit(2);
}

#endif /* TAP_H */
