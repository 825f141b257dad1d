// SPDX-License-Identifier: Apache-2.0
/* The picture of a simulated run: one lane per quantity, time from left to right. */
#include "cli_governor.h"

#include <inttypes.h>
#include <string.h>

#define EVENTS_SHOWN 40

struct lane {
	const char *name, *unit;
	double (*value)(const struct cli_governor_column *column);
	double top, scale; /* of the lane; of its label */
	int rows;
};

static double busy_of(const struct cli_governor_column *c)
{
	return c->busy / c->seconds;
}

static double cost_of(const struct cli_governor_column *c)
{
	return c->cost / c->seconds;
}

static double hz_of(const struct cli_governor_column *c)
{
	return c->hz / c->seconds;
}

static double ring_of(const struct cli_governor_column *c)
{
	return c->ring;
}

static double tables_of(const struct cli_governor_column *c)
{
	return c->tables;
}

/* Eighths of a cell; what is not zero shows at least one. */
static const char *cell(double value, double top, int row, int rows)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	double eighths = value / top * rows * 8;
	int here;

	if (value > 0 && eighths < 1)
		eighths = 1;
	here = (int)(eighths + 0.5) - (rows - 1 - row) * 8;
	return blocks[here < 0 ? 0 : here > 8 ? 8 : here];
}

static void draw_lane(const struct cli_governor_run *run, const struct lane *lane)
{
	for (int row = 0; row < lane->rows; row++) {
		if (!row)
			printf("%-9s %7.4g %-3s│", lane->name, lane->top * lane->scale, lane->unit);
		else
			printf("%21s│", "");
		for (size_t i = 0; i < run->column_count; i++) {
			const struct cli_governor_column *c = &run->columns[i];

			fputs(c->seconds > 0 ? cell(lane->value(c), lane->top, row, lane->rows)
					     : " ",
			      stdout);
		}
		puts("│");
	}
}

static void draw_marks(const struct cli_governor_run *run, const char *name)
{
	static const char states[] = " dS", digits[] = " 123456789";

	printf("%-21s│", strcmp(name, "state") ? name : "state (d, S)");
	for (size_t i = 0; i < run->column_count; i++) {
		const struct cli_governor_column *c = &run->columns[i];

		if (!strcmp(name, "state"))
			putchar(states[c->state]);
		else if (!strcmp(name, "tier"))
			putchar(digits[c->tier]);
		else
			putchar(digits[c->level]);
	}
	puts("│");
}

static void draw_axis(const struct governor_scenario *s)
{
	char end[32];
	int width = snprintf(end, sizeof(end), "%.4g s", s->end_s);

	printf("%21s└", "");
	for (int i = 0; i < CLI_GOVERNOR_WIDTH; i++)
		fputs(i % 12 == 11 ? "┴" : "─", stdout);
	printf("┘\n%22s0%*s%s\n\n", "", CLI_GOVERNOR_WIDTH - 1 - width, "", end);
}

static void draw_lanes(const struct governor_scenario *s, const struct cli_governor_run *run)
{
	double budget = s->config.cpu_budget_ppm / 1e6, most = budget * 1.5;
	const struct lane lanes[] = {
		{"node CPU", "%", busy_of, 1, 100, 3},
		{"cost", "%", cost_of, 0, 100, 3},
		{"rate", "Hz", hz_of, s->config.hz, 1, 3},
		{"ring", "%", ring_of, 1, 100, 2},
		{"tables", "MiB", tables_of, (double)s->config.table_budget_bytes, 1.0 / 1048576,
		 1},
	};

	for (size_t i = 0; i < run->column_count; i++) {
		if (run->columns[i].seconds > 0 && cost_of(&run->columns[i]) > most)
			most = cost_of(&run->columns[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(lanes); i++) {
		struct lane lane = lanes[i];

		if (lane.top <= 0)
			lane.top = lane.value == cost_of ? most : 1;
		draw_lane(run, &lane);
	}
	if (s->config.has_tiers)
		draw_marks(run, "tier");
	draw_marks(run, "level");
	draw_marks(run, "state");
	draw_axis(s);
}

static void list_events(const struct cli_governor_run *run)
{
	size_t shown = run->event_count < EVENTS_SHOWN ? run->event_count : EVENTS_SHOWN;

	for (size_t i = 0; i < shown; i++) {
		const struct cli_governor_event *e = &run->events[i];

		printf("%8.1f s  %-10s %s\n", e->time_s, governor_state_name(e->outputs.state),
		       e->outputs.reason);
	}
	if (run->event_count > shown)
		printf("            and %zu more\n", run->event_count - shown);
}

static void list_totals(const struct governor_scenario *s, const struct cli_governor_run *run)
{
	const struct governor_sim_ledger *l = &run->ledger;
	uint64_t dropped = l->ring_full + l->suppressed + l->memory_pressure;

	printf("\n  cost       %.3f %% of the node on average, %.4g %% allowed\n",
	       run->cost_s / s->end_s * 100, s->config.cpu_budget_ppm / 1e4);
	printf("  states     normal %.1f s, degraded %.1f s, suppressed %.1f s\n", run->state_s[0],
	       run->state_s[1], run->state_s[2]);
	if (s->config.has_tiers)
		printf("  tiers      0: %.1f s, 1: %.1f s, 2: %.1f s\n", run->tier_s[0],
		       run->tier_s[1], run->tier_s[2]);
	printf("  changes    %zu\n", run->change_count);
	printf("  samples    %" PRIu64 " taken = %" PRIu64 " delivered + %" PRIu64
	       " dropped (ring_full %" PRIu64 ", suppressed %" PRIu64 ", memory_pressure %" PRIu64
	       ") + %" PRIu64 " unread\n",
	       l->taken, l->delivered, dropped, l->ring_full, l->suppressed, l->memory_pressure,
	       run->in_ring);
}

static void list_rules(const struct governor_judge *judge)
{
	if (!governor_judge_violations(judge))
		printf("  rules      all %d kept\n", GOVERNOR_RULES);
	for (int i = 0; i < GOVERNOR_RULES; i++) {
		if (judge->violations[i])
			printf("  BROKEN     %s: %" PRIu64 " times, first at %.1f s: %s\n",
			       governor_rule_text((enum governor_rule)i), judge->violations[i],
			       judge->first_s[i], judge->first_text[i]);
	}
}

void cli_governor_draw(const struct governor_scenario *s, const struct cli_governor_run *run)
{
	printf("%s%s%.0f CPUs, budget %.4g %%, %" PRIu32 " Hz wanted, tiers %s\n\n", s->title,
	       s->title[0] ? ": " : "", s->start[SIM_CPUS], s->config.cpu_budget_ppm / 1e4,
	       s->config.hz, s->config.has_tiers ? "on" : "off");
	draw_lanes(s, run);
	list_events(run);
	list_totals(s, run);
	list_rules(&run->judge);
}
