/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What can be done to the NVMe drive of an open file: of the drive itself, or of a file on it. The
 * functions return 0 or a negative errno.
 */
#ifndef SELFTESTS_DISK_H
#define SELFTESTS_DISK_H

/* disk_set: writes an attribute, by its path from the disk's folder in sysfs. */
int disk_set(int fd, const char *attribute, const char *text);

/* disk_lose: the drive loses its bus, so it hears and answers nothing until it is reset. */
int disk_lose(int fd);

/* disk_reset: resets the controller, which then gets again what it has not answered. */
int disk_reset(int fd);

/*
 * disk_drop_answers: the kernel overlooks so many answers of the drive, and the block layer's time
 * limit has to find out; -1: all, 0: none from now on. Only on the debug kernel.
 */
int disk_drop_answers(int fd, int times);

/* disk_answers_left: how many of these are still to come, or a negative errno. */
int disk_answers_left(void);

#endif /* SELFTESTS_DISK_H */
