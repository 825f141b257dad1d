// SPDX-License-Identifier: Apache-2.0
/*
 * segments: the kernel memory of unwind tables and of mappings (abi/table_space.h).
 *
 * A segment is a map of its own, created when it is needed and put into fly_segments; when it is
 * taken out and closed its memory is free again. All are of one size, so that the plan holds and
 * the look-up in BPF is inlined.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bpf/flyball.skel.h"

#define TABLES_BYTES (FLY_TABLES_MAX * sizeof(struct fly_table))

static bool has_tables(const struct kernel *kernel)
{
	return kernel->options.unwinder == FLY_UNWIND_TABLES;
}

static uint32_t segments_max(const struct kernel *kernel)
{
	return has_tables(kernel) ? (uint32_t)(kernel->options.table_bytes / FLY_SEGMENT_BYTES) : 0;
}

void kernel_segments_choose(struct kernel *kernel)
{
	struct flyball_bpf *bpf = kernel->bpf;

	bpf_map__set_autocreate(bpf->maps.fly_segments, has_tables(kernel));
	bpf_map__set_autocreate(bpf->maps.fly_tables, has_tables(kernel));
	bpf_map__set_autocreate(bpf->maps.fly_files, has_tables(kernel));
	bpf_map__set_autocreate(bpf->maps.fly_cache, has_tables(kernel));
	/* The programs for exec name it. */
	bpf_map__set_max_entries(bpf->maps.fly_processes,
				 has_tables(kernel) ? kernel->options.processes : 1);
	if (has_tables(kernel))
		bpf_map__set_max_entries(bpf->maps.fly_segments, segments_max(kernel));
}

int kernel_segments_open(struct kernel *kernel, struct why *why)
{
	void *map;

	if (!has_tables(kernel))
		return 0;
	map = mmap(NULL, TABLES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		   bpf_map__fd(kernel->bpf->maps.fly_tables), 0);
	if (map == MAP_FAILED)
		return why_set(why, -errno, "the map of unwind tables cannot be mapped: %s",
			       strerror(errno));
	kernel->tables = map;
	return 0;
}

static void segment_drop(struct kernel_segment *segment)
{
	munmap(segment->map, FLY_SEGMENT_BYTES);
	close(segment->fd);
	segment->map = NULL;
}

void kernel_segments_close(struct kernel *kernel)
{
	for (uint32_t i = 0; i < FLY_SEGMENTS_MAX; i++) {
		if (kernel->segments[i].map)
			segment_drop(&kernel->segments[i]);
	}
	if (kernel->tables)
		munmap(kernel->tables, TABLES_BYTES);
	kernel->tables = NULL;
}

void kernel_segments_measure(struct kernel *kernel, bool is_memlock_true)
{
	struct kernel_map_plan *plan = kernel_plan_find(&kernel->memory, "fly_segments");

	for (uint32_t i = 0; plan && i < segments_max(kernel); i++) {
		if (is_memlock_true && kernel->segments[i].map)
			plan->measured_bytes += kernel_memlock(kernel->segments[i].fd);
		else if (!is_memlock_true && !kernel->segments[i].map)
			plan->measured_bytes -= KERNEL_SEGMENT_BYTES; /* planned, and not there */
	}
}

/* ---------------------------------------------------------------- segments */
static int segment_put(struct kernel *kernel, uint32_t number)
{
	return bpf_map_update_elem(bpf_map__fd(kernel->bpf->maps.fly_segments), &number,
				   &kernel->segments[number].fd, BPF_ANY);
}

void *kernel_segment_add(struct kernel *kernel, uint32_t number, struct why *why)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
	struct kernel_segment *segment;
	int fd, err;
	void *map;

	if (number >= segments_max(kernel)) {
		why_set(why, -ERANGE, "segment %u is not in the plan", number);
		return NULL;
	}
	segment = &kernel->segments[number];
	if (segment->map) {
		why_set(why, -EEXIST, "segment %u is there", number);
		return NULL;
	}
	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "fly_segment", sizeof(uint32_t), FLY_BLOCK_BYTES,
			    FLY_SEGMENT_BLOCKS, &options);
	if (fd < 0) {
		why_set(why, fd, "no kernel memory for unwind tables: %s", strerror(-fd));
		return NULL;
	}
	map = mmap(NULL, FLY_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		why_set(why, -errno, "a segment of unwind tables cannot be mapped: %s",
			strerror(errno));
		close(fd);
		return NULL;
	}
	*segment = (struct kernel_segment){.map = map, .fd = fd};
	err = segment_put(kernel, number);
	if (err) {
		why_set(why, err, "a segment of unwind tables cannot be entered: %s",
			strerror(-err));
		segment_drop(segment);
		return NULL;
	}
	return map;
}

void kernel_segment_remove(struct kernel *kernel, uint32_t number)
{
	if (number >= segments_max(kernel) || !kernel->segments[number].map)
		return;
	/* Waits for running programs; and the map itself lives until after that. */
	bpf_map_delete_elem(bpf_map__fd(kernel->bpf->maps.fly_segments), &number);
	segment_drop(&kernel->segments[number]);
}

struct fly_table *kernel_tables(struct kernel *kernel)
{
	return kernel->tables;
}

int kernel_tables_wait(struct kernel *kernel)
{
	for (uint32_t i = 0; i < FLY_SEGMENTS_MAX; i++) {
		if (kernel->segments[i].map)
			return segment_put(kernel, i);
	}
	return 0; /* without a segment there is nothing to read */
}

/* ---------------------------------------------------------------- processes */
int kernel_process_put(struct kernel *kernel, uint32_t tgid, const struct fly_process *process)
{
	struct fly_process checked = *process;

	if (!has_tables(kernel))
		return -EOPNOTSUPP;
	checked.check = fly_process_check(&checked);
	return bpf_map_update_elem(bpf_map__fd(kernel->bpf->maps.fly_processes), &tgid, &checked,
				   BPF_ANY);
}

int kernel_process_get(struct kernel *kernel, uint32_t tgid, struct fly_process *ret)
{
	if (!has_tables(kernel))
		return -EOPNOTSUPP;
	return bpf_map_lookup_elem(bpf_map__fd(kernel->bpf->maps.fly_processes), &tgid, ret);
}

int kernel_process_remove(struct kernel *kernel, uint32_t tgid)
{
	if (!has_tables(kernel))
		return -EOPNOTSUPP;
	return bpf_map_delete_elem(bpf_map__fd(kernel->bpf->maps.fly_processes), &tgid);
}
