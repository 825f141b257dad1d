// SPDX-License-Identifier: Apache-2.0
/* model: interning and merging. Every add either takes effect as a whole or leaves the totals as
 * they were; a stack that was interned for a sample that then did not fit stays, unused. */
#include "model.h"

#include <errno.h>
#include <string.h>

#define DEFAULT_MAX_BYTES (512UL << 20)
#define TEXT_MAX	  8192 /* longest text kept: past PATH_MAX and SYMBOL_NAME_MAX */
#define FIXED_BYTES	  8192 /* of eight empty hash tables and the interner */
#define STRING_OVERHEAD	  48   /* what strings_bytes leaves out: malloc's header, by_id, buckets */

static size_t strings_cost(const struct profile *p)
{
	return strings_bytes(p->strings) + (size_t)strings_count(p->strings) * STRING_OVERHEAD;
}

/* Interns foreign text and moves its cost into the budget. */
int64_t profile_text_add(struct profile *p, const char *text, size_t len)
{
	size_t before = strings_cost(p);
	char clean[TEXT_MAX];
	int64_t id;

	if (!text || !len)
		return 0;
	len = text_print(text, len, clean, sizeof(clean));
	if (p->budget.used + len + 2 * STRING_OVERHEAD + 64 > p->budget.max)
		return -ENOSPC;
	id = strings_add(p->strings, clean, len);
	p->budget.used += strings_cost(p) - before;
	return id;
}

static int64_t text_add_str(struct profile *p, const char *text)
{
	return profile_text_add(p, text, text ? strlen(text) : 0);
}

/* Sets *id to the text if there is one. A text that finds no room leaves what was there. */
static void text_put(struct profile *p, uint32_t *id, const char *text)
{
	int64_t added = text_add_str(p, text);

	if (added > 0)
		*id = (uint32_t)added;
}

int profile_new(const struct profile_options *options, struct profile **ret)
{
	struct profile *p = mem_alloc(MEM_PROFILE, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->budget.max = options->max_bytes ? options->max_bytes : DEFAULT_MAX_BYTES;
	p->budget.used = sizeof(*p) + FIXED_BYTES;
	p->period_ns = options->period_ns;
	p->min_time_ns = UINT64_MAX;
	p->run.own_user_ns = p->run.own_system_ns = p->run.bpf_run_ns = -1;
	profile_intern_init(&p->processes, &p->budget);
	profile_intern_init(&p->files, &p->budget);
	profile_intern_init(&p->locations, &p->budget);
	profile_intern_init(&p->lines, &p->budget);
	profile_intern_init(&p->stacks, &p->budget);
	profile_intern_init(&p->spans, &p->budget);
	profile_intern_init(&p->attributes, &p->budget);
	profile_intern_init(&p->samples, &p->budget);
	err = strings_new(MEM_PROFILE, p->budget.max, &p->strings);
	if (err) {
		mem_free(MEM_PROFILE, p);
		return err;
	}
	text_put(p, &p->command_line, options->command_line);
	*ret = p;
	return 0;
}

void profile_free(struct profile *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->files.count; i++)
		mem_free(MEM_PROFILE, p->file_rows[i].segments);
	for (size_t i = 0; i < p->samples.count; i++)
		mem_free(MEM_PROFILE, p->sample_rows[i].deltas);
	mem_free(MEM_PROFILE, p->process_rows);
	mem_free(MEM_PROFILE, p->file_rows);
	mem_free(MEM_PROFILE, p->location_rows);
	mem_free(MEM_PROFILE, p->sample_rows);
	profile_intern_done(&p->processes);
	profile_intern_done(&p->files);
	profile_intern_done(&p->locations);
	profile_intern_done(&p->lines);
	profile_intern_done(&p->stacks);
	profile_intern_done(&p->spans);
	profile_intern_done(&p->attributes);
	profile_intern_done(&p->samples);
	strings_free(p->strings);
	mem_free(MEM_PROFILE, p);
}

/* Interns a key and sees to it that its row exists and is zeroed when the key is new. The row's
 * room is made first: nothing is to be undone when the key does not fit. Rows double, hence twice
 * their size is charged. */
