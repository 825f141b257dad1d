// SPDX-License-Identifier: Apache-2.0
/*
 * otlp_json: the request in OTLP's JSON mapping, on one line. The printer walks protobuf-c's
 * descriptors, so both encodings come from the same messages. Beside proto3's own mapping: trace
 * and span ids are hex, other bytes base64, enums numbers; names lowerCamelCase, 64-bit integers
 * strings, zero values left out.
 */
#include "otlp.h"
#include "writers.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <protobuf-c/protobuf-c.h>
#include <string.h>

static void print_message(struct profile_out *out, const ProtobufCMessage *message, bool is_open);

static void print_name(struct profile_out *out, const char *name)
{
	profile_out_char(out, '"');
	for (; *name; name++) {
		bool is_hump = name[0] == '_' && name[1];

		name += is_hump;
		profile_out_char(out, is_hump ? (char)toupper((unsigned char)*name) : *name);
	}
	profile_out_str(out, "\":");
}

static void print_base64(struct profile_out *out, const uint8_t *data, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < len; i += 3) {
		size_t left = len - i;
		uint32_t v = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
			     (left > 2 ? data[i + 2] : 0);

		profile_out_char(out, digits[v >> 18]);
		profile_out_char(out, digits[v >> 12 & 63]);
		profile_out_char(out, left > 1 ? digits[v >> 6 & 63] : '=');
		profile_out_char(out, left > 2 ? digits[v & 63] : '=');
	}
}

static void print_bytes(struct profile_out *out, const char *field, const ProtobufCBinaryData *b)
{
	bool is_id = !strcmp(field, "trace_id") || !strcmp(field, "span_id");

	profile_out_char(out, '"');
	if (is_id) {
		for (size_t i = 0; i < b->len; i++)
			profile_out_f(out, "%02x", b->data[i]);
	} else {
		print_base64(out, b->data, b->len);
	}
	profile_out_char(out, '"');
}

static void print_value(struct profile_out *out, const ProtobufCFieldDescriptor *field,
			const void *member)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_ENUM:
		profile_out_f(out, "%" PRId32, *(const int32_t *)member);
		break;
	case PROTOBUF_C_TYPE_UINT32:
		profile_out_f(out, "%" PRIu32, *(const uint32_t *)member);
		break;
	case PROTOBUF_C_TYPE_INT64:
		profile_out_f(out, "\"%" PRId64 "\"", *(const int64_t *)member);
		break;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		profile_out_f(out, "\"%" PRIu64 "\"", *(const uint64_t *)member);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		profile_out_str(out, *(const protobuf_c_boolean *)member ? "true" : "false");
		break;
	case PROTOBUF_C_TYPE_DOUBLE:
		profile_out_f(out, "%.17g", *(const double *)member);
		break;
	case PROTOBUF_C_TYPE_STRING:
		profile_json_string(out, *(char *const *)member);
		break;
	case PROTOBUF_C_TYPE_BYTES:
		print_bytes(out, field->name, member);
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		print_message(out, *(ProtobufCMessage *const *)member, false);
		break;
	default:
		out->err = -EINVAL; /* OTLP has no other type */
	}
}

static size_t value_size(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return 8;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return 4;
	}
}

/* proto3 says nothing of a zero value; a member of a oneof is set when the oneof says so. */
static bool is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
		   const void *member)
{
	const char *base = (const char *)message;
	const char *text;

	if (field->label == PROTOBUF_C_LABEL_REPEATED)
		return *(const size_t *)(base + field->quantifier_offset) > 0;
	if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return *(const uint32_t *)(base + field->quantifier_offset) == field->id;
	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING:
		text = *(char *const *)member;
		return text && text[0];
	case PROTOBUF_C_TYPE_MESSAGE:
		return *(void *const *)member;
	case PROTOBUF_C_TYPE_BYTES:
		return ((const ProtobufCBinaryData *)member)->len > 0;
	default:
		for (size_t i = 0; i < value_size(field->type); i++) {
			if (((const char *)member)[i])
				return true;
		}
		return false;
	}
}

static void print_repeated(struct profile_out *out, const ProtobufCMessage *message,
			   const ProtobufCFieldDescriptor *field, const void *member)
{
	size_t count = *(const size_t *)((const char *)message + field->quantifier_offset);
	const char *items = *(char *const *)member;

	profile_out_char(out, '[');
	for (size_t i = 0; i < count; i++) {
		if (i)
			profile_out_char(out, ',');
		print_value(out, field, items + i * value_size(field->type));
	}
	profile_out_char(out, ']');
}

