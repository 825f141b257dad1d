// SPDX-License-Identifier: Apache-2.0
/*
 * room: who is placed, and who goes for whom.
 *
 * What is wanted is sorted by value and placed while there is room. For the rest the least valuable
 * of what is there goes, just enough, as long as it is worth less than half of what comes. Then
 * walks are waited for, once, and the rest is placed.
 */
#include "tables/tables_private.h"

#include <stdlib.h>

#define S 1000000000ULL

#define ITEMS_MAX     (1U << 18)
#define NO_PAGE	      UINT32_MAX
#define NEAR	      3U      /* pages on both sides */
#define SETTLE_NS     S	      /* what was given waits no longer */
#define THIN_NS	      (2 * S) /* between attempts to empty a segment */
#define COMPACT_NS    S
#define QUIET_NS      (3 * S) /* without shortage, before a segment is given back */
#define MEMORY_NS     S
#define MEMORY_NS_MAX (64 * S)

/* Something wanted, or something that could go. */
struct item {
	uint64_t value;
	uint32_t number; /* table; 0: a process */
	uint32_t page;	 /* NO_PAGE: the table's frame, or all of a small table */
	uint32_t units;
	bool is_recent; /* was put out a moment ago */
	struct tables_process *process;
};

struct items {
	struct item *items;
	size_t count, cap;
};

static void add(struct items *list, const struct item *item)
{
	void *items = list->items;

	if (!mem_grow(MEM_TABLES, &items, &list->cap, list->count + 1, ITEMS_MAX,
		      sizeof(*list->items))) {
		list->items = items;
		list->items[list->count++] = *item;
	}
}

static int by_value(const void *a, const void *b)
{
	const struct item *l = a, *r = b;

	if (l->value != r->value)
		return l->value < r->value ? -1 : 1;
	return 0;
}

static int by_value_down(const void *a, const void *b)
{
	return by_value(b, a);
}

static bool is_small(const struct tables_slot *slot)
{
	return (tables_slot_frame_words(slot) + (uint64_t)slot->group_count) * sizeof(__u32) <=
	       TABLES_SMALL_BYTES;
}

static uint32_t words_of(const struct tables_slot *slot, bool with_groups)
{
	return tables_slot_frame_words(slot) + (with_groups ? slot->group_count : 0);
}

/* ---------------------------------------------------------------- what is wanted */
static void want_pages(struct items *wants, const struct tables_slot *slot, uint32_t number,
		       uint64_t now_ns)
{
	for (uint32_t i = 0; i < slot->page_count; i++) {
		const struct tables_page *page = &slot->pages[i];
		struct item item = {.number = number, .page = i};

		if (!page->count || page->at != TABLES_NOWHERE || !page->heat)
			continue;
		item.value = tables_value(page->heat, page->count);
		item.units = tables_space_units(page->count);
		item.is_recent = tables_is_recent(page->gone_ds, now_ns);
		add(wants, &item);
	}
}

static void want_processes(struct tables *t, struct items *wants, uint64_t now_ns)
{
	struct tables_process *p, *next;

	t->has_short_processes = false;
	HASH_ITER (hh, t->processes, p, next) {
		struct item item = {.page = NO_PAGE, .process = p};

		if (!p->short_words)
			continue;
		item.value = tables_value(p->heat, p->short_words);
		item.units = tables_space_units(p->short_words);
		item.is_recent = tables_is_recent(p->gone_ds, now_ns);
		p->short_words = 0; /* its owner tries again */
		add(wants, &item);
	}
}

