/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: the one model of a profile, the ledger, and the writers. Pure: no system call but
 * memory; writers give bytes to a sink.
 *
 * A profile is built by interning processes, files (mappings), locations and stacks, and adding
 * samples to (process, thread, comm, stack, cut bits, weight) keys: equal keys merge their count
 * and timestamps, which are kept to the nanosecond. Names are put on locations later
 * (profile_location_name); a writer shows what has none as "module+0xaddress", where address is
 * the linker's when the file's segments are known, else the file offset, and for the kernel
 * ("[kernel]"), anonymous ("[anon]") and unknown memory ("[unknown]") the address itself.
 *
 * Memory has a limit given at profile_new: past it samples are refused with -ENOSPC and the caller
 * counts them as profile_full. A name or path that finds no room is left out; its sample
 * stays. Writers need at most about as much again as the profile: dictionaries are built, samples
 * are streamed.
 *
 * All text is made valid UTF-8 on its way in (text_print); distinct bytes may become equal text,
 * never an invalid file.
 *
 * One owning thread; writers only read.
 */
#ifndef FLYBALL_PROFILE_H
#define FLYBALL_PROFILE_H

#include <linux/types.h>

#include "abi/reasons.h"
#include "base/base.h"

struct profile;

struct profile_options {
	size_t max_bytes; /* 0: 512 MiB */
	uint64_t period_ns;
	const char *command_line; /* for titles and comments */
};
int profile_new(const struct profile_options *options, struct profile **ret);
void profile_free(struct profile *profile);

/* ---------------------------------------------------------------- model */
struct profile_process {
	uint32_t pid;
	uint64_t start_ns; /* CLOCK_BOOTTIME */
	uint64_t program;  /* caller's number of the program it ran: an exec makes another entry */
	const char *comm, *exe, *container, *cgroup;
	const char *service; /* its service.name, as it says itself; NULL or "": it does not */
};
/* Returns an id, or negative errno. Interned by (pid, start_ns, program); profile_process_update
 * fills in what became known later. */
int64_t profile_process_add(struct profile *p, const struct profile_process *process);
void profile_process_update(struct profile *p, uint32_t process,
			    const struct profile_process *process_now);

struct profile_file {
	uint64_t key;	  /* caller's identity of the file; interned by it */
	const char *path; /* "/usr/bin/x", "[kernel.kallsyms]", "[vdso]", "//anon", "" unknown */
	uint8_t build_id_len, build_id[64];
	uint8_t has_htlhash, htlhash[16];
	/* executable segments: file offset -> link-time address; none: addresses are as given */
	uint32_t segment_count;
	struct profile_segment {
		uint64_t offset, vaddr, file_bytes;
	} segments[16];
};
int64_t profile_file_add(struct profile *p, const struct profile_file *file);
void profile_file_update(struct profile *p, uint32_t file, const struct profile_file *file_now);

enum profile_frame_kind { PROFILE_USER, PROFILE_KERNEL, PROFILE_INLINED, PROFILE_JIT };
/* A location is (file, address, kind); address is a file offset for files, an address for the
 * kernel, anonymous and unknown memory. pc - 1 for return addresses is the caller's work. */
int64_t profile_location_add(struct profile *p, uint32_t file, uint64_t address,
			     enum profile_frame_kind kind);
/* Where different code lies at one address at different times: one location for each variant. */
int64_t profile_location_add_variant(struct profile *p, uint32_t file, uint64_t address,
				     enum profile_frame_kind kind, uint32_t variant);
uint32_t profile_location_variant(const struct profile *p, uint32_t location);
/* An empty name is no name. symbol_start is not kept: no output has a place for it. */
void profile_location_name(struct profile *p, uint32_t location, const char *name,
			   uint64_t symbol_start);
void profile_location_unnamed(struct profile *p, uint32_t location, enum fly_unnamed reason);
/* Where a location's code comes from, innermost first: the calls that were inlined there, then the
 * function that holds the code. Of that one the name given by profile_location_name counts, and
 * this one where there is none. Texts may be NULL or "", line 0: not known. A chain that finds no
 * room is left out; of one longer than PROFILE_LINES_MAX the outer inlined ones are. */
