// SPDX-License-Identifier: Apache-2.0
/*
 * lines: asks where the code of named locations comes from: source lines and inlined calls.
 * Locations are kept here by file until they are asked for. A file without lines of its own is
 * asked for those of its debug file, the machine's or debuginfod's. One without any, or on which
 * reading them failed, is not asked again; what ran out of time is, as long as each answer brings
 * something. Each that was asked for has lines at the end, or a reason.
 */
#include "record_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define WANTED_MAX (1U << 20)
#define FILES_MAX  (1U << 24)
#define CUT_MAX	   8 /* answers of one file that did not reach all they were asked */

struct wanted {
	int32_t file; /* of the tracker */
	uint32_t location;
	uint64_t address; /* link-time */
};

enum source { OWN, DEBUG, FETCHED, NOWHERE };

struct file_state {
	uint8_t reason; /* enum fly_unnamed: not to be asked any more */
	uint8_t cuts;
	uint8_t source;	  /* enum source: where its lines are looked for now */
	char *link;	  /* its .gnu_debuglink; NULL: none */
	char *supplement; /* what dwz moved entries to; NULL: not known of any */
};

struct lines {
	struct lines_options opt;
	struct wanted *wanted;
	size_t count, cap;
	struct file_state *files;
	size_t file_count, file_cap;
	size_t asked; /* locations in flight */
	struct batch *in_flight;
};

struct batch {
	struct lines *lines;
	struct batch *prev, *next; /* in flight */
	size_t count;
	struct wanted items[];
};

int lines_new(const struct lines_options *options, struct lines **ret)
{
	struct lines *lines = mem_alloc(MEM_AGENT, sizeof(*lines));

	if (!lines)
		return -ENOMEM;
	lines->opt = *options;
	*ret = lines;
	return 0;
}

void lines_free(struct lines *lines)
{
	if (!lines)
		return;
	for (size_t i = 0; i < lines->file_count; i++) {
		mem_free(MEM_AGENT, lines->files[i].link);
		mem_free(MEM_AGENT, lines->files[i].supplement);
	}
	mem_free(MEM_AGENT, lines->wanted);
	mem_free(MEM_AGENT, lines->files);
	mem_free(MEM_AGENT, lines);
}

static struct file_state *state_of(struct lines *lines, int32_t file)
{
	void *p = lines->files;

	if (file < 0 || mem_grow(MEM_AGENT, &p, &lines->file_cap, (size_t)file + 1, FILES_MAX,
				 sizeof(*lines->files)))
		return NULL;
	lines->files = p;
	if (lines->file_count <= (size_t)file) {
		memset(lines->files + lines->file_count, 0,
		       ((size_t)file + 1 - lines->file_count) * sizeof(*lines->files));
		lines->file_count = (size_t)file + 1;
	}
	return &lines->files[file];
}

static void unlined(struct lines *lines, const struct wanted *w, uint32_t reason)
{
	if (reason)
		profile_location_unlined(lines->opt.profile, w->location, reason);
}

void lines_add(struct lines *lines, int32_t file, uint32_t location, uint64_t address)
{
	const struct wanted w = {file, location, address};
	const struct file_state *state;
	void *p;

	if (!lines->opt.helpers || file < 0 || process_file_get(lines->opt.tracker, file)->is_vdso)
		return;
	state = state_of(lines, file);
	if (!state || state->reason) {
		unlined(lines, &w, state ? state->reason : FLY_UNNAMED_NAMES_FULL);
		return;
	}
	p = lines->wanted;
	if (mem_grow(MEM_AGENT, &p, &lines->cap, lines->count + 1, WANTED_MAX,
		     sizeof(*lines->wanted))) {
		unlined(lines, &w, FLY_UNNAMED_NAMES_FULL);
		return;
	}
	lines->wanted = p;
	lines->wanted[lines->count++] = w;
}

void lines_link(struct lines *lines, int32_t file, const char *link)
{
	struct file_state *state = link && *link ? state_of(lines, file) : NULL;

	if (state && !state->link)
		state->link = mem_copy_string(MEM_AGENT, link);
}

static void set_lines(struct lines *lines, const struct wanted *w, const struct helpers_line *line)
{
	struct profile_line rows[HELPERS_FRAMES_MAX];
	size_t n = line->frame_count < HELPERS_FRAMES_MAX ? line->frame_count : HELPERS_FRAMES_MAX;

	for (size_t i = 0; i < n; i++)
		rows[i] = (struct profile_line){line->frames[i].function, line->frames[i].file,
						line->frames[i].line};
	profile_location_lines(lines->opt.profile, w->location, rows, n);
}

/* The first count of its items are to be asked for once more. */
static void add_again(const struct batch *batch, size_t count)
{
	for (size_t i = 0; i < count; i++)
		lines_add(batch->lines, batch->items[i].file, batch->items[i].location,
			  batch->items[i].address);
}

/* Items and answer are both by address; several items may share one. */
static void batch_answer(struct batch *batch, const struct helpers_result *result)
{
	struct lines *lines = batch->lines;
	struct file_state *state = state_of(lines, batch->items[0].file);
	size_t late = 0;

	for (size_t i = 0, j = 0; i < batch->count; i++) {
		const struct wanted *w = &batch->items[i];
		const struct helpers_line *line;

		while (j < result->line_count && result->lines[j].vaddr < w->address)
			j++;
		line = j < result->line_count && result->lines[j].vaddr == w->address
			       ? &result->lines[j]
			       : NULL;
		if (line && line->frame_count)
			set_lines(lines, w, line);
		else if (line && line->unnamed == FLY_UNNAMED_LINES_TIME)
			batch->items[late++] = *w;
		else
			unlined(lines, w, line ? line->unnamed : 0);
	}
	if (!late)
		return;
	if (state && (late == batch->count || ++state->cuts >= CUT_MAX))
		state->reason = FLY_UNNAMED_LINES_TIME;
	add_again(batch, late);
}

