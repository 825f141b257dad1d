// SPDX-License-Identifier: Apache-2.0
/*
 * kernel: open, run, drain, account.
 *
 * One poll takes what the rings hold into the order queue and gives out what is old enough. Work
 * per poll is bounded by the ring's size twice over; when that did not reach the ring's end, only
 * what is older than the last record read is given out.
 *
 * Nothing waits longer than it must for a program just executed: it may live for 20 ms, and its
 * file must be opened before. All up to its exec is given out at once; what another CPU wrote
 * before that is there by then, but for a stall, and then it comes late.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bpf/flyball.skel.h"

#define HOLD_NS	       2000000ULL /* longer than a record takes from its time to its ring */
#define FOLLOW_NS      5000000ULL /* after an exec the loader has mapped the libraries by then */
#define ORDER_BYTES    (4u << 20)
#define SCRATCH_BYTES  65536 /* perf records have 16-bit sizes */
#define RING_EPOLL_TAG UINT32_MAX

/* ---------------------------------------------------------------- from rings to the queue */
static void reject(struct kernel *kernel, uint64_t weight_ns)
{
	kernel->invalid++;
	kernel->invalid_ns += weight_ns;
}

static bool is_sample_valid(const struct fly_sample *sample, size_t bytes)
{
	if (bytes < sizeof(*sample))
		return false;
	if (sample->kernel_frames > FLY_MAX_KERNEL_FRAMES || sample->user_frames > FLY_MAX_FRAMES ||
	    sample->attribute_bytes > FLY_ATTRIBUTE_BYTES_MAX)
		return false;
	return bytes == sizeof(*sample) + (size_t)fly_sample_words(sample) * 8;
}

static int on_record(void *ctx, void *data, size_t bytes)
{
	struct kernel *kernel = ctx;
	const struct fly_sample *sample = data;
	const struct fly_exec *exec = data;
	uint16_t type = bytes >= sizeof(type) ? *(const uint16_t *)data : 0;

	if (type == FLY_RECORD_EXEC && bytes == sizeof(*exec)) {
		kernel->last_record_ns = kernel->last_exec_ns = exec->time_ns;
		if (kernel_order_add(&kernel->order, exec->time_ns, KERNEL_EVENT_EXEC, data, bytes,
				     NULL, 0))
			kernel->execs_lost++;
	} else if (type == FLY_RECORD_SAMPLE && is_sample_valid(sample, bytes)) {
		kernel->last_record_ns = sample->time_ns;
		if (kernel_order_add(&kernel->order, sample->time_ns, KERNEL_EVENT_SAMPLE, data,
				     bytes, NULL, 0))
			reject(kernel, sample->weight_ns);
	} else {
		reject(kernel, kernel->period_ns);
	}
	if (kernel->ring_budget <= bytes) {
		kernel->is_behind = true;
		return -EAGAIN;
	}
	kernel->ring_budget -= bytes;
	return 0;
}

static void on_sideband(void *ctx, const struct kernel_event *event, const char *text)
{
	struct kernel *kernel = ctx;

	if (event->type == KERNEL_EVENT_LOST)
		kernel->sideband_lost += event->lost;
	if (kernel_order_add(&kernel->order, event->time_ns, event->type, event, sizeof(*event),
			     text, text ? strlen(text) + 1 : 0))
		kernel->sideband_lost++;
}

void kernel_cpu_lost(struct kernel *kernel, uint32_t cpu)
{
	struct kernel_event event = {
		.type = KERNEL_EVENT_LOST, .time_ns = clock_monotonic_ns(), .lost = 1};

	kernel_sideband_drain(&kernel->cpus[cpu].side, kernel->scratch, on_sideband, kernel);
	on_sideband(kernel, &event, NULL);
}

