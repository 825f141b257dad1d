/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * A walk by tables (abi/rows.h, abi/table_space.h), for BPF and for the host.
 *
 *	fly_unwind_start(space, u)   looks up where the innermost frame lies
 *	fly_unwind_step(space, u)    finds the caller: u->walk.pc is the next frame then
 *
 * Both answer FLY_STEP_FRAME to go on, FLY_STEP_END at the outermost frame, else FLY_STEP_LOST with
 * FLY_CUT_x in u->cut (and u->detail). The innermost frame is a frame whatever start answers. An
 * address that lies in no executable mapping is never a frame otherwise.
 *
 * The caller fills in walk.pc, .sp, .fp, .stack_start, .thread_block, regs[] of the innermost
 * frame, at and count of the process's mappings, and flags: FLY_KNOWS_REGS, and FLY_IS_EXACT unless
 * the thread is in a system call; all else is 0.
 *
 * No helpers here. The includer defines FLY_WALK_READ (walk.h), FLY_ROWS_x (lookup.h; all parts,
 * mappings too, in one space of words), and
 *
 *	FLY_UNWIND_TABLE(space, number)  a const struct fly_table *, or NULL
 *	FLY_UNWIND_ASK(u, address)       finds a mapping that is not in the list, as fly_unwind_map;
 *	                                 left out: there is none
 *	FLY_UNWIND_IS(u, mapping, address)  whether the kernel has that mapping at the address; left
 *	                                 out: it has
 *	FLY_UNWIND_CACHED(address)       where the rule of an address may be kept; left out: nowhere
 *	FLY_UNWIND_PART                  what large functions are declared with: `static` on the
 *	                                 host, a global function for BPF, verified once
 *
 * Between those, what is known is in *u and nowhere else: a verifier that follows no values through
 * memory meets few states then.
 */
#ifndef FLYBALL_WALK_UNWINDER_H
#define FLYBALL_WALK_UNWINDER_H

#include "lookup.h"
#include "x86_64.h"

#include "abi/reasons.h"
#include "abi/table_space.h"

/* fly_unwind.flags */
#define FLY_KNOWS_REGS                                                                             \
	0x1u /* regs[] are the frame's: the innermost, or interrupted by a signal                  \
	      */
#define FLY_IS_EXACT	  0x2u	/* pc is not an address to return to */
#define FLY_KNOWS_TRACKED 0x4u	/* tracked is the table's tracked register */
#define FLY_LOST_FP	  0x8u	/* walk.fp means nothing */
#define FLY_IS_BY_FP	  0x10u /* the frame was found through a frame pointer */
#define FLY_KEEPS_REGS	  0x20u /* regs[] are those of the frame that this one called */

#define FLY_CHECKED 8 /* a power of two */

struct fly_unwind {
	struct fly_walk walk;
	__u64 stack_start, thread_block; /* fly_walk_base */
	__u64 regs[FLY_ARCH_REGS];
	__u64 tracked; /* value of the table's tracked register, and which it is */
	__u32 tracked_reg;
	__u32 flags;
	__u32 at, count; /* the process's mappings */
	__u32 table;	 /* of the mapping */
	/* The mapping walk.pc lies in. */
	__u64 start, bytes, bias;
	__u64 cfa;
	struct fly_rule rule;
	__u32 cut;			 /* FLY_CUT_x */
	__u32 detail;			 /* fly_sample.detail */
	__u32 replaced;			 /* a mapping was not what is in the list */
	__u32 checked[FLY_CHECKED];	 /* words of mappings that are so, + 1 */
	struct fly_arch_context context; /* of a signal */
};

#define FLY_AT_KERNEL 0xffffffffu /* fly_unwind.at: user space has described no mappings */
#ifndef FLY_UNWIND_ASK
#define FLY_UNWIND_ASK(u, address) 0
#endif
#ifndef FLY_UNWIND_IS
#define FLY_UNWIND_IS(u, mapping, address) ((void)(address), 1)
#endif

