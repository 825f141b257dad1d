// SPDX-License-Identifier: Apache-2.0
/*
 * memory: what was created, read back from the kernel.
 *
 * fdinfo's memlock tells the truth since 6.4; before, it is an estimate without headers, and 0 for
 * a ring: then the formula of the plan stands, which is the kernel's own.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <string.h>

#include "bpf/flyball.skel.h"

uint64_t kernel_memlock(int fd)
{
	char path[64], text[2048], *at;
	uint64_t bytes;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (kernel_read_text(path, text, sizeof(text)) <= 0)
		return 0;
	at = strstr(text, "memlock:");
	if (!at)
		return 0;
	at += strlen("memlock:");
	at += strspn(at, " \t");
	at[strcspn(at, "\n")] = '\0';
	return text_parse_u64(at, 0, UINT64_MAX, &bytes) ? 0 : bytes;
}

/* A ring's memlock is never 0 where memlock is true. */
static bool is_memlock_true(struct kernel *kernel)
{
	return kernel_memlock(bpf_map__fd(kernel->bpf->maps.fly_ring)) > 0;
}

static void measure_maps(struct kernel *kernel)
{
	bool is_true = is_memlock_true(kernel);
	struct bpf_map *map;

	bpf_object__for_each_map(map, kernel->bpf->obj)
	{
		struct kernel_map_plan *plan =
			kernel_plan_find(&kernel->memory, bpf_map__name(map));
		int fd = bpf_map__fd(map);

		if (plan && fd >= 0)
			plan->measured_bytes = is_true ? kernel_memlock(fd) : plan->bytes;
	}
	/* That of an array of maps does not hold the maps. */
	kernel_segments_measure(kernel, is_true);
}

static void measure_programs(struct kernel *kernel)
{
	struct kernel_map_plan *programs = kernel_plan_find(&kernel->memory, "programs");
	struct kernel_map_plan *btf = kernel_plan_find(&kernel->memory, "btf");
	struct bpf_program *prog;

	programs->measured_bytes = programs->entries = 0;
	bpf_object__for_each_program(prog, kernel->bpf->obj)
	{
		struct bpf_prog_info info = {0};
		uint32_t size = sizeof(info);
		int fd = bpf_program__fd(prog);

		if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &size))
			continue;
		/* memlock holds the instructions, not the machine code made of them. */
		programs->measured_bytes += kernel_memlock(fd) + info.jited_prog_len;
		programs->entries++;
	}
	if (bpf_object__btf_fd(kernel->bpf->obj) >= 0) {
		struct bpf_btf_info info = {0};
		uint32_t size = sizeof(info);

		if (!bpf_obj_get_info_by_fd(bpf_object__btf_fd(kernel->bpf->obj), &info, &size))
			btf->measured_bytes = info.btf_size;
	}
}

static void measure_rings(struct kernel *kernel)
{
	struct kernel_map_plan *rings = kernel_plan_find(&kernel->memory, "side-band");

	rings->measured_bytes = 0;
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		if (kernel->cpus[cpu].side.map)
			rings->measured_bytes += kernel->cpus[cpu].side.map_bytes;
	}
}

void kernel_memory_measure(struct kernel *kernel)
{
	struct kernel_memory *memory = &kernel->memory;

	measure_maps(kernel);
	measure_programs(kernel);
	measure_rings(kernel);
	memory->measured_bytes = 0;
	for (size_t i = 0; i < memory->map_count; i++)
		memory->measured_bytes += memory->maps[i].measured_bytes;
	if (memory->measured_bytes > memory->peak_bytes)
		memory->peak_bytes = memory->measured_bytes;
}

int kernel_memory_get(struct kernel *kernel, struct kernel_memory *ret)
{
	kernel_memory_measure(kernel);
	*ret = kernel->memory;
	return 0;
}
