// SPDX-License-Identifier: Apache-2.0
/* The symbol tables of a file, swept from low to high addresses. On a stack lie the sized symbols
 * that still cover something: each begins after the one below it and ends before that one does, so
 * the top is the innermost. Where the stack is empty, the nearest symbol counts if it has no size.
 * The rules are those of symbol_file.c, which answers batches instead; tests hold them equal. */
#include "symbol_rules.h"
#include "symbol_spans.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_STORED 4097 /* a longer one is not demangled, and cut when it is shown */

/* As struct elf_symbol, in 24 bytes. */
struct symbol {
	uint64_t vaddr, size;
	uint32_t name;	  /* its offset in the table's strings, later in ours */
	uint16_t section; /* st_shndx */
	uint8_t info;
	uint8_t is_dynamic;
};

struct covering {
	uint64_t end;
	uint32_t symbol;
};

struct sweep {
	struct symbol_rules rules;
	struct symbol_pack_writer *writer;
	struct symbol *symbols; /* in the order of the tables */
	uint32_t *order;	/* their numbers by address, the best of an address first */
	size_t count, cap;
	struct covering *stack;
	size_t depth, stack_cap;
	uint64_t at;		    /* swept up to here */
	struct symbol *nearest;	    /* NULL: none yet */
	uint64_t nearest_end;	    /* of one without a size; else its start */
	struct symbol_spans *spans; /* name: number of the symbol, from 1 on */
};

static struct elf_symbol wide(const struct symbol *s)
{
	return (struct elf_symbol){.vaddr = s->vaddr,
				   .size = s->size,
				   .name_offset = s->name,
				   .section = s->section,
				   .type = ELF64_ST_TYPE(s->info),
				   .binding = ELF64_ST_BIND(s->info),
				   .dynamic = s->is_dynamic};
}

static int collect(void *ctx, const struct elf_symbol *e)
{
	struct sweep *w = ctx;
	void *p = w->symbols;
	int err;

	if (symbol_pack_is_late(w->writer))
		return w->writer->err;
	if (symbol_rules_is_label(&w->rules, e))
		return 0;
	err = mem_grow(MEM_SYMBOL, &p, &w->cap, w->count + 1, SYMBOL_PACKED_SYMBOLS_MAX,
		       sizeof(*w->symbols));
	w->symbols = p;
	if (err)
		return err;
	w->symbols[w->count++] =
		(struct symbol){.vaddr = e->vaddr,
				.size = e->size,
				.name = e->name_offset,
				.section = e->section,
				.info = (uint8_t)ELF64_ST_INFO(e->binding, e->type),
				.is_dynamic = e->dynamic};
	return 0;
}

static int compare_place(const void *a, const void *b, void *ctx)
{
	struct sweep *w = ctx;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const struct symbol *x = &w->symbols[i], *y = &w->symbols[j];
	struct elf_symbol p, q;
	int by_rule;

	if (x->vaddr != y->vaddr)
		return x->vaddr < y->vaddr ? -1 : 1;
	/* Out of time nobody will see the order any more. */
	if (symbol_pack_is_late(w->writer))
		return 0;
	p = wide(x);
	q = wide(y);
	by_rule = symbol_rules_compare(&w->rules, &p, &q);
	return by_rule ? by_rule : (i > j) - (i < j);
}

static uint64_t end_of(const struct symbol *s)
{
	return s->size > UINT64_MAX - s->vaddr ? UINT64_MAX : s->vaddr + s->size;
}

static int emit(struct sweep *w, const struct symbol *s)
{
	return symbol_spans_add(w->spans, w->at, s ? s->vaddr : 0,
				s ? (uint32_t)(s - w->symbols) + 1 : 0);
}

/* Everything below end is settled. */
static int sweep_to(struct sweep *w, uint64_t end)
{
	int err = 0;

	while (w->depth && w->at < end && !err) {
		struct covering *top = &w->stack[w->depth - 1];

		if (top->end <= w->at) {
			w->depth--;
			continue;
		}
		err = emit(w, &w->symbols[top->symbol]);
		w->at = top->end < end ? top->end : end;
	}
	if (!err && w->at < end && w->nearest && w->at < w->nearest_end) {
		err = emit(w, w->nearest);
		w->at = w->nearest_end < end ? w->nearest_end : end;
	}
	if (!err && w->at < end)
		err = emit(w, NULL);
	w->at = end;
	return err;
}

/* Those below that end no later are never seen again. */
static int cover(struct sweep *w, uint32_t symbol)
{
	uint64_t end = end_of(&w->symbols[symbol]);
	void *p = w->stack;
	int err;

	while (w->depth && w->stack[w->depth - 1].end <= end)
		w->depth--;
	err = mem_grow(MEM_SYMBOL, &p, &w->stack_cap, w->depth + 1, SYMBOL_PACKED_SYMBOLS_MAX,
		       sizeof(*w->stack));
	w->stack = p;
	if (!err)
		w->stack[w->depth++] = (struct covering){end, symbol};
	return err;
}

