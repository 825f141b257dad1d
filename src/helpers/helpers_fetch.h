/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers, debuginfod: debug files from servers, only where the user asked for it.
 *
 *   main ──build-id, empty file──▶ flyball-fetcher ──HTTP──▶ server
 *
 * flyball-fetcher has no capabilities and opens no file for writing: main makes the file in its
 * cache directory (mode 0700) and hands over the descriptor to fill. One download at a time;
 * servers are asked in the order of the list, and one that fails three times in a row is left alone
 * for a minute, then two, up to an hour. A server's "I do not have it" is remembered in the cache
 * for an hour, so is a file that turned out to be another one. A download ends at its deadline, and
 * at the size limit; a fetcher that does not keep to it is killed and replaced.
 *
 * What comes back is not trusted: the reader finds out whether it is the file, and the cache keeps
 * it only then (helpers_fetch_verdict).
 *
 * One owning thread. Callbacks run inside helpers_fetch_poll and helpers_fetch_stop, exactly once
 * for each accepted request.
 */
#ifndef FLYBALL_HELPERS_FETCH_H
#define FLYBALL_HELPERS_FETCH_H

#include "base/base.h"

#define HELPERS_FETCH_CACHE	   "/var/cache/flyball/debuginfod"
#define HELPERS_FETCH_DEADLINE_MS  60000
#define HELPERS_FETCH_BYTES_MAX	   (512ULL << 20) /* of one file */
#define HELPERS_FETCH_CACHE_MAX	   (2ULL << 30)	  /* of all; the oldest go first */
#define HELPERS_FETCH_NEGATIVE_SEC 3600
#define HELPERS_FETCH_QUEUE_MAX	   1024

struct helpers_fetch_options {
	const char *urls;	  /* separated by blanks: http:// or https:// */
	const char *cache;	  /* NULL: HELPERS_FETCH_CACHE; made if need be */
	const char *directory;	  /* of flyball-fetcher; NULL: as for helpers_start */
	unsigned int deadline_ms; /* of one download; 0: HELPERS_FETCH_DEADLINE_MS */
	uint64_t bytes_max;	  /* 0: HELPERS_FETCH_BYTES_MAX */
};

struct helpers_fetch;
/* -EINVAL: no usable URL; -ENOENT: flyball was built without flyball-fetcher. */
int helpers_fetch_start(const struct helpers_fetch_options *options, struct helpers_fetch **ret,
			struct why *why);
/* Waits for no download. NULL is fine. */
void helpers_fetch_stop(struct helpers_fetch *fetch);
/* Becomes readable when helpers_fetch_poll has something to do. */
int helpers_fetch_fd(const struct helpers_fetch *fetch);
void helpers_fetch_poll(struct helpers_fetch *fetch);

/* fd: the file, borrowed, read-only; -1 on failure. err: -ENOENT: no server has it; -ECANCELED; any
 * other: it could not be found out. */
typedef void (*helpers_fetch_done)(void *ctx, int err, int fd, const char *text);
/* -EAGAIN: HELPERS_FETCH_QUEUE_MAX are waiting. */
int helpers_fetch_ask(struct helpers_fetch *fetch, const uint8_t *build_id, size_t build_id_len,
		      helpers_fetch_done done, void *ctx);
/* Whether a file that came has the build-id. */
void helpers_fetch_verdict(struct helpers_fetch *fetch, const uint8_t *build_id,
			   size_t build_id_len, bool is_good);

/* CPU time of all fetchers so far, memory of the one that runs. */
void helpers_fetch_cost(const struct helpers_fetch *fetch, uint64_t *ret_user_ns,
			uint64_t *ret_system_ns, uint64_t *ret_anon_bytes);

#endif
