// SPDX-License-Identifier: Apache-2.0
/*
 * debugfiles: names for code of stripped files, from separate debug files of the machine and, where
 * that was asked for, from debuginfod.
 *
 * Each file goes LOCAL (the helpers look for its debug file), then, when there is none, WAITING
 * (debuginfod is asked) and FETCHED, or NONE. What is asked of it meanwhile waits in its list; one
 * batch is under way at a time. Nothing waits for a server past the end that debugfiles_end sets.
 */
#include "record_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM	1
#define uthash_malloc(bytes)	mem_alloc(MEM_AGENT, bytes)
#define uthash_free(p, bytes)	mem_free(MEM_AGENT, p)
#define uthash_nonfatal_oom(el) ((el)->is_lost = true)
#include <uthash.h>

#define BATCH	  2048
#define ITEMS_MAX (1U << 24)

enum state { LOCAL, WAITING, FETCHED, NONE };

struct debug_file {
	int32_t file; /* key */
	enum state state;
	struct debugfiles *all;
	char link[256];
	int fd; /* FETCHED */
	bool is_asking, is_verified, is_lost;
	uint32_t reason; /* NONE: why */
	struct debugfiles_item *items;
	size_t count, cap;
	UT_hash_handle hh;
};

struct debugfiles {
	struct debugfiles_options opt;
	struct debug_file *files;
	size_t asking, waiting;
	uint64_t end_ns; /* 0: not set */
};

struct ask {
	struct debug_file *file;
	size_t count;
	struct debugfiles_item items[];
};

int debugfiles_new(const struct debugfiles_options *options, struct debugfiles **ret)
{
	struct debugfiles *d = mem_alloc(MEM_AGENT, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->opt = *options;
	*ret = d;
	return 0;
}

void debugfiles_free(struct debugfiles *d)
{
	struct debug_file *f, *next;

	if (!d)
		return;
	HASH_ITER (hh, d->files, f, next) {
		HASH_DEL(d->files, f);
		if (f->fd >= 0)
			close(f->fd);
		mem_free(MEM_AGENT, f->items);
		mem_free(MEM_AGENT, f);
	}
	mem_free(MEM_AGENT, d);
}

static void items_fail(const struct debug_file *f, const struct debugfiles_item *items,
		       size_t count, uint32_t reason)
{
	for (size_t i = 0; i < count; i++)
		profile_location_unnamed(f->all->opt.profile, items[i].location, reason);
}

static int items_add(struct debug_file *f, const struct debugfiles_item *items, size_t count)
{
	void *p = f->items;
	int err = mem_grow(MEM_AGENT, &p, &f->cap, f->count + count, ITEMS_MAX, sizeof(*items));

	f->items = p;
	if (err)
		return err;
	memcpy(f->items + f->count, items, count * sizeof(*items));
	f->count += count;
	return 0;
}

static void pump(struct debug_file *f);

static void become_none(struct debug_file *f, uint32_t reason)
{
	f->state = NONE;
	f->reason = reason;
}

static void fetch_done(void *ctx, int err, int fd, const char *text)
{
	struct debug_file *f = ctx;
	const char *path = process_file_get(f->all->opt.tracker, f->file)->path;

	f->all->waiting--;
	if (!err) {
		f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 10);
		err = f->fd < 0 ? -errno : 0;
	}
	if (!err) {
		f->state = FETCHED;
	} else {
		log_info("no debug file of %s from debuginfod: %s", path, text);
		become_none(f,
			    err == -ENOENT ? FLY_UNNAMED_NO_SYMBOL : FLY_UNNAMED_DEBUGINFOD_FAILED);
	}
	pump(f);
}

