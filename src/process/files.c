// SPDX-License-Identifier: Apache-2.0
/*
 * files: which file a mapping shows. Entered once by key, so that a thousand runs of one program
 * ask for it once; held by the opener at once when the side-band shows it (its process may be gone
 * in a moment), and asked for again, ever more rarely, when it was gone before it could be opened
 * and somebody maps it anew.
 *
 * A file's id is given out by process_place only. At FILES_MAX those that were never given out and
 * that nobody has mapped make room.
 */
#include "process/tracker.h"

#include <errno.h>
#include <string.h>

#include <utlist.h>

static const uint64_t retry_steps[] = {10 * MS, 100 * MS, S, 10 * S};

/* ---------------------------------------------------------------- paths */
static bool starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Devices and shared anonymous memory have a path, but nothing that could be read as a program. */
enum raw_kind process_path_kind(const char *path)
{
	if (strcmp(path, "[vdso]") == 0)
		return RAW_VDSO;
	if (*path != '/' || starts_with(path, "//anon") || starts_with(path, "/SYSV") ||
	    starts_with(path, "/anon_hugepage") ||
	    starts_with(path, "/memfd:doublemapper") || /* .NET: code it writes elsewhere */
	    (starts_with(path, "/dev/") && !starts_with(path, "/dev/shm/")))
		return RAW_ANONYMOUS;
	return RAW_FILE;
}

uint32_t process_path_clean(struct process_tracker *t, const char *path)
{
	static const char suffix[] = " (deleted)";
	size_t n = strlen(path), m = sizeof(suffix) - 1;
	int64_t id;

	if (n > m && strcmp(path + n - m, suffix) == 0)
		n -= m;
	id = strings_add(t->strings, path, n);
	return id < 0 ? 0 : (uint32_t)id;
}

/* Not a path that anything could be found at. */
static bool is_pathless(const char *path)
{
	return !*path || starts_with(path, "//") || starts_with(path, "/memfd:");
}

/* ---------------------------------------------------------------- asking */
static bool is_worth_another_try(uint32_t unnamed)
{
	return unnamed != FLY_UNNAMED_FILE_INVALID && unnamed != FLY_UNNAMED_READER_FAILED &&
	       unnamed != FLY_UNNAMED_NOT_ASKED;
}

static void file_fail(struct process_tracker *t, struct file *f, uint32_t unnamed)
{
	t->stats.inspected++;
	f->pub.state = PROCESS_FILE_FAILED;
	f->pub.unnamed = unnamed ? unnamed : FLY_UNNAMED_FILE_GONE;
	f->retry.next_ns = t->now_ns + retry_steps[f->retry.step];
}

static struct file *file_get(const struct process_tracker *t, int32_t id)
{
	return id >= 0 && (size_t)id < t->file_count ? t->files[id] : NULL;
}

/* The file of a request that is answered; NULL when the tracker is gone. */
static struct file *answered(struct request *r, struct process_tracker **ret)
{
	struct process_tracker *t = r->tracker;
	struct file *f = t ? file_get(t, r->file) : NULL;

	if (f)
		f->pins--;
	*ret = t;
	process_request_free(r);
	return f;
}

static void take_stat(struct file *f, const struct helpers_result *result)
{
	if (result->err || !result->ino)
		return;
	f->has_stat = true;
	f->dev = result->dev;
	f->ino = result->ino;
	f->pub.mtime_ns = result->mtime_ns;
	f->pub.ino = result->is_layered ? 0 : result->ino;
}

static bool is_same_file(const struct file *a, const struct file *b)
{
	const struct elf_info *x = &a->pub.info, *y = &b->pub.info;

	return a->has_stat && b->has_stat && a->dev == b->dev && a->ino == b->ino &&
	       x->file_bytes == y->file_bytes && x->build_id_len == y->build_id_len &&
	       memcmp(x->build_id, y->build_id, x->build_id_len) == 0 &&
	       memcmp(x->htlhash, y->htlhash, sizeof(x->htlhash)) == 0;
}

