/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store, inside. store_sql.c is the only file that opens connections and knows SQLite's errors; the
 * writer's transactions are begun by store_begin alone, which sees to it that the log stays within
 * its share.
 *
 * Nobody opens store.db past SQLite while it is open: closing any descriptor of it would drop all
 * locks that this process holds there (POSIX). Sizes are asked for by name.
 */
#ifndef FLYBALL_STORE_INTERNAL_H
#define FLYBALL_STORE_INTERNAL_H

#include <sqlite3.h>
#include <zstd.h>

#include "store.h"

#define STORE_PAGE	  4096U
#define STORE_FRAME	  (STORE_PAGE + 24) /* a page in the log */
#define STORE_SCHEMA	  2
#define STORE_APPLICATION 0x666c7962 /* "flyb" */
#define STORE_PATH_BYTES  3800
#define STORE_ASIDE_MAX	  1000 /* numbers of set-aside databases */
#define STORE_GROUP_MAX	  1024 /* blocks merged at once */
#define STORE_PACKED_MAX  ZSTD_COMPRESSBOUND((size_t)STORE_BLOCK_BYTES_MAX)

/* Pages that a transaction may write beside those of the block itself: header, counts, the paths to
 * the rows and their neighbours when these are split or joined. */
#define STORE_EXTRA_PAGES  28U
#define STORE_DELETE_PAGES 8U

enum store_sql {
	STORE_SQL_BEGIN,
	STORE_SQL_COMMIT,
	STORE_SQL_ROLLBACK,
	STORE_SQL_PAGES,
	STORE_SQL_FREE_PAGES,
	STORE_SQL_BLOCK_PUT,
	STORE_SQL_DATA_PUT,
	STORE_SQL_BLOCK_DELETE,
	STORE_SQL_DATA_DELETE,
	STORE_SQL_DATA_GET,
	STORE_SQL_OLDEST,
	STORE_SQL_COUNT_ADD,
	STORE_SQL_QUOTA,
	STORE_SQL_SETTING_PUT,
	STORE_SQL_CURSOR_PUT,
	STORE_SQL_CURSOR_DELETE,
	STORE_SQL_CURSOR_GET,
	STORE_SQL_CURSOR_LIST,
	STORE_SQL_CURSOR_ACKNOWLEDGE,
	STORE_SQL_CURSOR_LOSE,
	STORE_SQL_CURSOR_MIN,
	STORE_SQL_LAG,
	STORE_SQL_LAST_ID,
	STORE_SQL_AFTER,
	STORE_SQL_GROUP,
	STORE_SQL_KINDS,
	STORE_SQL_SUMS,
	STORE_SQL_COUNTS,
	STORE_SQL_COUNT
};

struct store_room {
	uint64_t log_bytes;   /* share of the log */
	uint64_t log_frames;  /* that fit it */
	uint64_t fixed_bytes; /* all but the database itself and what is set aside */
	uint64_t pages;	      /* of the database at most */
};

struct store {
	struct store_options options;
	char directory[STORE_PATH_BYTES], path[STORE_PATH_BYTES + 16];
	int directory_fd, lock_fd;
	sqlite3 *sql;
	sqlite3_stmt *statements[STORE_SQL_COUNT];
	struct store_room room;
	uint64_t aside_bytes;
	ZSTD_CCtx *pack;
	ZSTD_DCtx *unpack;
	struct buf packed, raw, terms;
	uint64_t pending[STORE_COUNTS]; /* not yet in the database */
	uint64_t opened_realtime_ns, opened_monotonic_ns;
	uint64_t scrubbed_id;
	uint32_t kinds; /* bits of those there are; 0: not known yet */
	uint64_t compacted_id[STORE_LEVELS][STORE_KINDS_MAX];
};

/* ---------------------------------------------------------------- store_sql.c */
/* A connection with our settings; not WAL, no schema: store_schema_ready does that. */
int store_sql_open(const char *path, int flags, sqlite3 **ret, struct why *why);
/* A connection for reading, which sees a schema of today. -ENODATA: it is empty. */
int store_sql_reader(const struct store *store, sqlite3 **ret, struct why *why);
/* What SQLite said last on sql, as negative errno. */
int store_sql_fail(sqlite3 *sql, const char *what, struct why *why);
int store_sql_run(sqlite3 *sql, const char *text, const char *what, struct why *why);
/* One number; text has no parameters. */
int store_sql_number(sqlite3 *sql, const char *text, int64_t *ret, struct why *why);
/* A statement of the writer, reset and without values; NULL: why says it. */
sqlite3_stmt *store_statement(struct store *store, enum store_sql which, struct why *why);
/* Runs it to its end and resets it. */
int store_statement_run(struct store *store, sqlite3_stmt *statement, const char *what,
			struct why *why);
