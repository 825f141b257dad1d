/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this part share. Rates are indexes: index k is config.hz / 2^(k/8), so that a
 * profile has few distinct periods. From rate_min on the clock is no slower, samples are dropped.
 */
#ifndef FLYBALL_GOVERNOR_INTERNAL_H
#define FLYBALL_GOVERNOR_INTERNAL_H

#include "governor/governor.h" /* IWYU pragma: export */

/* From here on down no sample is left: 1/64 of the lowest rate. */
#define GOVERNOR_RATE_SPAN 48
/* What the controller aims at, and when it goes down, in shares of the budget: the means it looks
 * at are noisy, and the budget is a limit, not a mean. */
#define GOVERNOR_AIM  0.92
#define GOVERNOR_OVER 0.97

#define GOVERNOR_SHALLOW_DEPTH 32

/* What holds the rate back, and how much it leaves. */
struct governor_cap {
	double hz;
	enum governor_cause cause;
};

/* governor_rates.c */
double governor_rate_hz(const struct governor *g, int rate);
/* The fastest rate not above hz, at least 0. */
int governor_rate_below(const struct governor *g, double hz);
/* True once nothing spoke against it for as long as it has to be: then the way up is tried. */
bool governor_patience_try(struct governor_patience *p, bool is_good, double dt_s);
/* It had to go down. Within_s of the last way up that one is to blame. */
void governor_patience_failed(struct governor_patience *p, double within_s);

/* governor_cost.c */
void governor_cost_take(struct governor *g, const struct governor_inputs *in, uint64_t dt_ns);
/* Share of the node's capacity at a rate, by what was learned. */
double governor_cost_at(const struct governor *g, const struct governor_inputs *in, double hz);
/* The same by the slow mean alone. */
double governor_cost_slow(const struct governor *g, const struct governor_inputs *in, double hz);
/* The rate whose cost is that share of the node; 0 when the rest costs more already. */
double governor_cost_rate(const struct governor *g, const struct governor_inputs *in, double share);
/* Share of the node in the last period alone. */
double governor_cost_last(const struct governor *g);
/* Means of the last second into outputs. */
void governor_cost_mean(struct governor *g);

/* governor_ladder.c */
void governor_ladder_step(struct governor *g, const struct governor_inputs *in, double dt_s);

/* governor_limits.c */
void governor_tier_step(struct governor *g, double dt_s);
void governor_ring_step(struct governor *g, const struct governor_inputs *in, double dt_s);
void governor_memory_step(struct governor *g, const struct governor_inputs *in, double dt_s);

#endif
