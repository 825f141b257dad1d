// SPDX-License-Identifier: Apache-2.0
/* status: the agent's figures, as one JSON object and as Prometheus text. Reads, computes nothing
 * that could be wrong in one and right in the other. */
#include "daemon.h"
#include "figures_json.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct figures {
	struct storing_stats storing;
	struct unwinding_stats unwinding;
	struct helpers_stats helpers;
	struct http_stats http;
	uint64_t uptime_ns;
};

static void gather(const struct daemon *d, struct figures *f)
{
	memset(f, 0, sizeof(*f));
	storing_stats_get(d->storing, &f->storing);
	unwinding_stats_get(d->session.unwinding, &f->unwinding);
	helpers_stats_get(d->session.helpers, &f->helpers);
	if (d->http)
		http_stats_get(d->http, &f->http);
	f->uptime_ns = clock_monotonic_ns() - d->start_ns;
}

/* ---------------------------------------------------------------- JSON */

static json_t *json_ledger(const struct profile_ledger *l)
{
	const struct json_figure members[] = {
		{"ticks", l->ticks},
		{"idle", l->idle},
		{"filtered", l->filtered},
		{"taken", l->taken},
		{"taken_ns", l->taken_ns},
		{"delivered", l->delivered},
		{"delivered_ns", l->delivered_ns},
		{"missed_by_kernel", l->missed_by_kernel},
	};
	json_t *o = json_figures(members, ARRAY_SIZE(members)), *dropped = json_object();

	for (int i = 0; i < FLY_DROP_COUNT; i++)
		json_object_set_new(dropped, profile_drop_name(i), json_number(l->dropped[i]));
	json_object_set_new(o, "dropped", dropped);
	return o;
}

static json_t *json_windows(const struct daemon *d)
{
	const struct json_figure members[] = {
		{"window_ns", d->config->window_ns}, {"closed", d->totals.windows},
		{"inexact", d->totals.inexact},	     {"not_encoded", d->totals.not_encoded},
		{"forced", d->totals.forced},
	};

	return json_figures(members, ARRAY_SIZE(members));
}

static json_t *json_store(const struct daemon *d, const struct storing_stats *s)
{
	const struct store_stats *st = &s->store;
	const struct json_figure members[] = {
		{"blocks",
		 st->blocks[STORE_WINDOW] + st->blocks[STORE_MINUTE] + st->blocks[STORE_HOUR]},
		{"disk_bytes", st->disk_bytes},
		{"quota_bytes", st->quota_bytes},
		{"start_ns", st->start_ns},
		{"end_ns", st->end_ns},
		{"waiting_blocks", s->waiting},
		{"waiting_bytes", s->waiting_bytes},
		{"stored_blocks", s->stored},
		{"lost_blocks", s->lost},
		{"lost_samples", s->lost_samples},
		{"expired_by_age", st->counts[STORE_EXPIRED_AGE]},
		{"expired_by_quota", st->counts[STORE_EXPIRED_QUOTA]},
	};
	json_t *o = json_figures(members, ARRAY_SIZE(members));
	char path[1024];

	text_print(d->config->store.directory, strlen(d->config->store.directory), path,
		   sizeof(path));
	json_object_set_new(o, "directory", json_string(path));
	json_object_set_new(o, "fault", s->err ? json_string(s->why) : json_null());
	return o;
}

static json_t *json_cost(const struct daemon *d, const struct figures *f)
{
	const struct json_figure members[] = {
		{"own_user_ns", (uint64_t)d->cost.own_user_ns},
		{"own_system_ns", (uint64_t)d->cost.own_system_ns},
		{"bpf_run_ns", d->last.run_ns},
		{"ticks", d->last.ticks},
		{"peak_anon_bytes", d->cost.peak_anon_bytes},
		{"kernel_memory_bytes", d->memory.measured_bytes},
		{"kernel_memory_peak_bytes", d->memory.peak_bytes},
		{"kernel_memory_budget_bytes", d->memory.budget_bytes},
		{"opener_restarts", f->helpers.opener_restarts},
		{"reader_restarts", f->helpers.reader_restarts},
		{"helpers_stuck", f->helpers.stuck},
	};

	return json_figures(members, ARRAY_SIZE(members));
}

/* NULL: the rate is fixed. */
static json_t *json_budget(const struct governing_totals *g)
{
	if (!g)
		return json_null();
	return json_figures(
		(const struct json_figure[]){
			{"budget_ppm", g->budget_ppm},
			{"capacity_ns", g->capacity_ns},
			{"sampling_ns", g->sampling_ns},
			{"background_ns", g->background_ns},
			{"bpf_ns", g->bpf_ns},
			{"interrupt_ns", g->interrupt_ns},
			{"over_ns", g->over_ns},
			{"normal_ns", g->state_ns[GOVERNOR_NORMAL]},
			{"degraded_ns", g->state_ns[GOVERNOR_DEGRADED]},
			{"suppressed_ns", g->state_ns[GOVERNOR_SUPPRESSED]},
			{"tier_healthy_ns", g->tier_ns[0]},
			{"tier_busy_ns", g->tier_ns[1]},
			{"tier_saturated_ns", g->tier_ns[2]},
			{"changes", g->changes},
			{"stalls", g->stalls},
		},
		15);
}

