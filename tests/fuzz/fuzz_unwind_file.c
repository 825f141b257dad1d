// SPDX-License-Identifier: Apache-2.0
/* Whole files: ELF headers, .eh_frame_hdr, both kinds of call frame information. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/unwind.h"

struct bytes {
	const uint8_t *data;
	size_t size;
};

static int read_bytes(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	const struct bytes *b = ctx;

	if (offset > b->size || bytes > b->size - offset)
		abort(); /* unwind promises to stay within the file */
	memcpy(out, b->data + offset, bytes);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = {data, size};
	struct unwind_source source = {.read = read_bytes, .ctx = &b, .bytes = size};
	struct unwind_table *t = NULL;
	struct fly_rule r;

	if (!unwind_table_build(&source, NULL, &t, NULL)) {
		if (t->stats.scratch_bytes > UNWIND_SCRATCH_BYTES || unwind_table_check(t, NULL))
			abort();
		for (uint32_t page = 0; page < t->page_count && page < 4; page++) {
			for (uint64_t at = 0; at < FLY_PAGE_BYTES; at += 509)
				unwind_table_find(
					t, t->start + ((uint64_t)page << FLY_PAGE_SHIFT) + at, &r);
		}
		unwind_table_free(t);
	}
	if (mem_live_bytes(MEM_ELF))
		abort();
	return 0;
}
