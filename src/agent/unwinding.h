/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwinding: what happens to processes and files becomes what the walker reads (tables/). Private
 * to the part; apart from record_private.h so that tests bring a kernel of their own.
 *
 * A process is entered when it executed a program, or when a sample of it was walked without its
 * mappings; it is entered again when it maps something, and goes a moment after its end, since
 * ticks on the way out come after the event. Samples never wait for any of this.
 */
#ifndef FLYBALL_AGENT_UNWINDING_H
#define FLYBALL_AGENT_UNWINDING_H

#include <linux/types.h>

#include "abi/records.h"
#include "helpers/helpers.h"
#include "process/process.h"
#include "tables/tables.h"

struct unwinding_options {
	struct helpers *helpers;      /* NULL: no table is made */
	struct tables_options tables; /* calls, published, limits */
};

struct unwinding;
int unwinding_new(const struct unwinding_options *options, struct unwinding **ret);
/* After helpers_stop: answers come until then. NULL is fine, as in all calls below. */
void unwinding_free(struct unwinding *u);
/* Whose processes and files; before anything else. */
void unwinding_follow(struct unwinding *u, struct process_tracker *tracker);
/* process_options.changed; ctx is the struct unwinding. */
void unwinding_changed(void *ctx, uint32_t tgid, enum process_change change);
/* To be entered as soon as its mappings are known. */
void unwinding_want(struct unwinding *u, uint32_t tgid);
/* A sample was taken; after process_of_sample. */
void unwinding_sample(struct unwinding *u, const struct fly_sample *sample);
/* One of its frames. */
void unwinding_frame(struct unwinding *u, int32_t file, uint64_t file_offset);
/* No further table is asked for, until it is allowed again. */
void unwinding_hold(struct unwinding *u, bool is_held);
/* Does what is due; after each poll. */
void unwinding_step(struct unwinding *u, uint64_t now_ns);
/* When the next poll should be: sooner than usual while samples want what is being placed. */
int unwinding_poll_ms(const struct unwinding *u, int most_ms);

struct unwinding_stats {
	struct tables_stats tables;
	uint64_t asked;		/* tables, of the reader */
	uint64_t mappings_left; /* of processes with more than FLY_MAPPINGS_MAX */
};
void unwinding_stats_get(const struct unwinding *u, struct unwinding_stats *ret);

#endif
