/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names from separate debug files, in the reader: which of the descriptors is the right one is
 * found out here and nowhere else.
 */
#ifndef FLYBALL_HELPERS_READER_DEBUG_H
#define FLYBALL_HELPERS_READER_DEBUG_H

#include "symbol/symbol.h"

/* fds in the order in which they are tried; bit i of by_link: fds[i] was found by link. -ENOENT:
 * none of them is the file's. */
int reader_debug_open(struct elf_file *elf, const int *fds, size_t fd_count, uint32_t by_link,
		      struct elf_file **ret, size_t *ret_index, struct why *why);
/* The supplement that debug says entries were moved to, if it is among fds; else *ret is NULL, and
 * text says which it is, for helpers_debug_lines ("": debug has none). */
void reader_debug_supplement(struct elf_file *debug, const int *fds, size_t fd_count,
			     struct elf_file **ret, char *text, size_t text_size);
/* The first of them that names can be read from. */
int reader_debug_lookup(struct elf_file *elf, const int *fds, size_t fd_count, uint32_t by_link,
			struct symbol_query *queries, size_t count, struct why *why);
/* The file of this build-id; else -EBADMSG. */
int reader_fetched_open(int fd, const uint8_t *build_id, size_t build_id_len, struct elf_file **ret,
			struct why *why);
int reader_fetched_lookup(int fd, const uint8_t *build_id, size_t build_id_len,
			  struct symbol_query *queries, size_t count, struct why *why);

#endif
