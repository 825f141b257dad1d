/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf, inside: the windows through which a file is read, and its headers in one form for both
 * classes. Every read is at an offset checked against the size that elf_open saw; a shorter answer
 * means that the file changed and is -EBADMSG.
 */
#ifndef FLYBALL_ELF_READ_H
#define FLYBALL_ELF_READ_H

#include "elf.h"

#include <elf.h>

#define ELF_HEADERS_MAX	 65536	/* program headers walked */
#define ELF_SECTIONS_MAX 262144 /* section headers walked */

struct elf_window {
	uint64_t start;
	size_t bytes, size;
	uint8_t *data;
};

struct elf_strings {
	uint64_t offset, bytes;
};

struct elf_capture;
struct elf_file {
	int fd;
	struct elf_capture *capture; /* elf_open_captured */
	const uint8_t *image;	     /* elf_open_memory */
	struct elf_info info;
	uint64_t phoff, shoff;
	uint64_t phnum, shnum;
	/* [0] .symtab's, [1] .dynsym's: set by elf_symbols */
	struct elf_strings strings[2];
	struct elf_window headers, symbols, names;
	uint8_t executable_sections[65536 / 8]; /* a bit for each section below SHN_LORESERVE */
	uint8_t header_data[4096], symbol_data[65536], name_data[4096];
};

/* Takes capture, which may be NULL. */
int elf_open_with(int fd, uint64_t bytes, struct elf_capture *capture, struct elf_file **ret,
		  struct why *why);
void elf_capture_free(struct elf_capture *capture);
int elf_capture_read(struct elf_file *elf, uint64_t offset, void *out, size_t bytes);
/* The same as elf_read inside the file, past what is kept. */
int elf_read_uncaptured(struct elf_file *elf, uint64_t offset, void *out, size_t bytes);
/* Exactly bytes at offset, or -EBADMSG. */
int elf_read(struct elf_file *elf, uint64_t offset, void *out, size_t bytes);
/* A pointer to bytes at offset in the window, NULL when the file does not hold them. */
const void *elf_look(struct elf_file *elf, struct elf_window *window, uint64_t offset,
		     size_t bytes);
int elf_program_header(struct elf_file *elf, uint64_t index, Elf64_Phdr *ret);
int elf_section_header(struct elf_file *elf, uint64_t index, Elf64_Shdr *ret);
/* File offset of a link-time address by any PT_LOAD. -ENOENT outside. */
int elf_vaddr_to_offset(struct elf_file *elf, uint64_t vaddr, uint64_t *ret_offset);

#endif
