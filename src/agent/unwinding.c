// SPDX-License-Identifier: Apache-2.0
/*
 * unwinding: see unwinding.h. Mappings are written by unwinding_step alone, once per poll for each
 * process that changed, so that a program that loads a hundred libraries is entered a few times.
 *
 * Making tables costs the reader CPU time: what is left of an allowance says whether the next one
 * is asked for. It starts with enough for a node's usual programs and fills slowly.
 */
#include "agent/unwinding.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM	1
#define uthash_malloc(bytes)	mem_alloc(MEM_AGENT, bytes)
#define uthash_free(p, bytes)	mem_free(MEM_AGENT, p)
#define uthash_nonfatal_oom(el) ((el)->is_lost = true)
#include <uthash.h>
#include <utlist.h>

#define MS		 1000000ULL
#define END_NS		 (50 * MS)   /* from a process's end to its last tick, at most */
#define LARGE		 256	     /* mappings */
#define LARGE_NS	 (64 * 1000) /* per mapping, between two times of a large process */
#define ALLOWANCE_NS	 2000000000LL
#define ALLOWANCE_SHARE	 50	     /* of the time that passes, one in so many */
#define TABLE_NS	 300000	     /* what any table costs */
#define TABLE_BYTE_NS	 10	     /* and a byte of call frame information */
#define DOUBT_NS	 (1000 * MS) /* what we know is not behind by so much */
#define WARM_MS		 20
#define PROCESSES_KNOWN	 32768
#define VDSO_KEY	 (1ULL << 63)
#define FILE_BITS	 16
#define EXTENT_ANONYMOUS (-1)

/* A process that is entered, or shall be. */
struct known {
	UT_hash_handle hh;
	struct known *prev, *next;	   /* in changed, when is_changed */
	struct known *end_prev, *end_next; /* in ended, when end_ns is not 0 */
	uint32_t tgid;
	uint64_t end_ns;  /* it ended; 0: it lives */
	uint64_t next_ns; /* it is large: not before */
	bool is_changed, is_lost;
	bool is_open;	 /* some of its files are not inspected yet */
	bool has_asked;	 /* all its tables are wanted */
	bool is_trusted; /* what it maps is entered without identity */
};

struct unwinding {
	struct unwinding_options opt;
	struct process_tracker *tracker;
	struct tables *tables;
	struct known *known;
	struct known *changed, *ended;
	size_t open;	    /* how many */
	uint64_t inspected; /* files, as of the last look */
	struct fly_mapping *mappings;
	struct place *places;
	size_t mapping_cap, place_cap;
	uint64_t now_ns;
	uint64_t asking; /* key under way or still to be sent; 0: none */
	bool is_sent, is_held;
	bool is_warm;	 /* samples wanted what was not there, since the last step */
	bool is_hurried; /* and before it */
	int64_t allowance_ns;
	struct unwinding_stats stats;
};

/* A mapping before it is packed. */
struct place {
	struct fly_mapping mapping;
	uint32_t samples;
	bool has_file;
};

int unwinding_new(const struct unwinding_options *options, struct unwinding **ret)
{
	struct unwinding *u = mem_alloc(MEM_AGENT, sizeof(*u));
	int err;

	if (!u)
		return -ENOMEM;
	u->opt = *options;
	u->allowance_ns = ALLOWANCE_NS;
	err = tables_new(&options->tables, &u->tables);
	if (err)
		mem_free(MEM_AGENT, u);
	else
		*ret = u;
	return err;
}

void unwinding_free(struct unwinding *u)
{
	struct known *k, *next;

	if (!u)
		return;
	HASH_ITER (hh, u->known, k, next) {
		HASH_DEL(u->known, k);
		mem_free(MEM_AGENT, k);
	}
	tables_free(u->tables);
	mem_free(MEM_AGENT, u->mappings);
	mem_free(MEM_AGENT, u->places);
	mem_free(MEM_AGENT, u);
}

void unwinding_follow(struct unwinding *u, struct process_tracker *tracker)
{
	if (u)
		u->tracker = tracker;
}

/* ---------------------------------------------------------------- who */
static struct known *find(const struct unwinding *u, uint32_t tgid)
{
	struct known *k;

	HASH_FIND(hh, u->known, &tgid, sizeof(tgid), k);
	return k;
}

static void set_changed(struct unwinding *u, struct known *k, bool is_changed)
{
	if (k->is_changed == is_changed)
		return;
	k->is_changed = is_changed;
	if (is_changed)
		DL_APPEND(u->changed, k);
	else
		DL_DELETE(u->changed, k);
}

