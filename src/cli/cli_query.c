// SPDX-License-Identifier: Apache-2.0
/* flyball query: asks profiles that were written before. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "cli.h"
#include "cli_ask.h"
#include "store/store.h"

#define ROWS_DEFAULT 20
#define MIN_DEFAULT  1.0 /* percent */

enum { KEY_TOP = 256, KEY_TREE, KEY_BY_SPAN, KEY_MIN, KEY_TOTAL, KEY_JSON };
enum view { VIEW_NONE, VIEW_TOP, VIEW_TREE, VIEW_BY_SPAN };

struct parsed {
	struct cli_ask ask;
	char **paths;
	size_t path_count;
	const char *outputs[AGENT_OUTPUTS_MAX];
	size_t output_count;
	enum view view;
	uint64_t rows; /* 0: all */
	double min_percent;
	bool by_total, json;
};

static const struct argp_option query_options[] = {
	{NULL, 0, NULL, 0, "What to show (default: --top):", 2},
	{"top", KEY_TOP, NULL, 0, "The functions that took most time, by self", 2},
	{"total", KEY_TOTAL, NULL, 0, "With --top: by self and all they call", 2},
	{"tree", KEY_TREE, NULL, 0, "Calls, from the thread down", 2},
	{"by-span", KEY_BY_SPAN, NULL, 0, "Trace spans and what ran in them", 2},
	{"rows", 'n', "N", 0, "With --top and --by-span: rows, 0 for all (default 20)", 2},
	{"min", KEY_MIN, "PERCENT", 0, "With --tree: least share that is shown (default 1)", 2},
	{"output", 'o', "FILE", 0,
	 "Write the samples as .html, .pb.gz, .folded, .otlp or .json by the name; - is folded "
	 "text on stdout; may be repeated",
	 2},
	{"json", KEY_JSON, NULL, 0, "Print one JSON object on stdout", 2},
	{0},
};

static int add_output(struct parsed *p, const char *path)
{
	enum profile_format format;
	struct why why = {""};

	if (p->output_count == AGENT_OUTPUTS_MAX)
		return cli_usage_error("query", "-o can be given at most %d times",
				       AGENT_OUTPUTS_MAX);
	if (strcmp(path, "-") && profile_format_of(path, &format, &why))
		return cli_usage_error("query", "%s", why.text);
	p->outputs[p->output_count++] = path;
	return 0;
}

static int set_view(struct parsed *p, enum view view)
{
	if (p->view && p->view != view)
		return cli_usage_error("query", "give one of --top, --tree, --by-span");
	p->view = view;
	return 0;
}

static int parse_min(struct parsed *p, const char *arg)
{
	char *end;

	p->min_percent = strtod(arg, &end);
	if (!arg[0] || *end || !(p->min_percent >= 0 && p->min_percent <= 100))
		return cli_usage_error("query", "--min %.64s: give a share from 0 to 100", arg);
	return 0;
}

static int parse_option(int key, const char *arg, struct parsed *p)
{
	switch (key) {
	case KEY_TOP:
		return set_view(p, VIEW_TOP);
	case KEY_TREE:
		return set_view(p, VIEW_TREE);
	case KEY_BY_SPAN:
		return set_view(p, VIEW_BY_SPAN);
	case KEY_TOTAL:
		p->by_total = true;
		return 0;
	case KEY_MIN:
		return parse_min(p, arg);
	case KEY_JSON:
		p->json = true;
		return 0;
	case 'n':
		if (text_parse_u64(arg, 0, INT32_MAX, &p->rows))
			return cli_usage_error("query", "-n %.64s: give a whole number", arg);
		return 0;
	case 'o':
		return add_output(p, arg);
	default:
		return -1;
	}
}

static error_t query_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;
	int status;

	if (key == ARGP_KEY_INIT) {
		state->child_inputs[0] = &p->ask;
		return 0;
	}
	if (key == ARGP_KEY_ARGS) {
		p->paths = state->argv + state->next;
		p->path_count = (size_t)(state->argc - state->next);
		return 0;
	}
	status = parse_option(key, arg, p);
	if (status < 0)
		return ARGP_ERR_UNKNOWN;
	p->ask.status = status;
	return status ? EINVAL : 0;
}

