// SPDX-License-Identifier: Apache-2.0
#include "profile/frames.h"
#include "profile_fixture.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct profile *make(size_t max_bytes)
{
	const struct profile_options options = {
		.max_bytes = max_bytes, .period_ns = 1000, .command_line = "flyball record"};
	struct profile *p = NULL;

	assert_int_equal(profile_new(&options, &p), 0);
	return p;
}

/* One process, one file, three locations. */
static struct profile *make_small(size_t max_bytes)
{
	const struct profile_process process = {.pid = 1, .start_ns = 5, .comm = "init"};
	const struct profile_file file = {.key = 9, .path = "/sbin/init"};
	struct profile *p = make(max_bytes);

	assert_int_equal(profile_process_add(p, &process), 0);
	assert_int_equal(profile_file_add(p, &file), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			profile_location_add(p, 0, 0x1000 * (unsigned)(i + 1), PROFILE_USER), i);
	return p;
}

static int add(struct profile *p, uint32_t tid, const char *comm, uint64_t time_ns,
	       uint64_t weight_ns, uint32_t cut, size_t count, const uint32_t *locations)
{
	const struct profile_sample s = {.tid = tid,
					 .comm = comm,
					 .time_ns = time_ns,
					 .weight_ns = weight_ns,
					 .cut = cut,
					 .depth_limit = 64,
					 .location_count = count,
					 .locations = locations};

	return profile_sample_add(p, &s);
}

static void model__equal_things__one_id(void **state)
{
	const struct profile_process other = {.pid = 1, .start_ns = 6};
	const struct profile_file file = {.key = 9, .path = "another path"};
	struct profile *p = make_small(0);

	(void)state;
	assert_int_equal(profile_file_add(p, &file), 0);
	assert_string_equal(profile_text(p, p->file_rows[0].path), "/sbin/init");
	assert_int_equal(profile_process_add(p, &other), 1);
	assert_int_equal(profile_location_add(p, 0, 0x1000, PROFILE_USER), 0);
	assert_int_equal(profile_location_add(p, 0, 0x1000, PROFILE_INLINED), 3);
	assert_int_equal(profile_location_add(p, 1, 0x1000, PROFILE_USER), -EINVAL);
	assert_int_equal(profile_location_add_variant(p, 0, 0x1000, PROFILE_USER, 0), 0);
	assert_int_equal(profile_location_add_variant(p, 0, 0x1000, PROFILE_USER, 7), 4);
	assert_int_equal(profile_location_variant(p, 0), 0);
	assert_int_equal(profile_location_variant(p, 4), 7);
	profile_free(p);
}

static void model__samples__merge_and_keep_every_timestamp(void **state)
{
	static const uint64_t times[] = {1764000000123456789,
					 1764000000133557800,
					 1764000000133557799,
					 1764000000133557799,
					 1,
					 1764000009999999999};
	const uint32_t stack[] = {0, 1};
	struct profile *p = make_small(0);
	struct profile_times walk = {0};
	struct profile_totals t;
	uint64_t at, start, duration;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		assert_int_equal(add(p, 7, "a", times[i], 1000, 0, 2, stack), 0);
	assert_int_equal(add(p, 7, "a", 2, 500, 0, 2, stack), 0); /* another period */
	assert_int_equal(add(p, 8, "a", 2, 1000, 0, 2, stack), 0);
	assert_int_equal(add(p, 7, "b", 2, 1000, 0, 2, stack), 0);
	assert_int_equal(add(p, 7, "a", 2, 1000, 1, 2, stack), 0);
	assert_int_equal(add(p, 7, "a", 2, 1000, 0, 1, stack), 0);
	assert_int_equal(p->samples.count, 6);
	walk.row = &p->sample_rows[0];
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		assert_true(profile_times_next(&walk, &at));
		assert_int_equal(at, times[i]);
	}
	assert_false(profile_times_next(&walk, &at));
	profile_totals_get(p, &t);
	assert_int_equal(t.samples, 11);
	assert_int_equal(t.weight_ns, 10 * 1000 + 500);
	assert_int_equal(t.complete, 10);
	assert_int_equal(t.cut[0], 1);
	assert_int_equal(t.stacks, 2);
	profile_window(p, &start, &duration);
	assert_int_equal(start, 1);
	assert_int_equal(start + duration, 1764000010000000000);
	profile_free(p);
}

