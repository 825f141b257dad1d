// SPDX-License-Identifier: Apache-2.0
/*
 * One table: every entry is read once to know the functions and their order, then the functions are
 * run by ascending address.
 *
 * A function is kept as 8 bytes: start and place of its entry, both from a base. When a file has
 * more than UNWIND_PASS_FDES of them, the text is cut into spans that have fewer, and the file is
 * read once for each.
 */
#include "unwind.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "unwind_cfi.h"
#include "unwind_elf.h"
#include "unwind_go.h"
#include "unwind_rows.h"
#include "unwind_sort.h"

#define TRACKED_SHARE	    20000ULL /* one row in so many */
#define TABLE_BYTES_DEFAULT (16U << 20)

struct build {
	struct unwind_reader reader;
	struct unwind_place place;
	struct unwind_cfi cfi;
	struct unwind_rows rows;
	struct unwind_table *table;
	uint64_t base, base_pages; /* lowest page of text; number of pages */
	uint64_t lowest, highest;  /* of all functions */
	uint64_t *keys;		   /* start - base << 32 | offset - place.offset */
	size_t count, cap;
	uint32_t *per_page; /* functions that start there */
	uint64_t total;
	uint32_t fdes_bad, fdes_dropped;
};

static bool is_text(const struct unwind_place *place, uint64_t start, uint64_t bytes)
{
	for (uint32_t i = 0; i < place->range_count; i++) {
		const struct unwind_range *r = &place->ranges[i];

		if (start >= r->start && start < r->end && bytes <= r->end - start)
			return true;
	}
	return false;
}

static uint32_t page_of(const struct build *b, uint64_t address)
{
	return (uint32_t)((address - b->base) >> FLY_PAGE_SHIFT);
}

static uint64_t key_of(const struct build *b, const struct unwind_entry *e, uint64_t offset)
{
	return (e->start - b->base) << 32 | (offset - b->place.offset);
}

static int add_key(struct build *b, uint64_t key)
{
	int err = mem_grow(UNWIND_MEM, (void **)&b->keys, &b->cap, b->count + 1,
			   UNWIND_PASS_FDES + 1, sizeof(*b->keys));

	if (!err)
		b->keys[b->count++] = key;
	return err;
}

/* Keeps a function whose start lies in [from, to). */
static int keep(struct build *b, const struct unwind_entry *e, uint64_t offset, uint64_t from,
		uint64_t to)
{
	if (e->start < from || e->start >= to)
		return 0;
	/* Full: the first pass goes on to count, a later one has met a page of doubles. */
	if (b->count >= UNWIND_PASS_FDES) {
		b->fdes_dropped += b->table->stats.passes > 1;
		return 0;
	}
	return add_key(b, key_of(b, e, offset));
}

/* Reads every entry; keeps the functions that start in [from, to). */
static int scan(struct build *b, uint64_t from, uint64_t to, bool is_first)
{
	uint64_t offset = b->place.offset;
	struct unwind_entry e;
	int err;

	b->table->stats.passes++;
	for (;; offset = e.next) {
		switch (unwind_entry_read(&b->cfi, offset, &e)) {
		case UNWIND_ENTRY_END:
			if (is_first)
				b->table->info_bytes = offset - b->place.offset;
			return b->reader.err;
		case UNWIND_ENTRY_OTHER:
			continue;
		case UNWIND_ENTRY_BAD:
			b->fdes_bad += is_first;
			continue;
		case UNWIND_ENTRY_FDE:
			break;
		}
		if (!e.bytes || !is_text(&b->place, e.start, e.bytes)) {
			b->fdes_dropped += is_first;
			continue;
		}
		if (is_first) {
			b->lowest = e.start < b->lowest ? e.start : b->lowest;
			b->highest =
				e.start + e.bytes > b->highest ? e.start + e.bytes : b->highest;
		}
		if (is_first) {
			b->per_page[page_of(b, e.start)]++;
			b->total++;
		}
		err = keep(b, &e, offset, from, to);
		if (err)
			return err;
	}
}

/* Runs the functions of keys, ascending. Of several that start at one address the longest counts;
 * one that reaches into the next is cut there. With `carry` the last start is left for the next
 * span, where the start after it will be known. */
