// SPDX-License-Identifier: Apache-2.0
/* intern: uthash over entries that hold their blob. What an entry costs beside its blob is charged
 * as an upper bound: malloc's header, its slot in by_id (which doubles) and in the hash buckets. */
#include "intern.h"

#include <errno.h>
#include <string.h>

#define uthash_malloc(n)       mem_alloc(MEM_PROFILE, n)
#define uthash_free(p, n)      mem_free(MEM_PROFILE, p)
#define HASH_NONFATAL_OOM      1
#define uthash_nonfatal_oom(e) ((e)->is_oom = true)
#include <uthash.h>

struct profile_intern_entry {
	UT_hash_handle hh;
	uint32_t id;
	bool is_oom;
	_Alignas(8) unsigned char blob[];
};

#define ENTRY_BYTES (sizeof(struct profile_intern_entry) + 16 + 2 * sizeof(void *) + 24)

int profile_budget_take(struct profile_budget *budget, size_t bytes)
{
	if (bytes > budget->max || budget->used > budget->max - bytes)
		return -ENOSPC;
	budget->used += bytes;
	return 0;
}

void profile_intern_init(struct profile_intern *in, struct profile_budget *budget)
{
	memset(in, 0, sizeof(*in));
	in->budget = budget;
}

void profile_intern_done(struct profile_intern *in)
{
	HASH_CLEAR(hh, in->table);
	for (size_t i = 0; i < in->count; i++)
		mem_free(MEM_PROFILE, in->by_id[i]);
	mem_free(MEM_PROFILE, in->by_id);
	memset(in, 0, sizeof(*in));
}

static struct profile_intern_entry *entry_new(const void *blob, size_t bytes, uint32_t id)
{
	struct profile_intern_entry *e = mem_alloc(MEM_PROFILE, sizeof(*e) + bytes + 1);

	if (!e)
		return NULL;
	memcpy(e->blob, blob, bytes);
	e->id = id;
	return e;
}

int64_t profile_intern_add(struct profile_intern *in, const void *blob, size_t bytes)
{
	struct profile_intern_entry *e = NULL;
	void *ids = in->by_id;
	int err;

	if (!bytes)
		blob = ""; /* an empty stack comes as NULL */
	HASH_FIND(hh, in->table, blob, bytes, e);
	if (e)
		return e->id;
	if (in->count >= INT32_MAX)
		return -ENOSPC;
	err = mem_grow(MEM_PROFILE, &ids, &in->cap, in->count + 1, INT32_MAX, sizeof(*in->by_id));
	in->by_id = ids;
	if (err)
		return err;
	err = profile_budget_take(in->budget, ENTRY_BYTES + bytes);
	if (err)
		return err;
	e = entry_new(blob, bytes, (uint32_t)in->count);
	if (e)
		HASH_ADD_KEYPTR(hh, in->table, e->blob, bytes, e);
	if (!e || e->is_oom) {
		mem_free(MEM_PROFILE, e);
		in->budget->used -= ENTRY_BYTES + bytes;
		return -ENOMEM;
	}
	in->by_id[in->count++] = e;
	return e->id;
}

const void *profile_intern_get(const struct profile_intern *in, uint32_t id, size_t *ret_bytes)
{
	const struct profile_intern_entry *e = in->by_id[id];

	if (ret_bytes)
		*ret_bytes = e->hh.keylen;
	return e->blob;
}
