/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf, separate debug files: which ones a file names, where they may lie, and whether what was
 * found is the right one. Nothing is opened here: the paths are for whoever may open files, to be
 * resolved below the root directory of the process that maps the file.
 *
 *   by build-id     /usr/lib/debug/.build-id/ab/cdef….debug
 *   .gnu_debuglink  DIR/NAME, DIR/.debug/NAME, /usr/lib/debug/DIR/NAME; checked by CRC-32
 *   .gnu_debugaltlink (dwz's supplement, told in the debug file): its path, then by its build-id
 */
#ifndef FLYBALL_ELF_DEBUG_H
#define FLYBALL_ELF_DEBUG_H

#include "elf.h"

#define ELF_DEBUG_NAME_MAX  256		 /* with NUL */
#define ELF_DEBUG_PATH_MAX  4096	 /* with NUL */
#define ELF_DEBUG_BYTES_MAX (2ULL << 30) /* of a file whose CRC is computed */

struct elf_debug_links {
	char name[ELF_DEBUG_NAME_MAX]; /* .gnu_debuglink, a plain file name; "": none */
	uint32_t crc;
	char supplement[ELF_DEBUG_PATH_MAX]; /* .gnu_debugaltlink; "": none */
	uint8_t supplement_id_len;
	uint8_t supplement_id[ELF_BUILD_ID_MAX];
};

enum elf_debug_kind { ELF_DEBUG_BUILD_ID, ELF_DEBUG_LINK, ELF_DEBUG_SUPPLEMENT };

/* True without a .symtab: names may be in a debug file. */
bool elf_is_stripped(struct elf_file *elf);

/* Never fails: a link that cannot be is none, and is told in why. */
void elf_debug_links_read(struct elf_file *elf, struct elf_debug_links *ret, struct why *why);

/* Visits the paths in the order in which they are to be tried. path is the file's own, absolute, in
 * the process's root. visit returns 0 to go on; what else it returns ends the call and is
 * returned. */
typedef int (*elf_debug_visit)(void *ctx, enum elf_debug_kind kind, const char *path);
int elf_debug_candidates(const struct elf_info *info, const struct elf_debug_links *links,
			 const char *path, elf_debug_visit visit, void *ctx);

/* Is candidate the debug file of the file info and links are of? 0, or -EBADMSG with the reason:
 * another machine, build-id or CRC; -ERANGE: too large to be checked. */
int elf_debug_verify(const struct elf_info *info, const struct elf_debug_links *links,
		     enum elf_debug_kind kind, struct elf_file *candidate, struct why *why);

#endif