static int add_attributes(struct profile *p, const struct profile_attribute *attributes,
			  size_t count)
{
	static const struct profile_span span = {{1}, {2}};
	const struct profile_sample s = {
		.weight_ns = 1, .span = &span, .attributes = attributes, .attribute_count = count};

	return profile_sample_add(p, &s);
}

static void model__attributes__keep_samples_apart(void **state)
{
	const struct profile_attribute a[] = {{"tenant", "one", 3}, {"route", "/", 1}},
				       b[] = {{"route", "/", 1}, {"tenant", "one", 3}},
				       c[] = {{"tenant", "two", 3}, {"route", "/", 1}},
				       d[] = {{"tenant", "one", 3}, {"tenant", "two", 3}},
				       e[] = {{"pid", "1", 1}, {"flyball.cut", "", 0}};
	struct profile_attribute many[PROFILE_ATTRIBUTES_MAX + 1];
	struct profile *p = make_small(0);
	const struct profile_attribute_row *rows;
	size_t count;

	(void)state;
	assert_int_equal(add_attributes(p, a, 2), 0);
	assert_int_equal(add_attributes(p, b, 2), 0);
	assert_int_equal(p->samples.count, 1);
	assert_int_equal(add_attributes(p, c, 2), 0);
	assert_int_equal(add_attributes(p, NULL, 0), 0);
	assert_int_equal(p->samples.count, 3);
	assert_int_equal(add_attributes(p, d, 2), 0);
	rows = profile_attributes(p, profile_sample_key(p, 3), &count);
	assert_int_equal(count, 1);
	assert_string_equal(profile_text(p, rows[0].value), "one");
	assert_int_equal(profile_sample_key(p, 3)->span_fault, PROFILE_SPAN_ATTRIBUTES_INVALID);
	assert_int_equal(add_attributes(p, e, 2), 0);
	rows = profile_attributes(p, profile_sample_key(p, 4), &count);
	assert_int_equal(count, 2);
	assert_string_equal(profile_text(p, rows[0].key), "context.pid");
	assert_string_equal(profile_text(p, rows[1].key), "context.flyball.cut");
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = a[0];
	assert_int_equal(add_attributes(p, many, ARRAY_SIZE(many)), -EINVAL);
	profile_free(p);
}

static void model__lost_near_base__is_no_cut_in_start_code(void **state)
{
	const uint32_t lost = 1U << FLY_CUT_FRAME_POINTER_LOST, deep = 1U << FLY_CUT_DEPTH_LIMIT;
	const uint32_t in_main[] = {0, 1}, in_start[] = {0, 1, 2};
	struct profile_sample s = {.comm = "a", .weight_ns = 1, .is_near_base = true, .cut = lost};
	struct profile *p = make_small(0);
	struct profile_totals t;
	char text[PROFILE_CUT_TEXT];

	(void)state;
	s.location_count = ARRAY_SIZE(in_start);
	s.locations = in_start;
	assert_int_equal(profile_sample_add(p, &s), 0);
	s.cut = lost | deep;
	assert_int_equal(profile_sample_add(p, &s), 0);
	s.cut = lost;
	s.is_near_base = false; /* far from it: what is missing may be anybody's */
	assert_int_equal(profile_sample_add(p, &s), 0);
	s.is_near_base = true;
	s.location_count = ARRAY_SIZE(in_main);
	s.locations = in_main;
	assert_int_equal(profile_sample_add(p, &s), 0);
	profile_totals_get(p, &t); /* without names nothing is known */
	assert_int_equal(t.complete, 0);
	assert_int_equal(t.cut[FLY_CUT_FRAME_POINTER_LOST], 4);
	profile_location_name(p, 1, "main", 0);
	profile_location_name(p, 2, "__libc_start_call_main", 0);
	profile_totals_get(p, &t);
	assert_int_equal(t.complete, 1);
	assert_int_equal(t.cut[FLY_CUT_FRAME_POINTER_LOST], 2);
	assert_int_equal(t.cut[FLY_CUT_DEPTH_LIMIT], 1);
	profile_cut_text(p, profile_sample_key(p, 0), text);
	assert_string_equal(text, "");
	profile_cut_text(p, profile_sample_key(p, 1), text);
	assert_string_equal(text, "depth_limit");
	profile_cut_text(p, profile_sample_key(p, 3), text);
	assert_string_equal(text, "frame_pointer_lost");
	profile_free(p);
}

