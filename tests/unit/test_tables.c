// SPDX-License-Identifier: Apache-2.0
/* What is kept of unwind tables, over made-up kernel memory and a made-up clock. */
#include "tables_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tables/tables_space.h"

#define MS  1000000ULL
#define S   (1000 * MS)
#define MIB (1ULL << 20)

static struct fixture fixture;
static uint64_t now;

static void open_tables(uint64_t bytes_max)
{
	struct tables_options options = {.bytes_max = bytes_max};

	now = 1000 * S;
	fixture_open(&fixture, &options);
}

static struct tables_stats stats(void)
{
	struct tables_stats s;

	tables_stats_get(fixture.tables, &s);
	return s;
}

static void tick(uint64_t ns)
{
	now += ns;
	tables_tick(fixture.tables, now);
}

/* A process that maps one file at an address made from the file's key. */
static int put(uint32_t tgid, const uint64_t *keys, uint32_t count)
{
	struct fly_mapping mappings[64];
	struct tables_entry entry = {
		.tgid = tgid, .start_ns = tgid, .mappings = mappings, .count = count};

	for (uint32_t i = 0; i < count; i++)
		mappings[i] = fly_mapping_make(0x10000000ULL * (i + 1), 1 << 20, 0,
					       tables_number(fixture.tables, keys[i]));
	return tables_process_put(fixture.tables, &entry, now);
}

static int put_one(uint32_t tgid, uint64_t key)
{
	return put(tgid, &key, 1);
}

static const struct fly_table *entry_of(uint64_t key)
{
	return &fixture.published[tables_number(fixture.tables, key)];
}

static void frames(uint64_t key, const struct unwind_table *table, uint32_t page, int count)
{
	for (int i = 0; i < count; i++)
		tables_frame(fixture.tables, key,
			     table->start + ((uint64_t)page << FLY_PAGE_SHIFT) + 8, now);
}

/* Maps, samples, answers: the table is there. */
static void bring(uint32_t tgid, uint64_t key, const struct unwind_table *table)
{
	uint64_t wanted = 0;

	assert_int_equal(put_one(tgid, key), 0);
	frames(key, table, 0, 1);
	assert_true(tables_want(fixture.tables, &wanted));
	assert_int_equal(wanted, key);
	assert_int_equal(fixture_arrive(&fixture, key, table, (unsigned int)key, now), 0);
	tick(100 * MS);
}

/* ---------------------------------------------------------------- the space of words */
static void tables_space__random__no_overlap_and_all_comes_back(void **state)
{
	enum { SLOTS = 8000 };
	static struct {
		uint32_t at, words;
	} held[SLOTS];
	struct tables_options options = {.bytes_max = 3 * FLY_SEGMENT_BYTES};
	struct tables_space space;
	uint64_t units = 0, most = 0;
	unsigned int seed = 11;

	(void)state;
	memset(held, 0, sizeof(held));
	fixture_open(&fixture, &options);
	options.calls = fixture_calls(&fixture);
	assert_int_equal(tables_space_init(&space, &options.calls, FLY_SEGMENT_BYTES - 1), -EINVAL);
	assert_int_equal(tables_space_init(&space, &options.calls, options.bytes_max), 0);
	for (int step = 0; step < 60000; step++) {
		uint32_t i = (uint32_t)rand_r(&seed) % SLOTS;
		uint32_t words = rand_r(&seed) % 50 ? 1 + (uint32_t)rand_r(&seed) % 600
						    : 1 + (uint32_t)rand_r(&seed) % FLY_BLOCK_WORDS;

		if (held[i].words) {
			__u32 *data = tables_space_words(&space, held[i].at);

			for (uint32_t w = 0; w < held[i].words; w++)
				assert_int_equal(data[w], i);
			units -= tables_space_units(held[i].words);
			tables_space_give(&space, held[i].at, held[i].words);
			held[i].words = 0;
		} else {
			held[i].at = tables_space_take(&space, words);
			if (held[i].at == TABLES_NOWHERE) {
				tables_space_settle(&space);
				continue;
			}
			held[i].words = words;
			units += tables_space_units(words);
			assert_int_equal(held[i].at % TABLES_UNIT_WORDS, 0);
			assert_int_equal(held[i].at / FLY_BLOCK_WORDS,
					 (held[i].at + words - 1) / FLY_BLOCK_WORDS);
			for (uint32_t w = 0; w < words; w++)
				((__u32 *)tables_space_words(&space, held[i].at))[w] = i;
		}
		most = units > most ? units : most;
		assert_int_equal(units, space.used_units - space.given_units);
	}
	/* Nine tenths can be in use although the pieces are of all sizes. */
	assert_true(most * 10 > 3ULL * TABLES_SEGMENT_UNITS * 9);
	for (int i = 0; i < SLOTS; i++)
		tables_space_give(&space, held[i].at, held[i].words);
	assert_int_equal(tables_space_settle(&space), 0);
	assert_int_equal(space.used_units, 0);
	assert_int_equal(fixture.segment_count, 3);
	for (uint32_t i = 0; i < 3; i++)
		tables_space_remove(&space, i);
	assert_int_equal(fixture.segment_count, 0);
	tables_space_done(&space);
	fixture_close(&fixture);
}

