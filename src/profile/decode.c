// SPDX-License-Identifier: Apache-2.0
/* decode: the samples of a request, and the profile that several requests are merged into. Fields
 * may come in any order, so what others depend on is looked for before they are walked. */
#include "decode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MAX (1UL << 30)

static bool is_same(struct profile_wire a, struct profile_wire b)
{
	size_t n = profile_wire_left(&a);

	return n == profile_wire_left(&b) && (!n || !memcmp(a.at, b.at, n));
}

/* ---------------------------------------------------------------- processes */
struct resource {
	struct profile_wire service, name, path, container, cgroup;
	uint64_t pid;
};

static int resource_attribute(struct profile_decode *d, struct profile_wire w, struct resource *r)
{
	enum { KEY = 1, VALUE = 2, KEY_INDEX = 3 };
	const struct {
		const char *key;
		struct profile_wire *text;
	} texts[] = {
		{"service.name", &r->service},	       {"process.executable.name", &r->name},
		{"process.executable.path", &r->path}, {"container.id", &r->container},
		{"process.linux.cgroup", &r->cgroup},
	};
	struct profile_decode_attribute a = {.key = PROFILE_DECODE_OTHER};
	struct profile_wire_field f;
	uint32_t key = 0;
	int more, err = 0;

	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == KEY && f.type == PROFILE_WIRE_BYTES)
			a.name = f.bytes;
		else if (f.number == VALUE && f.type == PROFILE_WIRE_BYTES)
			err = profile_decode_value(d, f.bytes, &a);
		else if (f.number == KEY_INDEX) {
			err = profile_decode_index(d, &f, PROFILE_DECODE_STRING, &key);
			if (!err)
				a.name = profile_decode_string(d, key);
		}
	}
	if (err || more < 0)
		return err ? err : profile_decode_bad(d, "a resource's attribute is damaged");
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (a.is_text && profile_decode_is_text(a.name, texts[i].key))
			*texts[i].text = a.text;
	}
	if (!a.is_number || !profile_decode_is_text(a.name, "process.pid"))
		return 0;
	if (a.number > UINT32_MAX)
		return profile_decode_bad(d, "a process's number is out of range");
	r->pid = a.number;
	return 0;
}

static int resource_parse(struct profile_decode *d, struct resource *ret)
{
	struct profile_wire w = d->resource;
	struct profile_wire_field f;
	int more, err = 0;

	memset(ret, 0, sizeof(*ret));
	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == 1 && f.type == PROFILE_WIRE_BYTES)
			err = resource_attribute(d, f.bytes, ret);
	}
	return err ? err : more < 0 ? profile_decode_bad(d, "a resource is damaged") : 0;
}

/* In the profile, its text; NULL: no room. */
static const char *text_of(struct profile *p, struct profile_wire text)
{
	int64_t id = profile_text_add(p, (const char *)text.at, profile_wire_left(&text));

	return id < 0 ? NULL : profile_text(p, (uint32_t)id);
}

/* Processes are told apart by all that is said of them. A service that is called like the program
 * did not name itself: the writer puts the name there (profile_otlp_head). */
static int64_t process_of(struct profile_decode *d)
{
	struct profile *p = d->m->p;
	struct profile_process process = {.pid = 0};
	struct profile_wire none = {0};
	struct resource r;
	int64_t id;

	if (d->process >= 0)
		return d->process;
	if (resource_parse(d, &r))
		return -EBADMSG;
	id = profile_intern_add(&d->m->resources, d->resource.at, profile_wire_left(&d->resource));
	if (id < 0)
		return id;
	if (is_same(r.service, r.name) || profile_decode_is_text(r.service, "[noname]"))
		r.service = none;
	process.pid = (uint32_t)r.pid;
	process.program = (uint64_t)id;
	process.comm = text_of(p, r.name);
	process.exe = text_of(p, r.path);
	process.container = text_of(p, r.container);
	process.cgroup = text_of(p, r.cgroup);
	process.service = text_of(p, r.service);
	if (!process.comm || !process.exe || !process.container || !process.cgroup ||
	    !process.service)
		return -ENOSPC;
	d->process = profile_process_add(p, &process);
	return d->process;
}

