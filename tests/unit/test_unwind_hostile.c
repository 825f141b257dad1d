// SPDX-License-Identifier: Apache-2.0
/* What files can do to unwind: damage, lies, full dictionaries, too much of everything, no memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unwind/unwind_sort.h"
#include "unwind_image.h"

static uint64_t seed = 88172645463325252ULL;

static uint32_t any(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32) % below;
}

static int try_build(struct image *im, struct unwind_table **ret)
{
	struct unwind_source source = image_source(im);

	return unwind_table_build(&source, NULL, ret, NULL);
}

/* Every address can be looked up, whatever the file held. */
static void probe(const struct unwind_table *t)
{
	struct fly_rule r;

	for (uint64_t at = t->start; at < t->start + ((uint64_t)t->page_count << 16); at += 37)
		unwind_table_find(t, at, &r);
	assert_true(t->stats.scratch_bytes <= UNWIND_SCRATCH_BYTES);
	assert_int_equal(unwind_table_check(t, NULL), 0);
}

static void small_image(struct image *im)
{
	image_init(im, EM_X86_64, 0x3000);
	image_cie_x86(im);
	for (uint32_t i = 0; i < 20; i++) {
		image_fde(im, IMAGE_TEXT + i * 0x40, 0x30);
		CODE(im, "\x41\x0e\x10\x86\x02\x43\x0d\x06\x0a\x4b\x0c\x07\x08\x41\x0b");
		CODE(im, "\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00");
		image_end(im);
	}
	image_close(im);
}

