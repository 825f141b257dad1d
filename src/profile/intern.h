/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intern: equal blobs of bytes get one dense id. Keys of the model, sequences of frames and encoded
 * dictionary entries are all kept this way, so "no two equal entries" holds by construction.
 *
 * Blobs are compared as bytes: structs used as keys must have no implicit padding. They are aligned
 * to 8, have a NUL behind them, and stay where they are until _done. Bytes are charged to a budget
 * that several may share.
 */
#ifndef FLYBALL_PROFILE_INTERN_H
#define FLYBALL_PROFILE_INTERN_H

#include "base/base.h"

struct profile_budget {
	size_t max, used;
};
/* -ENOSPC when bytes more would not fit; else they count as used. */
int profile_budget_take(struct profile_budget *budget, size_t bytes);

struct profile_intern_entry;
struct profile_intern {
	struct profile_intern_entry *table, **by_id;
	size_t count, cap;
	struct profile_budget *budget;
};
void profile_intern_init(struct profile_intern *in, struct profile_budget *budget);
void profile_intern_done(struct profile_intern *in);
/* The id of the blob, or -ENOSPC, -ENOMEM. A new one has the id that was in->count before. */
int64_t profile_intern_add(struct profile_intern *in, const void *blob, size_t bytes);
/* The blob of an id that exists. ret_bytes may be NULL. */
const void *profile_intern_get(const struct profile_intern *in, uint32_t id, size_t *ret_bytes);

#endif
