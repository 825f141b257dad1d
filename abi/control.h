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

enum fly_unwinder {
	FLY_UNWIND_FRAME_POINTERS = 0,
	FLY_UNWIND_TABLES = 1, /* and frame pointers for code that has none (CTX-1) */
};

/* RING-1. Below NORMAL stacks or features are less than was asked for. */
enum fly_state {
	FLY_STATE_IS_NORMAL = 0,
	FLY_STATE_IS_DEGRADED = 1,
	FLY_STATE_IS_SUPPRESSED = 2,
};

#define FLY_BUDGET_WINDOW_NS 100000000

struct fly_control {
	__u32 is_on;	    /* 0: ticks are not even counted */
	__u32 target;	    /* enum fly_target; each has a program of its own */
	__u32 depth;	    /* user frames, 1..FLY_MAX_FRAMES */
	__u32 kernel_depth; /* kernel frames, 0: none, at most kernel.perf_event_max_stack */
	__u64 period_ns;    /* the weight of a tick, but of the first after a change */
	__u64 ring_bytes;
	__u64 watermark_bytes; /* RING-3: above it, depth <= FLY_PRESSURE_FRAMES */
	__u64 sample_bytes;    /* above it no sample is taken: the rest is for other records */
	__u64 wake_bytes;      /* force a wake-up when this much is unread (CPU-5) */
	__u32 is_woken;	       /* BPF sets it when it forced a wake-up, the reader clears it */
	__u32 own_tgid;	       /* reserved for the governor: our own main process */
	__u64 exec_wake_ns;    /* BPF: when the reader was last woken for an exec */
	__u32 is_exec_waiting; /* BPF: an exec came too soon after that to be woken for */
	__u32 unwinder;	       /* enum fly_unwinder; tables have programs of their own */
	__u64 walk_ns;	       /* one walk of a user stack takes no longer */
	__u32 span_processes;  /* elements of fly_spans */
	__u32 state;	       /* enum fly_state */
	__u32 suppress;	       /* so many of 2^32 samples are dropped; all ones: all */
	__u32 is_memory_drop;  /* as memory_pressure, not as suppressed */
	__u64 unread_peak;     /* BPF: most bytes unread since the reader cleared it */
	__u64 paced_ns;	       /* when period_ns was changed last; 0: never */
	__u64 period_was_ns;   /* before that */
	__u64 shared_bytes;    /* BPF: written since the reader had emptied the ring */
	__u32 sharers;	       /* BPF: fly_shares met since then */
	__u32 ring_epoch;      /* the reader counts up when it has */
	__u64 cpu_budget_ns;   /* of FLY_BUDGET_WINDOW_NS, for the programs on one CPU; 0: any */
};

/* What a cgroup has of the ring: an element for all cgroups of one hash. High above the watermark
 * one with more than five quarters of what would be fair gets no more. */
#define FLY_SHARE_BITS 10
struct fly_share {
	__u64 bytes; /* since the reader had emptied the ring */
	__u64 lost;  /* samples, so that others had room */
	__u32 epoch; /* when bytes were begun */
	__u32 pad;
};
static inline __u32 fly_share_of(__u64 cgroup_id)
{
	return (__u32)((cgroup_id * 0x9e3779b97f4a7c15ULL) >> (64 - FLY_SHARE_BITS));
}

/* Two elements per CPU, so that no counter has two writers at different interrupt levels: the
 * sampling programs count in the first, those on tracepoints in the second (atomically: tasks on
 * one CPU can preempt each other there). */
#define FLY_COUNTERS_SAMPLE  0
#define FLY_COUNTERS_PROCESS 1
#define FLY_COUNTERS_SETS    2

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
	__u64 marks_lost; /* a child that should be followed could not be marked */
	__u64 wakeups;	  /* forced */
};

_Static_assert(sizeof(struct fly_share) == 24, "abi: fly_share");
_Static_assert(sizeof(struct fly_control) == 152, "abi: fly_control");

#endif
