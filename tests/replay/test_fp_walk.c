// SPDX-License-Identifier: Apache-2.0
/*
 * The frame pointer walk of the BPF side, on the host, over memory made by hand: the same
 * bpf/walk/fp.h, whose reads go to a small list of pages here.
 */
#include <linux/types.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define STACK	   0x7ffc00000000ULL
#define BYTES	   8192
#define CODE	   0x400000ULL
#define CODE_BYTES 64

static uint8_t stack[BYTES], text[CODE_BYTES];
static unsigned long reads, faults;

static int walk_read(void *dst, size_t bytes, uint64_t address)
{
	reads++;
	if (address >= STACK && address - STACK <= BYTES - bytes) {
		memcpy(dst, stack + (address - STACK), bytes);
		return 0;
	}
	if (address >= CODE && address - CODE <= CODE_BYTES - bytes) {
		memcpy(dst, text + (address - CODE), bytes);
		return 0;
	}
	faults++;
	return -14;
}

#define FLY_WALK_READ(dst, bytes, address) walk_read((dst), (bytes), (address))
#include "bpf/walk/fp.h"

static void put(uint64_t address, uint64_t value)
{
	memcpy(stack + (address - STACK), &value, sizeof(value));
}

static int reset(void **state)
{
	(void)state;
	memset(stack, 0, sizeof(stack));
	memset(text, 0x90, sizeof(text));
	reads = faults = 0;
	return 0;
}

/* Frames 64 bytes apart from sp + 32 on, return addresses 0x1001, 0x1002, ... The last saved fp is
 * last_fp. */
static struct fly_walk build(int frames, uint64_t last_fp)
{
	uint64_t fp = STACK + 32;
	struct fly_walk walk = {.pc = CODE, .sp = STACK, .fp = frames ? fp : last_fp};

	for (int i = 0; i < frames; i++, fp += 64) {
		put(fp, i + 1 < frames ? fp + 64 : last_fp);
		put(fp + 8, 0x1001 + (uint64_t)i);
	}
	return walk;
}

static int run(struct fly_walk *walk, int *ret_frames)
{
	int step;

	*ret_frames = 0;
	while ((step = fly_fp_step(walk)) == FLY_STEP_FRAME) {
		(*ret_frames)++;
		assert_int_equal(walk->pc, 0x1000 + *ret_frames);
		assert_true(*ret_frames < 1000);
	}
	return step;
}

static void fp_walk__chain__ends_with_zero(void **state)
{
	struct fly_walk walk = build(20, 0);
	int frames;

	(void)state;
	assert_int_equal(run(&walk, &frames), FLY_STEP_END);
	assert_int_equal(frames, 20);
	assert_int_equal(reads, 20);
	walk = build(0, 0);
	assert_int_equal(run(&walk, &frames), FLY_STEP_END);
	/* Return address 0. */
	walk = build(5, STACK + 4000);
	assert_int_equal(run(&walk, &frames), FLY_STEP_END);
	assert_int_equal(frames, 5);
}

static void fp_walk__garbage__is_lost_without_a_read(void **state)
{
	static const uint64_t garbage[] = {
		1,     0x1234, STACK + 33, STACK - 8, 1 << 20,		 1ULL << 47,
		~0ULL, ~7ULL,  STACK,	   0x400000,  0xffffffff81000000};
	struct fly_walk walk;
	int frames;

	(void)state;
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		reset(NULL);
		walk = build(3, garbage[i]);
		assert_int_equal(run(&walk, &frames), FLY_STEP_LOST);
		assert_int_equal(frames, 3);
		assert_int_equal(reads, 3);
	}
	/* With the base known, what lies past it as well. */
	walk = build(3, STACK + BYTES);
	walk.base = STACK + BYTES;
	assert_int_equal(run(&walk, &frames), FLY_STEP_LOST);
	assert_int_equal(faults, 0);
	/* Within reach, but not there. */
	walk = build(3, STACK + BYTES);
	walk.base = STACK + 2 * BYTES;
	assert_int_equal(run(&walk, &frames), FLY_STEP_ABSENT);
	walk = build(3, STACK + BYTES);
	assert_int_equal(run(&walk, &frames), FLY_STEP_ABSENT);
	walk = build(3, STACK + (2 << 20));
	assert_int_equal(run(&walk, &frames), FLY_STEP_LOST);
}

static void fp_walk__return_address__must_be_user_code(void **state)
{
	struct fly_walk walk = build(3, STACK + 1024);
	int frames;

	(void)state;
	put(STACK + 1024, STACK + 2048);
	put(STACK + 1032, 0xffffffff81000000);
	assert_int_equal(run(&walk, &frames), FLY_STEP_LOST);
	walk = build(3, STACK + 1024);
	put(STACK + 1032, 12);
	assert_int_equal(run(&walk, &frames), FLY_STEP_LOST);
	assert_int_equal(frames, 3);
}

static void fp_walk__loops__cannot_be_made(void **state)
{
	struct fly_walk walk = build(3, STACK + 32);
	int frames;

	(void)state;
	assert_int_equal(run(&walk, &frames), FLY_STEP_LOST);
	assert_int_equal(frames, 3);
	walk = build(1, STACK + 32); /* itself */
	assert_int_equal(run(&walk, &frames), FLY_STEP_LOST);
	assert_int_equal(frames, 1);
}

