/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol, frames: source lines of addresses, and the calls that were inlined there, from DWARF by
 * libdw; for a Go program without DWARF the line by Go's own table.
 *
 * Names do not depend on this: the last frame of an address is the function that holds the code,
 * for which the symbol table's name goes before the one given here.
 *
 * Bounded: only the units of the addresses asked for are read (found by .debug_aranges, else by a
 * scan of the units); the entries visited, the depth, the length of a unit's line program and the
 * time have limits; libdw's memory is given back between units. What libdw does inside one call is
 * bounded only from outside: this is for flyball-reader, which has rlimits and a deadline. libdw
 * ends the process where it gets no memory.
 */
#ifndef FLYBALL_SYMBOL_FRAMES_H
#define FLYBALL_SYMBOL_FRAMES_H

#include "symbol.h"

#define SYMBOL_FRAMES_MAX	64   /* of one address; outer inlined ones are left out first */
#define SYMBOL_FRAMES_PATH_MAX	1024 /* with NUL; a longer path is none */
#define SYMBOL_FRAMES_TEXT_MAX	(4U << 20)  /* of all names and paths of one batch */
#define SYMBOL_FRAMES_DEPTH_MAX 256	    /* of entries in each other */
#define SYMBOL_FRAMES_LINES_MAX (2U << 20)  /* bytes of a unit's line program */
#define SYMBOL_FRAMES_WORK_MAX	(16U << 20) /* entries and ranges visited for one batch */

struct symbol_frame {
	uint32_t function, file; /* ids in strings; 0: not known */
	uint32_t line;		 /* 0: not known */
};

enum symbol_frames_state {
	SYMBOL_FRAMES_NONE,	   /* nothing is said of the address */
	SYMBOL_FRAMES_FOUND,	   /* frames[first] is the innermost of count */
	SYMBOL_FRAMES_NOT_REACHED, /* time or work ran out before */
	SYMBOL_FRAMES_TOO_LARGE,   /* its unit is past a limit */
};

struct symbol_frames_answer {
	uint64_t address;
	uint32_t state, first, count;
};

struct symbol_frames {
	struct symbol_frames_answer *answers; /* by address */
	size_t count;
	struct symbol_frame *frames;
	size_t frame_count, frame_cap;
	struct strings *strings;
};

struct symbol_frames_limits {
	uint64_t cpu_ns, wall_ns; /* of this process, from the call on; 0: none */
};

/* Addresses are link-time, in any order. -ENOMEM. */
int symbol_frames_new(const uint64_t *addresses, size_t count, struct symbol_frames **ret);
void symbol_frames_free(struct symbol_frames *frames);
/* Once for each symbol_frames. elf is the program, or its separate debug file; supplement, which
 * may be NULL, is the file that dwz moved common entries to. -ENOENT: there are no lines in elf. */
int symbol_frames_find(struct elf_file *elf, struct elf_file *supplement,
		       const struct symbol_frames_limits *limits, struct symbol_frames *frames,
		       struct why *why);

#endif
