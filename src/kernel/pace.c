// SPDX-License-Identifier: Apache-2.0
/*
 * pace: what the governor changes in the kernel while it samples, and what it asks of the ring.
 *
 * The period is one word of the control block, read once by each run of a program, so that the
 * ledger stays exact; then the events of all CPUs are told. That starts the period under way anew:
 * what had passed of it goes into the weight of the next tick, which the program works out from the
 * time of the change.
 */
#include "kernel/kernel_internal.h"

#include <errno.h>

#define PERIOD_LEAST_NS 10000

/* From here on ticks are expected at another period. */
static void close_stretch(struct kernel *kernel)
{
	for (uint32_t i = 0; i < kernel->cpu_count; i++) {
		struct kernel_cpu *cpu = &kernel->cpus[i];
		uint64_t enabled_ns = kernel_enabled_ns(cpu);
		uint64_t idle_ns = cpu->idle_ns - cpu->idle_start_ns;

		cpu->paced_ticks += (enabled_ns - cpu->paced_enabled_ns) / kernel->period_ns;
		cpu->paced_idle += (idle_ns - cpu->paced_idle_ns) / kernel->period_ns;
		cpu->paced_enabled_ns = enabled_ns;
		cpu->paced_idle_ns = idle_ns;
	}
}

static int set_period(struct kernel *kernel, uint64_t period_ns)
{
	int err = 0, failed;

	kernel_idle_read(kernel, false);
	close_stretch(kernel);
	__atomic_store_n(&kernel->control->period_was_ns, kernel->period_ns, __ATOMIC_SEQ_CST);
	__atomic_store_n(&kernel->control->paced_ns, clock_monotonic_ns(), __ATOMIC_SEQ_CST);
	kernel->period_ns = period_ns;
	__atomic_store_n(&kernel->control->period_ns, period_ns, __ATOMIC_SEQ_CST);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		failed = kernel_clock_pace(&kernel->cpus[cpu].clock, period_ns);
		err = err ? err : failed;
	}
	return err;
}

int kernel_pace_set(struct kernel *kernel, const struct kernel_pace *pace)
{
	struct fly_control *control = kernel->control;

	if (pace->period_ns < PERIOD_LEAST_NS || !pace->depth || pace->depth > FLY_MAX_FRAMES)
		return -EINVAL;
	control->state = pace->state;
	control->depth = pace->depth;
	control->unwinder = pace->unwinder < kernel->options.unwinder ? pace->unwinder
								      : kernel->options.unwinder;
	control->cpu_budget_ns = pace->cpu_budget_ns;
	control->is_memory_drop = pace->is_memory_drop;
	control->suppress =
		pace->suppressed_ppm >= 1000000
			? UINT32_MAX
			: (uint32_t)((uint64_t)pace->suppressed_ppm * UINT32_MAX / 1000000);
	return pace->period_ns == kernel->period_ns ? 0 : set_period(kernel, pace->period_ns);
}

void kernel_pace_suppress(struct kernel *kernel)
{
	struct fly_control *control = kernel->control;

	__atomic_store_n(&control->is_memory_drop, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&control->state, FLY_STATE_IS_SUPPRESSED, __ATOMIC_SEQ_CST);
	__atomic_store_n(&control->suppress, UINT32_MAX, __ATOMIC_SEQ_CST);
}

void kernel_pressure_take(struct kernel *kernel, struct kernel_pressure *ret)
{
	uint64_t now = clock_monotonic_ns(), peak;

	peak = __atomic_exchange_n(&kernel->control->unread_peak, 0, __ATOMIC_SEQ_CST);
	*ret = (struct kernel_pressure){0};
	if (peak > kernel->options.ring_bytes)
		peak = kernel->options.ring_bytes;
	ret->ring_used_ppm = (uint32_t)(peak * 1000000 / kernel->options.ring_bytes);
	if (kernel->is_behind && kernel->last_record_ns < now)
		ret->ring_lag_ns = now - kernel->last_record_ns;
}
