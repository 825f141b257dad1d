/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind, inside: rows from Go's own table of functions (.gopclntab), for programs that have no
 * call frame information. It says for each instruction how far SP is below where it was at the
 * entry.
 */
#ifndef FLYBALL_UNWIND_GO_H
#define FLYBALL_UNWIND_GO_H

#include "unwind_cfi.h"

struct unwind_go {
	struct unwind_reader *reader;
	uint64_t end; /* file offset of the table's */
	uint64_t text, functions, steps;
	const struct unwind_place *place;
	uint32_t count, quantum;
	bool has_line; /* _func.startLine, from Go 1.20 on */
};
/* place is of UNWIND_GO; its header is where Go's text begins, unless the table says so itself. */
int unwind_go_open(struct unwind_go *go, struct unwind_reader *reader,
		   const struct unwind_place *place);
/* Addresses of function i. False: damaged. */
bool unwind_go_function(struct unwind_go *go, uint32_t i, uint64_t *ret_start, uint64_t *ret_end);
/* Its rows, through row (unwind_rows_row). What returns from a signal begins a byte early: its
 * address is one to return to, and looked up a byte below. False: damaged, and the rest of it is
 * unsupported. */
bool unwind_go_run(struct unwind_go *go, uint32_t i, uint64_t start, uint64_t end,
		   void (*row)(void *ctx, uint64_t address, const struct fly_rule *rule),
		   void *ctx);

#endif