/* ---------------------------------------------------------------- one table */
static void tables__arrival__every_row_is_found(void **state)
{
	struct unwind_table *small = fixture_table(1, 20, 40), *large = fixture_table(2, 900, 100);

	(void)state;
	open_tables(8 * MIB);
	assert_int_equal(entry_of(7)->pages, 0);
	bring(1, 7, small);
	bring(2, 8, large);
	assert_int_equal(fixture_compare(&fixture, entry_of(7), small, NULL), 0);
	assert_int_equal(fixture_compare(&fixture, entry_of(8), large, NULL), 0);
	assert_int_equal(stats().held, 2);
	assert_int_equal(stats().copy_bytes, 0);
	/* Granularity takes less than a tenth. */
	assert_true(stats().table_bytes * 10 <
		    (unwind_table_bytes(small) + unwind_table_bytes(large)) * 11);
	fixture_close(&fixture);
	fixture_table_free(small);
	fixture_table_free(large);
}

static void tables__little_memory__pages_come_when_they_are_wanted(void **state)
{
	struct unwind_table *large = fixture_table(3, 1800, 300);
	uint32_t absent, before;
	uint64_t fills;

	(void)state;
	open_tables(2 * MIB);
	bring(1, 8, large);
	tick(100 * MS);
	assert_int_equal(stats().held_in_part, 1);
	assert_true(stats().used_bytes < MIB / 2);
	assert_int_equal(fixture_compare(&fixture, entry_of(8), large, &absent), 0);
	assert_true(absent > 1000);
	before = absent;
	fills = stats().fills;
	for (uint32_t page = 100; page < 200; page++)
		tables_page_absent(fixture.tables, tables_number(fixture.tables, 8), page, now);
	tick(100 * MS);
	assert_int_equal(fixture_compare(&fixture, entry_of(8), large, &absent), 0);
	assert_true(before - absent > 70);
	/* Neighbours come along, not counted. */
	assert_in_range(before - absent, stats().fills - fills, 110);
	/* All of it does not fit: what was used goes on being there, nothing is wiped. */
	for (int round = 0; round < 40; round++) {
		uint32_t page = 300 + (uint32_t)round * 30;

		for (uint32_t p = 100; p < 200; p++)
			frames(8, large, p, 10);
		for (uint32_t p = page; p < page + 30; p++)
			tables_page_absent(fixture.tables, tables_number(fixture.tables, 8), p,
					   now);
		tick(100 * MS);
		assert_true(stats().bytes <= 2 * MIB);
	}
	for (uint32_t page = 100; page < 200; page++) {
		struct fly_rule rule;

		assert_int_equal(fixture_find(&fixture, entry_of(8),
					      large->start + ((uint64_t)page << FLY_PAGE_SHIFT),
					      &rule),
				 FLY_FIND_RULE);
	}
	fixture_close(&fixture);
	fixture_table_free(large);
}

static void tables__page_evicted_from_a_whole_table__is_asked_for_again(void **state)
{
	struct unwind_table *a = fixture_table(4, 700, 100), *b = fixture_table(5, 900, 650);
	uint64_t wanted;
	uint32_t absent;

	(void)state;
	open_tables(2 * MIB);
	bring(1, 8, a);
	assert_int_equal(stats().held, 1);
	bring(2, 9, b);
	for (int round = 0; round < 60; round++) {
		for (uint32_t page = 0; page < 880; page++)
			frames(9, b, page, 4);
		tick(100 * MS);
	}
	assert_true(stats().pages_evicted > 0);
	assert_int_equal(fixture_compare(&fixture, entry_of(8), a, &absent), 0);
	assert_true(absent > 0);
	/* Its own copy is gone: the file is read again, and serves. */
	for (uint32_t page = 0; page < 100; page++)
		frames(8, a, page, 10000);
	assert_true(tables_want(fixture.tables, &wanted));
	assert_int_equal(wanted, 8);
	assert_false(tables_want(fixture.tables, &wanted));
	assert_int_equal(fixture_arrive(&fixture, 8, a, 8, now), 0);
	tick(100 * MS);
	tick(100 * MS);
	assert_int_equal(fixture_compare(&fixture, entry_of(8), a, &absent), 0);
	for (uint32_t page = 0; page < 100; page++) {
		struct fly_rule rule;

		assert_int_equal(fixture_find(&fixture, entry_of(8),
					      a->start + ((uint64_t)page << FLY_PAGE_SHIFT), &rule),
				 FLY_FIND_RULE);
	}
	fixture_close(&fixture);
	fixture_table_free(a);
	fixture_table_free(b);
}

