// SPDX-License-Identifier: Apache-2.0
/* store_sql: connections, statements, and SQLite's errors as ours. */
#include "store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static const char *const texts[STORE_SQL_COUNT] = {
	[STORE_SQL_BEGIN] = "BEGIN IMMEDIATE",
	[STORE_SQL_COMMIT] = "COMMIT",
	[STORE_SQL_ROLLBACK] = "ROLLBACK",
	[STORE_SQL_PAGES] = "PRAGMA page_count",
	[STORE_SQL_FREE_PAGES] = "PRAGMA freelist_count",
	[STORE_SQL_BLOCK_PUT] =
		"INSERT INTO blocks(id, first_id, level, windows, kind, start_ns, end_ns, taken, "
		"taken_ns, delivered, delivered_ns, raw_bytes, stored_bytes) "
		"VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
	[STORE_SQL_DATA_PUT] = "INSERT INTO data(id, terms, bytes) VALUES(?1, ?2, ?3)",
	[STORE_SQL_BLOCK_DELETE] = "DELETE FROM blocks WHERE id = ?1",
	[STORE_SQL_DATA_DELETE] = "DELETE FROM data WHERE id = ?1",
	[STORE_SQL_DATA_GET] = "SELECT terms, bytes FROM data WHERE id = ?1",
	[STORE_SQL_OLDEST] = "SELECT " STORE_COLUMNS " FROM blocks ORDER BY id LIMIT 1",
	[STORE_SQL_COUNT_ADD] = "INSERT INTO counts VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET "
				"value = value + excluded.value",
	[STORE_SQL_QUOTA] = "SELECT coalesce(max(value), 0) FROM counts "
			    "WHERE name = 'quota_bytes'",
	[STORE_SQL_SETTING_PUT] = "INSERT INTO counts VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE "
				  "SET value = excluded.value",
	[STORE_SQL_CURSOR_PUT] = "INSERT OR IGNORE INTO cursors(target, acknowledged_id) "
				 "VALUES(?1, ?2)",
	[STORE_SQL_CURSOR_DELETE] = "DELETE FROM cursors WHERE target = ?1",
	[STORE_SQL_CURSOR_GET] = "SELECT target, acknowledged_id, lost_blocks, lost_bytes "
				 "FROM cursors WHERE target = ?1",
	[STORE_SQL_CURSOR_LIST] = "SELECT target, acknowledged_id, lost_blocks, lost_bytes "
				  "FROM cursors ORDER BY target",
	[STORE_SQL_CURSOR_ACKNOWLEDGE] =
		"UPDATE cursors SET acknowledged_id = ?2 WHERE target = ?1",
	[STORE_SQL_CURSOR_LOSE] =
		"UPDATE cursors SET lost_blocks = lost_blocks + 1, lost_bytes = lost_bytes + ?2 "
		"WHERE acknowledged_id < ?1",
	[STORE_SQL_CURSOR_MIN] =
		"SELECT coalesce(min(acknowledged_id), 9223372036854775807) FROM cursors",
	[STORE_SQL_LAG] = "SELECT count(*), coalesce(sum(stored_bytes), 0), "
			  "coalesce(min(start_ns), 0) FROM blocks WHERE id > ?1",
	[STORE_SQL_LAST_ID] = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence "
			      "WHERE name = 'blocks'",
	[STORE_SQL_AFTER] =
		"SELECT " STORE_COLUMNS " FROM blocks WHERE id > ?1 ORDER BY id LIMIT 1",
	[STORE_SQL_GROUP] = "SELECT " STORE_COLUMNS " FROM blocks WHERE id > ?1 AND id <= ?2 AND "
			    "kind = ?3 AND level < ?4 ORDER BY id",
	[STORE_SQL_KINDS] = "SELECT coalesce(sum(1 << kind), 0) FROM (SELECT DISTINCT kind "
			    "FROM blocks WHERE kind BETWEEN 0 AND 15)",
	[STORE_SQL_SUMS] =
		"SELECT level, count(*), sum(windows), sum(raw_bytes), sum(stored_bytes), "
		"min(start_ns), max(end_ns), min(CASE first_id WHEN 0 THEN id ELSE first_id END), "
		"sum(taken), sum(taken_ns), "
		"sum(delivered), sum(delivered_ns) FROM blocks GROUP BY level",
	[STORE_SQL_COUNTS] = "SELECT name, value FROM counts",
};

static const char settings[] = "PRAGMA temp_store = MEMORY;"
			       "PRAGMA cache_size = -1000;"
			       "PRAGMA mmap_size = 0;" /* a truncated file would be a SIGBUS */
			       "PRAGMA trusted_schema = OFF;"
			       "PRAGMA cell_size_check = ON;"
			       "PRAGMA secure_delete = OFF;" /* Debian's default doubles the log */
			       "PRAGMA wal_autocheckpoint = 0;"
			       "PRAGMA synchronous = FULL;";

int store_sql_fail(sqlite3 *sql, const char *what, struct why *why)
{
	int code, system, err = -EIO;
	const char *text;

	if (!sql)
		return why_set(why, err, "%s: the database is not open", what);
	code = sqlite3_extended_errcode(sql);
	system = sqlite3_system_errno(sql);
	text = sqlite3_errmsg(sql);
	switch (code & 0xff) {
	case SQLITE_FULL:
		err = -ENOSPC;
		break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_ERROR: /* our statements are right: the schema is not */
	case SQLITE_MISMATCH:
	case SQLITE_CONSTRAINT:
		err = -EBADMSG;
		break;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		err = -EROFS;
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		err = -EBUSY;
		break;
	case SQLITE_NOMEM:
		err = -ENOMEM;
		break;
	case SQLITE_TOOBIG:
		err = -ERANGE;
		break;
	default: /* a full disk can show as an I/O error too */
		if (system == ENOSPC || system == EDQUOT)
			err = -ENOSPC;
		else if (system == EROFS)
			err = -EROFS;
		else if ((code & 0xff) == SQLITE_CANTOPEN && system > 0)
			err = -system;
		break;
	}
	if (err == -EIO && system)
		return why_set(why, err, "%s: %s (%s)", what, text, strerror(system));
	return why_set(why, err, "%s: %s", what, text);
}