#define PROFILE_LINES_MAX 64
struct profile_line {
	const char *function, *file;
	uint32_t line;
};
void profile_location_lines(struct profile *p, uint32_t location, const struct profile_line *lines,
			    size_t count);
/* Why a location has no lines although they were asked for and there may be some. */
void profile_location_unlined(struct profile *p, uint32_t location, enum fly_unnamed reason);
/* Walks locations that have neither name nor reason. visit returns 0 to go on. */
typedef int (*profile_location_visit)(void *ctx, uint32_t location, uint32_t file, uint64_t address,
				      enum profile_frame_kind kind);
int profile_locations_open(const struct profile *p, profile_location_visit visit, void *ctx);

/* The trace span a thread worked for: W3C ids, as bytes. */
struct profile_span {
	uint8_t trace_id[16], span_id[8];
};
/* Why a sample of a thread that publishes its spans has none, or not all attributes of it. */
enum profile_span_fault {
	PROFILE_SPAN_KNOWN,
	PROFILE_SPAN_PAGE_ABSENT,
	PROFILE_SPAN_INVALID,
	PROFILE_SPAN_ATTRIBUTES_TRUNCATED,
	PROFILE_SPAN_ATTRIBUTES_ABSENT,
	PROFILE_SPAN_ATTRIBUTES_INVALID,
	PROFILE_SPAN_FAULTS,
};

/* Of a span, as the thread says. A key that is one of ours is put into outputs as "context.KEY". */
#define PROFILE_ATTRIBUTES_MAX 64
struct profile_attribute {
	const char *key, *value;
	size_t value_bytes;
};

struct profile_sample {
	uint32_t process;
	uint32_t tid;
	const char *comm; /* of the thread, raw bytes of at most 15 */
	uint64_t time_ns; /* CLOCK_REALTIME */
	uint64_t weight_ns;
	uint32_t cut;	   /* bits 1 << FLY_CUT_x */
	bool is_near_base; /* only start code can be missing: no cut if its name shows to be that */
	uint32_t cpu;	   /* not kept: it would split every key by CPU */
	uint16_t depth_limit;  /* for the pseudo frame of depth cuts */
	size_t location_count; /* innermost first; kernel then user; at most 255 */
	const uint32_t *locations;
	const struct profile_span *span; /* part of the key (CTX-6); NULL: in none */
	enum profile_span_fault span_fault;
	const struct profile_attribute *attributes; /* part of the key, in any order */
	size_t attribute_count;
};
/* -ENOSPC: the limit; -ENOMEM; -EINVAL: an id that was never given out. */
int profile_sample_add(struct profile *p, const struct profile_sample *sample);

/* ---------------------------------------------------------------- ledger */
struct profile_ledger {
	uint64_t ticks, idle, filtered, taken, taken_ns, delivered, delivered_ns;
	uint64_t dropped[FLY_DROP_COUNT], dropped_ns[FLY_DROP_COUNT];
	uint64_t missed_by_kernel;
};
/* True when ticks = idle + filtered + taken and taken = delivered + sum(dropped), in samples and
 * in nanoseconds. Otherwise why says which side is off by how much. */
bool profile_ledger_is_exact(const struct profile_ledger *ledger, struct why *why);

/* What a run was; goes into every output and the summary. Durations in ns; -1: not known. */
struct profile_run {
	uint64_t start_realtime_ns, duration_ns;
	uint32_t cpus, hz;
	struct profile_ledger ledger;
	int64_t own_user_ns, own_system_ns, bpf_run_ns;
};
void profile_run_set(struct profile *p, const struct profile_run *run);
void profile_run_get(const struct profile *p, struct profile_run *ret);

/* ---------------------------------------------------------------- questions
 * visit returns 0 to go on; the last value is returned. What it is given is valid during the call.
 */
int profile_processes(const struct profile *p,
		      int (*visit)(void *ctx, const struct profile_process *process), void *ctx);
int profile_files(const struct profile *p, int (*visit)(void *ctx, const struct profile_file *file),
		  void *ctx);

