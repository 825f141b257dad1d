// SPDX-License-Identifier: Apache-2.0
#include "symbol_rules.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

int symbol_rules_init(struct symbol_rules *rules, struct elf_file *elf)
{
	*rules = (struct symbol_rules){.elf = elf,
				       .has_marks = elf_get_info(elf)->machine == EM_AARCH64};
	rules->names[0] = mem_alloc(MEM_SYMBOL, ELF_NAME_MAX + 1);
	rules->names[1] = mem_alloc(MEM_SYMBOL, ELF_NAME_MAX + 1);
	return rules->names[0] && rules->names[1] ? 0 : -ENOMEM;
}

void symbol_rules_done(struct symbol_rules *rules)
{
	mem_free(MEM_SYMBOL, rules->names[0]);
	mem_free(MEM_SYMBOL, rules->names[1]);
}

int symbol_rules_name(struct symbol_rules *rules, const struct elf_symbol *symbol, int slot)
{
	int err = elf_symbol_name(rules->elf, symbol, rules->names[slot], ELF_NAME_MAX + 1);
	char *version;

	if (err)
		return err;
	/* foo@VERS, foo@@VERS: the linker's notation, no part of the name. */
	version = strchr(rules->names[slot] + 1, '@');
	if (rules->names[slot][0] && version)
		*version = 0;
	return rules->names[slot][0] ? 0 : -ENOENT;
}

bool symbol_rules_is_label(struct symbol_rules *rules, const struct elf_symbol *s)
{
	const char *name = rules->names[0];

	if (s->type != STT_NOTYPE || s->binding != STB_LOCAL)
		return false;
	if (symbol_rules_name(rules, s, 0))
		return true;
	if (name[0] == '.' && name[1] == 'L')
		return true;
	return rules->has_marks && name[0] == '$' && (name[1] == 'x' || name[1] == 'd') &&
	       (!name[2] || name[2] == '.');
}

static unsigned int binding_rank(const struct elf_symbol *s)
{
	return s->binding == STB_LOCAL ? 2 : s->binding == STB_WEAK ? 1 : 0;
}

int symbol_rules_compare(struct symbol_rules *rules, const struct elf_symbol *a,
			 const struct elf_symbol *b)
{
	size_t len_a, len_b;

	if (binding_rank(a) != binding_rank(b))
		return binding_rank(a) < binding_rank(b) ? -1 : 1;
	if (a->dynamic != b->dynamic)
		return a->dynamic ? 1 : -1;
	/* Names of one file's own making: its table's order is as good, and what other tools show.
	 */
	if (a->binding == STB_LOCAL)
		return 0;
	if (symbol_rules_name(rules, a, 0))
		return 1;
	if (symbol_rules_name(rules, b, 1))
		return -1;
	len_a = strlen(rules->names[0]);
	len_b = strlen(rules->names[1]);
	if (len_a != len_b)
		return len_a < len_b ? -1 : 1;
	return strcmp(rules->names[0], rules->names[1]);
}
