// SPDX-License-Identifier: Apache-2.0
/* store_room: bytes within the quota. The database has a number of pages it never exceeds
 * (max_page_count), the log a share that no transaction may begin to exceed; what is deleted leaves
 * pages that are used again. */
#include "store_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_MIN	      (256ULL << 10)
#define LOG_MAX	      (64ULL << 20)
#define INDEX_FRAMES  4062 /* of the log, in the first 32 KiB of -shm */
#define INDEX_BYTES   32768
#define LOCK_BYTES    4096
#define MAP_REACH     819 /* pages that one page of auto_vacuum's map speaks of */
#define EXPIRE_BLOCKS 16  /* at most in one go */
#define SHRINK_PAGES  8	  /* given back in one transaction */

void store_room_plan(uint64_t quota_bytes, uint64_t aside_bytes, struct store_room *ret)
{
	uint64_t log = quota_bytes / 8;

	log = log < LOG_MIN ? LOG_MIN : log > LOG_MAX ? LOG_MAX : log;
	ret->log_bytes = log;
	ret->log_frames = (log - 32) / STORE_FRAME;
	ret->fixed_bytes = log + (ret->log_frames / INDEX_FRAMES + 1) * INDEX_BYTES + LOCK_BYTES;
	ret->pages = quota_bytes > ret->fixed_bytes + aside_bytes
			     ? (quota_bytes - ret->fixed_bytes - aside_bytes) / STORE_PAGE
			     : 1;
}

uint64_t store_now(const struct store *store)
{
	const struct store_clock *clock = &store->options.clock;
	uint64_t past = (clock->monotonic_ns ? clock->monotonic_ns() : clock_monotonic_ns()) -
			store->opened_monotonic_ns;

	return store->opened_realtime_ns + past;
}

