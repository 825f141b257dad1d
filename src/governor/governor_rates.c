// SPDX-License-Identifier: Apache-2.0
/* rates: the grid of rates, and the patience with ways up that failed. */
#include "governor/governor_internal.h"

#define NEVER_S 1e9

double governor_rate_hz(const struct governor *g, int rate)
{
	/* 2^(k/8) */
	static const double steps[8] = {1.0,
					1.0905077326652577,
					1.189207115002721,
					1.2968395546510096,
					1.4142135623730951,
					1.5422108254079407,
					1.681792830507429,
					1.8340080864093424};

	return (double)g->config.hz / (steps[rate & 7] * (double)(1U << (rate >> 3)));
}

int governor_rate_below(const struct governor *g, double hz)
{
	int rate = 0;

	while (rate < g->rate_min + GOVERNOR_RATE_SPAN &&
	       governor_rate_hz(g, rate) > hz * (1 + 1e-9))
		rate++;
	return rate;
}

bool governor_patience_try(struct governor_patience *p, bool is_good, double dt_s)
{
	if (p->since_up_s < NEVER_S)
		p->since_up_s += dt_s;
	p->quiet_s = is_good ? p->quiet_s + dt_s : 0;
	if (p->quiet_s + 1e-9 < p->wait_s)
		return false;
	/* The last way up held. */
	if (p->since_up_s < NEVER_S)
		p->wait_s = p->wait_s / 2 > p->base_s ? p->wait_s / 2 : p->base_s;
	p->quiet_s = 0;
	p->since_up_s = 0;
	return true;
}

void governor_patience_failed(struct governor_patience *p, double within_s)
{
	if (p->since_up_s <= within_s)
		p->wait_s = p->wait_s * 2 < p->most_s ? p->wait_s * 2 : p->most_s;
	else if (p->since_up_s > p->wait_s * 4)
		p->wait_s = p->base_s;
	p->quiet_s = 0;
	p->since_up_s = NEVER_S;
}
