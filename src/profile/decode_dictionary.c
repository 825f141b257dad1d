// SPDX-License-Identifier: Apache-2.0
/* decode_dictionary: the tables of a request. Parsing an entry looks at every index in it; what it
 * becomes in the model is made when a sample first asks, and remembered. */
#include "decode.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

int profile_decode_bad(struct profile_decode *d, const char *what)
{
	return why_set(d->why, -EBADMSG, "not a profile: %s", what);
}

struct profile_wire profile_decode_entry_bytes(const struct profile_decode *d,
					       enum profile_decode_table_number table,
					       uint32_t index)
{
	const struct profile_decode_entry *e;

	if (!index || index >= d->tables[table].count)
		return (struct profile_wire){d->data, d->data};
	e = &d->tables[table].entries[index];
	return (struct profile_wire){d->data + e->at, d->data + e->at + e->bytes};
}

static int check_index(struct profile_decode *d, uint64_t value,
		       enum profile_decode_table_number table, uint32_t *ret)
{
	if (value && value >= d->tables[table].count)
		return profile_decode_bad(d, "an index is past the end of its table");
	*ret = (uint32_t)value;
	return 0;
}

int profile_decode_index(struct profile_decode *d, const struct profile_wire_field *field,
			 enum profile_decode_table_number table, uint32_t *ret)
{
	if (field->type != PROFILE_WIRE_VARINT)
		return profile_decode_bad(d, "an index is no number");
	return check_index(d, field->value, table, ret);
}

int profile_decode_index_next(struct profile_decode *d, struct profile_wire_field *field,
			      enum profile_decode_table_number table, uint32_t *ret)
{
	uint64_t value;
	int more = profile_wire_number(field, PROFILE_WIRE_VARINT, &value);

	if (!more)
		return 0;
	if (more < 0 || !value)
		return profile_decode_bad(d, "a list of indices is damaged");
	more = check_index(d, value, table, ret);
	return more ? more : 1;
}

/* ---------------------------------------------------------------- mappings */
struct mapping {
	uint64_t start, limit, offset;
	uint32_t path;
	uint32_t build_id, htlhash; /* attributes; 0: none */
};

static int mapping_parse(struct profile_decode *d, uint32_t index, struct mapping *ret)
{
	enum { START = 1, LIMIT, OFFSET, PATH, ATTRIBUTES };
	struct profile_wire w = profile_decode_entry_bytes(d, PROFILE_DECODE_MAPPING, index);
	struct profile_wire_field f;
	uint32_t attribute = 0;
	int more, err = 0;

	memset(ret, 0, sizeof(*ret));
	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == START)
			ret->start = f.value;
		else if (f.number == LIMIT)
			ret->limit = f.value;
		else if (f.number == OFFSET)
			ret->offset = f.value;
		else if (f.number == PATH)
			err = profile_decode_index(d, &f, PROFILE_DECODE_STRING, &ret->path);
		if (f.number != ATTRIBUTES)
			continue;
		while ((err = profile_decode_index_next(d, &f, PROFILE_DECODE_ATTRIBUTE,
							&attribute)) > 0) {
			if (d->attributes[attribute].key == PROFILE_DECODE_BUILD_ID)
				ret->build_id = attribute;
			else if (d->attributes[attribute].key == PROFILE_DECODE_HTLHASH)
				ret->htlhash = attribute;
		}
	}
	return err ? err : more < 0 ? profile_decode_bad(d, "a mapping is damaged") : 0;
}

static int64_t string_id(struct profile_decode *d, uint32_t index)
{
	struct profile_wire text = profile_decode_string(d, index);
	struct profile_decode_entry *e;
	int64_t id;

	if (!index)
		return 0;
	e = &d->tables[PROFILE_DECODE_STRING].entries[index];
	if (e->id)
		return e->id - 1;
	id = profile_text_add(d->m->p, (const char *)text.at, profile_wire_left(&text));
	if (id >= 0)
		e->id = (uint32_t)id + 1;
	return id;
}

struct file_key {
	uint8_t build_id[64], htlhash[16];
	uint64_t start, limit, offset; /* of a mapping that agrees with no other of its file */
	uint32_t path, build_id_len, has_htlhash, is_apart;
};

