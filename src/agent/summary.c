// SPDX-License-Identifier: Apache-2.0
/* summary: what a recording was, for people (text) and for programs (docs/record.schema.json). */
#include "record_private.h"
#include "figures_json.h"
#include "summary_unwinding.h"

#include <inttypes.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>

#define TOP	       10
#define GOVERNOR_SHOWN 8

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void print_drops(const struct profile_ledger *ledger, FILE *to)
{
	bool first = true;

	for (int i = 0; i < FLY_DROP_COUNT; i++) {
		if (!ledger->dropped[i])
			continue;
		fprintf(to, "%s%s %" PRIu64, first ? " (" : ", ", profile_drop_name(i),
			ledger->dropped[i]);
		first = false;
	}
	fputs(first ? "" : ")", to);
}

static void print_ledger(const struct summary *s, FILE *to)
{
	const struct profile_ledger *l = &s->run->ledger;
	uint64_t dropped = l->taken - l->delivered;

	fprintf(to, "  samples    %" PRIu64 " taken = %" PRIu64 " delivered + %" PRIu64 " dropped",
		l->taken, l->delivered, dropped);
	print_drops(l, to);
	fprintf(to,
		"\n  ticks      %" PRIu64 " = %" PRIu64 " idle + %" PRIu64 " filtered + %" PRIu64
		" taken; about %" PRIu64 " missed by the kernel\n",
		l->ticks, l->idle, l->filtered, l->taken, l->missed_by_kernel);
	if (!l->taken)
		fputs("  nothing that was watched ran on a CPU when a sample was due: record for "
		      "longer (-d), at a higher rate (-F) or everything (-a)\n",
		      to);
}

/* Most files have no lines: silence then. */
static void print_spans(const struct summary *s, const struct profile_totals *totals, FILE *to)
{
	uint64_t faults = totals->span_faults[PROFILE_SPAN_PAGE_ABSENT] +
			  totals->span_faults[PROFILE_SPAN_INVALID];
	uint64_t partial = totals->span_faults[PROFILE_SPAN_ATTRIBUTES_TRUNCATED] +
			   totals->span_faults[PROFILE_SPAN_ATTRIBUTES_ABSENT] +
			   totals->span_faults[PROFILE_SPAN_ATTRIBUTES_INVALID];

	if (s->spans->invalid)
		fprintf(to,
			"  no spans   the trace context of %" PRIu64
			" processes makes no sense or could not be read\n",
			s->spans->invalid);
	if (!s->spans->published)
		return;
	fprintf(to,
		"  spans      %" PRIu64 " spans of %" PRIu64 " processes, %" PRIu64
		" samples in them, %.3f s",
		totals->spans, s->spans->published, totals->span_samples,
		(double)totals->span_ns / 1e9);
	if (faults)
		fprintf(to, "; of %" PRIu64 " samples the span could not be read", faults);
	if (partial)
		fprintf(to, "; of %" PRIu64 " not all attributes", partial);
	fputc('\n', to);
	if (s->spans->unsupported)
		fprintf(to,
			"  no spans   the threads of %" PRIu64
			" processes publish them in a way that is not followed "
			"(docs/trace-correlation.md)\n",
			s->spans->unsupported);
}

static void print_lines(const struct profile_totals *totals, FILE *to)
{
	bool has_unlined = false;

	if (totals->lined)
		fprintf(to,
			"  lines      of %" PRIu64 " places in %" PRIu64 ", %" PRIu64
			" with inlined calls\n",
			totals->lined, totals->locations, totals->inlined);
	for (int i = 1; i < FLY_UNNAMED_COUNT; i++) {
		if (!totals->unlined[i])
			continue;
		fprintf(to, "%s%" PRIu64 " %s", has_unlined ? ", " : "  no lines   ",
			totals->unlined[i], profile_unnamed_name(i));
		has_unlined = true;
	}
	if (has_unlined)
		fputs(" (places; their names are not affected)\n", to);
}

