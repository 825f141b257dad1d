// SPDX-License-Identifier: Apache-2.0
/* totals: what the summary asks. One pass over the samples each; nothing is kept. */
#include "frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION_TEXT (PROFILE_FRAME_TEXT + 8200)

void profile_totals_get(const struct profile *p, struct profile_totals *ret)
{
	struct profile_totals t = {.stacks = p->stacks.count,
				   .locations = p->locations.count,
				   .processes = p->processes.count,
				   .files = p->files.count,
				   .spans = p->spans.count};

	for (uint32_t i = 0; i < p->samples.count; i++) {
		const struct profile_sample_key *key = profile_sample_key(p, i);
		uint64_t count = p->sample_rows[i].count;
		uint32_t bits = profile_cut_bits(p, key);
		size_t frames;
		const uint32_t *stack = profile_stack(p, key->stack, &frames);

		t.samples += count;
		t.weight_ns += count * key->weight_ns;
		t.complete += bits ? 0 : count;
		t.span_samples += key->span ? count : 0;
		t.span_ns += key->span ? count * key->weight_ns : 0;
		t.span_faults[key->span_fault] += key->span_fault ? count : 0;
		for (int cut = 0; cut < FLY_CUT_COUNT; cut++)
			t.cut[cut] += bits & 1U << cut ? count : 0;
		if (frames && !p->location_rows[stack[0]].name)
			t.unnamed_samples[p->location_rows[stack[0]].unnamed] += count;
	}
	for (uint32_t i = 0; i < p->locations.count; i++) {
		t.lined += p->location_rows[i].lines > 0;
		t.inlined += profile_location_frames(p, i) > 1;
		t.unlined[p->location_rows[i].unlined] += p->location_rows[i].unlined > 0;
	}
	*ret = t;
}

/* Functions by (name, module). What has no name is one "function" for each module: single
 * addresses would never make the list. */
struct top {
	const struct profile *p;
	struct strings *keys;		/* name, 0x01, module: neither holds a control character */
	uint32_t *function_of_location; /* 0: not yet */
	uint64_t *self_ns, *total_ns;
	uint32_t *seen_in; /* last sample that counted the function, plus 1 */
	bool by_total;
};

/* The id of a frame's function; all are known after number_functions. */
static int64_t function_of(const struct top *top, uint32_t location, size_t index)
{
	char text[FUNCTION_TEXT];
	struct profile_frame frame;
	int n;

	profile_location_frame(top->p, location, index, &frame);
	n = snprintf(text, sizeof(text), "%s\x01%s", frame.name[0] ? frame.name : "[unnamed]",
		     profile_location_module(top->p, location));
	return strings_add(top->keys, text, n < 0 ? 0 : (size_t)n);
}

static int number_functions(struct top *top)
{
	const struct profile *p = top->p;

	for (uint32_t i = 0; i < p->locations.count; i++) {
		size_t count = profile_location_frames(p, i);

		for (size_t k = 0; k < count; k++) {
			int64_t id = function_of(top, i, k);

			if (id < 0)
				return (int)id;
			/* the last one stays: the function that holds the code */
			top->function_of_location[i] = (uint32_t)id;
		}
	}
	return 0;
}

static void weigh_location(struct top *top, uint32_t location, uint32_t sample, uint64_t weight,
			   bool is_leaf)
{
	size_t count = profile_location_frames(top->p, location);

	for (size_t k = 0; k < count; k++) {
		uint32_t function = top->function_of_location[location];

		if (k + 1 < count)
			function = (uint32_t)function_of(top, location, k);
		if (is_leaf && !k)
			top->self_ns[function] += weight;
		if (top->seen_in[function] == sample + 1)
			continue;
		top->seen_in[function] = sample + 1;
		top->total_ns[function] += weight;
	}
}

