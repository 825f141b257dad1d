// SPDX-License-Identifier: Apache-2.0
/*
 * The instructions (DWARF 5, 6.4.2, and the vendors'). restore_state restores the CFA as well, as
 * GCC's own unwinder does. Registers that are not followed have their operands read and no more.
 */
#include "unwind_cfi.h"
#include "unwind_dwarf.h"

#define EXPRESSION_MAX 32U

static void emit(struct unwind_run *run)
{
	struct fly_rule rule;

	if (!run->changed || run->address >= run->end)
		return;
	unwind_rule_make(run->cfi, run->cie, &run->state, &rule);
	run->row(run->ctx, run->address, &rule);
	run->changed = false;
}

static bool advance(struct unwind_run *run, uint64_t units)
{
	uint64_t bytes;

	if (!run->row)
		return false;
	if (!units)
		return true;
	emit(run);
	if (__builtin_mul_overflow(units, (uint64_t)run->cie->code_align, &bytes) ||
	    __builtin_add_overflow(run->address, bytes, &run->address))
		run->address = run->end;
	return true;
}

/* NULL for a register that is not followed. */
static struct unwind_kept_at *kept(struct unwind_run *run, uint64_t reg)
{
	run->changed = true;
	if (reg == run->cie->ra)
		return &run->state.ra;
	if (reg == run->cfi->arch->fp)
		return &run->state.fp;
	if (reg == run->cfi->tracked)
		return &run->state.tracked;
	return NULL;
}

static void keep(struct unwind_run *run, uint64_t reg, uint8_t kind, int64_t offset)
{
	struct unwind_kept_at *k = kept(run, reg);

	if (k)
		*k = (struct unwind_kept_at){kind, 0, offset};
}

static int64_t factored(const struct unwind_run *run, uint64_t value)
{
	int64_t v;

	/* Out of any rule's range, and far from overflow later on. */
	if (__builtin_mul_overflow((int64_t)value, run->cie->data_align, &v) || v > INT64_MAX / 4 ||
	    v < -(INT64_MAX / 4))
		return INT64_MAX / 4;
	return v;
}

static void restore(struct unwind_run *run, uint64_t reg)
{
	struct unwind_kept_at *k = kept(run, reg);

	if (k == &run->state.ra)
		*k = run->cie->initial.ra;
	else if (k == &run->state.fp)
		*k = run->cie->initial.fp;
	else if (k)
		*k = run->cie->initial.tracked;
}

static void set_cfa(struct unwind_run *run, uint64_t reg, int64_t offset)
{
	run->changed = true;
	if (offset > INT64_MAX / 4 || offset < -(INT64_MAX / 4))
		offset = INT64_MAX / 4;
	run->state.cfa.kind = reg < 255 ? FLY_CFA_REG : FLY_CFA_UNSUPPORTED;
	run->state.cfa.reg = (uint8_t)reg;
	run->state.cfa.offset = offset;
	run->state.cfa.add = 0;
}

static void set_cfa_part(struct unwind_run *run, bool is_reg, uint64_t reg, int64_t offset)
{
	if (run->state.cfa.kind != FLY_CFA_REG) {
		run->state.cfa.kind = FLY_CFA_UNSUPPORTED;
		run->changed = true;
		return;
	}
	set_cfa(run, is_reg ? reg : run->state.cfa.reg, is_reg ? run->state.cfa.offset : offset);
}

static void expression(struct unwind_run *run, struct unwind_cursor *c, bool is_cfa, bool is_value)
{
	uint64_t reg = is_cfa ? 0 : unwind_get_uleb(c), bytes = unwind_get_uleb(c);
	struct unwind_state value = {.cfa = {.kind = FLY_CFA_UNSUPPORTED}};
	struct unwind_kept_at *k;
	uint8_t code[EXPRESSION_MAX];

	unwind_get_bytes(c, bytes, code, sizeof(code));
	if (!c->err && bytes <= sizeof(code))
		unwind_expression(run->cfi->arch, code, (size_t)bytes, &value);
	run->changed = true;
	if (is_cfa) {
		run->state.cfa = value.cfa;
		return;
	}
	k = kept(run, reg);
	if (!k)
		return;
	if (value.cfa.kind == FLY_CFA_REG && !is_value)
		*k = (struct unwind_kept_at){UNWIND_KEPT_AT_REG, value.cfa.reg, value.cfa.offset};
	else
		*k = (struct unwind_kept_at){UNWIND_KEPT_UNKNOWN, 0, 0};
}

static bool remember(struct unwind_run *run)
{
	if (run->remembered == UNWIND_REMEMBERED_MAX)
		return false;
	run->stack[run->remembered++] = run->state;
	return true;
}

static bool recall(struct unwind_run *run)
{
	if (!run->remembered)
		return false;
	run->state = run->stack[--run->remembered];
	run->changed = true;
	return true;
}

static void in_register(struct unwind_run *run, uint64_t reg, uint64_t holder)
{
	struct unwind_kept_at *k = kept(run, reg);

	if (k)
		*k = (struct unwind_kept_at){holder < 128 ? UNWIND_KEPT_IN_REG
							  : UNWIND_KEPT_UNKNOWN,
					     (uint8_t)holder, 0};
}

