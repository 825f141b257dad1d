// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs on scheduler tracepoints, all tp_btf (a classic tracepoint program would blind every
 * sampler on its CPU while it runs, ours included).
 *
 * fly_exec says which file a process now runs and how it sees the file system, and wakes the
 * reader, since the program may be gone 20 ms later. fly_fork hands marks down. They count in
 * their own set of counters, atomically: the sampling program interrupts them, and tasks preempt
 * each other here.
 */
#include "maps.h"

#include <bpf/bpf_tracing.h>

static __always_inline struct fly_counters *process_counters(void)
{
	__u32 set = FLY_COUNTERS_PROCESS;

	return bpf_map_lookup_elem(&fly_counters, &set);
}

static __always_inline void count(__u64 *counter, __u64 by)
{
	__sync_fetch_and_add(counter, by);
}

/* A program that comes too soon after another is woken for by the next sample that is late enough.
 */
static __always_inline __u64 exec_wake_flags(struct fly_control *control, __u64 now)
{
	if (now - control->exec_wake_ns < FLY_EXEC_WAKE_NS) {
		control->is_exec_waiting = 1;
		return BPF_RB_NO_WAKEUP;
	}
	control->exec_wake_ns = now;
	control->is_exec_waiting = 0;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline void fill_exec(struct fly_exec *exec, struct task_struct *task,
				      struct linux_binprm *bprm)
{
	struct inode *exe = bprm->file->f_inode;
	struct inode *root = task->fs->root.dentry->d_inode;

	exec->type = FLY_RECORD_EXEC;
	exec->pad = 0;
	exec->tgid = (__u32)task->tgid;
	exec->process_start_ns = task->group_leader->start_boottime;
	exec->cgroup_id = bpf_get_current_cgroup_id();
	exec->exe_ino = exe->i_ino;
	exec->exe_dev = exe->i_sb->s_dev;
	exec->root_ino = root->i_ino;
	exec->root_dev = root->i_sb->s_dev;
	exec->mount_namespace = task->nsproxy->mnt_ns->ns.inum;
	bpf_get_current_comm(exec->comm, sizeof(exec->comm));
}

static __always_inline int on_exec(struct task_struct *task, int old_tid, struct linux_binprm *bprm,
				   bool is_marked_only)
{
	struct fly_counters *counters = process_counters();
	struct fly_control *control = fly_control_get();
	struct fly_exec exec = {0};
	__u32 tgid = (__u32)task->tgid;
	__u64 flags;

	if (!control || !counters)
		return 0;
	if (is_marked_only && !fly_is_marked(task))
		return 0;
	/* What was mapped is gone; and who reads the record below enters it anew. */
	bpf_map_delete_elem(&fly_processes, &tgid);
	bpf_map_delete_elem(&fly_spans, &tgid);
	exec.time_ns = bpf_ktime_get_ns();
	exec.old_tid = (__u32)old_tid;
	fill_exec(&exec, task, bprm);
	flags = exec_wake_flags(control, exec.time_ns);
	if (bpf_ringbuf_output(&fly_ring, &exec, sizeof(exec), flags)) {
		count(&counters->execs_lost, 1);
	} else {
		count(&counters->execs, 1);
		count(&counters->wakeups, flags == BPF_RB_FORCE_WAKEUP);
	}
	count(&counters->runs, 1);
	count(&counters->run_ns, bpf_ktime_get_ns() - exec.time_ns);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(fly_exec, struct task_struct *task, int old_tid, struct linux_binprm *bprm)
{
	return on_exec(task, old_tid, bprm, 0);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(fly_exec_task, struct task_struct *task, int old_tid, struct linux_binprm *bprm)
{
	return on_exec(task, old_tid, bprm, 1);
}

/* Runs before the child does, for processes and threads alike: a thread's own mark is what is left
 * when it executes and takes the leader's place. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(fly_fork, struct task_struct *parent, struct task_struct *child)
{
	struct fly_counters *counters = process_counters();
	__u64 start_ns;

	if (!counters || !fly_is_marked(parent))
		return 0;
	start_ns = bpf_ktime_get_ns();
	if (!bpf_task_storage_get(&fly_marks, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE))
		count(&counters->marks_lost, 1);
	count(&counters->runs, 1);
	count(&counters->run_ns, bpf_ktime_get_ns() - start_ns);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
