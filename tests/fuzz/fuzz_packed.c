// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a symbol file; what only guards against damage (sizes, checksum) is put right. */
#include "symbol/symbol_packed.h"

#include <stdlib.h>
#include <string.h>

static void put_right(char *data, size_t bytes)
{
	struct symbol_packed_header h;
	struct elf_blake2b hash;

	memcpy(&h, data, sizeof(h));
	memcpy(h.magic, SYMBOL_PACKED_MAGIC, sizeof(h.magic));
	h.version = SYMBOL_PACKED_VERSION;
	h.header_bytes = sizeof(h);
	h.file_bytes = bytes;
	h.is_stripped &= 1;
	h.is_protected &= 1;
	h.info.build_id_len %= ELF_BUILD_ID_MAX;
	h.info.segment_count %= ELF_SEGMENTS_MAX;
	memset(h.checksum, 0, sizeof(h.checksum));
	elf_blake2b_init(&hash);
	elf_blake2b_add(&hash, data + sizeof(h), bytes - sizeof(h));
	elf_blake2b_add(&hash, &h, sizeof(h));
	elf_blake2b_end(&hash, h.checksum);
	memcpy(data, &h, sizeof(h));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_packed *p;
	char *copy;

	if (size < sizeof(struct symbol_packed_header))
		return 0;
	copy = malloc(size);
	if (!copy)
		abort();
	memcpy(copy, data, size);
	put_right(copy, size);
	if (!symbol_packed_open_memory(copy, size, NULL, &p, NULL)) {
		uint64_t base = symbol_packed_get_header(p)->base;

		for (uint64_t i = 0; i < 64; i++) {
			uint64_t address = base + (i < 32 ? i : 1ULL << (i - 32));
			struct symbol_packed_hit hit;

			if (symbol_packed_find(p, address, &hit) &&
			    (hit.start > address || !strlen(hit.name)))
				abort();
		}
		symbol_packed_close(p);
	}
	free(copy);
	if (mem_live_bytes(MEM_SYMBOL))
		abort();
	return 0;
}
