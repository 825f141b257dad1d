// SPDX-License-Identifier: Apache-2.0
/* store_select: blocks by time and terms, over a connection of its own, in one snapshot. */
#include "store_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_MAX 32

struct wanted {
	uint32_t hash, group;
};

struct store_selection {
	sqlite3 *sql;
	sqlite3_stmt *rows, *data;
	ZSTD_DCtx *unpack;
	struct buf raw;
	struct wanted *wanted; /* by hash */
	size_t wanted_count;
	uint32_t groups, kinds;
	bool without_bytes;
	uint32_t *hashes;
	size_t hash_cap;
};

static int compare_wanted(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return (x->hash > y->hash) - (x->hash < y->hash);
}

static int take_terms(struct store_selection *s, const struct store_filter *filter, struct why *why)
{
	s->wanted = mem_array(MEM_STORE, filter->term_count, sizeof(*s->wanted));
	if (!s->wanted)
		return why_set(why, -ENOMEM, "no memory for a selection");
	for (size_t i = 0; i < filter->term_count; i++) {
		const struct store_filter_term *t = &filter->terms[i];

		if (t->group >= GROUPS_MAX)
			return why_set(why, -ERANGE, "a selection has at most %d groups of terms",
				       GROUPS_MAX);
		s->wanted[i] = (struct wanted){store_term_hash(&t->term), t->group};
		s->groups |= 1U << t->group;
	}
	s->wanted_count = filter->term_count;
	if (s->wanted_count)
		qsort(s->wanted, s->wanted_count, sizeof(*s->wanted), compare_wanted);
	return 0;
}

/* Both lists are sorted. */
static int match_terms(struct store_selection *s, const void *packed, size_t len, struct why *why)
{
	size_t count = 0, w = 0;
	uint32_t found = 0;
	int err = store_terms_unpack(packed, len, &s->hashes, &s->hash_cap, &count);

	if (err)
		return why_set(why, err, "the terms of a block are damaged");
	for (size_t i = 0; i < count && w < s->wanted_count; i++) {
		while (w < s->wanted_count && s->wanted[w].hash < s->hashes[i])
			w++;
		for (; w < s->wanted_count && s->wanted[w].hash == s->hashes[i]; w++)
			found |= 1U << s->wanted[w].group;
	}
	return found == s->groups;
}

static int prepare(struct store_selection *s, const struct store_filter *filter, struct why *why)
{
	static const char rows[] =
		"SELECT " STORE_COLUMNS
		" FROM blocks WHERE id > ?1 AND end_ns > ?2 AND start_ns < ?3 ORDER BY id";
	static const char data[] = "SELECT terms, bytes FROM data WHERE id = ?1";
	uint64_t end = filter->until_ns;

	if (sqlite3_prepare_v2(s->sql, rows, -1, &s->rows, NULL) ||
	    sqlite3_prepare_v2(s->sql, data, -1, &s->data, NULL))
		return store_sql_fail(s->sql, "cannot select", why);
	store_bind(s->rows, 1, filter->after_id);
	store_bind(s->rows, 2, filter->since_ns);
	store_bind(s->rows, 3, end && end < INT64_MAX ? end : INT64_MAX);
	return 0;
}

int store_select(struct store *store, const struct store_filter *filter,
		 struct store_selection **ret, struct why *why)
{
	struct store_selection *s = mem_alloc(MEM_STORE, sizeof(*s));
	int err;

	if (!s)
		return why_set(why, -ENOMEM, "no memory for a selection");
	buf_init(&s->raw, MEM_STORE, STORE_BLOCK_BYTES_MAX);
	s->kinds = filter->kinds;
	s->without_bytes = filter->without_bytes;
	s->unpack = ZSTD_createDCtx();
	err = s->unpack ? take_terms(s, filter, why)
			: why_set(why, -ENOMEM, "no memory for a selection");
	if (!err)
		err = store_sql_reader(store, &s->sql, why);
	if (!err)
		err = prepare(s, filter, why);
	if (err) {
		store_selection_close(s);
		return err;
	}
	*ret = s;
	return 0;
}

/* 1: it matches, and *ret has its bytes if they are wanted. */
static int take_data(struct store_selection *s, struct store_block *ret, struct why *why)
{
	int code, err;

	if (s->without_bytes && !s->groups)
		return 1;
	store_bind(s->data, 1, ret->id);
	code = sqlite3_step(s->data);
	if (code == SQLITE_ROW)
		err = match_terms(s, sqlite3_column_blob(s->data, 0),
				  (size_t)sqlite3_column_bytes(s->data, 0), why);
	else if (code == SQLITE_DONE)
		err = why_set(why, -EBADMSG, "a block has lost its bytes");
	else
		err = store_sql_fail(s->sql, "cannot read a block", why);
	if (err > 0 && !s->without_bytes) {
		err = store_row_unpack(s->unpack, sqlite3_column_blob(s->data, 1),
				       (size_t)sqlite3_column_bytes(s->data, 1), ret->len, &s->raw,
				       why);
		ret->bytes = s->raw.data;
		err = err ? err : 1;
	}
	sqlite3_reset(s->data);
	return err;
}

int store_selection_next(struct store_selection *s, struct store_block *ret, struct why *why)
{
	int code, err;

	while ((code = sqlite3_step(s->rows)) == SQLITE_ROW) {
		struct store_block block;

		store_row_get(s->rows, &block);
		if (s->kinds && !(s->kinds >> block.kind & 1))
			continue;
		err = take_data(s, &block, why);
		if (err) {
			*ret = block;
			return err;
		}
	}
	if (code == SQLITE_DONE)
		return 0;
	err = store_sql_fail(s->sql, "cannot select", why);
	/* The rows cannot be walked on: not the answer for one damaged block. */
	return err == -EBADMSG ? -EIO : err;
}

void store_selection_close(struct store_selection *s)
{
	if (!s)
		return;
	sqlite3_finalize(s->rows);
	sqlite3_finalize(s->data);
	sqlite3_close(s->sql);
	ZSTD_freeDCtx(s->unpack);
	buf_done(&s->raw);
	mem_free(MEM_STORE, s->wanted);
	mem_free(MEM_STORE, s->hashes);
	mem_free(MEM_STORE, s);
}
