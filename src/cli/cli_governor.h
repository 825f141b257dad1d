/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated run was, for flyball governor's text and its JSON. */
#ifndef FLYBALL_CLI_GOVERNOR_H
#define FLYBALL_CLI_GOVERNOR_H

#include "governor/governor_sim.h"

#define CLI_GOVERNOR_WIDTH   72	 /* columns of the picture */
#define CLI_GOVERNOR_COLUMNS 600 /* points in JSON */
#define CLI_GOVERNOR_EVENTS  1024

/* A stretch of time: sums over its seconds, or the worst. */
struct cli_governor_column {
	double seconds, busy, cost, hz;
	double ring, tables;
	uint32_t tier, level;
	enum governor_state state;
};
struct cli_governor_event {
	double time_s;
	enum governor_state before;
	struct governor_outputs outputs;
};
struct cli_governor_run {
	struct cli_governor_column columns[CLI_GOVERNOR_COLUMNS];
	size_t column_count;
	struct cli_governor_event events[CLI_GOVERNOR_EVENTS];
	size_t event_count, change_count;
	double state_s[3], tier_s[GOVERNOR_TIERS];
	double cost_s;
	struct governor_sim_ledger ledger;
	uint64_t in_ring;
	struct governor_judge judge;
};
void cli_governor_draw(const struct governor_scenario *scenario,
		       const struct cli_governor_run *run);

#endif