static void unwind_hostile__every_prefix__ends_well(void **state)
{
	struct unwind_table *t;
	struct image im;
	size_t full;

	(void)state;
	small_image(&im);
	full = im.len;
	for (size_t n = 0; n < 2048; n++) {
		im.len = n;
		t = NULL;
		if (!try_build(&im, &t))
			probe(t);
		unwind_table_free(t);
	}
	im.len = full;
	image_free(&im);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

static void unwind_hostile__random_damage__ends_well(void **state)
{
	struct unwind_table *t;
	struct image im, copy;

	(void)state;
	small_image(&im);
	for (int round = 0; round < 5000; round++) {
		copy = im;
		copy.bytes = malloc(im.len);
		assert_non_null(copy.bytes);
		memcpy(copy.bytes, im.bytes, im.len);
		for (uint32_t i = any(8) + 1; i; i--)
			copy.bytes[any(4) ? IMAGE_FRAME + any(800) : any(0x410)] =
				(uint8_t)any(256);
		t = NULL;
		if (!try_build(&copy, &t))
			probe(t);
		unwind_table_free(t);
		image_free(&copy);
	}
	image_free(&im);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

static void unwind_hostile__every_failed_allocation__is_an_error(void **state)
{
	struct unwind_table *t;
	struct image im;
	int err = -ENOMEM;

	(void)state;
	small_image(&im);
	for (unsigned long n = 1; err; n++) {
		t = NULL;
		mem_fail_after(n);
		err = try_build(&im, &t);
		mem_fail_after(0);
		assert_true(!err || err == -ENOMEM);
		unwind_table_free(t);
		assert_int_equal(mem_live_bytes(MEM_ELF), 0);
		assert_true(n < 100);
	}
	image_free(&im);
}

static void unwind_hostile__failing_reads__are_passed_on(void **state)
{
	struct unwind_table *t = NULL;
	struct image im;

	(void)state;
	small_image(&im);
	im.fail_at = 0x2000;
	assert_int_equal(try_build(&im, &t), -EIO);
	assert_null(t);
	image_free(&im);
}

static void unwind_hostile__huge_text__is_refused(void **state)
{
	struct unwind_table *t = NULL;
	Elf64_Phdr p = {.p_type = PT_LOAD, .p_flags = PF_X, .p_vaddr = 1ULL << 45, .p_filesz = 64};
	struct image im;

	(void)state;
	small_image(&im);
	memcpy(im.bytes + sizeof(Elf64_Ehdr) + 3 * sizeof(p), &p, sizeof(p));
	assert_int_equal(try_build(&im, &t), -ERANGE);
	image_free(&im);
}

/* A CFA offset for each function: more than there are numbers for rules. */
static void unwind_hostile__too_many_rules__become_unsupported(void **state)
{
	struct unwind_table *t = NULL;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	for (uint32_t i = 0; i < 6000; i++) {
		image_fde(&im, IMAGE_TEXT + i * 16, 16);
		image_u8(&im, 0x0e);
		image_u8(&im, 0x80 | (i & 0x7f));
		image_u8(&im, 0x80 | (i >> 7));
		image_u8(&im, 1);
		image_end(&im);
	}
	image_close(&im);
	assert_int_equal(try_build(&im, &t), 0);
	assert_int_equal(t->rule_count, FLY_RULES_MAX);
	for (uint32_t i = 0; i < 6000; i++) {
		assert_int_equal(unwind_table_find(t, IMAGE_TEXT + i * 16 + 3, &r), FLY_FIND_RULE);
		if (r.cfa == FLY_CFA_REG)
			assert_int_equal(r.offset, (1 << 14) + (int)i);
		else
			assert_int_equal(r.cfa, FLY_CFA_UNSUPPORTED);
	}
	assert_true(t->stats.groups_degraded > 1000);
	assert_true(t->stats.rows_unsupported > 0);
	unwind_table_free(t);
	image_free(&im);
}

/* Rows in random patterns: shapes run out, then pages are full; what is found stays right or is
 * said to be unknown. */
static void random_rows(struct image *im, int8_t *truth, uint32_t text, uint32_t step)
{
	uint32_t at = 0, n = 8;

	image_init(im, EM_X86_64, text);
	image_cie_x86(im);
	image_fde(im, IMAGE_TEXT, text);
	while (at < text) {
		uint32_t bytes = any(step) + 1;

		image_u8(im, 0x0e);
		image_u8(im, n);
		image_u8(im, 0x40 | bytes);
		for (uint32_t i = at; i < at + bytes && i < text; i++)
			truth[i] = (int8_t)n;
		at += bytes;
		n = (n + 8 * (any(10) + 1)) % 96;
	}
	image_end(im);
	image_close(im);
}

static void check_rows(uint32_t text, uint32_t step)
{
	int8_t *truth = calloc(1, text);
	struct unwind_table *t = NULL;
	uint32_t unknown = 0;
	struct fly_rule r;
	struct image im;

	assert_non_null(truth);
	random_rows(&im, truth, text, step);
	assert_int_equal(try_build(&im, &t), 0);
	assert_true(t->shape_words <= FLY_SHAPES_MAX);
	assert_true(t->stats.groups_degraded > 0);
	for (uint32_t i = 0; i < text; i++) {
		assert_int_equal(unwind_table_find(t, IMAGE_TEXT + i, &r), FLY_FIND_RULE);
		if (r.cfa == FLY_CFA_REG)
			assert_int_equal(r.offset, truth[i]);
		else
			unknown++;
	}
	if (step > 4)
		assert_int_equal(unknown, 0);
	else
		assert_true(unknown > 0);
	probe(t);
	unwind_table_free(t);
	image_free(&im);
	free(truth);
}

static void unwind_hostile__too_many_shapes__fall_back_to_single_rows(void **state)
{
	(void)state;
	check_rows(1U << 20, 8);
}

static void unwind_hostile__too_many_groups__are_said_to_be_unknown(void **state)
{
	(void)state;
	check_rows(1U << 20, 2);
}

static void unwind_hostile__table_past_its_limit__is_refused(void **state)
{
	struct unwind_options options = {.table_bytes_max = 1000};
	struct unwind_table *t = NULL;
	struct unwind_source source;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	for (uint32_t i = 0; i < 1000; i++) {
		image_fde(&im, IMAGE_TEXT + i * 0x40, 0x10);
		image_end(&im);
	}
	image_close(&im);
	source = image_source(&im);
	assert_int_equal(unwind_table_build(&source, &options, &t, NULL), -ENOSPC);
	assert_null(t);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
	image_free(&im);
}

/* More functions than one pass keeps, disordered, over many pages. */
static void unwind_hostile__more_functions_than_a_pass__are_all_there(void **state)
{
	const uint32_t count = UNWIND_PASS_FDES + 100000;
	struct unwind_table *t = NULL;
	struct fly_rule r;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, count * 16);
	image_cie_x86(&im);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t n = (uint32_t)((uint64_t)i * 7919 % count);

		image_fde(&im, IMAGE_TEXT + (uint64_t)n * 16, n == count / 2 ? 1024 : 16);
		CODE(&im, "\x0e");
		image_u8(&im, n % 120);
		image_end(&im);
	}
	image_close(&im);
	assert_int_equal(try_build(&im, &t), 0);
	assert_int_equal(t->stats.fdes, count);
	assert_true(t->stats.passes > 2);
	for (uint32_t n = 0; n < count; n++) {
		assert_int_equal(unwind_table_find(t, IMAGE_TEXT + (uint64_t)n * 16 + 5, &r),
				 FLY_FIND_RULE);
		assert_int_equal(r.offset, n % 120);
	}
	assert_true(t->stats.scratch_bytes <= UNWIND_SCRATCH_BYTES);
	unwind_table_free(t);
	image_free(&im);
}

