// SPDX-License-Identifier: Apache-2.0
/*
 * Perf maps through the helpers: which files count as the map of a process. The process looked at
 * is a child that waits in a root of its own, so that /tmp there is the test's.
 */
#include "abi/reasons.h"
#include "helpers/helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct helpers *helpers;
static char root[64], tmp[80], map[128];
static pid_t child;

struct outcome {
	int calls, err;
	uint32_t unnamed[2];
	uint64_t stamp;
	size_t count;
	char name[2][64];
};

static void on_done(void *ctx, const struct helpers_result *r)
{
	struct outcome *o = ctx;

	o->calls++;
	o->err = r->err;
	o->stamp = r->stamp;
	o->count = r->name_count;
	o->unnamed[0] = r->unnamed;
	for (size_t i = 0; i < r->name_count && i < 2; i++) {
		o->unnamed[i] = r->names[i].unnamed;
		snprintf(o->name[i], sizeof(o->name[i]), "%s", r->names[i].name);
	}
}

static void wait_for(const struct outcome *o)
{
	uint64_t end = clock_monotonic_ns() + 20000000000ULL;

	while (!o->calls && clock_monotonic_ns() < end) {
		struct pollfd p = {.fd = helpers_fd(helpers), .events = POLLIN};

		poll(&p, 1, 50);
		helpers_poll(helpers);
	}
	assert_int_equal(o->calls, 1);
}

static struct outcome ask(uint64_t stamp)
{
	const uint64_t addresses[] = {0x1010, 0x9000};
	struct outcome o = {0};

	assert_int_equal(helpers_perfmap_names(helpers, (uint32_t)child, 0, stamp, addresses, 2,
					       on_done, &o),
			 0);
	wait_for(&o);
	return o;
}