static void run(struct build *b, bool carry)
{
	struct unwind_entry e;
	uint64_t start, next;
	size_t i, k;

	for (i = 0; i < b->count; i = k) {
		uint64_t longest = 0, best = 0;

		start = b->keys[i] >> 32;
		for (k = i; k < b->count && b->keys[k] >> 32 == start; k++) {
			uint64_t offset = (uint32_t)b->keys[k] + b->place.offset;

			if (unwind_entry_read(&b->cfi, offset, &e) == UNWIND_ENTRY_FDE &&
			    e.bytes > longest) {
				longest = e.bytes;
				best = offset;
			}
		}
		if (k == b->count && carry)
			break;
		b->table->stats.fdes_dropped += k - i - 1;
		start += b->base;
		next = k < b->count ? (b->keys[k] >> 32) + b->base : UINT64_MAX;
		if (!longest || b->rows.err)
			continue;
		/* The last read is the one wanted, but for doubles. */
		if (k - i > 1 && unwind_entry_read(&b->cfi, best, &e) != UNWIND_ENTRY_FDE)
			continue;
		if (e.bytes > next - start)
			e.bytes = next - start;
		b->table->stats.fdes++;
		unwind_rows_function(&b->rows, start, start + e.bytes);
		unwind_entry_run(&b->cfi, &e, unwind_rows_row, &b->rows);
	}
	/* What is carried over comes first in the next span. */
	if (carry)
		memmove(b->keys, b->keys + i, (b->count - i) * sizeof(*b->keys));
	b->count = carry ? b->count - i : 0;
}

static int run_spans(struct build *b)
{
	uint32_t page = 0, end = (uint32_t)b->base_pages;
	int err = 0;

	if (b->total <= UNWIND_PASS_FDES) {
		unwind_sort(b->keys, b->count);
		run(b, false);
		return b->rows.err;
	}
	if (b->total > UNWIND_FDES_MAX)
		return -ERANGE;
	b->count = 0;
	while (page < end && !err) {
		/* Half is left for what is carried over and for one overfull page. */
		uint64_t sum = b->per_page[page], from = b->base;
		uint32_t next = page + 1;

		while (next < end && sum + b->per_page[next] <= UNWIND_PASS_FDES / 2)
			sum += b->per_page[next++];
		from += (uint64_t)page << FLY_PAGE_SHIFT;
		page = next;
		if (!sum)
			continue;
		err = scan(b, from, b->base + ((uint64_t)next << FLY_PAGE_SHIFT), false);
		unwind_sort(b->keys, b->count);
		if (!err)
			run(b, true);
		if (!err)
			err = b->rows.err;
	}
	if (!err)
		run(b, false);
	return err ? err : b->rows.err;
}

/* ------------------------------------------------------------------ the table */

/* The text, as the headers say. */
static int measure(struct build *b, struct why *why)
{
	const uint64_t mask = FLY_PAGE_BYTES - 1;
	uint64_t start = UINT64_MAX, end = 0;

	for (uint32_t i = 0; i < b->place.range_count; i++) {
		const struct unwind_range *r = &b->place.ranges[i];

		start = r->start < start ? r->start : start;
		end = r->end > end ? r->end : end;
		b->table->stats.text_bytes += r->end - r->start;
	}
	b->base = start & ~mask;
	b->base_pages = ((end - 1 - b->base) >> FLY_PAGE_SHIFT) + 1;
	if (b->base_pages > FLY_PAGES_MAX || end > UINT64_MAX - FLY_PAGE_BYTES)
		return why_set(why, -ERANGE, "its text spans %llu MiB; at most 2048 are unwound",
			       (unsigned long long)(b->base_pages >> 4));
	if (b->place.bytes > UNWIND_INFO_BYTES_MAX)
		return why_set(
			why, -ERANGE, "%llu MiB of call frame information; at most %u are read",
			(unsigned long long)(b->place.bytes >> 20), UNWIND_INFO_BYTES_MAX >> 20);
	b->lowest = UINT64_MAX;
	b->highest = 0;
	b->per_page = mem_array(UNWIND_MEM, b->base_pages, sizeof(*b->per_page));
	return b->per_page ? 0 : why_set(why, -ENOMEM, "out of memory");
}

