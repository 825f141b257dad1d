/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind: a walk on the host, by the code that BPF runs (bpf/walk/unwinder.h), over tables and
 * mappings placed in blocks as in kernel memory. Pure; memory of the thread walked comes through a
 * callback.
 *
 * Whatever tables, mappings, registers and memory hold, a walk reads inside blocks, ends, and says
 * why. One thread uses a space at a time.
 */
#ifndef FLYBALL_UNWIND_WALK_H
#define FLYBALL_UNWIND_WALK_H

#include "unwind.h"

#include "abi/reasons.h"
#include "abi/table_space.h"

#define UNWIND_BLOCKS_MAX (FLY_SEGMENTS_MAX * FLY_SEGMENT_BLOCKS)
#define UNWIND_FRAMES_MAX 1024U

struct unwind_space {
	uint32_t *blocks[UNWIND_BLOCKS_MAX];
	uint32_t block_count;
	uint32_t used; /* words of the last block */
	struct fly_table tables[FLY_TABLES_MAX];
	uint32_t table_count;		/* the next number; 0 is no table */
	uint32_t mappings_at, mappings; /* of the process walked */
};
int unwind_space_new(struct unwind_space **ret);
void unwind_space_free(struct unwind_space *space);
/* Places a copy. Returns its number or a negative errno. */
int unwind_space_add_table(struct unwind_space *space, const struct unwind_table *table);
/* Sorted by start, at most FLY_MAPPINGS_MAX. Replaces those of before. */
int unwind_space_set_mappings(struct unwind_space *space, const struct fly_mapping *mappings,
			      uint32_t count);

struct unwind_memory {
	int (*read)(void *ctx, uint64_t address, void *out, size_t bytes); /* 0, or not there */
	void *ctx;
};

/* A thread in user mode, x86-64. */
struct unwind_thread {
	uint64_t pc;
	uint64_t regs[16];		    /* by DWARF number */
	uint64_t stack_start, thread_block; /* as fly_walk_base */
	bool is_in_syscall;
};

struct unwind_stack {
	uint64_t frames[UNWIND_FRAMES_MAX];
	uint32_t count;
	uint32_t cut; /* enum fly_cut's number, 0 and is_whole: the walk came to its end */
	uint32_t detail;
	bool is_whole;
};
/* At most depth frames, those nearest the leaf. */
void unwind_walk(const struct unwind_space *space, const struct unwind_memory *memory,
		 const struct unwind_thread *thread, uint32_t depth, struct unwind_stack *ret);

#endif
