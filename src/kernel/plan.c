// SPDX-License-Identifier: Apache-2.0
/*
 * plan: all kernel memory, map by map, before anything is created (MEM-1).
 *
 * The formulas are the kernel's own (map_mem_usage of 6.4 and later), checked against fdinfo by
 * test_kernel_live. Per-CPU parts count possible CPUs, not online ones. Nothing here follows
 * pid_max or the number of processes.
 */
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PAGE	    4096ULL
#define MAP_HEADER  320ULL  /* struct bpf_array; bpf_ringbuf_map takes 304 */
#define HASH_HEADER 1024ULL /* struct bpf_htab, with room */
#define SCRATCH_BYTES                                                                              \
	(896 + sizeof(struct fly_sample) + (FLY_MAX_KERNEL_FRAMES + FLY_MAX_FRAMES + 1) * 8 +      \
	 FLY_ATTRIBUTE_BYTES_MAX)
#define CACHE_BYTES	     (512 * 32)
#define PROGRAM_BYTES	     (48ULL << 10)  /* instructions and machine code of three programs */
#define UNWIND_PROGRAM_BYTES (112ULL << 10) /* with the one that walks by tables */
#define TABLES_MIN_BYTES     FLY_SEGMENT_BYTES
#define TABLES_DEFAULT_BYTES (8ULL << 20)
#define PROCESSES_DEFAULT    4096
#define PROCESSES_MAX	     (1U << 20)
#define BTF_BYTES	     (48ULL << 10)
#define BUDGET_MAX	     (64ULL << 20)
#define SIDEBAND_CPU_BYTES   (256ULL << 10)
#define SIDEBAND_TOTAL_BYTES (8ULL << 20)
#define RING_MAX	     (1ULL << 30)

static uint64_t ram_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t default_budget(void)
{
	uint64_t share = ram_bytes() / 40;

	return share < BUDGET_MAX ? share : BUDGET_MAX;
}

/* Half of what is allowed in all, on small machines. */
static uint64_t default_table_bytes(void)
{
	uint64_t share = default_budget() / 2;

	share -= share % FLY_SEGMENT_BYTES;
	if (share < TABLES_MIN_BYTES)
		return TABLES_MIN_BYTES;
	return share < TABLES_DEFAULT_BYTES ? share : TABLES_DEFAULT_BYTES;
}

void kernel_options_init(struct kernel_options *options)
{
	*options = (struct kernel_options){
		.hz = 99,
		.depth = FLY_MAX_FRAMES,
		.ring_bytes = 1 << 20,
		.cgroup_fd = -1,
		.table_bytes = default_table_bytes(),
		.processes = PROCESSES_DEFAULT,
		.walk_ns = 200000,
	};
}

static int check_tables(const struct kernel_options *options, struct why *why)
{
	char size[32];

	if (!options->table_bytes || options->table_bytes % FLY_SEGMENT_BYTES ||
	    options->table_bytes / FLY_SEGMENT_BYTES > FLY_SEGMENTS_MAX)
		return why_set(why, -EINVAL,
			       "--table-memory %s is no size tables can have: choose a multiple "
			       "of 2MiB, up to 64MiB",
			       text_bytes(options->table_bytes, size, sizeof(size)));
	if (!options->processes || options->processes > PROCESSES_MAX)
		return why_set(why, -ERANGE, "--processes %u is out of range: choose 1 to %u",
			       options->processes, PROCESSES_MAX);
	if (!options->walk_ns)
		return why_set(why, -ERANGE, "a walk needs some time");
	return 0;
}

int kernel_options_check(const struct kernel_options *options, struct why *why)
{
	char size[32];

	if (options->hz < 1 || options->hz > 10000)
		return why_set(why, -ERANGE,
			       "-F %u is no usable rate: choose 1 to 10000 samples per second",
			       options->hz);
	if (options->depth < 1 || options->depth > FLY_MAX_FRAMES)
		return why_set(why, -ERANGE, "--depth %u is out of range: choose 1 to %d frames",
			       options->depth, FLY_MAX_FRAMES);
	if (options->ring_bytes < PAGE || options->ring_bytes > RING_MAX ||
	    options->ring_bytes & (options->ring_bytes - 1))
		return why_set(why, -EINVAL,
			       "--ring %s is no size a ring can have: choose a power of two from "
			       "4KiB to 1GiB, such as 1MiB",
			       text_bytes(options->ring_bytes, size, sizeof(size)));
	if (options->budget_bytes > ram_bytes() / 20)
		return why_set(
			why, -ERANGE,
			"--kernel-memory is above the ceiling of 5 %% of this machine's RAM: "
			"choose at most %s",
			text_bytes(ram_bytes() / 20, size, sizeof(size)));
	if (options->target == FLY_TARGET_CGROUP && options->cgroup_fd < 0)
		return why_set(why, -EINVAL, "--cgroup names no cgroup v2 directory");
	return options->unwinder == FLY_UNWIND_TABLES ? check_tables(options, why) : 0;
}

