// SPDX-License-Identifier: Apache-2.0
/* A finished table on the host: the look-up that BPF uses, over plain arrays. */
#include "unwind_read.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

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

static bool is_rule(const struct fly_rule *rule)
{
	return rule->cfa <= FLY_CFA_UNSUPPORTED && (rule->fp & FLY_FP_MASK) <= FLY_FP_LOST &&
	       (rule->fp & FLY_TRACKED_MASK) <= FLY_TRACKED_LOST;
}

static int check_dictionaries(const struct unwind_table *t, struct why *why)
{
	static const struct fly_rule none;

	if (!t->rule_count || t->rule_count > FLY_RULES_MAX || !t->shape_words ||
	    t->shape_words > FLY_SHAPES_MAX || t->shape_count > t->shape_words)
		return why_set(why, -EBADMSG, "a dictionary has no possible size");
	if (memcmp(&t->rules[0], &none, sizeof(none)))
		return why_set(why, -EBADMSG, "rule 0 says something");
	for (uint32_t i = 0; i < t->rule_count; i++) {
		if (!is_rule(&t->rules[i]))
			return why_set(why, -EBADMSG, "rule %u means nothing", i);
	}
	for (uint32_t i = 0; i < t->shape_words; i++) {
		if ((t->shapes[i] >> 4 & (FLY_RULES_MAX - 1)) >= t->rule_count ||
		    t->shapes[i] >> 20 >= t->rule_count)
			return why_set(why, -EBADMSG, "word %u of shapes names no rule", i);
		if (i % FLY_RUN_SHAPES == FLY_RUN_SHAPES - 1 && t->shapes[i] >> 16)
			return why_set(why, -EBADMSG, "a run of shapes does not end");
	}
	if (t->shapes[t->shape_words - 1] >> 16)
		return why_set(why, -EBADMSG, "the last shape does not end");
	return 0;
}

static int check_page(const struct unwind_table *t, uint64_t page, uint32_t at, struct why *why)
{
	uint32_t count = fly_page_count(page), last = 0;

	if (fly_page_at(page) != at || count >= FLY_GROUPS_MAX || count > t->group_count - at ||
	    fly_page_before(page) >= t->rule_count)
		return why_set(why, -EBADMSG, "a page lies outside the groups");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t group = t->groups[at + i], shape = group & 0xffff;

		if (!shape || shape >= t->shape_words || (i && group >> 16 <= last))
			return why_set(why, -EBADMSG, "group %u is out of order, or has no shape",
				       at + i);
		last = group >> 16;
	}
	return 0;
}

/* Pages follow one another in the groups, so the time is linear. */
int unwind_table_check(const struct unwind_table *t, struct why *why)
{
	uint8_t scale = t->machine == EM_AARCH64 ? 2 : 0;
	uint32_t at = 0;
	int err = 0;

	if ((t->machine != EM_X86_64 && t->machine != EM_AARCH64) || t->scale != scale ||
	    t->found > UNWIND_GO)
		return why_set(why, -EBADMSG, "of no known machine");
	if (!t->page_count)
		return t->group_count || t->shape_words || t->rule_count
			       ? why_set(why, -EBADMSG, "a table without pages has parts")
			       : 0;
	if (t->page_count > FLY_PAGES_MAX || t->start % FLY_PAGE_BYTES ||
	    t->start > UINT64_MAX - (uint64_t)t->page_count * FLY_PAGE_BYTES)
		return why_set(why, -EBADMSG, "its pages have no place");
	err = check_dictionaries(t, why);
	for (uint32_t i = 0; !err && i < t->page_count; i++) {
		err = check_page(t, t->pages[i], at, why);
		at += fly_page_count(t->pages[i]);
	}
	if (!err && at != t->group_count)
		return why_set(why, -EBADMSG, "groups are in no page");
	return err;
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
