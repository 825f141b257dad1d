// SPDX-License-Identifier: Apache-2.0
/* What is read for names is found by section headers, so these and the program headers are in the
 * digest, and with them the place of everything. Then the contents, by the types and names that the
 * readers of names go by (elf_symbols.c, elf_link.c, elf_minidebug.c, src/symbol). */
#include "elf_source.h"

#include "elf_link.h"

#include <errno.h>
#include <string.h>

#define PART_BYTES    65536
#define GO_DATA_MAX   (64ULL << 20) /* of writable segments, where moduledata may lie */
#define SOURCE_FORMAT 1

struct source {
	struct elf_file *elf;
	struct elf_blake2b hash;
	uint8_t *part;
	uint64_t left;
	bool is_go, has_relocations;
};

static int range_add(struct source *s, uint64_t offset, uint64_t bytes)
{
	uint64_t head[2] = {offset, bytes}, size = s->elf->info.file_bytes;

	if (offset > size || bytes > size - offset)
		return -EBADMSG;
	if (bytes > s->left)
		return -ERANGE;
	s->left -= bytes;
	elf_blake2b_add(&s->hash, head, sizeof(head));
	while (bytes) {
		size_t n = bytes < PART_BYTES ? (size_t)bytes : PART_BYTES;
		int err = elf_read(s->elf, offset, s->part, n);

		if (err)
			return err;
		elf_blake2b_add(&s->hash, s->part, n);
		offset += n;
		bytes -= n;
	}
	return 0;
}

static bool is_named(const char *name)
{
	static const char *const names[] = {".gnu_debugdata", ".gnu_debuglink",
					    ".gopclntab",     ".data.rel.ro.gopclntab",
					    ".go.module",     ".noptrdata"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return !strncmp(name, ".plt", 4) || !strncmp(name, ".iplt", 5);
}

static bool is_source(struct source *s, const Elf64_Shdr *h)
{
	char name[ELF_SECTION_NAME_MAX];

	if (h->sh_type == SHT_NOBITS || !h->sh_size)
		return false;
	elf_section_name(s->elf, h, name, sizeof(name));
	if (strstr(name, "gopclntab"))
		s->is_go = true;
	switch (h->sh_type) {
	case SHT_SYMTAB:
	case SHT_DYNSYM:
	case SHT_STRTAB:
	case SHT_DYNAMIC:
		return true;
	case SHT_RELA:
		s->has_relocations |= (h->sh_flags & SHF_ALLOC) != 0;
		return h->sh_flags & SHF_ALLOC;
	default:
		return is_named(name);
	}
}

/* All headers, then all contents, so that nobody can move a border between them. */
static int sections_add(struct source *s)
{
	Elf64_Shdr h;
	int err = 0;

	for (uint64_t i = 0; i < s->elf->shnum && !err; i++) {
		err = elf_section_header(s->elf, i, &h);
		if (!err)
			elf_blake2b_add(&s->hash, &h, sizeof(h));
	}
	for (uint64_t i = 0; i < s->elf->shnum && !err; i++) {
		err = elf_section_header(s->elf, i, &h);
		if (!err && is_source(s, &h))
			err = range_add(s, h.sh_offset, h.sh_size);
	}
	return err;
}

static bool is_wanted_segment(const struct source *s, const Elf64_Phdr *h)
{
	/* Go's moduledata is looked for in writable segments when no section has it. */
	if (h->p_type == PT_LOAD)
		return s->is_go && h->p_flags & PF_W;
	return h->p_type == PT_DYNAMIC;
}

static int segments_add(struct source *s)
{
	uint64_t go = GO_DATA_MAX;
	Elf64_Phdr h;
	int err = 0;

	for (uint64_t i = 0; i < s->elf->phnum && !err; i++) {
		err = elf_program_header(s->elf, i, &h);
		if (err)
			break;
		elf_blake2b_add(&s->hash, &h, sizeof(h));
		if (!is_wanted_segment(s, &h) || h.p_offset > s->elf->info.file_bytes ||
		    h.p_filesz > s->elf->info.file_bytes - h.p_offset)
			continue;
		if (h.p_type == PT_LOAD && h.p_filesz > go)
			return -ERANGE;
		go -= h.p_type == PT_LOAD ? h.p_filesz : 0;
		err = range_add(s, h.p_offset, h.p_filesz);
	}
	return err;
}

/* Relocations that only the dynamic section leads to are few files', and left out. */
static bool has_hidden_relocations(const struct source *s)
{
	Elf64_Phdr h;

	for (uint64_t i = 0; i < s->elf->phnum && !s->has_relocations; i++) {
		if (elf_program_header(s->elf, i, &h) || h.p_type != PT_DYNAMIC)
			continue;
		for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= h.p_filesz;
		     at += sizeof(Elf64_Dyn)) {
			Elf64_Dyn e;

			if (elf_read(s->elf, h.p_offset + at, &e, sizeof(e)) || e.d_tag == DT_NULL)
				break;
			if (e.d_tag == DT_RELA || (e.d_tag == DT_JMPREL && e.d_un.d_ptr))
				return true;
		}
	}
	return false;
}

int elf_source_digest(struct elf_file *elf, uint8_t out[ELF_BLAKE2B_BYTES], struct why *why)
{
	struct source s = {.elf = elf, .left = ELF_SOURCE_BYTES_MAX};
	uint64_t head[4] = {SOURCE_FORMAT, elf->info.machine, elf->info.class64, elf->info.type};
	int err;

	if (!elf->shnum)
		return why_set(why, -EOPNOTSUPP, "a file without section headers");
	s.part = mem_alloc(MEM_ELF, PART_BYTES);
	if (!s.part)
		return why_set(why, -ENOMEM, "out of memory");
	elf_blake2b_init(&s.hash);
	elf_blake2b_add(&s.hash, head, sizeof(head));
	elf_blake2b_add(&s.hash, elf->info.build_id, elf->info.build_id_len);
	err = sections_add(&s);
	if (!err)
		err = segments_add(&s);
	mem_free(MEM_ELF, s.part);
	if (err == -ERANGE)
		return why_set(why, err, "more to read for names than the limit");
	if (err)
		return why_set(why, err, "what names come from lies outside the file");
	if (elf->info.class64 && has_hidden_relocations(&s))
		return why_set(why, -EOPNOTSUPP, "relocations that no section tells of");
	elf_blake2b_end(&s.hash, out);
	return 0;
}
