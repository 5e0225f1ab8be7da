// SPDX-License-Identifier: GPL-2.0
/*
 * The victim: a process with GPU memory all over the BARs, a mapped buffer and a file that others
 * can only read. It looks after each round whether all is as it left it, and whether it still works.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/tap.h"
#include "fuzz.h"

#define SECRET		0x5ec2e7	/* seed of the pattern in GPU memory */
#define FILE_SEED	77
#define SCATTERED	12		/* single GPU pages on each GPU, with holes between */
#define OWN		(512 * KIB)

static int line = -1;
static pid_t pid;

static struct {
	struct gpu gpu[2];
	uint64_t page[2][SCATTERED];
	uint64_t va;
	int node, file;
	struct nvfs_buffer buf;
	union nvfs_ioctl_arg record;
} v;

/* Any 8 aligned bytes of the secret memory. */
bool is_secret(const void *data, size_t size)
{
	uint64_t first = pattern_word(SECRET, 0), word;
	size_t i;

	for (i = 0; i + 8 <= size; i += 8) {
		memcpy(&word, (const char *)data + i, 8);
		if (word - first < OWN / 8)
			return true;
	}
	return false;
}

static void set_up(void)
{
	struct fake_nvidia_info info;
	uint64_t spare[SCATTERED];
	unsigned int g, i;

	for (g = 0; g < 2; g++) {
		if (gpu_open(&v.gpu[g], g))
			tap_bail("the victim has no GPU %u", g);
		for (i = 0; i < SCATTERED; i++)
			if (gpu_alloc(&v.gpu[g], NVFS_GPU_PAGE_SIZE, 0, &spare[i]) ||
			    gpu_alloc(&v.gpu[g], NVFS_GPU_PAGE_SIZE, 0, &v.page[g][i]) ||
			    gpu_fill(&v.gpu[g], v.page[g][i], NVFS_GPU_PAGE_SIZE, SECRET))
				tap_bail("the victim has no GPU memory");
		for (i = 0; i < SCATTERED; i++)
			gpu_free(&v.gpu[g], spare[i]);
	}
	v.node = nvfs_open(3, O_RDWR);
	if (v.node < 0 || gpu_info(&v.gpu[0], &info) || gpu_alloc(&v.gpu[0], OWN, 0, &v.va) ||
	    gpu_fill(&v.gpu[0], v.va, OWN, SECRET))
		tap_bail("the victim has no node or memory");
	memset(&v.buf, 0, sizeof(v.buf));
	v.buf.node = v.node;
	v.buf.window = 128 * KIB;
	v.buf.shadow = mmap((void *)VICTIM_SHADOW, v.buf.window, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_FIXED, v.node, 0);
	v.buf.meta = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	v.buf.gpu_va = v.va;
	v.buf.gpu_size = OWN;
	v.buf.pdevinfo = info.pdevinfo;
	if (v.buf.shadow == MAP_FAILED || v.buf.meta == MAP_FAILED || nvfs_map(&v.buf))
		tap_bail("the victim has no buffer");
	memset(v.buf.shadow, 0x77, v.buf.window);
	memset(&v.record, 0, sizeof(v.record));
	v.record.set_rdma.cpuvaddr = (uintptr_t)v.buf.shadow;
	v.record.set_rdma.version = 9;
	v.record.set_rdma.nkeys = 1;
	v.record.set_rdma.rkey[0] = SECRET;
	v.record.set_rdma.gid[1] = SECRET;
	if (nvfs_ioctl(v.node, NVFS_IOCTL_SET_RDMA_REG_INFO, &v.record))
		tap_bail("the victim has no record");
	shared->victim_va[0] = v.va;
	shared->victim_va[1] = v.page[1][0];
}

/* Returns what is wrong, or NULL. */
static const char *look(void)
{
	union nvfs_ioctl_arg arg = { .get_rdma.cpuvaddr = (uintptr_t)v.buf.shadow };
	static char file[128 * KIB] __attribute__((aligned(4096)));
	unsigned int g, i;
	int64_t bad;
	ssize_t n;

	for (g = 0; g < 2; g++)
		for (i = 0; i < SCATTERED; i++)
			if (gpu_check(&v.gpu[g], v.page[g][i], NVFS_GPU_PAGE_SIZE, SECRET, &bad) || bad != -1)
				return "GPU memory that was never mapped has changed";
	if (gpu_check(&v.gpu[0], v.va, OWN, SECRET, &bad) || bad != -1)
		return "mapped GPU memory has changed";
	if (!callback)
		for (i = 0; i < v.buf.window; i++)
			if (v.buf.shadow[i] != 0x77)
				return "the shadow memory has changed";
	for (i = 0; i < sizeof(*v.buf.meta); i++)
		if (((char *)v.buf.meta)[i])
			return "the meta block has changed";
	if (nvfs_ioctl(v.node, NVFS_IOCTL_GET_RDMA_REG_INFO, &arg) || arg.get_rdma.info.version != 9 ||
	    arg.get_rdma.info.rkey != SECRET || arg.get_rdma.info.gid[1] != SECRET)
		return "the RDMA record has changed";
	if (pread(v.file, file, sizeof(file), 0) != sizeof(file) ||
	    pattern_check(file, sizeof(file), FILE_SEED, 0) != -1)
		return "the file has changed";
	/* It works as ever, and leaves the secret as it was. */
	n = nvfs_read(&v.buf, v.file, 0, 128 * KIB, 0);
	if (n != 128 * KIB || gpu_check(&v.gpu[0], v.va, 128 * KIB, FILE_SEED, &bad) || bad != -1)
		return "its own read does not work";
	if (gpu_fill(&v.gpu[0], v.va, OWN, SECRET))
		return "no GPU";
	if (callback)
		memset(v.buf.shadow, 0x77, v.buf.window);
	return NULL;
}

void start_victim(const char *folder)
{
	char path[256], byte;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		tap_bail("no socket");
	snprintf(path, sizeof(path), "%s/canary", folder);
	pid = fork();
	if (pid < 0)
		tap_bail("no victim");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		v.file = nvfs_file(path, FILE_BYTES, FILE_SEED);
		if (v.file < 0)
			tap_bail("the victim has no file %s", path);
		set_up();
		if (write(pair[1], "", 1) != 1)
			_exit(1);
		while (read(pair[1], &byte, 1) == 1) {
			const char *why = look();

			if (!why)
				why = "";
			if (write(pair[1], why, strlen(why) + 1) < 0)
				break;
		}
		_exit(0);
	}
	close(pair[1]);
	line = pair[0];
	if (read(line, &byte, 1) != 1)
		tap_bail("the victim did not start");
}

bool check_victim(char *why, size_t size)
{
	ssize_t n;

	if (write(line, "", 1) != 1 || (n = read(line, why, size - 1)) <= 0) {
		snprintf(why, size, "it is gone");
		return false;
	}
	why[n] = '\0';
	return !*why;
}

void stop_victim(void)
{
	close(line);
	waitpid(pid, NULL, 0);
}