struct profile_totals {
	uint64_t samples, weight_ns, complete; /* complete: without any cut flag */
	double weight_variance;		       /* as in struct profile_function_row */
	uint64_t cut[FLY_CUT_COUNT]; /* samples that carry the flag; one may carry several */
	uint64_t stacks, locations, processes, files; /* distinct ones */
	uint64_t spans, span_samples, span_ns;	      /* distinct ones; samples in spans */
	uint64_t span_faults[PROFILE_SPAN_FAULTS];    /* samples; [0] is not used */
	/* Samples whose leaf has no name, by the reason; [FLY_UNNAMED_NONE]: nobody gave one. */
	uint64_t unnamed_samples[FLY_UNNAMED_COUNT];
	/* Locations with lines; of these, with inlined calls; and those whose lines could not be
	 * had, by the reason. */
	uint64_t lined, inlined, unlined[FLY_UNNAMED_COUNT];
};
void profile_totals_get(const struct profile *p, struct profile_totals *ret);
struct profile_function {
	char name[256], module[128];
	uint64_t self_ns, total_ns;
};
/* The n heaviest by self, or by total (recursion counted once), a function being (name, module);
 * inlined calls count as functions.
 * Frames without a name are one function "[unnamed]" of their module; pseudo frames are none.
 * Returns how many were written. */
size_t profile_top(const struct profile *p, bool by_total, struct profile_function *out, size_t n);

/* ---------------------------------------------------------------- views */
/* All functions, as profile_top orders them. variance: of the time, in ns squared, as sampling
 * alone makes it (a sample more or less is its weight more or less). Rows and texts live until
 * _free. */
struct profile_function_row {
	const char *name, *module;
	uint64_t self_ns, total_ns;
	double self_variance, total_variance;
};
struct profile_functions;
int profile_functions_new(const struct profile *p, bool by_total, struct profile_functions **ret,
			  const struct profile_function_row **ret_rows, size_t *ret_count);
void profile_functions_free(struct profile_functions *functions);

/* Calls from the thread's comm down, the heaviest first, each node before its children; without
 * those of a lesser share of all. visit returns 0 to go on. */
struct profile_tree_node {
	const char *name, *module; /* module: "" of what is no code */
	uint32_t depth;
	uint64_t total_ns, self_ns;
};
typedef int (*profile_tree_visit)(void *ctx, const struct profile_tree_node *node);
int profile_tree(const struct profile *p, double min_share, profile_tree_visit visit, void *ctx);

/* Spans, the heaviest first, with the functions that ran most in each. */
#define PROFILE_SPAN_TOP 3
struct profile_span_total {
	struct profile_span span;
	uint64_t samples, weight_ns;
	size_t top_count;
	struct {
		const char *name;
		uint64_t self_ns;
	} top[PROFILE_SPAN_TOP];
};
typedef int (*profile_span_visit)(void *ctx, const struct profile_span_total *total);
int profile_spans(const struct profile *p, profile_span_visit visit, void *ctx);

/* ---------------------------------------------------------------- reasons (generated from
 * reasons.def) */
const char *profile_drop_name(enum fly_drop drop);
const char *profile_cut_name(enum fly_cut cut);
const char *profile_unnamed_name(enum fly_unnamed unnamed);
const char *profile_span_fault_name(enum profile_span_fault fault); /* "": none */
struct profile_reason {
	const char *name, *kind /* "drop", "cut", "unnamed" */, *text, *advice;
};
/* All reasons, in the order of the file; NULL past the end. */
const struct profile_reason *profile_reason_get(size_t index);

