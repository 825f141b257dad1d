// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sampling programs: one run per tick of a CPU's cpu-clock event, in hard interrupt context.
 *
 * The order is fixed, cheapest and most decisive first: control block, tick, idle, target, taken,
 * suppressed, ring watermark, this CPU's time budget (before the context and any user memory are
 * read: RING-2), trace span, kernel stack, user registers, user stack, the span's attributes, ring.
 * Whatever happens after taken++, exactly one of submitted and dropped[] goes up.
 */
#include "placing.h"
#include "spans.h"

#ifdef FLY_CAPTURE /* tests want registers and stack beside each walk */
#include "capturing.h"
#else
#define fly_unwind_captured fly_unwind_user
#endif

/* What one run works with. */
struct run {
	struct fly_perf_context *ctx;
	struct fly_control *control;
	struct fly_counters *counters;
	struct fly_scratch *scratch;
	struct task_struct *task;
	struct fly_share *share; /* of the task's cgroup */
	__u64 time_ns;
	__u64 weight_ns; /* read once: the period may change meanwhile, and the ledger is exact */
	__u64 unread_bytes;
	__u32 depth;	    /* user frames */
	__u32 kernel_depth; /* kernel frames */
};

static __always_inline void take_kernel_stack(struct run *run, struct fly_sample *sample)
{
	__u32 depth = run->kernel_depth, count;
	__u32 want = depth + 1; /* one more than wanted tells whether it was cut */
	long got;

	if (!depth)
		return;
	if (want > FLY_MAX_KERNEL_FRAMES)
		want = FLY_MAX_KERNEL_FRAMES;
	got = bpf_get_stack(run->ctx, sample->frames, want * sizeof(__u64), 0);
	if (got <= 0)
		return;
	count = (__u32)got / sizeof(__u64);
	if (count > depth || count >= FLY_MAX_KERNEL_FRAMES) {
		sample->cut |= 1u << FLY_CUT_KERNEL_DEPTH_LIMIT;
		if (sample->state & FLY_STATE_PRESSURE)
			sample->cut |= 1u << FLY_CUT_RING_PRESSURE;
		if (count > depth)
			count = depth;
	}
	sample->kernel_frames = (__u16)(count & FLY_MAX_KERNEL_FRAMES);
}

/* Finds the registers the thread has in user mode; false when it has none. */
static __always_inline bool take_user_registers(struct run *run, struct fly_sample *sample,
						struct fly_unwind *unwind)
{
	struct task_struct *task = run->task;
	__u64 cs = run->ctx->regs.cs & 0xffff;
	struct pt_regs *regs;
	__u32 flags = task->flags;

	unwind->flags = FLY_KNOWS_REGS | FLY_IS_EXACT;
	if (cs & 3) {
		fly_take_registers(unwind, &run->ctx->regs);
	} else if (flags & PF_KTHREAD) {
		sample->state |= FLY_STATE_KERNEL_THREAD;
		return 0;
	} else if (flags & (PF_IO_WORKER | PF_USER_WORKER)) {
		sample->state |= FLY_STATE_IO_WORKER;
		return 0;
	} else {
		regs = (struct pt_regs *)bpf_task_pt_regs(task);
		cs = task->mm && regs ? regs->cs & 0xffff : 0;
		if (!(cs & 3)) {
			sample->cut |= 1u << FLY_CUT_NO_USER_REGISTERS;
			return 0;
		}
		fly_take_registers(unwind, regs);
		/* An io_uring worker that ends has given its flag back. */
		if (!unwind->walk.pc && !unwind->walk.sp) {
			sample->state |= FLY_STATE_IO_WORKER;
			return 0;
		}
		/* Interrupts and exceptions leave -1 here, system calls their number. */
		if (regs->orig_ax != (unsigned long)-1) {
			sample->state |= FLY_STATE_IN_SYSCALL;
			unwind->flags = FLY_KNOWS_REGS;
		}
	}
	if (cs == USER_CS_32)
		sample->state |= FLY_STATE_COMPAT;
	unwind->stack_start = task->mm->start_stack;
	unwind->thread_block = task->thread.fsbase;
	return 1;
}

