// SPDX-License-Identifier: Apache-2.0
/* Symbol tables, streamed. Found by section headers, else (stripped of them) by PT_DYNAMIC, where
 * the length must be had from a hash table: the dynamic section does not say it (gABI 5, "Hash
 * Table"; DT_GNU_HASH as glibc's dl-lookup.c reads it). */
#include "elf_read.h"

#include <errno.h>
#include <string.h>

#define DYNAMIC_MAX   4096	 /* entries of the dynamic section */
#define HASH_WORK_MAX (1U << 22) /* buckets, and links of one chain */

struct table {
	uint64_t offset, count;
	bool dynamic, sections; /* sections: st_shndx can be looked up */
};

struct walk {
	struct elf_file *elf;
	bool is_tls; /* thread-local variables, not functions */
	uint64_t left;
	elf_symbol_visit visit;
	void *ctx;
	struct why *why;
};

static bool in_executable_segment(const struct elf_info *info, uint64_t vaddr)
{
	for (uint32_t i = 0; i < info->segment_count; i++) {
		if (vaddr >= info->segments[i].vaddr &&
		    vaddr - info->segments[i].vaddr < info->segments[i].file_bytes)
			return true;
	}
	return false;
}

static bool is_function(const struct elf_file *elf, const struct table *table, const Elf64_Sym *s)
{
	unsigned int type = ELF64_ST_TYPE(s->st_info);

	if (s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS || s->st_shndx == SHN_COMMON ||
	    !s->st_name)
		return false;
	if (type == STT_FUNC || type == STT_GNU_IFUNC)
		return true;
	if (type != STT_NOTYPE)
		return false;
	if (!table->sections || s->st_shndx >= SHN_LORESERVE)
		return in_executable_segment(&elf->info, s->st_value);
	return elf->executable_sections[s->st_shndx / 8] >> (s->st_shndx % 8) & 1;
}

static bool is_thread_local(const Elf64_Sym *s)
{
	return ELF64_ST_TYPE(s->st_info) == STT_TLS && s->st_shndx != SHN_UNDEF && s->st_name;
}

static size_t symbol_bytes(const struct elf_file *elf)
{
	return elf->info.class64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
}

/* One entry, in the 64-bit form. False when the file does not hold it. */
static bool symbol_read(struct elf_file *elf, uint64_t offset, Elf64_Sym *ret)
{
	const void *p = elf_look(elf, &elf->symbols, offset, symbol_bytes(elf));
	Elf32_Sym s;

	if (!p)
		return false;
	if (elf->info.class64) {
		memcpy(ret, p, sizeof(*ret));
		return true;
	}
	memcpy(&s, p, sizeof(s));
	*ret = (Elf64_Sym){.st_name = s.st_name,
			   .st_info = s.st_info,
			   .st_other = s.st_other,
			   .st_shndx = s.st_shndx,
			   .st_value = s.st_value,
			   .st_size = s.st_size};
	return true;
}

static int table_walk(struct walk *walk, const struct table *table)
{
	struct elf_file *elf = walk->elf;

	for (uint64_t i = 0; i < table->count; i++) {
		struct elf_symbol out;
		Elf64_Sym s;
		int err;

		if (!walk->left)
			return why_set(walk->why, -ERANGE, "too many symbols");
		walk->left--;
		if (!symbol_read(elf, table->offset + i * symbol_bytes(elf), &s))
			return why_set(walk->why, -EBADMSG, "the symbol table is cut short");
		if (walk->is_tls ? !is_thread_local(&s) : !is_function(elf, table, &s))
			continue;
		out = (struct elf_symbol){
			.vaddr = s.st_value,
			.size = s.st_size,
			.name_offset = s.st_name,
			.section = s.st_shndx,
			.type = ELF64_ST_TYPE(s.st_info),
			.binding = ELF64_ST_BIND(s.st_info),
			.dynamic = table->dynamic,
		};
		err = walk->visit(walk->ctx, &out);
		if (err)
			return err;
	}
	return 0;
}

