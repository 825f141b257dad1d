// SPDX-License-Identifier: Apache-2.0
/* A finished table on the host: the look-up that BPF uses, over plain arrays. */
#include "unwind_read.h"

/* A part is one block, however large; words are counted from its start. */
static inline const void *part_of(const struct unwind_table *t, enum fly_part part)
{
	switch (part) {
	case FLY_PART_PAGES:
		return t->pages;
	case FLY_PART_GROUPS:
		return t->groups;
	case FLY_PART_SHAPES:
		return t->shapes;
	default:
		return t->rules;
	}
}

#define FLY_ROWS_SPACE		       const struct unwind_table *
#define FLY_ROWS_BLOCK(space, part, a) part_of(space, part)
#define FLY_ROWS_WORD(block, a)	       (((const __u32 *)(block))[a])
#define FLY_ROWS_HALF(block, a)	       ((__u32)((const __u16 *)(block))[a])
#define FLY_ROWS_PAIR(block, a)	       (((const __u64 *)(block))[(a) / 2])
#include "bpf/walk/lookup.h"

int unwind_table_find(const struct unwind_table *table, uint64_t vaddr, struct fly_rule *ret)
{
	struct fly_table t = {
		.start = table->start,
		.pages = table->page_count,
		.pages_at = {0, 2 * FLY_RUN_PAGES, 4 * FLY_RUN_PAGES, 6 * FLY_RUN_PAGES},
		.shapes_at = {0, FLY_RUN_SHAPES, 2 * FLY_RUN_SHAPES, 3 * FLY_RUN_SHAPES},
		.machine = table->machine,
		.scale = table->scale,
	};

	return fly_rows_find(table, &t, vaddr, ret);
}

uint64_t unwind_table_bytes(const struct unwind_table *table)
{
	return sizeof(struct fly_table) + (uint64_t)table->page_count * sizeof(*table->pages) +
	       (uint64_t)table->group_count * sizeof(*table->groups) +
	       (uint64_t)table->shape_words * sizeof(*table->shapes) +
	       (uint64_t)table->rule_count * sizeof(*table->rules);
}

void unwind_table_free(struct unwind_table *table)
{
	if (!table)
		return;
	mem_free(UNWIND_MEM, table->pages);
	mem_free(UNWIND_MEM, table->groups);
	mem_free(UNWIND_MEM, table->shapes);
	mem_free(UNWIND_MEM, table->rules);
	mem_free(UNWIND_MEM, table);
}
