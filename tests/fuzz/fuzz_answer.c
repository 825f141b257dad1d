// SPDX-License-Identifier: Apache-2.0
/* Any bytes as the reader's answer: refused, or every pointer in it good to read. */
#include "helpers/helpers_answer.h"

#include <stdlib.h>
#include <string.h>

static volatile size_t total;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t asked[2] = {0x1000, 0x2000};
	struct helpers_answer a;
	uint32_t op;

	/* The answer's own word for its kind, so that each is reached. */
	if (size < sizeof(op))
		return 0;
	memcpy(&op, data, sizeof(op));
	if (helpers_answer_check(data, size, op, 1, asked, 2, &a))
		return 0;
	if (a.result.debug_link)
		total += strlen(a.result.debug_link);
	for (size_t i = 0; i < a.result.name_count; i++)
		total += strlen(a.result.names[i].name);
	for (size_t i = 0; i < a.result.line_count; i++) {
		for (size_t k = 0; k < a.result.lines[i].frame_count; k++)
			total += strlen(a.result.lines[i].frames[k].function) +
				 strlen(a.result.lines[i].frames[k].file);
	}
	if (a.result.scan) {
		total += strlen(a.result.scan->comm) + strlen(a.result.scan->exe) +
			 strlen(a.result.scan->cgroup);
		for (size_t i = 0; i < a.result.scan->mapping_count; i++)
			total += strlen(a.result.scan->mappings[i].path);
	}
	helpers_answer_done(&a);
	if (mem_live_bytes(MEM_HELPERS))
		abort();
	return 0;
}
