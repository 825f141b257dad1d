/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind, inside: the entries of .eh_frame and .debug_frame (DWARF 5, 6.4; LSB Core, 10.6), the
 * instructions in them, and what a rule can say of the state they build.
 *
 * Followed are the CFA, the places of frame pointer and return address, and in a few files that of
 * one register more (abi/rows.h, fly_tracked).
 */
#ifndef FLYBALL_UNWIND_CFI_H
#define FLYBALL_UNWIND_CFI_H

#include "unwind_read.h"

#define UNWIND_CIES	      64U  /* parsed ones kept */
#define UNWIND_CIE_BYTES_MAX  512U /* of instructions: they are run again when a CIE returns */
#define UNWIND_REMEMBERED_MAX 16U  /* states; compilers nest 1 */

struct unwind_arch {
	uint16_t machine;
	uint8_t fp, sp;
	uint8_t scale;	       /* log2 of an instruction's alignment */
	uint32_t callee_saved; /* a bit for each of registers 0 to 31 */
};
const struct unwind_arch *unwind_arch_find(uint16_t machine);

/* Where a register of the caller is. */
enum unwind_kept {
	UNWIND_KEPT_UNSET,
	UNWIND_KEPT_UNDEFINED,
	UNWIND_KEPT_SAME,
	UNWIND_KEPT_AT_CFA,  /* at CFA + offset */
	UNWIND_KEPT_AT_REG,  /* at reg + offset */
	UNWIND_KEPT_IN_REG,  /* in reg */
	UNWIND_KEPT_UNKNOWN, /* by an expression we do not know */
};

struct unwind_kept_at {
	uint8_t kind, reg;
	int64_t offset;
};

struct unwind_state {
	struct {
		uint8_t kind, reg; /* FLY_CFA_x */
		int64_t offset, add;
	} cfa;
	struct unwind_kept_at fp, ra, tracked;
};

struct unwind_cie {
	uint64_t key; /* file offset plus 1; 0: none */
	bool good, is_signal, has_augmentation_data;
	uint8_t ra, encoding, segment_bytes;
	uint32_t code_align;
	int64_t data_align;
	struct unwind_state initial;
};

struct unwind_cfi {
	struct unwind_reader *reader;
	const struct unwind_place *place;
	const struct unwind_arch *arch;
	uint8_t tracked; /* register, 0: none */
	uint64_t end;	 /* file offset where the information ends */
	struct unwind_cie cies[UNWIND_CIES];
};
void unwind_cfi_init(struct unwind_cfi *cfi, struct unwind_reader *reader,
		     const struct unwind_place *place, const struct unwind_arch *arch,
		     uint8_t tracked);

enum unwind_entry_kind {
	UNWIND_ENTRY_END,
	UNWIND_ENTRY_OTHER, /* CIE, padding */
	UNWIND_ENTRY_FDE,
	UNWIND_ENTRY_BAD, /* skipped by its length */
};

struct unwind_entry {
	uint64_t next;	/* file offset of the entry after it */
	uint64_t start; /* of the function, link-time */
	uint64_t bytes;
	const struct unwind_cie *cie;
	struct unwind_cursor code; /* at the instructions; use before the next entry */
};
enum unwind_entry_kind unwind_entry_read(struct unwind_cfi *cfi, uint64_t offset,
					 struct unwind_entry *ret);

/* Gets each row of an entry, ascending; each holds until the next, the last until the end. */
typedef void (*unwind_row)(void *ctx, uint64_t address, const struct fly_rule *rule);
void unwind_entry_run(struct unwind_cfi *cfi, struct unwind_entry *entry, unwind_row row,
		      void *ctx);

/* Runs instructions from *address on until `end`; false when they are damaged or unknown. With row
 * NULL they are a CIE's. */
struct unwind_run {
	const struct unwind_cfi *cfi;
	const struct unwind_cie *cie;
	struct unwind_state state;
	uint64_t address, end;
	unwind_row row;
	void *ctx;
	bool changed; /* since the last row */
	bool failed;
	uint32_t remembered;
	struct unwind_state stack[UNWIND_REMEMBERED_MAX];
};
bool unwind_run(struct unwind_run *run, struct unwind_cursor *code);

/* unwind_rule.c */
/* A DWARF expression as a CFA: FLY_CFA_REG, DEREF, PLT, INDEXED or UNSUPPORTED. */
void unwind_expression(const struct unwind_arch *arch, const uint8_t *code, size_t bytes,
		       struct unwind_state *state);
void unwind_rule_make(const struct unwind_cfi *cfi, const struct unwind_cie *cie,
		      const struct unwind_state *state, struct fly_rule *ret);

#endif