static void fp_walk__leaf__caller_is_not_left_out(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		unsigned int pc, slot;
	} cases[] = {
		{"\x55\x48\x89\xe5\x90", 5, 0, 0}, /* at push */
		{"\x55\x48\x89\xe5\x90", 5, 1, 8}, /* at mov */
		{"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5", 8, 0, 0},
		{"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5", 8, 4, 0},
		{"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5", 8, 5, 8},
		{"\x5d\xc3", 2, 1, 0}, /* at ret */
	};
	static const struct {
		const char *bytes;
		size_t len;
		unsigned int pc;
	} others[] = {
		{"\x55\x48\x89\xe5\x90", 5, 4},	    /* the frame stands */
		{"\x55\x53\x48\x83\xec\x08", 6, 0}, /* rbp kept as any register */
		{"\x41\x55\x48\x89\xe5", 5, 2},	    /* push %r13; mov %rsp,%rbp: [sp] is r13 */
		{"\xf3\x0f\x1e\xfa\x90", 5, 0},	    /* may be no function's first */
		{"\x5d\xc3", 2, 0},		    /* at pop: the frame still stands */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fly_walk walk;
		int frames;

		reset(NULL);
		memcpy(text + 16, cases[i].bytes, cases[i].len);
		walk = build(2, 0);
		walk.pc = CODE + 16 + cases[i].pc;
		put(STACK + cases[i].slot, 0xabcdef);
		assert_int_equal(fly_fp_leaf(&walk), FLY_STEP_FRAME);
		assert_int_equal(walk.pc, 0xabcdef);
		assert_int_equal(walk.sp, STACK + cases[i].slot + 8);
		assert_int_equal(run(&walk, &frames), FLY_STEP_END);
		assert_int_equal(frames, 2);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct fly_walk walk;

		reset(NULL);
		memcpy(text + 16, others[i].bytes, others[i].len);
		walk = build(2, 0);
		walk.pc = CODE + 16 + others[i].pc;
		put(STACK, 0xabcdef);
		put(STACK + 8, 0xabcdef);
		assert_int_equal(fly_fp_leaf(&walk), FLY_STEP_LOST);
		assert_int_equal(walk.pc, CODE + 16 + others[i].pc);
		assert_int_equal(walk.sp, STACK);
	}
}

static void fp_walk__leaf__code_that_cannot_be_read_changes_nothing(void **state)
{
	static const uint64_t pcs[] = {0, 1, 4095, 0x500000, CODE + CODE_BYTES - 2, ~0ULL};

	(void)state;
	for (size_t i = 0; i < sizeof(pcs) / sizeof(pcs[0]); i++) {
		struct fly_walk walk = build(2, 0);
		int frames;

		walk.pc = pcs[i];
		assert_int_equal(fly_fp_leaf(&walk), FLY_STEP_LOST);
		assert_int_equal(run(&walk, &frames), FLY_STEP_END);
		assert_int_equal(frames, 2);
	}
}

static void fp_walk__base__is_told_by_distance(void **state)
{
	struct fly_walk walk = build(2, 1);
	int frames;

	(void)state;
	assert_int_equal(fly_walk_base(1000, 2000, 1500), 2000);
	assert_int_equal(fly_walk_base(1000, 1000, 1500), 1000);
	assert_int_equal(fly_walk_base(1000, 900, 1500), 1500);
	assert_int_equal(fly_walk_base(1000, 1000 + (200ULL << 20), 1500), 1500);
	assert_int_equal(fly_walk_base(1000, 900, 1000 + (200ULL << 20)), 0);
	assert_int_equal(fly_walk_base(~0ULL, 5, 6), 0);
	walk.base = STACK + 32 + 64 + 16 + 256;
	assert_int_equal(run(&walk, &frames), FLY_STEP_LOST);
	assert_true(fly_walk_is_near_base(&walk));
	walk.base += 4096;
	assert_false(fly_walk_is_near_base(&walk));
	walk.base = 0;
	assert_false(fly_walk_is_near_base(&walk));
}

/* Any registers over any memory: it ends, and each step goes up. */
static void fp_walk__noise__ends(void **state)
{
	unsigned int seed = 3;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct fly_walk walk = {.pc = CODE + (unsigned int)rand_r(&seed) % 80,
					.sp = STACK + (unsigned int)rand_r(&seed) % BYTES,
					.fp = STACK + (unsigned int)rand_r(&seed) % BYTES};
		int steps = 0;

		for (int i = 0; i < 64; i++) {
			uint64_t at = (unsigned int)rand_r(&seed) % (BYTES / 8) * 8;

			put(STACK + at, STACK + (unsigned int)rand_r(&seed) % BYTES);
		}
		if (rand_r(&seed) % 2)
			walk.base = STACK + (unsigned int)rand_r(&seed) % BYTES;
		fly_fp_leaf(&walk);
		for (uint64_t sp = walk.sp; fly_fp_step(&walk) == FLY_STEP_FRAME; sp = walk.sp) {
			assert_true(walk.sp > sp);
			assert_true(++steps <= BYTES / 16);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(fp_walk__chain__ends_with_zero, reset),
		cmocka_unit_test_setup(fp_walk__garbage__is_lost_without_a_read, reset),
		cmocka_unit_test_setup(fp_walk__return_address__must_be_user_code, reset),
		cmocka_unit_test_setup(fp_walk__loops__cannot_be_made, reset),
		cmocka_unit_test_setup(fp_walk__leaf__caller_is_not_left_out, reset),
		cmocka_unit_test_setup(fp_walk__leaf__code_that_cannot_be_read_changes_nothing,
				       reset),
		cmocka_unit_test_setup(fp_walk__base__is_told_by_distance, reset),
		cmocka_unit_test_setup(fp_walk__noise__ends, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
