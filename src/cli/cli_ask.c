// SPDX-License-Identifier: Apache-2.0
/* cli_ask: options that choose samples, blocks into one profile, and what can be said of it whole.
 */
#include "cli_ask.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "cli.h"
#include "cli_blocks.h"
#include "store/store.h"

#define SECOND_NS 1000000000ULL

enum {
	KEY_SERVICE = 0x400,
	KEY_PROCESS,
	KEY_CONTAINER,
	KEY_THREAD,
	KEY_FUNCTION,
	KEY_BUILD_ID,
	KEY_KIND,
	KEY_TRACE,
	KEY_SPAN,
	KEY_STORE,
	KEY_SINCE,
	KEY_UNTIL
};

static const struct argp_option ask_options[] = {
	{NULL, 0, NULL, 0, "Which samples (default: all; * in a name stands for any text):", 1},
	{"service", KEY_SERVICE, "NAME", 0, "Of processes of this service", 1},
	{"process", KEY_PROCESS, "PID|NAME", 0, "Of these processes", 1},
	{"container", KEY_CONTAINER, "ID", 0, "Of this container; the first characters will do", 1},
	{"thread", KEY_THREAD, "TID|NAME", 0, "Of these threads", 1},
	{"function", KEY_FUNCTION, "NAME", 0, "With this function on the stack", 1},
	{"build-id", KEY_BUILD_ID, "HEX", 0,
	 "With this file on the stack; the first digits will do", 1},
	{"kind", KEY_KIND, "KIND", 0, "on-cpu, the only one so far", 1},
	{"trace", KEY_TRACE, "ID", 0, "In this trace (32 hexadecimal digits)", 1},
	{"span", KEY_SPAN, "ID", 0, "In this span (16 hexadecimal digits)", 1},
	{"since", KEY_SINCE, "TIME", 0, "Not older than e.g. 30s, 5m, 1h", 1},
	{"until", KEY_UNTIL, "TIME", 0, "Older than that", 1},
	{"store", KEY_STORE, "DIR", 0,
	 "From this store, in place of files (query without files: " STORE_DIRECTORY ")", 1},
	{0},
};

/* Digits of an id into its bytes. */
static bool parse_id(const char *text, uint8_t *out, size_t bytes)
{
	if (strlen(text) != 2 * bytes || strspn(text, "0123456789abcdefABCDEF") != 2 * bytes)
		return false;
	for (size_t i = 0; i < bytes; i++) {
		unsigned int byte;

		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return false;
		out[i] = (uint8_t)byte;
	}
	return true;
}

static error_t parse_span(struct cli_ask *a, int key, const char *arg)
{
	bool is_trace = key == KEY_TRACE;
	uint8_t *id = is_trace ? a->filter.span.trace_id : a->filter.span.span_id;
	size_t bytes = is_trace ? sizeof(a->filter.span.trace_id) : sizeof(a->filter.span.span_id);

	if (!parse_id(arg, id, bytes)) {
		a->status = cli_usage_error(a->command, "%s %.64s: give %zu hexadecimal digits",
					    is_trace ? "--trace" : "--span", arg, 2 * bytes);
		return EINVAL;
	}
	a->filter.has_trace |= is_trace;
	a->filter.has_span |= !is_trace;
	return 0;
}

static error_t parse_time(struct cli_ask *a, int key, const char *arg)
{
	uint64_t *to = key == KEY_SINCE ? &a->since_ns : &a->until_ns;

	if (!text_parse_duration(arg, to) && *to)
		return 0;
	a->status = cli_usage_error(a->command, "%s %.64s: give a time such as 30s, 5m or 1h",
				    key == KEY_SINCE ? "--since" : "--until", arg);
	return EINVAL;
}

static const char **text_option(struct cli_ask *a, int key)
{
	switch (key) {
	case KEY_SERVICE:
		return &a->filter.service;
	case KEY_PROCESS:
		return &a->filter.process;
	case KEY_CONTAINER:
		return &a->filter.container;
	case KEY_THREAD:
		return &a->filter.thread;
	case KEY_FUNCTION:
		return &a->filter.function;
	case KEY_BUILD_ID:
		return &a->filter.build_id;
	default:
		return NULL;
	}
}

