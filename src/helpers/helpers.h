/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers: the process boundary (DESIGN decision 15).
 *
 *   main  ──request──▶  opener  ──descriptor──▶  reader  ──answer──▶  main
 *
 * The main process never opens, reads, stats or closes a file or memory that belongs to someone
 * else, since each of these can block for ever. It asks flyball-opener (privileged: opens, fstats,
 * keeps descriptors), which hands the descriptor to flyball-reader (no capabilities, seccomp,
 * rlimits: parses), which answers main. Both are started by exec, hold no BPF or perf descriptor,
 * die with main (PR_SET_PDEATHSIG and EOF), are killed at a deadline without being waited for,
 * and are replaced. Stuck ones are counted and limited (HELPERS_STUCK_MAX): past it, requests that
 * need a file fail with FLY_UNNAMED_HELPER_LIMIT.
 *
 * What a helper was at when it ended by itself is to blame and not tried again; what it was at when
 * somebody killed it is tried twice more.
 *
 * Answers come from processes that read hostile bytes: every length, count and string is checked
 * before it reaches a callback.
 *
 * A file is opened by map_files or exe, then below the process's root, and, when the process is
 * gone, by its path in our own root, which counts only if its build-id is the expected one. A file
 * (and a process with two of them) that hung once is not tried again. A held descriptor keeps the
 * file's mount busy until helpers_release or helpers_stop.
 *
 * One owning thread, the one that called helpers_start: the helpers die with it, not only with the
 * process. Replacements need the capabilities main had at the start. Callbacks run inside
 * helpers_poll, in no promised order, exactly once for each accepted request, also at helpers_stop
 * (with -ECANCELED).
 */
#ifndef FLYBALL_HELPERS_H
#define FLYBALL_HELPERS_H

#include "base/base.h"
#include "context/context.h"
#include "elf/elf.h"
#include "unwind/unwind.h"

#define HELPERS_STUCK_MAX   4
#define HELPERS_DEADLINE_MS 1000 /* for an open, and for a read, unless options say otherwise */

/* Which file. A file key is chosen by the caller (process part) and names one file for the life of
 * the recording: the opener keeps the descriptor under it (LRU), so that a deleted file can still
 * be read. */
struct helpers_file {
	uint64_t key;
	uint32_t tgid;		   /* initial PID namespace; a process that maps it */
	uint64_t process_start_ns; /* start_boottime: the opener checks it, so that a reused PID is
				      not taken (0: unchecked) */
	uint64_t start, end;	   /* the mapping: /proc/TGID/map_files/START-END */
	const char
		*path; /* as mapped; tried below /proc/TGID/root when map_files fails; NULL: none */
	uint64_t ino;  /* expected inode, 0: unknown */
	uint8_t build_id_len; /* expected build-id, 0: unknown; the reader verifies it */
	uint8_t build_id[ELF_BUILD_ID_MAX];
};

/* One executable mapping found by a scan. */
struct helpers_mapping {
	uint64_t start, end, pgoff; /* bytes */
	uint64_t ino;
	uint32_t dev_major, dev_minor;
	const char *path; /* as in maps, " (deleted)" taken off; "" for anonymous */
	bool is_deleted;
};

struct helpers_scan {
	uint32_t tgid;
	uint32_t namespace_pid; /* innermost */
	uint32_t uid;
	uint64_t process_start_ns; /* CLOCK_BOOTTIME, from stat field 22: clock ticks precision */
	const char *comm, *exe;	   /* exe: readlink text without " (deleted)"; "" unknown. These,
				      cgroup and the mappings' paths are bytes as the kernel gave
				      them: text_print before showing */
	const char *cgroup;	   /* text of /proc/PID/cgroup, at most 4 KiB */
	uint32_t mount_namespace;
	size_t mapping_count;
	const struct helpers_mapping *mappings; /* by address; at most HELPERS_MAPPINGS_MAX */
	bool is_cut;				/* there were more */
};
#define HELPERS_MAPPINGS_MAX 4096

struct helpers_name {
	uint64_t vaddr;	  /* as asked; the answer is sorted by it */
	uint32_t unnamed; /* enum fly_unnamed, 0: name is set */
	uint64_t start;
	const char *name; /* "" unless named; printable UTF-8 */
};

/* Where the code at an address comes from: frames of inlined calls, innermost first; the last is
 * the function that holds the code. Its name is what helpers_names says before what it says here.
 */
struct helpers_frame {
	const char *function, *file; /* "": not known; printable UTF-8 */
	uint32_t line;		     /* 0: not known */
};
struct helpers_line {
	uint64_t vaddr;	      /* as asked; the answer is sorted by it */
	uint32_t unnamed;     /* enum fly_unnamed, 0: there are frames */
	uint32_t frame_count; /* at most HELPERS_FRAMES_MAX */
	const struct helpers_frame *frames;
};
#define HELPERS_FRAMES_MAX	64
#define HELPERS_TABLE_BYTES_MAX (7U << 20)
#define HELPERS_NAMES_PER_TABLE 1
#define HELPERS_LINES_MAX	512 /* addresses in one request for lines */

