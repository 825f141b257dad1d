// SPDX-License-Identifier: Apache-2.0
/* Any bytes as the tables and names of a symbol file, behind a header whose sizes and checksum are
 * right: these only guard against damage. The first bytes say how many there are of each. */
#include "symbol/symbol_packed.h"

#include <stdlib.h>
#include <string.h>

#define PARTS_BYTES 12

static char *file_make(const uint8_t *data, size_t size, size_t *ret_bytes)
{
	struct symbol_packed_header h = {.magic = SYMBOL_PACKED_MAGIC,
					 .version = SYMBOL_PACKED_VERSION,
					 .header_bytes = sizeof(h)};
	struct elf_blake2b hash;
	size_t body;
	char *file;

	h.count = data[0];
	h.resumed_count = data[1] % (h.count + 1);
	h.names_bytes = (data[2] + 1U) * 4;
	h.is_stripped = data[3] & 1;
	memcpy(&h.base, data + 4, sizeof(h.base));
	body = h.names_bytes + h.count * 8 + h.resumed_count * 8;
	h.file_bytes = sizeof(h) + body;
	file = calloc(1, h.file_bytes);
	if (!file)
		abort();
	size -= PARTS_BYTES;
	memcpy(file + sizeof(h), data + PARTS_BYTES, size < body ? size : body);
	elf_blake2b_init(&hash);
	elf_blake2b_add(&hash, file + sizeof(h), body);
	elf_blake2b_add(&hash, &h, sizeof(h));
	elf_blake2b_end(&hash, h.checksum);
	memcpy(file, &h, sizeof(h));
	*ret_bytes = h.file_bytes;
	return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_packed *p;
	size_t bytes;
	char *file;

	if (size < PARTS_BYTES)
		return 0;
	file = file_make(data, size, &bytes);
	if (!symbol_packed_open_memory(file, bytes, NULL, &p, NULL)) {
		uint64_t base = symbol_packed_get_header(p)->base;

		for (uint64_t i = 0; i < 64; i++) {
			uint64_t address = base + (i < 32 ? i : 1ULL << (i - 31));
			struct symbol_packed_hit hit;

			if (symbol_packed_find(p, address, &hit) &&
			    (hit.start > address || !strlen(hit.name)))
				abort();
		}
		symbol_packed_close(p);
	}
	free(file);
	if (mem_live_bytes(MEM_SYMBOL))
		abort();
	return 0;
}
