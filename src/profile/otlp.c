// SPDX-License-Identifier: Apache-2.0
/* otlp: the dictionary and the order of samples. Rules: OTLP profiles.proto 1.11, data-format.md:
 * element 0 of each table is empty, entries are unique, everything in a table is referenced. */
#include "otlp.h"
#include "frames.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Every helper below returns an index in its table, or a negative errno. */
static int64_t string(struct profile_otlp *o, const char *text)
{
	return profile_intern_add(&o->tables[PROFILE_OTLP_STRING], text, strlen(text));
}

static int64_t attribute(struct profile_otlp *o, const char *key, Otlp__AnyValue *value,
			 const char *unit)
{
	Otlp__KeyValueAndUnit a = OTLP__KEY_VALUE_AND_UNIT__INIT;
	int64_t key_id = string(o, key), unit_id = string(o, unit);

	if (key_id < 0 || unit_id < 0)
		return key_id < 0 ? key_id : unit_id;
	a.key_strindex = (int32_t)key_id;
	a.unit_strindex = (int32_t)unit_id;
	a.value = value;
	return profile_encode_intern(&o->tables[PROFILE_OTLP_ATTRIBUTE], &a.base);
}

static int64_t attribute_text(struct profile_otlp *o, const char *key, const char *text)
{
	Otlp__AnyValue value = OTLP__ANY_VALUE__INIT;

	value.value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	value.string_value = (char *)text;
	return attribute(o, key, &value, "");
}

static int64_t attribute_number(struct profile_otlp *o, const char *key, uint64_t number,
				const char *unit)
{
	Otlp__AnyValue value = OTLP__ANY_VALUE__INIT;

	value.value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
	value.int_value = (int64_t)number;
	return attribute(o, key, &value, unit);
}