/* err: 0, or negative errno with reason (enum fly_unnamed) and text. Pointers live for the call. */
struct helpers_result {
	int err;
	uint32_t unnamed; /* enum fly_unnamed for err != 0 */
	const char *text;
	const struct elf_info *info;	  /* inspect */
	uint64_t dev, ino, mtime_ns;	  /* inspect, hold: from the opener's fstat */
	bool is_layered;		  /* and its file system is overlayfs */
	uint64_t stamp;			  /* perf map, never 0 */
	const struct helpers_scan *scan;  /* scan */
	const struct helpers_name *names; /* names */
	size_t name_count;
	bool is_stripped;		  /* names: the file has no .symtab */
	const char *debug_link;		  /* names: its .gnu_debuglink; "" none, or not printable */
	const struct helpers_line *lines; /* lines */
	size_t line_count;
	const char *supplement; /* lines: what helpers_debug_lines wants to know; "": nothing */
	const struct helpers_table *table;     /* table */
	const struct helpers_context *context; /* context */
	const uint8_t *digest;		       /* inside: of what a symbol file is made */
};
typedef void (*helpers_done)(void *ctx, const struct helpers_result *result);

struct helpers_options {
	const char *directory;	  /* where flyball-opener and flyball-reader lie; NULL: beside
				     /proc/self/exe, then LIBEXECDIR */
	unsigned int deadline_ms; /* 0: HELPERS_DEADLINE_MS */
};

/* What the reader did, by what it was asked for. The names are in helpers_job_names. */
enum helpers_job {
	HELPERS_JOB_SCAN,
	HELPERS_JOB_INSPECT,
	HELPERS_JOB_NAMES,
	HELPERS_JOB_LINES,
	HELPERS_JOB_TABLE,
	HELPERS_JOB_SYMBOL_FILE,
	HELPERS_JOB_COUNT,
};
extern const char *const helpers_job_names[HELPERS_JOB_COUNT];

/* As the reader says; of a job that was ended at its deadline, as long as it was waited for. One
 * that somebody killed it over is not counted. */
struct helpers_job_stats {
	uint64_t jobs, busy_ns, longest_ns;
};

struct helpers_stats {
	unsigned int opener_restarts, reader_restarts, stuck;
	struct helpers_job_stats jobs[HELPERS_JOB_COUNT];
	uint64_t own_user_ns, own_system_ns; /* of live and ended helpers, from /proc or wait4 */
	uint64_t anon_bytes;		     /* RssAnon now, all helpers */
	unsigned int pending;		     /* accepted, not answered */
};

/* The unwind table of a file, and what it was made from. */
struct helpers_table {
	struct unwind_table table; /* its parts, stats included */
	uint8_t hash[32]; /* BLAKE2b-256 of the call frame information: identity, with build-id */
};

/* What a process publishes of its trace context (context.h). */
enum helpers_context_state {
	HELPERS_CONTEXT_NONE,	     /* its threads publish nothing */
	HELPERS_CONTEXT_FOUND,	     /* place is set */
	HELPERS_CONTEXT_LATER,	     /* they do, or may soon, but not by a way that is open now */
	HELPERS_CONTEXT_UNSUPPORTED, /* in a way that cannot be followed: text says why */
	HELPERS_CONTEXT_INVALID,     /* its process context makes no sense: text says why */
	HELPERS_CONTEXT_STATES,
};
struct helpers_context {
	uint64_t
		published_ns; /* of its process context, changes with each update; 0: it has none */
	enum helpers_context_state state;
	struct context_place place;
	uint32_t dtv_entry_bytes; /* 16: glibc, 8: musl */
	/* The process's attributes and the names of the threads' ones, by index; printable UTF-8.
	 */
	size_t attribute_count, key_count;
	const char *const (*attributes)[2]; /* key, value */
	const char *const *keys;
};

struct helpers;
#define HELPERS_SYMBOLS_CACHE	  "/var/cache/flyball/symbols"
#define HELPERS_SYMBOLS_CACHE_MAX (512ULL << 20) /* bytes; the least recently used go first */
int helpers_start(const struct helpers_options *options, struct helpers **ret, struct why *why);
/* Kills both, waits for nothing that does not come within deadline_ms. NULL is fine. */
void helpers_stop(struct helpers *helpers);
/* From now on names come out of symbol files (symbol_packed.h), which the reader makes once for
 * each binary, and which are kept in a directory of our own: they outlive recordings and binaries.
 * Where one cannot be had, names are read from the binary as without. path NULL:
 * HELPERS_SYMBOLS_CACHE; bytes_max 0: HELPERS_SYMBOLS_CACHE_MAX. Before the first request. */
int helpers_symbols_start(struct helpers *helpers, const char *path, uint64_t bytes_max,
			  struct why *why);
/* An epoll descriptor that becomes readable when helpers_poll has something to do. */
int helpers_fd(const struct helpers *helpers);
/* Reads answers, enforces deadlines; call it when the fd is readable and at least every 100 ms. */
int helpers_poll(struct helpers *helpers);

