// SPDX-License-Identifier: Apache-2.0
/* views: a profile as a tree of calls and as a table of spans. Both are sums over the samples, kept
 * under the key they are for. */
#include "frames.h"
#include "functions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- tree */
/* Nodes are (parent, function) pairs with the sums of both kinds; a node has a greater number than
 * its parent. Node 0 is the root of all. */
struct tree {
	struct profile_functions f;
	struct profile_intern nodes;
	struct node {
		uint64_t total_ns, self_ns;
		uint32_t parent, function;
		uint32_t first_child, next; /* 0: none */
	} *rows;
	size_t cap;
};

static int64_t node_add(struct tree *t, uint32_t parent, int64_t function)
{
	const uint32_t key[2] = {parent, (uint32_t)function};
	size_t before = t->nodes.count;
	void *rows = t->rows;
	int64_t id;
	int err;

	if (function < 0)
		return function;
	err = mem_grow(MEM_PROFILE, &rows, &t->cap, before + 1, INT32_MAX, sizeof(*t->rows));
	t->rows = rows;
	if (err)
		return err;
	id = profile_intern_add(&t->nodes, key, sizeof(key));
	if (id >= 0 && t->nodes.count > before)
		t->rows[id] = (struct node){.parent = parent, .function = (uint32_t)function};
	return id;
}

static int64_t step(struct tree *t, int64_t node, int64_t function, uint64_t ns)
{
	if (node >= 0)
		node = node_add(t, (uint32_t)node, function);
	if (node >= 0)
		t->rows[node].total_ns += ns;
	return node;
}

static int tree_add(struct tree *t, uint32_t sample)
{
	const struct profile *p = t->f.p;
	const struct profile_sample_key *key = profile_sample_key(p, sample);
	uint64_t ns = key->weight_ns * p->sample_rows[sample].count;
	const char *comm = profile_text(p, key->comm);
	struct profile_pseudo pseudo;
	size_t n = profile_pseudo_frames(p, key, &pseudo), frames;
	const uint32_t *stack = profile_stack(p, key->stack, &frames);
	int64_t node =
		step(t, 0, profile_functions_add(&t->f, comm[0] ? comm : "[noname]", ""), ns);

	t->rows[0].total_ns += ns;
	for (size_t i = 0; i < n; i++)
		node = step(t, node, profile_functions_add(&t->f, pseudo.text[i], ""), ns);
	for (size_t i = frames; i-- > 0;) {
		for (uint32_t k = t->f.first[stack[i] + 1]; k-- > t->f.first[stack[i]];)
			node = step(t, node, t->f.of_frame[k], ns);
	}
	if (node >= 0)
		t->rows[node].self_ns += ns;
	return node < 0 ? (int)node : 0;
}

/* Heavier first; of two as heavy the one that came first. */
static int compare_nodes(const void *left, const void *right, void *ctx)
{
	const struct node *rows = ctx;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	if (rows[a].total_ns != rows[b].total_ns)
		return rows[a].total_ns < rows[b].total_ns ? 1 : -1;
	return a < b ? -1 : a > b;
}

static int tree_link(struct tree *t, uint64_t min_ns)
{
	uint32_t *order = mem_array(MEM_PROFILE, t->nodes.count, sizeof(*order));
	size_t n = 0;

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 1; i < t->nodes.count; i++) {
		if (t->rows[i].total_ns >= min_ns)
			order[n++] = i;
	}
	if (n)
		qsort_r(order, n, sizeof(*order), compare_nodes, t->rows);
	/* put in front, from the lightest on */
	while (n-- > 0) {
		struct node *node = &t->rows[order[n]], *parent = &t->rows[node->parent];

		node->next = parent->first_child;
		parent->first_child = order[n];
	}
	mem_free(MEM_PROFILE, order);
	return 0;
}

/* Down to the first child, else to the next one of the nearest that has one. */
static int tree_walk(const struct tree *t, profile_tree_visit visit, void *ctx)
{
	uint32_t node = t->rows[0].first_child, depth = 0;

	while (node) {
		const struct node *row = &t->rows[node];
		const struct profile_tree_node out = {
			.name = profile_functions_name(&t->f, row->function),
			.module = profile_functions_module(&t->f, row->function),
			.depth = depth,
			.total_ns = row->total_ns,
			.self_ns = row->self_ns};
		int err = visit(ctx, &out);

		if (err)
			return err;
		if (row->first_child) {
			node = row->first_child;
			depth++;
			continue;
		}
		while (node && !t->rows[node].next) {
			node = t->rows[node].parent;
			depth -= depth > 0;
		}
		node = node ? t->rows[node].next : 0;
	}
	return 0;
}

