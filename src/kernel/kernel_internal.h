/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this part share. Nobody outside includes it, but tests of single pieces.
 */
#ifndef FLYBALL_KERNEL_INTERNAL_H
#define FLYBALL_KERNEL_INTERNAL_H

#include "kernel/kernel.h" /* IWYU pragma: export */

struct flyball_bpf;
struct ring_buffer;

/* ---------------------------------------------------------------- cpus.c
 * Sets of CPUs as the kernel writes them ("0-3,8"). */
#define KERNEL_CPUS_MAX 8192
struct kernel_cpus {
	uint64_t bits[KERNEL_CPUS_MAX / 64];
	uint32_t count, limit; /* limit: highest + 1 */
};
int kernel_cpus_parse(const char *text, struct kernel_cpus *ret);
/* which: "online", "possible", "isolated", "nohz_full". */
int kernel_cpus_read(const char *which, struct kernel_cpus *ret, struct why *why);
bool kernel_cpus_has(const struct kernel_cpus *cpus, uint32_t cpu);

/* Reads a small text file whole; cut to size - 1, NUL-terminated. Bytes read, or -errno. */
int kernel_read_text(const char *path, char *text, size_t size);

/* ---------------------------------------------------------------- plan.c */
#define KERNEL_SEGMENT_BYTES (4096 + FLY_SEGMENT_BYTES) /* of kernel memory */
uint64_t kernel_ring_map_bytes(uint64_t ring_bytes);
/* Data bytes of one side-band ring when there are so many CPUs: a power of two. */
uint64_t kernel_sideband_ring_bytes(uint32_t cpus);
struct kernel_map_plan *kernel_plan_find(struct kernel_memory *memory, const char *name);

/* ---------------------------------------------------------------- room.c */
/* Bytes left in our memory cgroup and those above it, root being the mount's directory and
 * cgroup_text that of /proc/self/cgroup; UINT64_MAX: no limit. */
uint64_t kernel_room_in(const char *root, const char *cgroup_text);
uint64_t kernel_room(void);

/* ---------------------------------------------------------------- order.c
 * Holds events back until they are old enough for nothing older to come, and gives them out by
 * time. Bounded: when full, the older half is given out early. */
typedef void (*kernel_order_fn)(void *ctx, uint32_t kind, const void *data, size_t bytes);
struct kernel_order_item {
	uint64_t time_ns, sequence;
	uint32_t offset, bytes, kind;
};
struct kernel_order {
	uint8_t *data;
	size_t len, cap, max;
	struct kernel_order_item *items;
	size_t count, items_cap;
	uint64_t sequence;
	uint64_t given_ns; /* time of the last one given out */
	uint64_t late;	   /* given out after one that was younger */
	kernel_order_fn fn;
	void *ctx; /* set by the owner before adding: a full queue gives out */
};
int kernel_order_init(struct kernel_order *order, size_t max_bytes);
void kernel_order_done(struct kernel_order *order);
/* Copies a, then b. -ENOSPC only when one event exceeds the bound. */
int kernel_order_add(struct kernel_order *order, uint64_t time_ns, uint32_t kind, const void *a,
		     size_t a_bytes, const void *b, size_t b_bytes);
/* Gives out all up to and including until_ns, in order. Returns how many. */
size_t kernel_order_give(struct kernel_order *order, uint64_t until_ns);

/* ---------------------------------------------------------------- sideband.c */
/* One perf record with sample_id_all (TID | TIME | CPU). 1: *ret is set, *ret_text points into the
 * record or is NULL; 0: of no interest; -EBADMSG. Reads nothing outside [record, record + bytes).
 */
int kernel_sideband_decode(const uint8_t *record, size_t bytes, struct kernel_event *ret,
			   const char **ret_text);
struct kernel_sideband_cpu {
	int fd; /* -1: none */
	void *map;
	size_t map_bytes, data_bytes;
	uint64_t bad; /* damaged records, never seen so far */
};
typedef void (*kernel_sideband_fn)(void *ctx, const struct kernel_event *event, const char *text);
int kernel_sideband_open(struct kernel_sideband_cpu *side, uint32_t cpu, uint64_t data_bytes,
			 struct why *why);
void kernel_sideband_close(struct kernel_sideband_cpu *side);
/* scratch holds 64 KiB: records that wrap around the ring's end are put together there. */
size_t kernel_sideband_drain(struct kernel_sideband_cpu *side, uint8_t *scratch,
			     kernel_sideband_fn fn, void *ctx);

/* ---------------------------------------------------------------- clockevents.c */
struct kernel_clock_cpu {
	int fd, link_fd; /* -1: none */
	uint64_t enabled_base_ns;
	uint64_t enabled_last_ns; /* as of the last scan */
	bool is_running;
};
int kernel_clock_open(struct kernel_clock_cpu *clock, uint32_t cpu, uint64_t period_ns, int prog_fd,
		      struct why *why);
