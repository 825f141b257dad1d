// SPDX-License-Identifier: Apache-2.0
/*
 * scans: what /proc says of a process, asked of the helpers. A scan knows what is mapped, not what
 * was: it replaces what is older than the request and leaves what the side-band has said since.
 * Where it finds what is known already (same place, same path), the file stays the known one, since
 * the side-band's has a build-id and a held descriptor.
 *
 * A process that ran before us is scanned at its first sample or its first fork. Answers enter a
 * shared first set of mappings in place, so that children forked meanwhile have them too.
 */
#include "process/tracker.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

static const uint64_t unplaced_steps[] = {50 * MS, 200 * MS, S, 5 * S, 30 * S};
static const uint64_t periodic_steps[] = {S, 2 * S, 4 * S, 8 * S, 16 * S, 32 * S, 60 * S};

bool process_backoff_is_due(struct backoff *b, uint64_t now_ns, const uint64_t *steps, size_t count)
{
	if (now_ns < b->next_ns)
		return false;
	b->next_ns = now_ns + steps[b->step];
	if (b->step + 1 < count)
		b->step++;
	return true;
}

/* ---------------------------------------------------------------- cgroups */
static struct cgroup *cgroup_get(struct process_tracker *t, uint64_t id)
{
	struct cgroup *c;

	HASH_FIND(hh, t->cgroups, &id, sizeof(id), c);
	if (c || !id)
		return c;
	if (HASH_COUNT(t->cgroups) >= CGROUPS_MAX) {
		c = t->cgroups; /* the oldest */
		HASH_DEL(t->cgroups, c);
		mem_free(MEM_PROCESS, c);
	}
	c = mem_alloc(MEM_PROCESS, sizeof(*c));
	if (!c)
		return NULL;
	c->id = id;
	HASH_ADD(hh, t->cgroups, id, sizeof(c->id), c);
	if (c->is_oom) {
		mem_free(MEM_PROCESS, c);
		return NULL;
	}
	return c;
}

const struct cgroup *process_cgroup_known(const struct process_tracker *t, uint64_t id)
{
	struct cgroup *c;

	HASH_FIND(hh, t->cgroups, &id, sizeof(id), c);
	return c && c->is_known ? c : NULL;
}

bool process_cgroup_enter(struct process_tracker *t, struct process *p)
{
	const struct cgroup *c = process_cgroup_known(t, p->who.cgroup_id);

	if (!c)
		return false;
	p->who.cgroup = c->path;
	p->who.container = c->container;
	p->has_cgroup = true;
	return true;
}

/* One process of a cgroup is asked for all, and another one when it did not live to answer. */
void process_cgroup_ask(struct process_tracker *t, struct process *p)
{
	struct cgroup *c;

	if (process_cgroup_enter(t, p) || p->is_scanning)
		return;
	c = cgroup_get(t, p->who.cgroup_id);
	if (c && !c->is_shared) {
		if (c->asked_ns && t->now_ns < c->asked_ns + SETTLE_NS)
			return;
		c->asked_ns = t->now_ns;
	}
	if (process_backoff_is_due(&p->unplaced, t->now_ns, unplaced_steps,
				   ARRAY_SIZE(unplaced_steps)))
		process_scan_ask(t, p);
}

static void cgroup_learn(struct process_tracker *t, struct process *p, const char *text)
{
	char path[4096], container[65];
	struct cgroup *c;

	if (!*text)
		return;
	process_cgroup_path(text, path, sizeof(path));
	process_container_id(text, container);
	p->who.cgroup = process_text_id(t, path);
	p->who.container = process_text_id(t, container);
	p->has_cgroup = true;
	c = cgroup_get(t, p->who.cgroup_id);
	if (!c)
		return;
	c->is_known = process_cgroup_is_v2(text);
	c->is_shared = !c->is_known;
	c->path = p->who.cgroup;
	c->container = p->who.container;
}

