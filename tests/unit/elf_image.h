/* SPDX-License-Identifier: Apache-2.0 */
/* A small ELF file made in memory: one executable segment and section, a symbol table. */
#ifndef FLYBALL_TEST_ELF_IMAGE_H
#define FLYBALL_TEST_ELF_IMAGE_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define IMAGE_TEXT_VADDR  0x401000
#define IMAGE_TEXT_OFFSET 0x1000
#define IMAGE_TEXT_BYTES  0x20000
#define IMAGE_SYMBOLS_MAX 64

struct elf_image {
	Elf64_Ehdr head;
	Elf64_Phdr load;
	Elf64_Shdr sections[5]; /* null, .text, .data, .symtab, .strtab */
	Elf64_Sym symbols[IMAGE_SYMBOLS_MAX];
	char strings[4096];
	uint8_t rest[IMAGE_TEXT_OFFSET + IMAGE_TEXT_BYTES];
};

static inline void elf_image_init(struct elf_image *i)
{
	memset(i, 0, sizeof(*i));
	memcpy(i->head.e_ident, ELFMAG, SELFMAG);
	i->head.e_ident[EI_CLASS] = ELFCLASS64;
	i->head.e_ident[EI_DATA] = ELFDATA2LSB;
	i->head.e_type = ET_EXEC;
	i->head.e_machine = EM_X86_64;
	i->head.e_phoff = offsetof(struct elf_image, load);
	i->head.e_phentsize = sizeof(Elf64_Phdr);
	i->head.e_phnum = 1;
	i->head.e_shoff = offsetof(struct elf_image, sections);
	i->head.e_shentsize = sizeof(Elf64_Shdr);
	i->head.e_shnum = 5;
	i->load = (Elf64_Phdr){.p_type = PT_LOAD,
			       .p_flags = PF_R | PF_X,
			       .p_offset = IMAGE_TEXT_OFFSET,
			       .p_vaddr = IMAGE_TEXT_VADDR,
			       .p_filesz = IMAGE_TEXT_BYTES,
			       .p_memsz = IMAGE_TEXT_BYTES};
	i->sections[1] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
				      .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
				      .sh_addr = IMAGE_TEXT_VADDR,
				      .sh_offset = IMAGE_TEXT_OFFSET,
				      .sh_size = IMAGE_TEXT_BYTES - 0x1000};
	i->sections[2] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
				      .sh_flags = SHF_ALLOC | SHF_WRITE,
				      .sh_addr = 0x601000,
				      .sh_size = 0x1000};
	i->sections[3] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
				      .sh_offset = offsetof(struct elf_image, symbols),
				      .sh_size = sizeof(Elf64_Sym),
				      .sh_link = 4,
				      .sh_entsize = sizeof(Elf64_Sym)};
	i->sections[4] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
				      .sh_offset = offsetof(struct elf_image, strings),
				      .sh_size = 1};
}

static inline void elf_image_symbol(struct elf_image *i, const char *name, uint64_t vaddr,
				    uint64_t size, unsigned char type, unsigned char binding)
{
	uint64_t n = i->sections[3].sh_size / sizeof(Elf64_Sym), at = i->sections[4].sh_size;

	i->symbols[n] = (Elf64_Sym){.st_name = (uint32_t)at,
				    .st_info = (unsigned char)ELF64_ST_INFO(binding, type),
				    .st_shndx = 1,
				    .st_value = vaddr,
				    .st_size = size};
	memcpy(i->strings + at, name, strlen(name) + 1);
	i->sections[3].sh_size += sizeof(Elf64_Sym);
	i->sections[4].sh_size += strlen(name) + 1;
}

#endif