static void map_write(const char *text)
{
	FILE *f = fopen(map, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int setup(void **state)
{
	struct helpers_options options = {.directory = HELPERS_DIR};
	struct why why = {""};
	int pipes[2];
	char byte;

	(void)state;
	if (geteuid())
		return 0;
	snprintf(root, sizeof(root), "/tmp/test_perfmap.XXXXXX");
	assert_non_null(mkdtemp(root));
	snprintf(tmp, sizeof(tmp), "%s/tmp", root);
	assert_int_equal(mkdir(tmp, 01777), 0);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (chroot(root) || write(pipes[1], "r", 1) != 1)
			_exit(1);
		while (pause() == -1)
			;
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	close(pipes[0]);
	snprintf(map, sizeof(map), "%s/perf-%d.map", tmp, child);
	if (helpers_start(&options, &helpers, &why))
		fail_msg("%s", why.text);
	return 0;
}

static void child_end(void)
{
	if (child <= 0)
		return;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	child = 0;
}

static int teardown(void **state)
{
	(void)state;
	if (geteuid())
		return 0;
	child_end();
	helpers_stop(helpers);
	unlink(map);
	rmdir(tmp);
	unlink(tmp);
	rmdir(root);
	assert_int_equal(mem_live_bytes(MEM_HELPERS), 0);
	return 0;
}

static void need_root(void)
{
	if (geteuid())
		skip();
}

static void helpers__a_perf_map__names_its_process(void **state)
{
	struct outcome o, again;

	(void)state;
	need_root();
	map_write("1000 100 one two\n");
	o = ask(0);
	assert_int_equal(o.err, 0);
	assert_int_equal(o.count, 2);
	assert_string_equal(o.name[0], "one two");
	assert_int_equal(o.unnamed[1], FLY_UNNAMED_NOT_IN_MAP);
	assert_true(o.stamp);
	/* Known already: nothing is read. */
	again = ask(o.stamp);
	assert_int_equal(again.err, 0);
	assert_int_equal(again.count, 0);
	assert_true(again.stamp == o.stamp);
	map_write("1000 100 one two\n1000 100 three\n");
	again = ask(o.stamp);
	assert_int_equal(again.count, 2);
	assert_string_equal(again.name[0], "three");
	assert_true(again.stamp != o.stamp);
}

static void helpers__no_perf_map__is_said(void **state)
{
	struct outcome o;

	(void)state;
	need_root();
	o = ask(0);
	assert_int_equal(o.err, -ENOENT);
	assert_int_equal(o.unnamed[0], FLY_UNNAMED_ANONYMOUS);
}

static void helpers__a_perf_map_of_another_user__is_refused(void **state)
{
	struct outcome o;

	(void)state;
	need_root();
	map_write("1000 100 evil\n");
	assert_int_equal(chown(map, 65534, 65534), 0);
	o = ask(0);
	assert_int_equal(o.err, -EACCES);
	assert_int_equal(o.unnamed[0], FLY_UNNAMED_MAP_REFUSED);
}

static void helpers__a_perf_map_behind_a_link__is_refused(void **state)
{
	char real[128];
	struct outcome o;

	(void)state;
	need_root();
	map_write("1000 100 evil\n");
	snprintf(real, sizeof(real), "%s/real", tmp);
	assert_int_equal(rename(map, real), 0);
	assert_int_equal(symlink("real", map), 0);
	o = ask(0);
	unlink(real);
	assert_int_equal(o.err, -EACCES);
	assert_int_equal(o.unnamed[0], FLY_UNNAMED_MAP_REFUSED);
}

static void helpers__a_tmp_that_is_a_link__is_refused(void **state)
{
	struct outcome o;

	(void)state;
	need_root();
	assert_int_equal(rmdir(tmp), 0);
	assert_int_equal(symlink("/", tmp), 0);
	o = ask(0);
	assert_int_equal(o.unnamed[0], FLY_UNNAMED_MAP_REFUSED);
}

static void helpers__a_fifo_as_perf_map__is_refused_at_once(void **state)
{
	uint64_t began = clock_monotonic_ns();
	struct helpers_stats stats;
	struct outcome o;

	(void)state;
	need_root();
	assert_int_equal(mkfifo(map, 0644), 0);
	o = ask(0);
	assert_int_equal(o.unnamed[0], FLY_UNNAMED_MAP_REFUSED);
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.opener_restarts, 0);
	assert_true(clock_monotonic_ns() - began < 900000000ULL);
}

static void helpers__a_perf_map_of_an_earlier_process__is_none(void **state)
{
	struct timespec times[2] = {{.tv_sec = time(NULL) - 3600}, {.tv_sec = time(NULL) - 3600}};
	struct outcome o;

	(void)state;
	need_root();
	map_write("1000 100 stale\n");
	assert_int_equal(utimensat(AT_FDCWD, map, times, 0), 0);
	o = ask(0);
	assert_int_equal(o.err, -ENOENT);
	assert_int_equal(o.unnamed[0], FLY_UNNAMED_ANONYMOUS);
}

static void helpers__a_held_perf_map__outlives_its_process(void **state)
{
	struct outcome held = {0}, o;
	pid_t pid = child;

	(void)state;
	need_root();
	assert_int_equal(helpers_perfmap_hold(helpers, (uint32_t)child, 0, on_done, &held), 0);
	wait_for(&held);
	assert_int_equal(held.err, 0);
	child_end();
	map_write("1000 100 last act\n");
	child = pid;
	o = ask(0);
	child = 0;
	assert_int_equal(o.err, 0);
	assert_string_equal(o.name[0], "last act");
}

static void helpers__a_perf_map_not_held__dies_with_its_process(void **state)
{
	struct outcome o;
	pid_t pid = child;

	(void)state;
	need_root();
	map_write("1000 100 too late\n");
	child_end();
	child = pid;
	o = ask(0);
	child = 0;
	assert_int_equal(o.err, -ENOENT);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(helpers__a_perf_map__names_its_process),
		T(helpers__no_perf_map__is_said),
		T(helpers__a_perf_map_of_another_user__is_refused),
		T(helpers__a_perf_map_behind_a_link__is_refused),
		T(helpers__a_tmp_that_is_a_link__is_refused),
		T(helpers__a_fifo_as_perf_map__is_refused_at_once),
		T(helpers__a_perf_map_of_an_earlier_process__is_none),
		T(helpers__a_held_perf_map__outlives_its_process),
		T(helpers__a_perf_map_not_held__dies_with_its_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
