// SPDX-License-Identifier: Apache-2.0
/* Sections by name, relocations and dynamic symbols. What the file says of places and sizes is
 * checked where it is read (elf_look); only streams are walked, so nothing is allocated. */
#include "elf_link.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define DYNAMIC_MAX 4096 /* entries of the dynamic section */

bool elf_section_is_inside(const struct elf_file *elf, const Elf64_Shdr *section)
{
	return section->sh_type != SHT_NOBITS && section->sh_offset <= elf->info.file_bytes &&
	       section->sh_size <= elf->info.file_bytes - section->sh_offset;
}

/* The section that holds the names of sections; index 0xffff stands in section 0 (gABI 4). */
static int names_section(struct elf_file *elf, Elf64_Shdr *ret)
{
	uint64_t at = elf->info.class64 ? offsetof(Elf64_Ehdr, e_shstrndx)
					: offsetof(Elf32_Ehdr, e_shstrndx);
	uint16_t short_index;
	uint64_t index;

	if (!elf->shnum || elf_read(elf, at, &short_index, sizeof(short_index)))
		return -ENOENT;
	index = short_index;
	if (short_index == SHN_XINDEX) {
		if (elf_section_header(elf, 0, ret))
			return -EBADMSG;
		index = ret->sh_link;
	}
	if (index == SHN_UNDEF || index >= elf->shnum || elf_section_header(elf, index, ret) ||
	    !elf_section_is_inside(elf, ret))
		return -EBADMSG;
	return 0;
}

/* NUL-terminated text at an offset of a string table; "" where there is none. */
static void text_at(struct elf_file *elf, const Elf64_Shdr *table, uint64_t at, char *out,
		    size_t out_size)
{
	size_t part = out_size - 1;
	const char *p;

	out[0] = 0;
	if (at >= table->sh_size)
		return;
	if (part > table->sh_size - at)
		part = (size_t)(table->sh_size - at);
	p = elf_look(elf, &elf->names, table->sh_offset + at, part);
	if (!p)
		return;
	part = strnlen(p, part);
	memcpy(out, p, part);
	out[part] = 0;
}

void elf_section_name(struct elf_file *elf, const Elf64_Shdr *section, char *out, size_t out_size)
{
	Elf64_Shdr names;

	out[0] = 0;
	if (!names_section(elf, &names))
		text_at(elf, &names, section->sh_name, out, out_size);
}

int elf_section_named(struct elf_file *elf, const char *name, Elf64_Shdr *ret)
{
	char text[ELF_SECTION_NAME_MAX];
	Elf64_Shdr names, h;
	int err = names_section(elf, &names);

	for (uint64_t i = 1; !err && i < elf->shnum; i++) {
		err = elf_section_header(elf, i, &h);
		if (err)
			break;
		text_at(elf, &names, h.sh_name, text, sizeof(text));
		if (!strcmp(text, name)) {
			*ret = h;
			return 0;
		}
	}
	return err ? err : -ENOENT;
}

struct dynamic {
	uint64_t symbols, strings, strings_bytes;
	uint64_t rela, rela_bytes, jump, jump_bytes;
	bool is_jump_rela;
};

static void dynamic_take(struct dynamic *d, const Elf64_Dyn *e)
{
	switch (e->d_tag) {
	case DT_SYMTAB:
		d->symbols = e->d_un.d_ptr;
		break;
	case DT_STRTAB:
		d->strings = e->d_un.d_ptr;
		break;
	case DT_STRSZ:
		d->strings_bytes = e->d_un.d_val;
		break;
	case DT_RELA:
		d->rela = e->d_un.d_ptr;
		break;
	case DT_RELASZ:
		d->rela_bytes = e->d_un.d_val;
		break;
	case DT_JMPREL:
		d->jump = e->d_un.d_ptr;
		break;
	case DT_PLTRELSZ:
		d->jump_bytes = e->d_un.d_val;
		break;
	case DT_PLTREL:
		d->is_jump_rela = e->d_un.d_val == DT_RELA;
		break;
	default:
		break;
	}
}

static int dynamic_read(struct elf_file *elf, struct dynamic *d)
{
	Elf64_Phdr h;

	memset(d, 0, sizeof(*d));
	for (uint64_t i = 0; i < elf->phnum; i++) {
		if (elf_program_header(elf, i, &h))
			return -EBADMSG;
		if (h.p_type == PT_DYNAMIC)
			break;
		if (i + 1 == elf->phnum)
			return -ENOENT;
	}
	if (!elf->phnum)
		return -ENOENT;
	for (uint64_t i = 0; i < h.p_filesz / sizeof(Elf64_Dyn) && i < DYNAMIC_MAX; i++) {
		const void *p = elf_look(elf, &elf->symbols, h.p_offset + i * sizeof(Elf64_Dyn),
					 sizeof(Elf64_Dyn));
		Elf64_Dyn e;

		if (!p)
			return -EBADMSG;
		memcpy(&e, p, sizeof(e));
		if (e.d_tag == DT_NULL)
			break;
		dynamic_take(d, &e);
	}
	return 0;
}

