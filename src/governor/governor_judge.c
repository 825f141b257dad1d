// SPDX-License-Identifier: Apache-2.0
/*
 * judge: the rules a governor must keep, checked at every step of a simulation. It works out for
 * itself what it needs and believes no figure of the governor's.
 */
#include "governor/governor_sim.h"

#include <inttypes.h>
#include <string.h>

#define BUDGET_SLACK	1.02
#define BUDGET_S	2.0
#define FEW_SAMPLES	20 /* per second; with fewer no cost can be told from noise so soon */
#define BUDGET_FEW_S	3.0
#define HELPLESS	0.6 /* of the budget goes to what nothing can switch off */
#define USE_SAMPLES	30  /* per second */
#define USE_SHARE	0.7
#define USE_AFTER_S	60.0
#define USE_S		5.0
#define CALM_AFTER_S	20.0
#define CALM_S		60.0
#define CALM_TURNS	6 /* changes of direction in that time */
#define CALM_RATE_TURNS 12
#define RECOVERY_S	240.0
#define CLEAR_SHARE	0.55 /* of the budget: then all that is wanted is affordable for sure */

const char *governor_rule_text(enum governor_rule rule)
{
	static const char *const texts[GOVERNOR_RULES] = {
		"over the CPU budget for at most 2 s",
		"70 % of the budget is used where the rate is what gives",
		"the tier follows the node's load within one period",
		"drops above the limit halve the samples",
		"fidelity goes in the ladder's order",
		"fidelity goes before data: no state is skipped",
		"when nothing changes, nothing swings",
		"when nothing is in the way, all is as wanted",
		"every sample is accounted for",
	};

	return (unsigned int)rule < GOVERNOR_RULES ? texts[rule] : "";
}

void governor_judge_init(struct governor_judge *judge)
{
	memset(judge, 0, sizeof(*judge));
}

uint64_t governor_judge_violations(const struct governor_judge *judge)
{
	uint64_t sum = 0;

	for (int i = 0; i < GOVERNOR_RULES; i++)
		sum += judge->violations[i];
	return sum;
}

__attribute__((format(printf, 4, 5))) static void broken(struct governor_judge *judge,
							 enum governor_rule rule, double time_s,
							 const char *fmt, ...)
{
	va_list ap;

	if (judge->violations[rule]++)
		return;
	judge->first_s[rule] = time_s;
	va_start(ap, fmt);
	vsnprintf(judge->first_text[rule], sizeof(judge->first_text[rule]), fmt, ap);
	va_end(ap);
}

static double hz_of(const struct governor_outputs *out)
{
	return 1e9 / (double)out->period_ns * (1 - out->suppressed_ppm / 1e6);
}

static double samples_per_s(const struct governor_sim_point *p)
{
	return hz_of(&p->outputs) * p->now[SIM_CPUS] * p->now[SIM_LOAD];
}

static void look_at_budget(struct governor_judge *judge, const struct governor_config *c,
			   const struct governor_sim_point *p)
{
	double budget = c->cpu_budget_ppm / 1e6, limit_s = BUDGET_S;
	bool is_helpless = p->least_share > budget * HELPLESS;

	if (p->expected_share > budget * BUDGET_SLACK && !is_helpless && p->dt_s < 1)
		judge->over_s += p->dt_s;
	else
		judge->over_s = 0;
	if (samples_per_s(p) < FEW_SAMPLES)
		limit_s = BUDGET_FEW_S;
	if (judge->over_s > limit_s + 0.05)
		broken(judge, GOVERNOR_RULE_BUDGET, p->time_s, "%.3f %% of %.3f %% for %.1f s",
		       p->expected_share * 100, budget * 100, judge->over_s);
}

/* Where only the rate was lowered, and only for the budget, and is not on its way up. */
static void look_at_use(struct governor_judge *judge, const struct governor_config *c,
			const struct governor_sim_point *p, double steady_s)
{
	double budget = c->cpu_budget_ppm / 1e6;
	bool counts = steady_s > USE_AFTER_S && p->outputs.cause == GOVERNOR_CPU_BUDGET &&
		      !p->outputs.level && !p->outputs.suppressed_ppm &&
		      samples_per_s(p) >= USE_SAMPLES && p->expected_share < budget * USE_SHARE &&
		      hz_of(&p->outputs) <= hz_of(&p->before);

	judge->low_s = counts ? judge->low_s + p->dt_s : 0;
	if (judge->low_s > USE_S)
		broken(judge, GOVERNOR_RULE_USE, p->time_s, "%.3f %% of %.3f %% for %.1f s",
		       p->expected_share * 100, budget * 100, judge->low_s);
}

