// SPDX-License-Identifier: Apache-2.0
/* Separate debug files: what is asked for, and what is refused. */
#include "elf/elf_debug.h"
#include "elf/elf_link.h"
#include "elf_build.h"

#include <errno.h>
#include <lzma.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define ID_BYTES 20

static void note_add(struct elf_build *b, uint8_t first)
{
	struct {
		Elf64_Nhdr head;
		char name[4];
		uint8_t id[ID_BYTES];
	} note = {{4, ID_BYTES, NT_GNU_BUILD_ID}, "GNU", {first, 0xcd, 0xef}};

	build_section(b, ".note.gnu.build-id", SHT_NOTE, SHF_ALLOC, &note, sizeof(note), 0);
}

static void file_make(struct elf_build *b, uint8_t id, const void *link, size_t link_bytes,
		      const void *alt, size_t alt_bytes)
{
	build_init(b);
	build_section(b, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, NULL, 64, 0);
	if (id)
		note_add(b, id);
	if (link)
		build_section(b, ".gnu_debuglink", SHT_PROGBITS, 0, link, link_bytes, 0);
	if (alt)
		build_section(b, ".gnu_debugaltlink", SHT_PROGBITS, 0, alt, alt_bytes, 0);
	build_finish(b);
}

static struct elf_file *file_open(const struct elf_build *b)
{
	struct elf_file *elf;

	assert_int_equal(elf_open_memory(b->data, b->size, &elf, NULL), 0);
	return elf;
}

/* "a.debug", padded, CRC. */
static void link_make(uint8_t out[12], uint32_t crc)
{
	memcpy(out, "a.debug", 8);
	memcpy(out + 8, &crc, 4);
}

struct seen {
	char text[2048];
	int stop_at;
};

static int see(void *ctx, enum elf_debug_kind kind, const char *path)
{
	struct seen *s = ctx;
	size_t n = strlen(s->text);

	snprintf(s->text + n, sizeof(s->text) - n, "%u %s\n", (unsigned int)kind, path);
	return --s->stop_at == 0 ? 7 : 0;
}

static void elf_debug__candidates__are_in_order(void **state)
{
	static const uint8_t alt[] = "../x.dwz\0\1\2\3";
	struct elf_debug_links links;
	struct seen seen = {"", 0};
	struct why why = {""};
	struct elf_file *elf;
	struct elf_build b;
	uint8_t link[12];

	(void)state;
	link_make(link, 0x12345678);
	file_make(&b, 0xab, link, sizeof(link), alt, sizeof(alt) - 1);
	elf = file_open(&b);
	assert_true(elf_is_stripped(elf));
	elf_debug_links_read(elf, &links, &why);
	assert_string_equal(why.text, "");
	assert_string_equal(links.name, "a.debug");
	assert_int_equal(links.crc, 0x12345678);
	assert_string_equal(links.supplement, "../x.dwz");
	assert_int_equal(links.supplement_id_len, 3);
	assert_int_equal(elf_debug_candidates(elf_get_info(elf), &links, "/usr/bin/a", see, &seen),
			 0);
	assert_string_equal(
		seen.text,
		"0 /usr/lib/debug/.build-id/ab/cdef0000000000000000000000000000000000.debug\n"
		"1 /usr/bin/a.debug\n"
		"1 /usr/bin/.debug/a.debug\n"
		"1 /usr/lib/debug/usr/bin/a.debug\n"
		"2 /usr/bin/../x.dwz\n"
		"2 /usr/lib/debug/.build-id/01/0203.debug\n");
	seen = (struct seen){"", 2};
	assert_int_equal(elf_debug_candidates(elf_get_info(elf), &links, "/a.debug", see, &seen),
			 7);
	assert_non_null(strstr(seen.text, "1 /.debug/a.debug\n")); /* never itself */
	seen = (struct seen){"", 0};
	assert_int_equal(elf_debug_candidates(elf_get_info(elf), &links, "memfd:x", see, &seen), 0);
	assert_null(strstr(seen.text, "a.debug"));
	elf_close(elf);
	build_done(&b);
}

