// SPDX-License-Identifier: Apache-2.0
/*
 * slot: the parts of one table in the space of words.
 *
 * A walk may read beside every store here: a part is written before the one store that shows it,
 * and what no store shows any more is given back through tables_space_give.
 */
#include "tables/tables_private.h"

#include <errno.h>
#include <string.h>

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t pages_in_run(const struct tables_slot *slot, uint32_t run)
{
	uint32_t before = run * FLY_RUN_PAGES;

	return slot->page_count > before ? min32(slot->page_count - before, FLY_RUN_PAGES) : 0;
}

static uint32_t shapes_in_run(const struct tables_slot *slot, uint32_t run)
{
	uint32_t before = run * FLY_RUN_SHAPES;

	return slot->shape_words > before ? min32(slot->shape_words - before, FLY_RUN_SHAPES) : 0;
}

uint32_t tables_slot_frame_words(const struct tables_slot *slot)
{
	return 2 * slot->page_count + slot->shape_words + slot->rule_count * FLY_RULE_WORDS;
}

/* ---------------------------------------------------------------- words */
static uint32_t take(struct tables *t, uint32_t words)
{
	uint32_t at = tables_space_take(&t->space, words);

	if (at != TABLES_NOWHERE)
		t->table_units += tables_space_units(words);
	return at;
}

static void give(struct tables *t, uint32_t at, uint32_t words)
{
	t->table_units -= tables_space_units(words);
	tables_space_give(&t->space, at, words);
}

static void undo(struct tables *t, uint32_t at, uint32_t words)
{
	t->table_units -= tables_space_units(words);
	tables_space_undo(&t->space, at, words);
}

/* ---------------------------------------------------------------- pages */
static void page_show(struct tables *t, const struct tables_slot *slot, uint32_t number)
{
	const struct tables_page *page = &slot->pages[number];
	uint32_t at = slot->pages_at[number / FLY_RUN_PAGES] + 2 * (number % FLY_RUN_PAGES);
	bool is_absent = tables_page_is_absent(page);
	__u64 *word = tables_space_words(&t->space, at);

	__atomic_store_n(word,
			 fly_page_make(is_absent || !page->count ? 0 : page->at,
				       is_absent ? FLY_PAGE_ABSENT : page->count, page->before),
			 __ATOMIC_RELEASE);
}

int tables_slot_fill(struct tables *t, uint32_t number, uint32_t page_number)
{
	struct tables_slot *slot = &t->slots[number];
	struct tables_page *page = &slot->pages[page_number];
	uint32_t at;

	if (!tables_page_is_absent(page))
		return 0;
	at = take(t, page->count);
	if (at == TABLES_NOWHERE)
		return -ENOSPC;
	memcpy(tables_space_words(&t->space, at), slot->copy->groups + slot->copy->at[page_number],
	       page->count * sizeof(__u32));
	page->at = at;
	slot->groups_held += page->count;
	page_show(t, slot, page_number);
	return 0;
}

void tables_slot_evict_page(struct tables *t, uint32_t number, uint32_t page_number)
{
	struct tables_slot *slot = &t->slots[number];
	struct tables_page *page = &slot->pages[page_number];
	uint32_t at = page->at;

	if (!page->count || at == TABLES_NOWHERE)
		return;
	page->at = TABLES_NOWHERE;
	page_show(t, slot, page_number);
	slot->groups_held -= page->count;
	give(t, at, page->count);
}

/* ---------------------------------------------------------------- whole tables */
static void publish(struct tables *t, uint32_t number)
{
	const struct tables_slot *slot = &t->slots[number];
	struct fly_table *out = &t->opt.published[number];

	out->start = slot->start;
	out->rules_at = slot->rules_at;
	memcpy(out->pages_at, slot->pages_at, sizeof(out->pages_at));
	memcpy(out->shapes_at, slot->shapes_at, sizeof(out->shapes_at));
	out->machine = slot->machine;
	out->scale = slot->scale;
	out->tracked = slot->tracked;
	__atomic_store_n(&out->pages, slot->page_count, __ATOMIC_RELEASE);
}

void tables_slot_publish_bare(struct tables *t, uint32_t number)
{
	struct fly_table *out = &t->opt.published[number];

	out->start = FLY_VADDR_MASK + 1;
	__atomic_store_n(&out->pages, 1, __ATOMIC_RELEASE);
}

void tables_slot_unpublish(struct tables *t, uint32_t number)
{
	__atomic_store_n(&t->opt.published[number].pages, 0, __ATOMIC_RELEASE);
}

/* The parts but groups, in one order for all who walk them. */
enum { PARTS = FLY_PAGE_RUNS + FLY_SHAPE_RUNS + 1 };

static uint32_t part_words(const struct tables_slot *slot, int part)
{
	if (part < FLY_PAGE_RUNS)
		return 2 * pages_in_run(slot, (uint32_t)part);
	if (part < FLY_PAGE_RUNS + FLY_SHAPE_RUNS)
		return shapes_in_run(slot, (uint32_t)part - FLY_PAGE_RUNS);
	return slot->rule_count * FLY_RULE_WORDS;
}

static uint32_t *part_at(struct tables_slot *slot, int part)
{
	if (part < FLY_PAGE_RUNS)
		return &slot->pages_at[part];
	if (part < FLY_PAGE_RUNS + FLY_SHAPE_RUNS)
		return &slot->shapes_at[part - FLY_PAGE_RUNS];
	return &slot->rules_at;
}

static __u32 *part_shown(struct fly_table *shown, int part)
{
	if (part < FLY_PAGE_RUNS)
		return &shown->pages_at[part];
	if (part < FLY_PAGE_RUNS + FLY_SHAPE_RUNS)
		return &shown->shapes_at[part - FLY_PAGE_RUNS];
	return &shown->rules_at;
}

