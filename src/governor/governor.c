// SPDX-License-Identifier: Apache-2.0
/*
 * governor: what the limits leave becomes what the kernel side is told, with its reason.
 *
 * The state moves to a neighbour only, down at once, up after a second without a reason.
 */
#include "governor/governor_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define STATE_CALM_S 1.0
#define STALL_S	     1.0
#define HZ_MOST	     100000

const char *governor_cause_name(enum governor_cause cause)
{
	static const char *const names[GOVERNOR_CAUSES] = {
		"wanted",     "cpu_budget",    "node_load",	  "ring_drops", "ring_fill",
		"reader_lag", "memory_budget", "memory_pressure", "loop_stall"};

	return (unsigned int)cause < GOVERNOR_CAUSES ? names[cause] : "";
}

const char *governor_state_name(enum governor_state state)
{
	static const char *const names[] = {"normal", "degraded", "suppressed"};

	return (unsigned int)state < ARRAY_SIZE(names) ? names[state] : "";
}

void governor_config_init(struct governor_config *config)
{
	*config = (struct governor_config){
		.cpu_budget_ppm = 15000,
		.hz = 19,
		.depth = 64,
		.unwinder = GOVERNOR_TABLES,
		.features = GOVERNOR_FEATURES,
		.hz_floor = 5,
		.hz_min = 1,
		.has_tiers = true,
		.tiers = {{0, 19, 64, GOVERNOR_TABLES},
			  {800000, 11, 48, GOVERNOR_FRAME_POINTERS},
			  {900000, 5, 32, GOVERNOR_FRAME_POINTERS}},
		.ring_high_ppm = 750000,
		.ring_low_ppm = 500000,
		.drop_limit_ppm = 50000,
	};
}

static int check_tiers(const struct governor_config *c, struct why *why)
{
	for (int i = 1; i < GOVERNOR_TIERS; i++) {
		const struct governor_tier *tier = &c->tiers[i];

		if (!tier->hz || !tier->depth || tier->hz < c->hz_min)
			return why_set(why, -EINVAL,
				       "tier %d has %" PRIu32 " Hz and depth %" PRIu32
				       ": give at least %" PRIu32 " Hz and 1",
				       i, tier->hz, tier->depth, c->hz_min);
		if (tier->busy_ppm > 1000000 || tier->busy_ppm <= c->tiers[i - 1].busy_ppm)
			return why_set(why, -EINVAL,
				       "tier %d must begin above tier %d, at 100 %% at most", i,
				       i - 1);
	}
	return 0;
}

int governor_config_check(const struct governor_config *c, struct why *why)
{
	if (!c->cpu_budget_ppm || c->cpu_budget_ppm > 50000)
		return why_set(why, -ERANGE,
			       "a CPU budget of %.4g %% is not above 0 and at most 5 (CPU-1)",
			       c->cpu_budget_ppm / 1e4);
	if (!c->hz || c->hz > HZ_MOST || !c->hz_min || c->hz_min > c->hz)
		return why_set(why, -ERANGE, "%" PRIu32 " Hz is not within %" PRIu32 " and %d Hz",
			       c->hz, c->hz_min, HZ_MOST);
	if (!c->depth || c->hz_floor < c->hz_min)
		return why_set(why, -EINVAL,
			       "depth is at least 1, and the floor of the rate %" PRIu32 " Hz",
			       c->hz_min);
	if (!c->ring_low_ppm || c->ring_low_ppm >= c->ring_high_ppm || c->ring_high_ppm > 1000000)
		return why_set(why, -EINVAL,
			       "the ring's low mark is above 0 and below the high one");
	if (c->table_budget_bytes > c->memory_budget_bytes && c->memory_budget_bytes)
		return why_set(why, -EINVAL, "tables have more than the memory budget");
	return c->has_tiers ? check_tiers(c, why) : 0;
}

static struct governor_patience patience(double base_s, double most_s)
{
	return (struct governor_patience){
		.wait_s = base_s, .base_s = base_s, .most_s = most_s, .since_up_s = 1e9};
}

