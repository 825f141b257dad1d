// SPDX-License-Identifier: Apache-2.0
/*
 * ladder: the CPU budget. One order down, the same one back up: the rate to its floor, features,
 * unwinder, depth, the rate to its minimum, samples. So one number says how much is given up.
 *
 * Going down the rate is computed, not searched; going up is one step at a time.
 */
#include "governor/governor_internal.h"

#define LEVEL_DOWN_S   0.2 /* between two steps down */
#define LEVEL_UP_SHARE 0.7 /* of the aim: a step back may cost as much as all the rest */
#define LEVEL_BLAME_S  4.0 /* how long after a step back it is to blame for what follows */
#define RATE_UP_SHARE  0.95
#define RATE_BLAME_S   1e8 /* however long ago */
#define RATE_AGAIN_S   0.6
#define RATE_FAR       0.3 /* steps may be longer */
#define RATE_STRIDE    3
#define RATE_ROOM      0.6 /* so far below the aim things are not as they were */

/* Whether a level takes away something that was wanted. */
static bool takes_away(const struct governor_config *c, uint32_t level)
{
	switch (level) {
	case GOVERNOR_LEVEL_NO_BACKGROUND:
		return c->features & (GOVERNOR_LINES | GOVERNOR_TABLE_BUILDS);
	case GOVERNOR_LEVEL_NO_OFF_CPU:
		return c->features & GOVERNOR_OFF_CPU;
	case GOVERNOR_LEVEL_FRAME_POINTERS:
		return c->unwinder != GOVERNOR_FRAME_POINTERS;
	default:
		return true;
	}
}

/* Costs of before say too much now. */
static void forget(struct governor *g)
{
	g->level_age_s = 0;
	g->slow = g->fast;
}

static void level_down(struct governor *g, double aim)
{
	/* The means still know the step before: it must be too much now, too. */
	if (g->level_age_s < LEVEL_DOWN_S || governor_cost_last(g) <= aim)
		return;
	do
		g->level++;
	while (g->level < GOVERNOR_LEVEL_LAST && !takes_away(&g->config, g->level));
	governor_patience_failed(&g->level_patience[g->level], LEVEL_BLAME_S);
	forget(g);
}

static void level_up(struct governor *g)
{
	do
		g->level--;
	while (g->level && !takes_away(&g->config, g->level));
	forget(g);
}

/* Too much at this rate: it is remembered, and tried again with patience. */
static void rate_down(struct governor *g, int rate)
{
	bool is_again = g->rate_failed >= g->rate - 1 && g->rate_failed <= g->rate + 1;

	governor_patience_failed(&g->rate_patience, is_again ? RATE_BLAME_S : 0);
	g->rate_climb.quiet_s = 0;
	g->rate_down_s = 0;
	g->rate_failed = g->rate;
	g->rate = rate;
}

static void go_down(struct governor *g, const struct governor_inputs *in, double aim)
{
	int end =
		g->level == GOVERNOR_LEVEL_LAST ? g->rate_min + GOVERNOR_RATE_SPAN : g->rate_floor;
	int rate = governor_rate_below(g, governor_cost_rate(g, in, aim));
	int applied = governor_rate_below(g, g->applied_hz);

	/* Another limit may have held it lower already, and even that is too much. */
	if (applied > g->rate)
		g->rate = applied < end ? applied : end;
	/* Still too much after it went down: what does not fall with the rate hides in the cost
	 * of a tick. */
	if (rate > g->rate && g->rate_down_s < RATE_AGAIN_S && rate < g->rate + RATE_STRIDE)
		rate = g->rate + RATE_STRIDE;
	if (rate > g->rate && g->rate < end)
		rate_down(g, rate < end ? rate : end);
	if (rate > end && g->level < GOVERNOR_LEVEL_LAST)
		level_down(g, aim);
}

static bool is_applied(const struct governor *g)
{
	return g->applied_hz >= governor_rate_hz(g, g->rate) * 0.7;
}

static void go_up(struct governor *g, const struct governor_inputs *in, double aim, double dt_s)
{
	int last = g->level ? g->rate_floor : 0, next = g->rate - 1;
	struct governor_patience *patience;
	double cost;
	bool is_good;

	if (g->rate <= last) {
		/* Another limit may hold the rate lower: then nothing is learned of the cost. */
		cost = governor_cost_at(g, in, governor_rate_hz(g, g->rate));
		is_good = cost <= aim * LEVEL_UP_SHARE && is_applied(g);
		if (g->level && governor_patience_try(&g->level_patience[g->level], is_good, dt_s))
			level_up(g);
		return;
	}
	/* From nothing one goes as far as it seems to go: nothing is learned on the way. */
	if (g->rate == g->rate_min + GOVERNOR_RATE_SPAN) {
		next = governor_rate_below(g, governor_cost_rate(g, in, aim * RATE_UP_SHARE));
		next = next > g->rate_min ? next : g->rate_min;
	}
	if (next == g->rate)
		return;
	if (governor_cost_slow(g, in, governor_rate_hz(g, next)) <= aim * RATE_ROOM)
		g->rate_failed = -1;
	if (next - RATE_STRIDE > last &&
	    governor_cost_slow(g, in, governor_rate_hz(g, next - RATE_STRIDE)) <= aim * RATE_FAR)
		next -= RATE_STRIDE;
	/* Where it failed before, one waits; below that one climbs. */
	patience = next <= g->rate_failed ? &g->rate_patience : &g->rate_climb;
	cost = governor_cost_at(g, in, governor_rate_hz(g, next));
	if (governor_patience_try(patience, cost <= aim * RATE_UP_SHARE, dt_s))
		g->rate = next;
}

void governor_ladder_step(struct governor *g, const struct governor_inputs *in, double dt_s)
{
	double budget = g->config.cpu_budget_ppm / 1e6;

	g->level_age_s += dt_s;
	g->rate_down_s += dt_s;
	if (governor_cost_at(g, in, g->applied_hz) > budget * GOVERNOR_OVER)
		go_down(g, in, budget * GOVERNOR_AIM);
	else
		go_up(g, in, budget * GOVERNOR_AIM, dt_s);
}
