// SPDX-License-Identifier: Apache-2.0
/*
 * otlp_split: one pass over the samples. A sample is written into the request under way together
 * with what it newly refers to; when that makes the request too large, it is taken back, the
 * request goes out, and the sample begins the next one.
 */
#include "otlp_split.h"

#include "encode.h"
#include "otlp.h"

#include <errno.h>
#include <protobuf-c/protobuf-c.h>
#include <string.h>

#define SPLIT_REQUEST_MAX ((size_t)INT32_MAX)
#define SPLIT_NESTED_MAX  16 /* values in values */

/* Buffers, one inside the other; levels[n] is open when depth > n. */
enum { LEVEL_REQUEST, LEVEL_RESOURCE, LEVEL_SCOPE, LEVEL_PROFILE, LEVELS };
/* Field of the outer message; 1 is ExportProfilesServiceRequest.resource_profiles. */
static const unsigned int level_fields[LEVELS] = {0, 1, 2, 2};

struct split_table {
	int32_t *ids; /* of the request under way, by old index; 0: not in it */
	size_t old_count;
	uint32_t count;
	struct buf out; /* encoded entries, each a field of the dictionary */
};

struct split {
	const struct profile_split_options *options;
	profile_split_sink sink;
	void *ctx;
	int err; /* the first one sticks */
	const Otlp__ProfilesDictionary *d;
	/* Where in the old request: */
	const Otlp__ResourceProfiles *resource;
	const Otlp__ScopeProfiles *scope;
	const Otlp__Profile *profile;
	bool is_begun; /* a request has some of this profile */
	/* The request under way: */
	struct split_table tables[PROFILE_OTLP_TABLES];
	struct buf levels[LEVELS];
	size_t depth, pieces;
};

struct mark {
	size_t table_bytes[PROFILE_OTLP_TABLES], level_bytes[LEVELS], depth;
	uint32_t counts[PROFILE_OTLP_TABLES];
};

static void fail(struct split *s, int err)
{
	if (!s->err)
		s->err = err;
}

/* ------------------------------------------------------------------ encoding into buffers */

struct into_buf {
	ProtobufCBuffer base;
	struct buf *out;
};

static void append(ProtobufCBuffer *base, size_t bytes, const uint8_t *data)
{
	buf_add(((struct into_buf *)base)->out, data, bytes);
}

static void put_message(struct buf *out, const ProtobufCMessage *message)
{
	struct into_buf into = {.base.append = append, .out = out};

	protobuf_c_message_pack_to_buffer(message, &into.base);
}

static void put_head(struct buf *out, unsigned int number, size_t bytes)
{
	unsigned char head[11];

	head[0] = (unsigned char)(number << 3 | 2);
	buf_add(out, head, 1 + profile_varint(bytes, head + 1));
}

static void put_field(struct buf *out, unsigned int number, const ProtobufCMessage *message)
{
	put_head(out, number, protobuf_c_message_get_packed_size(message));
	put_message(out, message);
}

static void put_bytes(struct buf *out, unsigned int number, const void *data, size_t bytes)
{
	put_head(out, number, bytes);
	buf_add(out, data, bytes);
}

/* ------------------------------------------------------------------ the dictionary */

static int32_t keep(struct split *s, enum profile_otlp_table t, int32_t old);

/* New indices of a list; NULL when it is empty, and after an error. Caller frees. */
static int32_t *keep_list(struct split *s, enum profile_otlp_table t, const int32_t *old,
			  size_t count)
{
	int32_t *list = count ? mem_array(MEM_PROFILE, count, sizeof(*list)) : NULL;

	if (count && !list)
		fail(s, -ENOMEM);
	for (size_t i = 0; list && i < count; i++)
		list[i] = keep(s, t, old[i]);
	return list;
}

static void put_entry(struct split *s, enum profile_otlp_table t, const ProtobufCMessage *message)
{
	put_field(&s->tables[t].out, (unsigned int)t + 1, message);
}

static void put_mapping(struct split *s, const Otlp__Mapping *old)
{
	Otlp__Mapping m = *old;

	m.filename_strindex = keep(s, PROFILE_OTLP_STRING, old->filename_strindex);
	m.attribute_indices = keep_list(s, PROFILE_OTLP_ATTRIBUTE, old->attribute_indices,
					old->n_attribute_indices);
	if (!s->err)
		put_entry(s, PROFILE_OTLP_MAPPING, &m.base);
	mem_free(MEM_PROFILE, m.attribute_indices);
}