/* ---------------------------------------------------------------- filter */
static bool number_matches(const char *pattern, uint64_t number)
{
	uint64_t wanted;

	return !text_parse_u64(pattern, 0, UINT32_MAX, &wanted) && wanted == number;
}

static bool process_matches(const struct profile_filter *f, const struct resource *r)
{
	return (!f->service || profile_decode_text_matches(f->service, r->service)) &&
	       (!f->container || profile_decode_starts_with(r->container, f->container)) &&
	       (!f->process || number_matches(f->process, r->pid) ||
		profile_decode_text_matches(f->process, r->name));
}

/* ---------------------------------------------------------------- samples */
struct sample {
	uint64_t period_ns;
	uint32_t stack, link;
	uint32_t tid, name, cut; /* name: an attribute; 0: none */
	uint16_t fault;
	size_t times, values;
	uint32_t labels[PROFILE_ATTRIBUTES_MAX]; /* attributes of its span */
	size_t label_count;
};

/* What flyball does not know the thread said of its span. Left out, it would merge what it tells
 * apart (CTX-6). */
static int sample_label(struct profile_decode *d, uint32_t index, struct sample *s)
{
	const struct profile_decode_attribute *a = &d->attributes[index];
	char clean[80];

	if (!a->is_text) {
		text_print((const char *)a->name.at, profile_wire_left(&a->name), clean,
			   sizeof(clean));
		return why_set(d->why, -EOPNOTSUPP,
			       "the attribute \"%s\" of its samples is no text", clean);
	}
	for (size_t i = 0; i < s->label_count; i++) {
		if (is_same(a->name, d->attributes[s->labels[i]].name))
			return profile_decode_bad(d, "a sample has an attribute twice");
	}
	if (s->label_count == ARRAY_SIZE(s->labels))
		return why_set(d->why, -ERANGE, "a sample of more than %d attributes",
			       PROFILE_ATTRIBUTES_MAX);
	s->labels[s->label_count++] = index;
	return 0;
}

static int sample_attribute(struct profile_decode *d, uint32_t index, struct sample *s)
{
	const struct profile_decode_attribute *a = &d->attributes[index];

	switch (a->key) {
	case PROFILE_DECODE_THREAD_ID:
		s->tid = (uint32_t)a->number;
		return 0;
	case PROFILE_DECODE_THREAD_NAME:
		s->name = index;
		return 0;
	case PROFILE_DECODE_CUT:
		s->cut = (uint32_t)a->number;
		return 0;
	case PROFILE_DECODE_SPAN_FAULT:
		s->fault = (uint16_t)a->number;
		return 0;
	default:
		return sample_label(d, index, s);
	}
}

/* The next field of a sample into s: 1, 0 at the end. */
static int sample_field(struct profile_decode *d, struct profile_wire_field *f, struct sample *s)
{
	enum { STACK = 1, ATTRIBUTES, LINK, VALUES, TIMES };
	uint32_t attribute = 0;
	uint64_t number;
	int more = 0;

	switch (f->number) {
	case STACK:
		return profile_decode_index(d, f, PROFILE_DECODE_STACK, &s->stack);
	case LINK:
		return profile_decode_index(d, f, PROFILE_DECODE_LINK, &s->link);
	case ATTRIBUTES:
		while ((more = profile_decode_index_next(d, f, PROFILE_DECODE_ATTRIBUTE,
							 &attribute)) > 0) {
			more = sample_attribute(d, attribute, s);
			if (more)
				return more;
		}
		return more;
	case VALUES:
		while ((more = profile_wire_number(f, PROFILE_WIRE_VARINT, &number)) > 0) {
			s->values++;
			if (number != 1)
				return why_set(d->why, -EOPNOTSUPP,
					       "a sample stands for more than one");
		}
		return more < 0 ? profile_decode_bad(d, "a sample's values are damaged") : 0;
	case TIMES:
		while ((more = profile_wire_number(f, PROFILE_WIRE_FIXED64, &number)) > 0)
			s->times++;
		return more < 0 ? profile_decode_bad(d, "a sample's times are damaged") : 0;
	default:
		return 0;
	}
}

