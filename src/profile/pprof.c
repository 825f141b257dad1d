// SPDX-License-Identifier: Apache-2.0
/*
 * pprof: one gzip stream. Samples go out first, while the tables they name are gathered; then the
 * tables. Ids are positions in a table plus 1 and nothing relies on that (field case 60). Mapping,
 * location and function are interned without their id, which is put in front on the way out.
 */
#include "encode.h"
#include "frames.h"
#include "pprof.pb-c.h"
#include "writers.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <zconf.h>
#include <zlib.h>

#define LABELS_MAX   (10 + PROFILE_ATTRIBUTES_MAX)
#define COMMENTS_MAX (12 + 2 * FLY_DROP_COUNT + 2 * FLY_UNNAMED_COUNT)

enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE,
	PROFILE_MAPPING,
	PROFILE_LOCATION,
	PROFILE_FUNCTION,
	PROFILE_STRING_TABLE
};

/* Fields of Mapping from 7 on, in their order. */
enum { KNOWN_FUNCTIONS, KNOWN_FILES, KNOWN_LINES, KNOWN_INLINED, KNOWN_COUNT };

struct pprof {
	const struct profile *p;
	struct profile_out *out;
	struct profile_budget budget;
	struct strings *strings;
	struct profile_intern mappings, locations, functions;
	uint8_t *known; /* by mapping: 1 << KNOWN_x */
	size_t known_cap;
	uint32_t *location_ids; /* by location of the model; 0: not yet */
	uint64_t *limits;
	int err; /* of string() */
};

/* Index of a string. An error sticks in err, which is looked at before anything goes out. */
static int64_t string(struct pprof *w, const char *text)
{
	int64_t id = strings_add_str(w->strings, text);

	if (id < 0 && !w->err)
		w->err = (int)id;
	return id < 0 ? 0 : id;
}

static const char *build_id_text(const struct profile_file_row *file, char out[129])
{
	out[0] = 0;
	for (int i = 0; i < file->build_id_len; i++)
		snprintf(out + 2 * i, 3, "%02x", file->build_id[i]);
	return out;
}

static uint8_t known_of(const struct pprof *w, uint32_t location)
{
	struct profile_frame first;
	uint8_t known = 0;

	profile_location_frame(w->p, location, 0, &first);
	if (first.name[0])
		known |= 1U << KNOWN_FUNCTIONS;
	if (first.file[0])
		known |= 1U << KNOWN_FILES;
	if (first.line)
		known |= 1U << KNOWN_LINES;
	/* Where lines were read, so were inlined calls. */
	if (first.line || first.is_inlined)
		known |= 1U << KNOWN_INLINED;
	return known;
}

/* Mapping id of a location, 0 for none. */
static int64_t mapping_of(struct pprof *w, uint32_t location, const struct profile_place *place)
{
	const struct profile_file_row *file =
		&w->p->file_rows[profile_location_key(w->p, location)->file];
	Pprof__Mapping m = PPROF__MAPPING__INIT;
	void *flags = w->known;
	size_t before = w->mappings.count;
	char hex[129];
	int64_t id;
	int err = mem_grow(MEM_PROFILE, &flags, &w->known_cap, before + 1, INT32_MAX, 1);

	w->known = flags;
	if (err)
		return err;
	m.memory_start = place->start;
	m.memory_limit = place->limit;
	m.file_offset = place->offset;
	m.filename = string(w, profile_text(w->p, file->path));
	m.build_id = string(w, build_id_text(file, hex));
	id = profile_encode_intern(&w->mappings, &m.base);
	if (id < 0)
		return id;
	if (w->mappings.count > before)
		w->known[id] = 0;
	w->known[id] |= known_of(w, location);
	return id + 1;
}

static int64_t function_of(struct pprof *w, const char *name, const char *file)
{
	Pprof__Function f = PPROF__FUNCTION__INIT;
	int64_t id;

	f.name = f.system_name = string(w, name);
	f.filename = string(w, file);
	id = profile_encode_intern(&w->functions, &f.base);
	return id < 0 ? id : id + 1;
}

