// SPDX-License-Identifier: Apache-2.0
/* Any bytes as an ELF file: described, walked, no read outside, all memory given back. */
#include "elf/elf.h"

#include <stdlib.h>

static int visit(void *ctx, const struct elf_symbol *symbol)
{
	uint64_t start, end;
	char name[300];

	(void)elf_symbol_name(ctx, symbol, name, sizeof(name));
	(void)elf_section_range(ctx, symbol->section, &start, &end);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf_file *elf;
	struct why why = {""};
	uint64_t vaddr;

	if (elf_open_memory(data, size, &elf, &why))
		return 0;
	(void)elf_offset_to_vaddr(elf_get_info(elf), size / 2, &vaddr);
	(void)elf_symbols(elf, 100000, visit, elf, &why);
	elf_close(elf);
	if (mem_live_bytes(MEM_ELF))
		abort();
	return 0;
}
