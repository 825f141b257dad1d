/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode: one OTLP export request, read back. The tables of its dictionary stay where they are:
 * of an entry only its place is kept, and what it became in the model once it was asked for.
 *
 * A request is walked twice by the same functions. The first walk looks at everything, so that a
 * request that is wrong anywhere changes nothing; in the second (is_adding) only room can lack.
 */
#ifndef FLYBALL_PROFILE_DECODE_H
#define FLYBALL_PROFILE_DECODE_H

#include "model.h"
#include "wire.h"

/* Tables of the dictionary: the field's number less 1. */
enum profile_decode_table_number {
	PROFILE_DECODE_MAPPING,
	PROFILE_DECODE_LOCATION,
	PROFILE_DECODE_FUNCTION,
	PROFILE_DECODE_LINK,
	PROFILE_DECODE_STRING,
	PROFILE_DECODE_ATTRIBUTE,
	PROFILE_DECODE_STACK,
	PROFILE_DECODE_TABLES,
};

enum profile_decode_match { PROFILE_DECODE_NOT_ASKED, PROFILE_DECODE_NO, PROFILE_DECODE_YES };

struct profile_decode_table {
	struct profile_decode_entry {
		uint32_t at, bytes;
		uint32_t id; /* what it is in the model, plus 1; 0: not there yet */
		union {
			uint32_t pseudo_name; /* of a location: a string; 0: it is a true one */
			uint32_t depth_limit; /* of a stack */
			uint32_t key_id;      /* of an attribute: its key in the model, plus 1 */
		};
		uint8_t match; /* enum profile_decode_match, of a location */
	} *entries;
	size_t count, cap;
};

enum profile_decode_key {
	PROFILE_DECODE_OTHER, /* nothing of flyball's */
	PROFILE_DECODE_THREAD_ID,
	PROFILE_DECODE_THREAD_NAME,
	PROFILE_DECODE_CUT,	   /* number: the bits */
	PROFILE_DECODE_SPAN_FAULT, /* number: enum profile_span_fault */
	PROFILE_DECODE_FRAME_TYPE, /* number: enum profile_frame_kind */
	PROFILE_DECODE_FILE,
	PROFILE_DECODE_UNNAMED, /* number: enum fly_unnamed */
	PROFILE_DECODE_UNLINED, /* the same */
	PROFILE_DECODE_BUILD_ID,
	PROFILE_DECODE_HTLHASH,
	PROFILE_DECODE_LEDGER, /* number: the count; offset: where in struct profile_ledger */
};
struct profile_decode_attribute {
	enum profile_decode_key key;
	uint32_t offset;
	bool is_number, is_text;
	uint64_t number;
	struct profile_wire name, text;
};

struct profile_merge {
	struct profile *p;
	struct profile_filter filter;
	struct profile_intern resources, files, contents;
	uint32_t *content_locations; /* by id in contents */
	size_t content_cap;
	struct profile_run run;
	struct profile_merge_seen seen;
	int err; /* the first that left the profile half filled */
};

struct profile_decode {
	struct profile_merge *m;
	const uint8_t *data;
	struct profile_decode_table tables[PROFILE_DECODE_TABLES];
	struct profile_decode_attribute *attributes;
	struct why *why;
	bool is_adding, has_ledger;
	/* of the resource that is walked */
	struct profile_wire resource;
	int64_t process; /* in the model; -1: not there yet */
};

/* Says what is wrong and returns -EBADMSG. */
int profile_decode_bad(struct profile_decode *d, const char *what);

struct profile_wire profile_decode_entry_bytes(const struct profile_decode *d,
					       enum profile_decode_table_number table,
					       uint32_t index);
/* The value of a field that holds an index: -EBADMSG when the table has no such entry. Entry 0 is
 * "not set" and needs no table. */
int profile_decode_index(struct profile_decode *d, const struct profile_wire_field *field,
			 enum profile_decode_table_number table, uint32_t *ret);
/* The next of a repeated field of indices: 1, 0 at its end, -EBADMSG. None may be 0. */
int profile_decode_index_next(struct profile_decode *d, struct profile_wire_field *field,
			      enum profile_decode_table_number table, uint32_t *ret);

/* Any string of the table; "" for 0. */
static inline struct profile_wire profile_decode_string(const struct profile_decode *d,
							uint32_t index)
{
	return profile_decode_entry_bytes(d, PROFILE_DECODE_STRING, index);
}
bool profile_decode_is_text(struct profile_wire w, const char *text);
bool profile_decode_starts_with(struct profile_wire w, const char *text);
/* Bytes of a hexadecimal text; -1: it is none, or longer than max. */
int profile_decode_hex(struct profile_wire text, uint8_t *out, size_t max);

/* One AnyValue of the kinds flyball writes; of any other kind both is_ are false. */
int profile_decode_value(struct profile_decode *d, struct profile_wire value,
			 struct profile_decode_attribute *ret);
int profile_decode_attributes_parse(struct profile_decode *d);
/* Looks at a whole dictionary. */
int profile_decode_dictionary_check(struct profile_decode *d);

/* What an entry is in the model: an id, or negative errno when there is no room. */
int64_t profile_decode_attribute_text(struct profile_decode *d, uint32_t index);
int64_t profile_decode_attribute_key(struct profile_decode *d, uint32_t index);
int64_t profile_decode_stack(struct profile_decode *d, uint32_t index, uint32_t *ret_depth_limit);
int64_t profile_decode_span(struct profile_decode *d, uint32_t index);
/* The link's span; false for none. */
bool profile_decode_span_get(struct profile_decode *d, uint32_t index, struct profile_span *ret);

/* Is one of the stack's frames what the filter asks for? */
bool profile_decode_stack_matches(struct profile_decode *d, uint32_t index);
bool profile_decode_text_matches(const char *pattern, struct profile_wire text);

#endif
