// SPDX-License-Identifier: Apache-2.0
/*
 * The walk by tables on the host, case by case: rules, code, stack and mappings made by hand. Each
 * row begins a function of 256 bytes at CODE + 256 * its number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <string.h>

#include "cli/cli_unwind_stack.h"
#include "unwind/unwind_walk.h"

#define STACK	 0x7ffc00000000ULL
#define BYTES	 4096U
#define CODE	 0x400000ULL
#define ROWS_MAX 8U
#define AT(row)	 (CODE + 256U * (row))

static uint8_t stack[BYTES], code[FLY_PAGE_BYTES];
static struct unwind_space *space;
static struct unwind_thread thread;
static struct unwind_stack found;

static const struct fly_rule stop = {.cfa = FLY_CFA_STOP};

static int memory_read(void *ctx, uint64_t address, void *out, size_t bytes)
{
	(void)ctx;
	if (address >= STACK && address - STACK <= BYTES - bytes)
		memcpy(out, stack + (address - STACK), bytes);
	else if (address >= CODE && address - CODE <= sizeof(code) - bytes)
		memcpy(out, code + (address - CODE), bytes);
	else
		return -1;
	return 0;
}

static void put(uint64_t at, uint64_t value)
{
	memcpy(stack + at, &value, sizeof(value));
}

static struct fly_rule by_sp(int offset)
{
	return (struct fly_rule){
		.cfa = FLY_CFA_REG, .cfa_reg = FLY_X86_RSP, .offset = offset, .ra_words = -1};
}

static int setup(void **state)
{
	(void)state;
	memset(stack, 0, sizeof(stack));
	memset(code, 0x90, sizeof(code));
	thread = (struct unwind_thread){.stack_start = STACK + BYTES};
	thread.regs[FLY_X86_RSP] = STACK;
	return unwind_space_new(&space);
}

static int teardown(void **state)
{
	(void)state;
	unwind_space_free(space);
	return mem_live_bytes(MEM_ELF) != 0;
}

/* A table of these rules, and the mapping of the code with table number as. */
static void place(const struct fly_rule *rules, uint32_t count, uint8_t tracked, int as)
{
	__u32 groups[ROWS_MAX], shapes[ROWS_MAX + 2 + UNWIND_SHAPE_ROOM] = {0};
	struct fly_rule all[ROWS_MAX + 1] = {{0}};
	__u64 page = fly_page_make(0, (__u64)count, 0ULL);
	struct fly_mapping mapping;
	struct unwind_table t = {
		.machine = EM_X86_64,
		.tracked = tracked,
		.pages = &page,
		.groups = groups,
		.shapes = shapes,
		.rules = all,
		.page_count = 1,
		.group_count = count,
		.shape_words = count + 2,
		.rule_count = count + 1,
	};

	for (uint32_t i = 0; i < count; i++) {
		all[i + 1] = rules[i];
		groups[i] = fly_group_make(256 * i, i + 1);
		shapes[i + 1] = fly_half_make(i + 1, 0);
	}
	assert_int_equal(unwind_table_check(&t, NULL), 0);
	assert_int_equal(unwind_space_add_table(space, &t), 1);
	mapping = fly_mapping_make(CODE, FLY_PAGE_BYTES, CODE, (uint32_t)as);
	assert_int_equal(unwind_space_set_mappings(space, &mapping, 1), 0);
}

static void walk(void)
{
	static const struct unwind_memory memory = {.read = memory_read};

	unwind_walk(space, &memory, &thread, UNWIND_FRAMES_MAX, &found);
}

static void expect(uint32_t count, uint64_t last, bool is_whole, uint32_t cut)
{
	assert_int_equal(found.count, count);
	assert_int_equal(found.frames[count - 1], last);
	assert_int_equal(found.is_whole, is_whole);
	if (!is_whole)
		assert_int_equal(found.cut, cut);
}

static void table_walk__callers__are_found_to_the_stop(void **state)
{
	const struct fly_rule rules[] = {by_sp(8), by_sp(32), stop};

	(void)state;
	place(rules, 3, 0, 1);
	thread.pc = AT(0) + 4;
	put(0, AT(1) + 10);
	put(32, AT(2) + 20);
	walk();
	expect(3, AT(2) + 20, true, 0);
	assert_int_equal(found.frames[1], AT(1) + 10);
}

/* The caller ends with its call: the address to return to is the next function's. */
static void table_walk__a_last_call__belongs_to_its_function(void **state)
{
	const struct fly_rule rules[] = {by_sp(8), by_sp(16), by_sp(4096), stop};

	(void)state;
	place(rules, 4, 0, 1);
	thread.pc = AT(0);
	put(0, AT(2));
	put(16, AT(3) + 1);
	walk();
	expect(3, AT(3) + 1, true, 0);
}

/* Behind the last instruction of a function, when that is the one that entered the kernel. */
static void table_walk__in_a_system_call__the_entering_instruction_counts(void **state)
{
	const struct fly_rule rules[] = {by_sp(16), by_sp(8), stop};

	(void)state;
	place(rules, 3, 0, 1);
	thread.pc = AT(1);
	thread.is_in_syscall = true;
	memcpy(code + 254, "\x0f\x05", 2);
	put(8, AT(2) + 1);
	walk();
	expect(2, AT(2) + 1, true, 0);
}

