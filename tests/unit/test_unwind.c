// SPDX-License-Identifier: Apache-2.0
/* What rows mean: each case of docs/unwinding.md as bytes of .eh_frame, and the rule found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

#include "unwind_image.h"

static struct unwind_table *build(struct image *im)
{
	struct unwind_source source;
	struct unwind_table *t = NULL;
	struct why why = {""};
	int err;

	image_close(im);
	source = image_source(im);
	err = unwind_table_build(&source, NULL, &t, &why);
	if (err)
		fail_msg("%d: %s", err, why.text);
	return t;
}

static struct fly_rule rule_at(const struct unwind_table *t, uint64_t vaddr)
{
	struct fly_rule r = {.cfa = 99};

	assert_int_equal(unwind_table_find(t, vaddr, &r), FLY_FIND_RULE);
	return r;
}

static void assert_sp(const struct unwind_table *t, uint64_t vaddr, int offset)
{
	struct fly_rule r = rule_at(t, vaddr);

	assert_int_equal(r.cfa, FLY_CFA_REG);
	assert_int_equal(r.cfa_reg, FLY_X86_RSP);
	assert_int_equal(r.offset, offset);
	assert_int_equal(r.ra, 0);
	assert_int_equal(r.ra_words, -1);
}

static void done(struct unwind_table *t, struct image *im)
{
	unwind_table_free(t);
	image_free(im);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

/* push rbp; mov rsp,rbp; body; pop rbp; ret */
static void unwind__frame_pointer_function__has_its_rows(void **state)
{
	struct unwind_table *t;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT + 0x100, 0x40);
	/* +1: CFA SP+16, rbp at CFA-16; +4: CFA rbp+16; +0x3f: CFA SP+8 */
	CODE(&im, "\x41\x0e\x10\x86\x02\x43\x0d\x06\x7b\x0c\x07\x08");
	image_end(&im);
	t = build(&im);

	assert_sp(t, IMAGE_TEXT + 0x100, 8);
	assert_sp(t, IMAGE_TEXT + 0x101, 16);
	r = rule_at(t, IMAGE_TEXT + 0x103);
	assert_int_equal(r.fp, FLY_FP_AT_CFA);
	assert_int_equal(r.fp_words, -2);
	r = rule_at(t, IMAGE_TEXT + 0x104);
	assert_int_equal(r.cfa_reg, FLY_X86_RBP);
	assert_int_equal(r.offset, 16);
	assert_int_equal(r.fp, FLY_FP_AT_CFA);
	/* Popped: its slot lies below SP, the register holds it. */
	assert_sp(t, IMAGE_TEXT + 0x13f, 8);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x13f).fp, FLY_FP_SAME);
	assert_int_equal(t->stats.fdes, 1);
	done(t, &im);
}

static void unwind__gap_and_padding__differ(void **state)
{
	struct unwind_table *t;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT + 0x100, 0x11);
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x120, 0x10); /* 15 bytes of padding before it */
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x140, 0x10); /* a hole of 16 before it */
	image_end(&im);
	t = build(&im);

	assert_sp(t, IMAGE_TEXT + 0x111, 8);
	assert_sp(t, IMAGE_TEXT + 0x12f, 8);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x130).cfa, FLY_CFA_NONE);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x13f).cfa, FLY_CFA_NONE);
	assert_sp(t, IMAGE_TEXT + 0x140, 8);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x150).cfa, FLY_CFA_NONE);
	assert_int_equal(rule_at(t, IMAGE_TEXT).cfa, FLY_CFA_NONE);
	done(t, &im);
}

static void unwind__addresses_beside_the_table__are_outside(void **state)
{
	struct unwind_table *t;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x40000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT + 0x10000, 0x20000);
	image_end(&im);
	t = build(&im);
	assert_int_equal(t->page_count, 2);
	assert_int_equal(unwind_table_find(t, IMAGE_TEXT + 0xffff, &r), FLY_FIND_OUTSIDE);
	/* A page without groups starts under the rule of the one before. */
	assert_sp(t, IMAGE_TEXT + 0x2ffff, 8);
	assert_int_equal(unwind_table_find(t, IMAGE_TEXT + 0x30000, &r), FLY_FIND_OUTSIDE);
	assert_int_equal(unwind_table_find(t, UINT64_MAX, &r), FLY_FIND_OUTSIDE);
	done(t, &im);
}

static void unwind__restore_state__restores_the_cfa(void **state)
{
	struct unwind_table *t;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT, 0x40);
	CODE(&im, "\x0e\x20\x41\x0a\x0e\x08\x41\x0b");
	image_end(&im);
	t = build(&im);
	assert_sp(t, IMAGE_TEXT, 32);
	assert_sp(t, IMAGE_TEXT + 1, 8);
	assert_sp(t, IMAGE_TEXT + 2, 32);
	done(t, &im);
}