static json_t *json_tables(const struct figures *f)
{
	const struct tables_stats *t = &f->unwinding.tables;
	const struct json_figure members[] = {
		{"bytes", t->bytes},
		{"bytes_max", t->bytes_max},
		{"table_bytes", t->table_bytes},
		{"files", t->numbers},
		{"held", t->held},
		{"held_in_part", t->held_in_part},
		{"processes", t->processes},
		{"evicted", t->tables_evicted},
		{"pages_evicted", t->pages_evicted},
		{"shortages", t->short_of_memory},
	};

	return json_figures(members, ARRAY_SIZE(members));
}

static json_t *json_http(const struct figures *f)
{
	const struct json_figure members[] = {{"requests", f->http.requests},
					      {"refused", f->http.refused}};

	return json_figures(members, ARRAY_SIZE(members));
}

void daemon_status_json(const struct daemon *d, struct buf *out)
{
	struct figures f;
	json_t *o = json_object();
	char *text;

	gather(d, &f);
	json_object_set_new(o, "version", json_string(FLYBALL_VERSION));
	json_object_set_new(o, "pid", json_number((uint64_t)getpid()));
	json_object_set_new(o, "uptime_ns", json_number(f.uptime_ns));
	json_object_set_new(o, "hz", json_number(d->kernel_options.hz));
	json_object_set_new(o, "windows", json_windows(d));
	json_object_set_new(o, "ledger", json_ledger(&d->totals.sum));
	json_object_set_new(o, "store", json_store(d, &f.storing));
	json_object_set_new(o, "cost", json_cost(d, &f));
	json_object_set_new(o, "governor", json_budget(governing_totals(d->session.governing)));
	json_object_set_new(o, "tables", json_tables(&f));
	json_object_set_new(o, "http", json_http(&f));
	text = json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	if (text) {
		buf_add_str(out, text);
		buf_add_char(out, '\n');
	} else {
		out->err = out->err ? out->err : -ENOMEM;
	}
	free(text);
	json_decref(o);
}

/* ---------------------------------------------------------------- metrics */

static void family(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
	family(out, name, "counter", help);
	buf_addf(out, "%s %" PRIu64 "\n", name, value);
}

static void gauge(struct buf *out, const char *name, const char *help, uint64_t value)
{
	family(out, name, "gauge", help);
	buf_addf(out, "%s %" PRIu64 "\n", name, value);
}

static void metrics_samples(const struct daemon *d, struct buf *out)
{
	const struct profile_ledger *l = &d->totals.sum;

	counter(out, "flyball_ticks_total", "Sampling clock ticks in closed windows.", l->ticks);
	counter(out, "flyball_ticks_idle_total", "Ticks on an idle CPU.", l->idle);
	counter(out, "flyball_samples_taken_total", "Samples taken in closed windows.", l->taken);
	counter(out, "flyball_samples_delivered_total", "Samples that are in a window's block.",
		l->delivered);
	family(out, "flyball_samples_dropped_total", "counter",
	       "Samples taken and not delivered, by the reason.");
	for (int i = 0; i < FLY_DROP_COUNT; i++)
		buf_addf(out, "flyball_samples_dropped_total{reason=\"%s\"} %" PRIu64 "\n",
			 profile_drop_name(i), l->dropped[i]);
	counter(out, "flyball_windows_total", "Windows closed.", d->totals.windows);
	counter(out, "flyball_windows_inexact_total",
		"Windows whose ledger did not close: a fault of flyball.", d->totals.inexact);
}

static void seconds(struct buf *out, const char *labels, int64_t ns)
{
	buf_addf(out, "flyball_cpu_seconds_total%s %.6f\n", labels, (double)ns / 1e9);
}

