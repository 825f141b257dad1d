// SPDX-License-Identifier: Apache-2.0
/* encode: the seam to protobuf-c. */
#include "encode.h"

#include <errno.h>
#include <protobuf-c/protobuf-c.h>

static void *allocate(void *ctx, size_t bytes)
{
	(void)ctx;
	return mem_alloc(MEM_PROFILE, bytes);
}

static void release(void *ctx, void *p)
{
	(void)ctx;
	mem_free(MEM_PROFILE, p);
}

ProtobufCAllocator profile_encode_allocator = {.alloc = allocate, .free = release};

int64_t profile_encode_intern(struct profile_intern *table, const ProtobufCMessage *message)
{
	size_t bytes = protobuf_c_message_get_packed_size(message);
	uint8_t small[512], *data = bytes <= sizeof(small) ? small : mem_alloc(MEM_PROFILE, bytes);
	int64_t id;

	if (!data)
		return -ENOMEM;
	protobuf_c_message_pack(message, data);
	id = profile_intern_add(table, data, bytes);
	if (data != small)
		mem_free(MEM_PROFILE, data);
	return id;
}

struct out_buffer {
	ProtobufCBuffer base;
	struct profile_out *out;
};

static void append(ProtobufCBuffer *base, size_t bytes, const uint8_t *data)
{
	profile_out_bytes(((struct out_buffer *)base)->out, data, bytes);
}

void profile_encode_fields(struct profile_out *out, const ProtobufCMessage *message)
{
	struct out_buffer buffer = {.base.append = append, .out = out};

	protobuf_c_message_pack_to_buffer(message, &buffer.base);
}

void profile_encode_field(struct profile_out *out, unsigned int number,
			  const ProtobufCMessage *message)
{
	profile_out_field(out, number, protobuf_c_message_get_packed_size(message));
	profile_encode_fields(out, message);
}