static int sample_parse(struct profile_decode *d, struct profile_wire w, struct sample *s)
{
	struct profile_wire_field f;
	int more, err = 0;

	while (!err && (more = profile_wire_next(&w, &f)) > 0)
		err = sample_field(d, &f, s);
	if (err || more < 0)
		return err ? err : profile_decode_bad(d, "a sample is damaged");
	if (s->values && s->values != s->times)
		return why_set(d->why, -EOPNOTSUPP, "samples without the time of each");
	return 0;
}

static bool sample_matches(struct profile_decode *d, const struct sample *s)
{
	const struct profile_filter *f = &d->m->filter;
	struct profile_wire name = {0};
	struct profile_span span;

	if (s->name)
		name = d->attributes[s->name].text;
	if (f->thread && !number_matches(f->thread, s->tid) &&
	    !profile_decode_text_matches(f->thread, name))
		return false;
	if (f->has_trace || f->has_span) {
		if (!profile_decode_span_get(d, s->link, &span))
			return false;
		if (f->has_trace &&
		    memcmp(span.trace_id, f->span.trace_id, sizeof(span.trace_id)) != 0)
			return false;
		if (f->has_span && memcmp(span.span_id, f->span.span_id, sizeof(span.span_id)) != 0)
			return false;
	}
	return profile_decode_stack_matches(d, s->stack);
}

/* The labels as a part of the key: 0 without any. */
static int labels_add(struct profile_decode *d, const struct sample *s, uint32_t *ret)
{
	struct profile_attribute_row rows[PROFILE_ATTRIBUTES_MAX];
	size_t count = s->label_count;
	int64_t id;

	*ret = 0;
	if (!count)
		return 0;
	for (size_t i = 0; i < count; i++) {
		int64_t name = profile_decode_attribute_key(d, s->labels[i]);
		int64_t value = profile_decode_attribute_text(d, s->labels[i]);

		if (name < 0 || value < 0)
			return name < 0 ? (int)name : (int)value;
		rows[i] = (struct profile_attribute_row){(uint32_t)name, (uint32_t)value};
	}
	id = profile_attributes_add(d->m->p, rows, &count);
	*ret = (uint32_t)(id + 1);
	return id < 0 ? (int)id : 0;
}

/* The sample's row in the model, or negative errno. */
static int64_t sample_row(struct profile_decode *d, const struct sample *s)
{
	struct profile_sample_key key = {
		.weight_ns = s->period_ns, .tid = s->tid, .cut = s->cut, .span_fault = s->fault};
	int64_t process = process_of(d), stack, span = 0, comm = 0;
	uint32_t depth_limit;
	int err;

	if (process < 0)
		return process;
	err = labels_add(d, s, &key.attributes);
	if (err)
		return err;
	stack = profile_decode_stack(d, s->stack, &depth_limit);
	if (stack >= 0 && s->link)
		span = profile_decode_span(d, s->link);
	if (s->name && !profile_decode_is_text(d->attributes[s->name].text, "[noname]"))
		comm = profile_decode_attribute_text(d, s->name);
	if (stack < 0 || span < 0 || comm < 0)
		return stack < 0 ? stack : span < 0 ? span : comm;
	key.process = (uint32_t)process;
	key.stack = (uint32_t)stack;
	key.comm = (uint32_t)comm;
	key.span = s->link ? (uint32_t)span + 1 : 0;
	if (key.cut)
		key.depth_limit = (uint16_t)depth_limit;
	return profile_sample_add_key(d->m->p, &key);
}

static bool is_in_time(const struct profile_filter *f, uint64_t time_ns)
{
	return time_ns >= f->start_ns && (!f->end_ns || time_ns < f->end_ns);
}

/* Pushes the sample's times that lie in the range; *ret is their number. */
static int sample_push(struct profile_decode *d, struct profile_wire w, const struct sample *s,
		       size_t *ret)
{
	struct profile_wire_field f;
	int64_t row = -1;
	uint64_t time_ns;
	int err = 0;

	while (profile_wire_next(&w, &f) > 0) {
		while (f.number == 5 &&
		       profile_wire_number(&f, PROFILE_WIRE_FIXED64, &time_ns) > 0) {
			if (!is_in_time(&d->m->filter, time_ns))
				continue;
			if (row < 0)
				row = sample_row(d, s);
			err = row < 0 ? (int)row
				      : profile_sample_push(d->m->p, (uint32_t)row, time_ns);
			if (err)
				return err;
			++*ret;
		}
	}
	return 0;
}