static int64_t location_add(struct pprof *w, int64_t mapping, uint64_t address,
			    const struct profile_frame *frames, size_t count)
{
	Pprof__Line rows[PROFILE_LINES_MAX], *lines[PROFILE_LINES_MAX];
	Pprof__Location l = PPROF__LOCATION__INIT;
	int64_t id;

	l.mapping_id = (uint64_t)mapping;
	l.address = address;
	l.line = lines;
	for (size_t i = 0; i < count && frames[i].name[0]; i++) {
		id = function_of(w, frames[i].name, frames[i].file);
		if (id < 0)
			return id;
		pprof__line__init(&rows[i]);
		rows[i].function_id = (uint64_t)id;
		rows[i].line = frames[i].line;
		lines[i] = &rows[i];
		l.n_line = i + 1;
	}
	id = profile_encode_intern(&w->locations, &l.base);
	return id < 0 ? id : id + 1;
}

static int64_t location_of(struct pprof *w, uint32_t location)
{
	struct profile_frame frames[PROFILE_LINES_MAX];
	char text[PROFILE_FRAME_TEXT];
	struct profile_place place;
	int64_t id = w->location_ids[location], mapping = 0;
	size_t count;

	if (id)
		return id;
	profile_location_place(w->p, location, w->limits, &place);
	if (place.has_mapping)
		mapping = mapping_of(w, location, &place);
	if (mapping < 0)
		return mapping;
	count = profile_location_chain(w->p, location, frames, text);
	id = location_add(w, mapping, place.address, frames, count);
	if (id > 0)
		w->location_ids[location] = (uint32_t)id;
	return id;
}

/* Leaf first, pseudo frames last. Returns how many, or negative errno. */
static int stack_of(struct pprof *w, const struct profile_sample_key *key,
		    uint64_t ids[PROFILE_STACK_MAX + PROFILE_PSEUDO_MAX])
{
	struct profile_pseudo pseudo;
	size_t pseudo_count = profile_pseudo_frames(w->p, key, &pseudo), frames, n = 0;
	const uint32_t *stack = profile_stack(w->p, key->stack, &frames);
	int64_t id = 0;

	for (size_t i = 0; i < frames && id >= 0; i++) {
		id = location_of(w, stack[i]);
		ids[n++] = (uint64_t)id;
	}
	for (size_t i = pseudo_count; i-- > 0 && id >= 0;) {
		id = location_add(w, 0, 0, &(struct profile_frame){pseudo.text[i], "", 0, false},
				  1);
		ids[n++] = (uint64_t)id;
	}
	return id < 0 ? (int)id : (int)n;
}

static void label(struct pprof *w, Pprof__Sample *s, const char *key, const char *text,
		  uint32_t number)
{
	Pprof__Label *l = s->label[s->n_label];

	if (text && !text[0])
		return;
	pprof__label__init(l);
	l->key = string(w, key);
	if (text)
		l->str = string(w, text);
	else
		l->num = number;
	s->n_label++;
}

