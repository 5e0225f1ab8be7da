// SPDX-License-Identifier: GPL-2.0
/* host WORD...: one request to the host, its reply on standard output; see ../supervise.py. */
#include <stdio.h>
#include <string.h>

#include "../../lib/host.h"

int main(int argc, char **argv)
{
	char line[HOST_LINE] = "", reply[HOST_LINE];
	size_t used = 0;
	int i, ret;

	for (i = 1; i < argc && used < sizeof(line); i++)
		used += snprintf(line + used, sizeof(line) - used, "%s%s", i > 1 ? " " : "", argv[i]);
	if (argc < 2 || used >= sizeof(line)) {
		fprintf(stderr, "usage: host WORD...\n");
		return 2;
	}
	ret = host_request(line, reply, sizeof(reply));
	puts(ret && !*reply ? strerror(-ret) : reply);
	if (ret)
		return 2;
	return !strncmp(reply, "bad", 3);
}
