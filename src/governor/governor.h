/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor: holds the cost of profiling under its budgets, and says why it did what it did.
 *
 * Pure: no system call, no clock, no memory of its own. The caller measures, calls governor_step
 * every 100 ms with what it measured since the last call, and does what comes out. docs/governor.md
 * has the rules in words, with pictures; `flyball governor --simulate` plays them.
 *
 * Three things decide, each on its own, and the lowest wins:
 *   the CPU budget  one ladder, in one order: rate, features, unwinder, depth, rate again, samples
 *   the tiers       by node CPU, floors of policy (CPU-2, CPU-3)
 *   the ring, the memory and stalls of our own loop
 * Down at once, up slowly; a way up that failed is tried again later, each time twice as late.
 *
 * A caller's struct governor belongs to one thread.
 */
#ifndef FLYBALL_GOVERNOR_H
#define FLYBALL_GOVERNOR_H

#include "base/base.h"

#define GOVERNOR_PERIOD_NS 100000000ULL /* the control period */
#define GOVERNOR_STALL_NS  1000000000ULL

/* What the kernel side is told (RING-1). DEGRADED: stacks or features are below what is wanted; a
 * lower rate alone is not, since weights stay exact. SUPPRESSED: some or all samples are dropped,
 * counted. Only neighbours follow each other: fidelity goes before data (RING-5). */
enum governor_state { GOVERNOR_NORMAL, GOVERNOR_DEGRADED, GOVERNOR_SUPPRESSED };

enum governor_unwinder { GOVERNOR_FRAME_POINTERS, GOVERNOR_TABLES };

/* Bits of what costs beside sampling. */
#define GOVERNOR_LINES	      0x1u /* source lines and inlined calls are looked up */
#define GOVERNOR_TABLE_BUILDS 0x2u /* new unwind tables are made */
#define GOVERNOR_OFF_CPU      0x4u
#define GOVERNOR_FEATURES     0x7u

/* The ladder's steps beside the rate, in the order they are given up (docs/governor.md). */
enum governor_level {
	GOVERNOR_LEVEL_WHOLE,
	GOVERNOR_LEVEL_NO_BACKGROUND, /* lines and table builds wait */
	GOVERNOR_LEVEL_NO_OFF_CPU,
	GOVERNOR_LEVEL_FRAME_POINTERS,
	GOVERNOR_LEVEL_SHALLOW,
	GOVERNOR_LEVELS,
};
#define GOVERNOR_LEVEL_LAST GOVERNOR_LEVEL_SHALLOW

/* What a decision came from. */
enum governor_cause {
	GOVERNOR_WANTED, /* nothing holds it back */
	GOVERNOR_CPU_BUDGET,
	GOVERNOR_NODE_LOAD,
	GOVERNOR_RING_DROPS,
	GOVERNOR_RING_FILL,
	GOVERNOR_READER_LAG,
	GOVERNOR_MEMORY_BUDGET,
	GOVERNOR_MEMORY_PRESSURE,
	GOVERNOR_LOOP_STALL,
	GOVERNOR_CAUSES,
};
/* "cpu_budget": stable, for --json and metrics. */
const char *governor_cause_name(enum governor_cause cause);
const char *governor_state_name(enum governor_state state);

/* A floor of policy: in force from busy_ppm of the node's CPU on. */
#define GOVERNOR_TIERS 3
struct governor_tier {
	uint32_t busy_ppm;
	uint32_t hz, depth;
	enum governor_unwinder unwinder;
};

struct governor_config {
	uint32_t cpu_budget_ppm; /* of the node's capacity: all CPUs */
	uint32_t hz, depth;	 /* wanted */
	enum governor_unwinder unwinder;
	uint32_t features;
	uint32_t hz_floor; /* features go rather than a rate below this */
	uint32_t hz_min;   /* samples are suppressed rather than a rate below this */
	bool has_tiers;
	struct governor_tier tiers[GOVERNOR_TIERS]; /* [0]: what is wanted, whatever it says */
	uint32_t ring_high_ppm, ring_low_ppm;
	uint32_t drop_limit_ppm;      /* of the samples that reached the ring (CPU-4) */
	uint64_t memory_budget_bytes; /* kernel memory of all maps; 0: not watched */
	uint64_t table_budget_bytes;  /* most that tables may have of it */
	bool is_strict;		      /* stop rather than exceed the memory budget (MEM-6) */
	/* The calibrated cost of a tick with all it brings, for the first second; 0: not known. */
	uint64_t tick_cost_ns;
};
/* 1.5 %, 19 Hz, depth 64, tables, all features, tiers of CPU-3 on. */
void governor_config_init(struct governor_config *config);
/* -EINVAL, -ERANGE with a sentence. */
int governor_config_check(const struct governor_config *config, struct why *why);

