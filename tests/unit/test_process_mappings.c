// SPDX-License-Identifier: Apache-2.0
/* Mapping tables against a table of pages that cannot be wrong, under failing memory as well. */
#include "process/mappings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct process_mapping mapping(uint64_t start, uint64_t end, int32_t file, uint64_t time)
{
	return (struct process_mapping){
		.start = start, .end = end, .offset = start * 2, .file = file, .time_ns = time};
}

static int add(struct process_maps **maps, uint64_t start, uint64_t end, int32_t file,
	       uint64_t time)
{
	struct process_mapping m = mapping(start, end, file, time);

	return process_maps_add(maps, &m);
}

static int32_t file_at(struct process_maps *maps, uint64_t address)
{
	const struct process_mapping *m = process_maps_find(maps, address);

	return m ? m->file : -100;
}

static void process_maps__overlap__newest_wins_and_splits(void **state)
{
	struct process_maps *maps = process_maps_new();
	const struct process_mapping *m;

	(void)state;
	add(&maps, 100, 200, 1, 1);
	add(&maps, 140, 160, 2, 2);
	assert_int_equal(add(&maps, 7, 7, 3, 3), -EINVAL);
	for (int folded = 0; folded < 2; folded++) {
		assert_int_equal(file_at(maps, 99), -100);
		assert_int_equal(file_at(maps, 100), 1);
		assert_int_equal(file_at(maps, 139), 1);
		assert_int_equal(file_at(maps, 140), 2);
		assert_int_equal(file_at(maps, 159), 2);
		m = process_maps_find(maps, 160);
		assert_int_equal(m->file, 1);
		assert_int_equal(170 - m->start + m->offset, 170 - 100 + 200);
		assert_int_equal(file_at(maps, 200), -100);
		for (uint64_t i = 0; i < 20 && !folded; i++)
			add(&maps, 1000 + i * 10, 1005 + i * 10, 9, 3);
	}
	process_maps_unref(maps);
}

static void process_maps__shared__copied_at_first_change(void **state)
{
	struct process_maps *parent = process_maps_new(), *child[1000];
	size_t before;

	(void)state;
	for (uint64_t i = 0; i < 5000; i++)
		add(&parent, i * 100, i * 100 + 50, 1, 1);
	before = mem_live_bytes(MEM_PROCESS);
	for (size_t i = 0; i < 1000; i++)
		child[i] = process_maps_ref(parent);
	assert_int_equal(mem_live_bytes(MEM_PROCESS), before);
	add(&child[0], 20, 30, 2, 2);
	assert_int_equal(file_at(child[0], 25), 2);
	assert_int_equal(file_at(child[0], 15), 1);
	assert_int_equal(file_at(parent, 25), 1);
	for (size_t i = 0; i < 1000; i++)
		process_maps_unref(child[i]);
	process_maps_unref(parent);
}

static void process_maps__scan__replaces_only_what_is_older(void **state)
{
	struct process_maps *maps = process_maps_new();
	struct process_mapping found[] = {mapping(100, 200, 11, 50), mapping(300, 400, 12, 50)};

	(void)state;
	add(&maps, 100, 200, 1, 10);
	add(&maps, 500, 600, 2, 10); /* unmapped since: not found */
	add(&maps, 320, 330, 3, 60); /* mapped after the scan was asked for */
	assert_int_equal(process_maps_replace(maps, found, 2, 50, false), 0);
	assert_int_equal(file_at(maps, 150), 11);
	assert_int_equal(file_at(maps, 310), 12);
	assert_int_equal(file_at(maps, 325), 3);
	assert_int_equal(file_at(maps, 350), 12);
	assert_int_equal(file_at(maps, 550), -100);
	add(&maps, 700, 800, 4, 10);
	assert_int_equal(process_maps_replace(maps, found, 1, 99, true), 0);
	assert_int_equal(file_at(maps, 750), 4);
	assert_int_equal(file_at(maps, 350), 12);
	process_maps_unref(maps);
}

static double seconds_since(const struct timespec *from)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)(now.tv_sec - from->tv_sec) + (double)(now.tv_nsec - from->tv_nsec) / 1e9;
}

