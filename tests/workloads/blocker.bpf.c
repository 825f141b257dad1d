// SPDX-License-Identifier: GPL-2.0-only
/*
 * A classic tracepoint program that is busy: while it runs, the kernel skips every perf_event
 * program on that CPU and counts nothing. Runs long only for the process it is told of.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

struct settings {
	__u32 only_pid;
	__u32 rounds;
	__u64 hits;
	__u64 sum;
};

/* 24 bytes; blocker.c writes pid and rounds and reads hits. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

static long busy(__u32 i, void *sum)
{
	*(__u64 *)sum += bpf_get_prandom_u32() + i;
	return 0;
}

SEC("tracepoint/raw_syscalls/sys_enter")
int block(void *ctx)
{
	__u32 zero = 0;
	__u64 sum = 0;
	struct settings *s = bpf_map_lookup_elem(&settings, &zero);

	if (!s || bpf_get_current_pid_tgid() >> 32 != s->only_pid)
		return 0;
	bpf_loop(s->rounds, busy, &sum, 0);
	s->sum = sum; /* so that the loop is not for nothing */
	__sync_fetch_and_add(&s->hits, 1);
	return 0;
}