static inline int fly_unwind_cut(struct fly_unwind *u, __u32 cut)
{
	u->cut = cut;
	return FLY_STEP_LOST;
}

/* ---------------------------------------------------------------- mappings */
/* Number of the last of count (at least 1) mappings that does not begin above page, or 0. As
 * fly_rows_search, no branch depends on what was read. */
static FLY_ROWS_INLINE __u32 fly_unwind_search(const void *block, __u32 at, __u32 count, __u64 page)
{
	__u32 base = 0;

	/* log2(FLY_MAPPINGS_MAX) steps at most */
	for (int i = 0; i < 12; i++) {
		__u32 half = count >> 1;
		__u64 above;

		if (!half)
			break;
		above = FLY_ROWS_PAIR(block, at + FLY_MAPPING_WORDS * (base + half));
		above = page - (above & FLY_MAPPING_PAGE_MASK);
		FLY_ROWS_OPAQUE(above);
		above = (__u64)((__s64)above >> 63);
		FLY_ROWS_OPAQUE(above);
		base += half & ~(__u32)above;
		count -= half;
	}
	return base;
}

/* The tracked register is one table's, and known within its binary alone. */
static inline void fly_unwind_enter(struct fly_unwind *u, __u32 table)
{
	if (u->table != table)
		u->flags &= ~FLY_KNOWS_TRACKED;
	u->table = table;
}

/* Once for each mapping and walk. */
static FLY_ROWS_INLINE int fly_unwind_is(struct fly_unwind *u, const struct fly_mapping *mapping,
					 __u32 at, __u64 address)
{
	__u32 *checked = &u->checked[at / FLY_MAPPING_WORDS & (FLY_CHECKED - 1)];

	if (*checked == at + 1 || mapping->identity == FLY_IDENTITY_UNKNOWN)
		return 1;
	if (!FLY_UNWIND_IS(u, mapping, address)) {
		u->replaced = 1;
		return 0;
	}
	*checked = at + 1;
	return 1;
}

/* True when the address lies in an executable mapping, which is the last one then. */
FLY_UNWIND_PART int fly_unwind_map(FLY_ROWS_SPACE space, struct fly_unwind *u, __u64 address)
{
	struct fly_mapping mapping;
	const void *block;
	__u32 at;

	if (!u)
		return 0;
	if (address - u->start < u->bytes)
		return 1;
	if (u->at == FLY_AT_KERNEL)
		return FLY_UNWIND_ASK(u, address);
	if (!u->count || u->count > FLY_MAPPINGS_MAX || !fly_walk_is_code(address))
		return 0;
	block = FLY_ROWS_BLOCK(space, FLY_PART_MAPPINGS, u->at);
	if (!block)
		return 0;
	at = u->at + FLY_MAPPING_WORDS * fly_unwind_search(block, u->at, u->count, address >> 12);
	mapping.place = FLY_ROWS_PAIR(block, at);
	mapping.target = FLY_ROWS_PAIR(block, at + 2);
	mapping.identity = FLY_ROWS_PAIR(block, at + 4);
	/* User space may know of some mappings only, those of a young program. */
	if (address - fly_mapping_start(&mapping) >= fly_mapping_bytes(&mapping) ||
	    !fly_unwind_is(u, &mapping, at, address))
		return FLY_UNWIND_ASK(u, address);
	u->start = fly_mapping_start(&mapping);
	u->bytes = fly_mapping_bytes(&mapping);
	u->bias = fly_mapping_bias(&mapping);
	fly_unwind_enter(u, fly_mapping_table(&mapping));
	return 1;
}

/* An address to return to may be just behind its function. */
static inline __u64 fly_unwind_address(const struct fly_unwind *u)
{
	return u->walk.pc - !(u->flags & FLY_IS_EXACT);
}