/* The table has pages from the first function to the last; rodata beside them takes none. */
static int make_table(struct build *b, size_t bytes_max)
{
	struct unwind_table *t = b->table;

	t->machine = b->place.machine;
	t->found = b->place.found;
	t->info_offset = b->place.offset;
	t->info_address = b->place.address;
	t->scale = b->cfi.arch->scale;
	if (b->lowest >= b->highest)
		return 0;
	t->start = b->lowest & ~(uint64_t)(FLY_PAGE_BYTES - 1);
	t->page_count = page_of(b, b->highest - 1) - page_of(b, t->start) + 1;
	t->pages = mem_array(UNWIND_MEM, t->page_count, sizeof(*t->pages));
	if (!t->pages)
		return -ENOMEM;
	return unwind_rows_init(&b->rows, t, b->cfi.arch, bytes_max);
}

static void make_stats(struct build *b)
{
	struct unwind_stats *s = &b->table->stats;

	s->fdes_bad = b->fdes_bad;
	s->fdes_dropped += b->fdes_dropped;
	s->scratch_bytes = sizeof(*b) + unwind_reader_bytes() + b->cap * sizeof(*b->keys) +
			   b->base_pages * sizeof(*b->per_page) +
			   unwind_rows_scratch_bytes(&b->rows);
}

/* Go's functions are sorted: they go to rows as they come. */
static int build_go(struct build *b, size_t bytes_max)
{
	uint64_t start, end, from, to = 0;
	struct unwind_go go;
	int err = unwind_go_open(&go, &b->reader, &b->place);

	if (err)
		return b->reader.err ? b->reader.err : err;
	if (!unwind_go_function(&go, 0, &from, &end) ||
	    !unwind_go_function(&go, go.count - 1, &start, &to) || from >= to ||
	    !is_text(&b->place, from, to - from))
		return b->reader.err ? b->reader.err : -EBADMSG;
	b->lowest = from;
	b->highest = to;
	b->table->stats.passes = 1;
	b->table->info_bytes = b->place.bytes;
	err = make_table(b, bytes_max);
	for (uint32_t i = 0; !err && i < go.count; i++) {
		if (!unwind_go_function(&go, i, &start, &end) || start < from || end > to) {
			b->fdes_bad++;
			continue;
		}
		from = end;
		b->table->stats.fdes++;
		unwind_rows_function(&b->rows, start, end);
		b->fdes_bad += !unwind_go_run(&go, i, start, end, unwind_rows_row, &b->rows);
		err = b->reader.err ? b->reader.err : b->rows.err;
	}
	return err ? err : unwind_rows_finish(&b->rows);
}

static int build_cfi(struct build *b, size_t bytes_max)
{
	int err = scan(b, b->base, UINT64_MAX, true);

	if (!err)
		err = make_table(b, bytes_max);
	/* Without a function it is a table of no pages. */
	if (!err && b->table->page_count) {
		err = run_spans(b);
		if (!err)
			err = unwind_rows_finish(&b->rows);
	}
	return err;
}

static int build_found(struct build *b, const struct unwind_options *options, uint8_t tracked,
		       struct why *why)
{
	size_t max = options->table_bytes_max ? options->table_bytes_max : TABLE_BYTES_DEFAULT;
	int err;

	unwind_cfi_init(&b->cfi, &b->reader, &b->place, unwind_arch_find(b->place.machine),
			tracked);
	b->table->tracked = tracked;
	err = measure(b, why);
	if (err)
		return err;
	err = b->place.found == UNWIND_GO ? build_go(b, max) : build_cfi(b, max);
	make_stats(b);
	if (err == -ERANGE)
		return why_set(why, err, "%llu functions; at most %u are unwound",
			       (unsigned long long)b->total, UNWIND_FDES_MAX);
	if (err == -ENOSPC)
		return why_set(why, err, "its table takes more than %zu bytes", max);
	if (err)
		return why_set(why, err, "building the table: %s", strerror(-err));
	return 0;
}

static void drop_results(struct build *b)
{
	unwind_rows_done(&b->rows);
	mem_free(UNWIND_MEM, b->keys);
	mem_free(UNWIND_MEM, b->per_page);
	b->keys = NULL;
	b->per_page = NULL;
	b->count = b->cap = 0;
	b->total = 0;
	b->fdes_bad = b->fdes_dropped = 0;
}