static void print_stacks(const struct summary *s, FILE *to)
{
	struct profile_totals totals;
	bool has_unnamed = false;

	profile_totals_get(s->profile, &totals);
	fprintf(to, "  stacks     %" PRIu64 " complete", totals.complete);
	for (int i = 0; i < FLY_CUT_COUNT; i++) {
		if (totals.cut[i])
			fprintf(to, ", %" PRIu64 " %s", totals.cut[i], profile_cut_name(i));
	}
	fputc('\n', to);
	for (int i = 1; i < FLY_UNNAMED_COUNT; i++) {
		if (!totals.unnamed_samples[i])
			continue;
		fprintf(to, "%s%" PRIu64 " %s", has_unnamed ? ", " : "  unnamed    ",
			totals.unnamed_samples[i], profile_unnamed_name(i));
		has_unnamed = true;
	}
	if (has_unnamed)
		fputs(" (samples whose innermost frame has no name)\n", to);
	print_lines(&totals, to);
	print_spans(s, &totals, to);
}

static void print_cost(const struct summary *s, FILE *to)
{
	char planned[32], measured[32], budget[32], anon[32];

	fprintf(to, "  own cost   %.3f s user + %.3f s system, %.4f s in BPF, %s of memory\n",
		(double)s->cost->own_user_ns / 1e9, (double)s->cost->own_system_ns / 1e9,
		seconds(s->kernel_ledger->run_ns),
		text_bytes(s->cost->peak_anon_bytes, anon, sizeof(anon)));
	if (s->cost->ticks.tick_ns)
		fprintf(to,
			"  interrupts about %.4f s: %" PRIu64 " ticks of %.1f us (%.1f to %.1f, "
			"calibrated)\n",
			seconds(s->cost->interrupt_ns), s->kernel_ledger->ticks,
			(double)s->cost->ticks.tick_ns / 1e3, (double)s->cost->ticks.low_ns / 1e3,
			(double)s->cost->ticks.high_ns / 1e3);
	else
		fprintf(to, "  interrupts cost not known: %s\n", s->cost->no_ticks.text);
	fprintf(to, "  kernel     %s planned, %s measured, of %s allowed\n",
		text_bytes(s->memory->planned_bytes, planned, sizeof(planned)),
		text_bytes(s->memory->peak_bytes, measured, sizeof(measured)),
		text_bytes(s->memory->budget_bytes, budget, sizeof(budget)));
	if (s->helpers->opener_restarts || s->helpers->reader_restarts)
		fprintf(to, "  helpers    opener replaced %u times, reader %u, %u stuck\n",
			s->helpers->opener_restarts, s->helpers->reader_restarts,
			s->helpers->stuck);
	for (int i = 0; log_get_level() >= LOG_INFO && i < HELPERS_JOB_COUNT; i++) {
		const struct helpers_job_stats *job = &s->helpers->jobs[i];

		if (job->jobs)
			fprintf(to,
				"  reader     %-11s %6" PRIu64 " jobs, %.3f s, longest %.3f s\n",
				helpers_job_names[i], job->jobs, seconds(job->busy_ns),
				seconds(job->longest_ns));
	}
}

static void print_governor(const struct summary *s, FILE *to)
{
	const struct governing_totals *g = s->governing;
	double capacity = g && g->capacity_ns ? (double)g->capacity_ns / 100 : 1;
	size_t shown;

	if (!g)
		return;
	fprintf(to,
		"  governor   %.3f %% of the node of %.4g %% allowed (samples %.3f, background "
		"%.3f, "
		"BPF %.3f, interrupts %.3f); above it for %.1f s\n",
		(double)(g->sampling_ns + g->background_ns + g->bpf_ns + g->interrupt_ns) /
			capacity,
		g->budget_ppm / 1e4, (double)g->sampling_ns / capacity,
		(double)g->background_ns / capacity, (double)g->bpf_ns / capacity,
		(double)g->interrupt_ns / capacity, seconds(g->over_ns));
	fprintf(to, "             normal %.1f s, degraded %.1f s, suppressed %.1f s; %zu changes\n",
		seconds(g->state_ns[GOVERNOR_NORMAL]), seconds(g->state_ns[GOVERNOR_DEGRADED]),
		seconds(g->state_ns[GOVERNOR_SUPPRESSED]), g->changes);
	shown = g->event_count < GOVERNOR_SHOWN ? g->event_count : GOVERNOR_SHOWN;
	for (size_t i = 0; i < shown; i++)
		fprintf(to, "    %8.1f s  %-10s %s\n", seconds(g->events[i].since_start_ns),
			governor_state_name(g->events[i].outputs.state),
			g->events[i].outputs.reason);
	if (g->event_count > shown)
		fprintf(to, "                and %zu more\n", g->event_count - shown);
}

