// SPDX-License-Identifier: Apache-2.0
/*
 * The governor on simulated nodes: thousands of random ones, and broken governors that the judge
 * must catch. FLYBALL_SIM_NODES sets how many nodes (default 400, about a million steps).
 */
#include "governor/governor_sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static uint64_t state;

static double chance(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double between(double low, double high)
{
	return low + (high - low) * chance();
}

/* Small and large values alike: as many from each octave. low is above 0. */
static double magnitude(double low, double high)
{
	double octaves = 0, left;

	for (left = high / low; left > 2; left /= 2)
		octaves++;
	octaves = chance() * (octaves + left - 1);
	for (; octaves >= 1; octaves--)
		low *= 2;
	low *= 1 + octaves;
	return low < high ? low : high;
}

static uint64_t pick(const uint64_t *values, size_t count)
{
	return values[(size_t)(chance() * (double)count)];
}

static void change(struct governor_scenario *s, double at_s, double over_s,
		   enum governor_sim_key key, double value)
{
	assert_true(s->change_count < SIM_CHANGES_MAX);
	s->changes[s->change_count++] = (struct governor_sim_change){at_s, over_s, value, key};
}

static void random_config(struct governor_scenario *s)
{
	static const uint64_t rates[] = {19, 49, 99, 199, 499, 999, 5000};
	static const uint64_t depths[] = {32, 48, 64, 127, 512};
	static const uint64_t rings[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20};
	struct governor_config *c = &s->config;

	c->cpu_budget_ppm = (uint32_t)magnitude(1000, 50000);
	c->hz = (uint32_t)pick(rates, ARRAY_SIZE(rates));
	c->depth = (uint32_t)pick(depths, ARRAY_SIZE(depths));
	c->unwinder = chance() < 0.7 ? GOVERNOR_TABLES : GOVERNOR_FRAME_POINTERS;
	c->features = (uint32_t)(chance() * 8);
	c->has_tiers = chance() < 0.5;
	s->ring_bytes = pick(rings, ARRAY_SIZE(rings));
	if (chance() < 0.7)
		c->tick_cost_ns = (uint64_t)((s->start[SIM_TICK] + s->start[SIM_WALK] * 2) * 1e9 *
					     between(0.5, 1.5));
	assert_int_equal(governor_config_check(c, NULL), 0);
}

static void random_node(struct governor_scenario *s)
{
	double *n = s->start;

	n[SIM_CPUS] = (uint32_t)magnitude(1, 256);
	n[SIM_LOAD] = between(0.02, 1);
	n[SIM_NOISE] = between(0, 0.08);
	n[SIM_TICK] = magnitude(1e-6, 60e-6);
	n[SIM_WALK] = magnitude(5e-7, 10e-6);
	n[SIM_FRAME] = magnitude(1e-8, 5e-7);
	n[SIM_STACK] = magnitude(3, 300);
	n[SIM_READ] = magnitude(1e-6, 30e-6);
	n[SIM_LOOP] = magnitude(1e-5, 1e-3);
	n[SIM_DRAIN] = magnitude(1e4, 1e6);
	if (chance() < 0.5)
		n[SIM_LINES] = magnitude(1e-4, 0.5);
	if (chance() < 0.5)
		n[SIM_BUILDS] = magnitude(1e-4, 0.5);
	if (chance() < 0.5)
		n[SIM_OFF_CPU] = magnitude(1e-4, 0.2);
	if (chance() < 0.2)
		n[SIM_NAMES] = magnitude(1e-4, 0.05);
}

/* One disturbance from at_s on; returns when it is over. */
static double disturb(struct governor_scenario *s, double at_s)
{
	double over_s = chance() < 0.3 ? between(1, 20) : 0, until_s = at_s + between(2, 30);

	switch ((int)(chance() * 9)) {
	case 0:
	case 1:
		change(s, at_s, over_s, SIM_LOAD, between(0, 1));
		return at_s + over_s;
	case 2:
		change(s, at_s, over_s, SIM_TICK, s->start[SIM_TICK] * magnitude(0.2, 5));
		return at_s + over_s;
	case 3:
		change(s, at_s, 0, SIM_DRAIN, chance() < 0.5 ? 0 : magnitude(1, 1e4));
		change(s, until_s, 0, SIM_DRAIN, s->start[SIM_DRAIN]);
		return until_s;
	case 4:
		change(s, at_s, 0, SIM_LOOP_STALL, 1);
		until_s = at_s + between(0.2, 5);
		change(s, until_s, 0, SIM_LOOP_STALL, 0);
		return until_s;
	case 5:
		change(s, at_s, 0, SIM_PRESSURE_FULL, between(0, 0.3));
		change(s, at_s, 0, SIM_PRESSURE_SOME, between(0, 0.6));
		change(s, until_s, 0, SIM_PRESSURE_FULL, 0);
		change(s, until_s, 0, SIM_PRESSURE_SOME, 0);
		return until_s;
	case 6:
		change(s, at_s, 0, SIM_CPUS, (uint32_t)magnitude(1, 256));
		return at_s;
	case 7:
		change(s, at_s, 0, SIM_LINES, magnitude(1e-3, 2));
		change(s, until_s, 0, SIM_LINES, s->start[SIM_LINES]);
		return until_s;
	default:
		change(s, at_s, over_s, SIM_STACK, magnitude(3, 300));
		return at_s + over_s;
	}
}

static void random_scenario(struct governor_scenario *s, uint64_t seed)
{
	double at_s;
	int count;

	state = seed * 0x2545f4914f6cdd1dULL;
	governor_scenario_init(s);
	s->seed = seed;
	random_node(s);
	random_config(s);
	at_s = between(10, 90);
	count = (int)between(0, 8);
	for (int i = 0; i < count; i++)
		at_s = disturb(s, at_s) + (chance() < 0.5 ? between(0, 5) : between(5, 60));
	s->end_s = at_s + (chance() < 0.5 ? 300 : 80);
}

static void run(const struct governor_scenario *s, governor_step_fn step,
		struct governor_judge *judge)
{
	static struct governor_sim sim;
	struct governor_sim_point point;

	governor_judge_init(judge);
	governor_sim_init(&sim, s, step);
	while (governor_sim_step(&sim, &point))
		governor_judge_look(judge, &sim, &point);
}

static uint64_t nodes(void)
{
	const char *text = getenv("FLYBALL_SIM_NODES");
	uint64_t count = 400;

	if (text && text_parse_u64(text, 1, 10000000, &count))
		fail_msg("FLYBALL_SIM_NODES=%s is no count", text);
	return count;
}

static void governor_sim__random_nodes__keep_all_rules(void **ctx)
{
	static struct governor_scenario s;
	struct governor_judge judge;
	uint64_t steps = 0, bad = 0;

	(void)ctx;
	for (uint64_t seed = 1; seed <= nodes(); seed++) {
		random_scenario(&s, seed);
		run(&s, governor_step, &judge);
		steps += judge.steps;
		for (int i = 0; i < GOVERNOR_RULES; i++) {
			if (!judge.violations[i])
				continue;
			bad++;
			print_message("seed %" PRIu64 ": \"%s\" broken %" PRIu64
				      " times, first at %.1f s: %s\n",
				      seed, governor_rule_text((enum governor_rule)i),
				      judge.violations[i], judge.first_s[i], judge.first_text[i]);
		}
	}
	print_message("%" PRIu64 " steps\n", steps);
	assert_int_equal(bad, 0);
}

/* ---------------------------------------------------------------- broken governors */

static const struct governor_outputs *ignores_cost(struct governor *g,
						   const struct governor_inputs *in, uint64_t dt_ns)
{
	governor_step(g, in, dt_ns);
	g->outputs.period_ns = 1000000000 / g->config.hz;
	return &g->outputs;
}

static const struct governor_outputs *is_timid(struct governor *g, const struct governor_inputs *in,
					       uint64_t dt_ns)
{
	struct governor_inputs more = *in;

	more.sampling_ns += in->sampling_ns + in->bpf_ns + in->ticks * in->tick_ns;
	return governor_step(g, &more, dt_ns);
}

static const struct governor_outputs *ignores_load(struct governor *g,
						   const struct governor_inputs *in, uint64_t dt_ns)
{
	struct governor_inputs idle = *in;

	idle.node_busy_ns = 0;
	return governor_step(g, &idle, dt_ns);
}

static const struct governor_outputs *ignores_drops(struct governor *g,
						    const struct governor_inputs *in,
						    uint64_t dt_ns)
{
	struct governor_inputs none = *in;

	none.ring_dropped = 0;
	none.ring_used_ppm = 0;
	return governor_step(g, &none, dt_ns);
}

static const struct governor_outputs *gives_features_first(struct governor *g,
							   const struct governor_inputs *in,
							   uint64_t dt_ns)
{
	governor_step(g, in, dt_ns);
	if (g->outputs.cause == GOVERNOR_CPU_BUDGET)
		g->outputs.features = 0;
	return &g->outputs;
}

static const struct governor_outputs *knows_two_states(struct governor *g,
						       const struct governor_inputs *in,
						       uint64_t dt_ns)
{
	enum governor_state before = g->outputs.state;

	governor_step(g, in, dt_ns);
	if (before == GOVERNOR_NORMAL && g->outputs.state == GOVERNOR_DEGRADED)
		g->outputs.state = GOVERNOR_SUPPRESSED;
	return &g->outputs;
}

static const struct governor_outputs *swings(struct governor *g, const struct governor_inputs *in,
					     uint64_t dt_ns)
{
	governor_step(g, in, dt_ns);
	if (g->steps / 10 & 1)
		g->outputs.period_ns *= 2;
	return &g->outputs;
}

static const struct governor_outputs *never_recovers(struct governor *g,
						     const struct governor_inputs *in,
						     uint64_t dt_ns)
{
	uint32_t depth = g->outputs.depth;

	governor_step(g, in, dt_ns);
	if (g->outputs.depth > depth)
		g->outputs.depth = depth;
	return &g->outputs;
}

static void governor_sim__broken_governor__is_caught(void **ctx)
{
	static const struct {
		governor_step_fn step;
		enum governor_rule rule;
	} broken[] = {
		{ignores_cost, GOVERNOR_RULE_BUDGET},
		{is_timid, GOVERNOR_RULE_USE},
		{ignores_load, GOVERNOR_RULE_TIER},
		{ignores_drops, GOVERNOR_RULE_BACKOFF},
		{gives_features_first, GOVERNOR_RULE_ORDER},
		{knows_two_states, GOVERNOR_RULE_NEIGHBOUR},
		{swings, GOVERNOR_RULE_CALM},
		{never_recovers, GOVERNOR_RULE_RECOVERY},
	};
	static struct governor_scenario s;
	struct governor_judge judge;

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		bool is_caught = false;

		for (uint64_t seed = 1; seed <= 40 && !is_caught; seed++) {
			random_scenario(&s, seed);
			run(&s, broken[i].step, &judge);
			is_caught = judge.violations[broken[i].rule];
		}
		if (!is_caught)
			fail_msg("nobody noticed: %s", governor_rule_text(broken[i].rule));
	}
}

