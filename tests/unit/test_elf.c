// SPDX-License-Identifier: Apache-2.0
/* Real files are compared with what libelf says of them; hostile ones are made from an image in
 * memory. */
#include "elf/elf.h"
#include "elf/elf_sha256.h"
#include "elf_image.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"

static int count_one(void *ctx, const struct elf_symbol *symbol)
{
	(void)symbol;
	++*(uint64_t *)ctx;
	return 0;
}

static void sha256_hex(const char *text, size_t repeat, char out[65])
{
	struct elf_sha256 h;
	uint8_t sum[32];

	elf_sha256_init(&h);
	while (repeat--)
		elf_sha256_add(&h, text, strlen(text));
	elf_sha256_end(&h, sum);
	for (int i = 0; i < 32; i++)
		snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

/* The vectors of FIPS 180-4's examples. */
static void elf__sha256__gives_the_standards_examples(void **state)
{
	char hex[65];

	(void)state;
	sha256_hex("abc", 1, hex);
	assert_string_equal(hex,
			    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256_hex("", 0, hex);
	assert_string_equal(hex,
			    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, hex);
	assert_string_equal(hex,
			    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	sha256_hex("aaaaaaaaaa", 100000, hex);
	assert_string_equal(hex,
			    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static bool judge_is_function(Elf *elf, const GElf_Sym *s)
{
	int type = GELF_ST_TYPE(s->st_info);
	GElf_Shdr h;

	if (s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS || s->st_shndx == SHN_COMMON ||
	    !s->st_name)
		return false;
	if (type == STT_FUNC || type == STT_GNU_IFUNC)
		return true;
	return type == STT_NOTYPE && gelf_getshdr(elf_getscn(elf, s->st_shndx), &h) &&
	       h.sh_flags & SHF_EXECINSTR;
}

static uint64_t judge_symbols(Elf *elf)
{
	Elf_Scn *section = NULL;
	uint64_t count = 0;

	while ((section = elf_nextscn(elf, section)) != NULL) {
		GElf_Shdr h;
		Elf_Data *data;

		gelf_getshdr(section, &h);
		if (h.sh_type != SHT_SYMTAB && h.sh_type != SHT_DYNSYM)
			continue;
		data = elf_getdata(section, NULL);
		for (size_t i = 0; i < h.sh_size / h.sh_entsize; i++) {
			GElf_Sym s;

			gelf_getsym(data, (int)i, &s);
			count += judge_is_function(elf, &s);
		}
	}
	return count;
}

static void judge_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_file *ours;
	uint64_t symbols = 0;
	uint32_t segments = 0;
	size_t phnum;
	Elf *elf;

	assert_true(fd >= 0);
	assert_int_equal(elf_version(EV_CURRENT), EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	assert_int_equal(elf_open(fd, &ours, NULL), 0);
	assert_int_equal(elf_getphdrnum(elf, &phnum), 0);
	for (size_t i = 0; i < phnum; i++) {
		const struct elf_segment *s = &elf_get_info(ours)->segments[segments];
		GElf_Phdr h;

		gelf_getphdr(elf, (int)i, &h);
		if (h.p_type != PT_LOAD || !(h.p_flags & PF_X))
			continue;
		assert_int_equal(s->offset, h.p_offset);
		assert_int_equal(s->vaddr, h.p_vaddr);
		assert_int_equal(s->file_bytes, h.p_filesz);
		segments++;
	}
	assert_int_equal(elf_get_info(ours)->segment_count, segments);
	assert_int_equal(elf_symbols(ours, 10000000, count_one, &symbols, NULL), 0);
	assert_int_equal(symbols, judge_symbols(elf));
	elf_close(ours);
	elf_end(elf);
	close(fd);
}

static void elf__real_files__are_read_as_libelf_reads_them(void **state)
{
	(void)state;
	judge_file("/proc/self/exe");
	judge_file(LIBC);
	judge_file("/bin/sh");
}

static void *file_copy(const char *path, size_t *ret_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t bytes = lseek(fd, 0, SEEK_END);
	void *copy = malloc((size_t)bytes);

	assert_non_null(copy);
	assert_int_equal(pread(fd, copy, (size_t)bytes, 0), bytes);
	close(fd);
	*ret_bytes = (size_t)bytes;
	return copy;
}

static void elf__without_section_headers__dynamic_symbols_are_found(void **state)
{
	uint64_t with = 0, without = 0;
	struct elf_file *elf;
	size_t bytes;
	Elf64_Ehdr *h = file_copy(LIBC, &bytes);

	(void)state;
	assert_int_equal(elf_open_memory(h, bytes, &elf, NULL), 0);
	assert_int_equal(elf_symbols(elf, 1000000, count_one, &with, NULL), 0);
	elf_close(elf);
	h->e_shoff = UINT64_MAX;
	assert_int_equal(elf_open_memory(h, bytes, &elf, NULL), 0);
	assert_int_equal(elf_get_info(elf)->build_id_len, 20);
	assert_int_equal(elf_symbols(elf, 1000000, count_one, &without, NULL), 0);
	elf_close(elf);
	assert_int_equal(with, without);
	free(h);
}

static void elf__htlhash__is_head_tail_and_size(void **state)
{
	/* sha256(head 4096, tail 4096, big-endian size) of the image below, by another program. */
	static const char expected[] = "1446ae78a9113e76d5445e8aee2b9a35";
	static struct elf_image image;
	struct elf_file *elf;
	char hex[33];

	(void)state;
	elf_image_init(&image);
	image.rest[sizeof(image.rest) - 1] = 7;
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", elf_get_info(elf)->htlhash[i]);
	assert_string_equal(hex, expected);
	elf_close(elf);
}

static void elf__offset__goes_by_the_segment_that_holds_it(void **state)
{
	struct elf_info info = {.segment_count = 2,
				.file_bytes = 0x100000,
				.segments = {{0x6a0, 0x16a0, 0x300}, {0x5000, 0x10005000, 0x800}}};
	uint64_t v;

	(void)state;
	assert_int_equal(elf_offset_to_vaddr(&info, 0x700, &v), 0);
	assert_int_equal(v, 0x1700);
	assert_int_equal(elf_offset_to_vaddr(&info, 0x57ff, &v), 0);
	assert_int_equal(v, 0x100057ff);
	/* Mapped with its page, though outside the segment. */
	assert_int_equal(elf_offset_to_vaddr(&info, 0x5900, &v), 0);
	assert_int_equal(v, 0x10005900);
	assert_int_equal(elf_offset_to_vaddr(&info, 0x8000, &v), -ENOENT);
}

static void elf__large_counts__are_taken_from_section_0(void **state)
{
	static struct elf_image image;
	struct elf_file *elf;
	uint64_t count = 0;

	(void)state;
	elf_image_init(&image);
	elf_image_symbol(&image, "f", IMAGE_TEXT_VADDR, 16, STT_FUNC, STB_GLOBAL);
	image.head.e_phnum = PN_XNUM;
	image.head.e_shnum = 0;
	image.sections[0].sh_info = 1;
	image.sections[0].sh_size = 5;
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(elf_get_info(elf)->segment_count, 1);
	assert_int_equal(elf_symbols(elf, 100, count_one, &count, NULL), 0);
	assert_int_equal(count, 1);
	elf_close(elf);
	image.sections[0].sh_info = UINT32_MAX;
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), -ERANGE);
}

static void elf__lies__are_errors_or_nothing(void **state)
{
	static struct elf_image image;
	struct elf_file *elf;
	uint64_t count = 0;

	(void)state;
	elf_image_init(&image);
	image.sections[3].sh_size = UINT64_MAX / 2;
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(elf_symbols(elf, 100, count_one, &count, NULL), -EBADMSG);
	elf_close(elf);
	elf_image_init(&image);
	image.sections[3].sh_link = 77;
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(elf_symbols(elf, 100, count_one, &count, NULL), -EBADMSG);
	elf_close(elf);
	elf_image_init(&image);
	for (int i = 0; i < 40; i++)
		elf_image_symbol(&image, "f", IMAGE_TEXT_VADDR, 16, STT_FUNC, STB_GLOBAL);
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(elf_symbols(elf, 20, count_one, &count, NULL), -ERANGE);
	elf_close(elf);
	image.head.e_machine = EM_S390;
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), -EOPNOTSUPP);
	assert_int_equal(elf_open_memory("#!/bin/sh\n", 10, &elf, NULL), -EBADMSG);
	assert_int_equal(elf_open_memory("", 0, &elf, NULL), -EBADMSG);
}

static void elf__notes_of_any_size__end_the_search(void **state)
{
	static struct elf_image image;
	struct elf_file *elf;
	Elf64_Nhdr note = {.n_namesz = UINT32_MAX, .n_descsz = 20, .n_type = NT_GNU_BUILD_ID};

	(void)state;
	elf_image_init(&image);
	image.sections[2].sh_type = SHT_NOTE;
	image.sections[2].sh_offset = offsetof(struct elf_image, rest);
	memcpy(image.rest, &note, sizeof(note));
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(elf_get_info(elf)->build_id_len, 0);
	elf_close(elf);
	note.n_namesz = 4;
	memcpy(image.rest, &note, sizeof(note));
	memcpy(image.rest + sizeof(note), "GNU\0abcdefghijklmnopqrst", 24);
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), 0);
	assert_int_equal(elf_get_info(elf)->build_id_len, 20);
	assert_memory_equal(elf_get_info(elf)->build_id, "abcdefghijklmnopqrst", 20);
	elf_close(elf);
}

