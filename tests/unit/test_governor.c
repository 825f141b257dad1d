// SPDX-License-Identifier: Apache-2.0
/* The governor step by step: tables of inputs and what must come out. */
#include "governor/governor.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define CPUS 4

static struct governor governor;

static struct governor_config defaults(void)
{
	struct governor_config config;

	governor_config_init(&config);
	config.memory_budget_bytes = 64 << 20;
	config.table_budget_bytes = 48 << 20;
	return config;
}

static void begin(const struct governor_config *config)
{
	struct why why = {""};

	if (governor_config_check(config, &why))
		fail_msg("%s", why.text);
	governor_init(&governor, config);
}

static double hz(void)
{
	return 1e9 / (double)governor.outputs.period_ns *
	       (1 - governor.outputs.suppressed_ppm / 1e6);
}

/* A period of a quiet node, each tick costing tick_ns in all. */
static struct governor_inputs quiet(double busy, uint64_t tick_ns)
{
	return (struct governor_inputs){
		.cpus = CPUS,
		.node_busy_ns = (uint64_t)(busy * CPUS * 1e8),
		.node_capacity_ns = CPUS * 100000000ULL,
		.ticks = (uint64_t)(hz() * CPUS / 10 + 0.5),
		.tick_ns = tick_ns,
		.reached = (uint64_t)(hz() * CPUS / 10 * busy + 0.5),
		.table_bytes = 16 << 20,
		.memory_bytes = 20 << 20,
	};
}

static const struct governor_outputs *step(const struct governor_inputs *in)
{
	return governor_step(&governor, in, GOVERNOR_PERIOD_NS);
}

static const struct governor_outputs *live(double seconds, double busy, uint64_t tick_ns)
{
	for (int i = 0; i < (int)(seconds * 10 + 0.5); i++) {
		struct governor_inputs in = quiet(busy, tick_ns);

		step(&in);
	}
	return &governor.outputs;
}

static void governor__config__is_checked(void **ctx)
{
	const struct governor_config good = defaults();
	struct governor_config c;

	(void)ctx;
	assert_int_equal(governor_config_check(&good, NULL), 0);
#define BAD(change, err)                                                                           \
	do {                                                                                       \
		struct why why = {""};                                                             \
		c = good;                                                                          \
		change;                                                                            \
		assert_int_equal(governor_config_check(&c, &why), err);                            \
		assert_true(why.text[0]);                                                          \
	} while (0)
	BAD(c.cpu_budget_ppm = 0, -ERANGE);
	BAD(c.cpu_budget_ppm = 50001, -ERANGE);
	BAD(c.hz = 0, -ERANGE);
	BAD(c.hz = 100001, -ERANGE);
	BAD(c.hz_min = 20, -ERANGE);
	BAD(c.hz_floor = 0, -EINVAL);
	BAD(c.depth = 0, -EINVAL);
	BAD(c.ring_low_ppm = c.ring_high_ppm, -EINVAL);
	BAD(c.table_budget_bytes = 65 << 20, -EINVAL);
	BAD(c.tiers[1].hz = 0, -EINVAL);
	BAD(c.tiers[2].busy_ppm = c.tiers[1].busy_ppm, -EINVAL);
	BAD(c.tiers[2].busy_ppm = 1000001, -EINVAL);
#undef BAD
}

static void governor__tiers__are_those_of_cpu_3(void **ctx)
{
	static const struct {
		double busy;
		uint32_t tier, hz, depth;
		enum governor_unwinder unwinder;
	} table[] = {
		{0.10, 0, 19, 64, GOVERNOR_TABLES},
		{0.79, 0, 19, 64, GOVERNOR_TABLES},
		{0.80, 1, 11, 48, GOVERNOR_FRAME_POINTERS},
		{0.89, 1, 11, 48, GOVERNOR_FRAME_POINTERS},
		{0.90, 2, 5, 32, GOVERNOR_FRAME_POINTERS},
		{1.00, 2, 5, 32, GOVERNOR_FRAME_POINTERS},
	};
	const struct governor_config config = defaults();

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct governor_outputs *out;

		begin(&config);
		live(10, 0.1, 2000);
		assert_int_equal(governor.outputs.tier, 0);
		out = live(1, table[i].busy, 2000);
		assert_int_equal(out->tier, table[i].tier);
		assert_int_equal(out->period_ns, 1000000000 / table[i].hz);
		assert_int_equal(out->depth, table[i].depth);
		assert_int_equal(out->unwinder, table[i].unwinder);
		assert_int_equal(out->state, table[i].tier ? GOVERNOR_DEGRADED : GOVERNOR_NORMAL);
		assert_int_equal(out->cause, table[i].tier ? GOVERNOR_NODE_LOAD : GOVERNOR_WANTED);
	}
}

