// SPDX-License-Identifier: Apache-2.0
#include "tables_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FLY_ROWS_SPACE const struct fixture *
#define FLY_ROWS_BLOCK(space, part, at)                                                            \
	((space)->segments[(at) / FLY_BLOCK_WORDS / FLY_SEGMENT_BLOCKS]                            \
		 ? (space)->segments[(at) / FLY_BLOCK_WORDS / FLY_SEGMENT_BLOCKS] +                \
			   (at) / FLY_BLOCK_WORDS % FLY_SEGMENT_BLOCKS * FLY_BLOCK_WORDS           \
		 : NULL)
#define FLY_ROWS_WORD(block, at) (((const __u32 *)(block))[(at) & (FLY_BLOCK_WORDS - 1)])
#define FLY_ROWS_HALF(block, n)	 ((__u32)((const __u16 *)(block))[(n) & (2 * FLY_BLOCK_WORDS - 1)])
#define FLY_ROWS_PAIR(block, at)                                                                   \
	(((const __u64 *)(const void *)(block))[((at) & (FLY_BLOCK_WORDS - 1)) / 2])
#include "bpf/walk/lookup.h"

int fixture_find(const struct fixture *f, const struct fly_table *table, uint64_t vaddr,
		 struct fly_rule *ret)
{
	return fly_rows_find(f, table, vaddr, ret);
}

const struct fly_mapping *fixture_mappings(const struct fixture *f,
					   const struct fly_process *process)
{
	const __u32 *segment = f->segments[process->at / FLY_BLOCK_WORDS / FLY_SEGMENT_BLOCKS];

	return segment ? (const struct fly_mapping *)(const void *)(segment +
								    process->at %
									    (FLY_BLOCK_WORDS *
									     FLY_SEGMENT_BLOCKS))
		       : NULL;
}

/* ---------------------------------------------------------------- made-up tables */
static unsigned int random_to(unsigned int *seed, unsigned int limit)
{
	return (unsigned int)rand_r(seed) % limit;
}

static void make_shapes(struct unwind_table *t, unsigned int *seed, uint32_t *starts)
{
	uint16_t *halves = (uint16_t *)(void *)t->shapes;
	uint32_t at = 2; /* word 0 is no shape */

	for (uint32_t i = 0; i < t->shape_count; i++) {
		unsigned int rows = 1 + random_to(seed, 8), units = 0;

		starts[i] = at / 2;
		for (unsigned int row = 0; row < rows && units < FLY_GROUP_UNITS; row++) {
			halves[at++] = fly_half_make(random_to(seed, t->rule_count), units);
			units += 1 + random_to(seed, 2);
		}
		at += at & 1;
	}
	t->shape_words = at / 2 + 1;
}

static void make_pages(struct unwind_table *t, unsigned int *seed, const uint32_t *starts,
		       uint32_t groups_per_page)
{
	for (uint32_t page = 0; page < t->page_count; page++) {
		uint32_t count = random_to(seed, 8) ? 1 + random_to(seed, 2 * groups_per_page) : 0;
		uint32_t low = random_to(seed, 64);

		t->pages[page] =
			fly_page_make(t->group_count, count, random_to(seed, t->rule_count));
		for (uint32_t i = 0; i < count; i++) {
			t->groups[t->group_count++] =
				fly_group_make(low, starts[random_to(seed, t->shape_count)]);
			low += FLY_GROUP_UNITS + random_to(seed, 4);
		}
	}
}

struct unwind_table *fixture_table(unsigned int seed, uint32_t pages, uint32_t groups_per_page)
{
	struct unwind_table *t = calloc(1, sizeof(*t));
	uint32_t *starts;

	seed = seed * 7919 + 1;
	t->start = (uint64_t)(1 + seed % 16) << FLY_PAGE_SHIFT;
	t->machine = 62;
	t->page_count = pages;
	t->rule_count = 20 + seed % 50;
	t->shape_count = 10 + groups_per_page;
	t->pages = calloc(pages, sizeof(*t->pages));
	t->groups = calloc((size_t)pages * 2 * groups_per_page + 1, sizeof(*t->groups));
	t->shapes = calloc(5 * (size_t)t->shape_count + 8, sizeof(*t->shapes));
	t->rules = calloc(t->rule_count, sizeof(*t->rules));
	starts = calloc(t->shape_count, sizeof(*starts));
	if (!t->pages || !t->groups || !t->shapes || !t->rules || !starts)
		abort();
	for (uint32_t i = 0; i < t->rule_count; i++)
		t->rules[i] = (struct fly_rule){.cfa = FLY_CFA_REG,
						.cfa_reg = FLY_X86_RSP,
						.offset = (__s32)(seed % 1000 * 100 + i),
						.ra_words = -1};
	make_shapes(t, &seed, starts);
	make_pages(t, &seed, starts, groups_per_page);
	free(starts);
	return t;
}

