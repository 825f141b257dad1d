// SPDX-License-Identifier: Apache-2.0
/* PLT stubs in each form that linkers write, .gnu_debugdata, and the order of the sources. */
#include "elf/elf_minidebug.h"
#include "elf_build.h"
#include "symbol/symbol_sources.h"

#include <errno.h>
#include <lzma.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define STUBS	   12
#define SLOTS	   0x100
#define SLOT(i)	   (SLOTS + 8 * (i))
#define TEXT_BYTES 0x200

static void put32(uint8_t *at, uint64_t value)
{
	uint32_t v = (uint32_t)value;

	memcpy(at, &v, 4);
}

/* Writes a stub that goes through slot or pushes index; returns its bytes. */
static size_t stub(uint8_t *out, const char *form, uint64_t at, uint64_t slot, uint32_t index)
{
	size_t n = 0;

	for (const char *p = form; *p; p++) {
		if (*p == ' ')
			continue;
		if (*p == 'S' || *p == 'I' || *p == 'J') {
			put32(out + n, *p == 'S' ? slot - (at + n + 4) : *p == 'I' ? index : 0);
			n += 4;
			continue;
		}
		out[n++] = (uint8_t)strtoul((char[]){p[0], p[1], 0}, NULL, 16);
		p++;
	}
	return n;
}

static const struct {
	const char *form;
	size_t bytes;
} forms[] = {
	{"ff 25 S 68 I e9 J", 16},
	{"f3 0f 1e fa f2 ff 25 S 0f 1f 44 00 00", 16},
	{"f3 0f 1e fa ff 25 S 66 0f 1f 44 00 00", 16},
	{"f3 0f 1e fa 68 I f2 e9 J 90", 16},
	{"f3 0f 1e fa 68 I e9 J 66 90", 16},
	{"f3 0f 1e fa 41 bb I ff 25 S", 16},
	{"68 I f2 e9 J 0f 1f 44 00 00", 16},
	{"ff 25 S 66 90", 8},
	{"f2 ff 25 S 90", 8},
};

struct program {
	struct elf_build b;
	uint64_t text, plt;
};

/* Stub i is of form i and of symbol "s<i>"; all stand 16 bytes apart in one section. Another one
 * goes through a slot of an IFUNC whose resolver is "chosen", one through a slot of nobody. */
static void program_make(struct program *p)
{
	static char names[256];
	Elf64_Sym symbols[STUBS] = {{0}};
	Elf64_Rela jumps[STUBS] = {{0}};
	uint8_t code[STUBS * 16] = {0};
	size_t at = 1, count = ARRAY_SIZE(forms);
	uint16_t strings, dynamic;

	build_init(&p->b);
	p->text =
		build_address(&p->b, build_section(&p->b, ".text", SHT_PROGBITS,
						   SHF_ALLOC | SHF_EXECINSTR, NULL, TEXT_BYTES, 0));
	p->plt = build_next(&p->b);
	for (size_t i = 0; i < count + 2; i++) {
		uint64_t place = p->plt + 16 * i;

		stub(code + 16 * i, i < count ? forms[i].form : forms[0].form, place,
		     BUILD_BASE + SLOT(i), (uint32_t)i);
		if (i == count + 1)
			continue;
		jumps[i] = (Elf64_Rela){.r_offset = BUILD_BASE + SLOT(i),
					.r_info = ELF64_R_INFO(i + 1, R_X86_64_JUMP_SLOT)};
		if (i == count) {
			jumps[i].r_info = ELF64_R_INFO(0, R_X86_64_IRELATIVE);
			jumps[i].r_addend = (int64_t)p->text + 0x40;
			continue;
		}
		symbols[i + 1].st_name = (uint32_t)at;
		snprintf(names + at, sizeof(names) - at, "s%zu", i);
		if (i == 1)
			memcpy(names + at, "_ZN1s1aEv", 10);
		at += strlen(names + at) + 1;
	}
	symbols[count + 1] = (Elf64_Sym){.st_name = (uint32_t)at,
					 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_GNU_IFUNC),
					 .st_shndx = 1,
					 .st_value = p->text + 0x40,
					 .st_size = 0x20};
	memcpy(names + at, "chosen", 7);
	at += 7;
	build_section(&p->b, ".plt", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, code, sizeof(code),
		      0);
	strings = build_section(&p->b, ".dynstr", SHT_STRTAB, SHF_ALLOC, names, at, 0);
	dynamic = build_section(&p->b, ".dynsym", SHT_DYNSYM, SHF_ALLOC, symbols,
				(count + 2) * sizeof(symbols[0]), strings);
	build_section(&p->b, ".rela.plt", SHT_RELA, SHF_ALLOC, jumps,
		      (count + 1) * sizeof(jumps[0]), dynamic);
}

