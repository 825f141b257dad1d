// SPDX-License-Identifier: Apache-2.0
/* store_check: everything is read once. */
#include "store_internal.h"

#include <errno.h>
#include <string.h>

static void add_fault(struct store_check *check, const char *text)
{
	if (!check->faults++)
		text_print(text, strlen(text), check->first_fault, sizeof(check->first_fault));
}

static int check_database(struct store *store, struct store_check *check, struct why *why)
{
	sqlite3_stmt *statement = NULL;
	sqlite3 *sql = NULL;
	int code, err = store_sql_reader(store, &sql, why);

	if (err)
		return err;
	if (sqlite3_prepare_v2(sql, "PRAGMA integrity_check", -1, &statement, NULL))
		add_fault(check, sqlite3_errmsg(sql));
	while (statement && (code = sqlite3_step(statement)) != SQLITE_DONE) {
		const char *text = code == SQLITE_ROW
					   ? (const char *)sqlite3_column_text(statement, 0)
					   : sqlite3_errmsg(sql);

		if (!text || strcmp(text, "ok"))
			add_fault(check, text ? text : "?");
		if (code != SQLITE_ROW)
			break;
	}
	sqlite3_finalize(statement);
	sqlite3_close(sql);
	return 0;
}

static int check_blocks(struct store *store, struct store_check *check, struct why *why)
{
	struct store_filter all = {0};
	struct store_selection *selection = NULL;
	struct store_block block;
	struct why why_block = {""};
	int err = store_select(store, &all, &selection, why);

	if (err)
		return err;
	while ((err = store_selection_next(selection, &block, &why_block)) > 0 || err == -EBADMSG) {
		check->blocks++;
		check->damaged += err < 0;
	}
	if (err)
		add_fault(check, why_block.text);
	store_selection_close(selection);
	return 0;
}

int store_check(struct store *store, struct store_check *ret, struct why *why)
{
	struct store_check check = {0};
	int err = check_database(store, &check, why);

	if (!err)
		err = check_blocks(store, &check, why);
	if (!err)
		*ret = check;
	return err;
}
