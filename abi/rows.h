/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The unwind table of one binary, as it lies in memory for the walker: made from .eh_frame in user
 * space (src/unwind), read by BPF and by the host through bpf/walk/lookup.h.
 *
 *	page     8 bytes for each 64 KiB of text: where its groups are, how many, and the rule that
 *	         is in force before the first of them. A page knows nothing of its neighbours, so
 *pages can be filled and taken away one by one. Written with one aligned store. group    4 bytes
 *for a cluster of up to 8 rows that start within 16 units: low 16 bits of the first row's address,
 *and a shape. Ascending within a page. shape    1 to 8 halves of 2 bytes, each a rule (12 bits) and
 *a distance from the group's address (4 bits, in units). The first distance is 0 and the others
 *ascend from it, so a 0 ends the shape. A shape's number is its place in the dictionary, in words.
 *	rule     12 bytes: how to find the caller.
 *
 * A unit is 1 << scale bytes of text: 1 byte on x86-64, 4 on aarch64. Addresses are link-time ones.
 *
 * Memory is words of 4 bytes in blocks of 64 KiB; what "at" fields hold are word numbers, and word
 * N lies in block N / FLY_BLOCK_WORDS. None of these crosses a block's border: the groups of one
 * page, the rules, a run of FLY_RUN_PAGES pages (starts at an even word), a run of FLY_RUN_SHAPES
 * words of shapes. Rule 0 is FLY_CFA_NONE; shape 0 is none.
 *
 * The includer provides __u8 .. __u64 and __s16, __s32 (linux/types.h or bpf/types.h).
 */
#ifndef FLYBALL_ABI_ROWS_H
#define FLYBALL_ABI_ROWS_H

#define FLY_BLOCK_WORDS 16384u /* 64 KiB */
#define FLY_PAGE_SHIFT	16
#define FLY_PAGE_BYTES	(1u << FLY_PAGE_SHIFT) /* of text */

#define FLY_RUN_PAGES	8192u		/* a block of 8-byte pages: 512 MiB of text */
#define FLY_RUN_SHAPES	FLY_BLOCK_WORDS /* a block; its last half is always 0 */
#define FLY_PAGE_RUNS	4
#define FLY_SHAPE_RUNS	4
#define FLY_PAGES_MAX	(FLY_PAGE_RUNS * FLY_RUN_PAGES)	  /* 2 GiB of text */
#define FLY_SHAPES_MAX	(FLY_SHAPE_RUNS * FLY_RUN_SHAPES) /* words */
#define FLY_RULES_MAX	4096u				  /* 12 bits */
#define FLY_GROUPS_MAX	16384u				  /* of one page: a block */
#define FLY_GROUP_ROWS	8u
#define FLY_GROUP_UNITS 16u /* 4 bits */
#define FLY_RULE_WORDS	3u

/* fly_rule.cfa: the canonical frame address. SP and FP are the frame's own, and so is the table's
 * tracked register while it is known; any other register is known only in the innermost frame and
 * in one interrupted by a signal, and one that calls may destroy in the next caller as well. */
enum fly_cfa {
	FLY_CFA_NONE,	     /* nothing is known of this address: no CFI covers it */
	FLY_CFA_REG,	     /* reg + offset */
	FLY_CFA_DEREF,	     /* *(reg + inner) + add */
	FLY_CFA_PLT,	     /* SP + inner, and 8 more where (PC & 15) >= add */
	FLY_CFA_INDEXED,     /* *(SP + inner + 8 * reg) + add */
	FLY_CFA_SIGNAL,	     /* the kernel's rt_sigframe at SP: registers come from its mcontext */
	FLY_CFA_STOP,	     /* the outermost frame */
	FLY_CFA_UNSUPPORTED, /* there is CFI, but of a kind that a rule cannot say */
};

/* fly_rule.fp, low 4 bits: the caller's frame pointer. */
enum fly_fp {
	FLY_FP_SAME,   /* unchanged */
	FLY_FP_AT_CFA, /* at CFA + 8 * fp_words */
	FLY_FP_AT_FP,  /* at FP + 8 * fp_words */
	FLY_FP_LOST,   /* cannot be told: a later rule that needs it must fail */
};

