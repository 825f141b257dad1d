/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers, inside: the form of an answer, written by the reader and checked by main. Main's side
 * trusts no byte of it: see helpers_answer_check.
 */
#ifndef FLYBALL_HELPERS_ANSWER_H
#define FLYBALL_HELPERS_ANSWER_H

#include "helpers_wire.h"
#include "symbol/symbol_frames.h"

/* --- writing (reader) --- */
void helpers_answer_error(struct buf *out, uint32_t op, int err, uint32_t unnamed,
			  const char *text);
void helpers_answer_info(struct buf *out, uint32_t op, const struct elf_info *info);
void helpers_answer_digest(struct buf *out, uint32_t op, const uint8_t digest[ELF_BLAKE2B_BYTES]);
void helpers_answer_names(struct buf *out, uint32_t op, const struct helpers_name *names,
			  size_t count);
/* Behind the names of WIRE_NAMES and WIRE_PACKED_NAMES. */
void helpers_answer_debug(struct buf *out, bool is_stripped, const char *link);
/* supplement: what is missing for all of them; printable, or "". */
void helpers_answer_lines(struct buf *out, uint32_t op, const struct symbol_frames *frames,
			  const char *supplement);
void helpers_answer_table(struct buf *out, uint32_t op, const struct unwind_table *t,
			  const uint8_t hash[32]);
void helpers_answer_scan(struct buf *out, const struct helpers_scan *scan);
/* text: why its state is HELPERS_CONTEXT_UNSUPPORTED; printable, or "". */
void helpers_answer_context(struct buf *out, const struct helpers_context *context,
			    const char *text);

/* --- checking (main) --- */
struct helpers_answer {
	struct helpers_result result;
	struct elf_info info;
	uint8_t digest[ELF_BLAKE2B_BYTES];
	struct helpers_scan scan;
	struct helpers_context context;
	struct helpers_name *names;	  /* heap */
	struct helpers_mapping *mappings; /* heap */
	struct helpers_line *lines;	  /* heap */
	struct helpers_frame *frames;	  /* heap */
	const char **texts;		  /* heap */
	struct helpers_table table;
	void *table_parts; /* heap: all four, one behind the other */
};
/* Takes an answer apart; its strings stay in data. asked: the sorted addresses of the request; for
 * a table the one that says how large it may be.
 * -EBADMSG for anything that could not have been written by helpers_answer_* on this request. */
int helpers_answer_check(const void *data, size_t bytes, uint32_t op, uint32_t tgid,
			 const uint64_t *asked, size_t asked_count, struct helpers_answer *ret);
void helpers_answer_done(struct helpers_answer *answer);

#endif