static int64_t row_add(struct profile *p, struct profile_intern *keys, const void *key,
		       size_t key_bytes, void **rows, size_t *cap, size_t row_bytes)
{
	size_t before = keys->count;
	int64_t id;
	int err = mem_grow(MEM_PROFILE, rows, cap, before + 1, INT32_MAX, row_bytes);

	if (err)
		return err;
	id = profile_intern_add(keys, key, key_bytes);
	if (id < 0 || keys->count == before)
		return id;
	p->budget.used += 2 * row_bytes;
	memset((char *)*rows + (size_t)id * row_bytes, 0, row_bytes);
	return id;
}

#define ROW_ADD(p, keys, key, rows, cap)                                                           \
	({                                                                                         \
		void *rows_now = (p)->rows;                                                        \
		int64_t row_id = row_add(p, &(p)->keys, key, sizeof(*(key)), &rows_now, &(p)->cap, \
					 sizeof(*(p)->rows));                                      \
		(p)->rows = rows_now;                                                              \
		row_id;                                                                            \
	})

/* ---------------------------------------------------------------- processes */
int64_t profile_process_add(struct profile *p, const struct profile_process *process)
{
	const struct profile_process_key key = {
		.pid = process->pid, .start_ns = process->start_ns, .program = process->program};
	size_t before = p->processes.count;
	int64_t id = ROW_ADD(p, processes, &key, process_rows, process_cap);

	if (id >= 0 && p->processes.count > before)
		profile_process_update(p, (uint32_t)id, process);
	return id;
}

void profile_process_update(struct profile *p, uint32_t process, const struct profile_process *now)
{
	struct profile_process_row *row;

	if (process >= p->processes.count)
		return;
	row = &p->process_rows[process];
	text_put(p, &row->comm, now->comm);
	text_put(p, &row->exe, now->exe);
	text_put(p, &row->container, now->container);
	text_put(p, &row->cgroup, now->cgroup);
	text_put(p, &row->service, now->service);
}

/* ---------------------------------------------------------------- files */
int64_t profile_file_add(struct profile *p, const struct profile_file *file)
{
	size_t before = p->files.count;
	int64_t id = ROW_ADD(p, files, &file->key, file_rows, file_cap);

	if (id >= 0 && p->files.count > before)
		profile_file_update(p, (uint32_t)id, file);
	return id;
}

static void file_put_segments(struct profile *p, struct profile_file_row *row,
			      const struct profile_file *now)
{
	size_t count = now->segment_count, bytes;
	struct profile_segment *copy;

	if (!count || count > ARRAY_SIZE(now->segments))
		return;
	bytes = count * sizeof(*copy);
	if (count > row->segment_count) {
		if (profile_budget_take(&p->budget, bytes))
			return;
		copy = mem_resize(MEM_PROFILE, row->segments, bytes);
		if (!copy)
			return;
		row->segments = copy;
	}
	memcpy(row->segments, now->segments, bytes);
	row->segment_count = (uint32_t)count;
}

void profile_file_update(struct profile *p, uint32_t file, const struct profile_file *now)
{
	struct profile_file_row *row;

	if (file >= p->files.count)
		return;
	row = &p->file_rows[file];
	text_put(p, &row->path, now->path);
	if (now->build_id_len && now->build_id_len <= sizeof(row->build_id)) {
		row->build_id_len = now->build_id_len;
		memcpy(row->build_id, now->build_id, now->build_id_len);
	}
	if (now->has_htlhash) {
		row->has_htlhash = 1;
		memcpy(row->htlhash, now->htlhash, sizeof(row->htlhash));
	}
	file_put_segments(p, row, now);
}

/* ---------------------------------------------------------------- locations */
int64_t profile_location_add(struct profile *p, uint32_t file, uint64_t address,
			     enum profile_frame_kind kind)
{
	return profile_location_add_variant(p, file, address, kind, 0);
}

int64_t profile_location_add_variant(struct profile *p, uint32_t file, uint64_t address,
				     enum profile_frame_kind kind, uint32_t variant)
{
	const struct profile_location_key key = {.address = address,
						 .file = file,
						 .kind = kind & 15,
						 .variant = variant & (PROFILE_VARIANTS - 1)};