static void set_open(struct unwinding *u, struct known *k, bool is_open)
{
	if (k->is_open != is_open)
		u->open += is_open ? 1 : -1UL;
	k->is_open = is_open;
}

static void set_end(struct unwinding *u, struct known *k, uint64_t end_ns)
{
	if (k->end_ns)
		DL_DELETE2(u->ended, k, end_prev, end_next);
	if (end_ns)
		DL_APPEND2(u->ended, k, end_prev, end_next);
	k->end_ns = end_ns;
}

static void forget(struct unwinding *u, struct known *k)
{
	set_changed(u, k, false);
	set_open(u, k, false);
	set_end(u, k, 0);
	/* It is in there, so there is a table. */
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	HASH_DEL(u->known, k);
	mem_free(MEM_AGENT, k);
}

static struct known *make(struct unwinding *u, uint32_t tgid)
{
	struct known *k = find(u, tgid);

	if (k || HASH_COUNT(u->known) >= PROCESSES_KNOWN)
		return k;
	k = mem_alloc(MEM_AGENT, sizeof(*k));
	if (!k)
		return NULL;
	k->tgid = tgid;
	HASH_ADD(hh, u->known, tgid, sizeof(k->tgid), k);
	if (k->is_lost) {
		mem_free(MEM_AGENT, k);
		return NULL;
	}
	return k;
}

void unwinding_want(struct unwinding *u, uint32_t tgid)
{
	struct known *k = u ? make(u, tgid) : NULL;

	if (!k)
		return;
	set_end(u, k, 0);
	set_changed(u, k, true);
}

void unwinding_changed(void *ctx, uint32_t tgid, enum process_change change)
{
	struct unwinding *u = ctx;
	struct known *k;

	if (!u)
		return;
	if (change == PROCESS_EXECUTED)
		unwinding_want(u, tgid);
	k = find(u, tgid);
	if (!k)
		return;
	if (change == PROCESS_EXECUTED)
		k->is_trusted = false;
	else if (change == PROCESS_ENDED)
		set_end(u, k, u->now_ns + END_NS);
	else
		set_changed(u, k, true);
}

/* ---------------------------------------------------------------- samples */
/* Nothing was mapped for a while, but what the kernel has is not what we know: the file was
 * touched, or another with its path and build-id came to its place. Then our word is taken. */
static void doubt(struct unwinding *u, const struct fly_sample *s)
{
	struct known *k = find(u, s->tgid);
	struct process_extents all;

	if (!k || k->is_trusted || process_extents_get(u->tracker, s->tgid, &all))
		return;
	for (size_t i = 0; i < all.count; i++) {
		if (all.items[i].file >= 0 && s->time_ns < all.items[i].time_ns + DOUBT_NS)
			return;
	}
	k->is_trusted = true;
	set_changed(u, k, true);
}

void unwinding_sample(struct unwinding *u, const struct fly_sample *s)
{
	const uint32_t absent = 1u << FLY_CUT_TABLE_ABSENT;
	struct known *k;
	uint64_t start_ns;

	if (!u || !s->user_frames || s->state & FLY_STATE_COMPAT)
		return;
	tables_process_sampled(u->tables, s->tgid, u->now_ns);
	if (s->cut & 1u << FLY_CUT_TABLE_PAGE_ABSENT) {
		tables_page_absent(u->tables, s->detail >> 16, s->detail & 0xffff, u->now_ns);
		u->is_warm = true;
	}
	if (!(s->state & (FLY_STATE_TABLES | FLY_STATE_PRESSURE)) || s->state & FLY_STATE_PLACED) {
		/* Walked without its mappings from here. They may be on their way. */
		if (!tables_process_find(u->tables, s->tgid, &start_ns) ||
		    start_ns != s->process_start_ns)
			unwinding_want(u, s->tgid);
	}
	if (s->state & FLY_STATE_REPLACED)
		doubt(u, s);
	k = s->cut & absent ? find(u, s->tgid) : NULL;
	if (k && !k->has_asked) {
		k->has_asked = true;
		tables_process_wants(u->tables, s->tgid);
	}
}

/* The file that stands for all that are the same. */
static const struct process_file *file_of(const struct unwinding *u, int32_t *file)
{
	const struct process_file *f = process_file_get(u->tracker, *file);

	if (f->same_as >= 0 && f->same_as != *file) {
		*file = f->same_as;
		f = process_file_get(u->tracker, *file);
	}
	return f;
}

