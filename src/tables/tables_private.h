/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of tables/ share: tables_slot.c knows where the parts of a table lie and moves
 * them, tables_process.c the same of processes, tables_room.c decides who goes for whom, tables.c
 * is the border. Private to the part.
 *
 * Heat is TABLES_HIT for each sample, halved every TABLES_HALF_NS. Value is heat per word.
 */
#ifndef FLYBALL_TABLES_PRIVATE_H
#define FLYBALL_TABLES_PRIVATE_H

#include "tables/tables_space.h"

#define uthash_malloc(n)       mem_alloc(MEM_TABLES, n)
#define uthash_free(p, n)      mem_free(MEM_TABLES, p)
#define HASH_NONFATAL_OOM      1
#define uthash_nonfatal_oom(e) ((e)->is_oom = true)
#include <uthash.h>
#include <utlist.h>

#define TABLES_HIT	  16U
#define TABLES_HEAT_MAX	  (1U << 30)
#define TABLES_FIRST	  1U /* number 0 is no table */
#define TABLES_VALUE_UNIT 4096ULL
#define TABLES_RECENT_NS  30000000000ULL /* put out so long ago: comes back for four times only */
#define TABLES_RETRY_NS	  10000000000ULL /* a file that could not be read */

enum tables_state {
	TABLES_FREE,
	TABLES_LEAVING, /* given up; walks may still hold the number */
	TABLES_UNKNOWN, /* its table was not made yet */
	TABLES_KNOWN,
	TABLES_BARE, /* no call frame information: published as a table of nothing */
	TABLES_REFUSED,
};

struct tables_page {
	uint32_t at;
	uint16_t count;	 /* groups of the page */
	uint16_t before; /* rule */
	uint32_t heat;
	uint32_t gone_ds; /* when it was put out, in tenths of a second; 0: never */
};

/* A whole table in our own memory, for pages to be filled from. */
struct tables_copy {
	__u32 *groups, *shapes, *rules;
	uint32_t *at; /* of each page, in groups */
	uint64_t bytes, used_ns;
};

struct tables_slot {
	uint8_t state, refusal;
	bool is_asked;
	bool is_held;	 /* published, dictionaries and index of pages are in place */
	bool is_wanting; /* on the list of slots with wishes */
	uint8_t build_id_len, scale, tracked;
	uint16_t machine;
	uint8_t build_id[TABLES_BUILD_ID_MAX], hash[TABLES_HASH_BYTES];
	uint64_t key;	    /* a file with this content */
	uint64_t start;	    /* address of page 0 */
	uint64_t unused_ns; /* nobody maps it since then */
	uint64_t retry_ns;
	uint64_t left_waits; /* LEAVING: grace periods there had been */
	uint32_t keys;	     /* that name it */
	uint32_t references; /* mappings that name it */
	uint32_t heat;
	uint32_t gone_ds;
	uint32_t page_count, shape_words, rule_count, group_count, shape_count;
	uint32_t pages_at[FLY_PAGE_RUNS], shapes_at[FLY_SHAPE_RUNS], rules_at;
	uint32_t groups_held; /* words of groups in place */
	struct tables_page *pages;
	struct tables_copy *copy;
};

struct tables_file {
	UT_hash_handle hh;
	uint64_t key;
	uint32_t number;
	bool is_oom;
};

struct tables_maps {
	struct tables_maps *prev, *next;
	uint32_t at, count, users;
	uint32_t moved_from; /* TABLES_NOWHERE: not moved */
};

struct tables_process {
	UT_hash_handle hh;
	uint32_t tgid, heat;
	uint64_t start_ns, touched_ns;
	struct tables_maps *maps; /* NULL: not entered */
	uint32_t short_words;	  /* it could not be entered for want of them; 0: not so */
	uint32_t gone_ds;
	bool is_oom;
};

struct tables {
	struct tables_options opt;
	struct tables_space space;
	struct tables_slot *slots; /* FLY_TABLES_MAX */
	uint32_t slots_high;	   /* none in use at or above */
	struct tables_file *files;
	struct tables_process *processes;
	uint32_t process_count; /* entered */
	struct tables_maps *maps;
	uint64_t table_units, mapping_units;
	uint64_t now_ns; /* of the last tick */
	uint64_t half_ns, thin_ns, memory_ns, memory_wait_ns, settle_ns, short_ns, compact_ns;
	uint32_t leaving;
	uint64_t serial; /* the last given to a number */
	bool has_short_processes;
	uint64_t bar; /* what is evicted last was worth this much: no less is asked for */
	bool is_short_of_entries;
	struct tables_stats stats;
};

static inline void tables_heat_add(uint32_t *heat, uint32_t by)
{
	if (*heat < TABLES_HEAT_MAX)
		*heat += by;
}

static inline bool tables_is_number(uint32_t number)
{
	return number >= TABLES_FIRST && number < FLY_TABLES_MAX;
}

static inline uint64_t tables_value(uint64_t heat, uint64_t words)
{
	return heat * TABLES_VALUE_UNIT / (words + TABLES_UNIT_WORDS);
}

static inline uint32_t tables_tenths(uint64_t ns)
{
	return (uint32_t)(ns / 100000000) | 1;
}

static inline bool tables_is_recent(uint32_t gone_ds, uint64_t now_ns)
{
	return gone_ds && now_ns / 100000000 < gone_ds + TABLES_RECENT_NS / 100000000;
}

static inline bool tables_slot_is_whole(const struct tables_slot *slot)
{
	return slot->is_held && slot->groups_held == slot->group_count;
}

static inline bool tables_page_is_absent(const struct tables_page *page)
{
	return page->count && page->at == TABLES_NOWHERE;
}

/* --- tables_slot.c --- */
/* Dictionaries and index of pages. */
uint32_t tables_slot_frame_words(const struct tables_slot *slot);
/* Puts them in place and publishes; all pages with groups are absent. -ENOSPC. */
int tables_slot_hold(struct tables *t, uint32_t number);
/* -ENOSPC. Needs the copy. */
int tables_slot_fill(struct tables *t, uint32_t number, uint32_t page);
void tables_slot_evict_page(struct tables *t, uint32_t number, uint32_t page);
void tables_slot_evict(struct tables *t, uint32_t number);
/* A table of nothing: every address lies outside. */
void tables_slot_publish_bare(struct tables *t, uint32_t number);
void tables_slot_unpublish(struct tables *t, uint32_t number);
/* Moves what lies in the blocks that are avoided elsewhere. -ENOSPC: not all of it. */
int tables_slot_move(struct tables *t, uint32_t number);
int tables_copy_new(const struct unwind_table *table, uint64_t now_ns, struct tables_copy **ret);
void tables_copy_free(struct tables *t, struct tables_slot *slot);
/* Forgets all that a slot has. */
void tables_slot_clear(struct tables *t, uint32_t number);

/* --- tables_process.c --- */
/* All mappings that name the first name the second from now on. */
void tables_maps_rename(struct tables *t, uint32_t from, uint32_t to);
int tables_maps_move(struct tables *t, uint64_t now_ns);
void tables_process_evict(struct tables *t, struct tables_process *p, uint64_t now_ns);
void tables_processes_free(struct tables *t);

/* --- tables_room.c --- */
/* Places what is wanted, and evicts for it. */
void tables_room_serve(struct tables *t, uint64_t now_ns);
/* Gives back segments that are empty, or could be. */
void tables_room_give_back(struct tables *t, uint64_t now_ns);
/* Copies beyond their limit go, the least recently used first. */
void tables_room_copies(struct tables *t);

#endif
