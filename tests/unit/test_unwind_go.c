// SPDX-License-Identifier: Apache-2.0
/* Rows from Go's own table of functions: a small image by hand, what it says, and damage to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unwind_image.h"

#define TEXT	  0x401000ULL
#define TABLE_AT  0x400ULL
#define FUNCTIONS 4U
#define BYTES	  0x2000U

static uint8_t image[BYTES];
static struct image im;

static void put32(size_t at, uint32_t v)
{
	memcpy(image + at, &v, sizeof(v));
}

static void put64(size_t at, uint64_t v)
{
	memcpy(image + at, &v, sizeof(v));
}

static void section(unsigned int i, uint32_t name, uint64_t address, uint64_t offset,
		    uint64_t bytes)
{
	Elf64_Shdr s = {.sh_name = name,
			.sh_type = SHT_PROGBITS,
			.sh_addr = address,
			.sh_offset = offset,
			.sh_size = bytes};

	memcpy(image + 0x200 + i * sizeof(s), &s, sizeof(s));
}

static void headers_write(void)
{
	Elf64_Ehdr eh = {.e_type = ET_EXEC,
			 .e_machine = EM_X86_64,
			 .e_version = 1,
			 .e_phoff = sizeof(eh),
			 .e_shoff = 0x200,
			 .e_ehsize = sizeof(eh),
			 .e_phentsize = sizeof(Elf64_Phdr),
			 .e_phnum = 1,
			 .e_shentsize = sizeof(Elf64_Shdr),
			 .e_shnum = 4,
			 .e_shstrndx = 3};
	Elf64_Phdr load = {.p_type = PT_LOAD,
			   .p_flags = PF_R | PF_X,
			   .p_vaddr = TEXT - 0x1000,
			   .p_filesz = BYTES};
	static const char names[] = "\0.text\0.gopclntab";

	memcpy(eh.e_ident, ELFMAG, SELFMAG);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	memcpy(image, &eh, sizeof(eh));
	memcpy(image + sizeof(eh), &load, sizeof(load));
	memcpy(image + 0x300, names, sizeof(names));
	section(1, 1, TEXT, 0x1000, 0x1000);
	section(2, 7, 0x500000, TABLE_AT, 0x400);
	section(3, 0, 0, 0x300, sizeof(names));
}

/* Functions of 0x40 bytes: without a frame; with one; called by nobody; with a stack of its own. */
static void image_write(uint32_t magic)
{
	static const uint8_t flags[FUNCTIONS] = {0, 0, 5, 6}; /* 4: assembler */
	/* Zigzag change, length: 0 throughout; 0, 8, 0x48, 0 and padding. */
	static const uint8_t none[] = {2, 0x40, 0};
	static const uint8_t frame[] = {2, 1, 16, 3, 0x80, 1, 0x20, 0x8f, 1, 4, 0};
	size_t functions = TABLE_AT + 0x100, steps = TABLE_AT + 0x80;

	memset(image, 0, sizeof(image));
	headers_write();
	put32(TABLE_AT, magic);
	image[TABLE_AT + 6] = 1;
	image[TABLE_AT + 7] = 8;
	put64(TABLE_AT + 8, FUNCTIONS);
	put64(TABLE_AT + 56, 0x80);
	put64(TABLE_AT + 64, 0x100);
	memcpy(image + steps + 1, none, sizeof(none));
	memcpy(image + steps + 8, frame, sizeof(frame));
	for (uint32_t i = 0; i < FUNCTIONS; i++) {
		size_t at = 0x40 + 0x40 * (size_t)i;

		put32(functions + 8 * (size_t)i, 0x40 * i);
		put32(functions + 8 * (size_t)i + 4, (uint32_t)at);
		put32(functions + at, 0x40 * i);
		put32(functions + at + 16, i ? 8 : 1);
		image[functions + at + (magic == 0xfffffff1U ? 41 : 37)] = flags[i];
	}
	put32(functions + 8 * FUNCTIONS, 0x40 * FUNCTIONS);
	im = (struct image){.bytes = image, .len = sizeof(image)};
}

static struct unwind_table *build(void)
{
	struct unwind_source source = image_source(&im);
	struct unwind_table *t = NULL;
	struct why why = {""};

	if (unwind_table_build(&source, NULL, &t, &why))
		fail_msg("%s", why.text);
	assert_int_equal(unwind_table_check(t, NULL), 0);
	assert_int_equal(t->found, UNWIND_GO);
	return t;
}

static void expect(const struct unwind_table *t, uint64_t offset, uint8_t reg, int cfa, uint8_t fp)
{
	struct fly_rule r;

	assert_int_equal(unwind_table_find(t, TEXT + offset, &r), FLY_FIND_RULE);
	assert_int_equal(r.cfa, FLY_CFA_REG);
	assert_int_equal(r.cfa_reg, reg);
	assert_int_equal(r.offset, cfa);
	assert_int_equal(r.fp, fp);
	assert_int_equal(r.fp_words, fp == FLY_FP_AT_CFA ? -2 : 0);
	assert_int_equal(r.ra_words, -1);
}

