// SPDX-License-Identifier: Apache-2.0
/* store_cursor: how far each export target has come. */
#include "store_internal.h"

#include <errno.h>
#include <string.h>

static int check_target(const char *target, struct why *why)
{
	size_t len = strlen(target);

	if (!len || len >= STORE_TARGET_BYTES || !text_is_utf8(target, len))
		return why_set(why, -EINVAL, "a target's name has 1 to %d bytes of text",
			       STORE_TARGET_BYTES - 1);
	return 0;
}

/* Runs one statement of (target, number) in a transaction of its own. */
static int change(struct store *store, enum store_sql which, const char *target, uint64_t value,
		  struct why *why)
{
	sqlite3_stmt *statement;
	int err;

	if (store->options.read_only)
		return why_set(why, -EROFS, "this store was opened for reading");
	err = store_begin(store, STORE_EXTRA_PAGES, why);
	if (err)
		return err;
	statement = store_statement(store, which, why);
	if (!statement) {
		err = store_sql_fail(store->sql, "cannot change a cursor", why);
	} else {
		sqlite3_bind_text(statement, 1, target, -1, SQLITE_STATIC);
		if (sqlite3_bind_parameter_count(statement) > 1)
			store_bind(statement, 2, value);
		err = store_statement_run(store, statement, "cannot change a cursor", why);
	}
	if (!err)
		return store_commit(store, why);
	store_rollback(store);
	return err;
}

int store_cursor_add(struct store *store, const char *target, bool from_oldest, struct why *why)
{
	uint64_t last = 0;
	int err = check_target(target, why);

	if (!err && !from_oldest)
		err = store_statement_number(store, STORE_SQL_LAST_ID, &last, why);
	if (err)
		return err;
	return change(store, STORE_SQL_CURSOR_PUT, target, last, why);
}

int store_cursor_remove(struct store *store, const char *target, struct why *why)
{
	return change(store, STORE_SQL_CURSOR_DELETE, target, 0, why);
}

static void cursor_take(sqlite3_stmt *statement, struct store_cursor *ret)
{
	const unsigned char *target = sqlite3_column_text(statement, 0);

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->target, sizeof(ret->target), "%s", target ? (const char *)target : "");
	ret->acknowledged_id = (uint64_t)sqlite3_column_int64(statement, 1);
	ret->lost_blocks = (uint64_t)sqlite3_column_int64(statement, 2);
	ret->lost_bytes = (uint64_t)sqlite3_column_int64(statement, 3);
}

static int add_lag(struct store *store, struct store_cursor *cursor, struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_LAG, why);
	int err = 0;

	if (!statement)
		return store_sql_fail(store->sql, "cannot read what waits", why);
	store_bind(statement, 1, cursor->acknowledged_id);
	if (sqlite3_step(statement) == SQLITE_ROW) {
		cursor->lag_blocks = (uint64_t)sqlite3_column_int64(statement, 0);
		cursor->lag_bytes = (uint64_t)sqlite3_column_int64(statement, 1);
		cursor->lag_since_ns = (uint64_t)sqlite3_column_int64(statement, 2);
	} else {
		err = store_sql_fail(store->sql, "cannot read what waits", why);
	}
	sqlite3_reset(statement);
	return err;
}

int store_cursor_get(struct store *store, const char *target, struct store_cursor *ret,
		     struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_CURSOR_GET, why);
	struct store_cursor cursor = {0};
	int code, err = 0;

	if (!statement)
		return store_sql_fail(store->sql, "cannot read a cursor", why);
	sqlite3_bind_text(statement, 1, target, -1, SQLITE_STATIC);
	code = sqlite3_step(statement);
	if (code == SQLITE_ROW)
		cursor_take(statement, &cursor);
	else if (code == SQLITE_DONE)
		err = why_set(why, -ENOENT, "there is no cursor %s", target);
	else
		err = store_sql_fail(store->sql, "cannot read a cursor", why);
	sqlite3_reset(statement);
	if (!err)
		err = add_lag(store, &cursor, why);
	if (!err)
		*ret = cursor;
	return err;
}

int store_cursor_list(struct store *store, struct store_cursor *out, size_t max, struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_CURSOR_LIST, why);
	int code, count = 0, err = 0;

	if (!statement)
		return store_sql_fail(store->sql, "cannot read the cursors", why);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
		if ((size_t)count < max)
			cursor_take(statement, &out[count]);
		count++;
	}
	if (code != SQLITE_DONE)
		err = store_sql_fail(store->sql, "cannot read the cursors", why);
	sqlite3_reset(statement);
	for (int i = 0; !err && i < count && (size_t)i < max; i++)
		err = add_lag(store, &out[i], why);
	return err ? err : count;
}

int store_block_after(struct store *store, uint64_t after_id, struct store_block *ret,
		      struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_AFTER, why);
	struct store_block block = {0};
	int code, err = 0;

	if (!statement)
		return store_sql_fail(store->sql, "cannot read the next block", why);
	store_bind(statement, 1, after_id);
	code = sqlite3_step(statement);
	if (code == SQLITE_ROW)
		store_row_get(statement, &block);
	else if (code != SQLITE_DONE)
		err = store_sql_fail(store->sql, "cannot read the next block", why);
	sqlite3_reset(statement);
	if (err || code == SQLITE_DONE)
		return err == -EBADMSG ? -EIO : err;
	err = store_row_read(store, &block, why);
	*ret = block;
	return err ? err : 1;
}

int store_cursor_acknowledge(struct store *store, const char *target, uint64_t id, struct why *why)
{
	struct store_cursor now = {0};
	uint64_t last = 0;
	int err = store_cursor_get(store, target, &now, why);

	if (!err)
		err = store_statement_number(store, STORE_SQL_LAST_ID, &last, why);
	if (err)
		return err;
	if (id < now.acknowledged_id || id > last)
		return why_set(why, -EINVAL,
			       "block %llu cannot be acknowledged: %s has %llu of %llu",
			       (unsigned long long)id, target,
			       (unsigned long long)now.acknowledged_id, (unsigned long long)last);
	return change(store, STORE_SQL_CURSOR_ACKNOWLEDGE, target, id, why);
}