static void governor__tier__is_left_late_and_one_by_one(void **ctx)
{
	const struct governor_config config = defaults();

	(void)ctx;
	begin(&config);
	live(5, 0.95, 2000);
	assert_int_equal(governor.outputs.tier, 2);
	live(30, 0.86, 2000); /* within the hysteresis of 5 points */
	assert_int_equal(governor.outputs.tier, 2);
	live(1.8, 0.5, 2000);
	assert_int_equal(governor.outputs.tier, 2);
	live(1, 0.5, 2000);
	assert_int_equal(governor.outputs.tier, 1);
	live(2, 0.5, 2000);
	assert_int_equal(governor.outputs.tier, 0);
	assert_int_equal(governor.outputs.period_ns, 1000000000 / 19);
}

static void governor__no_tiers__load_is_nothing_to_it(void **ctx)
{
	struct governor_config config = defaults();

	(void)ctx;
	config.has_tiers = false;
	begin(&config);
	live(20, 1, 2000);
	assert_int_equal(governor.outputs.state, GOVERNOR_NORMAL);
	assert_int_equal(governor.outputs.period_ns, 1000000000 / 19);
}

/* 5,000 Hz asked: the cost is within the budget, and most of it is used. */
static void governor__dear_ticks__rate_fits_the_budget(void **ctx)
{
	static const uint64_t costs_ns[] = {2000, 10000, 50000, 200000, 1000000};
	static const uint32_t budgets_ppm[] = {5000, 15000, 50000};
	struct governor_config config = defaults();

	(void)ctx;
	config.hz = 5000;
	config.has_tiers = false;
	for (size_t i = 0; i < ARRAY_SIZE(costs_ns); i++) {
		for (size_t b = 0; b < ARRAY_SIZE(budgets_ppm); b++) {
			double share, budget = budgets_ppm[b] / 1e6;

			config.cpu_budget_ppm = budgets_ppm[b];
			begin(&config);
			live(60, 0.5, costs_ns[i]);
			share = hz() * (double)costs_ns[i] / 1e9;
			assert_true(share <= budget);
			if (hz() < 4999 && hz() > config.hz_floor * 1.1)
				assert_true(share >= budget * 0.7);
		}
	}
}

static void governor__cost_rises__is_back_within_a_second(void **ctx)
{
	struct governor_config config = defaults();
	double before, share;

	(void)ctx;
	config.hz = 999;
	config.has_tiers = false;
	begin(&config);
	live(60, 0.5, 30000);
	before = hz();
	live(1, 0.5, 120000);
	share = hz() * 120e-6;
	assert_true(share <= 0.015);
	assert_true(hz() < before / 3);
	/* And slower on the way back. */
	live(1, 0.5, 30000);
	assert_true(hz() < before / 2);
	live(60, 0.5, 30000);
	assert_true(hz() > before * 0.9);
}

/* The ladder: each step is only taken once the one before is. */
static void governor__background_is_dear__fidelity_goes_in_order(void **ctx)
{
	struct governor_config config = defaults();
	uint32_t seen = 0;

	(void)ctx;
	config.has_tiers = false;
	begin(&config);
	live(20, 0.5, 2000);
	for (int i = 0; i < 50; i++) {
		struct governor_inputs in = quiet(0.5, 2000);
		const struct governor_outputs *out;

		in.background_ns = 20000000; /* 5 % of the node, whatever is switched off */
		out = step(&in);
		assert_true(out->level >= seen);
		seen = out->level;
		if (seen >= GOVERNOR_LEVEL_NO_BACKGROUND) {
			assert_true(hz() <= config.hz_floor * 1.1);
			assert_false(out->features & (GOVERNOR_LINES | GOVERNOR_TABLE_BUILDS));
		}
		assert_int_equal(out->unwinder == GOVERNOR_FRAME_POINTERS ||
					 out->state == GOVERNOR_SUPPRESSED,
				 seen >= GOVERNOR_LEVEL_FRAME_POINTERS);
		assert_int_equal(out->depth < config.depth, seen >= GOVERNOR_LEVEL_SHALLOW);
		if (out->suppressed_ppm)
			assert_int_equal(seen, GOVERNOR_LEVEL_LAST);
	}
	assert_int_equal(governor.outputs.state, GOVERNOR_SUPPRESSED);
	assert_int_equal(governor.outputs.suppressed_ppm, 1000000);
	live(120, 0.5, 2000);
	assert_int_equal(governor.outputs.state, GOVERNOR_NORMAL);
	assert_int_equal(governor.outputs.level, 0);
	assert_int_equal(governor.outputs.period_ns, 1000000000 / 19);
}