/* The machine has no debug file of it. */
static void ask_servers(struct debug_file *f)
{
	struct debugfiles *d = f->all;
	const struct elf_info *info = &process_file_get(d->opt.tracker, f->file)->info;

	become_none(f, FLY_UNNAMED_NO_SYMBOL);
	if (!d->opt.fetch || !info->build_id_len)
		return;
	if (d->end_ns ||
	    helpers_fetch_ask(d->opt.fetch, info->build_id, info->build_id_len, fetch_done, f)) {
		f->reason = FLY_UNNAMED_DEBUGINFOD_FAILED;
		return;
	}
	f->state = WAITING;
	d->waiting++;
}

static void names_take(const struct ask *ask, const struct helpers_result *result)
{
	struct profile *profile = ask->file->all->opt.profile;
	size_t j = 0;

	for (size_t i = 0; i < ask->count; i++) {
		const struct debugfiles_item *item = &ask->items[i];
		const struct helpers_name *name;

		while (j < result->name_count && result->names[j].vaddr < item->address)
			j++;
		name = j < result->name_count ? &result->names[j] : NULL;
		if (name && name->vaddr == item->address && !name->unnamed)
			profile_location_name(profile, item->location, name->name, name->start);
		else
			profile_location_unnamed(profile, item->location, FLY_UNNAMED_NO_SYMBOL);
	}
}

/* Tells the cache whether what came is what was asked for. */
static void verdict(struct debug_file *f, int err)
{
	const struct elf_info *info = &process_file_get(f->all->opt.tracker, f->file)->info;

	if (f->state != FETCHED || f->is_verified || (err && err != -EBADMSG))
		return;
	f->is_verified = true;
	helpers_fetch_verdict(f->all->opt.fetch, info->build_id, info->build_id_len, !err);
}

/* Of a file whose debug file gave no names. Bytes from a server that are not the file say nothing
 * of the program's own file: there is none. */
static uint32_t reason_of(const struct debug_file *f, const struct helpers_result *result)
{
	if (result->err == -ECANCELED)
		return FLY_UNNAMED_NO_TIME;
	if (result->unnamed == FLY_UNNAMED_FILE_INVALID && f->state == FETCHED)
		return FLY_UNNAMED_NO_SYMBOL;
	return result->unnamed ? result->unnamed : FLY_UNNAMED_NO_SYMBOL;
}

static void ask_done(void *ctx, const struct helpers_result *result)
{
	struct ask *ask = ctx;
	struct debug_file *f = ask->file;

	f->is_asking = false;
	f->all->asking--;
	verdict(f, result->err);
	if (!result->err) {
		names_take(ask, result);
	} else if (result->err == -ENOENT && f->state == LOCAL &&
		   !items_add(f, ask->items, ask->count)) {
		ask_servers(f);
	} else {
		become_none(f, reason_of(f, result));
		items_fail(f, ask->items, ask->count, f->reason);
	}
	mem_free(MEM_AGENT, ask);
	if (result->err != -ECANCELED)
		pump(f);
}

