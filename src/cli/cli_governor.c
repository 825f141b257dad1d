// SPDX-License-Identifier: Apache-2.0
/*
 * flyball governor --simulate: lives through a scenario (docs/governor.md) and shows what the
 * governor did, when and why, and whether it kept its rules. Touches nothing of this machine.
 */
#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "agent/agent.h"
#include "cli_governor.h"

#define TEXT_MAX_BYTES 262144

enum { KEY_SIMULATE = 256, KEY_JSON };

static const struct argp_option governor_options[] = {
	{"simulate", KEY_SIMULATE, "FILE", 0, "Live through a scenario; - reads it from stdin", 0},
	{"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
	{0},
};

struct parsed {
	const char *file;
	bool json;
	int status;
};

static error_t governor_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case KEY_SIMULATE:
		p->file = arg;
		break;
	case KEY_JSON:
		p->json = true;
		break;
	case ARGP_KEY_ARG:
		p->status = cli_usage_error("governor", "governor takes no argument %s", arg);
		break;
	case ARGP_KEY_END:
		if (!p->file)
			p->status = cli_usage_error("governor", "give --simulate FILE");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return p->status ? EINVAL : 0;
}

static const struct argp governor_argp = {
	.options = governor_options,
	.parser = governor_parse,
	.doc = "Shows what the governor would do on a node that a scenario describes. "
	       "examples/ has some.\v"
	       "Exit status: 0 all rules were kept, 1 one was broken.",
};

static int read_text(const char *path, char *text, struct why *why)
{
	size_t len;
	int err = cli_read_file(path, text, TEXT_MAX_BYTES, &len, why);

	if (err)
		return err;
	if (len == TEXT_MAX_BYTES)
		return why_set(why, -ERANGE, "%s has %d bytes or more", path, TEXT_MAX_BYTES);
	if (memchr(text, '\0', len))
		return why_set(why, -EBADMSG, "%s is no text", path);
	text[len] = '\0';
	return 0;
}

static void note_event(struct cli_governor_run *run, const struct governor_sim_point *p)
{
	const struct governor_outputs *out = &p->outputs;
	struct cli_governor_event *e;

	if (!out->is_changed)
		return;
	run->change_count++;
	/* The rate alone moves often; the picture shows it. */
	if (run->event_count && out->state == p->before.state && out->tier == p->before.tier &&
	    out->level == p->before.level && out->cause == p->before.cause)
		return;
	if (run->event_count++ >= CLI_GOVERNOR_EVENTS)
		return;
	e = &run->events[run->event_count - 1];
	*e = (struct cli_governor_event){p->time_s, p->before.state, *out};
}

static double largest(double a, double b)
{
	return a > b ? a : b;
}

static void note_point(struct cli_governor_run *run, const struct governor_sim_point *p,
		       double end_s)
{
	size_t at = (size_t)((p->time_s - p->dt_s / 2) / end_s * (double)run->column_count);
	struct cli_governor_column *c =
		&run->columns[at < run->column_count ? at : run->column_count - 1];
	double hz = 1e9 / (double)p->outputs.period_ns * (1 - p->outputs.suppressed_ppm / 1e6);

	c->seconds += p->dt_s;
	c->busy += p->busy_share * p->dt_s;
	c->cost += p->cost_share * p->dt_s;
	c->hz += hz * p->dt_s;
	c->ring = largest(c->ring, p->ring_share);
	c->tables = (double)p->outputs.table_budget_bytes;
	c->tier = p->outputs.tier > c->tier ? p->outputs.tier : c->tier;
	c->level = p->outputs.level > c->level ? p->outputs.level : c->level;
	c->state = p->outputs.state > c->state ? p->outputs.state : c->state;
	run->state_s[p->outputs.state] += p->dt_s;
	run->tier_s[p->outputs.tier] += p->dt_s;
	run->cost_s += p->cost_share * p->dt_s;
}

static void simulate(const struct governor_scenario *scenario, struct cli_governor_run *run)
{
	static struct governor_sim sim;
	struct governor_sim_point point;

	governor_judge_init(&run->judge);
	governor_sim_init(&sim, scenario, governor_step);
	while (governor_sim_step(&sim, &point)) {
		governor_judge_look(&run->judge, &sim, &point);
		note_event(run, &point);
		note_point(run, &point, scenario->end_s);
	}
	run->ledger = sim.ledger;
	run->in_ring = sim.ring_records;
}

