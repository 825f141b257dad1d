// SPDX-License-Identifier: Apache-2.0
/* inlined [SECONDS]   all time in outer_work, whose loops are two calls that the compiler inlines.
 */
#include "workload.h"

#define INLINE static inline __attribute__((always_inline))

static volatile unsigned long sink;

INLINE unsigned long inner_mix(unsigned long x)
{
	x ^= x >> 13;
	x *= 0x9e3779b97f4a7c15UL;
	return x;
}

INLINE unsigned long middle_step(unsigned long x)
{
	for (unsigned long i = 0; i < 64; i++)
		x = inner_mix(x) + i;
	return x;
}

NOINLINE static void outer_work(unsigned long n)
{
	unsigned long x = n;

	for (unsigned long i = 0; i < n; i++)
		x = middle_step(x + i);
	sink = x;
}

int main(int argc, char **argv)
{
	uint64_t end = wall_ns() + (argc > 1 ? strtoull(argv[1], NULL, 10) : 3600) * SECOND;
	unsigned long n = 50000;

	while (wall_ns() < end) {
		KEPT(n);
		outer_work(n);
	}
	return 0;
}