/* ---------------------------------------------------------------- from the queue to the caller */
static void give(void *ctx, uint32_t kind, const void *data, size_t bytes)
{
	struct kernel *kernel = ctx;
	struct kernel_event event = {.type = kind};
	const char *text;

	if (kind == KERNEL_EVENT_SAMPLE) {
		event.sample = data;
		event.time_ns = event.sample->time_ns;
		event.tgid = event.sample->tgid;
		event.tid = event.sample->tid;
	} else if (kind == KERNEL_EVENT_EXEC) {
		event.exec = data;
		event.time_ns = event.exec->time_ns;
		event.tgid = event.tid = event.exec->tgid;
	} else {
		memcpy(&event, data, sizeof(event));
		text = bytes > sizeof(event) ? (const char *)data + sizeof(event) : "";
		if (kind == KERNEL_EVENT_MMAP)
			event.mmap.path = text;
		else if (kind == KERNEL_EVENT_COMM)
			event.comm.comm = text;
		else if (kind == KERNEL_EVENT_KSYMBOL)
			event.ksymbol.name = text;
	}
	kernel->given++;
	kernel->fn(kernel->ctx, &event);
}

static void drain(struct kernel *kernel)
{
	kernel->ring_budget = 2 * kernel->options.ring_bytes;
	kernel->is_behind = false;
	ring_buffer__consume(kernel->ring);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++)
		kernel_sideband_drain(&kernel->cpus[cpu].side, kernel->scratch, on_sideband,
				      kernel);
}

/* Takes the readiness out of the edge-triggered descriptors. */
static void clear_epoll(struct kernel *kernel)
{
	struct epoll_event events[16];

	for (int i = 0; i < 64 && epoll_wait(kernel->epoll_fd, events, 16, 0) == 16; i++)
		;
}

/* The ring was empty: who needs how much of it is counted anew. */
static void begin_shares(struct fly_control *control)
{
	__atomic_store_n(&control->shared_bytes, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&control->sharers, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&control->ring_epoch, control->ring_epoch + 1, __ATOMIC_SEQ_CST);
}

int kernel_poll(struct kernel *kernel, bool is_final, kernel_event_fn fn, void *ctx)
{
	uint64_t now = clock_monotonic_ns(), until = now - HOLD_NS;

	kernel->fn = fn;
	kernel->ctx = ctx;
	kernel->given = 0;
	clear_epoll(kernel);
	/* Before the drain: what is written from here on may be worth a wake-up again. */
	__atomic_store_n(&kernel->control->is_woken, 0, __ATOMIC_SEQ_CST);
	kernel_cpus_follow(kernel, now);
	drain(kernel);
	while (is_final && kernel->is_behind)
		drain(kernel);
	if (!kernel->is_behind)
		begin_shares(kernel->control);
	if (kernel->is_behind && kernel->last_record_ns - HOLD_NS < until)
		until = kernel->last_record_ns - HOLD_NS;
	if (kernel->last_exec_ns > until)
		until = kernel->last_exec_ns;
	kernel_order_give(&kernel->order, is_final ? UINT64_MAX : until);
	return (int)kernel->given;
}

static bool is_about_files(uint32_t kind)
{
	return kind == KERNEL_EVENT_EXEC || kind == KERNEL_EVENT_MMAP || kind == KERNEL_EVENT_FORK;
}

int kernel_poll_ms(const struct kernel *kernel, int most_ms)
{
	uint64_t now = clock_monotonic_ns(), due = now + (uint64_t)most_ms * 1000000;

	if (kernel->last_exec_ns + FOLLOW_NS > now && kernel->last_exec_ns + FOLLOW_NS < due)
		due = kernel->last_exec_ns + FOLLOW_NS;
	for (size_t i = 0; i < kernel->order.count; i++) {
		const struct kernel_order_item *item = &kernel->order.items[i];

		if (is_about_files(item->kind) && item->time_ns + HOLD_NS < due)
			due = item->time_ns + HOLD_NS;
	}
	return due <= now ? 1 : (int)((due - now + 999999) / 1000000);
}

int kernel_fd(const struct kernel *kernel)
{
	return kernel->epoll_fd;
}

/* ---------------------------------------------------------------- life */
static int open_ring(struct kernel *kernel, struct why *why)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = RING_EPOLL_TAG};

	kernel->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (kernel->epoll_fd < 0)
		return why_set(why, -errno, "epoll: %s", strerror(errno));
	kernel->ring =
		ring_buffer__new(bpf_map__fd(kernel->bpf->maps.fly_ring), on_record, kernel, NULL);
	if (!kernel->ring)
		return why_set(why, -errno, "the ring cannot be mapped: %s", strerror(errno));
	if (epoll_ctl(kernel->epoll_fd, EPOLL_CTL_ADD, ring_buffer__epoll_fd(kernel->ring), &event))
		return why_set(why, -errno, "epoll: %s", strerror(errno));
	return 0;
}

