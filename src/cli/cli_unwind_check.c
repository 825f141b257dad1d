// SPDX-License-Identifier: Apache-2.0
/*
 * The judge. libdw gives DWARF expressions for each row; both they and our rule are worked out over
 * made-up registers and a made-up memory, in which no two places hold the same, and the results
 * must be equal. So nothing of our own reading of expressions is trusted here.
 */
#include "cli_unwind.h"

#include <errno.h>
#include <string.h>

#ifdef FLYBALL_LIBDW

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <gelf.h>
#include <inttypes.h>
#include <libelf.h>
#include <stdlib.h>

#define REGISTERS 128
#define STACK	  16

struct judge {
	const struct unwind_table *table;
	struct unwind_place place;
	Dwarf_CFI *cfi;
	int fp, sp, ra;
	uint64_t regs[REGISTERS];
	uint64_t pc, cfa;
	struct cli_unwind_check *check;
};

enum where { WHERE_UNKNOWN, WHERE_UNDEFINED, WHERE_SAME, WHERE_ADDRESS, WHERE_REGISTER };

struct found {
	enum where where;
	uint64_t value;
};

static uint64_t scatter(uint64_t x)
{
	x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
	x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
	return x ^ (x >> 33);
}

static uint64_t reg_of(const struct judge *j, uint64_t reg)
{
	if (j->table->machine == EM_X86_64 && reg == 16)
		return j->pc;
	return reg < REGISTERS ? j->regs[reg] : scatter(reg);
}

/* ------------------------------------------------------------------ libdw's side */

struct stack {
	uint64_t at[STACK];
	int count;
};

static bool push(struct stack *s, uint64_t v)
{
	if (s->count == STACK)
		return false;
	s->at[s->count++] = v;
	return true;
}

static bool compute_two(struct stack *s, uint8_t atom)
{
	uint64_t a, b;

	if (s->count < 2)
		return false;
	b = s->at[--s->count];
	a = s->at[--s->count];
	switch (atom) {
	case DW_OP_plus:
		return push(s, a + b);
	case DW_OP_minus:
		return push(s, a - b);
	case DW_OP_mul:
		return push(s, a * b);
	case DW_OP_and:
		return push(s, a & b);
	case DW_OP_or:
		return push(s, a | b);
	case DW_OP_shl:
		return push(s, b < 64 ? a << b : 0);
	case DW_OP_shr:
		return push(s, b < 64 ? a >> b : 0);
	case DW_OP_ge:
		return push(s, (int64_t)a >= (int64_t)b);
	case DW_OP_gt:
		return push(s, (int64_t)a > (int64_t)b);
	case DW_OP_le:
		return push(s, (int64_t)a <= (int64_t)b);
	case DW_OP_lt:
		return push(s, (int64_t)a < (int64_t)b);
	default:
		return false;
	}
}

static bool compute_one(const struct judge *j, struct stack *s, const Dwarf_Op *op)
{
	uint8_t atom = op->atom;

	if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31)
		return push(s, reg_of(j, (uint64_t)(atom - DW_OP_breg0)) + op->number);
	if (atom >= DW_OP_lit0 && atom <= DW_OP_lit31)
		return push(s, (uint64_t)(atom - DW_OP_lit0));
	switch (atom) {
	case DW_OP_bregx:
		return push(s, reg_of(j, op->number) + op->number2);
	case DW_OP_const1u:
	case DW_OP_const1s:
	case DW_OP_const2u:
	case DW_OP_const2s:
	case DW_OP_const4u:
	case DW_OP_const4s:
	case DW_OP_const8u:
	case DW_OP_const8s:
	case DW_OP_constu:
	case DW_OP_consts:
		return push(s, op->number);
	case DW_OP_call_frame_cfa:
		return push(s, j->cfa);
	case DW_OP_plus_uconst:
		return s->count && push(s, op->number) && compute_two(s, DW_OP_plus);
	case DW_OP_deref:
		if (!s->count)
			return false;
		s->at[s->count - 1] = scatter(s->at[s->count - 1]);
		return true;
	case DW_OP_dup:
		return s->count && push(s, s->at[s->count - 1]);
	case DW_OP_nop:
		return true;
	default:
		return compute_two(s, atom);
	}
}

static bool compute(const struct judge *j, const Dwarf_Op *ops, size_t nops, uint64_t *ret)
{
	struct stack s = {.count = 0};

	for (size_t i = 0; i < nops; i++) {
		if (!compute_one(j, &s, &ops[i]))
			return false;
	}
	if (s.count < 1)
		return false;
	*ret = s.at[s.count - 1];
	return true;
}