void governor_init(struct governor *g, const struct governor_config *config)
{
	double start_hz = 19;

	memset(g, 0, sizeof(*g));
	g->config = *config;
	/* Largest indexes not below the two marks. */
	while (governor_rate_hz(g, g->rate_min + 1) >= config->hz_min)
		g->rate_min++;
	while (g->rate_floor < g->rate_min &&
	       governor_rate_hz(g, g->rate_floor + 1) >= config->hz_floor)
		g->rate_floor++;
	g->rate_climb = patience(0.5, 0.5);
	g->rate_patience = patience(2, 60);
	g->rate_failed = -1;
	for (int i = 0; i < GOVERNOR_LEVELS; i++)
		g->level_patience[i] = patience(5, 60);
	g->tier_patience = patience(2, 60);
	g->ring_patience = patience(10, 60);
	/* Half the aim by what was calibrated: nothing has been seen yet. */
	if (config->tick_cost_ns)
		start_hz = config->cpu_budget_ppm / 1e6 * GOVERNOR_AIM / 2 * 1e9 /
			   (double)config->tick_cost_ns;
	g->rate = governor_rate_below(g, start_hz > config->hz_floor ? start_hz : config->hz_floor);
	g->applied_hz = governor_rate_hz(g, g->rate);
	g->level_age_s = g->rate_down_s = 1e9;
	g->outputs = (struct governor_outputs){
		.period_ns = (uint64_t)(1e9 / g->applied_hz + 1e-6),
		.depth = config->depth,
		.unwinder = config->unwinder,
		.features = config->features,
		.table_budget_bytes = config->table_budget_bytes,
	};
}

/* The lowest of what the limits leave; of equals the first, wanted last. */
static struct governor_cap lowest(const struct governor *g)
{
	const struct governor_config *c = &g->config;
	struct governor_cap caps[] = {
		{g->is_pressed ? 0 : c->hz, GOVERNOR_MEMORY_PRESSURE},
		{g->ring_hz > 0 ? g->ring_hz : c->hz, GOVERNOR_RING_DROPS},
		{g->stall_s > 0 ? c->hz_floor : c->hz, GOVERNOR_LOOP_STALL},
		{governor_rate_hz(g, g->rate), GOVERNOR_CPU_BUDGET},
		{g->tier ? c->tiers[g->tier].hz : c->hz, GOVERNOR_NODE_LOAD},
	};
	struct governor_cap low = {c->hz, GOVERNOR_WANTED};

	for (size_t i = 0; i < ARRAY_SIZE(caps); i++) {
		if (caps[i].hz < low.hz)
			low = caps[i];
	}
	/* Few distinct periods; those of the tiers are given. */
	if (low.cause == GOVERNOR_RING_DROPS)
		low.hz = governor_rate_hz(g, governor_rate_below(g, low.hz));
	return low;
}

/* The stack may have less for several reasons. Returns the first, or GOVERNOR_WANTED. */
static enum governor_cause set_fidelity(const struct governor *g, const struct governor_inputs *in,
					struct governor_outputs *out)
{
	const struct governor_config *c = &g->config;
	uint32_t depth = c->depth;

	out->unwinder = c->unwinder;
	out->features = c->features;
	if (g->level >= GOVERNOR_LEVEL_NO_BACKGROUND)
		out->features &= ~(GOVERNOR_LINES | GOVERNOR_TABLE_BUILDS);
	if (g->level >= GOVERNOR_LEVEL_NO_OFF_CPU)
		out->features &= ~GOVERNOR_OFF_CPU;
	if (g->level >= GOVERNOR_LEVEL_FRAME_POINTERS)
		out->unwinder = GOVERNOR_FRAME_POINTERS;
	if (g->level >= GOVERNOR_LEVEL_SHALLOW && depth > GOVERNOR_SHALLOW_DEPTH)
		depth = GOVERNOR_SHALLOW_DEPTH;
	if (g->tier && c->tiers[g->tier].unwinder < out->unwinder)
		out->unwinder = c->tiers[g->tier].unwinder;
	if (g->tier && depth > c->tiers[g->tier].depth)
		depth = c->tiers[g->tier].depth;
	out->depth = depth;
	if (g->is_ring_high)
		return in->ring_used_ppm >= c->ring_low_ppm || g->ring_hz > 0 ? GOVERNOR_RING_FILL
									      : GOVERNOR_READER_LAG;
	if (g->stall_s > 0)
		return GOVERNOR_LOOP_STALL;
	if (g->level)
		return GOVERNOR_CPU_BUDGET;
	return g->tier ? GOVERNOR_NODE_LOAD : GOVERNOR_WANTED;
}

