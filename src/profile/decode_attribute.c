// SPDX-License-Identifier: Apache-2.0
/* decode_attribute: the attribute table. Each is parsed once; flyball's own words become numbers.
 */
#include "decode.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define ATTRIBUTE_BYTES_MIN 4 /* a key and a value */

bool profile_decode_is_text(struct profile_wire w, const char *text)
{
	size_t n = strlen(text);

	return profile_wire_left(&w) == n && (!n || !memcmp(w.at, text, n));
}

bool profile_decode_starts_with(struct profile_wire w, const char *text)
{
	size_t n = strlen(text);

	return profile_wire_left(&w) >= n && !memcmp(w.at, text, n);
}

int profile_decode_value(struct profile_decode *d, struct profile_wire value,
			 struct profile_decode_attribute *ret)
{
	enum { STRING = 1, INT = 3, STRING_INDEX = 8 };
	struct profile_wire_field f;
	uint32_t index = 0;
	int more;

	ret->is_number = ret->is_text = false;
	while ((more = profile_wire_next(&value, &f)) > 0) {
		ret->is_text = f.number == STRING || f.number == STRING_INDEX;
		ret->is_number = f.number == INT;
		if (f.number == STRING && f.type == PROFILE_WIRE_BYTES) {
			ret->text = f.bytes;
		} else if (f.number == INT && f.type == PROFILE_WIRE_VARINT) {
			ret->number = f.value;
		} else if (f.number == STRING_INDEX) {
			if (profile_decode_index(d, &f, PROFILE_DECODE_STRING, &index))
				return -EBADMSG;
			ret->text = profile_decode_string(d, index);
		} else if (f.number == STRING || f.number == INT) {
			return profile_decode_bad(d, "a value is damaged");
		}
	}
	return more < 0 ? profile_decode_bad(d, "a value is damaged") : 0;
}

static const struct {
	const char *name;
	enum profile_decode_key key;
	bool is_number;
} keys[] = {
	{"thread.id", PROFILE_DECODE_THREAD_ID, true},
	{"thread.name", PROFILE_DECODE_THREAD_NAME, false},
	{"flyball.cut", PROFILE_DECODE_CUT, false},
	{"flyball.span_fault", PROFILE_DECODE_SPAN_FAULT, false},
	{"profile.frame.type", PROFILE_DECODE_FRAME_TYPE, false},
	{"flyball.file", PROFILE_DECODE_FILE, false},
	{"flyball.unnamed_reason", PROFILE_DECODE_UNNAMED, false},
	{"flyball.unlined_reason", PROFILE_DECODE_UNLINED, false},
	{"process.executable.build_id.gnu", PROFILE_DECODE_BUILD_ID, false},
	{"process.executable.build_id.htlhash", PROFILE_DECODE_HTLHASH, false},
};

#define LEDGER "flyball.ledger."

static const struct {
	const char *name;
	size_t offset;
} ledger_keys[] = {
	{LEDGER "ticks", offsetof(struct profile_ledger, ticks)},
	{LEDGER "idle", offsetof(struct profile_ledger, idle)},
	{LEDGER "filtered", offsetof(struct profile_ledger, filtered)},
	{LEDGER "taken", offsetof(struct profile_ledger, taken)},
	{LEDGER "taken_ns", offsetof(struct profile_ledger, taken_ns)},
	{LEDGER "delivered", offsetof(struct profile_ledger, delivered)},
	{LEDGER "delivered_ns", offsetof(struct profile_ledger, delivered_ns)},
	{LEDGER "missed_by_kernel", offsetof(struct profile_ledger, missed_by_kernel)},
};

static const struct {
	const char *prefix;
	size_t offset;
} drop_keys[] = {
	{LEDGER "dropped.", offsetof(struct profile_ledger, dropped)},
	{LEDGER "dropped_ns.", offsetof(struct profile_ledger, dropped_ns)},
};

