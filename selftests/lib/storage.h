/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Thin wrapper of fake_storage's user interface, for tests. Functions that return int give 0 or a
 * negative errno.
 */
#ifndef SELFTESTS_STORAGE_H
#define SELFTESTS_STORAGE_H

#include "../fake_storage/fake_storage.h"

/* storage_open: an sg list and a request of one's own. */
int storage_open(void);

/* storage_build: with nr, op and the rest in *build. */
int storage_build(int fd, struct fake_storage_build *build,
		  const struct fake_storage_piece *pieces);

/* storage_call: 0 when the function was called; its result is in call->result. */
int storage_call(int fd, struct fake_storage_call *call);

int storage_hold(int fd, enum fake_storage_hold where);
int storage_wait_held(int fd, unsigned int n);
int storage_counts(int fd, struct fake_storage_counts *counts);

/* storage_set: a module parameter. */
int storage_set(const char *parameter, unsigned int value);

#endif /* SELFTESTS_STORAGE_H */
