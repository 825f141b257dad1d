// SPDX-License-Identifier: Apache-2.0
/*
 * processes: entries of fly_processes and the mappings they point to. Processes that forked share
 * an array until one of them maps something. A mapping's table number is changed by one aligned
 * store, everything else by a new array.
 */
#include "tables/tables_private.h"

#include <errno.h>
#include <string.h>

#include <utlist.h>

static struct fly_mapping *mappings_of(const struct tables *t, const struct tables_maps *maps)
{
	return tables_space_words(&t->space, maps->at);
}

static void count_references(struct tables *t, const struct tables_maps *maps, int by)
{
	const struct fly_mapping *m = mappings_of(t, maps);

	for (uint32_t i = 0; i < maps->count; i++) {
		uint32_t number = fly_mapping_table(&m[i]);

		if (tables_is_number(number))
			t->slots[number].references += (uint32_t)by;
	}
}

static int maps_new(struct tables *t, const struct fly_mapping *mappings, uint32_t count,
		    struct tables_maps **ret)
{
	uint32_t words = count * FLY_MAPPING_WORDS;
	struct tables_maps *maps = mem_alloc(MEM_TABLES, sizeof(*maps));

	if (!maps)
		return -ENOMEM;
	maps->at = tables_space_take(&t->space, words);
	if (maps->at == TABLES_NOWHERE) {
		mem_free(MEM_TABLES, maps);
		return -ENOSPC;
	}
	t->mapping_units += tables_space_units(words);
	maps->count = count;
	maps->moved_from = TABLES_NOWHERE;
	memcpy(mappings_of(t, maps), mappings, count * sizeof(*mappings));
	count_references(t, maps, 1);
	DL_APPEND(t->maps, maps);
	*ret = maps;
	return 0;
}

/* is_seen: a walk may read it. */
static void maps_drop(struct tables *t, struct tables_maps *maps, bool is_seen)
{
	uint32_t words = maps->count * FLY_MAPPING_WORDS;

	if (maps->users)
		return;
	count_references(t, maps, -1);
	t->mapping_units -= tables_space_units(words);
	if (is_seen)
		tables_space_give(&t->space, maps->at, words);
	else
		tables_space_undo(&t->space, maps->at, words);
	DL_DELETE(t->maps, maps);
	mem_free(MEM_TABLES, maps);
}

static int entry_show(struct tables *t, const struct tables_process *p,
		      const struct tables_maps *maps)
{
	struct fly_process entry = {.start_ns = p->start_ns, .at = maps->at, .count = maps->count};

	return t->opt.calls.process_put(t->opt.calls.ctx, p->tgid, &entry);
}

/* ---------------------------------------------------------------- entries */
static struct tables_process *process_get(const struct tables *t, uint32_t tgid)
{
	struct tables_process *p;

	HASH_FIND(hh, t->processes, &tgid, sizeof(tgid), p);
	return p;
}

static void process_free(struct tables *t, struct tables_process *p)
{
	HASH_DEL(t->processes, p);
	mem_free(MEM_TABLES, p);
}

/* Entries that are only remembered: no more than twice as many as can be entered. */
static void forget_one(struct tables *t)
{
	struct tables_process *p, *next, *least = NULL;

	HASH_ITER (hh, t->processes, p, next) {
		if (!p->maps && (!least || p->heat < least->heat))
			least = p;
	}
	if (least)
		process_free(t, least);
}

static struct tables_process *process_make(struct tables *t, uint32_t tgid)
{
	struct tables_process *p = process_get(t, tgid);

	if (p)
		return p;
	if (HASH_COUNT(t->processes) >= 2 * t->opt.processes_max)
		forget_one(t);
	p = mem_alloc(MEM_TABLES, sizeof(*p));
	if (!p)
		return NULL;
	p->tgid = tgid;
	HASH_ADD(hh, t->processes, tgid, sizeof(p->tgid), p);
	if (p->is_oom) {
		mem_free(MEM_TABLES, p);
		return NULL;
	}
	return p;
}

