// SPDX-License-Identifier: Apache-2.0
/* The store, on a disk that works. Faults are in test_store_faults.c. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MIB	 (1ULL << 20)
#define HOUR_NS	 (3600 * 1000000000ULL)
#define MERGE_BY 3

static char *directory;
static uint64_t realtime, monotonic;

static uint64_t get_realtime(void)
{
	return realtime;
}

static uint64_t get_monotonic(void)
{
	return monotonic;
}

static uint64_t midnight(void)
{
	return STORE_TEST_BASE_NS / (24 * HOUR_NS) * (24 * HOUR_NS);
}

static const struct store_options by_clock = {
	.clock = {get_realtime, get_monotonic},
	.max_age_ns = 1000000 * HOUR_NS,
};

static int setup(void **state)
{
	(void)state;
	directory = store_test_directory();
	realtime = STORE_TEST_BASE_NS;
	monotonic = HOUR_NS;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	store_test_remove(directory);
	return 0;
}

static void append(struct store *store, uint64_t n, size_t size)
{
	struct why why = {""};

	if (store_test_append(store, n, size, NULL, &why))
		fail_msg("block %llu: %s", (unsigned long long)n, why.text);
}

static struct store_stats stats(struct store *store)
{
	struct store_stats s;

	assert_int_equal(store_stats_get(store, &s, NULL), 0);
	return s;
}

/* Counts what a filter finds; first and last are block numbers. */
static size_t count(struct store *store, const struct store_filter *filter, uint64_t *ret_first,
		    uint64_t *ret_last)
{
	struct store_selection *selection;
	struct store_block block;
	size_t found = 0;
	int err;

	assert_int_equal(store_select(store, filter, &selection, NULL), 0);
	while ((err = store_selection_next(selection, &block, NULL)) > 0) {
		uint64_t n = store_test_number(&block);

		if (!found++ && ret_first)
			*ret_first = n;
		if (ret_last)
			*ret_last = n;
	}
	assert_int_equal(err, 0);
	store_selection_close(selection);
	return found;
}