/* Looks up the mapping of the frame just found. */
static inline int fly_unwind_place(FLY_ROWS_SPACE space, struct fly_unwind *u)
{
	if (fly_unwind_map(space, u, fly_unwind_address(u)))
		return FLY_STEP_FRAME;
	return fly_unwind_cut(u, FLY_CUT_MAPPING_ABSENT);
}

static inline int fly_unwind_start(FLY_ROWS_SPACE space, struct fly_unwind *u)
{
	u->walk.base = fly_walk_base(u->walk.sp, u->stack_start, u->thread_block);
	/* A signal that came in a system call leaves its number behind; the handler's first
	 * instruction is not behind it. */
	if (!(u->flags & FLY_IS_EXACT) && !fly_arch_is_behind_syscall(u->walk.pc))
		u->flags |= FLY_IS_EXACT;
	return fly_unwind_place(space, u);
}

/* ---------------------------------------------------------------- by rule */
/* A rule that was found. A serial stands for one file's table for ever, so this never grows old. */
struct fly_cached {
	__u64 address, serial;
	struct fly_rule rule;
	__u32 pad;
};
#ifndef FLY_UNWIND_CACHED
#define FLY_UNWIND_CACHED(address) NULL
#endif

#define FLY_FIND_NO_TABLE 3 /* besides FLY_FIND_x: it was taken away */

/* The rule of the frame, in u->rule. */
FLY_UNWIND_PART int fly_unwind_find(FLY_ROWS_SPACE space, struct fly_unwind *u)
{
	const struct fly_table *table;
	struct fly_cached *cached;
	__u64 address;
	int found;

	if (!u)
		return FLY_FIND_NO_TABLE;
	table = FLY_UNWIND_TABLE(space, u->table);
	if (!table || !table->pages)
		return FLY_FIND_NO_TABLE;
	if (table->tracked && u->flags & FLY_KNOWS_REGS) {
		u->tracked_reg = table->tracked;
		u->tracked = u->regs[table->tracked & (FLY_ARCH_REGS - 1)];
		u->flags |= FLY_KNOWS_TRACKED;
	}
	address = (fly_unwind_address(u) - u->bias) & FLY_VADDR_MASK;
	u->detail = u->table << 16 | ((__u32)((address - table->start) >> FLY_PAGE_SHIFT) & 0xffff);
	cached = FLY_UNWIND_CACHED(address);
	if (cached && table->serial && cached->address == address &&
	    cached->serial == table->serial) {
		u->rule = cached->rule;
		return FLY_FIND_RULE;
	}
	found = fly_rows_find(space, table, address, &u->rule);
	/* Taken away since it was looked at above: no address lies in no pages. */
	if (found == FLY_FIND_OUTSIDE && !*(const volatile __u32 *)&table->pages)
		return FLY_FIND_NO_TABLE;
	if (found == FLY_FIND_RULE && cached && table->serial) {
		cached->address = address;
		cached->serial = table->serial;
		cached->rule = u->rule;
	}
	return found;
}

/* A register that calls may destroy holds a CFA across one only where the callee is known to leave
 * it alone: assembler that calls its own (aesni_gcm_encrypt). So its value is still there. */
static inline int fly_unwind_register(const struct fly_unwind *u, __u32 reg, __u64 *ret)
{
	if (reg == FLY_ARCH_SP)
		*ret = u->walk.sp;
	else if (reg == FLY_ARCH_FP)
		*ret = u->walk.fp;
	else if (u->flags & FLY_KNOWS_REGS)
		*ret = u->regs[reg & (FLY_ARCH_REGS - 1)];
	else if (u->flags & FLY_KNOWS_TRACKED && reg == u->tracked_reg)
		*ret = u->tracked;
	else if (u->flags & FLY_KEEPS_REGS && fly_arch_is_scratch(reg))
		*ret = u->regs[reg & (FLY_ARCH_REGS - 1)];
	else
		return 0;
	return reg != FLY_ARCH_FP || !(u->flags & FLY_LOST_FP);
}

