// SPDX-License-Identifier: Apache-2.0
/*
 * naming: puts names on locations, in batches, while the recording runs, so that a file that is
 * deleted meanwhile was read in time and the end is quick. Each location is asked for once; what
 * comes back is a name or a named reason, never silence.
 */
#include "record_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/kernel_names.h"
#include "agent/ksymbols.h"
#include "symbol/symbol.h"

#define BATCH		  2048
#define LOCATION_ASKED	  1
#define FILES_TOLD_MAX	  8
#define MODULES_BYTES_MAX (128 << 10)

struct naming {
	struct naming_options opt;
	int32_t *files; /* profile file id -> tracker file id or NAMING_FILE_x */
	size_t file_count, file_cap;
	uint8_t *state; /* of each location: LOCATION_ASKED or 0 */
	size_t state_cap;
	size_t pending, blocked;
	int32_t told[FILES_TOLD_MAX]; /* tracker's files that a warning was about */
	size_t told_count;
};

/* One batch in flight: which locations its answers belong to. */
struct batch {
	struct naming *names;
	int32_t file; /* tracker's */
	size_t count;
	struct batch_item {
		uint32_t location;
		uint64_t address; /* link-time address, or offset in the vDSO */
	} items[];
};

struct open_location {
	uint32_t location, file;
	uint64_t address;
};
struct open_list {
	struct naming *names;
	struct open_location *items;
	size_t count, cap;
	bool with_asked;
};

int naming_new(const struct naming_options *options, struct naming **ret)
{
	struct naming *names = mem_alloc(MEM_AGENT, sizeof(*names));

	if (!names)
		return -ENOMEM;
	names->opt = *options;
	*ret = names;
	return 0;
}

void naming_free(struct naming *names)
{
	if (!names)
		return;
	mem_free(MEM_AGENT, names->files);
	mem_free(MEM_AGENT, names->state);
	mem_free(MEM_AGENT, names);
}

int naming_file_add(struct naming *names, uint32_t profile_file, int32_t tracker_file)
{
	void *p = names->files;
	int err = mem_grow(MEM_AGENT, &p, &names->file_cap, profile_file + 1, 1U << 24,
			   sizeof(*names->files));

	names->files = p;
	if (err)
		return err;
	while (names->file_count <= profile_file)
		names->files[names->file_count++] = NAMING_FILE_UNKNOWN;
	names->files[profile_file] = tracker_file;
	return 0;
}

static uint8_t *location_state(struct naming *names, uint32_t location)
{
	size_t old = names->state_cap;
	void *p = names->state;

	if (location >= names->state_cap) {
		if (mem_grow(MEM_AGENT, &p, &names->state_cap, location + 1, 1U << 30, 1))
			return NULL;
		names->state = p;
		memset(names->state + old, 0, names->state_cap - old);
	}
	return names->state + location;
}

static int list_location(void *ctx, uint32_t location, uint32_t file, uint64_t address,
			 enum profile_frame_kind kind)
{
	struct open_list *list = ctx;
	uint8_t *state = location_state(list->names, location);
	void *p = list->items;
	int err;

	(void)kind;
	if (!state)
		return -ENOMEM;
	if (*state == LOCATION_ASKED && !list->with_asked)
		return 0;
	err = mem_grow(MEM_AGENT, &p, &list->cap, list->count + 1, 1U << 26, sizeof(*list->items));
	list->items = p;
	if (err)
		return err;
	list->items[list->count++] = (struct open_location){location, file, address};
	return 0;
}

static int compare_open(const void *a, const void *b)
{
	const struct open_location *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->address > y->address) - (x->address < y->address);
}

