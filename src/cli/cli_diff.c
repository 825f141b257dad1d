// SPDX-License-Identifier: Apache-2.0
/*
 * flyball diff: two profiles by function, each a share of its own CPU time, so that a longer or a
 * busier one compares. What chance alone could have made is no news.
 *
 * A share x / (x + y) of two counts that know nothing of each other varies by
 * (y² var x + x² var y) / (x + y)⁴; a count of samples varies by itself (Poisson), in squares of
 * their weight. One sample more on each side keeps a count of none from passing for certainty. A
 * difference of n functions is news past z standard deviations, exp(-z²/2) = 0.05 / n: then, if
 * nothing changed, one of twenty comparisons at most names any function at all.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "cli.h"
#include "cli_ask.h"

#define ROWS_DEFAULT 20
#define CHANCE	     0.05

enum { KEY_TOTAL = 256, KEY_JSON };

struct parsed {
	struct cli_ask ask;
	char *paths[2];
	size_t path_count;
	uint64_t rows;
	bool by_total, json;
};

static const struct argp_option diff_options[] = {
	{NULL, 0, NULL, 0, "What to show:", 2},
	{"total", KEY_TOTAL, NULL, 0,
	 "Compare functions with all they call (default: by self, their own time)", 2},
	{"rows", 'n', "N", 0, "Rows of each kind, 0 for all (default 20)", 2},
	{"json", KEY_JSON, NULL, 0, "Print one JSON object on stdout", 2},
	{0},
};

static error_t diff_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &p->ask;
		return 0;
	case ARGP_KEY_ARG:
		if (p->path_count == ARRAY_SIZE(p->paths))
			return ARGP_ERR_UNKNOWN;
		p->paths[p->path_count++] = arg;
		return 0;
	case KEY_TOTAL:
		p->by_total = true;
		return 0;
	case KEY_JSON:
		p->json = true;
		return 0;
	case 'n':
		if (!text_parse_u64(arg, 0, INT32_MAX, &p->rows))
			return 0;
		p->ask.status = cli_usage_error("diff", "-n %.64s: give a whole number", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child diff_children[] = {{&cli_ask_argp, 0, NULL, 0}, {0}};
static const struct argp diff_argp = {
	.options = diff_options,
	.parser = diff_parse,
	.args_doc = "A B",
	.children = diff_children,
	.doc = "Says which functions take a larger or a smaller share of CPU time in B than in A. "
	       "Each is a file that flyball record wrote as .otlp, or a directory of them.\v"
	       "Examples:\n"
	       "  flyball diff before.otlp after.otlp\n"
	       "  flyball diff --service checkout monday/ tuesday/\n\n"
	       "Behind each difference stands what sampling alone may have made of it; differences "
	       "that are not clearly larger are not shown. The exit status is 0 either way.",
};

/* ---------------------------------------------------------------- comparing */
struct side {
	struct profile_merge *merge;
	struct profile_functions *functions;
	const struct profile_function_row *rows;
	size_t count;
	double all_ns, all_variance, sample_ns; /* sample_ns: what a sample weighs, on average */
	uint64_t samples;
};

struct change {
	const char *name, *module;
	double before, after;	 /* shares */
	double delta, deviation; /* of the shares */
	uint64_t before_ns, after_ns;
};

struct comparison {
	const struct parsed *p;
	struct side sides[2];
	struct change *changes;
	size_t count, news, worse; /* news come first, of them those that grew */
	double z;
};

static uint64_t time_of(const struct comparison *c, const struct profile_function_row *row)
{
	return !row ? 0 : c->p->by_total ? row->total_ns : row->self_ns;
}

static double share_of(const struct comparison *c, const struct side *side,
		       const struct profile_function_row *row, double *variance)
{
	double one = side->sample_ns * side->sample_ns;
	double x = (double)time_of(c, row), all = side->all_ns, y = all - x;
	double var_x = !row ? 0 : c->p->by_total ? row->total_variance : row->self_variance;
	double var_y = side->all_variance - var_x;

	*variance = (y * y * (var_x + one) + x * x * (var_y + one)) / (all * all * all * all);
	return x / all;
}