static void governor__ring_drops__halve_and_recover(void **ctx)
{
	struct governor_config config = defaults();
	struct governor_inputs in;
	double before;

	(void)ctx;
	config.hz = 400;
	config.has_tiers = false;
	begin(&config);
	live(60, 0.5, 1000);
	before = hz();
	assert_true(before > 399);
	for (int i = 0; i < 3; i++) {
		in = quiet(0.5, 1000);
		in.ring_dropped = in.reached / 10 + 1;
		in.ring_used_ppm = 900000;
		step(&in);
		assert_true(hz() <= before * 0.501);
		before = hz();
		assert_int_equal(governor.outputs.state, GOVERNOR_DEGRADED);
		assert_int_equal(governor.outputs.depth, 32);
		assert_int_equal(governor.outputs.unwinder, GOVERNOR_FRAME_POINTERS);
		assert_int_equal(governor.outputs.cause, GOVERNOR_RING_DROPS);
	}
	live(1, 0.5, 1000);
	assert_true(hz() <= before * 1.1);
	live(2, 0.5, 1000);
	assert_true(hz() > before && hz() < 320);
	live(60, 0.5, 1000);
	assert_int_equal(governor.outputs.period_ns, 1000000000 / 400);
	assert_int_equal(governor.outputs.state, GOVERNOR_NORMAL);
}

static void governor__few_drops__are_borne(void **ctx)
{
	struct governor_config config = defaults();

	(void)ctx;
	config.hz = 400;
	begin(&config);
	live(60, 0.5, 1000);
	for (int i = 0; i < 50; i++) {
		struct governor_inputs in = quiet(0.5, 1000);

		in.ring_dropped = in.reached / 25; /* 4 % */
		step(&in);
	}
	assert_int_equal(governor.outputs.period_ns, 1000000000 / 400);
}

static void governor__ring_fills__degrades_at_once(void **ctx)
{
	const struct governor_config config = defaults();
	struct governor_inputs in;

	(void)ctx;
	begin(&config);
	live(10, 0.5, 1000);
	in = quiet(0.5, 1000);
	in.ring_used_ppm = 750000;
	step(&in);
	assert_int_equal(governor.outputs.state, GOVERNOR_DEGRADED);
	assert_int_equal(governor.outputs.cause, GOVERNOR_RING_FILL);
	assert_int_equal(governor.outputs.depth, 32);
	live(3, 0.5, 1000);
	assert_int_equal(governor.outputs.state, GOVERNOR_NORMAL);
	in = quiet(0.5, 1000);
	in.ring_lag_ns = 1500000000;
	step(&in);
	assert_int_equal(governor.outputs.cause, GOVERNOR_READER_LAG);
	assert_int_equal(governor.outputs.depth, 32);
}

/* MEM-6: tables are given back first, then samples are dropped, with their own reason. */
static void governor__memory_pressure__tables_then_samples(void **ctx)
{
	const struct governor_config config = defaults();
	uint64_t tables = 16 << 20;
	int first = -1;

	(void)ctx;
	begin(&config);
	live(10, 0.5, 1000);
	for (int i = 0; i < 100; i++) {
		struct governor_inputs in = quiet(0.5, 1000);

		in.pressure_full_ppm = 100000;
		in.table_bytes = tables;
		step(&in);
		assert_true(governor.outputs.table_budget_bytes <= tables);
		tables = governor.outputs.table_budget_bytes;
		if (governor.outputs.suppressed_ppm && first < 0)
			first = i;
		if (first >= 0)
			assert_int_equal(tables, 0);
	}
	assert_true(first > 0);
	assert_true(governor.outputs.is_memory_drop);
	assert_int_equal(governor.outputs.suppressed_ppm, 1000000);
	assert_int_equal(governor.outputs.cause, GOVERNOR_MEMORY_PRESSURE);
	live(5, 0.5, 1000);
	assert_int_equal(governor.outputs.suppressed_ppm, 0);
	live(120, 0.5, 1000);
	assert_int_equal(governor.outputs.table_budget_bytes, config.table_budget_bytes);
	assert_int_equal(governor.outputs.cause, GOVERNOR_WANTED);
}