static void unwind__too_many_remembered_states__end_one_function_only(void **state)
{
	struct unwind_table *t;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT, 0x10);
	CODE(&im, "\x42");
	for (int i = 0; i < 17; i++)
		CODE(&im, "\x0a");
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x10, 0x10);
	image_end(&im);
	t = build(&im);
	assert_sp(t, IMAGE_TEXT + 1, 8);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 2).cfa, FLY_CFA_UNSUPPORTED);
	assert_sp(t, IMAGE_TEXT + 0x10, 8);
	assert_int_equal(t->stats.rows_unsupported, 1);
	assert_int_equal(t->stats.unsupported_bytes, 14);
	done(t, &im);
}

static void unwind__expressions__become_rules(void **state)
{
	struct unwind_table *t;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT, 0x40);
	CODE(&im, "\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"); /* PLT */
	CODE(&im, "\x44\x0f\x03\x76\x78\x06");				   /* *(rbp - 8) */
	CODE(&im, "\x10\x06\x02\x76\x00");				   /* rbp at rbp + 0 */
	image_end(&im);
	t = build(&im);

	r = rule_at(t, IMAGE_TEXT);
	assert_int_equal(r.cfa, FLY_CFA_PLT);
	assert_int_equal(fly_rule_inner(&r), 8);
	assert_int_equal(fly_rule_add(&r), 11);
	r = rule_at(t, IMAGE_TEXT + 4);
	assert_int_equal(r.cfa, FLY_CFA_DEREF);
	assert_int_equal(r.cfa_reg, FLY_X86_RBP);
	assert_int_equal(fly_rule_inner(&r), -8);
	assert_int_equal(fly_rule_add(&r), 0);
	assert_int_equal(r.fp, FLY_FP_AT_FP);
	assert_int_equal(r.fp_words, 0);
	assert_int_equal(r.ra_words, -1);
	done(t, &im);
}

static void unwind__openssl_expressions__become_rules(void **state)
{
	struct unwind_table *t;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT, 0x40);
	CODE(&im, "\x0f\x06\x77\xc0\x00\x06\x23\x08");
	CODE(&im, "\x44\x0f\x0a\x77\x08\x79\x00\x38\x1e\x22\x06\x23\x08");
	CODE(&im, "\x44\x0f\x03\x77\x00\x13");
	image_end(&im);
	t = build(&im);

	r = rule_at(t, IMAGE_TEXT);
	assert_int_equal(r.cfa, FLY_CFA_DEREF);
	assert_int_equal(r.cfa_reg, FLY_X86_RSP);
	assert_int_equal(fly_rule_inner(&r), 64);
	assert_int_equal(fly_rule_add(&r), 8);
	r = rule_at(t, IMAGE_TEXT + 4);
	assert_int_equal(r.cfa, FLY_CFA_INDEXED);
	assert_int_equal(r.cfa_reg, 9);
	assert_int_equal(fly_rule_inner(&r), 8);
	assert_int_equal(fly_rule_add(&r), 8);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 8).cfa, FLY_CFA_UNSUPPORTED);
	done(t, &im);
}

static void unwind__outermost_vfork_and_realigned__are_told_apart(void **state)
{
	struct unwind_table *t;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT, 0x20);
	CODE(&im, "\x07\x10"); /* RA undefined */
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x20, 0x20);
	CODE(&im, "\x42\x0e\x00\x09\x10\x05"); /* CFA SP+0, RA in rdi */
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x40, 0x20);
	CODE(&im, "\x42\x0c\x0a\x00"); /* CFA r10+0 */
	image_end(&im);
	t = build(&im);

	assert_int_equal(rule_at(t, IMAGE_TEXT).cfa, FLY_CFA_STOP);
	r = rule_at(t, IMAGE_TEXT + 0x22);
	assert_int_equal(r.offset, 0);
	assert_int_equal(r.ra, FLY_RA_IN_REG | 5);
	assert_int_equal(r.fp, FLY_FP_SAME);
	r = rule_at(t, IMAGE_TEXT + 0x42);
	assert_int_equal(r.cfa, FLY_CFA_REG);
	assert_int_equal(r.cfa_reg, 10);
	assert_int_equal(t->stats.rows_leaf_only, 2);
	assert_int_equal(t->stats.rows_unsupported, 0);
	assert_int_equal(t->tracked, 0);
	done(t, &im);
}

