// SPDX-License-Identifier: Apache-2.0
/*
 * missed: how many ticks the kernel did not give us.
 *
 * The program is skipped without any counter while another BPF program or a bpf(2) call runs on its
 * CPU, and ticks are late or left out where a hypervisor steals time. What can be known is how many
 * periods the events were enabled for. Ticks left out while the CPU was idle (some virtual machines
 * deliver none then) are no loss, so they are taken off, by the idle time of /proc/stat.
 */
#include "kernel/kernel_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAT_BYTES_PER_CPU 256

/* Idle and iowait of a "cpuN a b c idle iowait ..." line, in clock ticks. */
static bool parse_line(const char *line, uint32_t *ret_cpu, uint64_t *ret_idle)
{
	unsigned long long user, nice, system, idle, iowait;

	if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu", ret_cpu, &user, &nice, &system, &idle,
		   &iowait) != 6)
		return false;
	*ret_idle = idle + iowait;
	return true;
}

void kernel_idle_parse(struct kernel *kernel, const char *text, bool is_start)
{
	uint64_t tick_ns = 1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK), idle;
	uint32_t cpu;

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!parse_line(line, &cpu, &idle) || cpu >= kernel->cpu_count)
			continue;
		kernel->cpus[cpu].idle_ns = idle * tick_ns;
		if (is_start)
			kernel->cpus[cpu].idle_start_ns = idle * tick_ns;
	}
}

void kernel_idle_read(struct kernel *kernel, bool is_start)
{
	size_t size = 4096 + (size_t)kernel->cpu_count * STAT_BYTES_PER_CPU;
	char *text = mem_alloc(MEM_KERNEL, size);

	if (text && kernel_read_text("/proc/stat", text, size) > 0)
		kernel_idle_parse(kernel, text, is_start);
	mem_free(MEM_KERNEL, text);
}

uint64_t kernel_missed(const struct kernel_cpu *cpu, uint64_t period_ns,
		       const struct fly_counters *counters, uint64_t enabled_ns)
{
	/* Each stretch of time has the period it was sampled with. */
	uint64_t expected = cpu->paced_ticks + (enabled_ns - cpu->paced_enabled_ns) / period_ns;
	uint64_t idle_ns = cpu->idle_ns - cpu->idle_start_ns, missed;
	uint64_t idle = cpu->paced_idle + (idle_ns - cpu->paced_idle_ns) / period_ns;

	missed = expected > counters->ticks ? expected - counters->ticks : 0;
	idle = idle > counters->idle ? idle - counters->idle : 0;
	return missed > idle ? missed - idle : 0;
}