static void set_clock(const struct governor *g, double hz, struct governor_outputs *out)
{
	double least = governor_rate_hz(g, g->rate_min);

	out->suppressed_ppm = 0;
	out->is_memory_drop = g->is_pressed;
	if (hz < least) {
		out->suppressed_ppm = (uint32_t)((1 - hz / least) * 1e6 + 0.5);
		if (hz <= governor_rate_hz(g, g->rate_min + GOVERNOR_RATE_SPAN) * 1.01)
			out->suppressed_ppm = 1000000;
		hz = least;
	}
	out->period_ns = (uint64_t)(1e9 / hz + 1e-6);
}

/* Whether stacks or features are below what is wanted. */
static bool is_less(const struct governor_config *c, const struct governor_outputs *out)
{
	return out->depth < c->depth || out->unwinder < c->unwinder || out->features != c->features;
}

static void set_state(struct governor *g, const struct governor_outputs *before,
		      enum governor_cause cause, double dt_s)
{
	struct governor_outputs *out = &g->outputs;
	bool has_reason = out->suppressed_ppm || is_less(&g->config, out) ||
			  cause == GOVERNOR_RING_FILL || cause == GOVERNOR_READER_LAG ||
			  cause == GOVERNOR_LOOP_STALL;

	g->no_reason_s = has_reason ? 0 : g->no_reason_s + dt_s;
	if (out->suppressed_ppm && before->state != GOVERNOR_NORMAL) {
		out->state = GOVERNOR_SUPPRESSED;
	} else if (out->suppressed_ppm) {
		/* Fidelity goes before data, if only for one period. */
		out->suppressed_ppm = 0;
		out->state = GOVERNOR_DEGRADED;
	} else if (before->state == GOVERNOR_NORMAL && !has_reason) {
		out->state = GOVERNOR_NORMAL;
	} else {
		out->state = before->state != GOVERNOR_SUPPRESSED && !has_reason &&
					     g->no_reason_s >= STATE_CALM_S
				     ? GOVERNOR_NORMAL
				     : GOVERNOR_DEGRADED;
	}
	/* What degraded means for stacks when it is no tier's and no level's doing. */
	if (out->state == GOVERNOR_SUPPRESSED || cause == GOVERNOR_RING_FILL ||
	    cause == GOVERNOR_READER_LAG || cause == GOVERNOR_LOOP_STALL ||
	    (out->state == GOVERNOR_DEGRADED && g->is_pressed)) {
		out->unwinder = GOVERNOR_FRAME_POINTERS;
		if (out->depth > GOVERNOR_SHALLOW_DEPTH)
			out->depth = GOVERNOR_SHALLOW_DEPTH;
	}
}

