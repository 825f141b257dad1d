// SPDX-License-Identifier: GPL-2.0-only
/* Reads the span of the thread that asks for it, many times, timed. For bench/spans alone. */
#include "bpf/placing.h"
#include "bpf/spans.h"
#include "bench/span_door.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct span_door);
} fly_door SEC(".maps");

struct calls {
	struct fly_scratch *scratch;
	__u32 has_spans;
};

static long call(__u32 index, struct calls *calls)
{
	struct fly_sample *sample = fly_sample_of(calls->scratch);

	sample->state = 0;
	sample->attribute_bytes = 0;
	if (calls->has_spans)
		fly_span_take(calls->scratch);
	if (sample->attribute_bytes)
		fly_attributes_take(calls->scratch);
	return 0;
}

SEC("raw_tp")
int span_door(void *ctx)
{
	__u32 zero = 0;
	struct span_door *door = bpf_map_lookup_elem(&fly_door, &zero);
	struct calls calls = {.scratch = bpf_map_lookup_elem(&fly_scratch, &zero)};
	struct fly_sample *sample;
	__u64 start;

	if (!door || !calls.scratch)
		return 0;
	calls.has_spans = door->has_spans;
	sample = fly_sample_of(calls.scratch);
	sample->process_start_ns = bpf_get_current_task_btf()->group_leader->start_boottime;
	sample->kernel_frames = sample->user_frames = 0;
	start = bpf_ktime_get_ns();
	bpf_loop(SPAN_DOOR_CALLS, call, &calls, 0);
	door->ns = bpf_ktime_get_ns() - start;
	door->state = sample->state;
	door->start_ns = sample->process_start_ns;
	door->attribute_bytes = sample->attribute_bytes;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