static int compare_item(const void *a, const void *b)
{
	const struct debugfiles_item *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static int ask_send(struct ask *ask)
{
	struct debug_file *f = ask->file;
	const struct process_file *file = process_file_get(f->all->opt.tracker, f->file);
	uint64_t *addresses = mem_array(MEM_AGENT, ask->count, sizeof(*addresses));
	int err;

	if (!addresses)
		return -ENOMEM;
	for (size_t i = 0; i < ask->count; i++)
		addresses[i] = ask->items[i].address;
	if (f->state == LOCAL)
		err = helpers_debug_names(f->all->opt.helpers, &file->open, &file->info, f->link,
					  addresses, ask->count, ask_done, ask);
	else
		err = helpers_fetched_names(f->all->opt.helpers, f->fd, file->info.build_id,
					    file->info.build_id_len, addresses, ask->count,
					    ask_done, ask);
	mem_free(MEM_AGENT, addresses);
	return err;
}

/* Takes the last items of the list out as one batch. -EAGAIN: later. */
static int ask_batch(struct debug_file *f)
{
	size_t count = f->count < BATCH ? f->count : BATCH;
	struct ask *ask = mem_alloc(MEM_AGENT, sizeof(*ask) + count * sizeof(ask->items[0]));
	int err;

	if (!ask)
		return -EAGAIN;
	ask->file = f;
	ask->count = count;
	memcpy(ask->items, f->items + f->count - count, count * sizeof(ask->items[0]));
	qsort(ask->items, count, sizeof(ask->items[0]), compare_item);
	err = ask_send(ask);
	if (err) {
		mem_free(MEM_AGENT, ask);
		return err;
	}
	f->count -= count;
	f->is_asking = true;
	f->all->asking++;
	return 0;
}

/* Moves a file on as far as it goes now. */
static void pump(struct debug_file *f)
{
	int err;

	if (!f->count || f->is_asking)
		return;
	if (f->state == LOCAL || f->state == FETCHED) {
		err = ask_batch(f);
		if (!err || err == -EAGAIN || err == -ENOMEM)
			return;
		if (err == -ENOENT && f->state == LOCAL)
			ask_servers(f);
		else
			become_none(f, FLY_UNNAMED_NO_SYMBOL);
	}
	if (f->state == NONE) {
		items_fail(f, f->items, f->count, f->reason);
		f->count = 0;
	}
}

void debugfiles_poll(struct debugfiles *d)
{
	struct debug_file *f, *next;

	HASH_ITER (hh, d->files, f, next)
		pump(f);
}

static struct debug_file *file_get(struct debugfiles *d, int32_t file, const char *link)
{
	struct debug_file *f;

	HASH_FIND(hh, d->files, &file, sizeof(file), f);
	if (f)
		return f;
	f = mem_alloc(MEM_AGENT, sizeof(*f));
	if (!f)
		return NULL;
	f->file = file;
	f->all = d;
	f->fd = -1;
	snprintf(f->link, sizeof(f->link), "%s", link);
	HASH_ADD(hh, d->files, file, sizeof(f->file), f);
	if (f->is_lost) {
		mem_free(MEM_AGENT, f);
		return NULL;
	}
	return f;
}

int debugfiles_ask(struct debugfiles *d, int32_t file, const char *link,
		   const struct debugfiles_item *items, size_t count)
{
	struct debug_file *f = file_get(d, file, link);
	int err = f ? items_add(f, items, count) : -ENOMEM;

	if (!err)
		pump(f);
	return err;
}

int debugfiles_fetched(const struct debugfiles *d, int32_t file)
{
	const struct debug_file *f = NULL;

	if (d)
		HASH_FIND(hh, d->files, &file, sizeof(file), f);
	if (f && f->state == FETCHED)
		return f->fd;
	if (!f || f->state == NONE || (d->end_ns && clock_monotonic_ns() >= d->end_ns))
		return -ENOENT;
	/* A local one that gave names is the right one, and was asked for lines before. */
	return f->state == WAITING || f->is_asking || f->count ? -EAGAIN : -ENOENT;
}

void debugfiles_end(struct debugfiles *d, uint64_t end_ns)
{
	d->end_ns = end_ns;
}

size_t debugfiles_left(const struct debugfiles *d, uint64_t now_ns)
{
	size_t open = 0;

	for (const struct debug_file *f = d->files; f; f = f->hh.next)
		open += f->count && f->state != WAITING;
	return d->asking + open + (d->end_ns && now_ns >= d->end_ns ? 0 : d->waiting);
}

size_t debugfiles_requests(const struct debugfiles *d)
{
	return d->asking + d->waiting;
}

void debugfiles_finish(struct debugfiles *d)
{
	for (struct debug_file *f = d->files; f; f = f->hh.next) {
		items_fail(f, f->items, f->count,
			   f->state == WAITING ? FLY_UNNAMED_DEBUGINFOD_FAILED
					       : FLY_UNNAMED_NO_TIME);
		f->count = 0;
	}
}