static int sample_walk(struct profile_decode *d, struct profile_wire w, uint64_t period_ns,
		       bool is_wanted)
{
	struct profile_merge_seen *seen = &d->m->seen;
	struct sample s;
	size_t pushed = 0;
	int err;

	memset(&s, 0, offsetof(struct sample, labels));
	s.period_ns = period_ns;
	s.label_count = 0;
	err = sample_parse(d, w, &s);

	if (err || !d->is_adding)
		return err;
	if (is_wanted && sample_matches(d, &s))
		err = sample_push(d, w, &s, &pushed);
	seen->samples += s.times;
	seen->weight_ns += s.times * period_ns;
	seen->left_out += s.times - pushed;
	seen->left_out_ns += (s.times - pushed) * period_ns;
	return err;
}

/* ---------------------------------------------------------------- profiles */
struct head {
	uint64_t time_ns, duration_ns, period_ns;
	struct profile_wire type[2], unit[2]; /* of the samples, of the period */
	bool has_samples;
};

static int type_parse(struct profile_decode *d, struct profile_wire w, struct profile_wire *type,
		      struct profile_wire *unit)
{
	struct profile_wire_field f;
	uint32_t index = 0;
	int more, err = 0;

	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number != 1 && f.number != 2)
			continue;
		err = profile_decode_index(d, &f, PROFILE_DECODE_STRING, &index);
		if (!err)
			*(f.number == 1 ? type : unit) = profile_decode_string(d, index);
	}
	return err ? err : more < 0 ? profile_decode_bad(d, "a type is damaged") : 0;
}

static int head_attributes(struct profile_decode *d, struct profile_wire_field *f)
{
	uint32_t index = 0;
	int more;

	while ((more = profile_decode_index_next(d, f, PROFILE_DECODE_ATTRIBUTE, &index)) > 0) {
		const struct profile_decode_attribute *a = &d->attributes[index];
		uint64_t *count = (uint64_t *)((char *)&d->m->run.ledger + a->offset);

		if (a->key != PROFILE_DECODE_LEDGER)
			continue;
		d->has_ledger = true;
		if (d->is_adding)
			*count += a->number;
	}
	return more;
}

static int head_parse(struct profile_decode *d, struct profile_wire w, struct head *h)
{
	enum {
		SAMPLE_TYPE = 1,
		SAMPLE = 2,
		TIME = 3,
		DURATION = 4,
		PERIOD_TYPE = 5,
		PERIOD = 6,
		ATTRIBUTES = 11
	};
	struct profile_wire_field f;
	int more, err = 0;

	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == SAMPLE_TYPE && f.type == PROFILE_WIRE_BYTES)
			err = type_parse(d, f.bytes, &h->type[0], &h->unit[0]);
		else if (f.number == PERIOD_TYPE && f.type == PROFILE_WIRE_BYTES)
			err = type_parse(d, f.bytes, &h->type[1], &h->unit[1]);
		else if (f.number == SAMPLE)
			h->has_samples = true;
		else if (f.number == TIME)
			h->time_ns = f.value;
		else if (f.number == DURATION)
			h->duration_ns = f.value;
		else if (f.number == PERIOD)
			h->period_ns = f.value;
		else if (f.number == ATTRIBUTES)
			err = head_attributes(d, &f);
	}
	return err ? err : more < 0 ? profile_decode_bad(d, "it is damaged") : 0;
}