static void model__bad_ids__are_refused(void **state)
{
	const uint32_t beyond[] = {0, 3};
	uint32_t deep[PROFILE_STACK_MAX + 1] = {0};
	struct profile_sample s = {.process = 1};
	struct profile *p = make_small(0);

	(void)state;
	assert_int_equal(add(p, 7, "a", 1, 1, 0, 2, beyond), -EINVAL);
	assert_int_equal(add(p, 7, "a", 1, 1, 0, ARRAY_SIZE(deep), deep), -EINVAL);
	assert_int_equal(add(p, 7, "a", 1, 1, 0, ARRAY_SIZE(deep) - 1, deep), 0);
	assert_int_equal(profile_sample_add(p, &s), -EINVAL);
	profile_location_name(p, 99, "x", 0);
	profile_location_unnamed(p, 0, FLY_UNNAMED_COUNT);
	profile_process_update(p, 99, &(struct profile_process){.comm = "x"});
	profile_file_update(p, 99, &(struct profile_file){.path = "x"});
	profile_free(p);
}

static void model__updates__fill_in_and_keep(void **state)
{
	struct profile_file file = {
		.build_id_len = 2, .build_id = {0xab, 0xcd}, .segment_count = 1};
	struct profile *p = make_small(0);
	uint64_t vaddr;

	(void)state;
	file.segments[0].offset = 0x1000;
	file.segments[0].vaddr = 0x401000;
	file.segments[0].file_bytes = 0x1001;
	profile_file_update(p, 0, &file);
	profile_file_update(p, 0, &(struct profile_file){.path = ""});
	assert_string_equal(profile_text(p, p->file_rows[0].path), "/sbin/init");
	assert_int_equal(p->file_rows[0].build_id_len, 2);
	assert_int_equal(profile_location_vaddr(p, 0, &vaddr), 0);
	assert_int_equal(vaddr, 0x401000);
	assert_int_equal(profile_location_vaddr(p, 1, &vaddr), 0);
	assert_int_equal(vaddr, 0x402000);
	assert_int_equal(profile_location_vaddr(p, 2, &vaddr), -1);
	assert_int_equal(vaddr, 0x3000);
	profile_process_update(p, 0, &(struct profile_process){.exe = "/sbin/init"});
	assert_string_equal(profile_text(p, p->process_rows[0].comm), "init");
	assert_string_equal(profile_text(p, p->process_rows[0].exe), "/sbin/init");
	profile_free(p);
}

static int count_open(void *ctx, uint32_t location, uint32_t file, uint64_t address,
		      enum profile_frame_kind kind)
{
	uint32_t *seen = ctx;

	assert_int_equal(address, 0x1000 * (location + 1));
	assert_int_equal(file, 0);
	assert_int_equal(kind, PROFILE_USER);
	*seen |= 1U << location;
	return location == 2 ? -ECANCELED : 0;
}