static int64_t file_add(struct profile_decode *d, const struct file_key *key,
			const struct profile_segment *segment)
{
	struct profile_file file = {.segment_count = segment != NULL};
	size_t before = d->m->files.count;
	int64_t id = profile_intern_add(&d->m->files, key, sizeof(*key));

	if (id < 0)
		return id;
	file.key = (uint64_t)id;
	if (d->m->files.count > before) {
		file.path = profile_text(d->m->p, key->path);
		file.build_id_len = (uint8_t)key->build_id_len;
		memcpy(file.build_id, key->build_id, sizeof(file.build_id));
		file.has_htlhash = (uint8_t)key->has_htlhash;
		memcpy(file.htlhash, key->htlhash, sizeof(file.htlhash));
		if (segment)
			file.segments[0] = *segment;
	}
	return profile_file_add(d->m->p, &file);
}

/* Does the file have the segment now? No: others lie where it would, or there are too many. */
static bool has_segment(struct profile *p, uint32_t file, const struct profile_segment *s)
{
	const struct profile_file_row *row = &p->file_rows[file];
	struct profile_file now = {.segment_count = row->segment_count};

	for (uint32_t i = 0; i < row->segment_count; i++) {
		const struct profile_segment *other = &row->segments[i];

		if (!memcmp(other, s, sizeof(*s)))
			return true;
		if (s->offset - other->offset < other->file_bytes ||
		    other->offset - s->offset < s->file_bytes)
			return false;
	}
	if (row->segment_count == ARRAY_SIZE(now.segments))
		return false;
	if (row->segment_count)
		memcpy(now.segments, row->segments, row->segment_count * sizeof(*s));
	now.segments[now.segment_count++] = *s;
	profile_file_update(p, file, &now);
	return p->file_rows[file].segment_count == now.segment_count;
}

/* The file of a mapping, and the address in the file of one in memory. */
static int64_t mapping_file(struct profile_decode *d, const struct mapping *m, bool is_kernel,
			    uint64_t *address)
{
	struct profile_segment segment = {
		.offset = m->offset, .vaddr = m->start, .file_bytes = m->limit - m->start};
	bool is_inside = !is_kernel && (m->start || m->offset) && m->start <= *address &&
			 *address < m->limit;
	struct file_key key = {.path = 0};
	int64_t path = string_id(d, m->path), file;

	if (path < 0)
		return path;
	key.path = (uint32_t)path;
	if (m->build_id)
		key.build_id_len = (uint32_t)profile_decode_hex(d->attributes[m->build_id].text,
								key.build_id, sizeof(key.build_id));
	key.has_htlhash = m->htlhash > 0;
	if (m->htlhash)
		profile_decode_hex(d->attributes[m->htlhash].text, key.htlhash,
				   sizeof(key.htlhash));
	file = file_add(d, &key, NULL);
	if (file < 0 || !is_inside)
		return file;
	*address = *address - m->start + m->offset;
	if (has_segment(d->m->p, (uint32_t)file, &segment))
		return file;
	key.start = m->start;
	key.limit = m->limit;
	key.offset = m->offset;
	key.is_apart = 1;
	return file_add(d, &key, &segment);
}

/* ---------------------------------------------------------------- functions and locations */
struct function {
	uint32_t name, file;
};

static int function_parse(struct profile_decode *d, uint32_t index, struct function *ret)
{
	enum { NAME = 1, FILE_NAME = 3 };
	struct profile_wire w = profile_decode_entry_bytes(d, PROFILE_DECODE_FUNCTION, index);
	struct profile_wire_field f;
	int more, err = 0;

	memset(ret, 0, sizeof(*ret));
	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == NAME)
			err = profile_decode_index(d, &f, PROFILE_DECODE_STRING, &ret->name);
		else if (f.number == FILE_NAME)
			err = profile_decode_index(d, &f, PROFILE_DECODE_STRING, &ret->file);
	}
	return err ? err : more < 0 ? profile_decode_bad(d, "a function is damaged") : 0;
}

struct location {
	uint64_t address;
	uint32_t mapping, file; /* file: an attribute; 0: none */
	uint32_t kind, unnamed, unlined;
	uint32_t attributes, line_count;
	struct {
		uint32_t function, line;
	} lines[PROFILE_LINES_MAX];
};

