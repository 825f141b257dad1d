/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/walk/ for BPF: how user memory and tables are read, and where a walk keeps what it knows.
 */
#ifndef FLYBALL_BPF_WALKING_H
#define FLYBALL_BPF_WALKING_H

#include "maps.h"

#define FLY_WALK_READ(dst, bytes, address)                                                         \
	bpf_probe_read_user((dst), (bytes), (const void *)(unsigned long)(address))

/* One space of words for all parts. */
static __always_inline const void *fly_block(__u32 at)
{
	__u32 number = at / FLY_BLOCK_WORDS, segment = number / FLY_SEGMENT_BLOCKS;
	void *blocks = bpf_map_lookup_elem(&fly_segments, &segment);

	number &= FLY_SEGMENT_BLOCKS - 1;
	return blocks ? bpf_map_lookup_elem(blocks, &number) : NULL;
}

static __always_inline const struct fly_table *fly_table_get(__u32 number)
{
	return bpf_map_lookup_elem(&fly_tables, &number);
}

/* Masked, since the verifier knows nothing of what tables say. */
#define FLY_ROWS_SPACE			int
#define FLY_ROWS_BLOCK(space, part, at) fly_block(at)
#define FLY_ROWS_WORD(block, at)	(((const __u32 *)(block))[(at) & (FLY_BLOCK_WORDS - 1)])
#define FLY_ROWS_HALF(block, n)		((__u32)((const __u16 *)(block))[(n) & (2 * FLY_BLOCK_WORDS - 1)])
#define FLY_ROWS_PAIR(block, at)	(((const __u64 *)(block))[(at) / 2 & (FLY_BLOCK_WORDS / 2 - 1)])

#define FLY_UNWIND_TABLE(space, number)	   fly_table_get(number)
#define FLY_UNWIND_CACHED(address)	   fly_cached_at(address)
#define FLY_UNWIND_ASK(u, address)	   fly_vma_ask(u, address)
#define FLY_UNWIND_IS(u, mapping, address) fly_vma_is(address, (mapping)->identity)
#define FLY_UNWIND_PART			   __noinline

struct fly_unwind;
int fly_vma_ask(struct fly_unwind *u, __u64 address);
int fly_vma_is(__u64 address, __u64 identity);
struct fly_cached;
static __always_inline struct fly_cached *fly_cached_at(__u64 address);

#include "walk/unwinder.h"

#define FLY_CACHED 512 /* a power of two */

struct fly_cache {
	struct fly_cached rules[FLY_CACHED];
};

/* 16 KiB per possible CPU. BPF only. Most frames of a sample are those of the last one, and a rule
 * kept here is one line of memory in place of ten. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fly_cache);
} fly_cache SEC(".maps");

static __always_inline struct fly_cached *fly_cached_at(__u64 address)
{
	__u32 zero = 0, at = (__u32)(address * 0x9e3779b97f4a7c15ULL >> 40);
	struct fly_cache *cache = bpf_map_lookup_elem(&fly_cache, &zero);

	return cache ? &cache->rules[at & (FLY_CACHED - 1)] : NULL;
}

#define FLY_FRAME_SLOTS	 (FLY_MAX_KERNEL_FRAMES + FLY_MAX_FRAMES + 1)
#define FLY_RECORD_WORDS (FLY_FRAME_SLOTS + FLY_ATTRIBUTE_BYTES_MAX / 8) /* behind its head */

#define FLY_MAPLE_WORDS 32

/* A mapping as the kernel has it, and what finding it takes. */
struct fly_vma {
	__u64 start, end, flags;
	struct fly_file_key key;
	struct fly_file file;
	__u64 node[FLY_MAPLE_WORDS];
};

struct fly_scratch {
	__u32 is_busy;
	__u32 walk_depth;
	__u64 walk_end_ns;
	__u64 tick_ns;	 /* of the last tick */
	__u64 paced_ns;	 /* the last change of the period that was seen */
	__u64 window_ns; /* when the budget's window began */
	__u64 spent_ns;	 /* in it */
	struct fly_unwind unwind;
	struct fly_vma vma;
	__u64 attributes_at; /* of sample->attribute_bytes, in the thread's memory */
	__u8 record[sizeof(struct fly_sample) + FLY_RECORD_WORDS * sizeof(__u64)]
		__attribute__((aligned(8)));
};