static void find_same(struct process_tracker *t, struct file *f)
{
	for (size_t i = 0; i < t->file_count; i++) {
		struct file *other = t->files[i];

		if (!other || other == f || other->pub.state != PROCESS_FILE_READY ||
		    other->pub.is_vdso || other->pub.same_as != other->id ||
		    !is_same_file(f, other))
			continue;
		f->pub.same_as = other->id;
		return;
	}
}

static void inspect_done(void *ctx, const struct helpers_result *result)
{
	struct process_tracker *t;
	struct file *f = answered(ctx, &t);

	if (!f)
		return;
	take_stat(f, result);
	if (result->err || !result->info) {
		file_fail(t, f, result->unnamed);
		return;
	}
	f->pub.info = *result->info;
	t->stats.inspected++;
	f->pub.state = PROCESS_FILE_READY;
	f->pub.unnamed = FLY_UNNAMED_NONE;
	find_same(t, f);
}

static void file_inspect(struct process_tracker *t, struct file *f)
{
	struct request *r = process_request_new(t);
	int err = -ENOMEM;

	f->wants_inspect = false;
	if (r) {
		r->file = f->id;
		err = helpers_inspect(t->opt.helpers, &f->pub.open, inspect_done, r);
		if (err)
			process_request_free(r);
	}
	if (!err) {
		t->stats.inspections++;
		f->pins++;
		f->pub.state = PROCESS_FILE_ASKED;
	} else if (err == -EAGAIN || err == -ENOMEM) {
		f->wants_inspect = t->has_waiting_files = true;
	} else {
		file_fail(t, f, FLY_UNNAMED_HELPER_LIMIT);
	}
}

static void hold_done(void *ctx, const struct helpers_result *result)
{
	struct process_tracker *t;
	struct file *f = answered(ctx, &t);

	if (!f)
		return;
	take_stat(f, result);
	f->hold = result->err ? HOLD_FAILED : HOLD_KEPT;
	if (!result->err)
		return;
	t->stats.holds_failed++;
	if (f->pub.state == PROCESS_FILE_UNSEEN)
		file_fail(t, f, result->unnamed);
}

static void file_hold(struct process_tracker *t, struct file *f)
{
	struct request *r;
	int err = -ENOMEM;

	if (!t->opt.helpers || t->opt.no_files || f->pub.is_vdso)
		return;
	r = process_request_new(t);
	if (r) {
		r->file = f->id;
		err = helpers_hold(t->opt.helpers, &f->pub.open, hold_done, r);
		if (err)
			process_request_free(r);
	}
	if (!err) {
		t->stats.holds++;
		f->pins++;
		f->hold = HOLD_ASKED;
	} else if (err == -EAGAIN || err == -ENOMEM) {
		f->hold = HOLD_WANTED;
		t->has_waiting_files = true;
	} else {
		f->hold = HOLD_FAILED;
		if (f->pub.state == PROCESS_FILE_UNSEEN)
			file_fail(t, f, FLY_UNNAMED_HELPER_LIMIT);
	}
}

#define ANCESTORS_MAX 8

/* Who has the same mappings and will be there for longer: a child may execute, or end, at once. */
static const struct process *elder_of(struct process_tracker *t, const struct process *p)
{
	for (int i = 0; i < ANCESTORS_MAX && p->parent_tgid; i++) {
		const struct process *parent = process_entry_find(t, p->parent_tgid);

		if (!parent || parent->is_ended || parent->maps != p->maps)
			break;
		p = parent;
	}
	return p;
}

/* Where it can be opened now. */
static void file_open_at(struct process_tracker *t, struct file *f, const struct process *p,
			 uint64_t start, uint64_t end)
{
	p = elder_of(t, p);
	f->pub.open.tgid = p->who.tgid;
	f->pub.open.process_start_ns = p->who.start_ns;
	f->pub.open.start = start;
	f->pub.open.end = end;
}