static void unwind__callee_saved_base__is_tracked_through_the_binary(void **state)
{
	struct unwind_table *t;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT, 0x20);
	CODE(&im, "\x41\x0e\x10\x83\x02\x43\x0d\x03"); /* push rbx; CFA rbx+16 */
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x20, 0x20);
	CODE(&im, "\x41\x0e\x10\x83\x02\x44\x0e\x08"); /* push rbx; pop rbx */
	image_end(&im);
	t = build(&im);

	assert_int_equal(t->tracked, 3);
	r = rule_at(t, IMAGE_TEXT + 4);
	assert_int_equal(r.cfa_reg, 3);
	assert_int_equal(r.fp, (unsigned int)FLY_FP_SAME | FLY_TRACKED_AT_CFA);
	assert_int_equal(r.ra_words, -2);
	r = rule_at(t, IMAGE_TEXT + 0x21);
	assert_int_equal(r.fp, (unsigned int)FLY_FP_SAME | FLY_TRACKED_AT_CFA);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x25).fp, FLY_FP_SAME);
	assert_int_equal(t->stats.rows_tracked, 1);
	assert_int_equal(t->stats.rows_unsupported, 0);
	done(t, &im);
}

static void unwind__kernel_signal_frame__is_a_command(void **state)
{
	struct unwind_table *t;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie(&im, "zRS", "\x1b", 1, 16, "", 0);
	image_fde(&im, IMAGE_TEXT + 0xf, 0x11); /* glibc starts it a byte early */
	CODE(&im, "\x0f\x04\x77\xa0\x01\x06");
	CODE(&im, "\x10\x10\x03\x77\xa8\x01");
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x20, 0x10); /* another layout */
	CODE(&im, "\x0f\x04\x77\xb0\x01\x06");
	CODE(&im, "\x10\x10\x03\x77\xa8\x01");
	image_end(&im);
	t = build(&im);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0xf).cfa, FLY_CFA_SIGNAL);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x1f).cfa, FLY_CFA_SIGNAL);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x20).cfa, FLY_CFA_UNSUPPORTED);
	done(t, &im);
}

static void unwind__disordered_functions__are_sorted_cut_and_dropped(void **state)
{
	struct unwind_table *t;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT + 0x100, 0x10);
	CODE(&im, "\x0e\x30");
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x10, 0x100); /* reaches into the one above */
	CODE(&im, "\x0e\x20");
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x10, 0x20); /* shorter double */
	CODE(&im, "\x0e\x40");
	image_end(&im);
	image_fde(&im, IMAGE_TEXT + 0x80, 0); /* empty */
	image_end(&im);
	image_fde(&im, 0, 0x10); /* discarded by the linker */
	image_end(&im);
	t = build(&im);

	assert_sp(t, IMAGE_TEXT + 0x10, 32);
	assert_sp(t, IMAGE_TEXT + 0xff, 32);
	assert_sp(t, IMAGE_TEXT + 0x100, 48);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x110).cfa, FLY_CFA_NONE);
	assert_int_equal(t->stats.fdes, 2);
	assert_int_equal(t->stats.fdes_dropped, 3);
	done(t, &im);
}

static void unwind__augmentations__unknown_ones_are_skipped(void **state)
{
	struct unwind_table *t;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie(&im, "zRQ", "\x1b\x01\x02\x03", 4, 16, "\x0c\x07\x08\x90\x01", 5);
	image_fde(&im, IMAGE_TEXT, 0x10);
	image_end(&im);
	image_cie(&im, "zPLR", "\x9b\x00\x00\x00\x00\x1b\x1b", 7, 16, "\x0c\x07\x10\x90\x01", 5);
	image_fde(&im, IMAGE_TEXT + 0x10, 0x10);
	image_end(&im);
	image_cie(&im, "eh", "", 0, 16, "\x0c\x07\x08\x90\x01", 5);
	image_fde(&im, IMAGE_TEXT + 0x20, 0x10);
	image_end(&im);
	t = build(&im);
	assert_sp(t, IMAGE_TEXT, 8);
	assert_sp(t, IMAGE_TEXT + 0x10, 16);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 0x20).cfa, FLY_CFA_NONE);
	assert_int_equal(t->stats.fdes_bad, 1);
	done(t, &im);
}

static void unwind__args_size_and_unknown_instruction__end_only_their_rows(void **state)
{
	struct unwind_table *t;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	image_fde(&im, IMAGE_TEXT, 0x20);
	CODE(&im, "\x44\x2e\x10\x44\x0e\x10\x44\x3e"); /* GNU_args_size; 0x3e is nothing */
	image_end(&im);
	t = build(&im);
	assert_sp(t, IMAGE_TEXT + 4, 8);
	assert_sp(t, IMAGE_TEXT + 8, 16);
	assert_int_equal(rule_at(t, IMAGE_TEXT + 12).cfa, FLY_CFA_UNSUPPORTED);
	done(t, &im);
}