static void label_hex(struct pprof *w, Pprof__Sample *s, const char *key, const uint8_t *bytes,
		      size_t count)
{
	char hex[33];

	for (size_t i = 0; i < count && i < sizeof(hex) / 2; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	label(w, s, key, hex, 0);
}

static void attribute_labels(struct pprof *w, const struct profile_sample_key *key,
			     Pprof__Sample *s)
{
	size_t count;
	const struct profile_attribute_row *rows = profile_attributes(w->p, key, &count);

	for (size_t i = 0; i < count; i++)
		label(w, s, profile_text(w->p, rows[i].key), profile_text(w->p, rows[i].value), 0);
}

static void labels_of(struct pprof *w, const struct profile_sample_key *key, Pprof__Sample *s)
{
	const struct profile_process_row *process = &w->p->process_rows[key->process];
	const char *comm = profile_text(w->p, key->comm);
	const struct profile_span *span = profile_span_of(w->p, key);
	char cut[PROFILE_CUT_TEXT];

	profile_cut_text(w->p, key, cut);
	label(w, s, "pid", NULL, profile_process_key(w->p, key->process)->pid);
	label(w, s, "tid", NULL, key->tid);
	label(w, s, "comm", comm[0] ? comm : "[noname]", 0);
	label(w, s, "exe", profile_text(w->p, process->exe), 0);
	label(w, s, "container", profile_text(w->p, process->container), 0);
	label(w, s, "cgroup", profile_text(w->p, process->cgroup), 0);
	label(w, s, "cut", cut, 0);
	if (span) {
		label_hex(w, s, "trace_id", span->trace_id, sizeof(span->trace_id));
		label_hex(w, s, "span_id", span->span_id, sizeof(span->span_id));
	}
	label(w, s, "span_fault", profile_span_fault_name((enum profile_span_fault)key->span_fault),
	      0);
	attribute_labels(w, key, s);
}

static int put_sample(struct pprof *w, uint32_t sample)
{
	const struct profile_sample_key *key = profile_sample_key(w->p, sample);
	uint64_t ids[PROFILE_STACK_MAX + PROFILE_PSEUDO_MAX];
	Pprof__Label labels[LABELS_MAX], *label_list[LABELS_MAX];
	Pprof__Sample s = PPROF__SAMPLE__INIT;
	int64_t values[2];
	int n = stack_of(w, key, ids);

	if (n < 0)
		return n;
	for (size_t i = 0; i < LABELS_MAX; i++)
		label_list[i] = &labels[i];
	values[0] = (int64_t)w->p->sample_rows[sample].count;
	values[1] = values[0] * (int64_t)key->weight_ns;
	s.n_location_id = (size_t)n;
	s.location_id = ids;
	s.n_value = ARRAY_SIZE(values);
	s.value = values;
	s.label = label_list;
	labels_of(w, key, &s);
	if (w->err)
		return w->err;
	profile_encode_field(w->out, PROFILE_SAMPLE, &s.base);
	return w->out->err;
}

/* The entries of a table with their ids. known: of mappings, by entry. */
static void put_table(struct pprof *w, unsigned int number, const struct profile_intern *table,
		      const uint8_t *known)
{
	for (uint32_t i = 0; i < table->count; i++) {
		unsigned char id[11] = {1 << 3}, flags[2 * KNOWN_COUNT];
		size_t flag_bytes = 0, bytes, id_bytes = 1 + profile_varint(i + 1, id + 1);
		const void *entry = profile_intern_get(table, i, &bytes);

		for (unsigned int k = 0; known && k < KNOWN_COUNT; k++) {
			if (!(known[i] >> k & 1))
				continue;
			flags[flag_bytes++] = (unsigned char)((7 + k) << 3);
			flags[flag_bytes++] = 1;
		}
		profile_out_field(w->out, number, id_bytes + bytes + flag_bytes);
		profile_out_bytes(w->out, id, id_bytes);
		profile_out_bytes(w->out, entry, bytes);
		profile_out_bytes(w->out, flags, flag_bytes);
	}
}

static int64_t comment(struct pprof *w, const char *key, const char *detail, uint64_t value)
{
	char text[128];

	snprintf(text, sizeof(text), "flyball.%s%s=%" PRIu64, key, detail, value);
	return string(w, text);
}

/* The ledger, and what of the model pprof has no field for. */
static size_t comments_of(struct pprof *w, int64_t ids[COMMENTS_MAX])
{
	const struct profile_ledger *l = &w->p->run.ledger;
	struct profile_totals totals;
	size_t n = 0;

	profile_totals_get(w->p, &totals);
	ids[n++] = string(w, "flyball " FLYBALL_VERSION);
	if (w->p->command_line)
		ids[n++] = string(w, profile_text(w->p, w->p->command_line));
	ids[n++] = comment(w, "ledger.", "ticks", l->ticks);
	ids[n++] = comment(w, "ledger.", "idle", l->idle);
	ids[n++] = comment(w, "ledger.", "filtered", l->filtered);
	ids[n++] = comment(w, "ledger.", "taken", l->taken);
	ids[n++] = comment(w, "ledger.", "taken_ns", l->taken_ns);
	ids[n++] = comment(w, "ledger.", "delivered", l->delivered);
	ids[n++] = comment(w, "ledger.", "delivered_ns", l->delivered_ns);
	for (int i = 0; i < FLY_DROP_COUNT; i++) {
		const char *name = profile_drop_name((enum fly_drop)i);

		ids[n++] = comment(w, "ledger.dropped.", name, l->dropped[i]);
		ids[n++] = comment(w, "ledger.dropped_ns.", name, l->dropped_ns[i]);
	}
	ids[n++] = comment(w, "ledger.", "missed_by_kernel", l->missed_by_kernel);
	for (int i = 1; i < FLY_UNNAMED_COUNT; i++) {
		if (totals.unnamed_samples[i])
			ids[n++] = comment(w, "unnamed.", profile_unnamed_name((enum fly_unnamed)i),
					   totals.unnamed_samples[i]);
		if (totals.unlined[i])
			ids[n++] = comment(w, "unlined.", profile_unnamed_name((enum fly_unnamed)i),
					   totals.unlined[i]);
	}
	return n;
}

static void put_types(struct pprof *w)
{
	Pprof__ValueType samples = PPROF__VALUE_TYPE__INIT, cpu = PPROF__VALUE_TYPE__INIT;

	samples.type = string(w, "samples");
	samples.unit = string(w, "count");
	cpu.type = string(w, "cpu");
	cpu.unit = string(w, "nanoseconds");
	profile_encode_field(w->out, PROFILE_SAMPLE_TYPE, &samples.base);
	profile_encode_field(w->out, PROFILE_SAMPLE_TYPE, &cpu.base);
}

static int put_rest(struct pprof *w)
{
	int64_t comments[COMMENTS_MAX];
	Pprof__Profile rest = PPROF__PROFILE__INIT;
	Pprof__ValueType cpu = PPROF__VALUE_TYPE__INIT;
	uint64_t start, duration, period = w->p->period_ns;

	if (!period)
		period = w->p->samples.count ? profile_sample_key(w->p, 0)->weight_ns : 1;
	put_table(w, PROFILE_MAPPING, &w->mappings, w->known);
	put_table(w, PROFILE_LOCATION, &w->locations, NULL);
	put_table(w, PROFILE_FUNCTION, &w->functions, NULL);
	profile_window(w->p, &start, &duration);
	cpu.type = string(w, "cpu");
	cpu.unit = string(w, "nanoseconds");
	rest.time_nanos = (int64_t)start;
	rest.duration_nanos = (int64_t)duration;
	rest.period_type = &cpu;
	rest.period = (int64_t)(period ? period : 1);
	rest.comment = comments;
	rest.n_comment = comments_of(w, comments);
	if (w->err)
		return w->err;
	for (uint32_t i = 0; i < strings_count(w->strings); i++) {
		const char *text = strings_get(w->strings, i);

		profile_out_field(w->out, PROFILE_STRING_TABLE, strlen(text));
		profile_out_str(w->out, text);
	}
	profile_encode_fields(w->out, &rest.base);
	return w->out->err;
}

/* pprof takes the first mapping for the main binary: the program of the heaviest process that has
 * frames in it. */
static int put_main_binary_first(struct pprof *w)
{
	const struct profile *p = w->p;
	uint64_t *weights = mem_array(MEM_PROFILE, p->processes.count, sizeof(*weights));
	uint32_t heaviest = 0, exe;

	if (!weights)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->samples.count; i++) {
		const struct profile_sample_key *key = profile_sample_key(p, i);

		weights[key->process] += key->weight_ns * p->sample_rows[i].count;
		if (p->process_rows[key->process].exe &&
		    (!p->process_rows[heaviest].exe || weights[key->process] > weights[heaviest]))
			heaviest = key->process;
	}
	mem_free(MEM_PROFILE, weights);
	exe = p->processes.count ? p->process_rows[heaviest].exe : 0;
	for (uint32_t i = 0; exe && i < p->locations.count; i++) {
		const struct profile_location_key *key = profile_location_key(p, i);
		struct profile_place place;

		if (p->file_rows[key->file].path != exe || key->kind == PROFILE_KERNEL)
			continue;
		profile_location_place(p, i, w->limits, &place);
		if (place.has_mapping) {
			int64_t id = mapping_of(w, i, &place);

			return id < 0 ? (int)id : 0;
		}
	}
	return 0;
}

