// SPDX-License-Identifier: Apache-2.0
/* From what the kernel says of processes to what the walker reads, over made-up kernel memory. */
#include "agent/unwinding.h"

#include "abi/reasons.h"
#include "fake_helpers.h"
#include "tables_fixture.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MS   1000000ULL
#define S    (1000 * MS)
#define TEXT 0x400000ULL
#define LIB  0x7f0000000000ULL
#define VDSO 0x7ffff7fc0000ULL

#define FILE_BYTES 0x20000
#define MTIME	   (1700 * S)
#define FIRST_INO  1 /* inodes are the files' keys here */

static struct fixture fixture;
static struct process_tracker *tracker;
static struct unwinding *u;
static struct unwind_table *table;
static uint64_t now;

static int setup(void **state)
{
	struct unwinding_options options = {.helpers = fake_helpers()};
	struct process_options process = {.helpers = fake_helpers(), .changed = unwinding_changed};
	struct tables_options unused = {.bytes_max = FLY_SEGMENT_BYTES};

	(void)state;
	fake_reset();
	now = 1000 * S;
	fixture_open(&fixture, &unused);
	tables_free(fixture.tables);
	options.tables = (struct tables_options){.calls = fixture_calls(&fixture),
						 .published = fixture.published,
						 .bytes_max = 4 * FLY_SEGMENT_BYTES};
	assert_int_equal(unwinding_new(&options, &u), 0);
	process.changed_ctx = u;
	assert_int_equal(process_tracker_new(&process, &tracker), 0);
	unwinding_follow(u, tracker);
	unwinding_step(u, now);
	table = fixture_table(3, 20, 40);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_cancel_all();
	process_tracker_free(tracker);
	unwinding_free(u);
	fixture.tables = NULL;
	fixture_close(&fixture);
	fixture_table_free(table);
	return mem_live_bytes(MEM_AGENT) || mem_live_bytes(MEM_TABLES) ? -1 : 0;
}

/* ---------------------------------------------------------------- words */
static void step(uint64_t later_ns)
{
	now += later_ns;
	process_tick(tracker, now);
	unwinding_step(u, now);
}

static void map_at(uint32_t tgid, uint64_t start, const char *path, uint8_t id)
{
	struct process_mmap m = {.start = start,
				 .bytes = 0x10000,
				 .pgoff = id ? 0x1000 : 0,
				 .path = path,
				 .build_id_len = id ? 20 : 0};

	memset(m.build_id, id, sizeof(m.build_id));
	process_map(tracker, now += 10000, tgid, &m);
}

static void exec_program(uint32_t tgid, uint64_t start_ns, const char *path, uint8_t id)
{
	struct process_exec e = {.process_start_ns = start_ns,
				 .exe_dev = 8 << 20,
				 .exe_ino = id,
				 .root_ino = 2,
				 .mount_namespace = 1,
				 .comm = "exec"};

	process_comm(tracker, now += MS, tgid, tgid, "prog", true);
	map_at(tgid, TEXT, path, id);
	map_at(tgid, VDSO, "[vdso]", 0);
	process_exec(tracker, now += 10000, tgid, &e);
}

/* Of a program whose text lies at the linker's 0x201000, 0x1000 in the file. */
static void answer_inspections(void)
{
	struct elf_info info = {
		.machine = EM_X86_64,
		.class64 = 1,
		.file_bytes = FILE_BYTES,
		.segment_count = 1,
		.segments[0] = {.offset = 0x1100, .vaddr = 0x201100, .file_bytes = 0xf000}};
	struct helpers_result result = {.info = &info};
	struct fake_request *r;

	while ((r = fake_last(FAKE_INSPECT, 0))) {
		info.htlhash[0] = (uint8_t)r->file.key;
		info.build_id_len = r->file.build_id_len;
		memcpy(info.build_id, r->file.build_id, info.build_id_len);
		result.ino = r->file.key;
		result.mtime_ns = MTIME;
		result.is_layered = !strncmp(r->path, "/layered/", 9);
		fake_answer(r, &result);
	}
}

