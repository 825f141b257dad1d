/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol, the sources: where names come from, one by one. symbol_lookup_file (symbol.h) asks those
 * of a file in this order, each for what is still unnamed:
 *
 *   Go's .gopclntab          symbol_lookup_go, where a section says that there is one
 *   .symtab and .dynsym      symbol_lookup_table
 *   .gnu_debugdata           the same, over the file unpacked from it
 *   PLT stubs                symbol_lookup_plt, "name@plt"
 *   Go's table by its magic  symbol_lookup_go, without section headers
 *
 * Each sorts queries by address, answers what it can in one bounded pass over its table, and
 * returns 0 also where the file has no such table.
 */
#ifndef FLYBALL_SYMBOL_SOURCES_H
#define FLYBALL_SYMBOL_SOURCES_H

#include "symbol.h"

int symbol_lookup_table(struct elf_file *elf, struct symbol_query *queries, size_t count,
			struct why *why);
/* x86-64 only. A stub of an IFUNC is named after the IFUNC. */
int symbol_lookup_plt(struct elf_file *elf, struct symbol_query *queries, size_t count,
		      struct why *why);
/* Go 1.16 and later. */
int symbol_lookup_go(struct elf_file *elf, struct symbol_query *queries, size_t count,
		     struct why *why);
/* Its functions by address; name is mangled, or "". visit returns 0 to go on; what else it returns
 * ends the call and is returned. */
typedef int (*symbol_go_function)(void *ctx, uint64_t start, uint64_t end, const char *name);
int symbol_go_visit(struct elf_file *elf, symbol_go_function visit, void *ctx, struct why *why);

#endif