static int put_all(struct pprof *w)
{
	int err = put_main_binary_first(w);

	put_types(w);
	for (uint32_t i = 0; i < w->p->samples.count && !err; i++)
		err = put_sample(w, i);
	return err ? err : put_rest(w);
}

static int write_plain(const struct profile *p, struct profile_out *out)
{
	struct pprof w = {.p = p, .out = out, .budget.max = SIZE_MAX};
	int err = strings_new(MEM_PROFILE, SIZE_MAX, &w.strings);

	if (err)
		return err;
	profile_intern_init(&w.mappings, &w.budget);
	profile_intern_init(&w.locations, &w.budget);
	profile_intern_init(&w.functions, &w.budget);
	w.limits = profile_file_limits(p);
	w.location_ids = mem_array(MEM_PROFILE, p->locations.count, sizeof(*w.location_ids));
	err = w.limits && w.location_ids ? put_all(&w) : -ENOMEM;
	mem_free(MEM_PROFILE, w.location_ids);
	mem_free(MEM_PROFILE, w.limits);
	mem_free(MEM_PROFILE, w.known);
	profile_intern_done(&w.mappings);
	profile_intern_done(&w.locations);
	profile_intern_done(&w.functions);
	strings_free(w.strings);
	return err;
}

/* ---------------------------------------------------------------- gzip */
struct gzip {
	z_stream z;
	struct profile_out *to;
};