static int line_parse(struct profile_decode *d, struct profile_wire w, struct location *l)
{
	enum { FUNCTION = 1, LINE = 2 };
	struct profile_wire_field f;
	uint32_t function = 0;
	uint64_t line = 0;
	int more, err = 0;

	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == FUNCTION)
			err = profile_decode_index(d, &f, PROFILE_DECODE_FUNCTION, &function);
		else if (f.number == LINE)
			line = f.value;
	}
	if (err || more < 0)
		return err ? err : profile_decode_bad(d, "a line is damaged");
	if (line > UINT32_MAX)
		return profile_decode_bad(d, "a line's number is out of range");
	if (l->line_count == PROFILE_LINES_MAX)
		return why_set(d->why, -ERANGE, "more than %d inlined calls in one place",
			       PROFILE_LINES_MAX);
	l->lines[l->line_count].function = function;
	l->lines[l->line_count++].line = (uint32_t)line;
	return 0;
}

static void location_attribute(const struct profile_decode *d, uint32_t index, struct location *l)
{
	const struct profile_decode_attribute *a = &d->attributes[index];

	l->attributes++;
	if (a->key == PROFILE_DECODE_FRAME_TYPE)
		l->kind = (uint32_t)a->number;
	else if (a->key == PROFILE_DECODE_FILE)
		l->file = index;
	else if (a->key == PROFILE_DECODE_UNNAMED)
		l->unnamed = (uint32_t)a->number;
	else if (a->key == PROFILE_DECODE_UNLINED)
		l->unlined = (uint32_t)a->number;
}

static int location_parse(struct profile_decode *d, uint32_t index, struct location *ret)
{
	enum { MAPPING = 1, ADDRESS, LINES, ATTRIBUTES };
	struct profile_wire w = profile_decode_entry_bytes(d, PROFILE_DECODE_LOCATION, index);
	struct profile_wire_field f;
	uint32_t attribute = 0;
	int more, err = 0;

	memset(ret, 0, offsetof(struct location, lines));
	ret->kind = PROFILE_USER;
	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == MAPPING)
			err = profile_decode_index(d, &f, PROFILE_DECODE_MAPPING, &ret->mapping);
		else if (f.number == ADDRESS)
			ret->address = f.value;
		else if (f.number == LINES && f.type == PROFILE_WIRE_BYTES)
			err = line_parse(d, f.bytes, ret);
		if (f.number != ATTRIBUTES)
			continue;
		while ((err = profile_decode_index_next(d, &f, PROFILE_DECODE_ATTRIBUTE,
							&attribute)) > 0)
			location_attribute(d, attribute, ret);
	}
	return err ? err : more < 0 ? profile_decode_bad(d, "a location is damaged") : 0;
}

/* A frame that stands for what is missing; every other one has attributes. Only its text tells the
 * depth limit. */
static void pseudo_mark(struct profile_decode *d, uint32_t index, const struct location *l)
{
	struct function function;
	struct profile_wire name;

	if (l->mapping || l->address || l->attributes || l->line_count != 1 || l->lines[0].line ||
	    function_parse(d, l->lines[0].function, &function) || function.file)
		return;
	name = profile_decode_string(d, function.name);
	if (profile_decode_starts_with(name, "[truncated: ") ||
	    profile_decode_starts_with(name, "[incomplete: ") ||
	    profile_decode_is_text(name, "[no stack]"))
		d->tables[PROFILE_DECODE_LOCATION].entries[index].pseudo_name = function.name;
}

static bool is_pseudo(const struct profile_decode *d, uint32_t location)
{
	return d->tables[PROFILE_DECODE_LOCATION].entries[location].pseudo_name > 0;
}

/* What stands at an address, so that two files that say different things keep both. */
struct content {
	uint64_t address;
	uint32_t file, kind, name, lines, unnamed, unlined;
};

