// SPDX-License-Identifier: GPL-2.0
/* qexit CODE: ends QEMU, through isa-debug-exit, with (CODE << 1) | 1. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/io.h>
#include <termios.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	tcdrain(STDOUT_FILENO);
	if (ioperm(0xf4, 4, 1)) {
		perror("qexit: ioperm");
		return 1;
	}
	outl(argc > 1 ? atoi(argv[1]) : 0, 0xf4);
	/* The other CPUs go on until QEMU is gone: init must not end meanwhile. */
	for (;;)
		pause();
}
