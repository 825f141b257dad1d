/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream: small pieces gathered into chunks for a sink, the protobuf wire's framing, and a JSON
 * writer that keeps nothing. The first error sticks and later calls do nothing: check at the end.
 */
#ifndef FLYBALL_PROFILE_STREAM_H
#define FLYBALL_PROFILE_STREAM_H

#include "profile.h"

struct profile_out {
	profile_sink sink;
	void *ctx;
	int err;
	size_t len;
	unsigned char data[16384];
};
void profile_out_init(struct profile_out *out, profile_sink sink, void *ctx);
void profile_out_bytes(struct profile_out *out, const void *data, size_t bytes);
void profile_out_str(struct profile_out *out, const char *s);
void profile_out_char(struct profile_out *out, char c);
void profile_out_f(struct profile_out *out, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Gives the rest to the sink; the error, if any came. */
int profile_out_flush(struct profile_out *out);

/* Base-128, as protobuf has it. */
size_t profile_varint(uint64_t v, unsigned char bytes[10]);
size_t profile_varint_size(uint64_t v);
/* The head of a length-delimited field (numbers below 16): tag, length. */
void profile_out_field(struct profile_out *out, unsigned int number, uint64_t bytes);
/* Bytes of such a field, head included. */
uint64_t profile_field_size(uint64_t bytes);

/* A JSON string. Markup and line separators are \u escapes, so that it may stand in a page. */
void profile_json_string(struct profile_out *out, const char *s);

#endif
