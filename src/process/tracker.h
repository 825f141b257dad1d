/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracker: what the files of this part share. tracker.c follows the kernel's events, scans.c asks
 * /proc through the helpers and enters what it says, files.c knows the files and holds them,
 * mappings.c and container.c are pure.
 *
 * An entry (struct process) is one program image: an exec of a sampled process ends its entry and
 * begins another, so that samples from before are never placed in mappings from after. Entries are
 * found by tgid while they live and until another takes the tgid; ended ones keep their mappings
 * for LINGER_NS, for samples that waited. Only sampled entries have an id and leave a record.
 */
#ifndef FLYBALL_PROCESS_TRACKER_H
#define FLYBALL_PROCESS_TRACKER_H

#include "process/mappings.h"
#include "process/process.h"

#include "abi/reasons.h"

#define uthash_malloc(n)       mem_alloc(MEM_PROCESS, n)
#define uthash_free(p, n)      mem_free(MEM_PROCESS, p)
#define HASH_NONFATAL_OOM      1
#define uthash_nonfatal_oom(e) ((e)->is_oom = true)
#include <uthash.h>
#include <utlist.h>

#define MS 1000000ULL
#define S  (1000 * MS)

#define LINGER_NS      (2 * S)	  /* ended entries keep their mappings so long */
#define LINGER_MAX     8192	  /* ended entries kept in all */
#define EXEC_WAIT_NS   (100 * MS) /* from the comm of an exec to BPF's record of it */
#define SETTLE_NS      (200 * MS) /* samples wait for a scan no longer */
#define LEADER_GONE_NS (30 * S)	  /* silence after which a process without leader has ended */
#define PRESUMED_NS    (2 * S)	  /* silence after which one that /proc does not know has */
#define REVIVE_NS      (50 * MS)  /* a sample so long after the end: it was not the end */
#define PENDING_MAX    16
#define STRINGS_BYTES  (32U << 20)
#define RECORDS_MAX    262144
#define FILES_MAX      16384
#define REQUESTS_MAX   4096
#define CGROUPS_MAX    8192
#define VIEWS_MAX      65536
#define SCANS_PER_TICK 64

/* What is kept of a sampled process for good. Text by id in tracker->strings. */
struct who {
	uint32_t tgid, comm, exe, container, cgroup;
	uint64_t start_ns, cgroup_id;
};

struct record {
	struct who who;		 /* when process is NULL */
	struct process *process; /* NULL: forgotten */
};

/* A mapping as the side-band says it, before its file is known. */
struct raw_mapping {
	uint64_t start, end, offset, time_ns;
	uint64_t dev, ino, generation;
	uint32_t path; /* cleaned */
	uint8_t kind;  /* enum raw_kind */
	uint8_t build_id_len;
	uint8_t build_id[20];
};
enum raw_kind { RAW_FILE, RAW_ANONYMOUS, RAW_VDSO };

/* Why an address is asked about grows rarer: see scans.c. */
struct backoff {
	uint64_t next_ns;
	uint32_t step;
};

struct process {
	UT_hash_handle hh;	     /* in by_tgid, when is_listed */
	struct process *prev, *next; /* in live or ended */
	struct who who;
	int64_t id; /* -1: never sampled */
	uint32_t parent_tgid;
	uint32_t view;
	struct process_maps *maps;   /* NULL: nothing known (out of memory) */
	struct raw_mapping *pending; /* mapped by an exec whose record is not here yet */
	size_t pending_count, pending_cap;
	uint64_t exec_ns; /* the exec's comm event; 0: none pending */
	uint32_t threads;
	uint32_t pins;	 /* scans under way */
	uint32_t losses; /* t->losses as of what maps hold */
	bool is_oom, is_listed, is_ended;
	bool has_threads;     /* threads is exact */
	bool has_exact_start; /* not from /proc, which counts clock ticks */
	bool has_view;
	bool has_cgroup; /* cgroup and container are known, or inherited */
	bool is_kernel;
	bool leader_gone;
	bool awaits_record; /* of an exec whose comm event came */
	bool is_scanning, wants_scan, waits_for_scan;
	uint64_t touched_ns, sampled_ns, scanned_ns, ended_ns;
	uint64_t end_at_ns; /* silence until then ends it; 0: none */
	uint64_t settle_ns;
	struct backoff unplaced, periodic;
};

struct view {
	UT_hash_handle hh;
	struct view_key {
		uint64_t root_dev, root_ino;
		uint32_t mount_namespace, zero;
	} key;
	uint32_t id;
	bool is_oom;
};

/* Cgroup v2 id to names, where the id says it all. */
struct cgroup {
	UT_hash_handle hh;
	uint64_t id;
	uint64_t asked_ns;
	uint32_t path, container;
	bool is_known;
	bool is_shared; /* the v1 hierarchies say more: one id, several containers */
	bool is_oom;
};