static json_t *json_point(const struct cli_governor_column *c, double time_s)
{
	double s = c->seconds;

	return json_pack("{s:f,s:f,s:f,s:f,s:f,s:i,s:i,s:s}", "time_s", time_s, "node_percent",
			 c->busy / s * 100, "cost_percent", c->cost / s * 100, "hz", c->hz / s,
			 "ring_percent", c->ring * 100, "tier", (int)c->tier, "level",
			 (int)c->level, "state", governor_state_name(c->state));
}

static json_t *json_event(const struct cli_governor_event *e)
{
	return json_pack("{s:f,s:s,s:s,s:i,s:i,s:s,s:s}", "time_s", e->time_s, "before",
			 governor_state_name(e->before), "state",
			 governor_state_name(e->outputs.state), "tier", (int)e->outputs.tier,
			 "level", (int)e->outputs.level, "cause",
			 governor_cause_name(e->outputs.cause), "reason", e->outputs.reason);
}

static json_t *json_ledger(const struct cli_governor_run *run)
{
	const struct governor_sim_ledger *l = &run->ledger;

	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "ticks", (json_int_t)l->ticks, "idle",
			 (json_int_t)l->idle, "taken", (json_int_t)l->taken, "delivered",
			 (json_int_t)l->delivered, "ring_full", (json_int_t)l->ring_full,
			 "suppressed", (json_int_t)l->suppressed, "memory_pressure",
			 (json_int_t)l->memory_pressure, "in_ring", (json_int_t)run->in_ring);
}

static json_t *json_broken(const struct governor_judge *judge)
{
	json_t *list = json_array();

	for (int i = 0; i < GOVERNOR_RULES; i++) {
		if (judge->violations[i])
			json_array_append_new(
				list, json_pack("{s:s,s:I,s:f,s:s}", "rule",
						governor_rule_text((enum governor_rule)i), "steps",
						(json_int_t)judge->violations[i], "first_s",
						judge->first_s[i], "first", judge->first_text[i]));
	}
	return list;
}

static int print_json(const struct governor_scenario *s, const struct cli_governor_run *run)
{
	json_t *points = json_array(), *events = json_array(), *o;
	int status = AGENT_EXIT_DONE;

	for (size_t i = 0; i < run->column_count; i++) {
		if (run->columns[i].seconds > 0)
			json_array_append_new(
				points,
				json_point(&run->columns[i], s->end_s * ((double)i + 0.5) /
								     (double)run->column_count));
	}
	for (size_t i = 0; i < run->event_count && i < CLI_GOVERNOR_EVENTS; i++)
		json_array_append_new(events, json_event(&run->events[i]));
	o = json_pack("{s:s,s:f,s:f,s:{s:f,s:f,s:f},s:[f,f,f],s:I,s:o,s:o,s:o,s:o}", "title",
		      s->title, "seconds", s->end_s, "budget_percent",
		      s->config.cpu_budget_ppm / 1e4, "state_s", "normal", run->state_s[0],
		      "degraded", run->state_s[1], "suppressed", run->state_s[2], "tier_s",
		      run->tier_s[0], run->tier_s[1], run->tier_s[2], "events_total",
		      (json_int_t)run->event_count, "events", events, "points", points, "ledger",
		      json_ledger(run), "broken", json_broken(&run->judge));
	if (!o ||
	    json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6)))
		status = AGENT_EXIT_FAILED;
	json_decref(o);
	putchar('\n');
	return status;
}

int cli_governor(int argc, char **argv)
{
	static struct governor_scenario scenario;
	static struct cli_governor_run run;
	static char text[TEXT_MAX_BYTES + 1];
	struct parsed p = {0};
	struct why why = {""};
	int err, status;

	if (!cli_parse("governor", &governor_argp, argc, argv, 0, &p, &p.status, &status))
		return status;
	err = read_text(p.file, text, &why);
	if (!err) {
		err = governor_scenario_parse(text, &scenario, &why);
		why_prefix(err ? &why : NULL, "%s", p.file);
	}
	if (err) {
		log_error("%s", why.text);
		return err == -EBADMSG || err == -ERANGE ? AGENT_EXIT_USAGE : AGENT_EXIT_FAILED;
	}
	run.column_count = p.json ? CLI_GOVERNOR_COLUMNS : CLI_GOVERNOR_WIDTH;
	simulate(&scenario, &run);
	status = AGENT_EXIT_DONE;
	if (p.json)
		status = print_json(&scenario, &run);
	else
		cli_governor_draw(&scenario, &run);
	if (status == AGENT_EXIT_DONE && governor_judge_violations(&run.judge))
		status = AGENT_EXIT_FINDINGS;
	return status;
}
