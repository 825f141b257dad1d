// SPDX-License-Identifier: Apache-2.0
/* A stack of so many frames; compiled twice, with frame pointers and without. */
#include "bench/walk_stack.h"

static volatile unsigned long sink;

__attribute__((noinline)) void WALK_STACK(unsigned int depth, void (*then)(void *), void *ctx)
{
	unsigned long some[4] = {depth, depth + 1};

	__asm__ volatile("" : : "r"(some) : "memory");
	if (depth)
		WALK_STACK(depth - 1, then, ctx);
	else
		then(ctx);
	sink += some[1];
}
