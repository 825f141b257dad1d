/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wallclock: which wall-clock time a moment of CLOCK_MONOTONIC was (CTX-5). Samples are stamped
 * with MONOTONIC; people, spans and other machines speak of REALTIME, which is slewed, stepped and
 * jumps when the machine was asleep. The offset between the two is measured again and again, and
 * kept with the moment since when it holds, so that a sample taken before a step is told by the
 * clock as it was then.
 *
 * Private to the part; apart from record_private.h so that tests bring clocks of their own. One
 * owning thread.
 */
#ifndef FLYBALL_AGENT_WALLCLOCK_H
#define FLYBALL_AGENT_WALLCLOCK_H

#include "base/base.h"

#define WALLCLOCK_STEP_NS 1000000 /* more than a slew moves the clock between two looks */

struct wallclock_source {
	void *ctx;
	uint64_t (*monotonic)(void *ctx);
	uint64_t (*realtime)(void *ctx);
};

struct wallclock;
/* NULL: the machine's clocks, whose steps wake who waits for the descriptor. */
int wallclock_new(const struct wallclock_source *source, struct wallclock **ret);
void wallclock_free(struct wallclock *clock); /* NULL is fine */
/* Readable once the clock was set, until the next look; -1: none. */
int wallclock_fd(const struct wallclock *clock);
/* Measures. At least once a second, before samples are told; costs about a microsecond. */
void wallclock_look(struct wallclock *clock);
/* Of a moment not long past. */
uint64_t wallclock_at(const struct wallclock *clock, uint64_t monotonic_ns);

struct wallclock_stats {
	/* How far off an answer may be, apart from moments between a step and the look that found
	 * it: the widest bracket that a measurement had, and the most that a slew moved the clock
	 * from one look to the next. */
	uint64_t error_ns;
	uint64_t steps;
	int64_t stepped_ns; /* all of them */
};
void wallclock_stats_get(const struct wallclock *clock, struct wallclock_stats *ret);

#endif
