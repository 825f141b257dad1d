// SPDX-License-Identifier: Apache-2.0
/* The rules of symbol.h, one by one. */
#include "symbol/symbol.h"
#include "elf_image.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define T IMAGE_TEXT_VADDR

static struct elf_image image;

static int image_setup(void **state)
{
	(void)state;
	elf_image_init(&image);
	return 0;
}

static void release(struct symbol_query *q, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		mem_free(MEM_SYMBOL, q[i].name);
		mem_free(MEM_SYMBOL, q[i].module);
	}
	assert_int_equal(mem_live_bytes(MEM_SYMBOL), 0);
}

static void expect(uint64_t address, const char *name)
{
	struct symbol_query q = {.address = address};
	struct elf_file *elf;

	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(symbol_lookup_file(elf, &q, 1, NULL), 0);
	elf_close(elf);
	if (name) {
		assert_non_null(q.name);
		assert_string_equal(q.name, name);
		assert_true(q.start <= address);
	} else {
		assert_null(q.name);
	}
	assert_int_equal(q.found, name != NULL);
	release(&q, 1);
}

static void symbol__sized__covers_its_bytes_and_no_more(void **state)
{
	(void)state;
	elf_image_symbol(&image, "f", T + 0x100, 0x10, STT_FUNC, STB_GLOBAL);
	elf_image_symbol(&image, "g", T + 0x200, 0x10, STT_FUNC, STB_LOCAL);
	expect(T + 0xff, NULL);
	expect(T + 0x100, "f");
	expect(T + 0x10f, "f");
	expect(T + 0x110, NULL);
	expect(T + 0x205, "g");
	expect(0, NULL);
	expect(UINT64_MAX, NULL);
}

static void symbol__size_0__covers_up_to_the_next_in_its_section(void **state)
{
	(void)state;
	elf_image_symbol(&image, "start", T, 0, STT_NOTYPE, STB_GLOBAL);
	elf_image_symbol(&image, "f", T + 0x100, 0x10, STT_FUNC, STB_GLOBAL);
	elf_image_symbol(&image, "last", T + 0x200, 0, STT_NOTYPE, STB_GLOBAL);
	expect(T + 0xff, "start");
	expect(T + 0x110, NULL);
	expect(T + 0x200 + SYMBOL_GAP_MAX - 1, "last");
	expect(T + 0x200 + SYMBOL_GAP_MAX, NULL);
	/* .text ends here: what follows is the PLT's, say. */
	image.sections[1].sh_size = 0x300;
	expect(T + 0x2ff, "last");
	expect(T + 0x300, NULL);
}

static void symbol__size_0_beside_a_sized_one__ends_where_that_ends(void **state)
{
	(void)state;
	elf_image_symbol(&image, "alias", T, 0, STT_NOTYPE, STB_GLOBAL);
	elf_image_symbol(&image, "f", T, 0x10, STT_FUNC, STB_LOCAL);
	expect(T + 8, "f");
	expect(T + 0x10, NULL);
}

static void symbol__labels__name_nothing(void **state)
{
	(void)state;
	elf_image_symbol(&image, "f", T, 0, STT_FUNC, STB_GLOBAL);
	elf_image_symbol(&image, ".Ltmp1", T + 0x10, 0, STT_NOTYPE, STB_LOCAL);
	elf_image_symbol(&image, "$x", T + 0x20, 0, STT_NOTYPE, STB_LOCAL);
	elf_image_symbol(&image, "$d.5", T + 0x30, 0, STT_NOTYPE, STB_LOCAL);
	expect(T + 0x18, "f");
	image.head.e_machine = EM_AARCH64;
	expect(T + 0x28, "f");
	expect(T + 0x38, "f");
	image.head.e_machine = EM_X86_64;
	expect(T + 0x38, "$d.5");
}

