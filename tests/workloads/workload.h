/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the test programs share: clocks, numbers from the command line, a generator for burst
 * lengths, and the truth about themselves as one JSON object on stdout.
 */
#ifndef FLYBALL_TESTS_WORKLOAD_H
#define FLYBALL_TESTS_WORKLOAD_H

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MS	    1000000ull
#define SECOND	    1000000000ull
#define NOINLINE    __attribute__((noinline))
#define KEPT(value) __asm__ volatile("" : "+r"(value))

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static inline uint64_t wall_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_usec * 1000;
}

/* Seconds, fractions allowed. */
static inline uint64_t seconds_ns(const char *text)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end || !(s >= 0) || s > 86400) {
		fprintf(stderr, "\"%s\" is no number of seconds\n", text);
		exit(2);
	}
	return (uint64_t)(s * 1e9);
}

static inline unsigned long number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end) {
		fprintf(stderr, "\"%s\" is no whole number\n", text);
		exit(2);
	}
	return n;
}

/* xorshift64: burst lengths must not beat with the sampling period. */
static inline uint64_t dice(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline void print_rusage(const char *key, int who)
{
	struct rusage r;

	getrusage(who, &r);
	printf("\"%s\": {\"user_ns\": %llu, \"system_ns\": %llu}", key,
	       (unsigned long long)timeval_ns(r.ru_utime),
	       (unsigned long long)timeval_ns(r.ru_stime));
}

static inline void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

#endif
