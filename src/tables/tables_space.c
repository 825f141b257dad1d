// SPDX-License-Identifier: Apache-2.0
/* Bitmaps of units, one per block; see tables_space.h. */
#include "tables/tables_space.h"

#include <errno.h>
#include <string.h>

#define GIVEN_MAX (1U << 22)

int tables_space_init(struct tables_space *space, const struct tables_calls *calls,
		      uint64_t bytes_max)
{
	uint64_t segments = bytes_max / FLY_SEGMENT_BYTES;

	memset(space, 0, sizeof(*space));
	space->calls = *calls;
	space->segments_max = segments < FLY_SEGMENTS_MAX ? (uint32_t)segments : FLY_SEGMENTS_MAX;
	return space->segments_max ? 0 : -EINVAL;
}

void tables_space_done(struct tables_space *space)
{
	for (uint32_t i = 0; i < space->segments_max; i++)
		mem_free(MEM_TABLES, space->segments[i].blocks);
	mem_free(MEM_TABLES, space->given);
}

static struct tables_block *block_at(const struct tables_space *space, uint32_t at)
{
	const struct tables_segment *segment = &space->segments[tables_space_segment(at)];

	return &segment->blocks[at / FLY_BLOCK_WORDS % FLY_SEGMENT_BLOCKS];
}

static void block_mark(struct tables_block *block, uint32_t unit, uint32_t units, bool is_used)
{
	for (uint32_t i = unit; i < unit + units; i++) {
		uint64_t bit = 1ULL << (i % 64);

		if (is_used)
			block->used[i / 64] |= bit;
		else
			block->used[i / 64] &= ~bit;
	}
	if (is_used) {
		block->free -= units;
	} else {
		block->free += units;
		block->run_max = block->free;
	}
}

/* The first run of units that are free, or TABLES_NOWHERE. */
static uint32_t block_find(const struct tables_block *block, uint32_t units)
{
	uint32_t run = 0, i = 0;

	while (i < TABLES_BLOCK_UNITS) {
		uint64_t left = block->used[i / 64] >> (i % 64);
		uint32_t rest = 64 - i % 64, step;

		if (left & 1) {
			/* ~left has a bit above rest ones, but for a word that is all used */
			step = ~left ? (uint32_t)__builtin_ctzll(~left) : 64;
			i += step < rest ? step : rest;
			run = 0;
			continue;
		}
		step = left ? (uint32_t)__builtin_ctzll(left) : rest;
		run += step;
		i += step;
		if (run >= units)
			return i - run;
	}
	return TABLES_NOWHERE;
}

static uint32_t segment_take(struct tables_space *space, uint32_t number, uint32_t units)
{
	struct tables_segment *segment = &space->segments[number];

	if (!segment->words || TABLES_SEGMENT_UNITS - segment->used < units)
		return TABLES_NOWHERE;
	for (uint32_t b = 0; b < FLY_SEGMENT_BLOCKS; b++) {
		struct tables_block *block = &segment->blocks[b];
		uint32_t unit, at = number * TABLES_SEGMENT_WORDS + b * FLY_BLOCK_WORDS;

		if (block->run_max < units || tables_space_is_avoided(space, at))
			continue;
		unit = block_find(block, units);
		if (unit == TABLES_NOWHERE) {
			block->run_max = units - 1;
			continue;
		}
		block_mark(block, unit, units, true);
		segment->used += units;
		space->used_units += units;
		return at + unit * TABLES_UNIT_WORDS;
	}
	return TABLES_NOWHERE;
}

/* The lowest that is not there. */
static bool segment_add(struct tables_space *space)
{
	struct tables_segment *segment = space->segments;
	uint32_t number = 0;

	if (space->is_refused || space->segment_count == space->segments_max)
		return false;
	while (segment[number].words)
		number++;
	segment += number;
	segment->blocks = mem_array(MEM_TABLES, FLY_SEGMENT_BLOCKS, sizeof(*segment->blocks));
	if (segment->blocks)
		segment->words = space->calls.segment_add(space->calls.ctx, number);
	if (!segment->words) {
		mem_free(MEM_TABLES, segment->blocks);
		segment->blocks = NULL;
		space->is_refused = true;
		space->failed++;
		return false;
	}
	for (uint32_t b = 0; b < FLY_SEGMENT_BLOCKS; b++)
		segment->blocks[b].free = segment->blocks[b].run_max = TABLES_BLOCK_UNITS;
	space->segment_count++;
	return true;
}

uint32_t tables_space_take(struct tables_space *space, uint32_t words)
{
	uint32_t units = tables_space_units(words), at;

	if (!units || units > TABLES_BLOCK_UNITS)
		return TABLES_NOWHERE;
	do {
		for (uint32_t i = 0; i < space->segments_max; i++) {
			at = segment_take(space, i, units);
			if (at != TABLES_NOWHERE)
				return at;
		}
	} while (space->avoid_to == space->avoid_from && segment_add(space));
	return TABLES_NOWHERE;
}

void tables_space_undo(struct tables_space *space, uint32_t at, uint32_t words)
{
	uint32_t units = tables_space_units(words);

	block_mark(block_at(space, at), at % FLY_BLOCK_WORDS / TABLES_UNIT_WORDS, units, false);
	space->segments[tables_space_segment(at)].used -= units;
	space->used_units -= units;
}

void tables_space_give(struct tables_space *space, uint32_t at, uint32_t words)
{
	void *given = space->given;
	int err;

	if (!words)
		return;
	if (space->given_count == space->given_cap && space->given_count >= GIVEN_MAX / 2)
		tables_space_settle(space);
	err = mem_grow(MEM_TABLES, &given, &space->given_cap, space->given_count + 1, GIVEN_MAX,
		       sizeof(*space->given));
	space->given = given;
	if (err) {
		/* No memory to remember it by: wait now. */
		if (!space->calls.wait(space->calls.ctx))
			tables_space_undo(space, at, words);
		space->waits++;
		return;
	}
	space->given[space->given_count++] = (struct tables_given){.at = at, .words = words};
	space->given_units += tables_space_units(words);
}

int tables_space_settle(struct tables_space *space)
{
	int err;

	err = space->calls.wait(space->calls.ctx);
	if (err)
		return err;
	space->waits++;
	for (size_t i = 0; i < space->given_count; i++)
		tables_space_undo(space, space->given[i].at, space->given[i].words);
	space->given_count = 0;
	space->given_units = 0;
	return 0;
}

void *tables_space_words(const struct tables_space *space, uint32_t at)
{
	return space->segments[tables_space_segment(at)].words + at % TABLES_SEGMENT_WORDS;
}

void tables_space_remove(struct tables_space *space, uint32_t number)
{
	struct tables_segment *segment = &space->segments[number];

	space->calls.segment_remove(space->calls.ctx, number);
	mem_free(MEM_TABLES, segment->blocks);
	*segment = (struct tables_segment){NULL, NULL, 0};
	space->segment_count--;
}