static void parts_fill(struct tables *t, struct tables_slot *slot)
{
	const struct tables_copy *copy = slot->copy;

	for (uint32_t run = 0; run < FLY_SHAPE_RUNS; run++)
		if (shapes_in_run(slot, run))
			memcpy(tables_space_words(&t->space, slot->shapes_at[run]),
			       copy->shapes + run * FLY_RUN_SHAPES,
			       shapes_in_run(slot, run) * sizeof(__u32));
	memcpy(tables_space_words(&t->space, slot->rules_at), copy->rules,
	       slot->rule_count * sizeof(struct fly_rule));
	for (uint32_t page = 0; page < slot->page_count; page++)
		page_show(t, slot, page);
}

int tables_slot_hold(struct tables *t, uint32_t number)
{
	struct tables_slot *slot = &t->slots[number];

	for (int part = 0; part < PARTS; part++) {
		uint32_t words = part_words(slot, part);

		*part_at(slot, part) = words ? take(t, words) : 0;
		if (*part_at(slot, part) != TABLES_NOWHERE)
			continue;
		while (part-- > 0)
			if (part_words(slot, part))
				undo(t, *part_at(slot, part), part_words(slot, part));
		return -ENOSPC;
	}
	for (uint32_t page = 0; page < slot->page_count; page++)
		slot->pages[page].at = TABLES_NOWHERE;
	slot->groups_held = 0;
	parts_fill(t, slot);
	publish(t, number);
	slot->is_held = true;
	return 0;
}

void tables_slot_evict(struct tables *t, uint32_t number)
{
	struct tables_slot *slot = &t->slots[number];

	if (!slot->is_held)
		return;
	tables_slot_unpublish(t, number);
	slot->is_held = false;
	for (uint32_t page = 0; page < slot->page_count; page++) {
		struct tables_page *p = &slot->pages[page];

		if (p->count && p->at != TABLES_NOWHERE)
			give(t, p->at, p->count);
		p->at = TABLES_NOWHERE;
	}
	slot->groups_held = 0;
	for (int part = 0; part < PARTS; part++)
		if (part_words(slot, part))
			give(t, *part_at(slot, part), part_words(slot, part));
}

/* ---------------------------------------------------------------- moving */
static uint32_t move_words(struct tables *t, uint32_t at, uint32_t words)
{
	uint32_t to = take(t, words);

	if (to != TABLES_NOWHERE)
		memcpy(tables_space_words(&t->space, to), tables_space_words(&t->space, at),
		       words * sizeof(__u32));
	return to;
}

int tables_slot_move(struct tables *t, uint32_t number)
{
	struct tables_slot *slot = &t->slots[number];

	if (!slot->is_held)
		return 0;
	for (int part = 0; part < PARTS; part++) {
		uint32_t words = part_words(slot, part), at = *part_at(slot, part), to;

		if (!words || !tables_space_is_avoided(&t->space, at))
			continue;
		to = move_words(t, at, words);
		if (to == TABLES_NOWHERE)
			return -ENOSPC;
		*part_at(slot, part) = to;
		__atomic_store_n(part_shown(&t->opt.published[number], part), to, __ATOMIC_RELEASE);
		give(t, at, words);
	}
	for (uint32_t i = 0; i < slot->page_count; i++) {
		struct tables_page *page = &slot->pages[i];
		uint32_t at = page->at, to;

		if (!page->count || at == TABLES_NOWHERE || !tables_space_is_avoided(&t->space, at))
			continue;
		to = move_words(t, at, page->count);
		if (to == TABLES_NOWHERE)
			return -ENOSPC;
		page->at = to;
		page_show(t, slot, i);
		give(t, at, page->count);
	}
	return 0;
}

/* ---------------------------------------------------------------- copies */
int tables_copy_new(const struct unwind_table *table, uint64_t now_ns, struct tables_copy **ret)
{
	uint64_t rule_words = (uint64_t)table->rule_count * FLY_RULE_WORDS;
	uint64_t words =
		(uint64_t)table->group_count + table->shape_words + rule_words + table->page_count;
	struct tables_copy *copy = mem_alloc(MEM_TABLES, sizeof(*copy) + words * sizeof(__u32));

	if (!copy)
		return -ENOMEM;
	copy->bytes = sizeof(*copy) + words * sizeof(__u32);
	copy->used_ns = now_ns;
	copy->groups = (__u32 *)(copy + 1);
	copy->shapes = copy->groups + table->group_count;
	copy->rules = copy->shapes + table->shape_words;
	copy->at = copy->rules + rule_words;
	if (table->group_count)
		memcpy(copy->groups, table->groups, table->group_count * sizeof(__u32));
	if (table->shape_words)
		memcpy(copy->shapes, table->shapes, table->shape_words * sizeof(__u32));
	if (rule_words)
		memcpy(copy->rules, table->rules, rule_words * sizeof(__u32));
	for (uint32_t i = 0; i < table->page_count; i++)
		copy->at[i] = fly_page_at(table->pages[i]);
	*ret = copy;
	return 0;
}

void tables_copy_free(struct tables *t, struct tables_slot *slot)
{
	if (!slot->copy)
		return;
	t->stats.copy_bytes -= slot->copy->bytes;
	mem_free(MEM_TABLES, slot->copy);
	slot->copy = NULL;
}

void tables_slot_clear(struct tables *t, uint32_t number)
{
	struct tables_slot *slot = &t->slots[number];

	tables_slot_evict(t, number);
	tables_slot_unpublish(t, number);
	tables_copy_free(t, slot);
	mem_free(MEM_TABLES, slot->pages);
	slot->pages = NULL;
	slot->page_count = slot->shape_words = slot->rule_count = slot->group_count = 0;
}