/* Words that a later flyball may add to are well formed: their file is not for this one. */
static int unknown_word(struct profile_decode *d, const char *kind, struct profile_wire text)
{
	char clean[80];

	text_print((const char *)text.at, profile_wire_left(&text), clean, sizeof(clean));
	return why_set(d->why, -EOPNOTSUPP, "this version does not know the %s \"%s\"", kind,
		       clean);
}

static int ledger_attribute(struct profile_decode *d, struct profile_decode_attribute *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(ledger_keys); i++) {
		if (!profile_decode_is_text(a->name, ledger_keys[i].name))
			continue;
		a->offset = (uint32_t)ledger_keys[i].offset;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(drop_keys); i++) {
		struct profile_wire name = a->name;

		if (!profile_decode_starts_with(name, drop_keys[i].prefix))
			continue;
		name.at += strlen(drop_keys[i].prefix);
		for (int drop = 0; drop < FLY_DROP_COUNT; drop++) {
			if (!profile_decode_is_text(name, profile_drop_name((enum fly_drop)drop)))
				continue;
			a->offset =
				(uint32_t)(drop_keys[i].offset + (size_t)drop * sizeof(uint64_t));
			return 0;
		}
	}
	return unknown_word(d, "ledger entry", a->name);
}

static int cut_bits(struct profile_decode *d, struct profile_wire text, uint64_t *ret)
{
	uint64_t bits = 0;

	while (text.at < text.end) {
		const uint8_t *comma = memchr(text.at, ',', profile_wire_left(&text));
		struct profile_wire word = {text.at, comma ? comma : text.end};
		int cut = 0;

		while (cut < FLY_CUT_COUNT &&
		       !profile_decode_is_text(word, profile_cut_name((enum fly_cut)cut)))
			cut++;
		if (cut == FLY_CUT_COUNT)
			return unknown_word(d, "cut", word);
		bits |= 1U << cut;
		text.at = comma ? comma + 1 : text.end;
	}
	*ret = bits;
	return 0;
}

static int unnamed_number(struct profile_decode *d, struct profile_wire text, uint64_t *ret)
{
	for (int i = 1; i < FLY_UNNAMED_COUNT; i++) {
		if (profile_decode_is_text(text, profile_unnamed_name((enum fly_unnamed)i))) {
			*ret = (uint64_t)i;
			return 0;
		}
	}
	return unknown_word(d, "reason", text);
}

static int fault_number(struct profile_decode *d, struct profile_wire text, uint64_t *ret)
{
	for (int i = PROFILE_SPAN_PAGE_ABSENT; i < PROFILE_SPAN_FAULTS; i++) {
		if (profile_decode_is_text(text,
					   profile_span_fault_name((enum profile_span_fault)i))) {
			*ret = (uint64_t)i;
			return 0;
		}
	}
	return unknown_word(d, "span fault", text);
}

int profile_decode_hex(struct profile_wire text, uint8_t *out, size_t max)
{
	size_t n = profile_wire_left(&text);

	if (n % 2 || n / 2 > max)
		return -1;
	memset(out, 0, n / 2);
	for (size_t i = 0; i < n; i++) {
		const int c = tolower(text.at[i]);

		if (!isxdigit(c))
			return -1;
		out[i / 2] = (uint8_t)(out[i / 2] << 4 | (isdigit(c) ? c - '0' : c - 'a' + 10));
	}
	return (int)(n / 2);
}

static int known_attribute(struct profile_decode *d, struct profile_decode_attribute *a)
{
	uint8_t bytes[64] = {0};

	switch (a->key) {
	case PROFILE_DECODE_THREAD_ID:
		return a->number <= UINT32_MAX
			       ? 0
			       : profile_decode_bad(d, "a thread's number is out of range");
	case PROFILE_DECODE_CUT:
		return cut_bits(d, a->text, &a->number);
	case PROFILE_DECODE_SPAN_FAULT:
		return fault_number(d, a->text, &a->number);
	case PROFILE_DECODE_FRAME_TYPE:
		a->number =
			profile_decode_is_text(a->text, "kernel") ? PROFILE_KERNEL : PROFILE_USER;
		return 0;
	case PROFILE_DECODE_UNNAMED:
	case PROFILE_DECODE_UNLINED:
		return unnamed_number(d, a->text, &a->number);
	case PROFILE_DECODE_BUILD_ID:
		return profile_decode_hex(a->text, bytes, 64) > 0
			       ? 0
			       : profile_decode_bad(d, "a build-id is damaged");
	case PROFILE_DECODE_HTLHASH:
		return profile_decode_hex(a->text, bytes, 16) == 16
			       ? 0
			       : profile_decode_bad(d, "a file's hash is damaged");
	case PROFILE_DECODE_LEDGER:
		return a->number <= INT64_MAX ? ledger_attribute(d, a)
					      : profile_decode_bad(d, "a ledger entry is negative");
	default:
		return 0;
	}
}

