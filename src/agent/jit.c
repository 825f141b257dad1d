// SPDX-License-Identifier: Apache-2.0
/*
 * jit: locations of code in anonymous memory, and their names by the perf map of their process.
 *
 * Address spaces differ, so each process has files ("//anon") of its own in the profile. A runtime
 * that puts other code at an address adds a line to its map, which counts from then on: the map is
 * looked at again while it grows, and when an address has another name than before, what is sampled
 * there later becomes another location, in the process's next file. What came between two looks has
 * the older name.
 *
 * Looks cost a pass over the map, so a process is looked at no more often than every LOOK_NS, and
 * less often where that takes long or brings nothing; a map that has not changed is not read.
 */
#include "record_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM	1
#define uthash_malloc(bytes)	mem_alloc(MEM_AGENT, bytes)
#define uthash_free(p, bytes)	mem_free(MEM_AGENT, p)
#define uthash_nonfatal_oom(el) ((el)->is_lost = true)
#include <uthash.h>

#define LOOK_NS	     500000000ULL
#define LOOK_IDLE_NS 8000000000ULL /* where nothing changes */
#define LOOK_SHARE   20 /* of the time since the last look, at most a 20th is spent in one */
#define BATCH	     4096
#define VERSIONS_MAX 64 /* of an address; after that its last name stays */

struct address {
	uint64_t address; /* key */
	uint32_t location, version;
	uint64_t start; /* of the code that has the name */
	char *name;	/* NULL: none yet */
	uint32_t unnamed;
	bool is_lost;
	UT_hash_handle hh;
};

struct code {
	int64_t process; /* key */
	struct jit *jit;
	struct address *addresses;
	int64_t files[VERSIONS_MAX]; /* profile's id + 1 */
	uint64_t stamp;		     /* of the map that all asked ones were looked up in */
	uint64_t next_look_ns, next_new_ns, sent_ns, pause_ns;
	uint64_t answered_stamp; /* of the batches of this look; 0: none, or they differ */
	size_t in_flight;
	bool has_new, has_changed, is_closed, is_lost;
	UT_hash_handle hh;
};

struct jit {
	struct jit_options opt;
	struct code *codes;
	size_t in_flight;
	bool is_ending;
};

struct look {
	struct code *code;
	bool is_first;
};

int jit_new(const struct jit_options *options, struct jit **ret)
{
	struct jit *jit = mem_alloc(MEM_AGENT, sizeof(*jit));

	if (!jit)
		return -ENOMEM;
	jit->opt = *options;
	*ret = jit;
	return 0;
}

static void code_free(struct code *code)
{
	struct address *a, *next;

	HASH_ITER (hh, code->addresses, a, next) {
		HASH_DEL(code->addresses, a);
		mem_free(MEM_AGENT, a->name);
		mem_free(MEM_AGENT, a);
	}
	mem_free(MEM_AGENT, code);
}

void jit_free(struct jit *jit)
{
	struct code *code, *next;

	if (!jit)
		return;
	HASH_ITER (hh, jit->codes, code, next) {
		HASH_DEL(jit->codes, code);
		code_free(code);
	}
	mem_free(MEM_AGENT, jit);
}

/* ---------------------------------------------------------------- locations */
static void held(void *ctx, const struct helpers_result *result)
{
	(void)ctx;
	(void)result; /* the look that follows says what is wrong */
}

static struct code *code_get(struct jit *jit, int64_t process)
{
	struct process_info info;
	struct code *code;

	HASH_FIND(hh, jit->codes, &process, sizeof(process), code);
	if (code)
		return code;
	code = mem_alloc(MEM_AGENT, sizeof(*code));
	if (!code)
		return NULL;
	code->process = process;
	code->jit = jit;
	code->pause_ns = LOOK_NS;
	HASH_ADD(hh, jit->codes, process, sizeof(code->process), code);
	if (code->is_lost) {
		mem_free(MEM_AGENT, code);
		return NULL;
	}
	if (!jit->opt.no_symbols) {
		process_get(jit->opt.tracker, process, &info);
		helpers_perfmap_hold(jit->opt.helpers, info.tgid, info.start_ns, held, NULL);
	}
	return code;
}

