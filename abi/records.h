/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What the BPF side writes to the ring and what user space reads from it. Fixed-width types only,
 * explicit padding, little room for doubt: sizes are asserted on both sides (STYLE, BPF).
 *
 * The includer provides __u8.. __u64 (linux/types.h in user space, bpf/types.h in BPF).
 */
#ifndef FLYBALL_ABI_RECORDS_H
#define FLYBALL_ABI_RECORDS_H

#include "reasons.h"

#define FLY_MAX_FRAMES	      1024 /* of a user stack */
#define FLY_MAX_KERNEL_FRAMES 127  /* kernel.perf_event_max_stack's default */
#define FLY_PRESSURE_FRAMES   32   /* depth above the ring's watermark (RING-3) */
#define FLY_COMM_BYTES	      16

/* A bit of a frame further out than the first: its address is of the instruction to run next, not
 * one to return to, since a signal came there. The frame before it is then the signal's return
 * code, whose address nothing called either. */
#define FLY_FRAME_EXACT (1ULL << 63)

enum fly_record_type {
	FLY_RECORD_SAMPLE = 1,
	FLY_RECORD_EXEC = 2,
};

/* Bits of fly_sample.state: facts, not faults. */
#define FLY_STATE_KERNEL_THREAD 0x1u /* PF_KTHREAD: no user stack by nature */
#define FLY_STATE_IO_WORKER                                                                        \
	0x2u /* io_uring or other user worker: its user registers mean nothing */
#define FLY_STATE_IN_KERNEL  0x4u  /* the tick hit kernel code */
#define FLY_STATE_IN_SYSCALL 0x8u  /* user PC is a return address: look up PC - 1 */
#define FLY_STATE_COMPAT     0x10u /* 32-bit task */
#define FLY_STATE_PRESSURE   0x20u /* taken while the ring was above its watermark */
/* The frame-pointer walk ended without a proper end, but within FLY_START_BYTES of the base of the
 * thread's stack. When its outermost frame lies in the C library, or by its name is that library's
 * in a static program, it ended in the library's start code, which keeps no frame pointers: nothing
 * of the program's own is missing. */
#define FLY_STATE_NEAR_BASE 0x40u
#define FLY_STATE_PLACED    0x100u /* and user space had not described the process */
#define FLY_STATE_REPLACED  0x200u /* a mapping was not what user space had described */
#define FLY_STATE_TABLES    0x80u  /* walked by tables; else by frame pointers alone (RING-3) */

/* trace_id and span_id are set; else, of a thread that publishes them, why not. */
#define FLY_STATE_SPAN	       0x400u
#define FLY_STATE_SPAN_ABSENT  0x800u  /* its memory was not there */
#define FLY_STATE_SPAN_INVALID 0x1000u /* it was being written */
/* Of the attributes of a span that is known. */
#define FLY_STATE_ATTRIBUTES_CUT    0x2000u /* there are more than FLY_ATTRIBUTE_BYTES_MAX */
#define FLY_STATE_ATTRIBUTES_ABSENT 0x4000u /* their memory was not there */

/* What OTEP 4947 would have a record not exceed, 640 bytes, less its head, in words. */
#define FLY_ATTRIBUTE_BYTES_MAX 616u

/* One on-CPU sample. frames[] holds kernel_frames then user_frames addresses, innermost first;
 * after them come attribute_bytes bytes of the thread's attributes as it published them, filled up
 * with zeros to a whole word. tgid and tid are those of the initial PID namespace. process_start_ns
 * is the group leader's start_boottime: with tgid it names a process for good. */
struct fly_sample {
	__u16 type;		/* FLY_RECORD_SAMPLE */
	__u16 attribute_bytes;	/* at most FLY_ATTRIBUTE_BYTES_MAX */
	__u32 cut;		/* bits 1 << FLY_CUT_x */
	__u64 time_ns;		/* CLOCK_MONOTONIC */
	__u64 weight_ns;	/* CPU time this sample stands for */
	__u64 process_start_ns; /* CLOCK_BOOTTIME */
	__u64 cgroup_id;	/* cgroup v2 id, 0 when unknown */
	__u32 tgid;
	__u32 tid;
	__u32 cpu;
	__u32 state; /* FLY_STATE_x */
	__u16 kernel_frames;
	__u16 user_frames;
	/* What the walk was missing, with FLY_CUT_TABLE_PAGE_ABSENT: table << 16 | page. */
	__u32 detail;
	char comm[FLY_COMM_BYTES]; /* the thread's name, raw bytes */
	__u8 trace_id[16];	   /* FLY_STATE_SPAN: what the thread works for */
	__u8 span_id[8];
	__u64 frames[];
};

/* A program was executed. Says which view of the file system the process has (mount namespace and
 * root directory), so that equal paths in different views are never taken for one file, and which
 * file it runs, as the kernel knows it. Wakes the reader if the program is young (rate-limited). */
struct fly_exec {
	__u16 type; /* FLY_RECORD_EXEC */
	__u16 pad;
	__u32 tgid;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 process_start_ns;
	__u64 cgroup_id;
	__u64 exe_ino;
	__u64 root_ino;
	__u32 exe_dev;	       /* kernel's internal dev_t: MAJOR << 20 | MINOR */
	__u32 root_dev;	       /* likewise */
	__u32 mount_namespace; /* inode number of the namespace */
	__u32 old_tid;	       /* differs from tgid when another thread than the leader executed */
	char comm[FLY_COMM_BYTES];
};

/* Words that follow the head of a sample. */
static inline __u32 fly_sample_words(const struct fly_sample *sample)
{
	return (__u32)sample->kernel_frames + sample->user_frames +
	       ((__u32)sample->attribute_bytes + 7) / 8;
}

_Static_assert(sizeof(struct fly_sample) == 104, "abi: fly_sample");
_Static_assert(sizeof(struct fly_exec) == 80, "abi: fly_exec");

#endif