/* A file that is at fault itself is told of once. Anybody can bring thousands: the first few. */
static void file_tell(struct naming *names, int32_t tracker_file, uint32_t reason, const char *what)
{
	const char *path = process_file_get(names->opt.tracker, tracker_file)->path;
	char printable[512];

	if (reason != FLY_UNNAMED_FILE_INVALID && reason != FLY_UNNAMED_READER_FAILED)
		return;
	for (size_t i = 0; i < names->told_count; i++) {
		if (names->told[i] == tracker_file)
			return;
	}
	if (names->told_count == FILES_TOLD_MAX)
		return;
	names->told[names->told_count++] = tracker_file;
	text_print(path, strlen(path), printable, sizeof(printable));
	log_warn("no names from %s: %s", printable, what);
	if (names->told_count == FILES_TOLD_MAX)
		log_warn("more files that cannot be read are not listed here");
}

static void batch_fail(struct batch *batch, uint32_t reason)
{
	for (size_t i = 0; i < batch->count; i++)
		profile_location_unnamed(batch->names->opt.profile, batch->items[i].location,
					 reason ? reason : FLY_UNNAMED_READER_FAILED);
}

/* Names what it can. Answers are matched by address. open gets what has none, and has room for all.
 * Returns how many. */
static size_t batch_answer(struct batch *batch, const struct helpers_result *result,
			   struct debugfiles_item *open)
{
	struct profile *profile = batch->names->opt.profile;
	size_t j = 0, count = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const struct batch_item *item = &batch->items[i];
		const struct helpers_name *name = NULL;

		while (j < result->name_count && result->names[j].vaddr < item->address)
			j++;
		if (j < result->name_count && result->names[j].vaddr == item->address)
			name = &result->names[j];
		if (name && !name->unnamed)
			profile_location_name(profile, item->location, name->name, name->start);
		else if (name && name->unnamed != FLY_UNNAMED_NO_SYMBOL)
			profile_location_unnamed(profile, item->location, name->unnamed);
		else
			open[count++] = (struct debugfiles_item){item->location, item->address};
	}
	return count;
}

static void batch_take(struct batch *batch, const struct helpers_result *result)
{
	struct debugfiles_item *open = mem_array(MEM_AGENT, batch->count, sizeof(*open));
	struct naming *names = batch->names;
	size_t count;

	if (!open) {
		batch_fail(batch, FLY_UNNAMED_READER_FAILED);
		return;
	}
	count = batch_answer(batch, result, open);
	if (!count || !result->is_stripped || !names->opt.debugfiles ||
	    debugfiles_ask(names->opt.debugfiles, batch->file, result->debug_link, open, count)) {
		for (size_t i = 0; i < count; i++)
			profile_location_unnamed(names->opt.profile, open[i].location,
						 FLY_UNNAMED_NO_SYMBOL);
	}
	mem_free(MEM_AGENT, open);
}

static void batch_done(void *ctx, const struct helpers_result *result)
{
	struct batch *batch = ctx;

	batch->names->pending--;
	if (!result->err)
		lines_link(batch->names->opt.lines, batch->file, result->debug_link);
	for (size_t i = 0; i < batch->count && !result->err; i++)
		lines_add(batch->names->opt.lines, batch->file, batch->items[i].location,
			  batch->items[i].address);
	if (result->err == -ECANCELED)
		batch_fail(batch, FLY_UNNAMED_NO_TIME);
	else if (result->err) {
		file_tell(batch->names, batch->file, result->unnamed, result->text);
		batch_fail(batch, result->unnamed);
	} else
		batch_take(batch, result);
	mem_free(MEM_AGENT, batch);
}

static int batch_send(struct batch *batch, const struct process_file *file)
{
	uint64_t *addresses = mem_array(MEM_AGENT, batch->count, sizeof(*addresses));
	struct helpers *helpers = batch->names->opt.helpers;
	int err;

	if (!addresses)
		return -ENOMEM;
	for (size_t i = 0; i < batch->count; i++)
		addresses[i] = batch->items[i].address;
	if (file->is_vdso)
		err = helpers_vdso_names(helpers, addresses, batch->count, batch_done, batch);
	else
		err = helpers_names(helpers, &file->open, addresses, batch->count, batch_done,
				    batch);
	mem_free(MEM_AGENT, addresses);
	return err;
}