/* About 10.3 KiB per possible CPU. BPF only. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fly_scratch);
} fly_scratch SEC(".maps");

static __always_inline struct fly_sample *fly_sample_of(struct fly_scratch *scratch)
{
	return (struct fly_sample *)scratch->record;
}

/* From the interrupted user mode or from the kernel's entry: two types, equal names. */
#define fly_take_registers(unwind, from)                                                           \
	do {                                                                                       \
		(unwind)->regs[0] = (from)->ax;                                                    \
		(unwind)->regs[1] = (from)->dx;                                                    \
		(unwind)->regs[2] = (from)->cx;                                                    \
		(unwind)->regs[3] = (from)->bx;                                                    \
		(unwind)->regs[4] = (from)->si;                                                    \
		(unwind)->regs[5] = (from)->di;                                                    \
		(unwind)->regs[8] = (from)->r8;                                                    \
		(unwind)->regs[9] = (from)->r9;                                                    \
		(unwind)->regs[10] = (from)->r10;                                                  \
		(unwind)->regs[11] = (from)->r11;                                                  \
		(unwind)->regs[12] = (from)->r12;                                                  \
		(unwind)->regs[13] = (from)->r13;                                                  \
		(unwind)->regs[14] = (from)->r14;                                                  \
		(unwind)->regs[15] = (from)->r15;                                                  \
		(unwind)->walk.pc = (from)->ip;                                                    \
		(unwind)->walk.sp = (unwind)->regs[FLY_ARCH_SP] = (from)->sp;                      \
		(unwind)->walk.fp = (unwind)->regs[FLY_ARCH_FP] = (from)->bp;                      \
	} while (0)

static __always_inline void fly_put_frame(struct fly_scratch *scratch, __u32 index, __u64 pc)
{
	struct fly_sample *sample = fly_sample_of(scratch);

	index += sample->kernel_frames;
	if (index < FLY_FRAME_SLOTS)
		sample->frames[index] = pc;
}

/* The state of a bpf_loop. All else is in scratch. */
struct fly_walking {
	struct fly_scratch *scratch;
	__u32 count; /* frames found so far */
	int step;    /* what ended it; FLY_STEP_FRAME: the depth */
};

static __always_inline void fly_end_walk(struct fly_walking *walking, __u32 cut)
{
	struct fly_scratch *scratch = walking->scratch;
	struct fly_sample *sample = fly_sample_of(scratch);

	sample->user_frames = (__u16)walking->count;
	if (walking->step == FLY_STEP_FRAME)
		cut = sample->state & FLY_STATE_PRESSURE ? FLY_CUT_RING_PRESSURE
							 : FLY_CUT_DEPTH_LIMIT;
	else if (walking->step == FLY_STEP_ABSENT)
		cut = FLY_CUT_USER_PAGE_ABSENT;
	else if (walking->step == FLY_STEP_END)
		return;
	else if (fly_walk_is_near_base(&scratch->unwind.walk))
		sample->state |= FLY_STATE_NEAR_BASE;
	sample->cut |= 1u << (cut & 31);
}

/* ---------------------------------------------------------------- by frame pointers */
/* One frame. Returns 1 to end the loop. */
static long fly_walk_on(__u32 index, struct fly_walking *walking)
{
	struct fly_scratch *scratch = walking->scratch;
	__u32 count = walking->count;

	walking->step = fly_fp_step(&scratch->unwind.walk);
	if (walking->step != FLY_STEP_FRAME || count >= scratch->walk_depth)
		return 1;
	fly_put_frame(scratch, count, scratch->unwind.walk.pc);
	walking->count = count + 1;
	return 0;
}

/* Walks from scratch->unwind. A global function and bpf_loop, so that the verifier looks at all
 * this once: 6.1 gives up (a million instructions) on a loop unrolled for each way that leads here.
 */
__noinline int fly_walk_user(struct fly_scratch *scratch)
{
	struct fly_walking walking = {.scratch = scratch, .count = 1};
	struct fly_walk *walk;
	bool has_leaf = 0;

	if (!scratch)
		return 0;
	walk = &scratch->unwind.walk;
	walk->base =
		fly_walk_base(walk->sp, scratch->unwind.stack_start, scratch->unwind.thread_block);
	fly_put_frame(scratch, 0, walk->pc);
	if (scratch->unwind.flags & FLY_IS_EXACT)
		has_leaf = fly_fp_leaf(walk) == FLY_STEP_FRAME;
	if (has_leaf && scratch->walk_depth > 1) {
		fly_put_frame(scratch, 1, walk->pc);
		walking.count = 2;
	}
	if (!has_leaf || scratch->walk_depth > 1)
		bpf_loop(FLY_MAX_FRAMES, fly_walk_on, &walking, 0);
	fly_end_walk(&walking, FLY_CUT_FRAME_POINTER_LOST);
	return 0;
}

