/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ksymbols: kernel code that comes and goes while a recording runs: BPF programs, trampolines.
 *
 * Their addresses are used again, and /proc/kallsyms knows only what is there at its reading. The
 * kernel tells of all that comes and of all that goes, with its name; what stays is in kallsyms.
 * So what lies at an address is told apart by versions: 0 is what was there before anything was
 * told. An address that no such code lay at has the one version 0.
 */
#ifndef FLYBALL_AGENT_KSYMBOLS_H
#define FLYBALL_AGENT_KSYMBOLS_H

#include "base/base.h"

struct ksymbols;
int ksymbols_new(struct ksymbols **ret);
void ksymbols_free(struct ksymbols *symbols); /* NULL is fine */
/* What the kernel told, in order of time. What finds no room is not known of. */
void ksymbols_come(struct ksymbols *symbols, uint64_t time_ns, uint64_t address, uint32_t bytes,
		   const char *name);
void ksymbols_go(struct ksymbols *symbols, uint64_t time_ns, uint64_t address, uint32_t bytes,
		 const char *name);
/* What lay there then; the time may be before what was
 * told last. */
uint16_t ksymbols_version(const struct ksymbols *symbols, uint64_t address, uint64_t time_ns);
/* Its name, and where it began; NULL: nobody told. */
const char *ksymbols_name(const struct ksymbols *symbols, uint64_t address, uint16_t version,
			  uint64_t *ret_start);
/* Nothing else came after it: kallsyms may name it. */
bool ksymbols_is_last(const struct ksymbols *symbols, uint64_t address, uint16_t version);

#endif
