/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: which processes there are, what each has mapped where at a given time, and who they
 * are (executable, container).
 *
 * Fed by the kernel's side-band in order of CLOCK_MONOTONIC (the caller orders it, together with
 * the samples), by exec records from BPF, and by scans through the helpers for what ran before us,
 * after lost records, and when a frame cannot be placed (at growing intervals). A process is
 * (tgid, process_start_ns); a tgid that is used again is another process. An exec of a sampled
 * process begins a new id as well (same tgid and start, other program), so that a sample which
 * waits is never placed in a program it does not belong to. Everything is bounded: PROCESS_MAX live
 * entries (least recently used go first), PROCESS_MAPPINGS_MAX each.
 *
 * Files are identified by (build-id, path, view) where the view is the process's mount namespace
 * and root directory, or by (device, inode, generation) where there is no build-id: never by path
 * alone, never by build-id alone. A file that is new in the side-band is held by the opener at
 * once, so that its names survive the process and the file (short-lived programs); one that a scan
 * found is held when a frame lies in it.
 *
 * What ran before us is scanned at its first sample, or at its first fork, since its children share
 * what it has mapped: not all at the start, because most processes are never sampled.
 *
 * One owning thread. process_tracker owns processes and files; ids stay valid until _free.
 */
#ifndef FLYBALL_PROCESS_H
#define FLYBALL_PROCESS_H

#include "base/base.h"
#include "elf/elf.h"
#include "helpers/helpers.h"

#define PROCESS_MAX	     16384 /* live entries; ended ones that were sampled are kept small */
#define PROCESS_MAPPINGS_MAX 65536

struct process_tracker;

enum process_change {
	PROCESS_EXECUTED, /* another program; what it maps is known from now on */
	PROCESS_MAPPED,	  /* its mappings changed */
	PROCESS_ENDED,
};

struct process_options {
	struct helpers *helpers; /* NULL: no scans, no opens (tests) */
	bool no_files;		 /* --no-symbols: hold and inspect nothing */
	const char *proc; /* directory whose names tell who lives; NULL: "/proc". Only listed */
	/* Told of every live process, from inside the calls below; it must not call back. */
	void (*changed)(void *ctx, uint32_t tgid, enum process_change change);
	void *changed_ctx;
};

int process_tracker_new(const struct process_options *options, struct process_tracker **ret);
/* NULL is fine. Before or after helpers_stop: requests under way are let go. */
void process_tracker_free(struct process_tracker *tracker);

/* --- what the kernel says, in order of time_ns (CLOCK_MONOTONIC) --- */
void process_fork(struct process_tracker *t, uint64_t time_ns, uint32_t parent_tgid, uint32_t tgid,
		  uint32_t tid);
void process_exit(struct process_tracker *t, uint64_t time_ns, uint32_t tgid, uint32_t tid);
void process_comm(struct process_tracker *t, uint64_t time_ns, uint32_t tgid, uint32_t tid,
		  const char *comm, bool is_exec);
struct process_mmap {
	uint64_t start, bytes, pgoff;
	uint8_t build_id_len; /* 0: dev/ino/generation are set instead */
	uint8_t build_id[20];
	uint32_t dev_major, dev_minor;
	uint64_t ino, ino_generation;
	const char *path; /* as perf says it: "//anon", "[vdso]", "/usr/bin/x" */
};
void process_map(struct process_tracker *t, uint64_t time_ns, uint32_t tgid,
		 const struct process_mmap *map);
struct process_exec {
	uint64_t process_start_ns, cgroup_id;
	uint64_t exe_dev, exe_ino, root_dev, root_ino;
	uint32_t mount_namespace;
	const char *comm;
};
void process_exec(struct process_tracker *t, uint64_t time_ns, uint32_t tgid,
		  const struct process_exec *exec);
/* Side-band records were lost: sampled processes are scanned again. */
void process_lost(struct process_tracker *t, uint64_t time_ns);
/* Scans one that ran before us at once, without waiting for a sample (-p). */
void process_want_scan(struct process_tracker *t, uint32_t tgid);
/* Scans every process now in /proc, SCANS_PER_TICK at each tick. About 0.1 ms of CPU time each, so
 * only for who can afford it. */
int process_scan_all(struct process_tracker *t);
/* Timers: rescans that are due. Call about every 100 ms. */
void process_tick(struct process_tracker *t, uint64_t now_ns);