int store_sql_run(sqlite3 *sql, const char *text, const char *what, struct why *why)
{
	return sqlite3_exec(sql, text, NULL, NULL, NULL) ? store_sql_fail(sql, what, why) : 0;
}

int store_sql_number(sqlite3 *sql, const char *text, int64_t *ret, struct why *why)
{
	sqlite3_stmt *statement = NULL;
	int err = 0;

	if (sqlite3_prepare_v2(sql, text, -1, &statement, NULL) ||
	    sqlite3_step(statement) != SQLITE_ROW)
		err = store_sql_fail(sql, text, why);
	else
		*ret = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return err;
}

int store_sql_open(const char *path, int flags, sqlite3 **ret, struct why *why)
{
	sqlite3 *sql = NULL;
	int err = 0;

	if (sqlite3_open_v2(path, &sql, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL))
		err = store_sql_fail(sql, "cannot open the database", why);
	if (!err) {
		sqlite3_db_config(sql, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
		sqlite3_db_config(sql, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
		sqlite3_db_config(sql, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
		sqlite3_limit(sql, SQLITE_LIMIT_LENGTH, (int)STORE_PACKED_MAX + (1 << 20));
		sqlite3_busy_timeout(sql, 2000);
		err = store_sql_run(sql, settings, "cannot set up the database", why);
	}
	if (err) {
		sqlite3_close(sql);
		return err;
	}
	*ret = sql;
	return 0;
}

/* A log that nobody emptied holds blocks: without it the database may be torn. */
static bool has_log(const struct store *store)
{
	struct stat st;

	return !fstatat(store->directory_fd, "store.db-wal", &st, AT_SYMLINK_NOFOLLOW) &&
	       st.st_size > 0;
}

/* "file:PATH?immutable=1": no locks and no shared memory, for a file system that takes none. */
static int open_immutable(const struct store *store, sqlite3 **ret, struct why *why)
{
	struct buf uri;
	int err;

	buf_init(&uri, MEM_STORE, (size_t)3 * sizeof(store->path) + 32);
	buf_add_str(&uri, "file:");
	for (const char *p = store->path; *p; p++) {
		if (strchr("%?#", *p))
			buf_addf(&uri, "%%%02x", (unsigned int)(unsigned char)*p);
		else
			buf_add_char(&uri, *p);
	}
	buf_add_str(&uri, "?immutable=1");
	err = uri.err ? why_set(why, uri.err, "no memory for a path")
		      : store_sql_open(uri.data, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, ret, why);
	buf_done(&uri);
	return err;
}

int store_sql_reader(const struct store *store, sqlite3 **ret, struct why *why)
{
	sqlite3 *sql = NULL;
	int version = 0, err;

	err = store_sql_open(store->path, SQLITE_OPEN_READONLY, &sql, why);
	if (!err)
		err = store_schema_look(sql, &version, why);
	if (err && err != -ENODATA && err != -EBADMSG && err != -EOPNOTSUPP && !has_log(store)) {
		sqlite3_close(sql);
		sql = NULL;
		err = open_immutable(store, &sql, why);
		if (!err)
			err = store_schema_look(sql, &version, why);
	}
	if (!err && version < STORE_SCHEMA)
		err = why_set(why, -EOPNOTSUPP,
			      "made by an older flyball (schema %d): whoever writes it next brings "
			      "it up to date",
			      version);
	if (err) {
		sqlite3_close(sql);
		return err;
	}
	*ret = sql;
	return 0;
}

sqlite3_stmt *store_statement(struct store *store, enum store_sql which, struct why *why)
{
	sqlite3_stmt **statement = &store->statements[which];

	if (!store->sql) {
		store_sql_fail(NULL, "cannot use the store", why);
		return NULL;
	}
	if (!*statement && sqlite3_prepare_v3(store->sql, texts[which], -1,
					      SQLITE_PREPARE_PERSISTENT, statement, NULL)) {
		store_sql_fail(store->sql, texts[which], why);
		return NULL;
	}
	sqlite3_reset(*statement);
	sqlite3_clear_bindings(*statement);
	return *statement;
}

int store_statement_run(struct store *store, sqlite3_stmt *statement, const char *what,
			struct why *why)
{
	int code, err = 0;

	do
		code = sqlite3_step(statement);
	while (code == SQLITE_ROW);
	if (code != SQLITE_DONE)
		err = store_sql_fail(store->sql, what, why);
	sqlite3_reset(statement);
	return err;
}

int store_statement_number(struct store *store, enum store_sql which, uint64_t *ret,
			   struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, which, why);
	int err = 0;

	if (!statement)
		return store_sql_fail(store->sql, texts[which], why);
	if (sqlite3_step(statement) == SQLITE_ROW)
		*ret = (uint64_t)sqlite3_column_int64(statement, 0);
	else
		err = store_sql_fail(store->sql, texts[which], why);
	sqlite3_reset(statement);
	return err;
}

void store_statements_done(struct store *store)
{
	for (size_t i = 0; i < STORE_SQL_COUNT; i++) {
		sqlite3_finalize(store->statements[i]);
		store->statements[i] = NULL;
	}
}

void store_bind(sqlite3_stmt *statement, int index, uint64_t value)
{
	sqlite3_bind_int64(statement, index, (sqlite3_int64)value);
}