static void model__open_locations__are_those_without_answer(void **state)
{
	const uint32_t leaves[] = {0, 1, 2};
	struct profile *p = make_small(0);
	struct profile_totals t;
	uint32_t seen = 0;

	(void)state;
	profile_location_name(p, 0, "main", 0x1000);
	assert_int_equal(profile_locations_open(p, count_open, &seen), -ECANCELED);
	assert_int_equal(seen, 6);
	profile_location_unnamed(p, 2, FLY_UNNAMED_NO_SYMBOL);
	seen = 0;
	assert_int_equal(profile_locations_open(p, count_open, &seen), 0);
	assert_int_equal(seen, 2);
	for (int i = 0; i < 3; i++)
		add(p, 1, "", 5, 1, 0, 1, &leaves[i]);
	add(p, 1, "", 5, 1, 0, 3, leaves); /* a named leaf above unnamed ones */
	profile_totals_get(p, &t);
	assert_int_equal(t.unnamed_samples[FLY_UNNAMED_NONE], 1);
	assert_int_equal(t.unnamed_samples[FLY_UNNAMED_NO_SYMBOL], 1);
	profile_free(p);
}

static void model__limit__is_kept_and_refuses_samples(void **state)
{
	const size_t max = 256 << 10;
	size_t before = mem_live_bytes(MEM_PROFILE) + mem_live_bytes(MEM_BASE);
	struct profile *p = make_small(max);
	uint64_t delivered = 0, refused = 0;
	struct profile_totals t;

	(void)state;
	for (uint32_t i = 0; i < 5000; i++) {
		uint32_t stack[30];
		char comm[16];
		int err;

		snprintf(comm, sizeof(comm), "c%u", i % 500);
		for (uint32_t k = 0; k < ARRAY_SIZE(stack); k++)
			stack[k] = (i >> k / 2) % 3;
		err = add(p, i % 100, comm, i, 1000, 0, i % ARRAY_SIZE(stack), stack);
		assert_true(!err || err == -ENOSPC);
		delivered += !err;
		refused += err != 0;
	}
	assert_true(delivered > 500);
	assert_true(refused > 500);
	assert_true(mem_live_bytes(MEM_PROFILE) + mem_live_bytes(MEM_BASE) - before <= max);
	profile_totals_get(p, &t);
	assert_int_equal(t.samples, delivered);
	/* what is full stays usable */
	profile_location_name(p, 0, "a name that finds no room is no name", 0);
	profile_free(p);
	assert_int_equal(mem_live_bytes(MEM_PROFILE) + mem_live_bytes(MEM_BASE), before);
}

static void model__limit_by_timestamps_of_one_key(void **state)
{
	const uint32_t stack[] = {0};
	struct profile *p = make_small(64 << 10);
	uint64_t added = 0;

	(void)state;
	while (!add(p, 1, "one", added * 10101010, 1000, 0, 1, stack))
		added++;
	assert_true(added > 8000);
	assert_int_equal(p->sample_rows[0].count, added);
	assert_true(mem_live_bytes(MEM_PROFILE) <= 64 << 10);
	profile_free(p);
}

/* Whether the failure armed with n is still to come; disarms it. */
static bool is_armed(unsigned long n)
{
	bool is_armed_still = false;

	while (n-- && !is_armed_still) {
		void *p = mem_alloc(MEM_BASE, 1);

		is_armed_still = !p;
		mem_free(MEM_BASE, p);
	}
	mem_fail_after(0);
	return is_armed_still;
}

/* Every allocation fails once, through building and all writers. */
static void model__no_memory__is_an_error_and_no_leak(void **state)
{
	const struct profile_options options = {.period_ns = FIXTURE_PERIOD_NS,
						.command_line = "flyball record"};
	size_t before = mem_live_bytes(MEM_PROFILE) + mem_live_bytes(MEM_BASE);
	unsigned long n = 1;
	bool is_clean = false;

	(void)state;
	for (; !is_clean; n++) {
		struct profile_function top[3];
		struct profile *p = NULL;
		int err;

		mem_fail_after(n);
		err = profile_new(&options, &p);
		if (!err)
			err = fixture_fill(p, FIXTURE_SPLIT);
		for (int format = PROFILE_FOLDED; format <= PROFILE_HTML && !err; format++) {
			struct fixture_bytes bytes = {.len = 0};
			struct why why = {""};

			err = profile_write(p, (enum profile_format)format, NULL, fixture_sink,
					    &bytes, &why);
			assert_true(!err || why.text[0]);
			fixture_bytes_done(&bytes);
		}
		assert_true(!err || err == -ENOMEM);
		if (!err)
			profile_top(p, true, top, 3);
		profile_free(p);
		is_clean = is_armed(n);
		assert_true(!is_clean || !err);
		assert_int_equal(mem_live_bytes(MEM_PROFILE) + mem_live_bytes(MEM_BASE), before);
	}
	assert_true(n > 200);
}