/* The canonical frame address, in u->cfa. */
FLY_UNWIND_PART int fly_unwind_cfa(struct fly_unwind *u)
{
	__u64 value = 0;

	if (!u)
		return FLY_STEP_LOST;
	if (u->rule.cfa == FLY_CFA_PLT) {
		value = (u->walk.pc & 15) >= (__u64)fly_rule_add(&u->rule) ? 8 : 0;
		value += u->walk.sp + (__u64)(__s64)fly_rule_inner(&u->rule);
	} else if (u->rule.cfa > FLY_CFA_INDEXED ||
		   !fly_unwind_register(u, u->rule.cfa_reg, &value)) {
		return fly_unwind_cut(u, FLY_CUT_UNWIND_UNSUPPORTED);
	} else if (u->rule.cfa == FLY_CFA_REG) {
		value += (__u64)(__s64)u->rule.offset;
	} else {
		if (u->rule.cfa == FLY_CFA_INDEXED)
			value = u->walk.sp + 8 * value;
		value += (__u64)(__s64)fly_rule_inner(&u->rule);
		if (FLY_WALK_READ(&value, sizeof(value), value))
			return fly_unwind_cut(u, FLY_CUT_USER_PAGE_ABSENT);
		value += (__u64)(__s64)fly_rule_add(&u->rule);
	}
	/* Callers lie above. Only a function that keeps its return address elsewhere adds nothing.
	 */
	if (value & 7 || value >= FLY_USER_END || value < u->walk.sp ||
	    (value == u->walk.sp && !(u->rule.ra & FLY_RA_IN_REG)))
		return fly_unwind_cut(u, FLY_CUT_UNWIND_LOST);
	u->cfa = value;
	return FLY_STEP_FRAME;
}

/* The caller's value of the tracked register. */
static inline int fly_unwind_follow(struct fly_unwind *u)
{
	__u32 kind = u->rule.fp & FLY_TRACKED_MASK;
	__u64 at = kind == FLY_TRACKED_AT_FP ? u->walk.fp : u->cfa;

	if (kind == FLY_TRACKED_SAME)
		return 0;
	u->flags &= ~FLY_KNOWS_TRACKED;
	if (kind == FLY_TRACKED_LOST || (kind == FLY_TRACKED_AT_FP && u->flags & FLY_LOST_FP))
		return 0;
	at += 8 * (__u64)(__s64)u->rule.ra_words;
	u->flags |= FLY_KNOWS_TRACKED;
	return FLY_WALK_READ(&u->tracked, sizeof(u->tracked), at) != 0;
}

/* The caller's frame pointer and the address to return to, which is in a register or at ra_at. */
static inline int fly_unwind_load(struct fly_unwind *u, __u64 ra_at)
{
	__u32 kind = u->rule.fp & FLY_FP_MASK;
	__u64 at =
		(kind == FLY_FP_AT_FP ? u->walk.fp : u->cfa) + 8 * (__u64)(__s64)u->rule.fp_words;
	__u64 both[2];

	if (kind == FLY_FP_AT_CFA && ra_at == at + 8) {
		if (FLY_WALK_READ(both, sizeof(both), at))
			return 1;
		u->walk.fp = both[0];
		u->walk.pc = both[1];
		u->flags &= ~FLY_LOST_FP;
		return 0;
	}
	if (ra_at && FLY_WALK_READ(&u->walk.pc, sizeof(u->walk.pc), ra_at))
		return 1;
	if (kind == FLY_FP_LOST)
		u->flags |= FLY_LOST_FP;
	if (kind == FLY_FP_AT_CFA)
		u->flags &= ~FLY_LOST_FP;
	if (kind != FLY_FP_AT_CFA && (kind != FLY_FP_AT_FP || u->flags & FLY_LOST_FP))
		return 0;
	return FLY_WALK_READ(&u->walk.fp, sizeof(u->walk.fp), at) != 0;
}

