// SPDX-License-Identifier: Apache-2.0
/*
 * clockevents: one PERF_COUNT_SW_CPU_CLOCK event per online CPU, the sample clock (CTX-4).
 *
 * Period mode: a "frequency" becomes a period at open anyway, and IOC_PERIOD would then take 19 as
 * 19 ns. The program is attached by a bpf_link, so that others can see who attached what; the link
 * leaves the event disabled.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PHASE_MAX_NS 100000000ULL

int kernel_clock_open(struct kernel_clock_cpu *clock, uint32_t cpu, uint64_t period_ns, int prog_fd,
		      struct why *why)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = period_ns,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
		.disabled = 1,
	};
	int err;

	clock->link_fd = -1;
	clock->is_running = false;
	clock->fd = (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1,
				 (unsigned long)PERF_FLAG_FD_CLOEXEC);
	if (clock->fd < 0) {
		err = -errno;
		clock->fd = -1;
		return why_set(why, err, "the clock event of CPU %u cannot be opened: %s", cpu,
			       strerror(-err));
	}
	clock->link_fd = bpf_link_create(prog_fd, clock->fd, BPF_PERF_EVENT, NULL);
	if (clock->link_fd < 0) {
		err = clock->link_fd;
		close(clock->fd);
		clock->fd = clock->link_fd = -1;
		return why_set(why, err, "the sampling program cannot be attached to CPU %u: %s",
			       cpu, strerror(-err));
	}
	clock->enabled_base_ns = clock->enabled_last_ns = 0;
	return 0;
}

uint64_t kernel_clock_enabled_ns(const struct kernel_clock_cpu *clock)
{
	uint64_t values[2]; /* count, time enabled */

	if (clock->fd < 0 || read(clock->fd, values, sizeof(values)) != sizeof(values))
		return clock->enabled_last_ns;
	return values[1] - clock->enabled_base_ns;
}

int kernel_clock_enable(struct kernel_clock_cpu *clock)
{
	if (ioctl(clock->fd, PERF_EVENT_IOC_ENABLE, 0) < 0)
		return -errno;
	clock->is_running = true;
	return 0;
}

int kernel_clock_pace(struct kernel_clock_cpu *clock, uint64_t period_ns)
{
	if (clock->fd >= 0 && ioctl(clock->fd, PERF_EVENT_IOC_PERIOD, &period_ns) < 0)
		return -errno;
	return 0;
}

/* Returns only when no run of the program is left on that CPU: the kernel disables the event by a
 * call on the CPU itself. */
void kernel_clock_disable(struct kernel_clock_cpu *clock)
{
	if (clock->fd >= 0)
		ioctl(clock->fd, PERF_EVENT_IOC_DISABLE, 0);
	clock->is_running = false;
}

void kernel_clock_close(struct kernel_clock_cpu *clock, uint64_t *total_ns)
{
	if (clock->fd < 0)
		return;
	kernel_clock_disable(clock);
	*total_ns += kernel_clock_enabled_ns(clock);
	close(clock->link_fd);
	close(clock->fd);
	clock->fd = clock->link_fd = -1;
}

struct phase {
	uint64_t at_ns;
	uint32_t cpu;
};

static int by_phase(const void *a, const void *b)
{
	const struct phase *x = a, *y = b;

	return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

static void sleep_until(uint64_t at_ns)
{
	struct timespec at = {.tv_sec = (time_t)(at_ns / 1000000000ULL),
			      .tv_nsec = (long)(at_ns % 1000000000ULL)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

int kernel_clock_start(struct kernel *kernel, struct why *why)
{
	uint64_t width = kernel->period_ns < PHASE_MAX_NS ? kernel->period_ns : PHASE_MAX_NS;
	uint64_t start = clock_monotonic_ns();
	struct phase *phases = mem_array(MEM_KERNEL, kernel->cpu_count, sizeof(*phases));
	size_t count = 0;
	int err = 0;

	if (!phases)
		return why_set(why, -ENOMEM, "no memory for the phases of the CPUs");
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		uint64_t random = cpu * 0x9e3779b97f4a7c15ULL;

		if (kernel->cpus[cpu].clock.fd < 0)
			continue;
		/* Without randomness yet, the spread still differs from CPU to CPU. */
		if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
			random ^= start;
		phases[count++] = (struct phase){start + random % width, cpu};
	}
	qsort(phases, count, sizeof(*phases), by_phase);
	for (size_t i = 0; i < count && !err; i++) {
		sleep_until(phases[i].at_ns);
		err = kernel_clock_enable(&kernel->cpus[phases[i].cpu].clock);
		if (err)
			why_set(why, err, "the clock event of CPU %u cannot be started: %s",
				phases[i].cpu, strerror(-err));
	}
	mem_free(MEM_KERNEL, phases);
	return err;
}
