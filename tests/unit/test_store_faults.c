// SPDX-License-Identifier: Apache-2.0
/* What happens to a store: killed, on a full disk, on one that cannot be written, damaged, held by
 * a reader. After each: what was acknowledged is there once, or counted. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MIB	   (1ULL << 20)
#define PAGE	   4096
#define KILLS	   50
#define DAMAGES	   30
#define BLOCKS	   60
#define DEADLINE_S 60

static char *directory;
static uint64_t chance = 88172645463325252ULL;
static const struct store_options defaults = {.max_age_ns = UINT64_MAX / 4};

static uint64_t draw(uint64_t below)
{
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return chance % below;
}

static int setup(void **state)
{
	(void)state;
	directory = store_test_directory();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	store_test_remove(directory);
	return 0;
}

static uint64_t get_count(struct store *store, enum store_count count)
{
	struct store_stats s;

	assert_int_equal(store_stats_get(store, &s, NULL), 0);
	return s.counts[count];
}

struct found {
	uint64_t first, last, blocks, windows, first_id, last_id, damaged;
};

/* Reads all; numbers grow with ids, and none comes twice. */
static void find(struct store *store, struct found *f)
{
	struct store_filter all = {0};
	struct store_selection *selection;
	struct store_block block;
	struct why why = {""};
	int err;

	memset(f, 0, sizeof(*f));
	assert_int_equal(store_select(store, &all, &selection, &why), 0);
	while ((err = store_selection_next(selection, &block, &why)) != 0) {
		uint64_t n;

		if (err == -EBADMSG) {
			f->damaged++;
			continue;
		}
		if (err < 0)
			fail_msg("%s", why.text);
		n = store_test_number(&block);
		assert_true(!f->blocks || (n > f->last && block.id > f->last_id));
		f->first = f->blocks++ ? f->first : n;
		f->last = n;
		f->windows += block.windows;
		f->first_id = f->first_id ? f->first_id : block.first_id;
		f->last_id = block.id;
	}
	store_selection_close(selection);
}

/* ---------------------------------------------------------------- killed */

static int join(void *arg, const struct store_piece *pieces, size_t n, struct buf *out,
		struct why *why)
{
	(void)arg;
	(void)why;
	buf_add(out, pieces[n - 1].bytes, pieces[n - 1].len);
	return 0;
}

/* Writes until it is killed; each number goes into the pipe when its block was acknowledged. */
static void write_blocks(uint64_t n, int acknowledged)
{
	struct store_options options = defaults;
	struct store_merge merge = {join, NULL};
	struct store *store;

	options.quota_bytes = 2 * MIB;
	if (store_open(directory, &options, &store, NULL))
		_exit(1);
	for (;; n++) {
		if (store_test_append(store, n, 100 + n * 131 % 30000, NULL, NULL))
			_exit(2);
		if (write(acknowledged, &n, sizeof(n)) != sizeof(n))
			_exit(3);
		if (n % 16 == 0 && store_compact_step(store, &merge, NULL) < 0)
			_exit(4);
	}
}

/* Waits for that many acknowledgements, then for a moment more, and kills. Returns how many came.
 */
static uint64_t kill_after(pid_t pid, int acknowledged, uint64_t count)
{
	struct pollfd wait = {.fd = acknowledged, .events = POLLIN};
	uint64_t got = 0, n, end = draw(3000000);
	int status;

	while (got < count) {
		assert_int_equal(poll(&wait, 1, DEADLINE_S * 1000), 1);
		assert_int_equal(read(acknowledged, &n, sizeof(n)), sizeof(n));
		got++;
	}
	end += clock_monotonic_ns();
	while (clock_monotonic_ns() < end)
		;
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status))
		fail_msg("the writer ended by itself: %d", WEXITSTATUS(status));
	while (read(acknowledged, &n, sizeof(n)) == sizeof(n))
		got++;
	return got;
}