static __always_inline void take_user_stack(struct run *run, struct fly_sample *sample,
					    __u32 unwinder)
{
	struct fly_scratch *scratch = run->scratch;
	bool is_due = 0;

	if (!take_user_registers(run, sample, &scratch->unwind))
		return;
	if (sample->state & FLY_STATE_COMPAT) {
		fly_put_frame(scratch, 0, scratch->unwind.walk.pc);
		sample->cut |= 1u << FLY_CUT_COMPAT_TASK;
		sample->user_frames = 1;
		return;
	}
	scratch->walk_depth = run->depth;
	if (unwinder != FLY_UNWIND_TABLES || run->control->unwinder != FLY_UNWIND_TABLES ||
	    sample->state & FLY_STATE_PRESSURE) {
		fly_walk_user(scratch);
		return;
	}
	sample->state |= FLY_STATE_TABLES;
	scratch->walk_end_ns = run->time_ns + run->control->walk_ns;
	if (fly_find_process(sample, &scratch->unwind, &is_due)) {
		if (is_due)
			fly_learn(scratch->unwind.at, scratch->unwind.count);
	} else {
		sample->state |= FLY_STATE_PLACED;
		scratch->unwind.at = FLY_AT_KERNEL;
	}
	fly_unwind_captured(scratch);
}

static __always_inline void fill_header(struct run *run, struct fly_sample *sample)
{
	struct task_struct *task = run->task;

	sample->type = FLY_RECORD_SAMPLE;
	sample->attribute_bytes = 0;
	sample->cut = 0;
	sample->time_ns = run->time_ns;
	sample->weight_ns = run->weight_ns;
	sample->process_start_ns = task->group_leader->start_boottime;
	sample->cgroup_id = bpf_get_current_cgroup_id();
	sample->tgid = (__u32)task->tgid;
	sample->tid = (__u32)task->pid;
	sample->cpu = bpf_get_smp_processor_id();
	sample->state = run->ctx->regs.cs & 3 ? 0 : FLY_STATE_IN_KERNEL;
	sample->kernel_frames = 0;
	sample->user_frames = 0;
	sample->detail = 0;
	bpf_get_current_comm(sample->comm, sizeof(sample->comm));
}

/* A NO_WAKEUP record never wakes anybody, so one in between is forced (CPU-5): when much is unread,
 * once until the reader has been there, and when a young program waits to be looked at. */
static __always_inline __u64 wake_flags(struct run *run)
{
	struct fly_control *control = run->control;

	if (run->unread_bytes > control->wake_bytes && !*(volatile __u32 *)&control->is_woken) {
		control->is_woken = 1;
		return BPF_RB_FORCE_WAKEUP;
	}
	if (control->is_exec_waiting && run->time_ns - control->exec_wake_ns >= FLY_EXEC_WAKE_NS) {
		control->is_exec_waiting = 0;
		control->exec_wake_ns = run->time_ns;
		return BPF_RB_FORCE_WAKEUP;
	}
	return BPF_RB_NO_WAKEUP;
}

static __always_inline void drop(struct run *run, __u32 reason)
{
	run->counters->dropped[reason]++;
	run->counters->dropped_ns[reason] += run->weight_ns;
}

static __always_inline void submit(struct run *run, struct fly_sample *sample)
{
	struct fly_counters *counters = run->counters;
	__u64 flags = wake_flags(run), bytes;
	__u32 words;

	if (sample->attribute_bytes)
		fly_attributes_take(run->scratch);
	words = fly_sample_words(sample);
	if (words > FLY_RECORD_WORDS)
		words = FLY_RECORD_WORDS;
	bytes = sizeof(*sample) + words * sizeof(__u64);
	if (bpf_ringbuf_output(&fly_ring, sample, bytes, flags)) {
		drop(run, FLY_DROP_RING_FULL);
		if (flags == BPF_RB_FORCE_WAKEUP)
			run->control->is_woken = 0; /* nothing was written, so nobody was woken */
		return;
	}
	if (run->share) {
		__sync_fetch_and_add(&run->share->bytes, bytes);
		__sync_fetch_and_add(&run->control->shared_bytes, bytes);
	}
	counters->submitted++;
	counters->submitted_ns += sample->weight_ns;
	counters->wakeups += flags == BPF_RB_FORCE_WAKEUP;
}

/* Whether this CPU has had its share. One whose walks are dear does not pay with what others save:
 * the governor sees the node's mean, and ten times a second. */