/* All at one address: no pass has room for them, and only one can count. */
static void unwind_hostile__functions_all_at_one_address__are_bounded(void **state)
{
	struct unwind_table *t = NULL;
	struct image im;

	(void)state;
	image_init(&im, EM_X86_64, 0x20000);
	image_cie_x86(&im);
	for (uint32_t i = 0; i < UNWIND_PASS_FDES + 1000; i++) {
		image_fde(&im, IMAGE_TEXT + 0x10000, i + 1);
		image_end(&im);
	}
	image_close(&im);
	assert_int_equal(try_build(&im, &t), 0);
	assert_int_equal(t->stats.fdes, 1);
	probe(t);
	unwind_table_free(t);
	image_free(&im);
}

static void unwind_sort__any_order__is_sorted(void **state)
{
	static uint64_t keys[5000], copy[5000];

	(void)state;
	for (uint32_t round = 0; round < 200; round++) {
		uint32_t n = any(ARRAY_SIZE(keys)), range = 1U << any(31);
		uint64_t sum = 0;

		for (uint32_t i = 0; i < n; i++) {
			keys[i] = (uint64_t)any(range) << 32 | any(range);
			sum += keys[i];
		}
		unwind_sort(keys, n);
		for (uint32_t i = 0; i < n; i++) {
			assert_true(!i || keys[i - 1] <= keys[i]);
			sum -= keys[i];
		}
		assert_true(!sum);
		memcpy(copy, keys, sizeof(copy));
		unwind_sort(keys, n);
		assert_memory_equal(copy, keys, sizeof(copy));
	}
}

static void expect_refused(const struct unwind_table *t)
{
	assert_int_equal(unwind_table_check(t, NULL), -EBADMSG);
}