static void put_location(struct split *s, const Otlp__Location *old)
{
	Otlp__Location l = *old;
	Otlp__Line *rows, **lines;

	if (s->options->without_names && old->mapping_index)
		l.n_lines = 0;
	rows = mem_array(MEM_PROFILE, l.n_lines + 1, sizeof(*rows));
	lines = mem_array(MEM_PROFILE, l.n_lines + 1, sizeof(*lines));
	l.mapping_index = keep(s, PROFILE_OTLP_MAPPING, old->mapping_index);
	l.attribute_indices = keep_list(s, PROFILE_OTLP_ATTRIBUTE, old->attribute_indices,
					old->n_attribute_indices);
	if (!rows || !lines)
		fail(s, -ENOMEM);
	for (size_t i = 0; !s->err && i < l.n_lines; i++) {
		rows[i] = *old->lines[i];
		rows[i].function_index = keep(s, PROFILE_OTLP_FUNCTION, rows[i].function_index);
		lines[i] = &rows[i];
	}
	l.lines = lines;
	if (!s->err)
		put_entry(s, PROFILE_OTLP_LOCATION, &l.base);
	mem_free(MEM_PROFILE, l.attribute_indices);
	mem_free(MEM_PROFILE, lines);
	mem_free(MEM_PROFILE, rows);
}

static void put_function(struct split *s, const Otlp__Function *old)
{
	Otlp__Function f = *old;

	f.name_strindex = keep(s, PROFILE_OTLP_STRING, old->name_strindex);
	f.system_name_strindex = keep(s, PROFILE_OTLP_STRING, old->system_name_strindex);
	f.filename_strindex = keep(s, PROFILE_OTLP_STRING, old->filename_strindex);
	if (!s->err)
		put_entry(s, PROFILE_OTLP_FUNCTION, &f.base);
}

static void put_attribute(struct split *s, const Otlp__KeyValueAndUnit *old)
{
	Otlp__KeyValueAndUnit a = *old;

	a.key_strindex = keep(s, PROFILE_OTLP_STRING, old->key_strindex);
	a.unit_strindex = keep(s, PROFILE_OTLP_STRING, old->unit_strindex);
	if (!s->err)
		put_entry(s, PROFILE_OTLP_ATTRIBUTE, &a.base);
}

static void put_stack(struct split *s, const Otlp__Stack *old)
{
	Otlp__Stack stack = *old;

	stack.location_indices =
		keep_list(s, PROFILE_OTLP_LOCATION, old->location_indices, old->n_location_indices);
	if (!s->err)
		put_entry(s, PROFILE_OTLP_STACK, &stack.base);
	mem_free(MEM_PROFILE, stack.location_indices);
}

static void put_old(struct split *s, enum profile_otlp_table t, size_t old)
{
	const Otlp__ProfilesDictionary *d = s->d;

	switch (t) {
	case PROFILE_OTLP_MAPPING:
		put_mapping(s, d->mapping_table[old]);
		break;
	case PROFILE_OTLP_LOCATION:
		put_location(s, d->location_table[old]);
		break;
	case PROFILE_OTLP_FUNCTION:
		put_function(s, d->function_table[old]);
		break;
	case PROFILE_OTLP_LINK:
		put_entry(s, t, &d->link_table[old]->base);
		break;
	case PROFILE_OTLP_STRING:
		put_bytes(&s->tables[t].out, (unsigned int)t + 1, d->string_table[old],
			  strlen(d->string_table[old]));
		break;
	case PROFILE_OTLP_ATTRIBUTE:
		put_attribute(s, d->attribute_table[old]);
		break;
	case PROFILE_OTLP_STACK:
		put_stack(s, d->stack_table[old]);
		break;
	case PROFILE_OTLP_TABLES:
		break;
	}
}

/* The index in the request under way of an entry that it will have. */
static int32_t keep(struct split *s, enum profile_otlp_table t, int32_t old)
{
	struct split_table *table = &s->tables[t];

	if (!old || s->err)
		return 0;
	if (old < 0 || (size_t)old >= table->old_count) {
		fail(s, -EBADMSG);
		return 0;
	}
	if (!table->ids[old]) {
		put_old(s, t, (size_t)old);
		fail(s, table->out.err);
		table->ids[old] = (int32_t)table->count++;
	}
	return table->ids[old];
}

/* ------------------------------------------------------------------ the request under way */

static void part_begin(struct split *s)
{
	for (int t = 0; t < PROFILE_OTLP_TABLES; t++) {
		struct split_table *table = &s->tables[t];

		memset(table->ids, 0, (table->old_count + 1) * sizeof(*table->ids));
		buf_reset(&table->out);
		put_head(&table->out, (unsigned int)t + 1, 0); /* element 0: "not set" */
		table->count = 1;
	}
	buf_reset(&s->levels[LEVEL_REQUEST]);
	s->depth = 1;
	s->pieces = 0;
}

