/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol: addresses to names.
 *
 * One pass over a symbol source answers a sorted batch of addresses, so memory follows the batch
 * and not the file. Rules (docs/symbols.md): a sized symbol covers [vaddr, vaddr + size); past it
 * there is no name. A symbol of size 0 covers up to the next symbol of its section, at most
 * SYMBOL_GAP_MAX bytes. Among equals: global before weak before local, .symtab before .dynsym,
 * then of local ones the first in the table, else the shorter, then the lexically first name: two
 * runs name alike.
 *
 * Demangling (libiberty): C++ Itanium, Rust legacy and v0. Bounded in output and work: a name that
 * would grow past SYMBOL_NAME_MAX is cut and ends in "…"; D and Swift are left as they are.
 */
#ifndef FLYBALL_SYMBOL_H
#define FLYBALL_SYMBOL_H

#include "elf/elf.h"

#define SYMBOL_NAME_MAX	  1024 /* bytes with NUL, after demangling */
#define SYMBOL_GAP_MAX	  65536
#define SYMBOL_TABLE_MAX  4000000 /* symbol table entries looked at per file */
#define SYMBOL_KERNEL_GAP 4096	  /* past the last text symbol of the kernel or of a module */

struct symbol_query {
	uint64_t address; /* link-time address (files), absolute (kernel) */
	/* answers: */
	uint32_t found; /* 1 when name and start are set */
	uint64_t start; /* of the symbol */
	uint64_t end;	/* kernel only: it covers addresses below */
	char *name;	/* demangled, valid UTF-8, heap (MEM_SYMBOL); caller frees */
	char *module;	/* kernel only: "[ext4]" or NULL for the kernel itself */
};

/* Sorts queries by address; equal addresses are answered alike. Asks every source that the file
 * itself has (symbol_sources.h). An error only when nothing could be named. */
int symbol_lookup_file(struct elf_file *elf, struct symbol_query *queries, size_t count,
		       struct why *why);
/* The image of the vDSO, section headers included; NULL: this kernel gives none. */
const void *symbol_vdso_image(size_t *ret_bytes);
/* The vDSO of this very process (one image per kernel). Addresses are image-relative. */
int symbol_lookup_vdso(struct symbol_query *queries, size_t count, struct why *why);

/* Kernel, modules, BPF programs, from a stream in the form of /proc/kallsyms. -EACCES when every
 * address in it is zero (kptr_restrict): nothing is named then. The form has no sizes: a text
 * symbol covers up to the next symbol of any type, at most SYMBOL_GAP_MAX bytes, and at most
 * SYMBOL_KERNEL_GAP where what follows is not text of the same module. Marks of a region
 * (_etext, __x_start) end what is before them and name nothing. */
int symbol_lookup_kallsyms(FILE *kallsyms, struct symbol_query *queries, size_t count,
			   struct why *why);

/* A perf-PID.map: addresses are absolute, in the process that wrote it. Where lines overlap the
 * last one counts. fd is a regular file, borrowed and read with pread; who may own it is the
 * opener's matter. The first SYMBOL_PERFMAP_MAX bytes are read. ret may be NULL. */
#define SYMBOL_PERFMAP_MAX (64U << 20)
struct symbol_perfmap_stats {
	uint64_t lines, skipped; /* read; unreadable */
	bool is_cut;		 /* longer than SYMBOL_PERFMAP_MAX */
	bool is_unfinished;	 /* no newline at the end: the last name may lack its end */
};
int symbol_lookup_perfmap(int fd, struct symbol_query *queries, size_t count,
			  struct symbol_perfmap_stats *ret, struct why *why);

/* Source file and line by Go's own table, which stripped programs have as well. Of inlined code
 * the innermost line. Any order; 0 and NULL for what is not found. */
struct symbol_line {
	uint64_t address; /* link-time */
	/* answers: */
	uint32_t line; /* 0: none */
	char *file;    /* valid UTF-8, heap (MEM_SYMBOL); caller frees */
};
int symbol_lines_go(struct elf_file *elf, struct symbol_line *lines, size_t count, struct why *why);

/* out gets the demangled name, or the mangled one; valid UTF-8, no control characters. */
void symbol_demangle(const char *mangled, char *out, size_t out_size);
/* A limit on the time of one name, for processes that meet hostile ones: a SIGVTALRM every 50 ms of
 * own CPU time; a name still at it after two of them stays mangled. Once, before seccomp. Without
 * it only output is limited. One thread may demangle then. */
int symbol_demangle_guard(void);

#endif