uint64_t kernel_ring_map_bytes(uint64_t ring_bytes)
{
	uint64_t pages = ring_bytes / PAGE;

	/* Three pages before the data, and a list of pages that names the data twice. */
	return ring_bytes + 3 * PAGE + (3 + 2 * pages) * sizeof(void *) + MAP_HEADER;
}

uint64_t kernel_sideband_ring_bytes(uint32_t cpus)
{
	uint64_t bytes = SIDEBAND_CPU_BYTES;

	while (bytes > PAGE && bytes * cpus > SIDEBAND_TOTAL_BYTES)
		bytes /= 2;
	return bytes;
}

struct kernel_map_plan *kernel_plan_find(struct kernel_memory *memory, const char *name)
{
	for (size_t i = 0; i < memory->map_count; i++) {
		if (!strcmp(memory->maps[i].name, name))
			return &memory->maps[i];
	}
	return NULL;
}

static void add(struct kernel_memory *memory, const char *name, const char *type, uint64_t entries,
		uint64_t bytes, const char *purpose)
{
	struct kernel_map_plan *map = &memory->maps[memory->map_count++];

	snprintf(map->name, sizeof(map->name), "%s", name);
	snprintf(map->type, sizeof(map->type), "%s", type);
	map->entries = entries;
	map->bytes = bytes;
	map->purpose = purpose;
	memory->planned_bytes += bytes;
}

static uint64_t percpu_array_bytes(uint64_t entries, uint64_t value_bytes, uint32_t possible)
{
	return MAP_HEADER + entries * 8 + entries * ((value_bytes + 7) & ~7ULL) * possible;
}

/* An element of a hash is 48 bytes, key (at most 8) and value; a bucket 16. */
static uint64_t hash_bytes(uint64_t entries, uint64_t value_bytes, uint32_t possible)
{
	uint64_t buckets = 1;

	while (buckets < entries)
		buckets *= 2;
	return HASH_HEADER + buckets * 16 + 32ULL * possible +
	       (entries + possible) * (48 + 8 + value_bytes);
}

static void add_processes(uint32_t processes, uint32_t possible, struct kernel_memory *memory)
{
	add(memory, "fly_processes", "hash", processes,
	    hash_bytes(processes, sizeof(struct fly_process), possible),
	    "where the mappings of each process are (--processes)");
}

static void add_table_maps(const struct kernel_options *options, uint32_t possible,
			   struct kernel_memory *memory)
{
	uint64_t segments = options->table_bytes / FLY_SEGMENT_BYTES;

	add(memory, "fly_segments", "array_of_maps", segments,
	    MAP_HEADER + segments * (8ULL + KERNEL_SEGMENT_BYTES),
	    "unwind tables and mappings (--table-memory), as they are needed");
	add(memory, "fly_tables", "array", FLY_TABLES_MAX,
	    PAGE + FLY_TABLES_MAX * sizeof(struct fly_table), "where each table is");
	add(memory, "fly_cache", "percpu_array", 1, percpu_array_bytes(1, CACHE_BYTES, possible),
	    "rules of the frames met last");
	add(memory, "fly_files", "lru_hash", FLY_FILES_MAX,
	    HASH_HEADER + FLY_FILES_MAX * 16 + 256ULL * possible +
		    FLY_FILES_MAX * (48 + sizeof(struct fly_file_key) + sizeof(struct fly_file)),
	    "which table a file has, for processes not described yet");
}

static void add_maps(const struct kernel_options *options, uint32_t possible,
		     struct kernel_memory *memory)
{
	uint64_t buckets = 2;

