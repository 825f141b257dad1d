/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All maps. Their sizes are planned by src/kernel/plan.c before anything is created (MEM-1); maps
 * of a target that is not asked for are not created. Weak, so that the linker joins them.
 */
#ifndef FLYBALL_BPF_MAPS_H
#define FLYBALL_BPF_MAPS_H

#include "types.h"

#include <bpf/bpf_helpers.h>

#include "abi/control.h"
#include "abi/records.h"
#include "abi/span_place.h"
#include "abi/table_space.h"

/* Two pages. User space writes through mmap; BPF reads, and writes what says so. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fly_control);
} fly_control __weak SEC(".maps");

/* sizeof(fly_counters) * 2 per possible CPU. BPF writes, user space sums. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLY_COUNTERS_SETS);
	__type(key, __u32);
	__type(value, struct fly_counters);
} fly_counters __weak SEC(".maps");

/* 24 KiB. BPF only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << FLY_SHARE_BITS);
	__type(key, __u32);
	__type(value, struct fly_share);
} fly_shares __weak SEC(".maps");

/* Size from --ring. BPF writes, user space reads. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} fly_ring __weak SEC(".maps");

/* FLY_TARGET_TASKS. Elements live and die with their tasks. User space and fly_fork write. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} fly_marks __weak SEC(".maps");

/* FLY_TARGET_CGROUP: one cgroup v2 directory. User space writes. */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} fly_cgroup __weak SEC(".maps");

/* abi/table_space.h; those of --unwind tables alone. 2 MiB and a page per segment that is there, at
 * most
 * --table-memory. User space writes, through mmap of the segments; BPF reads. */
struct fly_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLY_SEGMENT_BLOCKS);
	__type(key, __u32);
	__uint(value_size, FLY_BLOCK_BYTES);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FLY_SEGMENTS_MAX);
	__type(key, __u32);
	__array(values, struct fly_segment);
} fly_segments __weak SEC(".maps");

/* 132 KiB. User space writes through mmap; BPF reads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLY_TABLES_MAX);
	__type(key, __u32);
	__type(value, struct fly_table);
} fly_tables __weak SEC(".maps");

/* About 100 bytes per entry, --processes. User space writes; BPF reads, and counts samples. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct fly_process);
} fly_processes __weak SEC(".maps");

/* 96 KiB. User space writes; BPF reads. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FLY_SPAN_PROCESSES_MAX);
	__type(key, __u32);
	__type(value, struct fly_span_place);
} fly_spans __weak SEC(".maps");

/* About 150 KiB. BPF only. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLY_FILES_MAX);
	__type(key, struct fly_file_key);
	__type(value, struct fly_file);
} fly_files __weak SEC(".maps");

/* The reader is woken for a program just executed at most once in this time on the whole node: a
 * build executes hundreds per second. */
#define FLY_EXEC_WAKE_NS 4000000ULL

static __always_inline struct fly_control *fly_control_get(void)
{
	__u32 zero = 0;
	struct fly_control *control = bpf_map_lookup_elem(&fly_control, &zero);

	return control && *(volatile __u32 *)&control->is_on ? control : NULL;
}

/* A mark on the thread or on its group leader: user space can mark leaders only, and a thread that
 * executes becomes the leader with its own mark. A lookup finds nothing while this CPU is inside
 * another storage operation (before 6.2): such a tick counts as filtered, a chance of about
 * 100 ns per fork. */
static __always_inline bool fly_is_marked(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;

	if (leader && bpf_task_storage_get(&fly_marks, leader, 0, 0))
		return 1;
	return bpf_task_storage_get(&fly_marks, task, 0, 0) != NULL;
}

#endif