/* Three descriptors per CPU: more than the usual 1024 on large machines. */
static void allow_descriptors(void)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int open_parts(struct kernel *kernel, struct why *why)
{
	int err = kernel_order_init(&kernel->order, ORDER_BYTES);

	if (err)
		return why_set(why, err, "no memory for the event queue");
	kernel->order.fn = give;
	kernel->order.ctx = kernel;
	kernel->scratch = mem_alloc(MEM_KERNEL, SCRATCH_BYTES);
	if (!kernel->scratch)
		return why_set(why, -ENOMEM, "no memory for the event queue");
	err = kernel_load(kernel, why);
	if (!err)
		err = open_ring(kernel, why);
	allow_descriptors();
	if (!err)
		err = kernel_cpus_open(kernel, why);
	return err;
}

int kernel_open(const struct kernel_options *options, struct kernel **ret, struct why *why)
{
	struct kernel_memory memory;
	struct kernel *kernel;
	int err = kernel_plan(options, &memory, why);

	if (!err)
		err = kernel_refuse(why);
	if (err)
		return err;
	kernel = mem_alloc(MEM_KERNEL, sizeof(*kernel));
	if (!kernel)
		return why_set(why, -ENOMEM, "no memory");
	kernel->options = *options;
	kernel->memory = memory;
	kernel->period_ns = 1000000000ULL / options->hz;
	kernel->exec_link_fd = kernel->fork_link_fd = kernel->epoll_fd = kernel->marks_fd = -1;
	err = open_parts(kernel, why);
	if (err) {
		kernel_close(kernel);
		return err;
	}
	kernel_memory_measure(kernel);
	*ret = kernel;
	return 0;
}

void kernel_close(struct kernel *kernel)
{
	if (!kernel)
		return;
	kernel_stop(kernel);
	if (kernel->order.late)
		log_debug("%llu events came out of order", (unsigned long long)kernel->order.late);
	kernel_cpus_close(kernel);
	ring_buffer__free(kernel->ring);
	kernel_unload(kernel);
	if (kernel->epoll_fd >= 0)
		close(kernel->epoll_fd);
	kernel_order_done(&kernel->order);
	mem_free(MEM_KERNEL, kernel->scratch);
	mem_free(MEM_KERNEL, kernel);
}

int kernel_target_add(struct kernel *kernel, int pidfd, struct why *why)
{
	uint32_t mark = 1;
	int err;

	if (kernel->options.target != FLY_TARGET_TASKS)
		return why_set(why, -EINVAL, "the recording does not choose its processes");
	err = bpf_map_update_elem(kernel->marks_fd, &pidfd, &mark, BPF_ANY);
	if (err == -ESRCH || err == -ENOENT)
		return why_set(why, -ESRCH, "the process has ended");
	if (err)
		return why_set(why, err, "the process cannot be marked: %s", strerror(-err));
	return 0;
}

int kernel_start(struct kernel *kernel, struct why *why)
{
	int err;

	kernel->control->is_on = 1;
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		if (kernel->cpus[cpu].side.fd >= 0)
			ioctl(kernel->cpus[cpu].side.fd, PERF_EVENT_IOC_ENABLE, 0);
	}
	kernel_idle_read(kernel, true);
	err = kernel_clock_start(kernel, why);
	if (err)
		return err;
	kernel->is_running = true;
	kernel->scan_ns = clock_monotonic_ns();
	return 0;
}

void kernel_stop(struct kernel *kernel)
{
	if (kernel->is_running)
		kernel_idle_read(kernel, false);
	kernel->is_running = false;
	for (uint32_t cpu = 0; kernel->cpus && cpu < kernel->cpu_count; cpu++) {
		kernel_clock_disable(&kernel->cpus[cpu].clock);
		if (kernel->cpus[cpu].side.fd >= 0)
			ioctl(kernel->cpus[cpu].side.fd, PERF_EVENT_IOC_DISABLE, 0);
	}
	if (kernel->control)
		kernel->control->is_on = 0;
}

