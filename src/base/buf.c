// SPDX-License-Identifier: Apache-2.0
/* buf: a byte buffer that knows its limit. data[len] is always NUL once anything was added. */
#include "base.h"

#include <errno.h>
#include <string.h>

void buf_init(struct buf *b, enum mem_part part, size_t max_bytes)
{
	memset(b, 0, sizeof(*b));
	b->part = part;
	b->max = max_bytes;
}

void buf_done(struct buf *b)
{
	mem_free(b->part, b->data);
	memset(b, 0, sizeof(*b));
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->err = 0;
	if (b->data)
		b->data[0] = 0;
}

static bool buf_reserve(struct buf *b, size_t more)
{
	void *p = b->data;
	int err;

	if (b->err)
		return false;
	if (more > b->max || b->len > b->max - more) {
		b->err = -ENOSPC;
		return false;
	}
	err = mem_grow(b->part, &p, &b->cap, b->len + more + 1, b->max + 1, 1);
	b->data = p;
	b->err = err;
	return !err;
}

void buf_add(struct buf *b, const void *data, size_t bytes)
{
	if (!buf_reserve(b, bytes))
		return;
	if (bytes)
		memcpy(b->data + b->len, data, bytes);
	b->len += bytes;
	b->data[b->len] = 0;
}

void buf_add_str(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_add_char(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !buf_reserve(b, (size_t)n))
		return;
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}
