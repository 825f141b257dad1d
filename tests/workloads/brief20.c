/* SPDX-License-Identifier: Apache-2.0 */
/*
 * brief20: burns 20 ms of CPU time (or argv[1] ms) in one function and is gone. With "-u" it
 * unlinks its own file before it ends. The name of the function and the build-id are patterns
 * that tests/system/rig.py overwrites to make many distinct programs of one link.
 */
#include "workload.h"

NOINLINE uint64_t brief_work_000(uint64_t ns)
{
	uint64_t s = 1;

	/* Mostly this loop: the clock is read every 0.1 to 0.2 ms. */
	while (thread_cpu_ns() < ns)
		for (int i = 0; i < 100000; i++) {
			s = s * 3 + 1;
			KEPT(s);
		}
	return s;
}

int main(int argc, char **argv)
{
	uint64_t ms = 20, s;
	int must_unlink = 0;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "-u"))
			must_unlink = 1;
		else
			ms = number(argv[i]);
	s = brief_work_000(ms * MS);
	KEPT(s);
	if (must_unlink)
		unlink(argv[0]);
	return 0;
}