static void print_top(const struct summary *s, bool by_total, FILE *to)
{
	struct profile_function top[TOP];
	size_t n = profile_top(s->profile, by_total, top, TOP);
	uint64_t all = s->run->ledger.delivered_ns;

	if (!n)
		return;
	fprintf(to, "  heaviest by %s\n", by_total ? "total" : "self");
	for (size_t i = 0; i < n; i++) {
		uint64_t ns = by_total ? top[i].total_ns : top[i].self_ns;

		fprintf(to, "    %6.2f %%  %8.3f s  %.100s%s%.60s\n",
			all ? 100.0 * (double)ns / (double)all : 0, seconds(ns), top[i].name,
			top[i].module[0] ? "  " : "", top[i].module);
	}
}

void summary_print(const struct summary *s, FILE *to)
{
	const struct profile_ledger *l = &s->run->ledger;

	fprintf(to,
		"recorded %.2f s on %" PRIu32 " CPUs at %" PRIu32 " Hz: %.3f s of CPU time found\n",
		seconds(s->run->duration_ns), s->run->cpus, s->run->hz, seconds(l->delivered_ns));
	print_ledger(s, to);
	print_stacks(s, to);
	if (s->unwinding)
		summary_unwinding_print(s->unwinding, to);
	print_cost(s, to);
	print_governor(s, to);
	print_top(s, false, to);
	print_top(s, true, to);
	for (size_t i = 0; i < s->file_count; i++)
		fprintf(to, "wrote %s\n", s->files[i]);
	fflush(to);
}

/* ---------------------------------------------------------------- JSON */

static json_t *json_drops(const struct profile_ledger *l)
{
	json_t *o = json_object();

	for (int i = 0; i < FLY_DROP_COUNT; i++)
		json_object_set_new(o, profile_drop_name(i), json_number(l->dropped[i]));
	return o;
}

static json_t *json_kinds(const struct summary *s)
{
	const struct profile_ledger *l = &s->run->ledger;

	return json_pack("{s:{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}}", "on_cpu", "taken",
			 json_number(l->taken), "delivered", json_number(l->delivered), "dropped",
			 json_drops(l), "ticks", json_number(l->ticks), "idle",
			 json_number(l->idle), "filtered", json_number(l->filtered),
			 "missed_by_kernel", json_number(l->missed_by_kernel), "weight_ns",
			 json_number(l->delivered_ns));
}

static json_t *json_stacks(const struct summary *s)
{
	struct profile_totals totals;
	json_t *cut = json_object(), *unnamed = json_object();

	profile_totals_get(s->profile, &totals);
	for (int i = 0; i < FLY_CUT_COUNT; i++)
		json_object_set_new(cut, profile_cut_name(i), json_number(totals.cut[i]));
	for (int i = 1; i < FLY_UNNAMED_COUNT; i++)
		json_object_set_new(unnamed, profile_unnamed_name(i),
				    json_number(totals.unnamed_samples[i]));
	return json_pack("{s:o,s:o,s:o}", "complete", json_number(totals.complete), "cut", cut,
			 "unnamed", unnamed);
}

static json_t *json_spans(const struct summary *s)
{
	struct profile_totals totals;
	json_t *spans;

	profile_totals_get(s->profile, &totals);
	spans = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "spans", json_number(totals.spans),
			  "samples", json_number(totals.span_samples), "weight_ns",
			  json_number(totals.span_ns), "processes",
			  json_number(s->spans->published), "processes_unsupported",
			  json_number(s->spans->unsupported), "processes_invalid",
			  json_number(s->spans->invalid));
	for (int i = PROFILE_SPAN_KNOWN + 1; i < PROFILE_SPAN_FAULTS; i++)
		json_object_set_new(spans, profile_span_fault_name(i),
				    json_number(totals.span_faults[i]));
	return spans;
}