static struct found find_register(const struct judge *j, Dwarf_Frame *frame, int reg)
{
	struct found f = {WHERE_UNKNOWN, 0};
	Dwarf_Op mem[3], *ops;
	size_t nops;

	if (dwarf_frame_register(frame, reg, mem, &ops, &nops))
		return f;
	if (!nops) {
		f.where = ops ? WHERE_UNDEFINED : WHERE_SAME;
	} else if (nops == 1 && ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg31) {
		f = (struct found){WHERE_REGISTER, (uint64_t)(ops[0].atom - DW_OP_reg0)};
	} else if (nops == 1 && ops[0].atom == DW_OP_regx) {
		f = (struct found){WHERE_REGISTER, ops[0].number};
	} else if (ops[nops - 1].atom != DW_OP_stack_value && compute(j, ops, nops, &f.value)) {
		f.where = WHERE_ADDRESS;
	}
	return f;
}

/* ------------------------------------------------------------------ our side */

static bool our_cfa(const struct judge *j, const struct fly_rule *r, uint64_t *ret)
{
	uint64_t reg = reg_of(j, r->cfa_reg), sp = reg_of(j, (uint64_t)j->sp);
	uint64_t inner = (uint64_t)(int64_t)fly_rule_inner(r);
	uint64_t add = (uint64_t)(int64_t)fly_rule_add(r);

	switch (r->cfa) {
	case FLY_CFA_REG:
		*ret = reg + (uint64_t)(int64_t)r->offset;
		return true;
	case FLY_CFA_DEREF:
		*ret = scatter(reg + inner) + add;
		return true;
	case FLY_CFA_PLT:
		*ret = sp + inner + ((j->pc & 15) >= add ? 8 : 0);
		return true;
	case FLY_CFA_INDEXED:
		*ret = scatter(sp + inner + 8 * reg) + add;
		return true;
	default:
		return false;
	}
}

static struct found our_fp(const struct judge *j, const struct fly_rule *r, uint64_t cfa)
{
	uint64_t words = (uint64_t)(int64_t)r->fp_words;

	switch (r->fp & FLY_FP_MASK) {
	case FLY_FP_SAME:
		return (struct found){WHERE_SAME, 0};
	case FLY_FP_AT_CFA:
		return (struct found){WHERE_ADDRESS, cfa + 8 * words};
	case FLY_FP_AT_FP:
		return (struct found){WHERE_ADDRESS, reg_of(j, (uint64_t)j->fp) + 8 * words};
	default:
		return (struct found){WHERE_UNKNOWN, 0};
	}
}

static struct found our_ra(const struct judge *j, const struct fly_rule *r, uint64_t cfa)
{
	uint8_t tracked = r->fp & FLY_TRACKED_MASK;

	if (tracked == FLY_TRACKED_AT_CFA || tracked == FLY_TRACKED_AT_FP)
		return (struct found){WHERE_ADDRESS, cfa - 8};
	if (!(r->ra & FLY_RA_IN_REG))
		return (struct found){WHERE_ADDRESS, cfa + 8 * (uint64_t)(int64_t)r->ra_words};
	if ((r->ra & 127) == j->ra)
		return (struct found){WHERE_SAME, 0};
	return (struct found){WHERE_REGISTER, r->ra & 127U};
}

/* ------------------------------------------------------------------ comparison */

static bool is_equal(struct found a, struct found b)
{
	return a.where == b.where && (a.where == WHERE_SAME || a.value == b.value);
}

/* What lies below SP has been popped: the register holds it, and that is what our rule says. */
static bool is_popped(const struct judge *j, struct found theirs, struct found ours)
{
	uint64_t below = reg_of(j, (uint64_t)j->sp) - theirs.value;

	return ours.where == WHERE_SAME && theirs.where == WHERE_ADDRESS && below - 1 < 65536;
}

static const char *compare_fp(const struct judge *j, Dwarf_Frame *frame, const struct fly_rule *r)
{
	struct found theirs = find_register(j, frame, j->fp), ours = our_fp(j, r, j->cfa);

	if ((r->fp & FLY_FP_MASK) == FLY_FP_LOST) {
		j->check->unsupported++;
		return NULL;
	}
	if (theirs.where == WHERE_REGISTER && theirs.value == (uint64_t)j->fp)
		theirs.where = WHERE_SAME;
	return is_equal(theirs, ours) || is_popped(j, theirs, ours) ? NULL : "frame pointer";
}

