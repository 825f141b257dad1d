/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf, DWARF: the debug sections that tell lines and inlined calls, as one small ELF image in
 * memory for libdw. libdw meets hostile DWARF that way, but no hostile headers: sizes are checked
 * here, compressed sections (SHF_COMPRESSED with zlib or zstd, .zdebug_*) are unpacked here within
 * a limit, and nothing in the image leads to another file.
 *
 * Sections that are not compressed are mapped, so only what libdw looks at is read. A file that
 * shrinks meanwhile ends the process by SIGBUS: this is for flyball-reader, which is replaced.
 */
#ifndef FLYBALL_ELF_DWARF_H
#define FLYBALL_ELF_DWARF_H

#include "elf.h"

#define ELF_DWARF_MAPPED_MAX   (3ULL << 30) /* of all sections */
#define ELF_DWARF_UNPACKED_MAX (64U << 20)  /* of those that are compressed */

enum elf_dwarf_section {
	ELF_DWARF_INFO,
	ELF_DWARF_ABBREV,
	ELF_DWARF_LINE,
	ELF_DWARF_LINE_STR,
	ELF_DWARF_STR,
	ELF_DWARF_STR_OFFSETS,
	ELF_DWARF_ADDR,
	ELF_DWARF_ARANGES,
	ELF_DWARF_RANGES,
	ELF_DWARF_RNGLISTS,
	ELF_DWARF_SECTIONS
};

struct elf_dwarf {
	void *image;
	size_t bytes;
	struct {
		const uint8_t *data; /* NULL: none */
		size_t bytes;
	} sections[ELF_DWARF_SECTIONS];
};

/* -ENOENT: no DWARF; -EBADMSG: damaged; -ERANGE: past the limits; -EOPNOTSUPP: a compression that
 * is not known; -ENOMEM. The image borrows nothing of elf. */
int elf_dwarf_open(struct elf_file *elf, struct elf_dwarf *ret, struct why *why);
void elf_dwarf_close(struct elf_dwarf *dwarf);

#endif