static uint64_t key_of(const struct process_file *f, int32_t file)
{
	return f->is_vdso ? VDSO_KEY : f->key << FILE_BITS | (uint32_t)file;
}

void unwinding_frame(struct unwinding *u, int32_t file, uint64_t file_offset)
{
	const struct process_file *f;
	uint64_t vaddr = file_offset;

	if (!u)
		return;
	f = file_of(u, &file);
	if (f->is_vdso ||
	    (f->state == PROCESS_FILE_READY && !elf_offset_to_vaddr(&f->info, file_offset, &vaddr)))
		tables_frame(u->tables, key_of(f, file), vaddr, u->now_ns);
}

/* ---------------------------------------------------------------- mappings */
#define PAGE_MASK 4095ULL

/* What is to be taken from an address of the mapping to have the linker's. */
static int bias_of(const struct process_file *f, const struct process_extent *x, uint64_t *ret)
{
	if (f->is_vdso) {
		*ret = x->start - x->offset;
		return 0;
	}
	for (uint32_t i = 0; i < f->info.segment_count; i++) {
		const struct elf_segment *s = &f->info.segments[i];
		uint64_t first = s->offset & ~PAGE_MASK;

		if (x->offset < first || x->offset >= s->offset + s->file_bytes)
			continue;
		*ret = x->start - x->offset + s->offset - s->vaddr;
		return *ret & PAGE_MASK ? -EINVAL : 0;
	}
	return -ENOENT;
}

static uint32_t table_of(struct unwinding *u, struct known *k, const struct process_extent *x,
			 uint64_t *ret_bias)
{
	int32_t file = x->file;
	const struct process_file *f;

	*ret_bias = 0;
	if (x->file == EXTENT_ANONYMOUS)
		return FLY_TABLE_FRAME_POINTERS;
	if (x->file < 0)
		return FLY_TABLE_NONE;
	f = file_of(u, &file);
	if (f->state == PROCESS_FILE_UNSEEN) {
		process_file_want(u->tracker, file);
		f = process_file_get(u->tracker, file);
	}
	if (f->state == PROCESS_FILE_UNSEEN || f->state == PROCESS_FILE_ASKED)
		set_open(u, k, true);
	if (f->state != PROCESS_FILE_READY || bias_of(f, x, ret_bias))
		return FLY_TABLE_NONE;
	if (!f->is_vdso && (!f->info.class64 || f->info.machine != EM_X86_64))
		return FLY_TABLE_NONE;
	return tables_number(u->tables, key_of(f, file));
}

/* Of the file itself: the one that it is the same as may have been touched since. */
static uint64_t identity_of(const struct unwinding *u, const struct known *k,
			    const struct process_extent *x)
{
	const struct process_file *f;

	if (k->is_trusted || x->is_shared)
		return FLY_IDENTITY_UNKNOWN;
	if (x->file == EXTENT_ANONYMOUS)
		return FLY_IDENTITY_ANONYMOUS;
	if (x->file < 0)
		return FLY_IDENTITY_UNKNOWN;
	f = process_file_get(u->tracker, x->file);
	if (f->is_vdso)
		return fly_identity_make(0, 0, FLY_VDSO_INO, x->start);
	if (f->state != PROCESS_FILE_READY || !f->mtime_ns)
		return FLY_IDENTITY_UNKNOWN;
	return fly_identity_make(f->info.file_bytes, f->mtime_ns, f->ino, x->start - x->offset);
}

/* Adds to the one before where both say the same of addresses that follow on each other. */
static bool join(struct place *last, const struct place *next)
{
	uint64_t start = fly_mapping_start(&last->mapping);
	uint64_t bytes = fly_mapping_bytes(&last->mapping);
	uint32_t table = fly_mapping_table(&last->mapping);

	if (start + bytes != fly_mapping_start(&next->mapping) ||
	    table != fly_mapping_table(&next->mapping) ||
	    last->mapping.identity != next->mapping.identity ||
	    (table != FLY_TABLE_FRAME_POINTERS &&
	     fly_mapping_bias(&last->mapping) != fly_mapping_bias(&next->mapping)))
		return false;
	last->mapping = fly_mapping_make(start, bytes + fly_mapping_bytes(&next->mapping),
					 fly_mapping_bias(&last->mapping), table);
	last->mapping.identity = next->mapping.identity;
	last->samples += next->samples;
	return true;
}