static void symbol__aliases__are_chosen_by_rule(void **state)
{
	(void)state;
	elf_image_symbol(&image, "aa_local", T, 8, STT_FUNC, STB_LOCAL);
	expect(T, "aa_local");
	elf_image_symbol(&image, "a_local", T, 8, STT_FUNC, STB_LOCAL);
	expect(T, "aa_local"); /* the first in the table */
	elf_image_symbol(&image, "weak", T, 8, STT_FUNC, STB_WEAK);
	expect(T, "weak");
	elf_image_symbol(&image, "global_b", T, 8, STT_FUNC, STB_GLOBAL);
	expect(T, "global_b");
	elf_image_symbol(&image, "global_a", T, 8, STT_FUNC, STB_GLOBAL);
	expect(T, "global_a");
	elf_image_symbol(&image, "shorter", T, 8, STT_FUNC, STB_GLOBAL);
	expect(T, "shorter");
}

static void symbol__nested__takes_the_inner_one(void **state)
{
	(void)state;
	elf_image_symbol(&image, "outer", T, 0x100, STT_FUNC, STB_GLOBAL);
	elf_image_symbol(&image, "inner", T + 0x10, 0x10, STT_FUNC, STB_LOCAL);
	elf_image_symbol(&image, "label", T + 0x40, 0, STT_NOTYPE, STB_LOCAL);
	expect(T + 0x18, "inner");
	expect(T + 0x28, "outer");
	expect(T + 0x48, "outer");
}

static void symbol__version_suffix__is_taken_off(void **state)
{
	(void)state;
	elf_image_symbol(&image, "memcpy@@GLIBC_2.14", T, 8, STT_FUNC, STB_GLOBAL);
	expect(T, "memcpy");
}

static void symbol__other_sections__have_no_functions(void **state)
{
	(void)state;
	elf_image_symbol(&image, "table", T, 8, STT_OBJECT, STB_GLOBAL);
	elf_image_symbol(&image, "data_label", T, 0, STT_NOTYPE, STB_GLOBAL);
	image.symbols[2].st_shndx = 2;
	expect(T, NULL);
}

static void symbol__names__are_printable_and_cut(void **state)
{
	struct symbol_query q = {.address = T};
	struct elf_file *elf;
	char name[2000];

	(void)state;
	elf_image_symbol(&image, "caf\xe9\x1b[31m", T + 0x100, 8, STT_FUNC, STB_GLOBAL);
	expect(T + 0x100, "caf\xef\xbf\xbd?[31m");
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	elf_image_symbol(&image, name, T, 8, STT_FUNC, STB_GLOBAL);
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(symbol_lookup_file(elf, &q, 1, NULL), 0);
	elf_close(elf);
	assert_int_equal(strlen(q.name), SYMBOL_NAME_MAX - 1);
	assert_string_equal(q.name + SYMBOL_NAME_MAX - 4, "\xe2\x80\xa6");
	release(&q, 1);
}

static void symbol__a_batch__is_answered_like_single_queries(void **state)
{
	struct symbol_query q[300];
	struct elf_file *elf;

	(void)state;
	for (unsigned int i = 0; i < 40; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i * 7 % 40);
		elf_image_symbol(&image, name, T + (i * 7 % 40) * 0x10, i % 3 ? 0x10 : 0, STT_FUNC,
				 STB_GLOBAL);
	}
	for (unsigned int i = 0; i < 300; i++)
		q[i] = (struct symbol_query){.address = T + (299 - i) * 2};
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(symbol_lookup_file(elf, q, 300, NULL), 0);
	elf_close(elf);
	for (unsigned int i = 0; i < 300; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i * 2 / 0x10);
		assert_int_equal(q[i].address, T + i * 2);
		assert_string_equal(q[i].name, name);
	}
	release(q, 300);
}

static void symbol__every_failed_allocation__is_an_error(void **state)
{
	struct elf_file *elf;

	(void)state;
	elf_image_symbol(&image, "f", T, 8, STT_FUNC, STB_GLOBAL);
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	for (unsigned long n = 1; n <= 4; n++) {
		struct symbol_query q = {.address = T};

		mem_fail_after(n);
		assert_int_equal(symbol_lookup_file(elf, &q, 1, NULL), -ENOMEM);
		release(&q, 1);
	}
	mem_fail_after(0);
	elf_close(elf);
}

static void symbol__vdso__is_named(void **state)
{
	struct symbol_query q[512];
	size_t named = 0;

	(void)state;
	if (!getauxval(AT_SYSINFO_EHDR))
		skip();
	for (size_t i = 0; i < 512; i++)
		q[i] = (struct symbol_query){.address = i * 8};
	assert_int_equal(symbol_lookup_vdso(q, 512, NULL), 0);
	for (size_t i = 0; i < 512; i++)
		named += q[i].found && strstr(q[i].name, "vdso") != NULL;
	assert_true(named > 0);
	release(q, 512);
}