int store_statement_number(struct store *store, enum store_sql which, uint64_t *ret,
			   struct why *why);
void store_statements_done(struct store *store);
void store_bind(sqlite3_stmt *statement, int index, uint64_t value);

/* ---------------------------------------------------------------- store_schema.c */
/* Makes the tables, or brings older ones up to date. */
int store_schema_ready(sqlite3 *sql, struct why *why);
/* -ENODATA empty, -EOPNOTSUPP newer, -EBADMSG another's. *ret_version may be older than ours. */
int store_schema_look(sqlite3 *sql, int *ret_version, struct why *why);

/* ---------------------------------------------------------------- store_room.c */
void store_room_plan(uint64_t quota_bytes, uint64_t aside_bytes, struct store_room *ret);
/* Begins a transaction that may write that many pages. -EBUSY: no room in the log. */
int store_begin(struct store *store, uint64_t pages, struct why *why);
int store_commit(struct store *store, struct why *why);
void store_rollback(struct store *store);
/* Everything that was committed is in the database and on the disk. */
int store_room_settle(struct store *store, struct why *why);
/* Frees pages, by deleting what is oldest. Outside of any transaction. */
int store_room_make(struct store *store, uint64_t pages, struct why *why);
int store_room_expire(struct store *store, struct why *why);
/* After the quota became smaller. */
int store_room_shrink(struct store *store, struct why *why);
/* Bytes of all files that count. */
uint64_t store_room_used(const struct store *store, uint64_t *ret_aside);
/* Pages of the map of pages (auto_vacuum) that changing that many pages may touch. */
uint64_t store_room_map_pages(const struct store *store, uint64_t pages);
uint64_t store_now(const struct store *store);

/* ---------------------------------------------------------------- store_rows.c */
#define STORE_COLUMNS                                                                              \
	"blocks.id, first_id, level, windows, kind, start_ns, end_ns, taken, taken_ns, "           \
	"delivered, "                                                                              \
	"delivered_ns, raw_bytes, stored_bytes"
enum { STORE_COLUMN_COUNT = 13 };
/* From the columns above; bytes and len (raw_bytes) included, bytes NULL. */
void store_row_get(sqlite3_stmt *statement, struct store_block *ret);
/* In a transaction. */
int store_row_put(struct store *store, const struct store_block *block, const struct buf *terms,
		  const void *packed, size_t packed_len, struct why *why);
int store_row_delete(struct store *store, uint64_t id, struct why *why);
int store_row_pack(struct store *store, const void *bytes, size_t len, struct why *why);
/* Into out; -EBADMSG when damaged. */
int store_row_unpack(ZSTD_DCtx *unpack, const void *packed, size_t packed_len, size_t len,
		     struct buf *out, struct why *why);
/* Reads and unpacks the bytes of a block into store->raw. */
int store_row_read(struct store *store, struct store_block *block, struct why *why);
uint64_t store_row_pages(size_t packed_len, size_t terms_len);

/* ---------------------------------------------------------------- store_terms.c */
uint32_t store_term_hash(const struct store_term *term);
/* Sorted, each once, as differences in 7-bit groups. */
int store_terms_pack(const struct store_term *terms, size_t count, struct buf *out);
/* Adds the hashes of packed to a list; -EBADMSG. */
int store_terms_unpack(const void *packed, size_t len, uint32_t **hashes, size_t *cap,
		       size_t *count);
int store_terms_pack_hashes(uint32_t *hashes, size_t count, struct buf *out);

/* ---------------------------------------------------------------- store_aside.c */
/* Sets the database aside, begins a new one and brings over what can be read. */
int store_set_aside(struct store *store, struct why *why);
/* Deletes the oldest of them; false: there is none. */
bool store_aside_remove(struct store *store);

/* ---------------------------------------------------------------- store.c */
/* Opens store->path for writing: settings, schema, room. */
int store_database_open(struct store *store, struct why *why);
void store_database_close(struct store *store);
/* Counts now in memory go into the open transaction. */
int store_counts_write(struct store *store, struct why *why);

#endif