static void store__killed__keeps_what_was_acknowledged(void **state)
{
	struct store_options reader = {.read_only = true};
	static struct found found;
	struct store_check check;
	bool merged = false;
	uint64_t next = 0;

	(void)state;
	for (int i = 0; i < KILLS; i++) {
		uint64_t got;
		struct store *store;
		int ends[2];
		pid_t pid;

		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			write_blocks(next, ends[1]);
		close(ends[1]);
		got = kill_after(pid, ends[0], 1 + draw(12));
		close(ends[0]);
		assert_in_range(store_test_disk(directory), 1, 2 * MIB);
		store = store_test_open(directory, &reader);
		find(store, &found);
		assert_int_equal(store_check(store, &check, NULL), 0);
		store_close(store);
		assert_int_equal(check.faults + check.damaged, 0);
		/* All that was acknowledged, perhaps one more, without a hole. */
		assert_in_range(found.last + 1, next + got, next + got + 1);
		assert_int_equal(found.last_id - found.first_id + 1, found.windows);
		merged = merged || found.windows > found.blocks;
		next = found.last + 1;
	}
	assert_true(merged);		 /* some were killed while they did that */
	assert_true(found.first_id > 1); /* or deleted what was oldest */
}

/* ---------------------------------------------------------------- the disk */

