/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space of words: blocks of 64 KiB in segments of 2 MiB (abi/table_space.h). What is taken lies
 * in one block and starts at a multiple of TABLES_UNIT_WORDS. The lowest place that fits is taken,
 * so that the last segments empty first. What is given back waits until walks that may read it have
 * ended (tables_space_settle). Private to the part.
 */
#ifndef FLYBALL_TABLES_SPACE_H
#define FLYBALL_TABLES_SPACE_H

#include "tables/tables.h"

#define TABLES_UNIT_WORDS    4U
#define TABLES_BLOCK_UNITS   (FLY_BLOCK_WORDS / TABLES_UNIT_WORDS)
#define TABLES_SEGMENT_UNITS (FLY_SEGMENT_BLOCKS * TABLES_BLOCK_UNITS)
#define TABLES_SEGMENT_WORDS (FLY_SEGMENT_BLOCKS * FLY_BLOCK_WORDS)
#define TABLES_NOWHERE	     UINT32_MAX

struct tables_block {
	uint64_t used[TABLES_BLOCK_UNITS / 64];
	uint32_t free;
	uint32_t run_max; /* no longer free run than this */
};

struct tables_segment {
	__u32 *words; /* NULL: there is no such segment now */
	struct tables_block *blocks;
	uint32_t used; /* units */
};

struct tables_given {
	uint32_t at, words;
};

struct tables_space {
	struct tables_calls calls;
	struct tables_segment segments[FLY_SEGMENTS_MAX];
	uint32_t segments_max, segment_count;
	uint32_t avoid_from, avoid_to; /* blocks in which nothing is placed now */
	bool is_refused; /* the kernel had no memory: not asked again until this is cleared */
	struct tables_given *given;
	size_t given_count, given_cap;
	uint64_t used_units, given_units; /* given ones are still used */
	uint64_t waits, failed;
};

int tables_space_init(struct tables_space *space, const struct tables_calls *calls,
		      uint64_t bytes_max);
void tables_space_done(struct tables_space *space);
/* Words, at most a block of them. TABLES_NOWHERE: no room. */
uint32_t tables_space_take(struct tables_space *space, uint32_t words);
void tables_space_give(struct tables_space *space, uint32_t at, uint32_t words);
/* Waits for walks, then what was given can be taken. */
int tables_space_settle(struct tables_space *space);
/* At once, for what no walk can have seen. */
void tables_space_undo(struct tables_space *space, uint32_t at, uint32_t words);
void *tables_space_words(const struct tables_space *space, uint32_t at);
/* Gives one back that holds nothing. */
void tables_space_remove(struct tables_space *space, uint32_t segment);

static inline uint32_t tables_space_units(uint32_t words)
{
	return (words + TABLES_UNIT_WORDS - 1) / TABLES_UNIT_WORDS;
}

static inline uint32_t tables_space_block(uint32_t at)
{
	return at / FLY_BLOCK_WORDS;
}

static inline bool tables_space_is_avoided(const struct tables_space *space, uint32_t at)
{
	return tables_space_block(at) >= space->avoid_from &&
	       tables_space_block(at) < space->avoid_to;
}

static inline uint32_t tables_space_segment(uint32_t at)
{
	return at / TABLES_SEGMENT_WORDS;
}

/* Units that could be had, in segments that do not exist yet, too. */
static inline uint64_t tables_space_free_units(const struct tables_space *space)
{
	uint32_t segments = space->is_refused ? space->segment_count : space->segments_max;

	return (uint64_t)segments * TABLES_SEGMENT_UNITS - space->used_units;
}

#endif