static void say_cause(const struct governor *g, const struct governor_inputs *in, char *text,
		      size_t size)
{
	const struct governor_outputs *out = &g->outputs;
	double share = in->reached ? (double)in->ring_dropped / (double)in->reached : 0;

	switch (out->cause) {
	case GOVERNOR_CPU_BUDGET:
		snprintf(text, size, "cost %.2f %% of %.2f %% allowed", out->cost_ppm / 1e4,
			 g->config.cpu_budget_ppm / 1e4);
		break;
	case GOVERNOR_NODE_LOAD:
		snprintf(text, size, "node CPU %.0f %%, tier %" PRIu32, out->node_busy_ppm / 1e4,
			 out->tier);
		break;
	case GOVERNOR_RING_DROPS:
		snprintf(text, size, "ring %.0f %% full, %.0f %% of samples lost there",
			 in->ring_used_ppm / 1e4, share * 100);
		break;
	case GOVERNOR_RING_FILL:
		snprintf(text, size, "ring %.0f %% full", in->ring_used_ppm / 1e4);
		break;
	case GOVERNOR_READER_LAG:
		snprintf(text, size, "oldest unread record is %.1f s old",
			 (double)in->ring_lag_ns / 1e9);
		break;
	case GOVERNOR_MEMORY_BUDGET:
		snprintf(text, size, "tables are held to %.1f MiB",
			 (double)out->table_budget_bytes / 1048576);
		break;
	case GOVERNOR_MEMORY_PRESSURE:
		snprintf(text, size, "memory pressure: some %.0f %%, full %.0f %% of the time",
			 in->pressure_some_ppm / 1e4, in->pressure_full_ppm / 1e4);
		break;
	case GOVERNOR_LOOP_STALL:
		snprintf(text, size, "flyball's own loop stood still");
		break;
	default:
		snprintf(text, size, "nothing holds it back");
	}
}

static void say(struct governor *g, const struct governor_inputs *in)
{
	struct governor_outputs *out = &g->outputs;
	char cause[100];

	say_cause(g, in, cause, sizeof(cause));
	snprintf(out->reason, sizeof(out->reason), "%s: %.4g Hz, %s, depth %" PRIu32 "%s%s", cause,
		 1e9 / (double)out->period_ns,
		 out->unwinder == GOVERNOR_TABLES ? "tables" : "frame pointers", out->depth,
		 out->features == g->config.features ? "" : ", without some features",
		 !out->suppressed_ppm		  ? ""
		 : out->suppressed_ppm == 1000000 ? ", all samples dropped"
						  : ", some samples dropped");
}

static bool differs(const struct governor_outputs *a, const struct governor_outputs *b)
{
	return a->state != b->state || a->tier != b->tier || a->level != b->level ||
	       a->period_ns != b->period_ns || a->depth != b->depth || a->unwinder != b->unwinder ||
	       a->features != b->features || a->suppressed_ppm != b->suppressed_ppm ||
	       a->table_budget_bytes != b->table_budget_bytes || a->must_stop != b->must_stop;
}

/* Rate, fidelity, state, cause from what the limits left. */
static void decide(struct governor *g, const struct governor_inputs *in,
		   const struct governor_outputs *before, double dt_s)
{
	struct governor_outputs *out = &g->outputs;
	struct governor_cap low = lowest(g);
	enum governor_cause cause;

	out->tier = g->tier;
	out->level = g->level;
	cause = set_fidelity(g, in, out);
	set_clock(g, low.hz, out);
	set_state(g, before, cause, dt_s);
	out->cause = low.cause != GOVERNOR_WANTED ? low.cause : cause;
	if (out->cause == GOVERNOR_WANTED && out->table_budget_bytes < g->config.table_budget_bytes)
		out->cause = g->pressed_s > 0 ? GOVERNOR_MEMORY_PRESSURE : GOVERNOR_MEMORY_BUDGET;
	g->applied_hz = 1e9 / (double)out->period_ns * (1 - out->suppressed_ppm / 1e6);
}

const struct governor_outputs *governor_step(struct governor *g, const struct governor_inputs *in,
					     uint64_t dt_ns)
{
	struct governor_outputs before = g->outputs;
	double dt_s = (double)dt_ns / 1e9;

	if (!dt_ns || !in->cpus)
		return &g->outputs;
	governor_cost_take(g, in, dt_ns);
	governor_cost_mean(g);
	g->stall_s = dt_ns >= GOVERNOR_STALL_NS ? STALL_S + dt_s : g->stall_s;
	g->stall_s = g->stall_s > dt_s ? g->stall_s - dt_s : 0;
	governor_ladder_step(g, in, dt_s);
	governor_ring_step(g, in, dt_s); /* its drops ask for a tier */
	governor_tier_step(g, dt_s);
	governor_memory_step(g, in, dt_s);
	decide(g, in, &before, dt_s);
	g->outputs.is_changed = !g->steps++ || differs(&g->outputs, &before);
	if (g->outputs.is_changed)
		say(g, in);
	return &g->outputs;
}