static void elf__a_file_that_shrinks__is_malformed(void **state)
{
	static struct elf_image image;
	int fd = memfd_create("elf", MFD_CLOEXEC);
	struct elf_file *elf;
	uint64_t count = 0;

	(void)state;
	elf_image_init(&image);
	image.sections[3].sh_offset = offsetof(struct elf_image, rest) + 0x10000;
	image.sections[3].sh_size = 100 * sizeof(Elf64_Sym);
	assert_int_equal(write(fd, &image, sizeof(image)), sizeof(image));
	assert_int_equal(elf_open(fd, &elf, NULL), 0);
	assert_int_equal(ftruncate(fd, 0x2000), 0);
	assert_int_equal(elf_symbols(elf, 1000, count_one, &count, NULL), -EBADMSG);
	elf_close(elf);
	close(fd);
}

static void elf__flipped_bytes_and_cuts__never_read_outside(void **state)
{
	size_t bytes;
	uint8_t *file = file_copy("/bin/sh", &bytes);
	uint32_t seed = 1;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		uint8_t saved[8];
		size_t at[8], cut = bytes;
		struct elf_file *elf;
		uint64_t count = 0;

		for (int i = 0; i < 8; i++) {
			seed = seed * 1664525 + 1013904223;
			/* Headers are in front and at the end. */
			at[i] = seed >> 8 & 1 ? (seed >> 9) % 1024 : bytes - 1 - (seed >> 9) % 2048;
			saved[i] = file[at[i]];
			file[at[i]] = (uint8_t)(seed >> 1);
		}
		file[0] = 0x7f;
		if (round % 4 == 0)
			cut = (seed >> 3) % bytes;
		if (!elf_open_memory(file, cut, &elf, NULL)) {
			(void)elf_symbols(elf, 100000, count_one, &count, NULL);
			elf_close(elf);
		}
		for (int i = 8; i-- > 0;)
			file[at[i]] = saved[i];
	}
	free(file);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

static void elf__no_memory__is_an_error(void **state)
{
	static struct elf_image image;
	struct elf_file *elf;

	(void)state;
	elf_image_init(&image);
	mem_fail_after(1);
	assert_int_equal(elf_open_memory(&image, sizeof(image), &elf, NULL), -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elf__sha256__gives_the_standards_examples),
		cmocka_unit_test(elf__real_files__are_read_as_libelf_reads_them),
		cmocka_unit_test(elf__without_section_headers__dynamic_symbols_are_found),
		cmocka_unit_test(elf__htlhash__is_head_tail_and_size),
		cmocka_unit_test(elf__offset__goes_by_the_segment_that_holds_it),
		cmocka_unit_test(elf__large_counts__are_taken_from_section_0),
		cmocka_unit_test(elf__lies__are_errors_or_nothing),
		cmocka_unit_test(elf__notes_of_any_size__end_the_search),
		cmocka_unit_test(elf__a_file_that_shrinks__is_malformed),
		cmocka_unit_test(elf__flipped_bytes_and_cuts__never_read_outside),
		cmocka_unit_test(elf__no_memory__is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