static int content_lines(struct profile_decode *d, const struct location *l, struct content *c)
{
	struct profile_line_row rows[PROFILE_LINES_MAX];
	struct profile *p = d->m->p;
	bool has_lines = l->line_count > 1;
	int64_t id;

	for (uint32_t i = 0; i < l->line_count; i++) {
		bool is_last = i + 1 == l->line_count;
		struct function function;
		int64_t name, file;

		if (function_parse(d, l->lines[i].function, &function))
			return -EBADMSG;
		name = string_id(d, function.name);
		file = string_id(d, function.file);
		if (name < 0 || file < 0)
			return name < 0 ? (int)name : (int)file;
		rows[i] = (struct profile_line_row){is_last ? 0 : (uint32_t)name, (uint32_t)file,
						    l->lines[i].line};
		has_lines |= file || l->lines[i].line;
		/* beside inlined calls "module+0xaddress" stands for a name */
		if (is_last && !l->unnamed)
			c->name = (uint32_t)name;
	}
	if (!has_lines)
		return 0;
	id = profile_intern_add(&p->lines, rows, l->line_count * sizeof(rows[0]));
	c->lines = (uint32_t)(id + 1);
	return id < 0 ? (int)id : 0;
}

/* A file that is known by its bytes has one truth for each address: what one profile did not know
 * of it another may fill in. */
static bool can_be_one(const struct profile *p, const struct profile_location_row *row,
		       const struct content *c)
{
	const struct profile_file_row *file = &p->file_rows[c->file];
	bool is_same = row->name == c->name && row->lines == c->lines;

	if (!file->build_id_len && !file->has_htlhash)
		return is_same && row->unnamed == c->unnamed && row->unlined == c->unlined;
	return (row->name == c->name || !row->name || !c->name) &&
	       (row->lines == c->lines || !row->lines || !c->lines);
}

static void location_fill(struct profile_location_row *row, const struct content *c)
{
	row->is_answered = true;
	if (!row->name && c->unnamed)
		row->unnamed = (uint8_t)c->unnamed;
	if (!row->lines && c->unlined)
		row->unlined = (uint8_t)c->unlined;
	if (c->name) {
		row->name = c->name;
		row->unnamed = FLY_UNNAMED_NONE;
	}
	if (c->lines) {
		row->lines = c->lines;
		row->unlined = FLY_UNNAMED_NONE;
	}
}

static int64_t content_location(struct profile_decode *d, const struct content *c, uint32_t variant)
{
	struct profile *p = d->m->p;
	struct profile_location_key key = {
		.address = c->address, .file = c->file, .kind = c->kind & 15};
	size_t before = p->locations.count;
	int64_t id = profile_location_add_key(p, &key);

	if (id >= 0 && p->locations.count == before && !can_be_one(p, &p->location_rows[id], c)) {
		key.variant = variant & (PROFILE_VARIANTS - 1);
		id = profile_location_add_key(p, &key);
	}
	if (id >= 0)
		location_fill(&p->location_rows[id], c);
	return id;
}

static int64_t content_add(struct profile_decode *d, const struct content *c)
{
	struct profile_merge *m = d->m;
	void *ids = m->content_locations;
	size_t before = m->contents.count;
	int64_t id, location;
	int err = mem_grow(MEM_PROFILE, &ids, &m->content_cap, before + 1, PROFILE_VARIANTS - 1,
			   sizeof(*m->content_locations));

	m->content_locations = ids;
	if (err)
		return err;
	id = profile_intern_add(&m->contents, c, sizeof(*c));
	if (id < 0 || (size_t)id < before)
		return id < 0 ? id : m->content_locations[id];
	location = content_location(d, c, (uint32_t)id + 1);
	if (location >= 0)
		m->content_locations[id] = (uint32_t)location;
	return location;
}

static int64_t location_of(struct profile_decode *d, uint32_t index)
{
	struct profile_decode_entry *e = &d->tables[PROFILE_DECODE_LOCATION].entries[index];
	struct content c = {.file = 0};
	struct location l;
	struct mapping m;
	int64_t id;
	int err;

	if (e->id)
		return e->id - 1;
	err = location_parse(d, index, &l);
	if (!err)
		err = content_lines(d, &l, &c);
	if (!err)
		err = mapping_parse(d, l.mapping, &m);
	if (err)
		return err;
	c.address = l.address;
	c.kind = l.kind;
	c.unnamed = c.name ? 0 : l.unnamed;
	c.unlined = c.lines ? 0 : l.unlined;
	if (l.mapping) {
		id = mapping_file(d, &m, l.kind == PROFILE_KERNEL, &c.address);
	} else {
		int64_t path = l.file ? profile_decode_attribute_text(d, l.file) : 0;
		const struct file_key key = {.path = path > 0 ? (uint32_t)path : 0};

		id = path < 0 ? path : file_add(d, &key, NULL);
	}
	if (id < 0)
		return id;
	c.file = (uint32_t)id;
	id = content_add(d, &c);
	if (id >= 0)
		e->id = (uint32_t)id + 1;
	return id;
}

