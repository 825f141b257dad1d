/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind: from .eh_frame to the compact table of abi/rows.h. Pure: makes no system call but memory
 * allocation; the file comes through a callback.
 *
 * The input may have been written by anybody. Whatever it says:
 *   - scratch memory stays within UNWIND_SCRATCH_BYTES, the table within the limit given;
 *   - time is linear in the bytes of call frame information, times the number of passes (one for
 *     each UNWIND_PASS_FDES functions);
 *   - what cannot be said by a rule becomes a row that says so (FLY_CFA_UNSUPPORTED), counted; a
 *     damaged entry costs its own rows, never the file.
 *
 * Where the information is looked for: PT_GNU_EH_FRAME and .eh_frame_hdr, used only to find
 * .eh_frame (its search table is never trusted, every entry is read); the section .eh_frame; the
 * section .debug_frame where .eh_frame holds no function; where neither does, and on x86-64 only,
 * Go's own table of functions, which is no call frame information but says as much.
 * docs/unwinding.md has the semantics, case by case.
 *
 * Objects belong to the thread that made them. A finished table is constant and may be shared.
 */
#ifndef FLYBALL_UNWIND_H
#define FLYBALL_UNWIND_H

#include <linux/types.h>

#include "base/base.h"
#include "abi/rows.h"

#define UNWIND_SCRATCH_BYTES  (8U << 20)
#define UNWIND_PASS_FDES      (1U << 19) /* functions converted in one pass over the file */
#define UNWIND_FDES_MAX	      (1U << 22)
#define UNWIND_INFO_BYTES_MAX (256U << 20)
#define UNWIND_RANGES_MAX     16

/* The file. read fills out with exactly bytes or returns a negative errno (-EBADMSG when the file
 * is shorter); it is called with ranges within bytes only. */
struct unwind_source {
	int (*read)(void *ctx, uint64_t offset, void *out, size_t bytes);
	void *ctx;
	uint64_t bytes;
};

enum unwind_found { UNWIND_EH_FRAME, UNWIND_EH_FRAME_SECTION, UNWIND_DEBUG_FRAME, UNWIND_GO };

/* Where the information lies: known from the headers alone, at the cost of a few reads. */
struct unwind_place {
	uint16_t machine; /* ELF's EM_x */
	uint8_t found;	  /* enum unwind_found */
	uint8_t range_count;
	struct unwind_range {
		uint64_t start, end; /* link-time addresses of executable text */
	} ranges[UNWIND_RANGES_MAX];
	uint64_t offset, bytes; /* of the information in the file */
	uint64_t address;	/* of the information, link-time; 0 for .debug_frame */
	uint64_t header;	/* address of .eh_frame_hdr, 0: none; with UNWIND_GO of .text */
	uint64_t text_offset;	/* with UNWIND_GO, of .text in the file */
	bool is_section;	/* a section header gave the size: zero entries do not end it */
};
/* -EBADMSG no ELF file, or damaged; -EOPNOTSUPP another machine's, or relocatable; -ENOENT no call
 * frame information; -ERANGE past a limit. */
int unwind_locate(const struct unwind_source *source, struct unwind_place *ret, struct why *why);
/* What a table will take, from the place alone: within a factor of 2 for tables of more than 50 KB,
 * where section headers tell the size of the information; without them it may be far too much. */
uint64_t unwind_forecast_bytes(const struct unwind_place *place);

struct unwind_stats {
	uint64_t fdes;		 /* functions with rows in the table */
	uint64_t fdes_dropped;	 /* empty, doubled, or outside the executable segments */
	uint64_t fdes_bad;	 /* damaged, or with unknown augmentation or pointer encoding */
	uint64_t rows_raw;	 /* as the information has them */
	uint64_t rows;		 /* after merging; gaps included */
	uint64_t rows_gap;	 /* FLY_CFA_NONE */
	uint64_t rows_leaf_only; /* need a register other than SP and FP, caller-saved */
	uint64_t rows_tracked;	 /* need the tracked register */
	/* FLY_CFA_UNSUPPORTED, FLY_FP_LOST, or need another callee-saved register */
	uint64_t rows_unsupported;
	uint64_t unsupported_bytes; /* of text under those */
	uint64_t covered_bytes;	    /* of text under rows that say something */
	uint64_t text_bytes;	    /* of executable segments */
	uint64_t groups_degraded;   /* cut to one row or to nothing: a dictionary was full */
	uint32_t passes;
	size_t scratch_bytes; /* peak, the growing table not included */
};

/* A finished table. All parts are in blocks of their own order: pages, then groups, shapes and
 * rules; `at` fields of pages are word numbers within `groups` alone. tables/ places the parts. */
struct unwind_table {
	uint64_t start; /* address of page 0, which holds the first function */
	uint16_t machine;
	uint8_t scale;
	uint8_t found;	 /* enum unwind_found */
	uint8_t tracked; /* DWARF number, 0: none */
	__u64 *pages;
	__u32 *groups;
	__u32 *shapes; /* ends with a 0 word */
	struct fly_rule *rules;
	uint32_t page_count, group_count, shape_words, rule_count;
	uint32_t shape_count;
	/* What it was made from: as in unwind_place, but to its end where that gives no size. */
	uint64_t info_offset, info_bytes, info_address;
	struct unwind_stats stats;
};
/* Words of 0 that lie behind the shapes, not counted: a look-up reads a whole shape's room. */
#define UNWIND_SHAPE_ROOM (FLY_GROUP_ROWS / 2 - 1)

struct unwind_options {
	size_t table_bytes_max; /* 0: 16 MiB */
};
/* Negative errno as unwind_locate; -ENOSPC past table_bytes_max; -ENOMEM. options may be NULL.
 *
 * The same file gives the same table, bit for bit: pages of a table made now go with the
 * dictionaries of one made before. So a user who holds only some pages in memory makes the table
 * again to get others (libLLVM-19: 0.06 s). */
int unwind_table_build(const struct unwind_source *source, const struct unwind_options *options,
		       struct unwind_table **ret, struct why *why);
void unwind_table_free(struct unwind_table *table);
/* Bytes in kernel memory: pages, groups, shapes, rules and the table's own entry. */
uint64_t unwind_table_bytes(const struct unwind_table *table);
/* The rule in force at a link-time address: FLY_FIND_x of bpf/walk/lookup.h, by the same code. */
int unwind_table_find(const struct unwind_table *table, uint64_t vaddr, struct fly_rule *ret);

/* Whether a table that came from elsewhere (its counts and pointers are the caller's word: the
 * arrays hold that much, shapes with their room) is one that unwind_table_build could have made, as
 * far as a look-up can tell: what it reads lies inside the parts, and every rule has a meaning.
 * -EBADMSG. */
int unwind_table_check(const struct unwind_table *table, struct why *why);

/* Every function that the information names, in file order, also those the table leaves out; for
 * checks. -EOPNOTSUPP with UNWIND_GO. What visit returns other than 0 ends the call and is
 * returned. */
typedef int (*unwind_visit)(void *ctx, uint64_t start, uint64_t bytes);
int unwind_functions(const struct unwind_source *source, unwind_visit visit, void *ctx,
		     struct why *why);

#endif
