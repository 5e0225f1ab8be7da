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

/*
 * host_unplug: takes a device away, by QEMU's name, as by the button of its slot; the guest is asked.
 * host_unplugged: waits until it is gone. Both as host_request.
 */
int host_unplug(const char *device);
int host_unplugged(const char *device);

/*
 * host_throttle: lets a drive, by its serial, read and write so many bytes a second; 0: all, at once.
 * A request in hand may still pass. As host_request.
 */
int host_throttle(const char *drive, unsigned long bps);

/*
 * host_hold: what a drive, of which `fd` has a file open, is given from now on takes minutes, until
 * host_throttle() says otherwise: 8 seconds a request of 512 KiB. The journal writes first, as it would
 * wait in the same queue. As host_request.
 */
int host_hold(const char *drive, int fd);

/*
 * host_patience: after so many milliseconds the kernel takes a request to the drive of an open file
 * for lost; it does so after 30,000 by itself. Returns 0 or a negative errno.
 */
int host_patience(int fd, unsigned int ms);

#endif /* HOST_H */