static void governor_sim__lost_sample__is_caught(void **ctx)
{
	static struct governor_scenario s;
	static struct governor_sim sim;
	struct governor_sim_point point;
	struct governor_judge judge;

	(void)ctx;
	governor_scenario_init(&s);
	governor_judge_init(&judge);
	governor_sim_init(&sim, &s, governor_step);
	for (int i = 0; i < 100; i++) {
		assert_true(governor_sim_step(&sim, &point));
		sim.ledger.delivered -= i == 50;
		governor_judge_look(&judge, &sim, &point);
	}
	assert_int_equal(judge.violations[GOVERNOR_RULE_LEDGER], 50);
	assert_int_equal(governor_judge_violations(&judge), 50);
}

/* A stalled reader: all three states, down and back, the ring's last quarter in short stacks. */
static void governor_sim__stalled_reader__degrades_before_it_drops(void **ctx)
{
	static const char text[] = "set hz=999 tiers=off ring=256KiB budget=5%\n"
				   "node cpus=2 load=80% stack=60\n"
				   "at 10s drain=0\n"
				   "at 15s drain=1000000\n"
				   "end 120s\n";
	static struct governor_scenario s;
	static struct governor_sim sim;
	double degraded_s = 0, dropped_s = 0, suppressed_s = 0;
	struct governor_sim_point p;
	struct governor_judge judge;
	struct why why = {""};

	(void)ctx;
	if (governor_scenario_parse(text, &s, &why))
		fail_msg("%s", why.text);
	governor_judge_init(&judge);
	governor_sim_init(&sim, &s, governor_step);
	while (governor_sim_step(&sim, &p)) {
		governor_judge_look(&judge, &sim, &p);
		if (p.degraded && degraded_s == 0)
			degraded_s = p.time_s;
		if (p.ring_dropped && dropped_s == 0)
			dropped_s = p.time_s;
		if (p.outputs.state == GOVERNOR_SUPPRESSED && suppressed_s == 0)
			suppressed_s = p.time_s;
		if (p.time_s > 14 && p.time_s < 15)
			assert_int_equal(p.outputs.state, GOVERNOR_SUPPRESSED);
	}
	assert_int_equal(governor_judge_violations(&judge), 0);
	assert_true(degraded_s > 10 && degraded_s < 11);
	assert_true(suppressed_s > degraded_s && suppressed_s < 14);
	assert_true(dropped_s == 0 || dropped_s > degraded_s);
	assert_true(sim.ledger.suppressed > 0);
	assert_int_equal(p.outputs.state, GOVERNOR_NORMAL);
	assert_int_equal(p.outputs.cause, GOVERNOR_WANTED);
}

