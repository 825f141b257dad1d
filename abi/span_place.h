/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Trace spans (CTX-3): where user space says that the threads of a process publish what they work
 * for (OTEP 4947), and what BPF reads there.
 *
 * fly_spans: HASH, tgid to struct fly_span_place. Nobody looks there while fly_control's
 * span_processes is 0. BPF takes an element away when its process executes another program.
 */
#ifndef FLYBALL_ABI_SPAN_PLACE_H
#define FLYBALL_ABI_SPAN_PLACE_H

#define FLY_SPAN_PROCESSES_MAX 1024u
#define FLY_DTV_MODULES_MAX    4096u

/* The pointer to a thread's record is at TP + offset, or with a module at DTV[module] + offset. */
struct fly_span_place {
	__u64 start_ns; /* start_boottime of the leader: another means a PID used again */
	__s64 offset;
	__u32 module;
	__u32 dtv_entry_bytes; /* 16: glibc, 8: musl */
};

/* The head of the record, as the specification lays it out. */
struct fly_span_record {
	__u8 trace_id[16];
	__u8 span_id[8];
	__u8 valid; /* 1, or it is being written */
	__u8 trace_flags;
	__u16 attributes_bytes;
};

_Static_assert(sizeof(struct fly_span_place) == 24, "abi: fly_span_place");
_Static_assert(sizeof(struct fly_span_record) == 28, "abi: fly_span_record");

#endif
