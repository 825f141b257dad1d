// SPDX-License-Identifier: Apache-2.0
/* strings: an interner. Text is kept in one entry per string; the table is uthash, whose nodes are
 * counted to MEM_BASE's caller through mem_alloc. */
#include "base.h"

#include <errno.h>
#include <string.h>

#define uthash_malloc(n)       mem_alloc(MEM_BASE, n)
#define uthash_free(p, n)      mem_free(MEM_BASE, p)
#define HASH_NONFATAL_OOM      1
#define uthash_nonfatal_oom(e) ((e)->oom = true)
#include <uthash.h>

struct entry {
	UT_hash_handle hh;
	uint32_t id;
	bool oom;
	char text[];
};

struct strings {
	enum mem_part part;
	struct entry *table;
	struct entry **by_id;
	size_t count, cap, bytes, max_bytes;
};

int strings_new(enum mem_part part, size_t max_bytes, struct strings **ret)
{
	struct strings *s = mem_alloc(part, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->part = part;
	s->max_bytes = max_bytes;
	if (strings_add(s, "", 0) != 0) {
		strings_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void strings_free(struct strings *s)
{
	struct entry *e, *tmp;

	if (!s)
		return;
	HASH_ITER (hh, s->table, e, tmp) {
		HASH_DEL(s->table, e);
		mem_free(s->part, e);
	}
	mem_free(s->part, s->by_id);
	mem_free(s->part, s);
}

int64_t strings_add(struct strings *s, const char *text, size_t len)
{
	struct entry *e;
	void *ids = s->by_id;
	int err;

	len = strnlen(text, len);
	HASH_FIND(hh, s->table, text, len, e);
	if (e)
		return e->id;
	if (s->bytes + len + sizeof(*e) > s->max_bytes)
		return -ENOSPC;
	err = mem_grow(s->part, &ids, &s->cap, s->count + 1, UINT32_MAX, sizeof(*s->by_id));
	s->by_id = ids;
	if (err)
		return err;
	e = mem_alloc(s->part, sizeof(*e) + len + 1);
	if (!e)
		return -ENOMEM;
	memcpy(e->text, text, len);
	e->id = (uint32_t)s->count;
	HASH_ADD_KEYPTR(hh, s->table, e->text, len, e);
	if (e->oom) {
		mem_free(s->part, e);
		return -ENOMEM;
	}
	s->by_id[s->count++] = e;
	s->bytes += len + sizeof(*e);
	return e->id;
}

int64_t strings_add_str(struct strings *s, const char *text)
{
	return strings_add(s, text, strlen(text));
}

const char *strings_get(const struct strings *s, uint32_t id)
{
	return id < s->count ? s->by_id[id]->text : "";
}

uint32_t strings_count(const struct strings *s)
{
	return (uint32_t)s->count;
}

size_t strings_bytes(const struct strings *s)
{
	return s->bytes;
}
