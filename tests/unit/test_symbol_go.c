// SPDX-License-Identifier: Apache-2.0
/* Go's table in its three forms, and where Go's text begins in each way a program may tell it. */
#include "elf_build.h"
#include "symbol/symbol_sources.h"

#include <errno.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define V116 0xfffffffaU
#define V118 0xfffffff0U
#define V120 0xfffffff1U
/* Two functions, main.main and main.f, in a text of 0x200 bytes that begins 0x40 into .text. */
#define GO_AT	0x40
#define MAIN_AT 0
#define F_AT	0x80
#define END_AT	0x100

enum text_from { FROM_HEADER, FROM_MODULE, FROM_RELOCATIONS, FROM_SECTION };

struct table {
	uint8_t data[2048];
	size_t size;
	uint64_t names, units, files, steps, functions;
};

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
	memcpy(at, &value, bytes);
}

static uint64_t add(struct table *t, const void *data, size_t bytes)
{
	uint64_t at = t->size;

	memcpy(t->data + at, data, bytes);
	t->size = (at + bytes + 7) & ~7ULL;
	return at;
}

/* Line programs (value, then up to): main.main 10 to +0x10, 12 to +0x40; main.f 7 to +0x20. */
static void table_make(struct table *t, uint32_t magic, uint64_t text, uint64_t header_text)
{
	static const char names[] = "\0main.main\0main.f[...]";
	static const char files[] = "/src/a.go\0/src/b.go";
	static const uint32_t units[] = {0, 10};
	static const uint8_t steps[] = {0, 2,	 0x40, 0, 0x16, 0x10, 4, 0x30,
					0, 0x04, 0x20, 0, 0x10, 0x20, 0};
	bool is_118 = magic != V116;
	size_t each = is_118 ? 4 : 8;
	uint8_t *f;

	memset(t, 0, sizeof(*t));
	put(t->data, magic, 4);
	t->data[6] = 1;
	t->data[7] = 8;
	put(t->data + 8, 2, 8);
	put(t->data + 16, 2, 8);
	t->size = is_118 ? 72 : 64;
	t->names = add(t, names, sizeof(names));
	t->units = add(t, units, sizeof(units));
	t->files = add(t, files, sizeof(files));
	t->steps = add(t, steps, sizeof(steps));
	t->functions = t->size;
	if (is_118)
		put(t->data + 24, header_text, 8);
	for (size_t i = 0; i < 5; i++)
		put(t->data + (is_118 ? 32 : 24) + 8 * i,
		    ((uint64_t[]){t->names, t->units, t->files, t->steps, t->functions})[i], 8);
	f = t->data + t->functions;
	for (size_t i = 0; i < 5; i++) /* entry, function, entry, function, end */
		put(f + i * each,
		    (i & 1    ? 0
		     : is_118 ? 0
			      : text) +
			    ((uint64_t[]){MAIN_AT, 64, F_AT, 128, END_AT})[i],
		    each);
	for (size_t i = 0; i < 2; i++) {
		uint8_t *of = f + 64 + 64 * i + each;

		put(of, i ? 11 : 1, 4);	     /* name */
		put(of + 16, i ? 9 : 1, 4);  /* pcfile */
		put(of + 20, i ? 12 : 4, 4); /* pcln */
		put(of + 28, 0, 4);	     /* unit */
	}
	t->size = t->functions + 256;
}

static void add_module(struct elf_build *b, const struct table *t, uint64_t table, uint64_t text)
{
	uint8_t module[512] = {0};

	put(module + 64, table, 8);
	put(module + 64 + 8, table + t->names, 8);
	put(module + 64 + 160, text + MAIN_AT, 8);
	put(module + 64 + 176, text, 8);
	build_section(b, ".go.module", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, module, sizeof(module),
		      0);
}

/* The same words as relocations only; one more points to the table from somewhere else. */
static void add_relocations(struct elf_build *b, const struct table *t, uint64_t table,
			    uint64_t text)
{
	uint64_t at = build_next(b);
	Elf64_Rela r[] = {
		{at + 8, R_X86_64_RELATIVE, (int64_t)table},
		{at + 64, R_X86_64_RELATIVE, (int64_t)table},
		{at + 64 + 8, R_X86_64_RELATIVE, (int64_t)(table + t->names)},
		{at + 64 + 160, R_X86_64_RELATIVE, (int64_t)(text + MAIN_AT)},
		{at + 64 + 176, R_X86_64_RELATIVE, (int64_t)text},
	};

	build_section(b, ".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, NULL, 512, 0);
	build_section(b, ".rela.dyn", SHT_RELA, SHF_ALLOC, r, sizeof(r), 0);
}

static uint64_t program_make(struct elf_build *b, uint32_t magic, enum text_from from)
{
	uint64_t text, table, at = from == FROM_SECTION ? 0 : GO_AT;
	struct table t;
	uint16_t s;

	build_init(b);
	s = build_section(b, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, NULL, 0x200, 0);
	text = build_address(b, s) + at;
	table_make(&t, magic, text, from == FROM_HEADER ? text : 0);
	s = build_section(b, ".gopclntab", SHT_PROGBITS, SHF_ALLOC, t.data, t.size, 0);
	table = build_address(b, s);
	if (from == FROM_MODULE)
		add_module(b, &t, table, text);
	if (from == FROM_RELOCATIONS)
		add_relocations(b, &t, table, text);
	build_finish(b);
	return text;
}

static void expect(struct elf_build *b, uint64_t address, const char *name, uint64_t start,
		   const char *file, uint32_t line)
{
	struct symbol_query q = {.address = address};
	struct symbol_line l = {.address = address};
	struct elf_file *elf;

	assert_int_equal(elf_open_memory(b->data, b->size, &elf, NULL), 0);
	assert_int_equal(symbol_lookup_file(elf, &q, 1, NULL), 0);
	assert_int_equal(symbol_lines_go(elf, &l, 1, NULL), 0);
	elf_close(elf);
	assert_int_equal(q.found, name != NULL);
	if (name) {
		assert_string_equal(q.name, name);
		assert_int_equal(q.start, start);
	}
	assert_int_equal(l.line, line);
	if (file)
		assert_string_equal(l.file, file);
	else
		assert_null(l.file);
	mem_free(MEM_SYMBOL, q.name);
	mem_free(MEM_SYMBOL, l.file);
	assert_int_equal(mem_live_bytes(MEM_SYMBOL), 0);
}

static void expect_all(struct elf_build *b, uint64_t text)
{
	expect(b, text - 1, NULL, 0, NULL, 0);
	expect(b, text, "main.main", text, "/src/a.go", 10);
	expect(b, text + 0xf, "main.main", text, "/src/a.go", 10);
	expect(b, text + 0x10, "main.main", text, "/src/a.go", 12);
	expect(b, text + 0x50, "main.main", text, NULL, 0); /* behind its line program */
	expect(b, text + F_AT, "main.f[...]", text + F_AT, "/src/b.go", 7);
	expect(b, text + END_AT - 1, "main.f[...]", text + F_AT, NULL, 0);
	expect(b, text + END_AT, NULL, 0, NULL, 0);
}

static void symbol_go__each_form__names_and_lines(void **state)
{
	static const uint32_t forms[] = {V116, V118, V120};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		struct elf_build b;
		uint64_t text = program_make(&b, forms[i], FROM_HEADER);

		expect_all(&b, text);
		build_done(&b);
	}
}