static void process_leave(struct tables *t, struct tables_process *p)
{
	struct tables_maps *maps = p->maps;

	if (!maps)
		return;
	t->opt.calls.process_remove(t->opt.calls.ctx, p->tgid);
	p->maps = NULL;
	t->process_count--;
	maps->users--;
	maps_drop(t, maps, true);
}

void tables_process_evict(struct tables *t, struct tables_process *p, uint64_t now_ns)
{
	process_leave(t, p);
	p->gone_ds = tables_tenths(now_ns);
	t->stats.processes_evicted++;
}

/* One with fewer samples, or, among the unsampled, one that has been here for a while. */
static bool make_entry(struct tables *t, const struct tables_process *newcomer, uint64_t now_ns)
{
	uint64_t factor = tables_is_recent(newcomer->gone_ds, now_ns) ? 4 : 2;
	struct tables_process *p, *next, *least = NULL;

	if (t->process_count < t->opt.processes_max && !t->is_short_of_entries)
		return true;
	HASH_ITER (hh, t->processes, p, next) {
		if (!p->maps)
			continue;
		if (!least || p->heat < least->heat ||
		    (p->heat == least->heat && p->touched_ns < least->touched_ns))
			least = p;
	}
	if (!least)
		return false;
	if (least->heat ? least->heat * factor > newcomer->heat
			: !newcomer->heat && now_ns < least->touched_ns + 1000000000ULL)
		return false;
	tables_process_evict(t, least, now_ns);
	t->is_short_of_entries = false;
	return true;
}

/* Takes maps, whose users do not count p yet. */
static int process_enter(struct tables *t, struct tables_process *p, struct tables_maps *maps)
{
	struct tables_maps *old = p->maps;
	int err = entry_show(t, p, maps);

	if (err) {
		t->is_short_of_entries = err == -E2BIG;
		maps_drop(t, maps, false);
		return err == -E2BIG ? -ENOSPC : err;
	}
	maps->users++;
	p->maps = maps;
	p->short_words = 0;
	if (old) {
		old->users--;
		maps_drop(t, old, true);
	} else {
		t->process_count++;
	}
	if (t->process_count > t->stats.processes_peak)
		t->stats.processes_peak = t->process_count;
	return 0;
}

static bool is_equal(const struct tables *t, const struct tables_process *p,
		     const struct fly_mapping *mappings, uint32_t count)
{
	return p && p->maps && p->maps->count == count &&
	       memcmp(mappings_of(t, p->maps), mappings, count * sizeof(*mappings)) == 0;
}

/* Those of another process when they are the same, else new ones. */
static int maps_find(struct tables *t, const struct tables_process *like,
		     const struct fly_mapping *mappings, uint32_t count, struct tables_maps **ret)
{
	if (!is_equal(t, like, mappings, count))
		return maps_new(t, mappings, count, ret);
	*ret = like->maps;
	return 0;
}

int tables_process_put(struct tables *t, const struct tables_entry *entry, uint64_t now_ns)
{
	uint32_t count = entry->count;
	struct tables_process *p;
	struct tables_maps *maps;
	int err;

	if (!count || count > FLY_MAPPINGS_MAX)
		return -EINVAL;
	p = process_make(t, entry->tgid);
	if (!p)
		return -ENOMEM;
	if (p->start_ns == entry->start_ns && is_equal(t, p, entry->mappings, count))
		return 0;
	if (p->maps && p->start_ns != entry->start_ns) {
		process_leave(t, p);
		p->heat = p->gone_ds = 0;
	}
	p->start_ns = entry->start_ns;
	p->touched_ns = now_ns;
	if (!p->maps && !make_entry(t, p, now_ns)) {
		t->stats.short_of_memory++;
		return -ENOSPC;
	}
	err = maps_find(t, process_get(t, entry->like), entry->mappings, count, &maps);
	if (!err)
		return process_enter(t, p, maps);
	if (err == -ENOSPC)
		p->short_words = count * FLY_MAPPING_WORDS;
	t->has_short_processes |= err == -ENOSPC;
	return err;
}

