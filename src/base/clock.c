// SPDX-License-Identifier: Apache-2.0
/* clock: MONOTONIC is what the kernel side stamps with (CTX-5); REALTIME is for people. */
#include "base.h"

#include <time.h>

static uint64_t read_clock(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

uint64_t clock_monotonic_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_realtime_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

int64_t clock_realtime_offset_ns(uint64_t *ret_error_ns)
{
	uint64_t best = UINT64_MAX;
	int64_t offset = 0;

	for (int i = 0; i < 8; i++) {
		uint64_t before = clock_monotonic_ns();
		uint64_t wall = clock_realtime_ns();
		uint64_t width = clock_monotonic_ns() - before;

		if (width < best) {
			best = width;
			offset = (int64_t)(wall - (before + width / 2));
		}
	}
	if (ret_error_ns)
		*ret_error_ns = best / 2;
	return offset;
}