static const struct fly_mapping *mapping_at(uint32_t tgid, uint64_t address)
{
	const struct fly_process *p = &fixture.processes[tgid];
	const struct fly_mapping *m = p->count ? fixture_mappings(&fixture, p) : NULL;

	for (uint32_t i = 0; i < p->count; i++) {
		if (address >= fly_mapping_start(&m[i]) &&
		    address < fly_mapping_start(&m[i]) + fly_mapping_bytes(&m[i]))
			return &m[i];
	}
	return NULL;
}

static void sample(uint32_t tgid, uint64_t start_ns, uint32_t cut, uint32_t detail)
{
	bool is_untracked = cut == 1u << FLY_CUT_PROCESS_NOT_TRACKED;
	struct fly_sample s = {.tgid = tgid,
			       .process_start_ns = start_ns,
			       .user_frames = 1,
			       .cut = cut,
			       .detail = detail,
			       .state = is_untracked ? 0 : FLY_STATE_TABLES};
	struct process_place place;
	int64_t id;

	now += MS;
	id = process_of_sample(tracker, now, tgid, start_ns, 5, "thread");
	unwinding_sample(u, &s);
	process_place(tracker, id, TEXT + 0x100, &place);
	if (place.file >= 0)
		unwinding_frame(u, place.file, place.file_offset);
}

static struct fake_request *table_request(const char *path)
{
	struct fake_request *r = fake_last(FAKE_TABLE, 0);

	assert_non_null(r);
	assert_string_equal(r->path, path);
	return r;
}

static void answer_table(const char *path, const struct unwind_table *with, uint8_t hash)
{
	struct helpers_table made = {.table = *with, .hash = {hash}};
	struct helpers_result result = {.table = &made};

	fake_answer(table_request(path), &result);
}

static struct unwinding_stats stats(void)
{
	struct unwinding_stats s;

	unwinding_stats_get(u, &s);
	return s;
}

/* ---------------------------------------------------------------- cases */
static void unwinding__program_executed__known_before_its_first_sample(void **state)
{
	const struct fly_mapping *m;

	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	step(0);
	assert_int_equal(fixture.processes[7].count, 2);
	assert_int_equal(fixture.processes[7].start_ns, 70);
	/* Its file has to be looked at first. */
	assert_int_equal(fly_mapping_table(mapping_at(7, TEXT)), FLY_TABLE_NONE);
	assert_true(fly_mapping_table(mapping_at(7, VDSO)) != FLY_TABLE_NONE);
	answer_inspections();
	step(0);
	m = mapping_at(7, TEXT);
	assert_true(fly_mapping_table(m) != FLY_TABLE_NONE);
	assert_int_equal(TEXT - fly_mapping_bias(m), 0x201000);
	assert_int_equal(fixture.published[fly_mapping_table(m)].pages, 0);
	/* Nothing is made before it is of use. */
	assert_null(fake_last(FAKE_TABLE, 0));
	sample(7, 70, 1u << FLY_CUT_TABLE_ABSENT, 0);
	step(0);
	answer_table("/bin/a", table, 1);
	step(0);
	assert_int_equal(
		fixture_compare(&fixture, &fixture.published[fly_mapping_table(m)], table, NULL),
		0);
	/* What else it maps was wanted too: the vDSO. */
	answer_table("[vdso]", table, 2);
	step(0);
	assert_int_equal(stats().tables.held, 2);
	assert_null(fake_last(FAKE_TABLE, 0));
}

static void unwinding__library_loaded__entered_in_one_step(void **state)
{
	uint32_t at;

	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	step(0);
	for (uint32_t i = 0; i < 30; i++)
		map_at(7, LIB + i * 0x100000ULL, "/lib/b.so", (uint8_t)(10 + i));
	at = fixture.processes[7].at;
	step(MS);
	assert_int_equal(fixture.processes[7].count, 32);
	assert_int_not_equal(fixture.processes[7].at, at);
	answer_inspections();
	step(100 * MS);
	for (uint32_t i = 0; i < 30; i++)
		assert_true(fly_mapping_table(mapping_at(7, LIB + i * 0x100000ULL)));
}

