// SPDX-License-Identifier: Apache-2.0
/* Any text as /proc/kallsyms. */
#include "symbol/symbol.h"

#include <stdlib.h>
#include <string.h>

#define QUERIES 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_query q[QUERIES] = {{0}};
	FILE *f = size ? fmemopen((void *)data, size, "r") : NULL;

	if (!f)
		return 0;
	for (uint64_t i = 0; i < QUERIES; i++)
		q[i].address = 0xffffffff81000000 + i * 64;
	if (!symbol_lookup_kallsyms(f, q, QUERIES, NULL)) {
		for (size_t i = 0; i < QUERIES; i++) {
			if (q[i].found && (q[i].start > q[i].address || !q[i].name))
				abort();
		}
	}
	fclose(f);
	for (size_t i = 0; i < QUERIES; i++) {
		mem_free(MEM_SYMBOL, q[i].name);
		mem_free(MEM_SYMBOL, q[i].module);
	}
	if (mem_live_bytes(MEM_SYMBOL))
		abort();
	return 0;
}
