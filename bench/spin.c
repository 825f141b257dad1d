/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spin: a fixed amount of work on every CPU, for measuring what a profiler slows down.
 *
 *   spin UNITS [DEPTH]
 *
 * One process for each CPU calls down DEPTH frames (default 16) and computes there, UNITS times,
 * about half a millisecond each. Prints {"wall_ns": X, "cpu_ns": Y}: the time until the last is
 * done, and the CPU time of all, which holds the interrupts they were charged with.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS 400000u /* of the innermost loop in a unit */

static volatile uint64_t sink;

static uint64_t wall_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The result is used after the call, so that no compiler makes a loop of the recursion. */
static __attribute__((noinline)) uint64_t descend(unsigned int depth)
{
	uint64_t x = depth;

	if (depth)
		return descend(depth - 1) + sink;
	for (unsigned int i = 0; i < STEPS; i++)
		x = x * 6364136223846793005u + i;
	return x;
}

static void work(unsigned long units, unsigned int depth)
{
	for (unsigned long i = 0; i < units; i++)
		sink = descend(depth);
	_exit(0);
}

int main(int argc, char **argv)
{
	unsigned long units = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	unsigned int depth = argc > 2 ? (unsigned int)strtoul(argv[2], NULL, 10) : 16;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t begin = wall_ns();
	struct rusage usage;

	if (!units || depth > 1000) {
		fprintf(stderr, "usage: spin UNITS [DEPTH]\n");
		return 2;
	}
	for (long i = 0; i < cpus; i++) {
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (child == 0)
			work(units, depth);
	}
	while (wait(NULL) > 0)
		;
	begin = wall_ns() - begin;
	getrusage(RUSAGE_CHILDREN, &usage);
	printf("{\"wall_ns\": %llu, \"cpu_ns\": %llu}\n", (unsigned long long)begin,
	       (unsigned long long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
		       (unsigned long long)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) *
			       1000u);
	return 0;
}
