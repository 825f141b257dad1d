// SPDX-License-Identifier: Apache-2.0
/* html: the page's template with the profile as JSON in the place of its marker. Samples that look
 * alike to a reader (process, thread, frames by name, flags) are one entry. */
#include "frames.h"
#include "writers.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MARKER	   "@FLYBALL_DATA@"
#define HEAD_PARTS 4 /* process, tid, comm, flags stand before the frames */

struct frame {
	uint32_t name, module, kind;
};

struct weight {
	uint64_t ns, count;
};

struct html {
	const struct profile *p;
	struct profile_out *out;
	struct profile_budget budget;
	struct strings *strings;
	struct profile_intern frames;	 /* struct frame */
	struct profile_intern processes; /* id in the model */
	struct profile_intern samples;	 /* head, then frames, outermost first */
	struct weight *weights;		 /* by sample */
	size_t weight_cap;
	uint32_t *frame_of_location; /* frame + 1; 0: not yet */
};

static int64_t frame_add(struct html *h, const char *name, const char *module, uint32_t kind)
{
	int64_t name_id = strings_add_str(h->strings, name);
	int64_t module_id = strings_add_str(h->strings, module);
	struct frame frame = {.kind = kind};

	if (name_id < 0 || module_id < 0)
		return name_id < 0 ? name_id : module_id;
	frame.name = (uint32_t)name_id;
	frame.module = (uint32_t)module_id;
	return profile_intern_add(&h->frames, &frame, sizeof(frame));
}

static int64_t frame_of_location(struct html *h, uint32_t location)
{
	char text[PROFILE_FRAME_TEXT];
	int64_t id = h->frame_of_location[location];

	if (id)
		return id - 1;
	id = frame_add(h, profile_location_text(h->p, location, text),
		       profile_location_module(h->p, location),
		       profile_location_key(h->p, location)->kind);
	if (id >= 0)
		h->frame_of_location[location] = (uint32_t)id + 1;
	return id;
}

/* The frames of one location, outermost first. Returns how many, or negative errno. */
static int64_t location_parts(struct html *h, uint32_t location, uint32_t *parts)
{
	size_t count = profile_location_frames(h->p, location), n = 0;
	int64_t id = frame_of_location(h, location);

	if (id >= 0)
		parts[n++] = (uint32_t)id;
	for (size_t i = count - 1; i-- > 0 && id >= 0;) {
		struct profile_frame frame;

		profile_location_frame(h->p, location, i, &frame);
		id = frame_add(h, frame.name, profile_location_module(h->p, location),
			       PROFILE_INLINED);
		parts[n++] = (uint32_t)id;
	}
	return id < 0 ? id : (int64_t)n;
}

static int head_of(struct html *h, const struct profile_sample_key *key, uint32_t head[HEAD_PARTS])
{
	const char *comm = profile_text(h->p, key->comm);
	char cut[PROFILE_CUT_TEXT];
	int64_t process = profile_intern_add(&h->processes, &key->process, sizeof(key->process));
	int64_t comm_id = strings_add_str(h->strings, comm[0] ? comm : "[noname]"), flags;

	profile_cut_text(h->p, key, cut);
	flags = strings_add_str(h->strings, cut);
	if (process < 0 || comm_id < 0 || flags < 0)
		return -ENOMEM;
	head[0] = (uint32_t)process;
	head[1] = key->tid;
	head[2] = (uint32_t)comm_id;
	head[3] = (uint32_t)flags;
	return 0;
}

/* Returns how many parts, or negative errno. */
static int parts_of(struct html *h, const struct profile_sample_key *key, uint32_t *parts)
{
	struct profile_pseudo pseudo;
	size_t pseudo_count = profile_pseudo_frames(h->p, key, &pseudo), frames, n = HEAD_PARTS;
	const uint32_t *stack = profile_stack(h->p, key->stack, &frames);
	int64_t id = head_of(h, key, parts);

	for (size_t i = 0; i < pseudo_count && id >= 0; i++) {
		id = frame_add(h, pseudo.text[i], "", PROFILE_FRAME_PSEUDO);
		parts[n++] = (uint32_t)id;
	}
	for (size_t i = frames; i-- > 0 && id >= 0;) {
		id = location_parts(h, stack[i], parts + n);
		n += id < 0 ? 0 : (size_t)id;
	}
	return id < 0 ? (int)id : (int)n;
}

