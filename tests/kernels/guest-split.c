// SPDX-License-Identifier: Apache-2.0
/*
 * guest-split SECONDS REPORT: burns SECONDS of CPU time, 60 % in work_a, 30 % in work_b, 10 % in
 * work_c, and writes its own CPU time in nanoseconds (getrusage) to the file REPORT.
 *
 * The slices (about 1 ms each) are dealt from a shuffled deck of a hundred, so that no sampling
 * rate can fall into step with them. Their length is counted in iterations, not in time: a slice is
 * the same work in all three functions, however slow the machine is.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static volatile uint64_t sink;

/* The constants differ so that the compiler cannot fold the three functions into one. */
#define WORK(name, constant)                                                                       \
	__attribute__((noinline)) void name(uint64_t count)                                        \
	{                                                                                          \
		volatile uint64_t begin = constant; /* gcc keeps a frame only for who uses one */  \
		uint64_t x = begin;                                                                \
                                                                                                   \
		for (uint64_t i = 0; i < count; i++)                                               \
			x = x * 6364136223846793005ull + constant;                                 \
		sink = x;                                                                          \
	}

WORK(work_a, 1442695040888963407ull)
WORK(work_b, 3037000493ull)
WORK(work_c, 2862933555777941757ull)

static uint64_t cpu_ns(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000ull +
	       (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000ull;
}

static void shuffle(uint8_t *deck, int n)
{
	static uint64_t state = 88172645463325252ull;

	for (int i = n - 1; i > 0; i--) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		int j = state % (i + 1);
		uint8_t t = deck[i];

		deck[i] = deck[j];
		deck[j] = t;
	}
}

/*
 * Iterations that take about a millisecond, from one slice in the proportions of the deck, so that
 * the calibration does not shift the shares.
 */
static uint64_t slice_calibrate(void)
{
	uint64_t count = 100000, ns;

	for (;;) {
		uint64_t start = cpu_ns();

		work_a(count * 6 / 10);
		work_b(count * 3 / 10);
		work_c(count * 1 / 10);
		ns = cpu_ns() - start;
		if (ns > 5000000)
			return count * 1000000 / ns;
		count *= 2;
	}
}

int main(int argc, char **argv)
{
	static void (*const work[])(uint64_t) = {work_a, work_b, work_c};
	uint8_t deck[100];
	uint64_t slice, end_ns;
	FILE *report;

	if (argc != 3) {
		fprintf(stderr, "usage: guest-split SECONDS REPORT\n");
		return 2;
	}
	end_ns = strtod(argv[1], NULL) * 1e9;
	for (int i = 0; i < 100; i++)
		deck[i] = i < 60 ? 0 : i < 90 ? 1 : 2;
	slice = slice_calibrate();
	while (cpu_ns() < end_ns) {
		shuffle(deck, 100);
		for (int i = 0; i < 100; i++)
			work[deck[i]](slice);
	}
	report = fopen(argv[2], "w");
	if (!report)
		return 1;
	fprintf(report, "%llu\n", (unsigned long long)cpu_ns());
	return fclose(report) ? 1 : 0;
}
