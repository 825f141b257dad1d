/* SPDX-License-Identifier: Apache-2.0 */
/* A program without frame pointers that knows its own stack. */
#ifndef TEST_UNWIND_SPIN_H
#define TEST_UNWIND_SPIN_H

#include <stdint.h>

#define SPIN_FRAMES_MAX 2048
#define SPIN_BYTES	4096

/* Written once, before the spinning begins. */
struct spin_stack {
	uint64_t burners[2];		  /* functions of at most SPIN_BYTES: any may be the leaf */
	uint32_t tid, count;		  /* count last */
	uint64_t frames[SPIN_FRAMES_MAX]; /* addresses to return to, from the burner's caller on */
};

/* Recurses depth times through the C library's qsort and plain calls, then spins for ever. */
void spin_run(unsigned int depth, struct spin_stack *ret);

#endif