/* False: there is nowhere else. */
static bool look_elsewhere(struct file_state *state)
{
	state->source++;
	if (state->source == NOWHERE)
		state->reason = FLY_UNNAMED_NO_LINES;
	return state->source != NOWHERE;
}

/* True when its frames would say more with the supplement that the answer tells of. */
static bool learn_supplement(struct file_state *state, const char *text)
{
	/* What came from a server is asked without one. */
	if (!state || !text || !*text || state->supplement || state->source == FETCHED)
		return false;
	state->supplement = mem_copy_string(MEM_AGENT, text);
	if (state->source == OWN)
		state->source = DEBUG;
	return state->supplement;
}

static void batch_done(void *ctx, const struct helpers_result *result)
{
	struct batch *batch = ctx;
	struct lines *lines = batch->lines;
	struct file_state *state = state_of(lines, batch->items[0].file);
	uint32_t reason = result->unnamed ? result->unnamed : FLY_UNNAMED_READER_FAILED;

	lines->asked -= batch->count;
	DL_DELETE(lines->in_flight, batch);
	if (!result->err) {
		if (learn_supplement(state, result->supplement))
			add_again(batch, batch->count);
		else
			batch_answer(batch, result);
	} else if (result->err == -ENOENT && state && look_elsewhere(state)) {
		add_again(batch, batch->count);
	} else {
		if (result->err == -ECANCELED)
			reason = FLY_UNNAMED_LINES_TIME;
		if (state)
			state->reason = (uint8_t)reason;
		for (size_t i = 0; i < batch->count; i++)
			unlined(lines, &batch->items[i], reason);
	}
	mem_free(MEM_AGENT, batch);
}

static int send_batch(struct lines *lines, const struct file_state *state, struct batch *batch)
{
	int32_t id = batch->items[0].file;
	const struct process_file *file = process_file_get(lines->opt.tracker, id);
	uint64_t addresses[HELPERS_LINES_MAX];
	int fd;

	for (size_t i = 0; i < batch->count; i++)
		addresses[i] = batch->items[i].address;
	if (state->source == OWN)
		return helpers_lines(lines->opt.helpers, &file->open, addresses, batch->count,
				     batch_done, batch);
	if (state->source == DEBUG)
		return helpers_debug_lines(lines->opt.helpers, &file->open, &file->info,
					   state->link ? state->link : "",
					   state->supplement ? state->supplement : "", addresses,
					   batch->count, batch_done, batch);
	fd = debugfiles_fetched(lines->opt.debugfiles, id);
	if (fd < 0)
		return fd;
	return helpers_fetched_lines(lines->opt.helpers, fd, file->info.build_id,
				     file->info.build_id_len, addresses, batch->count, batch_done,
				     batch);
}

/* Returns how many of items it took; 0: come back. */
static size_t ask_batch(struct lines *lines, const struct wanted *items, size_t count)
{
	size_t take = count < HELPERS_LINES_MAX ? count : HELPERS_LINES_MAX;
	struct file_state *state = state_of(lines, items->file);
	struct batch *batch = mem_alloc(MEM_AGENT, sizeof(*batch) + take * sizeof(batch->items[0]));
	int err;

	if (!batch || !state) {
		mem_free(MEM_AGENT, batch);
		return 0;
	}
	batch->lines = lines;
	batch->count = take;
	memcpy(batch->items, items, take * sizeof(batch->items[0]));
	do {
		err = send_batch(lines, state, batch);
	} while (err == -ENOENT && look_elsewhere(state));
	if (err) {
		mem_free(MEM_AGENT, batch);
		return 0;
	}
	lines->asked += take;
	DL_APPEND(lines->in_flight, batch);
	return take;
}

static int compare_wanted(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->address > y->address) - (x->address < y->address);
}

/* One request for each file: the next ones follow when it is known whether it has lines. */
void lines_ask(struct lines *lines)
{
	size_t kept = 0;

	if (lines->asked || !lines->count)
		return;
	qsort(lines->wanted, lines->count, sizeof(*lines->wanted), compare_wanted);
	for (size_t i = 0, n, took; i < lines->count; i += n) {
		struct wanted *items = lines->wanted + i;
		const struct file_state *state = state_of(lines, items->file);

		for (n = 1; i + n < lines->count && items[n].file == items->file;)
			n++;
		if (state && state->reason) {
			for (size_t k = 0; k < n; k++)
				unlined(lines, &items[k], state->reason);
			continue;
		}
		took = ask_batch(lines, items, n);
		memmove(lines->wanted + kept, items + took, (n - took) * sizeof(*items));
		kept += n - took;
	}
	lines->count = kept;
}

size_t lines_left(const struct lines *lines)
{
	return lines->count + lines->asked;
}

size_t lines_requests(const struct lines *lines)
{
	return lines->asked;
}

void lines_finish(struct lines *lines)
{
	for (size_t i = 0; i < lines->count; i++)
		unlined(lines, &lines->wanted[i], FLY_UNNAMED_LINES_TIME);
	lines->count = 0;
	for (const struct batch *b = lines->in_flight; b; b = b->next) {
		for (size_t i = 0; i < b->count; i++)
			unlined(lines, &b->items[i], FLY_UNNAMED_LINES_TIME);
	}
}
