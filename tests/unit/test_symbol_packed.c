// SPDX-License-Identifier: Apache-2.0
/* Symbol files: the same answers as the sources give, whatever the table; limits; damage. */
#include "elf_build.h"
#include "symbol/symbol_packed.h"
#include "symbol/symbol_sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define TEXT_BYTES 4096
#define SYMBOLS	   40
#define ROUNDS	   400

static uint32_t seed;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525U + 1013904223U;
	return (seed >> 8) % below;
}

struct image {
	struct elf_build b;
	struct elf_file *elf;
	uint64_t text;
};

static void image_done(struct image *m)
{
	elf_close(m->elf);
	build_done(&m->b);
}

static void image_open(struct image *m)
{
	build_finish(&m->b);
	assert_int_equal(elf_open_memory(m->b.data, m->b.size, &m->elf, NULL), 0);
}

/* A table of nothing but corner cases: few places, so that most symbols share or enclose one. */
static void random_make(struct image *m, bool is_dynamic_too)
{
	static const uint8_t types[] = {STT_FUNC, STT_FUNC, STT_NOTYPE, STT_GNU_IFUNC, STT_OBJECT};
	static const uint64_t sizes[] = {0, 0, 1, 8, 16, 64, 200, 5000};
	static const char strings[] = "\0a\0bb\0.Lx\0_Z1fv\0name@@V1\0$x\0zz";
	static const uint32_t names[] = {0, 1, 3, 6, 10, 16, 25, 28};
	Elf64_Sym symbols[SYMBOLS];
	uint16_t text, other, table;

	build_init(&m->b);
	text = build_section(&m->b, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, NULL,
			     TEXT_BYTES / 2, 0);
	other = build_section(&m->b, ".text.b", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, NULL,
			      TEXT_BYTES / 2, 0);
	m->text = build_address(&m->b, text);
	for (int copy = 0; copy <= is_dynamic_too; copy++) {
		for (size_t i = 0; i < SYMBOLS; i++) {
			uint32_t binding = draw(3), type = types[draw(sizeof(types))];

			symbols[i] = (Elf64_Sym){
				.st_name = names[draw(ARRAY_SIZE(names))],
				.st_info = (uint8_t)(binding << 4 | type),
				.st_shndx = draw(10) ? draw(2) ? text : other : SHN_UNDEF,
				.st_value = m->text + draw(80) * 16,
				.st_size = sizes[draw(ARRAY_SIZE(sizes))],
			};
		}
		table = (uint16_t)(m->b.section_count + 1);
		build_section(&m->b, copy ? ".dynsym" : ".symtab", copy ? SHT_DYNSYM : SHT_SYMTAB,
			      0, symbols, sizeof(symbols), table);
		build_section(&m->b, copy ? ".dynstr" : ".strtab", SHT_STRTAB, 0, strings,
			      sizeof(strings), 0);
	}
	image_open(m);
}

static int pack(struct elf_file *elf, const struct symbol_pack_options *options, struct why *why)
{
	int fd = memfd_create("symbols", MFD_CLOEXEC), err;

	assert_true(fd >= 0);
	err = symbol_pack(elf, options, fd, why);
	if (err) {
		struct symbol_packed *p;

		assert_int_equal(symbol_packed_open(fd, NULL, &p, NULL), -EBADMSG);
		close(fd);
		return err;
	}
	return fd;
}

static const uint8_t some_digest[ELF_BLAKE2B_BYTES] = {1, 2, 3};
static const struct symbol_pack_options plain = {.digest = some_digest};

static struct symbol_packed *packed_of(struct elf_file *elf)
{
	struct symbol_packed *p = NULL;
	struct why why = {""};
	int fd = pack(elf, &plain, &why);

	if (fd < 0 || symbol_packed_open(fd, some_digest, &p, &why))
		fail_msg("%s", why.text);
	close(fd);
	return p;
}

