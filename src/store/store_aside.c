// SPDX-License-Identifier: Apache-2.0
/* store_aside: a damaged database gets another name, and what can be read of it goes into a new
 * one. The b-trees cannot be walked past a damaged page, but every id can be asked for by itself.
 */
#include "store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDS_MAX 4000000ULL /* asked for, newest first: more than a year of windows of 10 s */

static bool exists(const struct store *store, const char *name)
{
	return !faccessat(store->directory_fd, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

bool store_aside_remove(struct store *store)
{
	char name[64], log[72];
	char text[64];

	for (int i = 1; i < STORE_ASIDE_MAX; i++) {
		snprintf(name, sizeof(name), "store.db.corrupt-%d", i);
		if (!exists(store, name) || unlinkat(store->directory_fd, name, 0))
			continue;
		snprintf(log, sizeof(log), "%s-wal", name);
		unlinkat(store->directory_fd, log, 0);
		store->pending[STORE_ASIDE_REMOVED]++;
		store_room_used(store, &store->aside_bytes);
		store_room_plan(store->options.quota_bytes, store->aside_bytes, &store->room);
		snprintf(text, sizeof(text), "PRAGMA max_page_count = %llu",
			 (unsigned long long)store->room.pages);
		if (store->sql)
			store_sql_run(store->sql, text, "cannot limit the database", NULL);
		return true;
	}
	return false;
}

/* The log goes with its database: it holds the newest blocks. */
static int rename_database(struct store *store, char *name, size_t name_size, struct why *why)
{
	char log[72];
	int i = 1;

	do
		snprintf(name, name_size, "store.db.corrupt-%d", i);
	while (exists(store, name) && ++i < STORE_ASIDE_MAX);
	if (renameat(store->directory_fd, "store.db", store->directory_fd, name))
		return why_set(why, -errno, "cannot set the database aside: %s", strerror(errno));
	snprintf(log, sizeof(log), "%s-wal", name);
	if (renameat(store->directory_fd, "store.db-wal", store->directory_fd, log) &&
	    errno != ENOENT)
		return why_set(why, -errno, "cannot set the log aside: %s", strerror(errno));
	unlinkat(store->directory_fd, "store.db-shm", 0);
	return 0;
}

struct salvage {
	struct store *store;
	sqlite3 *old;
	sqlite3_stmt *get;
	uint64_t kept, lost;
	bool is_full;
};

static int put_block(struct salvage *s, const struct store_block *block, struct why *why)
{
	struct store *store = s->store;
	const void *packed = sqlite3_column_blob(s->get, STORE_COLUMN_COUNT + 1);
	size_t len = (size_t)sqlite3_column_bytes(s->get, STORE_COLUMN_COUNT + 1);
	const void *terms = sqlite3_column_blob(s->get, STORE_COLUMN_COUNT);
	size_t terms_len = (size_t)sqlite3_column_bytes(s->get, STORE_COLUMN_COUNT);
	uint64_t pages = store_row_pages(len, terms_len), used = 0, unused = 0;
	int err;

	if (!len || ZSTD_getFrameContentSize(packed, len) != block->len) {
		s->lost++;
		return 0;
	}
	err = store_statement_number(store, STORE_SQL_PAGES, &used, why);
	if (!err)
		err = store_statement_number(store, STORE_SQL_FREE_PAGES, &unused, why);
	if (err)
		return err;
	if (used - unused + pages + 2 * (uint64_t)STORE_EXTRA_PAGES > store->room.pages) {
		s->is_full = true;
		s->lost++;
		return 0;
	}
	buf_reset(&store->terms);
	buf_add(&store->terms, terms, terms_len);
	err = store_begin(store, pages + store_room_map_pages(store, pages) + STORE_EXTRA_PAGES,
			  why);
	if (err)
		return err;
	err = store->terms.err ? -ENOMEM
			       : store_row_put(store, block, &store->terms, packed, len, why);
	if (err) {
		store_rollback(store);
		return err;
	}
	s->kept++;
	return store_commit(store, why);
}

/* 0 also when it is not there or cannot be read. */
static int bring_over(struct salvage *s, uint64_t id, struct why *why)
{
	struct store_block block;
	int code, err = 0;

	store_bind(s->get, 1, id);
	code = sqlite3_step(s->get);
	if (code == SQLITE_ROW) {
		store_row_get(s->get, &block);
		if (s->is_full || block.len > STORE_BLOCK_BYTES_MAX)
			s->lost++;
		else
			err = put_block(s, &block, why);
	} else if (code != SQLITE_DONE) {
		s->lost++;
	}
	sqlite3_reset(s->get);
	return err;
}

static uint64_t old_number(sqlite3 *old, const char *text)
{
	int64_t v = 0;

	return store_sql_number(old, text, &v, NULL) || v < 0 ? 0 : (uint64_t)v;
}

static void bring_counts(struct salvage *s)
{
	sqlite3_stmt *old = NULL;

	if (!sqlite3_prepare_v2(s->old, "SELECT name, value FROM counts", -1, &old, NULL)) {
		while (sqlite3_step(old) == SQLITE_ROW) {
			const char *name = (const char *)sqlite3_column_text(old, 0);

			for (int i = 0; name && i < STORE_COUNTS; i++) {
				if (!strcmp(name, store_count_name((enum store_count)i)))
					s->store->pending[i] +=
						(uint64_t)sqlite3_column_int64(old, 1);
			}
		}
	}
	sqlite3_finalize(old);
}

/* Cursors, and the ids to come: none may be used again that a target has acknowledged. */
static int bring_cursors(struct salvage *s, uint64_t next_id, struct why *why)
{
	static const char select[] =
		"SELECT target, acknowledged_id, lost_blocks, lost_bytes FROM cursors";
	static const char insert[] = "INSERT OR REPLACE INTO cursors VALUES(?1, ?2, ?3, ?4)";
	sqlite3_stmt *from = NULL, *to = NULL;
	sqlite3 *sql = s->store->sql;
	char text[160];
	int err = store_begin(s->store, STORE_EXTRA_PAGES, why);

	if (err)
		return err;
	if (sqlite3_prepare_v2(sql, insert, -1, &to, NULL))
		err = store_sql_fail(sql, "cannot bring the cursors over", why);
	if (!err && !sqlite3_prepare_v2(s->old, select, -1, &from, NULL)) {
		while (!err && sqlite3_step(from) == SQLITE_ROW) {
			for (int i = 0; i < 4; i++)
				sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
			err = store_statement_run(s->store, to, "cannot bring a cursor over", why);
		}
	}
	sqlite3_finalize(from);
	sqlite3_finalize(to);
	snprintf(text, sizeof(text),
		 "DELETE FROM sqlite_sequence WHERE name = 'blocks';"
		 "INSERT INTO sqlite_sequence VALUES('blocks', %llu)",
		 (unsigned long long)next_id);
	if (!err)
		err = store_sql_run(sql, text, "cannot keep the ids", why);
	if (!err)
		return store_commit(s->store, why);
	store_rollback(s->store);
	return err;
}

static int salvage(struct salvage *s, struct why *why)
{
	static const char get[] = "SELECT " STORE_COLUMNS ", terms, bytes FROM blocks JOIN data "
				  "ON data.id = blocks.id WHERE blocks.id = ?1";
	uint64_t high, low, next;
	int err = 0;

	if (sqlite3_prepare_v2(s->old, get, -1, &s->get, NULL))
		return 0; /* not even its schema can be read */
	low = old_number(s->old, "SELECT id FROM blocks ORDER BY id LIMIT 1");
	high = old_number(s->old, "SELECT id FROM blocks ORDER BY id DESC LIMIT 1");
	next = old_number(s->old, "SELECT max(seq) FROM sqlite_sequence");
	high = next > high ? next : high;
	next = old_number(s->old, "SELECT max(acknowledged_id) FROM cursors");
	next = high > next ? high : next;
	if (!low || high - low > IDS_MAX)
		low = high > IDS_MAX ? high - IDS_MAX : 1;
	for (uint64_t id = high; !err && id >= low; id--)
		err = bring_over(s, id, why);
	bring_counts(s);
	if (!err)
		err = bring_cursors(s, next, why);
	return err;
}

int store_set_aside(struct store *store, struct why *why)
{
	struct salvage s = {.store = store};
	char name[64], path[STORE_PATH_BYTES + 80];
	int version = 0, err;

	store_database_close(store);
	err = rename_database(store, name, sizeof(name), why);
	if (err)
		return err;
	log_debug("the database is damaged, and set aside as %s", name);
	store->pending[STORE_SET_ASIDE]++;
	err = store_database_open(store, why);
	if (err)
		return err;
	snprintf(path, sizeof(path), "%s/%s", store->directory, name);
	/* For writing: its log must be read, and the shared memory of that be made. */
	if (!store_sql_open(path, SQLITE_OPEN_READWRITE, &s.old, NULL)) {
		sqlite3_db_config(s.old, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
		store_schema_ready(s.old, NULL);
		sqlite3_exec(s.old, "PRAGMA query_only = ON", NULL, NULL, NULL);
		sqlite3_exec(store->sql, "PRAGMA synchronous = OFF", NULL, NULL, NULL);
		if (!store_schema_look(s.old, &version, NULL) && version == STORE_SCHEMA)
			err = salvage(&s, why);
		sqlite3_exec(store->sql, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
	}
	sqlite3_finalize(s.get);
	sqlite3_close(s.old);
	snprintf(path, sizeof(path), "%s-shm", name);
	unlinkat(store->directory_fd, path, 0);
	store->pending[STORE_SALVAGED] += s.kept;
	store->pending[STORE_LOST] += s.lost;
	store->scrubbed_id = 0;
	memset(store->compacted_id, 0, sizeof(store->compacted_id));
	store_room_used(store, &store->aside_bytes);
	return err;
}
