// SPDX-License-Identifier: Apache-2.0
/*
 * bench_spans: what entering and leaving a span costs beside a call that does nothing, through the
 * shared library, in interleaved rounds; the median of the differences is printed.
 */
#include "flyball/context.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 51
#define CALLS  200000

static void do_nothing(void)
{
}

/* Called as a library is: by an address the compiler does not know. */
static void (*volatile nothing)(void) = do_nothing;

static double elapsed_ns(const struct timespec *from)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - from->tv_sec) * 1e9 + (double)(now.tv_nsec - from->tv_nsec);
}

static double time_nothing(void)
{
	struct timespec from;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < CALLS; i++)
		nothing();
	return elapsed_ns(&from) / CALLS;
}

static double time_spans(void)
{
	static const uint8_t trace_id[16] = {1}, span_id[8] = {2};
	struct timespec from;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < CALLS; i++) {
		flyball_context_enter(trace_id, span_id, 1);
		flyball_context_leave();
	}
	return elapsed_ns(&from) / CALLS;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(void)
{
	double nothing_ns[ROUNDS], spans_ns[ROUNDS], more_ns[ROUNDS];

	if (flyball_context_attach())
		return 4;
	for (int i = 0; i < ROUNDS; i++) {
		nothing_ns[i] = time_nothing();
		spans_ns[i] = time_spans();
		more_ns[i] = spans_ns[i] - nothing_ns[i];
	}
	qsort(nothing_ns, ROUNDS, sizeof(double), compare);
	qsort(spans_ns, ROUNDS, sizeof(double), compare);
	qsort(more_ns, ROUNDS, sizeof(double), compare);
	printf("an empty call %.2f ns, enter and leave %.2f ns, %.2f ns more (medians of %d)\n",
	       nothing_ns[ROUNDS / 2], spans_ns[ROUNDS / 2], more_ns[ROUNDS / 2], ROUNDS);
	return 0;
}
