/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The span that the interrupted thread works for, read out of its memory (abi/span_place.h). The
 * thread stands still, so there is nothing to be raced with; a record half written says so itself.
 */
#ifndef FLYBALL_BPF_SPANS_H
#define FLYBALL_BPF_SPANS_H

#include "walking.h"

#define FLY_DTV_UNALLOCATED (~0ULL) /* glibc: this thread has not used the module yet */

/* Where the thread's pointer is; 0: it has none. *ret_absent: its memory is not there. */
static __always_inline __u64 fly_span_pointer(const struct fly_span_place *place, __u64 tp,
					      bool *ret_absent)
{
	__u64 dtv = 0, block = 0, count = 0;
	/* glibc keeps the length in front of element 0, musl in it. */
	__u64 count_at = place->dtv_entry_bytes == 16 ? -16ULL : 0;

	if (!place->module)
		return tp + (__u64)place->offset;
	*ret_absent = 1;
	if (place->module > FLY_DTV_MODULES_MAX ||
	    FLY_WALK_READ(&dtv, sizeof(dtv), tp + sizeof(__u64)) ||
	    FLY_WALK_READ(&count, sizeof(count), dtv + count_at))
		return 0;
	*ret_absent = 0;
	if (place->module > count)
		return 0;
	if (FLY_WALK_READ(&block, sizeof(block), dtv + place->module * place->dtv_entry_bytes)) {
		*ret_absent = 1;
		return 0;
	}
	return !block || block == FLY_DTV_UNALLOCATED ? 0 : block + (__u64)place->offset;
}

static __always_inline bool fly_trace_is_zero(const struct fly_span_record *record)
{
	__u64 halves[2];

	__builtin_memcpy(halves, record->trace_id, sizeof(halves));
	return !(halves[0] | halves[1]);
}

static __always_inline void fly_span_read(struct fly_scratch *scratch,
					  const struct fly_span_place *place, __u64 tp)
{
	struct fly_sample *sample = fly_sample_of(scratch);
	struct fly_span_record record __attribute__((aligned(8)));
	__u64 pointer, address = 0;
	bool is_absent = 0;

	pointer = fly_span_pointer(place, tp, &is_absent);
	if (!is_absent && pointer)
		is_absent = FLY_WALK_READ(&address, sizeof(address), pointer) != 0;
	if (!is_absent && address)
		is_absent = FLY_WALK_READ(&record, sizeof(record), address) != 0;
	if (is_absent) {
		sample->state |= FLY_STATE_SPAN_ABSENT;
		return;
	}
	if (!address)
		return;
	if (record.valid != 1) {
		sample->state |= FLY_STATE_SPAN_INVALID;
		return;
	}
	if (fly_trace_is_zero(&record))
		return;
	__builtin_memcpy(sample->trace_id, record.trace_id, sizeof(record.trace_id));
	__builtin_memcpy(sample->span_id, record.span_id, sizeof(record.span_id));
	sample->state |= FLY_STATE_SPAN;
	sample->attribute_bytes = record.attributes_bytes;
	if (record.attributes_bytes > FLY_ATTRIBUTE_BYTES_MAX) {
		sample->attribute_bytes = FLY_ATTRIBUTE_BYTES_MAX;
		sample->state |= FLY_STATE_ATTRIBUTES_CUT;
	}
	scratch->attributes_at = address + sizeof(record);
}

/* A global function, verified once. */
__noinline int fly_span_take(struct fly_scratch *scratch)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = (__u32)task->tgid;
	const struct fly_span_place *place;
	struct fly_sample *sample;

	if (!scratch || task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	sample = fly_sample_of(scratch);
	place = bpf_map_lookup_elem(&fly_spans, &tgid);
	if (place && place->start_ns == sample->process_start_ns)
		fly_span_read(scratch, place, task->thread.fsbase);
	return 0;
}

/* Behind the frames, when all of them are there. */
__noinline int fly_attributes_take(struct fly_scratch *scratch)
{
	struct fly_sample *sample;
	__u32 at, bytes;

	if (!scratch)
		return 0;
	sample = fly_sample_of(scratch);
	at = (__u32)sample->kernel_frames + sample->user_frames;
	bytes = sample->attribute_bytes;
	FLY_ROWS_OPAQUE(bytes); /* or the compiler hides the bound from the verifier */
	if (at >= FLY_FRAME_SLOTS || bytes > FLY_ATTRIBUTE_BYTES_MAX)
		return 0;
	sample->frames[at + bytes / 8] = 0;
	if (FLY_WALK_READ(sample->frames + at, bytes, scratch->attributes_at)) {
		sample->attribute_bytes = 0;
		sample->state |= FLY_STATE_ATTRIBUTES_ABSENT;
	}
	return 0;
}

#endif
