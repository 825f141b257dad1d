/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind, inside: rows, ascending over the whole text, to pages, groups, shapes and rules.
 *
 * Equal neighbours are joined, and so is padding of up to UNWIND_PADDING bytes between functions; a
 * larger hole gets a row that says that nothing is known. A dictionary that is full costs
 * precision, never the table: shapes fall back to one row each, rules to FLY_CFA_UNSUPPORTED.
 */
#ifndef FLYBALL_UNWIND_ROWS_H
#define FLYBALL_UNWIND_ROWS_H

#include "unwind_cfi.h"

#define UNWIND_PADDING 15U

struct unwind_rows {
	struct unwind_table *table;
	const struct unwind_arch *arch;
	size_t groups_cap, shapes_cap, rules_cap, bytes_max;
	uint64_t end;	       /* of the function last begun */
	bool has_end, has_row; /* row_at and row_rule are waiting */
	uint64_t row_at;       /* may still be replaced by one at the same address */
	uint64_t said_at;      /* where the rule in force began */
	uint32_t rule;	       /* in force, a number */
	uint32_t page;	       /* next to be begun */
	uint32_t group_rows;   /* waiting */
	uint64_t group_at;     /* of its first row */
	struct fly_rule row_rule;
	__u16 halves[FLY_GROUP_ROWS];
	__u16 *rule_slots, *shape_slots; /* open addressing; 0: free */
	uint32_t shape_slot_count;
	uint32_t needed[32]; /* rows that need a callee-saved register, by its number */
	int err;	     /* sticks */
};

/* The table has its start and its pages. */
int unwind_rows_init(struct unwind_rows *rows, struct unwind_table *table,
		     const struct unwind_arch *arch, size_t bytes_max);
void unwind_rows_done(struct unwind_rows *rows);
void unwind_rows_function(struct unwind_rows *rows, uint64_t start, uint64_t end);
void unwind_rows_row(void *rows, uint64_t address, const struct fly_rule *rule);
/* Closes the table. 0 or the first error. */
int unwind_rows_finish(struct unwind_rows *rows);
size_t unwind_rows_scratch_bytes(const struct unwind_rows *rows);

#endif
