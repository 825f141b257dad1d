/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The control block (RING-1) and the kernel's side of the ledger (RING-4).
 *
 * fly_control is the one element of a BPF_F_MMAPABLE array: user space writes, BPF reads before
 * anything else. fly_counters is one element of a per-CPU array: BPF writes, user space sums.
 */
#ifndef FLYBALL_ABI_CONTROL_H
#define FLYBALL_ABI_CONTROL_H

#include "reasons.h"

enum fly_target {
	FLY_TARGET_ALL = 0,
	FLY_TARGET_TASKS = 1,  /* marked tasks and all they fork */
	FLY_TARGET_CGROUP = 2, /* tasks under the cgroup in fly_cgroup[0] */
};

struct fly_control {
	__u32 is_on;	 /* 0: ticks are not even counted */
	__u32 target;	 /* enum fly_target */
	__u32 depth;	 /* user and kernel frames, 1..FLY_MAX_FRAMES */
	__u32 no_kernel; /* 1: take no kernel stack */
	__u64 period_ns; /* the weight of a tick */
	__u64 ring_bytes;
	__u64 watermark_bytes; /* RING-3: above it, depth <= FLY_PRESSURE_FRAMES */
	__u64 wake_bytes;      /* force a wake-up when this much is unread (CPU-5) */
	__u32 own_tgid;	       /* reserved for the governor: our own main process */
	__u32 pad;
};

/* ticks = idle + filtered + taken, exactly; taken = submitted + sum(dropped), exactly. */
struct fly_counters {
	__u64 ticks;
	__u64 idle;
	__u64 filtered;
	__u64 taken;
	__u64 taken_ns;
	__u64 submitted;
	__u64 submitted_ns;
	__u64 dropped[FLY_DROP_COUNT];
	__u64 dropped_ns[FLY_DROP_COUNT];
	__u64 run_ns; /* time spent in our programs, by their own clock readings */
	__u64 runs;
	__u64 execs; /* exec records submitted */
	__u64 execs_lost;
};

_Static_assert(sizeof(struct fly_control) == 56, "abi: fly_control");

#endif
