/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbol files in the reader: they are made here, from files that anybody may have written, and
 * read here, since what was written then is not to be trusted now.
 */
#ifndef FLYBALL_HELPERS_READER_PACKED_H
#define FLYBALL_HELPERS_READER_PACKED_H

#include "symbol/symbol_packed.h"

/* fd is the program's, or, with is_debug, that of elf's separate debug file, which then is what the
 * symbol file is made of. Either must have elf's build-id. */
int reader_packed_make(struct elf_file *elf, int fd, bool is_debug, int out,
		       uint8_t ret_digest[ELF_BLAKE2B_BYTES], struct why *why);
/* The symbol file of a descriptor, checked once for all requests and kept open for the next one;
 * borrowed. digest: zeros for any, but then it must be of a file that only root could write. */
int reader_packed_get(int fd, const uint8_t digest[ELF_BLAKE2B_BYTES],
		      const struct symbol_packed **ret, struct why *why);

#endif
