// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

static int host_fd = -1;

static int host_open(void)
{
	struct termios raw;
	int fd = open("/dev/ttyS1", O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (tcgetattr(fd, &raw))
		goto fail;
	cfmakeraw(&raw);
	cfsetspeed(&raw, B115200);
	if (tcsetattr(fd, TCSANOW, &raw))
		goto fail;
	host_fd = fd;
	return 0;
fail:
	close(fd);
	return -EIO;
}

static int host_write(const char *text, size_t left)
{
	while (left) {
		ssize_t n = write(host_fd, text, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		text += n;
		left -= n;
	}
	return 0;
}

/* Reads to the end of the line, also when the buffer is too small for it. */
static int host_read_line(char *reply, size_t size)
{
	size_t used = 0;
	char c;

	for (;;) {
		ssize_t n = read(host_fd, &c, 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		if (c == '\n')
			break;
		if (used + 1 < size)
			reply[used++] = c;
	}
	reply[used] = '\0';
	return 0;
}

/*
 * One process at a time speaks to the host. Its turn is a listening socket, which the kernel ends
 * with the process; the others read from it until then. The debug kernel has no file locks.
 */
static int host_turn(void)
{
	static const struct sockaddr_un name = { AF_UNIX, "\0host" };
	const socklen_t size = offsetof(struct sockaddr_un, sun_path) + sizeof("\0host") - 1;

	for (;;) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		char c;

		if (fd < 0)
			return -errno;
		if (!bind(fd, (const struct sockaddr *)&name, size)) {
			if (!listen(fd, 64))
				return fd;
		} else if (errno == EADDRINUSE) {
			if (!connect(fd, (const struct sockaddr *)&name, size))
				while (read(fd, &c, 1) < 0 && errno == EINTR)
					;
			close(fd);
			continue;
		}
		close(fd);
		return -EIO;
	}
}

int host_request(const char *line, char *reply, size_t size)
{
	int turn, ret;

	if (!size || strchr(line, '\n'))
		return -EINVAL;
	*reply = '\0';
	ret = host_fd < 0 ? host_open() : 0;
	if (ret)
		return ret;
	turn = host_turn();
	if (turn < 0)
		return turn;
	ret = host_write(line, strlen(line));
	if (!ret)
		ret = host_write("\n", 1);
	if (!ret)
		ret = host_read_line(reply, size);
	close(turn);
	if (!ret && !strncmp(reply, "error", 5))
		ret = -EREMOTEIO;
	return ret;
}

int host_unplug(const char *device)
{
	char line[256], reply[HOST_LINE];

	snprintf(line, sizeof(line), "qmp {\"execute\": \"device_del\", \"arguments\": "
		 "{\"id\": \"%s\"}}", device);
	return host_request(line, reply, sizeof(reply));
}

int host_unplugged(const char *device)
{
	char line[256], reply[HOST_LINE];

	snprintf(line, sizeof(line), "event DEVICE_DELETED %s 60", device);
	return host_request(line, reply, sizeof(reply));
}

int host_throttle(const char *drive, unsigned long bps)
{
	char line[512], reply[HOST_LINE];

	snprintf(line, sizeof(line),
		 "qmp {\"execute\": \"block_set_io_throttle\", \"arguments\": {"
		 "\"id\": \"%s\", \"bps\": %lu, \"bps_rd\": 0, \"bps_wr\": 0, "
		 "\"iops\": 0, \"iops_rd\": 0, \"iops_wr\": 0}}", drive, bps);
	return host_request(line, reply, sizeof(reply));
}

int host_hold(const char *drive, int fd)
{
	return syncfs(fd) ? -errno : host_throttle(drive, 64 * 1024);
}

int host_patience(int fd, unsigned int ms)
{
	struct stat st;
	char path[64];
	FILE *f;
	int ret = 0;

	if (fstat(fd, &st))
		return -errno;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue/io_timeout", major(st.st_dev),
		 minor(st.st_dev));
	f = fopen(path, "w");
	if (!f || fprintf(f, "%u", ms) < 0)
		ret = -EIO;
	if (f && fclose(f))
		ret = -EIO;
	return ret;
}