static void file_seen_again(struct process_tracker *t, struct file *f, const struct process *p,
			    uint64_t start, uint64_t end)
{
	if (f->hold == HOLD_WANTED) {
		file_open_at(t, f, p, start, end);
		return;
	}
	if (f->pub.state != PROCESS_FILE_FAILED || f->pins ||
	    !is_worth_another_try(f->pub.unnamed) ||
	    !process_backoff_is_due(&f->retry, t->now_ns, retry_steps, ARRAY_SIZE(retry_steps)))
		return;
	file_open_at(t, f, p, start, end);
	f->pub.state = PROCESS_FILE_UNSEEN;
	f->pub.unnamed = FLY_UNNAMED_NONE;
	file_hold(t, f);
	if (f->is_wanted)
		file_inspect(t, f);
}

/* ---------------------------------------------------------------- room */
static void mark_files(struct process_tracker *t, struct process *p)
{
	struct process_maps *maps = p->maps;

	if (!maps || maps->mark == t->sweep)
		return;
	maps->mark = t->sweep;
	for (size_t i = 0; i < maps->count; i++) {
		if (maps->items[i].file >= 0)
			t->files[maps->items[i].file]->mark = t->sweep;
	}
}

static void file_free(struct process_tracker *t, struct file *f)
{
	HASH_DEL(t->file_by_key, f);
	if (t->opt.helpers && f->hold != HOLD_NONE)
		helpers_release(t->opt.helpers, f->pub.key);
	t->files[f->id] = NULL;
	t->free_files++;
	mem_free(MEM_PROCESS, f);
}

/* Sets of mappings that only a request refers to are empty of files that matter: they are not
 * whole and their processes are gone. They are marked all the same, ids must not dangle. */
static void sweep_files(struct process_tracker *t)
{
	struct process *p;
	struct request *r;

	if (t->swept_ns && t->now_ns < t->swept_ns + S)
		return;
	t->swept_ns = t->now_ns;
	t->sweep++;
	DL_FOREACH(t->live, p)
	mark_files(t, p);
	DL_FOREACH(t->ended, p)
	mark_files(t, p);
	DL_FOREACH(t->requests, r)
	{
		struct process holder = {.maps = r->maps};

		mark_files(t, &holder);
	}
	for (size_t i = 0; i < t->file_count; i++) {
		struct file *f = t->files[i];

		if (f && f->mark != t->sweep && !f->is_sampled && !f->pins &&
		    t->now_ns > f->seen_ns + S)
			file_free(t, f);
	}
}

static int32_t file_slot(struct process_tracker *t)
{
	void *files = t->files;
	int err;

	if (!t->free_files && t->file_count == FILES_MAX)
		sweep_files(t);
	for (size_t i = 0; t->free_files && i < t->file_count; i++) {
		if (!t->files[i])
			return (int32_t)i;
	}
	err = mem_grow(MEM_PROCESS, &files, &t->file_cap, t->file_count + 1, FILES_MAX,
		       sizeof(struct file *));
	t->files = files;
	return err ? -1 : (int32_t)t->file_count;
}

/* ---------------------------------------------------------------- entering */
static struct file *file_new(struct process_tracker *t, const struct file_key *key)
{
	int32_t id = file_slot(t);
	struct file *f = id >= 0 ? mem_alloc(MEM_PROCESS, sizeof(*f)) : NULL;

	if (!f)
		return NULL;
	f->key = *key;
	f->id = f->pub.same_as = id;
	HASH_ADD(hh, t->file_by_key, key, sizeof(f->key), f);
	if (f->is_oom) {
		mem_free(MEM_PROCESS, f);
		return NULL;
	}
	if ((size_t)id == t->file_count)
		t->file_count++;
	else
		t->free_files--;
	t->files[id] = f;
	f->pub.key = t->next_key++;
	f->pub.path = strings_get(t->strings, key->path);
	f->pub.is_vdso = key->kind == RAW_VDSO;
	if (f->pub.is_vdso)
		f->pub.state = PROCESS_FILE_READY;
	f->pub.info.build_id_len = f->pub.open.build_id_len = key->build_id_len;
	memcpy(f->pub.info.build_id, key->build_id, key->build_id_len);
	memcpy(f->pub.open.build_id, key->build_id, key->build_id_len);
	f->pub.open.key = f->pub.key;
	f->pub.open.path = is_pathless(f->pub.path) ? NULL : f->pub.path;
	f->pub.open.ino = key->build_id_len ? 0 : key->ino;
	return f;
}