static void change_add(struct comparison *c, const struct profile_function_row *a,
		       const struct profile_function_row *b)
{
	struct change *to = &c->changes[c->count];
	const struct profile_function_row *any = a ? a : b;
	double variance[2];

	if (!any || (!time_of(c, a) && !time_of(c, b)))
		return;
	to->name = any->name;
	to->module = any->module;
	to->before = share_of(c, &c->sides[0], a, &variance[0]);
	to->after = share_of(c, &c->sides[1], b, &variance[1]);
	to->before_ns = time_of(c, a);
	to->after_ns = time_of(c, b);
	to->delta = to->after - to->before;
	to->deviation = sqrt(variance[0] + variance[1]);
	c->count++;
}

static int compare_names(const void *left, const void *right)
{
	const struct profile_function_row *const *a = left, *const *b = right;
	int order = strcmp((*a)->name, (*b)->name);

	return order ? order : strcmp((*a)->module, (*b)->module);
}

/* The rows of a side by name. */
static const struct profile_function_row **sorted(const struct side *side)
{
	const struct profile_function_row **order =
		mem_array(MEM_AGENT, side->count + 1, sizeof(*order));

	for (size_t i = 0; order && i < side->count; i++)
		order[i] = &side->rows[i];
	if (order)
		qsort(order, side->count, sizeof(*order), compare_names);
	return order;
}

static void pair_up(struct comparison *c, const struct profile_function_row **a,
		    const struct profile_function_row **b)
{
	size_t i = 0, j = 0;

	while (i < c->sides[0].count || j < c->sides[1].count) {
		int order = i == c->sides[0].count   ? 1
			    : j == c->sides[1].count ? -1
						     : compare_names(&a[i], &b[j]);

		change_add(c, order <= 0 ? a[i] : NULL, order >= 0 ? b[j] : NULL);
		i += order <= 0;
		j += order >= 0;
	}
}

static bool is_news(const struct comparison *c, const struct change *change)
{
	return fabs(change->delta) > c->z * change->deviation;
}

/* What is news first; what grew before what shrank; the largest first. */
static int compare_changes(const void *left, const void *right, void *ctx)
{
	const struct comparison *c = ctx;
	const struct change *a = left, *b = right;
	int news = is_news(c, b) - is_news(c, a), grown = (b->delta > 0) - (a->delta > 0);
	double x = fabs(a->delta), y = fabs(b->delta);

	if (news || grown)
		return news ? news : grown;
	if (x < y || x > y)
		return x < y ? 1 : -1;
	return strcmp(a->name, b->name);
}

static int compare_sides(struct comparison *c)
{
	const struct profile_function_row **a = sorted(&c->sides[0]), **b = sorted(&c->sides[1]);
	int err = a && b ? 0 : -ENOMEM;

	c->changes = mem_array(MEM_AGENT, c->sides[0].count + c->sides[1].count + 1,
			       sizeof(*c->changes));
	if (!err && c->changes)
		pair_up(c, a, b);
	mem_free(MEM_AGENT, a);
	mem_free(MEM_AGENT, b);
	if (err || !c->changes)
		return -ENOMEM;
	c->z = sqrt(2 * log((double)(c->count ? c->count : 1) / CHANCE));
	qsort_r(c->changes, c->count, sizeof(*c->changes), compare_changes, c);
	while (c->news < c->count && is_news(c, &c->changes[c->news])) {
		c->worse += c->changes[c->news].delta > 0;
		c->news++;
	}
	return 0;
}

static int side_fill(struct side *side)
{
	const struct profile *p = profile_merge_get(side->merge);
	struct profile_totals totals;

	profile_totals_get(p, &totals);
	side->samples = totals.samples;
	side->all_ns = (double)totals.weight_ns;
	side->sample_ns = side->all_ns / (double)(totals.samples ? totals.samples : 1);
	side->all_variance = totals.weight_variance;
	return profile_functions_new(p, false, &side->functions, &side->rows, &side->count);
}

