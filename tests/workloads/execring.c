/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execring: burns 5 ms in its own function, then becomes the other program, and back.
 *
 *   execa ROUNDS OTHER SELF
 *
 * Built twice, as execa (WORK=exec_a_work) and execb (WORK=exec_b_work). Prints nothing.
 */
#include "workload.h"

NOINLINE uint64_t WORK(uint64_t until_ns)
{
	uint64_t s = 1;

	while (thread_cpu_ns() < until_ns)
		for (int i = 0; i < 50000; i++) {
			s = s * 3 + 1;
			KEPT(s);
		}
	return s;
}

int main(int argc, char **argv)
{
	char rounds[24];
	unsigned long n;
	uint64_t s;

	if (argc != 4)
		return 2;
	n = number(argv[1]);
	/* The clock goes on over exec: it belongs to the task. */
	s = WORK(thread_cpu_ns() + 5 * MS);
	KEPT(s);
	if (n == 0)
		return 0;
	snprintf(rounds, sizeof(rounds), "%lu", n - 1);
	execl(argv[2], argv[2], rounds, argv[3], argv[2], (char *)NULL);
	must(0, argv[2]);
	return 1;
}