static void find_wants(struct tables *t, struct items *wants, uint64_t now_ns)
{
	for (uint32_t i = TABLES_FIRST; i < t->slots_high; i++) {
		struct tables_slot *slot = &t->slots[i];
		struct item item = {.number = i, .page = NO_PAGE};
		uint32_t words;

		if (slot->state != TABLES_KNOWN || !slot->is_wanting || !slot->copy)
			continue;
		slot->is_wanting = false;
		slot->copy->used_ns = now_ns;
		if (slot->is_held) {
			want_pages(wants, slot, i, now_ns);
			continue;
		}
		words = words_of(slot, is_small(slot));
		item.value = tables_value(slot->heat, words);
		item.units = tables_space_units(words);
		item.is_recent = tables_is_recent(slot->gone_ds, now_ns);
		add(wants, &item);
	}
	if (t->has_short_processes)
		want_processes(t, wants, now_ns);
	if (wants->count)
		qsort(wants->items, wants->count, sizeof(*wants->items), by_value_down);
}

/* ---------------------------------------------------------------- placing */
static void fill_all(struct tables *t, uint32_t number)
{
	struct tables_slot *slot = &t->slots[number];

	for (uint32_t i = 0; i < slot->page_count; i++)
		if (tables_slot_fill(t, number, i))
			return;
}

/* A quarter of all stays free. */
static bool is_plenty(const struct tables *t, uint64_t units)
{
	uint64_t all = (uint64_t)t->space.segments_max * TABLES_SEGMENT_UNITS;

	return tables_space_free_units(&t->space) >= units + all / 4;
}

static bool place_table(struct tables *t, uint32_t number)
{
	struct tables_slot *slot = &t->slots[number];

	if (!slot->is_held && tables_slot_hold(t, number))
		return false;
	if (is_small(slot) || is_plenty(t, slot->group_count / TABLES_UNIT_WORDS))
		fill_all(t, number);
	else
		slot->is_wanting = true; /* pages that samples were in */
	if (tables_slot_is_whole(slot))
		tables_copy_free(t, slot);
	return true;
}

/* Each sample finds one page that is absent, so what is likely to be next comes along, as long as
 * an eighth of all stays free. Unused it is the first to go. */
static void fill_near(struct tables *t, uint32_t number, uint32_t page)
{
	const struct tables_slot *slot = &t->slots[number];
	uint64_t all = (uint64_t)t->space.segments_max * TABLES_SEGMENT_UNITS;
	uint32_t first = page > NEAR ? page - NEAR : 0;

	for (uint32_t i = first; i <= page + NEAR && i < slot->page_count; i++) {
		if (tables_space_free_units(&t->space) < all / 8 || tables_slot_fill(t, number, i))
			return;
	}
}

static bool place(struct tables *t, const struct item *item)
{
	struct tables_slot *slot = &t->slots[item->number];

	if (item->process) /* by its owner; is there room by now? */
		return false;
	if (item->page == NO_PAGE)
		return place_table(t, item->number);
	if (!slot->copy || tables_slot_fill(t, item->number, item->page))
		return false;
	t->stats.fills++;
	fill_near(t, item->number, item->page);
	if (tables_slot_is_whole(slot))
		tables_copy_free(t, slot);
	return true;
}

/* Keeps those that found no room, in order. */
static void place_all(struct tables *t, struct items *wants)
{
	size_t kept = 0;

	for (size_t i = 0; i < wants->count; i++) {
		if (!place(t, &wants->items[i]))
			wants->items[kept++] = wants->items[i];
	}
	wants->count = kept;
}

/* ---------------------------------------------------------------- what could go */
static void find_victims_in(struct items *victims, const struct tables_slot *slot, uint32_t number)
{
	struct item item = {.number = number, .page = NO_PAGE};

	if (is_small(slot) || !slot->groups_held || (!slot->heat && !slot->references)) {
		uint32_t words = words_of(slot, false) + slot->groups_held;

		item.value = tables_value(slot->heat, words);
		item.units = tables_space_units(words);
		add(victims, &item);
		return;
	}
	for (uint32_t i = 0; i < slot->page_count; i++) {
		const struct tables_page *page = &slot->pages[i];

		if (!page->count || page->at == TABLES_NOWHERE)
			continue;
		item.page = i;
		item.value = tables_value(page->heat, page->count);
		item.units = tables_space_units(page->count);
		add(victims, &item);
	}
}

