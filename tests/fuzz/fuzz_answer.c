// SPDX-License-Identifier: Apache-2.0
/* Any bytes as the reader's answer: refused, or every pointer in it good to read. */
#include "helpers/helpers_answer.h"

#include <stdlib.h>
#include <string.h>

static volatile size_t total;

/* Every page, at a few places. */
static void use_table(const struct unwind_table *t)
{
	struct fly_rule rule;

	for (uint32_t i = 0; i < t->page_count && i < 64; i++) {
		for (uint64_t at = 0; at < FLY_PAGE_BYTES; at += 509) {
			if (unwind_table_find(t, t->start + i * 65536ULL + at, &rule) ==
				    FLY_FIND_RULE &&
			    rule.cfa > FLY_CFA_UNSUPPORTED)
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t asked[2] = {0x1000, 0x2000};
	static const uint64_t table_max[1] = {1 << 20};
	struct helpers_answer a;
	bool is_table;
	uint32_t op;

	/* The answer's own word for its kind, so that each is reached. */
	if (size < sizeof(op))
		return 0;
	memcpy(&op, data, sizeof(op));
	is_table = op == WIRE_TABLE || op == WIRE_VDSO_TABLE;
	if (helpers_answer_check(data, size, op, 1, is_table ? table_max : asked, is_table ? 1 : 2,
				 &a))
		return 0;
	if (a.result.table)
		use_table(&a.result.table->table);
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