static void process_maps__sixty_thousand__survive_in_any_order(void **state)
{
	struct process_maps *maps = process_maps_new();
	struct timespec from;

	(void)state;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	for (uint64_t i = 0; i < 60000; i++) {
		uint64_t at = (i * 7919) % 60000; /* a permutation */

		assert_int_equal(add(&maps, at * 100, at * 100 + 60, (int32_t)at, i), 0);
		if (i % 1000 == 0)
			assert_int_equal(file_at(maps, at * 100 + 59), (int32_t)at);
	}
	for (uint64_t i = 0; i < 60000; i++) {
		assert_int_equal(file_at(maps, i * 100 + 30), (int32_t)i);
		assert_int_equal(file_at(maps, i * 100 + 80), -100);
	}
	print_message("60,000 mappings: %.0f ms of CPU time\n", seconds_since(&from) * 1e3);
	assert_true(seconds_since(&from) < 5);
	process_maps_unref(maps);
}

static void process_maps__limit__refuses_but_keeps(void **state)
{
	struct process_maps *maps = process_maps_new();

	(void)state;
	for (uint64_t i = 0; i < PROCESS_MAPPINGS_MAX; i++)
		assert_int_equal(add(&maps, i * 10, i * 10 + 5, 1, 1), 0);
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(add(&maps, i * 10, i * 10 + 5, 2, 1), -ENOSPC);
	assert_int_equal(file_at(maps, 2), 1);
	assert_int_equal(file_at(maps, (PROCESS_MAPPINGS_MAX - 1) * 10ULL), 1);
	process_maps_unref(maps);
	/* The same place again and again never gets there. */
	maps = process_maps_new();
	for (uint64_t i = 0; i < 3ULL * PROCESS_MAPPINGS_MAX; i++)
		assert_int_equal(add(&maps, 100, 200, (int32_t)(i & 1), i), 0);
	assert_int_equal(file_at(maps, 150), 1);
	assert_true(maps->cap < 1024);
	process_maps_unref(maps);
}

#define PAGES 64

/* Random adds, scans, shares and memory failures, beside one file number for each page. */
static void model_round(unsigned int seed, bool with_failures)
{
	struct process_maps *maps = process_maps_new();
	int32_t model[PAGES];

	srand(seed);
	for (size_t i = 0; i < PAGES; i++)
		model[i] = -100;
	for (int step = 0; step < 300; step++) {
		uint64_t start = (uint64_t)(rand() % PAGES), end = start + 1;
		int32_t file = rand() % 50;
		bool is_shared = rand() % 8 == 0;
		struct process_maps *other = is_shared ? process_maps_ref(maps) : NULL;

		end += (uint64_t)(rand() % (int)(PAGES - start));
		if (with_failures && rand() % 3 == 0)
			mem_fail_after((unsigned long)(1 + rand() % 4));
		if (!add(&maps, start, end, file, 1)) {
			for (uint64_t i = start; i < end; i++)
				model[i] = file;
		}
		for (uint64_t i = 0; i < PAGES; i++) {
			const struct process_mapping *m = process_maps_find(maps, i);

			assert_int_equal(m ? m->file : -100, model[i]);
			assert_true(!m || i - m->start + m->offset >= i);
		}
		mem_fail_after(0);
		process_maps_unref(other);
	}
	process_maps_unref(maps);
}

static void process_maps__random__agree_with_pages(void **state)
{
	size_t before = mem_live_bytes(MEM_PROCESS);

	(void)state;
	for (unsigned int seed = 1; seed <= 40; seed++)
		model_round(seed, seed % 2);
	assert_int_equal(mem_live_bytes(MEM_PROCESS), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(process_maps__overlap__newest_wins_and_splits),
		cmocka_unit_test(process_maps__shared__copied_at_first_change),
		cmocka_unit_test(process_maps__scan__replaces_only_what_is_older),
		cmocka_unit_test(process_maps__sixty_thousand__survive_in_any_order),
		cmocka_unit_test(process_maps__limit__refuses_but_keeps),
		cmocka_unit_test(process_maps__random__agree_with_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