static int by_worth(const void *a, const void *b)
{
	const struct place *l = a, *r = b;

	if (l->samples != r->samples)
		return l->samples > r->samples ? -1 : 1;
	return (int)r->has_file - (int)l->has_file;
}

static int by_address(const void *a, const void *b)
{
	uint64_t l = fly_mapping_start(&((const struct place *)a)->mapping);
	uint64_t r = fly_mapping_start(&((const struct place *)b)->mapping);

	return l < r ? -1 : l > r;
}

/* The most sampled stay when there are too many; frames in the others end a walk. */
static size_t choose(struct unwinding *u, size_t count)
{
	if (count <= FLY_MAPPINGS_MAX)
		return count;
	qsort(u->places, count, sizeof(*u->places), by_worth);
	u->stats.mappings_left += count - FLY_MAPPINGS_MAX;
	qsort(u->places, FLY_MAPPINGS_MAX, sizeof(*u->places), by_address);
	return FLY_MAPPINGS_MAX;
}

static int make_room(struct unwinding *u, size_t count)
{
	void *places = u->places, *mappings = u->mappings;
	int err = mem_grow(MEM_AGENT, &places, &u->place_cap, count, PROCESS_MAPPINGS_MAX,
			   sizeof(*u->places));

	u->places = places;
	if (!err)
		err = mem_grow(MEM_AGENT, &mappings, &u->mapping_cap,
			       count < FLY_MAPPINGS_MAX ? count : FLY_MAPPINGS_MAX,
			       FLY_MAPPINGS_MAX, sizeof(*u->mappings));
	u->mappings = mappings;
	return err;
}

static size_t make_mappings(struct unwinding *u, struct known *k, const struct process_extents *all)
{
	size_t count = 0;

	set_open(u, k, false);
	for (size_t i = 0; i < all->count; i++) {
		const struct process_extent *x = &all->items[i];
		struct place *place = &u->places[count];
		uint64_t bias;
		uint32_t table;

		if (x->end > FLY_VADDR_MASK || (x->start | x->end) & PAGE_MASK)
			continue; /* [vsyscall] */
		table = table_of(u, k, x, &bias);
		*place = (struct place){
			.mapping = fly_mapping_make(x->start, x->end - x->start, bias, table),
			.samples = x->samples,
			.has_file = x->file >= 0};
		place->mapping.identity = identity_of(u, k, x);
		if (!count || !join(place - 1, place))
			count++;
	}
	count = choose(u, count);
	for (size_t i = 0; i < count; i++)
		u->mappings[i] = u->places[i].mapping;
	return count;
}

static void enter(struct unwinding *u, struct known *k)
{
	struct tables_entry entry = {.tgid = k->tgid};
	struct process_extents all;

	if (process_extents_get(u->tracker, k->tgid, &all) || !all.count || !all.start_ns ||
	    make_room(u, all.count))
		return; /* its next sample asks again */
	entry.like = all.parent_tgid;
	entry.start_ns = all.start_ns;
	entry.count = (uint32_t)make_mappings(u, k, &all);
	entry.mappings = u->mappings;
	k->has_asked = false;
	k->next_ns = all.count > LARGE ? u->now_ns + all.count * LARGE_NS : 0;
	if (entry.count)
		(void)tables_process_put(u->tables, &entry, u->now_ns);
}

/* Files that became known are in the mappings of those that wait for them. */
static void look_at_files(struct unwinding *u)
{
	struct process_stats stats;
	struct known *k, *next;

	process_stats_get(u->tracker, &stats);
	if (stats.inspected == u->inspected)
		return;
	u->inspected = stats.inspected;
	if (!u->open)
		return;
	HASH_ITER (hh, u->known, k, next) {
		if (k->is_open)
			set_changed(u, k, true);
	}
}

static void look_at_ended(struct unwinding *u)
{
	struct known *k, *next;

	for (k = u->ended; k && u->now_ns >= k->end_ns; k = next) {
		next = k->end_next;
		tables_process_remove(u->tables, k->tgid);
		forget(u, k);
	}
}

static void enter_changed(struct unwinding *u)
{
	struct known *k, *next;

	DL_FOREACH_SAFE(u->changed, k, next)
	{
		if (u->now_ns < k->next_ns && !k->end_ns)
			continue;
		set_changed(u, k, false);
		if (!k->end_ns)
			enter(u, k);
	}
}

