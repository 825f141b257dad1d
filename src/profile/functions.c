// SPDX-License-Identifier: Apache-2.0
/* functions: numbers for functions, and the time of each. */
#include "functions.h"
#include "frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNNAMED "[unnamed]"

int64_t profile_functions_add(struct profile_functions *f, const char *name, const char *module)
{
	int64_t name_id = strings_add_str(f->texts, name);
	int64_t module_id = strings_add_str(f->texts, module);
	uint32_t pair[2];

	if (name_id < 0 || module_id < 0)
		return name_id < 0 ? name_id : module_id;
	pair[0] = (uint32_t)name_id;
	pair[1] = (uint32_t)module_id;
	return profile_intern_add(&f->pairs, pair, sizeof(pair));
}

const char *profile_functions_name(const struct profile_functions *f, uint32_t function)
{
	const uint32_t *pair = profile_intern_get(&f->pairs, function, NULL);

	return strings_get(f->texts, pair[0]);
}

const char *profile_functions_module(const struct profile_functions *f, uint32_t function)
{
	const uint32_t *pair = profile_intern_get(&f->pairs, function, NULL);

	return strings_get(f->texts, pair[1]);
}

static int number_frames(struct profile_functions *f)
{
	const struct profile *p = f->p;
	size_t n = 0;

	for (uint32_t i = 0; i < p->locations.count; i++) {
		f->first[i] = (uint32_t)n;
		n += profile_location_frames(p, i);
	}
	f->first[p->locations.count] = (uint32_t)n;
	f->of_frame = mem_array(MEM_PROFILE, n, sizeof(*f->of_frame));
	if (!f->of_frame)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->locations.count; i++) {
		for (uint32_t k = f->first[i]; k < f->first[i + 1]; k++) {
			struct profile_frame frame;
			int64_t id;

			profile_location_frame(p, i, k - f->first[i], &frame);
			id = profile_functions_add(f, frame.name[0] ? frame.name : UNNAMED,
						   profile_location_module(p, i));
			if (id < 0)
				return (int)id;
			f->of_frame[k] = (uint32_t)id;
		}
	}
	return 0;
}

int profile_functions_init(struct profile_functions *f, const struct profile *p)
{
	int err;

	memset(f, 0, sizeof(*f));
	f->p = p;
	f->budget.max = SIZE_MAX;
	profile_intern_init(&f->pairs, &f->budget);
	err = strings_new(MEM_PROFILE, SIZE_MAX, &f->texts);
	if (err)
		return err;
	f->first = mem_array(MEM_PROFILE, p->locations.count + 1, sizeof(*f->first));
	return f->first ? number_frames(f) : -ENOMEM;
}

void profile_functions_done(struct profile_functions *f)
{
	mem_free(MEM_PROFILE, f->rows);
	mem_free(MEM_PROFILE, f->of_frame);
	mem_free(MEM_PROFILE, f->first);
	profile_intern_done(&f->pairs);
	strings_free(f->texts);
}

/* ---------------------------------------------------------------- time of each */
static void weigh_sample(struct profile_functions *f, uint32_t sample, uint32_t *seen_in)
{
	const struct profile_sample_key *key = profile_sample_key(f->p, sample);
	uint64_t count = f->p->sample_rows[sample].count, ns = key->weight_ns * count;
	double variance = (double)ns * (double)key->weight_ns;
	size_t frames;
	const uint32_t *stack = profile_stack(f->p, key->stack, &frames);

	for (size_t i = 0; i < frames; i++) {
		for (uint32_t k = f->first[stack[i]]; k < f->first[stack[i] + 1]; k++) {
			struct profile_function_row *row = &f->rows[f->of_frame[k]];

			if (!i && k == f->first[stack[i]]) {
				row->self_ns += ns;
				row->self_variance += variance;
			}
			if (seen_in[f->of_frame[k]] == sample + 1)
				continue;
			seen_in[f->of_frame[k]] = sample + 1;
			row->total_ns += ns;
			row->total_variance += variance;
		}
	}
}

static int weigh(struct profile_functions *f)
{
	uint32_t *seen_in = mem_array(MEM_PROFILE, f->pairs.count, sizeof(*seen_in));

	f->rows = mem_array(MEM_PROFILE, f->pairs.count, sizeof(*f->rows));
	if (!f->rows || !seen_in) {
		mem_free(MEM_PROFILE, seen_in);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < f->pairs.count; i++) {
		f->rows[i].name = profile_functions_name(f, i);
		f->rows[i].module = profile_functions_module(f, i);
	}
	for (uint32_t i = 0; i < f->p->samples.count; i++)
		weigh_sample(f, i, seen_in);
	mem_free(MEM_PROFILE, seen_in);
	return 0;
}

static int compare_words(const struct profile_function_row *a, const struct profile_function_row *b)
{
	int order = strcmp(a->name, b->name);

	return order ? order : strcmp(a->module, b->module);
}

static int compare(uint64_t a, uint64_t b)
{
	return a == b ? 0 : a < b ? 1 : -1;
}

static int compare_rows(const void *left, const void *right, void *ctx)
{
	const struct profile_function_row *a = left, *b = right;
	const bool by_total = *(const bool *)ctx;
	int self = compare(a->self_ns, b->self_ns), total = compare(a->total_ns, b->total_ns);
	int order = by_total ? total : self;

	if (!order)
		order = by_total ? self : total;
	return order ? order : compare_words(a, b);
}

int profile_functions_new(const struct profile *p, bool by_total, struct profile_functions **ret,
			  const struct profile_function_row **ret_rows, size_t *ret_count)
{
	struct profile_functions *f = mem_alloc(MEM_PROFILE, sizeof(*f));
	int err = f ? profile_functions_init(f, p) : -ENOMEM;

	if (!err)
		err = weigh(f);
	if (err) {
		profile_functions_free(f);
		return err;
	}
	if (f->pairs.count)
		qsort_r(f->rows, f->pairs.count, sizeof(*f->rows), compare_rows, &by_total);
	*ret = f;
	*ret_rows = f->rows;
	*ret_count = f->pairs.count;
	return 0;
}

void profile_functions_free(struct profile_functions *f)
{
	if (!f)
		return;
	profile_functions_done(f);
	mem_free(MEM_PROFILE, f);
}

size_t profile_top(const struct profile *p, bool by_total, struct profile_function *out, size_t n)
{
	const struct profile_function_row *rows;
	struct profile_functions *f;
	size_t count, written = 0;

	if (profile_functions_new(p, by_total, &f, &rows, &count))
		return 0;
	for (size_t i = 0; i < count && written < n; i++) {
		struct profile_function *to = &out[written];

		if (!(by_total ? rows[i].total_ns : rows[i].self_ns))
			break;
		to->self_ns = rows[i].self_ns;
		to->total_ns = rows[i].total_ns;
		/* text_print cuts at a character's border */
		text_print(rows[i].name, strlen(rows[i].name), to->name, sizeof(to->name));
		text_print(rows[i].module, strlen(rows[i].module), to->module, sizeof(to->module));
		written++;
	}
	profile_functions_free(f);
	return written;
}
