// SPDX-License-Identifier: Apache-2.0
/* folded: "comm;outermost;...;innermost NANOSECONDS", one line for each distinct text, sorted by
 * bytes. A line is kept as the ids of its parts, not as text: deep stacks share most of theirs. */
#include "frames.h"
#include "writers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_PARTS (1 + PROFILE_PSEUDO_MAX + PROFILE_STACK_MAX * PROFILE_LINES_MAX)

struct folded {
	const struct profile *p;
	bool per_thread;
	struct profile_budget budget;
	struct strings *parts;
	uint32_t *part_of_location; /* 0: not yet */
	struct profile_intern lines;
	uint64_t *weights;
	size_t weight_cap;
};

/* ";" separates frames and cannot be escaped; control characters went on the way in. */
static int64_t part_add(struct folded *f, const char *text, const char *suffix)
{
	char part[PROFILE_FRAME_TEXT + 8];
	int n = snprintf(part, sizeof(part), "%s%s", text, suffix);

	for (char *c = part; (c = strchr(c, ';')); c++)
		*c = ':';
	return strings_add(f->parts, part, n < 0 ? 0 : (size_t)n);
}

static int64_t part_of_head(struct folded *f, const struct profile_sample_key *key)
{
	const char *comm = profile_text(f->p, key->comm);
	char head[128];

	if (!comm[0])
		comm = "[noname]";
	if (!f->per_thread)
		return part_add(f, comm, "");
	snprintf(head, sizeof(head), "%" PRIu32 "/%" PRIu32 " %s",
		 profile_process_key(f->p, key->process)->pid, key->tid, comm);
	return part_add(f, head, "");
}

static const char *const suffixes[] = {
	[PROFILE_USER] = "",
	[PROFILE_KERNEL] = "_[k]",
	[PROFILE_INLINED] = "_[i]",
	[PROFILE_JIT] = "_[j]",
};

static int64_t part_of_location(struct folded *f, uint32_t location)
{
	char text[PROFILE_FRAME_TEXT];
	int64_t id = f->part_of_location[location];

	if (id)
		return id;
	id = part_add(f, profile_location_text(f->p, location, text),
		      suffixes[profile_location_key(f->p, location)->kind]);
	if (id > 0)
		f->part_of_location[location] = (uint32_t)id;
	return id;
}

/* The parts of one location, outermost first. Returns how many, or negative errno. */
static int64_t location_parts(struct folded *f, uint32_t location, uint32_t *parts)
{
	size_t count = profile_location_frames(f->p, location), n = 0;
	int64_t id = part_of_location(f, location);

	if (id >= 0)
		parts[n++] = (uint32_t)id;
	for (size_t i = count - 1; i-- > 0 && id >= 0;) {
		struct profile_frame frame;

		profile_location_frame(f->p, location, i, &frame);
		id = part_add(f, frame.name, suffixes[PROFILE_INLINED]);
		parts[n++] = (uint32_t)id;
	}
	return id < 0 ? id : (int64_t)n;
}

/* The parts of one sample's line, outermost first. Returns how many, or negative errno. */
static int line_parts(struct folded *f, const struct profile_sample_key *key,
		      uint32_t parts[LINE_PARTS])
{
	struct profile_pseudo pseudo;
	size_t pseudo_count = profile_pseudo_frames(f->p, key, &pseudo), frames, n = 0;
	const uint32_t *stack = profile_stack(f->p, key->stack, &frames);
	int64_t id = part_of_head(f, key);

	if (id >= 0)
		parts[n++] = (uint32_t)id;
	for (size_t i = 0; i < pseudo_count && id >= 0; i++) {
		id = part_add(f, pseudo.text[i], "");
		parts[n++] = (uint32_t)id;
	}
	for (size_t i = frames; i-- > 0 && id >= 0;) {
		id = location_parts(f, stack[i], parts + n);
		n += id < 0 ? 0 : (size_t)id;
	}
	return id < 0 ? (int)id : (int)n;
}

static int gather(struct folded *f)
{
	const struct profile *p = f->p;
	uint32_t parts[LINE_PARTS];

	for (uint32_t i = 0; i < p->samples.count; i++) {
		const struct profile_sample_key *key = profile_sample_key(p, i);
		int n = line_parts(f, key, parts);
		size_t before = f->lines.count;
		void *weights = f->weights;
		int64_t id;
		int err;

		if (n < 0)
			return n;
		err = mem_grow(MEM_PROFILE, &weights, &f->weight_cap, before + 1, INT32_MAX,
			       sizeof(*f->weights));
		f->weights = weights;
		if (err)
			return err;
		id = profile_intern_add(&f->lines, parts, (size_t)n * sizeof(parts[0]));
		if (id < 0)
			return (int)id;
		if (f->lines.count > before)
			f->weights[id] = 0;
		f->weights[id] += key->weight_ns * p->sample_rows[i].count;
	}
	return 0;
}

/* As memcmp over the joined text would say: where the first parts that differ come to a difference,
 * the end of a part counts as its ";", the end of the line as less than anything. */
static int compare_lines(const void *left, const void *right, void *ctx)
{
	const struct folded *f = ctx;
	size_t a_bytes, b_bytes, i = 0;
	const uint32_t *a = profile_intern_get(&f->lines, *(const uint32_t *)left, &a_bytes);
	const uint32_t *b = profile_intern_get(&f->lines, *(const uint32_t *)right, &b_bytes);
	size_t a_count = a_bytes / sizeof(*a), b_count = b_bytes / sizeof(*b);
	const unsigned char *s, *t;
	int x, y;

	while (i < a_count && i < b_count && a[i] == b[i])
		i++;
	if (i == a_count || i == b_count)
		return (a_count > b_count) - (a_count < b_count);
	s = (const unsigned char *)strings_get(f->parts, a[i]);
	t = (const unsigned char *)strings_get(f->parts, b[i]);
	while (*s && *s == *t) {
		s++;
		t++;
	}
	x = *s ? *s : i + 1 < a_count ? ';' : 0;
	y = *t ? *t : i + 1 < b_count ? ';' : 0;
	return x - y;
}

static int print(struct folded *f, struct profile_out *out)
{
	size_t count = f->lines.count;
	uint32_t *order = mem_array(MEM_PROFILE, count, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	qsort_r(order, count, sizeof(*order), compare_lines, f);
	for (size_t i = 0; i < count; i++) {
		size_t bytes;
		const uint32_t *parts = profile_intern_get(&f->lines, order[i], &bytes);

		for (size_t k = 0; k < bytes / sizeof(*parts); k++) {
			if (k)
				profile_out_char(out, ';');
			profile_out_str(out, strings_get(f->parts, parts[k]));
		}
		profile_out_f(out, " %" PRIu64 "\n", f->weights[order[i]]);
	}
	mem_free(MEM_PROFILE, order);
	return out->err;
}

int profile_write_folded(const struct profile *p, bool per_thread, struct profile_out *out)
{
	struct folded f = {.p = p, .per_thread = per_thread, .budget.max = SIZE_MAX};
	int err = strings_new(MEM_PROFILE, SIZE_MAX, &f.parts);

	if (err)
		return err;
	profile_intern_init(&f.lines, &f.budget);
	f.part_of_location = mem_array(MEM_PROFILE, p->locations.count, sizeof(uint32_t));
	err = f.part_of_location ? gather(&f) : -ENOMEM;
	if (!err)
		err = print(&f, out);
	profile_intern_done(&f.lines);
	mem_free(MEM_PROFILE, f.part_of_location);
	mem_free(MEM_PROFILE, f.weights);
	strings_free(f.parts);
	return err;
}