static void metrics_cost(const struct daemon *d, const struct figures *f, struct buf *out)
{
	family(out, "flyball_cpu_seconds_total", "counter",
	       "CPU time of all flyball processes, and of its BPF programs.");
	seconds(out, "{mode=\"user\"}", d->cost.own_user_ns);
	seconds(out, "{mode=\"system\"}", d->cost.own_system_ns);
	seconds(out, "{mode=\"bpf\"}", (int64_t)d->last.run_ns);
	gauge(out, "flyball_memory_anonymous_peak_bytes", "Most anonymous memory of all processes.",
	      d->cost.peak_anon_bytes);
	gauge(out, "flyball_kernel_memory_bytes", "Kernel memory, read back from the kernel.",
	      d->memory.measured_bytes);
	gauge(out, "flyball_kernel_memory_budget_bytes", "The most it may be.",
	      d->memory.budget_bytes);
	gauge(out, "flyball_tables_bytes", "Kernel memory of unwind tables, in whole segments.",
	      f->unwinding.tables.bytes);
	gauge(out, "flyball_tables_held", "Unwind tables that are there whole.",
	      f->unwinding.tables.held);
	family(out, "flyball_helper_restarts_total", "counter", "Helper processes replaced.");
	buf_addf(out, "flyball_helper_restarts_total{helper=\"opener\"} %u\n",
		 f->helpers.opener_restarts);
	buf_addf(out, "flyball_helper_restarts_total{helper=\"reader\"} %u\n",
		 f->helpers.reader_restarts);
}

static void metrics_governor(const struct governing_totals *g, struct buf *out)
{
	static const char *const tiers[GOVERNOR_TIERS] = {"healthy", "busy", "saturated"};

	if (!g)
		return;
	family(out, "flyball_budget_ratio", "gauge", "CPU budget, as a share of the node.");
	buf_addf(out, "flyball_budget_ratio %.6f\n", g->budget_ppm / 1e6);
	family(out, "flyball_cost_seconds_total", "counter",
	       "CPU time that the budget counts, by part; interrupts only once they were "
	       "measured.");
	buf_addf(out, "flyball_cost_seconds_total{part=\"main\"} %.6f\n",
		 (double)g->sampling_ns / 1e9);
	buf_addf(out, "flyball_cost_seconds_total{part=\"helpers\"} %.6f\n",
		 (double)g->background_ns / 1e9);
	buf_addf(out, "flyball_cost_seconds_total{part=\"bpf\"} %.6f\n", (double)g->bpf_ns / 1e9);
	buf_addf(out, "flyball_cost_seconds_total{part=\"interrupts\"} %.6f\n",
		 (double)g->interrupt_ns / 1e9);
	family(out, "flyball_over_budget_seconds_total", "counter",
	       "Time in which the mean of a second was above the budget.");
	buf_addf(out, "flyball_over_budget_seconds_total %.6f\n", (double)g->over_ns / 1e9);
	family(out, "flyball_tier_seconds_total", "counter", "Time in each tier of node load.");
	for (int i = 0; i < GOVERNOR_TIERS; i++)
		buf_addf(out, "flyball_tier_seconds_total{tier=\"%s\"} %.6f\n", tiers[i],
			 (double)g->tier_ns[i] / 1e9);
}

static void metrics_store(const struct storing_stats *s, struct buf *out)
{
	const struct store_stats *st = &s->store;

	gauge(out, "flyball_store_disk_bytes", "Disk space of the store.", st->disk_bytes);
	gauge(out, "flyball_store_quota_bytes", "The most it may be.", st->quota_bytes);
	gauge(out, "flyball_store_waiting_blocks", "Blocks that wait in memory for the disk.",
	      s->waiting);
	counter(out, "flyball_store_blocks_total", "Blocks written by this agent.", s->stored);
	counter(out, "flyball_store_blocks_lost_total",
		"Blocks that could not be written and found no room in memory.", s->lost);
	counter(out, "flyball_store_samples_lost_total", "Samples in them.", s->lost_samples);
	family(out, "flyball_store_blocks_expired_total", "counter",
	       "Blocks deleted, in the life of the store.");
	buf_addf(out, "flyball_store_blocks_expired_total{reason=\"age\"} %" PRIu64 "\n",
		 st->counts[STORE_EXPIRED_AGE]);
	buf_addf(out, "flyball_store_blocks_expired_total{reason=\"quota\"} %" PRIu64 "\n",
		 st->counts[STORE_EXPIRED_QUOTA]);
}

void daemon_metrics(const struct daemon *d, struct buf *out)
{
	struct figures f;

	gather(d, &f);
	family(out, "flyball_build_info", "gauge", "Version of flyball.");
	buf_addf(out, "flyball_build_info{version=\"%s\"} 1\n", FLYBALL_VERSION);
	family(out, "flyball_uptime_seconds", "gauge", "Time since the agent started.");
	buf_addf(out, "flyball_uptime_seconds %.3f\n", (double)f.uptime_ns / 1e9);
	metrics_samples(d, out);
	metrics_cost(d, &f, out);
	metrics_governor(governing_totals(d->session.governing), out);
	metrics_store(&f.storing, out);
	counter(out, "flyball_http_requests_total", "Requests.", f.http.requests);
	counter(out, "flyball_http_refused_total", "Requests that were refused.", f.http.refused);
}