static bool within_file(const struct elf_file *elf, uint64_t offset, uint64_t bytes)
{
	return offset <= elf->info.file_bytes && bytes <= elf->info.file_bytes - offset;
}

static int section_walk(struct walk *walk, const Elf64_Shdr *h)
{
	struct elf_file *elf = walk->elf;
	struct table table = {
		.offset = h->sh_offset,
		.count = h->sh_size / symbol_bytes(elf),
		.dynamic = h->sh_type == SHT_DYNSYM,
		.sections = true,
	};
	Elf64_Shdr strings;

	if (h->sh_flags & SHF_COMPRESSED)
		return why_set(walk->why, -EOPNOTSUPP, "a compressed symbol table");
	if (h->sh_entsize != symbol_bytes(elf) || !within_file(elf, h->sh_offset, h->sh_size))
		return why_set(walk->why, -EBADMSG, "the symbol table lies outside the file");
	if (h->sh_link >= elf->shnum || elf_section_header(elf, h->sh_link, &strings) ||
	    strings.sh_type != SHT_STRTAB || !within_file(elf, strings.sh_offset, strings.sh_size))
		return why_set(walk->why, -EBADMSG, "the symbol names lie outside the file");
	elf->strings[table.dynamic] = (struct elf_strings){strings.sh_offset, strings.sh_size};
	return table_walk(walk, &table);
}

/* The first table of the type. */
static int section_find(struct elf_file *elf, uint32_t type, Elf64_Shdr *ret)
{
	for (uint64_t i = 0; i < elf->shnum; i++) {
		int err = elf_section_header(elf, i, ret);

		if (err)
			return err;
		/* A .symtab of a separate debug file's other half has no contents. */
		if (ret->sh_type == type && ret->sh_size)
			return 0;
	}
	return -ENOENT;
}

static int gnu_hash_count(struct elf_file *elf, uint64_t offset, uint64_t *ret)
{
	uint32_t head[4], top = 0, word;
	uint64_t at, chain;

	if (elf_read(elf, offset, head, sizeof(head)) || head[0] > HASH_WORK_MAX ||
	    head[2] > HASH_WORK_MAX)
		return -EBADMSG;
	at = offset + sizeof(head) + (uint64_t)head[2] * 8;
	for (uint32_t i = 0; i < head[0]; i++) {
		const void *p = elf_look(elf, &elf->symbols, at + (uint64_t)i * 4, 4);

		if (!p)
			return -EBADMSG;
		memcpy(&word, p, 4);
		if (word > top)
			top = word;
	}
	if (top < head[1]) {
		*ret = head[1];
		return 0;
	}
	chain = at + (uint64_t)head[0] * 4;
	for (uint32_t i = 0; i < HASH_WORK_MAX; i++) {
		const void *p =
			elf_look(elf, &elf->symbols, chain + ((uint64_t)top - head[1] + i) * 4, 4);

		if (!p)
			return -EBADMSG;
		memcpy(&word, p, 4);
		if (word & 1) {
			*ret = (uint64_t)top + i + 1;
			return 0;
		}
	}
	return -EBADMSG;
}

struct dynamic {
	uint64_t symbols, strings, strings_bytes, hash, gnu_hash;
};

static void dynamic_read(struct elf_file *elf, const Elf64_Phdr *h, struct dynamic *d)
{
	uint64_t n = h->p_filesz / sizeof(Elf64_Dyn);

	for (uint64_t i = 0; i < n && i < DYNAMIC_MAX; i++) {
		const void *p = elf_look(elf, &elf->symbols, h->p_offset + i * sizeof(Elf64_Dyn),
					 sizeof(Elf64_Dyn));
		Elf64_Dyn e;

		if (!p)
			return;
		memcpy(&e, p, sizeof(e));
		switch (e.d_tag) {
		case DT_NULL:
			return;
		case DT_SYMTAB:
			d->symbols = e.d_un.d_ptr;
			break;
		case DT_STRTAB:
			d->strings = e.d_un.d_ptr;
			break;
		case DT_STRSZ:
			d->strings_bytes = e.d_un.d_val;
			break;
		case DT_HASH:
			d->hash = e.d_un.d_ptr;
			break;
		case DT_GNU_HASH:
			d->gnu_hash = e.d_un.d_ptr;
			break;
		default:
			break;
		}
	}
}

