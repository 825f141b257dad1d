// SPDX-License-Identifier: GPL-2.0-only
/* One walk of the stack of the process that asks for it, timed. For bench/walk alone. */
#include "bpf/placing.h"
#include "bench/walk_door.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_door);
} fly_door SEC(".maps");

static __always_inline bool prepare(struct fly_scratch *scratch, const struct walk_door *door)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct fly_unwind *unwind = &scratch->unwind;

	if (!regs || !task->mm)
		return 0;
	fly_take_registers(unwind, regs);
	unwind->flags = FLY_KNOWS_REGS;
	unwind->stack_start = task->mm->start_stack;
	unwind->thread_block = task->thread.fsbase;
	unwind->at = door->kind == WALK_PLACED ? FLY_AT_KERNEL : door->at;
	unwind->count = door->count;
	fly_sample_of(scratch)->kernel_frames = 0;
	fly_sample_of(scratch)->user_frames = 0;
	fly_sample_of(scratch)->state = FLY_STATE_IN_SYSCALL;
	fly_sample_of(scratch)->cut = 0;
	scratch->walk_depth = FLY_MAX_FRAMES;
	return 1;
}

SEC("raw_tp")
int walk_door(void *ctx)
{
	__u32 zero = 0;
	struct walk_door *door = bpf_map_lookup_elem(&fly_door, &zero);
	struct fly_scratch *scratch = bpf_map_lookup_elem(&fly_scratch, &zero);
	struct fly_sample *sample;
	__u64 start;
	long got = 0;

	if (!door || !scratch || !prepare(scratch, door))
		return 0;
	if (door->kind == WALK_LEARN)
		return fly_learn(door->at, door->count);
	sample = fly_sample_of(scratch);
	start = bpf_ktime_get_ns();
	scratch->walk_end_ns = start + 1000000000;
	if (door->kind == WALK_KERNEL)
		got = bpf_get_stack(ctx, sample->frames, FLY_MAX_KERNEL_FRAMES * sizeof(__u64),
				    BPF_F_USER_STACK);
	else if (door->kind == WALK_POINTERS)
		fly_walk_user(scratch);
	else
		fly_unwind_user(scratch);
	door->ns = bpf_ktime_get_ns() - start;
	door->frames = door->kind == WALK_KERNEL ? (__u32)got / 8 : sample->user_frames;
	door->cut = sample->cut;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