static int build_again(struct build *b, const struct unwind_options *options, uint8_t tracked,
		       struct why *why)
{
	drop_results(b);
	unwind_table_free(b->table);
	b->table = mem_alloc(UNWIND_MEM, sizeof(*b->table));
	if (!b->table)
		return why_set(why, -ENOMEM, "out of memory");
	return build_found(b, options, tracked, why);
}

/* The callee-saved register that most rows need, 0: none, or so few that keeping track in all other
 * rows is not worth it (in node 4 % of the table for 5 bytes of text). Only x86-64 has room for it
 * in a rule. */
static uint8_t most_needed(const struct build *b)
{
	uint8_t best = 0;

	if (b->place.machine != EM_X86_64)
		return 0;
	for (uint32_t i = 1; i < ARRAY_SIZE(b->rows.needed); i++) {
		if (b->rows.needed[i] > b->rows.needed[best])
			best = (uint8_t)i;
	}
	return b->rows.needed[best] * TRACKED_SHARE >= b->table->stats.rows ? best : 0;
}

/* .eh_frame, and .debug_frame when it held no function. Once more where a register must be tracked.
 */
static int build(struct build *b, const struct unwind_options *options, struct why *why)
{
	struct unwind_place other;
	int err;

	err = unwind_locate_with(&b->reader, false, &b->place, why);
	if (!err)
		err = build_found(b, options, 0, why);
	if (!err && !b->table->stats.fdes && b->place.found != UNWIND_DEBUG_FRAME &&
	    !unwind_locate_with(&b->reader, true, &other, NULL)) {
		b->place = other;
		err = build_again(b, options, 0, why);
	}
	if (!err && most_needed(b))
		err = build_again(b, options, most_needed(b), why);
	return err;
}

int unwind_table_build(const struct unwind_source *source, const struct unwind_options *options,
		       struct unwind_table **ret, struct why *why)
{
	static const struct unwind_options all;
	struct build *b = mem_alloc(UNWIND_MEM, sizeof(*b));
	int err = -ENOMEM;

	if (!b || unwind_reader_init(&b->reader, source)) {
		mem_free(UNWIND_MEM, b);
		return why_set(why, -ENOMEM, "out of memory");
	}
	b->table = mem_alloc(UNWIND_MEM, sizeof(*b->table));
	if (b->table)
		err = build(b, options ? options : &all, why);
	else
		why_set(why, err, "out of memory");
	drop_results(b);
	unwind_reader_done(&b->reader);
	if (err)
		unwind_table_free(b->table);
	else
		*ret = b->table;
	mem_free(UNWIND_MEM, b);
	return err;
}

static int visit_all(struct unwind_cfi *cfi, unwind_visit visit, void *ctx, bool *ret_any)
{
	uint64_t offset = cfi->place->offset;
	enum unwind_entry_kind kind;
	struct unwind_entry e;
	int said = 0;

	do {
		kind = unwind_entry_read(cfi, offset, &e);
		if (kind == UNWIND_ENTRY_FDE) {
			said = visit(ctx, e.start, e.bytes);
			*ret_any = true;
		}
		offset = e.next;
	} while (kind != UNWIND_ENTRY_END && !said);
	return said ? said : cfi->reader->err;
}

int unwind_functions(const struct unwind_source *source, unwind_visit visit, void *ctx,
		     struct why *why)
{
	struct build *b = mem_alloc(UNWIND_MEM, sizeof(*b));
	bool any = false;
	int err;

	if (!b || unwind_reader_init(&b->reader, source)) {
		mem_free(UNWIND_MEM, b);
		return why_set(why, -ENOMEM, "out of memory");
	}
	err = unwind_locate_with(&b->reader, false, &b->place, why);
	if (!err && b->place.found == UNWIND_GO)
		err = why_set(why, -EOPNOTSUPP, "its rows are from Go's own table of functions");
	for (int again = 0; !err && !any && again < 2; again++) {
		const struct unwind_arch *arch = unwind_arch_find(b->place.machine);

		unwind_cfi_init(&b->cfi, &b->reader, &b->place, arch, 0);
		err = visit_all(&b->cfi, visit, ctx, &any);
		if (b->place.found == UNWIND_DEBUG_FRAME ||
		    unwind_locate_with(&b->reader, true, &b->place, NULL) ||
		    b->place.found == UNWIND_GO)
			break;
	}
	unwind_reader_done(&b->reader);
	mem_free(UNWIND_MEM, b);
	return err;
}