static const char *compare_tracked(const struct judge *j, Dwarf_Frame *frame,
				   const struct fly_rule *r)
{
	struct found theirs = find_register(j, frame, j->table->tracked), ours = {WHERE_SAME, 0};
	uint64_t words = (uint64_t)(int64_t)r->ra_words;

	/* Of an rbx that is not mentioned libdw 0.188 says "undefined": its list of x86-64's
	 * callee-saved registers (psABI 3.2.1) has rax in its place. */
	if (theirs.where == WHERE_UNDEFINED)
		theirs.where = WHERE_SAME;
	if ((r->fp & FLY_TRACKED_MASK) == FLY_TRACKED_LOST)
		return NULL;
	if ((r->fp & FLY_TRACKED_MASK) == FLY_TRACKED_AT_CFA)
		ours = (struct found){WHERE_ADDRESS, j->cfa + 8 * words};
	if ((r->fp & FLY_TRACKED_MASK) == FLY_TRACKED_AT_FP)
		ours = (struct found){WHERE_ADDRESS, reg_of(j, (uint64_t)j->fp) + 8 * words};
	return is_equal(theirs, ours) || is_popped(j, theirs, ours) ? NULL : "tracked register";
}

/* NULL when the rule is right at j->pc. */
static const char *compare(struct judge *j, Dwarf_Frame *frame, bool is_signal)
{
	struct found theirs = find_register(j, frame, j->ra);
	struct fly_rule r;
	const char *what;
	uint64_t cfa;
	Dwarf_Op *ops;
	size_t nops;

	if (unwind_table_find(j->table, j->pc, &r) != FLY_FIND_RULE || r.cfa == FLY_CFA_NONE)
		return "no rule";
	if (r.cfa == FLY_CFA_UNSUPPORTED) {
		j->check->unsupported++;
		return NULL;
	}
	if (is_signal || r.cfa == FLY_CFA_SIGNAL)
		return is_signal && r.cfa == FLY_CFA_SIGNAL ? NULL : "signal frame";
	if (theirs.where == WHERE_UNDEFINED || r.cfa == FLY_CFA_STOP)
		return theirs.where == WHERE_UNDEFINED && r.cfa == FLY_CFA_STOP ? NULL : "end";
	if (dwarf_frame_cfa(frame, &ops, &nops) || !compute(j, ops, nops, &j->cfa)) {
		j->check->unjudged++;
		return NULL;
	}
	if (!our_cfa(j, &r, &cfa) || cfa != j->cfa)
		return "CFA";
	theirs = find_register(j, frame, j->ra);
	/* A register that is said to hold its own value is the same. */
	if (theirs.where == WHERE_REGISTER && theirs.value == (uint64_t)j->ra)
		theirs.where = WHERE_SAME;
	if (!is_equal(theirs, our_ra(j, &r, cfa)))
		return "return address";
	what = compare_fp(j, frame, &r);
	return what || !j->table->tracked ? what : compare_tracked(j, frame, &r);
}

static void tell(struct judge *j, const char *what)
{
	struct fly_rule r = {0};

	if (j->check->differences++ >= CLI_UNWIND_SHOWN)
		return;
	unwind_table_find(j->table, j->pc, &r);
	buf_addf(&j->check->said,
		 "  at 0x%" PRIx64
		 ": %s differs; rule: cfa %u reg %u offset %d fp %u/%d ra %u/%d\n",
		 j->pc, what, r.cfa, r.cfa_reg, r.offset, r.fp, r.fp_words, r.ra, r.ra_words);
}

static void compare_row(struct judge *j, Dwarf_Frame *frame, uint64_t start, uint64_t end,
			bool is_signal)
{
	uint64_t unit = 1ULL << j->table->scale;
	uint64_t at[3] = {start, (start + (end - start) / 2) & ~(unit - 1), end - 1};

	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		const char *what;

		if (at[i] < start || (i && at[i] == at[i - 1]))
			continue;
		j->pc = at[i];
		j->check->addresses++;
		what = compare(j, frame, is_signal);
		if (what)
			tell(j, what);
	}
}

static bool is_text(const struct unwind_place *place, uint64_t start, uint64_t bytes)
{
	for (uint32_t i = 0; i < place->range_count; i++) {
		const struct unwind_range *r = &place->ranges[i];

		if (start >= r->start && start < r->end && bytes <= r->end - start)
			return true;
	}
	return false;
}