static void close_to(struct split *s, size_t depth)
{
	for (; s->depth > depth; s->depth--)
		put_bytes(&s->levels[s->depth - 2], level_fields[s->depth - 1],
			  s->levels[s->depth - 1].data, s->levels[s->depth - 1].len);
}

static size_t dictionary_bytes(const struct split *s)
{
	size_t bytes = 0;

	for (int t = 0; t < PROFILE_OTLP_TABLES; t++)
		bytes += s->tables[t].out.len;
	return bytes;
}

static size_t part_bytes(const struct split *s)
{
	size_t bytes = dictionary_bytes(s) + 6;

	for (size_t i = 0; i < s->depth; i++)
		bytes += s->levels[i].len + 6; /* tag and length, at most */
	return bytes;
}

static void part_end(struct split *s)
{
	struct buf *request = &s->levels[LEVEL_REQUEST];

	close_to(s, 1);
	put_head(request, 2, dictionary_bytes(s));
	for (int t = 0; t < PROFILE_OTLP_TABLES; t++)
		buf_add(request, s->tables[t].out.data, s->tables[t].out.len);
	for (int l = 0; l < LEVELS; l++)
		fail(s, s->levels[l].err);
	if (!s->err)
		fail(s, s->sink(s->ctx, request->data, request->len));
	part_begin(s);
}

static void open_profile(struct split *s)
{
	const Otlp__Profile *old = s->profile;
	Otlp__ValueType sample_type = OTLP__VALUE_TYPE__INIT, period_type = sample_type;
	Otlp__Profile p = *old;

	p.n_samples = 0;
	if (old->sample_type) {
		sample_type = *old->sample_type;
		p.sample_type = &sample_type;
	}
	if (old->period_type) {
		period_type = *old->period_type;
		p.period_type = &period_type;
	}
	sample_type.type_strindex = keep(s, PROFILE_OTLP_STRING, sample_type.type_strindex);
	sample_type.unit_strindex = keep(s, PROFILE_OTLP_STRING, sample_type.unit_strindex);
	period_type.type_strindex = keep(s, PROFILE_OTLP_STRING, period_type.type_strindex);
	period_type.unit_strindex = keep(s, PROFILE_OTLP_STRING, period_type.unit_strindex);
	if (s->is_begun) {
		p.n_attribute_indices = 0;
		p.dropped_attributes_count = 0;
		p.profile_id.len = 0;
		p.original_payload.len = 0;
		p.original_payload_format = (char *)protobuf_c_empty_string;
	}
	p.attribute_indices =
		keep_list(s, PROFILE_OTLP_ATTRIBUTE, p.attribute_indices, p.n_attribute_indices);
	if (!s->err)
		put_message(&s->levels[LEVEL_PROFILE], &p.base);
	mem_free(MEM_PROFILE, p.attribute_indices);
}

static void open_levels(struct split *s)
{
	Otlp__ResourceProfiles resource = *s->resource;
	Otlp__ScopeProfiles scope = *s->scope;

	resource.n_scope_profiles = 0;
	scope.n_profiles = 0;
	for (; s->depth < LEVELS; s->depth++) {
		buf_reset(&s->levels[s->depth]);
		if (s->depth == LEVEL_RESOURCE)
			put_message(&s->levels[LEVEL_RESOURCE], &resource.base);
		else if (s->depth == LEVEL_SCOPE)
			put_message(&s->levels[LEVEL_SCOPE], &scope.base);
		else
			open_profile(s);
	}
}

/* sample may be NULL: the Profile alone. */
static void put_piece(struct split *s, const Otlp__Sample *old)
{
	Otlp__Sample sample;

	open_levels(s);
	if (!old)
		return;
	sample = *old;
	sample.stack_index = keep(s, PROFILE_OTLP_STACK, old->stack_index);
	sample.link_index = keep(s, PROFILE_OTLP_LINK, old->link_index);
	sample.attribute_indices = keep_list(s, PROFILE_OTLP_ATTRIBUTE, old->attribute_indices,
					     old->n_attribute_indices);
	if (!s->err)
		put_field(&s->levels[LEVEL_PROFILE], 2, &sample.base);
	mem_free(MEM_PROFILE, sample.attribute_indices);
}

