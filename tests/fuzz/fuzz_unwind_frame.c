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

static void compare(const struct unwind_table *whole, const struct unwind_table *part,
		    const struct unwind_options *options)
{
	struct fly_rule a, b;

	/* Every row's start is not needed each time; the borders are. */
	for (uint64_t at = options->start; at < options->end; at += 61) {
		int found = unwind_table_find(whole, at, &a),
		    again = unwind_table_find(part, at, &b);

		/* A full dictionary, or another tracked register, may tell them apart. */
		if (whole->stats.groups_degraded || whole->tracked || part->tracked)
			continue;
		if (found != again || (found == FLY_FIND_RULE && memcmp(&a, &b, sizeof(a))))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct unwind_options options = {.start = TEXT + 0x10000, .end = TEXT + 0x20000};
	struct unwind_table *whole = NULL, *part = NULL;
	struct unwind_source source = {.read = read_shell, .bytes = TEXT_BYTES + 0x10000};
	struct shell s;

	if (size < 1 || size > 0x10000)
		return 0;
	make(&s, data[0] & 1 ? EM_AARCH64 : EM_X86_64, data + 1, size - 1);
	source.ctx = &s;
	if (!unwind_table_build(&source, NULL, &whole, NULL) &&
	    !unwind_table_build(&source, &options, &part, NULL))
		compare(whole, part, &options);
	unwind_table_free(whole);
	unwind_table_free(part);
	if (mem_live_bytes(MEM_ELF))
		abort();
	return 0;
}