/* ---------------------------------------------------------------- scenarios */

static void governor_scenario__bad_line__is_named(void **ctx)
{
	static const struct {
		const char *text, *says;
		int err;
	} bad[] = {
		{"nod load=1", "line 1: nod is none of", -EBADMSG},
		{"node load", "line 1: load is no key=value", -EBADMSG},
		{"\n\nnode weight=3", "line 3: a node has no weight", -EBADMSG},
		{"node load=130%", "line 1: load=130% is not within 0 and 1", -ERANGE},
		{"node load=nan", "line 1: load=nan is not within", -ERANGE},
		{"node tick=5parsecs", "line 1: tick=5parsecs is no value", -EBADMSG},
		{"set budget=6%", "a CPU budget of 6 % is not above 0", -ERANGE},
		{"set budget=", "line 1: budget= is no key=value", -EBADMSG},
		{"set features=lines,magic", "line 1: features=lines,magic is no value", -EBADMSG},
		{"set tiers=maybe", "line 1: tiers=maybe is no value", -EBADMSG},
		{"set colour=red", "line 1: there is no setting colour", -EBADMSG},
		{"set ring=7", "line 1: ring=7 is no value", -ERANGE},
		{"set hz=0", "0 Hz is not within", -ERANGE},
		{"at noon load=1", "line 1: noon is no time", -EBADMSG},
		{"at 5s over load=1", "line 1: load=1 is no time", -EBADMSG},
		{"at 5s load=1\nat 4s load=0", "line 2: it comes before", -EBADMSG},
		{"end never", "line 1: never is no time", -EBADMSG},
	};
	static struct governor_scenario s;
	char line[2000] = "title ";
	struct why why;

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		why.text[0] = '\0';
		assert_int_equal(governor_scenario_parse(bad[i].text, &s, &why), bad[i].err);
		if (!strstr(why.text, bad[i].says))
			fail_msg("\"%s\" says \"%s\"", bad[i].text, why.text);
	}
	memset(line + 6, 'x', sizeof(line) - 7);
	line[sizeof(line) - 1] = '\0';
	assert_int_equal(governor_scenario_parse(line, &s, &why), -ERANGE);
}