static int64_t code_file(struct code *code, uint32_t version)
{
	struct profile_file file = {.path = "//anon"};
	int64_t *slot = &code->files[version], id;

	if (*slot)
		return *slot - 1;
	file.key = 1ULL << 63 | (uint64_t)code->process << 8 | version;
	id = profile_file_add(code->jit->opt.profile, &file);
	if (id < 0)
		return id;
	if (naming_file_add(code->jit->opt.naming, (uint32_t)id, NAMING_FILE_ANONYMOUS))
		return -ENOMEM;
	*slot = id + 1;
	return id;
}

static int64_t address_place(struct code *code, struct address *a, uint32_t version)
{
	int64_t file = code_file(code, version), location;

	if (file < 0)
		return file;
	location = profile_location_add(code->jit->opt.profile, (uint32_t)file, a->address,
					PROFILE_JIT);
	if (location < 0)
		return location;
	a->location = (uint32_t)location;
	a->version = version;
	return location;
}

int64_t jit_location(struct jit *jit, int64_t process, uint64_t address)
{
	struct code *code = code_get(jit, process);
	struct address *a;
	int64_t location;

	if (!code)
		return -ENOMEM;
	HASH_FIND(hh, code->addresses, &address, sizeof(address), a);
	if (a)
		return a->location;
	a = mem_alloc(MEM_AGENT, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->address = address;
	location = address_place(code, a, 0);
	if (location >= 0) {
		HASH_ADD(hh, code->addresses, address, sizeof(a->address), a);
		if (a->is_lost)
			location = -ENOMEM;
	}
	if (location < 0)
		mem_free(MEM_AGENT, a);
	else
		code->has_new = true;
	return location;
}

/* ---------------------------------------------------------------- names */
static void address_rename(struct code *code, struct address *a, const struct helpers_name *to)
{
	char *name = mem_copy_string(MEM_AGENT, to->name);

	if (!name)
		return;
	/* A line that was half written when it was read: the same name, now whole. */
	if (a->name && (a->start != to->start || strncmp(a->name, name, strlen(a->name)) != 0) &&
	    a->version + 1 < VERSIONS_MAX)
		(void)address_place(code, a, a->version + 1);
	mem_free(MEM_AGENT, a->name);
	a->name = name;
	a->start = to->start;
	profile_location_name(code->jit->opt.profile, a->location, name, to->start);
}

static void names_take(struct code *code, const struct helpers_result *result)
{
	for (size_t i = 0; i < result->name_count; i++) {
		const struct helpers_name *name = &result->names[i];
		struct address *a;

		HASH_FIND(hh, code->addresses, &name->vaddr, sizeof(name->vaddr), a);
		if (!a)
			continue;
		a->unnamed = name->unnamed;
		if (!name->unnamed &&
		    (!a->name || a->start != name->start || strcmp(a->name, name->name) != 0))
			address_rename(code, a, name);
	}
	code->has_changed |= result->name_count > 0;
}

static void look_failed(struct code *code, const struct helpers_result *result)
{
	struct address *a, *next;

	HASH_ITER (hh, code->addresses, a, next) {
		if (!a->name && !a->unnamed)
			a->unnamed = result->unnamed;
	}
}

static void look_done(void *ctx, const struct helpers_result *result)
{
	struct look *look = ctx;
	struct code *code = look->code;
	uint64_t now = clock_monotonic_ns(), took = now - code->sent_ns;

	code->jit->in_flight--;
	code->in_flight--;
	if (result->err)
		look_failed(code, result);
	else
		names_take(code, result);
	/* Batches that met different contents leave no stamp: all is looked up again. */
	if (look->is_first)
		code->answered_stamp = result->err ? 0 : result->stamp;
	else if (result->err || code->answered_stamp != result->stamp)
		code->answered_stamp = 0;
	if (!code->in_flight) {
		code->stamp = code->answered_stamp;
		code->pause_ns = code->has_changed ? LOOK_NS : code->pause_ns * 2;
		if (code->pause_ns > LOOK_IDLE_NS)
			code->pause_ns = LOOK_IDLE_NS;
		if (code->pause_ns < took * LOOK_SHARE)
			code->pause_ns = took * LOOK_SHARE;
		code->next_look_ns = now + code->pause_ns;
		code->next_new_ns =
			now + (took * LOOK_SHARE > LOOK_NS ? took * LOOK_SHARE : LOOK_NS);
	}
	mem_free(MEM_AGENT, look);
}

static int look_send(struct code *code, const uint64_t *addresses, size_t count, bool is_first)
{
	struct jit *jit = code->jit;
	struct look *look = mem_alloc(MEM_AGENT, sizeof(*look));
	struct process_info info;
	int err;

	if (!look)
		return -ENOMEM;
	look->code = code;
	look->is_first = is_first;
	process_get(jit->opt.tracker, code->process, &info);
	err = helpers_perfmap_names(jit->opt.helpers, info.tgid, info.start_ns,
				    code->has_new ? 0 : code->stamp, addresses, count, look_done,
				    look);
	if (err) {
		mem_free(MEM_AGENT, look);
		return err;
	}
	code->in_flight++;
	jit->in_flight++;
	return 0;
}

/* All addresses of a process, in batches; what does not go out now is asked at the next look. */
static void code_look(struct code *code, uint64_t now_ns)
{
	uint64_t *addresses = mem_array(MEM_AGENT, BATCH, sizeof(*addresses));
	struct address *a, *next;
	bool is_first = true;
	size_t count = 0;
	int err = addresses ? 0 : -ENOMEM;

	code->sent_ns = now_ns;
	code->has_changed = false;
	HASH_ITER (hh, code->addresses, a, next) {
		if (err)
			break;
		addresses[count++] = a->address;
		if (count < BATCH)
			continue;
		err = look_send(code, addresses, count, is_first);
		is_first = false;
		count = 0;
	}
	if (!err && count)
		err = look_send(code, addresses, count, is_first);
	if (!err) {
		code->has_new = false;
		code->is_closed = code->jit->is_ending;
	}
	mem_free(MEM_AGENT, addresses);
}

void jit_ask(struct jit *jit, uint64_t now_ns)
{
	struct code *code, *next;

	if (jit->opt.no_symbols)
		return;
	HASH_ITER (hh, jit->codes, code, next) {
		if (!code->in_flight && !code->is_closed &&
		    (jit->is_ending || now_ns >= code->next_look_ns ||
		     (code->has_new && now_ns >= code->next_new_ns)))
			code_look(code, now_ns);
	}
}

void jit_end(struct jit *jit)
{
	jit->is_ending = true;
}

size_t jit_left(const struct jit *jit)
{
	const struct code *code;
	size_t open = 0;

	if (jit->opt.no_symbols)
		return 0;
	for (code = jit->codes; code; code = code->hh.next)
		open += jit->is_ending && !code->is_closed;
	return jit->in_flight + open;
}

size_t jit_requests(const struct jit *jit)
{
	return jit->in_flight;
}

void jit_finish(struct jit *jit)
{
	struct code *code, *next;
	struct address *a, *after;

	if (jit->opt.no_symbols)
		return;
	HASH_ITER (hh, jit->codes, code, next) {
		HASH_ITER (hh, code->addresses, a, after) {
			if (!a->name)
				profile_location_unnamed(jit->opt.profile, a->location,
							 a->unnamed ? a->unnamed
								    : FLY_UNNAMED_NO_TIME);
		}
	}
}