static int gather_sample(struct html *h, uint32_t sample)
{
	const struct profile_sample_key *key = profile_sample_key(h->p, sample);
	uint32_t parts[HEAD_PARTS + PROFILE_PSEUDO_MAX + PROFILE_STACK_MAX * PROFILE_LINES_MAX];
	uint64_t count = h->p->sample_rows[sample].count;
	size_t before = h->samples.count;
	void *weights = h->weights;
	int n = parts_of(h, key, parts), err;
	int64_t id;

	if (n < 0)
		return n;
	err = mem_grow(MEM_PROFILE, &weights, &h->weight_cap, before + 1, INT32_MAX,
		       sizeof(*h->weights));
	h->weights = weights;
	if (err)
		return err;
	id = profile_intern_add(&h->samples, parts, (size_t)n * sizeof(parts[0]));
	if (id < 0)
		return (int)id;
	if (h->samples.count > before)
		memset(&h->weights[id], 0, sizeof(h->weights[id]));
	h->weights[id].ns += count * key->weight_ns;
	h->weights[id].count += count;
	return 0;
}

static void put_cost(struct html *h, const char *key, int64_t ns, const char *end)
{
	if (ns < 0)
		profile_out_f(h->out, "\"%s\":null%s", key, end);
	else
		profile_out_f(h->out, "\"%s\":%" PRId64 "%s", key, ns, end);
}

static void put_run(struct html *h)
{
	const struct profile_run *run = &h->p->run;
	const struct profile_ledger *l = &run->ledger;
	const char *title = profile_text(h->p, h->p->command_line);
	struct profile_totals totals;
	uint64_t start, duration;

	profile_window(h->p, &start, &duration);
	profile_totals_get(h->p, &totals);
	profile_out_str(h->out, "{\"version\":1,\"title\":");
	profile_json_string(h->out, title[0] ? title : "flyball");
	profile_out_str(h->out, ",\"kind\":\"on_cpu\",\"unit\":\"nanoseconds\"");
	profile_out_f(h->out,
		      ",\"time_unix_nano\":\"%" PRIu64 "\",\"duration_ns\":%" PRIu64
		      ",\"cpus\":%" PRIu32 ",\"hz\":%" PRIu32,
		      start, duration, run->cpus, run->hz);
	profile_out_f(h->out,
		      ",\"ledger\":{\"taken\":%" PRIu64 ",\"delivered\":%" PRIu64 ",\"dropped\":{",
		      l->taken, l->delivered);
	for (int i = 0; i < FLY_DROP_COUNT; i++)
		profile_out_f(h->out, "%s\"%s\":%" PRIu64, i ? "," : "",
			      profile_drop_name((enum fly_drop)i), l->dropped[i]);
	profile_out_f(h->out, "},\"weight_ns\":%" PRIu64 ",\"missed_by_kernel\":%" PRIu64 "}",
		      totals.weight_ns, l->missed_by_kernel);
	profile_out_str(h->out, ",\"cost\":{");
	put_cost(h, "own_user_ns", run->own_user_ns, ",");
	put_cost(h, "own_system_ns", run->own_system_ns, ",");
	put_cost(h, "bpf_run_ns", run->bpf_run_ns, "}");
}

static void put_reasons(struct html *h)
{
	const struct profile_reason *reason;

	profile_out_str(h->out, ",\"reasons\":{");
	for (size_t i = 0; (reason = profile_reason_get(i)); i++) {
		if (i)
			profile_out_char(h->out, ',');
		profile_json_string(h->out, reason->name);
		profile_out_char(h->out, ':');
		profile_json_string(h->out, reason->text);
	}
	profile_out_char(h->out, '}');
}

