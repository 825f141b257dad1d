// SPDX-License-Identifier: Apache-2.0
#include "unwind_place.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint32_t place_words(struct place *place, uint32_t count, uint32_t **ret)
{
	uint32_t at = (place->next + 1) & ~1U;
	uint32_t *block;

	if (!count || count > FLY_BLOCK_WORDS)
		return 0;
	if (at % FLY_BLOCK_WORDS + count > FLY_BLOCK_WORDS)
		at += FLY_BLOCK_WORDS - at % FLY_BLOCK_WORDS;
	if (!at)
		at = 2; /* 0 is no place */
	block = place->block(place->ctx, at / FLY_BLOCK_WORDS);
	if (!block)
		return 0;
	*ret = block + at % FLY_BLOCK_WORDS;
	place->next = at + count;
	return at;
}

static uint32_t place_copy(struct place *place, const void *words, uint32_t count)
{
	uint32_t *to, at = place_words(place, count, &to);

	if (at)
		memcpy(to, words, 4ULL * count);
	return at;
}

/* Pages are copied with their groups' new places. */
static bool place_pages(struct place *place, const struct unwind_table *table,
			struct fly_table *ret)
{
	for (uint32_t i = 0; i < table->page_count; i += FLY_RUN_PAGES) {
		uint32_t count = table->page_count - i, *words;

		count = count < FLY_RUN_PAGES ? count : FLY_RUN_PAGES;
		ret->pages_at[i / FLY_RUN_PAGES] = place_words(place, 2 * count, &words);
		if (!ret->pages_at[i / FLY_RUN_PAGES])
			return false;
		for (uint32_t j = 0; j < count; j++) {
			uint64_t page = table->pages[i + j];
			uint32_t groups = fly_page_count(page), at = 0;

			if (groups && groups != FLY_PAGE_ABSENT) {
				at = place_copy(place, table->groups + fly_page_at(page), groups);
				if (!at)
					return false;
			}
			page = fly_page_make(at, groups, fly_page_before(page));
			memcpy(words + 2ULL * j, &page, sizeof(page));
		}
	}
	return true;
}

bool place_table(struct place *place, const struct unwind_table *table, struct fly_table *ret,
		 uint32_t *ret_pages)
{
	*ret = (struct fly_table){.start = table->start,
				  .machine = table->machine,
				  .scale = table->scale,
				  .tracked = table->tracked};
	if (!place_pages(place, table, ret))
		return false;
	for (uint32_t i = 0; i < table->shape_words; i += FLY_RUN_SHAPES) {
		uint32_t count = table->shape_words - i;

		count = count < FLY_RUN_SHAPES ? count : FLY_RUN_SHAPES;
		ret->shapes_at[i / FLY_RUN_SHAPES] = place_copy(place, table->shapes + i, count);
		if (!ret->shapes_at[i / FLY_RUN_SHAPES])
			return false;
	}
	ret->rules_at = place_copy(place, table->rules, table->rule_count * FLY_RULE_WORDS);
	*ret_pages = table->page_count;
	return ret->rules_at != 0;
}

static int read_file(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	return pread(*(int *)ctx, out, bytes, (off_t)offset) == (ssize_t)bytes ? 0 : -EBADMSG;
}

struct unwind_table *place_build(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct unwind_source source = {.read = read_file, .ctx = &fd};
	struct unwind_table *table = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st)) {
		source.bytes = (uint64_t)st.st_size;
		if (unwind_table_build(&source, NULL, &table, NULL))
			table = NULL;
	}
	close(fd);
	return table;
}

static int read_memory(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	memcpy(out, (const char *)ctx + offset, bytes);
	return 0;
}

struct unwind_table *place_build_vdso(uint64_t start)
{
	struct unwind_source source = {
		.read = read_memory, .ctx = (void *)(uintptr_t)start, .bytes = 4096};
	struct unwind_table *table = NULL;

	return unwind_table_build(&source, NULL, &table, NULL) ? NULL : table;
}

bool place_bias(const char *path, uint64_t start, uint64_t offset, uint64_t *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool found = false;
	Elf64_Ehdr header;
	Elf64_Phdr p;

	if (fd < 0)
		return false;
	if (read_file(&fd, 0, &header, sizeof(header)))
		header.e_phnum = 0;
	for (int i = 0; i < header.e_phnum && !found; i++) {
		if (read_file(&fd, header.e_phoff + (uint64_t)i * sizeof(p), &p, sizeof(p)))
			break;
		if (p.p_type != PT_LOAD || !(p.p_flags & PF_X) ||
		    offset < (p.p_offset & ~4095ULL) || offset >= p.p_offset + p.p_filesz)
			continue;
		*ret = start - offset + p.p_offset - p.p_vaddr;
		found = true;
	}
	close(fd);
	return found;
}

uint64_t place_identity(const char *path, uint64_t start, uint64_t offset)
{
	struct stat st;

	if (!strcmp(path, "[vdso]"))
		return fly_identity_make(0, 0, FLY_VDSO_INO, start);
	if (stat(path, &st))
		return FLY_IDENTITY_ANONYMOUS;
	return fly_identity_make((uint64_t)st.st_size,
				 (uint64_t)st.st_mtim.tv_sec * 1000000000ULL +
					 (uint64_t)st.st_mtim.tv_nsec,
				 st.st_ino, start - offset);
}