/* The caller's registers, from u->cfa and u->rule. */
FLY_UNWIND_PART int fly_unwind_registers(struct fly_unwind *u)
{
	__u64 ra_at;
	__u32 kind;

	if (!u)
		return FLY_STEP_LOST;
	kind = u->rule.fp & FLY_TRACKED_MASK;
	ra_at = u->cfa - 8;
	if (kind != FLY_TRACKED_AT_CFA && kind != FLY_TRACKED_AT_FP)
		ra_at = u->cfa + 8 * (__u64)(__s64)u->rule.ra_words;
	if (u->rule.ra & FLY_RA_IN_REG) {
		if (!(u->flags & FLY_KNOWS_REGS))
			return fly_unwind_cut(u, FLY_CUT_UNWIND_LOST);
		u->walk.pc = u->regs[u->rule.ra & (FLY_ARCH_REGS - 1)];
		ra_at = 0;
	}
	if (fly_unwind_follow(u) || fly_unwind_load(u, ra_at))
		return fly_unwind_cut(u, FLY_CUT_USER_PAGE_ABSENT);
	u->flags &= ~FLY_KEEPS_REGS;
	if (u->flags & FLY_KNOWS_REGS)
		u->flags |= FLY_KEEPS_REGS;
	u->flags &= ~(FLY_KNOWS_REGS | FLY_IS_EXACT | FLY_IS_BY_FP);
	u->walk.sp = u->cfa;
	if (!u->walk.pc)
		return FLY_STEP_END;
	if (!fly_walk_is_code(u->walk.pc))
		return fly_unwind_cut(u, FLY_CUT_UNWIND_LOST);
	return FLY_STEP_FRAME;
}

/* Over a signal: the kernel saved all registers of the frame that it interrupted. */
FLY_UNWIND_PART int fly_unwind_signal(struct fly_unwind *u)
{
	if (!u)
		return FLY_STEP_LOST;
	if (FLY_WALK_READ(&u->context, sizeof(u->context), u->walk.sp + FLY_ARCH_CONTEXT_OFFSET))
		return fly_unwind_cut(u, FLY_CUT_USER_PAGE_ABSENT);
	fly_arch_take(&u->context, u->regs, &u->walk);
	/* Handlers may run on a stack of their own. */
	u->walk.base = fly_walk_base(u->walk.sp, u->stack_start, u->thread_block);
	u->flags = FLY_KNOWS_REGS | FLY_IS_EXACT;
	return FLY_STEP_FRAME;
}

/* ---------------------------------------------------------------- without a rule */
/* True when an address to return to lies in executable memory, behind a call. */
static inline int fly_unwind_is_called(FLY_ROWS_SPACE space, struct fly_unwind *u, __u64 address)
{
	__u64 before;

	return fly_unwind_map(space, u, address - 1) &&
	       !FLY_WALK_READ(&before, sizeof(before), address - sizeof(before)) &&
	       fly_arch_is_call(before);
}

/* Finds the caller of an innermost function that has not made its frame, or never does. */
static inline int fly_unwind_leaf(FLY_ROWS_SPACE space, struct fly_unwind *u, __u32 cut)
{
	__u64 pc, sp = u->walk.sp;

	if (cut != FLY_CUT_NO_UNWIND_ROWS)
		return u->flags & FLY_IS_EXACT && fly_fp_leaf(&u->walk) == FLY_STEP_FRAME;
	if (sp & 7 || FLY_WALK_READ(&pc, sizeof(pc), sp) || !fly_unwind_is_called(space, u, pc))
		return 0;
	u->walk.pc = pc;
	u->walk.sp = sp + 8;
	return 1;
}

/* A chain of frame pointers ends with 0. In code that keeps them that is the end of the stack;
 * elsewhere the register may well hold a 0 of its own. */
