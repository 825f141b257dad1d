// SPDX-License-Identifier: Apache-2.0
/*
 * Go 1.18 and later (runtime/symtab.go: pcHeader, _func; cmd/internal/obj/pcln.go). Go keeps frame
 * pointers, but not in functions that have no frame; there, and before the frame is made, the
 * caller is found from SP. Where the stack is another one than at the entry (SPWRITE), only the
 * frame pointer leads on; where the runtime says that nobody called (TOPFRAME), the stack ends.
 */
#include "unwind_go.h"

#include <elf.h>
#include <errno.h>

#define MAGIC_118     0xfffffff0U
#define MAGIC_120     0xfffffff1U
#define HEAD_BYTES    72U
#define FLAG_TOPFRAME 1U
#define FLAG_SPWRITE  2U
#define TOP_BYTES     4096U
#define SMALL_BYTES   64U /* what returns from a signal is smaller */

int unwind_go_open(struct unwind_go *go, struct unwind_reader *reader,
		   const struct unwind_place *place)
{
	uint64_t count, text, steps, functions;
	struct unwind_cursor c;
	uint32_t magic;

	unwind_seek(&c, reader, place->offset, place->offset + place->bytes);
	magic = unwind_get32(&c);
	unwind_skip(&c, 2);
	*go = (struct unwind_go){
		.reader = reader, .place = place, .end = place->offset + place->bytes};
	go->quantum = unwind_get8(&c);
	if (unwind_get8(&c) != 8 || (magic != MAGIC_118 && magic != MAGIC_120))
		return -EBADMSG;
	go->has_line = magic == MAGIC_120;
	count = unwind_get64(&c);
	unwind_skip(&c, 8); /* files */
	text = unwind_get64(&c);
	unwind_skip(&c, 24); /* names, units, files */
	steps = unwind_get64(&c);
	functions = unwind_get64(&c);
	if (c.err || steps >= place->bytes || functions >= place->bytes || !count ||
	    count > UNWIND_FDES_MAX || count * 8 + 4 > place->bytes - functions)
		return -EBADMSG;
	go->count = (uint32_t)count;
	go->text = text ? text : place->header;
	go->steps = place->offset + steps;
	go->functions = place->offset + functions;
	return 0;
}

/* mov $15,%rax; syscall: what a signal handler returns to. */
static bool is_restorer(struct unwind_go *go, uint64_t start, uint64_t end)
{
	static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	uint64_t at = start - go->place->header + go->place->text_offset;
	struct unwind_cursor c;
	bool is_same = true;

	if (end - start > SMALL_BYTES || start < go->place->header ||
	    at > go->reader->source->bytes - sizeof(code))
		return false;
	unwind_seek(&c, go->reader, at, at + sizeof(code));
	for (size_t i = 0; i < sizeof(code); i++)
		is_same &= unwind_get8(&c) == code[i];
	return is_same && !c.err;
}

bool unwind_go_function(struct unwind_go *go, uint32_t i, uint64_t *ret_start, uint64_t *ret_end)
{
	struct unwind_cursor c;

	unwind_seek(&c, go->reader, go->functions + 8ULL * i, go->end);
	*ret_start = go->text + unwind_get32(&c);
	unwind_skip(&c, 4);
	*ret_end = go->text + unwind_get32(&c);
	return !c.err && *ret_end > *ret_start;
}

/* Its line of SP, and its flags. */
static bool read_function(struct unwind_go *go, uint32_t i, uint64_t *ret_steps, uint8_t *ret_flags)
{
	struct unwind_cursor c;
	uint64_t at;

	unwind_seek(&c, go->reader, go->functions + 8ULL * i + 4, go->end);
	at = unwind_get32(&c);
	unwind_seek(&c, go->reader, go->functions + at, go->end);
	unwind_skip(&c, 16); /* entry, name, args, deferreturn */
	*ret_steps = unwind_get32(&c);
	unwind_skip(&c, go->has_line ? 20 : 16); /* to funcID */
	unwind_get8(&c);
	*ret_flags = unwind_get8(&c);
	return !c.err;
}

static struct fly_rule rule_of(uint64_t below, uint8_t flags)
{
	static const struct fly_rule by_fp = {.cfa = FLY_CFA_REG,
					      .cfa_reg = FLY_X86_RBP,
					      .offset = 16,
					      .fp = FLY_FP_AT_CFA,
					      .fp_words = -2,
					      .ra_words = -1};
	struct fly_rule rule = {.cfa = FLY_CFA_REG, .cfa_reg = FLY_X86_RSP, .ra_words = -1};

	/* sigtramp, whom the kernel called: what it interrupted is behind it. */
	if ((flags & (FLAG_TOPFRAME | FLAG_SPWRITE)) == FLAG_TOPFRAME && below > 8 &&
	    below < TOP_BYTES) {
		rule.offset = (__s32)below + 8;
		rule.fp = FLY_FP_LOST;
		return rule;
	}
	if (flags & FLAG_TOPFRAME)
		return (struct fly_rule){.cfa = FLY_CFA_STOP};
	if (flags & FLAG_SPWRITE || (below && below != 8))
		return by_fp;
	rule.offset = (__s32)below + 8;
	/* The frame pointer is pushed; it may not be set yet. */
	if (below) {
		rule.fp = FLY_FP_AT_CFA;
		rule.fp_words = -2;
	}
	return rule;
}

bool unwind_go_run(struct unwind_go *go, uint32_t i, uint64_t start, uint64_t end,
		   void (*row)(void *ctx, uint64_t address, const struct fly_rule *rule), void *ctx)
{
	static const struct fly_rule unsupported = {.cfa = FLY_CFA_UNSUPPORTED};
	static const struct fly_rule signal = {.cfa = FLY_CFA_SIGNAL};
	struct unwind_cursor c;
	struct fly_rule rule;
	uint64_t steps, pc = start;
	uint64_t below = UINT64_MAX; /* -1 */
	uint8_t flags;

	if (is_restorer(go, start, end)) {
		row(ctx, start - 1, &signal);
		return true;
	}
	if (!read_function(go, i, &steps, &flags)) {
		row(ctx, start, &unsupported);
		return false;
	}
	unwind_seek(&c, go->reader, go->steps + steps, go->end);
	/* Pairs: what is added to the value, zigzag, and for how many instructions it holds. */
	while (pc < end) {
		uint64_t change = unwind_get_uleb(&c), length;

		/* Padding behind the function has no value. */
		if (!change && pc > start && !c.err)
			break;
		length = unwind_get_uleb(&c) * go->quantum;
		if (c.err || !length) {
			row(ctx, pc, &unsupported);
			return false;
		}
		below += (change >> 1) ^ -(change & 1);
		rule = rule_of(below, flags);
		row(ctx, pc, &rule);
		pc = length < end - pc ? pc + length : end;
	}
	return true;
}