/* A walk met a page while the table was being filled, and its sample comes after that. */
static void tables__page_absent_that_has_come_since__is_no_reason_to_make_it_again(void **state)
{
	struct unwind_table *small = fixture_table(4, 30, 100),
			    *large = fixture_table(3, 1800, 300);
	uint64_t wanted;

	(void)state;
	open_tables(4 * MIB);
	bring(1, 8, small);
	assert_int_equal(stats().held, 1);
	for (uint32_t page = 0; page < 30; page++) {
		frames(8, small, page, 1);
		tables_page_absent(fixture.tables, tables_number(fixture.tables, 8), page, now);
	}
	assert_false(tables_want(fixture.tables, &wanted));
	/* Its answer, if it was asked for before, asks for nothing either. */
	assert_int_equal(fixture_arrive(&fixture, 8, small, 8, now), 0);
	tick(100 * MS);
	assert_false(tables_want(fixture.tables, &wanted));
	assert_int_equal(stats().built, 2);
	fixture_close(&fixture);
	/* The same of one held in part. */
	open_tables(2 * MIB);
	bring(1, 9, large);
	assert_int_equal(stats().held_in_part, 1);
	tables_page_absent(fixture.tables, tables_number(fixture.tables, 9), 100, now);
	tick(100 * MS);
	tables_page_absent(fixture.tables, tables_number(fixture.tables, 9), 100, now);
	assert_false(tables_want(fixture.tables, &wanted));
	fixture_close(&fixture);
	fixture_table_free(small);
	fixture_table_free(large);
}

/* ---------------------------------------------------------------- identity and time */
static void tables__same_content__is_one_table(void **state)
{
	struct unwind_table *table = fixture_table(6, 30, 50);
	uint64_t wanted, bytes = 0;

	(void)state;
	open_tables(4 * MIB);
	for (uint32_t i = 1; i <= 50; i++)
		assert_int_equal(put_one(i, 100 + i), 0);
	assert_int_equal(stats().numbers, 50);
	for (uint32_t i = 1; i <= 50; i++) {
		frames(100 + i, table, 0, 1);
		assert_true(tables_want(fixture.tables, &wanted));
		assert_int_equal(fixture_arrive(&fixture, wanted, table, 77, now), 0);
		tick(100 * MS);
		if (!bytes)
			bytes = stats().table_bytes;
	}
	assert_int_equal(stats().numbers, 1);
	assert_int_equal(stats().shared, 49);
	assert_int_equal(stats().table_bytes, bytes);
	for (uint32_t i = 1; i <= 50; i++) {
		const struct fly_mapping *m = fixture_mappings(&fixture, &fixture.processes[i]);

		assert_int_equal(fly_mapping_start(m), 0x10000000);
		assert_int_equal(fly_mapping_table(m), tables_number(fixture.tables, 101));
	}
	/* Same build-id, other information: another table (anyone can forge a build-id). */
	assert_int_equal(put_one(60, 200), 0);
	frames(200, table, 0, 1);
	assert_true(tables_want(fixture.tables, &wanted));
	fixture_arrive(&fixture, wanted, table, 78, now);
	tick(100 * MS);
	assert_int_equal(stats().numbers, 2);
	assert_true(tables_number(fixture.tables, 200) != tables_number(fixture.tables, 101));
	fixture_close(&fixture);
	fixture_table_free(table);
}

static void tables__nobody_maps_it__goes_after_its_time(void **state)
{
	struct unwind_table *table = fixture_table(6, 30, 50);
	uint64_t serial;
	uint32_t number;

	(void)state;
	open_tables(4 * MIB);
	bring(1, 7, table);
	number = tables_number(fixture.tables, 7);
	serial = fixture.published[number].serial;
	tables_process_remove(fixture.tables, 1);
	tick(S);
	tick(TABLES_TTL_NS - S);
	assert_int_equal(fixture_compare(&fixture, &fixture.published[number], table, NULL), 0);
	assert_int_equal(put_one(2, 7), 0); /* mapped again, in time */
	tick(2 * S);
	tick(TABLES_TTL_NS);
	assert_int_equal(stats().held, 1);
	tables_process_remove(fixture.tables, 2);
	tick(100 * MS);
	tick(TABLES_TTL_NS);
	assert_int_equal(fixture.published[number].pages, 0);
	tick(2 * S);
	tick(2 * S);
	assert_int_equal(stats().numbers, 0);
	assert_int_equal(stats().used_bytes, 0);
	assert_int_equal(stats().expired, 1);
	/* Whose table a number is, is said by a serial that is never used again. */
	assert_int_not_equal(serial, 0);
	assert_int_equal(fixture.published[number].serial, 0);
	assert_int_equal(put_one(3, 8), 0);
	assert_int_equal(tables_number(fixture.tables, 8), number);
	assert_true(fixture.published[number].serial > serial);
	fixture_close(&fixture);
	fixture_table_free(table);
}

