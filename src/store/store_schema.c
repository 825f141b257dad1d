// SPDX-License-Identifier: Apache-2.0
/* store_schema: the tables, by version. A step of a migration never rewrites the bytes of blocks,
 * so it fits the log of a store that is full. */
#include "store_internal.h"

#include <errno.h>

/* Small rows of their own beside the bytes: a scan by time or a sum touches no bytes. */
static const char schema[] =
	"CREATE TABLE blocks("
	" id INTEGER PRIMARY KEY AUTOINCREMENT, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,"
	" kind INTEGER NOT NULL, taken INTEGER NOT NULL, taken_ns INTEGER NOT NULL,"
	" delivered INTEGER NOT NULL, delivered_ns INTEGER NOT NULL, raw_bytes INTEGER NOT NULL,"
	" stored_bytes INTEGER NOT NULL, level INTEGER NOT NULL DEFAULT 0,"
	" windows INTEGER NOT NULL DEFAULT 1, first_id INTEGER NOT NULL DEFAULT 0);"
	"CREATE TABLE data(id INTEGER PRIMARY KEY, terms BLOB NOT NULL, bytes BLOB NOT NULL);"
	"CREATE TABLE counts(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE cursors(target TEXT PRIMARY KEY, acknowledged_id INTEGER NOT NULL,"
	" lost_blocks INTEGER NOT NULL DEFAULT 0, lost_bytes INTEGER NOT NULL DEFAULT 0)"
	" WITHOUT ROWID;";

/* Version 1 had neither compaction nor cursors, and counted nothing. */
static const char from_1[] =
	"ALTER TABLE blocks ADD COLUMN level INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE blocks ADD COLUMN windows INTEGER NOT NULL DEFAULT 1;"
	"ALTER TABLE blocks ADD COLUMN first_id INTEGER NOT NULL DEFAULT 0;"
	"CREATE TABLE counts(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE cursors(target TEXT PRIMARY KEY, acknowledged_id INTEGER NOT NULL,"
	" lost_blocks INTEGER NOT NULL DEFAULT 0, lost_bytes INTEGER NOT NULL DEFAULT 0)"
	" WITHOUT ROWID;";

static const char *const steps[STORE_SCHEMA] = {[0] = schema, [1] = from_1};

int store_schema_look(sqlite3 *sql, int *ret_version, struct why *why)
{
	int64_t version = 0, application = 0, tables = 0;
	int err = store_sql_number(sql, "SELECT count(*) FROM sqlite_schema", &tables, why);

	if (!err)
		err = store_sql_number(sql, "PRAGMA user_version", &version, why);
	if (!err)
		err = store_sql_number(sql, "PRAGMA application_id", &application, why);
	if (err)
		return err;
	if (!tables && !version)
		return why_set(why, -ENODATA, "the database is empty");
	if (application != STORE_APPLICATION || version < 1)
		return why_set(why, -EBADMSG, "this is no database of flyball's");
	if (version > STORE_SCHEMA)
		return why_set(why, -EOPNOTSUPP,
			       "made by a newer flyball (schema %lld, this one knows %d)",
			       (long long)version, STORE_SCHEMA);
	*ret_version = (int)version;
	return 0;
}

static int take_step(sqlite3 *sql, int version, struct why *why)
{
	char stamp[128];
	int err = store_sql_run(sql, "BEGIN IMMEDIATE", "cannot begin the tables", why);

	if (err)
		return err;
	snprintf(stamp, sizeof(stamp), "PRAGMA user_version = %d; PRAGMA application_id = %d",
		 version ? version + 1 : STORE_SCHEMA, STORE_APPLICATION);
	err = store_sql_run(sql, steps[version], "cannot make the tables", why);
	if (!err)
		err = store_sql_run(sql, stamp, "cannot mark the database", why);
	if (!err)
		err = store_sql_run(sql, "COMMIT", "cannot make the tables", why);
	if (err)
		sqlite3_exec(sql, "ROLLBACK", NULL, NULL, NULL);
	return err;
}

int store_schema_ready(sqlite3 *sql, struct why *why)
{
	int version = 0, err = store_schema_look(sql, &version, why);

	if (err && err != -ENODATA)
		return err;
	if (err) /* only before there is a table */
		err = store_sql_run(sql,
				    "PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL",
				    "cannot set up the database", why);
	else
		err = 0;
	if (!err)
		err = store_sql_run(sql, "PRAGMA journal_mode = WAL", "cannot set up the log", why);
	if (err)
		return err;
	if (!version)
		return take_step(sql, 0, why);
	for (; !err && version < STORE_SCHEMA; version++)
		err = take_step(sql, version, why);
	return err;
}
