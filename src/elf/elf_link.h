/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf, what a linker left behind: sections by name, relocations, dynamic symbols by their index.
 * Streamed and bounded as in elf.h. Section headers are used where there are any, else PT_DYNAMIC.
 */
#ifndef FLYBALL_ELF_LINK_H
#define FLYBALL_ELF_LINK_H

#include "elf_read.h"

#define ELF_SECTION_NAME_MAX 64

/* The first section of this name. -ENOENT; -EBADMSG where the headers cannot be read. */
int elf_section_named(struct elf_file *elf, const char *name, Elf64_Shdr *ret);
/* Cut at out_size - 1; "" where there is none. */
void elf_section_name(struct elf_file *elf, const Elf64_Shdr *section, char *out, size_t out_size);
/* True when the whole section has contents inside the file. */
bool elf_section_is_inside(const struct elf_file *elf, const Elf64_Shdr *section);

struct elf_relocation {
	uint64_t offset; /* r_offset: a link-time address */
	int64_t addend;
	uint32_t type, symbol;
	uint32_t jump_index; /* place in the PLT's own table, or ELF_NO_JUMP */
};
#define ELF_NO_JUMP UINT32_MAX

/* Streams the relocations that the dynamic linker applies (RELA). visit returns 0 to go on; what
 * else it returns ends the call and is returned. -ERANGE past max. */
typedef int (*elf_relocation_visit)(void *ctx, const struct elf_relocation *relocation);
int elf_relocations(struct elf_file *elf, uint64_t max, elf_relocation_visit visit, void *ctx,
		    struct why *why);

/* The dynamic symbol table, undefined symbols included. -ENOENT without one. */
struct elf_dynsym {
	uint64_t offset;
	struct elf_strings strings;
};
int elf_dynsym_find(struct elf_file *elf, struct elf_dynsym *ret);
/* *ret is for elf_symbol_name. -EBADMSG when the file does not hold the entry. */
int elf_dynsym_read(struct elf_file *elf, const struct elf_dynsym *table, uint32_t index,
		    struct elf_symbol *ret);

#endif
