/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What bench_span_reads asks of its BPF program. The includer provides __u32 and __u64. */
#ifndef FLYBALL_BENCH_SPAN_DOOR_H
#define FLYBALL_BENCH_SPAN_DOOR_H

#define SPAN_DOOR_CALLS 1000

struct span_door {
	__u32 has_spans; /* 0: nothing but the loop */
	__u32 state, attribute_bytes;
	__u32 pad;
	__u64 ns;	/* of SPAN_DOOR_CALLS */
	__u64 start_ns; /* of the process */
};

#endif