/* ---------------------------------------------------------------- showing */
static void print_rows(const struct comparison *c, const char *title, size_t from, size_t to)
{
	if (from == to)
		return;
	printf("\n%s\n       A         B    points  (+- chance)   function\n", title);
	for (size_t i = from; i < to && i - from < c->p->rows; i++) {
		const struct change *r = &c->changes[i];

		printf("%6.2f %%  %6.2f %%    %+6.2f     %6.2f     %.200s%s%.60s\n",
		       100 * r->before, 100 * r->after, 100 * r->delta, 100 * c->z * r->deviation,
		       r->name, r->module[0] ? "  " : "", r->module);
	}
	if (to - from > c->p->rows)
		printf("  and %zu more (-n)\n", to - from - (size_t)c->p->rows);
}

static void print_comparison(const struct comparison *c)
{
	for (int i = 0; i < 2; i++) {
		printf("%c: ", 'A' + i);
		cli_ask_print(c->sides[i].merge, stdout);
	}
	print_rows(c, "larger share in B", 0, c->worse);
	print_rows(c, "smaller share in B", c->worse, c->news);
	printf("\n%zu functions compared by %s; %s differ by more than chance (%.1f standard "
	       "deviations)\n",
	       c->count, c->p->by_total ? "total" : "self", c->news ? "those above" : "none", c->z);
}

static json_t *json_change(const struct comparison *c, const struct change *r)
{
	char name[8400], module[400];

	return json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:I,s:I}", "function",
			 cli_ask_text(r->name, name, sizeof(name)), "module",
			 cli_ask_text(r->module, module, sizeof(module)), "share_a", r->before,
			 "share_b", r->after, "delta", r->delta, "chance", c->z * r->deviation,
			 "ns_a", (json_int_t)r->before_ns, "ns_b", (json_int_t)r->after_ns);
}

static int print_json(const struct comparison *c)
{
	json_t *larger = json_array(), *smaller = json_array(), *all;
	int err;

	for (size_t i = 0; i < c->news; i++) {
		bool is_worse = i < c->worse;

		if (i - (is_worse ? 0 : c->worse) < c->p->rows)
			json_array_append_new(is_worse ? larger : smaller,
					      json_change(c, &c->changes[i]));
	}
	all = json_pack("{s:o,s:o,s:I,s:f,s:o,s:o}", "a", cli_ask_json(c->sides[0].merge), "b",
			cli_ask_json(c->sides[1].merge), "functions", (json_int_t)c->count,
			"deviations", c->z, "larger", larger, "smaller", smaller);
	if (!all)
		return -ENOMEM;
	err = json_dumpf(all, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER) ? -ENOMEM : 0;
	putchar('\n');
	json_decref(all);
	return err;
}

static int compare(struct comparison *c)
{
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		err = side_fill(&c->sides[i]);
	for (int i = 0; i < 2 && !err; i++) {
		if (c->sides[i].samples)
			continue;
		log_error("%c has no samples that were asked for", 'A' + i);
		return AGENT_EXIT_FAILED;
	}
	if (!err)
		err = compare_sides(c);
	if (!err && c->p->json)
		err = print_json(c);
	else if (!err)
		print_comparison(c);
	if (err)
		log_error("out of memory");
	return err ? AGENT_EXIT_FAILED : AGENT_EXIT_DONE;
}

int cli_diff(int argc, char **argv)
{
	struct parsed p = {.ask.command = "diff", .rows = ROWS_DEFAULT};
	struct comparison c = {.p = &p};
	int status;

	if (!cli_parse("diff", &diff_argp, argc, argv, 0, &p, &p.ask.status, &status))
		return status;
	if (p.ask.store || p.path_count < 2)
		return cli_usage_error("diff", "give two files, or directories of them");
	if (!p.rows)
		p.rows = UINT64_MAX;
	status = cli_ask_read(&p.ask, p.paths, 1, "flyball diff", &c.sides[0].merge);
	if (!status)
		status = cli_ask_read(&p.ask, p.paths + 1, 1, "flyball diff", &c.sides[1].merge);
	if (!status)
		status = compare(&c);
	mem_free(MEM_AGENT, c.changes);
	for (int i = 0; i < 2; i++) {
		profile_functions_free(c.sides[i].functions);
		profile_merge_free(c.sides[i].merge);
	}
	return status;
}
