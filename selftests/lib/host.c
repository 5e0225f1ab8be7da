// SPDX-License-Identifier: GPL-2.0
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
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

int host_request(const char *line, char *reply, size_t size)
{
	int ret;

	if (!size || strchr(line, '\n'))
		return -EINVAL;
	*reply = '\0';
	ret = host_fd < 0 ? host_open() : 0;
	if (ret)
		return ret;
	if (flock(host_fd, LOCK_EX))
		return -errno;
	ret = host_write(line, strlen(line));
	if (!ret)
		ret = host_write("\n", 1);
	if (!ret)
		ret = host_read_line(reply, size);
	flock(host_fd, LOCK_UN);
	if (!ret && !strncmp(reply, "error", 5))
		ret = -EREMOTEIO;
	return ret;
}