/* Requests. -EAGAIN when the queue (4096) is full: the caller keeps the work and comes back. */
/* Opens and keeps the descriptor: nothing is read. */
int helpers_hold(struct helpers *helpers, const struct helpers_file *file, helpers_done done,
		 void *ctx);
/* What the file is: elf_info. */
int helpers_inspect(struct helpers *helpers, const struct helpers_file *file, helpers_done done,
		    void *ctx);
/* Names for link-time addresses (at most 4096 a request). */
int helpers_names(struct helpers *helpers, const struct helpers_file *file, const uint64_t *vaddrs,
		  size_t count, helpers_done done, void *ctx);
/* The same of a stripped file, from its separate debug file: looked for by build-id and by link (of
 * an answer of helpers_names, or "") below the process's root (ours, when it has ended), by
 * build-id also below our own, and verified by the reader (elf_debug.h). -ENOENT: there is none. */
int helpers_debug_names(struct helpers *helpers, const struct helpers_file *file,
			const struct elf_info *info, const char *link, const uint64_t *vaddrs,
			size_t count, helpers_done done, void *ctx);
/* The same, from a debug file that came from elsewhere (fd, which stays the caller's). It counts
 * when it has the build-id; else -EBADMSG. */
int helpers_fetched_names(struct helpers *helpers, int fd, const uint8_t *build_id,
			  size_t build_id_len, const uint64_t *vaddrs, size_t count,
			  helpers_done done, void *ctx);
/* Source lines and inlined calls (at most HELPERS_LINES_MAX addresses). Waits until nothing else is
 * for the reader, and what it does to the reader costs no names: a file on which it failed is not
 * asked for lines again, but for names all the same. -ENOENT: the file has no lines at all. */
int helpers_lines(struct helpers *helpers, const struct helpers_file *file, const uint64_t *vaddrs,
		  size_t count, helpers_done done, void *ctx);
/* The same from its separate debug file, as helpers_debug_names; and from a debug file that came
 * from elsewhere, as helpers_fetched_names. Where dwz moved entries to a supplement an answer says
 * so: the file is asked again with that text, and its frames have all their names then. "": not
 * known of any. A program with lines of its own and a supplement is asked this way as well. */
int helpers_debug_lines(struct helpers *helpers, const struct helpers_file *file,
			const struct elf_info *info, const char *link, const char *supplement,
			const uint64_t *vaddrs, size_t count, helpers_done done, void *ctx);
int helpers_fetched_lines(struct helpers *helpers, int fd, const uint8_t *build_id,
			  size_t build_id_len, const uint64_t *vaddrs, size_t count,
			  helpers_done done, void *ctx);
/* The file's whole unwind table (result: table, valid for the call). One at a time is at the
 * reader: while names wait, each table lets HELPERS_NAMES_PER_TABLE of them go first, so neither
 * waits for ever. A file on which the reader failed is not asked for its table again, but for all
 * else. -ENOENT: the file has no call frame information; -ENOSPC: its table is larger than
 * bytes_max (or than HELPERS_TABLE_BYTES_MAX); -ERANGE, -EOPNOTSUPP: past a limit of unwind, or of
 * a kind it does not do; -EBADMSG: damaged, or it changed meanwhile; -EAGAIN: reading it took too
 * long just now, and it may be asked for again. */
int helpers_table(struct helpers *helpers, const struct helpers_file *file, uint64_t bytes_max,
		  helpers_done done, void *ctx);
/* That of the vDSO; no file. */
int helpers_vdso_table(struct helpers *helpers, helpers_done done, void *ctx);
/* Names in the vDSO; no file. */
int helpers_vdso_names(struct helpers *helpers, const uint64_t *offsets, size_t count,
		       helpers_done done, void *ctx);
/* What /proc says of a process. */
int helpers_scan(struct helpers *helpers, uint32_t tgid, helpers_done done, void *ctx);
/* What a process publishes of its trace context. Its memory is read: a page that never comes costs
 * a deadline, and the process is not asked again. */
int helpers_context(struct helpers *helpers, uint32_t tgid, uint64_t process_start_ns,
		    helpers_done done, void *ctx);
/* Names of code without a file, by the perf map of its process: /tmp/perf-PID.map below the
 * process's root, PID as in its innermost PID namespace. It must be a regular file of the process's
 * user, reached without a symbolic link, written since the process began. Addresses are absolute.
 * The result's stamp names this content of the map; where it is known_stamp (0: unknown) nothing is
 * read, and the answer has no names. -ENOENT: there is no map, -EACCES: it is not to be trusted. */
int helpers_perfmap_names(struct helpers *helpers, uint32_t tgid, uint64_t process_start_ns,
			  uint64_t known_stamp, const uint64_t *addresses, size_t count,
			  helpers_done done, void *ctx);
/* Remembers where that map is to be looked for, also when the process has ended by then. */
int helpers_perfmap_hold(struct helpers *helpers, uint32_t tgid, uint64_t process_start_ns,
			 helpers_done done, void *ctx);
/* Drops the kept descriptor. */
void helpers_release(struct helpers *helpers, uint64_t key);

void helpers_stats_get(struct helpers *helpers, struct helpers_stats *ret);

#endif
