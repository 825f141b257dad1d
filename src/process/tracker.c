// SPDX-License-Identifier: Apache-2.0
/*
 * tracker: processes by the kernel's events, in order of time.
 *
 * Order within an exec (begin_new_exec, load_elf_binary, exec_binprm; checked on 6.18): the COMM
 * event with its exec flag, MMAP2 of the program, of its interpreter, of the vDSO, BPF's exec
 * record, and only then user code. So COMM empties the mappings, and what comes before the record
 * is kept aside until it says in which view of the file system the paths are to be read.
 */
#include "process/tracker.h"

#include <errno.h>
#include <string.h>

#include <utlist.h>

uint32_t process_text_id(struct process_tracker *t, const char *text)
{
	int64_t id = strings_add_str(t->strings, text ? text : "");

	return id < 0 ? 0 : (uint32_t)id;
}

int process_tracker_new(const struct process_options *options, struct process_tracker **ret)
{
	struct process_tracker *t = mem_alloc(MEM_PROCESS, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	t->opt = *options;
	t->proc = options->proc ? options->proc : "/proc";
	err = strings_new(MEM_PROCESS, STRINGS_BYTES, &t->strings);
	if (err) {
		mem_free(MEM_PROCESS, t);
		return err;
	}
	t->next_key = 1;
	*ret = t;
	return 0;
}

static void entry_free(struct process *p)
{
	process_maps_unref(p->maps);
	mem_free(MEM_PROCESS, p->pending);
	mem_free(MEM_PROCESS, p);
}

static void unlist(struct process_tracker *t, struct process *p)
{
	if (!p->is_listed)
		return;
	HASH_DEL(t->by_tgid, p);
	p->is_listed = false;
}

void process_tracker_free(struct process_tracker *t)
{
	struct process *p, *next;
	struct view *v, *v_next;
	struct request *r;

	if (!t)
		return;
	DL_FOREACH(t->requests, r)
	r->tracker = NULL;
	HASH_CLEAR(hh, t->by_tgid);
	DL_FOREACH_SAFE(t->live, p, next)
	entry_free(p);
	DL_FOREACH_SAFE(t->ended, p, next)
	entry_free(p);
	HASH_ITER (hh, t->views, v, v_next) {
		HASH_DEL(t->views, v);
		mem_free(MEM_PROCESS, v);
	}
	process_cgroups_free(t);
	process_files_free(t);
	mem_free(MEM_PROCESS, t->records);
	mem_free(MEM_PROCESS, t->extents);
	strings_free(t->strings);
	mem_free(MEM_PROCESS, t);
}

/* ---------------------------------------------------------------- requests */
struct request *process_request_new(struct process_tracker *t)
{
	struct request *r = mem_alloc(MEM_PROCESS, sizeof(*r));

	if (!r)
		return NULL;
	r->tracker = t;
	DL_APPEND(t->requests, r);
	return r;
}

/* A request outlives a tracker that was freed before the helpers were stopped; its neighbours in
 * the list may be gone by then, so it is only unlinked while the tracker lives. */
void process_request_free(struct request *r)
{
	if (r->tracker)
		DL_DELETE(r->tracker->requests, r);
	process_maps_unref(r->maps);
	mem_free(MEM_PROCESS, r);
}

void process_tell(struct process_tracker *t, const struct process *p, enum process_change change)
{
	if (t->opt.changed && p->is_listed)
		t->opt.changed(t->opt.changed_ctx, p->who.tgid, change);
}

/* ---------------------------------------------------------------- entries */
static void enter_pending(struct process_tracker *t, struct process *p, uint64_t exe_dev,
			  uint64_t exe_ino);

static void note_time(struct process_tracker *t, uint64_t time_ns)
{
	if (time_ns > t->now_ns)
		t->now_ns = time_ns;
}

static void note_event(struct process_tracker *t, uint64_t time_ns)
{
	t->event_ns = time_ns;
	note_time(t, time_ns);
}

struct process *process_entry_find(struct process_tracker *t, uint32_t tgid)
{
	struct process *p;

	HASH_FIND(hh, t->by_tgid, &tgid, sizeof(tgid), p);
	return p;
}

static struct process *find_live(struct process_tracker *t, uint32_t tgid)
{
	struct process *p = process_entry_find(t, tgid);

	return p && !p->is_ended ? p : NULL;
}

/* Moves it to the end of those that may be evicted; once a second is enough for the order. */
static void touch(struct process_tracker *t, struct process *p, uint64_t time_ns)
{
	if (p->is_ended || time_ns < p->touched_ns + S)
		return;
	p->touched_ns = time_ns;
	DL_DELETE(t->live, p);
	DL_APPEND(t->live, p);
}

static void forget(struct process_tracker *t, struct process *p)
{
	DL_DELETE(t->ended, p);
	t->ended_count--;
	unlist(t, p);
	if (p->id >= 0) {
		t->records[p->id].who = p->who;
		t->records[p->id].process = NULL;
	}
	entry_free(p);
}

/* Lets the oldest ended entries go: all whose time is over, and one more when there are too many.
 * Those with a scan under way stay. */
static void forget_old(struct process_tracker *t)
{
	struct process *p, *next;

	DL_FOREACH_SAFE(t->ended, p, next)
	{
		if (t->now_ns < p->ended_ns + LINGER_NS && t->ended_count <= LINGER_MAX)
			return;
		if (!p->pins)
			forget(t, p);
	}
}

void process_entry_end(struct process_tracker *t, struct process *p, uint64_t time_ns)
{
	if (p->is_ended)
		return;
	if (p->exec_ns)
		enter_pending(t, p, 0, 0);
	process_tell(t, p, PROCESS_ENDED);
	p->is_ended = true;
	p->ended_ns = time_ns;
	p->wants_scan = false;
	DL_DELETE(t->live, p);
	t->live_count--;
	DL_APPEND(t->ended, p);
	t->ended_count++;
	if (t->ended_count > LINGER_MAX)
		forget_old(t);
}

static void revive(struct process_tracker *t, struct process *p, uint64_t time_ns)
{
	DL_DELETE(t->ended, p);
	t->ended_count--;
	p->is_ended = false;
	p->has_threads = false;
	p->losses = (uint32_t)t->losses - 1; /* what came since is not known */
	p->end_at_ns = 0;
	p->touched_ns = time_ns;
	DL_APPEND(t->live, p);
	t->live_count++;
}

/* The new one is the last of the list. */
static void evict(struct process_tracker *t)
{
	while (t->live_count > PROCESS_MAX && t->live->next) {
		t->stats.evicted++;
		process_entry_end(t, t->live, t->now_ns);
	}
}

/* Puts p in place of whoever had its tgid. */
static int list(struct process_tracker *t, struct process *p, uint64_t time_ns)
{
	struct process *old = process_entry_find(t, p->who.tgid);

	if (old) {
		unlist(t, old);
		process_entry_end(t, old, time_ns);
	}
	p->is_oom = false;
	HASH_ADD(hh, t->by_tgid, who.tgid, sizeof(p->who.tgid), p);
	if (p->is_oom)
		return -ENOMEM;
	p->is_listed = true;
	p->touched_ns = time_ns;
	DL_APPEND(t->live, p);
	t->live_count++;
	return 0;
}

struct process *process_entry_create(struct process_tracker *t, uint32_t tgid, uint64_t time_ns)
{
	struct process *p = mem_alloc(MEM_PROCESS, sizeof(*p));

	if (!p)
		return NULL;
	p->id = -1;
	p->who.tgid = tgid;
	p->view = ++t->next_view;
	p->losses = (uint32_t)t->losses;
	p->maps = process_maps_new();
	if (list(t, p, time_ns)) {
		entry_free(p);
		return NULL;
	}
	evict(t);
	return p;
}

/* Of one that does something: an ended entry was evicted, unless records were lost since. */
static struct process *find_or_create(struct process_tracker *t, uint32_t tgid, uint64_t time_ns)
{
	struct process *p = process_entry_find(t, tgid);

	if (p && p->is_ended && p->losses == (uint32_t)t->losses) {
		revive(t, p, time_ns);
		evict(t);
	}
	return p && !p->is_ended ? p : process_entry_create(t, tgid, time_ns);
}

uint32_t process_view_id(struct process_tracker *t, const struct view_key *key)
{
	struct view *v;

	HASH_FIND(hh, t->views, key, sizeof(*key), v);
	if (v)
		return v->id;
	v = HASH_COUNT(t->views) < VIEWS_MAX ? mem_alloc(MEM_PROCESS, sizeof(*v)) : NULL;
	if (!v)
		return ++t->next_view; /* of its own: never taken for another */
	v->key = *key;
	v->id = ++t->next_view;
	HASH_ADD(hh, t->views, key, sizeof(v->key), v);
	if (v->is_oom) {
		uint32_t id = v->id;

		mem_free(MEM_PROCESS, v);
		return id;
	}
	return v->id;
}

/* ---------------------------------------------------------------- mappings */
static void enter_mapping(struct process_tracker *t, struct process *p,
			  const struct raw_mapping *raw, uint64_t exe_dev, uint64_t exe_ino)
{
	struct process_mapping m = {
		.start = raw->start,
		.end = raw->end,
		.offset = raw->offset,
		.time_ns = raw->time_ns,
		.file = process_file_enter(t, p, raw, exe_dev, exe_ino, true),
	};

	if (!p->maps)
		p->maps = process_maps_new();
	if (p->maps)
		process_maps_add(&p->maps, &m);
}

/* The first mapping of an exec is the program itself. */
static void enter_pending(struct process_tracker *t, struct process *p, uint64_t exe_dev,
			  uint64_t exe_ino)
{
	uint32_t exe = 0;

	for (size_t i = 0; i < p->pending_count; i++) {
		const struct raw_mapping *m = &p->pending[i];
		bool is_exe;

		if (!exe && m->kind == RAW_FILE)
			exe = m->path;
		is_exe = exe && m->kind == RAW_FILE && m->path == exe;
		enter_mapping(t, p, m, is_exe ? exe_dev : 0, is_exe ? exe_ino : 0);
	}
	if (exe)
		p->who.exe = exe;
	mem_free(MEM_PROCESS, p->pending);
	p->pending = NULL;
	p->pending_count = p->pending_cap = 0;
	p->exec_ns = 0;
	process_tell(t, p, PROCESS_MAPPED);
}

static bool exec_is_late(const struct process *p, uint64_t now_ns)
{
	return p->exec_ns && now_ns > p->exec_ns + EXEC_WAIT_NS;
}

static void keep_pending(struct process_tracker *t, struct process *p,
			 const struct raw_mapping *raw)
{
	void *pending = p->pending;
	int err = mem_grow(MEM_PROCESS, &pending, &p->pending_cap, p->pending_count + 1,
			   PENDING_MAX, sizeof(*p->pending));

	p->pending = pending;
	if (!err) {
		p->pending[p->pending_count++] = *raw;
		return;
	}
	enter_pending(t, p, 0, 0);
	enter_mapping(t, p, raw, 0, 0);
}

void process_map(struct process_tracker *t, uint64_t time_ns, uint32_t tgid,
		 const struct process_mmap *map)
{
	struct process *p;
	struct raw_mapping raw = {
		.start = map->start,
		.offset = map->pgoff,
		.time_ns = time_ns,
		.kind = (uint8_t)process_path_kind(map->path),
		.dev = (uint64_t)map->dev_major << 20 | map->dev_minor,
		.ino = map->ino,
		.generation = map->ino_generation,
		.build_id_len = map->build_id_len,
	};

	note_event(t, time_ns);
	p = find_or_create(t, tgid, time_ns);
	if (!p || __builtin_add_overflow(map->start, map->bytes, &raw.end))
		return;
	if (raw.build_id_len > sizeof(raw.build_id))
		raw.build_id_len = sizeof(raw.build_id);
	memcpy(raw.build_id, map->build_id, raw.build_id_len);
	if (raw.kind == RAW_ANONYMOUS && raw.build_id_len && *map->path == '/')
		raw.kind = RAW_FILE;
	if (raw.kind == RAW_FILE)
		raw.path = process_path_clean(t, map->path);
	p->end_at_ns = p->leader_gone ? p->end_at_ns : 0;
	if (exec_is_late(p, time_ns))
		enter_pending(t, p, 0, 0);
	if (p->exec_ns) {
		keep_pending(t, p, &raw);
		return;
	}
	enter_mapping(t, p, &raw, 0, 0);
	process_tell(t, p, PROCESS_MAPPED);
}

/* ---------------------------------------------------------------- fork, exit, comm, exec */
static void inherit(struct process *child, const struct process *parent)
{
	uint32_t tgid = child->who.tgid;

	process_maps_unref(child->maps);
	child->maps = process_maps_ref(parent->maps);
	child->who = parent->who;
	child->who.tgid = tgid;
	child->who.start_ns = 0;
	child->view = parent->view;
	child->has_view = parent->has_view;
	child->has_cgroup = parent->has_cgroup;
	child->losses = parent->losses;
	child->is_kernel = parent->is_kernel || parent->who.tgid == 2; /* kthreadd */
}

static bool is_whole(const struct process_tracker *t, const struct process *p)
{
	return p->maps && p->maps->is_whole && p->losses == (uint32_t)t->losses;
}

void process_fork(struct process_tracker *t, uint64_t time_ns, uint32_t parent_tgid, uint32_t tgid,
		  uint32_t tid)
{
	struct process *parent, *child;

	note_event(t, time_ns);
	if (tid != tgid) {
		child = find_live(t, tgid);
		if (child)
			child->threads++;
		return;
	}
	if (parent_tgid == tgid)
		parent_tgid = 0; /* nobody is its own parent */
	parent = parent_tgid ? find_or_create(t, parent_tgid, time_ns) : NULL;
	if (parent) {
		touch(t, parent, time_ns);
		if (exec_is_late(parent, time_ns))
			enter_pending(t, parent, 0, 0);
	}
	child = process_entry_create(t, tgid, time_ns);
	if (!child)
		return;
	child->threads = 1;
	child->has_threads = true;
	child->parent_tgid = parent_tgid;
	parent = parent_tgid ? find_live(t, parent_tgid) : NULL; /* eviction may have had it */
	if (!parent)
		return;
	inherit(child, parent);
	if (!is_whole(t, parent))
		process_scan_unplaced(t, parent);
}

void process_exit(struct process_tracker *t, uint64_t time_ns, uint32_t tgid, uint32_t tid)
{
	struct process *p = find_live(t, tgid);

	note_event(t, time_ns);
	if (!p)
		return;
	if (p->has_threads) {
		if (p->threads)
			p->threads--;
		if (!p->threads) {
			process_entry_end(t, p, time_ns);
			return;
		}
	}
	if (tid == tgid)
		p->leader_gone = true;
	if (p->leader_gone && !p->has_threads)
		p->end_at_ns = time_ns + LEADER_GONE_NS;
}

/* The entry of the program that is executed now: another one when the old is known outside. */
static struct process *exec_entry(struct process_tracker *t, uint64_t time_ns, uint32_t tgid)
{
	struct process *p = process_entry_find(t, tgid), *q, old;

	if (!p || (p->id < 0 && !p->pins && !p->is_ended))
		return p ? p : process_entry_create(t, tgid, time_ns);
	old = *p; /* making room may free it */
	q = process_entry_create(t, tgid, time_ns);
	if (!q)
		return NULL;
	q->who = old.who;
	q->parent_tgid = old.parent_tgid;
	q->view = old.view;
	q->has_view = old.has_view;
	q->has_cgroup = old.has_cgroup;
	q->has_exact_start = old.has_exact_start;
	return q;
}

static struct process *begin_exec(struct process_tracker *t, uint64_t time_ns, uint32_t tgid,
				  const char *comm, bool is_seen)
{
	struct process *p = exec_entry(t, time_ns, tgid);

	if (!p)
		return NULL;
	process_maps_unref(p->maps);
	p->maps = process_maps_new();
	if (p->maps)
		p->maps->is_whole = is_seen;
	mem_free(MEM_PROCESS, p->pending);
	p->pending = NULL;
	p->pending_count = p->pending_cap = 0;
	p->exec_ns = is_seen ? time_ns : 0;
	p->awaits_record = is_seen;
	p->who.comm = process_text_id(t, comm);
	p->who.exe = 0;
	p->threads = 1; /* an exec ends all other threads first */
	p->has_threads = true;
	p->is_kernel = p->leader_gone = false;
	p->end_at_ns = 0;
	p->losses = (uint32_t)t->losses;
	memset(&p->unplaced, 0, sizeof(p->unplaced));
	return p;
}

void process_comm(struct process_tracker *t, uint64_t time_ns, uint32_t tgid, uint32_t tid,
		  const char *comm, bool is_exec)
{
	struct process *p;

	note_event(t, time_ns);
	if (is_exec) {
		begin_exec(t, time_ns, tgid, comm, true);
		return;
	}
	p = find_live(t, tgid);
	if (p && tid == tgid)
		p->who.comm = process_text_id(t, comm);
}

/* Whether start_ns names the same process. /proc cuts it to clock ticks of 10 ms. */
bool process_is_same_start(const struct process *p, uint64_t start_ns, bool is_exact)
{
	uint64_t difference = p->who.start_ns > start_ns ? p->who.start_ns - start_ns
							 : start_ns - p->who.start_ns;

	if (!p->who.start_ns || !start_ns)
		return true;
	return difference <= (p->has_exact_start && is_exact ? 0 : 20 * MS);
}

static void set_start(struct process *p, uint64_t start_ns)
{
	if (!start_ns)
		return;
	p->who.start_ns = start_ns;
	p->has_exact_start = true;
}

static void set_cgroup(struct process_tracker *t, struct process *p, uint64_t id)
{
	if (!id || id == p->who.cgroup_id)
		return;
	if (p->who.cgroup_id)
		p->has_cgroup = false; /* moved */
	p->who.cgroup_id = id;
	process_cgroup_enter(t, p);
}

void process_exec(struct process_tracker *t, uint64_t time_ns, uint32_t tgid,
		  const struct process_exec *exec)
{
	struct view_key key = {.root_dev = exec->root_dev,
			       .root_ino = exec->root_ino,
			       .mount_namespace = exec->mount_namespace};
	struct process *p = find_live(t, tgid);

	note_event(t, time_ns);
	if (p && !process_is_same_start(p, exec->process_start_ns, true)) {
		unlist(t, p);
		process_entry_end(t, p, time_ns);
		p = NULL;
	}
	/* Without its comm event before it, that was lost, and mappings with it. */
	if (!p || !p->awaits_record)
		p = begin_exec(t, time_ns, tgid, exec->comm, false);
	if (!p)
		return;
	p->awaits_record = false;
	set_start(p, exec->process_start_ns);
	p->view = process_view_id(t, &key);
	p->has_view = true;
	enter_pending(t, p, exec->exe_dev, exec->exe_ino);
	set_cgroup(t, p, exec->cgroup_id);
	process_tell(t, p, PROCESS_EXECUTED);
}

void process_lost(struct process_tracker *t, uint64_t time_ns)
{
	struct process *p;

	note_event(t, time_ns);
	t->losses++;
	t->reconcile_ns = time_ns + S;
	DL_FOREACH(t->live, p)
	{
		p->has_threads = false;
		if (p->id >= 0)
			p->wants_scan = true;
	}
}

/* ---------------------------------------------------------------- samples */
static int enter_record(struct process_tracker *t, struct process *p)
{
	void *records = t->records;
	int err = mem_grow(MEM_PROCESS, &records, &t->record_cap, t->record_count + 1, RECORDS_MAX,
			   sizeof(*t->records));

	t->records = records;
	if (err)
		return err;
	p->id = (int64_t)t->record_count;
	t->records[t->record_count++].process = p;
	p->periodic.next_ns = t->now_ns + S;
	return 0;
}

static struct process *entry_of_sample(struct process_tracker *t, uint64_t time_ns, uint32_t tgid,
				       uint64_t start_ns)
{
	struct process *p = process_entry_find(t, tgid);

	if (p && !process_is_same_start(p, start_ns, true)) {
		unlist(t, p);
		process_entry_end(t, p, time_ns);
		p = NULL;
	}
	/* Ticks on the way out come after the exit event; much later ones show that it was not
	 * the end (lost forks of threads). */
	if (p && p->is_ended && time_ns > p->ended_ns + REVIVE_NS)
		revive(t, p, time_ns);
	evict(t);
	return p ? p : process_entry_create(t, tgid, time_ns);
}

int64_t process_of_sample(struct process_tracker *t, uint64_t time_ns, uint32_t tgid,
			  uint64_t process_start_ns, uint64_t cgroup_id, const char *comm)
{
	struct process *p;

	note_event(t, time_ns);
	p = entry_of_sample(t, time_ns, tgid, process_start_ns);
	if (!p || (p->id < 0 && enter_record(t, p)))
		return -1;
	set_start(p, process_start_ns);
	set_cgroup(t, p, cgroup_id);
	if (!p->who.comm)
		p->who.comm = process_text_id(t, comm);
	p->sampled_ns = time_ns;
	touch(t, p, time_ns);
	if (p->is_ended)
		return p->id;
	if (p->end_at_ns)
		p->end_at_ns = p->leader_gone ? time_ns + LEADER_GONE_NS : 0;
	if (exec_is_late(p, time_ns))
		enter_pending(t, p, 0, 0);
	if (!is_whole(t, p))
		process_scan_unplaced(t, p);
	else if (!p->has_cgroup)
		process_cgroup_ask(t, p);
	return p->id;
}

static struct process *entry_of_id(const struct process_tracker *t, int64_t id)
{
	return id >= 0 && (uint64_t)id < t->record_count ? t->records[id].process : NULL;
}

void process_place(struct process_tracker *t, int64_t process, uint64_t pc,
		   struct process_place *ret)
{
	struct process *p = entry_of_id(t, process);
	const struct process_mapping *m = p ? process_maps_find(p->maps, pc) : NULL;

	*ret = (struct process_place){
		.file = -1, .unnamed = FLY_UNNAMED_MAPPING_UNKNOWN, .file_offset = pc};
	if (!m) {
		if (pc >> 12 == 0xffffffffff600000 >> 12) /* [vsyscall]: in every process */
			ret->unnamed = FLY_UNNAMED_ANONYMOUS;
		else if (p && !p->is_ended && !p->exec_ns)
			process_scan_unplaced(t, p);
		return;
	}
	p->maps->items[m - p->maps->items].samples++;
	if (m->file == PROCESS_FILE_ANONYMOUS || m->file == PROCESS_FILE_SHARED)
		ret->unnamed = FLY_UNNAMED_ANONYMOUS;
	if (m->file < 0)
		return;
	ret->file = m->file;
	ret->unnamed = FLY_UNNAMED_NONE;
	ret->file_offset = pc - m->start + m->offset;
	process_file_sampled(t, p, m->file, m);
}

int process_extents_get(struct process_tracker *t, uint32_t tgid, struct process_extents *ret)
{
	const struct process *p = find_live(t, tgid);
	void *extents = t->extents;
	int err;

	if (!p)
		return -ESRCH;
	*ret = (struct process_extents){.start_ns = p->has_exact_start ? p->who.start_ns : 0,
					.parent_tgid = p->parent_tgid};
	if (!p->maps || !p->maps->count)
		return 0;
	err = process_maps_fold(p->maps);
	if (!err)
		err = mem_grow(MEM_PROCESS, &extents, &t->extent_cap, p->maps->count,
			       PROCESS_MAPPINGS_MAX, sizeof(*t->extents));
	t->extents = extents;
	if (err)
		return err;
	for (size_t i = 0; i < p->maps->count; i++) {
		const struct process_mapping *m = &p->maps->items[i];
		bool is_shared = m->file == PROCESS_FILE_SHARED;

		t->extents[i] = (struct process_extent){.start = m->start,
							.end = m->end,
							.offset = m->offset,
							.time_ns = m->time_ns,
							.file = is_shared ? PROCESS_FILE_ANONYMOUS
									  : m->file,
							.is_shared = is_shared,
							.samples = m->samples};
	}
	ret->items = t->extents;
	ret->count = p->maps->count;
	return 0;
}

bool process_is_settled(const struct process_tracker *t, int64_t process)
{
	const struct process *p = entry_of_id(t, process);

	if (!p)
		return true;
	if (p->waits_for_scan && t->now_ns < p->settle_ns)
		return false;
	return !p->maps || p->maps->is_whole || !p->maps->scans || t->now_ns >= p->maps->settle_ns;
}

void process_get(const struct process_tracker *t, int64_t process, struct process_info *ret)
{
	static const struct who nobody;
	const struct process *p = entry_of_id(t, process);
	const struct who *who = &nobody;
	const struct cgroup *c;

	if (p)
		who = &p->who;
	else if (process >= 0 && (uint64_t)process < t->record_count)
		who = &t->records[process].who;
	/* One that ended before anybody could answer: others of its cgroup did since. */
	c = process_cgroup_known(t, who->cgroup_id);
	*ret = (struct process_info){
		.tgid = who->tgid,
		.start_ns = who->start_ns,
		.comm = strings_get(t->strings, who->comm),
		.exe = strings_get(t->strings, who->exe),
		.container = strings_get(t->strings, c ? c->container : who->container),
		.cgroup = strings_get(t->strings, c ? c->path : who->cgroup),
		.cgroup_id = who->cgroup_id,
	};
}

/* ---------------------------------------------------------------- timers */
void process_tick(struct process_tracker *t, uint64_t now_ns)
{
	struct process *p, *next;

	note_time(t, now_ns);
	DL_FOREACH_SAFE(t->live, p, next)
	{
		if (exec_is_late(p, now_ns))
			enter_pending(t, p, 0, 0);
		if (p->end_at_ns && now_ns >= p->end_at_ns)
			process_entry_end(t, p, now_ns);
	}
	forget_old(t);
	process_scans_tick(t);
	process_files_tick(t);
}

void process_stats_get(const struct process_tracker *t, struct process_stats *ret)
{
	*ret = t->stats;
	ret->live = t->live_count;
	ret->ended = t->ended_count;
	ret->records = t->record_count;
	ret->files = t->file_count - (size_t)t->free_files;
}
