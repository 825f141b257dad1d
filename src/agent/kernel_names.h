/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_names: what /proc/kallsyms said of addresses before, so that a window with the kernel code
 * of the last one does not read its 100,000 lines again. Private to the part.
 *
 * A symbol is kept with all the addresses it covers. Code of BPF programs is not kept: its
 * addresses are used again. A module that comes or goes empties it.
 */
#ifndef FLYBALL_AGENT_KERNEL_NAMES_H
#define FLYBALL_AGENT_KERNEL_NAMES_H

#include "base/base.h"
#include "symbol/symbol.h"

#define KERNEL_NAMES_MAX 16384 /* symbols; full, it begins anew */

struct kernel_names;
int kernel_names_new(struct kernel_names **ret);
void kernel_names_free(struct kernel_names *names); /* NULL is fine */
/* Before a row of look-ups, with the text of /proc/modules: empties it when one came or went. */
void kernel_names_check(struct kernel_names *names, const char *modules, size_t len);
/* The name, valid until the next call but this one, and where it begins; NULL: not known. */
const char *kernel_names_find(const struct kernel_names *names, uint64_t address,
			      uint64_t *ret_start);
/* Keeps what a look-up in kallsyms has found. */
void kernel_names_keep(struct kernel_names *names, const struct symbol_query *query);

#endif
