// SPDX-License-Identifier: GPL-2.0
/*
 * Identity (1.1, 1.3) and parameters (1.4, 1.5) in /sys/module/nvidia_fs.
 *
 * usage: params (with the module loaded without parameters)
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/nvfs.h"
#include "../lib/tap.h"

struct parameter {
	const char *name;
	int initial;
	const char *takes[5];
};

static const char *const not_numbers[] = {
	"", "\n", "x", "1x", "-1", "1 2", "0x", "4294967296", "99999999999999999999999",
};

static void path_of(const char *name, char path[128])
{
	snprintf(path, 128, NVFS_PARAMETERS "%s", name);
}

static void value_of(const char *name, char text[64])
{
	char path[128];

	path_of(name, path);
	if (nvfs_read_text(path, text, 64) < 0)
		*text = '\0';
	text[strcspn(text, "\n")] = '\0';
}

/* 1.5: what is chosen when the administrator says nothing. */
static int expected_legacy(void)
{
	char text[4096], *flags;

	if (nvfs_read_text("/sys/module/nvidia/version", text, 4) > 0 && atoi(text) >= 555)
		return 0;
	if (nvfs_read_text("/proc/cpuinfo", text, sizeof(text)) < 0)
		return -1;
	flags = strstr(text, "\nflags");
	return flags && strstr(flags, " hypervisor");
}

static void test_mode(const char *name)
{
	struct stat st = { 0 };
	char path[128];

	path_of(name, path);
	tap_ok(!stat(path, &st) && (st.st_mode & 07777) == 0644 && !st.st_uid,
	       "1.4: %s: mode 0644, of root", name);
	if ((st.st_mode & 07777) != 0644)
		tap_diag("mode is %o", st.st_mode);
}

static void test_write(const char *name, const char *text, const char *shown)
{
	char got[64];
	int ret = nvfs_set_parameter(name, text);

	value_of(name, got);
	tap_ok(!ret && !strcmp(got, shown), "1.4: %s: takes \"%s\" and shows \"%s\"", name, text,
	       shown);
	if (ret || strcmp(got, shown))
		tap_diag("write: %d (%s), shown \"%s\"", ret, strerror(-ret), got);
}

/* test_refusals: all of them in one line, each told when it is wrong. */
static void test_refusals(const char *name, const char *const *texts, unsigned int count)
{
	char before[64], after[64];
	unsigned int i, good = 0;
	int ret;

	value_of(name, before);
	for (i = 0; i < count; i++) {
		ret = nvfs_set_parameter(name, texts[i]);
		value_of(name, after);
		/* The kernel answers an empty write itself, with 0. */
		if ((ret == -EINVAL || ret == -ERANGE || (!ret && !*texts[i])) &&
		    !strcmp(before, after)) {
			good++;
			continue;
		}
		tap_diag("\"%s\": %d, value \"%s\" became \"%s\"", texts[i], ret, before, after);
	}
	tap_is(good, count, "1.4: %s: refuses what is no value, and keeps the old one", name);
}

static void test_other_user(void)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(3);
		if (nvfs_parameter("max_devices") != 16)
			_exit(2);
		_exit(nvfs_set_parameter("rw_stats_enabled", "1") != -EACCES);
	}
	waitpid(pid, &status, 0);
	tap_is(status, 0, "1.4: another user can read parameters and not write them");
}

static void test_p2pdma(void)
{
	static const char *const no[] = { "", "x", "AUTO", "autox", "of", "0", "1" };
	char text[64];

	test_mode("p2pdma");
	value_of("p2pdma", text);
	tap_is_text(text, "auto", "p2pdma: auto at load");
	test_write("p2pdma", "off", "off");
	test_write("p2pdma", "only\n", "only");
	test_write("p2pdma", "auto", "auto");
	test_refusals("p2pdma", no, sizeof(no) / sizeof(*no));
}

int main(void)
{
	const struct parameter parameters[] = {
		{ "max_devices", 16, { "3", "40", "16" } },
		{ "dbg_enabled", 0, { "1", "7", "0" } },
		{ "info_enabled", 1, { "0", "2", "1" } },
		{ "peer_stats_enabled", 0, { "1", "4294967295", "0" } },
		{ "rw_stats_enabled", 0, { "1", "2", "0" } },
		{ "use_legacy_p2p_allocation", expected_legacy(), { "0", "2", "1" } },
	};
	const struct parameter *p;
	char text[64];
	unsigned int i, j;

	if (nvfs_read_text("/sys/module/nvidia_fs/version", text, sizeof(text)) < 0)
		*text = '\0';
	tap_is_text(text, "2.28.4\n", "1.3: /sys/module/nvidia_fs/version");

	for (i = 0; i < sizeof(parameters) / sizeof(*parameters); i++) {
		p = &parameters[i];
		test_mode(p->name);
		tap_is(nvfs_parameter(p->name), p->initial, "1.4: %s: value at load", p->name);
		for (j = 0; p->takes[j]; j++)
			test_write(p->name, p->takes[j], p->takes[j]);
		test_write(p->name, "1\n", "1");
		test_write(p->name, "0x10", "16");
		test_refusals(p->name, not_numbers, sizeof(not_numbers) / sizeof(*not_numbers));
		snprintf(text, sizeof(text), "%d", p->initial);
		nvfs_set_parameter(p->name, text);
	}
	tap_ok(!access("/dev/nvidia-fs15", F_OK) && access("/dev/nvidia-fs16", F_OK),
	       "1.4: writes to max_devices changed no node");
	test_p2pdma();
	test_other_user();
	return tap_plan();
}