static void unwind__aarch64__has_link_register_and_pauth(void **state)
{
	struct unwind_table *t;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_AARCH64, 0x20000);
	image_cie(&im, "zRB", "\x1b", 1, 30, "\x0c\x1f\x00", 3);
	image_fde(&im, IMAGE_TEXT, 0x40);
	/* paciasp; stp x29, x30, [sp, -32]!; mov x29, sp */
	CODE(&im, "\x44\x2d\x44\x0e\x20\x9d\x04\x9e\x03\x44\x0d\x1d");
	image_end(&im);
	t = build(&im);
	assert_int_equal(t->scale, 2);
	r = rule_at(t, IMAGE_TEXT + 3); /* a return address less one */
	assert_int_equal(r.cfa_reg, FLY_AARCH64_SP);
	assert_int_equal(r.ra, FLY_RA_IN_REG | FLY_AARCH64_LR);
	r = rule_at(t, IMAGE_TEXT + 8);
	assert_int_equal(r.offset, 32);
	assert_int_equal(r.ra, 0);
	assert_int_equal(r.ra_words, -3);
	assert_int_equal(r.fp_words, -4);
	r = rule_at(t, IMAGE_TEXT + 12);
	assert_int_equal(r.cfa_reg, FLY_AARCH64_FP);
	assert_int_equal(t->group_count, 2); /* its rows, and the hole after it */
	done(t, &im);
}

static void unwind__same_file__gives_the_same_table(void **state)
{
	struct unwind_table *first, *again = NULL;
	struct unwind_source source;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x40000);
	image_cie_x86(&im);
	for (uint32_t i = 0; i < 0x40000 - 0x100; i += 0xf0) {
		image_fde(&im, IMAGE_TEXT + i, 0xd0);
		CODE(&im, "\x41\x0e\x10\x42\x0e\x18");
		image_u8(&im, 0x40 + i % 61);
		CODE(&im, "\x0e\x08");
		image_end(&im);
	}
	first = build(&im);
	source = image_source(&im);
	assert_int_equal(unwind_table_build(&source, NULL, &again, NULL), 0);
	assert_int_equal(first->group_count, again->group_count);
	assert_memory_equal(first->pages, again->pages, first->page_count * sizeof(*first->pages));
	assert_memory_equal(first->groups, again->groups,
			    first->group_count * sizeof(*first->groups));
	assert_int_equal(first->shape_words, again->shape_words);
	assert_memory_equal(first->shapes, again->shapes,
			    first->shape_words * sizeof(*first->shapes));
	assert_memory_equal(first->rules, again->rules, first->rule_count * sizeof(*first->rules));
	unwind_table_free(again);
	done(first, &im);
}

static int self_read(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	return pread(*(int *)ctx, out, bytes, (off_t)offset) == (ssize_t)bytes ? 0 : -EIO;
}

/* This very program, built with frame pointers: its functions have rows that say so. */
static void unwind__this_program__is_covered(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct unwind_source source = {.read = self_read, .ctx = &fd};
	struct unwind_table *t = NULL;
	struct unwind_place place;

	(void)state;
	assert_true(fd >= 0);
	source.bytes = (uint64_t)lseek(fd, 0, SEEK_END);
	assert_int_equal(unwind_table_build(&source, NULL, &t, NULL), 0);
	assert_int_equal(unwind_locate(&source, &place, NULL), 0);
	assert_true(t->stats.fdes > 20);
	assert_int_equal(t->stats.fdes_bad, 0);
	assert_true(t->stats.covered_bytes > t->stats.text_bytes / 2);
	assert_true(unwind_forecast_bytes(&place) > unwind_table_bytes(t) / 4);
	assert_true(unwind_forecast_bytes(&place) < unwind_table_bytes(t) * 4);
	unwind_table_free(t);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unwind__frame_pointer_function__has_its_rows),
		cmocka_unit_test(unwind__gap_and_padding__differ),
		cmocka_unit_test(unwind__addresses_beside_the_table__are_outside),
		cmocka_unit_test(unwind__restore_state__restores_the_cfa),
		cmocka_unit_test(unwind__too_many_remembered_states__end_one_function_only),
		cmocka_unit_test(unwind__expressions__become_rules),
		cmocka_unit_test(unwind__openssl_expressions__become_rules),
		cmocka_unit_test(unwind__outermost_vfork_and_realigned__are_told_apart),
		cmocka_unit_test(unwind__callee_saved_base__is_tracked_through_the_binary),
		cmocka_unit_test(unwind__kernel_signal_frame__is_a_command),
		cmocka_unit_test(unwind__disordered_functions__are_sorted_cut_and_dropped),
		cmocka_unit_test(unwind__augmentations__unknown_ones_are_skipped),
		cmocka_unit_test(unwind__args_size_and_unknown_instruction__end_only_their_rows),
		cmocka_unit_test(unwind__aarch64__has_link_register_and_pauth),
		cmocka_unit_test(unwind__same_file__gives_the_same_table),
		cmocka_unit_test(unwind__this_program__is_covered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
