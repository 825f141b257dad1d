/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What walking a user stack means, for BPF and for the host.
 *
 * A walk starts from registers and is stepped outwards; each step finds the caller's registers or
 * says why it cannot. No helpers here: the includer defines
 *
 *	FLY_WALK_READ(dst, bytes, address)	0, or nonzero when the memory cannot be read
 *
 * and __u64 and friends. Nothing here trusts what it reads: user memory is the user's.
 */
#ifndef FLYBALL_WALK_H
#define FLYBALL_WALK_H

/* Code and stacks of a 64-bit process end here; only an explicit mmap hint goes above (LA57). */
#define FLY_USER_END   (1ULL << 47)
#define FLY_USER_START 4096ULL
/* The kernel leaves at least this much below the main stack's base to that stack alone. */
#define FLY_MAIN_STACK_BYTES (128ULL << 20)
/* A thread's control block lies at the base of its stack when it is no farther than this. */
#define FLY_THREAD_STACK_BYTES (64ULL << 20)
/* Start code of C libraries takes less (glibc 2.36: 336 bytes for main, 4.6 KiB with TLS). */
#define FLY_START_BYTES 512ULL
/* Without a known base, one frame is at most this large. */
#define FLY_FRAME_BYTES (1ULL << 20)

#define FLY_STEP_FRAME	0 /* a caller was found */
#define FLY_STEP_END	1 /* the outermost frame was reached */
#define FLY_STEP_LOST	2 /* no caller can be told from here */
#define FLY_STEP_ABSENT 3 /* a plausible frame, but its page is not in memory */

struct fly_walk {
	__u64 pc, sp, fp; /* of the frame last found */
	__u64 base;	  /* where the stack begins, 0: unknown */
};

static inline int fly_walk_is_code(__u64 address)
{
	return address >= FLY_USER_START && address < FLY_USER_END;
}

/* stack_start is mm->start_stack; thread_block is the fs base, which C libraries place at the base
 * of a thread's stack. Either may be anything. */
static inline __u64 fly_walk_base(__u64 sp, __u64 stack_start, __u64 thread_block)
{
	/* A program begins at the very base. */
	if (stack_start >= sp && stack_start - sp < FLY_MAIN_STACK_BYTES)
		return stack_start;
	if (thread_block > sp && thread_block - sp < FLY_THREAD_STACK_BYTES)
		return thread_block;
	return 0;
}

#endif