static void find_victims(struct tables *t, struct items *victims)
{
	struct tables_process *p, *next;

	for (uint32_t i = TABLES_FIRST; i < t->slots_high; i++) {
		if (t->slots[i].is_held)
			find_victims_in(victims, &t->slots[i], i);
	}
	HASH_ITER (hh, t->processes, p, next) {
		struct item item = {.page = NO_PAGE, .process = p};
		uint32_t words;

		/* One that shares its mappings frees nothing. */
		if (!p->maps || p->maps->users > 1)
			continue;
		words = p->maps->count * FLY_MAPPING_WORDS;
		item.value = tables_value(p->heat, words);
		item.units = tables_space_units(words);
		add(victims, &item);
	}
	if (victims->count)
		qsort(victims->items, victims->count, sizeof(*victims->items), by_value);
}

static void evict(struct tables *t, const struct item *victim, uint64_t now_ns)
{
	struct tables_slot *slot = &t->slots[victim->number];

	if (victim->process) {
		tables_process_evict(t, victim->process, now_ns);
	} else if (victim->page == NO_PAGE) {
		tables_slot_evict(t, victim->number);
		slot->gone_ds = tables_tenths(now_ns);
		t->stats.tables_evicted++;
	} else {
		tables_slot_evict_page(t, victim->number, victim->page);
		slot->pages[victim->page].gone_ds = tables_tenths(now_ns);
		t->stats.pages_evicted++;
	}
}

/* Just enough for what is worth it. */
static size_t evict_for(struct tables *t, const struct items *wants, uint64_t now_ns)
{
	struct items victims = {0};
	uint64_t freed = 0, needed = 0;
	size_t next = 0;

	find_victims(t, &victims);
	for (size_t i = 0; i < wants->count; i++) {
		const struct item *want = &wants->items[i];
		uint64_t factor = want->is_recent ? 4 : 2;

		needed += want->units;
		while (freed < needed && next < victims.count) {
			const struct item *victim = &victims.items[next];

			if (victim->value * factor >= want->value)
				break;
			evict(t, victim, now_ns);
			freed += victim->units;
			next++;
		}
		if (freed < needed)
			break;
	}
	t->bar = next < victims.count ? victims.items[next].value : 0;
	mem_free(MEM_TABLES, victims.items);
	return next;
}

/* ---------------------------------------------------------------- moving */
static int move_all(struct tables *t, uint64_t now_ns)
{
	int err = tables_maps_move(t, now_ns);

	for (uint32_t i = TABLES_FIRST; i < t->slots_high && !err; i++)
		err = tables_slot_move(t, i);
	return err;
}

/* Empties the block with the most room, so that something long fits. */
static bool compact(struct tables *t, uint64_t now_ns)
{
	uint32_t best = TABLES_NOWHERE, most = 0;

	if (now_ns < t->compact_ns + COMPACT_NS)
		return false;
	t->compact_ns = now_ns;
	for (uint32_t i = 0; i < t->space.segments_max * FLY_SEGMENT_BLOCKS; i++) {
		const struct tables_segment *segment = &t->space.segments[i / FLY_SEGMENT_BLOCKS];
		const struct tables_block *block;

		if (!segment->words)
			continue;
		block = &segment->blocks[i % FLY_SEGMENT_BLOCKS];
		if (block->free > most && block->free < TABLES_BLOCK_UNITS) {
			most = block->free;
			best = i;
		}
	}
	if (best == TABLES_NOWHERE)
		return false;
	t->space.avoid_from = best;
	t->space.avoid_to = best + 1;
	move_all(t, now_ns);
	t->space.avoid_from = t->space.avoid_to = 0;
	t->stats.moved++;
	return true;
}

/* ---------------------------------------------------------------- the border */
static void settle(struct tables *t, uint64_t now_ns)
{
	tables_space_settle(&t->space);
	t->settle_ns = now_ns;
}

static uint64_t units_of(const struct items *wants)
{
	uint64_t units = 0;

	for (size_t i = 0; i < wants->count; i++)
		units += wants->items[i].units;
	return units;
}

