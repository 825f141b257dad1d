// SPDX-License-Identifier: Apache-2.0
/* wire: tags, varints, lengths (protobuf encoding specification). */
#include "wire.h"

#include <errno.h>
#include <string.h>

static int varint(struct profile_wire *w, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 70; shift += 7) {
		uint8_t byte;

		if (w->at == w->end)
			return -EBADMSG;
		byte = *w->at++;
		/* the tenth byte has one bit to give */
		if (shift == 63 && byte > 1)
			return -EBADMSG;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) {
			*ret = v;
			return 1;
		}
	}
	return -EBADMSG;
}

static int fixed(struct profile_wire *w, size_t bytes, uint64_t *ret)
{
	uint64_t v = 0;

	if (profile_wire_left(w) < bytes)
		return -EBADMSG;
	for (size_t i = 0; i < bytes; i++)
		v |= (uint64_t)w->at[i] << 8 * i;
	w->at += bytes;
	*ret = v;
	return 1;
}

static int one_number(struct profile_wire *w, enum profile_wire_type type, uint64_t *ret)
{
	if (type == PROFILE_WIRE_VARINT)
		return varint(w, ret);
	return fixed(w, type == PROFILE_WIRE_FIXED64 ? 8 : 4, ret);
}

int profile_wire_next(struct profile_wire *w, struct profile_wire_field *ret)
{
	uint64_t tag, length;
	int err;

	if (w->at == w->end)
		return 0;
	err = varint(w, &tag);
	if (err < 0)
		return err;
	if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
		return -EBADMSG;
	memset(ret, 0, sizeof(*ret));
	ret->number = (uint32_t)(tag >> 3);
	ret->type = (enum profile_wire_type)(tag & 7);
	switch (ret->type) {
	case PROFILE_WIRE_VARINT:
	case PROFILE_WIRE_FIXED64:
	case PROFILE_WIRE_FIXED32:
		return one_number(w, ret->type, &ret->value);
	case PROFILE_WIRE_BYTES:
		err = varint(w, &length);
		if (err < 0 || length > profile_wire_left(w))
			return -EBADMSG;
		ret->bytes = (struct profile_wire){w->at, w->at + length};
		w->at += length;
		return 1;
	default:
		return -EBADMSG;
	}
}

int profile_wire_number(struct profile_wire_field *field, enum profile_wire_type type,
			uint64_t *ret)
{
	if (field->type == PROFILE_WIRE_TAKEN)
		return 0;
	if (field->type == PROFILE_WIRE_BYTES) {
		if (field->bytes.at == field->bytes.end)
			return 0;
		return one_number(&field->bytes, type, ret);
	}
	if (field->type != type)
		return -EBADMSG;
	field->type = PROFILE_WIRE_TAKEN;
	*ret = field->value;
	return 1;
}
