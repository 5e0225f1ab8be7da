/* SPDX-License-Identifier: GPL-2.0 */
/* The host of the test bed, asked over the second serial line; requests in ../vm/supervise.py. */
#ifndef HOST_H
#define HOST_H

#include <stddef.h>

#define HOST_LINE	4096	/* longest request or reply, with the final 0 */

/*
 * host_request: sends one line (without its newline) and waits for the reply, which is always
 * 0-terminated. Returns 0, -EREMOTEIO when the reply says "error ...", or the errno of the line.
 * One request of the whole guest at a time is on the line; not for two threads of one process.
 */
int host_request(const char *line, char *reply, size_t size);

#endif /* HOST_H */
