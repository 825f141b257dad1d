/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbol files in the reader: they are made here, from files that anybody may have written, and
 * read here, since what was written then is not to be trusted now.
 */
#ifndef FLYBALL_HELPERS_READER_PACKED_H
#define FLYBALL_HELPERS_READER_PACKED_H

#include "symbol/symbol_packed.h"

/* elf is the program; debug its separate debug file, the source then, or NULL. fd is elf's. */
int reader_packed_make(struct elf_file *elf, int fd, struct elf_file *debug, int out,
		       uint8_t ret_digest[ELF_BLAKE2B_BYTES], struct why *why);
/* The symbol file of a descriptor, checked once for all requests and kept open for the next one;
 * borrowed. digest: zeros for any. With is_by_build_id it must be of a file of root's. */
int reader_packed_get(int fd, const uint8_t digest[ELF_BLAKE2B_BYTES], bool is_by_build_id,
		      const struct symbol_packed **ret, struct why *why);

#endif
