/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo: a program whose profile is known beforehand.
 *
 *   demo [SECONDS]     three functions share the CPU time 60/30/10 (default 12 s)
 *
 * Time is measured as CPU time of this thread, so the shares hold on a busy machine too. Built with
 * frame pointers and without inlining, so that a stack reads main;run;cook_sixty.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * Each of the three holds its own loop: a shared helper would take the samples away from them.
 * Equal loops would be folded into one function, hence the odd multiplier. A batch takes some 20
 * us, so that reading the clock between batches is hardly seen.
 */
#define COOK(name, odd)                                                                            \
	static __attribute__((noinline)) void name(uint64_t until_ns)                              \
	{                                                                                          \
		do {                                                                               \
			for (unsigned int i = 0; i < 10000; i++)                                   \
				sink = sink * (odd) + i;                                           \
		} while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until_ns);                            \
	}

COOK(cook_sixty, 6364136223846793005u)
COOK(cook_thirty, 2862933555777941757u)
COOK(cook_ten, 3202034522624059733u)

/*
 * Deadlines follow each other without a gap, so overshoot is not carried on. A round takes 20 to
 * 52 ms at random: a fixed length would beat with the sampling period.
 */
static __attribute__((noinline)) void run(uint64_t wall_ns)
{
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + wall_ns;
	uint64_t start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t random = 88172645463325252u;

	while (clock_ns(CLOCK_MONOTONIC) < end) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		uint64_t tenth = 2000000u + random % 3200000u;

		cook_sixty(start + tenth * 6);
		cook_thirty(start + tenth * 9);
		cook_ten(start + tenth * 10);
		start += tenth * 10;
	}
}

int main(int argc, char **argv)
{
	unsigned long seconds = argc > 1 ? strtoul(argv[1], NULL, 10) : 12;

	if (argc > 2 || seconds == 0 || seconds > 86400) {
		fprintf(stderr, "usage: demo [SECONDS]\n");
		return 2;
	}
	run((uint64_t)seconds * 1000000000u);
	return 0;
}
