// SPDX-License-Identifier: Apache-2.0
/* The digest of what names come from: it changes with each byte of that, and with no other. */
#include "elf/elf_read.h"
#include "elf/elf_source.h"
#include "elf_build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void blake2b_hex(const char *text, size_t repeat, size_t step, char out[65])
{
	size_t bytes = strlen(text) * repeat;
	char *all = malloc(bytes + 1);
	uint8_t digest[ELF_BLAKE2B_BYTES];
	struct elf_blake2b h;

	for (size_t i = 0; i < bytes; i++)
		all[i] = text[i % strlen(text)];
	elf_blake2b_init(&h);
	for (size_t i = 0; i < bytes; i += step)
		elf_blake2b_add(&h, all + i, bytes - i < step ? bytes - i : step);
	elf_blake2b_end(&h, digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(out + 2 * i, 3, "%02x", digest[i]);
	free(all);
}

/* By another implementation (Python's hashlib, digest_size 32). */
static void elf_blake2b__any_pieces__give_one_digest(void **state)
{
	static const size_t steps[] = {1, 7, 64, 127, 128, 129, 100000};
	char hex[65];

	(void)state;
	blake2b_hex("", 1, 1, hex);
	assert_string_equal(hex,
			    "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		blake2b_hex("abc", 1, steps[i], hex);
		assert_string_equal(
			hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
		blake2b_hex("0123456789abcdef", 8, steps[i], hex);
		assert_string_equal(
			hex, "4413634ab84fd41826173c8468b13a6777c16b3d5ad36a751e8d8a8f139e4334");
		blake2b_hex("0123456789abcdef", 1000, steps[i], hex);
		assert_string_equal(
			hex, "e0e23a875e6397efd308d1a64f146ed1ea25c56e7dfb8faca2c23bd1199fa324");
	}
}

struct image {
	struct elf_build b;
	uint16_t text, plt, symbols, strings, rela, debug;
};

static void image_make(struct image *m)
{
	static const char strings[] = "\0one\0two";
	Elf64_Sym symbols[2] = {{0}, {.st_name = 1, .st_info = STT_FUNC, .st_shndx = 1}};
	Elf64_Rela rela = {.r_offset = 8};

	build_init(&m->b);
	m->text =
		build_section(&m->b, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, NULL, 64, 0);
	m->plt = build_section(&m->b, ".plt", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, NULL, 64, 0);
	m->symbols = build_section(&m->b, ".symtab", SHT_SYMTAB, 0, symbols, sizeof(symbols), 4);
	m->strings = build_section(&m->b, ".strtab", SHT_STRTAB, 0, strings, sizeof(strings), 0);
	m->rela = build_section(&m->b, ".rela.dyn", SHT_RELA, SHF_ALLOC, &rela, sizeof(rela), 0);
	m->debug = build_section(&m->b, ".debug_line", SHT_PROGBITS, 0, "lines", 5, 0);
	build_finish(&m->b);
}

static void digest_of(const struct image *m, uint8_t out[ELF_BLAKE2B_BYTES])
{
	struct elf_file *elf;

	assert_int_equal(elf_open_memory(m->b.data, m->b.size, &elf, NULL), 0);
	assert_int_equal(elf_source_digest(elf, out, NULL), 0);
	elf_close(elf);
}

/* True when it is another file once a byte of the section is another. */
static bool counts(struct image *m, uint16_t section)
{
	uint8_t before[ELF_BLAKE2B_BYTES], after[ELF_BLAKE2B_BYTES];
	uint64_t at = m->b.sections[section].sh_offset;

	digest_of(m, before);
	m->b.data[at] ^= 1;
	digest_of(m, after);
	m->b.data[at] ^= 1;
	return memcmp(before, after, sizeof(before)) != 0;
}

static void elf_source__what_names_come_from__and_nothing_else_counts(void **state)
{
	struct image m;

	(void)state;
	image_make(&m);
	assert_true(counts(&m, m.plt));
	assert_true(counts(&m, m.symbols));
	assert_true(counts(&m, m.strings));
	assert_true(counts(&m, m.rela));
	assert_false(counts(&m, m.text));
	assert_false(counts(&m, m.debug));
	build_done(&m.b);
}

static void elf_source__a_moved_segment_or_section__is_another_file(void **state)
{
	uint8_t a[ELF_BLAKE2B_BYTES], b[ELF_BLAKE2B_BYTES];
	struct image m;
	Elf64_Shdr *h;
	Elf64_Phdr *p;

	(void)state;
	image_make(&m);
	digest_of(&m, a);
	p = (void *)(m.b.data + sizeof(Elf64_Ehdr));
	p->p_vaddr += 0x1000;
	digest_of(&m, b);
	assert_memory_not_equal(a, b, sizeof(a));
	p->p_vaddr -= 0x1000;
	h = (void *)(m.b.data + m.b.size - m.b.section_count * sizeof(*h));
	h[m.text].sh_size++;
	digest_of(&m, b);
	assert_memory_not_equal(a, b, sizeof(a));
	build_done(&m.b);
}

static void elf_source__what_cannot_be_told__has_no_digest(void **state)
{
	uint8_t digest[ELF_BLAKE2B_BYTES];
	struct elf_file *elf;
	struct image m;
	Elf64_Shdr *h;

	(void)state;
	image_make(&m);
	h = (void *)(m.b.data + m.b.size - m.b.section_count * sizeof(*h));
	h[m.strings].sh_size = 1ULL << 40;
	assert_int_equal(elf_open_memory(m.b.data, m.b.size, &elf, NULL), 0);
	assert_int_equal(elf_source_digest(elf, digest, NULL), -EBADMSG);
	elf_close(elf);
	build_strip_headers(&m.b);
	assert_int_equal(elf_open_memory(m.b.data, m.b.size, &elf, NULL), 0);
	assert_int_equal(elf_source_digest(elf, digest, NULL), -EOPNOTSUPP);
	elf_close(elf);
	build_done(&m.b);
}

static void elf_captured__a_file_that_changes__stays_what_it_was(void **state)
{
	uint8_t before[ELF_BLAKE2B_BYTES], after[ELF_BLAKE2B_BYTES];
	int fd = memfd_create("image", MFD_CLOEXEC);
	struct elf_file *elf;
	struct image m;
	uint8_t byte;

	(void)state;
	image_make(&m);
	assert_int_equal(pwrite(fd, m.b.data, m.b.size, 0), m.b.size);
	assert_int_equal(elf_open_captured(fd, 1 << 20, &elf, NULL), 0);
	assert_int_equal(elf_source_digest(elf, before, NULL), 0);
	byte = m.b.data[m.b.sections[m.strings].sh_offset + 1];
	assert_int_equal(pwrite(fd, "X", 1, (off_t)m.b.sections[m.strings].sh_offset + 1), 1);
	assert_int_equal(elf_source_digest(elf, after, NULL), 0);
	assert_memory_equal(before, after, sizeof(before));
	assert_int_equal(elf_read(elf, m.b.sections[m.strings].sh_offset + 1, &m.b.data[0], 1), 0);
	assert_int_equal(m.b.data[0], byte);
	elf_close(elf);
	/* Opened again it is another one. */
	assert_int_equal(elf_open_captured(fd, 1 << 20, &elf, NULL), 0);
	assert_int_equal(elf_source_digest(elf, after, NULL), 0);
	assert_memory_not_equal(before, after, sizeof(before));
	elf_close(elf);
	close(fd);
	build_done(&m.b);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

static void elf_captured__past_its_limit__reads_nothing(void **state)
{
	int fd = memfd_create("image", MFD_CLOEXEC);
	struct elf_file *elf;
	struct image m;
	uint8_t byte;

	(void)state;
	image_make(&m);
	assert_int_equal(pwrite(fd, m.b.data, m.b.size, 0), m.b.size);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_not_equal(elf_open_captured(fd, 0, &elf, NULL), 0);
	/* Its head and its tail are read to open it. */
	assert_int_equal(elf_open_captured(fd, 3 * 65536, &elf, NULL), 0);
	assert_int_equal(elf_read(elf, 5 * 65536, &byte, 1), 0);
	assert_int_equal(elf_read(elf, 7 * 65536, &byte, 1), -ERANGE);
	assert_int_equal(elf_read(elf, 5 * 65536 + 9, &byte, 1), 0);
	elf_close(elf);
	close(fd);
	build_done(&m.b);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elf_blake2b__any_pieces__give_one_digest),
		cmocka_unit_test(elf_source__what_names_come_from__and_nothing_else_counts),
		cmocka_unit_test(elf_source__a_moved_segment_or_section__is_another_file),
		cmocka_unit_test(elf_source__what_cannot_be_told__has_no_digest),
		cmocka_unit_test(elf_captured__a_file_that_changes__stays_what_it_was),
		cmocka_unit_test(elf_captured__past_its_limit__reads_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