/* is_open: the closing brace is left to the caller, who adds a field. */
static void print_message(struct profile_out *out, const ProtobufCMessage *message, bool is_open)
{
	const ProtobufCMessageDescriptor *d = message->descriptor;
	bool is_first = true;

	profile_out_char(out, '{');
	for (unsigned int i = 0; i < d->n_fields && !out->err; i++) {
		const ProtobufCFieldDescriptor *field = &d->fields[i];
		const void *member = (const char *)message + field->offset;

		if (!is_set(message, field, member))
			continue;
		if (!is_first)
			profile_out_char(out, ',');
		is_first = false;
		print_name(out, field->name);
		if (field->label == PROTOBUF_C_LABEL_REPEATED)
			print_repeated(out, message, field, member);
		else
			print_value(out, field, member);
	}
	if (!is_open)
		profile_out_char(out, '}');
}

static int print_samples(struct profile_otlp *o, size_t begin, size_t end, struct profile_out *out)
{
	for (size_t at = begin; at < end;) {
		size_t next = profile_otlp_run_end(o, at, PROFILE_OTLP_IDENTITY);
		Otlp__Sample sample;
		int err = profile_otlp_sample(o, at, next, &sample);

		if (err)
			return err;
		profile_out_str(out, at == begin ? ",\"samples\":[" : ",");
		print_message(out, &sample.base, false);
		at = next;
	}
	if (begin < end)
		profile_out_char(out, ']');
	return 0;
}

static int print_process(struct profile_otlp *o, size_t begin, size_t end, struct profile_out *out)
{
	struct profile_otlp_head head;
	size_t at = begin;

	profile_otlp_head(o, begin, &head);
	profile_out_str(out, "{\"resource\":");
	print_message(out, &head.resource.base, false);
	profile_out_str(out, ",\"scopeProfiles\":[{\"scope\":");
	print_message(out, &head.scope.base, false);
	profile_out_str(out, ",\"profiles\":[");
	do {
		size_t next = o->row_count ? profile_otlp_run_end(o, at, PROFILE_OTLP_PERIOD) : 0;
		Otlp__Profile profile;
		int err;

		if (at > begin)
			profile_out_char(out, ',');
		profile_otlp_profile(o, at, &profile);
		print_message(out, &profile.base, true);
		err = print_samples(o, at, next, out);
		if (err)
			return err;
		profile_out_char(out, '}');
		at = next;
	} while (at < end);
	profile_out_str(out, "]}]}");
	return out->err;
}

static int print_entry(struct profile_out *out, const ProtobufCMessageDescriptor *type,
		       const void *entry, size_t bytes)
{
	ProtobufCMessage *message;

	if (!type) {
		profile_json_string(out, entry);
		return out->err;
	}
	message = protobuf_c_message_unpack(type, &profile_encode_allocator, bytes, entry);
	if (!message)
		return -ENOMEM; /* our own bytes: nothing else can be wrong */
	print_message(out, message, false);
	protobuf_c_message_free_unpacked(message, &profile_encode_allocator);
	return out->err;
}

static int print_dictionary(struct profile_otlp *o, struct profile_out *out)
{
	int err = 0;

	profile_out_char(out, '{');
	for (unsigned int t = 0; t < PROFILE_OTLP_TABLES && !err; t++) {
		const ProtobufCFieldDescriptor *field =
			&otlp__profiles_dictionary__descriptor.fields[t];

		if (t)
			profile_out_char(out, ',');
		print_name(out, field->name);
		profile_out_char(out, '[');
		for (uint32_t i = 0; i < o->tables[t].count && !err; i++) {
			size_t bytes;
			const void *entry = profile_intern_get(&o->tables[t], i, &bytes);

			if (i)
				profile_out_char(out, ',');
			err = print_entry(out, field->descriptor, entry, bytes);
		}
		profile_out_char(out, ']');
	}
	profile_out_char(out, '}');
	return err ? err : out->err;
}

int profile_write_otlp_json(const struct profile *p, struct profile_out *out)
{
	struct profile_otlp o;
	size_t begin = 0, end;
	int err = profile_otlp_init(&o, p);

	profile_out_str(out, "{\"resourceProfiles\":[");
	while (!err) {
		end = o.row_count ? profile_otlp_run_end(&o, begin, PROFILE_OTLP_PROCESS) : 0;
		if (begin)
			profile_out_char(out, ',');
		err = print_process(&o, begin, end, out);
		begin = end;
		if (begin >= o.row_count)
			break;
	}
	profile_out_str(out, "],\"dictionary\":");
	if (!err)
		err = print_dictionary(&o, out);
	profile_out_str(out, "}\n");
	profile_otlp_done(&o);
	return err ? err : out->err;
}
