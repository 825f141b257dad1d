/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel: the only user of bpf(2), libbpf and perf_event_open(2).
 *
 * Owns every map, program, perf event and ring. A plan of all kernel memory is made before
 * anything is created (MEM-1); what was created is read back from fdinfo. Features are probed,
 * each with the kernel commit or version it came with, never guessed from the version string.
 *
 * Sampling: one PERF_COUNT_SW_CPU_CLOCK event per online CPU in period mode (freq mode takes
 * IOC_PERIOD as nanoseconds anyway: research/kernel-facts §5), started at a random phase per CPU.
 * Side-band: one PERF_COUNT_SW_DUMMY event per CPU with mmap2 + build_id, comm, comm_exec, task,
 * ksymbol, use_clockid MONOTONIC, in a perf ring of its own. CPUs that go offline and return get
 * new events. Samples and side-band are given out in one stream ordered by CLOCK_MONOTONIC.
 *
 * No syscall tracepoint, no kprobe (DESIGN decisions 11, 14). One owning thread.
 */
#ifndef FLYBALL_KERNEL_H
#define FLYBALL_KERNEL_H

#include <linux/types.h>

#include "abi/control.h"     /* IWYU pragma: export */
#include "abi/records.h"     /* IWYU pragma: export */
#include "abi/span_place.h"  /* IWYU pragma: export */
#include "abi/table_space.h" /* IWYU pragma: export */
#include "base/base.h"	     /* IWYU pragma: export */

/* ---------------------------------------------------------------- what this machine can do */
struct kernel_check {
	const char *name; /* "btf", "task_storage", ... stable, for --json */
	int level;	  /* 0 fine, 1 note, 2 warning, 3 flyball cannot run */
	char text[320];	  /* one sentence, with what to do */
};
#define KERNEL_CHECKS_MAX 48
/* The doctor's list. Probes for real (loads small programs, opens events). Returns the count. */
size_t kernel_doctor(struct kernel_check checks[KERNEL_CHECKS_MAX]);

/* The running kernel's GNU build-id, from /sys/kernel/notes. Returns its length, 0: unknown. */
size_t kernel_build_id(uint8_t *out, size_t out_size);

/* ---------------------------------------------------------------- options and plan */
struct kernel_options {
	uint32_t hz;	       /* 1..10000 */
	uint32_t depth;	       /* 1..FLY_MAX_FRAMES */
	uint64_t ring_bytes;   /* power of two, >= page size */
	uint64_t budget_bytes; /* 0: min(2.5 % of RAM, 64 MiB); ceiling 5 % of RAM (MEM-1) */
	enum fly_target target;
	int cgroup_fd; /* for FLY_TARGET_CGROUP: a cgroup v2 directory */
	enum fly_unwinder unwinder;
	uint64_t table_bytes; /* 0 with FLY_UNWIND_FRAME_POINTERS; default 8 MiB */
	uint32_t processes;   /* entries of fly_processes; default 4096 */
	uint64_t walk_ns;     /* one walk of a user stack; default 200,000 */
	bool no_kernel;
	uint32_t cpus; /* plan only: pretend this many possible CPUs; 0: this machine's */
};
void kernel_options_init(
	struct kernel_options *options); /* defaults: 99 Hz, depth FLY_MAX_FRAMES, ring 1 MiB */
/* -EINVAL/-ERANGE with a sentence that names the flag. */
int kernel_options_check(const struct kernel_options *options, struct why *why);

struct kernel_map_plan {
	char name[16];
	char type[24]; /* "ringbuf", "percpu_array", "perf ring", ... */
	uint64_t entries;
	uint64_t bytes;		 /* planned, per-CPU copies included */
	uint64_t measured_bytes; /* 0 before it exists */
	const char *purpose;
};
struct kernel_memory {
	uint64_t budget_bytes, planned_bytes, measured_bytes, peak_bytes;
	size_t map_count;
	struct kernel_map_plan maps[32];
};
/* Computes the plan; creates nothing. -ENOSPC with a sentence when it exceeds the budget, or the
 * room left in our memory cgroup. */