/* fly_rule.ra: the return address is at CFA + 8 * ra_words, or, with this bit, in a register whose
 * number is the rest: true of the innermost frame and of one interrupted by a signal only. */
#define FLY_RA_IN_REG 0x80u

/* fly_rule.fp, high 4 bits: the caller's value of the table's tracked register. With AT_CFA and
 * AT_FP ra_words is its place and the return address is at CFA - 8.
 *
 * A few binaries find a CFA from a callee-saved register that lives across calls (the dynamic
 * linker's lazy binding from rbx, some AVX code from r13). Their tables, and no others, say where
 * that one register is kept, so that it is known as long as the walk does not leave the binary. */
enum fly_tracked {
	FLY_TRACKED_SAME = 0x00,
	FLY_TRACKED_AT_CFA = 0x10, /* at CFA + 8 * ra_words */
	FLY_TRACKED_AT_FP = 0x20,  /* at FP + 8 * ra_words */
	FLY_TRACKED_LOST = 0x30,
};
#define FLY_FP_MASK	 0x0fu
#define FLY_TRACKED_MASK 0xf0u

/* DWARF register numbers. */
#define FLY_X86_RBP    6u
#define FLY_X86_RSP    7u
#define FLY_AARCH64_FP 29u
#define FLY_AARCH64_LR 30u
#define FLY_AARCH64_SP 31u

struct fly_rule {
	__u8 cfa;     /* FLY_CFA_x */
	__u8 cfa_reg; /* DWARF number */
	__u8 fp;      /* FLY_FP_x */
	__u8 ra;
	__s32 offset; /* for DEREF, PLT, INDEXED: inner in the low half, add in the high half */
	__s16 fp_words;
	__s16 ra_words;
};

static inline __s32 fly_rule_inner(const struct fly_rule *rule)
{
	return (__s16)(rule->offset & 0xffff);
}

static inline __s32 fly_rule_add(const struct fly_rule *rule)
{
	return rule->offset >> 16;
}

/* A page: at (32 bits, low), count (16), before (16, high). */
#define FLY_PAGE_ABSENT	       0xffffu /* as count: its rows are not in memory now */
#define fly_page_at(page)      ((__u32)(page))
#define fly_page_count(page)   ((__u32)((page) >> 32) & 0xffffu)
#define fly_page_before(page)  ((__u32)((page) >> 48))
#define fly_page_make(a, c, b) ((__u64)(a) | (__u64)(c) << 32 | (__u64)(b) << 48)

#define fly_group_make(low, shape) ((__u32)(low) << 16 | (__u32)(shape))
#define fly_half_make(rule, units) ((__u16)((rule) << 4 | (units)))

/* What a block is asked for; all parts share one space of words in the kernel. */
enum fly_part {
	FLY_PART_PAGES,
	FLY_PART_GROUPS,
	FLY_PART_SHAPES,
	FLY_PART_RULES,
	FLY_PART_MAPPINGS, /* abi/table_space.h */
};

/* What a look-up answers. */
enum fly_find {
	FLY_FIND_RULE,
	FLY_FIND_OUTSIDE, /* the address is in no page of the table */
	FLY_FIND_ABSENT,  /* the page, or a part of the table, is not in memory */
};

/* Where a binary's table is. */
struct fly_table {
	__u64 start;	/* address of page 0, a multiple of FLY_PAGE_BYTES */
	__u32 pages;	/* 0: no table */
	__u32 rules_at; /* rule N is at rules_at + N * FLY_RULE_WORDS */
	__u32 pages_at[FLY_PAGE_RUNS];
	__u32 shapes_at[FLY_SHAPE_RUNS];
	__u16 machine; /* ELF's EM_x */
	__u8 scale;
	__u8 tracked; /* DWARF number of the tracked register; 0: none */
	__u8 pad[4];
	__u64 serial; /* of whose table the number is, never used again; 0: nobody's */
};

_Static_assert(sizeof(struct fly_rule) == 12, "abi: fly_rule");
_Static_assert(sizeof(struct fly_rule) == 4 * FLY_RULE_WORDS, "abi: fly_rule words");
_Static_assert(sizeof(struct fly_table) == 64, "abi: fly_table");

#endif