static int weigh(struct top *top)
{
	const struct profile *p = top->p;
	size_t count = strings_count(top->keys);

	top->self_ns = mem_array(MEM_PROFILE, count, sizeof(*top->self_ns));
	top->total_ns = mem_array(MEM_PROFILE, count, sizeof(*top->total_ns));
	top->seen_in = mem_array(MEM_PROFILE, count, sizeof(*top->seen_in));
	if (!top->self_ns || !top->total_ns || !top->seen_in)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->samples.count; i++) {
		const struct profile_sample_key *key = profile_sample_key(p, i);
		uint64_t weight = key->weight_ns * p->sample_rows[i].count;
		size_t frames;
		const uint32_t *stack = profile_stack(p, key->stack, &frames);

		for (size_t k = 0; k < frames; k++)
			weigh_location(top, stack[k], i, weight, !k);
	}
	return 0;
}

static int compare_functions(const void *left, const void *right, void *ctx)
{
	const struct top *top = ctx;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	const uint64_t *first = top->by_total ? top->total_ns : top->self_ns;
	const uint64_t *second = top->by_total ? top->self_ns : top->total_ns;

	if (first[a] != first[b])
		return first[a] < first[b] ? 1 : -1;
	if (second[a] != second[b])
		return second[a] < second[b] ? 1 : -1;
	return strcmp(strings_get(top->keys, a), strings_get(top->keys, b));
}

static size_t pick(struct top *top, struct profile_function *out, size_t n)
{
	size_t count = strings_count(top->keys), written = 0;
	uint32_t *order = mem_array(MEM_PROFILE, count, sizeof(*order));

	if (!order)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	qsort_r(order, count, sizeof(*order), compare_functions, top);
	for (size_t i = 0; i < count && written < n; i++) {
		const char *key = strings_get(top->keys, order[i]), *border = strchr(key, 1);
		struct profile_function *f = &out[written];

		f->self_ns = top->self_ns[order[i]];
		f->total_ns = top->total_ns[order[i]];
		if (!border || !(top->by_total ? f->total_ns : f->self_ns))
			continue;
		/* text_print cuts at a character's border */
		text_print(key, (size_t)(border - key), f->name, sizeof(f->name));
		text_print(border + 1, strlen(border + 1), f->module, sizeof(f->module));
		written++;
	}
	mem_free(MEM_PROFILE, order);
	return written;
}

size_t profile_top(const struct profile *p, bool by_total, struct profile_function *out, size_t n)
{
	struct top top = {.p = p, .by_total = by_total};
	size_t written = 0;

	if (strings_new(MEM_PROFILE, SIZE_MAX, &top.keys))
		return 0;
	top.function_of_location = mem_array(MEM_PROFILE, p->locations.count, sizeof(uint32_t));
	if (top.function_of_location && !number_functions(&top) && !weigh(&top))
		written = pick(&top, out, n);
	mem_free(MEM_PROFILE, top.function_of_location);
	mem_free(MEM_PROFILE, top.self_ns);
	mem_free(MEM_PROFILE, top.total_ns);
	mem_free(MEM_PROFILE, top.seen_in);
	strings_free(top.keys);
	return written;
}

int profile_processes(const struct profile *p,
		      int (*visit)(void *ctx, const struct profile_process *process), void *ctx)
{
	int err = 0;

	for (uint32_t i = 0; i < p->processes.count && !err; i++) {
		const struct profile_process_key *key = profile_process_key(p, i);
		const struct profile_process_row *row = &p->process_rows[i];
		struct profile_process process = {
			.pid = key->pid,
			.start_ns = key->start_ns,
			.program = key->program,
			.comm = strings_get(p->strings, row->comm),
			.exe = strings_get(p->strings, row->exe),
			.container = strings_get(p->strings, row->container),
			.cgroup = strings_get(p->strings, row->cgroup),
			.service = strings_get(p->strings, row->service),
		};

		err = visit(ctx, &process);
	}
	return err;
}

int profile_files(const struct profile *p, int (*visit)(void *ctx, const struct profile_file *file),
		  void *ctx)
{
	int err = 0;

	for (uint32_t i = 0; i < p->files.count && !err; i++) {
		const struct profile_file_row *row = &p->file_rows[i];
		struct profile_file file = {.path = strings_get(p->strings, row->path),
					    .build_id_len = row->build_id_len,
					    .has_htlhash = row->has_htlhash};

		memcpy(file.build_id, row->build_id, sizeof(file.build_id));
		memcpy(file.htlhash, row->htlhash, sizeof(file.htlhash));
		err = visit(ctx, &file);
	}
	return err;
}