static __always_inline bool is_over_budget(struct run *run)
{
	__u64 budget_ns = run->control->cpu_budget_ns;
	struct fly_scratch *scratch = run->scratch;

	if (!budget_ns)
		return 0;
	if (run->time_ns - scratch->window_ns >= FLY_BUDGET_WINDOW_NS) {
		scratch->window_ns = run->time_ns;
		scratch->spent_ns = 0;
	}
	return scratch->spent_ns >= budget_ns;
}

/* Whether the task's cgroup has more of the ring than is fair to those that need it, too. Asked
 * from the middle of what is above the watermark on: there samples were shallow first. */
static __always_inline bool is_over_share(struct run *run, __u64 cgroup_id)
{
	__u32 slot = fly_share_of(cgroup_id), epoch = *(volatile __u32 *)&run->control->ring_epoch;
	struct fly_share *share = bpf_map_lookup_elem(&fly_shares, &slot);
	struct fly_control *control = run->control;

	run->share = share;
	if (!share)
		return 0;
	if (share->epoch != epoch) {
		share->epoch = epoch;
		share->bytes = 0;
		__sync_fetch_and_add(&control->sharers, 1);
	}
	if (run->unread_bytes * 2 <= control->watermark_bytes + control->sample_bytes ||
	    share->bytes * control->sharers * 4 <= control->shared_bytes * 5)
		return 0;
	__sync_fetch_and_add(&share->lost, 1);
	return 1;
}

static __always_inline void take_sample(struct run *run, __u32 unwinder)
{
	struct fly_control *control = run->control;
	struct fly_sample *sample = fly_sample_of(run->scratch);
	__u32 depth = control->depth, kernel_depth = control->kernel_depth;
	bool is_pressed;

	run->unread_bytes = bpf_ringbuf_query(&fly_ring, BPF_RB_AVAIL_DATA);
	if (run->unread_bytes > control->unread_peak)
		control->unread_peak = run->unread_bytes;
	if (run->unread_bytes > control->sample_bytes)
		return drop(run, FLY_DROP_RING_FULL);
	is_pressed = run->unread_bytes > control->watermark_bytes;
	if (is_over_budget(run))
		return drop(run, FLY_DROP_SUPPRESSED);
	if (is_pressed && depth > FLY_PRESSURE_FRAMES)
		depth = FLY_PRESSURE_FRAMES;
	if (is_pressed && kernel_depth > FLY_PRESSURE_FRAMES)
		kernel_depth = FLY_PRESSURE_FRAMES;
	run->depth = depth > FLY_MAX_FRAMES ? FLY_MAX_FRAMES : depth;
	run->kernel_depth =
		kernel_depth > FLY_MAX_KERNEL_FRAMES ? FLY_MAX_KERNEL_FRAMES : kernel_depth;
	fill_header(run, sample);
	if (is_over_share(run, sample->cgroup_id))
		return drop(run, FLY_DROP_RING_FULL);
	if (is_pressed)
		sample->state |= FLY_STATE_PRESSURE;
	if (*(volatile __u32 *)&control->span_processes)
		fly_span_take(run->scratch);
	if (sample->state & FLY_STATE_IN_KERNEL)
		take_kernel_stack(run, sample);
	take_user_stack(run, sample, unwinder);
	submit(run, sample);
}

/* Threads that ran when their process was marked get a mark of their own when first met: one of
 * them may execute, and then the leader with the mark is gone. */
