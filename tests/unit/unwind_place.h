/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts whole tables of src/unwind and mappings into the space of words of abi/table_space.h, for
 * tests: one after the other, no part across a block's border.
 */
#ifndef TEST_UNWIND_PLACE_H
#define TEST_UNWIND_PLACE_H

#include "unwind/unwind.h"
#include "abi/table_space.h"

/* The words of block number, or NULL: no room. */
typedef uint32_t *(*place_block)(void *ctx, uint32_t number);
struct place {
	place_block block;
	void *ctx;
	uint32_t next; /* first free word */
};

/* Word number of count words in one block, even; 0: no room. *ret is where they are. */
uint32_t place_words(struct place *place, uint32_t count, uint32_t **ret);
/* Copies all parts; fills *ret with pages 0, and *ret_pages with how many to publish. False: no
 * room. */
bool place_table(struct place *place, const struct unwind_table *table, struct fly_table *ret,
		 uint32_t *ret_pages);
/* Builds the table of a file on disk, NULL when it has none. */
struct unwind_table *place_build(const char *path);
/* The vDSO's, from the memory of this process. */
struct unwind_table *place_build_vdso(uint64_t start);
/* Address minus link-time address of an executable mapping of a file. False: no segment is there.
 */
bool place_bias(const char *path, uint64_t start, uint64_t offset, uint64_t *ret);
/* What the kernel has at an executable mapping: of a file, the vDSO ("[vdso]") or neither. */
uint64_t place_identity(const char *path, uint64_t start, uint64_t offset);

#endif
