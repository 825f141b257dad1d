// SPDX-License-Identifier: Apache-2.0
/* Names out of any bytes: printable, starting at or below the address, memory given back. A symbol
 * file of them, where there can be one, can be read. */
#include "symbol/symbol_packed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define QUERIES 64

static void pack(struct elf_file *elf)
{
	static const uint8_t digest[ELF_BLAKE2B_BYTES] = {1};
	const struct symbol_pack_options options = {.digest = digest};
	int fd = memfd_create("symbols", MFD_CLOEXEC);
	struct symbol_packed *p;

	if (fd < 0)
		abort();
	if (!symbol_pack(elf, &options, fd, NULL)) {
		if (symbol_packed_open(fd, digest, &p, NULL))
			abort();
		symbol_packed_close(p);
	}
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_query q[QUERIES] = {{0}};
	struct elf_file *elf;

	if (elf_open_memory(data, size, &elf, NULL))
		return 0;
	for (uint64_t i = 0; i < QUERIES; i++)
		q[i].address = elf_get_info(elf)->segments[0].vaddr + i * i * 16;
	if (!symbol_lookup_file(elf, q, QUERIES, NULL)) {
		for (size_t i = 0; i < QUERIES; i++) {
			if (q[i].found && (q[i].start > q[i].address ||
					   !text_is_utf8(q[i].name, strlen(q[i].name))))
				abort();
		}
	}
	for (size_t i = 0; i < QUERIES; i++)
		mem_free(MEM_SYMBOL, q[i].name);
	pack(elf);
	elf_close(elf);
	if (mem_live_bytes(MEM_SYMBOL))
		abort();
	return 0;
}