static int head_check(struct profile_decode *d, const struct head *h)
{
	if (!h->has_samples)
		return 0;
	if (!profile_decode_is_text(h->type[0], "samples") ||
	    !profile_decode_is_text(h->unit[0], "count") ||
	    !profile_decode_is_text(h->type[1], "cpu") ||
	    !profile_decode_is_text(h->unit[1], "nanoseconds"))
		return why_set(d->why, -EOPNOTSUPP,
			       "it holds something else than samples of CPU time");
	if (!h->period_ns || h->period_ns > INT64_MAX)
		return profile_decode_bad(d, "its period is out of range");
	if (h->time_ns + h->duration_ns < h->time_ns)
		return profile_decode_bad(d, "its time is out of range");
	return 0;
}

/* The run grows to hold the window of the profile. */
static void run_widen(struct profile_merge *m, const struct head *h)
{
	uint64_t end = m->run.start_realtime_ns + m->run.duration_ns;
	uint64_t begin = h->time_ns, until = h->time_ns + h->duration_ns;

	if (!begin)
		return;
	if (m->filter.start_ns > begin)
		begin = m->filter.start_ns;
	if (m->filter.end_ns && m->filter.end_ns < until)
		until = m->filter.end_ns;
	if (begin >= until)
		return;
	if (!m->run.start_realtime_ns || begin < m->run.start_realtime_ns)
		m->run.start_realtime_ns = begin;
	m->run.duration_ns = (until > end ? until : end) - m->run.start_realtime_ns;
}

static int profile_walk(struct profile_decode *d, struct profile_wire w, bool is_wanted)
{
	struct head h = {.time_ns = 0};
	struct profile_wire_field f;
	int err = head_parse(d, w, &h);

	if (!err)
		err = head_check(d, &h);
	if (err)
		return err;
	if (d->is_adding) {
		run_widen(d->m, &h);
		if (!d->m->p->period_ns)
			d->m->p->period_ns = h.period_ns;
	}
	while (!err && profile_wire_next(&w, &f) > 0) {
		if (f.number == 2)
			err = sample_walk(d, f.bytes, h.period_ns, is_wanted);
	}
	return err;
}

static int scope_walk(struct profile_decode *d, struct profile_wire w, bool is_wanted)
{
	struct profile_wire_field f;
	int more, err = 0;

	while (!err && (more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == 2 && f.type == PROFILE_WIRE_BYTES)
			err = profile_walk(d, f.bytes, is_wanted);
	}
	return err ? err : more < 0 ? profile_decode_bad(d, "a scope is damaged") : 0;
}

static int resource_walk(struct profile_decode *d, struct profile_wire w)
{
	struct profile_wire scopes = w;
	struct profile_wire_field f;
	struct resource r;
	bool is_wanted;
	int more, err;

	d->process = -1;
	d->resource = (struct profile_wire){w.at, w.at};
	while ((more = profile_wire_next(&w, &f)) > 0) {
		if (f.number == 1 && f.type == PROFILE_WIRE_BYTES)
			d->resource = f.bytes;
	}
	if (more < 0)
		return profile_decode_bad(d, "a resource is damaged");
	err = resource_parse(d, &r);
	is_wanted = process_matches(&d->m->filter, &r);
	while (!err && profile_wire_next(&scopes, &f) > 0) {
		if (f.number == 2 && f.type == PROFILE_WIRE_BYTES)
			err = scope_walk(d, f.bytes, is_wanted);
	}
	return err;
}

/* ---------------------------------------------------------------- requests */
static int request_walk(struct profile_decode *d, struct profile_wire w)
{
	struct profile_wire_field f;
	int err = 0;

	while (!err && profile_wire_next(&w, &f) > 0) {
		if (f.number == 1 && f.type == PROFILE_WIRE_BYTES)
			err = resource_walk(d, f.bytes);
	}
	return err;
}

static int entry_note(struct profile_decode *d, const struct profile_wire_field *f)
{
	struct profile_decode_table *t;
	void *entries;
	int err;

	if (!f->number || f->number > PROFILE_DECODE_TABLES || f->type != PROFILE_WIRE_BYTES)
		return 0;
	t = &d->tables[f->number - 1];
	entries = t->entries;
	err = mem_grow(MEM_PROFILE, &entries, &t->cap, t->count + 1, INT32_MAX,
		       sizeof(*t->entries));
	t->entries = entries;
	if (err)
		return err;
	t->entries[t->count++] =
		(struct profile_decode_entry){.at = (uint32_t)(f->bytes.at - d->data),
					      .bytes = (uint32_t)profile_wire_left(&f->bytes)};
	return 0;
}