static void governor__over_memory_budget__gives_back_or_stops(void **ctx)
{
	struct governor_config config = defaults();
	struct governor_inputs in;

	(void)ctx;
	for (int strict = 0; strict < 2; strict++) {
		config.is_strict = strict;
		begin(&config);
		live(1, 0.5, 1000);
		in = quiet(0.5, 1000);
		in.memory_bytes = config.memory_budget_bytes + (4 << 20);
		step(&in);
		assert_int_equal(governor.outputs.must_stop, strict);
		assert_int_equal(governor.outputs.table_budget_bytes, 12 << 20);
	}
}

static void governor__own_loop_stalls__starts_again_low(void **ctx)
{
	struct governor_config config = defaults();
	struct governor_inputs in;

	(void)ctx;
	config.hz = 99;
	begin(&config);
	live(60, 0.5, 1000);
	in = quiet(0.5, 1000);
	in.ticks *= 30;
	in.reached *= 30;
	in.node_busy_ns *= 30;
	in.node_capacity_ns *= 30;
	governor_step(&governor, &in, 3000000000ULL);
	assert_int_equal(governor.outputs.cause, GOVERNOR_LOOP_STALL);
	assert_int_equal(governor.outputs.state, GOVERNOR_DEGRADED);
	assert_true(hz() <= config.hz_floor);
	live(5, 0.5, 1000);
	assert_int_equal(governor.outputs.cause, GOVERNOR_WANTED);
	assert_int_equal(governor.outputs.period_ns, 1000000000 / 99);
}

static void governor__same_inputs__same_outputs(void **ctx)
{
	const struct governor_config config = defaults();
	struct governor first;
	struct governor_outputs before;
	struct governor_inputs in;

	(void)ctx;
	begin(&config);
	live(20, 0.85, 40000);
	first = governor;
	begin(&config);
	live(20, 0.85, 40000);
	assert_memory_equal(&first, &governor, sizeof(first));
	before = governor.outputs;
	in = quiet(0.85, 40000);
	governor_step(&governor, &in, 0);
	assert_memory_equal(&before, &governor.outputs, sizeof(before));
}

static void governor__change__has_its_reason(void **ctx)
{
	const struct governor_config config = defaults();

	(void)ctx;
	begin(&config);
	live(10, 0.5, 1000);
	assert_string_equal(governor.outputs.reason,
			    "nothing holds it back: 19 Hz, tables, depth 64");
	for (int i = 0; i < 10 && !governor.outputs.tier; i++)
		live(0.1, 0.85, 1000);
	assert_true(governor.outputs.is_changed);
	assert_non_null(strstr(governor.outputs.reason, "tier 1: 11 Hz, frame pointers, depth 48"));
	live(0.1, 0.85, 1000);
	assert_false(governor.outputs.is_changed);
	for (int i = 0; i < GOVERNOR_CAUSES; i++)
		assert_true(governor_cause_name((enum governor_cause)i)[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(governor__config__is_checked),
		cmocka_unit_test(governor__tiers__are_those_of_cpu_3),
		cmocka_unit_test(governor__tier__is_left_late_and_one_by_one),
		cmocka_unit_test(governor__no_tiers__load_is_nothing_to_it),
		cmocka_unit_test(governor__dear_ticks__rate_fits_the_budget),
		cmocka_unit_test(governor__cost_rises__is_back_within_a_second),
		cmocka_unit_test(governor__background_is_dear__fidelity_goes_in_order),
		cmocka_unit_test(governor__ring_drops__halve_and_recover),
		cmocka_unit_test(governor__few_drops__are_borne),
		cmocka_unit_test(governor__ring_fills__degrades_at_once),
		cmocka_unit_test(governor__memory_pressure__tables_then_samples),
		cmocka_unit_test(governor__over_memory_budget__gives_back_or_stops),
		cmocka_unit_test(governor__own_loop_stalls__starts_again_low),
		cmocka_unit_test(governor__same_inputs__same_outputs),
		cmocka_unit_test(governor__change__has_its_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
