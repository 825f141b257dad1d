/* SPDX-License-Identifier: Apache-2.0 */
/* symbol, inside: what makes a symbol file. Spans are the answer for every address: each holds from
 * its start to the next one's. Sources give spans one by one, in the order of symbol_lookup_file,
 * and each fills what those before it left. */
#ifndef FLYBALL_SYMBOL_SPANS_H
#define FLYBALL_SYMBOL_SPANS_H

#include "symbol_packed.h"

struct symbol_span {
	uint64_t start;
	uint32_t back; /* to the start of the symbol */
	uint32_t name; /* 0: none */
};

struct symbol_spans {
	struct symbol_span *items; /* by start */
	size_t count, cap;
};

void symbol_spans_done(struct symbol_spans *spans);
/* From start on it is name, of the symbol that begins at symbol. start must not fall; of one start
 * the last counts. -ENOMEM, -ENOSPC. */
int symbol_spans_add(struct symbol_spans *spans, uint64_t start, uint64_t symbol, uint32_t name);
/* What spans leaves unnamed gets the names of under, which is emptied. */
int symbol_spans_fill(struct symbol_spans *spans, struct symbol_spans *under);

/* The file being written, and the limit on the time it takes. */
struct symbol_pack_writer {
	int fd, err; /* the first failure stays */
	uint64_t at; /* of part */
	size_t used;
	uint32_t names_bytes;
	uint64_t end_cpu_ns; /* 0: none */
	unsigned int calls;
	struct elf_blake2b hash;
	char part[32768];
};

/* Adds a name; 0 for an empty one and after a failure. */
uint32_t symbol_pack_name(struct symbol_pack_writer *w, const char *name);
/* True past the limit, which then is the writer's failure. Cheap. */
bool symbol_pack_is_late(struct symbol_pack_writer *w);

/* The symbol tables of elf. */
int symbol_pack_table(struct elf_file *elf, struct symbol_pack_writer *w, struct symbol_spans *ret,
		      struct why *why);

#endif