static int deflate_some(struct gzip *gz, int flush)
{
	unsigned char chunk[4096];
	int status;

	do {
		gz->z.next_out = chunk;
		gz->z.avail_out = sizeof(chunk);
		status = deflate(&gz->z, flush);
		if (status == Z_STREAM_ERROR)
			return -EINVAL;
		profile_out_bytes(gz->to, chunk, sizeof(chunk) - gz->z.avail_out);
		if (gz->to->err)
			return gz->to->err;
	} while (!gz->z.avail_out);
	return 0;
}

static int gzip_sink(void *ctx, const void *data, size_t bytes)
{
	struct gzip *gz = ctx;

	gz->z.next_in = (Bytef *)data;
	gz->z.avail_in = (uInt)bytes;
	return deflate_some(gz, Z_NO_FLUSH);
}

static void *gzip_alloc(void *ctx, uInt count, uInt bytes)
{
	(void)ctx;
	return mem_array(MEM_PROFILE, count, bytes);
}

static void gzip_free(void *ctx, void *p)
{
	(void)ctx;
	mem_free(MEM_PROFILE, p);
}

int profile_write_pprof(const struct profile *p, struct profile_out *out)
{
	struct gzip gz = {.z.zalloc = gzip_alloc, .z.zfree = gzip_free, .to = out};
	struct profile_out *plain = mem_alloc(MEM_PROFILE, sizeof(*plain));
	int err, status;

	if (!plain)
		return -ENOMEM;
	/* 31: a gzip header, which zlib writes without a time of its own */
	status = deflateInit2(&gz.z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
	if (status != Z_OK) {
		mem_free(MEM_PROFILE, plain);
		return status == Z_MEM_ERROR ? -ENOMEM : -EINVAL;
	}
	profile_out_init(plain, gzip_sink, &gz);
	err = write_plain(p, plain);
	if (!err)
		err = profile_out_flush(plain);
	if (!err) {
		gz.z.avail_in = 0;
		err = deflate_some(&gz, Z_FINISH);
	}
	deflateEnd(&gz.z);
	mem_free(MEM_PROFILE, plain);
	return err;
}