static void governor_scenario__too_many_changes__are_refused(void **ctx)
{
	static char text[SIM_CHANGES_MAX * 16 + 32];
	static struct governor_scenario s;
	size_t len = 0;

	(void)ctx;
	for (int i = 0; i < SIM_CHANGES_MAX; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "at 1s load=1%%\n");
	assert_int_equal(governor_scenario_parse(text, &s, NULL), 0);
	assert_int_equal(s.change_count, SIM_CHANGES_MAX);
	snprintf(text + len, sizeof(text) - len, "at 1s load=1%%\n");
	assert_int_equal(governor_scenario_parse(text, &s, NULL), -ERANGE);
}

static void governor_scenario__text__is_what_it_says(void **ctx)
{
	static const char text[] =
		"title  Two words # and a comment\r\n"
		"set budget=0.5% hz=99 depth=127 unwinder=fp tiers=off features=none\n"
		"set ring=64KiB memory=8MiB table_budget=2MiB tables=1MiB floor=7 min=2\n"
		"set calibrated=48us seed=77 strict=on\n"
		"node cpus=8 load=25% tick=48us\n"
		"at 1s over 2s load=75% drain=5\n"
		"end 10s";
	static struct governor_scenario s;

	(void)ctx;
	assert_int_equal(governor_scenario_parse(text, &s, NULL), 0);
	assert_string_equal(s.title, "Two words");
	assert_int_equal(s.config.cpu_budget_ppm, 5000);
	assert_int_equal(s.config.hz, 99);
	assert_int_equal(s.config.depth, 127);
	assert_int_equal(s.config.unwinder, GOVERNOR_FRAME_POINTERS);
	assert_int_equal(s.config.features, 0);
	assert_false(s.config.has_tiers);
	assert_true(s.config.is_strict);
	assert_int_equal(s.config.hz_floor, 7);
	assert_int_equal(s.config.hz_min, 2);
	assert_int_equal(s.config.tick_cost_ns, 48000);
	assert_int_equal(s.ring_bytes, 65536);
	assert_int_equal(s.table_bytes, 1 << 20);
	assert_int_equal(s.change_count, 2);
	assert_true(s.changes[1].key == SIM_DRAIN && s.changes[1].over_s == 2);
	assert_true(governor_sim_steady_s(&s, 2) == -1);
	assert_true(governor_sim_steady_s(&s, 5) == 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(governor_sim__random_nodes__keep_all_rules),
		cmocka_unit_test(governor_sim__broken_governor__is_caught),
		cmocka_unit_test(governor_sim__lost_sample__is_caught),
		cmocka_unit_test(governor_sim__stalled_reader__degrades_before_it_drops),
		cmocka_unit_test(governor_scenario__bad_line__is_named),
		cmocka_unit_test(governor_scenario__too_many_changes__are_refused),
		cmocka_unit_test(governor_scenario__text__is_what_it_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