static void compare(struct elf_file *elf, const struct symbol_packed *p, uint64_t from,
		    uint64_t bytes)
{
	struct symbol_query *a = calloc(bytes, sizeof(*a)), *b = calloc(bytes, sizeof(*b));

	for (uint64_t i = 0; i < bytes; i++)
		a[i].address = b[i].address = from + i;
	assert_int_equal(symbol_lookup_file(elf, a, bytes, NULL), 0);
	assert_int_equal(symbol_packed_lookup(p, b, bytes, NULL), 0);
	for (uint64_t i = 0; i < bytes; i++) {
		if (a[i].found != b[i].found || a[i].start != b[i].start ||
		    (a[i].found && strcmp(a[i].name, b[i].name) != 0))
			fail_msg("0x%lx: %s at 0x%lx, in the symbol file %s at 0x%lx", a[i].address,
				 a[i].found ? a[i].name : "-", a[i].start,
				 b[i].found ? b[i].name : "-", b[i].start);
		mem_free(MEM_SYMBOL, a[i].name);
		mem_free(MEM_SYMBOL, b[i].name);
	}
	free(a);
	free(b);
}

static void symbol_packed__any_table__answers_as_the_sources_do(void **state)
{
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct symbol_packed *p;
		struct image m;

		seed = (uint32_t)round;
		random_make(&m, round % 2);
		p = packed_of(m.elf);
		compare(m.elf, p, m.text - 20, TEXT_BYTES + 2000);
		symbol_packed_close(p);
		image_done(&m);
		assert_int_equal(mem_live_bytes(MEM_SYMBOL) + mem_live_bytes(MEM_ELF), 0);
	}
}

static void symbol_packed__this_program__answers_as_the_sources_do(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	const struct elf_info *info;
	struct symbol_packed *p;
	struct elf_file *elf;

	(void)state;
	assert_int_equal(elf_open(fd, &elf, NULL), 0);
	info = elf_get_info(elf);
	p = packed_of(elf);
	assert_true(symbol_packed_get_header(p)->count > 100);
	for (uint32_t i = 0; i < info->segment_count; i++)
		compare(elf, p, info->segments[i].vaddr, info->segments[i].file_bytes);
	symbol_packed_close(p);
	elf_close(elf);
	close(fd);
}

static void symbol_packed__its_header__says_what_it_was_made_of(void **state)
{
	const struct symbol_pack_options options = {
		.digest = some_digest, .is_stripped = true, .link = "some.debug"};
	const struct symbol_packed_header *h;
	uint8_t other[ELF_BLAKE2B_BYTES] = {9};
	struct symbol_packed *p;
	struct image m;
	int fd;

	(void)state;
	seed = 7;
	random_make(&m, false);
	fd = pack(m.elf, &options, NULL);
	assert_int_equal(symbol_packed_open(fd, other, &p, NULL), -ESTALE);
	assert_int_equal(symbol_packed_open(fd, some_digest, &p, NULL), 0);
	h = symbol_packed_get_header(p);
	assert_true(h->is_stripped);
	assert_string_equal(h->link, "some.debug");
	symbol_packed_close(p);
	close(fd);
	image_done(&m);
}

/* Whole bytes of the file of a random table; the caller frees them. */
static char *bytes_of(struct image *m, size_t *ret_bytes)
{
	int fd = pack(m->elf, &plain, NULL);
	off_t bytes = lseek(fd, 0, SEEK_END);
	char *data = malloc((size_t)bytes);

	assert_true(bytes > (off_t)sizeof(struct symbol_packed_header));
	assert_int_equal(pread(fd, data, (size_t)bytes, 0), bytes);
	close(fd);
	*ret_bytes = (size_t)bytes;
	return data;
}

static void symbol_packed__each_byte_flipped_or_cut__is_refused(void **state)
{
	struct symbol_packed *p;
	struct image m;
	size_t bytes;
	char *data;

	(void)state;
	seed = 3;
	random_make(&m, false);
	data = bytes_of(&m, &bytes);
	for (size_t i = 0; i < bytes; i++) {
		int err;

		data[i] ^= 0x41;
		err = symbol_packed_open_memory(data, bytes, some_digest, &p, NULL);
		assert_true(err == -EBADMSG || err == -EOPNOTSUPP);
		data[i] ^= 0x41;
		assert_int_equal(symbol_packed_open_memory(data, i, some_digest, &p, NULL),
				 -EBADMSG);
	}
	assert_int_equal(symbol_packed_open_memory(data, bytes, some_digest, &p, NULL), 0);
	symbol_packed_close(p);
	free(data);
	image_done(&m);
}