void process_cgroups_free(struct process_tracker *t)
{
	struct cgroup *c, *next;

	HASH_ITER (hh, t->cgroups, c, next) {
		HASH_DEL(t->cgroups, c);
		mem_free(MEM_PROCESS, c);
	}
}

/* ---------------------------------------------------------------- answers */
static bool ends_with_path(const char *whole, const char *end)
{
	size_t n = strlen(whole), m = strlen(end);

	return *end == '/' && n >= m && strcmp(whole + n - m, end) == 0;
}

/* Whether a scan found what is known there already. perf says paths as the process sees them,
 * /proc as the one who reads: below a chroot the latter are longer. */
static bool is_known_file(const struct process_tracker *t, const struct process_mapping *known,
			  const struct helpers_mapping *m, bool after_loss)
{
	const struct file *f;
	const char *path;

	if (!known || known->file < 0 || known->start - known->offset != m->start - m->pgoff)
		return false;
	f = t->files[known->file];
	path = f->pub.path;
	if (strcmp(path, m->path) && !ends_with_path(m->path, path) &&
	    !ends_with_path(path, m->path))
		return false;
	return !after_loss || !f->has_stat || !m->ino || f->ino == m->ino;
}

static void read_found(struct process_tracker *t, const struct process *p, const struct request *r,
		       const struct helpers_scan *scan, struct process_mapping *found)
{
	for (size_t i = 0; i < scan->mapping_count; i++) {
		const struct helpers_mapping *m = &scan->mappings[i];
		const struct process_mapping *known = process_maps_find(p->maps, m->start);
		struct raw_mapping raw = {
			.start = m->start,
			.end = m->end,
			.offset = m->pgoff,
			.dev = (uint64_t)m->dev_major << 20 | m->dev_minor,
			.ino = m->ino,
			.generation = UINT64_MAX, /* not known here */
			.kind = (uint8_t)process_path_kind(m->path),
		};

		found[i] = (struct process_mapping){.start = m->start,
						    .end = m->end,
						    .offset = m->pgoff,
						    .time_ns = r->since_ns};
		if (is_known_file(t, known, m, p->losses != r->losses)) {
			found[i].file = known->file;
			continue;
		}
		if (raw.kind == RAW_FILE)
			raw.path = process_path_clean(t, m->path);
		found[i].file = process_file_enter(t, p, &raw, 0, 0, false);
	}
}

static void enter_found(struct process *p, struct request *r, const struct helpers_scan *scan,
			const struct process_mapping *found)
{
	size_t n = scan->mapping_count;
	struct process_maps *asked = r->maps;

	/* Those who shared the first, unknown set and have not gone their own way. */
	if (asked && asked != p->maps && asked->refs > 1 && !asked->is_whole &&
	    !process_maps_replace(asked, found, n, r->since_ns, scan->is_cut))
		asked->is_whole = true;
	if (p->maps->is_whole) {
		if (process_maps_equal(p->maps, found, n) || process_maps_own(&p->maps))
			return;
	}
	if (!process_maps_replace(p->maps, found, n, r->since_ns, scan->is_cut))
		p->maps->is_whole = true;
}

static void enter_mappings(struct process_tracker *t, struct process *p, struct request *r,
			   const struct helpers_scan *scan)
{
	struct process_mapping *found;

	if (!p->maps)
		p->maps = process_maps_new();
	/* A leader that exited has no mappings of its own to show. */
	if (!p->maps || (!scan->mapping_count && p->maps->count))
		return;
	found = mem_array(MEM_PROCESS, scan->mapping_count, sizeof(*found));
	if (!found)
		return;
	read_found(t, p, r, scan, found);
	enter_found(p, r, scan, found);
	p->losses = r->losses;
	mem_free(MEM_PROCESS, found);
}