/* Instructions that say where one register is. */
static bool step_register(struct unwind_run *run, struct unwind_cursor *c, uint8_t op)
{
	uint64_t reg;

	if (op == UNWIND_CFA_EXPRESSION || op == UNWIND_CFA_VAL_EXPRESSION) {
		expression(run, c, false, op == UNWIND_CFA_VAL_EXPRESSION);
		return true;
	}
	reg = unwind_get_uleb(c);
	switch (op) {
	case UNWIND_CFA_OFFSET_EXTENDED:
		keep(run, reg, UNWIND_KEPT_AT_CFA, factored(run, unwind_get_uleb(c)));
		return true;
	case UNWIND_CFA_OFFSET_EXTENDED_SF:
		keep(run, reg, UNWIND_KEPT_AT_CFA, factored(run, (uint64_t)unwind_get_sleb(c)));
		return true;
	case UNWIND_CFA_OFFSET_NEG_EXT:
		keep(run, reg, UNWIND_KEPT_AT_CFA, -factored(run, unwind_get_uleb(c)));
		return true;
	case UNWIND_CFA_VAL_OFFSET:
	case UNWIND_CFA_VAL_OFFSET_SF:
		unwind_get_uleb(c);
		keep(run, reg, UNWIND_KEPT_UNKNOWN, 0);
		return true;
	case UNWIND_CFA_RESTORE_EXTENDED:
		restore(run, reg);
		return true;
	case UNWIND_CFA_UNDEFINED:
		keep(run, reg, UNWIND_KEPT_UNDEFINED, 0);
		return true;
	case UNWIND_CFA_SAME_VALUE:
		keep(run, reg, UNWIND_KEPT_SAME, 0);
		return true;
	case UNWIND_CFA_REGISTER:
		in_register(run, reg, unwind_get_uleb(c));
		return true;
	default:
		return false;
	}
}

static bool step_cfa(struct unwind_run *run, struct unwind_cursor *c, uint8_t op)
{
	uint64_t reg;

	switch (op) {
	case UNWIND_CFA_DEF_CFA:
		reg = unwind_get_uleb(c);
		set_cfa(run, reg, (int64_t)unwind_get_uleb(c));
		return true;
	case UNWIND_CFA_DEF_CFA_SF:
		reg = unwind_get_uleb(c);
		set_cfa(run, reg, factored(run, (uint64_t)unwind_get_sleb(c)));
		return true;
	case UNWIND_CFA_DEF_CFA_REGISTER:
		set_cfa_part(run, true, unwind_get_uleb(c), 0);
		return true;
	case UNWIND_CFA_DEF_CFA_OFFSET:
		set_cfa_part(run, false, 0, (int64_t)unwind_get_uleb(c));
		return true;
	case UNWIND_CFA_DEF_CFA_OFFSET_SF:
		set_cfa_part(run, false, 0, factored(run, (uint64_t)unwind_get_sleb(c)));
		return true;
	case UNWIND_CFA_DEF_CFA_EXPRESSION:
		expression(run, c, true, false);
		return true;
	default:
		return step_register(run, c, op);
	}
}

/* No file needs set_loc: gas never writes it, and its operand's base differs between .eh_frame and
 * .debug_frame. It counts as unknown. */
static bool step(struct unwind_run *run, struct unwind_cursor *c)
{
	uint8_t op = unwind_get8(c), low = op & 0x3f;

	switch (op & 0xc0) {
	case UNWIND_CFA_ADVANCE_LOC:
		return advance(run, low);
	case UNWIND_CFA_OFFSET:
		keep(run, low, UNWIND_KEPT_AT_CFA, factored(run, unwind_get_uleb(c)));
		return true;
	case UNWIND_CFA_RESTORE:
		restore(run, low);
		return true;
	default:
		break;
	}
	switch (op) {
	case UNWIND_CFA_NOP:
		return true;
	case UNWIND_CFA_ADVANCE_LOC1:
		return advance(run, unwind_get8(c));
	case UNWIND_CFA_ADVANCE_LOC2:
		return advance(run, unwind_get16(c));
	case UNWIND_CFA_ADVANCE_LOC4:
		return advance(run, unwind_get32(c));
	case UNWIND_CFA_ADVANCE_LOC8:
		return advance(run, unwind_get64(c));
	case UNWIND_CFA_REMEMBER_STATE:
		return remember(run);
	case UNWIND_CFA_RESTORE_STATE:
		return recall(run);
	case UNWIND_CFA_NEGATE_RA:
	case UNWIND_CFA_NEGATE_RA_PC:
		return true;
	case UNWIND_CFA_ARGS_SIZE:
		unwind_get_uleb(c);
		return true;
	default:
		return step_cfa(run, c, op);
	}
}

bool unwind_run(struct unwind_run *run, struct unwind_cursor *code)
{
	while (unwind_is_more(code) && (!run->row || run->address < run->end)) {
		if (!step(run, code) || code->err)
			return false;
	}
	if (code->err)
		return false;
	if (run->row)
		emit(run);
	return true;
}
