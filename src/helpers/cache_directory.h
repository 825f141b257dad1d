/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers, inside: a directory of main's own, mode 0700, that is kept below a number of bytes. What
 * was used least recently, by the time of its last change, goes first. Several flyballs may share
 * one: files get their names when they are whole.
 */
#ifndef FLYBALL_HELPERS_CACHE_DIRECTORY_H
#define FLYBALL_HELPERS_CACHE_DIRECTORY_H

#include "base/base.h"

/* What files are by the end of their names. */
struct cache_rules {
	const char *kept; /* counts, and goes when there is too much */
	struct {
		const char *end;
		int64_t seconds; /* goes when it is older */
	} brief[2];
};

/* Returns the bytes that are left. */
uint64_t cache_directory_prune(int directory, const struct cache_rules *rules, uint64_t bytes_max);
/* Opens for reading, and marks as used. -ENOENT and the like. */
int cache_directory_find(int directory, const char *name);
/* Visits names; visit returns 0 to go on. */
void cache_directory_list(int directory, int (*visit)(void *ctx, const char *name), void *ctx);

#endif