static void check_rows(uint32_t magic)
{
	struct unwind_table *t;
	struct fly_rule r;

	image_write(magic);
	t = build();
	assert_int_equal(t->stats.fdes, FUNCTIONS);
	assert_int_equal(t->stats.fdes_bad, 0);
	expect(t, 0, FLY_X86_RSP, 8, FLY_FP_SAME);
	expect(t, 0x3f, FLY_X86_RSP, 8, FLY_FP_SAME);
	expect(t, 0x40, FLY_X86_RSP, 8, FLY_FP_SAME);
	expect(t, 0x41, FLY_X86_RSP, 16, FLY_FP_AT_CFA);
	expect(t, 0x43, FLY_X86_RSP, 16, FLY_FP_AT_CFA);
	expect(t, 0x44, FLY_X86_RBP, 16, FLY_FP_AT_CFA);
	expect(t, 0x63, FLY_X86_RBP, 16, FLY_FP_AT_CFA);
	expect(t, 0x64, FLY_X86_RSP, 8, FLY_FP_SAME);
	assert_int_equal(unwind_table_find(t, TEXT + 0x80, &r), FLY_FIND_RULE);
	assert_int_equal(r.cfa, FLY_CFA_STOP);
	expect(t, 0x84, FLY_X86_RSP, 0x50, FLY_FP_LOST);
	expect(t, 0xc0, FLY_X86_RBP, 16, FLY_FP_AT_CFA);
	assert_int_equal(unwind_table_find(t, TEXT + 0x100, &r), FLY_FIND_RULE);
	assert_int_equal(r.cfa, FLY_CFA_NONE);
	unwind_table_free(t);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

static void unwind_go__functions__have_their_rows(void **state)
{
	(void)state;
	check_rows(0xfffffff0U);
	check_rows(0xfffffff1U);
}

/* Its address is what the handler returns to, so it is looked up one byte below. */
static void unwind_go__what_returns_from_a_signal__is_known_by_its_code(void **state)
{
	struct unwind_table *t;
	struct fly_rule r;

	(void)state;
	image_write(0xfffffff1U);
	memcpy(image + 0x1040, "\x48\xc7\xc0\x0f\0\0\0\x0f\x05", 9);
	t = build();
	expect(t, 0x3e, FLY_X86_RSP, 8, FLY_FP_SAME);
	for (uint64_t at = 0x3f; at < 0x50; at++) {
		assert_int_equal(unwind_table_find(t, TEXT + at, &r), FLY_FIND_RULE);
		assert_int_equal(r.cfa, FLY_CFA_SIGNAL);
	}
	assert_int_equal(unwind_table_find(t, TEXT + 0x80, &r), FLY_FIND_RULE);
	assert_int_equal(r.cfa, FLY_CFA_STOP);
	unwind_table_free(t);
}

/* Go before 1.25 says itself where its text begins. */
static void unwind_go__a_text_that_the_table_gives__is_taken(void **state)
{
	struct unwind_table *t;

	(void)state;
	image_write(0xfffffff1U);
	put64(TABLE_AT + 24, TEXT + 0x200);
	t = build();
	expect(t, 0x200, FLY_X86_RSP, 8, FLY_FP_SAME);
	expect(t, 0x244, FLY_X86_RBP, 16, FLY_FP_AT_CFA);
	unwind_table_free(t);
}

static void unwind_go__what_cannot_be__is_refused(void **state)
{
	struct unwind_source source;
	struct unwind_table *t;

	(void)state;
	image_write(0xfffffff1U);
	source = image_source(&im);
	put64(TABLE_AT + 8, 1ULL << 40);
	assert_int_equal(unwind_table_build(&source, NULL, &t, NULL), -EBADMSG);
	image_write(0xfffffffbU);
	assert_int_equal(unwind_table_build(&source, NULL, &t, NULL), -EBADMSG);
	image_write(0xfffffff1U);
	put64(TABLE_AT + 24, 0x12345000);
	assert_int_equal(unwind_table_build(&source, NULL, &t, NULL), -EBADMSG);
	/* One function's line ends too early: its own rows alone. */
	image_write(0xfffffff1U);
	image[TABLE_AT + 0x80 + 9] = 0;
	t = build();
	assert_int_equal(t->stats.fdes_bad, FUNCTIONS - 1);
	expect(t, 0x10, FLY_X86_RSP, 8, FLY_FP_SAME);
	unwind_table_free(t);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

/* Every byte of the table turned, every way: it ends well, and what comes out can be looked up. */
static void unwind_go__damage__ends_well(void **state)
{
	struct unwind_source source = image_source(&im);
	struct fly_rule r;

	(void)state;
	image_write(0xfffffff1U);
	for (size_t i = 0; i < 0x260 * 8; i++) {
		struct unwind_table *t = NULL;
		size_t at = TABLE_AT + i / 8;

		image[at] ^= (uint8_t)(1 << i % 8);
		if (!unwind_table_build(&source, NULL, &t, NULL)) {
			assert_int_equal(unwind_table_check(t, NULL), 0);
			for (uint64_t a = 0; a < 0x200; a += 8)
				unwind_table_find(t, TEXT + a, &r);
		}
		unwind_table_free(t);
		image[at] ^= (uint8_t)(1 << i % 8);
	}
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unwind_go__functions__have_their_rows),
		cmocka_unit_test(unwind_go__what_returns_from_a_signal__is_known_by_its_code),
		cmocka_unit_test(unwind_go__a_text_that_the_table_gives__is_taken),
		cmocka_unit_test(unwind_go__what_cannot_be__is_refused),
		cmocka_unit_test(unwind_go__damage__ends_well),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