static uint64_t identity_at(uint32_t tgid, uint64_t address)
{
	const struct fly_mapping *m = mapping_at(tgid, address);

	assert_non_null(m);
	return m->identity;
}

static void replaced_sample(uint32_t tgid, uint64_t start_ns)
{
	struct fly_sample s = {.tgid = tgid,
			       .process_start_ns = start_ns,
			       .user_frames = 1,
			       .state = FLY_STATE_TABLES | FLY_STATE_REPLACED};

	s.time_ns = now += MS;
	process_of_sample(tracker, now, tgid, start_ns, 5, "thread");
	unwinding_sample(u, &s);
	step(MS);
}

/* What the walk finds in the kernel is compared with this. */
static void unwinding__mappings__say_whose_they_are(void **state)
{
	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	map_at(7, LIB, "/layered/b.so", 2);
	map_at(7, LIB + 0x100000, "//anon", 0);
	step(0);
	assert_int_equal(identity_at(7, TEXT), FLY_IDENTITY_UNKNOWN);
	assert_int_equal(identity_at(7, LIB + 0x100000), FLY_IDENTITY_ANONYMOUS);
	assert_int_equal(identity_at(7, VDSO), fly_identity_make(0, 0, FLY_VDSO_INO, VDSO));
	answer_inspections();
	step(0);
	assert_int_equal(identity_at(7, TEXT),
			 fly_identity_make(FILE_BYTES, MTIME, FIRST_INO, TEXT - 0x1000));
	assert_int_equal(identity_at(7, LIB),
			 fly_identity_make(FILE_BYTES, MTIME, 0, LIB - 0x1000));
}

/* A file that was touched stays another for the kernel; one just replaced is soon known. */
static void unwinding__lasting_mismatch__our_word_is_taken(void **state)
{
	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	step(0);
	answer_inspections();
	step(0);
	replaced_sample(7, 70);
	assert_int_not_equal(identity_at(7, TEXT), FLY_IDENTITY_UNKNOWN);
	step(2 * S);
	map_at(7, LIB, "/lib/b.so", 2);
	replaced_sample(7, 70);
	assert_int_not_equal(identity_at(7, TEXT), FLY_IDENTITY_UNKNOWN);
	step(2 * S);
	replaced_sample(7, 70);
	assert_int_equal(identity_at(7, TEXT), FLY_IDENTITY_UNKNOWN);
	/* of that program alone */
	exec_program(7, 70, "/bin/a", 1);
	step(0);
	assert_int_not_equal(identity_at(7, TEXT), FLY_IDENTITY_UNKNOWN);
}

static void unwinding__ran_before__entered_at_its_first_sample(void **state)
{
	struct helpers_mapping m = {.start = TEXT,
				    .end = TEXT + 0x10000,
				    .pgoff = 0x1000,
				    .ino = 5,
				    .path = "/bin/old"};
	struct helpers_scan scan = {.tgid = 9,
				    .process_start_ns = 90,
				    .comm = "old",
				    .exe = "/bin/old",
				    .cgroup = "",
				    .mount_namespace = 1,
				    .mapping_count = 1,
				    .mappings = &m};

	(void)state;
	sample(9, 90, 1u << FLY_CUT_PROCESS_NOT_TRACKED, 0);
	step(0);
	assert_int_equal(fixture.processes[9].count, 0);
	fake_answer_scan(fake_last(FAKE_SCAN, 9), &scan);
	step(MS);
	answer_inspections();
	step(MS);
	assert_int_equal(fixture.processes[9].count, 1);
	assert_int_equal(fixture.processes[9].start_ns, 90);
	assert_true(fly_mapping_table(mapping_at(9, TEXT)) != FLY_TABLE_NONE);
}