int kernel_plan(const struct kernel_options *options, struct kernel_memory *ret, struct why *why);

/* ---------------------------------------------------------------- running */
struct kernel;
/* Plans, creates, loads, opens events disabled. Errors are one sentence; the verifier's log goes to
 * log_debug only. */
int kernel_open(const struct kernel_options *options, struct kernel **ret, struct why *why);
void kernel_close(struct kernel *kernel); /* NULL is fine */
/* FLY_TARGET_TASKS: marks the process behind a pidfd and all it will fork. */
int kernel_target_add(struct kernel *kernel, int pidfd, struct why *why);
int kernel_start(struct kernel *kernel, struct why *why);
/* Stops ticks. Records already taken can still be drained by kernel_poll(.., true, ..). */
void kernel_stop(struct kernel *kernel);

enum kernel_event_type {
	KERNEL_EVENT_SAMPLE,
	KERNEL_EVENT_EXEC, /* BPF exec record */
	KERNEL_EVENT_FORK,
	KERNEL_EVENT_EXIT,
	KERNEL_EVENT_COMM,
	KERNEL_EVENT_MMAP,
	KERNEL_EVENT_KSYMBOL, /* BPF program or trampoline came or went */
	KERNEL_EVENT_LOST,    /* side-band records were lost; count */
};
struct kernel_event {
	enum kernel_event_type type;
	uint64_t time_ns;
	uint32_t tgid, tid;
	union {
		const struct fly_sample *sample; /* checked: sizes and counts are right */
		const struct fly_exec *exec;
		struct {
			uint32_t parent_tgid;
		} fork;
		struct {
			const char *comm;
			bool is_exec;
		} comm;
		struct {
			uint64_t start, bytes, pgoff;
			uint8_t build_id_len, build_id[20];
			uint32_t dev_major, dev_minor;
			uint64_t ino, ino_generation;
			const char *path;
		} mmap;
		struct {
			uint64_t address;
			uint32_t bytes;
			bool is_gone;
			const char *name;
		} ksymbol;
		uint64_t lost;
	};
};
typedef void (*kernel_event_fn)(void *ctx, const struct kernel_event *event);

/* Readable when a forced wake-up came; poll at least every 100 ms anyway (NO_WAKEUP records never
 * wake: research/kernel-facts §8). */
int kernel_fd(const struct kernel *kernel);
/* Drains rings, gives out in order of time what is old enough to be complete; with is_final all.
 * Also follows CPU hotplug. Returns the number of events given out. */
int kernel_poll(struct kernel *kernel, bool is_final, kernel_event_fn fn, void *ctx);
/* How long the caller may sleep before the next kernel_poll, at most most_ms: a few milliseconds
 * while exec, mmap or fork events are held back for ordering, or a program was just executed, since
 * a young program's files must be opened while the program lives. Events are held for 2 ms. */
int kernel_poll_ms(const struct kernel *kernel, int most_ms);

/* The kernel's side of the ledger, summed over CPUs; plus what the consumer rejected. */
struct kernel_ledger {
	uint64_t ticks, idle, filtered, taken, taken_ns, submitted, submitted_ns;
	uint64_t dropped[FLY_DROP_COUNT], dropped_ns[FLY_DROP_COUNT];
	uint64_t run_ns, runs;	   /* of our BPF programs */
	uint64_t missed_by_kernel; /* estimate: enabled time / period - ticks, idle left out */
	uint64_t sideband_lost, execs_lost;
	uint64_t marks_lost; /* children that could not be marked and so were not followed */
	uint64_t wakeups;    /* of the reader, forced */
	uint32_t cpus;
	uint64_t period_ns;
	uint64_t node_idle_ns; /* of all CPUs since the start, by /proc/stat */
};
int kernel_ledger_get(struct kernel *kernel, struct kernel_ledger *ret);
/* Closes one stretch of the running ledger and begins the next: gives out every record taken until
 * now, and counts them, with no tick in between. Ticks pause for that on all CPUs, about a
 * millisecond; each CPU's clock event keeps what was left of its period, so none comes early.
 * Events held back for their order are given out as well. Errors are kernel_ledger_get's; ticks go
 * on. */
