// SPDX-License-Identifier: Apache-2.0
/* Lines and inlined calls of this very program, whose DWARF the compiler made, and of images whose
 * DWARF says what cannot be. */
#include "elf/elf_dwarf.h"
#include "symbol/symbol_frames.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const struct symbol_frames_limits no_limits;

/* Where was_called_from was called from. */
static uint64_t here;
static int line_of_call, line_of_middle, line_of_outer;

__attribute__((noinline)) static void was_called_from(void)
{
	here = (uint64_t)__builtin_return_address(0) - 1;
	__asm__ volatile("" ::: "memory");
}

__attribute__((always_inline)) static inline void frames_inner(void)
{
	line_of_call = __LINE__ + 1;
	was_called_from();
	__asm__ volatile("" ::: "memory");
}

__attribute__((always_inline)) static inline void frames_middle(void)
{
	line_of_middle = __LINE__ + 1;
	frames_inner();
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void frames_outer(void)
{
	line_of_outer = __LINE__ + 1;
	frames_middle();
	__asm__ volatile("" ::: "memory");
}

static int base_visit(struct dl_phdr_info *info, size_t size, void *ctx)
{
	(void)size;
	*(uint64_t *)ctx = info->dlpi_addr;
	return 1; /* the program comes first */
}

static uint64_t to_link_time(uint64_t address)
{
	uint64_t base = 0;

	dl_iterate_phdr(base_visit, &base);
	return address - base;
}

static struct elf_file *open_self(void)
{
	struct elf_file *elf;
	struct why why = {""};
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	if (elf_open(fd, &elf, &why))
		fail_msg("%s", why.text);
	return elf;
}

/* The whole program, to be changed. */
static uint8_t *read_self(size_t *ret_bytes)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *image;

	assert_true(fd >= 0 && !fstat(fd, &st));
	/* Room for what tests put behind it. */
	image = malloc((size_t)st.st_size * 2 + 65536);
	assert_non_null(image);
	assert_int_equal(read(fd, image, (size_t)st.st_size), st.st_size);
	close(fd);
	*ret_bytes = (size_t)st.st_size;
	return image;
}

static Elf64_Shdr *section_in(uint8_t *image, const char *name)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)image;
	Elf64_Shdr *sections = (Elf64_Shdr *)(image + h->e_shoff);
	const char *names = (const char *)image + sections[h->e_shstrndx].sh_offset;

	for (int i = 0; i < h->e_shnum; i++) {
		if (!strcmp(names + sections[i].sh_name, name))
			return &sections[i];
	}
	fail_msg("no section %s", name);
	return NULL;
}

static const struct symbol_frame *frame(const struct symbol_frames *frames, size_t answer,
					size_t index)
{
	assert_true(index < frames->answers[answer].count);
	return &frames->frames[frames->answers[answer].first + index];
}

static void expect_frame(const struct symbol_frames *frames, size_t index, const char *function,
			 int line)
{
	const struct symbol_frame *f = frame(frames, 0, index);
	const char *file = strings_get(frames->strings, f->file);

	assert_string_equal(strings_get(frames->strings, f->function), function);
	assert_int_equal(f->line, line);
	assert_int_equal(file[0], '/');
	assert_non_null(strstr(file, "test_symbol_frames.c"));
}

static void expect_chain(const struct symbol_frames *frames)
{
	assert_int_equal(frames->answers[0].state, SYMBOL_FRAMES_FOUND);
	assert_int_equal(frames->answers[0].count, 3);
	expect_frame(frames, 0, "frames_inner", line_of_call);
	expect_frame(frames, 1, "frames_middle", line_of_middle);
	expect_frame(frames, 2, "frames_outer", line_of_outer);
}

static int find(struct elf_file *elf, uint64_t address, const struct symbol_frames_limits *limits,
		struct symbol_frames **ret)
{
	assert_int_equal(symbol_frames_new(&address, 1, ret), 0);
	return symbol_frames_find(elf, NULL, limits, *ret, NULL);
}

static void done(struct symbol_frames *frames, struct elf_file *elf)
{
	symbol_frames_free(frames);
	elf_close(elf);
	assert_int_equal(mem_live_bytes(MEM_SYMBOL), 0);
	assert_int_equal(mem_live_bytes(MEM_ELF), 0);
}

