// SPDX-License-Identifier: Apache-2.0
/* store_append: one more block. Nothing of it is seen, and nothing counted as there, before its one
 * transaction is on disk. */
#include "store_internal.h"

#include <errno.h>

static int check_meta(const struct store_block_meta *meta, size_t len, struct why *why)
{
	if (meta->kind >= STORE_KINDS_MAX)
		return why_set(why, -EINVAL, "there is no kind %u of blocks", meta->kind);
	if (meta->end_ns < meta->start_ns || meta->end_ns > INT64_MAX)
		return why_set(why, -EINVAL, "a block ends before it starts");
	if (len > STORE_BLOCK_BYTES_MAX)
		return why_set(why, -ERANGE, "a block of %zu bytes is larger than %u", len,
			       STORE_BLOCK_BYTES_MAX);
	if (meta->term_count > STORE_TERMS_MAX)
		return why_set(why, -ERANGE, "a block of %zu terms: at most %d are kept",
			       meta->term_count, STORE_TERMS_MAX);
	return 0;
}

/* Reads one old block with every new one, so that damage is found before somebody asks, at a
 * bounded cost. Of a damaged block nothing can be used: it goes, and is counted. */
static int scrub(struct store *store, struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_AFTER, why);
	struct store_block block = {0};
	int code, err;

	if (!statement)
		return store_sql_fail(store->sql, "cannot look for damage", why);
	store_bind(statement, 1, store->scrubbed_id);
	code = sqlite3_step(statement);
	if (code == SQLITE_ROW)
		store_row_get(statement, &block);
	else if (code != SQLITE_DONE)
		code = store_sql_fail(store->sql, "cannot look for damage", why);
	sqlite3_reset(statement);
	if (code != SQLITE_ROW) {
		store->scrubbed_id = 0; /* from the beginning again */
		return code == SQLITE_DONE ? 0 : code;
	}
	store->scrubbed_id = block.id;
	err = store_row_read(store, &block, why);
	if (err != -EBADMSG)
		return err;
	if ((sqlite3_errcode(store->sql) & 0xff) == SQLITE_CORRUPT)
		return err; /* more than the bytes of one block */
	err = store_begin(store,
			  STORE_DELETE_PAGES + STORE_EXTRA_PAGES +
				  store_room_map_pages(store, block.stored_bytes / STORE_PAGE + 1),
			  why);
	if (err)
		return err;
	err = store_row_delete(store, block.id, why);
	if (err) {
		store_rollback(store);
		return err;
	}
	store->pending[STORE_DAMAGED]++;
	return store_commit(store, why);
}

static int write_block(struct store *store, const struct store_block *block, uint64_t *ret_id,
		       struct why *why)
{
	const struct buf *packed = &store->packed;
	uint64_t pages = store_row_pages(packed->len, store->terms.len);
	uint64_t written[STORE_COUNTS];
	int err;

	if (pages + store_room_map_pages(store, pages) + STORE_EXTRA_PAGES > store->room.log_frames)
		return why_set(why, -ERANGE,
			       "a block of %zu bytes, packed, is too large for a quota of %llu",
			       packed->len, (unsigned long long)store->options.quota_bytes);
	err = store_room_make(store, pages + STORE_EXTRA_PAGES, why);
	if (!err)
		err = store_begin(
			store, pages + store_room_map_pages(store, pages) + STORE_EXTRA_PAGES, why);
	if (err)
		return err;
	store->pending[STORE_APPENDED]++;
	err = store_row_put(store, block, &store->terms, packed->data, packed->len, why);
	if (!err)
		*ret_id = (uint64_t)sqlite3_last_insert_rowid(store->sql);
	if (!err)
		err = store_counts_write(store, why);
	for (size_t i = 0; i < STORE_COUNTS; i++)
		written[i] = store->pending[i];
	if (err)
		store_rollback(store);
	else
		err = store_commit(store, why);
	if (err) {
		store->pending[STORE_APPENDED]--;
		return err;
	}
	for (size_t i = 0; i < STORE_COUNTS; i++)
		store->pending[i] -= written[i];
	return 0;
}

static int append(struct store *store, const struct store_block *block, uint64_t *ret_id,
		  struct why *why)
{
	int err = store->sql ? 0 : store_database_open(store, why);

	if (!err)
		err = store_room_expire(store, why);
	if (!err)
		err = scrub(store, why);
	if (!err)
		err = write_block(store, block, ret_id, why);
	return err;
}

static void count_refusal(struct store *store, int err)
{
	enum store_count count = STORE_REFUSED_OTHER;

	if (err == -ERANGE || err == -EINVAL)
		count = STORE_REFUSED_SIZE;
	else if (err == -ENOSPC)
		count = STORE_REFUSED_SPACE;
	else if (err == -EBUSY)
		count = STORE_REFUSED_LOG;
	store->pending[count]++;
}

int store_append(struct store *store, const struct store_block_meta *meta, const void *bytes,
		 size_t len, uint64_t *ret_id, struct why *why)
{
	struct store_block block = {
		.windows = 1,
		.start_ns = meta->start_ns,
		.end_ns = meta->end_ns,
		.kind = meta->kind,
		.ledger = meta->ledger,
		.len = len,
	};
	uint64_t id = 0;
	int err;

	if (store->options.read_only)
		return why_set(why, -EROFS, "this store was opened for reading");
	err = check_meta(meta, len, why);
	buf_reset(&store->terms);
	if (!err && store_terms_pack(meta->terms, meta->term_count, &store->terms))
		err = why_set(why, -ENOMEM, "no memory for the terms of a block");
	if (!err)
		err = store_row_pack(store, bytes, len, why);
	if (!err)
		err = append(store, &block, &id, why);
	if (err == -EBADMSG) {
		err = store_set_aside(store, why);
		if (!err) /* packed and terms were used meanwhile */
			err = store_row_pack(store, bytes, len, why);
		buf_reset(&store->terms);
		if (!err && store_terms_pack(meta->terms, meta->term_count, &store->terms))
			err = why_set(why, -ENOMEM, "no memory for the terms of a block");
		if (!err)
			err = append(store, &block, &id, why);
	}
	if (err) {
		count_refusal(store, err);
		return err;
	}
	if (store->kinds)
		store->kinds |= 1U << block.kind;
	if (ret_id)
		*ret_id = id;
	return 0;
}