/* One part of a good table is replaced at a time; each damage would lead a look-up astray. */
static void unwind_hostile__a_table_that_lies__is_refused(void **state)
{
	struct unwind_table *t, bad;
	__u64 page, pages[2];
	struct fly_rule rule;
	struct image im;
	__u32 word;

	(void)state;
	small_image(&im);
	assert_int_equal(try_build(&im, &t), 0);
	assert_int_equal(unwind_table_check(t, NULL), 0);
	assert_int_equal(t->page_count, 1);

#define LIE(field, value)                                                                          \
	do {                                                                                       \
		bad = *t;                                                                          \
		bad.field = (value);                                                               \
		expect_refused(&bad);                                                              \
	} while (0)
	LIE(machine, 3);
	LIE(scale, 40);
	LIE(found, 9);
	LIE(start, t->start + 4096);
	LIE(start, UINT64_MAX - 65535);
	LIE(page_count, 0);
	LIE(page_count, FLY_PAGES_MAX + 1);
	LIE(group_count, t->group_count - 1);
	LIE(group_count, t->group_count + 1);
	LIE(shape_words, 0);
	LIE(shape_words, FLY_SHAPES_MAX + 1);
	LIE(shape_words, 1);
	LIE(rule_count, 0);
	LIE(rule_count, 1);
	LIE(rule_count, FLY_RULES_MAX + 1);
#undef LIE
	page = t->pages[0];
#define PAGE(at, count, before)                                                                    \
	do {                                                                                       \
		t->pages[0] = fly_page_make(at, (__u64)(count), (__u64)(before));                  \
		expect_refused(t);                                                                 \
		t->pages[0] = page;                                                                \
	} while (0)
	PAGE(1, fly_page_count(page) - 1, 0);
	PAGE(0, FLY_PAGE_ABSENT, 0);
	PAGE(0, fly_page_count(page) + 1, 0);
	PAGE(0, fly_page_count(page), t->rule_count);
#undef PAGE
	/* Two pages over the same groups. */
	pages[0] = pages[1] = page;
	bad = *t;
	bad.pages = pages;
	bad.page_count = 2;
	expect_refused(&bad);
#define WORD(place, value)                                                                         \
	do {                                                                                       \
		word = (place);                                                                    \
		(place) = (value);                                                                 \
		expect_refused(t);                                                                 \
		(place) = word;                                                                    \
	} while (0)
	WORD(t->groups[1], fly_group_make(0, 1));
	WORD(t->groups[1], t->groups[1] & 0xffff0000);
	WORD(t->groups[1], (t->groups[1] & 0xffff0000) | t->shape_words);
	WORD(t->shapes[1], 0xfff0);
	WORD(t->shapes[1], 0xfff00000);
	WORD(t->shapes[t->shape_words - 1], 0x110000);
#undef WORD
	rule = t->rules[0];
	t->rules[0].offset = 8;
	expect_refused(t);
	t->rules[0] = rule;
	rule = t->rules[1];
	t->rules[1].cfa = FLY_CFA_UNSUPPORTED + 1;
	expect_refused(t);
	t->rules[1] = rule;
	t->rules[1].fp = 4;
	expect_refused(t);
	t->rules[1].fp = FLY_TRACKED_LOST + 0x10;
	expect_refused(t);
	t->rules[1] = rule;
	assert_int_equal(unwind_table_check(t, NULL), 0);
	unwind_table_free(t);
	image_free(&im);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unwind_hostile__every_prefix__ends_well),
		cmocka_unit_test(unwind_hostile__random_damage__ends_well),
		cmocka_unit_test(unwind_hostile__every_failed_allocation__is_an_error),
		cmocka_unit_test(unwind_hostile__failing_reads__are_passed_on),
		cmocka_unit_test(unwind_hostile__huge_text__is_refused),
		cmocka_unit_test(unwind_hostile__too_many_rules__become_unsupported),
		cmocka_unit_test(unwind_hostile__too_many_shapes__fall_back_to_single_rows),
		cmocka_unit_test(unwind_hostile__too_many_groups__are_said_to_be_unknown),
		cmocka_unit_test(unwind_hostile__table_past_its_limit__is_refused),
		cmocka_unit_test(unwind_hostile__more_functions_than_a_pass__are_all_there),
		cmocka_unit_test(unwind_hostile__functions_all_at_one_address__are_bounded),
		cmocka_unit_test(unwind_hostile__a_table_that_lies__is_refused),
		cmocka_unit_test(unwind_sort__any_order__is_sorted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
