// SPDX-License-Identifier: Apache-2.0
/*
 * Stacks of running programs, taken at any moment and replayed through the walker that BPF runs,
 * with libdw as judge over the same bytes. shapes.c is built in many ways; REPLAY_SHAPES names
 * them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <time.h>

#include "shapes_run.h"

#define STOPS	     80
#define PAUSE_MAX_NS 2000000U

static struct unwind_stack ours;
static struct cli_judgement libdw;
static uint64_t seed = 0x9e3779b97f4a7c15ULL;

static uint32_t any(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32) % below;
}

static void stop_and_compare(struct shapes *s, const char *path, unsigned int *unsupported)
{
	struct unwind_thread thread;
	struct cli_memory memory;
	enum cli_verdict verdict;
	struct why why = {""};
	uint32_t depth;

	assert_int_equal(cli_memory_init(&memory, s->pid), 0);
	if (cli_thread_walk(s->pid, &s->picture, &memory, &thread, &ours, &why) ||
	    cli_judge_walk(s->judge, &memory, &thread, &libdw, &why))
		fail_msg("%s: %s", path, why.text);
	cli_memory_done(&memory);
	verdict = cli_stack_compare(&ours, &libdw, &depth);
	if (verdict == CLI_VERDICT_SAME)
		return;
	/* glibc's longjmp has one row that a rule cannot say. */
	if (verdict == CLI_VERDICT_SHORT && ours.cut == FLY_CUT_UNWIND_UNSUPPORTED) {
		++*unsupported;
		return;
	}
	fail_msg("%s: frame %u of %u is %s (pc %#llx, cut %u, libdw has %u)", path, depth,
		 ours.count, verdict == CLI_VERDICT_WRONG ? "wrong" : "missing",
		 (unsigned long long)ours.frames[depth < ours.count ? depth : depth - 1], ours.cut,
		 libdw.stack.count);
}

static void replay__stacks_of_running_programs__are_as_libdw_has_them(void **state)
{
	static const char *const paths[] = {REPLAY_SHAPES};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		unsigned int unsupported = 0, whole = 0;
		struct shapes s;

		shapes_start(&s, paths[i]);
		for (int n = 0; n < STOPS; n++) {
			const struct timespec pause = {.tv_nsec = any(PAUSE_MAX_NS)};

			stop_and_compare(&s, paths[i], &unsupported);
			whole += ours.is_whole;
			nanosleep(&pause, NULL); /* so that the next is of another moment */
		}
		shapes_end(&s);
		assert_in_range(unsupported, 0, 4);
		assert_int_equal(whole + unsupported, STOPS);
	}
}

/* Without the part of a stack that both want, both end, and nobody reads the process again. */
static void replay__memory_that_is_missing__ends_the_walk(void **state)
{
	static const char *const paths[] = {REPLAY_SHAPES};
	struct unwind_memory reads = {.read = cli_memory_read};
	struct unwind_thread thread;
	struct cli_memory memory, empty;
	struct shapes s;

	(void)state;
	shapes_start(&s, paths[0]);
	assert_int_equal(cli_memory_init(&memory, s.pid), 0);
	assert_int_equal(cli_memory_init(&empty, 0), 0);
	assert_int_equal(cli_thread_walk(s.pid, &s.picture, &memory, &thread, &ours, NULL), 0);
	assert_true(ours.count > 2);
	reads.ctx = &empty;
	unwind_walk(s.picture.space, &reads, &thread, UNWIND_FRAMES_MAX, &ours);
	assert_int_equal(ours.count, 1);
	assert_false(ours.is_whole);
	assert_int_equal(ours.cut, FLY_CUT_USER_PAGE_ABSENT);
	assert_int_equal(cli_judge_walk(s.judge, &empty, &thread, &libdw, NULL), 0);
	assert_int_equal(libdw.stack.count, 1);
	/* The same bytes again: the same stack. */
	reads.ctx = &memory;
	unwind_walk(s.picture.space, &reads, &thread, 3, &ours);
	assert_int_equal(ours.count, 3);
	assert_int_equal(ours.cut, FLY_CUT_DEPTH_LIMIT);
	cli_memory_done(&memory);
	cli_memory_done(&empty);
	shapes_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replay__stacks_of_running_programs__are_as_libdw_has_them),
		cmocka_unit_test(replay__memory_that_is_missing__ends_the_walk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
