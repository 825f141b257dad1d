// SPDX-License-Identifier: Apache-2.0
/* The tracker by scenarios: what the kernel says in order, what samples ask, what scans answer. */
#include "process/process.h"

#include "abi/reasons.h"
#include "fake_helpers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MS   1000000ULL
#define S    (1000 * MS)
#define HEX  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define TEXT 0x400000ULL /* where programs are mapped */
#define LIB  0x7f0000000000ULL

static struct process_tracker *t;
static uint64_t now;
static char proc_dir[] = "/tmp/flyball-proc-XXXXXX";

static int setup(void **state)
{
	struct process_options options = {.helpers = fake_helpers(), .proc = proc_dir};

	(void)state;
	fake_reset();
	now = 1000 * S;
	return process_tracker_new(&options, &t);
}

static int teardown(void **state)
{
	(void)state;
	fake_cancel_all();
	process_tracker_free(t);
	t = NULL;
	return mem_live_bytes(MEM_PROCESS) ? -1 : 0;
}

/* ---------------------------------------------------------------- words */
static void do_fork(uint32_t parent, uint32_t child)
{
	process_fork(t, now += MS, parent, child, child);
}

static void do_map(uint32_t tgid, uint64_t start, const char *path, uint8_t id)
{
	struct process_mmap m = {.start = start,
				 .bytes = 0x10000,
				 .pgoff = 0x1000,
				 .path = path,
				 .build_id_len = id ? 20 : 0,
				 .dev_major = 8,
				 .ino = id ? 0 : 77};

	memset(m.build_id, id, sizeof(m.build_id));
	process_map(t, now += 10000, tgid, &m);
}

static void do_exec_record(uint32_t tgid, uint64_t start_ns, uint64_t exe_ino, uint32_t mount_ns)
{
	struct process_exec e = {.process_start_ns = start_ns,
				 .cgroup_id = 5,
				 .exe_dev = 8 << 20,
				 .exe_ino = exe_ino,
				 .root_dev = 8 << 20,
				 .root_ino = 2,
				 .mount_namespace = mount_ns,
				 .comm = "exec"};

	process_exec(t, now += 10000, tgid, &e);
}

/* comm, program, ld.so, vDSO, record: as on 6.18. */
static void do_exec(uint32_t tgid, uint64_t start_ns, const char *path, uint8_t id)
{
	process_comm(t, now += MS, tgid, tgid, "prog", true);
	do_map(tgid, TEXT, path, id);
	do_map(tgid, LIB, "/lib/ld.so", 200);
	do_map(tgid, LIB + 0x100000, "[vdso]", 0);
	do_exec_record(tgid, start_ns, id, 1);
}

static int64_t sample(uint32_t tgid, uint64_t start_ns)
{
	return process_of_sample(t, now += MS, tgid, start_ns, 5, "thread");
}

static struct process_place place(int64_t id, uint64_t pc)
{
	struct process_place ret;

	process_place(t, id, pc, &ret);
	return ret;
}

static const char *path_at(int64_t id, uint64_t pc)
{
	struct process_place at = place(id, pc);

	if (at.file < 0)
		return at.unnamed == FLY_UNNAMED_ANONYMOUS ? "anonymous" : "unknown";
	return process_file_get(t, at.file)->path;
}

static struct process_info info(int64_t id)
{
	struct process_info ret;

	process_get(t, id, &ret);
	return ret;
}

static struct process_stats stats(void)
{
	struct process_stats ret;

	process_stats_get(t, &ret);
	return ret;
}

static void tick(uint64_t later_ns)
{
	process_tick(t, now += later_ns);
}

static struct helpers_scan scan_of(uint32_t tgid, uint64_t start_ns)
{
	static const struct helpers_mapping mappings[] = {
		{.start = TEXT,
		 .end = TEXT + 0x10000,
		 .pgoff = 0x1000,
		 .ino = 9,
		 .path = "/bin/old"},
		{.start = LIB, .end = LIB + 0x10000, .pgoff = 0x1000, .ino = 10, .path = "/lib/c"},
		{.start = LIB + 0x200000, .end = LIB + 0x201000, .path = ""},
	};

	return (struct helpers_scan){.tgid = tgid,
				     .process_start_ns = start_ns / (10 * MS) * (10 * MS),
				     .comm = "leader",
				     .exe = "/bin/old",
				     .cgroup = "5:memory:/docker/" HEX "\n0::/\n",
				     .mount_namespace = 1,
				     .mapping_count = 3,
				     .mappings = mappings};
}

