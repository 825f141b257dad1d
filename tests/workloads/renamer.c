/* SPDX-License-Identifier: Apache-2.0 */
/*
 * renamer: one thread that calls itself "name-one" and "name-two" in turn, 40 ms of CPU time
 * each, for SECONDS of CPU time. Prints the CPU time under each name as JSON.
 */
#include <sys/prctl.h>

#include "workload.h"

NOINLINE uint64_t renamed_work(uint64_t until_ns)
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
	uint64_t cpu_ns, spent[2] = {0, 0}, begin;
	int which = 0;

	if (argc != 2)
		return 2;
	cpu_ns = seconds_ns(argv[1]);
	while ((begin = thread_cpu_ns()) < cpu_ns) {
		prctl(PR_SET_NAME, which ? "name-two" : "name-one");
		renamed_work(begin + 40 * MS);
		spent[which] += thread_cpu_ns() - begin;
		which = !which;
	}
	printf("{\"pid\": %d, \"name-one\": %llu, \"name-two\": %llu}\n", getpid(),
	       (unsigned long long)spent[0], (unsigned long long)spent[1]);
	return 0;
}