static int attribute_parse(struct profile_decode *d, struct profile_wire w,
			   struct profile_decode_attribute *ret)
{
	enum { KEY = 1, VALUE = 2 };
	struct profile_wire_field f;
	uint32_t name = 0;
	int more, err = 0;

	while ((more = profile_wire_next(&w, &f)) > 0 && !err) {
		if (f.number == KEY)
			err = profile_decode_index(d, &f, PROFILE_DECODE_STRING, &name);
		else if (f.number == VALUE && f.type == PROFILE_WIRE_BYTES)
			err = profile_decode_value(d, f.bytes, ret);
	}
	if (err || more < 0)
		return err ? err : profile_decode_bad(d, "an attribute is damaged");
	ret->name = profile_decode_string(d, name);
	if (profile_decode_starts_with(ret->name, LEDGER))
		ret->key = PROFILE_DECODE_LEDGER;
	for (size_t i = 0; i < ARRAY_SIZE(keys) && !ret->key; i++) {
		if (profile_decode_is_text(ret->name, keys[i].name) &&
		    (keys[i].is_number ? ret->is_number : ret->is_text))
			ret->key = keys[i].key;
	}
	if (ret->key == PROFILE_DECODE_LEDGER && !ret->is_number)
		return profile_decode_bad(d, "a ledger entry is no number");
	return known_attribute(d, ret);
}

int64_t profile_decode_attribute_text(struct profile_decode *d, uint32_t index)
{
	struct profile_decode_entry *e = &d->tables[PROFILE_DECODE_ATTRIBUTE].entries[index];
	const struct profile_wire *text = &d->attributes[index].text;
	int64_t id;

	if (e->id)
		return e->id - 1;
	id = profile_text_add(d->m->p, (const char *)text->at, profile_wire_left(text));
	if (id >= 0)
		e->id = (uint32_t)id + 1;
	return id;
}

int64_t profile_decode_attribute_key(struct profile_decode *d, uint32_t index)
{
	struct profile_decode_entry *e = &d->tables[PROFILE_DECODE_ATTRIBUTE].entries[index];
	const struct profile_wire *name = &d->attributes[index].name;
	struct profile *p = d->m->p;
	int64_t id;

	if (e->key_id)
		return e->key_id - 1;
	id = profile_text_add(p, (const char *)name->at, profile_wire_left(name));
	if (id >= 0)
		id = profile_attribute_key_add(p, profile_text(p, (uint32_t)id));
	if (id >= 0)
		e->key_id = (uint32_t)id + 1;
	return id;
}

int profile_decode_attributes_parse(struct profile_decode *d)
{
	size_t count = d->tables[PROFILE_DECODE_ATTRIBUTE].count;

	d->attributes = mem_array(MEM_PROFILE, count ? count : 1, sizeof(*d->attributes));
	if (!d->attributes)
		return -ENOMEM;
	for (uint32_t i = 1; i < count; i++) {
		struct profile_wire w = profile_decode_entry_bytes(d, PROFILE_DECODE_ATTRIBUTE, i);
		int err;

		if (profile_wire_left(&w) < ATTRIBUTE_BYTES_MIN)
			return profile_decode_bad(d, "an attribute is empty");
		err = attribute_parse(d, w, &d->attributes[i]);
		if (err)
			return err;
	}
	return 0;
}