int profile_tree(const struct profile *p, double min_share, profile_tree_visit visit, void *ctx)
{
	struct tree t = {.cap = 0};
	int err = profile_functions_init(&t.f, p);

	profile_intern_init(&t.nodes, &t.f.budget);
	if (!err)
		err = (int)node_add(&t, 0, UINT32_MAX);
	for (uint32_t i = 0; i < p->samples.count && !err; i++)
		err = tree_add(&t, i);
	if (!err)
		err = tree_link(&t, (uint64_t)(min_share * (double)t.rows[0].total_ns));
	if (!err)
		err = tree_walk(&t, visit, ctx);
	profile_intern_done(&t.nodes);
	profile_functions_done(&t.f);
	mem_free(MEM_PROFILE, t.rows);
	return err;
}

/* ---------------------------------------------------------------- spans */
struct spans {
	struct profile_functions f;
	struct profile_intern pairs; /* span, leaf function */
	uint64_t *pair_ns;
	size_t pair_cap;
	struct profile_span_total *rows;
};

static int leaf_add(struct spans *s, uint32_t span, uint32_t function, uint64_t ns)
{
	const uint32_t key[2] = {span, function};
	size_t before = s->pairs.count;
	void *sums = s->pair_ns;
	int64_t id;
	int err = mem_grow(MEM_PROFILE, &sums, &s->pair_cap, before + 1, INT32_MAX,
			   sizeof(*s->pair_ns));

	s->pair_ns = sums;
	if (err)
		return err;
	id = profile_intern_add(&s->pairs, key, sizeof(key));
	if (id < 0)
		return (int)id;
	if (s->pairs.count > before)
		s->pair_ns[id] = 0;
	s->pair_ns[id] += ns;
	return 0;
}

static int span_add(struct spans *s, uint32_t sample)
{
	const struct profile *p = s->f.p;
	const struct profile_sample_key *key = profile_sample_key(p, sample);
	const struct profile_sample_row *row = &p->sample_rows[sample];
	struct profile_span_total *total;
	size_t frames;
	const uint32_t *stack = profile_stack(p, key->stack, &frames);

	if (!key->span)
		return 0;
	total = &s->rows[key->span - 1];
	total->span = *profile_span_of(p, key);
	total->samples += row->count;
	total->weight_ns += row->count * key->weight_ns;
	if (!frames)
		return 0;
	return leaf_add(s, key->span - 1, s->f.of_frame[s->f.first[stack[0]]],
			row->count * key->weight_ns);
}

/* Keeps the heaviest functions of each span, in order. */
static void leaves_pick(struct spans *s)
{
	for (uint32_t i = 0; i < s->pairs.count; i++) {
		const uint32_t *pair = profile_intern_get(&s->pairs, i, NULL);
		struct profile_span_total *total = &s->rows[pair[0]];
		size_t at = total->top_count;

		while (at > 0 && total->top[at - 1].self_ns < s->pair_ns[i])
			at--;
		if (at == PROFILE_SPAN_TOP)
			continue;
		if (total->top_count < PROFILE_SPAN_TOP)
			total->top_count++;
		memmove(&total->top[at + 1], &total->top[at],
			(total->top_count - 1 - at) * sizeof(total->top[0]));
		total->top[at].self_ns = s->pair_ns[i];
		total->top[at].name = profile_functions_name(&s->f, pair[1]);
	}
}

static int compare_spans(const void *left, const void *right)
{
	const struct profile_span_total *a = left, *b = right;

	if (a->weight_ns != b->weight_ns)
		return a->weight_ns < b->weight_ns ? 1 : -1;
	return memcmp(&a->span, &b->span, sizeof(a->span));
}

int profile_spans(const struct profile *p, profile_span_visit visit, void *ctx)
{
	struct spans s = {.pair_cap = 0};
	int err = profile_functions_init(&s.f, p);

	profile_intern_init(&s.pairs, &s.f.budget);
	s.rows = mem_array(MEM_PROFILE, p->spans.count, sizeof(*s.rows));
	if (!err && !s.rows)
		err = -ENOMEM;
	for (uint32_t i = 0; i < p->samples.count && !err; i++)
		err = span_add(&s, i);
	if (!err) {
		leaves_pick(&s);
		if (p->spans.count)
			qsort(s.rows, p->spans.count, sizeof(*s.rows), compare_spans);
	}
	for (uint32_t i = 0; i < p->spans.count && !err; i++)
		err = s.rows[i].samples ? visit(ctx, &s.rows[i]) : 0;
	profile_intern_done(&s.pairs);
	profile_functions_done(&s.f);
	mem_free(MEM_PROFILE, s.pair_ns);
	mem_free(MEM_PROFILE, s.rows);
	return err;
}
