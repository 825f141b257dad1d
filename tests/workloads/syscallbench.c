/* SPDX-License-Identifier: Apache-2.0 */
/*
 * syscallbench: what the cheapest system call costs.
 *
 *   syscallbench CPU [MILLISECONDS]
 *
 * Bound to CPU, makes batches of 2,000 getppid calls for MILLISECONDS (default 300) and prints
 * {"median_ns": X, "min_ns": X, "batches": N} per call.
 */
#include <sched.h>
#include <sys/syscall.h>

#include "workload.h"

#define BATCH	    2000
#define BATCHES_MAX 100000

static double costs[BATCHES_MAX];

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	cpu_set_t cpus;
	uint64_t end;
	size_t n = 0;

	if (argc < 2)
		return 2;
	CPU_ZERO(&cpus);
	CPU_SET(number(argv[1]), &cpus);
	must(!sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity");
	end = wall_ns() + (argc > 2 ? number(argv[2]) : 300) * MS;
	while (n < BATCHES_MAX && wall_ns() < end) {
		uint64_t begin = wall_ns();

		for (int i = 0; i < BATCH; i++)
			syscall(SYS_getppid);
		costs[n++] = (double)(wall_ns() - begin) / BATCH;
	}
	qsort(costs, n, sizeof(costs[0]), compare);
	printf("{\"median_ns\": %.2f, \"min_ns\": %.2f, \"batches\": %zu}\n", costs[n / 2],
	       costs[0], n);
	return 0;
}
