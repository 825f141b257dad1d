/* SPDX-License-Identifier: Apache-2.0 */
/* symbol, inside: which of an ELF file's symbols is the better name (docs/symbols.md, Rules). */
#ifndef FLYBALL_SYMBOL_RULES_H
#define FLYBALL_SYMBOL_RULES_H

#include "symbol.h"

struct symbol_rules {
	struct elf_file *elf;
	bool has_marks; /* $x, $d: mapping symbols of the ARM ABIs */
	char *names[2]; /* scratch, ELF_NAME_MAX + 1 bytes each */
};

/* -ENOMEM; symbol_rules_done is due all the same. */
int symbol_rules_init(struct symbol_rules *rules, struct elf_file *elf);
void symbol_rules_done(struct symbol_rules *rules);
/* Reads a name, without its version, into names[slot]. -ENOENT: it is empty. */
int symbol_rules_name(struct symbol_rules *rules, const struct elf_symbol *symbol, int slot);
/* Labels of the assembler and mapping symbols name no function. Uses slot 0. */
bool symbol_rules_is_label(struct symbol_rules *rules, const struct elf_symbol *symbol);
/* Among symbols of one start: less is better, 0: the first in the table. Reads names only when all
 * else is equal. */
int symbol_rules_compare(struct symbol_rules *rules, const struct elf_symbol *a,
			 const struct elf_symbol *b);

#endif