static void ledger__is_exact_only_when_all_sides_agree(void **state)
{
	struct profile_ledger l = {.ticks = 10,
				   .idle = 3,
				   .filtered = 2,
				   .taken = 5,
				   .taken_ns = 50,
				   .delivered = 4,
				   .delivered_ns = 40};
	struct why why = {""};

	(void)state;
	l.dropped[FLY_DROP_RING_FULL] = 1;
	l.dropped_ns[FLY_DROP_RING_FULL] = 10;
	assert_true(profile_ledger_is_exact(&l, &why));
	assert_string_equal(why.text, "");
	l.missed_by_kernel = 5;
	assert_true(profile_ledger_is_exact(&l, NULL));
	l.delivered = 3;
	assert_false(profile_ledger_is_exact(&l, &why));
	assert_string_equal(why.text, "the ledger does not balance: taken is 5 samples, "
				      "delivered + dropped is 4 (short by 1)");
	l.delivered = 4;
	l.dropped_ns[FLY_DROP_PROFILE_FULL] = 1;
	assert_false(profile_ledger_is_exact(&l, &why));
	l.dropped_ns[FLY_DROP_PROFILE_FULL] = 0;
	l.ticks++;
	assert_false(profile_ledger_is_exact(&l, NULL));
}

static void totals__top__counts_recursion_once(void **state)
{
	struct profile *p = make(0);
	struct profile_function top[8];
	size_t n;

	(void)state;
	assert_int_equal(fixture_fill(p, FIXTURE_SPLIT), 0);
	n = profile_top(p, false, top, 8);
	assert_int_equal(n, 3);
	assert_string_equal(top[0].name, "work_a");
	assert_string_equal(top[0].module, "split");
	assert_int_equal(top[0].self_ns, 60 * FIXTURE_PERIOD_NS);
	assert_string_equal(top[2].name, "work_c");
	n = profile_top(p, true, top, 2);
	assert_int_equal(n, 2);
	assert_int_equal(top[0].total_ns, 100 * FIXTURE_PERIOD_NS);
	assert_int_equal(top[1].total_ns, 100 * FIXTURE_PERIOD_NS);
	assert_int_equal(top[1].self_ns, 0);
	profile_free(p);
}

static void totals__inlined_calls__count_as_functions(void **state)
{
	const struct profile_options options = {.period_ns = FIXTURE_PERIOD_NS};
	struct profile_function top[8];
	struct profile_totals totals;
	struct profile *p;

	(void)state;
	assert_int_equal(profile_new(&options, &p), 0);
	assert_int_equal(fixture_fill(p, FIXTURE_INLINED), 0);
	assert_int_equal(profile_top(p, false, top, 8), 4);
	assert_string_equal(top[0].name, "inner;x");
	assert_int_equal(top[0].self_ns, 6 * FIXTURE_PERIOD_NS);
	assert_string_equal(top[1].name, "outer");
	assert_int_equal(top[1].self_ns, 2 * FIXTURE_PERIOD_NS);
	assert_int_equal(top[1].total_ns, 7 * FIXTURE_PERIOD_NS);
	assert_string_equal(top[2].name, "middle");
	assert_int_equal(top[2].total_ns, 5 * FIXTURE_PERIOD_NS);
	profile_totals_get(p, &totals);
	assert_int_equal(totals.lined, 5);
	assert_int_equal(totals.inlined, 3);
	assert_int_equal(totals.unlined[FLY_UNNAMED_READER_FAILED], 1);
	assert_int_equal(totals.unlined[FLY_UNNAMED_NONE], 0);
	profile_free(p);
}