static void look_at_tier(struct governor_judge *judge, const struct governor_config *c,
			 const struct governor_sim_point *p)
{
	uint32_t at = judge->busy_next++ % ARRAY_SIZE(judge->busy), tier = 0;
	const struct governor_tier *t;
	double busy = 0, capacity = 0, seconds = 0;

	judge->busy[at] = p->busy_share * p->capacity_s;
	judge->capacity[at] = p->capacity_s;
	judge->busy_dt[at] = p->dt_s;
	for (uint32_t i = 0; i < ARRAY_SIZE(judge->busy) && seconds < 1 - 1e-6; i++) {
		uint32_t k = (at + (uint32_t)ARRAY_SIZE(judge->busy) - i) %
			     (uint32_t)ARRAY_SIZE(judge->busy);

		busy += judge->busy[k];
		capacity += judge->capacity[k];
		seconds += judge->busy_dt[k];
	}
	if (!c->has_tiers || judge->steps < ARRAY_SIZE(judge->busy) || p->dt_s > 0.5)
		return;
	for (uint32_t i = 1; i < GOVERNOR_TIERS; i++) {
		/* A hair's breadth of slack for rounding. */
		if (busy / capacity >= c->tiers[i].busy_ppm / 1e6 + 1e-5)
			tier = i;
	}
	if (p->reached && (double)p->ring_dropped > (double)p->reached * c->drop_limit_ppm / 1e6)
		tier = GOVERNOR_TIERS - 1;
	t = &c->tiers[tier];
	if (p->outputs.tier < tier ||
	    (tier && (hz_of(&p->outputs) > t->hz * 1.001 || p->outputs.depth > t->depth ||
		      p->outputs.unwinder > t->unwinder)))
		broken(judge, GOVERNOR_RULE_TIER, p->time_s,
		       "node at %.1f %%, tier %" PRIu32 " at %.1f Hz instead of tier %" PRIu32,
		       busy / capacity * 100, p->outputs.tier, hz_of(&p->outputs), tier);
}

static void look_at_backoff(struct governor_judge *judge, const struct governor_config *c,
			    const struct governor_sim_point *p)
{
	double before = hz_of(&p->before), now = hz_of(&p->outputs);

	if (!p->ring_dropped ||
	    (double)p->ring_dropped <= (double)p->reached * c->drop_limit_ppm / 1e6)
		return;
	/* The first drop may meet NORMAL: then one period of DEGRADED at the lowest rate. */
	if (now > before * 0.501 && now > c->hz_min * 1.1)
		broken(judge, GOVERNOR_RULE_BACKOFF, p->time_s, "%.1f Hz after %.1f Hz", now,
		       before);
}

/* What a level has given up, all that is before it in the order has been given up too. */
static void look_at_order(struct governor_judge *judge, const struct governor_config *c,
			  const struct governor_sim_point *p)
{
	const struct governor_outputs *out = &p->outputs;
	const char *fault = NULL;

	/* The ring, memory and stalls cut stacks, too, and stay in force for a while. */
	if (p->ring_share > c->ring_low_ppm / 1e6 || p->now[SIM_LOOP_STALL] >= 0.5 ||
	    p->now[SIM_DRAIN] < hz_of(out) * p->now[SIM_CPUS] || p->now[SIM_PRESSURE_SOME] > 0 ||
	    p->dt_s > 0.5)
		judge->quiet_s = 0;
	else
		judge->quiet_s += p->dt_s;
	if (out->cause != GOVERNOR_CPU_BUDGET || judge->quiet_s < 10)
		return;
	if (out->features != c->features && hz_of(out) > c->hz_floor * 1.1)
		fault = "a feature was given up before the rate";
	else if (out->state == GOVERNOR_SUPPRESSED &&
		 (out->features || out->unwinder != GOVERNOR_FRAME_POINTERS || out->depth > 32))
		fault = "samples were given up before fidelity";
	else if (!out->tier && out->unwinder < c->unwinder && out->state != GOVERNOR_SUPPRESSED &&
		 (out->features & c->features) && p->before.state != GOVERNOR_SUPPRESSED &&
		 out->level)
		fault = "the unwinder was given up before a feature";
	if (fault)
		broken(judge, GOVERNOR_RULE_ORDER, p->time_s, "%s", fault);
}

static void look_at_state(struct governor_judge *judge, const struct governor_sim_point *p)
{
	if ((p->before.state == GOVERNOR_NORMAL && p->outputs.state == GOVERNOR_SUPPRESSED) ||
	    (p->before.state == GOVERNOR_SUPPRESSED && p->outputs.state == GOVERNOR_NORMAL))
		broken(judge, GOVERNOR_RULE_NEIGHBOUR, p->time_s, "from %s to %s",
		       governor_state_name(p->before.state), governor_state_name(p->outputs.state));
	if (p->outputs.suppressed_ppm && p->outputs.state != GOVERNOR_SUPPRESSED)
		broken(judge, GOVERNOR_RULE_NEIGHBOUR, p->time_s, "samples dropped while %s",
		       governor_state_name(p->outputs.state));
}

