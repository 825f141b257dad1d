/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipebench: what a switch between two processes on one CPU costs.
 *
 *   pipebench CPU [MILLISECONDS]
 *
 * Two processes bound to CPU send one byte back and forth over pipes for MILLISECONDS (default
 * 300); a round trip is two switches. Prints {"median_ns": X, "min_ns": X, "batches": N} per
 * switch.
 */
#include <sched.h>
#include <sys/wait.h>

#include "workload.h"

#define BATCH	    200
#define BATCHES_MAX 100000

static double costs[BATCHES_MAX];

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void echo(int in, int out)
{
	char c;

	while (read(in, &c, 1) == 1)
		must(write(out, &c, 1) == 1, "write");
	_exit(0);
}

static void round_trip(int in, int out)
{
	char c = 'x';

	must(write(out, &c, 1) == 1 && read(in, &c, 1) == 1, "round trip");
}

int main(int argc, char **argv)
{
	int there[2], back[2];
	cpu_set_t cpus;
	uint64_t end;
	size_t n = 0;

	if (argc < 2)
		return 2;
	CPU_ZERO(&cpus);
	CPU_SET(number(argv[1]), &cpus);
	must(!sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity");
	must(!pipe(there) && !pipe(back), "pipe");
	if (fork() == 0) {
		close(there[1]);
		echo(there[0], back[1]);
	}
	end = wall_ns() + (argc > 2 ? number(argv[2]) : 300) * MS;
	while (n < BATCHES_MAX && wall_ns() < end) {
		uint64_t begin = wall_ns();

		for (int i = 0; i < BATCH; i++)
			round_trip(back[0], there[1]);
		costs[n++] = (double)(wall_ns() - begin) / (2 * BATCH);
	}
	close(there[1]);
	wait(NULL);
	qsort(costs, n, sizeof(costs[0]), compare);
	printf("{\"median_ns\": %.2f, \"min_ns\": %.2f, \"batches\": %zu}\n", costs[n / 2],
	       costs[0], n);
	return 0;
}