	return file < p->files.count && kind <= PROFILE_JIT ? profile_location_add_key(p, &key)
							    : -EINVAL;
}

int64_t profile_location_add_key(struct profile *p, const struct profile_location_key *key)
{
	return ROW_ADD(p, locations, key, location_rows, location_cap);
}

uint32_t profile_location_variant(const struct profile *p, uint32_t location)
{
	return location < p->locations.count ? profile_location_key(p, location)->variant : 0;
}

void profile_location_name(struct profile *p, uint32_t location, const char *name,
			   uint64_t symbol_start)
{
	struct profile_location_row *row;

	(void)symbol_start;
	if (location >= p->locations.count)
		return;
	row = &p->location_rows[location];
	row->is_answered = true;
	text_put(p, &row->name, name);
	row->unnamed = row->name ? FLY_UNNAMED_NONE : FLY_UNNAMED_NAMES_FULL;
}

void profile_location_unnamed(struct profile *p, uint32_t location, enum fly_unnamed reason)
{
	struct profile_location_row *row;

	if (location >= p->locations.count || reason >= FLY_UNNAMED_COUNT)
		return;
	row = &p->location_rows[location];
	row->is_answered = true;
	row->unnamed = (uint8_t)reason;
	row->name = 0;
}

/* False: there is no room for it. */
static bool line_row(struct profile *p, const struct profile_line *line, bool is_last,
		     struct profile_line_row *ret)
{
	int64_t function = is_last ? 0 : text_add_str(p, line->function);
	int64_t file = text_add_str(p, line->file);

	if (function < 0 || file < 0)
		return false;
	*ret = (struct profile_line_row){(uint32_t)function, (uint32_t)file, line->line};
	return true;
}

void profile_location_lines(struct profile *p, uint32_t location, const struct profile_line *lines,
			    size_t count)
{
	struct profile_line_row rows[PROFILE_LINES_MAX];
	struct profile_location_row *row;
	const char *function;
	size_t n = 0;
	int64_t id;

	if (location >= p->locations.count || !count)
		return;
	row = &p->location_rows[location];
	row->unlined = FLY_UNNAMED_NAMES_FULL;
	for (size_t i = 0; i + 1 < count && n + 1 < PROFILE_LINES_MAX; i++) {
		if (!lines[i].function || !lines[i].function[0])
			continue;
		if (!line_row(p, &lines[i], false, &rows[n++]))
			return;
	}
	if (!line_row(p, &lines[count - 1], true, &rows[n++]))
		return;
	id = profile_intern_add(&p->lines, rows, n * sizeof(rows[0]));
	if (id < 0)
		return;
	row->lines = (uint32_t)id + 1;
	row->unlined = FLY_UNNAMED_NONE;
	function = lines[count - 1].function;
	if (!row->name && function && function[0])
		profile_location_name(p, location, function, 0);
}

void profile_location_unlined(struct profile *p, uint32_t location, enum fly_unnamed reason)
{
	if (location < p->locations.count && reason < FLY_UNNAMED_COUNT &&
	    !p->location_rows[location].lines)
		p->location_rows[location].unlined = (uint8_t)reason;
}

int profile_locations_open(const struct profile *p, profile_location_visit visit, void *ctx)
{
	for (uint32_t i = 0; i < p->locations.count; i++) {
		const struct profile_location_key *key = profile_location_key(p, i);
		int err;

		if (p->location_rows[i].is_answered)
			continue;
		err = visit(ctx, i, key->file, key->address, (enum profile_frame_kind)key->kind);
		if (err)
			return err;
	}
	return 0;
}

/* ---------------------------------------------------------------- samples */
/* Timestamps at one rate lie about a period apart: four bytes each, and exact to the nanosecond. */
static int times_push(struct profile *p, struct profile_sample_row *row, uint64_t time_ns)
{
	int64_t delta = (int64_t)(time_ns - row->last_ns);
	uint64_t v = (uint64_t)delta << 1 ^ (delta < 0 ? UINT64_MAX : 0);
	uint8_t bytes[10];
	uint32_t n = 0;

	do {
		bytes[n] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
		n++;
	} while (v);
	if (row->delta_len + n > row->delta_cap) {
		uint32_t cap = row->delta_cap ? row->delta_cap + row->delta_cap / 2 + 10 : 16;
		uint32_t more = cap - row->delta_cap + (row->delta_cap ? 0 : 24);
		uint8_t *grown;
		int err = row->delta_cap > UINT32_MAX / 2 ? -ENOSPC
							  : profile_budget_take(&p->budget, more);

		if (err)
			return err;
		grown = mem_resize(MEM_PROFILE, row->deltas, cap);
		if (!grown) {
			p->budget.used -= more;
			return -ENOMEM;
		}
		row->deltas = grown;
		row->delta_cap = cap;
	}
	memcpy(row->deltas + row->delta_len, bytes, n);
	row->delta_len += n;
	row->last_ns = time_ns;
	return 0;
}

