// SPDX-License-Identifier: Apache-2.0
/* The file through windows of 16 KiB, placed by their number: sorted functions of a linked file lie
 * in a few ascending streams, which seldom meet in one place. */
#include "unwind_read.h"

#include <errno.h>

int unwind_reader_init(struct unwind_reader *reader, const struct unwind_source *source)
{
	*reader = (struct unwind_reader){.source = source};
	reader->data = mem_array(UNWIND_MEM, UNWIND_WINDOWS, UNWIND_WINDOW_BYTES);
	return reader->data ? 0 : -ENOMEM;
}

void unwind_reader_done(struct unwind_reader *reader)
{
	mem_free(UNWIND_MEM, reader->data);
	reader->data = NULL;
}

size_t unwind_reader_bytes(void)
{
	return (size_t)UNWIND_WINDOWS * UNWIND_WINDOW_BYTES;
}

void unwind_seek(struct unwind_cursor *c, struct unwind_reader *reader, uint64_t offset,
		 uint64_t limit)
{
	if (limit > reader->source->bytes)
		limit = reader->source->bytes;
	*c = (struct unwind_cursor){.reader = reader,
				    .p = reader->data,
				    .end = reader->data,
				    .end_offset = offset,
				    .limit = limit,
				    .err = reader->err};
	if (offset > limit)
		c->err = c->err ? c->err : -EBADMSG;
}

static bool fail(struct unwind_cursor *c, int err)
{
	c->err = err;
	c->p = c->end;
	return false;
}

/* Makes the window that starts where this one ends the current one. */
bool unwind_refill(struct unwind_cursor *c)
{
	struct unwind_reader *r = c->reader;
	uint64_t number = c->end_offset / UNWIND_WINDOW_BYTES;
	uint64_t start = number * UNWIND_WINDOW_BYTES, bytes = UNWIND_WINDOW_BYTES;
	uint8_t *data = r->data + (number % UNWIND_WINDOWS) * UNWIND_WINDOW_BYTES;
	uint64_t *held = &r->number[number % UNWIND_WINDOWS];

	if (c->err)
		return fail(c, c->err);
	if (c->end_offset >= c->limit)
		return fail(c, -EBADMSG);
	if (bytes > r->source->bytes - start)
		bytes = r->source->bytes - start;
	if (*held != number + 1) {
		int err = r->source->read(r->source->ctx, start, data, (size_t)bytes);

		*held = err ? 0 : number + 1;
		if (err) {
			r->err = err;
			return fail(c, err);
		}
	}
	c->p = data + (c->end_offset - start);
	if (bytes > c->limit - start)
		bytes = c->limit - start;
	c->end = data + bytes;
	c->end_offset = start + bytes;
	return true;
}

uint64_t unwind_get_slow(struct unwind_cursor *c, unsigned int bytes)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < bytes; i++)
		v |= (uint64_t)unwind_get8(c) << (8 * i);
	return c->err ? 0 : v;
}

/* Bits past 64 are dropped: such values are refused by whoever uses them, as out of range. */
uint64_t unwind_get_uleb(struct unwind_cursor *c)
{
	uint64_t v = 0;
	uint8_t byte;

	for (unsigned int shift = 0;; shift += 7) {
		byte = unwind_get8(c);
		if (shift < 64)
			v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return v;
	}
}

int64_t unwind_get_sleb(struct unwind_cursor *c)
{
	unsigned int shift = 0;
	uint64_t v = 0;
	uint8_t byte;

	do {
		byte = unwind_get8(c);
		if (shift < 64)
			v |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (shift < 64 && byte & 0x40)
		v |= ~0ULL << shift;
	return (int64_t)v;
}

void unwind_skip(struct unwind_cursor *c, uint64_t bytes)
{
	uint64_t at = unwind_tell(c);

	if (c->err)
		return;
	if (bytes <= (uint64_t)(c->end - c->p)) {
		c->p += bytes;
		return;
	}
	if (bytes > c->limit - at) {
		fail(c, -EBADMSG);
		return;
	}
	unwind_seek(c, c->reader, at + bytes, c->limit);
}

void unwind_get_bytes(struct unwind_cursor *c, uint64_t bytes, uint8_t *out, size_t out_size)
{
	size_t keep = bytes < out_size ? (size_t)bytes : out_size;

	for (size_t i = 0; i < keep; i++)
		out[i] = unwind_get8(c);
	unwind_skip(c, bytes - keep);
}