/* ---------------------------------------------------------------- ledger */
static void add_counters(struct kernel_ledger *ledger, const struct fly_counters *counters)
{
	ledger->ticks += counters->ticks;
	ledger->idle += counters->idle;
	ledger->filtered += counters->filtered;
	ledger->taken += counters->taken;
	ledger->taken_ns += counters->taken_ns;
	ledger->submitted += counters->submitted;
	ledger->submitted_ns += counters->submitted_ns;
	for (int i = 0; i < FLY_DROP_COUNT; i++) {
		ledger->dropped[i] += counters->dropped[i];
		ledger->dropped_ns[i] += counters->dropped_ns[i];
	}
	ledger->run_ns += counters->run_ns;
	ledger->runs += counters->runs;
	ledger->execs_lost += counters->execs_lost;
	ledger->marks_lost += counters->marks_lost;
	ledger->wakeups += counters->wakeups;
}

uint64_t kernel_enabled_ns(const struct kernel_cpu *cpu)
{
	return cpu->enabled_gone_ns +
	       (cpu->clock.fd >= 0 ? kernel_clock_enabled_ns(&cpu->clock) : 0);
}

/* Values come for possible CPUs in order of their numbers, which may have gaps. */
static int sum_counters(struct kernel *kernel, struct kernel_ledger *ledger)
{
	size_t stride = (sizeof(struct fly_counters) + 7) & ~(size_t)7;
	uint8_t *values = mem_array(MEM_KERNEL, kernel->possible.count, stride);
	int err = values ? 0 : -ENOMEM;

	for (uint32_t set = 0; set < FLY_COUNTERS_SETS && !err; set++) {
		const uint8_t *at = values;

		err = bpf_map_lookup_elem(kernel->counters_fd, &set, values);
		for (uint32_t cpu = 0; cpu < kernel->cpu_count && !err; cpu++) {
			if (!kernel_cpus_has(&kernel->possible, cpu))
				continue;
			add_counters(ledger, (const void *)at);
			if (set == FLY_COUNTERS_SAMPLE)
				ledger->missed_by_kernel += kernel_missed(
					&kernel->cpus[cpu], kernel->period_ns, (const void *)at,
					kernel_enabled_ns(&kernel->cpus[cpu]));
			at += stride;
		}
	}
	mem_free(MEM_KERNEL, values);
	return err;
}

int kernel_ledger_get(struct kernel *kernel, struct kernel_ledger *ret)
{
	struct kernel_ledger ledger = {.period_ns = kernel->period_ns,
				       .sideband_lost = kernel->sideband_lost,
				       .execs_lost = kernel->execs_lost};
	int err;

	if (kernel->is_running)
		kernel_idle_read(kernel, false);
	err = sum_counters(kernel, &ledger);
	if (err)
		return err;
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		ledger.cpus += kernel->cpus[cpu].clock.fd >= 0;
		ledger.node_idle_ns += kernel->cpus[cpu].idle_ns - kernel->cpus[cpu].idle_start_ns;
	}
	/* What the reader refused was submitted, and is not delivered. */
	ledger.submitted -= kernel->invalid;
	ledger.submitted_ns -= kernel->invalid_ns;
	ledger.dropped[FLY_DROP_RECORD_INVALID] += kernel->invalid;
	ledger.dropped_ns[FLY_DROP_RECORD_INVALID] += kernel->invalid_ns;
	*ret = ledger;
	return 0;
}

int kernel_ledger_cut(struct kernel *kernel, kernel_event_fn fn, void *ctx,
		      struct kernel_ledger *ret)
{
	int err;

	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++)
		kernel_clock_disable(&kernel->cpus[cpu].clock);
	kernel_poll(kernel, true, fn, ctx);
	err = kernel_ledger_get(kernel, ret);
	/* One that cannot be enabled stands still, which hotplug.c sees and mends. */
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		if (kernel->cpus[cpu].clock.fd >= 0 &&
		    kernel_clock_enable(&kernel->cpus[cpu].clock))
			log_debug("CPU %u: its clock event cannot be enabled", cpu);
	}
	return err;
}