static void checksum_set(char *data, size_t bytes)
{
	struct symbol_packed_header h;
	struct elf_blake2b hash;

	memcpy(&h, data, sizeof(h));
	memset(h.checksum, 0, sizeof(h.checksum));
	elf_blake2b_init(&hash);
	elf_blake2b_add(&hash, data + sizeof(h), bytes - sizeof(h));
	elf_blake2b_add(&hash, &h, sizeof(h));
	elf_blake2b_end(&hash, h.checksum);
	memcpy(data, &h, sizeof(h));
}

/* Whoever writes a hostile one writes a right checksum as well. */
static void symbol_packed__hostile_with_a_right_checksum__stays_inside(void **state)
{
	struct symbol_packed *p;
	size_t bytes, opened = 0;
	struct image m;
	char *data;

	(void)state;
	seed = 5;
	random_make(&m, false);
	data = bytes_of(&m, &bytes);
	for (size_t i = offsetof(struct symbol_packed_header, file_bytes); i < bytes; i++) {
		/* Its own block, so that a sanitizer sees a byte too many. */
		char *copy = malloc(bytes);

		memcpy(copy, data, bytes);
		copy[i] = (char)(copy[i] ^ (1U << draw(8)));
		checksum_set(copy, bytes);
		if (!symbol_packed_open_memory(copy, bytes, NULL, &p, NULL)) {
			struct symbol_packed_hit hit;

			opened++;
			for (uint64_t a = m.text - 8; a < m.text + TEXT_BYTES; a += 8) {
				if (symbol_packed_find(p, a, &hit))
					assert_true(hit.start <= a && strlen(hit.name));
			}
			symbol_packed_find(p, 0, &hit);
			symbol_packed_find(p, UINT64_MAX, &hit);
			symbol_packed_close(p);
		}
		free(copy);
	}
	assert_true(opened > bytes / 4);
	free(data);
	image_done(&m);
}

static void symbol_packed__what_a_source_fails_on__has_no_symbol_file(void **state)
{
	struct symbol_pack_options late = {.digest = some_digest, .cpu_ns = 1};
	struct why why = {""};
	struct image m;

	(void)state;
	build_init(&m.b);
	build_section(&m.b, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, NULL, 64, 0);
	build_section(&m.b, ".gnu_debugdata", SHT_PROGBITS, 0, "none", 4, 0);
	image_open(&m);
	assert_int_equal(pack(m.elf, &plain, &why), -EBADMSG);
	assert_string_equal(why.text, ".gnu_debugdata is damaged");
	image_done(&m);

	m.elf = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_int_equal(elf_open(fd, &m.elf, NULL), 0);
	assert_int_equal(pack(m.elf, &late, &why), -ETIME);
	elf_close(m.elf);
	close(fd);
	assert_int_equal(mem_live_bytes(MEM_SYMBOL) + mem_live_bytes(MEM_ELF), 0);
}

static void symbol_packed__no_memory__is_an_error(void **state)
{
	struct image m;
	int failed = 0;

	(void)state;
	seed = 11;
	random_make(&m, true);
	for (unsigned long n = 1; n < 24; n++) {
		int fd;

		mem_fail_after(n);
		fd = pack(m.elf, &plain, NULL);
		failed += fd == -ENOMEM;
		mem_fail_after(0);
		if (fd >= 0)
			close(fd);
		assert_int_equal(mem_live_bytes(MEM_SYMBOL), 0);
	}
	assert_true(failed > 8);
	image_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(symbol_packed__any_table__answers_as_the_sources_do),
		cmocka_unit_test(symbol_packed__this_program__answers_as_the_sources_do),
		cmocka_unit_test(symbol_packed__its_header__says_what_it_was_made_of),
		cmocka_unit_test(symbol_packed__each_byte_flipped_or_cut__is_refused),
		cmocka_unit_test(symbol_packed__hostile_with_a_right_checksum__stays_inside),
		cmocka_unit_test(symbol_packed__what_a_source_fails_on__has_no_symbol_file),
		cmocka_unit_test(symbol_packed__no_memory__is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