static void tables__file_written_over__its_old_table_serves_no_more(void **state)
{
	struct unwind_table *a = fixture_table(6, 600, 150), *b = fixture_table(9, 31, 50);
	uint64_t wanted;

	(void)state;
	open_tables(2 * MIB);
	bring(1, 7, a);
	tables_page_absent(fixture.tables, tables_number(fixture.tables, 7), 30, now);
	(void)tables_want(fixture.tables, &wanted);
	assert_int_equal(fixture_arrive(&fixture, 7, b, 1234, now), 0);
	tick(100 * MS);
	assert_int_equal(fixture_compare(&fixture, entry_of(7), b, NULL), 0);
	fixture_close(&fixture);
	fixture_table_free(a);
	fixture_table_free(b);
}

static void tables__refused__says_why_and_is_asked_again_where_that_helps(void **state)
{
	struct unwind_table *table = fixture_table(6, 30, 50);
	struct fly_rule rule;
	uint64_t wanted;

	(void)state;
	open_tables(4 * MIB);
	for (uint64_t key = 10; key < 10 + TABLES_REFUSALS; key++) {
		assert_int_equal(put_one((uint32_t)key, key), 0);
		frames(key, table, 0, 1);
		assert_true(tables_want(fixture.tables, &wanted));
		tables_refused(fixture.tables, wanted, (enum tables_refusal)(key - 10), now);
		assert_true(tables_refusal_text((enum tables_refusal)(key - 10))[0]);
	}
	for (int i = 0; i < TABLES_REFUSALS; i++)
		assert_int_equal(stats().refused[i], 1);
	/* Without call frame information nothing is known of any address: that is an answer. */
	assert_int_equal(fixture_find(&fixture, entry_of(10), 0x1234, &rule), FLY_FIND_OUTSIDE);
	assert_true(entry_of(10)->pages);
	assert_int_equal(entry_of(11)->pages, 0);
	assert_false(tables_want(fixture.tables, &wanted));
	tick(11 * S);
	frames(10 + TABLES_REFUSED_UNREADABLE, table, 0, 2);
	assert_true(tables_want(fixture.tables, &wanted));
	assert_int_equal(wanted, 10 + TABLES_REFUSED_UNREADABLE);
	assert_int_equal(fixture_arrive(&fixture, wanted, table, 1, now), 0);
	tick(100 * MS);
	assert_int_equal(fixture_compare(&fixture, entry_of(wanted), table, NULL), 0);
	fixture_close(&fixture);
	fixture_table_free(table);
}

static void tables__hottest__is_asked_for_first(void **state)
{
	struct unwind_table *table = fixture_table(6, 30, 50);
	const uint64_t keys[] = {10, 11, 12, 13}, order[] = {12, 11, 10, 13};
	uint64_t wanted;

	(void)state;
	open_tables(4 * MIB);
	assert_int_equal(put(1, keys, 4), 0);
	assert_false(tables_want(fixture.tables, &wanted));
	frames(12, table, 0, 3);
	frames(11, table, 0, 2);
	tables_process_wants(fixture.tables, 1);
	for (int i = 0; i < 4; i++) {
		assert_true(tables_want(fixture.tables, &wanted));
		assert_int_equal(wanted, order[i]);
	}
	assert_false(tables_want(fixture.tables, &wanted));
	fixture_close(&fixture);
	fixture_table_free(table);
}

/* ---------------------------------------------------------------- shortage */
static void tables__two_want_one_room__does_not_thrash(void **state)
{
	struct unwind_table *tables[40];
	uint64_t wanted, evicted = 0;

	(void)state;
	open_tables(2 * MIB);
	for (uint64_t i = 0; i < 40; i++) {
		tables[i] = fixture_table((unsigned int)i, 24, 600);
		assert_int_equal(put_one((uint32_t)i + 1, 100 + i), 0);
	}
	for (int round = 0; round < 3000; round++) {
		for (uint64_t i = 0; i < 40; i++)
			frames(100 + i, tables[i], 3, 1);
		while (tables_want(fixture.tables, &wanted))
			assert_int_equal(fixture_arrive(&fixture, wanted, tables[wanted - 100],
							(unsigned int)wanted, now),
					 0);
		tick(100 * MS);
		if (round == 299)
			evicted = stats().tables_evicted + stats().pages_evicted;
		assert_true(stats().bytes <= 2 * MIB);
	}
	/* Demand that stays the same moves next to nothing in 270 s. */
	assert_true(stats().tables_evicted + stats().pages_evicted - evicted < 40);
	assert_true(stats().used_bytes * 10 > 2 * MIB * 8);
	fixture_close(&fixture);
	for (int i = 0; i < 40; i++)
		fixture_table_free(tables[i]);
}