void fixture_table_free(struct unwind_table *t)
{
	free(t->pages);
	free(t->groups);
	free(t->shapes);
	free(t->rules);
	free(t);
}

/* ---------------------------------------------------------------- the kernel's side */
static void *segment_add(void *ctx, uint32_t segment)
{
	struct fixture *f = ctx;

	if (f->fail_segments) {
		f->fail_segments--;
		return NULL;
	}
	if (f->segments[segment])
		abort();
	f->segments[segment] = calloc(1, FLY_SEGMENT_BYTES);
	if (++f->segment_count > f->segment_peak)
		f->segment_peak = f->segment_count;
	return f->segments[segment];
}

static void segment_remove(void *ctx, uint32_t segment)
{
	struct fixture *f = ctx;

	if (f->before_wait)
		f->before_wait(f->ctx);
	free(f->segments[segment]);
	f->segments[segment] = NULL;
	f->segment_count--;
}

static int wait(void *ctx)
{
	struct fixture *f = ctx;

	if (f->fail_waits) {
		f->fail_waits--;
		return -EINTR;
	}
	if (f->before_wait)
		f->before_wait(f->ctx);
	f->waits++;
	return 0;
}

static int process_put(void *ctx, uint32_t tgid, const struct fly_process *process)
{
	struct fixture *f = ctx;

	if (!f->processes[tgid].count) {
		if (f->process_count == f->process_limit)
			return -E2BIG;
		f->process_count++;
	}
	f->processes[tgid] = *process;
	return 0;
}

static int process_remove(void *ctx, uint32_t tgid)
{
	struct fixture *f = ctx;

	if (!f->processes[tgid].count)
		return -ENOENT;
	f->process_count--;
	memset(&f->processes[tgid], 0, sizeof(f->processes[tgid]));
	return 0;
}

struct tables_calls fixture_calls(struct fixture *f)
{
	return (struct tables_calls){.ctx = f,
				     .segment_add = segment_add,
				     .segment_remove = segment_remove,
				     .wait = wait,
				     .process_put = process_put,
				     .process_remove = process_remove};
}

void fixture_open(struct fixture *f, const struct tables_options *options)
{
	struct tables_options o = *options;

	memset(f, 0, sizeof(*f));
	f->process_limit = FIXTURE_PROCESSES;
	o.published = f->published;
	o.calls = fixture_calls(f);
	if (tables_new(&o, &f->tables))
		abort();
}

void fixture_close(struct fixture *f)
{
	tables_free(f->tables);
	for (int i = 0; i < (int)FLY_SEGMENTS_MAX; i++)
		free(f->segments[i]);
}

int fixture_arrive(struct fixture *f, uint64_t key, const struct unwind_table *table,
		   unsigned int hash, uint64_t now_ns)
{
	static const uint8_t build_id[20] = {1, 2, 3};
	struct tables_content content = {
		.table = table, .build_id = build_id, .build_id_len = sizeof(build_id)};

	memcpy(content.hash, &hash, sizeof(hash));
	return tables_arrived(f->tables, key, &content, now_ns);
}

/* ---------------------------------------------------------------- comparing */
static bool is_equal_at(const struct fixture *f, const struct fly_table *entry,
			const struct unwind_table *table, uint64_t vaddr, bool *ret_absent)
{
	struct fly_rule a = {0}, b = {0};
	int found = fixture_find(f, entry, vaddr, &a), wanted = unwind_table_find(table, vaddr, &b);

	*ret_absent = found == FLY_FIND_ABSENT;
	if (*ret_absent)
		return true;
	return found == wanted && memcmp(&a, &b, sizeof(a)) == 0;
}

uint32_t fixture_compare(const struct fixture *f, const struct fly_table *entry,
			 const struct unwind_table *table, uint32_t *ret_absent)
{
	uint32_t different = 0, absent = 0;

	for (uint32_t page = 0; page < table->page_count; page++) {
		uint64_t base = table->start + ((uint64_t)page << FLY_PAGE_SHIFT);
		uint32_t count = fly_page_count(table->pages[page]);
		bool is_absent = false, is_good;

		is_good = is_equal_at(f, entry, table, base, &is_absent) &&
			  is_equal_at(f, entry, table, base + FLY_PAGE_BYTES - 1, &is_absent);
		for (uint32_t i = 0; i < count && is_good && !is_absent; i++) {
			uint32_t group = table->groups[fly_page_at(table->pages[page]) + i];

			for (uint32_t unit = 0; unit < FLY_GROUP_UNITS && is_good; unit++)
				is_good = is_equal_at(f, entry, table, base + (group >> 16) + unit,
						      &is_absent);
		}
		different += !is_good;
		absent += is_absent;
	}
	if (ret_absent)
		*ret_absent = absent;
	else
		different += absent;
	return different;
}
