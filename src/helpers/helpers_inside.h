/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers, inside the main process: requests and their way, the helper processes, what is known to
 * hang. helpers.c has the interface and the queues, helpers_process.c starts, ends and counts
 * processes, helpers_traffic.c moves packets and keeps deadlines.
 */
#ifndef FLYBALL_HELPERS_INSIDE_H
#define FLYBALL_HELPERS_INSIDE_H

#include "helpers_answer.h"

#define HASH_NONFATAL_OOM	1
#define uthash_malloc(bytes)	mem_alloc(MEM_HELPERS, bytes)
#define uthash_free(p, bytes)	mem_free(MEM_HELPERS, p)
#define uthash_nonfatal_oom(el) ((el)->is_lost = true)
#include <uthash.h>

#define HELPERS_QUEUE_MAX	4096
#define HELPERS_QUEUE_BYTES_MAX (16U << 20)
#define HELPERS_DYING_MAX	(HELPERS_STUCK_MAX + HELPER_KINDS)
#define HELPERS_BAD_MAX		256

enum helper_kind { HELPER_OPENER, HELPER_READER, HELPER_KINDS };

enum request_state {
	REQUEST_QUEUED,
	REQUEST_AT_OPENER, /* sent, not acked */
	REQUEST_AT_READER, /* acked, not answered */
	REQUEST_FAILED,	   /* waits for the next helpers_poll to say so */
	REQUEST_WAITING,   /* for a symbol file */
};

struct packed;

struct request {
	struct request *prev, *next; /* in the list of its state */
	enum request_state state;
	helpers_done done; /* NULL: release */
	void *ctx;
	unsigned int tries;
	unsigned int kills; /* helpers that somebody killed while they were at it */
	uint64_t dev, ino, mtime_ns;
	bool is_layered;
	uint32_t unnamed;      /* REQUEST_FAILED */
	int fd;		       /* goes with it; -1: none */
	struct packed *packed; /* its symbol file, once that was thought of */
	uint32_t plain_op;     /* what it is without it */
	bool was_diverted;     /* found no better way */
	bool is_lost;	       /* uthash had no memory */
	size_t bytes;	       /* of the packet */
	size_t addresses_at;
	UT_hash_handle hh; /* by wire.ticket */
	/* The packet as sent: text and addresses follow. Last, for the flexible part. */
	struct wire_request wire;
	char rest[];
};

/* A circular list with its head inside. */
struct request_list {
	struct request *first, *last;
	size_t count, bytes;
};

struct helper {
	int pid, pidfd; /* -1: not running */
	bool is_ready, has_worked, has_cpu_mark;
	uint64_t spawned_ns, progress_ns;
	uint64_t cpu_mark_ns; /* its CPU time when it began to take long */
	uint64_t next_spawn_ns;
	unsigned int failures; /* in a row: ended before doing anything */
	int ended_by;	       /* signal that ended the last one that ended by itself; 0: none */
	char last_words[WIRE_TEXT_MAX];
};

struct dying {
	int pid, pidfd;
	uint64_t killed_ns;
};

struct bad {
	uint64_t key, process_start_ns;
	uint32_t tgid, unnamed;
	bool is_open; /* hung in open, else failed in the reader */
	enum bad_scope {
		BAD_ALL,
		BAD_LINES,   /* over its lines: everything else may go on */
		BAD_PACK,    /* over its symbol file: the same */
		BAD_TABLE,   /* over its unwind table: the same */
		BAD_CONTEXT, /* over a process's memory: the same */
	} scope;
};

/* Symbol files (helpers_symbols.c). */
struct symbols {
	int directory; /* -1: none are made */
	uint64_t bytes, bytes_max;
	unsigned int parts;
	struct packed *files; /* by key */
};

struct helpers {
	int epoll, event;
	/* Both ends of each pair: ours, and the one a replacement inherits. */
	int requests, requests_end, answers, answers_end, jobs, jobs_end;
	char directory[512];
	uint64_t deadline_ns;
	bool is_stopping, is_polling;

	struct helper helper[HELPER_KINDS];
	struct dying dying[HELPERS_DYING_MAX];
	size_t dying_count;
	unsigned int restarts[HELPER_KINDS];
	uint64_t ended_user_ns, ended_system_ns;
	struct helpers_job_stats jobs_done[HELPERS_JOB_COUNT];