static void nearest_set(struct sweep *w, struct symbol *s)
{
	uint64_t start, end, most;

	w->nearest = s;
	w->nearest_end = s->vaddr;
	if (s->size || s->vaddr == UINT64_MAX)
		return;
	/* Without section headers nobody knows where it ends. */
	w->nearest_end = s->vaddr + 1;
	most = s->vaddr > UINT64_MAX - SYMBOL_GAP_MAX ? UINT64_MAX : s->vaddr + SYMBOL_GAP_MAX;
	if (elf_section_range(w->rules.elf, s->section, &start, &end) || s->vaddr < start ||
	    s->vaddr >= end)
		return;
	w->nearest_end = end < most ? end : most;
}

/* Symbols first to last, of one start, the best first. */
static int place(struct sweep *w, size_t first, size_t last)
{
	struct symbol *nearest = &w->symbols[w->order[first]];
	int err = sweep_to(w, nearest->vaddr);

	for (size_t i = last + 1; i-- > first && !err;) {
		if (w->symbols[w->order[i]].size)
			err = cover(w, w->order[i]);
	}
	/* A sized symbol at the same place says where the code ends. */
	for (size_t i = first; i <= last; i++) {
		if (w->symbols[w->order[i]].size) {
			nearest = &w->symbols[w->order[i]];
			break;
		}
	}
	nearest_set(w, nearest);
	return err;
}

static int sweep_all(struct sweep *w)
{
	int err = 0;

	w->order = mem_array(MEM_SYMBOL, w->count, sizeof(*w->order));
	if (!w->order)
		return -ENOMEM;
	for (size_t i = 0; i < w->count; i++)
		w->order[i] = (uint32_t)i;
	qsort_r(w->order, w->count, sizeof(*w->order), compare_place, w);
	for (size_t i = 0, last; i < w->count && !err; i = last + 1) {
		if (symbol_pack_is_late(w->writer))
			return w->writer->err;
		for (last = i; last + 1 < w->count;) {
			if (w->symbols[w->order[last + 1]].vaddr != w->symbols[w->order[i]].vaddr)
				break;
			last++;
		}
		err = place(w, i, last);
	}
	return err ? err : sweep_to(w, UINT64_MAX);
}

/* ------------------------------------------------------------------ names */

struct use {
	uint32_t is_dynamic, name, symbol;
};

static int compare_use(const void *a, const void *b)
{
	const struct use *x = a, *y = b;

	if (x->is_dynamic != y->is_dynamic)
		return x->is_dynamic < y->is_dynamic ? -1 : 1;
	return (x->name > y->name) - (x->name < y->name);
}

/* In the order of the strings, so that each piece of the file is read once, and each name written
 * once. */
static int names_write(struct sweep *w, struct use *uses, size_t count)
{
	uint32_t name = 0;

	qsort(uses, count, sizeof(*uses), compare_use);
	for (size_t i = 0; i < count && !w->writer->err; i++) {
		struct symbol *s = &w->symbols[uses[i].symbol];
		struct elf_symbol e = wide(s);

		if (!i || compare_use(&uses[i - 1], &uses[i])) {
			char *text = w->rules.names[0];

			name = 0;
			if (!symbol_rules_name(&w->rules, &e, 0)) {
				if (strlen(text) > NAME_MAX_STORED)
					text[NAME_MAX_STORED] = 0;
				name = symbol_pack_name(w->writer, text);
			}
		}
		s->name = name;
		if (symbol_pack_is_late(w->writer))
			break;
	}
	return w->writer->err;
}

/* Puts names in the place of the symbols' numbers. */
static int names_settle(struct sweep *w)
{
	struct symbol_spans *spans = w->spans;
	struct use *uses = mem_array(MEM_SYMBOL, w->count, sizeof(*uses));
	uint8_t *seen = mem_array(MEM_SYMBOL, w->count, 1);
	size_t count = 0;
	int err = -ENOMEM;

	if (uses && seen) {
		for (size_t i = 0; i < spans->count; i++) {
			uint32_t n = spans->items[i].name;

			if (!n || seen[n - 1])
				continue;
			seen[n - 1] = 1;
			uses[count++] = (struct use){w->symbols[n - 1].is_dynamic,
						     w->symbols[n - 1].name, n - 1};
		}
		err = names_write(w, uses, count);
	}
	for (size_t i = 0; i < spans->count && !err; i++) {
		struct symbol_span *s = &spans->items[i];

		if (s->name)
			s->name = w->symbols[s->name - 1].name;
	}
	mem_free(MEM_SYMBOL, uses);
	mem_free(MEM_SYMBOL, seen);
	return err;
}

int symbol_pack_table(struct elf_file *elf, struct symbol_pack_writer *writer,
		      struct symbol_spans *ret, struct why *why)
{
	struct sweep w = {.writer = writer, .spans = ret};
	int err = symbol_rules_init(&w.rules, elf);

	if (!err)
		err = elf_symbols(elf, SYMBOL_TABLE_MAX, collect, &w, why);
	if (!err && w.count)
		err = sweep_all(&w);
	if (!err && w.count)
		err = names_settle(&w);
	mem_free(MEM_SYMBOL, w.symbols);
	mem_free(MEM_SYMBOL, w.order);
	mem_free(MEM_SYMBOL, w.stack);
	symbol_rules_done(&w.rules);
	return err;
}