/* --- what samples ask --- */
/* Finds or makes the entry for a sampled process; -1 only when out of memory (or past 262,144
 * sampled programs). comm is the thread's, used while the process's is unknown. */
int64_t process_of_sample(struct process_tracker *t, uint64_t time_ns, uint32_t tgid,
			  uint64_t process_start_ns, uint64_t cgroup_id, const char *comm);

struct process_place {
	int32_t file;	      /* file id, -1: none */
	uint32_t unnamed;     /* enum fly_unnamed when file is -1 (MAPPING_UNKNOWN, ANONYMOUS) */
	uint64_t file_offset; /* of pc, bytes; for anonymous: the address itself */
};
/* Where pc lies as of the last event given; ended processes answer for 2 s. MAPPING_UNKNOWN asks
 * for a rescan (at growing intervals): the caller may place the sample's frames again after
 * process_is_settled says so (a sample waits at most 200 ms for it). */
void process_place(struct process_tracker *t, int64_t process, uint64_t pc,
		   struct process_place *ret);
/* False while a scan that may place more frames is under way and younger than its deadline. */
bool process_is_settled(const struct process_tracker *t, int64_t process);

struct process_info {
	uint32_t tgid;
	uint64_t start_ns;
	const char *comm;      /* of the process */
	const char *exe;       /* path, "" unknown */
	const char *container; /* 64 hex digits or "" */
	const char *cgroup;    /* path, "" unknown */
	uint64_t cgroup_id;
};
void process_get(const struct process_tracker *t, int64_t process, struct process_info *ret);

/* All executable mappings of a process, as of the last event given. */
struct process_extent {
	uint64_t start, end, offset; /* offset in the file, of start */
	uint64_t time_ns;	     /* when it was mapped, or found */
	int32_t file;		     /* -1: anonymous; -2: a file that could not be entered */
	bool is_shared;		     /* anonymous, but for the kernel it has an inode */
	uint32_t samples;	     /* frames that process_place found there */
};
struct process_extents {
	uint64_t start_ns; /* exact, or 0: not known yet */
	uint32_t parent_tgid;
	size_t count;
	const struct process_extent *items; /* by address, until the next call */
};
/* -ESRCH: there is no such live process; -ENOMEM. */
int process_extents_get(struct process_tracker *t, uint32_t tgid, struct process_extents *ret);

enum process_file_state {
	PROCESS_FILE_UNSEEN,
	PROCESS_FILE_ASKED,
	PROCESS_FILE_READY,
	PROCESS_FILE_FAILED
};
struct process_file {
	uint64_t key;	  /* for helpers_* */
	const char *path; /* without " (deleted)"; "[vdso]" for the vDSO */
	bool is_vdso;
	enum process_file_state state; /* of its inspection */
	uint32_t unnamed;	       /* enum fly_unnamed when FAILED */
	struct elf_info info;	       /* when READY; before, build_id as the kernel said it */
	struct helpers_file open;      /* how to ask for it; path points to the above */
	uint64_t mtime_ns, ino; /* of what was opened; 0: not known, ino: nor to be compared */
	int32_t same_as; /* the file this one turned out to be (one inode and content, seen first by
			    side-band, then by a scan), else its own id */
};
/* Ids are below this; those process_place never gave out may be empty (path ""). */
size_t process_file_count(const struct process_tracker *t);
const struct process_file *process_file_get(const struct process_tracker *t, int32_t file);
/* Asks for the inspection of a sampled file (once). */
void process_file_want(struct process_tracker *t, int32_t file);

/* For -v and for tests. */
struct process_stats {
	size_t live, ended, records, files;
	uint64_t scans, scans_failed, holds, holds_failed, inspections, evicted;
	uint64_t inspected; /* files that got their state READY or FAILED */
};
void process_stats_get(const struct process_tracker *t, struct process_stats *ret);

/* --- container identity (pure, tested by table) --- */
/* Container id from the text of /proc/PID/cgroup: v1, v2, hybrid; docker, containerd, cri-o,
 * podman, systemd forms. Writes 64 hex digits, or "" for none. */
void process_container_id(const char *cgroup_text, char out[65]);
/* The v2 path unless it is the root, else the first v1 path that is not; systemd escapes undone; ""
 * for none. */
void process_cgroup_path(const char *cgroup_text, char *out, size_t out_size);

#endif
