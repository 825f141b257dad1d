// SPDX-License-Identifier: Apache-2.0
/* Names from an ELF file for a batch of addresses, in one pass over its symbols. Each query keeps
 * the best sized symbol that covers it. Beside it stands the nearest symbol at or below, whatever
 * its size: a symbol of size 0 covers an address only when nothing else begins in between. The
 * nearest is noted at the first query at or above the symbol only, and carried on after the pass.
 */
#include "symbol_order.h"
#include "symbol_rules.h"
#include "symbol_sources.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct best {
	struct elf_symbol covering, nearest;
	bool has_covering, has_nearest;
};

struct lookup {
	struct elf_file *elf;
	struct symbol_query *queries;
	size_t count;
	struct best *best;
	struct symbol_rules rules;
};

int symbol_query_compare(const void *a, const void *b)
{
	const struct symbol_query *p = a, *q = b;

	return p->address < q->address ? -1 : p->address > q->address;
}

size_t symbol_query_at_or_above(const struct symbol_query *queries, size_t count, uint64_t address)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (queries[mid].address < address)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void symbol_answer(struct symbol_query *query, uint64_t start, char *name, char *module)
{
	query->found = 1;
	query->start = start;
	query->name = name;
	query->module = module;
}

static void covering_note(struct lookup *l, struct best *best, const struct elf_symbol *s)
{
	const struct elf_symbol *had = &best->covering;

	if (best->has_covering) {
		if (s->vaddr < had->vaddr)
			return;
		if (s->vaddr == had->vaddr && symbol_rules_compare(&l->rules, s, had) >= 0)
			return;
	}
	best->covering = *s;
	best->has_covering = true;
}

static void nearest_note(struct lookup *l, struct best *best, const struct elf_symbol *s)
{
	const struct elf_symbol *had = &best->nearest;

	if (best->has_nearest && s->vaddr <= had->vaddr) {
		if (s->vaddr < had->vaddr)
			return;
		/* A sized symbol at the same place says where the code ends. */
		if (!s->size != !had->size) {
			if (!s->size)
				return;
		} else if (symbol_rules_compare(&l->rules, s, had) >= 0) {
			return;
		}
	}
	if (symbol_rules_is_label(&l->rules, s))
		return;
	best->nearest = *s;
	best->has_nearest = true;
}

static int visit(void *ctx, const struct elf_symbol *s)
{
	struct lookup *l = ctx;
	size_t first = symbol_query_at_or_above(l->queries, l->count, s->vaddr);

	if (first == l->count)
		return 0;
	nearest_note(l, &l->best[first], s);
	if (!s->size || l->queries[first].address - s->vaddr >= s->size)
		return 0;
	if (symbol_rules_is_label(&l->rules, s))
		return 0;
	for (size_t i = first; i < l->count && l->queries[i].address - s->vaddr < s->size; i++)
		covering_note(l, &l->best[i], s);
	return 0;
}

static bool gap_covers(struct lookup *l, const struct elf_symbol *s, uint64_t address)
{
	uint64_t start, end;

	if (s->size || address - s->vaddr >= SYMBOL_GAP_MAX)
		return false;
	if (address == s->vaddr)
		return true;
	/* Without section headers nobody knows where it ends. */
	return !elf_section_range(l->elf, s->section, &start, &end) && s->vaddr >= start &&
	       address < end;
}

static bool is_same(const struct elf_symbol *a, const struct elf_symbol *b)
{
	return a && a->vaddr == b->vaddr && a->name_offset == b->name_offset &&
	       a->dynamic == b->dynamic;
}

/* last is what the query before was answered with, or NULL. */
static int answer(struct lookup *l, struct symbol_query *query, const struct elf_symbol *s,
		  const struct elf_symbol *last)
{
	char text[SYMBOL_NAME_MAX], *name;

	if (is_same(last, s)) {
		name = mem_copy_string(MEM_SYMBOL, query[-1].name);
	} else {
		if (symbol_rules_name(&l->rules, s, 0))
			return 0;
		symbol_demangle(l->rules.names[0], text, sizeof(text));
		name = mem_copy_string(MEM_SYMBOL, text);
	}
	if (!name)
		return -ENOMEM;
	symbol_answer(query, s->vaddr, name, NULL);
	return 0;
}

/* What lies nearest below an address may lie below the one before. */
static void inherit_nearest(struct best *best, const struct best *before)
{
	if (!before->has_nearest ||
	    (best->has_nearest && before->nearest.vaddr <= best->nearest.vaddr))
		return;
	best->nearest = before->nearest;
	best->has_nearest = true;
}

static int answer_all(struct lookup *l)
{
	const struct elf_symbol *last = NULL;

	for (size_t i = 0; i < l->count; i++) {
		struct best *best = &l->best[i];
		const struct elf_symbol *s = NULL;

		if (i)
			inherit_nearest(best, best - 1);
		if (best->has_covering)
			s = &best->covering;
		else if (best->has_nearest && gap_covers(l, &best->nearest, l->queries[i].address))
			s = &best->nearest;
		if (s && answer(l, &l->queries[i], s, last))
			return -ENOMEM;
		last = l->queries[i].found ? s : NULL;
	}
	return 0;
}

int symbol_lookup_table(struct elf_file *elf, struct symbol_query *queries, size_t count,
			struct why *why)
{
	struct lookup l = {.elf = elf, .queries = queries, .count = count};
	int err = -ENOMEM;

	symbol_queries_reset(queries, count);
	if (!count)
		return 0;
	l.best = mem_array(MEM_SYMBOL, count, sizeof(*l.best));
	if (!symbol_rules_init(&l.rules, elf) && l.best)
		err = elf_symbols(elf, SYMBOL_TABLE_MAX, visit, &l, why);
	else
		why_set(why, err, "out of memory");
	if (!err && answer_all(&l))
		err = why_set(why, -ENOMEM, "out of memory");
	mem_free(MEM_SYMBOL, l.best);
	symbol_rules_done(&l.rules);
	return err;
}

void symbol_queries_reset(struct symbol_query *queries, size_t count)
{
	bool is_sorted = true;

	for (size_t i = 0; i < count; i++) {
		queries[i].found = 0;
		queries[i].start = 0;
		queries[i].name = NULL;
		queries[i].module = NULL;
		if (i && queries[i].address < queries[i - 1].address)
			is_sorted = false;
	}
	if (!is_sorted)
		qsort(queries, count, sizeof(*queries), symbol_query_compare);
}
