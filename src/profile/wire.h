/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: protobuf's encoding, read in place: nothing is copied or allocated, and no read goes past
 * the end of what was given. Groups, which proto3 does not have, are malformed.
 */
#ifndef FLYBALL_PROFILE_WIRE_H
#define FLYBALL_PROFILE_WIRE_H

#include "base/base.h"

/* Bytes that are still to be read. */
struct profile_wire {
	const uint8_t *at, *end;
};
static inline size_t profile_wire_left(const struct profile_wire *w)
{
	return (size_t)(w->end - w->at);
}

enum profile_wire_type {
	PROFILE_WIRE_VARINT = 0,
	PROFILE_WIRE_FIXED64 = 1,
	PROFILE_WIRE_BYTES = 2,
	PROFILE_WIRE_FIXED32 = 5,
	PROFILE_WIRE_TAKEN = 8, /* a number that profile_wire_number gave */
};
struct profile_wire_field {
	uint32_t number;
	enum profile_wire_type type;
	uint64_t value;		   /* of a number */
	struct profile_wire bytes; /* of bytes: text, a message, packed numbers */
};

/* All of these: 1 with the next one, 0 at the end, -EBADMSG. */
int profile_wire_next(struct profile_wire *w, struct profile_wire_field *ret);
/* The numbers of a repeated field, packed or each alone; type says how packed ones are kept. */
int profile_wire_number(struct profile_wire_field *field, enum profile_wire_type type,
			uint64_t *ret);

#endif