static void tables__hotter_newcomer__takes_the_place_of_the_coldest(void **state)
{
	struct unwind_table *tables[60];
	uint64_t wanted;

	(void)state;
	open_tables(2 * MIB);
	for (uint64_t i = 0; i < 60; i++) {
		tables[i] = fixture_table((unsigned int)i, 20, 560);
		assert_int_equal(put_one((uint32_t)i + 1, 100 + i), 0);
	}
	for (uint64_t i = 0; i < 60; i++) {
		/* Later ones are hotter by far than those before. */
		frames(100 + i, tables[i], 3, 1 << (i < 8 ? 2 * i : 16));
		while (tables_want(fixture.tables, &wanted))
			assert_int_equal(fixture_arrive(&fixture, wanted, tables[wanted - 100],
							(unsigned int)wanted, now),
					 0);
		tick(5 * S);
		tick(100 * MS);
		assert_true(stats().bytes <= 2 * MIB);
	}
	assert_int_equal(entry_of(100)->pages, 0);
	assert_int_equal(entry_of(101)->pages, 0);
	assert_int_equal(fixture_compare(&fixture, entry_of(159), tables[59], NULL), 0);
	assert_true(stats().tables_evicted > 0);
	assert_true(stats().held > 20);
	fixture_close(&fixture);
	for (int i = 0; i < 60; i++)
		fixture_table_free(tables[i]);
}

static void tables__no_kernel_memory__is_asked_for_again_later(void **state)
{
	struct unwind_table *table = fixture_table(6, 30, 50);

	(void)state;
	open_tables(4 * MIB);
	fixture.fail_segments = 3;
	assert_int_equal(put_one(1, 7), -ENOSPC);
	for (int i = 0; i < 100 && fixture.segment_count == 0; i++) {
		tick(100 * MS);
		(void)put_one(1, 7);
	}
	assert_int_equal(fixture.processes[1].count, 1);
	bring(2, 8, table);
	assert_int_equal(fixture_compare(&fixture, entry_of(8), table, NULL), 0);
	assert_int_equal(stats().segments_failed, 3);
	fixture_close(&fixture);
	fixture_table_free(table);
}

static void tables__segment_that_is_thin__is_emptied_and_given_back(void **state)
{
	struct unwind_table *tables[24];
	uint32_t peak;

	(void)state;
	open_tables(8 * MIB);
	for (uint64_t i = 0; i < 24; i++) {
		tables[i] = fixture_table((unsigned int)i, 40, 700);
		bring((uint32_t)i + 1, 100 + i, tables[i]);
	}
	peak = fixture.segment_count;
	assert_true(peak >= 2);
	/* Every third stays, all over the segments. */
	for (uint32_t i = 0; i < 24; i++)
		if (i % 3)
			tables_process_remove(fixture.tables, i + 1);
	tick(100 * MS);
	tick(TABLES_TTL_NS);
	for (int i = 0; i < 20; i++)
		tick(S);
	assert_true(fixture.segment_count < peak);
	assert_true(stats().used_bytes > (fixture.segment_count - 1) * FLY_SEGMENT_BYTES * 7 / 8);
	for (uint64_t i = 0; i < 24; i += 3)
		assert_int_equal(fixture_compare(&fixture, entry_of(100 + i), tables[i], NULL), 0);
	for (uint32_t i = 0; i < 24; i += 3) {
		const struct fly_mapping *m = fixture_mappings(&fixture, &fixture.processes[i + 1]);

		assert_int_equal(fly_mapping_table(m), tables_number(fixture.tables, 100 + i));
	}
	fixture_close(&fixture);
	for (int i = 0; i < 24; i++)
		fixture_table_free(tables[i]);
}

/* ---------------------------------------------------------------- processes */
static void tables__children__share_their_parents_mappings(void **state)
{
	struct fly_mapping m[3];
	struct tables_entry entry = {.tgid = 1, .start_ns = 1, .mappings = m, .count = 3};
	uint64_t bytes, start;

	(void)state;
	open_tables(2 * MIB);
	for (uint32_t i = 0; i < 3; i++)
		m[i] = fly_mapping_make(0x400000ULL * (i + 1), 0x1000, 0,
					tables_number(fixture.tables, 5 + i));
	assert_int_equal(tables_process_put(fixture.tables, &entry, now), 0);
	bytes = stats().mapping_bytes;
	for (uint32_t i = 2; i <= 1000; i++) {
		entry.tgid = i;
		entry.start_ns = i;
		entry.like = i - 1;
		assert_int_equal(tables_process_put(fixture.tables, &entry, now), 0);
	}
	assert_int_equal(stats().mapping_bytes, bytes);
	assert_int_equal(fixture.processes[1].at, fixture.processes[1000].at);
	assert_int_equal(stats().processes, 1000);
	/* One that goes its own way leaves the others alone. */
	entry.count = 2;
	assert_int_equal(tables_process_put(fixture.tables, &entry, now), 0);
	assert_int_equal(fixture.processes[1000].count, 2);
	assert_int_equal(fixture.processes[999].count, 3);
	for (uint32_t i = 1; i <= 1000; i++)
		tables_process_remove(fixture.tables, i);
	assert_false(tables_process_find(fixture.tables, 1, &start));
	tick(2 * S);
	tick(2 * S);
	assert_int_equal(stats().mapping_bytes, 0);
	assert_int_equal(fixture.process_count, 0);
	fixture_close(&fixture);
}

