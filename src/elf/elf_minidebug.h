/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf, .gnu_debugdata ("MiniDebugInfo"): a whole ELF file with the symbols that .dynsym lacks,
 * compressed with xz inside the stripped file. It is unpacked into memory within a limit, whatever
 * the compressed bytes claim.
 */
#ifndef FLYBALL_ELF_MINIDEBUG_H
#define FLYBALL_ELF_MINIDEBUG_H

#include "elf.h"

#define ELF_MINIDEBUG_MAX (16U << 20) /* unpacked */
#define ELF_MINIDEBUG_DECODER_MAX                                                                  \
	(20U << 20) /* the decoder's own memory: dictionaries of xz -7                             \
		     */

/* *ret is heap (MEM_ELF), for elf_open_memory; free it with mem_free after elf_close. -ENOENT:
 * none; -EBADMSG: damaged; -ERANGE: more than the limits; -ENOMEM. */
int elf_minidebug_unpack(struct elf_file *elf, void **ret, size_t *ret_bytes, struct why *why);

#endif