static void frames__inlined_calls__are_told_innermost_first(void **state)
{
	struct elf_file *elf = open_self();
	struct symbol_frames *frames;

	(void)state;
	frames_outer();
	assert_int_equal(find(elf, to_link_time(here), &no_limits, &frames), 0);
	expect_chain(frames);
	done(frames, elf);
}

static void frames__many_addresses__are_each_answered(void **state)
{
	struct elf_file *elf = open_self();
	struct symbol_frames *frames;
	uint64_t addresses[300];
	size_t found = 0;

	(void)state;
	frames_outer();
	/* In no order, some twice, some in no code at all. */
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
		addresses[i] = i % 7 ? to_link_time(here) - 150 + (i * 97) % 300 : i;
	assert_int_equal(symbol_frames_new(addresses, ARRAY_SIZE(addresses), &frames), 0);
	assert_int_equal(symbol_frames_find(elf, NULL, &no_limits, frames, NULL), 0);
	for (size_t i = 0; i < frames->count; i++) {
		const struct symbol_frames_answer *a = &frames->answers[i];

		assert_true(!i || a->address >= frames->answers[i - 1].address);
		if (a->address < 300)
			assert_int_equal(a->state, SYMBOL_FRAMES_NONE);
		if (a->address == to_link_time(here)) {
			assert_int_equal(a->count, 3);
			found++;
		}
	}
	assert_true(found > 0);
	done(frames, elf);
}

static void frames__without_aranges__units_are_searched(void **state)
{
	struct symbol_frames *frames;
	struct elf_file *elf;
	size_t bytes;
	uint8_t *image = read_self(&bytes);

	(void)state;
	section_in(image, ".debug_aranges")->sh_type = SHT_NOBITS;
	assert_int_equal(elf_open_memory(image, bytes, &elf, NULL), 0);
	frames_outer();
	assert_int_equal(find(elf, to_link_time(here), &no_limits, &frames), 0);
	expect_chain(frames);
	done(frames, elf);
	free(image);
}

/* Compresses a section and puts it behind the file. Returns the new size. */
static size_t compress_section(uint8_t *image, size_t bytes, const char *name, uint32_t type)
{
	Elf64_Shdr *s = section_in(image, name);
	Elf64_Chdr head = {.ch_type = type, .ch_size = s->sh_size, .ch_addralign = 1};
	size_t at = (bytes + 7) / 8 * 8, room = s->sh_size + 4096;
	uLongf got = room;

	memcpy(image + at, &head, sizeof(head));
	if (type == ELFCOMPRESS_ZLIB)
		assert_int_equal(
			compress(image + at + sizeof(head), &got, image + s->sh_offset, s->sh_size),
			Z_OK);
	else
		got = ZSTD_compress(image + at + sizeof(head), room, image + s->sh_offset,
				    s->sh_size, 1);
	s->sh_offset = at;
	s->sh_size = sizeof(head) + got;
	s->sh_flags |= SHF_COMPRESSED;
	return at + sizeof(head) + got;
}

static const char *const needed[] = {".debug_info", ".debug_abbrev", ".debug_line", ".debug_str"};

static void frames__compressed_sections__say_the_same(void **state)
{
	(void)state;
	for (uint32_t type = ELFCOMPRESS_ZLIB; type <= 2; type++) {
		struct symbol_frames *frames;
		struct elf_file *elf;
		size_t bytes;
		uint8_t *image = read_self(&bytes);

		for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
			bytes = compress_section(image, bytes, needed[i], type);
		assert_int_equal(elf_open_memory(image, bytes, &elf, NULL), 0);
		frames_outer();
		assert_int_equal(find(elf, to_link_time(here), &no_limits, &frames), 0);
		expect_chain(frames);
		done(frames, elf);
		free(image);
	}
}

static void expect_refused(uint8_t *image, size_t bytes, int err)
{
	struct symbol_frames *frames;
	struct elf_file *elf;

	assert_int_equal(elf_open_memory(image, bytes, &elf, NULL), 0);
	frames_outer();
	assert_int_equal(find(elf, to_link_time(here), &no_limits, &frames), err);
	done(frames, elf);
}