/* A file system of its own below the directory, in a mount name space of its own. */
static bool mount_small(const char *options)
{
	if (geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	return !mount("none", directory, "tmpfs", 0, options);
}

static uint64_t free_bytes(void)
{
	struct statvfs st;

	assert_int_equal(statvfs(directory, &st), 0);
	return st.f_bavail * st.f_frsize;
}

static void fill_disk(const char *path)
{
	static const char zeros[PAGE];
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	close(fd);
	assert_int_equal(free_bytes(), 0);
}

static void store__full_disk__is_counted_and_survived(void **state)
{
	static struct found found;
	struct why why = {""};
	uint64_t n = 0, refused = 0;
	struct store_check check;
	struct store *store;
	char ballast[256];
	int err = 0;

	(void)state;
	if (!mount_small("size=4m,mode=0700"))
		skip();
	snprintf(ballast, sizeof(ballast), "%s/ballast", directory);
	store = store_test_open(directory, &defaults);
	for (; n < 20; n++)
		assert_int_equal(store_test_append(store, n, 9000, NULL, NULL), 0);
	fill_disk(ballast);
	for (int i = 0; i < 100; i++) {
		err = store_test_append(store, n, 9000, NULL, &why);
		n += !err;
		refused += err == -ENOSPC;
		assert_true(!err || err == -ENOSPC);
	}
	assert_int_equal(free_bytes(), 0);
	assert_int_equal(err, -ENOSPC);
	assert_true(why.text[0]);
	assert_int_equal(get_count(store, STORE_REFUSED_SPACE), refused);
	find(store, &found); /* what is there can be read on a full disk */
	assert_int_equal(found.blocks, n);
	assert_int_equal(unlink(ballast), 0);
	for (uint64_t end = n + 20; n < end; n++)
		assert_int_equal(store_test_append(store, n, 9000, NULL, NULL), 0);
	find(store, &found);
	assert_int_equal(found.blocks, n);
	assert_int_equal(found.last, n - 1);
	store_close(store);
	store = store_test_open(directory, &defaults);
	assert_int_equal(get_count(store, STORE_REFUSED_SPACE), refused);
	assert_int_equal(store_check(store, &check, NULL), 0);
	assert_int_equal(check.blocks, n);
	assert_int_equal(check.faults + check.damaged, 0);
	store_close(store);
	assert_int_equal(umount(directory), 0);
}

static void store__read_only_disk__can_be_read(void **state)
{
	struct store_options reader = {.read_only = true};
	static struct found found;
	struct store *store = NULL;
	struct why why = {""};
	int status;
	pid_t pid;

	(void)state;
	if (!mount_small("size=8m,mode=0700"))
		skip();
	store = store_test_open(directory, &defaults);
	for (uint64_t n = 0; n < 10; n++)
		assert_int_equal(store_test_append(store, n, 3000, NULL, NULL), 0);
	store_close(store);
	assert_int_equal(mount(NULL, directory, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(store_open(directory, &defaults, &store, &why), -EROFS);
	assert_true(why.text[0]);
	store = store_test_open(directory, &reader);
	find(store, &found);
	assert_int_equal(found.blocks, 10);
	store_close(store);
	/* With a log that nobody could empty it would be torn: it is read whole, or refused. */
	assert_int_equal(mount(NULL, directory, NULL, MS_REMOUNT, NULL), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (!store_open(directory, &defaults, &store, NULL))
			store_test_append(store, 10, 3000, NULL, NULL);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(mount(NULL, directory, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	if (!store_open(directory, &reader, &store, &why)) {
		find(store, &found);
		assert_int_equal(found.blocks, 11);
		store_close(store);
	} else {
		assert_true(why.text[0]);
	}
	assert_int_equal(umount(directory), 0);
}

/* ---------------------------------------------------------------- damage */

static uint64_t damage_page(uint64_t *ret_pages)
{
	unsigned char before[PAGE], noise[PAGE];
	uint64_t page;
	char path[256];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/store.db", directory);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	*ret_pages = (uint64_t)st.st_size / PAGE;
	page = draw(*ret_pages);
	for (size_t i = 0; i < PAGE; i++)
		noise[i] = (unsigned char)draw(256);
	assert_int_equal(pread(fd, before, PAGE, (off_t)(page * PAGE)), PAGE);
	assert_int_equal(pwrite(fd, noise, PAGE, (off_t)(page * PAGE)), PAGE);
	assert_memory_not_equal(before, noise, PAGE); /* it has happened */
	close(fd);
	return page;
}

static void damage_once(uint64_t *set_aside, uint64_t *salvaged)
{
	struct store *store = store_test_open(directory, &defaults);
	static struct found found;
	struct store_check check;
	struct store_cursor cursor;
	uint64_t pages, page, missing, known;
	char path[256];

	assert_int_equal(store_cursor_add(store, "t", false, NULL), 0);
	for (uint64_t n = 0; n < BLOCKS; n++)
		assert_int_equal(store_test_append(store, n, 100 + draw(20000), NULL, NULL), 0);
	assert_int_equal(store_cursor_acknowledge(store, "t", 40, NULL), 0);
	store_close(store);
	page = damage_page(&pages);
	store = store_test_open(directory, &defaults);
	/* As many appends as there are blocks: each looks at one of them. */
	for (uint64_t n = BLOCKS; n < 2 * BLOCKS; n++)
		assert_int_equal(store_test_append(store, n, 500, NULL, NULL), 0);
	find(store, &found);
	assert_int_equal(found.last, 2 * BLOCKS - 1);
	assert_in_range(found.blocks, BLOCKS, 2 * BLOCKS);
	missing = 2 * BLOCKS - found.blocks;
	known = get_count(store, STORE_DAMAGED) + get_count(store, STORE_LOST);
	if (page) /* else not even what it was can be known */
		assert_true(missing <= known);
	snprintf(path, sizeof(path), "%s/store.db.corrupt-1", directory);
	assert_int_equal(get_count(store, STORE_SET_ASIDE), !access(path, F_OK));
	if (get_count(store, STORE_SET_ASIDE)) {
		++*set_aside;
		*salvaged += get_count(store, STORE_SALVAGED);
	} else {
		assert_int_equal(get_count(store, STORE_APPENDED), 2 * BLOCKS);
	}
	/* No id comes twice while anybody remembers the old ones. */
	if (!store_cursor_get(store, "t", &cursor, NULL)) {
		assert_int_equal(cursor.acknowledged_id, 40);
		assert_in_range(found.last_id, 40 + BLOCKS, 2 * BLOCKS);
	}
	assert_int_equal(store_check(store, &check, NULL), 0);
	assert_int_equal(check.faults + check.damaged, 0);
	store_close(store);
}

static void store__damaged_page__is_found_and_the_rest_saved(void **state)
{
	uint64_t set_aside = 0, salvaged = 0;

	(void)state;
	for (int i = 0; i < DAMAGES; i++) {
		damage_once(&set_aside, &salvaged);
		store_test_remove(directory);
		directory = store_test_directory();
	}
	assert_in_range(set_aside, DAMAGES / 4, DAMAGES);
	assert_in_range(salvaged, set_aside * BLOCKS / 2, set_aside * BLOCKS);
}

/* Damage while it is written: a database that is set aside again and again stays within the quota.
 */
static void store__damaged_often__stays_within_the_quota(void **state)
{
	struct store_options options = defaults;
	struct store *store;
	uint64_t n = 0, pages;

	(void)state;
	options.quota_bytes = 2 * MIB;
	for (int i = 0; i < 12; i++) {
		store = store_test_open(directory, &options);
		for (uint64_t end = n + 60; n < end; n++) {
			assert_int_equal(store_test_append(store, n, 20000, NULL, NULL), 0);
			assert_in_range(store_test_disk(directory), 1, 2 * MIB);
		}
		store_close(store);
		damage_page(&pages);
		assert_in_range(store_test_disk(directory), 1, 2 * MIB);
	}
	store = store_test_open(directory, &options);
	assert_in_range(get_count(store, STORE_SET_ASIDE), 3, 12);
	assert_in_range(store_test_disk(directory), 1, 2 * MIB);
	store_close(store);
}

/* A full store on a disk of just its quota: there is no room for two databases, not for a moment.
 */
static void damage_full(uint64_t *set_aside, uint64_t *before, uint64_t *after)
{
	struct store_options options = defaults;
	static struct found found;
	struct store_check check;
	struct store *store;
	uint64_t pages, page, n = 0, kept, known;

	options.quota_bytes = 4 * MIB;
	store = store_test_open(directory, &options);
	while (get_count(store, STORE_EXPIRED_QUOTA) < 20)
		assert_int_equal(store_test_append(store, n++, 5000 + draw(30000), NULL, NULL), 0);
	find(store, &found);
	kept = found.blocks;
	store_close(store);
	page = damage_page(&pages);
	store = store_test_open(directory, &options);
	if (page && get_count(store, STORE_SET_ASIDE)) {
		find(store, &found);
		*before += kept;
		*after += found.blocks;
		++*set_aside;
		known = get_count(store, STORE_LOST) + get_count(store, STORE_EXPIRED_QUOTA) - 20;
		assert_in_range(kept - found.blocks, 0, known + found.damaged);
	}
	for (uint64_t end = n + 10; n < end; n++)
		assert_int_equal(store_test_append(store, n, 20000, NULL, NULL), 0);
	assert_int_equal(get_count(store, STORE_REFUSED_SPACE), 0);
	assert_int_equal(store_check(store, &check, NULL), 0);
	assert_int_equal(check.faults, 0);
	store_close(store);
}

static void store__damaged_when_full__is_saved_within_the_quota(void **state)
{
	uint64_t set_aside = 0, before = 0, after = 0;

	(void)state;
	for (int i = 0; i < 6; i++) {
		if (!mount_small("size=4m,mode=0700"))
			skip();
		damage_full(&set_aside, &before, &after);
		assert_int_equal(umount(directory), 0);
	}
	assert_in_range(set_aside, 2, 6);
	assert_in_range(after, before * 8 / 10, before); /* an eighth goes to begin with */
}

static void overwrite(const char *name)
{
	unsigned char noise[PAGE];
	char path[256];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	for (size_t i = 0; i < PAGE; i++)
		noise[i] = (unsigned char)draw(256);
	for (off_t at = 0; at + PAGE <= st.st_size; at += PAGE)
		assert_int_equal(pwrite(fd, noise, PAGE, at), PAGE);
	close(fd);
}

/* Both at once, under a running writer: it says so each time, and goes on when there is room. */
static void store__damaged_on_a_full_disk__goes_on_with_room(void **state)
{
	struct store_options options = defaults;
	struct store_cursor cursor;
	struct store_stats stats;
	struct store *store;
	char ballast[256];
	uint64_t n = 0;
	int err = 0;

	(void)state;
	if (!mount_small("size=2m,mode=0700"))
		skip();
	snprintf(ballast, sizeof(ballast), "%s/ballast", directory);
	options.quota_bytes = 8 * MIB;
	store = store_test_open(directory, &options);
	while (n < 40)
		assert_int_equal(store_test_append(store, n++, 9000, NULL, NULL), 0);
	fill_disk(ballast);
	overwrite("store.db");
	overwrite("store.db-wal");
	for (int i = 0; i < 60; i++) {
		struct why why = {""};

		err = store_test_append(store, n, 9000, NULL, &why);
		assert_true(!err || why.text[0]);
		store_stats_get(store, &stats, NULL);
		store_cursor_get(store, "t", &cursor, NULL);
	}
	assert_int_not_equal(err, 0);
	assert_int_equal(unlink(ballast), 0);
	for (int i = 0; i < 20; i++)
		err = store_test_append(store, n++, 9000, NULL, NULL);
	assert_int_equal(err, 0);
	assert_in_range(get_count(store, STORE_SET_ASIDE), 1, 60);
	store_close(store);
	store_close(store_test_open(directory, &options));
	assert_int_equal(umount(directory), 0);
}

/* ---------------------------------------------------------------- readers */

static void store__reader_that_stays__costs_blocks_not_disk(void **state)
{
	struct store_options options = defaults;
	struct store_filter all = {0};
	struct store_selection *selection;
	static struct found found;
	struct store_block block;
	uint64_t n = 0, refused = 0, seen = 1;
	struct store *store;

	(void)state;
	options.quota_bytes = 2 * MIB;
	store = store_test_open(directory, &options);
	for (; n < 30; n++)
		assert_int_equal(store_test_append(store, n, 9000, NULL, NULL), 0);
	assert_int_equal(store_select(store, &all, &selection, NULL), 0);
	assert_int_equal(store_selection_next(selection, &block, NULL), 1);
	for (int i = 0; i < 200; i++) {
		int err = store_test_append(store, n, 9000, NULL, NULL);

		assert_true(!err || err == -EBUSY);
		n += !err;
		refused += err == -EBUSY;
		assert_in_range(store_test_disk(directory), 1, 2 * MIB);
	}
	assert_in_range(refused, 1, 199);
	assert_int_equal(get_count(store, STORE_REFUSED_LOG), refused);
	store_close(store); /* another writer can open it, and is told the same */
	store = store_test_open(directory, &options);
	assert_int_equal(store_test_append(store, n, 30000, NULL, NULL), -EBUSY);
	while (store_selection_next(selection, &block, NULL) > 0)
		seen++;
	assert_int_equal(seen, 30); /* as it was when it began */
	store_selection_close(selection);
	for (uint64_t end = n + 50; n < end; n++)
		assert_int_equal(store_test_append(store, n, 9000, NULL, NULL), 0);
	find(store, &found);
	assert_int_equal(found.last, n - 1);
	assert_int_equal(found.last - found.first + 1, found.blocks);
	store_close(store);
}

static void store__killed_reader__holds_nothing(void **state)
{
	struct store_options options = defaults;
	struct store *store;
	uint64_t n = 0;
	int status, ends[2];
	char byte;
	pid_t pid;

	(void)state;
	options.quota_bytes = MIB;
	store = store_test_open(directory, &options);
	for (; n < 10; n++)
		assert_int_equal(store_test_append(store, n, 9000, NULL, NULL), 0);
	store_close(store);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork(); /* before the writer opens: SQLite's connections survive no fork */
	assert_true(pid >= 0);
	if (!pid) {
		struct store_options reader = {.read_only = true};
		struct store_filter all = {0};
		struct store_selection *selection;
		struct store_block block;

		if (store_open(directory, &reader, &store, NULL) ||
		    store_select(store, &all, &selection, NULL) ||
		    store_selection_next(selection, &block, NULL) != 1 ||
		    write(ends[1], "r", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(ends[0], &byte, 1), 1);
	store = store_test_open(directory, &options);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (uint64_t end = n + 100; n < end; n++)
		assert_int_equal(store_test_append(store, n, 9000, NULL, NULL), 0);
	store_close(store);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		STORE_TEST(store__killed__keeps_what_was_acknowledged),
		STORE_TEST(store__full_disk__is_counted_and_survived),
		STORE_TEST(store__read_only_disk__can_be_read),
		STORE_TEST(store__damaged_page__is_found_and_the_rest_saved),
		STORE_TEST(store__damaged_often__stays_within_the_quota),
		STORE_TEST(store__damaged_when_full__is_saved_within_the_quota),
		STORE_TEST(store__damaged_on_a_full_disk__goes_on_with_room),
		STORE_TEST(store__reader_that_stays__costs_blocks_not_disk),
		STORE_TEST(store__killed_reader__holds_nothing),
	};

	return cmocka_run_group_tests_name("store_faults", tests, NULL, NULL);
}
