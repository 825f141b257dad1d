// SPDX-License-Identifier: Apache-2.0
/* Any memory as a process context, and as a program that may publish spans. */
#include "context/context.h"

#include <stdlib.h>
#include <string.h>

#define START	  0x10000
#define READS_MAX 100000

struct memory {
	const uint8_t *data;
	size_t size;
	unsigned int reads;
};

static bool read_some(void *ctx, uint64_t address, void *out, size_t bytes)
{
	struct memory *m = ctx;

	if (m->reads++ > READS_MAX || address < START || address - START > m->size ||
	    bytes > m->size - (address - START))
		return false;
	memcpy(out, m->data + (address - START), bytes);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct context_process process;
	struct memory memory = {data, size, 0};
	const struct context_memory reading = {&memory, read_some};
	struct context_module module = {.start = START, .is_main = true, .fd = -1};
	struct context_place place;
	struct why why;

	if (!context_process_read(&reading, START, &process, &why) &&
	    (process.attribute_count > CONTEXT_ATTRIBUTES_MAX ||
	     process.key_count > CONTEXT_KEYS_MAX))
		abort();
	if (!context_find(&reading, &module, &place, &why) && place.module > CONTEXT_MODULES_MAX)
		abort();
	process.payload_bytes = size < CONTEXT_PAYLOAD_MAX ? size : CONTEXT_PAYLOAD_MAX;
	memcpy(process.payload, data, process.payload_bytes);
	context_process_parse(&process, &why);
	return 0;
}
