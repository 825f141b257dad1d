/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf: bounded, streaming access to ELF files that anybody may have written.
 *
 * The file is read with pread(2) into small fixed windows, never mapped: it may shrink or change
 * under us, and then a read is short and the call returns -EBADMSG. Nothing is allocated in
 * proportion to a number found in the file. ELF64 little-endian for x86-64 and aarch64; ELF32
 * i386 too, its symbols only by section headers (-EOPNOTSUPP without).
 *
 * Runs in flyball-reader (DESIGN decision 15) and in tests. One owning thread per struct elf_file.
 * libelf is not used here because it reads or maps whole sections, whose size the file dictates;
 * it is the judge in tests.
 */
#ifndef FLYBALL_ELF_H
#define FLYBALL_ELF_H

#include "base/base.h"

#define ELF_BUILD_ID_MAX 64
#define ELF_SEGMENTS_MAX 16    /* executable PT_LOADs kept */
#define ELF_NAME_MAX	 65535 /* longest symbol name read; longer ones are cut there */

struct elf_segment {
	uint64_t offset; /* file offset, bytes */
	uint64_t vaddr;	 /* link-time address */
	uint64_t file_bytes;
};

/* What a file is. */
struct elf_info {
	uint16_t machine; /* EM_x */
	uint16_t type;	  /* ET_x */
	uint8_t class64;
	uint8_t build_id_len; /* 0: none */
	uint8_t build_id[ELF_BUILD_ID_MAX];
	uint8_t htlhash[16]; /* first half of SHA-256 over head, tail and size: research/otlp §2.3
			      */
	uint32_t segment_count;
	struct elf_segment segments[ELF_SEGMENTS_MAX]; /* executable PT_LOADs in file order */
	uint64_t file_bytes;
};

struct elf_file;
/* Borrows fd, which must stay open and readable until elf_close. -EBADMSG: no ELF file, or damaged;
 * -EOPNOTSUPP: another machine's; -ERANGE: past a limit. */
int elf_open(int fd, struct elf_file **ret, struct why *why);
/* What was read once is kept (blocks of 64 KiB), and read from there again: what was computed of
 * the bytes and what is parsed of them agree, whatever happens to the file. Past bytes_max of them
 * nothing more is read. */
int elf_open_captured(int fd, size_t bytes_max, struct elf_file **ret, struct why *why);
/* The same over an image in memory (the vDSO, tests), borrowed. */
int elf_open_memory(const void *image, size_t bytes, struct elf_file **ret, struct why *why);
void elf_close(struct elf_file *elf);
const struct elf_info *elf_get_info(const struct elf_file *elf);

/* File offset to link-time address by the executable segments. -ENOENT outside them. */
int elf_offset_to_vaddr(const struct elf_info *info, uint64_t offset, uint64_t *ret_vaddr);

/* Streams every defined function symbol (STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE in an executable
 * section) of .symtab, then of .dynsym. visit returns 0 to go on; what else it returns ends the
 * call and is returned. name_offset is for elf_symbol_name. At most max_symbols entries are looked
 * at (-ERANGE past it). Returns 0 with no symbol table at all. Without section headers .dynsym is
 * found through PT_DYNAMIC. */
struct elf_symbol {
	uint64_t vaddr, size;
	uint32_t name_offset;
	uint16_t section;      /* st_shndx */
	uint8_t type, binding; /* STT_x, STB_x */
	bool dynamic;	       /* from .dynsym */
};
typedef int (*elf_symbol_visit)(void *ctx, const struct elf_symbol *symbol);
int elf_symbols(struct elf_file *elf, uint64_t max_symbols, elf_symbol_visit visit, void *ctx,
		struct why *why);
/* The same of defined thread-local variables; vaddr is the offset in the TLS segment. */
int elf_tls_symbols(struct elf_file *elf, uint64_t max_symbols, elf_symbol_visit visit, void *ctx,
		    struct why *why);
/* Reads a name into out (always NUL-terminated, cut at out_size - 1). */
int elf_symbol_name(struct elf_file *elf, const struct elf_symbol *symbol, char *out,
		    size_t out_size);
/* Addresses of the section a symbol lies in. -ENOENT without section headers. */
int elf_section_range(struct elf_file *elf, uint16_t section, uint64_t *ret_start,
		      uint64_t *ret_end);

#endif
