/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: what struct profile is made of; for the files of this part only.
 *
 * Ids are dense, in order of arrival: an interned key and a row of facts that may still change. A
 * row exists for every key. Text is a string id; all text was made valid UTF-8 without control
 * characters on its way in.
 */
#ifndef FLYBALL_PROFILE_MODEL_H
#define FLYBALL_PROFILE_MODEL_H

#include "intern.h"
#include "profile.h"

#define PROFILE_STACK_MAX (127 + 1024 + 1) /* locations of one stack; one to spare */

struct profile_process_key {
	uint64_t start_ns;
	uint64_t program;
	uint32_t pid, zero;
};
struct profile_process_row {
	uint32_t comm, exe, container, cgroup, service;
};

struct profile_file_row {
	uint32_t path;
	uint8_t build_id_len, has_htlhash;
	uint8_t build_id[64], htlhash[16];
	uint32_t segment_count;
	struct profile_segment *segments;
};

/* One address may bear several names, as JIT code does whose memory was used again: a profile that
 * is merged from many keeps these apart by their variant. */
struct profile_location_key {
	uint64_t address;
	uint32_t file;
	uint32_t kind : 4, variant : 28;
};
#define PROFILE_VARIANTS (1U << 28)
struct profile_location_row {
	uint32_t name;	/* 0: none */
	uint32_t lines; /* id of its struct profile_line_rows plus 1; 0: none */
	uint8_t unnamed, unlined;
	bool is_answered; /* a name or a reason was given */
};

struct profile_line_row {
	uint32_t function, file, line;
};

/* In a key's cut, beside the bits of enum fly_cut: profile_sample.is_near_base. */
#define PROFILE_NEAR_BASE (1U << 31)

/* weight_ns is part of the key: one key, one period (DESIGN decision 3). cut is what is known
 * without names: profile_cut_bits has the rest. */
struct profile_sample_key {
	uint64_t weight_ns;
	uint32_t process, tid, comm, stack, cut;
	uint16_t depth_limit, span_fault;
	uint32_t span;	     /* id of its struct profile_span plus 1; 0: none */
	uint32_t attributes; /* id of its struct profile_attribute_rows plus 1; 0: none */
};
struct profile_attribute_row {
	uint32_t key, value;
};
struct profile_sample_row {
	uint64_t count, first_ns, last_ns; /* first and last added, not least and greatest */
	uint8_t *deltas;		   /* zigzag varints, one for each sample but the first */
	uint32_t delta_len, delta_cap;
};

struct profile {
	struct profile_budget budget;
	struct strings *strings;
	uint64_t period_ns;
	uint32_t command_line;
	/* keys and their rows */
	struct profile_intern processes, files, locations, lines, stacks, spans, attributes,
		samples;
	struct profile_process_row *process_rows;
	struct profile_file_row *file_rows;
	struct profile_location_row *location_rows;
	struct profile_sample_row *sample_rows;
	size_t process_cap, file_cap, location_cap, sample_cap;
	uint64_t min_time_ns, max_time_ns; /* of all samples; min > max: none */
	struct profile_run run;
};

static inline const struct profile_process_key *profile_process_key(const struct profile *p,
								    uint32_t id)
{
	return profile_intern_get(&p->processes, id, NULL);
}

static inline const struct profile_location_key *profile_location_key(const struct profile *p,
								      uint32_t id)
{
	return profile_intern_get(&p->locations, id, NULL);
}

static inline const struct profile_sample_key *profile_sample_key(const struct profile *p,
								  uint32_t id)
{
	return profile_intern_get(&p->samples, id, NULL);
}

/* Innermost first. */
static inline const uint32_t *profile_stack(const struct profile *p, uint32_t id, size_t *ret_count)
{
	const uint32_t *stack = profile_intern_get(&p->stacks, id, ret_count);

	*ret_count /= sizeof(*stack);
	return stack;
}

/* NULL: in none. */
static inline const struct profile_span *profile_span_of(const struct profile *p,
							 const struct profile_sample_key *key)
{
	return key->span ? profile_intern_get(&p->spans, key->span - 1, NULL) : NULL;
}

/* NULL, 0: none. */
static inline const struct profile_attribute_row *profile_attributes(
	const struct profile *p, const struct profile_sample_key *key, size_t *ret_count)
{
	const struct profile_attribute_row *rows = NULL;

	*ret_count = 0;
	if (key->attributes)
		rows = profile_intern_get(&p->attributes, key->attributes - 1, ret_count);
	*ret_count /= sizeof(*rows);
	return rows;
}

/* Innermost first; of the last one function is not used (the location's name is). NULL, 0: none. */
static inline const struct profile_line_row *profile_lines(const struct profile *p,
							   uint32_t location, size_t *ret_count)
{
	uint32_t id = p->location_rows[location].lines;
	const struct profile_line_row *lines;

	*ret_count = 0;
	if (!id)
		return NULL;
	lines = profile_intern_get(&p->lines, id - 1, ret_count);
	*ret_count /= sizeof(*lines);
	return lines;
}

static inline const char *profile_text(const struct profile *p, uint32_t id)
{
	return strings_get(p->strings, id);
}

/* What profile.h's functions are made of, for readers that have ids already. Text is made valid;
 * none is id 0. A sample's row is empty at first; its time is pushed apart. */
int64_t profile_text_add(struct profile *p, const char *text, size_t len);
int64_t profile_location_add_key(struct profile *p, const struct profile_location_key *key);
/* A key that is one of ours gets "context." in front. */
int64_t profile_attribute_key_add(struct profile *p, const char *key);
/* Sorts them; *count is how many there are without those whose key was there already. */
int64_t profile_attributes_add(struct profile *p, struct profile_attribute_row *rows,
			       size_t *count);
int64_t profile_sample_add_key(struct profile *p, const struct profile_sample_key *key);
int profile_sample_push(struct profile *p, uint32_t sample, uint64_t time_ns);

/* Walks the timestamps of one sample row in the order they were added. */
struct profile_times {
	const struct profile_sample_row *row;
	uint64_t now;
	uint32_t at;
	bool is_begun;
};
bool profile_times_next(struct profile_times *times, uint64_t *ret_ns);

/* The window all outputs state: it holds every timestamp, half open, and is never empty. */
void profile_window(const struct profile *p, uint64_t *ret_start_ns, uint64_t *ret_duration_ns);

#endif