struct walk {
	struct elf_file *elf;
	uint64_t left;
	elf_relocation_visit visit;
	void *ctx;
	struct why *why;
};

static int table_walk(struct walk *w, uint64_t offset, uint64_t bytes, bool is_jump)
{
	for (uint64_t i = 0; i < bytes / sizeof(Elf64_Rela); i++) {
		const void *p;
		struct elf_relocation out;
		Elf64_Rela r;
		int err;

		if (!w->left)
			return why_set(w->why, -ERANGE, "too many relocations");
		w->left--;
		p = elf_look(w->elf, &w->elf->symbols, offset + i * sizeof(r), sizeof(r));
		if (!p)
			return why_set(w->why, -EBADMSG, "the relocations are cut short");
		memcpy(&r, p, sizeof(r));
		out = (struct elf_relocation){
			.offset = r.r_offset,
			.addend = r.r_addend,
			.type = (uint32_t)ELF64_R_TYPE(r.r_info),
			.symbol = (uint32_t)ELF64_R_SYM(r.r_info),
			.jump_index = is_jump && i < ELF_NO_JUMP ? (uint32_t)i : ELF_NO_JUMP,
		};
		err = w->visit(w->ctx, &out);
		if (err)
			return err;
	}
	return 0;
}

static int sections_walk(struct walk *w, bool *ret_any)
{
	char name[ELF_SECTION_NAME_MAX];
	Elf64_Shdr h;
	int err;

	for (uint64_t i = 0; i < w->elf->shnum; i++) {
		if (elf_section_header(w->elf, i, &h))
			return why_set(w->why, -EBADMSG, "the section headers are cut short");
		if (h.sh_type != SHT_RELA || !(h.sh_flags & SHF_ALLOC))
			continue;
		if (!elf_section_is_inside(w->elf, &h))
			return why_set(w->why, -EBADMSG, "relocations outside the file");
		elf_section_name(w->elf, &h, name, sizeof(name));
		*ret_any = true;
		err = table_walk(w, h.sh_offset, h.sh_size, !strcmp(name, ".rela.plt"));
		if (err)
			return err;
	}
	return 0;
}

int elf_relocations(struct elf_file *elf, uint64_t max, elf_relocation_visit visit, void *ctx,
		    struct why *why)
{
	struct walk w = {elf, max, visit, ctx, why};
	bool has_any = false;
	struct dynamic d;
	uint64_t offset;
	int err;

	if (!elf->info.class64)
		return why_set(why, -EOPNOTSUPP, "a 32-bit file");
	err = sections_walk(&w, &has_any);
	if (err || has_any || dynamic_read(elf, &d))
		return err;
	if (d.rela && !elf_vaddr_to_offset(elf, d.rela, &offset))
		err = table_walk(&w, offset, d.rela_bytes, false);
	if (!err && d.jump && d.is_jump_rela && !elf_vaddr_to_offset(elf, d.jump, &offset))
		err = table_walk(&w, offset, d.jump_bytes, true);
	return err;
}

int elf_dynsym_find(struct elf_file *elf, struct elf_dynsym *ret)
{
	Elf64_Shdr h, strings;
	struct dynamic d;

	if (!elf->info.class64)
		return -ENOENT;
	for (uint64_t i = 0; i < elf->shnum; i++) {
		if (elf_section_header(elf, i, &h))
			return -EBADMSG;
		if (h.sh_type != SHT_DYNSYM || h.sh_link >= elf->shnum)
			continue;
		if (elf_section_header(elf, h.sh_link, &strings) ||
		    !elf_section_is_inside(elf, &h) || !elf_section_is_inside(elf, &strings))
			return -EBADMSG;
		ret->offset = h.sh_offset;
		ret->strings = (struct elf_strings){strings.sh_offset, strings.sh_size};
		return 0;
	}
	if (dynamic_read(elf, &d) || !d.symbols || !d.strings)
		return -ENOENT;
	if (elf_vaddr_to_offset(elf, d.symbols, &ret->offset) ||
	    elf_vaddr_to_offset(elf, d.strings, &ret->strings.offset) ||
	    d.strings_bytes > elf->info.file_bytes - ret->strings.offset)
		return -EBADMSG;
	ret->strings.bytes = d.strings_bytes;
	return 0;
}

int elf_dynsym_read(struct elf_file *elf, const struct elf_dynsym *table, uint32_t index,
		    struct elf_symbol *ret)
{
	Elf64_Sym s;

	if (elf_read(elf, table->offset + (uint64_t)index * sizeof(s), &s, sizeof(s)))
		return -EBADMSG;
	elf->strings[1] = table->strings;
	*ret = (struct elf_symbol){
		.vaddr = s.st_value,
		.size = s.st_size,
		.name_offset = s.st_name,
		.section = s.st_shndx,
		.type = ELF64_ST_TYPE(s.st_info),
		.binding = ELF64_ST_BIND(s.st_info),
		.dynamic = true,
	};
	return 0;
}