/* What the dynamic linker goes by, for a file without section headers. */
static void program_dynamic(struct program *p)
{
	const Elf64_Shdr *s = p->b.sections;
	uint32_t hash[4] = {1, (uint32_t)(s[4].sh_size / sizeof(Elf64_Sym)), 0, 0};
	uint64_t hash_at = build_address(
		&p->b, build_section(&p->b, ".hash", SHT_HASH, SHF_ALLOC, hash, 16, 0));
	Elf64_Dyn d[] = {
		{DT_STRTAB, {s[3].sh_addr}},   {DT_STRSZ, {s[3].sh_size}},
		{DT_SYMTAB, {s[4].sh_addr}},   {DT_JMPREL, {s[5].sh_addr}},
		{DT_PLTRELSZ, {s[5].sh_size}}, {DT_PLTREL, {DT_RELA}},
		{DT_HASH, {hash_at}},	       {DT_NULL, {0}},
	};

	build_section(&p->b, ".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, d, sizeof(d), 3);
}

static int ask(const struct elf_build *b, uint64_t address, struct symbol_query *q, struct why *why)
{
	struct elf_file *elf;
	int err;

	*q = (struct symbol_query){.address = address};
	assert_int_equal(elf_open_memory(b->data, b->size, &elf, NULL), 0);
	err = symbol_lookup_file(elf, q, 1, why);
	elf_close(elf);
	return err;
}

static void expect(const struct elf_build *b, uint64_t address, const char *name, uint64_t start)
{
	struct symbol_query q;

	assert_int_equal(ask(b, address, &q, NULL), 0);
	if (name) {
		assert_int_equal(q.found, 1);
		assert_string_equal(q.name, name);
		assert_int_equal(q.start, start);
	} else {
		assert_int_equal(q.found, 0);
	}
	mem_free(MEM_SYMBOL, q.name);
	assert_int_equal(mem_live_bytes(MEM_SYMBOL) + mem_live_bytes(MEM_ELF), 0);
}

static void expect_stubs(const struct program *p)
{
	size_t count = ARRAY_SIZE(forms);

	for (size_t i = 0; i < count; i++) {
		uint64_t at = p->plt + 16 * i;
		char name[32];

		snprintf(name, sizeof(name), "s%zu@plt", i);
		if (i == 1)
			memcpy(name, "s::a()@plt", 11);
		expect(&p->b, at, name, at);
		expect(&p->b, at + forms[i].bytes - 1, name, at);
		if (forms[i].bytes == 8)
			expect(&p->b, at + 8, NULL, 0);
	}
	expect(&p->b, p->plt + 16 * count + 3, "chosen@plt", p->plt + 16 * count);
	expect(&p->b, p->plt + 16 * (count + 1), NULL, 0); /* no relocation */
	expect(&p->b, p->text + 0x45, "chosen", p->text + 0x40);
}

static void symbol_plt__each_form__has_its_name_and_range(void **state)
{
	struct program p;

	(void)state;
	program_make(&p);
	build_finish(&p.b);
	expect_stubs(&p);
	build_done(&p.b);
}

static void symbol_plt__no_section_headers__stubs_are_known_by_relocations(void **state)
{
	struct program p;

	(void)state;
	program_make(&p);
	program_dynamic(&p);
	build_finish(&p.b);
	build_strip_headers(&p.b);
	expect_stubs(&p);
	build_done(&p.b);
}

static void symbol_plt__flipped_bytes__never_read_outside(void **state)
{
	unsigned int seed = 1;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		struct symbol_query q[32] = {{0}};
		struct elf_file *elf;
		struct program p;
		uint8_t *copy;

		program_make(&p);
		program_dynamic(&p);
		build_finish(&p.b);
		if (i & 1)
			build_strip_headers(&p.b);
		for (int n = 0; n < 6; n++)
			p.b.data[64 + (size_t)rand_r(&seed) % (p.b.size - 64)] =
				(uint8_t)rand_r(&seed);
		copy = malloc(p.b.size);
		assert_non_null(copy);
		memcpy(copy, p.b.data, p.b.size);
		if (!elf_open_memory(copy, p.b.size, &elf, NULL)) {
			for (uint64_t n = 0; n < ARRAY_SIZE(q); n++)
				q[n].address = p.plt + n * 8;
			(void)symbol_lookup_file(elf, q, ARRAY_SIZE(q), NULL);
			for (size_t n = 0; n < ARRAY_SIZE(q); n++)
				mem_free(MEM_SYMBOL, q[n].name);
			elf_close(elf);
		}
		free(copy);
		build_done(&p.b);
		assert_int_equal(mem_live_bytes(MEM_SYMBOL), 0);
	}
}