static json_t *json_clock(const struct wallclock_stats *clock)
{
	return json_pack("{s:o,s:o,s:o}", "error_ns", json_number(clock->error_ns), "steps",
			 json_number(clock->steps), "stepped_ns",
			 json_integer((json_int_t)clock->stepped_ns));
}

static json_t *json_lines(const struct summary *s)
{
	struct profile_totals totals;
	json_t *missing = json_object();

	profile_totals_get(s->profile, &totals);
	for (int i = 1; i < FLY_UNNAMED_COUNT; i++)
		json_object_set_new(missing, profile_unnamed_name(i),
				    json_number(totals.unlined[i]));
	return json_pack("{s:o,s:o,s:o,s:o}", "places", json_number(totals.locations), "lined",
			 json_number(totals.lined), "inlined", json_number(totals.inlined),
			 "missing", missing);
}

/* What one tick costs, by calibration. */
static json_t *json_tick(const struct kernel_calibration *c)
{
	if (!c->tick_ns)
		return json_null();
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:b}", "ns", json_number(c->tick_ns), "low_ns",
			 json_number(c->low_ns), "high_ns", json_number(c->high_ns), "pairs",
			 json_number(c->pairs), "seen_low_ns", json_number(c->seen_low_ns),
			 "seen_high_ns", json_number(c->seen_high_ns), "is_trusted",
			 kernel_calibration_is_trusted(c));
}

static json_t *json_cost(const struct summary *s)
{
	const struct cost *c = s->cost;
	bool is_known = c->ticks.tick_ns;
	json_t *unknown = json_object();

	if (!is_known)
		json_object_set_new(unknown, "interrupt_ns", json_string(c->no_ticks.text));
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "own_user_ns",
			 json_number((uint64_t)c->own_user_ns), "own_system_ns",
			 json_number((uint64_t)c->own_system_ns), "bpf_run_ns",
			 json_number(s->kernel_ledger->run_ns), "interrupt_ns",
			 is_known ? json_number(c->interrupt_ns) : json_null(), "tick",
			 json_tick(&c->ticks), "peak_anon_bytes", json_number(c->peak_anon_bytes),
			 "unknown", unknown);
}

static json_t *json_pace(const struct governor_outputs *o)
{
	return json_pack("{s:s,s:i,s:i,s:o,s:i,s:s,s:i}", "state", governor_state_name(o->state),
			 "tier", (int)o->tier, "level", (int)o->level, "period_ns",
			 json_number(o->period_ns), "depth", (int)o->depth, "unwinder",
			 o->unwinder == GOVERNOR_TABLES ? "tables" : "frame_pointers",
			 "suppressed_ppm", (int)o->suppressed_ppm);
}

static json_t *json_governor(const struct governing_totals *g)
{
	json_t *events = json_array();

	if (!g) {
		json_decref(events);
		return json_null();
	}
	for (size_t i = 0; i < g->event_count && i < GOVERNING_EVENTS; i++) {
		const struct governing_event *e = &g->events[i];

		json_array_append_new(events,
				      json_pack("{s:o,s:s,s:s,s:o,s:o}", "since_start_ns",
						json_number(e->since_start_ns), "cause",
						governor_cause_name(e->outputs.cause), "reason",
						e->outputs.reason, "before", json_pace(&e->before),
						"after", json_pace(&e->outputs)));
	}
	return json_pack(
		"{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:{s:o,s:o,s:o},s:[o,o,o],s:o,s:o,s:o,s:o}",
		"budget_ppm", json_number(g->budget_ppm), "capacity_ns",
		json_number(g->capacity_ns), "sampling_ns", json_number(g->sampling_ns),
		"background_ns", json_number(g->background_ns), "bpf_ns", json_number(g->bpf_ns),
		"interrupt_ns", json_number(g->interrupt_ns), "over_ns", json_number(g->over_ns),
		"state_ns", "normal", json_number(g->state_ns[GOVERNOR_NORMAL]), "degraded",
		json_number(g->state_ns[GOVERNOR_DEGRADED]), "suppressed",
		json_number(g->state_ns[GOVERNOR_SUPPRESSED]), "tier_ns",
		json_number(g->tier_ns[0]), json_number(g->tier_ns[1]), json_number(g->tier_ns[2]),
		"stalls", json_number(g->stalls), "changes", json_number(g->changes),
		"events_total", json_number(g->event_count), "events", events);
}