static int dynamic_count(struct elf_file *elf, const struct dynamic *d, uint64_t *ret)
{
	uint64_t offset;
	uint32_t head[2];

	if (d->hash && !elf_vaddr_to_offset(elf, d->hash, &offset) &&
	    !elf_read(elf, offset, head, sizeof(head))) {
		*ret = head[1]; /* nchain */
		return 0;
	}
	if (d->gnu_hash && !elf_vaddr_to_offset(elf, d->gnu_hash, &offset))
		return gnu_hash_count(elf, offset, ret);
	return -ENOENT;
}

static int dynamic_walk(struct walk *walk)
{
	struct elf_file *elf = walk->elf;
	struct table table = {.dynamic = true};
	struct dynamic d = {0};
	uint64_t strings;
	Elf64_Phdr h;

	for (uint64_t i = 0; i < elf->phnum; i++) {
		if (elf_program_header(elf, i, &h))
			return 0;
		if (h.p_type == PT_DYNAMIC) {
			dynamic_read(elf, &h, &d);
			break;
		}
	}
	if (!d.symbols || !d.strings || dynamic_count(elf, &d, &table.count) ||
	    elf_vaddr_to_offset(elf, d.symbols, &table.offset) ||
	    elf_vaddr_to_offset(elf, d.strings, &strings))
		return 0;
	if (!within_file(elf, strings, d.strings_bytes) ||
	    table.count > elf->info.file_bytes / sizeof(Elf64_Sym))
		return why_set(walk->why, -EBADMSG, "the dynamic symbols lie outside the file");
	elf->strings[1] = (struct elf_strings){strings, d.strings_bytes};
	return table_walk(walk, &table);
}

static int tables_walk(struct walk *walk)
{
	struct elf_file *elf = walk->elf;
	Elf64_Shdr h;
	bool has_table = !section_find(elf, SHT_SYMTAB, &h);
	int err = has_table ? section_walk(walk, &h) : 0;

	if (err)
		return err;
	if (!section_find(elf, SHT_DYNSYM, &h))
		return section_walk(walk, &h);
	if (!elf->info.class64)
		return has_table
			       ? 0
			       : why_set(walk->why, -EOPNOTSUPP, "a 32-bit file without sections");
	return dynamic_walk(walk);
}

int elf_symbols(struct elf_file *elf, uint64_t max_symbols, elf_symbol_visit visit, void *ctx,
		struct why *why)
{
	return tables_walk(&(struct walk){elf, false, max_symbols, visit, ctx, why});
}

int elf_tls_symbols(struct elf_file *elf, uint64_t max_symbols, elf_symbol_visit visit, void *ctx,
		    struct why *why)
{
	return tables_walk(&(struct walk){elf, true, max_symbols, visit, ctx, why});
}

int elf_symbol_name(struct elf_file *elf, const struct elf_symbol *symbol, char *out,
		    size_t out_size)
{
	const struct elf_strings *strings = &elf->strings[symbol->dynamic];
	size_t n = 0;

	if (!out_size)
		return -EINVAL;
	out[0] = 0;
	if (symbol->name_offset >= strings->bytes)
		return -EBADMSG;
	while (n + 1 < out_size) {
		uint64_t at = (uint64_t)symbol->name_offset + n;
		size_t part = 256;
		const char *p;
		const char *end;

		if (part > out_size - 1 - n)
			part = out_size - 1 - n;
		if (at >= strings->bytes)
			break;
		if (part > strings->bytes - at)
			part = (size_t)(strings->bytes - at);
		p = elf_look(elf, &elf->names, strings->offset + at, part);
		if (!p)
			return -EBADMSG;
		end = memchr(p, 0, part);
		if (end)
			part = (size_t)(end - p);
		memcpy(out + n, p, part);
		n += part;
		if (end)
			break;
	}
	out[n] = 0;
	return 0;
}