static error_t ask_parse(int key, char *arg, struct argp_state *state)
{
	struct cli_ask *a = state->input;
	const char **text = text_option(a, key);

	if (text) {
		*text = arg;
		return 0;
	}
	switch (key) {
	case KEY_KIND:
		if (!strcmp(arg, "on-cpu"))
			return 0;
		a->status = cli_usage_error(a->command,
					    "--kind %.64s: on-cpu is the only kind so far", arg);
		return EINVAL;
	case KEY_TRACE:
	case KEY_SPAN:
		return parse_span(a, key, arg);
	case KEY_SINCE:
	case KEY_UNTIL:
		return parse_time(a, key, arg);
	case KEY_STORE:
		a->store = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cli_ask_argp = {.options = ask_options, .parser = ask_parse};

/* ---------------------------------------------------------------- reading */
/* Damaged blocks of a store are left out and said; a file that was named must be whole. */
static int read_blocks(struct cli_blocks *blocks, bool is_store, struct profile_merge *merge,
		       struct why *why)
{
	struct cli_block block;
	int more, err;

	for (;;) {
		more = cli_blocks_next(blocks, &block, why);
		if (more == -EBADMSG && is_store) {
			log_warn("left out: %s", why->text);
			continue;
		}
		if (more <= 0)
			return more;
		err = profile_merge_add(merge, block.bytes, block.len, why);
		if (!err)
			continue;
		why_prefix(why, "%s", block.name);
		if (!is_store || err == -ENOSPC || err == -ENOMEM)
			return err;
		log_warn("left out: %s", why->text);
	}
}

int cli_ask_read(const struct cli_ask *ask, char *const *paths, size_t count, const char *title,
		 struct profile_merge **ret)
{
	const struct profile_options options = {.max_bytes = 2UL << 30, .command_line = title};
	struct profile_filter filter = ask->filter;
	uint64_t now = clock_realtime_ns();
	struct profile_merge *merge = NULL;
	struct cli_blocks *blocks = NULL;
	struct why why = {""};
	int err;

	filter.start_ns = ask->since_ns && ask->since_ns < now ? now - ask->since_ns : 0;
	filter.end_ns = ask->until_ns && ask->until_ns < now ? now - ask->until_ns : 0;
	err = ask->store ? cli_blocks_open_store(ask->store, filter.start_ns, filter.end_ns,
						 &blocks, &why)
			 : cli_blocks_open(paths, count, &blocks, &why);
	if (!err) {
		err = profile_merge_new(&options, &filter, &merge);
		if (err)
			why_set(&why, err, "out of memory");
	}
	if (!err)
		err = read_blocks(blocks, ask->store, merge, &why);
	cli_blocks_close(blocks);
	if (err) {
		log_error("%s", why.text);
		profile_merge_free(merge);
		return AGENT_EXIT_FAILED;
	}
	*ret = merge;
	return AGENT_EXIT_DONE;
}

/* ---------------------------------------------------------------- saying */
char *cli_ask_text(const char *text, char *out, size_t out_size)
{
	text_print(text, strlen(text), out, out_size);
	return out;
}

static void print_counts(const char *title, const uint64_t *counts, int from, int count,
			 const char *(*name)(int), const char *after, FILE *to)
{
	bool is_begun = false;

	for (int i = from; i < count; i++) {
		if (!counts[i])
			continue;
		fprintf(to, "%s%" PRIu64 " %s", is_begun ? ", " : title, counts[i], name(i));
		is_begun = true;
	}
	if (is_begun)
		fprintf(to, "%s\n", after);
}

static const char *cut_name(int i)
{
	return profile_cut_name((enum fly_cut)i);
}

static const char *drop_name(int i)
{
	return profile_drop_name((enum fly_drop)i);
}

static const char *unnamed_name(int i)
{
	return profile_unnamed_name((enum fly_unnamed)i);
}

static const char *fault_name(int i)
{
	return profile_span_fault_name((enum profile_span_fault)i);
}

static void print_ledger(const struct profile_run *run, const struct profile_merge_seen *seen,
			 FILE *to)
{
	const struct profile_ledger *l = &run->ledger;
	struct why why = {""};

	if (seen->without_ledger)
		fprintf(to,
			"  %" PRIu64 " of %" PRIu64
			" blocks have no ledger: what they miss is not known\n",
			seen->without_ledger, seen->blocks);
	fprintf(to,
		"  samples    %" PRIu64 " taken = %" PRIu64 " delivered + %" PRIu64 " dropped\n",
		l->taken, l->delivered, l->taken - l->delivered);
	print_counts("  dropped    ", l->dropped, 0, FLY_DROP_COUNT, drop_name,
		     " (of the whole node; flyball explain REASON)", to);
	if (l->missed_by_kernel)
		fprintf(to, "  missed     about %" PRIu64 " by the kernel\n", l->missed_by_kernel);
	if (!profile_ledger_is_exact(l, &why))
		fprintf(to, "  %s\n", why.text);
}

void cli_ask_print(const struct profile_merge *merge, FILE *to)
{
	const struct profile *p = profile_merge_get(merge);
	struct profile_merge_seen seen;
	struct profile_totals t;
	struct profile_run run;
	char when[40] = "";
	struct tm tm;
	time_t start;

	profile_merge_seen_get(merge, &seen);
	profile_totals_get(p, &t);
	profile_run_get(p, &run);
	start = (time_t)(run.start_realtime_ns / SECOND_NS);
	if (start && gmtime_r(&start, &tm))
		strftime(when, sizeof(when), " from %Y-%m-%dT%H:%M:%SZ", &tm);
	fprintf(to, "%" PRIu64 " block%s over %.2f s%s: %" PRIu64 " samples, %.3f s of CPU time\n",
		seen.blocks, seen.blocks == 1 ? "" : "s", (double)run.duration_ns / 1e9, when,
		t.samples, (double)t.weight_ns / 1e9);
	if (seen.left_out)
		fprintf(to, "  left out   %" PRIu64 " samples, %.3f s: not asked for\n",
			seen.left_out, (double)seen.left_out_ns / 1e9);
	print_ledger(&run, &seen, to);
	fprintf(to, "  stacks     %" PRIu64 " complete\n", t.complete);
	print_counts("  incomplete ", t.cut, 0, FLY_CUT_COUNT, cut_name, "", to);
	print_counts("  unnamed    ", t.unnamed_samples, 1, FLY_UNNAMED_COUNT, unnamed_name,
		     " (samples whose innermost frame has no name)", to);
	if (t.spans)
		fprintf(to, "  spans      %" PRIu64 ", %" PRIu64 " samples in them, %.3f s\n",
			t.spans, t.span_samples, (double)t.span_ns / 1e9);
	print_counts("  no spans   ", t.span_faults, 1, PROFILE_SPAN_FAULTS, fault_name, "", to);
}

static json_t *json_counts(const uint64_t *counts, int from, int count, const char *(*name)(int))
{
	json_t *o = json_object();

	for (int i = from; i < count; i++) {
		if (counts[i])
			json_object_set_new(o, name(i), json_integer((json_int_t)counts[i]));
	}
	return o;
}

json_t *cli_ask_json(const struct profile_merge *merge)
{
	const struct profile *p = profile_merge_get(merge);
	struct profile_merge_seen seen;
	struct profile_totals t;
	struct profile_run run;
	const struct profile_ledger *l = &run.ledger;

	profile_merge_seen_get(merge, &seen);
	profile_totals_get(p, &t);
	profile_run_get(p, &run);
	return json_pack(
		"{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:{s:I,s:I,s:I,s:I,s:I,s:o,s:I},s:{s:I,s:"
		"o,s:o},s:{s:I,s:I,s:I,s:o}}",
		"blocks", (json_int_t)seen.blocks, "blocks_without_ledger",
		(json_int_t)seen.without_ledger, "start_ns", (json_int_t)run.start_realtime_ns,
		"duration_ns", (json_int_t)run.duration_ns, "samples", (json_int_t)t.samples,
		"weight_ns", (json_int_t)t.weight_ns, "left_out", (json_int_t)seen.left_out,
		"left_out_ns", (json_int_t)seen.left_out_ns, "processes", (json_int_t)t.processes,
		"ledger_is_exact", profile_ledger_is_exact(l, NULL), "ledger", "ticks",
		(json_int_t)l->ticks, "idle", (json_int_t)l->idle, "filtered",
		(json_int_t)l->filtered, "taken", (json_int_t)l->taken, "delivered",
		(json_int_t)l->delivered, "dropped",
		json_counts(l->dropped, 0, FLY_DROP_COUNT, drop_name), "missed_by_kernel",
		(json_int_t)l->missed_by_kernel, "stacks", "complete", (json_int_t)t.complete,
		"cut", json_counts(t.cut, 0, FLY_CUT_COUNT, cut_name), "unnamed",
		json_counts(t.unnamed_samples, 1, FLY_UNNAMED_COUNT, unnamed_name), "spans",
		"spans", (json_int_t)t.spans, "samples", (json_int_t)t.span_samples, "weight_ns",
		(json_int_t)t.span_ns, "faults",
		json_counts(t.span_faults, 1, PROFILE_SPAN_FAULTS, fault_name));
}
