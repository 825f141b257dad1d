// SPDX-License-Identifier: Apache-2.0
/*
 * load: the BPF object, from skeleton to attached programs. Only the programs and maps the target
 * asks for are created. What libbpf and the verifier say goes to the debug log.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bpf/flyball.skel.h"

/* The verifier's log comes as one text of many lines. */
static int log_libbpf(enum libbpf_print_level level, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));

static int log_libbpf(enum libbpf_print_level level, const char *fmt, va_list args)
{
	char text[8192], *line, *save = NULL;

	(void)level;
	if (log_get_level() < LOG_DEBUG)
		return 0;
	vsnprintf(text, sizeof(text), fmt, args);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		log_debug("%s", line);
	return 0;
}

/* The depth of kernel stacks the kernel grants. */
static uint32_t kernel_depth(const struct kernel_options *options)
{
	char text[32];
	uint64_t max = FLY_MAX_KERNEL_FRAMES;

	if (options->no_kernel)
		return 0;
	if (kernel_read_text("/proc/sys/kernel/perf_event_max_stack", text, sizeof(text)) > 0) {
		text[strcspn(text, "\n")] = '\0';
		if (text_parse_u64(text, 1, UINT32_MAX, &max))
			max = FLY_MAX_KERNEL_FRAMES;
	}
	if (max > FLY_MAX_KERNEL_FRAMES)
		max = FLY_MAX_KERNEL_FRAMES;
	return options->depth < max ? options->depth : (uint32_t)max;
}

#define FLY_TARGETS 3

static struct bpf_program *sampler(const struct flyball_bpf *bpf, bool has_tables, size_t target)
{
	struct bpf_program *const all[2][FLY_TARGETS] = {
		{bpf->progs.fly_sample, bpf->progs.fly_sample_task, bpf->progs.fly_sample_cgrp},
		{bpf->progs.fly_unwind, bpf->progs.fly_unwind_task, bpf->progs.fly_unwind_cgrp},
	};

	return all[has_tables][target];
}

static void choose(struct kernel *kernel)
{
	struct flyball_bpf *bpf = kernel->bpf;
	enum fly_target target = kernel->options.target;
	bool has_tables = kernel->options.unwinder == FLY_UNWIND_TABLES;

	for (size_t i = 0; i < FLY_TARGETS; i++) {
		bpf_program__set_autoload(sampler(bpf, false, i), !has_tables && target == i);
		bpf_program__set_autoload(sampler(bpf, true, i), has_tables && target == i);
	}
	bpf_program__set_autoload(bpf->progs.fly_exec, target != FLY_TARGET_TASKS);
	bpf_program__set_autoload(bpf->progs.fly_exec_task, target == FLY_TARGET_TASKS);
	bpf_program__set_autoload(bpf->progs.fly_fork, target == FLY_TARGET_TASKS);
	bpf_map__set_autocreate(bpf->maps.fly_marks, target == FLY_TARGET_TASKS);
	bpf_map__set_autocreate(bpf->maps.fly_cgroup, target == FLY_TARGET_CGROUP);
	bpf_map__set_max_entries(bpf->maps.fly_ring, (uint32_t)kernel->options.ring_bytes);
	kernel_segments_choose(kernel);
}

static int attach_tracepoint(const struct bpf_program *prog, int *ret_fd, struct why *why)
{
	int fd = bpf_link_create(bpf_program__fd(prog), 0, BPF_TRACE_RAW_TP, NULL);

	/* Links of this type came with 6.0 (tracing links, 5.5, by another command). */
	if (fd < 0)
		fd = bpf_raw_tracepoint_open(NULL, bpf_program__fd(prog));
	if (fd < 0)
		return why_set(why, fd, "%s cannot be attached: %s", bpf_program__name(prog),
			       strerror(-fd));
	*ret_fd = fd;
	return 0;
}

static int attach(struct kernel *kernel, struct why *why)
{
	struct flyball_bpf *bpf = kernel->bpf;
	const struct bpf_program *exec = bpf->progs.fly_exec;
	uint32_t zero = 0;
	int err;

	kernel->sample_fd = bpf_program__fd(sampler(
		bpf, kernel->options.unwinder == FLY_UNWIND_TABLES, kernel->options.target));
	if (kernel->options.target == FLY_TARGET_TASKS) {
		kernel->marks_fd = bpf_map__fd(bpf->maps.fly_marks);
		exec = bpf->progs.fly_exec_task;
		err = attach_tracepoint(bpf->progs.fly_fork, &kernel->fork_link_fd, why);
		if (err)
			return err;
	}
	if (kernel->options.target == FLY_TARGET_CGROUP) {
		err = bpf_map_update_elem(bpf_map__fd(bpf->maps.fly_cgroup), &zero,
					  &kernel->options.cgroup_fd, BPF_ANY);
		if (err)
			return why_set(why, err,
				       "this is no directory of cgroup v2, which alone can be "
				       "followed");
	}
	return attach_tracepoint(exec, &kernel->exec_link_fd, why);
}

static int map_control(struct kernel *kernel, struct why *why)
{
	void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED,
			  bpf_map__fd(kernel->bpf->maps.fly_control), 0);

	if (page == MAP_FAILED)
		return why_set(why, -errno, "the control map cannot be mapped: %s",
			       strerror(errno));
	kernel->control = page;
	*kernel->control = (struct fly_control){
		.target = kernel->options.target,
		.depth = kernel->options.depth,
		.kernel_depth = kernel_depth(&kernel->options),
		.period_ns = kernel->period_ns,
		.ring_bytes = kernel->options.ring_bytes,
		.watermark_bytes = kernel->options.ring_bytes / 4 * 3,
		.sample_bytes = kernel->options.ring_bytes / 16 * 15,
		.ring_epoch = 1, /* that of elements nobody met is 0 */
		.wake_bytes = kernel->options.ring_bytes / 2,
		.unwinder = kernel->options.unwinder,
		.walk_ns = kernel->options.walk_ns,
	};
	return 0;
}

int kernel_load(struct kernel *kernel, struct why *why)
{
	int err;

	libbpf_set_print(log_libbpf);
	kernel->bpf = flyball_bpf__open();
	if (!kernel->bpf)
		return why_set(why, -errno, "the BPF object cannot be opened: %s", strerror(errno));
	choose(kernel);
	err = flyball_bpf__load(kernel->bpf);
	if (err) {
		why_set(why, err,
			"the kernel refused the BPF programs (%s): `flyball record -v` shows what "
			"the verifier said",
			strerror(-err));
		return kernel_explain(why, err);
	}
	kernel->counters_fd = bpf_map__fd(kernel->bpf->maps.fly_counters);
	err = map_control(kernel, why);
	if (!err)
		err = kernel_segments_open(kernel, why);
	if (!err)
		err = attach(kernel, why);
	return err;
}

void kernel_unload(struct kernel *kernel)
{
	if (kernel->exec_link_fd >= 0)
		close(kernel->exec_link_fd);
	if (kernel->fork_link_fd >= 0)
		close(kernel->fork_link_fd);
	if (kernel->control)
		munmap(kernel->control, (size_t)sysconf(_SC_PAGESIZE));
	kernel->control = NULL;
	kernel->exec_link_fd = kernel->fork_link_fd = -1;
	kernel_segments_close(kernel);
	flyball_bpf__destroy(kernel->bpf);
	kernel->bpf = NULL;
}