static void mark_set(const struct split *s, struct mark *m)
{
	for (int t = 0; t < PROFILE_OTLP_TABLES; t++) {
		m->table_bytes[t] = s->tables[t].out.len;
		m->counts[t] = s->tables[t].count;
	}
	for (int l = 0; l < LEVELS; l++)
		m->level_bytes[l] = s->levels[l].len;
	m->depth = s->depth;
}

/* The ids of what is taken back stay: only for a request that then goes out. */
static void mark_return(struct split *s, const struct mark *m)
{
	for (int t = 0; t < PROFILE_OTLP_TABLES; t++) {
		s->tables[t].out.len = m->table_bytes[t];
		s->tables[t].count = m->counts[t];
	}
	for (size_t l = 0; l < m->depth; l++)
		s->levels[l].len = m->level_bytes[l];
	s->depth = m->depth;
}

static void add_piece(struct split *s, const Otlp__Sample *sample)
{
	struct mark before;

	mark_set(s, &before);
	put_piece(s, sample);
	if (!s->err && s->pieces && part_bytes(s) > s->options->max_bytes) {
		mark_return(s, &before);
		part_end(s);
		put_piece(s, sample);
	}
	s->pieces++;
	s->is_begun = true;
}

/* A sample of one aggregated value cannot be cut. */
static void add_sample(struct split *s, const Otlp__Sample *sample)
{
	size_t most = s->options->max_bytes / 2 / (8 + 10), total = sample->n_timestamps_unix_nano;
	Otlp__Sample piece = *sample;

	most = most ? most : 1;
	if (total <= most || (sample->n_values && sample->n_values != total)) {
		add_piece(s, sample);
		return;
	}
	for (size_t at = 0; at < total && !s->err; at += most) {
		piece.n_timestamps_unix_nano = total - at < most ? total - at : most;
		piece.timestamps_unix_nano = sample->timestamps_unix_nano + at;
		if (sample->n_values) {
			piece.n_values = piece.n_timestamps_unix_nano;
			piece.values = sample->values + at;
		}
		add_piece(s, &piece);
	}
}

static void add_profile(struct split *s, const Otlp__Profile *profile)
{
	s->profile = profile;
	s->is_begun = false;
	close_to(s, LEVEL_PROFILE);
	if (!profile->n_samples)
		add_piece(s, NULL);
	for (size_t i = 0; i < profile->n_samples && !s->err; i++)
		add_sample(s, profile->samples[i]);
}

static void add_request(struct split *s, const Otlp__ExportProfilesServiceRequest *in)
{
	for (size_t r = 0; r < in->n_resource_profiles && !s->err; r++) {
		s->resource = in->resource_profiles[r];
		close_to(s, LEVEL_RESOURCE);
		for (size_t c = 0; c < s->resource->n_scope_profiles && !s->err; c++) {
			s->scope = s->resource->scope_profiles[c];
			close_to(s, LEVEL_SCOPE);
			for (size_t p = 0; p < s->scope->n_profiles && !s->err; p++)
				add_profile(s, s->scope->profiles[p]);
		}
	}
	if (s->pieces && !s->err)
		part_end(s);
}

/* ------------------------------------------------------------------ references in values
 *
 * Keys and values of resources may be references too. They become text: few receivers follow them.
 */
static int resolve(const Otlp__ProfilesDictionary *d, int32_t index, char **ret)
{
	char *copy;

	if (index < 0 || (size_t)index >= d->n_string_table)
		return -EBADMSG;
	copy = mem_copy_string(MEM_PROFILE, d->string_table[index]);
	if (!copy)
		return -ENOMEM;
	*ret = copy;
	return 0;
}

static int resolve_pairs(const Otlp__ProfilesDictionary *d, Otlp__KeyValue **pairs, size_t count,
			 int nested);

static int resolve_value(const Otlp__ProfilesDictionary *d, Otlp__AnyValue *value, int nested)
{
	Otlp__ArrayValue *array;
	int err = 0;

	if (!value)
		return 0;
	if (nested > SPLIT_NESTED_MAX)
		return -ERANGE;
	switch (value->value_case) {
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE_STRINDEX:
		err = resolve(d, value->string_value_strindex, &value->string_value);
		if (!err)
			value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
		return err;
	case OTLP__ANY_VALUE__VALUE_KVLIST_VALUE:
		return resolve_pairs(d, value->kvlist_value->values, value->kvlist_value->n_values,
				     nested + 1);
	case OTLP__ANY_VALUE__VALUE_ARRAY_VALUE:
		array = value->array_value;
		for (size_t i = 0; i < array->n_values && !err; i++)
			err = resolve_value(d, array->values[i], nested + 1);
		return err;
	default:
		return 0;
	}
}

