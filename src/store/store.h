/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: blocks of profiles on disk, in SQLite. A block is opaque bytes (a closed window's OTLP
 * request) with the time it covers, its ledger in sums, and the terms it can be found by. Knows
 * nothing of what is in a block: whoever merges blocks brings the function.
 *
 * One directory, mode 0700:
 *
 *	store.db, store.db-wal, store.db-shm	the database (docs/store.md has the tables)
 *	lock					held by the writer; holds its pid
 *	store.db.corrupt-N (and -wal)		set aside, see below
 *	symbols/				for whoever keeps symbol files; not counted here
 *
 * One writer at a time, any number of readers in any process, which never block it. A writer's
 * struct belongs to one thread. A reader opens with read_only; a selection has a connection of its
 * own, so that several may be open at once, also beside the writer.
 *
 * Ids only grow and are never used twice. A block keeps the order of its arrival whatever the clock
 * did: retention and cursors go by ids. A block that was acknowledged (store_append returned 0) is
 * on disk: neither kill -9 nor a power cut loses it.
 *
 * All files but symbols/ together never take more than the quota. The log (-wal) has a share of it:
 * a reader that holds its selection until the share is full makes appends fail with -EBUSY. What is
 * oldest goes first, set-aside databases before any block.
 *
 * A writer that finds its database damaged sets it aside as store.db.corrupt-N, begins a new one
 *and brings over every block it can read, ids and cursors with them. Bytes of a block are under a
 * checksum: a damaged one is left out (-EBADMSG) and counted, never returned.
 *
 * Errors: -ENOSPC no room within the quota or on the disk, -EROFS, -EIO, -EBUSY, -EBADMSG damaged,
 * -ERANGE past a limit, -EOPNOTSUPP made by a newer flyball, -EAGAIN another writer has it. A store
 * that could not write counts it and may be tried again; what it counts while it cannot write is
 * written down with the next block that it can.
 */
#ifndef FLYBALL_STORE_H
#define FLYBALL_STORE_H

#include "base/base.h"

#define STORE_DIRECTORY	      "/var/lib/flyball"
#define STORE_QUOTA_MIN	      (1ULL << 20)
#define STORE_QUOTA_DEFAULT   (1ULL << 30)
#define STORE_AGE_DEFAULT_NS  (7 * 86400 * 1000000000ULL)
#define STORE_BLOCK_BYTES_MAX (64U << 20) /* not compressed */
#define STORE_TERMS_MAX	      65536	  /* of one block */
#define STORE_KINDS_MAX	      16
#define STORE_TARGET_BYTES    64 /* name of a cursor, with its NUL */

struct store;

/* Both NULL in the options: the system's. */
struct store_clock {
	uint64_t (*realtime_ns)(void);
	uint64_t (*monotonic_ns)(void);
};

struct store_options {
	uint64_t quota_bytes; /* 0: STORE_QUOTA_DEFAULT */
	uint64_t max_age_ns;  /* 0: STORE_AGE_DEFAULT_NS */
	/* Blocks older than this are merged into minutes, then into hours. 0: 1 h, 24 h */
	uint64_t minutes_after_ns, hours_after_ns;
	bool read_only;
	struct store_clock clock;
};
/* Makes the directory if need be, unless read_only: then -ENOENT when there is no store. -EAGAIN:
 * another process writes it, why says which. An older schema is brought up to date. */
int store_open(const char *directory, const struct store_options *options, struct store **ret,
	       struct why *why);
void store_close(struct store *store); /* NULL is fine */
/* Where symbol files of this store lie. Returns out. */
char *store_symbols_path(const struct store *store, char *out, size_t out_size);

/* ---------------------------------------------------------------- blocks */

/* What a block can be found by. Kept as 32 bits of a hash of kind and value: a selection may show a
 * block that holds none of what was asked for, once in millions, and never leaves one out. */
enum store_term_kind {
	STORE_SERVICE = 1,
	STORE_COMM,
	STORE_PID,     /* in decimal */
	STORE_PROCESS, /* "PID.START", for one process among those that had the pid */
	STORE_CONTAINER,
	STORE_BUILD_ID, /* its bytes */
	STORE_EXE,
};
struct store_term {
	enum store_term_kind kind;
	const void *value;
	size_t len;
};

/* Of the whole block, all reasons together. */
struct store_ledger {
	uint64_t taken, taken_ns, delivered, delivered_ns;
};

struct store_block_meta {
	uint64_t start_ns, end_ns; /* CLOCK_REALTIME */
	uint32_t kind;		   /* the caller's, below STORE_KINDS_MAX */
	struct store_ledger ledger;
	const struct store_term *terms;
	size_t term_count;
};
/* *ret_id may be NULL. */
int store_append(struct store *store, const struct store_block_meta *meta, const void *bytes,
		 size_t len, uint64_t *ret_id, struct why *why);

enum store_level { STORE_WINDOW, STORE_MINUTE, STORE_HOUR, STORE_LEVELS };
struct store_block {
	uint64_t id, first_id; /* first_id..id: what was merged into it */
	uint64_t windows;      /* how many windows it is made of */
	enum store_level level;
	uint64_t start_ns, end_ns;
	uint32_t kind;
	struct store_ledger ledger;
	uint64_t stored_bytes; /* compressed */
	const void *bytes;     /* NULL when they were not asked for */
	size_t len;
};

