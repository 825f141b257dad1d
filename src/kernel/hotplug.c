// SPDX-License-Identifier: Apache-2.0
/*
 * hotplug: events follow the CPUs.
 *
 * When a CPU goes offline the kernel takes its events out of their context and does not put them
 * back when it returns: the descriptor stays, dead. So twice a second the list of online CPUs is
 * read; and since a CPU can go and return in between, an event whose enabled time stands still
 * although it runs is dead too. Records of a side-band that was away are lost: said so, that
 * processes are scanned again.
 */
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#define SCAN_NS 500000000ULL

static int open_cpu(struct kernel *kernel, uint32_t cpu, struct why *why)
{
	struct kernel_cpu *slot = &kernel->cpus[cpu];
	/* Edge-triggered: a dead event reports a hang-up for ever. */
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = cpu};
	int err;

	err = kernel_clock_open(&slot->clock, cpu, kernel->period_ns, kernel->sample_fd, why);
	if (err)
		return err;
	err = kernel_sideband_open(&slot->side, cpu, kernel->sideband_bytes, why);
	if (!err && epoll_ctl(kernel->epoll_fd, EPOLL_CTL_ADD, slot->side.fd, &event) < 0)
		err = why_set(why, -errno, "epoll: %s", strerror(errno));
	if (err) {
		kernel_sideband_close(&slot->side);
		kernel_clock_close(&slot->clock, &slot->enabled_gone_ns);
	}
	return err;
}

static void close_cpu(struct kernel *kernel, uint32_t cpu)
{
	kernel_clock_close(&kernel->cpus[cpu].clock, &kernel->cpus[cpu].enabled_gone_ns);
	kernel_sideband_close(&kernel->cpus[cpu].side);
}

int kernel_cpus_open(struct kernel *kernel, struct why *why)
{
	struct kernel_cpus online;
	int err = kernel_cpus_read("possible", &kernel->possible, why);

	if (!err)
		err = kernel_cpus_read("online", &online, why);
	if (err)
		return err;
	kernel->cpu_count = kernel->possible.limit;
	kernel->sideband_bytes = kernel_sideband_ring_bytes(kernel->possible.count);
	kernel->cpus = mem_array(MEM_KERNEL, kernel->cpu_count, sizeof(*kernel->cpus));
	if (!kernel->cpus)
		return why_set(why, -ENOMEM, "no memory for %u CPUs", kernel->cpu_count);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		struct kernel_cpu *slot = &kernel->cpus[cpu];

		slot->clock.fd = slot->clock.link_fd = slot->side.fd = -1;
	}
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		if (!kernel_cpus_has(&online, cpu))
			continue;
		err = open_cpu(kernel, cpu, why);
		/* Gone since the list was read: the next look will see. */
		if (err == -ENODEV)
			err = 0;
		if (err)
			return kernel_explain(why, err);
	}
	return 0;
}

void kernel_cpus_close(struct kernel *kernel)
{
	for (uint32_t cpu = 0; kernel->cpus && cpu < kernel->cpu_count; cpu++)
		close_cpu(kernel, cpu);
	mem_free(MEM_KERNEL, kernel->cpus);
	kernel->cpus = NULL;
}

static bool is_dead(struct kernel_clock_cpu *clock)
{
	uint64_t enabled = kernel_clock_enabled_ns(clock);
	bool dead = enabled == clock->enabled_last_ns;

	clock->enabled_last_ns = enabled;
	return dead;
}

static void reopen_cpu(struct kernel *kernel, uint32_t cpu)
{
	struct kernel_cpu *slot = &kernel->cpus[cpu];
	struct why why = {""};

	if (open_cpu(kernel, cpu, &why)) {
		log_debug("%s", why.text);
		return;
	}
	ioctl(slot->side.fd, PERF_EVENT_IOC_ENABLE, 0);
	kernel_clock_enable(&slot->clock);
	log_debug("CPU %u is sampled again", cpu);
}

void kernel_cpus_follow(struct kernel *kernel, uint64_t now_ns)
{
	struct kernel_cpus online;

	if (!kernel->is_running || now_ns - kernel->scan_ns < SCAN_NS)
		return;
	kernel->scan_ns = now_ns;
	if (kernel_cpus_read("online", &online, NULL))
		return;
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		struct kernel_clock_cpu *clock = &kernel->cpus[cpu].clock;
		bool is_online = kernel_cpus_has(&online, cpu);

		if (clock->fd >= 0 && (!is_online || is_dead(clock))) {
			kernel_cpu_lost(kernel, cpu);
			close_cpu(kernel, cpu);
		}
		if (clock->fd < 0 && is_online)
			reopen_cpu(kernel, cpu);
	}
}
