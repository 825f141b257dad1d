// SPDX-License-Identifier: Apache-2.0
/* Names from an ELF file for a batch of addresses, in one pass over its symbols. Each query keeps
 * the best sized symbol that covers it. Beside it stands the nearest symbol at or below, whatever
 * its size: a symbol of size 0 covers an address only when nothing else begins in between. The
 * nearest is noted at the first query at or above the symbol only, and carried on after the pass.
 */
#include "symbol_order.h"
#include "symbol_sources.h"

#include <elf.h>
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
	bool has_marks; /* $x, $d: mapping symbols of the ARM ABIs */
	char *names[2]; /* scratch, ELF_NAME_MAX + 1 bytes each */
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

static int name_read(struct lookup *l, const struct elf_symbol *symbol, int slot)
{
	int err = elf_symbol_name(l->elf, symbol, l->names[slot], ELF_NAME_MAX + 1);
	char *version;

	if (err)
		return err;
	/* foo@VERS, foo@@VERS: the linker's notation, no part of the name. */
	version = strchr(l->names[slot] + 1, '@');
	if (l->names[slot][0] && version)
		*version = 0;
	return l->names[slot][0] ? 0 : -ENOENT;
}

/* Labels of the assembler and mapping symbols name no function. */
static bool is_label(struct lookup *l, const struct elf_symbol *s)
{
	const char *name = l->names[0];

	if (s->type != STT_NOTYPE || s->binding != STB_LOCAL)
		return false;
	if (name_read(l, s, 0))
		return true;
	if (name[0] == '.' && name[1] == 'L')
		return true;
	return l->has_marks && name[0] == '$' && (name[1] == 'x' || name[1] == 'd') &&
	       (!name[2] || name[2] == '.');
}

static unsigned int binding_rank(const struct elf_symbol *s)
{
	return s->binding == STB_LOCAL ? 2 : s->binding == STB_WEAK ? 1 : 0;
}

/* Among symbols of one start: less is better. Reads names only when all else is equal. */
static int symbol_compare(struct lookup *l, const struct elf_symbol *a, const struct elf_symbol *b)
{
	size_t len_a, len_b;

	if (binding_rank(a) != binding_rank(b))
		return binding_rank(a) < binding_rank(b) ? -1 : 1;
	if (a->dynamic != b->dynamic)
		return a->dynamic ? 1 : -1;
	if (name_read(l, a, 0))
		return 1;
	if (name_read(l, b, 1))
		return -1;
	len_a = strlen(l->names[0]);
	len_b = strlen(l->names[1]);
	if (len_a != len_b)
		return len_a < len_b ? -1 : 1;
	return strcmp(l->names[0], l->names[1]);
}

static void covering_note(struct lookup *l, struct best *best, const struct elf_symbol *s)
{
	const struct elf_symbol *had = &best->covering;

	if (best->has_covering) {
		if (s->vaddr < had->vaddr)
			return;
		if (s->vaddr == had->vaddr && symbol_compare(l, s, had) >= 0)
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
		} else if (symbol_compare(l, s, had) >= 0) {
			return;
		}
	}
	if (is_label(l, s))
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
	if (is_label(l, s))
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
		if (name_read(l, s, 0))
			return 0;
		symbol_demangle(l->names[0], text, sizeof(text));
		name = mem_copy_string(MEM_SYMBOL, text);
	}
	if (!name)
		return -ENOMEM;
	symbol_answer(query, s->vaddr, name, NULL);
	return 0;
}

static int answer_all(struct lookup *l)
{
	const struct elf_symbol *last = NULL;

	for (size_t i = 0; i < l->count; i++) {
		struct best *best = &l->best[i], *before = i ? best - 1 : NULL;
		const struct elf_symbol *s = NULL;

		if (before && before->has_nearest &&
		    (!best->has_nearest || before->nearest.vaddr > best->nearest.vaddr)) {
			best->nearest = before->nearest;
			best->has_nearest = true;
		}
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
	l.has_marks = elf_get_info(elf)->machine == EM_AARCH64;
	l.best = mem_array(MEM_SYMBOL, count, sizeof(*l.best));
	l.names[0] = mem_alloc(MEM_SYMBOL, ELF_NAME_MAX + 1);
	l.names[1] = mem_alloc(MEM_SYMBOL, ELF_NAME_MAX + 1);
	if (l.best && l.names[0] && l.names[1])
		err = elf_symbols(elf, SYMBOL_TABLE_MAX, visit, &l, why);
	else
		why_set(why, err, "out of memory");
	if (!err && answer_all(&l))
		err = why_set(why, -ENOMEM, "out of memory");
	mem_free(MEM_SYMBOL, l.best);
	mem_free(MEM_SYMBOL, l.names[0]);
	mem_free(MEM_SYMBOL, l.names[1]);
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