/* ---------------------------------------------------------------- exec and fork */
static void process__young_program__placed_without_scan(void **state)
{
	int64_t id;

	(void)state;
	do_fork(1, 100);
	fake_cancel_all(); /* the parent's scan */
	do_exec(100, 50 * S, "/bin/young", 7);
	assert_int_equal(fake_count_of(FAKE_HOLD), 2); /* held before any sample */
	assert_string_equal(fake_last(FAKE_HOLD, 100)->path, "/lib/ld.so");
	assert_int_equal(fake_requests[1].file.build_id[3], 7);
	id = sample(100, 50 * S);
	fake_cancel_all(); /* its cgroup */
	assert_true(id >= 0);
	assert_true(process_is_settled(t, id));
	assert_string_equal(path_at(id, TEXT + 0x42), "/bin/young");
	assert_int_equal(place(id, TEXT + 0x42).file_offset, 0x1042);
	assert_string_equal(path_at(id, LIB + 0x100000), "[vdso]");
	assert_true(process_file_get(t, place(id, LIB + 0x100000).file)->is_vdso);
	assert_string_equal(info(id).comm, "prog");
	assert_string_equal(info(id).exe, "/bin/young");
	assert_int_equal(info(id).start_ns, 50 * S);
	process_exit(t, now += MS, 100, 100);
	assert_string_equal(path_at(id, TEXT), "/bin/young"); /* waited a moment */
	assert_int_equal(sample(100, 50 * S), id);	      /* a tick on the way out */
	tick(3 * S);
	assert_string_equal(path_at(id, TEXT), "unknown");
	assert_string_equal(info(id).exe, "/bin/young");
	assert_int_equal(stats().ended, 0);
}

static void process__exec_back_and_forth__never_mixes(void **state)
{
	int64_t last = -1;

	(void)state;
	do_fork(1, 100);
	for (int i = 0; i < 100; i++) {
		const char *path = i & 1 ? "/bin/b" : "/bin/a";
		int64_t id;

		do_exec(100, 50 * S, path, i & 1 ? 2 : 1);
		id = sample(100, 50 * S);
		assert_true(id != last);
		assert_string_equal(path_at(id, TEXT), path);
		if (last >= 0)
			assert_string_equal(path_at(last, TEXT), i & 1 ? "/bin/a" : "/bin/b");
		assert_string_equal(info(id).exe, path);
		last = id;
		now += 5 * MS;
	}
	assert_int_equal(fake_count_of(FAKE_HOLD), 3); /* a, b, ld.so: once each */
	assert_int_equal(stats().live, 2);
}

static void process__exec_under_way__knows_no_old_program(void **state)
{
	int64_t id;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	sample(100, 50 * S);
	process_comm(t, now += MS, 100, 100, "b", true);
	do_map(100, TEXT, "/bin/b", 2);
	id = sample(100, 50 * S);
	assert_string_equal(path_at(id, TEXT), "unknown");
	assert_int_equal(fake_count_of(FAKE_SCAN), 1); /* for the cgroup, at the first sample */
	do_exec_record(100, 50 * S, 2, 1);
	assert_string_equal(path_at(id, TEXT), "/bin/b");
}

static void process__exec_record_lost__paths_are_read_all_the_same(void **state)
{
	int64_t id;

	(void)state;
	process_comm(t, now += MS, 100, 100, "b", true);
	do_map(100, TEXT, "/bin/b", 2);
	assert_int_equal(fake_count_of(FAKE_HOLD), 0);
	tick(150 * MS);
	assert_int_equal(fake_count_of(FAKE_HOLD), 1);
	id = sample(100, 50 * S);
	assert_string_equal(path_at(id, TEXT), "/bin/b");
	do_exec_record(100, 50 * S, 2, 1); /* only late: nothing is forgotten */
	assert_string_equal(path_at(id, TEXT), "/bin/b");
	do_exec_record(100, 50 * S, 2, 1); /* of another exec, whose comm was lost */
	id = sample(100, 50 * S);
	assert_string_equal(path_at(id, TEXT), "unknown");
	assert_non_null(fake_last(FAKE_SCAN, 100));
}

static void process__fork__shares_until_changed(void **state)
{
	size_t before;
	int64_t parent, child;

	(void)state;
	do_exec(100, 50 * S, "/bin/server", 1);
	for (int i = 0; i < 2000; i++)
		do_map(100, LIB + 0x1000000 + (uint64_t)i * 0x20000, "/lib/x", 3);
	parent = sample(100, 50 * S);
	path_at(parent, TEXT);
	before = mem_live_bytes(MEM_PROCESS);
	for (uint32_t i = 0; i < 1000; i++)
		do_fork(100, 1000 + i);
	assert_true(mem_live_bytes(MEM_PROCESS) - before < 1000 * 600);
	child = sample(1000, 60 * S);
	assert_true(child != parent);
	assert_string_equal(path_at(child, TEXT), "/bin/server");
	do_map(1000, LIB + 0x100000000, "/lib/plug", 4);
	assert_string_equal(path_at(child, LIB + 0x100000000), "/lib/plug");
	assert_string_equal(path_at(parent, LIB + 0x100000000), "unknown");
	for (uint32_t i = 0; i < 1000; i++)
		process_exit(t, now += 1000, 1000 + i, 1000 + i);
	fake_cancel_all();
	tick(3 * S);
	assert_int_equal(stats().live, 1);
	assert_int_equal(stats().ended, 0);
}