/* Notes where the entries of the dictionary lie. */
static int dictionary_note(struct profile_decode *d, struct profile_wire w)
{
	struct profile_wire_field f, entry;
	int more, inner, err = 0;

	while ((more = profile_wire_next(&w, &f)) > 0) {
		if (f.number != 2 || f.type != PROFILE_WIRE_BYTES)
			continue;
		while (!err && (inner = profile_wire_next(&f.bytes, &entry)) > 0)
			err = entry_note(d, &entry);
		if (err || inner < 0)
			return err ? err : profile_decode_bad(d, "its dictionary is damaged");
	}
	return more < 0 ? profile_decode_bad(d, "it is damaged") : 0;
}

/* What the filter left out was not asked for: it counts as filtered, so that delivered is what the
 * profile holds. */
static void ledger_put(struct profile_merge *m)
{
	const struct profile_merge_seen *seen = &m->seen;
	struct profile_run run = m->run;
	struct profile_ledger *l = &run.ledger;

	if (l->delivered >= seen->left_out && l->taken >= seen->left_out &&
	    l->delivered_ns >= seen->left_out_ns && l->taken_ns >= seen->left_out_ns) {
		l->filtered += seen->left_out;
		l->taken -= seen->left_out;
		l->delivered -= seen->left_out;
		l->taken_ns -= seen->left_out_ns;
		l->delivered_ns -= seen->left_out_ns;
	}
	profile_run_set(m->p, &run);
}

int profile_merge_add(struct profile_merge *m, const void *block, size_t bytes, struct why *why)
{
	struct profile_decode d = {.m = m, .data = block, .why = why};
	struct profile_wire w = {block, (const uint8_t *)block + bytes};
	int err;

	if (m->err)
		return why_set(why, m->err, "an earlier profile did not fit");
	if (bytes > BLOCK_MAX)
		return why_set(why, -ERANGE, "a profile of more than 1 GiB");
	err = dictionary_note(&d, w);
	if (!err)
		err = profile_decode_dictionary_check(&d);
	if (!err)
		err = request_walk(&d, w);
	if (!err) {
		d.is_adding = true;
		err = m->err = request_walk(&d, w);
		m->seen.blocks++;
		m->seen.without_ledger += !d.has_ledger;
		ledger_put(m);
		if (err)
			why_set(why, err,
				err == -ENOSPC ? "too much for the memory allowed: ask "
						 "for less, or merge fewer files"
					       : "out of memory");
	} else if (err == -ENOMEM) {
		why_set(why, err, "out of memory");
	}
	for (int i = 0; i < PROFILE_DECODE_TABLES; i++)
		mem_free(MEM_PROFILE, d.tables[i].entries);
	mem_free(MEM_PROFILE, d.attributes);
	return err;
}

int profile_merge_new(const struct profile_options *options, const struct profile_filter *filter,
		      struct profile_merge **ret)
{
	struct profile_merge *m = mem_alloc(MEM_PROFILE, sizeof(*m));
	int err = m ? profile_new(options, &m->p) : -ENOMEM;

	if (err) {
		mem_free(MEM_PROFILE, m);
		return err;
	}
	if (filter)
		m->filter = *filter;
	m->run = m->p->run;
	profile_intern_init(&m->resources, &m->p->budget);
	profile_intern_init(&m->files, &m->p->budget);
	profile_intern_init(&m->contents, &m->p->budget);
	*ret = m;
	return 0;
}

void profile_merge_free(struct profile_merge *m)
{
	if (!m)
		return;
	profile_intern_done(&m->resources);
	profile_intern_done(&m->files);
	profile_intern_done(&m->contents);
	mem_free(MEM_PROFILE, m->content_locations);
	profile_free(m->p);
	mem_free(MEM_PROFILE, m);
}

const struct profile *profile_merge_get(const struct profile_merge *m)
{
	return m->p;
}

void profile_merge_seen_get(const struct profile_merge *m, struct profile_merge_seen *ret)
{
	*ret = m->seen;
}
