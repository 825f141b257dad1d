// SPDX-License-Identifier: Apache-2.0
/* Wall-clock times of samples while the wall clock is slewed, stepped and read with delays. */
#include "agent/wallclock.h"

#include <poll.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define SECOND 1000000000LL
#define START  (1764547200 * SECOND)

struct clocks {
	uint64_t now_ns; /* MONOTONIC */
	int64_t offset_ns, slew_ppm;
	uint64_t read_ns;   /* what a reading takes */
	unsigned int reads; /* every fifth one is interrupted for 1 ms */
};

static void pass(struct clocks *c, uint64_t ns)
{
	c->now_ns += ns;
	c->offset_ns += (int64_t)ns * c->slew_ppm / 1000000;
}

static uint64_t monotonic(void *ctx)
{
	struct clocks *c = ctx;

	pass(c, c->read_ns);
	if (c->read_ns && ++c->reads % 5 == 0)
		pass(c, 1000000);
	return c->now_ns;
}

static uint64_t realtime(void *ctx)
{
	struct clocks *c = ctx;

	pass(c, c->read_ns);
	return c->now_ns + (uint64_t)c->offset_ns;
}

static struct wallclock *make(struct clocks *c)
{
	const struct wallclock_source source = {c, monotonic, realtime};
	struct wallclock *clock = NULL;

	assert_int_equal(wallclock_new(&source, &clock), 0);
	return clock;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* A sample every 10 ms, a look every 100 ms; answers are asked for after the look. Returns the
 * worst error in ns. */
static uint64_t run(struct clocks *c, struct wallclock *clock, int looks, int64_t step_ns)
{
	uint64_t at[10], was[10], worst = 0;

	for (int look = 0; look < looks; look++) {
		for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
			pass(c, 10000000);
			at[i] = c->now_ns;
			was[i] = c->now_ns + (uint64_t)c->offset_ns;
		}
		pass(c, 1000);
		if (look == looks / 2)
			c->offset_ns += step_ns;
		wallclock_look(clock);
		for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
			uint64_t error = distance(wallclock_at(clock, at[i]), was[i]);

			worst = error > worst ? error : worst;
		}
	}
	return worst;
}

static void wallclock__steps__each_sample_by_the_clock_of_its_time(void **state)
{
	static const int64_t steps[] = {3600 * SECOND, -3600 * SECOND, 50000000, -50000000};
	struct clocks c = {.now_ns = 5 * SECOND, .offset_ns = START};
	struct wallclock *clock = make(&c);
	struct wallclock_stats stats;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		assert_in_range(run(&c, clock, 20, steps[i]), 0, 1000);
	wallclock_stats_get(clock, &stats);
	assert_int_equal(stats.steps, ARRAY_SIZE(steps));
	assert_int_equal(stats.stepped_ns, 0);
	assert_in_range(stats.error_ns, 0, 1000);
	wallclock_free(clock);
}

static void wallclock__slew__stays_within_the_bound_that_is_told(void **state)
{
	struct clocks c = {.now_ns = 5 * SECOND, .offset_ns = START, .slew_ppm = 500};
	struct wallclock *clock = make(&c);
	struct wallclock_stats stats;
	uint64_t worst = run(&c, clock, 1000, 0); /* more changes than are kept */

	(void)state;
	c.slew_ppm = -500;
	worst += run(&c, clock, 1000, 0);
	wallclock_stats_get(clock, &stats);
	assert_int_equal(stats.steps, 0);
	assert_in_range(worst, 1, 2 * stats.error_ns);
	assert_in_range(stats.error_ns, 1, 1000000);
	wallclock_free(clock);
}

static void wallclock__interruptions__are_left_out(void **state)
{
	struct clocks c = {.now_ns = 5 * SECOND, .offset_ns = START, .read_ns = 300};
	struct wallclock *clock = make(&c);
	struct wallclock_stats stats;

	(void)state;
	assert_in_range(run(&c, clock, 200, 0), 0, 1000);
	wallclock_stats_get(clock, &stats);
	assert_int_equal(stats.steps, 0);
	assert_in_range(stats.error_ns, 1, 1000);
	wallclock_free(clock);
}

static void wallclock__the_machine__is_told_of_steps_by_a_descriptor(void **state)
{
	struct wallclock *clock = NULL;
	struct pollfd poll_fd = {.events = POLLIN};
	uint64_t now;

	(void)state;
	assert_int_equal(wallclock_new(NULL, &clock), 0);
	poll_fd.fd = wallclock_fd(clock);
	assert_true(poll_fd.fd >= 0);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
	wallclock_look(clock);
	now = clock_monotonic_ns();
	assert_in_range(distance(wallclock_at(clock, now), clock_realtime_ns()), 0, SECOND);
	wallclock_free(clock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wallclock__steps__each_sample_by_the_clock_of_its_time),
		cmocka_unit_test(wallclock__slew__stays_within_the_bound_that_is_told),
		cmocka_unit_test(wallclock__interruptions__are_left_out),
		cmocka_unit_test(wallclock__the_machine__is_told_of_steps_by_a_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