static void tables__no_entry_left__the_least_sampled_goes_and_returns(void **state)
{
	struct tables_options options = {.bytes_max = 2 * MIB, .processes_max = 10};
	uint64_t start;

	(void)state;
	now = 1000 * S;
	fixture_open(&fixture, &options);
	fixture.process_limit = 10;
	for (uint32_t i = 1; i <= 10; i++) {
		assert_int_equal(put_one(i, 7), 0);
		for (uint32_t k = 0; k < 10 * i; k++)
			tables_process_sampled(fixture.tables, i, now);
	}
	/* Not sampled: nobody goes for it. */
	assert_int_equal(put_one(11, 7), -ENOSPC);
	for (int i = 0; i < 15; i++)
		tables_process_sampled(fixture.tables, 11, now);
	assert_int_equal(put_one(11, 7), -ENOSPC);
	for (int i = 0; i < 15; i++)
		tables_process_sampled(fixture.tables, 11, now);
	assert_int_equal(put_one(11, 7), 0);
	assert_false(tables_process_find(fixture.tables, 1, &start));
	assert_true(tables_process_find(fixture.tables, 11, &start));
	assert_int_equal(fixture.processes[1].count, 0);
	/* Back at once only for four times as much. */
	for (int i = 0; i < 40; i++)
		tables_process_sampled(fixture.tables, 1, now);
	assert_int_equal(put_one(1, 7), -ENOSPC);
	for (int i = 0; i < 60; i++)
		tables_process_sampled(fixture.tables, 1, now);
	assert_int_equal(put_one(1, 7), 0);
	assert_false(tables_process_find(fixture.tables, 2, &start));
	assert_int_equal(stats().processes, 10);
	assert_int_equal(stats().processes_evicted, 2);
	fixture_close(&fixture);
}

static void tables__tgid_used_again__is_another_process(void **state)
{
	struct fly_mapping m = fly_mapping_make(0x400000, 0x1000, 0, 0);
	struct tables_entry entry = {.tgid = 1, .start_ns = 1, .mappings = &m, .count = 1};
	uint64_t start = 0;

	(void)state;
	open_tables(2 * MIB);
	assert_int_equal(tables_process_put(fixture.tables, &entry, now), 0);
	entry.start_ns = 2;
	assert_int_equal(tables_process_put(fixture.tables, &entry, now), 0);
	assert_true(tables_process_find(fixture.tables, 1, &start));
	assert_int_equal(start, 2);
	assert_int_equal(fixture.processes[1].start_ns, 2);
	assert_int_equal(stats().processes, 1);
	entry.count = 0;
	assert_int_equal(tables_process_put(fixture.tables, &entry, now), -EINVAL);
	fixture_close(&fixture);
}

static void tables__more_files_than_numbers__the_rest_waits(void **state)
{
	(void)state;
	open_tables(8 * MIB);
	for (uint64_t key = 1; key < FLY_TABLES_MAX; key++)
		assert_int_not_equal(tables_number(fixture.tables, key), FLY_TABLE_NONE);
	assert_int_equal(tables_number(fixture.tables, FLY_TABLES_MAX), FLY_TABLE_NONE);
	assert_int_equal(put_one(1, 55), 0);
	tick(100 * MS);
	tick(TABLES_TTL_NS);
	tick(2 * S);
	tick(2 * S);
	assert_int_equal(stats().numbers, 1);
	assert_int_not_equal(tables_number(fixture.tables, FLY_TABLES_MAX), FLY_TABLE_NONE);
	fixture_close(&fixture);
}

/* ---------------------------------------------------------------- against all odds */
enum { FILES = 36, CONTENTS = 30, PROCESSES = 300, VIEWS = 64 };

/* A walk under way: what it has read. */
struct view {
	struct fly_table table;
	struct fly_process process;
	uint32_t file;
};

static struct {
	struct unwind_table *tables[CONTENTS];
	struct view views[VIEWS];
	uint32_t view_count;
	bool is_mapped[PROCESSES + 1][FILES];
	bool is_alive[PROCESSES + 1];
	unsigned int seed;
} chaos;

static unsigned int any(unsigned int limit)
{
	return (unsigned int)rand_r(&chaos.seed) % limit;
}

