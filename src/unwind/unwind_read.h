/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind, inside: the file through a few fixed windows, and a cursor that decodes from them.
 *
 * A cursor points into a window; reading through another cursor may reuse that window. So only one
 * cursor is in use at a time, and one that rests is set again before it goes on (unwind_seek).
 * Errors stick: after one every read gives 0, so a decoder checks once at its end.
 */
#ifndef FLYBALL_UNWIND_READ_H
#define FLYBALL_UNWIND_READ_H

#include <string.h>

#include "unwind.h"

/* base.h has no part for this one: it is counted with the ELF files it reads. */
#define UNWIND_MEM MEM_ELF

#define UNWIND_WINDOW_BYTES 16384U
#define UNWIND_WINDOWS	    64U

struct unwind_reader {
	const struct unwind_source *source;
	uint64_t number[UNWIND_WINDOWS]; /* of the window held, plus 1; 0: none */
	uint8_t *data;
	int err; /* the source failed: ends everything */
};

struct unwind_cursor {
	struct unwind_reader *reader;
	const uint8_t *p, *end; /* what is left in the window */
	uint64_t end_offset;	/* file offset of end */
	uint64_t limit;		/* file offset where the entry ends */
	int err;		/* -EBADMSG past the limit, or the reader's */
};

int unwind_reader_init(struct unwind_reader *reader, const struct unwind_source *source);
void unwind_reader_done(struct unwind_reader *reader);
size_t unwind_reader_bytes(void);

void unwind_seek(struct unwind_cursor *c, struct unwind_reader *reader, uint64_t offset,
		 uint64_t limit);
bool unwind_refill(struct unwind_cursor *c);
uint64_t unwind_get_slow(struct unwind_cursor *c, unsigned int bytes);
uint64_t unwind_get_uleb(struct unwind_cursor *c);
int64_t unwind_get_sleb(struct unwind_cursor *c);
void unwind_skip(struct unwind_cursor *c, uint64_t bytes);
/* At most out_size bytes are kept; all are passed over. */
void unwind_get_bytes(struct unwind_cursor *c, uint64_t bytes, uint8_t *out, size_t out_size);

static inline uint64_t unwind_tell(const struct unwind_cursor *c)
{
	return c->end_offset - (uint64_t)(c->end - c->p);
}

static inline bool unwind_is_more(const struct unwind_cursor *c)
{
	return !c->err && (c->p != c->end || c->end_offset < c->limit);
}

static inline uint8_t unwind_get8(struct unwind_cursor *c)
{
	if (c->p == c->end && !unwind_refill(c))
		return 0;
	return *c->p++;
}

static inline uint16_t unwind_get16(struct unwind_cursor *c)
{
	uint16_t v;

	if (c->end - c->p < 2)
		return (uint16_t)unwind_get_slow(c, 2);
	memcpy(&v, c->p, 2);
	c->p += 2;
	return v;
}

static inline uint32_t unwind_get32(struct unwind_cursor *c)
{
	uint32_t v;

	if (c->end - c->p < 4)
		return (uint32_t)unwind_get_slow(c, 4);
	memcpy(&v, c->p, 4);
	c->p += 4;
	return v;
}

static inline uint64_t unwind_get64(struct unwind_cursor *c)
{
	uint64_t v;

	if (c->end - c->p < 8)
		return unwind_get_slow(c, 8);
	memcpy(&v, c->p, 8);
	c->p += 8;
	return v;
}

#endif