struct file_key {
	uint64_t dev, ino, generation;
	uint32_t path, view;
	uint8_t kind, build_id_len;
	uint8_t build_id[20];
	uint8_t zero[2];
};

enum hold_state { HOLD_NONE, HOLD_WANTED, HOLD_ASKED, HOLD_KEPT, HOLD_FAILED };

struct file {
	UT_hash_handle hh;
	struct file_key key;
	struct process_file pub;
	int32_t id;
	uint8_t hold; /* enum hold_state */
	bool is_oom, is_sampled, is_wanted, wants_inspect, has_stat;
	uint32_t pins, mark;
	uint64_t seen_ns; /* in a mapping */
	struct backoff retry;
	uint64_t dev, ino; /* by fstat */
};

struct request {
	struct request *prev, *next;
	struct process_tracker *tracker; /* NULL: gone */
	struct process *process;	 /* scan */
	struct process_maps *maps;	 /* scan: as of the request */
	uint64_t since_ns;
	uint32_t losses;
	int32_t file;
};

struct process_tracker {
	struct process_options opt;
	const char *proc;
	struct strings *strings;
	uint64_t now_ns;   /* the latest of all times given */
	uint64_t event_ns; /* of the last event */
	uint64_t losses;
	uint64_t reconcile_ns; /* 0: none due */

	struct process *by_tgid;
	struct process *live, *ended; /* least recently touched first; by time of end */
	size_t live_count, ended_count;
	struct record *records;
	size_t record_count, record_cap;

	struct view *views;
	uint32_t next_view;
	struct cgroup *cgroups;

	struct file *file_by_key;
	struct file **files; /* NULL: free */
	size_t file_count, file_cap;
	int32_t free_files; /* slots that are NULL */
	uint64_t next_key;
	uint32_t sweep;
	uint64_t swept_ns;
	bool has_waiting_files;
	struct process_extent *extents; /* of process_extents_get */
	size_t extent_cap;

	struct request *requests;
	struct process_stats stats;
};

/* --- tracker.c --- */
struct process *process_entry_find(struct process_tracker *t, uint32_t tgid);
struct process *process_entry_create(struct process_tracker *t, uint32_t tgid, uint64_t time_ns);
void process_entry_end(struct process_tracker *t, struct process *p, uint64_t time_ns);
/* Whether start_ns names the same process; inexact ones are cut to clock ticks of 10 ms. */
bool process_is_same_start(const struct process *p, uint64_t start_ns, bool is_exact);
uint32_t process_view_id(struct process_tracker *t, const struct view_key *key);
/* 0, the empty text, when there is no memory for it. */
uint32_t process_text_id(struct process_tracker *t, const char *text);
/* Tells whoever asked to be told. */
void process_tell(struct process_tracker *t, const struct process *p, enum process_change change);
struct request *process_request_new(struct process_tracker *t);
void process_request_free(struct request *r);

/* --- scans.c --- */
bool process_backoff_is_due(struct backoff *b, uint64_t now_ns, const uint64_t *steps,
			    size_t count);
/* Asks, or remembers to ask at the next tick. */
void process_scan_ask(struct process_tracker *t, struct process *p);
/* A frame could not be placed, or nothing is known of p: asks at growing intervals, and lets
 * samples wait. */
void process_scan_unplaced(struct process_tracker *t, struct process *p);
/* Names of a cgroup by its id, from the cache; NULL: not known, or the id does not tell. */
const struct cgroup *process_cgroup_known(const struct process_tracker *t, uint64_t id);
bool process_cgroup_enter(struct process_tracker *t, struct process *p);
void process_cgroup_ask(struct process_tracker *t, struct process *p);
void process_scans_tick(struct process_tracker *t);
void process_cgroups_free(struct process_tracker *t);

/* --- container.c --- */
/* Whether the cgroup v2 id alone tells what this text says. */
bool process_cgroup_is_v2(const char *cgroup_text);

/* --- files.c --- */
/* path is as given, with " (deleted)" still on it. */
enum raw_kind process_path_kind(const char *path);
uint32_t process_path_clean(struct process_tracker *t, const char *path);
/* Finds or enters the file of a mapping; PROCESS_FILE_x when there is none. exe_dev and exe_ino
 * belong to its key when they are known. With hold_now a new one is held at once. */
int32_t process_file_enter(struct process_tracker *t, const struct process *p,
			   const struct raw_mapping *m, uint64_t exe_dev, uint64_t exe_ino,
			   bool hold_now);
/* A frame lay in it. */
void process_file_sampled(struct process_tracker *t, const struct process *p, int32_t id,
			  const struct process_mapping *m);
void process_files_tick(struct process_tracker *t);
void process_files_free(struct process_tracker *t);

#endif