/* ---------------------------------------------------------------- writers
 *
 * All show the same frames by the same words. A sample with cut bits has at the root end of its
 * stack one pseudo frame for each: "[truncated: depth 127]", "[truncated: kernel depth 127]",
 * "[truncated: depth 32, ring pressure]", or "[incomplete: NAME]" with the name from reasons.def; a
 * sample with no frame and no flag has "[no stack]".
 *
 * A call that was inlined is a frame of its own: in folded and HTML one more, in pprof and OTLP one
 * more line of its location, innermost first; files and line numbers are in those two.
 *
 * Folded: comm is the thread's at the time of the sample.
 *
 * pprof: values samples/count and cpu/nanoseconds; labels pid, tid, comm, exe, container, cgroup,
 * cut, trace_id and span_id (hexadecimal), span_fault, and the span's attributes; comments
 * flyball.ledger.*, flyball.unnamed.REASON (samples) and flyball.unlined.REASON (locations). One
 * mapping for each executable segment: address - start + offset is the position in the file.
 *
 * OTLP: one resource a process, one Profile a period (its weight), timestamps only. Samples have
 * thread.id, thread.name, flyball.cut, flyball.span_fault, the span's attributes, and a Link;
 * locations profile.frame.type, flyball.unnamed_reason and flyball.unlined_reason. A Mapping must
 * have an identity (build-id or htlhash): a file without one is named by the attribute flyball.file
 * of its locations instead. The ledger (flyball.ledger.*) is of the node, so it stands once in a
 * request, on its first Profile: a sum over Profiles counts it once. Without samples that Profile
 * stands alone.
 *
 * HTML: as the page in ui/ reads it.
 */
/* 0 or negative errno; called in order with all bytes of the output. */
typedef int (*profile_sink)(void *ctx, const void *data, size_t bytes);

enum profile_format {
	PROFILE_FOLDED,
	PROFILE_PPROF,
	PROFILE_OTLP,
	PROFILE_OTLP_JSON,
	PROFILE_HTML
};
/* From a file's name: .folded .pb.gz .otlp .json .html; -EINVAL otherwise with the list in why. */
int profile_format_of(const char *path, enum profile_format *ret, struct why *why);
struct profile_write_options {
	bool per_thread; /* folded: "pid/tid comm" in place of "comm" */
};
/* Two calls over one profile give equal bytes. */
int profile_write(const struct profile *p, enum profile_format format,
		  const struct profile_write_options *options, profile_sink sink, void *ctx,
		  struct why *why);

/* ---------------------------------------------------------------- reading back
 *
 * Blocks, the bytes of OTLP outputs, are merged into one profile. What any of process (its whole
 * resource), thread, span, stack, cut, span fault or period tells apart stays apart (CTX-6);
 * counts, times and ledgers add up exactly. Frames at one address of one file, by its build-id, are
 * one: a name that one block lacks another gives. Any other two that differ in name or lines are
 * two.
 *
 * A block is any bytes: what is malformed (-EBADMSG), past a limit (-ERANGE) or of another kind
 * (-EOPNOTSUPP) is refused before anything of it counts, and the next one may be added. After
 * -ENOSPC (options.max_bytes) and -ENOMEM the profile is not whole and takes no more. Beside the
 * profile a block needs memory of at most 32 times its bytes while it is added.
 *
 * Lost on the way: frame kinds but kernel and user, names of processes whose program is known, the
 * start of a process.
 */
struct profile_filter {
	/* NULL: any. "*" in them stands for any text, but for ids, of which the first characters
	 * will do. process and thread are names or numbers. */
	const char *service, *process, *thread, *function;
	const char *container, *build_id;
	bool has_trace, has_span;
	struct profile_span span;  /* of it trace_id, span_id */
	uint64_t start_ns, end_ns; /* CLOCK_REALTIME, half open; 0: open */
};
struct profile_merge_seen {
	uint64_t blocks, without_ledger; /* of them */
	uint64_t samples, weight_ns;	 /* in all blocks */
	uint64_t left_out, left_out_ns;	 /* by the filter; in the ledger they are "filtered" */
};
struct profile_merge;
/* options.period_ns 0: the first block's. The filter's texts are borrowed. */
int profile_merge_new(const struct profile_options *options, const struct profile_filter *filter,
		      struct profile_merge **ret);
void profile_merge_free(struct profile_merge *merge);
int profile_merge_add(struct profile_merge *merge, const void *block, size_t bytes,
		      struct why *why);
const struct profile *profile_merge_get(const struct profile_merge *merge);
void profile_merge_seen_get(const struct profile_merge *merge, struct profile_merge_seen *ret);

#endif