/* ------------------------------------------------------------------ .gnu_debugdata */

static void mini_symbols(struct elf_build *b, uint64_t text)
{
	static const char names[] = "\0hidden\0shown";
	Elf64_Sym symbols[] = {
		{0},
		{.st_name = 1,
		 .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
		 .st_shndx = 1,
		 .st_value = text + 0x10,
		 .st_size = 0x10},
		{.st_name = 8,
		 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
		 .st_shndx = 1,
		 .st_value = text + 0x80,
		 .st_size = 0x10},
	};
	uint16_t strings;

	build_init(b);
	build_section(b, ".text", SHT_NOBITS, SHF_ALLOC | SHF_EXECINSTR, NULL, TEXT_BYTES, 0);
	strings = build_section(b, ".strtab", SHT_STRTAB, 0, names, sizeof(names), 0);
	build_section(b, ".symtab", SHT_SYMTAB, 0, symbols, sizeof(symbols), strings);
	build_finish(b);
}

static size_t pack(const void *data, size_t bytes, uint8_t *out, size_t out_size)
{
	size_t at = 0;

	assert_int_equal(
		lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, NULL, data, bytes, out, &at, out_size),
		LZMA_OK);
	return at;
}

/* A stripped program around what is packed. */
static uint64_t stripped_make(struct elf_build *b, const void *packed, size_t bytes)
{
	uint64_t text;

	build_init(b);
	text = build_address(b, build_section(b, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR,
					      NULL, TEXT_BYTES, 0));
	build_section(b, ".gnu_debugdata", SHT_PROGBITS, 0, packed, bytes, 0);
	build_finish(b);
	return text;
}

static void symbol_minidebug__names__come_from_what_is_packed(void **state)
{
	static uint8_t packed[65536];
	struct elf_build mini, b;
	uint64_t text;
	size_t bytes;

	(void)state;
	mini_symbols(&mini, BUILD_BASE + BUILD_FIRST);
	bytes = pack(mini.data, mini.size, packed, sizeof(packed));
	text = stripped_make(&b, packed, bytes);
	assert_int_equal(text, BUILD_BASE + BUILD_FIRST);
	expect(&b, text + 0x1f, "hidden", text + 0x10);
	expect(&b, text + 0x80, "shown", text + 0x80);
	expect(&b, text + 0x20, NULL, 0);
	build_done(&b);
	build_done(&mini);
}

