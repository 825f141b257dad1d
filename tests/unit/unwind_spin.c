// SPDX-License-Identifier: Apache-2.0
/*
 * Compiled without frame pointers. The stack is what libgcc's unwinder says of it, from the burning
 * function itself.
 */
#include "unwind_spin.h"

#include <execinfo.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN __attribute__((noinline, aligned(SPIN_BYTES)))

static __thread struct spin_stack *stack;
static __thread unsigned int left;
static __thread volatile unsigned long sink;

static void spin_step(void);

static SPIN unsigned long spin_inner(unsigned long n)
{
	unsigned long mixed[8];

	for (unsigned int i = 0; i < 8; i++)
		mixed[i] = n * (i + 1);
	__asm__ volatile("" : : "r"(mixed) : "memory");
	for (unsigned int i = 0; i < 8; i++)
		n ^= mixed[i] >> i;
	return n;
}

static SPIN void spin_burn(void)
{
	void *frames[SPIN_FRAMES_MAX];
	int count = backtrace(frames, SPIN_FRAMES_MAX), first = 0;

	/* A sanitizer has a backtrace of its own, which may begin inside it. */
	while (first < count && (uintptr_t)frames[first] - (uintptr_t)spin_burn >= SPIN_BYTES)
		first++;
	first++;
	if (first >= count)
		_exit(3); /* glibc loads libgcc_s.so.1 for it */
	for (int i = first; i < count; i++)
		stack->frames[i - first] = (uintptr_t)frames[i];
	stack->burners[0] = (uintptr_t)spin_burn;
	stack->burners[1] = (uintptr_t)spin_inner;
	stack->tid = (uint32_t)syscall(SYS_gettid);
	__atomic_store_n(&stack->count, (uint32_t)(count - first), __ATOMIC_RELEASE);
	for (;;) {
		for (unsigned int i = 0; i < 50; i++)
			sink = spin_inner(sink + i);
	}
}

static int spin_compare(const void *a, const void *b)
{
	spin_step();
	return *(const int *)a - *(const int *)b;
}

static SPIN void spin_step(void)
{
	int pair[2] = {2, 1};

	if (!left) {
		spin_burn();
	} else if (left-- % 4) {
		spin_step();
	} else {
		qsort(pair, 2, sizeof(pair[0]), spin_compare);
	}
	sink++;
}

void spin_run(unsigned int depth, struct spin_stack *ret)
{
	left = depth;
	stack = ret;
	spin_step();
	sink++;
}
