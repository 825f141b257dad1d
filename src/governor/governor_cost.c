// SPDX-License-Identifier: Apache-2.0
/*
 * cost: what profiling costs, and what it would cost at another rate.
 *
 * The cost of a tick is a quotient of sums over the same time, so it does not lag behind a rate
 * that was just changed. Of a quick and a slow mean the dearer one counts: what rises is seen at
 * once, what falls is believed later.
 */
#include "governor/governor_internal.h"

#define FAST_S	    0.2
#define FAST_MOST_S 1.0
#define FAST_TICKS  20.0 /* the quick mean covers at least about so many */
#define SLOW_S	    2.0

static uint64_t cost_of(const struct governor_inputs *in)
{
	return in->sampling_ns + in->background_ns + in->bpf_ns + in->ticks * in->tick_ns;
}

/* Suppressed ticks count as none: what they cost is shared by the rest, or is background. */
static void mean_add(const struct governor *g, struct governor_mean *m,
		     const struct governor_inputs *in, double dt_s, double ticks_s,
		     double background_s)
{
	double keep = ticks_s / (ticks_s + dt_s), background_ns = (double)in->background_ns;
	double cost_ns = (double)(in->sampling_ns + in->bpf_ns + in->ticks * in->tick_ns);
	double ticks = (double)in->ticks * (1 - g->outputs.suppressed_ppm / 1e6);

	if (ticks <= 0) {
		background_ns += cost_ns;
		cost_ns = 0;
	}
	m->cost_ns = m->cost_ns * keep + cost_ns;
	m->ticks = m->ticks * keep + ticks;
	keep = background_s / (background_s + dt_s);
	m->background_ns = m->background_ns * keep + background_ns;
	m->seconds = m->seconds * keep + dt_s;
}

void governor_cost_take(struct governor *g, const struct governor_inputs *in, uint64_t dt_ns)
{
	double dt_s = (double)dt_ns / 1e9, fast_s = FAST_S;
	struct governor_moment *m = &g->window[g->window_next++ % GOVERNOR_WINDOW];

	*m = (struct governor_moment){dt_ns, cost_of(in), in->node_busy_ns, in->node_capacity_ns};
	if ((double)in->ticks * FAST_S < FAST_TICKS * dt_s)
		fast_s = in->ticks ? FAST_TICKS * dt_s / (double)in->ticks : FAST_MOST_S;
	mean_add(g, &g->fast, in, dt_s, fast_s < FAST_MOST_S ? fast_s : FAST_MOST_S, FAST_S);
	mean_add(g, &g->slow, in, dt_s, SLOW_S, SLOW_S);
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double tick_cost(const struct governor *g)
{
	/* A sum that has faded away says nothing. */
	double fast = g->fast.ticks > 1 ? g->fast.cost_ns / g->fast.ticks : 0;
	double slow = g->slow.ticks > 1 ? g->slow.cost_ns / g->slow.ticks : 0;
	double cost = larger(fast, slow);

	return cost > 0 ? cost : (double)g->config.tick_cost_ns;
}

static double background(const struct governor *g)
{
	double fast = g->fast.seconds > 0 ? g->fast.background_ns / g->fast.seconds : 0;
	double slow = g->slow.seconds > 0 ? g->slow.background_ns / g->slow.seconds : 0;

	return larger(fast, slow);
}

double governor_cost_at(const struct governor *g, const struct governor_inputs *in, double hz)
{
	return (background(g) + tick_cost(g) * hz * in->cpus) / (1e9 * in->cpus);
}

double governor_cost_slow(const struct governor *g, const struct governor_inputs *in, double hz)
{
	const struct governor_mean *m = &g->slow;
	double cost = m->ticks > 1 ? m->cost_ns / m->ticks : (double)g->config.tick_cost_ns;

	return (m->background_ns / m->seconds + cost * hz * in->cpus) / (1e9 * in->cpus);
}

double governor_cost_rate(const struct governor *g, const struct governor_inputs *in, double share)
{
	double cost = tick_cost(g), left = share * 1e9 * in->cpus - background(g);

	if (left <= 0)
		return 0;
	return cost > 0 ? left / (cost * in->cpus) : g->config.hz;
}

double governor_cost_last(const struct governor *g)
{
	const struct governor_moment *m = &g->window[(g->window_next - 1) % GOVERNOR_WINDOW];

	return m->capacity_ns ? (double)m->cost_ns / (double)m->capacity_ns : 0;
}

static uint32_t ppm(uint64_t part, uint64_t whole)
{
	double share = whole ? (double)part / (double)whole : 0;

	return share < 1 ? (uint32_t)(share * 1e6 + 0.5) : 1000000;
}

void governor_cost_mean(struct governor *g)
{
	struct governor_moment sum = {0};

	for (uint32_t i = 1; i <= GOVERNOR_WINDOW && sum.dt_ns < 1000000000; i++) {
		const struct governor_moment *m =
			&g->window[(g->window_next - i) % GOVERNOR_WINDOW];

		sum.dt_ns += m->dt_ns;
		sum.cost_ns += m->cost_ns;
		sum.busy_ns += m->busy_ns;
		sum.capacity_ns += m->capacity_ns;
	}
	g->outputs.cost_ppm = ppm(sum.cost_ns, sum.capacity_ns);
	g->outputs.node_busy_ppm = ppm(sum.busy_ns, sum.capacity_ns);
}
