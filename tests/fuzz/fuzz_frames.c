// SPDX-License-Identifier: Apache-2.0
/* Lines and inlined calls out of any bytes: within the limits, printable, memory given back. */
#include "symbol/symbol_frames.h"

#include <stdlib.h>
#include <string.h>

#define QUERIES 64

static void check(const struct symbol_frames *frames)
{
	for (size_t i = 0; i < frames->count; i++) {
		const struct symbol_frames_answer *a = &frames->answers[i];

		if (a->count > SYMBOL_FRAMES_MAX || a->first + a->count > frames->frame_count ||
		    (a->state == SYMBOL_FRAMES_FOUND && !a->count))
			abort();
		for (uint32_t k = 0; k < a->count; k++) {
			const struct symbol_frame *f = &frames->frames[a->first + k];
			const char *name = strings_get(frames->strings, f->function);
			const char *file = strings_get(frames->strings, f->file);

			if (!text_is_utf8(name, strlen(name)) || !text_is_utf8(file, strlen(file)))
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct symbol_frames_limits limits = {.cpu_ns = 300000000};
	uint64_t addresses[QUERIES];
	struct symbol_frames *frames;
	struct elf_file *elf;

	if (elf_open_memory(data, size, &elf, NULL))
		return 0;
	for (uint64_t i = 0; i < QUERIES; i++)
		addresses[i] = elf_get_info(elf)->segments[0].vaddr + i * i;
	if (!symbol_frames_new(addresses, QUERIES, &frames)) {
		symbol_frames_find(elf, NULL, &limits, frames, NULL);
		check(frames);
		symbol_frames_free(frames);
	}
	elf_close(elf);
	if (mem_live_bytes(MEM_SYMBOL) || mem_live_bytes(MEM_ELF))
		abort();
	return 0;
}