bool profile_times_next(struct profile_times *times, uint64_t *ret_ns)
{
	const struct profile_sample_row *row = times->row;
	unsigned int shift = 0;
	uint64_t v = 0;

	if (!times->is_begun) {
		times->is_begun = true;
		times->now = row->first_ns;
		*ret_ns = times->now;
		return row->count > 0;
	}
	if (times->at >= row->delta_len)
		return false;
	for (;;) {
		uint8_t byte = row->deltas[times->at++];

		v |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (byte < 0x80)
			break;
	}
	times->now += (v >> 1) ^ -(v & 1);
	*ret_ns = times->now;
	return true;
}

static bool sample_is_valid(const struct profile *p, const struct profile_sample *sample)
{
	if (sample->process >= p->processes.count || sample->location_count > PROFILE_STACK_MAX)
		return false;
	if (sample->attribute_count > PROFILE_ATTRIBUTES_MAX ||
	    sample->span_fault >= PROFILE_SPAN_FAULTS)
		return false;
	for (size_t i = 0; i < sample->location_count; i++) {
		if (sample->locations[i] >= p->locations.count)
			return false;
	}
	return true;
}

/* Labels and attributes that outputs have of their own; a process cannot pass for us. */
static bool is_own_key(const char *key)
{
	static const char *const own[] = {"pid",       "tid",	     "comm",	  "exe",
					  "container", "cgroup",     "cut",	  "trace_id",
					  "span_id",   "span_fault", "thread.id", "thread.name"};

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (!strcmp(key, own[i]))
			return true;
	return !strncmp(key, "flyball.", strlen("flyball."));
}

int64_t profile_attribute_key_add(struct profile *p, const char *key)
{
	char renamed[TEXT_MAX];

	if (!is_own_key(key))
		return text_add_str(p, key);
	snprintf(renamed, sizeof(renamed), "context.%s", key);
	return text_add_str(p, renamed);
}

/* By key, whatever the order they came in. Of two values for one key the first counts. Returns how
 * many are left. */
static size_t attributes_sort(struct profile_attribute_row *rows, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		const struct profile_attribute_row row = rows[i];
		size_t at = n;

		while (at > 0 && rows[at - 1].key > row.key)
			at--;
		if (at > 0 && rows[at - 1].key == row.key)
			continue;
		memmove(rows + at + 1, rows + at, (n - at) * sizeof(*rows));
		rows[at] = row;
		n++;
	}
	return n;
}

int64_t profile_attributes_add(struct profile *p, struct profile_attribute_row *rows, size_t *count)
{
	*count = attributes_sort(rows, *count);
	return profile_intern_add(&p->attributes, rows, *count * sizeof(*rows));
}

/* The span and its attributes, as parts of a key. */
static int span_add(struct profile *p, const struct profile_sample *sample,
		    struct profile_sample_key *key)
{
	struct profile_attribute_row rows[PROFILE_ATTRIBUTES_MAX];
	size_t count;
	int64_t id;

	if (sample->span) {
		id = profile_intern_add(&p->spans, sample->span, sizeof(*sample->span));
		if (id < 0)
			return (int)id;
		key->span = (uint32_t)id + 1;
	}
	if (!sample->attribute_count)
		return 0;
	for (size_t i = 0; i < sample->attribute_count; i++) {
		const struct profile_attribute *attribute = &sample->attributes[i];
		int64_t name = profile_attribute_key_add(p, attribute->key);
		int64_t value = profile_text_add(p, attribute->value, attribute->value_bytes);

		if (name < 0 || value < 0)
			return (int)(name < 0 ? name : value);
		rows[i] = (struct profile_attribute_row){(uint32_t)name, (uint32_t)value};
	}
	count = sample->attribute_count;
	id = profile_attributes_add(p, rows, &count);
	if (id < 0)
		return (int)id;
	if (count < sample->attribute_count && !key->span_fault)
		key->span_fault = PROFILE_SPAN_ATTRIBUTES_INVALID;
	key->attributes = (uint32_t)id + 1;
	return 0;
}

