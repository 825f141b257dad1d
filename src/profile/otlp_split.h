/* SPDX-License-Identifier: Apache-2.0 */
/*
 * otlp_split: an encoded OTLP export request cut into requests of a size, each with a dictionary of
 * its own that holds what it refers to and nothing else. For src/export.
 *
 * Samples are the smallest piece; one whose timestamps alone would pass the limit is cut as well.
 * What still is larger (one sample with one very long name) goes out larger than asked. A Profile
 * that is cut appears in several requests; its attributes (the ledger) stand in the first only, so
 * that sums over Profiles stay what they were. Profiles without samples are kept.
 */
#ifndef FLYBALL_PROFILE_OTLP_SPLIT_H
#define FLYBALL_PROFILE_OTLP_SPLIT_H

#include "base/base.h"

struct profile_split_options {
	size_t max_bytes;   /* of a request, encoded */
	bool without_names; /* where a mapping tells the file, so that a receiver can find names */
};
/* Gets each request; the bytes last for the call. 0 or negative errno, which ends the splitting. */
typedef int (*profile_split_sink)(void *ctx, const void *data, size_t bytes);

/* -EBADMSG: no request, or one that points outside its dictionary. Memory: the request unpacked
 * (some times its size), and one request of the output. */
int profile_split(const void *data, size_t bytes, const struct profile_split_options *options,
		  profile_split_sink sink, void *ctx, struct why *why);

/* Looks at the outermost fields alone: these bytes may be a request that says something. */
bool profile_split_is_request(const void *data, size_t bytes);

#endif