/* ---------------------------------------------------------------- by tables */
/* How often is learnt from a process what its files' tables are. */
#define FLY_SAMPLES_PER_LEARN 64

/* False when user space has not described the process, or described another with its number. */
static __always_inline bool fly_find_process(const struct fly_sample *sample,
					     struct fly_unwind *unwind, bool *ret_is_due)
{
	__u32 tgid = sample->tgid;
	struct fly_process *process = bpf_map_lookup_elem(&fly_processes, &tgid);
	struct fly_process found;

	if (!process)
		return 0;
	found = *(volatile struct fly_process *)process;
	if (found.start_ns != sample->process_start_ns || found.check != fly_process_check(&found))
		return 0;
	*ret_is_due = !(process->samples++ & (FLY_SAMPLES_PER_LEARN - 1));
	unwind->at = found.at;
	unwind->count = found.count;
	return 1;
}

/* A look at the clock costs as much as half a frame. */
#define FLY_FRAMES_PER_LOOK 16

/* One frame. Returns 1 to end the loop. */
static long fly_unwind_on(__u32 index, struct fly_walking *walking)
{
	struct fly_scratch *scratch = walking->scratch;
	__u32 count = walking->count;
	__u64 pc;

	if (!(index + 1 & (FLY_FRAMES_PER_LOOK - 1)) && bpf_ktime_get_ns() > scratch->walk_end_ns) {
		scratch->unwind.cut = FLY_CUT_TIME_BUDGET;
		walking->step = FLY_STEP_LOST;
		return 1;
	}
	walking->step = fly_unwind_step(0, &scratch->unwind);
	if (walking->step != FLY_STEP_FRAME || count >= scratch->walk_depth)
		return 1;
	pc = scratch->unwind.walk.pc;
	if (scratch->unwind.flags & FLY_IS_EXACT)
		pc |= FLY_FRAME_EXACT;
	fly_put_frame(scratch, count, pc);
	walking->count = count + 1;
	return 0;
}

/* As fly_walk_user. */
__noinline int fly_unwind_user(struct fly_scratch *scratch)
{
	struct fly_walking walking = {.scratch = scratch, .count = 1};
	__u32 cut;

	if (!scratch)
		return 0;
	scratch->unwind.cut = 0;
	scratch->unwind.start = scratch->unwind.bytes = scratch->unwind.bias = 0;
	scratch->unwind.table = FLY_TABLE_NONE;
	scratch->unwind.replaced = 0;
	for (int i = 0; i < FLY_CHECKED; i++)
		scratch->unwind.checked[i] = 0;
	fly_put_frame(scratch, 0, scratch->unwind.walk.pc);
	walking.step = fly_unwind_start(0, &scratch->unwind);
	/* A thread that came into the kernel from memory that is not there any more executes
	 * another program: its registers are still those of the one that is gone. */
	if (walking.step != FLY_STEP_FRAME &&
	    fly_sample_of(scratch)->state & FLY_STATE_IN_SYSCALL) {
		fly_sample_of(scratch)->cut |= 1u << FLY_CUT_NO_USER_REGISTERS;
		return 0;
	}
	if (walking.step == FLY_STEP_FRAME)
		bpf_loop(FLY_MAX_FRAMES, fly_unwind_on, &walking, 0);
	cut = scratch->unwind.cut;
	/* What is not known is so because user space has not described the process. */
	if (scratch->unwind.at == FLY_AT_KERNEL &&
	    (cut == FLY_CUT_TABLE_ABSENT || cut == FLY_CUT_MAPPING_ABSENT))
		cut = FLY_CUT_PROCESS_NOT_TRACKED;
	if (scratch->unwind.replaced)
		fly_sample_of(scratch)->state |= FLY_STATE_REPLACED;
	fly_end_walk(&walking, cut);
	if (cut == FLY_CUT_TABLE_PAGE_ABSENT)
		fly_sample_of(scratch)->detail = scratch->unwind.detail;
	return 0;
}

#endif
