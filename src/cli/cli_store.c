// SPDX-License-Identifier: Apache-2.0
/* flyball store: what is in a store, whether it is whole, its blocks. Only reads. */
#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "store/store.h"

#define CURSORS_MAX 64
#define SECOND_NS   1000000000ULL

enum { KEY_JSON = 256, KEY_STORE };

struct parsed {
	const char *directory, *verb;
	bool json;
	int status;
};

static const struct argp_option store_options[] = {
	{"store", KEY_STORE, "DIR", 0, "The store's directory (default " STORE_DIRECTORY ")", 0},
	{"json", KEY_JSON, NULL, 0, "Print JSON: one object, of list one for each block", 0},
	{0},
};

static error_t store_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case KEY_STORE:
		p->directory = arg;
		return 0;
	case KEY_JSON:
		p->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (!p->verb) {
			p->verb = arg;
			return 0;
		}
		p->status =
			cli_usage_error("store", "give one of info, list, check; not also %s", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp store_argp = {
	.options = store_options,
	.parser = store_parse,
	.args_doc = "info|list|check",
	.doc = "Shows what a store holds (info), its blocks (list), or reads all of it (check).\v"
	       "Works beside a running agent and without one. Exit status of check: 0 it is whole, "
	       "1 something is damaged.",
};

static char *time_text(uint64_t ns, char *out, size_t out_size)
{
	time_t seconds = (time_t)(ns / SECOND_NS);
	struct tm tm;

	if (!ns || !gmtime_r(&seconds, &tm) || !strftime(out, out_size, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(out, out_size, "-");
	return out;
}

/* ---------------------------------------------------------------- info */

static json_t *json_cursor(const struct store_cursor *c)
{
	return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "target", c->target, "acknowledged_id",
			 (json_int_t)c->acknowledged_id, "lag_blocks", (json_int_t)c->lag_blocks,
			 "lag_bytes", (json_int_t)c->lag_bytes, "lag_since_ns",
			 (json_int_t)c->lag_since_ns, "lost_blocks", (json_int_t)c->lost_blocks,
			 "lost_bytes", (json_int_t)c->lost_bytes);
}

static int print_json(json_t *o)
{
	int err = !o || json_dumpf(o, stdout, JSON_COMPACT);

	json_decref(o);
	putchar('\n');
	return err ? AGENT_EXIT_FAILED : AGENT_EXIT_DONE;
}

static int info_json(const struct store_stats *s, const struct store_cursor *cursors, size_t count)
{
	json_t *counts = json_object(), *list = json_array();

	for (int i = 0; i < STORE_COUNTS; i++)
		json_object_set_new(counts, store_count_name((enum store_count)i),
				    json_integer((json_int_t)s->counts[i]));
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_cursor(&cursors[i]));
	return print_json(json_pack(
		"{s:{s:I,s:I,s:I},s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:{s:I,s:I,s:I,s:I},"
		"s:o,s:o}",
		"blocks", "windows", (json_int_t)s->blocks[STORE_WINDOW], "minutes",
		(json_int_t)s->blocks[STORE_MINUTE], "hours", (json_int_t)s->blocks[STORE_HOUR],
		"windows", (json_int_t)s->windows, "first_id", (json_int_t)s->first_id, "last_id",
		(json_int_t)s->last_id, "start_ns", (json_int_t)s->start_ns, "end_ns",
		(json_int_t)s->end_ns, "disk_bytes", (json_int_t)s->disk_bytes, "quota_bytes",
		(json_int_t)s->quota_bytes, "aside_bytes", (json_int_t)s->aside_bytes,
		"stored_bytes", (json_int_t)s->stored_bytes, "raw_bytes", (json_int_t)s->raw_bytes,
		"ledger", "taken", (json_int_t)s->ledger.taken, "taken_ns",
		(json_int_t)s->ledger.taken_ns, "delivered", (json_int_t)s->ledger.delivered,
		"delivered_ns", (json_int_t)s->ledger.delivered_ns, "counts", counts, "cursors",
		list));
}

static void info_text(const struct store_stats *s, const struct store_cursor *cursors, size_t count)
{
	char a[64], b[64], c[64];

	printf("blocks    %" PRIu64 " windows, %" PRIu64 " minutes, %" PRIu64 " hours, of %" PRIu64
	       " windows in all\n",
	       s->blocks[STORE_WINDOW], s->blocks[STORE_MINUTE], s->blocks[STORE_HOUR], s->windows);
	printf("time      %s to %s\n", time_text(s->start_ns, a, sizeof(a)),
	       time_text(s->end_ns, b, sizeof(b)));
	printf("samples   %" PRIu64 " taken, %" PRIu64 " delivered\n", s->ledger.taken,
	       s->ledger.delivered);
	printf("bytes     %s, of %s unpacked\n", text_bytes(s->stored_bytes, a, sizeof(a)),
	       text_bytes(s->raw_bytes, b, sizeof(b)));
	printf("on disk   %s of %s allowed, %s of it set aside\n",
	       text_bytes(s->disk_bytes, a, sizeof(a)), text_bytes(s->quota_bytes, b, sizeof(b)),
	       text_bytes(s->aside_bytes, c, sizeof(c)));
	for (int i = 0; i < STORE_COUNTS; i++) {
		if (s->counts[i])
			printf("%-9s %s %" PRIu64 "\n", "counted",
			       store_count_name((enum store_count)i), s->counts[i]);
	}
	for (size_t i = 0; i < count; i++)
		printf("target    %s: %" PRIu64 " blocks (%s) wait since %s, %" PRIu64 " lost\n",
		       cursors[i].target, cursors[i].lag_blocks,
		       text_bytes(cursors[i].lag_bytes, a, sizeof(a)),
		       time_text(cursors[i].lag_since_ns, b, sizeof(b)), cursors[i].lost_blocks);
}

static int info(struct store *store, bool json, struct why *why)
{
	static struct store_cursor cursors[CURSORS_MAX];
	struct store_stats stats;
	int count, err = store_stats_get(store, &stats, why);

	if (err)
		return agent_exit_of(err);
	count = store_cursor_list(store, cursors, CURSORS_MAX, why);
	if (count < 0)
		return agent_exit_of(count);
	count = count < CURSORS_MAX ? count : CURSORS_MAX;
	if (json)
		return info_json(&stats, cursors, (size_t)count);
	info_text(&stats, cursors, (size_t)count);
	return AGENT_EXIT_DONE;
}

/* ---------------------------------------------------------------- list */

static int list_one(const struct store_block *b, bool json)
{
	static const char *const levels[STORE_LEVELS] = {"window", "minute", "hour"};
	char start[64], end[64];

	if (json)
		return print_json(
			json_pack("{s:I,s:I,s:s,s:I,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "id",
				  (json_int_t)b->id, "first_id", (json_int_t)b->first_id, "level",
				  levels[b->level], "windows", (json_int_t)b->windows, "kind",
				  (int)b->kind, "start_ns", (json_int_t)b->start_ns, "end_ns",
				  (json_int_t)b->end_ns, "taken", (json_int_t)b->ledger.taken,
				  "taken_ns", (json_int_t)b->ledger.taken_ns, "delivered",
				  (json_int_t)b->ledger.delivered, "delivered_ns",
				  (json_int_t)b->ledger.delivered_ns, "raw_bytes",
				  (json_int_t)b->len, "stored_bytes", (json_int_t)b->stored_bytes));
	printf("%10" PRIu64 " %-6s %4u %s %s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n", b->id,
	       levels[b->level], b->kind, time_text(b->start_ns, start, sizeof(start)),
	       time_text(b->end_ns, end, sizeof(end)), b->ledger.delivered, b->stored_bytes,
	       (uint64_t)b->len);
	return AGENT_EXIT_DONE;
}

static int list(struct store *store, bool json, struct why *why)
{
	const struct store_filter filter = {.without_bytes = true};
	struct store_selection *selection;
	struct store_block block;
	int status = AGENT_EXIT_DONE, err = store_select(store, &filter, &selection, why);

	if (err)
		return agent_exit_of(err);
	if (!json)
		printf("%10s %-6s %4s %-20s %-20s %10s %10s %10s\n", "id", "level", "kind", "start",
		       "end", "delivered", "bytes", "unpacked");
	while (!status && (err = store_selection_next(selection, &block, why)) > 0)
		status = list_one(&block, json);
	store_selection_close(selection);
	return err < 0 ? agent_exit_of(err) : status;
}

/* ---------------------------------------------------------------- check */

static int check(struct store *store, bool json, struct why *why)
{
	struct store_check found;
	int status, err = store_check(store, &found, why);

	if (err)
		return agent_exit_of(err);
	status = found.faults || found.damaged ? AGENT_EXIT_FINDINGS : AGENT_EXIT_DONE;
	if (json) {
		err = print_json(json_pack("{s:I,s:I,s:I,s:s?}", "blocks", (json_int_t)found.blocks,
					   "damaged", (json_int_t)found.damaged, "faults",
					   (json_int_t)found.faults, "first_fault",
					   found.faults ? found.first_fault : NULL));
		return err ? err : status;
	}
	printf("%" PRIu64 " blocks were read, %" PRIu64 " of them damaged", found.blocks,
	       found.damaged);
	if (found.faults)
		printf("; %" PRIu64 " faults of the database, the first: %s", found.faults,
		       found.first_fault);
	putchar('\n');
	return status;
}

static const struct {
	const char *name;
	int (*run)(struct store *store, bool json, struct why *why);
} verbs[] = {{"info", info}, {"list", list}, {"check", check}};

int cli_store(int argc, char **argv)
{
	const struct store_options options = {.read_only = true};
	struct parsed p = {.directory = STORE_DIRECTORY};
	struct store *store = NULL;
	struct why why = {""};
	size_t verb = 0;
	char *path;
	int err, status;

	if (!cli_parse("store", &store_argp, argc, argv, 0, &p, &p.status, &status))
		return status;
	while (verb < ARRAY_SIZE(verbs) && strcmp(p.verb ? p.verb : "info", verbs[verb].name) != 0)
		verb++;
	if (verb == ARRAY_SIZE(verbs))
		return cli_usage_error("store", "give one of info, list, check; not %s", p.verb);
	path = realpath(p.directory, NULL);
	err = path ? store_open(path, &options, &store, &why)
		   : why_set(&why, -errno, "cannot open the store %s: %s", p.directory,
			     strerror(errno));
	free(path);
	if (!err)
		status = verbs[verb].run(store, p.json, &why);
	else
		status = agent_exit_of(err);
	if (why.text[0])
		log_error("%s", why.text);
	store_close(store);
	return status;
}
