/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storing: the thread that owns the store. A disk may be slow, full or gone; the thread that reads
 * samples never waits for it. Private to the part.
 *
 * Blocks wait in a queue of STORING_QUEUE_BYTES. One that cannot be written stays at its head and
 * is tried again, at growing intervals; when the queue is full the oldest goes, and is counted with
 * its samples. The first failure and the recovery are said, not each try.
 */
#ifndef FLYBALL_STORING_H
#define FLYBALL_STORING_H

#include "base/base.h"
#include "store/store.h"

#define STORING_QUEUE_BYTES (16U << 20)

struct storing;
struct storing_block {
	struct storing_block *next;
	struct store_block_meta meta;
	struct store_term *terms; /* meta.terms; their values lie in text */
	struct buf text;
	struct buf bytes;
};
void storing_block_free(struct storing_block *block); /* NULL is fine */

struct storing_stats {
	size_t waiting, waiting_bytes;
	uint64_t stored, stored_bytes; /* blocks; not compressed */
	uint64_t lost, lost_samples, lost_ns;
	int err;       /* of the last try; 0: it was written */
	char why[256]; /* of err */
	struct store_stats store;
};

/* The store is open, and this process its only writer, when this returns 0. -EAGAIN: another has
 * it, why says which. */
int storing_open(const char *directory, const struct store_options *options, struct storing **ret,
		 struct why *why);
/* Where its symbol files lie. Returns out. */
char *storing_symbols_path(const struct storing *s, char *out, size_t out_size);
/* Takes the block over. Any thread; never waits for the disk. */
void storing_add(struct storing *s, struct storing_block *block);
void storing_stats_get(struct storing *s, struct storing_stats *ret);
/* Writes what waits until end_ns (CLOCK_MONOTONIC), closes the store and frees s. Returns how many
 * blocks were lost at the end. NULL is fine. */
size_t storing_close(struct storing *s, uint64_t end_ns);

#endif