/* A signal that came in a system call: its handler begins with the number still there. */
static void table_walk__a_handlers_first_instruction__is_the_handlers(void **state)
{
	const struct fly_rule rules[] = {by_sp(16), by_sp(8), stop};

	(void)state;
	place(rules, 3, 0, 1);
	thread.pc = AT(1);
	thread.is_in_syscall = true;
	put(0, AT(2) + 1);
	put(8, CODE + 0x9000);
	walk();
	expect(2, AT(2) + 1, true, 0);
}

static void table_walk__over_a_signal__all_registers_are_known(void **state)
{
	const struct fly_rule rules[] = {
		{.cfa = FLY_CFA_SIGNAL},
		{.cfa = FLY_CFA_REG, .cfa_reg = 10, .offset = 8, .ra_words = -1},
		stop};

	(void)state;
	place(rules, 3, 0, 1);
	thread.pc = AT(0) + 1;
	/* r8 r9 r10 .. from SP + 40: the interrupted function's CFA is r10 + 8. */
	put(40 + 2 * 8, STACK + 512);
	put(40 + 15 * 8, STACK + 256);
	put(40 + 16 * 8, AT(1));
	put(512, AT(2) + 1);
	walk();
	expect(3, AT(2) + 1, true, 0);
	assert_int_equal(found.frames[1], AT(1));
}

static void table_walk__a_tracked_register__is_known_in_callers(void **state)
{
	const struct fly_rule rules[] = {
		{.cfa = FLY_CFA_REG,
		 .cfa_reg = FLY_X86_RSP,
		 .offset = 24,
		 .fp = FLY_TRACKED_AT_CFA,
		 .ra_words = -2},
		{.cfa = FLY_CFA_REG, .cfa_reg = 3, .offset = 16, .ra_words = -1},
		stop};

	(void)state;
	place(rules, 3, 3, 1);
	thread.pc = AT(0);
	thread.regs[3] = 1;
	put(8, STACK + 128); /* rbx, at CFA - 16 */
	put(16, AT(1) + 9);
	put(128 + 8, AT(2) + 1);
	walk();
	expect(3, AT(2) + 1, true, 0);
}

/* The same without a register to track: known in the innermost frame alone. */
/* Go's schedulers: a frame that stands on a frame pointer of 0 was called by nobody. */
static void table_walk__a_frame_pointer_of_0__ends_the_chain(void **state)
{
	const struct fly_rule rules[] = {by_sp(8),
					 {.cfa = FLY_CFA_REG,
					  .cfa_reg = FLY_X86_RBP,
					  .offset = 16,
					  .fp = FLY_FP_AT_CFA,
					  .fp_words = -2,
					  .ra_words = -1}};

	(void)state;
	place(rules, 2, 0, 1);
	thread.pc = AT(0);
	put(0, AT(1) + 9);
	walk();
	expect(2, AT(1) + 9, true, 0);
	thread.regs[FLY_X86_RBP] = 8;
	walk();
	expect(2, AT(1) + 9, false, FLY_CUT_UNWIND_LOST);
}

static void table_walk__a_register_of_a_caller__is_not_known(void **state)
{
	const struct fly_rule rules[] = {
		by_sp(8), {.cfa = FLY_CFA_REG, .cfa_reg = 3, .offset = 16, .ra_words = -1}};

	(void)state;
	place(rules, 2, 0, 1);
	thread.pc = AT(0);
	thread.regs[3] = STACK + 128;
	put(0, AT(1) + 9);
	walk();
	expect(2, AT(1) + 9, false, FLY_CUT_UNWIND_UNSUPPORTED);
}

/* Assembler that calls its own: what the callee leaves alone is still there, for one call. */
static void table_walk__a_scratch_register__is_known_in_the_next_caller(void **state)
{
	const struct fly_rule by_rax = {
		.cfa = FLY_CFA_REG, .cfa_reg = 0, .offset = 8, .ra_words = -1};
	const struct fly_rule rules[] = {by_sp(8), by_rax, by_rax, stop};

	(void)state;
	place(rules, 4, 0, 1);
	thread.pc = AT(0);
	thread.regs[0] = STACK + 128;
	put(0, AT(1) + 9);
	put(128, AT(3) + 1);
	walk();
	expect(3, AT(3) + 1, true, 0);
	put(128, AT(2) + 1);
	walk();
	expect(3, AT(2) + 1, false, FLY_CUT_UNWIND_UNSUPPORTED);
}

static void table_walk__no_mapping__is_no_frame(void **state)
{
	const struct fly_rule rules[] = {by_sp(8)};

	(void)state;
	place(rules, 1, 0, 1);
	thread.pc = AT(0);
	put(0, 0x12345678);
	walk();
	expect(1, AT(0), false, FLY_CUT_MAPPING_ABSENT);
	thread.pc = 0;
	walk();
	expect(1, 0, false, FLY_CUT_MAPPING_ABSENT);
}