	add(memory, "fly_control", "array", 1, 2 * PAGE, "settings the programs read first");
	add(memory, "fly_counters", "percpu_array", FLY_COUNTERS_SETS,
	    percpu_array_bytes(FLY_COUNTERS_SETS, sizeof(struct fly_counters), possible),
	    "the kernel's side of the ledger");
	add(memory, "fly_scratch", "percpu_array", 1,
	    percpu_array_bytes(1, SCRATCH_BYTES, possible), "where a record is put together");
	add(memory, "fly_shares", "array", 1 << FLY_SHARE_BITS,
	    MAP_HEADER + (sizeof(struct fly_share) << FLY_SHARE_BITS),
	    "what each cgroup has of the ring");
	add(memory, "fly_ring", "ringbuf", options->ring_bytes,
	    kernel_ring_map_bytes(options->ring_bytes), "samples on their way out (--ring)");
	if (options->target == FLY_TARGET_TASKS) {
		while (buckets < possible)
			buckets *= 2;
		add(memory, "fly_marks", "task_storage", 0, 512 + buckets * 32,
		    "which tasks are followed; about 300 bytes more for each live with the task");
	}
	if (options->target == FLY_TARGET_CGROUP)
		add(memory, "fly_cgroup", "cgroup_array", 1, MAP_HEADER + 8, "the cgroup sampled");
	add(memory, "fly_spans", "hash", FLY_SPAN_PROCESSES_MAX,
	    hash_bytes(FLY_SPAN_PROCESSES_MAX, sizeof(struct fly_span_place), possible),
	    "where the threads of a process publish their trace span");
	add_processes(options->unwinder == FLY_UNWIND_TABLES ? options->processes : 1, possible,
		      memory);
	if (options->unwinder == FLY_UNWIND_TABLES)
		add_table_maps(options, possible, memory);
}

static int count_cpus(uint32_t wanted, uint32_t *ret_possible, uint32_t *ret_online,
		      struct why *why)
{
	struct kernel_cpus cpus;
	int err;

	*ret_possible = *ret_online = wanted;
	if (wanted)
		return 0;
	err = kernel_cpus_read("possible", &cpus, why);
	if (err)
		return err;
	*ret_possible = cpus.count;
	err = kernel_cpus_read("online", &cpus, why);
	if (err)
		return err;
	*ret_online = cpus.count;
	return 0;
}

static const char *what_to_lower(const struct kernel_options *options)
{
	if (options->unwinder == FLY_UNWIND_TABLES && options->table_bytes > options->ring_bytes)
		return "--table-memory";
	return "--ring";
}

static int check_fits(const struct kernel_memory *memory, const struct kernel_options *options,
		      struct why *why)
{
	char planned[32], limit[32];
	uint64_t room = options->cpus ? UINT64_MAX : kernel_room();

	text_bytes(memory->planned_bytes, planned, sizeof(planned));
	if (memory->planned_bytes > memory->budget_bytes)
		return why_set(why, -ENOSPC,
			       "the plan needs %s of kernel memory and the budget is %s: raise "
			       "--kernel-memory, or lower %s",
			       planned, text_bytes(memory->budget_bytes, limit, sizeof(limit)),
			       what_to_lower(options));
	if (memory->planned_bytes > room)
		return why_set(why, -ENOSPC,
			       "the plan needs %s of kernel memory and flyball's memory cgroup has "
			       "%s left: raise the cgroup's limit, or lower %s",
			       planned, text_bytes(room, limit, sizeof(limit)),
			       what_to_lower(options));
	return 0;
}

int kernel_plan(const struct kernel_options *options, struct kernel_memory *ret, struct why *why)
{
	struct kernel_memory memory = {0};
	uint32_t possible, online;
	uint64_t ring;
	int err;

	err = kernel_options_check(options, why);
	if (!err)
		err = count_cpus(options->cpus, &possible, &online, why);
	if (err)
		return err;
	memory.budget_bytes = options->budget_bytes ? options->budget_bytes : default_budget();
	add_maps(options, possible, &memory);
	/* Rings of CPUs that come online later are in the plan from the start. */
	ring = kernel_sideband_ring_bytes(possible) + PAGE;
	add(&memory, "side-band", "perf ring", possible, ring * possible,
	    "mappings, names, forks and exits of processes");
	add(&memory, "programs", "program", 3,
	    options->unwinder == FLY_UNWIND_TABLES ? UNWIND_PROGRAM_BYTES : PROGRAM_BYTES,
	    "instructions and machine code");
	add(&memory, "btf", "btf", 1, BTF_BYTES, "types of the maps and programs");
	*ret = memory;
	return check_fits(&memory, options, why);
}
