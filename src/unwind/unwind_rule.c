// SPDX-License-Identifier: Apache-2.0
/*
 * From a state to a rule, and from an expression to a state. Expressions are run over symbols: what
 * remains is a sum of registers and a constant, perhaps read through once, or it is not supported.
 */
#include "unwind_cfi.h"

#include <elf.h>
#include <string.h>

#include "unwind_dwarf.h"

#define TERMS_MAX 2U
#define STACK_MAX 8U
#define LIMIT	  (1LL << 40) /* of a constant in an expression */

/* mcontext within the kernel's rt_sigframe, where the restorer finds SP: gregs RSP and RIP. */
#define X86_SIGNAL_RSP 160
#define X86_SIGNAL_RIP 168

/* Sum of reg * factor, plus constant; with is_read, what memory holds there, plus add. */
struct symbol {
	struct {
		uint8_t reg;
		int64_t factor;
	} term[TERMS_MAX];
	uint32_t terms;
	bool is_read;
	int64_t constant, add;
};

struct symbols {
	struct symbol at[STACK_MAX];
	uint32_t count;
};

static bool push(struct symbols *s, int64_t constant)
{
	if (s->count == STACK_MAX || constant > LIMIT || constant < -LIMIT)
		return false;
	s->at[s->count++] = (struct symbol){.constant = constant};
	return true;
}

static bool push_register(struct symbols *s, uint64_t reg, int64_t constant)
{
	if (reg > 127 || !push(s, constant))
		return false;
	s->at[s->count - 1].terms = 1;
	s->at[s->count - 1].term[0].reg = (uint8_t)reg;
	s->at[s->count - 1].term[0].factor = 1;
	return true;
}

static bool is_number(const struct symbol *s)
{
	return !s->terms && !s->is_read;
}

static bool add_number(struct symbol *s, int64_t number)
{
	int64_t *to = s->is_read ? &s->add : &s->constant;

	if (number > LIMIT || number < -LIMIT)
		return false;
	*to += number;
	return *to <= LIMIT && *to >= -LIMIT;
}

static bool add(struct symbols *s)
{
	struct symbol *a, *b;

	if (s->count < 2)
		return false;
	b = &s->at[--s->count];
	a = &s->at[s->count - 1];
	if (is_number(a)) {
		struct symbol t = *a;

		*a = *b;
		*b = t;
	}
	if (is_number(b))
		return add_number(a, b->constant);
	if (a->is_read || b->is_read || a->terms + b->terms > TERMS_MAX)
		return false;
	for (uint32_t i = 0; i < b->terms; i++)
		a->term[a->terms++] = b->term[i];
	return add_number(a, b->constant);
}

static bool subtract(struct symbols *s)
{
	if (s->count < 2 || !is_number(&s->at[s->count - 1]))
		return false;
	s->at[s->count - 1].constant = -s->at[s->count - 1].constant;
	return add(s);
}

static bool multiply(struct symbols *s, bool is_shift)
{
	struct symbol *a, *b;
	int64_t by;

	if (s->count < 2)
		return false;
	b = &s->at[--s->count];
	a = &s->at[s->count - 1];
	if (!is_number(b) || a->is_read || a->terms > 1)
		return false;
	if (is_shift && (b->constant < 0 || b->constant > 8))
		return false;
	by = is_shift ? 1LL << b->constant : b->constant;
	if (by < 0 || by > 256)
		return false;
	a->constant *= by;
	if (a->terms)
		a->term[0].factor *= by;
	return a->constant <= LIMIT && a->constant >= -LIMIT &&
	       (!a->terms || a->term[0].factor <= 256);
}

static bool dereference(struct symbols *s)
{
	if (!s->count || s->at[s->count - 1].is_read)
		return false;
	s->at[s->count - 1].is_read = true;
	return true;
}