int profile_sample_add(struct profile *p, const struct profile_sample *sample)
{
	struct profile_sample_key key = {.weight_ns = sample->weight_ns,
					 .process = sample->process,
					 .tid = sample->tid,
					 .cut = sample->cut,
					 .depth_limit = sample->cut ? sample->depth_limit : 0,
					 .span_fault = (uint16_t)sample->span_fault};
	int64_t comm, stack, id;
	int err;

	if (!sample_is_valid(p, sample))
		return -EINVAL;
	if (sample->is_near_base && sample->cut & FLY_CUTS_OF_NEAR_BASE)
		key.cut |= PROFILE_NEAR_BASE;
	comm = profile_text_add(p, sample->comm, sample->comm ? strnlen(sample->comm, 16) : 0);
	if (comm < 0)
		return (int)comm;
	stack = profile_intern_add(&p->stacks, sample->locations,
				   sample->location_count * sizeof(*sample->locations));
	if (stack < 0)
		return (int)stack;
	err = span_add(p, sample, &key);
	if (err)
		return err;
	key.comm = (uint32_t)comm;
	key.stack = (uint32_t)stack;
	id = profile_sample_add_key(p, &key);
	return id < 0 ? (int)id : profile_sample_push(p, (uint32_t)id, sample->time_ns);
}

int64_t profile_sample_add_key(struct profile *p, const struct profile_sample_key *key)
{
	return ROW_ADD(p, samples, key, sample_rows, sample_cap);
}

int profile_sample_push(struct profile *p, uint32_t sample, uint64_t time_ns)
{
	struct profile_sample_row *row = &p->sample_rows[sample];
	int err = 0;

	if (row->count)
		err = times_push(p, row, time_ns);
	else
		row->first_ns = row->last_ns = time_ns;
	if (err)
		return err;
	row->count++;
	if (time_ns < p->min_time_ns)
		p->min_time_ns = time_ns;
	if (time_ns > p->max_time_ns)
		p->max_time_ns = time_ns;
	return 0;
}

const char *profile_span_fault_name(enum profile_span_fault fault)
{
	static const char *const names[PROFILE_SPAN_FAULTS] = {
		[PROFILE_SPAN_KNOWN] = "",
		[PROFILE_SPAN_PAGE_ABSENT] = "context_page_absent",
		[PROFILE_SPAN_INVALID] = "context_invalid",
		[PROFILE_SPAN_ATTRIBUTES_TRUNCATED] = "attributes_truncated",
		[PROFILE_SPAN_ATTRIBUTES_ABSENT] = "attributes_page_absent",
		[PROFILE_SPAN_ATTRIBUTES_INVALID] = "attributes_invalid",
	};

	return fault < ARRAY_SIZE(names) ? names[fault] : "";
}

/* ---------------------------------------------------------------- run */
void profile_run_set(struct profile *p, const struct profile_run *run)
{
	p->run = *run;
}

void profile_run_get(const struct profile *p, struct profile_run *ret)
{
	*ret = p->run;
}

void profile_window(const struct profile *p, uint64_t *ret_start_ns, uint64_t *ret_duration_ns)
{
	uint64_t start = p->run.start_realtime_ns, end;

	if (!start || p->min_time_ns < start)
		start = p->min_time_ns <= p->max_time_ns ? p->min_time_ns : start;
	if (!start)
		start = 1; /* pprof readers take 0 for unset */
	end = start + p->run.duration_ns;
	if (p->min_time_ns <= p->max_time_ns && p->max_time_ns >= end)
		end = p->max_time_ns + 1;
	if (end <= start)
		end = start + 1;
	*ret_start_ns = start;
	*ret_duration_ns = end - start;
}