/* Adds the time it was enabled to *total_ns. */
void kernel_clock_close(struct kernel_clock_cpu *clock, uint64_t *total_ns);
int kernel_clock_enable(struct kernel_clock_cpu *clock);
void kernel_clock_disable(struct kernel_clock_cpu *clock);
/* Takes effect at once: the period under way begins anew. */
int kernel_clock_pace(struct kernel_clock_cpu *clock, uint64_t period_ns);
uint64_t kernel_clock_enabled_ns(const struct kernel_clock_cpu *clock);
/* Enables all at random times within one period (at most 100 ms), so that ticks of different CPUs,
 * and of two runs, have nothing to do with each other. */
int kernel_clock_start(struct kernel *kernel, struct why *why);

/* ---------------------------------------------------------------- the whole */
struct kernel_cpu {
	struct kernel_clock_cpu clock;
	struct kernel_sideband_cpu side;
	uint64_t enabled_gone_ns;	 /* of events already closed */
	uint64_t idle_start_ns, idle_ns; /* by /proc/stat: at the start, and as last read */
	/* As of the last change of the period: ticks expected, ticks' worth of idle, and at which
	 * enabled and idle times. */
	uint64_t paced_ticks, paced_idle, paced_enabled_ns, paced_idle_ns;
};
struct kernel_segment {
	void *map; /* NULL: there is none */
	int fd;
};
struct kernel {
	struct kernel_options options;
	struct kernel_memory memory;
	struct flyball_bpf *bpf;
	struct fly_control *control;
	struct ring_buffer *ring;
	int sample_fd; /* the program */
	int exec_link_fd, fork_link_fd, counters_fd, marks_fd;
	struct kernel_segment segments[FLY_SEGMENTS_MAX];
	struct fly_table *tables;
	struct kernel_cpus possible;
	uint32_t cpu_count; /* length of cpus[] */
	struct kernel_cpu *cpus;
	uint64_t period_ns;
	uint64_t sideband_bytes;
	uint64_t scan_ns; /* last look at hotplug */
	int epoll_fd;
	bool is_running, is_behind;
	uint64_t last_record_ns, last_exec_ns;
	size_t ring_budget; /* bytes this poll may still take from the ring */
	uint64_t invalid, invalid_ns, sideband_lost, execs_lost;
	struct kernel_order order;
	uint8_t *scratch;
	kernel_event_fn fn;
	void *ctx;
	size_t given;
};

/* load.c */
int kernel_load(struct kernel *kernel, struct why *why);
void kernel_unload(struct kernel *kernel);
/* segments.c: with FLY_UNWIND_TABLES, else nothing */
void kernel_segments_choose(struct kernel *kernel);
int kernel_segments_open(struct kernel *kernel, struct why *why);
void kernel_segments_close(struct kernel *kernel);
void kernel_segments_measure(struct kernel *kernel, bool is_memlock_true);
/* kernel.c: takes what a CPU's side-band still holds and says that records were lost. */
void kernel_cpu_lost(struct kernel *kernel, uint32_t cpu);
/* hotplug.c */
int kernel_cpus_open(struct kernel *kernel, struct why *why);
void kernel_cpus_close(struct kernel *kernel);
/* Looks for CPUs that came, went, or came back (their events are dead then). */
void kernel_cpus_follow(struct kernel *kernel, uint64_t now_ns);
/* missed.c */
void kernel_idle_parse(struct kernel *kernel, const char *stat_text, bool is_start);
void kernel_idle_read(struct kernel *kernel, bool is_start);
uint64_t kernel_missed(const struct kernel_cpu *cpu, uint64_t period_ns,
		       const struct fly_counters *counters, uint64_t enabled_ns);
/* kernel.c: how long a CPU's events were enabled, of old ones, too. */
uint64_t kernel_enabled_ns(const struct kernel_cpu *cpu);
/* memory.c */
uint64_t kernel_memlock(int fd); /* as fdinfo has it; 0: unknown */
void kernel_memory_measure(struct kernel *kernel);
/* doctor.c: whether this kernel can freeze on user reads in interrupts. signature: what Ubuntu has
 * in /proc/version_signature, or NULL. */
bool kernel_has_read_bug(const char *release, const char *build, const char *signature);
/* Why something failed: the first check that says flyball cannot run here, or the text
 * already in why. */
int kernel_explain(struct why *why, int err);
/* -EOPNOTSUPP with a sentence where loading would work and recording must not be tried. */
int kernel_refuse(struct why *why);

#endif