static inline int fly_unwind_is_end(const struct fly_unwind *u, __u32 cut)
{
	return cut == FLY_CUT_FRAME_POINTER_LOST || u->flags & FLY_IS_BY_FP ||
	       fly_walk_is_near_base(&u->walk);
}

/* By frame pointer, as fp.h. cut: what it is called when that gets lost, and so why there is no
 * rule: FLY_CUT_FRAME_POINTER_LOST (code that has frame pointers by nature), _TABLE_ABSENT or
 * _NO_UNWIND_ROWS. In the latter two an address found must lie behind a call. */
FLY_UNWIND_PART int fly_unwind_guess(FLY_ROWS_SPACE space, struct fly_unwind *u, __u32 cut)
{
	int step = FLY_STEP_LOST, is_innermost;

	if (!u)
		return FLY_STEP_LOST;
	is_innermost = (u->flags & FLY_KNOWS_REGS) != 0;
	if (fly_arch_is_restorer(u->walk.pc, is_innermost)) {
		step = fly_unwind_signal(u);
		return step == FLY_STEP_FRAME ? fly_unwind_place(space, u) : step;
	}
	if (is_innermost && fly_unwind_leaf(space, u, cut)) {
		u->flags &= FLY_LOST_FP;
		return fly_unwind_place(space, u);
	}
	if (!(u->flags & FLY_LOST_FP))
		step = fly_fp_step(&u->walk);
	if (step == FLY_STEP_ABSENT)
		return fly_unwind_cut(u, FLY_CUT_USER_PAGE_ABSENT);
	if (step == FLY_STEP_END && fly_unwind_is_end(u, cut))
		return FLY_STEP_END;
	if (step != FLY_STEP_FRAME)
		return fly_unwind_cut(u, cut);
	u->flags = FLY_IS_BY_FP;
	if (cut == FLY_CUT_FRAME_POINTER_LOST)
		return fly_unwind_place(space, u);
	return fly_unwind_is_called(space, u, u->walk.pc) ? FLY_STEP_FRAME : fly_unwind_cut(u, cut);
}

/* ---------------------------------------------------------------- one frame */
/* A frame that stands on its frame pointer, which is 0: it was called by nobody (Go's schedulers).
 */
static inline int fly_unwind_is_chain_end(const struct fly_unwind *u)
{
	return u->rule.cfa == FLY_CFA_REG && u->rule.cfa_reg == FLY_ARCH_FP && !u->walk.fp &&
	       !(u->flags & FLY_LOST_FP);
}

static inline int fly_unwind_step(FLY_ROWS_SPACE space, struct fly_unwind *u)
{
	int step;

	if (u->table == FLY_TABLE_FRAME_POINTERS)
		return fly_unwind_guess(space, u, FLY_CUT_FRAME_POINTER_LOST);
	if (u->table == FLY_TABLE_NONE)
		return fly_unwind_guess(space, u, FLY_CUT_TABLE_ABSENT);
	step = fly_unwind_find(space, u);
	if (step == FLY_FIND_NO_TABLE)
		return fly_unwind_guess(space, u, FLY_CUT_TABLE_ABSENT);
	if (step == FLY_FIND_ABSENT)
		return fly_unwind_cut(u, FLY_CUT_TABLE_PAGE_ABSENT);
	if (step == FLY_FIND_OUTSIDE || u->rule.cfa == FLY_CFA_NONE)
		return fly_unwind_guess(space, u, FLY_CUT_NO_UNWIND_ROWS);
	if (u->rule.cfa == FLY_CFA_STOP || fly_unwind_is_chain_end(u))
		return FLY_STEP_END;
	if (u->rule.cfa == FLY_CFA_SIGNAL) {
		step = fly_unwind_signal(u);
	} else {
		step = fly_unwind_cfa(u);
		if (step == FLY_STEP_FRAME)
			step = fly_unwind_registers(u);
	}
	return step == FLY_STEP_FRAME ? fly_unwind_place(space, u) : step;
}

#endif
