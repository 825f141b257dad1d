// SPDX-License-Identifier: Apache-2.0
/*
 * Placing: word after word; what must not cross a block's border begins in a new block if need be.
 * Tables are small beside blocks, or fill many: little is lost.
 */
#include "unwind_walk.h"

#include <errno.h>
#include <string.h>

#include "unwind_read.h"

/* The walker's reads have no room for a context. */
static _Thread_local const struct unwind_memory *walk_memory;

static const void *block_of(const struct unwind_space *space, uint32_t at)
{
	uint32_t number = at / FLY_BLOCK_WORDS;

	return number < space->block_count ? space->blocks[number] : NULL;
}

static const struct fly_table *table_of(const struct unwind_space *space, uint32_t number)
{
	return number && number < space->table_count ? &space->tables[number] : NULL;
}

#define FLY_ROWS_SPACE		       const struct unwind_space *
#define FLY_ROWS_BLOCK(space, part, a) block_of(space, a)
#define FLY_ROWS_WORD(block, a)	       (((const __u32 *)(block))[(a) & (FLY_BLOCK_WORDS - 1)])
#define FLY_ROWS_HALF(block, a)	       ((__u32)((const __u16 *)(block))[(a) & (2 * FLY_BLOCK_WORDS - 1)])
#define FLY_ROWS_PAIR(block, a)	       (((const __u64 *)(block))[((a) & (FLY_BLOCK_WORDS - 1)) / 2])
#define FLY_WALK_READ(dst, bytes, address)                                                         \
	walk_memory->read(walk_memory->ctx, (address), (dst), (bytes))
#define FLY_UNWIND_TABLE(space, number) table_of(space, number)
#define FLY_UNWIND_PART			static
#include "bpf/walk/unwinder.h"

int unwind_space_new(struct unwind_space **ret)
{
	struct unwind_space *space = mem_alloc(UNWIND_MEM, sizeof(*space));

	if (!space)
		return -ENOMEM;
	space->table_count = 1;
	*ret = space;
	return 0;
}

void unwind_space_free(struct unwind_space *space)
{
	if (!space)
		return;
	for (uint32_t i = 0; i < space->block_count; i++)
		mem_free(UNWIND_MEM, space->blocks[i]);
	mem_free(UNWIND_MEM, space);
}

/* Room for words in one block, from an even one on; its number in *ret_at. */
static uint32_t *take_room(struct unwind_space *space, uint32_t words, uint32_t *ret_at)
{
	uint32_t used = (space->used + 1) & ~1U;
	uint32_t *block;

	if (!space->block_count || words > FLY_BLOCK_WORDS - used) {
		if (space->block_count == UNWIND_BLOCKS_MAX)
			return NULL;
		block = mem_alloc(UNWIND_MEM, FLY_BLOCK_BYTES);
		if (!block)
			return NULL;
		space->blocks[space->block_count++] = block;
		used = 0;
	}
	*ret_at = (space->block_count - 1) * FLY_BLOCK_WORDS + used;
	space->used = used + words;
	return space->blocks[space->block_count - 1] + used;
}

static int place(struct unwind_space *space, const void *words, uint32_t count, uint32_t *ret_at)
{
	uint32_t *to = take_room(space, count, ret_at);

	if (!to)
		return -ENOSPC;
	if (count)
		memcpy(to, words, 4UL * count);
	return 0;
}

static int place_pages(struct unwind_space *space, const struct unwind_table *t,
		       struct fly_table *table)
{
	for (uint32_t first = 0; first < t->page_count; first += FLY_RUN_PAGES) {
		uint32_t left = t->page_count - first, at;
		uint32_t count = left < FLY_RUN_PAGES ? left : FLY_RUN_PAGES;
		uint32_t *to = take_room(space, 2 * count, &table->pages_at[first / FLY_RUN_PAGES]);

		if (!to)
			return -ENOSPC;
		for (uint32_t i = 0; i < count; i++) {
			__u64 page = t->pages[first + i];
			uint32_t groups = fly_page_count(page);
			int err = place(space, t->groups + fly_page_at(page), groups, &at);

			if (err)
				return err;
			page = fly_page_make(at, (__u64)groups, (__u64)fly_page_before(page));
			memcpy(to + 2UL * i, &page, sizeof(page));
		}
	}
	return 0;
}

static int place_shapes(struct unwind_space *space, const struct unwind_table *t,
			struct fly_table *table)
{
	int err = 0;

	for (uint32_t first = 0; !err && first < t->shape_words; first += FLY_RUN_SHAPES) {
		uint32_t left = t->shape_words - first;

		err = place(space, t->shapes + first, left < FLY_RUN_SHAPES ? left : FLY_RUN_SHAPES,
			    &table->shapes_at[first / FLY_RUN_SHAPES]);
	}
	return err;
}

int unwind_space_add_table(struct unwind_space *space, const struct unwind_table *t)
{
	struct fly_table *table = &space->tables[space->table_count];
	int err;

	if (space->table_count == FLY_TABLES_MAX)
		return -ENOSPC;
	*table = (struct fly_table){
		.start = t->start,
		.machine = t->machine,
		.scale = t->scale,
		.tracked = t->tracked,
	};
	err = place_pages(space, t, table);
	if (!err)
		err = place_shapes(space, t, table);
	if (!err)
		err = place(space, t->rules, FLY_RULE_WORDS * t->rule_count, &table->rules_at);
	if (err)
		return err;
	table->pages = t->page_count;
	return (int)space->table_count++;
}

int unwind_space_set_mappings(struct unwind_space *space, const struct fly_mapping *mappings,
			      uint32_t count)
{
	if (count > FLY_MAPPINGS_MAX)
		return -E2BIG;
	space->mappings = count;
	return place(space, mappings, FLY_MAPPING_WORDS * count, &space->mappings_at);
}

void unwind_walk(const struct unwind_space *space, const struct unwind_memory *memory,
		 const struct unwind_thread *thread, uint32_t depth, struct unwind_stack *ret)
{
	struct fly_unwind u = {
		.walk = {.pc = thread->pc,
			 .sp = thread->regs[FLY_ARCH_SP],
			 .fp = thread->regs[FLY_ARCH_FP]},
		.stack_start = thread->stack_start,
		.thread_block = thread->thread_block,
		.flags = FLY_KNOWS_REGS | (thread->is_in_syscall ? 0 : FLY_IS_EXACT),
		.at = space->mappings_at,
		.count = space->mappings,
	};
	int step;

	if (!depth || depth > UNWIND_FRAMES_MAX)
		depth = UNWIND_FRAMES_MAX;
	memcpy(u.regs, thread->regs, sizeof(u.regs));
	walk_memory = memory;
	ret->count = 0;
	ret->frames[ret->count++] = thread->pc;
	step = fly_unwind_start(space, &u);
	while (step == FLY_STEP_FRAME) {
		step = fly_unwind_step(space, &u);
		if (step != FLY_STEP_FRAME)
			break;
		if (ret->count == depth) {
			fly_unwind_cut(&u, FLY_CUT_DEPTH_LIMIT);
			break;
		}
		ret->frames[ret->count++] = u.walk.pc;
	}
	ret->is_whole = step == FLY_STEP_END;
	ret->cut = ret->is_whole ? 0 : u.cut;
	ret->detail = ret->cut == FLY_CUT_TABLE_PAGE_ABSENT ? u.detail : 0;
}
