/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor_sim: a simulated node around governor_step, and a judge of what comes out. For
 * `flyball governor --simulate` and for tests. Pure; the noise comes from a seed.
 *
 * A scenario is text, one thing per line (docs/governor.md has every key):
 *   title TEXT
 *   set budget=1.5% hz=19 depth=64 unwinder=tables tiers=on ring=1MiB ...    what flyball is told
 *   node cpus=4 load=30% tick=48us ...                                       the node at the start
 *   at 10s [over 5s] load=85% drain=0 ...                                    what changes, and when
 *   end 60s
 */
#ifndef FLYBALL_GOVERNOR_SIM_H
#define FLYBALL_GOVERNOR_SIM_H

#include "governor/governor.h"

/* What a node is like; all of it can change while it runs. */
enum governor_sim_key {
	SIM_CPUS,
	SIM_LOAD,  /* share of the CPUs others use */
	SIM_NOISE, /* relative, of load and costs */
	SIM_TICK,  /* seconds, as the rest of costs: the interrupt */
	SIM_WALK,  /* of one sample by frame pointers */
	SIM_FRAME, /* more of it for each frame by tables */
	SIM_STACK, /* frames that stacks have */
	SIM_READ,  /* own processes, for one record */
	SIM_LOOP,  /* own processes, each second, whatever the rate */
	/* CPU time wanted in the background, of one CPU, while the feature is on. */
	SIM_LINES,
	SIM_BUILDS,
	SIM_OFF_CPU,
	SIM_NAMES,	   /* has no switch */
	SIM_DRAIN,	   /* records the reader takes per second and no more; 0: it stands still */
	SIM_LOOP_STALL,	   /* 1: our whole loop stands still */
	SIM_PRESSURE_SOME, /* PSI, share of time */
	SIM_PRESSURE_FULL,
	SIM_KEYS,
};

#define SIM_CHANGES_MAX 256
struct governor_sim_change {
	double at_s, over_s, value;
	enum governor_sim_key key;
};
struct governor_scenario {
	char title[120];
	struct governor_config config;
	uint64_t ring_bytes;
	uint64_t table_bytes; /* that unwinding everything would take */
	double start[SIM_KEYS];
	struct governor_sim_change changes[SIM_CHANGES_MAX];
	size_t change_count;
	double end_s;
	uint64_t seed;
};
void governor_scenario_init(struct governor_scenario *scenario);
/* -EBADMSG, -ERANGE with a sentence that names the line. */
int governor_scenario_parse(const char *text, struct governor_scenario *ret, struct why *why);

/* ---------------------------------------------------------------- the node */
#define SIM_BATCHES 512
struct governor_sim_batch {
	double made_s;
	uint64_t records, bytes;
};
struct governor_sim_ledger {
	uint64_t ticks, idle, taken, delivered, ring_full, suppressed, memory_pressure;
};
/* One control period. */
struct governor_sim_point {
	double time_s, dt_s;
	double now[SIM_KEYS];  /* conditions */
	double capacity_s;     /* CPU time there was */
	double cost_share;     /* what it truly cost, of the node */
	double expected_share; /* the same without noise, at what was decided just now */
	double least_share;    /* with everything given up that can be */
	double wanted_share;   /* with nothing given up */
	double busy_share;     /* of the period */
	double ring_share;     /* fullest in the period */
	uint64_t reached, ring_dropped;
	uint64_t degraded; /* records with less of a stack than wanted */
	struct governor_outputs before, outputs;
};
typedef const struct governor_outputs *(*governor_step_fn)(struct governor *governor,
							   const struct governor_inputs *inputs,
							   uint64_t dt_ns);
struct governor_sim {
	const struct governor_scenario *scenario;
	governor_step_fn step;
	struct governor governor;
	double time_s;
	double now[SIM_KEYS];
	uint64_t random;
	struct governor_sim_batch ring[SIM_BATCHES];
	uint32_t ring_first, ring_count;
	uint64_t ring_used, ring_records, table_bytes;
	struct governor_sim_ledger ledger;
	bool is_watchdog_out; /* it has switched sampling off, since the loop stands still */
};
/* step: governor_step, or a broken one. The scenario must outlive it. */
void governor_sim_init(struct governor_sim *sim, const struct governor_scenario *scenario,
		       governor_step_fn step);
/* Lives through one control period, or a whole stall. False: the scenario is over. */
bool governor_sim_step(struct governor_sim *sim, struct governor_sim_point *ret);
/* Seconds since the last change of conditions was through; -1 while one goes on. */
double governor_sim_steady_s(const struct governor_scenario *scenario, double time_s);

/* ---------------------------------------------------------------- the judge */
enum governor_rule {
	GOVERNOR_RULE_BUDGET,	 /* over budget for at most 2 s */
	GOVERNOR_RULE_USE,	 /* where the rate is what gives, 70 % of the budget is used */
	GOVERNOR_RULE_TIER,	 /* the tier that the last second's load asks for, or a lower one */
	GOVERNOR_RULE_BACKOFF,	 /* drops above the limit halve the samples */
	GOVERNOR_RULE_ORDER,	 /* the ladder's order */
	GOVERNOR_RULE_NEIGHBOUR, /* NORMAL, DEGRADED, SUPPRESSED: never past the middle */
	GOVERNOR_RULE_CALM,	 /* when nothing changes, little is changed */
	GOVERNOR_RULE_RECOVERY,	 /* when nothing is in the way, all is as wanted */
	GOVERNOR_RULE_LEDGER,	 /* taken = delivered + dropped + in the ring */
	GOVERNOR_RULES,
};
const char *governor_rule_text(enum governor_rule rule);

#define SIM_TURNS 16
struct governor_judge {
	double over_s;
	double low_s, quiet_s;
	/* Times of the last changes of direction: of tier and level, and of the rate. */
	double turns[2][SIM_TURNS];
	uint32_t turn_count[2];
	int rate_direction, level_direction, tier_direction;
	double busy[10], capacity[10], busy_dt[10];
	uint32_t busy_next;
	uint32_t steps;
	uint64_t violations[GOVERNOR_RULES];
	double first_s[GOVERNOR_RULES]; /* when each was first broken */
	char first_text[GOVERNOR_RULES][160];
};
void governor_judge_init(struct governor_judge *judge);
void governor_judge_look(struct governor_judge *judge, const struct governor_sim *sim,
			 const struct governor_sim_point *point);
uint64_t governor_judge_violations(const struct governor_judge *judge);

#endif