static unsigned int content_of(uint32_t file)
{
	return file % CONTENTS;
}

static void check_table(const struct fly_table *entry, uint32_t file)
{
	const struct unwind_table *table = chaos.tables[content_of(file)];
	struct fly_rule a = {0}, b = {0};
	int found;

	for (int i = 0; i < 20 && entry->pages; i++) {
		uint64_t vaddr = table->start + any(table->page_count << FLY_PAGE_SHIFT);

		found = fixture_find(&fixture, entry, vaddr, &a);
		if (found == FLY_FIND_ABSENT)
			continue;
		assert_int_equal(found, unwind_table_find(table, vaddr, &b));
		assert_memory_equal(&a, &b, sizeof(a));
	}
}

static void check_process(const struct fly_process *process, uint32_t file)
{
	const struct fly_mapping *m;

	if (!process->count)
		return;
	m = fixture_mappings(&fixture, process);
	assert_non_null(m);
	for (uint32_t i = 0; i < process->count; i++) {
		if (fly_mapping_start(&m[i]) == 0x100000ULL * (file + 1))
			check_table(&fixture.published[fly_mapping_table(&m[i])], file);
	}
}

static void check_views(void *ctx)
{
	(void)ctx;
	for (uint32_t i = 0; i < chaos.view_count; i++) {
		check_table(&chaos.views[i].table, chaos.views[i].file);
		check_process(&chaos.views[i].process, chaos.views[i].file);
	}
	chaos.view_count = 0;
}

static void begin_walk(void)
{
	uint32_t tgid = 1 + any(PROCESSES), file = any(FILES);
	struct view *view = &chaos.views[chaos.view_count];
	const struct fly_process *process = &fixture.processes[tgid];
	const struct fly_mapping *m;

	if (chaos.view_count == VIEWS || !process->count)
		return;
	m = fixture_mappings(&fixture, process);
	for (uint32_t i = 0; i < process->count; i++) {
		if (fly_mapping_start(&m[i]) != 0x100000ULL * (file + 1))
			continue;
		view->file = file;
		view->process = *process;
		view->table = fixture.published[fly_mapping_table(&m[i])];
		chaos.view_count++;
	}
}

static void change_process(void)
{
	struct fly_mapping m[FILES];
	uint32_t tgid = 1 + any(PROCESSES);
	struct tables_entry entry = {.tgid = tgid,
				     .like = any(2) ? 1 + any(PROCESSES) : 0,
				     .start_ns = tgid,
				     .mappings = m};

	if (!any(3)) {
		chaos.is_alive[tgid] = false;
		tables_process_remove(fixture.tables, tgid);
		return;
	}
	if (entry.like) /* a child */
		memcpy(chaos.is_mapped[tgid], chaos.is_mapped[entry.like], FILES);
	else
		chaos.is_mapped[tgid][any(FILES)] ^= true;
	for (uint32_t i = 0; i < FILES; i++) {
		if (chaos.is_mapped[tgid][i])
			m[entry.count++] =
				fly_mapping_make(0x100000ULL * (i + 1), 0x10000, 0,
						 tables_number(fixture.tables, 1000 + i));
	}
	chaos.is_alive[tgid] = true;
	if (entry.count)
		(void)tables_process_put(fixture.tables, &entry, now);
}

static void sample(void)
{
	uint32_t file = any(FILES) * any(FILES) / FILES; /* low ones are hotter */
	const struct unwind_table *table = chaos.tables[content_of(file)];
	uint32_t page = any(table->page_count);

	page = page * any(16) / 16;
	frames(1000 + file, table, page, 1);
	if (any(2))
		tables_page_absent(fixture.tables, tables_number(fixture.tables, 1000 + file), page,
				   now);
	tables_process_sampled(fixture.tables, 1 + any(PROCESSES), now);
	tables_process_wants(fixture.tables, 1 + any(PROCESSES));
}

static void answer(void)
{
	uint64_t key;
	uint32_t file;

	if (!tables_want(fixture.tables, &key))
		return;
	file = (uint32_t)(key - 1000);
	if (any(20))
		assert_int_equal(fixture_arrive(&fixture, key, chaos.tables[content_of(file)],
						content_of(file), now),
				 0);
	else
		tables_refused(fixture.tables, key, TABLES_REFUSED_UNREADABLE, now);
}

static void check_all(void)
{
	struct tables_stats s = stats();
	uint64_t start;

	assert_true(s.bytes <= s.bytes_max);
	assert_true(s.used_bytes <= s.bytes);
	assert_true(s.copy_bytes <= MIB);
	assert_int_equal(s.processes, fixture.process_count);
	assert_true(s.table_bytes + s.mapping_bytes <= s.used_bytes);
	for (uint32_t tgid = 1; tgid <= PROCESSES; tgid++) {
		if (tables_process_find(fixture.tables, tgid, &start))
			assert_true(chaos.is_alive[tgid]);
		check_process(&fixture.processes[tgid], any(FILES));
	}
}