/* Notes a move; a turn is one in the other direction than the last. */
static void note_turn(struct governor_judge *judge, int which, int *direction, double change,
		      double time_s)
{
	int now = change > 0 ? 1 : -1;

	if (change == 0)
		return;
	if (*direction == -now)
		judge->turns[which][judge->turn_count[which]++ % SIM_TURNS] = time_s;
	*direction = now;
}

static uint32_t turns_since(const struct governor_judge *judge, int which, double since_s)
{
	uint32_t count = 0, kept = judge->turn_count[which];

	for (uint32_t i = 0; i < (kept < SIM_TURNS ? kept : SIM_TURNS); i++)
		count += judge->turns[which][i] >= since_s;
	return count;
}

static void look_at_calm(struct governor_judge *judge, const struct governor_sim_point *p,
			 double steady_s)
{
	double since_s = p->time_s - CALM_S, change = hz_of(&p->outputs) - hz_of(&p->before);

	if (p->time_s - steady_s + CALM_AFTER_S > since_s)
		since_s = p->time_s - steady_s + CALM_AFTER_S;
	note_turn(judge, 0, &judge->level_direction,
		  (double)p->outputs.level - (double)p->before.level, p->time_s);
	note_turn(judge, 0, &judge->tier_direction,
		  (double)p->outputs.tier - (double)p->before.tier, p->time_s);
	if (samples_per_s(p) >= FEW_SAMPLES)
		note_turn(judge, 1, &judge->rate_direction, change, p->time_s);
	if (steady_s < CALM_AFTER_S)
		return;
	if (turns_since(judge, 0, since_s) > CALM_TURNS)
		broken(judge, GOVERNOR_RULE_CALM, p->time_s,
		       "tier or level swings: %" PRIu32 " turns in a minute",
		       turns_since(judge, 0, since_s));
	if (turns_since(judge, 1, since_s) > CALM_RATE_TURNS)
		broken(judge, GOVERNOR_RULE_CALM, p->time_s,
		       "the rate swings: %" PRIu32 " turns in a minute",
		       turns_since(judge, 1, since_s));
}

static bool is_clear(const struct governor_sim *sim, const struct governor_sim_point *p)
{
	const struct governor_config *c = &sim->scenario->config;
	double records = c->hz * p->now[SIM_CPUS];

	return p->wanted_share < c->cpu_budget_ppm / 1e6 * CLEAR_SHARE &&
	       (!c->has_tiers || p->now[SIM_LOAD] * (1 + 3 * p->now[SIM_NOISE]) + p->wanted_share <
					 c->tiers[1].busy_ppm / 1e6 - 0.06) &&
	       p->now[SIM_DRAIN] > records * 2 &&
	       (double)sim->scenario->ring_bytes > records * 0.2 * (88 + 8.0 * c->depth) * 2 &&
	       p->now[SIM_PRESSURE_SOME] < 0.1 && p->now[SIM_PRESSURE_FULL] < 0.01 &&
	       p->now[SIM_LOOP_STALL] < 0.5;
}

static void look_at_recovery(struct governor_judge *judge, const struct governor_sim *sim,
			     const struct governor_sim_point *p, double steady_s)
{
	const struct governor_config *c = &sim->scenario->config;
	const struct governor_outputs *out = &p->outputs;

	if (steady_s < RECOVERY_S || !is_clear(sim, p))
		return;
	if (out->state != GOVERNOR_NORMAL || hz_of(out) < c->hz * 0.999 || out->level ||
	    out->tier || out->depth != c->depth || out->unwinder != c->unwinder ||
	    out->features != c->features)
		broken(judge, GOVERNOR_RULE_RECOVERY, p->time_s,
		       "still %s, level %" PRIu32 ", tier %" PRIu32 ", %.1f Hz after %.0f s",
		       governor_state_name(out->state), out->level, out->tier, hz_of(out),
		       steady_s);
}

static void look_at_ledger(struct governor_judge *judge, const struct governor_sim *sim,
			   double time_s)
{
	const struct governor_sim_ledger *l = &sim->ledger;
	uint64_t known = l->delivered + l->ring_full + l->suppressed + l->memory_pressure +
			 sim->ring_records;

	if (l->taken != known || l->ticks != l->idle + l->taken)
		broken(judge, GOVERNOR_RULE_LEDGER, time_s,
		       "%" PRIu64 " taken, %" PRIu64 " accounted for", l->taken, known);
}

void governor_judge_look(struct governor_judge *judge, const struct governor_sim *sim,
			 const struct governor_sim_point *p)
{
	const struct governor_config *c = &sim->scenario->config;
	double steady_s = governor_sim_steady_s(sim->scenario, p->time_s);

	look_at_budget(judge, c, p);
	look_at_use(judge, c, p, steady_s);
	look_at_tier(judge, c, p);
	look_at_backoff(judge, c, p);
	look_at_order(judge, c, p);
	look_at_state(judge, p);
	look_at_calm(judge, p, steady_s);
	look_at_recovery(judge, sim, p, steady_s);
	look_at_ledger(judge, sim, p->time_s);
	judge->steps++;
}