static void symbol_go__no_text_in_header__it_is_found(void **state)
{
	(void)state;
	for (enum text_from from = FROM_MODULE; from <= FROM_SECTION; from++) {
		struct elf_build b;
		uint64_t text = program_make(&b, V120, from);

		expect_all(&b, text);
		build_done(&b);
	}
}

static void symbol_go__no_section_headers__the_magic_is_searched(void **state)
{
	static const enum text_from from[] = {FROM_HEADER, FROM_MODULE};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		struct elf_build b;
		uint64_t text = program_make(&b, V120, from[i]);

		build_strip_headers(&b);
		expect_all(&b, text);
		build_done(&b);
	}
}

static void symbol_go__text_that_nothing_tells__names_nothing(void **state)
{
	struct symbol_query q = {0};
	struct why why = {""};
	struct elf_file *elf;
	struct elf_build b;

	(void)state;
	q.address = program_make(&b, V120, FROM_SECTION);
	build_strip_headers(&b);
	assert_int_equal(elf_open_memory(b.data, b.size, &elf, NULL), 0);
	assert_int_equal(symbol_lookup_file(elf, &q, 1, &why), -EBADMSG);
	assert_non_null(strstr(why.text, "Go's text"));
	assert_int_equal(q.found, 0);
	elf_close(elf);
	build_done(&b);
}

static void ask_all(const void *data, size_t size)
{
	struct symbol_query q[32] = {{0}};
	struct symbol_line l[32] = {{0}};
	struct elf_file *elf;

	if (elf_open_memory(data, size, &elf, NULL))
		return;
	for (uint64_t i = 0; i < ARRAY_SIZE(q); i++)
		q[i].address = l[i].address = BUILD_BASE + BUILD_FIRST + i * 16;
	(void)symbol_lookup_file(elf, q, ARRAY_SIZE(q), NULL);
	(void)symbol_lines_go(elf, l, ARRAY_SIZE(l), NULL);
	for (size_t i = 0; i < ARRAY_SIZE(q); i++) {
		mem_free(MEM_SYMBOL, q[i].name);
		mem_free(MEM_SYMBOL, l[i].file);
	}
	elf_close(elf);
}

static void symbol_go__flipped_bytes_and_cuts__never_read_outside(void **state)
{
	unsigned int seed = 1;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		struct elf_build b;
		size_t size;
		uint8_t *copy;

		program_make(&b, i & 1 ? V120 : V116, (enum text_from)(i % 4));
		if (i & 4)
			build_strip_headers(&b);
		for (int n = 1 + rand_r(&seed) % 6; n; n--)
			b.data[BUILD_FIRST + 0x200 +
			       (size_t)rand_r(&seed) % (b.size - BUILD_FIRST - 0x200)] =
				(uint8_t)rand_r(&seed);
		size = i % 8 ? b.size : (size_t)rand_r(&seed) % b.size;
		copy = malloc(size + 1); /* so that a sanitizer sees its end */
		assert_non_null(copy);
		memcpy(copy, b.data, size);
		ask_all(copy, size);
		free(copy);
		build_done(&b);
		assert_int_equal(mem_live_bytes(MEM_SYMBOL), 0);
	}
}

static void symbol_go__no_memory__is_an_error(void **state)
{
	struct elf_build b;

	(void)state;
	program_make(&b, V120, FROM_MODULE);
	for (unsigned long n = 1; n < 60; n++) {
		mem_fail_after(n);
		ask_all(b.data, b.size);
		mem_fail_after(0);
		assert_int_equal(mem_live_bytes(MEM_SYMBOL) + mem_live_bytes(MEM_ELF), 0);
	}
	build_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(symbol_go__each_form__names_and_lines),
		cmocka_unit_test(symbol_go__no_text_in_header__it_is_found),
		cmocka_unit_test(symbol_go__no_section_headers__the_magic_is_searched),
		cmocka_unit_test(symbol_go__text_that_nothing_tells__names_nothing),
		cmocka_unit_test(symbol_go__flipped_bytes_and_cuts__never_read_outside),
		cmocka_unit_test(symbol_go__no_memory__is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
