// SPDX-License-Identifier: Apache-2.0
/* store_compact: neighbours of one kind within a minute, later within an hour, become one block. It
 * takes the id of the last of them, so the order stays, and no cursor sees anything twice. */
#include "store_internal.h"

#include <errno.h>
#include <string.h>

#define SECOND_NS 1000000000ULL

struct group {
	struct store_block blocks[STORE_GROUP_MAX];
	struct store_piece pieces[STORE_GROUP_MAX];
	size_t count;
	uint64_t bytes;
};

struct rule {
	enum store_level level;
	uint64_t bucket_ns, before_ns;
};

/* Blocks whose deletion takes half of the log. */
static size_t group_max(const struct store *store)
{
	uint64_t most = (store->room.log_frames - STORE_EXTRA_PAGES) / 2 / STORE_DELETE_PAGES;

	return most < STORE_GROUP_MAX ? (size_t)most : STORE_GROUP_MAX;
}

/* Adds a block to the group; false: the group ends before it. */
static bool group_take(struct group *g, const struct store_block *b, uint64_t bucket_ns, size_t max)
{
	if (g->count == max)
		return false;
	if (g->count && (b->start_ns / bucket_ns != g->blocks[0].start_ns / bucket_ns ||
			 g->bytes + b->len > STORE_BLOCK_BYTES_MAX))
		return false;
	g->blocks[g->count++] = *b;
	g->bytes += b->len;
	return true;
}

/* The first run of two or more that may be merged. Blocks before it are not looked at again. */
static int find_group(struct store *store, const struct rule *rule, uint32_t kind, struct group *g,
		      struct why *why)
{
	uint64_t *done = &store->compacted_id[rule->level][kind], last = 0;
	int code = SQLITE_DONE, err;
	sqlite3_stmt *statement;
	bool is_whole = false;

	err = store_statement_number(store, STORE_SQL_CURSOR_MIN, &last, why);
	if (err)
		return err;
	statement = store_statement(store, STORE_SQL_GROUP, why);
	if (!statement)
		return store_sql_fail(store->sql, "cannot look for blocks to merge", why);
	store_bind(statement, 1, *done);
	store_bind(statement, 2, last);
	store_bind(statement, 3, kind);
	store_bind(statement, 4, rule->level);
	g->count = 0;
	g->bytes = 0;
	while (!is_whole && (code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct store_block b;

		store_row_get(statement, &b);
		if ((b.start_ns / rule->bucket_ns + 1) * rule->bucket_ns > rule->before_ns)
			break; /* the whole bucket is too young */
		if (group_take(g, &b, rule->bucket_ns, group_max(store)))
			continue;
		is_whole = g->count > 1;
		if (!is_whole) {
			*done = g->blocks[0].id;
			g->count = 0;
			g->bytes = 0;
			group_take(g, &b, rule->bucket_ns, group_max(store));
		}
	}
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		err = store_sql_fail(store->sql, "cannot look for blocks to merge", why);
	sqlite3_reset(statement);
	return err ? err : g->count > 1;
}

/* Bytes of all, one behind the other, into store->raw's companion buffer; terms as one set. */
static int read_group(struct store *store, struct group *g, struct buf *bytes, uint32_t **hashes,
		      size_t *hash_count, struct why *why)
{
	size_t cap = 0;
	int err = 0;

	for (size_t i = 0; !err && i < g->count; i++) {
		sqlite3_stmt *statement;

		err = store_row_read(store, &g->blocks[i], why);
		if (err)
			break;
		buf_add(bytes, g->blocks[i].bytes, g->blocks[i].len);
		statement = store_statement(store, STORE_SQL_DATA_GET, why);
		if (!statement)
			return store_sql_fail(store->sql, "cannot read a block", why);
		store_bind(statement, 1, g->blocks[i].id);
		if (sqlite3_step(statement) == SQLITE_ROW)
			err = store_terms_unpack(sqlite3_column_blob(statement, 0),
						 (size_t)sqlite3_column_bytes(statement, 0), hashes,
						 &cap, hash_count);
		else
			err = store_sql_fail(store->sql, "cannot read a block", why);
		sqlite3_reset(statement);
	}
	if (!err && bytes->err)
		err = why_set(why, bytes->err, "no memory to merge %zu blocks", g->count);
	for (size_t i = 0, at = 0; !err && i < g->count; at += g->blocks[i++].len)
		g->pieces[i] = (struct store_piece){bytes->data + at, g->blocks[i].len};
	return err;
}

static void sum_group(const struct group *g, const struct rule *rule, struct store_block *ret)
{
	*ret = g->blocks[0];
	ret->id = g->blocks[g->count - 1].id;
	ret->level = rule->level;
	for (size_t i = 1; i < g->count; i++) {
		const struct store_block *b = &g->blocks[i];

		ret->windows += b->windows;
		ret->start_ns = b->start_ns < ret->start_ns ? b->start_ns : ret->start_ns;
		ret->end_ns = b->end_ns > ret->end_ns ? b->end_ns : ret->end_ns;
		ret->ledger.taken += b->ledger.taken;
		ret->ledger.taken_ns += b->ledger.taken_ns;
		ret->ledger.delivered += b->ledger.delivered;
		ret->ledger.delivered_ns += b->ledger.delivered_ns;
	}
}

static int replace(struct store *store, const struct group *g, const struct store_block *merged,
		   struct why *why)
{
	uint64_t pages = store_row_pages(store->packed.len, store->terms.len), freed = 0;
	int err = 0;