/* Measured since the last step, but where it says "now". */
struct governor_inputs {
	uint32_t cpus;		   /* online now */
	uint64_t node_busy_ns;	   /* CPU time of everybody */
	uint64_t node_capacity_ns; /* and what all CPUs had: busy and idle */
	/* The parts of our cost. What goes with samples and what does not are kept apart: only
	 * the first falls with the rate. */
	uint64_t sampling_ns;	/* own processes, work on samples */
	uint64_t background_ns; /* own processes, all else; events that are not ticks */
	uint64_t bpf_ns;	/* run time of our programs at ticks */
	uint64_t ticks;		/* of all CPUs, idle ones too */
	uint64_t tick_ns;	/* calibrated, of the interrupt alone */
	uint64_t reached;	/* samples that were taken and not suppressed */
	uint64_t ring_dropped;	/* of these, for want of room */
	uint32_t ring_used_ppm; /* now */
	uint64_t ring_lag_ns;	/* now: age of the oldest unread record */
	uint64_t memory_bytes;	/* now: kernel memory of all maps */
	uint64_t table_bytes;	/* now: of tables */
	uint32_t pressure_some_ppm, pressure_full_ppm; /* PSI: share of the time since */
	uint32_t memory_high_events;		       /* of our cgroup */
};

struct governor_outputs {
	enum governor_state state;
	uint32_t tier;	    /* in force */
	uint32_t level;	    /* steps of the ladder given up, rate left out */
	uint64_t period_ns; /* of the sample clock: the weight of a tick */
	uint32_t depth;
	enum governor_unwinder unwinder;
	uint32_t features;
	uint32_t suppressed_ppm; /* share of samples to be dropped before their stack is walked */
	bool is_memory_drop;	 /* they are dropped as memory_pressure, not as suppressed */
	uint64_t table_budget_bytes;
	bool must_stop; /* STRICT, and the memory budget is exceeded */

	bool is_changed;
	enum governor_cause cause; /* what holds it back most */
	char reason[200];	   /* of the last change, one line */
	/* Means of the last second. */
	uint32_t cost_ppm, node_busy_ppm;
};

/* ---------------------------------------------------------------- state: caller's memory */
#define GOVERNOR_WINDOW 32
struct governor_moment {
	uint64_t dt_ns, cost_ns, busy_ns, capacity_ns;
};
/* Sums that fade: cost per tick, and background per second. */
struct governor_mean {
	double cost_ns, ticks;
	double background_ns, seconds;
};
/* Waits before a way up is tried; doubles when it failed. */
struct governor_patience {
	double wait_s, base_s, most_s;
	double quiet_s;	   /* how long nothing spoke against it */
	double since_up_s; /* since the last time up */
};
struct governor {
	struct governor_config config;
	struct governor_outputs outputs;
	struct governor_moment window[GOVERNOR_WINDOW];
	uint32_t window_next;
	struct governor_mean fast, slow;
	/* ladder */
	int rate, rate_floor, rate_min; /* indexes of rates: each step is 2^(1/8) */
	int rate_failed;		/* that was too much; -1: none */
	uint32_t level;
	double level_age_s, rate_down_s; /* since a step, since the rate fell */
	struct governor_patience rate_climb, rate_patience, level_patience[GOVERNOR_LEVELS];
	/* tiers */
	uint32_t tier;
	struct governor_patience tier_patience;
	double drop_tier_s; /* how long the drops still count */
	/* ring */
	double ring_hz, ring_drop_hz;	   /* 0: no limit; where it dropped */
	double ring_quiet_s, ring_since_s; /* since it was low, since it backed off */
	struct governor_patience ring_patience;
	bool is_ring_high;
	/* memory */
	bool is_pressed;
	double pressed_s, calm_s;
	double stall_s;	    /* what is left of a stall's after-effect */
	double degraded_s;  /* since the state became DEGRADED */
	double no_reason_s; /* how long nothing asked for DEGRADED */
	double applied_hz;
	uint64_t steps;
};

/* The config must have passed governor_config_check. */
void governor_init(struct governor *governor, const struct governor_config *config);
/* What comes out is governor->outputs. dt_ns 0 changes nothing. */
const struct governor_outputs *governor_step(struct governor *governor,
					     const struct governor_inputs *inputs, uint64_t dt_ns);

#endif