static void unwinding__end__entry_goes_after_the_last_tick(void **state)
{
	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	step(0);
	process_exit(tracker, now, 7, 7);
	step(10 * MS);
	assert_int_equal(fixture.processes[7].count, 2);
	step(100 * MS);
	assert_int_equal(fixture.processes[7].count, 0);
	/* A tgid that is used again at once stays. */
	exec_program(7, 71, "/bin/a", 1);
	step(0);
	process_exit(tracker, now, 7, 7);
	process_fork(tracker, now, 1, 7, 7);
	exec_program(7, 72, "/bin/a", 1);
	step(200 * MS);
	assert_int_equal(fixture.processes[7].start_ns, 72);
}

static void unwinding__another_program_executed__its_mappings_alone(void **state)
{
	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	map_at(7, LIB, "/lib/b.so", 11);
	sample(7, 70, 0, 0);
	step(0);
	assert_non_null(mapping_at(7, LIB));
	exec_program(7, 70, "/bin/c", 2);
	step(0);
	assert_null(mapping_at(7, LIB));
	assert_int_equal(fixture.processes[7].count, 2);
}

static void unwinding__code_without_a_file__by_frame_pointers(void **state)
{
	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	for (uint64_t i = 0; i < 5000; i++)
		map_at(7, LIB + i * 0x10000, "//anon", 0);
	step(0);
	/* What follows on each other is one. */
	assert_int_equal(fixture.processes[7].count, 3);
	assert_int_equal(fly_mapping_table(mapping_at(7, LIB + 4999 * 0x10000)),
			 FLY_TABLE_FRAME_POINTERS);
}

static void unwinding__60000_mappings__the_sampled_stay(void **state)
{
	struct process_place place;
	int64_t id;

	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	for (uint64_t i = 0; i < 60000; i++)
		map_at(7, LIB + i * 0x20000, "//anon", 0);
	id = process_of_sample(tracker, now, 7, 70, 5, "thread");
	for (uint64_t i = 0; i < 60000; i += 60)
		process_place(tracker, id, LIB + i * 0x20000, &place);
	step(0);
	assert_int_equal(fixture.processes[7].count, FLY_MAPPINGS_MAX);
	for (uint64_t i = 0; i < 60000; i += 60)
		assert_non_null(mapping_at(7, LIB + i * 0x20000));
	assert_non_null(mapping_at(7, TEXT)); /* files go before anonymous memory */
	assert_true(stats().mappings_left > 55000);
}

static void unwinding__refusals__by_what_is_wrong(void **state)
{
	static const struct {
		int err;
		uint32_t unnamed;
		enum tables_refusal refusal;
	} cases[] = {
		{-ENOENT, FLY_UNNAMED_FILE_INVALID, TABLES_REFUSED_NO_CFI},
		{-ENOENT, FLY_UNNAMED_FILE_GONE, TABLES_REFUSED_UNREADABLE},
		{-ENOSPC, FLY_UNNAMED_FILE_INVALID, TABLES_REFUSED_TOO_LARGE},
		{-EBADMSG, FLY_UNNAMED_FILE_INVALID, TABLES_REFUSED_DAMAGED},
		{-ERANGE, FLY_UNNAMED_FILE_INVALID, TABLES_REFUSED_DAMAGED},
		{-EOPNOTSUPP, FLY_UNNAMED_FILE_INVALID, TABLES_REFUSED_UNSUPPORTED},
		{-ETIMEDOUT, FLY_UNNAMED_READ_TIMEOUT, TABLES_REFUSED_UNREADABLE},
	};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t tgid = 10 + i, before;

		before = stats().tables.refused[cases[i].refusal];
		exec_program(tgid, 100 + i, "/bin/x", (uint8_t)(20 + i));
		step(0);
		answer_inspections();
		step(0);
		sample(tgid, 100 + i, 0, 0);
		step(0);
		fake_fail(table_request("/bin/x"), cases[i].err, cases[i].unnamed);
		assert_int_equal(stats().tables.refused[cases[i].refusal], before + 1);
		step(0);
	}
}

