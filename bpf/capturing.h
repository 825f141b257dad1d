/* SPDX-License-Identifier: GPL-2.0-only */
/* Part of bpf/sample.bpf.c when that is built with FLY_CAPTURE, for tests alone. */
#ifndef FLYBALL_BPF_CAPTURING_H
#define FLYBALL_BPF_CAPTURING_H

#include "abi/capture.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, CAPTURE_RING_BYTES);
} fly_captures SEC(".maps");

_Static_assert(sizeof(((struct fly_scratch *)0)->record) <= CAPTURE_RECORD_BYTES, "capture: room");

/* step: a page up or down. */
static __always_inline __u32 capture_pages(__u8 (*to)[CAPTURE_PAGE], __u32 count, __u64 at,
					   __u64 step)
{
	__u32 i;

	for (i = 0; i < count; i++) {
		if (bpf_probe_read_user(to[i], CAPTURE_PAGE,
					(const void *)(unsigned long)(at + i * step)))
			break;
	}
	return i;
}

static __always_inline int fly_unwind_captured(struct fly_scratch *scratch)
{
	struct fly_unwind *unwind = &scratch->unwind;
	struct capture *capture;

	/* The host has the mappings of processes that were described. */
	if (fly_sample_of(scratch)->state & FLY_STATE_PLACED)
		return fly_unwind_user(scratch);
	capture = bpf_ringbuf_reserve(&fly_captures, sizeof(*capture), 0);
	if (!capture)
		return fly_unwind_user(scratch);
	__builtin_memcpy(capture->regs, unwind->regs, sizeof(capture->regs));
	capture->pc = unwind->walk.pc;
	capture->stack_start = unwind->stack_start;
	capture->thread_block = unwind->thread_block;
	capture->is_exact = !!(unwind->flags & FLY_IS_EXACT);
	/* The red zone lies below. */
	capture->at = (unwind->walk.sp - 128) & ~(__u64)(CAPTURE_PAGE - 1);
	fly_unwind_user(scratch);
	capture->pages = capture_pages(capture->stack, CAPTURE_PAGES, capture->at, CAPTURE_PAGE);
	capture->base_at = unwind->walk.base & ~(__u64)(CAPTURE_PAGE - 1);
	capture->base_pages = capture_pages(capture->base, CAPTURE_BASE_PAGES, capture->base_at,
					    -(__u64)CAPTURE_PAGE);
	bpf_probe_read_kernel(capture->record, sizeof(scratch->record), scratch->record);
	bpf_ringbuf_submit(capture, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
