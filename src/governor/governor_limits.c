// SPDX-License-Identifier: Apache-2.0
/*
 * limits: tiers by node CPU (CPU-2, CPU-3), the ring (CPU-4, RING-1), memory (MEM-6). Each knows
 * nothing of the others; the lowest counts.
 */
#include "governor/governor_internal.h"

#define TIER_HYSTERESIS_PPM 50000
#define TIER_BLAME_S	    2.0
#define TIER_DROPS_S	    3.0 /* how long drops of the ring keep the last tier */

#define RING_FULL_PPM	950000 /* drops are about to come */
#define RING_BLAME_S	10.0
#define RING_CALM_S	1.0
#define RING_UP_PER_S	0.7 /* recovery: doubles in a second; back-off halves each period */
#define RING_CEILING	0.8 /* of the rate at which it dropped: more needs patience */
#define RING_CEILING_UP 1.3
#define RING_LEAST	(1.0 / 1024)
#define LAG_HIGH_NS	1000000000ULL
#define LAG_LOW_NS	500000000ULL

#define PRESSURE_FULL_PPM 20000
#define PRESSURE_SOME_PPM 200000
#define MEMORY_CALM_S	  2.0
#define TABLES_CALM_S	  5.0
#define TABLES_LEAST	  65536

void governor_tier_step(struct governor *g, double dt_s)
{
	const struct governor_tier *tiers = g->config.tiers;
	uint32_t busy = g->outputs.node_busy_ppm, tier = 0;
	bool is_clear;

	if (!g->config.has_tiers)
		return;
	g->drop_tier_s = g->drop_tier_s > dt_s ? g->drop_tier_s - dt_s : 0;
	for (uint32_t i = 1; i < GOVERNOR_TIERS; i++) {
		if (busy >= tiers[i].busy_ppm)
			tier = i;
	}
	if (g->drop_tier_s > 0)
		tier = GOVERNOR_TIERS - 1;
	if (tier > g->tier) {
		g->tier = tier;
		governor_patience_failed(&g->tier_patience, TIER_BLAME_S);
		return;
	}
	is_clear = tier < g->tier && busy + TIER_HYSTERESIS_PPM < tiers[g->tier].busy_ppm;
	if (governor_patience_try(&g->tier_patience, is_clear, dt_s))
		g->tier--;
}

static void ring_back_off(struct governor *g)
{
	double hz = g->applied_hz;

	if (g->ring_hz > 0 && g->ring_hz < hz)
		hz = g->ring_hz;
	/* A new episode: this rate is too much. */
	if (g->ring_hz <= 0 || g->ring_since_s > RING_CALM_S) {
		g->ring_drop_hz = hz;
		governor_patience_failed(&g->ring_patience, RING_BLAME_S);
	}
	g->ring_hz = hz / 2 > RING_LEAST ? hz / 2 : RING_LEAST;
	g->ring_quiet_s = 0;
	g->ring_since_s = 0;
}

static void ring_recover(struct governor *g, bool is_low, double dt_s)
{
	double hz, ceiling = g->ring_drop_hz * RING_CEILING;

	if (g->ring_hz <= 0)
		return;
	g->ring_quiet_s = is_low ? g->ring_quiet_s + dt_s : 0;
	if (g->ring_quiet_s < RING_CALM_S)
		return;
	/* Where another limit holds it lower, the ring has not shown that it can take more. */
	if (g->ring_hz > g->config.hz_min && g->applied_hz < g->ring_hz * 0.7) {
		hz = g->applied_hz / 0.7;
		g->ring_hz = hz > g->config.hz_min ? hz : g->config.hz_min;
		return;
	}
	hz = g->ring_hz > g->config.hz_min ? g->ring_hz : g->config.hz_min;
	hz *= 1 + RING_UP_PER_S * dt_s;
	if (hz > ceiling) {
		if (governor_patience_try(&g->ring_patience, true, dt_s))
			g->ring_drop_hz *= RING_CEILING_UP;
		else
			hz = ceiling > g->ring_hz ? ceiling : g->ring_hz;
	}
	g->ring_hz = hz < g->config.hz ? hz : 0;
}

void governor_ring_step(struct governor *g, const struct governor_inputs *in, double dt_s)
{
	double limit = g->config.drop_limit_ppm / 1e6;
	bool is_dropping =
		in->ring_dropped && (double)in->ring_dropped > limit * (double)in->reached;
	bool is_low = in->ring_used_ppm < g->config.ring_low_ppm && in->ring_lag_ns < LAG_LOW_NS;

	g->ring_since_s += dt_s;
	if (is_dropping)
		g->drop_tier_s = TIER_DROPS_S;
	if (is_dropping || in->ring_used_ppm >= RING_FULL_PPM)
		ring_back_off(g);
	else
		ring_recover(g, is_low, dt_s);
	if (is_dropping || in->ring_used_ppm >= g->config.ring_high_ppm ||
	    in->ring_lag_ns >= LAG_HIGH_NS)
		g->is_ring_high = true;
	else if (is_low && (g->ring_hz <= 0 || g->ring_quiet_s >= RING_CALM_S))
		g->is_ring_high = false;
}

static void shrink_tables(struct governor *g, const struct governor_inputs *in, double dt_s)
{
	uint64_t now = g->outputs.table_budget_bytes,
		 most = in->table_bytes < now ? in->table_bytes : now;
	double keep = 1 - 1.4 * dt_s;

	now = (uint64_t)((double)most * (keep > 0 ? keep : 0));
	g->outputs.table_budget_bytes = now < TABLES_LEAST ? 0 : now;
}

/* In doubling steps, each after as long a calm. */
static void grow_tables(struct governor *g)
{
	uint64_t now = g->outputs.table_budget_bytes * 2, most = g->config.table_budget_bytes;

	if (now < TABLES_LEAST)
		now = TABLES_LEAST;
	g->outputs.table_budget_bytes = now < most ? now : most;
	g->calm_s = 0;
}

void governor_memory_step(struct governor *g, const struct governor_inputs *in, double dt_s)
{
	uint64_t budget = g->config.memory_budget_bytes;
	uint64_t over = budget && in->memory_bytes > budget ? in->memory_bytes - budget : 0;
	bool is_high = in->pressure_full_ppm >= PRESSURE_FULL_PPM ||
		       in->pressure_some_ppm >= PRESSURE_SOME_PPM || in->memory_high_events;

	if (over) {
		g->outputs.must_stop = g->config.is_strict;
		if (g->outputs.table_budget_bytes > in->table_bytes)
			g->outputs.table_budget_bytes = in->table_bytes;
		g->outputs.table_budget_bytes -=
			over < g->outputs.table_budget_bytes ? over : g->outputs.table_budget_bytes;
	}
	if (is_high) {
		g->calm_s = 0;
		g->pressed_s += dt_s;
		shrink_tables(g, in, dt_s);
		/* Tables first; samples when there are none left to give, and it goes on. */
		if (g->pressed_s >= 1 && !g->outputs.table_budget_bytes)
			g->is_pressed = true;
		return;
	}
	g->calm_s += dt_s;
	if (g->calm_s >= MEMORY_CALM_S) {
		g->pressed_s = 0;
		g->is_pressed = false;
	}
	if (g->calm_s >= TABLES_CALM_S && !over)
		grow_tables(g);
}
