/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What bpf/walk/unwinder.h has to know of x86-64: registers, signal frames, calls. Another machine
 * is another header with the same names, and with its fp.h.
 */
#ifndef FLYBALL_WALK_X86_64_H
#define FLYBALL_WALK_X86_64_H

#include "fp.h"

#include "abi/rows.h"

/* By DWARF number: rax rdx rcx rbx rsi rdi rbp rsp r8 .. r15. A power of two. */
#define FLY_ARCH_REGS 16u
#define FLY_ARCH_FP   FLY_X86_RBP
#define FLY_ARCH_SP   FLY_X86_RSP

/* struct sigcontext as it lies in the kernel's rt_sigframe, from r8 to rip. */
struct fly_arch_context {
	__u64 r8, r9, r10, r11, r12, r13, r14, r15, di, si, bp, bx, dx, ax, cx, sp, ip;
};
/* From the stack pointer in the restorer, which is at the ucontext. */
#define FLY_ARCH_CONTEXT_OFFSET 40ULL

/* Calls may destroy it: all but rbx, rbp, rsp, r12 to r15. */
static inline int fly_arch_is_scratch(__u32 reg)
{
	return 0x0f37u >> (reg & (FLY_ARCH_REGS - 1)) & 1;
}

/* False when the instruction before an address is known not to be the one that enters the kernel.
 */
static inline int fly_arch_is_behind_syscall(__u64 pc)
{
	__u16 code;

	return FLY_WALK_READ(&code, sizeof(code), pc - sizeof(code)) || code == 0x050f;
}

/* Registers as they were when the signal came. */
static inline void fly_arch_take(const struct fly_arch_context *context, __u64 *regs,
				 struct fly_walk *walk)
{
	walk->pc = context->ip;
	walk->sp = context->sp;
	walk->fp = context->bp;
	regs[0] = context->ax;
	regs[1] = context->dx;
	regs[2] = context->cx;
	regs[3] = context->bx;
	regs[4] = context->si;
	regs[5] = context->di;
	regs[6] = context->bp;
	regs[7] = context->sp;
	regs[8] = context->r8;
	regs[9] = context->r9;
	regs[10] = context->r10;
	regs[11] = context->r11;
	regs[12] = context->r12;
	regs[13] = context->r13;
	regs[14] = context->r14;
	regs[15] = context->r15;
}

/* True when the last of the 8 bytes before an address, as one little-endian word, are
 * `call *operand`, which takes that many bytes. */
static inline int fly_arch_is_call_of(__u64 before, unsigned int bytes)
{
	__u32 op = (__u32)(before >> (64 - 8 * bytes)) & 0xffff;
	__u32 mod = op >> 14, rm = op >> 8 & 7;
	__u32 length = 2 + (mod != 3 && rm == 4);

	if ((op & 0x38ff) != 0x10ff)
		return 0;
	if (mod == 1)
		length += 1;
	if (mod == 2 || (!mod && rm == 5))
		length += 4;
	return length == bytes;
}

/* Whether the 8 bytes before an address end with a call. */
static inline int fly_arch_is_call(__u64 before)
{
	if ((before >> 24 & 0xff) == 0xe8)
		return 1;
	return fly_arch_is_call_of(before, 2) || fly_arch_is_call_of(before, 3) ||
	       fly_arch_is_call_of(before, 4) || fly_arch_is_call_of(before, 6) ||
	       fly_arch_is_call_of(before, 7);
}

#define FLY_X86_MOV_15_RAX 0x0f0000000fc0c748ULL /* and the first byte of syscall */

/* A C library's sigreturn stub that has no call frame information (musl): mov $15,%rax; syscall.
 * Known by its bytes, at its start or, interrupted, at any instruction of it. */
static inline int fly_arch_is_restorer(__u64 pc, int is_innermost)
{
	__u64 code;

	if (!fly_walk_is_code(pc - 9))
		return 0;
	if (!FLY_WALK_READ(&code, sizeof(code), pc) && code == FLY_X86_MOV_15_RAX)
		return 1;
	if (!is_innermost)
		return 0;
	if (!FLY_WALK_READ(&code, sizeof(code), pc - 7) && code == FLY_X86_MOV_15_RAX)
		return 1;
	return !FLY_WALK_READ(&code, sizeof(code), pc - 9) && code == FLY_X86_MOV_15_RAX;
}

#endif