static __always_inline bool is_marked_target(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;

	if (bpf_task_storage_get(&fly_marks, task, 0, 0))
		return 1;
	if (!leader || !bpf_task_storage_get(&fly_marks, leader, 0, 0))
		return 0;
	bpf_task_storage_get(&fly_marks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 1;
}

static __always_inline bool is_target(__u32 target, struct task_struct *task)
{
	if (target == FLY_TARGET_TASKS)
		return is_marked_target(task);
	if (target == FLY_TARGET_CGROUP)
		return bpf_current_task_under_cgroup(&fly_cgroup, 0) == 1;
	return 1;
}

/* The governor's last resort: dropped before anything is read, and counted. */
static __always_inline bool is_suppressed(struct run *run)
{
	__u32 suppress = run->control->suppress;

	if (!suppress || (suppress != ~0u && bpf_get_prandom_u32() >= suppress))
		return 0;
	if (run->control->is_memory_drop)
		drop(run, FLY_DROP_MEMORY_PRESSURE);
	else
		drop(run, FLY_DROP_SUPPRESSED);
	return 1;
}

/* The period. A change of it starts the one under way anew, so the first tick after a change also
 * stands for what had passed of the old one: without that a rate changed often loses time. */
static __always_inline __u64 weigh(struct fly_control *control, struct fly_scratch *scratch,
				   __u64 time_ns)
{
	__u64 period_ns = *(volatile __u64 *)&control->period_ns;
	__u64 paced_ns = *(volatile __u64 *)&control->paced_ns;
	__u64 was_ns = control->period_was_ns, since_ns = scratch->tick_ns;

	scratch->tick_ns = time_ns;
	if (paced_ns == scratch->paced_ns)
		return period_ns;
	if (since_ns < scratch->paced_ns)
		since_ns = scratch->paced_ns;
	scratch->paced_ns = paced_ns;
	/* Later ticks mean that the first one found the CPU idle. */
	if (!since_ns || paced_ns < since_ns || time_ns - paced_ns >= period_ns + period_ns / 2)
		return period_ns;
	return period_ns + (was_ns ? (paced_ns - since_ns) % was_ns : 0);
}

static __always_inline void tick(struct run *run, __u32 target, __u32 unwinder)
{
	struct fly_counters *counters = run->counters;
	struct fly_scratch *scratch = run->scratch;

	counters->ticks++;
	run->task = bpf_get_current_task_btf();
	if (!run->task->pid) {
		counters->idle++;
		return;
	}
	if (!is_target(target, run->task)) {
		counters->filtered++;
		return;
	}
	counters->taken++;
	counters->taken_ns += run->weight_ns;
	if (is_suppressed(run))
		return;
	if (scratch->is_busy) {
		drop(run, FLY_DROP_SCRATCH_BUSY);
		return;
	}
	scratch->is_busy = 1;
	take_sample(run, unwinder);
	scratch->is_busy = 0;
}

static __always_inline int run_for(struct fly_perf_context *ctx, __u32 target, __u32 unwinder)
{
	__u32 set = FLY_COUNTERS_SAMPLE, zero = 0;
	struct run run = {.ctx = ctx, .control = fly_control_get()};
	__u64 took_ns;

	if (!run.control)
		return 0;
	run.time_ns = bpf_ktime_get_ns();
	run.counters = bpf_map_lookup_elem(&fly_counters, &set);
	run.scratch = bpf_map_lookup_elem(&fly_scratch, &zero);
	if (!run.counters || !run.scratch)
		return 0;
	run.weight_ns = weigh(run.control, run.scratch, run.time_ns);
	tick(&run, target, unwinder);
	took_ns = bpf_ktime_get_ns() - run.time_ns;
	run.scratch->spent_ns += took_ns;
	run.counters->runs++;
	run.counters->run_ns += took_ns;
	return 0;
}

SEC("perf_event")
int fly_sample(struct fly_perf_context *ctx)
{
	return run_for(ctx, FLY_TARGET_ALL, FLY_UNWIND_FRAME_POINTERS);
}

SEC("perf_event")
int fly_sample_task(struct fly_perf_context *ctx)
{
	return run_for(ctx, FLY_TARGET_TASKS, FLY_UNWIND_FRAME_POINTERS);
}

SEC("perf_event")
int fly_sample_cgrp(struct fly_perf_context *ctx)
{
	return run_for(ctx, FLY_TARGET_CGROUP, FLY_UNWIND_FRAME_POINTERS);
}

SEC("perf_event")
int fly_unwind(struct fly_perf_context *ctx)
{
	return run_for(ctx, FLY_TARGET_ALL, FLY_UNWIND_TABLES);
}

SEC("perf_event")
int fly_unwind_task(struct fly_perf_context *ctx)
{
	return run_for(ctx, FLY_TARGET_TASKS, FLY_UNWIND_TABLES);
}

SEC("perf_event")
int fly_unwind_cgrp(struct fly_perf_context *ctx)
{
	return run_for(ctx, FLY_TARGET_CGROUP, FLY_UNWIND_TABLES);
}

char LICENSE[] SEC("license") = "GPL";