static void store__blocks__come_back_as_they_were(void **state)
{
	struct store_options reader = {.read_only = true};
	struct store_filter all = {0};
	struct store *store = store_test_open(directory, &by_clock), *other;
	uint64_t first, last;
	struct stat st;

	(void)state;
	for (uint64_t n = 0; n < 50; n++)
		append(store, n, 200 + n * 700);
	assert_int_equal(count(store, &all, &first, &last), 50);
	assert_int_equal(first, 0);
	assert_int_equal(last, 49);
	other = store_test_open(directory, &reader);
	assert_int_equal(count(other, &all, NULL, NULL), 50);
	assert_int_equal(stats(other).ledger.taken, 500);
	assert_int_equal(stats(other).ledger.delivered_ns, 4500);
	assert_int_equal(store_test_append(other, 1, 100, NULL, NULL), -EROFS);
	store_close(other);
	store_close(store);
	assert_int_equal(stat(directory, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	store = store_test_open(directory, &by_clock);
	assert_int_equal(count(store, &all, NULL, NULL), 50);
	assert_int_equal(stats(store).counts[STORE_APPENDED], 50);
	store_close(store);
}

static void store__filter__finds_by_time_and_terms(void **state)
{
	struct store *store = store_test_open(directory, &by_clock);
	struct store_filter_term terms[] = {
		{{STORE_SERVICE, "odd", 3}, 0},
		{{STORE_PID, "3", 1}, 1},
		{{STORE_PID, "5", 1}, 1},
	};
	struct store_filter filter = {
		.since_ns = STORE_TEST_BASE_NS + 10 * STORE_TEST_STEP_NS,
		.until_ns = STORE_TEST_BASE_NS + 20 * STORE_TEST_STEP_NS,
	};
	uint64_t first, last;

	(void)state;
	for (uint64_t n = 0; n < 70; n++)
		append(store, n, 1000);
	assert_int_equal(count(store, &filter, &first, &last), 10);
	assert_int_equal(first, 10);
	assert_int_equal(last, 19);
	filter = (struct store_filter){.terms = terms, .term_count = 1};
	assert_int_equal(count(store, &filter, &first, NULL), 35);
	assert_int_equal(first, 1);
	filter.term_count = 3; /* odd, and 3 or 5 */
	assert_int_equal(count(store, &filter, &first, NULL), 10);
	assert_int_equal(first, 3);
	terms[0].term = (struct store_term){STORE_COMM, "odd", 3};
	assert_int_equal(count(store, &filter, NULL, NULL), 0);
	filter = (struct store_filter){.kinds = 1U << 3};
	assert_int_equal(count(store, &filter, NULL, NULL), 0);
	filter = (struct store_filter){.after_id = 60};
	assert_int_equal(count(store, &filter, &first, NULL), 10);
	assert_int_equal(first, 60);
	store_close(store);
}

static void store__second_writer__is_told_the_first(void **state)
{
	struct store *store = store_test_open(directory, &by_clock), *other = NULL;
	struct store_options reader = {.read_only = true};
	struct why why = {""};
	char pid[32];

	(void)state;
	snprintf(pid, sizeof(pid), "process %d ", getpid());
	assert_int_equal(store_open(directory, &by_clock, &other, &why), -EAGAIN);
	assert_non_null(strstr(why.text, pid));
	other = store_test_open(directory, &reader);
	store_close(other);
	store_close(store);
	store_close(store_test_open(directory, &by_clock));
}

static void store__absent_and_foreign__are_said(void **state)
{
	struct store_options reader = {.read_only = true};
	struct store *store = NULL;
	struct why why = {""};
	sqlite3 *sql;
	char path[256];

	(void)state;
	assert_int_equal(store_open(directory, &reader, &store, &why), -ENOENT);
	assert_non_null(strstr(why.text, "no store"));
	assert_int_equal(store_open("/nonexistent", &reader, &store, &why), -ENOENT);
	assert_int_equal(store_open("store", &by_clock, &store, &why), -EINVAL);
	store_close(store_test_open(directory, &by_clock));
	snprintf(path, sizeof(path), "%s/store.db", directory);
	assert_int_equal(sqlite3_open(path, &sql), SQLITE_OK);
	assert_int_equal(sqlite3_exec(sql, "PRAGMA user_version = 99", NULL, NULL, NULL), 0);
	sqlite3_close(sql);
	assert_int_equal(store_open(directory, &by_clock, &store, &why), -EOPNOTSUPP);
	assert_non_null(strstr(why.text, "newer"));
	assert_int_equal(store_open(directory, &reader, &store, &why), -EOPNOTSUPP);
	assert_int_equal(chmod(directory, 0777), 0);
	assert_int_equal(store_open(directory, &by_clock, &store, &why), -EACCES);
}

static void store__quota__is_never_exceeded(void **state)
{
	struct store_options options = by_clock;
	struct store_filter all = {0};
	struct store *store;
	uint64_t first, last;
	size_t found;

	(void)state;
	options.quota_bytes = MIB;
	store = store_test_open(directory, &options);
	assert_int_equal(store_cursor_add(store, "slow", false, NULL), 0);
	for (uint64_t n = 0; n < 600; n++) {
		append(store, n, n % 50 == 0 ? 150000 : 100 + n * 37 % 9000);
		assert_in_range(store_test_disk(directory), 1, MIB);
	}
	found = count(store, &all, &first, &last);
	assert_int_equal(last, 599);
	assert_int_equal(last - first + 1, found); /* the oldest went, without a hole */
	assert_in_range(found, 50, 599);
	assert_int_equal(stats(store).counts[STORE_EXPIRED_QUOTA], 600 - found);
	{
		struct store_cursor cursor;

		assert_int_equal(store_cursor_get(store, "slow", &cursor, NULL), 0);
		assert_int_equal(cursor.lost_blocks, 600 - found);
		assert_int_equal(cursor.lag_blocks, found);
		assert_int_equal(cursor.lag_since_ns,
				 STORE_TEST_BASE_NS + first * STORE_TEST_STEP_NS);
	}
	/* One that no log of this store can take. */
	assert_int_equal(store_test_append(store, 600, 600000, NULL, NULL), -ERANGE);
	assert_int_equal(stats(store).counts[STORE_REFUSED_SIZE], 1);
	store_close(store);
	assert_in_range(store_test_disk(directory), 1, MIB);
}

static void store__smaller_quota__makes_it_smaller(void **state)
{
	struct store_options options = by_clock;
	struct store_filter all = {0};
	uint64_t last, first;
	struct store *store;
	size_t found;

	(void)state;
	options.quota_bytes = 8 * MIB;
	store = store_test_open(directory, &options);
	for (uint64_t n = 0; n < 400; n++)
		append(store, n, 20000);
	store_close(store);
	assert_in_range(store_test_disk(directory), 3 * MIB, 8 * MIB);
	options.quota_bytes = 2 * MIB;
	store = store_test_open(directory, &options);
	assert_in_range(store_test_disk(directory), MIB, 2 * MIB);
	append(store, 400, 20000);
	found = count(store, &all, &first, &last);
	assert_int_equal(last, 400);
	assert_int_equal(first + found, 401);
	store_close(store);
}

static void store__age__goes_by_time_that_passed(void **state)
{
	struct store_options options = by_clock;
	struct store_filter all = {0};
	struct store *store;
	uint64_t first;

	(void)state;
	options.max_age_ns = HOUR_NS;
	store = store_test_open(directory, &options);
	for (uint64_t n = 0; n < 10; n++)
		append(store, n, 500);
	realtime += 100 * HOUR_NS; /* a step: no time has passed */
	append(store, 10, 500);
	assert_int_equal(count(store, &all, NULL, NULL), 11);
	realtime -= 200 * HOUR_NS;
	append(store, 11, 500);
	assert_int_equal(count(store, &all, NULL, NULL), 12);
	monotonic += HOUR_NS + 5 * STORE_TEST_STEP_NS;
	append(store, 12, 500);
	assert_int_equal(count(store, &all, &first, NULL), 8);
	assert_int_equal(first, 5);
	assert_int_equal(stats(store).counts[STORE_EXPIRED_AGE], 5);
	store_close(store);
}

/* Windows whose times step an hour ahead and back come out in the order they went in. */
static void store__clock_steps__neither_lose_nor_double(void **state)
{
	static const int64_t steps[] = {0, 3600, -3600, 0};
	struct store_options options = by_clock;
	struct store_filter all = {.without_bytes = true};
	struct store_selection *selection;
	struct store_block block;
	struct store *store;
	uint64_t wanted = 1;

	(void)state;
	options.max_age_ns = 2 * HOUR_NS;
	store = store_test_open(directory, &options);
	assert_int_equal(store_cursor_add(store, "t", false, NULL), 0);
	for (uint64_t n = 0; n < 80; n++) {
		uint64_t start = realtime + (uint64_t)(steps[n / 20] * 1000000000);
		struct store_block_meta meta = {.start_ns = start,
						.end_ns = start + STORE_TEST_STEP_NS};

		assert_int_equal(store_append(store, &meta, &n, sizeof(n), NULL, NULL), 0);
		realtime += STORE_TEST_STEP_NS;
		monotonic += STORE_TEST_STEP_NS;
	}
	assert_int_equal(store_select(store, &all, &selection, NULL), 0);
	while (store_selection_next(selection, &block, NULL) > 0)
		assert_int_equal(block.id, wanted++);
	store_selection_close(selection);
	assert_int_equal(wanted, 81);
	for (uint64_t id = 0; store_block_after(store, id, &block, NULL) > 0; id = block.id) {
		assert_int_equal(block.id, id + 1);
		assert_memory_equal(block.bytes, &id, sizeof(id));
		assert_int_equal(store_cursor_acknowledge(store, "t", block.id, NULL), 0);
	}
	assert_int_equal(block.id, 80);
	store_close(store);
}

static void store__cursor__gives_each_block_once(void **state)
{
	struct store *store = store_test_open(directory, &by_clock);
	struct store_cursor cursor, list[4];
	struct store_block block;
	struct why why = {""};

	(void)state;
	append(store, 0, 300);
	assert_int_equal(store_cursor_add(store, "new", false, NULL), 0);
	assert_int_equal(store_cursor_add(store, "all", true, NULL), 0);
	assert_int_equal(store_cursor_get(store, "none", &cursor, NULL), -ENOENT);
	append(store, 1, 300);
	assert_int_equal(store_cursor_get(store, "new", &cursor, NULL), 0);
	assert_int_equal(cursor.lag_blocks, 1);
	assert_int_equal(store_block_after(store, cursor.acknowledged_id, &block, NULL), 1);
	assert_int_equal(store_test_number(&block), 1);
	assert_int_equal(store_cursor_acknowledge(store, "new", block.id, NULL), 0);
	assert_int_equal(store_block_after(store, block.id, &block, NULL), 0);
	store_close(store);
	store = store_test_open(directory, &by_clock);
	assert_int_equal(store_cursor_add(store, "new", true, NULL), 0); /* it is there */
	assert_int_equal(store_cursor_list(store, list, 4, NULL), 2);
	assert_string_equal(list[0].target, "all");
	assert_int_equal(list[0].lag_blocks, 2);
	assert_int_equal(list[1].lag_blocks, 0);
	assert_int_equal(list[1].lag_since_ns, 0);
	assert_int_equal(store_cursor_acknowledge(store, "new", 1, &why), -EINVAL);
	assert_int_equal(store_cursor_acknowledge(store, "new", 3, &why), -EINVAL);
	assert_int_equal(store_cursor_remove(store, "new", NULL), 0);
	assert_int_equal(store_cursor_list(store, list, 4, NULL), 1);
	store_close(store);
}

static int join(void *arg, const struct store_piece *pieces, size_t n, struct buf *out,
		struct why *why)
{
	size_t *calls = arg;

	if (*calls == SIZE_MAX)
		return why_set(why, -EBADMSG, "no");
	++*calls;
	for (size_t i = 0; i < n; i++)
		buf_add(out, pieces[i].bytes, sizeof(uint64_t));
	return 0;
}

static void append_at(struct store *store, uint64_t n, uint32_t kind)
{
	struct store_term term = {STORE_PID, &n, sizeof(n)};
	uint64_t start = midnight();
	struct store_block_meta meta = {
		.start_ns = start + n * STORE_TEST_STEP_NS,
		.end_ns = start + (n + 1) * STORE_TEST_STEP_NS,
		.kind = kind,
		.ledger = {1, 2, 1, 2},
		.terms = &term,
		.term_count = 1,
	};

	assert_int_equal(store_append(store, &meta, &n, sizeof(n), NULL, NULL), 0);
}

static void store__compaction__joins_minutes_then_hours(void **state)
{
	struct store_filter_term term = {{STORE_PID, NULL, 8}, 0};
	struct store_filter filter = {.terms = &term, .term_count = 1};
	struct store_selection *selection;
	size_t calls = 0, groups = 0;
	struct store_merge merge = {join, &calls};
	struct store_block block;
	struct store *store;
	uint64_t n = 7, next = 0;

	(void)state;
	realtime = midnight();
	store = store_test_open(directory, &by_clock);
	for (uint64_t i = 0; i < 2 * 360; i++)
		append_at(store, i, i % 2); /* two kinds, side by side */
	assert_int_equal(store_compact_step(store, &merge, NULL), 0);
	store_close(store);
	realtime = midnight() + 2 * HOUR_NS;
	store = store_test_open(directory, &by_clock);
	assert_int_equal(store_cursor_add(store, "t", true, NULL), 0);
	assert_int_equal(store_compact_step(store, &merge, NULL), 0); /* t has none of it */
	assert_int_equal(store_cursor_acknowledge(store, "t", 700, NULL), 0);
	while (store_compact_step(store, &merge, NULL) > 0)
		groups++;
	/* An hour and the windows beyond: 60 minutes of 3 windows of each kind. */
	assert_int_equal(groups, 2 * 60);
	assert_int_equal(calls, groups);
	assert_int_equal(stats(store).blocks[STORE_WINDOW], 360);
	assert_int_equal(stats(store).blocks[STORE_MINUTE], 120);
	assert_int_equal(stats(store).windows, 720);
	assert_int_equal(stats(store).ledger.taken_ns, 1440);
	/* Terms of all that was joined; ids are those of the last. */
	term.term.value = &n;
	assert_int_equal(store_select(store, &filter, &selection, NULL), 0);
	assert_int_equal(store_selection_next(selection, &block, NULL), 1);
	assert_int_equal(block.first_id, 8);
	assert_int_equal(block.id, 12);
	assert_int_equal(block.windows, MERGE_BY);
	assert_int_equal(block.len, MERGE_BY * sizeof(n));
	assert_int_equal(store_selection_next(selection, &block, NULL), 0);
	store_selection_close(selection);
	/* The cursor goes on behind what was merged. */
	for (uint64_t id = 700; store_block_after(store, id, &block, NULL) > 0; id = block.id)
		next++;
	assert_int_equal(next, 20);
	assert_int_equal(store_cursor_acknowledge(store, "t", 720, NULL), 0);
	monotonic += 26 * HOUR_NS;
	for (groups = 0; store_compact_step(store, &merge, NULL) > 0;)
		groups++;
	assert_int_equal(stats(store).blocks[STORE_HOUR], 4);
	assert_int_equal(stats(store).windows, 720);
	assert_int_equal(stats(store).ledger.taken, 720);
	store_close(store);
}

static void store__failed_merge__leaves_all(void **state)
{
	struct store *store = store_test_open(directory, &by_clock);
	size_t calls = SIZE_MAX;
	struct store_merge merge = {join, &calls};
	struct why why = {""};

	(void)state;
	for (uint64_t i = 0; i < 12; i++)
		append_at(store, i, 0);
	monotonic += 24 * HOUR_NS;
	store_close(store);
	realtime += 24 * HOUR_NS;
	store = store_test_open(directory, &by_clock);
	assert_int_equal(store_compact_step(store, &merge, &why), -EBADMSG);
	assert_string_equal(why.text, "no");
	assert_int_equal(store_compact_step(store, &merge, &why), -EBADMSG);
	while (store_compact_step(store, &merge, &why) < 0)
		;
	assert_int_equal(stats(store).windows, 12);
	assert_int_equal(stats(store).blocks[STORE_WINDOW], 12);
	assert_in_range(stats(store).counts[STORE_MERGE_FAILED], 2, 4);
	store_close(store);
}

static void store__older_schema__is_brought_up_to_date(void **state)
{
	struct store_options reader = {.read_only = true};
	struct store_filter all = {0};
	static char text[8192];
	struct store_selection *selection;
	struct store_block block;
	struct store *store = NULL;
	struct why why = {""};
	sqlite3 *sql;
	char path[256];
	ssize_t n;
	int fd = open(STORE_SCHEMA_1, O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_in_range(n, 100, sizeof(text) - 2);
	snprintf(path, sizeof(path), "%s/store.db", directory);
	assert_int_equal(sqlite3_open(path, &sql), SQLITE_OK);
	assert_int_equal(sqlite3_exec(sql, text, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(sql);
	assert_int_equal(store_open(directory, &reader, &store, &why), -EOPNOTSUPP);
	store = store_test_open(directory, &by_clock);
	assert_int_equal(store_select(store, &all, &selection, NULL), 0);
	assert_int_equal(store_selection_next(selection, &block, NULL), 1);
	assert_int_equal(block.len, 10);
	assert_memory_equal(block.bytes, "window one", 10);
	assert_int_equal(block.first_id, 1);
	assert_int_equal(block.windows, 1);
	store_selection_close(selection);
	assert_int_equal(stats(store).windows, 3);
	assert_int_equal(stats(store).first_id, 1);
	append(store, 3, 100);
	assert_int_equal(stats(store).last_id, 4);
	store_close(store);
	store_close(store_test_open(directory, &reader));
}

static void store__check__reads_all(void **state)
{
	struct store *store = store_test_open(directory, &by_clock);
	struct store_check check;

	(void)state;
	for (uint64_t n = 0; n < 20; n++)
		append(store, n, 5000);
	assert_int_equal(store_check(store, &check, NULL), 0);
	assert_int_equal(check.blocks, 20);
	assert_int_equal(check.damaged, 0);
	assert_int_equal(check.faults, 0);
	store_close(store);
}

/* Each allocation fails once: an error, no leak, and the next attempt works. */
static void store__no_memory__is_an_error(void **state)
{
	struct store *store = NULL;
	unsigned long n = 0;
	int err;

	(void)state;
	do {
		mem_fail_after(++n);
		err = store_open(directory, &by_clock, &store, NULL);
		mem_fail_after(0);
		assert_true(!err || err == -ENOMEM);
	} while (err);
	assert_in_range(n, 2, 50);
	for (n = 1; n < 10; n++) {
		uint64_t before = stats(store).windows;

		mem_fail_after(n);
		err = store_append(store, &(struct store_block_meta){.end_ns = 1}, "x", 1, NULL,
				   NULL);
		mem_fail_after(0);
		assert_true(!err || err == -ENOMEM);
		assert_int_equal(stats(store).windows, before + !err);
	}
	store_close(store);
}

static void store__no_memory__merges_and_selects_later(void **state)
{
	struct store_filter_term term = {{STORE_PID, "3", 1}, 0};
	struct store_filter filter = {.terms = &term, .term_count = 1};
	size_t calls = 0;
	struct store_merge merge = {join, &calls};
	struct store *store;
	unsigned long n = 0;
	int err;

	(void)state;
	realtime = midnight();
	store = store_test_open(directory, &by_clock);
	for (uint64_t i = 0; i < 12; i++)
		append_at(store, i, 0);
	monotonic += 3 * HOUR_NS;
	do {
		mem_fail_after(++n);
		err = store_compact_step(store, &merge, NULL);
		mem_fail_after(0);
		assert_true(err == 1 || err == -ENOMEM);
		assert_int_equal(stats(store).windows, 12);
	} while (err != 1);
	assert_in_range(n, 4, 50);
	assert_int_equal(stats(store).blocks[STORE_MINUTE], 1);
	assert_int_equal(stats(store).counts[STORE_MERGE_FAILED], 0);
	n = 0;
	do {
		struct store_selection *selection = NULL;
		struct store_block block;

		mem_fail_after(++n);
		err = store_select(store, &filter, &selection, NULL);
		while (!err && store_selection_next(selection, &block, NULL) > 0)
			;
		mem_fail_after(0);
		assert_true(!err || err == -ENOMEM);
		store_selection_close(selection);
	} while (err);
	store_close(store);
}

int main(void)
{
#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		STORE_TEST(store__blocks__come_back_as_they_were),
		STORE_TEST(store__filter__finds_by_time_and_terms),
		STORE_TEST(store__second_writer__is_told_the_first),
		STORE_TEST(store__absent_and_foreign__are_said),
		STORE_TEST(store__quota__is_never_exceeded),
		STORE_TEST(store__smaller_quota__makes_it_smaller),
		STORE_TEST(store__age__goes_by_time_that_passed),
		STORE_TEST(store__clock_steps__neither_lose_nor_double),
		STORE_TEST(store__cursor__gives_each_block_once),
		STORE_TEST(store__compaction__joins_minutes_then_hours),
		STORE_TEST(store__failed_merge__leaves_all),
		STORE_TEST(store__older_schema__is_brought_up_to_date),
		STORE_TEST(store__check__reads_all),
		STORE_TEST(store__no_memory__is_an_error),
		STORE_TEST(store__no_memory__merges_and_selects_later),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