/* ---------------------------------------------------------------- tables */
static enum tables_refusal refusal_of(const struct helpers_result *result)
{
	switch (result->err) {
	case -ENOENT:
		return result->unnamed == FLY_UNNAMED_FILE_INVALID ? TABLES_REFUSED_NO_CFI
								   : TABLES_REFUSED_UNREADABLE;
	case -ENOSPC:
		return TABLES_REFUSED_TOO_LARGE;
	case -EBADMSG:
	case -ERANGE:
		return TABLES_REFUSED_DAMAGED;
	case -EOPNOTSUPP:
		return TABLES_REFUSED_UNSUPPORTED;
	default:
		return TABLES_REFUSED_UNREADABLE;
	}
}

static void table_done(void *ctx, const struct helpers_result *result)
{
	struct unwinding *u = ctx;
	static const uint8_t none[1];
	struct tables_content content = {.build_id = none};
	uint64_t key = u->asking;

	u->asking = 0;
	u->is_sent = false;
	u->allowance_ns -= TABLE_NS;
	if (result->err || !result->table) {
		tables_refused(u->tables, key, refusal_of(result), u->now_ns);
		return;
	}
	u->allowance_ns -= (int64_t)(result->table->table.info_bytes * TABLE_BYTE_NS);
	content.table = &result->table->table;
	memcpy(content.hash, result->table->hash, sizeof(content.hash));
	if (key != VDSO_KEY) {
		const struct process_file *f =
			process_file_get(u->tracker, (int32_t)(key & ((1U << FILE_BITS) - 1)));

		content.build_id = f->info.build_id;
		content.build_id_len = f->info.build_id_len;
	}
	u->is_warm = true;
	(void)tables_arrived(u->tables, key, &content, u->now_ns);
}

_Static_assert(ELF_BUILD_ID_MAX <= TABLES_BUILD_ID_MAX, "agent: a build-id fits");

static int send(struct unwinding *u)
{
	int32_t file = (int32_t)(u->asking & ((1U << FILE_BITS) - 1));
	const struct process_file *f;

	if (u->asking == VDSO_KEY)
		return helpers_vdso_table(u->opt.helpers, table_done, u);
	f = process_file_get(u->tracker, file);
	if (key_of(f, file) != u->asking || f->state != PROCESS_FILE_READY)
		return -ESRCH; /* forgotten */
	return helpers_table(u->opt.helpers, &f->open, TABLES_TABLE_BYTES_MAX, table_done, u);
}

static void ask(struct unwinding *u)
{
	uint64_t key;
	int err;

	if (!u->opt.helpers || u->is_sent)
		return;
	if (!u->asking) {
		if (u->is_held || u->allowance_ns <= 0 || !tables_want(u->tables, &key))
			return;
		u->asking = key;
	}
	err = send(u);
	if (!err) {
		u->is_sent = true;
		u->stats.asked++;
		return;
	}
	if (err == -EAGAIN || err == -ENOMEM)
		return;
	key = u->asking;
	u->asking = 0;
	tables_refused(u->tables, key, TABLES_REFUSED_UNREADABLE, u->now_ns);
}

/* ---------------------------------------------------------------- time */
void unwinding_hold(struct unwinding *u, bool is_held)
{
	if (u)
		u->is_held = is_held;
}

void unwinding_step(struct unwinding *u, uint64_t now_ns)
{
	if (!u)
		return;
	if (u->now_ns && now_ns > u->now_ns)
		u->allowance_ns += (int64_t)((now_ns - u->now_ns) / ALLOWANCE_SHARE);
	if (u->allowance_ns > ALLOWANCE_NS)
		u->allowance_ns = ALLOWANCE_NS;
	u->now_ns = now_ns;
	u->is_hurried = u->is_warm;
	u->is_warm = false;
	look_at_ended(u);
	look_at_files(u);
	enter_changed(u);
	tables_tick(u->tables, now_ns);
	ask(u);
}

int unwinding_poll_ms(const struct unwinding *u, int most_ms)
{
	bool is_soon = u && (u->is_hurried || u->is_sent || u->changed);

	return is_soon && most_ms > WARM_MS ? WARM_MS : most_ms;
}

void unwinding_stats_get(const struct unwinding *u, struct unwinding_stats *ret)
{
	*ret = (struct unwinding_stats){0};
	if (!u)
		return;
	*ret = u->stats;
	tables_stats_get(u->tables, &ret->tables);
}