void tables_room_serve(struct tables *t, uint64_t now_ns)
{
	uint64_t all = (uint64_t)t->space.segments_max * TABLES_SEGMENT_UNITS;
	struct items wants = {0};
	bool has_waited = false, is_scattered;

	find_wants(t, &wants, now_ns);
	place_all(t, &wants);
	if (wants.count) {
		t->stats.short_of_memory++;
		t->short_ns = now_ns;
		/* What is free but lies scattered is not a reason to put anybody out. */
		is_scattered = tables_space_free_units(&t->space) + t->space.given_units >=
			       2 * units_of(&wants) + TABLES_BLOCK_UNITS;
		has_waited = (is_scattered && compact(t, now_ns)) || evict_for(t, &wants, now_ns) ||
			     t->space.given_units;
		if (has_waited)
			settle(t, now_ns);
		place_all(t, &wants);
		/* Still wanted. */
		for (size_t i = 0; i < wants.count; i++)
			t->slots[wants.items[i].number].is_wanting = true;
	} else if (now_ns >= t->short_ns + S) {
		t->bar = 0;
	}
	mem_free(MEM_TABLES, wants.items);
	if (has_waited)
		return;
	if (t->space.given_units > all / 16 ||
	    ((t->space.given_units || t->leaving) && now_ns >= t->settle_ns + SETTLE_NS))
		settle(t, now_ns);
}

static uint32_t thinnest(const struct tables *t)
{
	uint32_t best = TABLES_NOWHERE;

	for (uint32_t i = 0; i < t->space.segments_max; i++) {
		const struct tables_segment *segment = &t->space.segments[i];

		if (segment->words &&
		    (best == TABLES_NOWHERE || segment->used <= t->space.segments[best].used))
			best = i;
	}
	return best;
}

void tables_room_give_back(struct tables *t, uint64_t now_ns)
{
	uint64_t room;
	uint32_t segment;

	/* Memory that the kernel did not have is asked for again, ever more rarely. */
	if (t->space.is_refused && now_ns >= t->memory_ns) {
		t->space.is_refused = false;
		t->memory_wait_ns = t->memory_wait_ns ? 2 * t->memory_wait_ns : MEMORY_NS;
		if (t->memory_wait_ns > MEMORY_NS_MAX)
			t->memory_wait_ns = MEMORY_NS_MAX;
		t->memory_ns = now_ns + t->memory_wait_ns;
	} else if (now_ns >= t->memory_ns) {
		t->memory_wait_ns = 0;
	}
	if (t->space.segment_count < 2 || now_ns < t->thin_ns + THIN_NS ||
	    now_ns < t->short_ns + QUIET_NS)
		return;
	t->thin_ns = now_ns;
	room = (uint64_t)(t->space.segment_count - 1) * TABLES_SEGMENT_UNITS;
	if (t->space.used_units > room - room / 8)
		return;
	segment = thinnest(t);
	if (t->space.segments[segment].used) {
		t->space.avoid_from = segment * FLY_SEGMENT_BLOCKS;
		t->space.avoid_to = t->space.avoid_from + FLY_SEGMENT_BLOCKS;
		move_all(t, now_ns);
		t->space.avoid_from = t->space.avoid_to = 0;
		settle(t, now_ns);
		t->stats.moved++;
	}
	if (!t->space.segments[segment].used)
		tables_space_remove(&t->space, segment);
}

void tables_room_copies(struct tables *t)
{
	while (t->stats.copy_bytes > t->opt.copy_bytes_max) {
		struct tables_slot *oldest = NULL;

		for (uint32_t i = TABLES_FIRST; i < t->slots_high; i++) {
			struct tables_slot *slot = &t->slots[i];

			if (slot->copy && (!oldest || slot->copy->used_ns < oldest->copy->used_ns))
				oldest = slot;
		}
		if (!oldest)
			return;
		tables_copy_free(t, oldest);
	}
}
