/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Numbers for the reasons of reasons.def, for both worlds. FLY_DROP_x indexes the drop counters,
 * FLY_CUT_x is a bit number in fly_sample.cut, FLY_UNNAMED_x is kept per location.
 */
#ifndef FLYBALL_ABI_REASONS_H
#define FLYBALL_ABI_REASONS_H

enum fly_drop {
#define DROP(ID, name, text, advice) FLY_DROP_##ID,
#include "reasons.def"
	FLY_DROP_COUNT,
};

enum fly_cut {
#define CUT(ID, name, text, advice) FLY_CUT_##ID,
#include "reasons.def"
	FLY_CUT_COUNT,
};

enum fly_unnamed {
	FLY_UNNAMED_NONE, /* the frame has a name */
#define UNNAMED(ID, name, text, advice) FLY_UNNAMED_##ID,
#include "reasons.def"
	FLY_UNNAMED_COUNT,
};

/* What a walk by frame pointers says when it was lost (FLY_STATE_NEAR_BASE). */
#define FLY_CUTS_OF_NEAR_BASE                                                                      \
	(1u << FLY_CUT_FRAME_POINTER_LOST | 1u << FLY_CUT_PROCESS_NOT_TRACKED |                    \
	 1u << FLY_CUT_TABLE_ABSENT | 1u << FLY_CUT_NO_UNWIND_ROWS)

#endif