static const struct argp_child query_children[] = {{&cli_ask_argp, 0, NULL, 0}, {0}};
static const struct argp query_argp = {
	.options = query_options,
	.parser = query_parse,
	.args_doc = "[FILE...]",
	.children = query_children,
	.doc = "Asks profiles that flyball record wrote as .otlp: files, directories of them, or a "
	       "store.\v"
	       "Examples:\n"
	       "  flyball query morning.otlp\n"
	       "  flyball query --service checkout --tree profiles/\n"
	       "  flyball query --trace 0af7651916cd43dd8448eb211c80319c -o request.html *.otlp\n\n"
	       "Samples that differ in thread, span, label or stack are never made one. What is "
	       "missing is said: dropped samples, cut stacks, names that could not be had.",
};

/* ---------------------------------------------------------------- views */
static double percent(uint64_t part, uint64_t all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

struct viewing {
	const struct parsed *p;
	uint64_t all_ns, rows;
	json_t *array; /* NULL: as text */
};

static json_t *json_text(const char *text)
{
	char clean[8400];

	return json_string(cli_ask_text(text, clean, sizeof(clean)));
}

static int show_top(const struct profile *profile, struct viewing *v)
{
	const struct profile_function_row *rows;
	struct profile_functions *functions;
	size_t count;
	int err = profile_functions_new(profile, v->p->by_total, &functions, &rows, &count);

	if (err)
		return err;
	if (!v->array)
		printf("\n  self                     total                    function\n");
	for (size_t i = 0; i < count && i < v->p->rows; i++) {
		const struct profile_function_row *r = &rows[i];

		if (!(v->p->by_total ? r->total_ns : r->self_ns))
			break;
		if (v->array)
			json_array_append_new(v->array,
					      json_pack("{s:o,s:o,s:I,s:I}", "function",
							json_text(r->name), "module",
							json_text(r->module), "self_ns",
							(json_int_t)r->self_ns, "total_ns",
							(json_int_t)r->total_ns));
		else
			printf("  %6.2f %%  %10.3f s    %6.2f %%  %10.3f s    %.200s%s%.60s\n",
			       percent(r->self_ns, v->all_ns), (double)r->self_ns / 1e9,
			       percent(r->total_ns, v->all_ns), (double)r->total_ns / 1e9, r->name,
			       r->module[0] ? "  " : "", r->module);
	}
	profile_functions_free(functions);
	return 0;
}

static int tree_node(void *ctx, const struct profile_tree_node *node)
{
	struct viewing *v = ctx;

	if (v->array)
		json_array_append_new(v->array,
				      json_pack("{s:i,s:o,s:o,s:I,s:I}", "depth", (int)node->depth,
						"function", json_text(node->name), "module",
						json_text(node->module), "self_ns",
						(json_int_t)node->self_ns, "total_ns",
						(json_int_t)node->total_ns));
	else
		printf("  %6.2f %%  %6.2f %%  %*s%.200s\n", percent(node->total_ns, v->all_ns),
		       percent(node->self_ns, v->all_ns), (int)node->depth, "", node->name);
	return 0;
}

static int show_tree(const struct profile *profile, struct viewing *v)
{
	if (!v->array)
		printf("\n  total     self\n");
	return profile_tree(profile, v->p->min_percent / 100, tree_node, v);
}

static char *hex_text(const uint8_t *bytes, size_t count, char *out)
{
	for (size_t i = 0; i < count; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	return out;
}

static int span_row(void *ctx, const struct profile_span_total *total)
{
	struct viewing *v = ctx;
	char trace[33], span[17];
	json_t *top;

	if (v->rows++ >= v->p->rows)
		return 0;
	hex_text(total->span.trace_id, sizeof(total->span.trace_id), trace);
	hex_text(total->span.span_id, sizeof(total->span.span_id), span);
	if (!v->array) {
		printf("  %s  %s  %8" PRIu64 "  %9.3f s  ", trace, span, total->samples,
		       (double)total->weight_ns / 1e9);
		for (size_t i = 0; i < total->top_count; i++)
			printf("%s%.60s %.0f %%", i ? ", " : "", total->top[i].name,
			       percent(total->top[i].self_ns, total->weight_ns));
		putchar('\n');
		return 0;
	}
	top = json_array();
	for (size_t i = 0; i < total->top_count; i++)
		json_array_append_new(top, json_pack("{s:o,s:I}", "function",
						     json_text(total->top[i].name), "self_ns",
						     (json_int_t)total->top[i].self_ns));
	json_array_append_new(v->array,
			      json_pack("{s:s,s:s,s:I,s:I,s:o}", "trace_id", trace, "span_id", span,
					"samples", (json_int_t)total->samples, "weight_ns",
					(json_int_t)total->weight_ns, "top", top));
	return 0;
}

static int show_spans(const struct profile *profile, struct viewing *v)
{
	int err;

	if (!v->array)
		printf("\n  %-32s  %-16s  %8s  %11s  functions, by self\n", "trace", "span",
		       "samples", "CPU time");
	err = profile_spans(profile, span_row, v);
	if (!err && !v->array && v->rows > v->p->rows)
		printf("  and %" PRIu64 " more spans (-n)\n", v->rows - v->p->rows);
	return err;
}

static int show(const struct parsed *p, const struct profile_merge *merge)
{
	static const struct {
		const char *key;
		int (*show)(const struct profile *profile, struct viewing *v);
	} views[] = {
		[VIEW_TOP] = {"top", show_top},
		[VIEW_TREE] = {"tree", show_tree},
		[VIEW_BY_SPAN] = {"by_span", show_spans},
	};
	const struct profile *profile = profile_merge_get(merge);
	struct viewing v = {.p = p, .array = p->json ? json_array() : NULL};
	struct profile_totals totals;
	json_t *all;
	int err = 0;

	profile_totals_get(profile, &totals);
	v.all_ns = totals.weight_ns;
	if (!p->json)
		cli_ask_print(merge, stdout);
	if (views[p->view].show)
		err = views[p->view].show(profile, &v);
	if (!p->json || err) {
		json_decref(v.array);
		return err;
	}
	all = cli_ask_json(merge);
	if (p->view)
		json_object_set(all, views[p->view].key, v.array);
	json_decref(v.array);
	err = json_dumpf(all, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER) ? -ENOMEM : 0;
	putchar('\n');
	json_decref(all);
	return err;
}

static int write_outputs(const struct parsed *p, const struct profile *profile)
{
	for (size_t i = 0; i < p->output_count; i++) {
		struct why why = {""};

		if (agent_output_write(p->outputs[i], profile, &why)) {
			log_error("%s", why.text);
			return AGENT_EXIT_FAILED;
		}
	}
	return AGENT_EXIT_DONE;
}

static int check_together(struct parsed *p)
{
	bool has_stdout = false;

	for (size_t i = 0; i < p->output_count; i++)
		has_stdout |= !strcmp(p->outputs[i], "-");
	if (p->ask.store && p->path_count)
		return cli_usage_error("query", "give files or --store, not both");
	if (!p->path_count && !p->ask.store)
		p->ask.store = STORE_DIRECTORY;
	if (has_stdout && (p->view || p->json))
		return cli_usage_error("query", "-o - wants stdout for itself");
	if (!p->output_count && !p->view)
		p->view = VIEW_TOP;
	if (!p->rows)
		p->rows = UINT64_MAX;
	return 0;
}

int cli_query(int argc, char **argv)
{
	struct parsed p = {
		.ask.command = "query", .rows = ROWS_DEFAULT, .min_percent = MIN_DEFAULT};
	struct profile_merge *merge;
	int status;

	if (!cli_parse("query", &query_argp, argc, argv, 0, &p, &p.ask.status, &status))
		return status;
	status = check_together(&p);
	if (!status)
		status = cli_ask_read(&p.ask, p.paths, p.path_count, "flyball query", &merge);
	if (status)
		return status;
	status = write_outputs(&p, profile_merge_get(merge));
	if (!status && (p.view || p.json) && show(&p, merge)) {
		log_error("out of memory");
		status = AGENT_EXIT_FAILED;
	}
	profile_merge_free(merge);
	return status;
}