/* ---------------------------------------------------------------- stacks */
/* Goes over the locations of a stack: 1 with the next one, 0 at the end. */
struct stack_walk {
	struct profile_wire w;
	struct profile_wire_field f;
	bool is_begun;
};

static int stack_next(struct profile_decode *d, struct stack_walk *walk, uint32_t *ret)
{
	int more;

	for (;;) {
		if (walk->is_begun && walk->f.number == 1) {
			more = profile_decode_index_next(d, &walk->f, PROFILE_DECODE_LOCATION, ret);
			if (more)
				return more;
		}
		walk->is_begun = true;
		more = profile_wire_next(&walk->w, &walk->f);
		if (more <= 0)
			return more < 0 ? profile_decode_bad(d, "a stack is damaged") : 0;
	}
}

static int stack_check(struct profile_decode *d, uint32_t index)
{
	struct stack_walk walk = {.w = profile_decode_entry_bytes(d, PROFILE_DECODE_STACK, index)};
	uint32_t location = 0, count = 0;
	int more;

	while ((more = stack_next(d, &walk, &location)) > 0) {
		count += !is_pseudo(d, location);
		if (count > PROFILE_STACK_MAX)
			return why_set(d->why, -ERANGE, "a stack of more than %d frames",
				       PROFILE_STACK_MAX);
	}
	return more;
}

/* N of "[truncated: depth N]"; 0: none. */
static uint32_t depth_limit(const struct profile_decode *d, uint32_t location)
{
	uint32_t index = d->tables[PROFILE_DECODE_LOCATION].entries[location].pseudo_name;
	struct profile_wire name = profile_decode_string(d, index);
	uint32_t depth = 0;

	if (!profile_decode_starts_with(name, "[truncated: "))
		return 0;
	while (name.at < name.end && !isdigit(*name.at))
		name.at++;
	while (name.at < name.end && isdigit(*name.at) && depth < UINT16_MAX / 10)
		depth = depth * 10 + (uint32_t)(*name.at++ - '0');
	return depth;
}

int64_t profile_decode_stack(struct profile_decode *d, uint32_t index, uint32_t *ret_depth_limit)
{
	struct stack_walk walk = {.w = profile_decode_entry_bytes(d, PROFILE_DECODE_STACK, index)};
	struct profile_decode_entry none = {0},
				    *e = index ? &d->tables[PROFILE_DECODE_STACK].entries[index]
					       : &none;
	uint32_t locations[PROFILE_STACK_MAX], location = 0, depth = 0;
	size_t count = 0;
	int64_t id;
	int more = 0;

	*ret_depth_limit = e->depth_limit;
	if (e->id)
		return e->id - 1;
	while (index && (more = stack_next(d, &walk, &location)) > 0) {
		if (is_pseudo(d, location)) {
			uint32_t limit = depth_limit(d, location);

			depth = limit ? limit : depth;
			continue;
		}
		id = location_of(d, location);
		if (id < 0)
			return id;
		locations[count++] = (uint32_t)id;
	}
	if (more < 0)
		return more;
	id = profile_intern_add(&d->m->p->stacks, locations, count * sizeof(locations[0]));
	if (id >= 0) {
		e->id = (uint32_t)id + 1;
		e->depth_limit = *ret_depth_limit = depth;
	}
	return id;
}

/* ---------------------------------------------------------------- links */
static int link_parse(struct profile_decode *d, uint32_t index, struct profile_span *ret)
{
	enum { TRACE_ID = 1, SPAN_ID = 2 };
	struct profile_wire w = profile_decode_entry_bytes(d, PROFILE_DECODE_LINK, index);
	struct profile_wire trace = {0}, span = {0};
	struct profile_wire_field f;
	int more;

	while ((more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == TRACE_ID)
			trace = f.bytes;
		else if (f.number == SPAN_ID)
			span = f.bytes;
	}
	if (more < 0 || profile_wire_left(&trace) != sizeof(ret->trace_id) ||
	    profile_wire_left(&span) != sizeof(ret->span_id))
		return profile_decode_bad(d, "a link is damaged");
	memcpy(ret->trace_id, trace.at, sizeof(ret->trace_id));
	memcpy(ret->span_id, span.at, sizeof(ret->span_id));
	return 0;
}

