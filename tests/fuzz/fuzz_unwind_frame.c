// SPDX-License-Identifier: Apache-2.0
/* Only .eh_frame, in an ELF file that is well otherwise, so that all of the input is instructions.
 * The first byte chooses the machine. Rows found one by one must be those that a part of the table
 * has. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/unwind.h"

#define TEXT	   0x10000ULL
#define TEXT_BYTES 0x30000ULL
#define DATA	   0x100000ULL
#define FRAME	   0x400U

struct shell {
	uint8_t head[FRAME];
	const uint8_t *frame;
	size_t frame_bytes;
};

static int read_shell(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	const struct shell *s = ctx;
	uint8_t *p = out;

	memset(p, 0, bytes);
	for (size_t i = 0; i < bytes && offset + i < FRAME + s->frame_bytes; i++) {
		uint64_t at = offset + i;

		p[i] = at < FRAME ? s->head[at] : s->frame[at - FRAME];
	}
	return 0;
}

static void make(struct shell *s, uint16_t machine, const uint8_t *data, size_t size)
{
	Elf64_Ehdr eh = {.e_type = ET_DYN,
			 .e_machine = machine,
			 .e_phoff = sizeof(eh),
			 .e_phentsize = sizeof(Elf64_Phdr),
			 .e_phnum = 3};
	Elf64_Phdr p[3] = {
		{.p_type = PT_LOAD, .p_flags = PF_X, .p_vaddr = TEXT, .p_filesz = TEXT_BYTES},
		{.p_type = PT_LOAD, .p_vaddr = DATA, .p_filesz = FRAME + size},
		{.p_type = PT_GNU_EH_FRAME, .p_vaddr = DATA + 0x300, .p_filesz = 12},
	};
	static const uint8_t header[8] = {1, 0x1b, 0xff, 0xff, 0xfc};

	*s = (struct shell){.frame = data, .frame_bytes = size};
	memcpy(eh.e_ident, ELFMAG, SELFMAG);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	memcpy(s->head, &eh, sizeof(eh));
	memcpy(s->head + sizeof(eh), p, sizeof(p));
	memcpy(s->head + 0x300, header, sizeof(header));
}

static void compare(const struct unwind_table *a, const struct unwind_table *b)
{
	struct fly_rule r;

	if (a->page_count != b->page_count || a->group_count != b->group_count ||
	    a->shape_words != b->shape_words || a->rule_count != b->rule_count ||
	    memcmp(a->shapes, b->shapes, a->shape_words * sizeof(*a->shapes)))
		abort();
	for (uint64_t at = TEXT; at < TEXT + TEXT_BYTES; at += 61)
		unwind_table_find(a, at, &r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct unwind_table *first = NULL, *again = NULL;
	struct unwind_source source = {.read = read_shell, .bytes = TEXT_BYTES + 0x10000};
	struct shell s;

	if (size < 1 || size > 0x10000)
		return 0;
	make(&s, data[0] & 1 ? EM_AARCH64 : EM_X86_64, data + 1, size - 1);
	source.ctx = &s;
	if (!unwind_table_build(&source, NULL, &first, NULL) &&
	    !unwind_table_build(&source, NULL, &again, NULL) && first->page_count)
		compare(first, again);
	unwind_table_free(first);
	unwind_table_free(again);
	if (mem_live_bytes(MEM_ELF))
		abort();
	return 0;
}
