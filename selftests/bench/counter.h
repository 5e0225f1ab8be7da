/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Questions to the counting plugin: a `nopl` of seven bytes, whose last one says what is asked, with
 * an address in rax. Without the plugin it does nothing.
 */
#ifndef COUNTER_H
#define COUNTER_H

#include <stdint.h>

/* Instructions since the start of the machine, of all CPUs. */
struct counts {
	uint64_t kernel;	/* not the steps of repeated string instructions: */
	uint64_t rep;
	uint64_t user;
	uint64_t atomic;	/* locked ones of the kernel, which are counted above as well */
	uint64_t apart;		/* those that were to be counted apart, and only here */
};

/* nopl 0x..47414d(%rax), without its last byte. */
#define COUNTER_BYTES	0x0f, 0x1f, 0x80, 0x4d, 0x41, 0x47

#define COUNTER_READ		1	/* rax: a struct counts to be written, in memory that is there */
#define COUNTER_APART		2	/* rax: first address, and the one after the last, of text that
					 * was not run yet */
#define COUNTER_PROFILE_BEGIN	3
#define COUNTER_PROFILE_END	4	/* a profile goes to the plugin's file */

#define COUNTER_ASK(what, address)						\
	__asm__ volatile(".byte 0x0f, 0x1f, 0x80, 0x4d, 0x41, 0x47, %c0"	\
			 : : "i"(what), "a"(address) : "memory")

#endif /* COUNTER_H */