static int put_processes(struct html *h)
{
	profile_out_str(h->out, ",\"processes\":[");
	for (uint32_t i = 0; i < h->processes.count; i++) {
		uint32_t id = *(const uint32_t *)profile_intern_get(&h->processes, i, NULL);
		const struct profile_process_row *row = &h->p->process_rows[id];
		int64_t comm = strings_add_str(h->strings, profile_text(h->p, row->comm));
		int64_t exe = strings_add_str(h->strings, profile_text(h->p, row->exe));
		int64_t container = strings_add_str(h->strings, profile_text(h->p, row->container));

		if (comm < 0 || exe < 0 || container < 0)
			return -ENOMEM;
		profile_out_f(h->out, "%s[%" PRIu32 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]",
			      i ? "," : "", profile_process_key(h->p, id)->pid, comm, exe,
			      container);
	}
	profile_out_char(h->out, ']');
	return 0;
}

static void put_samples(struct html *h)
{
	profile_out_str(h->out, ",\"samples\":[");
	for (uint32_t i = 0; i < h->samples.count; i++) {
		size_t bytes;
		const uint32_t *parts = profile_intern_get(&h->samples, i, &bytes);

		profile_out_f(h->out, "%s[%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",[", i ? "," : "",
			      parts[0], parts[1], parts[2]);
		for (size_t k = HEAD_PARTS; k < bytes / sizeof(*parts); k++)
			profile_out_f(h->out, "%s%" PRIu32, k > HEAD_PARTS ? "," : "", parts[k]);
		profile_out_f(h->out, "],%" PRIu64 ",%" PRIu64 ",%" PRIu32 "]", h->weights[i].ns,
			      h->weights[i].count, parts[3]);
	}
	profile_out_char(h->out, ']');
}

static void put_tables(struct html *h)
{
	profile_out_str(h->out, ",\"frames\":[");
	for (uint32_t i = 0; i < h->frames.count; i++) {
		const struct frame *f = profile_intern_get(&h->frames, i, NULL);

		profile_out_f(h->out, "%s[%" PRIu32 ",%" PRIu32 ",%" PRIu32 "]", i ? "," : "",
			      f->name, f->module, f->kind);
	}
	profile_out_str(h->out, "],\"strings\":[");
	for (uint32_t i = 0; i < strings_count(h->strings); i++) {
		if (i)
			profile_out_char(h->out, ',');
		profile_json_string(h->out, strings_get(h->strings, i));
	}
	profile_out_str(h->out, "]}");
}

static int put_data(struct html *h)
{
	int err;

	for (uint32_t i = 0; i < h->p->samples.count; i++) {
		err = gather_sample(h, i);
		if (err)
			return err;
	}
	put_run(h);
	put_reasons(h);
	err = put_processes(h);
	if (err)
		return err;
	put_samples(h);
	put_tables(h);
	return h->out->err;
}

static int write_data(const struct profile *p, struct profile_out *out)
{
	struct html h = {.p = p, .out = out, .budget.max = SIZE_MAX};
	int err = strings_new(MEM_PROFILE, SIZE_MAX, &h.strings);

	if (err)
		return err;
	profile_intern_init(&h.frames, &h.budget);
	profile_intern_init(&h.processes, &h.budget);
	profile_intern_init(&h.samples, &h.budget);
	h.frame_of_location = mem_array(MEM_PROFILE, p->locations.count, sizeof(uint32_t));
	err = h.frame_of_location ? put_data(&h) : -ENOMEM;
	profile_intern_done(&h.frames);
	profile_intern_done(&h.processes);
	profile_intern_done(&h.samples);
	mem_free(MEM_PROFILE, h.frame_of_location);
	mem_free(MEM_PROFILE, h.weights);
	strings_free(h.strings);
	return err;
}

int profile_write_html(const struct profile *p, const char *page, size_t page_bytes,
		       struct profile_out *out)
{
	const char *marker = memmem(page, page_bytes, MARKER, strlen(MARKER));
	const char *rest = marker ? marker + strlen(MARKER) : NULL;
	int err;

	if (!marker)
		return -EINVAL;
	profile_out_bytes(out, page, (size_t)(marker - page));
	err = write_data(p, out);
	if (!err)
		profile_out_bytes(out, rest, page_bytes - (size_t)(rest - page));
	return err ? err : out->err;
}