/* What the answer says of p holds for children it forked before. */
static void tell_children(struct process_tracker *t, const struct process *p, uint32_t old_view)
{
	struct process *q;

	DL_FOREACH(t->live, q)
	{
		if (q != p && !q->has_view && q->view == old_view) {
			q->view = p->view;
			q->has_view = p->has_view;
		}
		if (q->parent_tgid == p->who.tgid && !q->has_cgroup &&
		    (!q->who.cgroup_id || !p->who.cgroup_id ||
		     q->who.cgroup_id == p->who.cgroup_id)) {
			q->who.cgroup = p->who.cgroup;
			q->who.container = p->who.container;
			q->has_cgroup = p->has_cgroup;
		}
	}
}

static void enter_scan(struct process_tracker *t, struct process *p, struct request *r,
		       const struct helpers_scan *scan)
{
	struct view_key key = {.mount_namespace = scan->mount_namespace};
	uint32_t old_view = p->view;

	if (!p->who.start_ns)
		p->who.start_ns = scan->process_start_ns;
	if (!p->who.exe)
		p->who.exe = process_text_id(t, scan->exe);
	if (*scan->comm)
		p->who.comm = process_text_id(t, scan->comm);
	if (!p->has_view && scan->mount_namespace) {
		p->view = process_view_id(t, &key);
		p->has_view = true;
	}
	cgroup_learn(t, p, scan->cgroup);
	if (!scan->mapping_count && !*scan->exe && p->maps && !p->maps->count)
		p->is_kernel = true;
	enter_mappings(t, p, r, scan);
	process_tell(t, p, PROCESS_MAPPED);
	tell_children(t, p, old_view);
}

/* Whether p is still the program that answered: not after an exec, or under a tgid used again. */
static bool is_answer_of(struct process_tracker *t, const struct process *p,
			 const struct helpers_scan *scan)
{
	return process_is_same_start(p, scan->process_start_ns, false) &&
	       process_entry_find(t, p->who.tgid) == p;
}

static void scan_done(void *ctx, const struct helpers_result *result)
{
	struct request *r = ctx;
	struct process_tracker *t = r->tracker;
	struct process *p = r->process;

	if (!t) {
		process_request_free(r);
		return;
	}
	p->pins--;
	p->is_scanning = p->waits_for_scan = false;
	if (r->maps)
		r->maps->scans--;
	p->scanned_ns = t->now_ns;
	if (!result->err && result->scan && is_answer_of(t, p, result->scan)) {
		enter_scan(t, p, r, result->scan);
	} else {
		t->stats.scans_failed++;
		if (result->err != -ECANCELED && !p->is_ended && !p->end_at_ns &&
		    (result->err == -ESRCH || result->err == -ENOENT || !result->err))
			p->end_at_ns = t->now_ns + PRESUMED_NS;
	}
	process_request_free(r);
}

/* ---------------------------------------------------------------- asking */
void process_scan_ask(struct process_tracker *t, struct process *p)
{
	struct request *r;
	int err = -ENOMEM;

	if (!t->opt.helpers || p->is_ended || p->is_kernel || p->leader_gone || p->is_scanning ||
	    !p->who.tgid)
		return;
	p->wants_scan = false;
	r = process_request_new(t);
	if (r) {
		r->process = p;
		r->maps = process_maps_ref(p->maps);
		r->since_ns = t->event_ns;
		r->losses = (uint32_t)t->losses;
		err = helpers_scan(t->opt.helpers, p->who.tgid, scan_done, r);
		if (err)
			process_request_free(r);
	}
	if (err) {
		p->wants_scan = err == -EAGAIN || err == -ENOMEM;
		return;
	}
	t->stats.scans++;
	p->pins++;
	p->is_scanning = true;
	if (!p->maps)
		return;
	p->maps->scans++;
	p->maps->settle_ns = t->now_ns + SETTLE_NS;
}