/* LEB128 within a copy of the expression, so no cursor is needed. */
static bool take_leb(const uint8_t **p, const uint8_t *end, bool is_signed, int64_t *ret)
{
	unsigned int shift = 0;
	uint64_t v = 0;
	uint8_t byte;

	do {
		if (*p == end || shift > 56)
			return false;
		byte = *(*p)++;
		v |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (is_signed && byte & 0x40)
		v |= ~0ULL << shift;
	*ret = (int64_t)v;
	return true;
}

static bool take_fixed(const uint8_t **p, const uint8_t *end, size_t bytes, bool is_signed,
		       int64_t *ret)
{
	uint64_t v = 0;

	if ((size_t)(end - *p) < bytes)
		return false;
	for (size_t i = 0; i < bytes; i++)
		v |= (uint64_t)*(*p)++ << (8 * i);
	if (is_signed && v >> (8 * bytes - 1))
		v |= ~0ULL << (8 * bytes - 1);
	*ret = (int64_t)v;
	return true;
}

static bool step(struct symbols *s, const uint8_t **p, const uint8_t *end)
{
	uint8_t op = *(*p)++;
	int64_t v, reg;

	if (op >= UNWIND_OP_BREG0 && op < UNWIND_OP_BREG0 + 32)
		return take_leb(p, end, true, &v) && push_register(s, op - UNWIND_OP_BREG0, v);
	if (op >= UNWIND_OP_LIT0 && op < UNWIND_OP_LIT0 + 32)
		return push(s, op - UNWIND_OP_LIT0);
	switch (op) {
	case UNWIND_OP_BREGX:
		return take_leb(p, end, false, &reg) && take_leb(p, end, true, &v) &&
		       push_register(s, (uint64_t)reg, v);
	case UNWIND_OP_CONST1U:
	case UNWIND_OP_CONST1S:
		return take_fixed(p, end, 1, op == UNWIND_OP_CONST1S, &v) && push(s, v);
	case UNWIND_OP_CONST2U:
	case UNWIND_OP_CONST2S:
		return take_fixed(p, end, 2, op == UNWIND_OP_CONST2S, &v) && push(s, v);
	case UNWIND_OP_CONST4U:
	case UNWIND_OP_CONST4S:
		return take_fixed(p, end, 4, op == UNWIND_OP_CONST4S, &v) && push(s, v);
	case UNWIND_OP_CONSTU:
	case UNWIND_OP_CONSTS:
		return take_leb(p, end, op == UNWIND_OP_CONSTS, &v) && push(s, v);
	case UNWIND_OP_PLUS_UCONST:
		return take_leb(p, end, false, &v) && s->count &&
		       add_number(&s->at[s->count - 1], v);
	case UNWIND_OP_PLUS:
		return add(s);
	case UNWIND_OP_MINUS:
		return subtract(s);
	case UNWIND_OP_MUL:
		return multiply(s, false);
	case UNWIND_OP_SHL:
		return multiply(s, true);
	case UNWIND_OP_DEREF:
		return dereference(s);
	case UNWIND_OP_NOP:
		return true;
	default:
		return false;
	}
}

/* What linkers write for lazy PLT entries: SP + 8 + ((PC & 15) >= n) * 8. */
static bool is_plt(const uint8_t *code, size_t bytes, struct unwind_state *state)
{
	static const uint8_t head[] = {UNWIND_OP_BREG0 + FLY_X86_RSP, 8,
				       UNWIND_OP_BREG0 + 16,	      0,
				       UNWIND_OP_LIT0 + 15,	      UNWIND_OP_AND};
	static const uint8_t tail[] = {UNWIND_OP_GE, UNWIND_OP_LIT0 + 3, UNWIND_OP_SHL,
				       UNWIND_OP_PLUS};

	if (bytes != sizeof(head) + 1 + sizeof(tail) || memcmp(code, head, sizeof(head)) ||
	    memcmp(code + sizeof(head) + 1, tail, sizeof(tail)) ||
	    code[sizeof(head)] < UNWIND_OP_LIT0 || code[sizeof(head)] > UNWIND_OP_LIT0 + 15)
		return false;
	state->cfa.kind = FLY_CFA_PLT;
	state->cfa.reg = FLY_X86_RSP;
	state->cfa.offset = 8;
	state->cfa.add = code[sizeof(head)] - UNWIND_OP_LIT0;
	return true;
}

static void classify(const struct unwind_arch *arch, const struct symbol *v,
		     struct unwind_state *state)
{
	uint32_t base = v->terms == 2 && v->term[0].reg != arch->sp;

	if (!v->terms || v->term[base].factor != 1)
		return;
	state->cfa.reg = v->term[0].reg;
	state->cfa.offset = v->constant;
	state->cfa.add = v->add;
	if (v->terms == 1) {
		state->cfa.kind = v->is_read ? FLY_CFA_DEREF : FLY_CFA_REG;
	} else if (v->is_read && v->term[base].reg == arch->sp && v->term[!base].factor == 8) {
		state->cfa.kind = FLY_CFA_INDEXED;
		state->cfa.reg = v->term[!base].reg;
	}
}

void unwind_expression(const struct unwind_arch *arch, const uint8_t *code, size_t bytes,
		       struct unwind_state *state)
{
	const uint8_t *p = code, *end = code + bytes;
	struct symbols s = {.count = 0};

	state->cfa.kind = FLY_CFA_UNSUPPORTED;
	if (arch->machine == EM_X86_64 && is_plt(code, bytes, state))
		return;
	while (p < end) {
		if (!step(&s, &p, end))
			return;
	}
	if (s.count == 1)
		classify(arch, &s.at[0], state);
}

/* ------------------------------------------------------------------ rules */

static bool pack(int64_t inner, int64_t add, struct fly_rule *rule)
{
	if (inner != (int16_t)inner || add != (int16_t)add)
		return false;
	rule->offset = (__s32)((uint32_t)(uint16_t)inner | (uint32_t)(uint16_t)add << 16);
	return true;
}

static bool make_cfa(const struct unwind_state *state, struct fly_rule *rule)
{
	rule->cfa = state->cfa.kind;
	switch (state->cfa.kind) {
	case FLY_CFA_REG:
		rule->cfa_reg = state->cfa.reg;
		rule->offset = (__s32)state->cfa.offset;
		return state->cfa.offset == rule->offset;
	case FLY_CFA_DEREF:
	case FLY_CFA_PLT:
	case FLY_CFA_INDEXED:
		rule->cfa_reg = state->cfa.reg;
		return pack(state->cfa.offset, state->cfa.add, rule);
	default:
		return false;
	}
}

static bool make_words(int64_t offset, __s16 *ret)
{
	*ret = (__s16)(offset / 8);
	return offset % 8 == 0 && offset / 8 == *ret;
}

/* Offset from the CFA of a place that is given from the register the CFA is given from. */
static bool from_cfa(const struct unwind_state *state, const struct unwind_kept_at *k, int64_t *ret)
{
	if (k->kind == UNWIND_KEPT_AT_CFA) {
		*ret = k->offset;
		return true;
	}
	*ret = k->offset - state->cfa.offset;
	return k->kind == UNWIND_KEPT_AT_REG && state->cfa.kind == FLY_CFA_REG &&
	       state->cfa.reg == k->reg;
}

/* Where a register is that outlives calls: FLY_FP_x, and its place in words. */
static enum fly_fp make_kept(const struct unwind_arch *arch, const struct unwind_state *state,
			     const struct unwind_kept_at *k, uint8_t self, __s16 *ret)
{
	int64_t offset;

	if (k->kind == UNWIND_KEPT_UNSET || k->kind == UNWIND_KEPT_SAME ||
	    (k->kind == UNWIND_KEPT_IN_REG && k->reg == self))
		return FLY_FP_SAME;
	if (from_cfa(state, k, &offset)) {
		/* Below SP: it has been popped already, and the register holds it. */
		if (state->cfa.kind == FLY_CFA_REG && state->cfa.reg == arch->sp &&
		    state->cfa.offset + offset < 0)
			return FLY_FP_SAME;
		return make_words(offset, ret) ? FLY_FP_AT_CFA : FLY_FP_LOST;
	}
	if (k->kind == UNWIND_KEPT_AT_REG && k->reg == arch->fp && make_words(k->offset, ret))
		return FLY_FP_AT_FP;
	return FLY_FP_LOST;
}

static void make_fp(const struct unwind_arch *arch, const struct unwind_state *state,
		    struct fly_rule *rule)
{
	__s16 words = 0;

	rule->fp = (__u8)make_kept(arch, state, &state->fp, arch->fp, &words);
	if (rule->fp == FLY_FP_AT_CFA || rule->fp == FLY_FP_AT_FP)
		rule->fp_words = words;
}

/* The place takes the room of the return address's, which must be the usual one then. */
static void make_tracked(const struct unwind_cfi *cfi, const struct unwind_state *state,
			 struct fly_rule *rule)
{
	__s16 words = 0;

	switch (make_kept(cfi->arch, state, &state->tracked, cfi->tracked, &words)) {
	case FLY_FP_SAME:
		return;
	case FLY_FP_AT_CFA:
		rule->fp |= FLY_TRACKED_AT_CFA;
		break;
	case FLY_FP_AT_FP:
		rule->fp |= FLY_TRACKED_AT_FP;
		break;
	default:
		rule->fp |= FLY_TRACKED_LOST;
		return;
	}
	if (rule->ra || rule->ra_words != -1)
		rule->fp = (__u8)((rule->fp & FLY_FP_MASK) | FLY_TRACKED_LOST);
	else
		rule->ra_words = words;
}

static bool make_ra(const struct unwind_arch *arch, const struct unwind_state *state,
		    struct fly_rule *rule)
{
	const struct unwind_kept_at *k = &state->ra;
	int64_t offset;

	switch (k->kind) {
	case UNWIND_KEPT_UNSET:
	case UNWIND_KEPT_SAME:
		if (arch->machine != EM_AARCH64)
			return false;
		rule->ra = FLY_RA_IN_REG | FLY_AARCH64_LR;
		return true;
	case UNWIND_KEPT_IN_REG:
		rule->ra = (__u8)(FLY_RA_IN_REG | k->reg);
		return true;
	default:
		return from_cfa(state, k, &offset) && make_words(offset, &rule->ra_words);
	}
}

/* The layout is the kernel's; what the file says of it is checked, not used. The aarch64 vDSO
 * gives a frame record instead. */
static bool is_kernel_frame(const struct unwind_arch *arch, const struct unwind_state *state)
{
	if (arch->machine == EM_AARCH64)
		return true;
	return state->cfa.kind == FLY_CFA_DEREF && state->cfa.reg == arch->sp &&
	       state->cfa.offset == X86_SIGNAL_RSP && !state->cfa.add &&
	       state->ra.kind == UNWIND_KEPT_AT_REG && state->ra.reg == arch->sp &&
	       state->ra.offset == X86_SIGNAL_RIP;
}

void unwind_rule_make(const struct unwind_cfi *cfi, const struct unwind_cie *cie,
		      const struct unwind_state *state, struct fly_rule *ret)
{
	const struct unwind_arch *arch = cfi->arch;

	*ret = (struct fly_rule){0};
	if (cie->is_signal) {
		ret->cfa = is_kernel_frame(arch, state) ? FLY_CFA_SIGNAL : FLY_CFA_UNSUPPORTED;
		return;
	}
	if (state->ra.kind == UNWIND_KEPT_UNDEFINED) {
		ret->cfa = FLY_CFA_STOP;
		return;
	}
	if (!make_cfa(state, ret) || !make_ra(arch, state, ret)) {
		*ret = (struct fly_rule){.cfa = FLY_CFA_UNSUPPORTED};
		return;
	}
	make_fp(arch, state, ret);
	if (cfi->tracked)
		make_tracked(cfi, state, ret);
}