static void model__long_chains__keep_both_ends(void **state)
{
	const struct profile_options options = {.period_ns = FIXTURE_PERIOD_NS};
	struct profile_line lines[PROFILE_LINES_MAX + 10];
	struct profile_frame frame;
	struct profile *p;

	(void)state;
	assert_int_equal(profile_new(&options, &p), 0);
	assert_int_equal(fixture_fill(p, FIXTURE_SPLIT), 0);
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		lines[i] = (struct profile_line){"call", "f.c", (uint32_t)i};
	profile_location_lines(p, 0, lines, ARRAY_SIZE(lines));
	assert_int_equal(profile_location_frames(p, 0), PROFILE_LINES_MAX);
	profile_location_frame(p, 0, 0, &frame);
	assert_int_equal(frame.line, 0);
	profile_location_frame(p, 0, PROFILE_LINES_MAX - 1, &frame);
	assert_int_equal(frame.line, ARRAY_SIZE(lines) - 1);
	assert_false(frame.is_inlined);
	/* Of what does not exist, and of nothing: no effect. */
	profile_location_lines(p, 1 << 20, lines, 1);
	profile_location_lines(p, 1, lines, 0);
	assert_int_equal(profile_location_frames(p, 1), 1);
	profile_free(p);
}

static void totals__unnamed_frames__are_one_function_a_module(void **state)
{
	const uint32_t leaves[] = {0, 1};
	struct profile *p = make_small(0);
	struct profile_function top[8];

	(void)state;
	add(p, 1, "a", 1, 10, 0, 1, &leaves[0]);
	add(p, 1, "a", 1, 10, 0, 1, &leaves[1]);
	assert_int_equal(profile_top(p, false, top, 8), 1);
	assert_string_equal(top[0].name, "[unnamed]");
	assert_string_equal(top[0].module, "init");
	assert_int_equal(top[0].self_ns, 20);
	profile_free(p);
}

static void reasons__come_from_the_list(void **state)
{
	const struct profile_reason *r;
	size_t n = 0;

	(void)state;
	for (; (r = profile_reason_get(n)); n++)
		assert_true(r->name[0] && r->text[0] && r->advice[0]);
	assert_int_equal(n, (size_t)FLY_DROP_COUNT + (size_t)FLY_CUT_COUNT +
				    (size_t)FLY_UNNAMED_COUNT - 1);
	assert_string_equal(profile_drop_name(FLY_DROP_RING_FULL), "ring_full");
	assert_string_equal(profile_cut_name(FLY_CUT_RING_PRESSURE), "ring_pressure");
	assert_string_equal(profile_unnamed_name(FLY_UNNAMED_NO_SYMBOL), "no_symbol");
	assert_string_equal(profile_unnamed_name(FLY_UNNAMED_COUNT), "unknown");
	assert_string_equal(profile_reason_get(0)->kind, "drop");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(model__equal_things__one_id),
		cmocka_unit_test(model__samples__merge_and_keep_every_timestamp),
		cmocka_unit_test(model__attributes__keep_samples_apart),
		cmocka_unit_test(model__lost_near_base__is_no_cut_in_start_code),
		cmocka_unit_test(model__bad_ids__are_refused),
		cmocka_unit_test(model__updates__fill_in_and_keep),
		cmocka_unit_test(model__open_locations__are_those_without_answer),
		cmocka_unit_test(model__limit__is_kept_and_refuses_samples),
		cmocka_unit_test(model__limit_by_timestamps_of_one_key),
		cmocka_unit_test(model__no_memory__is_an_error_and_no_leak),
		cmocka_unit_test(ledger__is_exact_only_when_all_sides_agree),
		cmocka_unit_test(totals__top__counts_recursion_once),
		cmocka_unit_test(totals__inlined_calls__count_as_functions),
		cmocka_unit_test(model__long_chains__keep_both_ends),
		cmocka_unit_test(totals__unnamed_frames__are_one_function_a_module),
		cmocka_unit_test(reasons__come_from_the_list),
	};

	return cmocka_run_group_tests_name("profile_model", tests, NULL, NULL);
}
