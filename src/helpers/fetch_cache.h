/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers, inside: the cache of debug files that came from servers. In its directory, mode 0700:
 *
 *   ID.debug   a file that the reader found to be the one
 *   ID.none    no server had it at the time of this file
 *   ID.part    one that is being made
 */
#ifndef FLYBALL_HELPERS_FETCH_CACHE_H
#define FLYBALL_HELPERS_FETCH_CACHE_H

#include "fetcher_wire.h"

/* Makes the directory and its parents; removes the oldest files past bytes_max, and what was left
 * half made. Refuses a directory of another user, or that others may write to. */
int fetch_cache_open(const char *path, uint64_t bytes_max, int *ret_directory, struct why *why);
/* The verified file, opened for reading. -ENOENT. */
int fetch_cache_find(int directory, const char *id);
/* No server had it within the last negative_sec seconds. */
bool fetch_cache_is_negative(int directory, const char *id, uint64_t negative_sec);
/* An empty file to fill, opened for writing. */
int fetch_cache_part_new(int directory, const char *id);
/* What was filled, opened for reading. */
int fetch_cache_part_open(int directory, const char *id);
void fetch_cache_part_remove(int directory, const char *id);
/* The part and the file. */
void fetch_cache_remove(int directory, const char *id);
/* The part becomes the file. */
void fetch_cache_part_keep(int directory, const char *id);
void fetch_cache_negative_add(int directory, const char *id);

#endif