/* ------------------------------------------------------------------ kernel */

static int kernel_lookup(const char *text, size_t len, struct symbol_query *q, size_t count)
{
	FILE *f = fmemopen((void *)text, len, "r");
	int err;

	assert_non_null(f);
	err = symbol_lookup_kallsyms(f, q, count, NULL);
	fclose(f);
	return err;
}

static const char kernel_text[] = "0000000000000000 A fixed_percpu_data\n"
				  "ffffffff81000000 T _stext\n"
				  "ffffffff81000000 T startup_64\n"
				  "ffffffff81000100 t do_local\n"
				  "ffffffff81000100 T do_it\n"
				  "ffffffff81000100 W do_weak\n"
				  "garbage\n"
				  "ffffffff81000180 \0 nul_type\n"
				  "-1 T minus\n"
				  "ffffffff81000200 D some_data\n"
				  "ffffffff81000300 T last_func\n"
				  "ffffffff81010000 T _etext\n"
				  "ffffffffc0001000 t mod_a_fn\t[mod_a]\n"
				  "ffffffffc0000800 t mod_a_first\t[mod_a]\n"
				  "ffffffffc0100000 t mod_b_fn\t[mod_b]\n"
				  "ffffffffc0200000 t bpf_prog_x\t[bpf]";

static void symbol__kallsyms__names_text_only(void **state)
{
	static const struct {
		uint64_t address;
		const char *name, *module;
	} cases[] = {
		{0x1000, NULL, NULL},
		{0xffffffff80ffffff, NULL, NULL},
		{0xffffffff81000010, "startup_64", NULL},
		{0xffffffff810001ff, "do_it", NULL},
		{0xffffffff81000210, NULL, NULL},
		{0xffffffff81000400, "last_func", NULL},
		{0xffffffff81010008, NULL, NULL},
		{0xffffffffc0000fff, "mod_a_first", "[mod_a]"},
		{0xffffffffc0001010, "mod_a_fn", "[mod_a]"},
		{0xffffffffc0005000, NULL, NULL},
		{0xffffffffc0100001, "mod_b_fn", "[mod_b]"},
		{0xffffffffc0200010, "bpf_prog_x", "[bpf]"},
		{0xffffffffc0300000, NULL, NULL},
	};
	struct symbol_query q[ARRAY_SIZE(cases)];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		q[i] = (struct symbol_query){.address = cases[i].address};
	assert_int_equal(kernel_lookup(kernel_text, sizeof(kernel_text) - 1, q, ARRAY_SIZE(q)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(q[i].found, cases[i].name != NULL);
		if (!cases[i].name)
			continue;
		assert_string_equal(q[i].name, cases[i].name);
		if (cases[i].module)
			assert_string_equal(q[i].module, cases[i].module);
		else
			assert_null(q[i].module);
	}
	release(q, ARRAY_SIZE(q));
}

static void symbol__kallsyms_hidden__is_said(void **state)
{
	static const char text[] = "0000000000000000 T a\n0000000000000000 T b\n";
	struct symbol_query q = {.address = 0xffffffff81000000};

	(void)state;
	assert_int_equal(kernel_lookup(text, sizeof(text) - 1, &q, 1), -EACCES);
	assert_int_equal(q.found, 0);
	assert_int_equal(kernel_lookup("x", 1, &q, 1), -EACCES);
}

static void symbol__kallsyms_long_lines__are_skipped_whole(void **state)
{
	struct symbol_query q = {.address = 0xffffffff81000008};
	size_t n = 100000;
	char *text = malloc(n + 100);

	(void)state;
	assert_non_null(text);
	snprintf(text, 100, "ffffffff81000004 T ");
	memset(text + 19, 'x', n);
	snprintf(text + 19 + n, 60, "\nffffffff81000000 T right\n");
	assert_int_equal(kernel_lookup(text, strlen(text), &q, 1), 0);
	assert_string_equal(q.name, "right");
	release(&q, 1);
	free(text);
}

/* ------------------------------------------------------------------ demangling */

static void expect_demangled(const char *mangled, const char *want)
{
	char out[SYMBOL_NAME_MAX];

	symbol_demangle(mangled, out, sizeof(out));
	assert_string_equal(out, want);
}

static void symbol__demangle__knows_cxx_and_rust(void **state)
{
	(void)state;
	expect_demangled("_ZN3foo3barEi", "foo::bar(int)");
	expect_demangled("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
			 "core::fmt::Formatter::pad");
	expect_demangled("_RNvCs4fqI2P2rA04_7mycrate3foo", "mycrate::foo");
	expect_demangled("main", "main");
	expect_demangled("_Z", "_Z");
	expect_demangled("_ZN3foo", "_ZN3foo");
	/* D and Swift, old and new, stay as they are */
	expect_demangled("_D3foo3barFiZv", "_D3foo3barFiZv");
	expect_demangled("$s4main5spin1yyF", "$s4main5spin1yyF");
	expect_demangled("_$s4main5spin1yyF", "_$s4main5spin1yyF");
	expect_demangled("$S4main5spin1yyF", "$S4main5spin1yyF");
	expect_demangled("_T04main5spin1yyF", "_T04main5spin1yyF");
	expect_demangled("_TF4main5spin1FT_T_", "_TF4main5spin1FT_T_");
	expect_demangled("$ss5print_9separator10terminatoryypd_S2StF",
			 "$ss5print_9separator10terminatoryypd_S2StF");
	expect_demangled("", "");
}

static void symbol__demangle__is_bounded(void **state)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char mangled[1024], out[SYMBOL_NAME_MAX];
	uint64_t began = clock_monotonic_ns();
	size_t n;

	(void)state;
	/* A function of 30 arguments, each a template over the one before, twice. */
	n = (size_t)snprintf(mangled, sizeof(mangled), "_Z1f1AIiiE");
	for (int i = 0; i < 30; i++)
		n += (size_t)snprintf(mangled + n, sizeof(mangled) - n, "S_IS%c_S%c_E", digits[i],
				      digits[i]);
	symbol_demangle(mangled, out, sizeof(out));
	assert_true(clock_monotonic_ns() - began < 1000000000ULL);
	assert_true(strlen(out) < SYMBOL_NAME_MAX);
	assert_true(text_is_utf8(out, strlen(out)));
	for (size_t i = 0; i < sizeof(mangled) - 1; i++)
		mangled[i] = i < 2 ? "_Z"[i] : 'P';
	mangled[sizeof(mangled) - 1] = 0;
	symbol_demangle(mangled, out, sizeof(out));
	assert_true(strlen(out) == SYMBOL_NAME_MAX - 1);
	symbol_demangle("abcdef", out, 4);
	assert_true(strlen(out) <= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(symbol__sized__covers_its_bytes_and_no_more, image_setup),
		cmocka_unit_test_setup(symbol__size_0__covers_up_to_the_next_in_its_section,
				       image_setup),
		cmocka_unit_test_setup(symbol__size_0_beside_a_sized_one__ends_where_that_ends,
				       image_setup),
		cmocka_unit_test_setup(symbol__labels__name_nothing, image_setup),
		cmocka_unit_test_setup(symbol__aliases__are_chosen_by_rule, image_setup),
		cmocka_unit_test_setup(symbol__nested__takes_the_inner_one, image_setup),
		cmocka_unit_test_setup(symbol__version_suffix__is_taken_off, image_setup),
		cmocka_unit_test_setup(symbol__other_sections__have_no_functions, image_setup),
		cmocka_unit_test_setup(symbol__names__are_printable_and_cut, image_setup),
		cmocka_unit_test_setup(symbol__a_batch__is_answered_like_single_queries,
				       image_setup),
		cmocka_unit_test_setup(symbol__every_failed_allocation__is_an_error, image_setup),
		cmocka_unit_test(symbol__vdso__is_named),
		cmocka_unit_test(symbol__kallsyms__names_text_only),
		cmocka_unit_test(symbol__kallsyms_hidden__is_said),
		cmocka_unit_test(symbol__kallsyms_long_lines__are_skipped_whole),
		cmocka_unit_test(symbol__demangle__knows_cxx_and_rust),
		cmocka_unit_test(symbol__demangle__is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