static int compare_function(void *ctx, uint64_t start, uint64_t bytes)
{
	Dwarf_Addr row_start, row_end;
	struct judge *j = ctx;
	uint64_t pc = start;
	Dwarf_Frame *frame;
	bool is_signal;

	j->check->functions++;
	if (!bytes || !is_text(&j->place, start, bytes))
		return 0;
	while (pc < start + bytes) {
		if (dwarf_cfi_addrframe(j->cfi, pc, &frame)) {
			j->check->unjudged++;
			return 0;
		}
		if (dwarf_frame_info(frame, &row_start, &row_end, &is_signal) < 0 ||
		    row_end <= pc) {
			free(frame);
			j->check->unjudged++;
			return 0;
		}
		compare_row(j, frame, pc, row_end, is_signal);
		free(frame);
		pc = row_end;
	}
	return 0;
}

/* Entries as libdw counts them, from the section; 0 without section headers. */
static uint64_t count_entries(Elf *elf, bool debug_frame)
{
	const char *want = debug_frame ? ".debug_frame" : ".eh_frame";
	Dwarf_Off offset = 0, next;
	Dwarf_CFI_Entry entry;
	Elf_Scn *scn = NULL;
	uint64_t count = 0;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return 0;
	while ((scn = elf_nextscn(elf, scn))) {
		GElf_Shdr mem, *s = gelf_getshdr(scn, &mem);
		const char *name = s ? elf_strptr(elf, names, s->sh_name) : NULL;
		Elf_Data *data;

		if (!name || strcmp(name, want) || s->sh_type == SHT_NOBITS)
			continue;
		data = elf_rawdata(scn, NULL);
		while (data) {
			int err = dwarf_next_cfi((const unsigned char *)elf_getident(elf, NULL),
						 data, !debug_frame, offset, &next, &entry);

			if (err > 0 || next == (Dwarf_Off)-1 || next <= offset)
				break;
			if (!err && !dwarf_cfi_cie_p(&entry))
				count++;
			offset = next;
		}
	}
	return count;
}

static int compare_all(struct judge *j, Elf *elf, const struct unwind_source *source,
		       struct why *why)
{
	bool debug_frame = j->table->found == UNWIND_DEBUG_FRAME;
	Dwarf *dwarf = debug_frame ? dwarf_begin_elf(elf, DWARF_C_READ, NULL) : NULL;
	int err;

	j->cfi = debug_frame ? (dwarf ? dwarf_getcfi(dwarf) : NULL) : dwarf_getcfi_elf(elf);
	if (!j->cfi) {
		dwarf_end(dwarf);
		return why_set(why, -EOPNOTSUPP, "libdw finds no call frame information in it");
	}
	err = unwind_functions(source, compare_function, j, why);
	j->check->functions_libdw = count_entries(elf, debug_frame);
	if (!err && j->check->functions_libdw &&
	    j->check->functions + j->table->stats.fdes_bad < j->check->functions_libdw) {
		j->check->differences++;
		buf_addf(&j->check->said, "  libdw counts %" PRIu64 " functions, we %" PRIu64 "\n",
			 j->check->functions_libdw, j->check->functions);
	}
	if (debug_frame)
		dwarf_end(dwarf);
	else
		dwarf_cfi_end(j->cfi);
	return err;
}

int cli_unwind_compare(int fd, const struct unwind_source *source, const struct unwind_table *table,
		       struct cli_unwind_check *check, struct why *why)
{
	bool is_arm = table->machine == EM_AARCH64;
	struct judge j = {
		.table = table,
		.fp = is_arm ? FLY_AARCH64_FP : FLY_X86_RBP,
		.sp = is_arm ? FLY_AARCH64_SP : FLY_X86_RSP,
		.ra = is_arm ? FLY_AARCH64_LR : 16,
		.check = check,
	};
	Elf *elf;
	int err;

	for (uint64_t i = 0; i < REGISTERS; i++)
		j.regs[i] = (scatter(i + 1) >> 20) & ~7ULL;
	err = unwind_locate(source, &j.place, why);
	if (err)
		return err;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!elf)
		return why_set(why, -EBADMSG, "libelf: %s", elf_errmsg(-1));
	err = compare_all(&j, elf, source, why);
	elf_end(elf);
	return err;
}

#else

int cli_unwind_compare(int fd, const struct unwind_source *source, const struct unwind_table *table,
		       struct cli_unwind_check *check, struct why *why)
{
	(void)fd;
	(void)source;
	(void)table;
	(void)check;
	return why_set(why, -EOPNOTSUPP, "--check needs libdw; this flyball was built without it");
}

#endif