bool profile_decode_span_get(struct profile_decode *d, uint32_t index, struct profile_span *ret)
{
	return index && !link_parse(d, index, ret);
}

int64_t profile_decode_span(struct profile_decode *d, uint32_t index)
{
	struct profile_decode_entry *e = &d->tables[PROFILE_DECODE_LINK].entries[index];
	struct profile_span span;
	int64_t id;

	if (e->id)
		return e->id - 1;
	if (link_parse(d, index, &span))
		return -EBADMSG;
	id = profile_intern_add(&d->m->p->spans, &span, sizeof(span));
	if (id >= 0)
		e->id = (uint32_t)id + 1;
	return id;
}

/* ---------------------------------------------------------------- the whole */
int profile_decode_dictionary_check(struct profile_decode *d)
{
	int err = profile_decode_attributes_parse(d);

	for (uint32_t i = 1; i < d->tables[PROFILE_DECODE_MAPPING].count && !err; i++) {
		struct mapping m;

		err = mapping_parse(d, i, &m);
	}
	for (uint32_t i = 1; i < d->tables[PROFILE_DECODE_FUNCTION].count && !err; i++) {
		struct function f;

		err = function_parse(d, i, &f);
	}
	for (uint32_t i = 1; i < d->tables[PROFILE_DECODE_LOCATION].count && !err; i++) {
		struct location l;

		err = location_parse(d, i, &l);
		if (!err)
			pseudo_mark(d, i, &l);
	}
	for (uint32_t i = 1; i < d->tables[PROFILE_DECODE_LINK].count && !err; i++) {
		struct profile_span span;

		err = link_parse(d, i, &span);
	}
	for (uint32_t i = 1; i < d->tables[PROFILE_DECODE_STACK].count && !err; i++)
		err = stack_check(d, i);
	return err;
}

/* ---------------------------------------------------------------- filter */
/* "*" stands for any bytes; a name that holds one matches itself too. */
bool profile_decode_text_matches(const char *pattern, struct profile_wire text)
{
	const char *star = NULL;
	const uint8_t *retry = NULL;

	if (profile_decode_is_text(text, pattern))
		return true;
	while (text.at < text.end) {
		if (*pattern == '*') {
			star = ++pattern;
			retry = text.at;
		} else if (*pattern && (uint8_t)*pattern == *text.at) {
			pattern++;
			text.at++;
		} else if (star) {
			pattern = star;
			text.at = ++retry;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

static bool function_matches(struct profile_decode *d, const struct location *l)
{
	for (uint32_t i = 0; i < l->line_count; i++) {
		struct function f;

		if (!function_parse(d, l->lines[i].function, &f) &&
		    profile_decode_text_matches(d->m->filter.function,
						profile_decode_string(d, f.name)))
			return true;
	}
	return false;
}

static bool build_id_matches(struct profile_decode *d, const struct location *l)
{
	struct mapping m;

	return !mapping_parse(d, l->mapping, &m) && m.build_id &&
	       profile_decode_starts_with(d->attributes[m.build_id].text, d->m->filter.build_id);
}

static bool location_matches(struct profile_decode *d, uint32_t index)
{
	struct profile_decode_entry *e = &d->tables[PROFILE_DECODE_LOCATION].entries[index];
	const struct profile_filter *filter = &d->m->filter;
	struct location l;

	if (e->match == PROFILE_DECODE_NOT_ASKED) {
		bool matches = !location_parse(d, index, &l) &&
			       (!filter->function || function_matches(d, &l)) &&
			       (!filter->build_id || build_id_matches(d, &l));

		e->match = matches ? PROFILE_DECODE_YES : PROFILE_DECODE_NO;
	}
	return e->match == PROFILE_DECODE_YES;
}

bool profile_decode_stack_matches(struct profile_decode *d, uint32_t index)
{
	struct stack_walk walk = {.w = profile_decode_entry_bytes(d, PROFILE_DECODE_STACK, index)};
	uint32_t location = 0;

	if (!d->m->filter.function && !d->m->filter.build_id)
		return true;
	while (stack_next(d, &walk, &location) > 0) {
		if (location_matches(d, location))
			return true;
	}
	return false;
}
