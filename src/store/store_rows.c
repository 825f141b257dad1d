// SPDX-License-Identifier: Apache-2.0
/* store_rows: one block as rows, and its bytes packed and unpacked. */
#include "store_internal.h"

#include <errno.h>

#define LEVEL 3 /* bench/store: 9 takes 6 times as long for some 10 % */

uint64_t store_row_pages(size_t packed_len, size_t terms_len)
{
	return (packed_len + terms_len) / (STORE_PAGE - 4) + 3;
}

void store_row_get(sqlite3_stmt *statement, struct store_block *ret)
{
	uint64_t v[STORE_COLUMN_COUNT];

	for (int i = 0; i < STORE_COLUMN_COUNT; i++)
		v[i] = (uint64_t)sqlite3_column_int64(statement, i);
	*ret = (struct store_block){
		.id = v[0],
		.first_id = v[1] ? v[1] : v[0],
		.level = v[2] < STORE_LEVELS ? (enum store_level)v[2] : STORE_HOUR,
		.windows = v[3],
		.kind = (uint32_t)v[4] % STORE_KINDS_MAX,
		.start_ns = v[5],
		.end_ns = v[6],
		.ledger = {v[7], v[8], v[9], v[10]},
		.len = v[11],
		.stored_bytes = v[12],
	};
}

int store_row_put(struct store *store, const struct store_block *b, const struct buf *terms,
		  const void *packed, size_t packed_len, struct why *why)
{
	sqlite3_stmt *row = store_statement(store, STORE_SQL_BLOCK_PUT, why);
	sqlite3_stmt *data = row ? store_statement(store, STORE_SQL_DATA_PUT, why) : NULL;
	int err;

	if (!data)
		return store_sql_fail(store->sql, "cannot write a block", why);
	if (b->id)
		store_bind(row, 1, b->id); /* else the next one */
	store_bind(row, 2, b->first_id);
	store_bind(row, 3, b->level);
	store_bind(row, 4, b->windows);
	store_bind(row, 5, b->kind);
	store_bind(row, 6, b->start_ns);
	store_bind(row, 7, b->end_ns);
	store_bind(row, 8, b->ledger.taken);
	store_bind(row, 9, b->ledger.taken_ns);
	store_bind(row, 10, b->ledger.delivered);
	store_bind(row, 11, b->ledger.delivered_ns);
	store_bind(row, 12, b->len);
	store_bind(row, 13, packed_len);
	err = store_statement_run(store, row, "cannot write a block", why);
	if (err)
		return err;
	store_bind(data, 1, (uint64_t)sqlite3_last_insert_rowid(store->sql));
	sqlite3_bind_blob64(data, 2, terms->len ? terms->data : "", terms->len, SQLITE_STATIC);
	sqlite3_bind_blob64(data, 3, packed_len ? packed : "", packed_len, SQLITE_STATIC);
	return store_statement_run(store, data, "cannot write the bytes of a block", why);
}

int store_row_delete(struct store *store, uint64_t id, struct why *why)
{
	static const enum store_sql both[] = {STORE_SQL_BLOCK_DELETE, STORE_SQL_DATA_DELETE};
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(both); i++) {
		sqlite3_stmt *statement = store_statement(store, both[i], why);

		if (!statement)
			return store_sql_fail(store->sql, "cannot delete a block", why);
		store_bind(statement, 1, id);
		err = store_statement_run(store, statement, "cannot delete a block", why);
	}
	return err;
}

int store_row_pack(struct store *store, const void *bytes, size_t len, struct why *why)
{
	size_t bound = ZSTD_compressBound(len), got;
	void *data = store->packed.data;

	if (mem_grow(MEM_STORE, &data, &store->packed.cap, bound, STORE_PACKED_MAX, 1))
		return why_set(why, -ENOMEM, "no memory to pack a block of %zu bytes", len);
	store->packed.data = data;
	ZSTD_CCtx_setParameter(store->pack, ZSTD_c_compressionLevel, LEVEL);
	ZSTD_CCtx_setParameter(store->pack, ZSTD_c_checksumFlag, 1);
	got = ZSTD_compress2(store->pack, data, bound, bytes, len);
	if (ZSTD_isError(got))
		return why_set(why, -ENOMEM, "cannot pack a block: %s", ZSTD_getErrorName(got));
	store->packed.len = got;
	return 0;
}

int store_row_unpack(ZSTD_DCtx *unpack, const void *packed, size_t packed_len, size_t len,
		     struct buf *out, struct why *why)
{
	void *data = out->data;
	size_t got;

	if (len > STORE_BLOCK_BYTES_MAX || !packed ||
	    ZSTD_getFrameContentSize(packed, packed_len) != len)
		return why_set(why, -EBADMSG, "the bytes of a block are damaged");
	if (mem_grow(MEM_STORE, &data, &out->cap, len + 1, STORE_BLOCK_BYTES_MAX + 1, 1))
		return why_set(why, -ENOMEM, "no memory to unpack a block of %zu bytes", len);
	out->data = data;
	got = ZSTD_decompressDCtx(unpack, data, len, packed, packed_len);
	if (ZSTD_isError(got) || got != len)
		return why_set(why, -EBADMSG, "the bytes of a block are damaged: %s",
			       ZSTD_getErrorName(got));
	out->len = len;
	return 0;
}

int store_row_read(struct store *store, struct store_block *block, struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, STORE_SQL_DATA_GET, why);
	int code, err;

	if (!statement)
		return store_sql_fail(store->sql, "cannot read a block", why);
	store_bind(statement, 1, block->id);
	code = sqlite3_step(statement);
	if (code == SQLITE_ROW)
		err = store_row_unpack(store->unpack, sqlite3_column_blob(statement, 1),
				       (size_t)sqlite3_column_bytes(statement, 1), block->len,
				       &store->raw, why);
	else if (code == SQLITE_DONE)
		err = why_set(why, -EBADMSG, "a block has lost its bytes");
	else
		err = store_sql_fail(store->sql, "cannot read a block", why);
	sqlite3_reset(statement);
	if (!err)
		block->bytes = store->raw.data;
	return err;
}
