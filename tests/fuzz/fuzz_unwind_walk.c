// SPDX-License-Identifier: Apache-2.0
/*
 * A walk over whatever registers, stack, code, mappings and table: it ends, every frame but the
 * first lies in a mapping, and no read leaves a block. At the end words of the blocks are changed
 * as well, as a writer beside the walk could.
 */
#include <stdlib.h>
#include <string.h>

#include <elf.h>

#include "unwind/unwind_walk.h"

#define STACK	 0x7ffc00000000ULL
#define CODE	 0x400000ULL
#define BYTES	 8192U
#define DEPTH	 200U
#define MAPPINGS 8U
#define GROUPS	 24U
#define RULES	 12U
#define READS	 24U /* of a frame */

struct input {
	const uint8_t *at;
	size_t left;
};

static uint8_t stack[BYTES], code[BYTES];
static unsigned long reads;

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t v = 0;

	bytes = bytes < in->left ? bytes : in->left;
	memcpy(&v, in->at, bytes);
	in->at += bytes;
	in->left -= bytes;
	return v;
}

/* Mostly where it leads on. */
static uint64_t take_address(struct input *in)
{
	switch (take(in, 1) & 3) {
	case 0:
		return take(in, 8);
	case 1:
		return CODE + take(in, 2) % BYTES;
	default:
		return STACK + take(in, 2) % BYTES / 8 * 8;
	}
}

static int memory_read(void *ctx, uint64_t address, void *out, size_t bytes)
{
	(void)ctx;
	reads++;
	if (address >= STACK && address - STACK <= BYTES - bytes)
		memcpy(out, stack + (address - STACK), bytes);
	else if (address >= CODE && address - CODE <= BYTES - bytes)
		memcpy(out, code + (address - CODE), bytes);
	else
		return -1;
	return 0;
}

/* A valid table whose every part the input chose. */
static void table_make(struct input *in, struct unwind_table *t)
{
	static __u64 pages[1];
	static __u32 groups[GROUPS], shapes[GROUPS + 2 + UNWIND_SHAPE_ROOM];
	static struct fly_rule rules[RULES];
	uint32_t low = 0;

	memset(shapes, 0, sizeof(shapes));
	for (uint32_t i = 1; i < RULES; i++) {
		struct fly_rule *r = &rules[i];

		r->cfa = take(in, 1) % (FLY_CFA_UNSUPPORTED + 1);
		r->cfa_reg = take(in, 1) & 1 ? FLY_X86_RSP : (uint8_t)take(in, 1);
		r->fp = (uint8_t)((take(in, 1) & 3) | (take(in, 1) & 3) << 4);
		r->ra = take(in, 1) & 3 ? 0 : (uint8_t)take(in, 1);
		r->offset = (int8_t)take(in, 1) * 8;
		r->fp_words = (int8_t)take(in, 1);
		r->ra_words = (int8_t)take(in, 1);
	}
	for (uint32_t i = 0; i < GROUPS; i++) {
		shapes[i + 1] = fly_half_make(take(in, 1) % RULES, 0) |
				(uint32_t)fly_half_make(take(in, 1) % RULES, take(in, 1) & 15)
					<< 16;
		low += 1 + (uint32_t)take(in, 2) % (BYTES / GROUPS);
		groups[i] = fly_group_make(low, i + 1);
	}
	pages[0] = fly_page_make(0, (__u64)GROUPS, take(in, 1) % RULES);
	*t = (struct unwind_table){
		.start = (take(in, 1) & 1) * FLY_PAGE_BYTES,
		.machine = EM_X86_64,
		.tracked = (uint8_t)take(in, 1),
		.pages = pages,
		.groups = groups,
		.shapes = shapes,
		.rules = rules,
		.page_count = 1,
		.group_count = GROUPS,
		.shape_words = GROUPS + 2,
		.rule_count = RULES,
	};
	if (unwind_table_check(t, NULL))
		abort();
}

static uint32_t mappings_make(struct input *in, struct fly_mapping *m)
{
	static const uint32_t tables[] = {1, 1, 1, FLY_TABLE_FRAME_POINTERS, FLY_TABLE_NONE, 5};
	uint32_t count = (uint32_t)take(in, 1) % (MAPPINGS + 1);
	uint64_t page = CODE >> 12;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t length = 1 + take(in, 1) % 3;

		m[i] = fly_mapping_make(page << 12, (uint64_t)length << 12,
					take(in, 1) & 1 ? CODE : take(in, 8),
					tables[take(in, 1) % ARRAY_SIZE(tables)]);
		page += length + take(in, 1) % 2;
	}
	return count;
}

static void walk(const struct unwind_space *space, const struct unwind_thread *thread,
		 const struct fly_mapping *m, uint32_t count, bool is_damaged)
{
	static const struct unwind_memory memory = {.read = memory_read};
	static struct unwind_stack s;

	reads = 0;
	unwind_walk(space, &memory, thread, DEPTH, &s);
	if (!s.count || s.count > DEPTH || s.cut >= FLY_CUT_COUNT || reads > DEPTH * READS)
		abort();
	for (uint32_t i = 1; !is_damaged && i < s.count; i++) {
		bool is_mapped = false;

		/* A frame may be exact or behind a call. */
		for (uint32_t k = 0; k < count; k++)
			is_mapped |=
				s.frames[i] - fly_mapping_start(&m[k]) <= fly_mapping_bytes(&m[k]);
		if (!is_mapped)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct fly_mapping mappings[MAPPINGS];
	struct unwind_thread thread = {0};
	struct unwind_space *space;
	struct unwind_table table;
	uint32_t count;

	if (unwind_space_new(&space))
		return 0;
	table_make(&in, &table);
	count = mappings_make(&in, mappings);
	if (unwind_space_add_table(space, &table) != 1 ||
	    unwind_space_set_mappings(space, mappings, count))
		abort();
	thread.pc = take_address(&in);
	for (int i = 0; i < 16; i++)
		thread.regs[i] = take_address(&in);
	thread.is_in_syscall = take(&in, 1) & 1;
	thread.stack_start = take(&in, 1) & 1 ? STACK + BYTES : take(&in, 8);
	memset(code, 0x90, sizeof(code));
	for (size_t i = 0; i < 8; i++) {
		uint64_t bytes = take(&in, 8);

		memcpy(code + take(&in, 2) % (BYTES - 8), &bytes, 8);
	}
	for (size_t i = 0; i < BYTES; i += 8) {
		uint64_t value = in.left ? take_address(&in) : STACK + (i + 64) % BYTES;

		memcpy(stack + i, &value, 8);
	}
	walk(space, &thread, mappings, count, false);
	for (size_t i = 0; i + 6 <= size && i < 600; i += 6) {
		uint16_t at;

		memcpy(&at, data + i, 2);
		memcpy(space->blocks[0] + at % 2048, data + i + 2, 4);
	}
	walk(space, &thread, mappings, count, true);
	unwind_space_free(space);
	if (mem_live_bytes(MEM_ELF))
		abort();
	return 0;
}
