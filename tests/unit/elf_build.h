/* SPDX-License-Identifier: Apache-2.0 */
/* An ELF file put together in memory, section by section. A section with SHF_ALLOC is mapped at
 * BUILD_BASE + its offset by a segment of its own; .dynamic gets PT_DYNAMIC besides. */
#ifndef FLYBALL_TEST_ELF_BUILD_H
#define FLYBALL_TEST_ELF_BUILD_H

#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BUILD_BASE	   0x400000ULL
#define BUILD_BYTES	   (1U << 20)
#define BUILD_FIRST	   2048
#define BUILD_SECTIONS_MAX 20

struct elf_build {
	uint8_t *data;
	size_t size;
	Elf64_Shdr sections[BUILD_SECTIONS_MAX];
	Elf64_Phdr segments[BUILD_SECTIONS_MAX];
	uint16_t section_count, segment_count;
	char names[512];
	size_t names_bytes;
};

static inline void build_init(struct elf_build *b)
{
	memset(b, 0, sizeof(*b));
	b->data = calloc(1, BUILD_BYTES);
	if (!b->data)
		abort();
	b->size = BUILD_FIRST;
	b->section_count = 1;
	b->names_bytes = 1;
}

/* Where the next section will be mapped. */
static inline uint64_t build_next(const struct elf_build *b)
{
	return BUILD_BASE + b->size;
}

static inline void build_segment(struct elf_build *b, uint32_t type, uint32_t flags,
				 const Elf64_Shdr *h)
{
	b->segments[b->segment_count++] = (Elf64_Phdr){.p_type = type,
						       .p_flags = flags,
						       .p_offset = h->sh_offset,
						       .p_vaddr = h->sh_addr,
						       .p_filesz = h->sh_size,
						       .p_memsz = h->sh_size};
}

/* Returns the section's index. */
static inline uint16_t build_section(struct elf_build *b, const char *name, uint32_t type,
				     uint64_t flags, const void *data, size_t size, uint32_t link)
{
	Elf64_Shdr *h = &b->sections[b->section_count];

	*h = (Elf64_Shdr){.sh_name = (uint32_t)b->names_bytes,
			  .sh_type = type,
			  .sh_flags = flags,
			  .sh_addr = flags & SHF_ALLOC ? build_next(b) : 0,
			  .sh_offset = b->size,
			  .sh_size = size,
			  .sh_link = link,
			  .sh_entsize = type == SHT_SYMTAB || type == SHT_DYNSYM ? 24 : 0};
	if (b->size + size > BUILD_BYTES - 4096)
		abort();
	if (data)
		memcpy(b->data + b->size, data, size);
	memcpy(b->names + b->names_bytes, name, strlen(name) + 1);
	b->names_bytes += strlen(name) + 1;
	if (flags & SHF_ALLOC)
		build_segment(b, PT_LOAD,
			      PF_R | (flags & SHF_EXECINSTR ? PF_X : 0U) |
				      (flags & SHF_WRITE ? PF_W : 0U),
			      h);
	if (type == SHT_DYNAMIC)
		build_segment(b, PT_DYNAMIC, PF_R, h);
	b->size = (b->size + size + 31) & ~31ULL;
	return b->section_count++;
}

static inline uint64_t build_address(const struct elf_build *b, uint16_t section)
{
	return b->sections[section].sh_addr;
}

static inline void build_finish(struct elf_build *b)
{
	Elf64_Ehdr h = {.e_type = ET_EXEC, .e_machine = EM_X86_64, .e_version = 1};
	uint16_t names = build_section(b, ".shstrtab", SHT_STRTAB, 0, NULL, 0, 0);

	b->sections[names].sh_size = b->names_bytes;
	memcpy(b->data + b->sections[names].sh_offset, b->names, b->names_bytes);
	b->size += (b->names_bytes + 31) & ~31ULL;
	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	h.e_ident[EI_DATA] = ELFDATA2LSB;
	h.e_ehsize = sizeof(h);
	h.e_phoff = sizeof(h);
	h.e_phentsize = sizeof(Elf64_Phdr);
	h.e_phnum = b->segment_count;
	h.e_shoff = b->size;
	h.e_shentsize = sizeof(Elf64_Shdr);
	h.e_shnum = b->section_count;
	h.e_shstrndx = names;
	memcpy(b->data, &h, sizeof(h));
	memcpy(b->data + sizeof(h), b->segments, b->segment_count * sizeof(Elf64_Phdr));
	memcpy(b->data + b->size, b->sections, b->section_count * sizeof(Elf64_Shdr));
	b->size += b->section_count * sizeof(Elf64_Shdr);
}

/* Takes the section headers away. */
static inline void build_strip_headers(struct elf_build *b)
{
	Elf64_Ehdr *h = (void *)b->data;

	h->e_shoff = 0;
	h->e_shnum = 0;
	h->e_shstrndx = 0;
}

static inline void build_done(struct elf_build *b)
{
	free(b->data);
}

#endif