static void step(void)
{
	switch (any(8)) {
	case 0:
		change_process();
		break;
	case 1:
		answer();
		break;
	case 2:
		begin_walk();
		break;
	case 3:
		tick(any(10) * 20 * MS);
		break;
	default:
		sample();
	}
}

static void run_chaos(unsigned int seed, uint64_t bytes_max, int steps)
{
	struct tables_options options = {
		.bytes_max = bytes_max, .copy_bytes_max = MIB, .processes_max = 100};

	now = 1000 * S;
	memset(&chaos, 0, sizeof(chaos));
	chaos.seed = seed;
	fixture_open(&fixture, &options);
	fixture.process_limit = 100;
	fixture.before_wait = check_views;
	for (uint32_t i = 0; i < CONTENTS; i++)
		chaos.tables[i] = fixture_table(seed + i, i % 5 ? 1 + any(20) : 300 + any(600),
						20 + any(150));
	for (int i = 0; i < steps; i++) {
		step();
		if (i % 64 == 0)
			check_all();
		if (!any(500))
			fixture.fail_waits = any(3);
		if (!any(500))
			fixture.fail_segments = any(3);
	}
	check_views(NULL);
	for (uint32_t tgid = 1; tgid <= PROCESSES; tgid++)
		tables_process_remove(fixture.tables, tgid);
	fixture.fail_waits = fixture.fail_segments = 0;
	tick(100 * MS);
	for (int i = 0; i < 100; i++)
		tick(S);
	assert_int_equal(stats().used_bytes, 0);
	assert_int_equal(stats().numbers, 0);
	assert_int_equal(stats().copy_bytes, 0);
	assert_true(fixture.segment_count <= 1);
	fixture_close(&fixture);
	for (uint32_t i = 0; i < CONTENTS; i++)
		fixture_table_free(chaos.tables[i]);
}

static void tables__anything_in_any_order__is_right_and_within_its_budget(void **state)
{
	(void)state;
	for (unsigned int seed = 1; seed <= 6; seed++)
		run_chaos(seed, (2 + 2 * (seed % 3)) * MIB, 20000);
}

static void tables__out_of_memory__is_an_error_like_another(void **state)
{
	struct unwind_table *table = fixture_table(6, 300, 50);
	uint64_t key;

	(void)state;
	for (unsigned long n = 1; n < 40; n++) {
		open_tables(2 * MIB);
		mem_fail_after(n);
		(void)put_one(1, 7);
		tables_process_sampled(fixture.tables, 1, now);
		frames(7, table, 5, 1);
		if (tables_want(fixture.tables, &key))
			(void)fixture_arrive(&fixture, key, table, 7, now);
		tick(100 * MS);
		tables_process_remove(fixture.tables, 1);
		tick(2 * S);
		mem_fail_after(0);
		bring(3, 9, table);
		tick(100 * MS);
		assert_int_equal(fixture_compare(&fixture, entry_of(9), table, NULL), 0);
		fixture_close(&fixture);
	}
	fixture_table_free(table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_space__random__no_overlap_and_all_comes_back),
		cmocka_unit_test(tables__arrival__every_row_is_found),
		cmocka_unit_test(tables__little_memory__pages_come_when_they_are_wanted),
		cmocka_unit_test(tables__page_evicted_from_a_whole_table__is_asked_for_again),
		cmocka_unit_test(
			tables__page_absent_that_has_come_since__is_no_reason_to_make_it_again),
		cmocka_unit_test(tables__same_content__is_one_table),
		cmocka_unit_test(tables__nobody_maps_it__goes_after_its_time),
		cmocka_unit_test(tables__file_written_over__its_old_table_serves_no_more),
		cmocka_unit_test(tables__refused__says_why_and_is_asked_again_where_that_helps),
		cmocka_unit_test(tables__hottest__is_asked_for_first),
		cmocka_unit_test(tables__two_want_one_room__does_not_thrash),
		cmocka_unit_test(tables__hotter_newcomer__takes_the_place_of_the_coldest),
		cmocka_unit_test(tables__no_kernel_memory__is_asked_for_again_later),
		cmocka_unit_test(tables__segment_that_is_thin__is_emptied_and_given_back),
		cmocka_unit_test(tables__children__share_their_parents_mappings),
		cmocka_unit_test(tables__no_entry_left__the_least_sampled_goes_and_returns),
		cmocka_unit_test(tables__tgid_used_again__is_another_process),
		cmocka_unit_test(tables__more_files_than_numbers__the_rest_waits),
		cmocka_unit_test(tables__anything_in_any_order__is_right_and_within_its_budget),
		cmocka_unit_test(tables__out_of_memory__is_an_error_like_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
