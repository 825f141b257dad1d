/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Finds the rule for an address in a table of abi/rows.h, for BPF and for the host.
 *
 * The search takes no branch that depends on what was read but to leave it: the verifier keeps both
 * sides of such a branch apart, and with one in each step went through a million instructions. Call
 * it from a bpf_loop callback or a global function, which are verified once (849 instructions,
 * Linux 6.18); inside a plain loop of 64 it takes 159,440.
 *
 * No helpers here. The includer defines, before it includes this file,
 *
 *	FLY_ROWS_BLOCK(space, part, at)  a const void * for the block that holds word `at` of a
 *	                                 FLY_PART_x, NULL: not there. BPF has all parts in one space
 *	FLY_ROWS_WORD(block, at)  the word `at` as __u32;   BPF masks at with FLY_BLOCK_WORDS - 1
 *	FLY_ROWS_HALF(block, n)   half n of 2 bytes;        BPF masks n with 2 * FLY_BLOCK_WORDS - 1
 *	FLY_ROWS_PAIR(block, at)  words `at`, even, and the next as one __u64 load
 *
 * and FLY_ROWS_SPACE, the type of space (what the block look-up needs), and FLY_ROWS_INLINE where
 * plain `inline` is not enough. A reader may run beside the writer: what it finds may be stale, but
 * no word it reads lies outside a block.
 */
#ifndef FLYBALL_WALK_LOOKUP_H
#define FLYBALL_WALK_LOOKUP_H

#include "abi/rows.h"

#ifndef FLY_ROWS_INLINE
#define FLY_ROWS_INLINE inline __attribute__((always_inline))
#endif

/* Keeps the compiler from making a branch of arithmetic. */
#define FLY_ROWS_OPAQUE(v) __asm__ volatile("" : "+r"(v))

/* Number of the last of count (at least 1) ascending groups that is not above key, or 0. */
static FLY_ROWS_INLINE __u32 fly_rows_search(const void *block, __u32 at, __u32 count, __u32 key)
{
	__u32 base = 0;

	/* log2(FLY_GROUPS_MAX) steps at most */
	for (int i = 0; i < 14; i++) {
		__u32 half = count >> 1;
		__u64 above;

		if (!half)
			break;
		above = (__u64)key - FLY_ROWS_WORD(block, at + base + half);
		/* Opaque before and after: to all ones when the group is above the key. */
		FLY_ROWS_OPAQUE(above);
		above = (__u64)((__s64)above >> 63);
		FLY_ROWS_OPAQUE(above);
		base += half & ~(__u32)above;
		count -= half;
	}
	return base;
}

/* The last half of a shape that is at most units away. */
static FLY_ROWS_INLINE __u32 fly_rows_half(const void *block, __u32 at, __u32 units)
{
	__u32 found = FLY_ROWS_HALF(block, at);

	for (__u32 i = 1; i < FLY_GROUP_ROWS; i++) {
		__u32 half = FLY_ROWS_HALF(block, at + i);

		/* A distance of 0 ends the shape and is a very large one here. */
		if ((half & (FLY_GROUP_UNITS - 1)) - 1 >= units)
			break;
		found = half;
	}
	return found;
}

static FLY_ROWS_INLINE int fly_rows_rule(FLY_ROWS_SPACE space, const struct fly_table *table,
					 __u32 number, struct fly_rule *ret)
{
	__u32 at = table->rules_at + number * FLY_RULE_WORDS;
	const void *block = FLY_ROWS_BLOCK(space, FLY_PART_RULES, at);
	__u32 word;

	if (!block)
		return FLY_FIND_ABSENT;
	word = FLY_ROWS_WORD(block, at);
	ret->cfa = (__u8)word;
	ret->cfa_reg = (__u8)(word >> 8);
	ret->fp = (__u8)(word >> 16);
	ret->ra = (__u8)(word >> 24);
	ret->offset = (__s32)FLY_ROWS_WORD(block, at + 1);
	word = FLY_ROWS_WORD(block, at + 2);
	ret->fp_words = (__s16)word;
	ret->ra_words = (__s16)(word >> 16);
	return FLY_FIND_RULE;
}

/* The rule in force at a link-time address. *ret is written only with FLY_FIND_RULE. */
static FLY_ROWS_INLINE int fly_rows_find(FLY_ROWS_SPACE space, const struct fly_table *table,
					 __u64 address, struct fly_rule *ret)
{
	__u64 number = (address - table->start) >> FLY_PAGE_SHIFT, page;
	__u32 low = (__u32)address & (FLY_PAGE_BYTES - 1), at, group, rule;
	const void *block;

	if (address < table->start || number >= table->pages)
		return FLY_FIND_OUTSIDE;
	at = table->pages_at[(number / FLY_RUN_PAGES) & (FLY_PAGE_RUNS - 1)] +
	     2 * ((__u32)number & (FLY_RUN_PAGES - 1));
	block = FLY_ROWS_BLOCK(space, FLY_PART_PAGES, at);
	if (!block)
		return FLY_FIND_ABSENT;
	page = FLY_ROWS_PAIR(block, at);
	rule = fly_page_before(page);
	if (fly_page_count(page) == FLY_PAGE_ABSENT)
		return FLY_FIND_ABSENT;
	if (fly_page_count(page)) {
		__u32 key = low << 16 | 0xffffu;

		at = fly_page_at(page);
		block = FLY_ROWS_BLOCK(space, FLY_PART_GROUPS, at);
		if (!block)
			return FLY_FIND_ABSENT;
		group = FLY_ROWS_WORD(block,
				      at + fly_rows_search(block, at, fly_page_count(page), key));
		if (group <= key) {
			__u32 shape = group & 0xffffu;

			at = table->shapes_at[shape / FLY_RUN_SHAPES] + shape % FLY_RUN_SHAPES;
			block = FLY_ROWS_BLOCK(space, FLY_PART_SHAPES, at);
			if (!block)
				return FLY_FIND_ABSENT;
			rule = fly_rows_half(block, 2 * at, (low - (group >> 16)) >> table->scale);
			rule >>= 4;
		}
	}
	return fly_rows_rule(space, table, rule & (FLY_RULES_MAX - 1), ret);
}

#endif