/* For kinds that have a file. Hashed as bytes: the struct has no padding. */
static struct file_key key_of(const struct process *p, const struct raw_mapping *m,
			      uint64_t exe_dev, uint64_t exe_ino)
{
	struct file_key key = {.kind = m->kind, .path = m->path, .view = p->view};

	if (m->build_id_len) {
		key.dev = exe_dev;
		key.ino = exe_ino;
		key.build_id_len = m->build_id_len;
		memcpy(key.build_id, m->build_id, sizeof(key.build_id));
	} else {
		key.dev = m->dev;
		key.ino = m->ino;
		key.generation = m->generation;
	}
	return key;
}

_Static_assert(sizeof(struct file_key) == 56, "process: file_key has padding");

int32_t process_file_enter(struct process_tracker *t, const struct process *p,
			   const struct raw_mapping *m, uint64_t exe_dev, uint64_t exe_ino,
			   bool hold_now)
{
	struct file_key key = {.kind = RAW_VDSO};
	struct file *f;

	if (m->kind == RAW_ANONYMOUS)
		return m->ino ? PROCESS_FILE_SHARED : PROCESS_FILE_ANONYMOUS;
	if (m->kind == RAW_VDSO)
		key.path = process_text_id(t, "[vdso]");
	else
		key = key_of(p, m, exe_dev, exe_ino);
	if (!key.path)
		return PROCESS_FILE_UNKNOWN;
	/* The analyzer does not follow a struct that is read as bytes. */
	/* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
	HASH_FIND(hh, t->file_by_key, &key, sizeof(key), f);
	if (f) {
		f->seen_ns = t->now_ns;
		if (hold_now)
			file_seen_again(t, f, p, m->start, m->end);
		return f->id;
	}
	f = file_new(t, &key);
	if (!f)
		return PROCESS_FILE_UNKNOWN;
	f->seen_ns = t->now_ns;
	file_open_at(t, f, p, m->start, m->end);
	if (hold_now)
		file_hold(t, f);
	return f->id;
}

void process_file_sampled(struct process_tracker *t, const struct process *p, int32_t id,
			  const struct process_mapping *m)
{
	struct file *f = file_get(t, id);

	if (!f)
		return;
	f->is_sampled = true;
	if (p->is_ended)
		return;
	/* It may have been asked for where a child had it, which is gone or another program now. */
	if (f->hold != HOLD_NONE) {
		file_seen_again(t, f, p, m->start, m->end);
		return;
	}
	file_open_at(t, f, p, m->start, m->end);
	file_hold(t, f);
}

/* ---------------------------------------------------------------- public */
size_t process_file_count(const struct process_tracker *t)
{
	return t->file_count;
}

const struct process_file *process_file_get(const struct process_tracker *t, int32_t file)
{
	static const struct process_file none = {.path = "", .same_as = -1};
	const struct file *f = file_get(t, file);

	return f ? &f->pub : &none;
}

void process_file_want(struct process_tracker *t, int32_t file)
{
	struct file *f = file_get(t, file);

	if (!f || f->is_wanted || f->pub.is_vdso)
		return;
	f->is_wanted = true;
	if (t->opt.no_files || !t->opt.helpers)
		file_fail(t, f, FLY_UNNAMED_NOT_ASKED);
	else if (f->pub.state == PROCESS_FILE_UNSEEN)
		file_inspect(t, f);
}

void process_files_tick(struct process_tracker *t)
{
	if (!t->has_waiting_files)
		return;
	t->has_waiting_files = false;
	for (size_t i = 0; i < t->file_count && !t->has_waiting_files; i++) {
		struct file *f = t->files[i];

		if (f && f->hold == HOLD_WANTED)
			file_hold(t, f);
		if (f && f->wants_inspect && !t->has_waiting_files)
			file_inspect(t, f);
	}
}

void process_files_free(struct process_tracker *t)
{
	struct file *f, *next;

	HASH_ITER (hh, t->file_by_key, f, next) {
		HASH_DEL(t->file_by_key, f);
		mem_free(MEM_PROCESS, f);
	}
	mem_free(MEM_PROCESS, t->files);
}