	uint64_t buried_ns; /* when ended ones were last looked for */

	uint64_t last_ticket;
	struct request *by_ticket;
	struct request_list urgent, normal, tables, lines, opener, reader, failed, waiting;
	size_t reader_bound; /* in opener or reader, and for the reader */
	size_t reader_bound_bytes;
	unsigned int tables_bound; /* of these, tables */
	unsigned int since_table;  /* others sent for the reader since the last table */
	bool is_reader_full;	   /* said WIRE_ACK_BUSY since its last answer */
	unsigned int pending;
	size_t pending_bytes;

	struct bad bad[HELPERS_BAD_MAX];
	size_t bad_next;

	struct symbols symbols;

	struct buf answer; /* of answer_ticket, so far */
	uint64_t answer_ticket;
};

/* --- helpers.c --- */
void request_move(struct helpers *h, struct request *r, enum request_state state, bool at_front);
/* Calls back and frees. */
void request_finish(struct helpers *h, struct request *r, const struct helpers_result *result);
/* What the opener's ack said of the file. */
void request_place(const struct request *r, struct helpers_result *ret);
void request_fail(struct helpers *h, struct request *r, int err, uint32_t unnamed,
		  const char *text);
/* Back to the front of the queue, under a new ticket: what was sent may still be answered. Returns
 * what is in r's place now, or NULL without memory; r is as it was then. */
struct request *request_again(struct helpers *h, struct request *r);
struct request *request_find(struct helpers *h, uint64_t ticket);
bool request_needs_reader(const struct request *r);
/* The file a request is about; its debug file is another one. */
uint64_t request_blame_key(const struct request *r);
/* A request for the same file, with other work; not submitted. NULL: no memory. */
struct request *request_clone(const struct request *r, uint32_t op);
int request_submit(struct helpers *h, struct request *r, helpers_done done, void *ctx);
bool request_is_table(const struct request *r);
enum helpers_job request_job(const struct request *r);
/* enum fly_unnamed when the request is for what is known to hang; 0 otherwise. */
uint32_t request_is_bad(const struct helpers *h, const struct request *r);
void request_blame(struct helpers *h, const struct request *r, uint32_t unnamed, bool is_open);

/* --- helpers_symbols.c --- */
/* Before a new request is queued: what it is to wait for, or what it is to be instead. */
void symbols_prepare(struct helpers *h, struct request *r);
/* When it is in its list: asks for what it waits for. */
void symbols_begin(struct helpers *h, struct request *r);
/* An answer is about to be given; true when the request goes another way instead. */
bool symbols_divert(struct helpers *h, struct request *r, const struct helpers_result *result);
void symbols_done(struct helpers *h);

/* --- helpers_process.c --- */
int helper_spawn(struct helpers *h, enum helper_kind kind, struct why *why);
/* Starts program PARENT with first as descriptor 3 and second (-1: none) as 4, and no other. */
int helper_exec(const char *program, int first, int second, char **envp, int *ret_pid);
/* Kills without waiting; it goes to the dying. */
void helper_kill(struct helpers *h, enum helper_kind kind);
/* True when it has ended by itself (and is reaped). */
bool helper_has_ended(struct helpers *h, enum helper_kind kind);
void helper_reap_dying(struct helpers *h);
unsigned int helper_stuck_count(const struct helpers *h);
/* Starts what should run and does not, within the limits. */
void helper_revive(struct helpers *h, uint64_t now);
bool helper_is_running(const struct helpers *h, enum helper_kind kind);
uint64_t helper_cpu_ns(const struct helper *helper);
/* State letter of /proc/PID/stat, user and system time; 0 when it is gone. */
char helper_state(const struct helper *helper, uint64_t *ret_user_ns, uint64_t *ret_system_ns);
uint64_t helper_anon_bytes(const struct helper *helper);
int helpers_open_pairs(struct helpers *h, struct why *why);
void helpers_close_pairs(struct helpers *h);
/* Where the helper programs lie. */
void helpers_directory(const char *directory, char *out, size_t out_size);
int helpers_find_directory(struct helpers *h, const char *directory, struct why *why);

/* --- helpers_traffic.c --- */
void helpers_send_queued(struct helpers *h);
void helpers_drain(struct helpers *h);
void helpers_enforce(struct helpers *h, uint64_t now);

#endif
