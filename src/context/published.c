// SPDX-License-Identifier: Apache-2.0
/*
 * The process context of OTEP 4719. Its protobuf message is read by hand: a library would build
 * every level of nested values that somebody writes, and we want some texts of known places.
 */
#include "context.h"

#include <errno.h>
#include <string.h>

#define ATTEMPTS 3
#define VERSION	 2

static const char signature[8] = {'O', 'T', 'E', 'L', '_', 'C', 'T', 'X'};

struct header {
	char signature[8];
	uint32_t version, payload_bytes;
	uint64_t published_ns, payload;
};

bool context_is_mapping(const char *path)
{
	static const char *const names[] = {"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]",
					    "/memfd:OTEL_CTX"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strncmp(path, names[i], strlen(names[i])))
			return true;
	return false;
}

/* ---------------------------------------------------------------- protobuf */
struct message {
	const uint8_t *at, *end;
};

struct field {
	uint64_t number;
	struct message content; /* of a field with a length; else empty */
};

static bool read_varint(struct message *m, uint64_t *ret)
{
	*ret = 0;
	for (unsigned int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
		uint8_t byte = *m->at++;

		*ret |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

static bool skip(struct message *m, uint64_t bytes)
{
	if (bytes > (uint64_t)(m->end - m->at))
		return false;
	m->at += bytes;
	return true;
}

/* The next field. False at the end, and at what is no field: then m->at is not m->end. */
static bool next_field(struct message *m, struct field *ret)
{
	const uint8_t *start = m->at;
	uint64_t head, length;
	bool is_good = m->at < m->end && read_varint(m, &head);

	if (!is_good)
		return false;
	*ret = (struct field){.number = head >> 3};
	switch (head & 7) {
	case 0:
		is_good = read_varint(m, &length);
		break;
	case 1:
		is_good = skip(m, 8);
		break;
	case 2:
		is_good = read_varint(m, &length);
		ret->content.at = m->at;
		is_good = is_good && skip(m, length);
		ret->content.end = m->at;
		break;
	case 5:
		is_good = skip(m, 4);
		break;
	default: /* groups: of no OTLP message */
		is_good = false;
		break;
	}
	if (!is_good)
		m->at = start;
	return is_good;
}

static struct context_text text_of(const struct message *content)
{
	return (struct context_text){(const char *)content->at,
				     (size_t)(content->end - content->at)};
}

static bool text_is(const struct context_text *text, const char *expected)
{
	return text->length == strlen(expected) && !memcmp(text->bytes, expected, text->length);
}

/* The last field of this number: what protobuf says of one that comes twice. */
static bool last_field(struct message m, uint64_t number, struct message *ret)
{
	struct field field;
	bool found = false;

	while (next_field(&m, &field)) {
		if (field.number != number || !field.content.at)
			continue;
		*ret = field.content;
		found = true;
	}
	return found;
}

/* KeyValue { key = 1, value = 2 }; AnyValue { string_value = 1, array_value = 5 } */
static bool read_attribute(const struct message *m, struct context_text *ret_key,
			   struct message *ret_value)
{
	struct message key;

	if (!last_field(*m, 1, &key) || !last_field(*m, 2, ret_value))
		return false;
	*ret_key = text_of(&key);
	return true;
}

static void add_resource(struct context_process *ret, struct message resource)
{
	struct field field;

	while (next_field(&resource, &field) && ret->attribute_count < CONTEXT_ATTRIBUTES_MAX) {
		struct context_attribute *to = &ret->attributes[ret->attribute_count];
		struct message value, text;

		if (field.number != 1 || !field.content.at)
			continue;
		if (!read_attribute(&field.content, &to->key, &value) ||
		    !last_field(value, 1, &text))
			continue;
		to->value = text_of(&text);
		ret->attribute_count++;
	}
}

/* ArrayValue { values = 1 }. A key that is no text keeps its place: the index is what counts. */
static void add_keys(struct context_process *ret, struct message array)
{
	struct field field;

	ret->key_count = 0;
	while (next_field(&array, &field) && ret->key_count < CONTEXT_KEYS_MAX) {
		struct message text = {NULL, NULL};

		if (field.number != 1 || !field.content.at)
			continue;
		last_field(field.content, 1, &text);
		ret->keys[ret->key_count++] = text_of(&text);
	}
}

static void add_attribute(struct context_process *ret, const struct message *attribute)
{
	struct context_text key, schema;
	struct message value, content;

	if (!read_attribute(attribute, &key, &value))
		return;
	if (text_is(&key, "threadlocal.schema_version") && last_field(value, 1, &content)) {
		schema = text_of(&content);
		/* The second is the name that the specification announces for the first. */
		ret->has_threads = text_is(&schema, "tlsdesc_v1_dev") || text_is(&schema, "tls_v1");
	} else if (text_is(&key, "threadlocal.attribute_key_map") &&
		   last_field(value, 5, &content)) {
		add_keys(ret, content);
	}
}

int context_process_parse(struct context_process *ret, struct why *why)
{
	const uint8_t *payload = (const uint8_t *)ret->payload;
	struct message m = {payload, payload + ret->payload_bytes};
	struct field field;

	ret->has_threads = false;
	ret->attribute_count = ret->key_count = 0;
	while (next_field(&m, &field)) {
		if (!field.content.at)
			continue;
		if (field.number == 1)
			add_resource(ret, field.content);
		else if (field.number == 2)
			add_attribute(ret, &field.content);
	}
	if (m.at != m.end)
		return why_set(why, -EBADMSG, "the process context is no protobuf message");
	return 0;
}

/* ---------------------------------------------------------------- the mapping */
/* -EAGAIN: it changed meanwhile. */
static int read_once(const struct context_memory *memory, uint64_t start,
		     struct context_process *ret, struct why *why)
{
	struct header before, after;

	if (!memory->read(memory->ctx, start, &before, sizeof(before)))
		return why_set(why, -EBADMSG, "the process context is gone");
	if (memcmp(before.signature, signature, sizeof(signature)) != 0)
		return why_set(why, -ENOENT, "the mapping holds no process context");
	if (before.version != VERSION)
		return why_set(why, -ENOENT, "a process context of version %u", before.version);
	if (!before.published_ns)
		return -EAGAIN;
	if (!before.payload_bytes || before.payload_bytes > CONTEXT_PAYLOAD_MAX)
		return why_set(why, -EBADMSG, "a process context of %u bytes",
			       before.payload_bytes);
	if (!memory->read(memory->ctx, before.payload, ret->payload, before.payload_bytes) ||
	    !memory->read(memory->ctx, start, &after, sizeof(after)))
		return why_set(why, -EBADMSG, "the process context cannot be read");
	if (memcmp(&before, &after, sizeof(before)) != 0)
		return -EAGAIN;
	ret->published_ns = before.published_ns;
	ret->payload_bytes = before.payload_bytes;
	return 0;
}

int context_process_read(const struct context_memory *memory, uint64_t start,
			 struct context_process *ret, struct why *why)
{
	for (int i = 0; i < ATTEMPTS; i++) {
		int err = read_once(memory, start, ret, why);

		if (err != -EAGAIN)
			return err ? err : context_process_parse(ret, why);
	}
	return why_set(why, -EAGAIN, "the process context was being written");
}