static json_t *json_memory(const struct kernel_memory *m)
{
	json_t *maps = json_array();

	for (size_t i = 0; i < m->map_count; i++) {
		const struct kernel_map_plan *map = &m->maps[i];

		json_array_append_new(
			maps, json_pack("{s:s,s:s,s:o,s:o,s:o,s:s}", "name", map->name, "type",
					map->type, "entries", json_number(map->entries),
					"planned_bytes", json_number(map->bytes), "measured_bytes",
					json_number(map->measured_bytes), "purpose", map->purpose));
	}
	return json_pack("{s:o,s:o,s:o,s:o,s:o}", "budget_bytes", json_number(m->budget_bytes),
			 "planned_bytes", json_number(m->planned_bytes), "measured_bytes",
			 json_number(m->measured_bytes), "peak_bytes", json_number(m->peak_bytes),
			 "maps", maps);
}

static json_t *json_jobs(const struct helpers_stats *helpers)
{
	json_t *o = json_object();

	for (int i = 0; i < HELPERS_JOB_COUNT; i++) {
		const struct helpers_job_stats *job = &helpers->jobs[i];

		json_object_set_new(o, helpers_job_names[i],
				    json_pack("{s:o,s:o,s:o}", "jobs", json_number(job->jobs),
					      "busy_ns", json_number(job->busy_ns), "longest_ns",
					      json_number(job->longest_ns)));
	}
	return o;
}

/* Arguments are any bytes; JSON wants UTF-8. */
static json_t *json_text(const char *text)
{
	char clean[1024];

	text_print(text, strlen(text), clean, sizeof(clean));
	return json_string(clean);
}

static json_t *json_command(const struct summary *s)
{
	json_t *a;

	if (!s->options->command)
		return json_null();
	a = json_array();
	for (char *const *arg = s->options->command; *arg; arg++)
		json_array_append_new(a, json_text(*arg));
	return a;
}

int summary_print_json(const struct summary *s, FILE *to)
{
	json_t *files = json_array(), *o;
	int err;

	for (size_t i = 0; i < s->file_count; i++)
		json_array_append_new(files, json_text(s->files[i]));
	o = json_pack(
		"{s:o,s:o,s:o,s:o,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}",
		"duration_ns", json_number(s->run->duration_ns), "cpus", json_number(s->run->cpus),
		"hz", json_number(s->run->hz), "command", json_command(s), "own_status",
		s->own_status, "exit_status",
		s->exit_status >= 0 ? json_number((uint64_t)s->exit_status) : json_null(), "kinds",
		json_kinds(s), "stacks", json_stacks(s), "lines", json_lines(s), "spans",
		json_spans(s), "clock", json_clock(s->clock), "cost", json_cost(s), "governor",
		json_governor(s->governing), "kernel_memory", json_memory(s->memory), "files",
		files, "helpers",
		json_pack("{s:o,s:o,s:o,s:o}", "opener_restarts",
			  json_number(s->helpers->opener_restarts), "reader_restarts",
			  json_number(s->helpers->reader_restarts), "stuck",
			  json_number(s->helpers->stuck), "reader_jobs", json_jobs(s->helpers)),
		"unwinding", s->unwinding ? summary_unwinding_json(s->unwinding) : json_null());
	if (!o)
		return -ENOMEM;
	err = json_dumpf(o, to, JSON_COMPACT | JSON_PRESERVE_ORDER) ? -EIO : 0;
	json_decref(o);
	if (!err && (fputc('\n', to) == EOF || fflush(to)))
		err = -EIO;
	return err;
}
