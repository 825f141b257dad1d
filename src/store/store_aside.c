// SPDX-License-Identifier: Apache-2.0
/* store_aside: a damaged database gets another name, and what can be read of it goes into a new
 * one. The b-trees cannot be walked past a damaged page, but every id can be asked for by itself.
 */
#include "store_holes.h"
#include "store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_LIKELY (1ULL << 48)
#define IDS_MAX	  4000000ULL /* asked for, newest first: more than a year of windows of 10 s */

static bool exists(const struct store *store, const char *name)
{
	return !faccessat(store->directory_fd, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void plan_again(struct store *store)
{
	char text[64];

	store_room_used(store, &store->aside_bytes);
	store_room_plan(store->options.quota_bytes, store->aside_bytes, &store->room);
	snprintf(text, sizeof(text), "PRAGMA max_page_count = %llu",
		 (unsigned long long)store->room.pages);
	if (store->sql)
		store_sql_run(store->sql, text, "cannot limit the database", NULL);
}

bool store_aside_remove(struct store *store)
{
	char name[64], log[72];

	for (int i = 1; i < STORE_ASIDE_MAX; i++) {
		snprintf(name, sizeof(name), "store.db.corrupt-%d", i);
		if (!exists(store, name) || unlinkat(store->directory_fd, name, 0))
			continue;
		snprintf(log, sizeof(log), "%s-wal", name);
		unlinkat(store->directory_fd, log, 0);
		store->pending[STORE_ASIDE_REMOVED]++;
		plan_again(store);
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
	struct store_holes holes;
	uint64_t low, high; /* ids to ask for */
	uint64_t next;	    /* all later ones are new */
	uint64_t kept, lost, expired;
	bool is_full;
};

/* What the statement get has found. */
struct row {
	struct store_block block;
	const void *terms, *packed;
	size_t terms_len, packed_len;
};

/* 1: *ret is it, until get is reset; 0: there is none; else it cannot be read. */
static int read_old(struct salvage *s, uint64_t id, struct row *ret)
{
	int code;

	sqlite3_reset(s->get);
	store_bind(s->get, 1, id);
	code = sqlite3_step(s->get);
	if (code == SQLITE_DONE)
		return 0;
	if (code != SQLITE_ROW)
		return -EBADMSG;
	store_row_get(s->get, &ret->block);
	ret->terms = sqlite3_column_blob(s->get, STORE_COLUMN_COUNT);
	ret->terms_len = (size_t)sqlite3_column_bytes(s->get, STORE_COLUMN_COUNT);
	ret->packed = sqlite3_column_blob(s->get, STORE_COLUMN_COUNT + 1);
	ret->packed_len = (size_t)sqlite3_column_bytes(s->get, STORE_COLUMN_COUNT + 1);
	if (ret->block.id != id || !ret->packed || ret->block.len > STORE_BLOCK_BYTES_MAX ||
	    ZSTD_getFrameContentSize(ret->packed, ret->packed_len) != ret->block.len)
		return -EBADMSG;
	return 1;
}

/* A new database needs some room to begin with: an eighth, of the oldest. */
static void make_first_room(struct salvage *s)
{
	struct store_room all;
	struct row row;

	store_room_plan(s->store->options.quota_bytes, 0, &all);
	plan_again(s->store);
	while (s->low <= s->high && s->store->room.pages < all.pages / 8) {
		int found = read_old(s, s->low++, &row);

		s->lost += found < 0;
		if (found <= 0)
			continue;
		store_holes_add(&s->holes, row.block.id, row.terms, row.terms_len, row.packed,
				row.packed_len);
		s->expired++;
		if (store_holes_make(&s->holes))
			plan_again(s->store);
	}
	sqlite3_reset(s->get);
}

static int has_room(struct salvage *s, uint64_t pages, bool *ret, struct why *why)
{
	struct store *store = s->store;
	uint64_t used = 0, unused = 0;
	int err = store_statement_number(store, STORE_SQL_PAGES, &used, why);

	if (!err)
		err = store_statement_number(store, STORE_SQL_FREE_PAGES, &unused, why);
	if (!err)
		*ret = used - unused + pages <= store->room.pages;
	return err;
}

static int put_row(struct salvage *s, const struct row *row, struct why *why)
{
	struct store *store = s->store;
	uint64_t pages = store_row_pages(row->packed_len, row->terms_len);
	uint64_t room = pages + 2 * (uint64_t)STORE_EXTRA_PAGES;
	bool has = false;
	int err = has_room(s, room, &has, why);

	if (!err && !has) {
		/* What was brought over is on the disk before it becomes a hole. */
		err = store_room_settle(store, why);
		if (!err && store_holes_make(&s->holes)) {
			plan_again(store);
			err = has_room(s, room, &has, why);
		}
	}
	if (err || !has) {
		s->is_full = !err;
		s->lost += !err;
		return err;
	}
	buf_reset(&store->terms);
	buf_add(&store->terms, row->terms, row->terms_len);
	err = store_begin(store, pages + store_room_map_pages(store, pages) + STORE_EXTRA_PAGES,
			  why);
	if (err)
		return err;
	err = store->terms.err ? -ENOMEM
			       : store_row_put(store, &row->block, &store->terms, row->packed,
					       row->packed_len, why);
	if (err) {
		store_rollback(store);
		return err;
	}
	err = store_commit(store, why);
	if (err)
		return err;
	s->kept++;
	store_holes_add(&s->holes, row->block.id, row->terms, row->terms_len, row->packed,
			row->packed_len);
	return 0;
}

/* 0 also when it is not there or cannot be read. */
static int bring_over(struct salvage *s, uint64_t id, struct why *why)
{
	struct row row;
	int found = read_old(s, id, &row);

	if (found > 0 && !s->is_full)
		return put_row(s, &row, why);
	s->lost += found != 0;
	return 0;
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
			uint64_t acknowledged = (uint64_t)sqlite3_column_int64(from, 1);

			for (int i = 0; i < 4; i++)
				sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
			store_bind(to, 2, acknowledged < next_id ? acknowledged : next_id);
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

/* Which ids there may be; false: not even the tables can be read. */
static bool look_at_old(struct salvage *s)
{
	static const char get[] = "SELECT " STORE_COLUMNS ", terms, bytes FROM blocks JOIN data "
				  "ON data.id = blocks.id WHERE blocks.id = ?1";
	uint64_t acknowledged;

	if (sqlite3_prepare_v2(s->old, get, -1, &s->get, NULL))
		return false;
	s->low = old_number(s->old, "SELECT id FROM blocks ORDER BY id LIMIT 1");
	s->high = old_number(s->old, "SELECT id FROM blocks ORDER BY id DESC LIMIT 1");
	s->next = old_number(s->old, "SELECT max(seq) FROM sqlite_sequence");
	acknowledged = old_number(s->old, "SELECT max(acknowledged_id) FROM cursors");
	s->next = acknowledged > s->next ? acknowledged : s->next;
	if (s->next > ID_LIKELY)
		s->next = 0; /* damaged too */
	if (!s->high || s->high > ID_LIKELY)
		s->high = s->next;
	s->next = s->high > s->next ? s->high : s->next;
	if (!s->low || (s->high > IDS_MAX && s->low < s->high - IDS_MAX))
		s->low = s->high > IDS_MAX ? s->high - IDS_MAX : 1;
	return true;
}

static int salvage(struct salvage *s, struct why *why)
{
	int err = 0;

	/* Bytes may follow the commit late: before they become holes, and at the end, all is. */
	sqlite3_exec(s->store->sql, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
	for (uint64_t id = s->high; !err && id >= s->low && id > 0; id--)
		err = bring_over(s, id, why);
	sqlite3_reset(s->get);
	bring_counts(s);
	if (!err)
		err = bring_cursors(s, s->next, why);
	if (!err)
		err = store_room_settle(s->store, why);
	sqlite3_exec(s->store->sql, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
	return err;
}

/* For writing: its log must be read, and the shared memory of that be made. */
static bool open_old(struct salvage *s, const char *name)
{
	char path[STORE_PATH_BYTES + 80];
	int version = 0;

	store_holes_init(&s->holes, s->store->directory_fd, name);
	snprintf(path, sizeof(path), "%s/%s", s->store->directory, name);
	if (store_sql_open(path, SQLITE_OPEN_READWRITE, &s->old, NULL))
		return false;
	sqlite3_db_config(s->old, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	store_schema_ready(s->old, NULL);
	sqlite3_exec(s->old, "PRAGMA query_only = ON", NULL, NULL, NULL);
	return !store_schema_look(s->old, &version, NULL) && version == STORE_SCHEMA &&
	       look_at_old(s);
}

static void close_old(struct salvage *s, const char *name)
{
	char shared[80];

	sqlite3_finalize(s->get);
	sqlite3_close(s->old);
	store_holes_done(&s->holes);
	snprintf(shared, sizeof(shared), "%s-shm", name);
	unlinkat(s->store->directory_fd, shared, 0);
}

int store_set_aside(struct store *store, struct why *why)
{
	struct salvage s = {.store = store};
	char name[64];
	bool is_open;
	int err;

	store_database_close(store);
	err = rename_database(store, name, sizeof(name), why);
	if (err)
		return err;
	log_debug("the database is damaged, and set aside as %s", name);
	store->pending[STORE_SET_ASIDE]++;
	is_open = open_old(&s, name);
	if (is_open)
		make_first_room(&s);
	err = store_database_open(store, why);
	if (!err && is_open)
		err = salvage(&s, why);
	close_old(&s, name);
	store->pending[STORE_EXPIRED_QUOTA] += s.expired;
	store->pending[STORE_SALVAGED] += s.kept;
	store->pending[STORE_LOST] += s.lost;
	store->scrubbed_id = 0;
	memset(store->compacted_id, 0, sizeof(store->compacted_id));
	plan_again(store);
	return err;
}