static void process__leader_exits_first__threads_go_on(void **state)
{
	int64_t id;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	process_fork(t, now += MS, 100, 100, 101);
	process_fork(t, now += MS, 100, 100, 102);
	id = sample(100, 50 * S);
	process_exit(t, now += MS, 100, 100);
	process_exit(t, now += MS, 100, 101);
	tick(10 * S);
	assert_int_equal(sample(100, 50 * S), id);
	assert_string_equal(path_at(id, TEXT), "/bin/a");
	process_exit(t, now += MS, 100, 102);
	assert_int_equal(stats().live, 0);
}

static void process__other_thread_executes__one_thread_is_left(void **state)
{
	int64_t id;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	process_fork(t, now += MS, 100, 100, 101);
	process_exit(t, now += MS, 100, 100); /* de_thread; 101 becomes 100 */
	do_exec(100, 50 * S, "/bin/b", 2);
	id = sample(100, 50 * S);
	assert_string_equal(path_at(id, TEXT), "/bin/b");
	process_exit(t, now += MS, 100, 100);
	assert_int_equal(stats().live, 0);
}

static void process__unknown_threads__leader_exit_waits_for_silence(void **state)
{
	struct helpers_scan scan = scan_of(100, 50 * S);
	int64_t id;

	(void)state;
	id = sample(100, 50 * S);
	fake_answer_scan(fake_last(FAKE_SCAN, 100), &scan);
	process_exit(t, now += MS, 100, 100);
	tick(20 * S);
	assert_int_equal(sample(100, 50 * S), id);
	tick(20 * S);
	assert_string_equal(path_at(id, TEXT), "/bin/old");
	assert_int_equal(stats().live, 1);
	tick(11 * S);
	assert_int_equal(stats().live, 0);
}

static void process__tgid_used_again__is_another(void **state)
{
	int64_t first, second, third;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	first = sample(100, 50 * S);
	do_fork(1, 100); /* exit was lost */
	do_exec(100, 51 * S, "/bin/b", 2);
	second = sample(100, 51 * S);
	assert_true(second != first);
	assert_string_equal(path_at(second, TEXT), "/bin/b");
	assert_string_equal(path_at(first, TEXT), "/bin/a");
	/* All of its side-band was lost: only the start says so. */
	third = sample(100, 52 * S);
	assert_true(third != second);
	assert_string_equal(path_at(third, TEXT), "unknown");
	assert_string_equal(info(second).exe, "/bin/b");
	assert_string_equal(info(third).comm, "thread");
}

static void process__comm__is_the_leaders(void **state)
{
	int64_t id;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	id = sample(100, 50 * S);
	process_comm(t, now += MS, 100, 101, "worker", false);
	assert_string_equal(info(id).comm, "prog");
	process_comm(t, now += MS, 100, 100, "renamed", false);
	assert_string_equal(info(id).comm, "renamed");
}

/* ---------------------------------------------------------------- mappings and files */
static void process__same_address_again__newest_wins(void **state)
{
	int64_t id;

	(void)state;
	do_exec(100, 50 * S, "/bin/dl", 1);
	id = sample(100, 50 * S);
	for (int i = 0; i < 12; i++) {
		do_map(100, LIB + 0x500000, i & 1 ? "/lib/b.so" : "/lib/a.so", i & 1 ? 12 : 11);
		assert_string_equal(path_at(id, LIB + 0x500000), i & 1 ? "/lib/b.so" : "/lib/a.so");
	}
}