static int resolve_pairs(const Otlp__ProfilesDictionary *d, Otlp__KeyValue **pairs, size_t count,
			 int nested)
{
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		if (pairs[i]->key_strindex) {
			if (pairs[i]->key[0])
				return -EBADMSG; /* one or the other */
			err = resolve(d, pairs[i]->key_strindex, &pairs[i]->key);
			pairs[i]->key_strindex = 0;
		}
		if (!err)
			err = resolve_value(d, pairs[i]->value, nested);
	}
	return err;
}

static int resolve_request(Otlp__ExportProfilesServiceRequest *in)
{
	const Otlp__ProfilesDictionary *d = in->dictionary;
	int err = 0;

	for (size_t i = 0; i < d->n_attribute_table && !err; i++)
		err = resolve_value(d, d->attribute_table[i]->value, 0);
	for (size_t r = 0; r < in->n_resource_profiles && !err; r++) {
		const Otlp__ResourceProfiles *rp = in->resource_profiles[r];

		if (rp->resource)
			err = resolve_pairs(d, rp->resource->attributes, rp->resource->n_attributes,
					    0);
		for (size_t c = 0; c < rp->n_scope_profiles && !err; c++) {
			const Otlp__InstrumentationScope *scope = rp->scope_profiles[c]->scope;

			if (scope)
				err = resolve_pairs(d, scope->attributes, scope->n_attributes, 0);
		}
	}
	return err;
}

/* ------------------------------------------------------------------ */

static int split_init(struct split *s, const Otlp__ProfilesDictionary *d)
{
	const size_t counts[PROFILE_OTLP_TABLES] = {
		d->n_mapping_table, d->n_location_table,  d->n_function_table, d->n_link_table,
		d->n_string_table,  d->n_attribute_table, d->n_stack_table};

	s->d = d;
	for (int l = 0; l < LEVELS; l++)
		buf_init(&s->levels[l], MEM_PROFILE, SPLIT_REQUEST_MAX);
	for (int t = 0; t < PROFILE_OTLP_TABLES; t++) {
		struct split_table *table = &s->tables[t];

		buf_init(&table->out, MEM_PROFILE, SPLIT_REQUEST_MAX);
		table->old_count = counts[t];
		table->ids = mem_array(MEM_PROFILE, counts[t] + 1, sizeof(*table->ids));
		if (!table->ids)
			return -ENOMEM;
	}
	part_begin(s);
	return 0;
}

static void split_done(struct split *s)
{
	for (int l = 0; l < LEVELS; l++)
		buf_done(&s->levels[l]);
	for (int t = 0; t < PROFILE_OTLP_TABLES; t++) {
		buf_done(&s->tables[t].out);
		mem_free(MEM_PROFILE, s->tables[t].ids);
	}
}

int profile_split(const void *data, size_t bytes, const struct profile_split_options *options,
		  profile_split_sink sink, void *ctx, struct why *why)
{
	struct split s = {.options = options, .sink = sink, .ctx = ctx};
	Otlp__ExportProfilesServiceRequest *in = otlp__export_profiles_service_request__unpack(
		&profile_encode_allocator, bytes, data);

	if (!in || !in->dictionary) {
		otlp__export_profiles_service_request__free_unpacked(in, &profile_encode_allocator);
		return why_set(why, -EBADMSG, "this is no OTLP export request of profiles");
	}
	s.err = resolve_request(in);
	if (!s.err)
		s.err = split_init(&s, in->dictionary);
	if (!s.err)
		add_request(&s, in);
	split_done(&s);
	otlp__export_profiles_service_request__free_unpacked(in, &profile_encode_allocator);
	if (s.err == -EBADMSG)
		return why_set(why, s.err, "the request points outside its dictionary");
	return s.err ? why_set(why, s.err, "the request cannot be split: %s", strerror(-s.err)) : 0;
}

static bool read_length(const unsigned char **p, const unsigned char *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; *p < end && shift < 64; shift += 7) {
		unsigned char byte = *(*p)++;

		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

bool profile_split_is_request(const void *data, size_t bytes)
{
	const unsigned char *p = data, *end = p + bytes;
	bool has_dictionary = false, has_profiles = false;
	uint64_t length;

	while (p < end) {
		unsigned char tag = *p++;

		if ((tag != (1 << 3 | 2) && tag != (2 << 3 | 2)) ||
		    !read_length(&p, end, &length) || length > (uint64_t)(end - p))
			return false;
		has_dictionary |= tag == (2 << 3 | 2);
		has_profiles |= tag == (1 << 3 | 2);
		p += length;
	}
	return has_dictionary && has_profiles;
}