static int64_t attribute_hex(struct profile_otlp *o, const char *key, const uint8_t *bytes,
			     size_t count)
{
	char hex[129];

	for (size_t i = 0; i < count; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	return attribute_text(o, key, hex);
}

/* A list under construction: the first error sticks. */
struct indices {
	int32_t ids[PROFILE_OTLP_SAMPLE_ATTRIBUTES];
	size_t count;
	int err;
};

static void put(struct indices *list, int64_t id)
{
	if (id < 0 && !list->err)
		list->err = (int)id;
	else if (id >= 0)
		list->ids[list->count++] = (int32_t)id;
}

/* A Mapping must say which binary it is by one id at least (specification, mappings.md): without
 * one there is none, and the location names its file by an attribute. */
static bool has_identity(const struct profile_file_row *file)
{
	return file->build_id_len || file->has_htlhash;
}

static int64_t mapping_of(struct profile_otlp *o, const struct profile_file_row *file,
			  const struct profile_place *place)
{
	Otlp__Mapping m = OTLP__MAPPING__INIT;
	struct indices attributes = {.count = 0};
	int64_t name = string(o, profile_text(o->p, file->path));

	if (file->build_id_len)
		put(&attributes, attribute_hex(o, "process.executable.build_id.gnu", file->build_id,
					       file->build_id_len));
	if (file->has_htlhash)
		put(&attributes, attribute_hex(o, "process.executable.build_id.htlhash",
					       file->htlhash, sizeof(file->htlhash)));
	if (name < 0 || attributes.err)
		return name < 0 ? name : attributes.err;
	m.memory_start = place->start;
	m.memory_limit = place->limit;
	m.file_offset = place->offset;
	m.filename_strindex = (int32_t)name;
	m.attribute_indices = attributes.ids;
	m.n_attribute_indices = attributes.count;
	return profile_encode_intern(&o->tables[PROFILE_OTLP_MAPPING], &m.base);
}

static int64_t function_of(struct profile_otlp *o, const char *name, const char *file)
{
	Otlp__Function f = OTLP__FUNCTION__INIT;
	int64_t id = string(o, name), file_id = string(o, file);

	if (id < 0 || file_id < 0)
		return id < 0 ? id : file_id;
	f.name_strindex = (int32_t)id;
	f.filename_strindex = (int32_t)file_id;
	return profile_encode_intern(&o->tables[PROFILE_OTLP_FUNCTION], &f.base);
}

static int64_t location_add(struct profile_otlp *o, const Otlp__Location *without_lines,
			    const struct profile_frame *frames, size_t count)
{
	Otlp__Line rows[PROFILE_LINES_MAX], *lines[PROFILE_LINES_MAX];
	Otlp__Location l = *without_lines;
	int64_t id;

	l.lines = lines;
	for (size_t i = 0; i < count && frames[i].name[0]; i++) {
		id = function_of(o, frames[i].name, frames[i].file);
		if (id < 0)
			return id;
		otlp__line__init(&rows[i]);
		rows[i].function_index = (int32_t)id;
		rows[i].line = frames[i].line;
		lines[i] = &rows[i];
		l.n_lines = i + 1;
	}
	return profile_encode_intern(&o->tables[PROFILE_OTLP_LOCATION], &l.base);
}

static int64_t location_of(struct profile_otlp *o, uint32_t location)
{
	const struct profile_location_key *key = profile_location_key(o->p, location);
	const struct profile_location_row *row = &o->p->location_rows[location];
	const struct profile_file_row *file = &o->p->file_rows[key->file];
	struct profile_frame frames[PROFILE_LINES_MAX];
	struct indices attributes = {.count = 0};
	Otlp__Location l = OTLP__LOCATION__INIT;
	char text[PROFILE_FRAME_TEXT];
	struct profile_place place;
	size_t count;
	int64_t id = o->location_ids[location], mapping = 0;

	if (id)
		return id;
	profile_location_place(o->p, location, o->limits, &place);
	if (place.has_mapping && has_identity(file))
		mapping = mapping_of(o, file, &place);
	else if (file->path)
		put(&attributes, attribute_text(o, "flyball.file", profile_text(o->p, file->path)));
	put(&attributes, attribute_text(o, "profile.frame.type",
					key->kind == PROFILE_KERNEL ? "kernel" : "native"));
	if (!row->name && row->unnamed)
		put(&attributes,
		    attribute_text(o, "flyball.unnamed_reason",
				   profile_unnamed_name((enum fly_unnamed)row->unnamed)));
	if (row->unlined)
		put(&attributes,
		    attribute_text(o, "flyball.unlined_reason",
				   profile_unnamed_name((enum fly_unnamed)row->unlined)));
	if (mapping < 0 || attributes.err)
		return mapping < 0 ? mapping : attributes.err;
	l.mapping_index = (int32_t)mapping;
	l.address = place.address;
	l.attribute_indices = attributes.ids;
	l.n_attribute_indices = attributes.count;
	count = profile_location_chain(o->p, location, frames, text);
	id = location_add(o, &l, frames, count);
	if (id > 0)
		o->location_ids[location] = (uint32_t)id;
	return id;
}

static int64_t stack_of(struct profile_otlp *o, const struct profile_sample_key *key)
{
	int32_t ids[PROFILE_STACK_MAX + PROFILE_PSEUDO_MAX];
	struct profile_pseudo pseudo;
	size_t pseudo_count = profile_pseudo_frames(o->p, key, &pseudo), frames;
	const uint32_t *stack = profile_stack(o->p, key->stack, &frames);
	Otlp__Stack s = OTLP__STACK__INIT;
	int64_t id = 0;

	s.location_indices = ids;
	for (size_t i = 0; i < frames && id >= 0; i++) {
		id = location_of(o, stack[i]);
		ids[s.n_location_indices++] = (int32_t)id;
	}
	for (size_t i = pseudo_count; i-- > 0 && id >= 0;) {
		Otlp__Location l = OTLP__LOCATION__INIT;

		id = location_add(o, &l, &(struct profile_frame){pseudo.text[i], "", 0, false}, 1);
		ids[s.n_location_indices++] = (int32_t)id;
	}
	return id < 0 ? id : profile_encode_intern(&o->tables[PROFILE_OTLP_STACK], &s.base);
}

static int64_t link_of(struct profile_otlp *o, const struct profile_sample_key *key)
{
	const struct profile_span *span = profile_span_of(o->p, key);
	Otlp__Link link = OTLP__LINK__INIT;

	if (!span)
		return 0;
	link.trace_id.len = sizeof(span->trace_id);
	link.trace_id.data = (uint8_t *)span->trace_id;
	link.span_id.len = sizeof(span->span_id);
	link.span_id.data = (uint8_t *)span->span_id;
	return profile_encode_intern(&o->tables[PROFILE_OTLP_LINK], &link.base);
}

static void put_attributes(struct profile_otlp *o, const struct profile_sample_key *key,
			   struct indices *list)
{
	size_t count;
	const struct profile_attribute_row *rows = profile_attributes(o->p, key, &count);

	for (size_t i = 0; i < count; i++)
		put(list, attribute_text(o, profile_text(o->p, rows[i].key),
					 profile_text(o->p, rows[i].value)));
}

static int gather_row(struct profile_otlp *o, uint32_t sample)
{
	const struct profile_sample_key *key = profile_sample_key(o->p, sample);
	struct profile_otlp_row *row = &o->rows[sample];
	const char *comm = profile_text(o->p, key->comm);
	struct indices attributes = {.count = 0};
	char cut[PROFILE_CUT_TEXT];
	const char *fault = profile_span_fault_name((enum profile_span_fault)key->span_fault);
	int64_t stack = stack_of(o, key), link = link_of(o, key), list;

	put(&attributes, attribute_number(o, "thread.id", key->tid, ""));
	put(&attributes, attribute_text(o, "thread.name", comm[0] ? comm : "[noname]"));
	profile_cut_text(o->p, key, cut);
	if (cut[0])
		put(&attributes, attribute_text(o, "flyball.cut", cut));
	if (fault[0])
		put(&attributes, attribute_text(o, "flyball.span_fault", fault));
	put_attributes(o, key, &attributes);
	if (stack < 0 || link < 0 || attributes.err)
		return stack < 0 ? (int)stack : link < 0 ? (int)link : attributes.err;
	list = profile_intern_add(&o->lists, attributes.ids,
				  attributes.count * sizeof(attributes.ids[0]));
	if (list < 0)
		return (int)list;
	row->period_ns = key->weight_ns;
	row->process = key->process;
	row->stack = (uint32_t)stack;
	row->link = (uint32_t)link;
	row->attributes = (uint32_t)list;
	row->sample = sample;
	return 0;
}

static int gather_types(struct profile_otlp *o)
{
	int64_t samples = string(o, "samples"), count = string(o, "count");
	int64_t cpu = string(o, "cpu"), nanoseconds = string(o, "nanoseconds");

	if (samples < 0 || count < 0 || cpu < 0 || nanoseconds < 0)
		return -ENOMEM;
	otlp__value_type__init(&o->sample_type);
	otlp__value_type__init(&o->period_type);
	o->sample_type.type_strindex = (int32_t)samples;
	o->sample_type.unit_strindex = (int32_t)count;
	o->period_type.type_strindex = (int32_t)cpu;
	o->period_type.unit_strindex = (int32_t)nanoseconds;
	return 0;
}

static int gather_ledger(struct profile_otlp *o)
{
	const struct profile_ledger *l = &o->p->run.ledger;
	const struct {
		const char *key, *unit;
		uint64_t value;
	} figures[] = {
		{"flyball.ledger.ticks", "", l->ticks},
		{"flyball.ledger.idle", "", l->idle},
		{"flyball.ledger.filtered", "", l->filtered},
		{"flyball.ledger.taken", "", l->taken},
		{"flyball.ledger.taken_ns", "ns", l->taken_ns},
		{"flyball.ledger.delivered", "", l->delivered},
		{"flyball.ledger.delivered_ns", "ns", l->delivered_ns},
		{"flyball.ledger.missed_by_kernel", "", l->missed_by_kernel},
	};
	size_t n = 0;
	int64_t id = 0;

	for (size_t i = 0; i < ARRAY_SIZE(figures) && id >= 0; i++) {
		id = attribute_number(o, figures[i].key, figures[i].value, figures[i].unit);
		o->ledger[n++] = (int32_t)id;
	}
	for (int i = 0; i < 2 * FLY_DROP_COUNT && id >= 0; i++) {
		bool is_ns = i & 1;
		enum fly_drop drop = (enum fly_drop)(i / 2);
		char key[96];

		snprintf(key, sizeof(key), "flyball.ledger.%s.%s", is_ns ? "dropped_ns" : "dropped",
			 profile_drop_name(drop));
		id = attribute_number(o, key, is_ns ? l->dropped_ns[drop] : l->dropped[drop],
				      is_ns ? "ns" : "");
		o->ledger[n++] = (int32_t)id;
	}
	return id < 0 ? (int)id : 0;
}

static int compare_rows(const void *left, const void *right)
{
	const struct profile_otlp_row *a = left, *b = right;

	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	if (a->period_ns != b->period_ns)
		return a->period_ns < b->period_ns ? -1 : 1;
	if (a->stack != b->stack)
		return a->stack < b->stack ? -1 : 1;
	if (a->link != b->link)
		return a->link < b->link ? -1 : 1;
	if (a->attributes != b->attributes)
		return a->attributes < b->attributes ? -1 : 1;
	return a->sample < b->sample ? -1 : 1;
}

static int gather(struct profile_otlp *o)
{
	int err = gather_types(o);

	if (!err)
		err = gather_ledger(o);
	for (uint32_t i = 0; i < o->row_count && !err; i++)
		err = gather_row(o, i);
	if (!err)
		qsort(o->rows, o->row_count, sizeof(*o->rows), compare_rows);
	return err;
}

int profile_otlp_init(struct profile_otlp *o, const struct profile *p)
{
	memset(o, 0, sizeof(*o));
	o->p = p;
	o->budget.max = SIZE_MAX;
	profile_intern_init(&o->lists, &o->budget);
	for (int i = 0; i < PROFILE_OTLP_TABLES; i++)
		profile_intern_init(&o->tables[i], &o->budget);
	for (int i = 0; i < PROFILE_OTLP_TABLES; i++) {
		int64_t id = profile_intern_add(&o->tables[i], NULL, 0);

		if (id < 0)
			return (int)id;
	}
	o->row_count = p->samples.count;
	o->rows = mem_array(MEM_PROFILE, o->row_count, sizeof(*o->rows));
	o->location_ids = mem_array(MEM_PROFILE, p->locations.count, sizeof(*o->location_ids));
	o->limits = profile_file_limits(p);
	return o->rows && o->location_ids && o->limits ? gather(o) : -ENOMEM;
}

void profile_otlp_done(struct profile_otlp *o)
{
	for (int i = 0; i < PROFILE_OTLP_TABLES; i++)
		profile_intern_done(&o->tables[i]);
	profile_intern_done(&o->lists);
	mem_free(MEM_PROFILE, o->rows);
	mem_free(MEM_PROFILE, o->location_ids);
	mem_free(MEM_PROFILE, o->limits);
	mem_free(MEM_PROFILE, o->times);
}

/* ---------------------------------------------------------------- walking */
size_t profile_otlp_run_end(const struct profile_otlp *o, size_t begin, enum profile_otlp_run run)
{
	const struct profile_otlp_row *first = &o->rows[begin];
	size_t end = begin;

	while (++end < o->row_count) {
		const struct profile_otlp_row *row = &o->rows[end];

		if (row->process != first->process)
			break;
		if (run >= PROFILE_OTLP_PERIOD && row->period_ns != first->period_ns)
			break;
		if (run >= PROFILE_OTLP_IDENTITY &&
		    (row->stack != first->stack || row->link != first->link ||
		     row->attributes != first->attributes))
			break;
	}
	return end;
}

void profile_otlp_profile(struct profile_otlp *o, size_t begin, Otlp__Profile *ret)
{
	otlp__profile__init(ret);
	ret->sample_type = &o->sample_type;
	ret->period_type = &o->period_type;
	ret->period = (int64_t)(o->row_count ? o->rows[begin].period_ns : o->p->period_ns);
	profile_window(o->p, &ret->time_unix_nano, &ret->duration_nano);
	if (!begin) {
		ret->attribute_indices = o->ledger;
		ret->n_attribute_indices = ARRAY_SIZE(o->ledger);
	}
}

int profile_otlp_sample(struct profile_otlp *o, size_t begin, size_t end, Otlp__Sample *ret)
{
	struct profile_otlp_row *first = &o->rows[begin];
	void *times = o->times;
	size_t want = 0;
	int err;

	for (size_t i = begin; i < end; i++)
		want += o->p->sample_rows[o->rows[i].sample].count;
	err = mem_grow(MEM_PROFILE, &times, &o->times_cap, want, SIZE_MAX, sizeof(*o->times));
	o->times = times;
	if (err)
		return err;
	otlp__sample__init(ret);
	ret->stack_index = (int32_t)first->stack;
	ret->link_index = (int32_t)first->link;
	ret->attribute_indices = (int32_t *)profile_intern_get(&o->lists, first->attributes,
							       &ret->n_attribute_indices);
	ret->n_attribute_indices /= sizeof(*ret->attribute_indices);
	ret->timestamps_unix_nano = o->times;
	for (size_t i = begin; i < end; i++) {
		struct profile_times walk = {.row = &o->p->sample_rows[o->rows[i].sample]};

		while (profile_times_next(&walk, &o->times[ret->n_timestamps_unix_nano]))
			ret->n_timestamps_unix_nano++;
	}
	return 0;
}

static Otlp__AnyValue *pair(struct profile_otlp_head *head, const char *key)
{
	size_t n = head->resource.n_attributes++;
	Otlp__KeyValue *kv = &head->pairs[n];

	otlp__key_value__init(kv);
	otlp__any_value__init(&head->values[n]);
	kv->key = (char *)key;
	kv->value = &head->values[n];
	head->pair_list[n] = kv;
	return kv->value;
}

static void pair_text(struct profile_otlp_head *head, const char *key, const char *text)
{
	Otlp__AnyValue *value;

	if (!text[0])
		return;
	value = pair(head, key);
	value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	value->string_value = (char *)text;
}

void profile_otlp_head(const struct profile_otlp *o, size_t begin, struct profile_otlp_head *ret)
{
	const struct profile_process_row *row;
	const char *exe, *comm, *name, *service;
	Otlp__AnyValue *pid;
	uint32_t process;

	otlp__resource__init(&ret->resource);
	otlp__instrumentation_scope__init(&ret->scope);
	ret->resource.attributes = ret->pair_list;
	ret->scope.name = (char *)"flyball";
	ret->scope.version = (char *)FLYBALL_VERSION;
	if (!o->row_count) {
		pair_text(ret, "service.name", "flyball");
		return;
	}
	process = o->rows[begin].process;
	row = &o->p->process_rows[process];
	exe = profile_text(o->p, row->exe);
	comm = profile_text(o->p, row->comm);
	name = exe[0] ? profile_basename(exe) : comm;
	service = profile_text(o->p, row->service);
	pair_text(ret, "service.name", service[0] ? service : name[0] ? name : "[noname]");
	pid = pair(ret, "process.pid");
	pid->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
	pid->int_value = profile_process_key(o->p, process)->pid;
	pair_text(ret, "process.executable.name", name);
	pair_text(ret, "process.executable.path", exe);
	pair_text(ret, "container.id", profile_text(o->p, row->container));
	pair_text(ret, "process.linux.cgroup", profile_text(o->p, row->cgroup));
}
