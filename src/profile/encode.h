/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode: protobuf-c messages into dictionaries and streams. A dictionary entry is interned in its
 * encoded form, so equal entries are one entry; the whole file is never held as one message.
 */
#ifndef FLYBALL_PROFILE_ENCODE_H
#define FLYBALL_PROFILE_ENCODE_H

#include <protobuf-c/protobuf-c.h>

#include "intern.h"
#include "stream.h"

/* The id of the encoded message in a table, or negative errno. */
int64_t profile_encode_intern(struct profile_intern *table, const ProtobufCMessage *message);
/* The message's fields alone. */
void profile_encode_fields(struct profile_out *out, const ProtobufCMessage *message);
/* The message as a field (number below 16) of an outer one. */
void profile_encode_field(struct profile_out *out, unsigned int number,
			  const ProtobufCMessage *message);
/* For unpacking: memory of this part. */
extern ProtobufCAllocator profile_encode_allocator;

#endif
