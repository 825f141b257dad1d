// SPDX-License-Identifier: Apache-2.0
/* stream: chunks of 16 KiB; a piece that is larger goes through whole. */
#include "stream.h"

#include <errno.h>
#include <string.h>

void profile_out_init(struct profile_out *out, profile_sink sink, void *ctx)
{
	out->sink = sink;
	out->ctx = ctx;
	out->err = 0;
	out->len = 0;
}

int profile_out_flush(struct profile_out *out)
{
	if (!out->err && out->len)
		out->err = out->sink(out->ctx, out->data, out->len);
	out->len = 0;
	return out->err;
}

void profile_out_bytes(struct profile_out *out, const void *data, size_t bytes)
{
	if (out->err || !bytes)
		return;
	if (bytes > sizeof(out->data) - out->len && profile_out_flush(out))
		return;
	if (bytes > sizeof(out->data)) {
		out->err = out->sink(out->ctx, data, bytes);
		return;
	}
	memcpy(out->data + out->len, data, bytes);
	out->len += bytes;
}

void profile_out_str(struct profile_out *out, const char *s)
{
	profile_out_bytes(out, s, strlen(s));
}

void profile_out_char(struct profile_out *out, char c)
{
	profile_out_bytes(out, &c, 1);
}

void profile_out_f(struct profile_out *out, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text)) {
		if (!out->err)
			out->err = -ERANGE;
		return;
	}
	profile_out_bytes(out, text, (size_t)n);
}

size_t profile_varint(uint64_t v, unsigned char bytes[10])
{
	size_t n = 0;

	while (v > 0x7f) {
		bytes[n++] = (unsigned char)(v | 0x80);
		v >>= 7;
	}
	bytes[n++] = (unsigned char)v;
	return n;
}

size_t profile_varint_size(uint64_t v)
{
	unsigned char bytes[10];

	return profile_varint(v, bytes);
}

void profile_out_field(struct profile_out *out, unsigned int number, uint64_t bytes)
{
	unsigned char head[11];

	head[0] = (unsigned char)(number << 3 | 2);
	profile_out_bytes(out, head, 1 + profile_varint(bytes, head + 1));
}

uint64_t profile_field_size(uint64_t bytes)
{
	return 1 + profile_varint_size(bytes) + bytes;
}

/* U+2028 and U+2029 end a line in a script. */
static bool is_line_separator(const unsigned char *s)
{
	return s[0] == 0xe2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9);
}

void profile_json_string(struct profile_out *out, const char *s)
{
	const unsigned char *u = (const unsigned char *)s, *from = u;

	profile_out_char(out, '"');
	for (; *u; u++) {
		bool is_separator = is_line_separator(u);

		if (*u >= 0x20 && !is_separator && !strchr("\"\\<>&", *u))
			continue;
		profile_out_bytes(out, from, (size_t)(u - from));
		profile_out_f(out, "\\u%04x", is_separator ? 0x2000U + (u[2] & 0x3fU) : *u);
		if (is_separator)
			u += 2;
		from = u + 1;
	}
	profile_out_bytes(out, from, (size_t)(u - from));
	profile_out_char(out, '"');
}