static void frames__sections_that_claim_too_much__are_refused(void **state)
{
	size_t bytes;
	uint8_t *image = read_self(&bytes);
	Elf64_Shdr *s = section_in(image, ".debug_info");
	Elf64_Chdr *head;

	(void)state;
	bytes = compress_section(image, bytes, ".debug_info", ELFCOMPRESS_ZLIB);
	head = (Elf64_Chdr *)(image + s->sh_offset);
	head->ch_size = 64ULL << 30;
	expect_refused(image, bytes, -ERANGE);
	head->ch_size = UINT64_MAX;
	expect_refused(image, bytes, -ERANGE);
	/* Within the limit, but more than there is, or less. */
	head->ch_size = 32U << 20;
	expect_refused(image, bytes, -EBADMSG);
	head->ch_size = 16;
	expect_refused(image, bytes, -EBADMSG);
	head->ch_type = 77;
	expect_refused(image, bytes, -EOPNOTSUPP);
	s->sh_size = 3;
	expect_refused(image, bytes, -EBADMSG);
	s->sh_flags = 0;
	s->sh_offset = bytes + 1;
	expect_refused(image, bytes, -EBADMSG);
	free(image);
}

static void frames__no_dwarf__is_no_entry(void **state)
{
	size_t bytes;
	uint8_t *image = read_self(&bytes);

	(void)state;
	section_in(image, ".debug_info")->sh_type = SHT_NOBITS;
	expect_refused(image, bytes, -ENOENT);
	free(image);
}

static void frames__no_time__says_what_was_not_reached(void **state)
{
	const struct symbol_frames_limits limits = {.cpu_ns = 1, .wall_ns = 1};
	struct elf_file *elf = open_self();
	struct symbol_frames *frames;
	uint64_t addresses[400];
	size_t late = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
		addresses[i] = to_link_time((uint64_t)frames_outer) + i;
	assert_int_equal(symbol_frames_new(addresses, ARRAY_SIZE(addresses), &frames), 0);
	assert_int_equal(symbol_frames_find(elf, NULL, &limits, frames, NULL), 0);
	for (size_t i = 0; i < frames->count; i++)
		late += frames->answers[i].state == SYMBOL_FRAMES_NOT_REACHED;
	assert_true(late > 0);
	done(frames, elf);
}

/* Bytes of the DWARF turned one after the other: an answer or an error, and nothing is lost. */
static void frames__turned_bytes__are_survived(void **state)
{
	const struct symbol_frames_limits limits = {.cpu_ns = 200000000};
	size_t bytes;
	uint8_t *image = read_self(&bytes);

	(void)state;
	frames_outer();
	for (size_t i = 0; i < 400; i++) {
		const Elf64_Shdr *s = section_in(image, needed[i % 4]);
		uint8_t *byte =
			image + s->sh_offset + (i * 7919) % (s->sh_size < 3000 ? s->sh_size : 3000);
		struct symbol_frames *frames;
		struct elf_file *elf;
		uint8_t was = *byte;

		*byte = (uint8_t)(was ^ (1U << i % 8));
		assert_int_equal(elf_open_memory(image, bytes, &elf, NULL), 0);
		find(elf, to_link_time(here), &limits, &frames);
		done(frames, elf);
		*byte = was;
	}
	free(image);
}

static void frames__no_memory__is_an_error_and_no_leak(void **state)
{
	uint64_t address;

	(void)state;
	frames_outer();
	address = to_link_time(here);
	for (unsigned long n = 1; n < 40; n++) {
		struct elf_file *elf = open_self();
		struct symbol_frames *frames = NULL;
		int err;

		mem_fail_after(n);
		err = symbol_frames_new(&address, 1, &frames);
		if (!err)
			err = symbol_frames_find(elf, NULL, &no_limits, frames, NULL);
		mem_fail_after(0);
		assert_true(!err || err == -ENOMEM || err == -ENOENT);
		done(frames, elf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames__inlined_calls__are_told_innermost_first),
		cmocka_unit_test(frames__many_addresses__are_each_answered),
		cmocka_unit_test(frames__without_aranges__units_are_searched),
		cmocka_unit_test(frames__compressed_sections__say_the_same),
		cmocka_unit_test(frames__sections_that_claim_too_much__are_refused),
		cmocka_unit_test(frames__no_dwarf__is_no_entry),
		cmocka_unit_test(frames__no_time__says_what_was_not_reached),
		cmocka_unit_test(frames__turned_bytes__are_survived),
		cmocka_unit_test(frames__no_memory__is_an_error_and_no_leak),
	};

	return cmocka_run_group_tests_name("symbol_frames", tests, NULL, NULL);
}
