/* SPDX-License-Identifier: Apache-2.0 */
/*
 * otlp: one profile as an OTLP export request, for its two encodings (otlp_proto.c, otlp_json.c).
 *
 * A first pass gathers the dictionary and one small row for each sample key; rows are then sorted
 * so that those of one process, of one period in it, and of one sample identity in that lie side
 * by side. The encodings walk these runs and make one message at a time.
 */
#ifndef FLYBALL_PROFILE_OTLP_H
#define FLYBALL_PROFILE_OTLP_H

#include "encode.h"
#include "model.h"
#include "otlp.pb-c.h"

/* Tables of the dictionary: the field's number less 1. */
enum profile_otlp_table {
	PROFILE_OTLP_MAPPING,
	PROFILE_OTLP_LOCATION,
	PROFILE_OTLP_FUNCTION,
	PROFILE_OTLP_LINK,
	PROFILE_OTLP_STRING,
	PROFILE_OTLP_ATTRIBUTE,
	PROFILE_OTLP_STACK,
	PROFILE_OTLP_TABLES,
};

#define PROFILE_OTLP_SAMPLE_ATTRIBUTES	 (4 + PROFILE_ATTRIBUTES_MAX)
#define PROFILE_OTLP_LEDGER_ATTRIBUTES	 (8 + 2 * FLY_DROP_COUNT)
#define PROFILE_OTLP_RESOURCE_ATTRIBUTES 8

struct profile_otlp_row {
	uint64_t period_ns;
	uint32_t process, stack, link;
	uint32_t attributes; /* id in lists: thread.id, thread.name, flyball.x, the span's */
	uint32_t sample;     /* id in the model */
};

struct profile_otlp {
	const struct profile *p;
	struct profile_budget budget;
	struct profile_intern tables[PROFILE_OTLP_TABLES];
	struct profile_intern lists; /* of indices of attributes */
	struct profile_otlp_row *rows;
	size_t row_count;
	int32_t ledger[PROFILE_OTLP_LEDGER_ATTRIBUTES];
	Otlp__ValueType sample_type, period_type;
	/* scratch */
	uint32_t *location_ids;
	uint64_t *limits, *times;
	size_t times_cap;
};

/* Gathers; on failure too, _done is to be called. */
int profile_otlp_init(struct profile_otlp *o, const struct profile *p);
void profile_otlp_done(struct profile_otlp *o);

/* The end of the run that begins at a row: rows that are alike in process, and period, and all. */
enum profile_otlp_run { PROFILE_OTLP_PROCESS, PROFILE_OTLP_PERIOD, PROFILE_OTLP_IDENTITY };
size_t profile_otlp_run_end(const struct profile_otlp *o, size_t begin, enum profile_otlp_run run);

/* The Profile of a run, without its samples. The first of a request carries the ledger. */
void profile_otlp_profile(struct profile_otlp *o, size_t begin, Otlp__Profile *ret);
/* The Sample of a run; it borrows memory until the next call. */
int profile_otlp_sample(struct profile_otlp *o, size_t begin, size_t end, Otlp__Sample *ret);

/* Resource and scope of a process, with the memory they point to. With no sample at all there is
 * one resource for flyball itself, which carries the ledger. */
struct profile_otlp_head {
	Otlp__Resource resource;
	Otlp__InstrumentationScope scope;
	Otlp__KeyValue pairs[PROFILE_OTLP_RESOURCE_ATTRIBUTES],
		*pair_list[PROFILE_OTLP_RESOURCE_ATTRIBUTES];
	Otlp__AnyValue values[PROFILE_OTLP_RESOURCE_ATTRIBUTES];
};
void profile_otlp_head(const struct profile_otlp *o, size_t begin, struct profile_otlp_head *ret);

#endif