uint64_t store_room_used(const struct store *store, uint64_t *ret_aside)
{
	int fd = openat(store->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	uint64_t used = 0, aside = 0, bytes, held;
	struct dirent *e;
	struct stat st;

	if (!dir && fd >= 0)
		close(fd);
	while (dir && (e = readdir(dir)) != NULL) {
		if ((strncmp(e->d_name, "store.db", 8) && strcmp(e->d_name, "lock")) ||
		    fstatat(store->directory_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		bytes = (uint64_t)st.st_size;
		if (!strncmp(e->d_name, "store.db.corrupt-", 17)) {
			held = (uint64_t)st.st_blocks * 512; /* it may have holes */
			bytes = held < bytes ? held : bytes;
			aside += bytes;
		}
		used += bytes;
	}
	if (dir)
		closedir(dir);
	if (ret_aside)
		*ret_aside = aside;
	return used;
}

static uint64_t log_frames_used(const struct store *store)
{
	struct stat st;

	if (fstatat(store->directory_fd, "store.db-wal", &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	return (uint64_t)st.st_size / STORE_FRAME + 1;
}

/* Empties the log; does nothing while a reader is in it. */
static void empty_log(struct store *store)
{
	sqlite3_busy_timeout(store->sql, 0);
	sqlite3_wal_checkpoint_v2(store->sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	sqlite3_busy_timeout(store->sql, 2000);
}

int store_room_settle(struct store *store, struct why *why)
{
	if (sqlite3_wal_checkpoint_v2(store->sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL))
		return store_sql_fail(store->sql, "cannot empty the log", why);
	return 0;
}

int store_begin(struct store *store, uint64_t pages, struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_BEGIN, why);
	uint64_t most = store->room.log_frames, lazy = most < 1024 ? most : 1024;

	if (!statement)
		return store_sql_fail(store->sql, "cannot begin", why);
	if (pages > most)
		return why_set(why, -ENOSPC, "a change of %llu pages is more than the log may hold",
			       (unsigned long long)pages);
	if (log_frames_used(store) + pages > lazy)
		empty_log(store);
	if (log_frames_used(store) + pages > most)
		return why_set(why, -EBUSY, "a reader holds the log, and its share is full");
	return store_statement_run(store, statement, "cannot begin", why);
}

int store_commit(struct store *store, struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_COMMIT, why);
	int err = statement ? store_statement_run(store, statement, "cannot write", why)
			    : store_sql_fail(store->sql, "cannot write", why);

	if (err)
		store_rollback(store);
	return err;
}

void store_rollback(struct store *store)
{
	sqlite3_stmt *statement;

	if (!store->sql || sqlite3_get_autocommit(store->sql))
		return; /* SQLite has rolled back by itself */
	statement = store_statement(store, STORE_SQL_ROLLBACK, NULL);
	if (statement)
		store_statement_run(store, statement, "cannot roll back", NULL);
}

static int free_pages(struct store *store, uint64_t *ret, struct why *why)
{
	uint64_t pages = 0, unused = 0;
	int err = store_statement_number(store, STORE_SQL_PAGES, &pages, why);

	if (!err)
		err = store_statement_number(store, STORE_SQL_FREE_PAGES, &unused, why);
	if (!err)
		*ret = unused + (store->room.pages > pages ? store->room.pages - pages : 0);
	return err;
}

uint64_t store_room_map_pages(const struct store *store, uint64_t pages)
{
	uint64_t all = store->room.pages / MAP_REACH + 1;

	return all < pages ? all : pages;
}

static int lose(struct store *store, const struct store_block *block, struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_CURSOR_LOSE, why);

	if (!statement)
		return store_sql_fail(store->sql, "cannot count", why);
	store_bind(statement, 1, block->id);
	store_bind(statement, 2, block->stored_bytes);
	return store_statement_run(store, statement, "cannot count what was not exported", why);
}

/* 1: *ret is it, 0: there is none. */
static int get_oldest(struct store *store, struct store_block *ret, struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_OLDEST, why);
	int code;

	if (!statement)
		return store_sql_fail(store->sql, "cannot look for the oldest block", why);
	code = sqlite3_step(statement);
	if (code == SQLITE_ROW)
		store_row_get(statement, ret);
	else if (code != SQLITE_DONE)
		code = store_sql_fail(store->sql, "cannot look for the oldest block", why);
	sqlite3_reset(statement);
	return code == SQLITE_ROW ? 1 : code == SQLITE_DONE ? 0 : code;
}

/* Deletes the oldest if it ended before end_ns. 1: deleted, 0: not. */
static int delete_oldest(struct store *store, uint64_t end_ns, enum store_count count,
			 struct why *why)
{
	struct store_block block = {0};
	int err = get_oldest(store, &block, why);

	if (err <= 0)
		return err;
	if (block.end_ns > end_ns)
		return 0;
	err = store_begin(store,
			  STORE_DELETE_PAGES + STORE_EXTRA_PAGES +
				  store_room_map_pages(store, block.stored_bytes / STORE_PAGE + 1),
			  why);
	if (err)
		return err;
	err = lose(store, &block, why);
	if (!err)
		err = store_row_delete(store, block.id, why);
	if (err) {
		store_rollback(store);
		return err;
	}
	err = store_commit(store, why);
	if (err)
		return err;
	store->pending[count]++;
	return 1;
}

int store_room_make(struct store *store, uint64_t pages, struct why *why)
{
	uint64_t unused = 0;

	for (;;) {
		int err = free_pages(store, &unused, why);

		if (err || unused >= pages)
			return err;
		if (store_aside_remove(store))
			continue;
		err = delete_oldest(store, UINT64_MAX, STORE_EXPIRED_QUOTA, why);
		if (err < 0)
			return err;
		if (!err)
			return why_set(why, -ENOSPC, "this block alone is more than the quota");
	}
}

/* By the wall clock at the start and the time that passed since: one that is set wrong, or steps,
 * deletes nothing. */
int store_room_expire(struct store *store, struct why *why)
{
	uint64_t now = store_now(store);
	int err = 1;

	if (now <= store->options.max_age_ns)
		return 0;
	for (int i = 0; err > 0 && i < EXPIRE_BLOCKS; i++)
		err = delete_oldest(store, now - store->options.max_age_ns, STORE_EXPIRED_AGE, why);
	return err < 0 ? err : 0;
}

/* Frees pages at the end of the database, a few in each transaction. */
static int give_back(struct store *store, struct why *why)
{
	uint64_t unused = 0;
	char text[64];
	int err = store_statement_number(store, STORE_SQL_FREE_PAGES, &unused, why);

	if (!err && !unused) {
		err = delete_oldest(store, UINT64_MAX, STORE_EXPIRED_QUOTA, why);
		if (!err)
			return why_set(why, -ENOSPC, "the quota is too small for this database");
	}
	if (err < 0)
		return err;
	empty_log(store);
	if (log_frames_used(store) + 6 * SHRINK_PAGES > store->room.log_frames)
		return why_set(why, -EBUSY,
			       "a reader holds the log: the database cannot be made smaller");
	snprintf(text, sizeof(text), "PRAGMA incremental_vacuum(%d)", SHRINK_PAGES);
	return store_sql_run(store->sql, text, "cannot make the database smaller", why);
}

int store_room_shrink(struct store *store, struct why *why)
{
	uint64_t pages = 0;
	char text[64];
	int err = store_statement_number(store, STORE_SQL_PAGES, &pages, why);

	while (!err && pages > store->room.pages) {
		err = give_back(store, why);
		if (!err)
			err = store_statement_number(store, STORE_SQL_PAGES, &pages, why);
	}
	empty_log(store);
	if (err)
		return err;
	snprintf(text, sizeof(text), "PRAGMA max_page_count = %llu",
		 (unsigned long long)store->room.pages);
	return store_sql_run(store->sql, text, "cannot limit the database", why);
}