bool tables_process_find(const struct tables *t, uint32_t tgid, uint64_t *ret_start_ns)
{
	const struct tables_process *p = process_get(t, tgid);

	if (!p || !p->maps)
		return false;
	*ret_start_ns = p->start_ns;
	return true;
}

void tables_process_sampled(struct tables *t, uint32_t tgid, uint64_t now_ns)
{
	struct tables_process *p = process_make(t, tgid);

	if (!p)
		return;
	p->touched_ns = now_ns;
	tables_heat_add(&p->heat, TABLES_HIT);
}

void tables_process_wants(struct tables *t, uint32_t tgid)
{
	const struct tables_process *p = process_get(t, tgid);
	const struct fly_mapping *m;

	if (!p || !p->maps)
		return;
	m = mappings_of(t, p->maps);
	for (uint32_t i = 0; i < p->maps->count; i++) {
		uint32_t number = fly_mapping_table(&m[i]);

		if (tables_is_number(number) && t->slots[number].state == TABLES_UNKNOWN)
			tables_heat_add(&t->slots[number].heat, 1);
	}
}

void tables_process_remove(struct tables *t, uint32_t tgid)
{
	struct tables_process *p = process_get(t, tgid);

	if (!p)
		return;
	process_leave(t, p);
	process_free(t, p);
}

void tables_processes_free(struct tables *t)
{
	struct tables_process *p, *next;
	struct tables_maps *maps, *maps_next;

	HASH_ITER (hh, t->processes, p, next) {
		process_free(t, p);
	}
	DL_FOREACH_SAFE(t->maps, maps, maps_next)
	mem_free(MEM_TABLES, maps);
}

/* ---------------------------------------------------------------- all mappings */
void tables_maps_rename(struct tables *t, uint32_t from, uint32_t to)
{
	const uint64_t mask = (uint64_t)0xffff << FLY_MAPPING_PAGE_BITS;
	struct tables_maps *maps;

	if (!t->slots[from].references)
		return;
	DL_FOREACH(t->maps, maps)
	{
		struct fly_mapping *m = mappings_of(t, maps);

		for (uint32_t i = 0; i < maps->count; i++) {
			if (fly_mapping_table(&m[i]) != from)
				continue;
			__atomic_store_n(&m[i].place,
					 (m[i].place & ~mask) | (uint64_t)to
									<< FLY_MAPPING_PAGE_BITS,
					 __ATOMIC_RELEASE);
			t->slots[from].references--;
			if (tables_is_number(to))
				t->slots[to].references++;
		}
	}
}

/* An entry that cannot be written any more must not point to what is given back. */
static void show_moved(struct tables *t, uint64_t now_ns)
{
	struct tables_process *p, *next;

	HASH_ITER (hh, t->processes, p, next) {
		if (p->maps && p->maps->moved_from != TABLES_NOWHERE && entry_show(t, p, p->maps))
			tables_process_evict(t, p, now_ns);
	}
}

int tables_maps_move(struct tables *t, uint64_t now_ns)
{
	struct tables_maps *maps;
	int err = 0;

	DL_FOREACH(t->maps, maps)
	{
		uint32_t words = maps->count * FLY_MAPPING_WORDS, to;

		if (!tables_space_is_avoided(&t->space, maps->at))
			continue;
		to = tables_space_take(&t->space, words);
		if (to == TABLES_NOWHERE) {
			err = -ENOSPC;
			break;
		}
		memcpy(tables_space_words(&t->space, to), mappings_of(t, maps),
		       words * sizeof(__u32));
		maps->moved_from = maps->at;
		maps->at = to;
	}
	show_moved(t, now_ns);
	DL_FOREACH(t->maps, maps)
	{
		if (maps->moved_from == TABLES_NOWHERE)
			continue;
		tables_space_give(&t->space, maps->moved_from, maps->count * FLY_MAPPING_WORDS);
		maps->moved_from = TABLES_NOWHERE;
	}
	return err;
}