static void elf_debug__links_that_lead_elsewhere__are_none(void **state)
{
	static const struct {
		const char *data;
		size_t bytes;
	} bad[] = {
		{"../a\0\0\0\0crc4", 12},
		{"/etc/shadow\0crc4", 16},
		{"..\0\0crc4", 8},
		{"\0\0\0\0crc4", 8},
		{"a\nb\0crc4", 8},
		{"a.debug\0crc", 11},
		{"a.debug", 7},
		{"", 0},
		{"abc\0", 4},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct elf_debug_links links;
		struct why why = {""};
		struct elf_file *elf;
		struct elf_build b;

		file_make(&b, 0, bad[i].data, bad[i].bytes, "x\0", 2);
		elf = file_open(&b);
		elf_debug_links_read(elf, &links, &why);
		assert_string_equal(links.name, "");
		assert_string_equal(links.supplement, "");
		assert_string_not_equal(why.text, "");
		elf_close(elf);
		build_done(&b);
	}
}

static int verify(uint8_t want_id, uint8_t have_id, enum elf_debug_kind kind, bool is_crc_right)
{
	struct elf_debug_links links = {.name = "a.debug", .supplement = "x"};
	struct elf_file *elf, *debug;
	struct elf_build b, d;
	struct why why = {""};
	int err;

	file_make(&b, want_id, NULL, 0, NULL, 0);
	file_make(&d, have_id, NULL, 0, NULL, 0);
	links.crc = lzma_crc32(d.data, d.size, 0) ^ !is_crc_right;
	links.supplement_id_len = ID_BYTES;
	memcpy(links.supplement_id, (uint8_t[]){0x77, 0xcd, 0xef}, 3);
	elf = file_open(&b);
	debug = file_open(&d);
	err = elf_debug_verify(elf_get_info(elf), &links, kind, debug, &why);
	assert_int_equal(!err, !why.text[0]);
	elf_close(elf);
	elf_close(debug);
	build_done(&b);
	build_done(&d);
	return err;
}

static void elf_debug__verify__wants_build_id_and_crc(void **state)
{
	(void)state;
	assert_int_equal(verify(1, 1, ELF_DEBUG_BUILD_ID, false), 0);
	assert_int_equal(verify(1, 2, ELF_DEBUG_BUILD_ID, true), -EBADMSG);
	assert_int_equal(verify(1, 0, ELF_DEBUG_BUILD_ID, true), -EBADMSG);
	assert_int_equal(verify(0, 0, ELF_DEBUG_BUILD_ID, true), -EBADMSG);
	assert_int_equal(verify(0, 0, ELF_DEBUG_LINK, true), 0);
	assert_int_equal(verify(1, 0, ELF_DEBUG_LINK, true), 0);
	assert_int_equal(verify(1, 1, ELF_DEBUG_LINK, true), 0);
	assert_int_equal(verify(1, 1, ELF_DEBUG_LINK, false), -EBADMSG);
	assert_int_equal(verify(0, 0, ELF_DEBUG_LINK, false), -EBADMSG);
	assert_int_equal(verify(1, 2, ELF_DEBUG_LINK, true), -EBADMSG);
	assert_int_equal(verify(1, 0x77, ELF_DEBUG_SUPPLEMENT, false), 0);
	assert_int_equal(verify(1, 1, ELF_DEBUG_SUPPLEMENT, false), -EBADMSG);
}

static void elf_link__sections_and_relocations__of_damaged_files_stay_inside(void **state)
{
	unsigned int seed = 1;
	uint8_t link[12];

	(void)state;
	link_make(link, 1);
	for (int i = 0; i < 3000; i++) {
		struct elf_debug_links links;
		struct elf_file *elf;
		struct elf_build b;
		Elf64_Shdr h;
		uint8_t *copy;

		file_make(&b, 1, link, sizeof(link), "x\0id", 4);
		for (int n = 0; n < 4; n++)
			b.data[(size_t)rand_r(&seed) % b.size] = (uint8_t)rand_r(&seed);
		copy = malloc(b.size);
		assert_non_null(copy);
		memcpy(copy, b.data, b.size);
		if (!elf_open_memory(copy, b.size, &elf, NULL)) {
			elf_debug_links_read(elf, &links, NULL);
			(void)elf_section_named(elf, ".none", &h);
			elf_close(elf);
		}
		free(copy);
		build_done(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elf_debug__candidates__are_in_order),
		cmocka_unit_test(elf_debug__links_that_lead_elsewhere__are_none),
		cmocka_unit_test(elf_debug__verify__wants_build_id_and_crc),
		cmocka_unit_test(elf_link__sections_and_relocations__of_damaged_files_stay_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