static void symbol_minidebug__cut_or_damaged__is_told(void **state)
{
	static uint8_t packed[65536];
	struct symbol_query q;
	struct why why = {""};
	struct elf_build mini, b;
	size_t bytes;

	(void)state;
	mini_symbols(&mini, BUILD_BASE + BUILD_FIRST);
	bytes = pack(mini.data, mini.size, packed, sizeof(packed));
	for (size_t n = 0; n < bytes; n += 7) {
		uint64_t text = stripped_make(&b, packed, n);

		assert_int_equal(ask(&b, text + 0x10, &q, &why), -EBADMSG);
		assert_int_equal(q.found, 0);
		build_done(&b);
	}
	assert_string_equal(why.text, ".gnu_debugdata is damaged");
	for (size_t n = 0; n < bytes; n += 3) {
		packed[n] ^= 0x55;
		ask(&b, stripped_make(&b, packed, bytes) + 0x10, &q, NULL);
		mem_free(MEM_SYMBOL, q.name);
		build_done(&b);
		packed[n] ^= 0x55;
	}
	assert_int_equal(mem_live_bytes(MEM_SYMBOL) + mem_live_bytes(MEM_ELF), 0);
	build_done(&mini);
}

static void symbol_minidebug__a_bomb__stops_at_the_limit(void **state)
{
	static uint8_t packed[131072];
	size_t zeros = 128U << 20, bytes;
	struct symbol_query q;
	struct why why = {""};
	struct elf_build b;
	uint64_t text;
	void *data = calloc(1, zeros);

	(void)state;
	assert_non_null(data);
	bytes = pack(data, zeros, packed, sizeof(packed));
	free(data);
	text = stripped_make(&b, packed, bytes);
	assert_int_equal(ask(&b, text, &q, &why), -ERANGE);
	assert_non_null(strstr(why.text, "more than is allowed"));
	assert_true(mem_peak_bytes(MEM_ELF) < ELF_MINIDEBUG_MAX + ELF_MINIDEBUG_DECODER_MAX);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
	build_done(&b);
}

static void symbol_sources__one_that_fails__does_not_silence_the_others(void **state)
{
	struct symbol_query q;
	struct program p;

	(void)state;
	program_make(&p);
	build_section(&p.b, ".gnu_debugdata", SHT_PROGBITS, 0, "none", 4, 0);
	build_section(&p.b, ".gopclntab", SHT_PROGBITS, SHF_ALLOC, "none", 4, 0);
	build_finish(&p.b);
	expect(&p.b, p.plt, "s0@plt", p.plt);
	expect(&p.b, p.text + 0x40, "chosen", p.text + 0x40);
	/* Nobody knows what the damaged ones had to say of this one. */
	assert_int_equal(ask(&p.b, p.text, &q, NULL), -EBADMSG);
	build_done(&p.b);
}

static void symbol_sources__no_memory__is_an_error(void **state)
{
	struct program p;
	int failed = 0;

	(void)state;
	program_make(&p);
	build_finish(&p.b);
	for (unsigned long n = 2; n < 40; n++) {
		struct symbol_query q = {.address = p.plt};
		struct elf_file *elf;

		assert_int_equal(elf_open_memory(p.b.data, p.b.size, &elf, NULL), 0);
		mem_fail_after(n);
		failed += symbol_lookup_file(elf, &q, 1, NULL) == -ENOMEM;
		mem_fail_after(0);
		mem_free(MEM_SYMBOL, q.name);
		elf_close(elf);
		assert_int_equal(mem_live_bytes(MEM_SYMBOL) + mem_live_bytes(MEM_ELF), 0);
	}
	assert_true(failed > 3);
	build_done(&p.b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(symbol_plt__each_form__has_its_name_and_range),
		cmocka_unit_test(symbol_plt__no_section_headers__stubs_are_known_by_relocations),
		cmocka_unit_test(symbol_plt__flipped_bytes__never_read_outside),
		cmocka_unit_test(symbol_minidebug__names__come_from_what_is_packed),
		cmocka_unit_test(symbol_minidebug__cut_or_damaged__is_told),
		cmocka_unit_test(symbol_minidebug__a_bomb__stops_at_the_limit),
		cmocka_unit_test(symbol_sources__one_that_fails__does_not_silence_the_others),
		cmocka_unit_test(symbol_sources__no_memory__is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