	for (size_t i = 0; i < g->count; i++)
		freed += g->blocks[i].stored_bytes / STORE_PAGE + 1;
	pages += store_room_map_pages(store, pages + freed) + g->count * STORE_DELETE_PAGES +
		 STORE_EXTRA_PAGES;
	if (pages > store->room.log_frames)
		return why_set(why, -ERANGE, "merging %zu blocks needs more log than there is",
			       g->count);
	err = store_begin(store, pages, why);
	if (err)
		return err;
	for (size_t i = 0; !err && i < g->count; i++)
		err = store_row_delete(store, g->blocks[i].id, why);
	if (!err)
		err = store_row_put(store, merged, &store->terms, store->packed.data,
				    store->packed.len, why);
	if (!err)
		return store_commit(store, why);
	store_rollback(store);
	return err;
}

static int merge_group(struct store *store, const struct rule *rule, struct group *g,
		       const struct store_merge *merge, struct why *why)
{
	struct store_block merged;
	struct buf bytes, out;
	uint32_t *hashes = NULL;
	size_t hash_count = 0;
	int err;

	buf_init(&bytes, MEM_STORE, STORE_BLOCK_BYTES_MAX);
	buf_init(&out, MEM_STORE, STORE_BLOCK_BYTES_MAX);
	sum_group(g, rule, &merged);
	err = read_group(store, g, &bytes, &hashes, &hash_count, why);
	if (!err) {
		err = merge->fn(merge->arg, g->pieces, g->count, &out, why);
		if (!err && out.err)
			err = why_set(why, out.err, "no room to merge %zu blocks", g->count);
		err = err == -ENOSPC ? -ERANGE : err; /* of the merge, not of the disk */
	}
	buf_done(&bytes);
	buf_reset(&store->terms);
	if (!err && store_terms_pack_hashes(hashes, hash_count, &store->terms))
		err = why_set(why, -ENOMEM, "no memory to merge %zu blocks", g->count);
	mem_free(MEM_STORE, hashes);
	merged.len = out.len;
	if (!err)
		err = store_row_pack(store, out.data ? out.data : "", out.len, why);
	buf_done(&out);
	if (!err)
		err = replace(store, g, &merged, why);
	return err;
}

static bool is_lasting(int err)
{
	return err != -EBUSY && err != -ENOSPC && err != -ENOMEM && err != -EIO && err != -EROFS;
}

/* 1, 0, or what stopped it. */
static int compact_kind(struct store *store, const struct rule *rule, uint32_t kind,
			struct group *g, const struct store_merge *merge, struct why *why)
{
	int err = find_group(store, rule, kind, g, why);

	if (err <= 0)
		return err;
	err = merge_group(store, rule, g, merge, why);
	if (err && is_lasting(err)) {
		/* It would fail again: these stay as they are. */
		store->compacted_id[rule->level][kind] = g->blocks[g->count - 1].id;
		store->pending[STORE_MERGE_FAILED]++;
	}
	if (err)
		return err;
	store->compacted_id[rule->level][kind] = g->blocks[g->count - 1].id;
	store->pending[STORE_MERGED] += g->count;
	return 1;
}

int store_compact_step(struct store *store, const struct store_merge *merge, struct why *why)
{
	const struct store_options *o = &store->options;
	uint64_t now = store_now(store);
	struct rule rules[] = {
		{STORE_MINUTE, 60 * SECOND_NS, 0},
		{STORE_HOUR, 3600 * SECOND_NS, 0},
	};
	struct group *g;
	int err = 0;

	if (o->read_only || !store->sql)
		return why_set(why, -EROFS, "this store cannot be written");
	rules[0].before_ns = now > o->minutes_after_ns ? now - o->minutes_after_ns : 0;
	rules[1].before_ns = now > o->hours_after_ns ? now - o->hours_after_ns : 0;
	if (!store->kinds) {
		uint64_t kinds = 0;

		err = store_statement_number(store, STORE_SQL_KINDS, &kinds, why);
		if (err)
			return err;
		store->kinds = (uint32_t)kinds;
	}
	g = mem_alloc(MEM_STORE, sizeof(*g));
	if (!g)
		return why_set(why, -ENOMEM, "no memory to merge blocks");
	for (size_t r = 0; !err && r < ARRAY_SIZE(rules); r++) {
		for (uint32_t kind = 0; !err && kind < STORE_KINDS_MAX; kind++) {
			if (store->kinds >> kind & 1)
				err = compact_kind(store, &rules[r], kind, g, merge, why);
		}
	}
	mem_free(MEM_STORE, g);
	return err;
}