void process_scan_unplaced(struct process_tracker *t, struct process *p)
{
	if (!p->is_scanning) {
		if (!process_backoff_is_due(&p->unplaced, t->now_ns, unplaced_steps,
					    ARRAY_SIZE(unplaced_steps)))
			return;
		process_scan_ask(t, p);
	}
	if (p->is_scanning && !p->waits_for_scan) {
		p->waits_for_scan = true;
		p->settle_ns = t->now_ns + SETTLE_NS;
	}
}

void process_want_scan(struct process_tracker *t, uint32_t tgid)
{
	struct process *p = process_entry_find(t, tgid);

	if (!p || p->is_ended)
		p = process_entry_create(t, tgid, t->now_ns);
	if (p)
		process_scan_ask(t, p);
}

/* ---------------------------------------------------------------- who lives */
static int by_number(const void *a, const void *b)
{
	uint32_t l = *(const uint32_t *)a, r = *(const uint32_t *)b;

	return l < r ? -1 : l > r;
}

/* Names only: nothing below is opened. Sorted. */
static int list_tgids(const struct process_tracker *t, uint32_t **ret, size_t *ret_count)
{
	DIR *dir = opendir(t->proc);
	struct dirent *entry;
	void *tgids = NULL;
	size_t count = 0, cap = 0;
	uint64_t tgid;
	int err = 0;

	if (!dir)
		return -errno;
	while (!err && (entry = readdir(dir))) {
		if (text_parse_u64(entry->d_name, 1, UINT32_MAX, &tgid))
			continue;
		err = mem_grow(MEM_PROCESS, &tgids, &cap, count + 1, 1U << 22, sizeof(**ret));
		if (!err)
			((uint32_t *)tgids)[count++] = (uint32_t)tgid;
	}
	closedir(dir);
	if (err) {
		mem_free(MEM_PROCESS, tgids);
		return err;
	}
	if (count)
		qsort(tgids, count, sizeof(**ret), by_number);
	*ret = tgids;
	*ret_count = count;
	return 0;
}

int process_scan_all(struct process_tracker *t)
{
	uint32_t *tgids;
	size_t count;
	int err = list_tgids(t, &tgids, &count);

	if (err)
		return err;
	for (size_t i = 0; i < count && t->live_count < PROCESS_MAX; i++) {
		struct process *p = process_entry_find(t, tgids[i]);

		if (!p)
			p = process_entry_create(t, tgids[i], t->now_ns);
		if (p && !p->is_ended && !(p->maps && p->maps->is_whole))
			p->wants_scan = true;
	}
	mem_free(MEM_PROCESS, tgids);
	return 0;
}

/* After a loss: entries whose exit was lost go, once no event for them can be on its way. */
static void reconcile(struct process_tracker *t)
{
	struct process *p;
	uint32_t *tgids;
	size_t count;

	if (!t->reconcile_ns || t->now_ns < t->reconcile_ns)
		return;
	t->reconcile_ns = 0;
	if (list_tgids(t, &tgids, &count))
		return;
	DL_FOREACH(t->live, p)
	{
		if (!p->end_at_ns &&
		    (!count || !bsearch(&p->who.tgid, tgids, count, sizeof(*tgids), by_number)))
			p->end_at_ns = t->now_ns + PRESUMED_NS;
	}
	mem_free(MEM_PROCESS, tgids);
}

void process_scans_tick(struct process_tracker *t)
{
	struct process *p;
	size_t left = SCANS_PER_TICK;

	reconcile(t);
	if (!t->opt.helpers)
		return;
	DL_FOREACH(t->live, p)
	{
		bool is_due = p->wants_scan;

		if (!left)
			break;
		if (!is_due && p->id >= 0 && !p->is_scanning && p->sampled_ns > p->scanned_ns)
			is_due = process_backoff_is_due(&p->periodic, t->now_ns, periodic_steps,
							ARRAY_SIZE(periodic_steps));
		if (!is_due)
			continue;
		left--;
		process_scan_ask(t, p);
	}
}
