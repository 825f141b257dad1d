// SPDX-License-Identifier: Apache-2.0
/* Go's table: all of the input is the table, in a file that is well otherwise. The first byte
 * chooses whether there are section headers, the second where Go's text is told. */
#include "../unit/elf_build.h"
#include "symbol/symbol_sources.h"

#define QUERIES	   64
#define TEXT_BYTES 4096
#define TABLE_MAX  65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_query q[QUERIES] = {{0}};
	struct symbol_line l[QUERIES] = {{0}};
	struct elf_file *elf;
	struct elf_build b;

	if (size < 2 || size > TABLE_MAX)
		return 0;
	build_init(&b);
	build_section(&b, data[1] & 1 ? ".text" : ".code", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR,
		      NULL, TEXT_BYTES, 0);
	build_section(&b, ".gopclntab", SHT_PROGBITS, SHF_ALLOC, data + 2, size - 2, 0);
	build_section(&b, ".noptrdata", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, data + 2, size - 2, 0);
	build_finish(&b);
	if (data[0] & 1)
		build_strip_headers(&b);
	if (elf_open_memory(b.data, b.size, &elf, NULL))
		abort();
	for (uint64_t i = 0; i < QUERIES; i++)
		q[i].address = l[i].address = BUILD_BASE + BUILD_FIRST + i * 61;
	(void)symbol_lookup_go(elf, q, QUERIES, NULL);
	(void)symbol_lines_go(elf, l, QUERIES, NULL);
	for (size_t i = 0; i < QUERIES; i++) {
		if (q[i].found &&
		    (q[i].start > q[i].address || !text_is_utf8(q[i].name, strlen(q[i].name))))
			abort();
		if (!l[i].line != !l[i].file)
			abort();
		mem_free(MEM_SYMBOL, q[i].name);
		mem_free(MEM_SYMBOL, l[i].file);
	}
	elf_close(elf);
	build_done(&b);
	if (mem_live_bytes(MEM_SYMBOL))
		abort();
	return 0;
}