static void unwinding__helpers_busy__asked_again(void **state)
{
	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	step(0);
	answer_inspections();
	step(0);
	sample(7, 70, 0, 0);
	fake_error = -EAGAIN;
	step(MS);
	assert_null(fake_last(FAKE_TABLE, 0));
	fake_error = 0;
	step(100 * MS);
	answer_table("/bin/a", table, 1);
	step(0);
	assert_int_equal(stats().tables.held, 1);
}

static void unwinding__many_large_files__paced(void **state)
{
	uint64_t begin = now, tables = 0;

	(void)state;
	table->info_bytes = 20 << 20; /* 0.2 s each */
	for (uint32_t i = 0; i < 60; i++) {
		exec_program(100 + i, 100 + i, "/bin/x", (uint8_t)(1 + i));
		step(0);
		answer_inspections();
		step(0);
		sample(100 + i, 100 + i, 0, 0);
	}
	for (int i = 0; i < 100; i++) {
		step(100 * MS);
		if (!fake_last(FAKE_TABLE, 0))
			continue;
		answer_table("/bin/x", table, (uint8_t)i);
		tables++;
	}
	/* 2 s at once, then a fiftieth of the time. */
	assert_in_range(tables, 10, 12);
	assert_true(now - begin > 10 * S);
}

static void unwinding__page_absent__looked_at_sooner(void **state)
{
	(void)state;
	exec_program(7, 70, "/bin/a", 1);
	step(0);
	step(0);
	assert_int_equal(unwinding_poll_ms(u, 100), 100);
	sample(7, 70, 1u << FLY_CUT_TABLE_PAGE_ABSENT, 1 << 16 | 5);
	step(0);
	assert_true(unwinding_poll_ms(u, 100) < 100);
	assert_int_equal(unwinding_poll_ms(u, 5), 5);
	step(100 * MS);
	assert_int_equal(unwinding_poll_ms(u, 100), 100);
	assert_int_equal(unwinding_poll_ms(NULL, 100), 100);
}

static void unwinding__out_of_memory__goes_on(void **state)
{
	(void)state;
	for (unsigned long n = 1; n < 60; n++) {
		process_fork(tracker, now, 1, 7, 7);
		mem_fail_after(n);
		exec_program(7, 70 + n, "/bin/a", 1);
		sample(7, 70 + n, 0, 0);
		step(0);
		mem_fail_after(0);
		answer_inspections();
		step(20 * S); /* what could not be read is asked for again */
		sample(7, 70 + n, 1u << FLY_CUT_PROCESS_NOT_TRACKED, 0);
		step(MS);
		sample(7, 70 + n, 0, 0);
		step(MS);
		assert_int_equal(fixture.processes[7].start_ns, 70 + n);
		if (fake_last(FAKE_TABLE, 0))
			fake_fail(fake_last(FAKE_TABLE, 0), -ETIMEDOUT, FLY_UNNAMED_READ_TIMEOUT);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(unwinding__program_executed__known_before_its_first_sample),
		T(unwinding__library_loaded__entered_in_one_step),
		T(unwinding__mappings__say_whose_they_are),
		T(unwinding__lasting_mismatch__our_word_is_taken),
		T(unwinding__ran_before__entered_at_its_first_sample),
		T(unwinding__end__entry_goes_after_the_last_tick),
		T(unwinding__another_program_executed__its_mappings_alone),
		T(unwinding__code_without_a_file__by_frame_pointers),
		T(unwinding__60000_mappings__the_sampled_stay),
		T(unwinding__refusals__by_what_is_wrong),
		T(unwinding__helpers_busy__asked_again),
		T(unwinding__many_large_files__paced),
		T(unwinding__page_absent__looked_at_sooner),
		T(unwinding__out_of_memory__goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