/* ---------------------------------------------------------------- selection */

/* Terms of one group: one of them must be there; all groups must be. */
struct store_filter_term {
	struct store_term term;
	uint32_t group; /* below 32 */
};
struct store_filter {
	uint64_t since_ns, until_ns; /* blocks that overlap [since, until); until 0: no end */
	uint64_t after_id;	     /* only later ones */
	uint32_t kinds;		     /* bits 1 << kind; 0: all */
	const struct store_filter_term *terms;
	size_t term_count;
	bool without_bytes; /* only what is known of them */
};
struct store_selection;
/* Sees the store as it was at the first store_selection_next, however long it takes. */
int store_select(struct store *store, const struct store_filter *filter,
		 struct store_selection **ret, struct why *why);
/* By id. 1: *ret is filled, its bytes are valid until the next call; 0: no more; -EBADMSG: this
 * block is damaged (ret->id says which), the next call goes on after it; other errors end it. */
int store_selection_next(struct store_selection *selection, struct store_block *ret,
			 struct why *why);
void store_selection_close(struct store_selection *selection);

/* ---------------------------------------------------------------- cursors: one for each export
 * target
 *
 * A cursor is the id up to which a target has everything. A block is merged with others only when
 * all cursors are past it, so a target gets every block once, as it was appended or as part of one
 * merged before the cursor was there.
 */
struct store_cursor {
	char target[STORE_TARGET_BYTES];
	uint64_t acknowledged_id;
	uint64_t lag_blocks, lag_bytes;	  /* compressed */
	uint64_t lag_since_ns;		  /* start of the oldest block that waits; 0: none does */
	uint64_t lost_blocks, lost_bytes; /* went by age or quota before the target had them */
};
/* Does nothing if there is one. A new one begins before the oldest block, or after the newest. */
int store_cursor_add(struct store *store, const char *target, bool from_oldest, struct why *why);
int store_cursor_remove(struct store *store, const char *target, struct why *why);
/* -ENOENT: there is none of this name. */
int store_cursor_get(struct store *store, const char *target, struct store_cursor *ret,
		     struct why *why);
/* In the order of their names; returns how many there are, negative errno. */
int store_cursor_list(struct store *store, struct store_cursor *out, size_t max, struct why *why);
/* The first block after id after_id, which is 0 or what was sent last: 1, 0, or as
 * store_selection_next. A damaged one can be acknowledged like any other. Bytes are valid until the
 * next call on this store. */
int store_block_after(struct store *store, uint64_t after_id, struct store_block *ret,
		      struct why *why);
/* The target has everything up to id. Going back is -EINVAL. */
int store_cursor_acknowledge(struct store *store, const char *target, uint64_t id, struct why *why);

/* ---------------------------------------------------------------- compaction */

struct store_piece {
	const void *bytes;
	size_t len;
};
struct store_merge {
	/* Makes one block of several. An error leaves them as they are. */
	int (*fn)(void *arg, const struct store_piece *pieces, size_t count, struct buf *out,
		  struct why *why);
	void *arg;
};
/* Merges one minute or one hour, oldest first. 1: done, there may be more; 0: nothing to merge. */
int store_compact_step(struct store *store, const struct store_merge *merge, struct why *why);

/* ---------------------------------------------------------------- what is in it */

/* Kept in the database, over all its writers. */
enum store_count {
	STORE_APPENDED,
	STORE_EXPIRED_AGE,   /* deleted for their age */
	STORE_EXPIRED_QUOTA, /* deleted to make room */
	STORE_MERGED,	     /* became part of another */
	STORE_MERGE_FAILED,  /* groups that were left as they are */
	STORE_REFUSED_SIZE,  /* appends refused: larger than this store can take */
	STORE_REFUSED_SPACE, /* the disk is full */
	STORE_REFUSED_LOG,   /* a reader holds the log */
	STORE_REFUSED_OTHER, /* read-only, I/O error, no memory */
	STORE_DAMAGED,	     /* blocks whose bytes were damaged, and were deleted */
	STORE_SET_ASIDE,     /* databases that were damaged */
	STORE_SALVAGED,	     /* blocks brought over from these */
	STORE_LOST,	     /* ids at most that could not be read there */
	STORE_ASIDE_REMOVED, /* set-aside databases deleted to make room */
	STORE_COUNTS
};
const char *store_count_name(enum store_count count);

struct store_stats {
	uint64_t blocks[STORE_LEVELS], windows;
	uint64_t raw_bytes, stored_bytes; /* of all blocks */
	uint64_t disk_bytes, quota_bytes; /* quota: of the last writer */
	uint64_t aside_bytes;		  /* set-aside databases, part of disk_bytes */
	uint64_t start_ns, end_ns;	  /* earliest and latest moment; 0 without blocks */
	uint64_t first_id, last_id;
	struct store_ledger ledger;
	uint64_t counts[STORE_COUNTS];
};
int store_stats_get(struct store *store, struct store_stats *ret, struct why *why);

struct store_check {
	uint64_t blocks, damaged; /* all were read */
	uint64_t faults;	  /* of the database itself */
	char first_fault[200];
};
/* Reads everything. 0 also when something is damaged: see ret. */
int store_check(struct store *store, struct store_check *ret, struct why *why);

#endif