static void table_walk__no_table__is_told(void **state)
{
	const struct fly_rule rules[] = {by_sp(8)};

	(void)state;
	place(rules, 1, 0, FLY_TABLE_NONE);
	thread.pc = AT(0);
	walk();
	expect(1, AT(0), false, FLY_CUT_TABLE_ABSENT);
}

static void table_walk__an_absent_page__is_told_with_its_number(void **state)
{
	const struct fly_rule rules[] = {by_sp(8)};
	__u64 absent = fly_page_make(0, (__u64)FLY_PAGE_ABSENT, 0ULL);

	(void)state;
	place(rules, 1, 0, 1);
	memcpy(space->blocks[0], &absent, sizeof(absent));
	thread.pc = AT(0);
	walk();
	expect(1, AT(0), false, FLY_CUT_TABLE_PAGE_ABSENT);
	assert_int_equal(found.detail, 1 << 16);
}

static void table_walk__a_stack_that_does_not_rise__is_lost(void **state)
{
	const struct fly_rule rules[] = {by_sp(0)};

	(void)state;
	place(rules, 1, 0, 1);
	thread.pc = AT(0);
	put(0, AT(0) + 1);
	walk();
	expect(1, AT(0), false, FLY_CUT_UNWIND_LOST);
}

static void table_walk__an_endless_stack__is_cut_at_the_limit(void **state)
{
	const struct fly_rule rules[] = {by_sp(8)};
	static const struct unwind_memory memory = {.read = memory_read};

	(void)state;
	place(rules, 1, 0, 1);
	thread.pc = AT(0);
	for (uint64_t at = 0; at < BYTES; at += 8)
		put(at, AT(0) + 7);
	unwind_walk(space, &memory, &thread, 100, &found);
	expect(100, AT(0) + 7, false, FLY_CUT_DEPTH_LIMIT);
	unwind_walk(space, &memory, &thread, UNWIND_FRAMES_MAX, &found);
	expect(BYTES / 8 + 1, AT(0) + 7, false, FLY_CUT_USER_PAGE_ABSENT);
}

/* ------------------------------------------------------------------ the verdict */

static struct cli_judgement judgement(uint32_t count, uint32_t judged, bool is_whole)
{
	struct cli_judgement j = {.judged = judged};

	j.stack.count = count;
	j.stack.is_whole = is_whole;
	for (uint32_t i = 0; i < count; i++)
		j.stack.frames[i] = 100 + i;
	return j;
}

static void verdict__of_stacks__counts_what_libdw_knows(void **state)
{
	static struct cli_judgement libdw;
	static struct unwind_stack ours;
	uint32_t depth = 99;

	(void)state;
	libdw = judgement(5, 5, true);
	ours = libdw.stack;
	assert_int_equal(cli_stack_compare(&ours, &libdw, &depth), CLI_VERDICT_SAME);
	ours.frames[4] = 7;
	assert_int_equal(cli_stack_compare(&ours, &libdw, &depth), CLI_VERDICT_WRONG);
	assert_int_equal(depth, 4);
	/* It was lost there. */
	libdw = judgement(5, 5, false);
	assert_int_equal(cli_stack_compare(&ours, &libdw, &depth), CLI_VERDICT_SAME);
	ours.frames[3] = 7;
	assert_int_equal(cli_stack_compare(&ours, &libdw, &depth), CLI_VERDICT_WRONG);
	assert_int_equal(depth, 3);
	/* It guessed from frame 3 on. */
	libdw = judgement(5, 3, true);
	assert_int_equal(cli_stack_compare(&ours, &libdw, &depth), CLI_VERDICT_SAME);
	ours.count = 2;
	assert_int_equal(cli_stack_compare(&ours, &libdw, &depth), CLI_VERDICT_SHORT);
	assert_int_equal(depth, 2);
	/* Deeper than libdw. */
	libdw = judgement(2, 2, false);
	ours.count = 5;
	assert_int_equal(cli_stack_compare(&ours, &libdw, &depth), CLI_VERDICT_SAME);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(table_walk__callers__are_found_to_the_stop),
		T(table_walk__a_last_call__belongs_to_its_function),
		T(table_walk__in_a_system_call__the_entering_instruction_counts),
		T(table_walk__a_handlers_first_instruction__is_the_handlers),
		T(table_walk__over_a_signal__all_registers_are_known),
		T(table_walk__a_tracked_register__is_known_in_callers),
		T(table_walk__a_frame_pointer_of_0__ends_the_chain),
		T(table_walk__a_register_of_a_caller__is_not_known),
		T(table_walk__a_scratch_register__is_known_in_the_next_caller),
		T(table_walk__no_mapping__is_no_frame),
		T(table_walk__no_table__is_told),
		T(table_walk__an_absent_page__is_told_with_its_number),
		T(table_walk__a_stack_that_does_not_rise__is_lost),
		T(table_walk__an_endless_stack__is_cut_at_the_limit),
		cmocka_unit_test(verdict__of_stacks__counts_what_libdw_knows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
