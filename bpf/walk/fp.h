/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * One step of a walk by frame pointers, x86-64: [fp] holds the caller's fp, [fp + 8] the address
 * to return to.
 *
 * The read of a wrong fp faults and costs as much as 500 good reads, so all that can be known
 * beforehand is checked first: alignment, direction (stacks grow down, callers lie above), the
 * base of the stack. A chain ends well with fp 0 or return address 0: that is what the ABI asks of
 * start code and what threads and Go's goroutines begin with.
 */
#ifndef FLYBALL_WALK_FP_H
#define FLYBALL_WALK_FP_H

#include "walk.h"

static inline int fly_fp_is_plausible(const struct fly_walk *walk)
{
	__u64 fp = walk->fp;

	if (fp & 7 || fp < walk->sp || fp >= FLY_USER_END)
		return 0;
	if (walk->base)
		return fp + 16 <= walk->base;
	return fp - walk->sp <= FLY_FRAME_BYTES;
}

static inline int fly_fp_step(struct fly_walk *walk)
{
	__u64 frame[2];

	if (!walk->fp)
		return FLY_STEP_END;
	if (!fly_fp_is_plausible(walk))
		return FLY_STEP_LOST;
	if (FLY_WALK_READ(frame, sizeof(frame), walk->fp))
		return FLY_STEP_ABSENT;
	if (!frame[1])
		return FLY_STEP_END;
	if (!fly_walk_is_code(frame[1]))
		return FLY_STEP_LOST;
	walk->sp = walk->fp + 16;
	walk->fp = frame[0];
	walk->pc = frame[1];
	return FLY_STEP_FRAME;
}

#define FLY_FP_PUSH_MOV 0xe5894855u /* push %rbp; mov %rsp,%rbp, as a little-endian word */
#define FLY_FP_ENDBR	0xfa1e0ff3u
#define FLY_FP_RET	0xc3u

/* Where the address to return to lies, when the interrupted function has not made its frame yet or
 * has given it up: before this, a plain step would leave out the caller. 0: the frame stands, or
 * it cannot be told. Only byte sequences that mean nothing else are taken. */
static inline __u64 fly_fp_leaf_slot(const struct fly_walk *walk)
{
	struct {
		__u32 here, next;
	} code;
	__u64 around;

	if (!fly_walk_is_code(walk->pc - 2))
		return 0;
	if (FLY_WALK_READ(&code, sizeof(code), walk->pc))
		return 0;
	if ((code.here & 0xff) == FLY_FP_RET || code.here == FLY_FP_PUSH_MOV)
		return walk->sp;
	if (code.here == FLY_FP_ENDBR && code.next == FLY_FP_PUSH_MOV)
		return walk->sp;
	if ((code.here & 0xffffff) != FLY_FP_PUSH_MOV >> 8)
		return 0;
	if (FLY_WALK_READ(&around, sizeof(around), walk->pc - 2))
		return 0;
	/* With a REX.B prefix it is push %r13. */
	if ((__u32)(around >> 8) != FLY_FP_PUSH_MOV || (around & 0xf1) == 0x41)
		return 0;
	return walk->sp + 8;
}

/* Finds the caller of a function interrupted outside its frame. FLY_STEP_LOST: step as usual. */
static inline int fly_fp_leaf(struct fly_walk *walk)
{
	__u64 slot = fly_fp_leaf_slot(walk);
	__u64 pc;

	if (!slot || slot & 7 || slot >= FLY_USER_END)
		return FLY_STEP_LOST;
	if (FLY_WALK_READ(&pc, sizeof(pc), slot) || !fly_walk_is_code(pc))
		return FLY_STEP_LOST;
	walk->pc = pc;
	walk->sp = slot + 8;
	return FLY_STEP_FRAME;
}

/* True when a walk that was lost ended so near the base of its stack that only start code can be
 * missing. */
static inline int fly_walk_is_near_base(const struct fly_walk *walk)
{
	return walk->base >= walk->sp && walk->base - walk->sp <= FLY_START_BYTES;
}

#endif