int kernel_ledger_cut(struct kernel *kernel, kernel_event_fn fn, void *ctx,
		      struct kernel_ledger *ret);

/* What may change while it runs. A tick's weight is the period in force, the first one's after a
 * change also what had passed of the period before; weights so add up to the time through any
 * change, as long as no period is longer than the time between two changes. */
struct kernel_pace {
	enum fly_state state;
	uint64_t period_ns;
	uint32_t depth;
	enum fly_unwinder unwinder; /* tables only where they were asked for at the start */
	uint32_t suppressed_ppm;    /* share of samples dropped before anything is read */
	bool is_memory_drop;
	uint64_t cpu_budget_ns; /* of each FLY_BUDGET_WINDOW_NS on one CPU; 0: any */
};
int kernel_pace_set(struct kernel *kernel, const struct kernel_pace *pace);
/* All samples are dropped until kernel_pace_set. From any thread, not beside kernel_pace_set. */
void kernel_pace_suppress(struct kernel *kernel);
/* The ring since the last call: how full it was at most, and the age of what is still unread. */
struct kernel_pressure {
	uint32_t ring_used_ppm;
	uint64_t ring_lag_ns;
};
void kernel_pressure_take(struct kernel *kernel, struct kernel_pressure *ret);
/* Reads fdinfo of every map and the perf rings; keeps the peak. */
int kernel_memory_get(struct kernel *kernel, struct kernel_memory *ret);

/* ---------------------------------------------------------------- unwind tables
 * Storage only (abi/table_space.h); what lies there is decided by tables/. All sizes are part of
 * the plan: options.table_bytes (--table-memory, a multiple of a segment) is the most that segments
 * will take, options.processes the entries of fly_processes. Nothing here blocks but
 * kernel_tables_wait. */

/* Makes a segment exist; number below options.table_bytes / FLY_SEGMENT_BYTES. Returns its
 * FLY_SEGMENT_BYTES, zeroed, writable, valid until kernel_segment_remove, or NULL with why (no
 * memory: MEM-6). */
void *kernel_segment_add(struct kernel *kernel, uint32_t segment, struct why *why);
/* Gives it back. Nothing published may point into it. Waits like kernel_tables_wait. */
void kernel_segment_remove(struct kernel *kernel, uint32_t segment);
/* fly_tables, FLY_TABLES_MAX elements, writable. */
struct fly_table *kernel_tables(struct kernel *kernel);
/* Returns when every walk that began before the call has ended: what was unpublished before may be
 * written again. About 10 to 40 ms, so collect what waits. (An update of an ARRAY_OF_MAPS waits for
 * running programs: kernel commit 1ae80cf31938.) */
int kernel_tables_wait(struct kernel *kernel);
/* Enters or replaces, in one step for a walk that looks it up. -E2BIG: options.processes entries
 * are in use. */
int kernel_process_put(struct kernel *kernel, uint32_t tgid, const struct fly_process *process);
/* -ENOENT: there is none. */
int kernel_process_get(struct kernel *kernel, uint32_t tgid, struct fly_process *ret);
int kernel_process_remove(struct kernel *kernel, uint32_t tgid);

/* ---------------------------------------------------------------- trace spans (abi/span_place.h)
 */
/* Enters or replaces. -E2BIG: FLY_SPAN_PROCESSES_MAX processes are entered. */
int kernel_span_put(struct kernel *kernel, uint32_t tgid, const struct fly_span_place *place);
/* -ENOENT: there is none, any more. */
int kernel_span_remove(struct kernel *kernel, uint32_t tgid);

#endif