static void process__paths__told_apart(void **state)
{
	static const struct {
		const char *given, *seen;
	} rows[] = {
		{"//anon", "anonymous"},
		{"[heap]", "anonymous"},
		{"[stack]", "anonymous"},
		{"[anon:jit]", "anonymous"},
		{"/dev/zero (deleted)", "anonymous"},
		{"/SYSV00000000 (deleted)", "anonymous"},
		{"/anon_hugepage (deleted)", "anonymous"},
		{"anon_inode:[io_uring]", "anonymous"},
		{"/dev/nvidia0", "anonymous"},
		{"/memfd:code (deleted)", "/memfd:code"},
		{"/dev/shm/lib.so", "/dev/shm/lib.so"},
		{"/usr/bin/gone (deleted)", "/usr/bin/gone"},
		{"//toolong", "//toolong"},
	};
	int64_t id;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	id = sample(100, 50 * S);
	for (uint64_t i = 0; i < ARRAY_SIZE(rows); i++)
		do_map(100, LIB + 0x1000000 + i * 0x20000, rows[i].given, 0);
	for (uint64_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(path_at(id, LIB + 0x1000000 + i * 0x20000), rows[i].seen);
	assert_string_equal(path_at(id, 0xffffffffff600000), "anonymous");
	assert_int_equal(place(id, LIB + 0x1000000).file_offset, LIB + 0x1000000);
	for (size_t i = 0; i < fake_count; i++)
		assert_true(strncmp(fake_requests[i].path, "/memfd", 6) &&
			    strncmp(fake_requests[i].path, "//", 2));
}

static void process__one_path_two_views__two_files(void **state)
{
	int64_t in, out;

	(void)state;
	do_exec(100, 50 * S, "/app", 1);
	process_comm(t, now += MS, 200, 200, "app", true);
	do_map(200, TEXT, "/app", 2);
	do_map(200, LIB, "/lib/ld.so", 200);
	do_exec_record(200, 51 * S, 2, 2);
	out = sample(100, 50 * S);
	in = sample(200, 51 * S);
	assert_true(place(in, TEXT).file != place(out, TEXT).file);
	assert_true(place(in, LIB).file != place(out, LIB).file);
	assert_int_equal(process_file_get(t, place(in, TEXT).file)->open.tgid, 200);
	/* A forged build-id at one path in one view: the inode tells. */
	process_comm(t, now += MS, 300, 300, "app", true);
	do_map(300, TEXT, "/app", 1);
	do_exec_record(300, 52 * S, 99, 1);
	assert_true(place(sample(300, 52 * S), TEXT).file != place(out, TEXT).file);
}

static void process__churn_of_one_program__asks_once(void **state)
{
	size_t live;

	(void)state;
	for (uint32_t i = 0; i < 3000; i++) {
		uint32_t tgid = 1000 + i % 500;
		int64_t id;

		do_fork(1, tgid);
		do_exec(tgid, 50 * S + i * MS, "/bin/brief", 7);
		id = i % 10 ? 0 : sample(tgid, 50 * S + i * MS);
		assert_true(id >= 0);
		process_exit(t, now += MS, tgid, tgid);
		if (i % 30 == 0)
			tick(0);
	}
	assert_int_equal(fake_count_of(FAKE_HOLD), 2);
	fake_cancel_all();
	tick(3 * S);
	live = mem_live_bytes(MEM_PROCESS);
	assert_int_equal(stats().live, 1); /* the parent */
	assert_int_equal(stats().ended, 0);
	assert_int_equal(stats().records, 300);
	print_message("300 records and what else is kept: %zu bytes\n", live);
	assert_true(live < 300 * 100 + 16384);
}

static void process__file_gone__tried_again_by_a_later_process(void **state)
{
	const struct helpers_result fine = {.dev = 1, .ino = 2};
	int32_t file;

	(void)state;
	do_exec(100, 50 * S, "/bin/flash", 7);
	file = place(sample(100, 50 * S), TEXT).file;
	fake_fail(&fake_requests[0], -ENOENT, FLY_UNNAMED_FILE_GONE);
	assert_int_equal(process_file_get(t, file)->state, PROCESS_FILE_FAILED);
	assert_int_equal(process_file_get(t, file)->unnamed, FLY_UNNAMED_FILE_GONE);
	process_exit(t, now += MS, 100, 100);
	now += 20 * MS;
	do_exec(101, 51 * S, "/bin/flash", 7);
	assert_int_equal(process_file_get(t, file)->state, PROCESS_FILE_UNSEEN);
	assert_int_equal(fake_last(FAKE_HOLD, 101)->file.tgid, 101);
	fake_answer(fake_last(FAKE_HOLD, 101), &fine);
	process_file_want(t, file);
	process_file_want(t, file);
	assert_int_equal(fake_count_of(FAKE_INSPECT), 1);
	assert_int_equal(process_file_get(t, file)->state, PROCESS_FILE_ASKED);
	fake_fail(fake_last(FAKE_INSPECT, 0), -EBADMSG, FLY_UNNAMED_FILE_INVALID);
	assert_int_equal(process_file_get(t, file)->unnamed, FLY_UNNAMED_FILE_INVALID);
}

static void process__busy_helpers__asked_later(void **state)
{
	int32_t file;

	(void)state;
	fake_error = -EAGAIN;
	do_exec(100, 50 * S, "/bin/a", 7);
	file = place(sample(100, 50 * S), TEXT).file;
	process_file_want(t, file);
	sample(300, 50 * S);
	assert_int_equal(fake_count, 0);
	tick(100 * MS);
	assert_int_equal(fake_count, 0);
	fake_error = 0;
	tick(100 * MS);
	assert_int_equal(fake_count_of(FAKE_HOLD), 2);
	assert_int_equal(fake_count_of(FAKE_INSPECT), 1);
	assert_non_null(fake_last(FAKE_SCAN, 300));
}

static void process__no_files__nothing_is_opened(void **state)
{
	struct process_options options = {.helpers = fake_helpers(), .no_files = true};
	struct process_tracker *other = t;
	int32_t file;

	(void)state;
	assert_int_equal(process_tracker_new(&options, &t), 0);
	do_exec(100, 50 * S, "/bin/a", 7);
	file = place(sample(100, 50 * S), TEXT).file;
	process_file_want(t, file);
	assert_int_equal(process_file_get(t, file)->unnamed, FLY_UNNAMED_NOT_ASKED);
	assert_int_equal(fake_count_of(FAKE_HOLD) + fake_count_of(FAKE_INSPECT), 0);
	fake_cancel_all();
	process_tracker_free(t);
	t = other;
}

/* ---------------------------------------------------------------- scans */
static void process__ran_before_us__scanned_at_first_sample(void **state)
{
	struct helpers_scan scan = scan_of(100, 50 * S + 3 * MS);
	int64_t id = sample(100, 50 * S + 3 * MS);

	(void)state;
	assert_false(process_is_settled(t, id));
	assert_string_equal(path_at(id, TEXT), "unknown");
	assert_int_equal(fake_count_of(FAKE_SCAN), 1);
	fake_answer_scan(fake_last(FAKE_SCAN, 100), &scan);
	assert_true(process_is_settled(t, id));
	assert_int_equal(fake_count_of(FAKE_HOLD), 0); /* not before a frame lies in it */
	assert_string_equal(path_at(id, TEXT + 5), "/bin/old");
	assert_int_equal(fake_count_of(FAKE_HOLD), 1);
	assert_int_equal(fake_requests[1].file.ino, 9);
	assert_string_equal(path_at(id, LIB + 0x200000), "anonymous");
	assert_string_equal(info(id).comm, "leader");
	assert_string_equal(info(id).container, HEX);
	assert_string_equal(info(id).cgroup, "/docker/" HEX);
	assert_string_equal(info(id).exe, "/bin/old");
	assert_int_equal(info(id).start_ns, 50 * S + 3 * MS);
}

static void process__scan_late__samples_wait_no_longer(void **state)
{
	int64_t id = sample(100, 50 * S);

	(void)state;
	assert_false(process_is_settled(t, id));
	tick(201 * MS);
	assert_true(process_is_settled(t, id));
}

static void process__scan_of_another_start__is_dropped(void **state)
{
	struct helpers_scan scan = scan_of(100, 58 * S);
	int64_t id = sample(100, 50 * S);

	(void)state;
	fake_answer_scan(fake_last(FAKE_SCAN, 100), &scan);
	assert_string_equal(path_at(id, TEXT), "unknown");
	assert_true(process_is_settled(t, id) || fake_last(FAKE_SCAN, 100));
}

static void process__exec_while_scanned__answer_is_not_believed(void **state)
{
	struct helpers_scan scan = scan_of(100, 50 * S);
	int64_t before = sample(100, 50 * S), after;

	(void)state;
	do_exec(100, 50 * S, "/bin/new", 3);
	after = sample(100, 50 * S);
	fake_answer_scan(&fake_requests[0], &scan);
	assert_string_equal(path_at(before, TEXT), "unknown");
	assert_string_equal(path_at(after, TEXT), "/bin/new");
	assert_true(process_is_settled(t, before));
}

static void process__mapped_while_scanned__survives(void **state)
{
	struct helpers_scan scan = scan_of(100, 50 * S);
	int64_t id = sample(100, 50 * S);

	(void)state;
	do_map(100, LIB, "/lib/new.so", 4);
	do_map(100, LIB + 0x900000, "/lib/plug.so", 5);
	fake_answer_scan(fake_last(FAKE_SCAN, 100), &scan);
	assert_string_equal(path_at(id, LIB), "/lib/new.so");
	assert_string_equal(path_at(id, LIB + 0x900000), "/lib/plug.so");
	assert_string_equal(path_at(id, TEXT), "/bin/old");
	/* The next scan knows that both are gone. */
	tick(1100 * MS);
	sample(100, 50 * S);
	tick(100 * MS);
	fake_answer_scan(fake_last(FAKE_SCAN, 100), &scan);
	assert_string_equal(path_at(id, LIB), "/lib/c");
	assert_string_equal(path_at(id, LIB + 0x900000), "unknown");
}

static void process__rescan__keeps_the_side_bands_file(void **state)
{
	const struct helpers_mapping mappings[] = {
		{.start = TEXT,
		 .end = TEXT + 0x10000,
		 .pgoff = 0x1000,
		 .ino = 7,
		 .path = "/mnt/bin/a"},
		{.start = LIB,
		 .end = LIB + 0x10000,
		 .pgoff = 0x1000,
		 .ino = 8,
		 .path = "/lib/ld.so"},
	};
	struct helpers_scan scan = scan_of(100, 50 * S);
	int32_t file;
	int64_t id;

	(void)state;
	scan.mappings = mappings;
	scan.mapping_count = 2;
	do_exec(100, 50 * S, "/bin/a", 1); /* chrooted below /mnt */
	id = sample(100, 50 * S);
	fake_cancel_all();
	file = place(id, TEXT).file;
	assert_string_equal(path_at(id, LIB + 0x800000), "unknown");
	tick(60 * MS);
	path_at(id, LIB + 0x800000);
	assert_non_null(fake_last(FAKE_SCAN, 100));
	fake_answer_scan(fake_last(FAKE_SCAN, 100), &scan);
	assert_int_equal(place(id, TEXT).file, file);
	assert_int_equal(process_file_count(t), 3);
}

static void process__unplaced_frames__rescan_ever_more_rarely(void **state)
{
	int64_t id;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	id = sample(100, 50 * S);
	fake_cancel_all();
	for (int i = 0; i < 300; i++) { /* 30 s, garbage each time */
		struct helpers_scan scan = scan_of(100, 50 * S);
		struct fake_request *r;

		path_at(id, 0x1234);
		r = fake_last(FAKE_SCAN, 100);
		if (r) {
			assert_false(process_is_settled(t, id));
			fake_answer_scan(r, &scan);
		}
		tick(100 * MS);
	}
	print_message("30 s of garbage: %zu scans\n", fake_count_of(FAKE_SCAN));
	assert_true(fake_count_of(FAKE_SCAN) <= 8);
}

static void process__children_of_unknown_parent__share_its_scan(void **state)
{
	struct helpers_scan scan = scan_of(50, 40 * S);
	int64_t first, second;

	(void)state;
	do_fork(50, 100); /* a server that ran before us, never sampled */
	assert_non_null(fake_last(FAKE_SCAN, 50));
	first = sample(100, 60 * S);
	assert_false(process_is_settled(t, first));
	fake_answer_scan(fake_last(FAKE_SCAN, 50), &scan);
	assert_true(process_is_settled(t, first) || fake_last(FAKE_SCAN, 100));
	assert_string_equal(path_at(first, TEXT), "/bin/old");
	/* opened where it is mapped for longer: a child may be gone at once */
	assert_non_null(fake_last(FAKE_HOLD, 50));
	assert_null(fake_last(FAKE_HOLD, 100));
	assert_string_equal(info(first).container, HEX);
	do_fork(50, 101);
	second = sample(101, 61 * S);
	assert_string_equal(path_at(second, TEXT), "/bin/old");
	assert_true(process_is_settled(t, second));
	assert_null(fake_last(FAKE_SCAN, 101));
	assert_string_equal(info(second).container, HEX);
}

static void process__records_lost__sampled_are_scanned(void **state)
{
	int64_t id;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	do_exec(200, 51 * S, "/bin/b", 2);
	id = sample(100, 50 * S);
	fake_cancel_all();
	process_lost(t, now += MS);
	tick(100 * MS);
	assert_non_null(fake_last(FAKE_SCAN, 100));
	assert_null(fake_last(FAKE_SCAN, 200));
	assert_string_equal(path_at(id, TEXT), "/bin/a"); /* still the best there is */
	sample(200, 51 * S);				  /* stale: asked at its first sample */
	assert_non_null(fake_last(FAKE_SCAN, 200));
	/* Neither is in the (empty) /proc: they go when nothing is heard of them. */
	fake_cancel_all();
	tick(2 * S);
	tick(3 * S);
	assert_int_equal(stats().live, 0);
}

static void process__scan_says_gone__ends_after_silence(void **state)
{
	int64_t id = sample(100, 50 * S);

	(void)state;
	fake_fail(fake_last(FAKE_SCAN, 100), -ESRCH, FLY_UNNAMED_FILE_GONE);
	assert_true(process_is_settled(t, id));
	assert_int_equal(stats().live, 1);
	tick(2500 * MS);
	assert_int_equal(stats().live, 0);
}

static void process__v2_cgroup__asked_once_for_all(void **state)
{
	struct helpers_scan scan = scan_of(100, 50 * S);
	int64_t a, b, c;

	(void)state;
	scan.cgroup = "0::/pods/cri-containerd-" HEX ".scope\n";
	do_exec(100, 50 * S, "/bin/a", 1);
	do_exec(101, 51 * S, "/bin/a", 1);
	a = sample(100, 50 * S);
	b = sample(101, 51 * S);
	assert_int_equal(fake_count_of(FAKE_SCAN), 1);
	fake_answer_scan(fake_last(FAKE_SCAN, 100), &scan);
	b = sample(101, 51 * S);
	do_exec(102, 52 * S, "/bin/a", 1);
	c = sample(102, 52 * S);
	assert_int_equal(fake_count_of(FAKE_SCAN), 1);
	assert_string_equal(info(a).container, HEX);
	assert_string_equal(info(b).container, HEX);
	assert_string_equal(info(c).container, HEX);
	/* Moved to another cgroup: asked again. */
	process_of_sample(t, now += MS, 102, 52 * S, 6, "x");
	assert_int_equal(fake_count_of(FAKE_SCAN), 2);
}

static void process__v2_cgroup__known_for_those_that_ended_before(void **state)
{
	struct helpers_scan scan = scan_of(101, 51 * S);
	int64_t a, b;

	(void)state;
	scan.cgroup = "0::/pods/cri-containerd-" HEX ".scope\n";
	do_exec(100, 50 * S, "/bin/a", 1);
	a = sample(100, 50 * S);
	process_exit(t, now += MS, 100, 100);
	fake_cancel_all(); /* it did not live to answer */
	assert_string_equal(info(a).container, "");
	tick(5 * S);
	do_exec(101, 51 * S, "/bin/a", 1);
	b = sample(101, 51 * S);
	fake_answer_scan(fake_last(FAKE_SCAN, 101), &scan);
	assert_string_equal(info(b).container, HEX);
	assert_string_equal(info(a).container, HEX);
	assert_string_equal(info(a).cgroup, "/pods/cri-containerd-" HEX ".scope");
}

static void process__want_scan_and_scan_all__ask(void **state)
{
	struct process_tracker *other;
	struct process_options real = {.helpers = fake_helpers()};
	struct process_options nowhere = {.helpers = fake_helpers(), .proc = "/nonexistent"};

	(void)state;
	process_want_scan(t, 4242);
	assert_non_null(fake_last(FAKE_SCAN, 4242));
	assert_int_equal(process_tracker_new(&real, &other), 0);
	assert_int_equal(process_scan_all(other), 0);
	process_tick(other, now);
	assert_non_null(fake_last(FAKE_SCAN, (uint32_t)getpid()) || fake_count > 60 ? t : NULL);
	process_tracker_free(other); /* with requests under way */
	assert_int_equal(process_tracker_new(&nowhere, &other), 0);
	assert_int_equal(process_scan_all(other), -ENOENT);
	process_tracker_free(other);
}

static void process__same_inode_and_content__one_file(void **state)
{
	struct helpers_scan scan = scan_of(100, 50 * S);
	struct elf_info elf = {.build_id_len = 20, .file_bytes = 1000};
	const struct helpers_result result = {.info = &elf, .dev = 3, .ino = 9};
	int32_t scanned, mapped;

	(void)state;
	memset(elf.build_id, 7, 20);
	scanned = -1;
	sample(100, 50 * S);
	fake_answer_scan(fake_last(FAKE_SCAN, 100), &scan);
	scanned = place(sample(100, 50 * S), TEXT).file;
	do_exec(200, 51 * S, "/bin/old", 7);
	mapped = place(sample(200, 51 * S), TEXT).file;
	assert_true(scanned != mapped);
	process_file_want(t, scanned);
	fake_answer(fake_last(FAKE_INSPECT, 0), &result);
	process_file_want(t, mapped);
	fake_answer(fake_last(FAKE_INSPECT, 0), &result);
	assert_int_equal(process_file_get(t, scanned)->state, PROCESS_FILE_READY);
	assert_int_equal(process_file_get(t, scanned)->same_as, scanned);
	assert_int_equal(process_file_get(t, mapped)->same_as, scanned);
	assert_int_equal(process_file_get(t, -1)->same_as, -1);
}

/* ---------------------------------------------------------------- bounds */
static void process__too_many__least_recently_used_go(void **state)
{
	int64_t id;

	(void)state;
	do_exec(1, 1 * S, "/bin/init", 1);
	for (uint32_t i = 0; i < PROCESS_MAX + 2000; i++) {
		do_fork(1, 10 + i);
		if (i % 1000 == 0)
			tick(2 * S);
	}
	assert_int_equal(stats().live, PROCESS_MAX);
	assert_int_equal(stats().evicted, 2001);
	assert_true(stats().ended <= 8192);
	id = sample(1, 1 * S); /* touched by each fork */
	assert_string_equal(path_at(id, TEXT), "/bin/init");
	id = sample(10, 99 * S); /* evicted, but it lives: made anew */
	assert_true(id >= 0);
}

static void process__too_many_files__unsampled_make_room(void **state)
{
	char path[64];
	int64_t id;
	int32_t kept;

	(void)state;
	do_exec(100, 50 * S, "/bin/a", 1);
	id = sample(100, 50 * S);
	kept = place(id, TEXT).file;
	for (int i = 0; i < 20000; i++) {
		snprintf(path, sizeof(path), "/tmp/x%d", i);
		do_map(100, LIB + 0x1000000, path, 9); /* one address: only the last is mapped */
		tick(MS);
		if (fake_last(FAKE_HOLD, 0))
			fake_fail(fake_last(FAKE_HOLD, 0), -ENOENT, FLY_UNNAMED_FILE_GONE);
	}
	assert_true(process_file_count(t) <= 16384);
	assert_string_equal(path_at(id, LIB + 0x1000000), "/tmp/x19999");
	assert_int_equal(place(id, TEXT).file, kept);
	assert_true(fake_released > 1000);
}

/* ---------------------------------------------------------------- torture */
static void scenario(void)
{
	struct helpers_scan scan = scan_of(100, 50 * S);
	int64_t id;

	do_fork(100, 200);
	do_exec(200, 60 * S, "/bin/a", 1);
	process_fork(t, now += MS, 200, 200, 201);
	id = sample(200, 60 * S);
	path_at(id, TEXT);
	path_at(id, 0x99);
	sample(100, 50 * S);
	for (struct fake_request *r; (r = fake_last(FAKE_SCAN, 100));)
		fake_answer_scan(r, &scan);
	id = sample(100, 50 * S);
	path_at(id, TEXT);
	for (uint64_t i = 0; i < 40; i++)
		do_map(100, LIB + 0x1000000 + i * 0x8000, "/lib/x", 4);
	path_at(id, LIB);
	process_lost(t, now += MS);
	do_exec(200, 60 * S, "/bin/b", 2);
	id = sample(200, 60 * S);
	if (place(id, TEXT).file >= 0)
		process_file_want(t, place(id, TEXT).file);
	tick(100 * MS);
	process_exit(t, now += MS, 200, 201);
	process_exit(t, now += MS, 200, 200);
	tick(2 * S);
	while (fake_last(FAKE_SCAN, 0))
		fake_fail(fake_last(FAKE_SCAN, 0), -ESRCH, 0);
	tick(3 * S);
	sample(200, 61 * S);
}

static void process__each_allocation_fails_once__nothing_breaks(void **state)
{
	struct process_options options = {.helpers = fake_helpers(), .proc = proc_dir};

	(void)state;
	teardown(NULL);
	for (unsigned long n = 1; n < 400; n++) {
		fake_reset();
		now = 1000 * S;
		t = NULL;
		mem_fail_after(n);
		if (!process_tracker_new(&options, &t)) {
			scenario();
			mem_fail_after(0);
			if (n & 1)
				fake_cancel_all();
			process_tracker_free(t);
			fake_cancel_all(); /* after it, too */
		}
		mem_fail_after(0);
		assert_int_equal(mem_live_bytes(MEM_PROCESS), 0);
	}
	setup(NULL);
}

/* Any order of any event: no crash, no leak, ids stay good. */
static void process__random_events__stay_sound(void **state)
{
	(void)state;
	srand(4711);
	for (int i = 0; i < 60000; i++) {
		uint32_t tgid = (uint32_t)(rand() % 12), other = (uint32_t)(rand() % 12);
		uint64_t start = (uint64_t)(50 + rand() % 3) * S;
		struct helpers_scan scan = scan_of(tgid, start);
		struct fake_request *r = fake_last(FAKE_SCAN, 0);
		int64_t id;

		switch (rand() % 12) {
		case 0:
			process_fork(t, now += MS, other, tgid, rand() % 2 ? tgid : tgid + 100);
			break;
		case 1:
			process_exit(t, now += MS, tgid, rand() % 2 ? tgid : tgid + 100);
			break;
		case 2:
			do_exec(tgid, start, "/bin/a", (uint8_t)(rand() % 4));
			break;
		case 3:
			process_comm(t, now += MS, tgid, tgid, "c", rand() % 2);
			break;
		case 4:
			do_exec_record(tgid, start, 3, (uint32_t)(rand() % 3));
			break;
		case 5:
			do_map(tgid, TEXT + (uint64_t)(rand() % 40) * 0x8000, "/lib/y",
			       (uint8_t)(rand() % 3));
			break;
		case 6:
			if (r)
				fake_answer_scan(r, &scan);
			break;
		case 7:
			if (r)
				fake_fail(r, -ESRCH, FLY_UNNAMED_FILE_GONE);
			break;
		case 8:
			tick((uint64_t)(rand() % 1000) * MS);
			break;
		case 9:
			if (rand() % 50 == 0)
				process_lost(t, now += MS);
			if (fake_count > FAKE_MAX / 2) {
				fake_cancel_all();
				fake_reset();
			}
			break;
		default:
			id = sample(tgid, start);
			assert_true(id >= 0);
			assert_int_equal(info(id).tgid, tgid);
			path_at(id, TEXT + (uint64_t)(rand() % 40) * 0x8000);
			path_at(rand() % (id + 1), TEXT);
			process_is_settled(t, id);
		}
	}
	assert_true(stats().live <= 12);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(process__young_program__placed_without_scan),
		CASE(process__exec_back_and_forth__never_mixes),
		CASE(process__exec_under_way__knows_no_old_program),
		CASE(process__exec_record_lost__paths_are_read_all_the_same),
		CASE(process__fork__shares_until_changed),
		CASE(process__leader_exits_first__threads_go_on),
		CASE(process__other_thread_executes__one_thread_is_left),
		CASE(process__unknown_threads__leader_exit_waits_for_silence),
		CASE(process__tgid_used_again__is_another),
		CASE(process__comm__is_the_leaders),
		CASE(process__same_address_again__newest_wins),
		CASE(process__paths__told_apart),
		CASE(process__one_path_two_views__two_files),
		CASE(process__churn_of_one_program__asks_once),
		CASE(process__file_gone__tried_again_by_a_later_process),
		CASE(process__busy_helpers__asked_later),
		CASE(process__no_files__nothing_is_opened),
		CASE(process__ran_before_us__scanned_at_first_sample),
		CASE(process__scan_late__samples_wait_no_longer),
		CASE(process__scan_of_another_start__is_dropped),
		CASE(process__exec_while_scanned__answer_is_not_believed),
		CASE(process__mapped_while_scanned__survives),
		CASE(process__rescan__keeps_the_side_bands_file),
		CASE(process__unplaced_frames__rescan_ever_more_rarely),
		CASE(process__children_of_unknown_parent__share_its_scan),
		CASE(process__records_lost__sampled_are_scanned),
		CASE(process__scan_says_gone__ends_after_silence),
		CASE(process__v2_cgroup__asked_once_for_all),
		CASE(process__v2_cgroup__known_for_those_that_ended_before),
		CASE(process__want_scan_and_scan_all__ask),
		CASE(process__same_inode_and_content__one_file),
		CASE(process__too_many__least_recently_used_go),
		CASE(process__too_many_files__unsampled_make_room),
		CASE(process__each_allocation_fails_once__nothing_breaks),
		CASE(process__random_events__stay_sound),
	};
	int failed;

	if (!mkdtemp(proc_dir))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(proc_dir);
	return failed;
}