static int compare_item(const void *a, const void *b)
{
	const struct batch_item *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

/* Sends one batch of locations of one file. Returns how many of items it took; 0: come back. */
static size_t ask_batch(struct naming *names, int32_t tracker_file,
			const struct open_location *items, size_t count)
{
	const struct process_file *file = process_file_get(names->opt.tracker, tracker_file);
	size_t take = count < BATCH ? count : BATCH;
	struct batch *batch = mem_alloc(MEM_AGENT, sizeof(*batch) + take * sizeof(batch->items[0]));

	if (!batch)
		return 0;
	batch->names = names;
	batch->file = tracker_file;
	for (size_t i = 0; i < take; i++) {
		struct batch_item *item = &batch->items[batch->count];

		item->location = items[i].location;
		item->address = items[i].address;
		if (!file->is_vdso &&
		    elf_offset_to_vaddr(&file->info, items[i].address, &item->address))
			profile_location_unnamed(names->opt.profile, items[i].location,
						 FLY_UNNAMED_FILE_INVALID);
		else
			batch->count++;
	}
	if (!batch->count) {
		mem_free(MEM_AGENT, batch);
		return take;
	}
	qsort(batch->items, batch->count, sizeof(batch->items[0]), compare_item);
	if (batch_send(batch, file)) {
		mem_free(MEM_AGENT, batch);
		return 0;
	}
	names->pending++;
	for (size_t i = 0; i < take; i++)
		*location_state(names, items[i].location) = LOCATION_ASKED;
	return take;
}

static void fail_all(struct naming *names, const struct open_location *items, size_t count,
		     uint32_t reason)
{
	for (size_t i = 0; i < count; i++)
		profile_location_unnamed(names->opt.profile, items[i].location, reason);
}

/* All open locations of one file. */
static void ask_file(struct naming *names, int32_t tracker_file, const struct open_location *items,
		     size_t count)
{
	const struct process_file *file;

	if (tracker_file == NAMING_FILE_KERNEL)
		return; /* naming_finish: one pass over kallsyms for all */
	if (tracker_file == NAMING_FILE_ANONYMOUS)
		return; /* jit.c */
	if (tracker_file < 0) {
		fail_all(names, items, count, FLY_UNNAMED_MAPPING_UNKNOWN);
		return;
	}
	file = process_file_get(names->opt.tracker, tracker_file);
	if (file->is_vdso || file->state == PROCESS_FILE_READY) {
		size_t done = 0, took = 1;

		for (; done < count && took; done += took)
			took = ask_batch(names, tracker_file, items + done, count - done);
		names->blocked += count - done;
	} else if (file->state == PROCESS_FILE_FAILED) {
		file_tell(names, tracker_file, file->unnamed,
			  file->unnamed == FLY_UNNAMED_FILE_INVALID
				  ? "it is no ELF file that can be read, or it is damaged"
				  : "the reader process ended while it worked on it");
		fail_all(names, items, count, file->unnamed);
	} else {
		process_file_want(names->opt.tracker, tracker_file);
		names->blocked += count;
	}
}

static void open_list_read(struct naming *names, struct open_list *list, bool with_asked)
{
	memset(list, 0, sizeof(*list));
	list->names = names;
	list->with_asked = with_asked;
	if (profile_locations_open(names->opt.profile, list_location, list))
		log_debug("naming: not all locations could be listed");
	if (list->count)
		qsort(list->items, list->count, sizeof(*list->items), compare_open);
}

static size_t same_file(const struct open_list *list, size_t from)
{
	size_t n = 1;

	while (from + n < list->count && list->items[from + n].file == list->items[from].file)
		n++;
	return n;
}

void naming_ask(struct naming *names)
{
	struct open_list list;

	if (names->opt.no_symbols)
		return;
	names->blocked = 0;
	open_list_read(names, &list, false);
	for (size_t i = 0, n; i < list.count; i += n) {
		uint32_t file = list.items[i].file;

		n = same_file(&list, i);
		if (file < names->file_count)
			ask_file(names, names->files[file], list.items + i, n);
	}
	mem_free(MEM_AGENT, list.items);
}

size_t naming_pending(const struct naming *names)
{
	return names->pending;
}

size_t naming_blocked(const struct naming *names)
{
	return names->blocked;
}

static void kernel_answer(struct naming *names, const struct open_location *item,
			  const struct symbol_query *query, int err)
{
	const struct ksymbols *told = names->opt.ksymbols;
	uint16_t version = (uint16_t)profile_location_variant(names->opt.profile, item->location);
	uint64_t start = query->start;
	const char *name = ksymbols_name(told, item->address, version, &start);

	if (!name && query->found && ksymbols_is_last(told, item->address, version))
		name = query->name;
	if (name)
		profile_location_name(names->opt.profile, item->location, name, start);
	else
		profile_location_unnamed(names->opt.profile, item->location,
					 err == -EACCES ? FLY_UNNAMED_KERNEL_HIDDEN
							: FLY_UNNAMED_NO_SYMBOL);
}

static void name_by_kallsyms(struct naming *names, const struct open_location *items, size_t count)
{
	struct symbol_query *queries = mem_array(MEM_AGENT, count, sizeof(*queries));
	struct why why = {""};
	FILE *kallsyms;
	int err;

	if (!queries)
		return;
	for (size_t i = 0; i < count; i++)
		queries[i].address = items[i].address;
	kallsyms = fopen("/proc/kallsyms", "re");
	err = kallsyms ? symbol_lookup_kallsyms(kallsyms, queries, count, &why) : -errno;
	if (kallsyms)
		fclose(kallsyms);
	if (err)
		log_warn("kernel frames have no names: %s",
			 why.text[0] ? why.text : "/proc/kallsyms cannot be read");
	for (size_t i = 0; i < count; i++) {
		kernel_answer(names, &items[i], &queries[i], err);
		kernel_names_keep(names->opt.kernel_names, &queries[i]);
		mem_free(MEM_SYMBOL, queries[i].name);
		mem_free(MEM_SYMBOL, queries[i].module);
	}
	mem_free(MEM_AGENT, queries);
}

static void check_modules(struct naming *names)
{
	static char text[MODULES_BYTES_MAX];
	FILE *modules = fopen("/proc/modules", "re");
	size_t len = modules ? fread(text, 1, sizeof(text), modules) : 0;

	if (modules)
		fclose(modules);
	kernel_names_check(names->opt.kernel_names, text, len);
}

static void name_kernel(struct naming *names, const struct open_location *items, size_t count)
{
	struct open_location *unknown = mem_array(MEM_AGENT, count, sizeof(*unknown));
	size_t left = 0;

	if (!unknown)
		return;
	check_modules(names);
	for (size_t i = 0; i < count; i++) {
		struct symbol_query query = {.found = 1};
		const char *name =
			kernel_names_find(names->opt.kernel_names, items[i].address, &query.start);

		query.name = (char *)(uintptr_t)name;
		if (name)
			kernel_answer(names, &items[i], &query, 0);
		else
			unknown[left++] = items[i];
	}
	if (left)
		name_by_kallsyms(names, unknown, left);
	mem_free(MEM_AGENT, unknown);
}

void naming_finish(struct naming *names)
{
	uint32_t reason = names->opt.no_symbols ? FLY_UNNAMED_NOT_ASKED : FLY_UNNAMED_NO_TIME;
	struct open_list list;

	open_list_read(names, &list, true);
	for (size_t i = 0, n; i < list.count; i += n) {
		uint32_t file = list.items[i].file;

		n = same_file(&list, i);
		if (!names->opt.no_symbols && file < names->file_count &&
		    names->files[file] == NAMING_FILE_KERNEL)
			name_kernel(names, list.items + i, n);
		else
			fail_all(names, list.items + i, n, reason);
	}
	mem_free(MEM_AGENT, list.items);
}
