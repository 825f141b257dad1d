/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames: how a location reads, the same in every output: its name or "module+0xoffset", its
 * module, its link-time address, and the pseudo frames of a stack that is cut.
 */
#ifndef FLYBALL_PROFILE_FRAMES_H
#define FLYBALL_PROFILE_FRAMES_H

#include "model.h"

#define PROFILE_FRAME_PSEUDO 4 /* beside enum profile_frame_kind, in the page */
#define PROFILE_FRAME_TEXT   8300
#define PROFILE_PSEUDO_MAX   (FLY_CUT_COUNT + 1)
#define PROFILE_PSEUDO_TEXT  64
#define PROFILE_CUT_TEXT     512

/* Which executable segment a location lies in, and its address as the linker gave it. Without
 * segments, or outside all of them: -1 and the address as it was added. */
int profile_location_vaddr(const struct profile *p, uint32_t location, uint64_t *ret_vaddr);

/* "libc.so.6", "[kernel]", "[vdso]", "[anon]", "[unknown]". Points into the profile. */
const char *profile_location_module(const struct profile *p, uint32_t location);

/* The file is real: neither unknown, nor anonymous memory. */
bool profile_file_is_named(const struct profile *p, uint32_t file);

/* The name, or "module+0xaddress". Returns name: into the profile or out. */
const char *profile_location_text(const struct profile *p, uint32_t location,
				  char out[PROFILE_FRAME_TEXT]);

/* The frames of a location, innermost first: inlined calls, then the function that holds the code.
 * There is always one at least. */
struct profile_frame {
	const char *name; /* of the last one "" when there is none */
	const char *file; /* "": not known */
	uint32_t line;	  /* 0: not known */
	bool is_inlined;
};
size_t profile_location_frames(const struct profile *p, uint32_t location);
void profile_location_frame(const struct profile *p, uint32_t location, size_t index,
			    struct profile_frame *ret);

/* All of them for formats that keep frames together in their location. One without a name is ""
 * when it stands alone, else what profile_location_text says, so that no inlined call passes for
 * it. */
size_t profile_location_chain(const struct profile *p, uint32_t location,
			      struct profile_frame frames[PROFILE_LINES_MAX],
			      char text[PROFILE_FRAME_TEXT]);

/* Where a location lies for pprof and OTLP: address - start + offset is the position in the file
 * (field case 25). Each executable segment is a mapping of its own; a file whose segments are not
 * known is one mapping from 0, the kernel one of its upper half. Anonymous and unknown memory, and
 * an address outside all of this, have none. */
struct profile_place {
	bool has_mapping;
	uint64_t address, start, limit, offset;
};
void profile_location_place(const struct profile *p, uint32_t location, const uint64_t *file_limits,
			    struct profile_place *ret);
/* For each file the first page border past all addresses added for it. Caller frees; NULL: no
 * memory. */
uint64_t *profile_file_limits(const struct profile *p);

/* The last component of a path; the path itself when it has none. */
const char *profile_basename(const char *path);

/* The pseudo frames of a sample, outermost first; how many were written. A stack with no frame at
 * all gets "[no stack]". */
struct profile_pseudo {
	char text[PROFILE_PSEUDO_MAX][PROFILE_PSEUDO_TEXT];
};
size_t profile_pseudo_frames(const struct profile *p, const struct profile_sample_key *key,
			     struct profile_pseudo *out);

/* Bits 1 << FLY_CUT_x of a sample. A walk that was lost near the base of its stack, in what by its
 * name is start code of a C library, missed nothing of the program's own. */
uint32_t profile_cut_bits(const struct profile *p, const struct profile_sample_key *key);

/* Their names, in order, with commas between them; "" for none. */
void profile_cut_text(const struct profile *p, const struct profile_sample_key *key,
		      char out[PROFILE_CUT_TEXT]);

#endif
