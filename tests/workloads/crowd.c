/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowd: many live processes of one program.
 *
 *   crowd COUNT MS
 *
 * Starts COUNT children, which each work for MS ms of CPU time and then wait; says "ready" when all
 * have worked; ends with its standard input, and the children with it.
 */
#include <sys/prctl.h>
#include <sys/wait.h>

#include "workload.h"

NOINLINE static uint64_t crowd_work(uint64_t ns)
{
	uint64_t s = 1;

	while (thread_cpu_ns() < ns)
		for (int i = 0; i < 100000; i++) {
			s = s * 3 + 1;
			KEPT(s);
		}
	return s;
}

NOINLINE static void crowd_member(int told, uint64_t ns)
{
	uint64_t s = crowd_work(ns);

	KEPT(s);
	must(write(told, "", 1) == 1, "write");
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	unsigned long count;
	uint64_t ns;
	int told[2];
	char byte;

	if (argc != 3)
		return 2;
	count = number(argv[1]);
	ns = number(argv[2]) * MS;
	must(!pipe(told), "pipe");
	for (unsigned long i = 0; i < count; i++) {
		pid_t pid = fork();

		must(pid >= 0, "fork");
		if (pid)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		crowd_member(told[1], ns);
	}
	for (unsigned long i = 0; i < count; i++)
		must(read(told[0], &byte, 1) == 1, "read");
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
