/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf, the digest of all that names come from: headers, and the contents of the sections that are
 * read for names (symbol tables, their strings, relocations, PLT stubs, .gnu_debugdata, Go's table
 * and what tells where Go's text begins). Two files of one digest have the same names at the same
 * addresses; a file that was stripped or changed has another one. Text, unwind tables and DWARF are
 * not read.
 */
#ifndef FLYBALL_ELF_SOURCE_H
#define FLYBALL_ELF_SOURCE_H

#include "elf.h"
#include "elf_blake2b.h"

#define ELF_SOURCE_BYTES_MAX (256ULL << 20)

/* -EOPNOTSUPP: without section headers nobody can say which bytes those are; -ERANGE: more of them
 * than ELF_SOURCE_BYTES_MAX. */
int elf_source_digest(struct elf_file *elf, uint8_t out[ELF_BLAKE2B_BYTES], struct why *why);

#endif
