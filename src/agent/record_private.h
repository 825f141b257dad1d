/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of agent/ share about one recording. Private to the part. */
#ifndef FLYBALL_AGENT_RECORD_PRIVATE_H
#define FLYBALL_AGENT_RECORD_PRIVATE_H

#include "agent/agent.h"
#include "agent/unwinding.h"
#include "agent/wallclock.h"
#include "governor/governor.h"
#include "helpers/helpers.h"
#include "helpers/helpers_fetch.h"
#include "kernel/kernel_calibrate.h"
#include "process/process.h"

struct debugfiles;
struct governing;
struct intake;
struct jit;
struct kernel_names;
struct ksymbols;
struct lines;
struct naming;
struct spans;
struct window;

/* ---------------------------------------------------------------- unwinding_kernel.c */
/* With FLY_UNWIND_TABLES. */
int unwinding_open(struct kernel *kernel, const struct kernel_options *options,
		   struct helpers *helpers, struct unwinding **ret);

/* ---------------------------------------------------------------- intake.c: events to samples */
struct intake_options {
	struct process_tracker *tracker;
	struct profile *profile;
	struct naming *naming;
	struct ksymbols *ksymbols;
	struct jit *jit;
	struct unwinding *unwinding; /* NULL: frame pointers alone */
	struct spans *spans;
	const struct wallclock *clock;
	uint16_t depth;
};
struct intake_counts {
	uint64_t delivered, delivered_ns;
	uint64_t profile_full, profile_full_ns;
};
int intake_new(const struct intake_options *options, struct intake **ret);
void intake_free(struct intake *in);
void intake_event(void *intake, const struct kernel_event *event);
/* Places waiting samples whose processes are known by now; with is_final all of them. */
void intake_flush(struct intake *in, uint64_t now_ns, bool is_final);
size_t intake_waiting(const struct intake *in);
void intake_counts_get(const struct intake *in, struct intake_counts *ret);
/* Tells the profile what became known of processes and files since. */
void intake_refresh(struct intake *in);

/* ---------------------------------------------------------------- naming.c: locations to names */
struct naming_options {
	struct process_tracker *tracker;
	struct profile *profile;
	struct lines *lines;	 /* is told what has its name */
	struct helpers *helpers; /* NULL with no_symbols */
	struct debugfiles *debugfiles;
	const struct ksymbols *ksymbols;
	struct kernel_names *kernel_names;
	bool no_symbols;
};
int naming_new(const struct naming_options *options, struct naming **ret);
void naming_free(struct naming *names);
/* profile file id -> tracker file id, or one of the below. */
enum { NAMING_FILE_KERNEL = -1, NAMING_FILE_ANONYMOUS = -2, NAMING_FILE_UNKNOWN = -3 };
int naming_file_add(struct naming *names, uint32_t profile_file, int32_t tracker_file);
/* Asks for names of what is new. Cheap when nothing is. */
void naming_ask(struct naming *names);
/* Requests without answer. */
size_t naming_pending(const struct naming *names);
/* Locations that wait for their file to be inspected, as of the last naming_ask. */
size_t naming_blocked(const struct naming *names);
/* Kernel names, and reasons for all that is still open (NO_TIME, NOT_ASKED). */
void naming_finish(struct naming *names);

/* ------------------------------------------------ debugfiles.c: code of stripped files */
struct debugfiles_options {
	struct process_tracker *tracker;
	struct profile *profile;
	struct helpers *helpers;
	struct helpers_fetch *fetch; /* NULL: no debuginfod */
};
int debugfiles_new(const struct debugfiles_options *options, struct debugfiles **ret);
/* After helpers_stop and helpers_fetch_stop. */
void debugfiles_free(struct debugfiles *d);
struct debugfiles_item {
	uint32_t location;
	uint64_t address; /* link-time */
};
/* What a stripped file of the tracker had no names for: each location gets a name or a reason.
 * link: its .gnu_debuglink, or "". */
int debugfiles_ask(struct debugfiles *d, int32_t file, const char *link,
		   const struct debugfiles_item *items, size_t count);
/* Sends what found no room before. */
void debugfiles_poll(struct debugfiles *d);
/* The recording is over: servers are asked and waited for until end_ns, and no longer. */
void debugfiles_end(struct debugfiles *d, uint64_t end_ns);
/* What debuginfod sent as the debug file of a file, not verified; it stays ours. -ENOENT: nothing,
 * -EAGAIN: not yet. d may be NULL. */
int debugfiles_fetched(const struct debugfiles *d, int32_t file);
/* How many answers are worth waiting for. */
size_t debugfiles_left(const struct debugfiles *d, uint64_t now_ns);
/* Requests that will still be answered. */
size_t debugfiles_requests(const struct debugfiles *d);
/* Reasons for what is still open. */
void debugfiles_finish(struct debugfiles *d);

/* ---------------------------------------------------------------- jit.c: code without a file */
struct jit_options {
	struct process_tracker *tracker;
	struct profile *profile;
	struct helpers *helpers; /* NULL with no_symbols */
	struct naming *naming;
	bool no_symbols;
};
int jit_new(const struct jit_options *options, struct jit **ret);
/* After helpers_stop: answers come until then. */
void jit_free(struct jit *jit);
/* The profile's location of an address in anonymous memory of a process, as of now. */
int64_t jit_location(struct jit *jit, int64_t process, uint64_t address);
/* Looks at the perf maps that are due. */
void jit_ask(struct jit *jit, uint64_t now_ns);
/* No samples come any more: each map is looked at once again. */
void jit_end(struct jit *jit);
/* Looks under way and, after jit_end, those still to be made. */
size_t jit_left(const struct jit *jit);
/* Requests that will still be answered. */
size_t jit_requests(const struct jit *jit);
/* Reasons for what has no name. */
void jit_finish(struct jit *jit);

/* ---------------------------------------------------------------- lines.c: lines, inlined calls */
struct lines_options {
	struct process_tracker *tracker;
	struct profile *profile;
	struct debugfiles *debugfiles; /* NULL with no_symbols */
	struct helpers *helpers;       /* NULL: nothing is asked */
};
int lines_new(const struct lines_options *options, struct lines **ret);
/* After helpers_stop: answers come until then. */
void lines_free(struct lines *lines);
/* A location whose name was answered; file is the tracker's, address the linker's. */
void lines_add(struct lines *lines, int32_t file, uint32_t location, uint64_t address);
/* The .gnu_debuglink of a file; "" or NULL: none. */
void lines_link(struct lines *lines, int32_t file, const char *link);
/* Asks for what was added. Large requests are cheaper than many: every few seconds, and at the end.
 * Names go before all of them. */
void lines_ask(struct lines *lines);
/* Locations without answer. */
size_t lines_left(const struct lines *lines);
/* Locations in requests that will still be answered. */
size_t lines_requests(const struct lines *lines);
/* No more answers count. */
void lines_finish(struct lines *lines);

/* ---------------------------------------------------------------- spans.c: trace context */
struct spans_options {
	struct kernel *kernel;
	struct helpers *helpers; /* NULL: nobody is asked */
};
struct spans_stats {
	uint64_t published;   /* processes that publish what they are */
	uint64_t unsupported; /* of them, their threads' spans are where they cannot be followed */
	uint64_t invalid;     /* processes whose context makes no sense or never answers */
	uint64_t full;	      /* times that the kernel had no room for one more process */
	uint64_t unnamed;     /* answers whose names of attributes found no room */
};
int spans_new(const struct spans_options *options, struct spans **ret);
/* After helpers_stop: answers come until then. */
void spans_free(struct spans *s);
void spans_sample(struct spans *s, const struct fly_sample *sample);
/* s may be NULL. */
void spans_changed(struct spans *s, uint32_t tgid, enum process_change change);
/* Asks who is due. Every 100 ms or so. */
void spans_step(struct spans *s, uint64_t now_ns);
/* Its service.name; "": it says none. s may be NULL. */
/* The attributes of a sample's span. Values lie in the sample, names here and in spans until the
 * next step. */
struct spans_attributes {
	struct profile_attribute list[PROFILE_ATTRIBUTES_MAX];
	char names[PROFILE_ATTRIBUTES_MAX][24];
	size_t count;
};
/* Not all could be had, and why; else PROFILE_SPAN_KNOWN. s may be NULL. */
enum profile_span_fault spans_attributes(const struct spans *s, const struct fly_sample *sample,
					 struct spans_attributes *ret);
const char *spans_service(const struct spans *s, uint32_t tgid, uint64_t start_ns);
void spans_stats_get(const struct spans *s, struct spans_stats *ret);

/* ---------------------------------------------------------------- session.c: who watches the node
 */
struct session_options {
	const struct kernel_options *kernel;
	const char *debuginfod_urls;  /* NULL: no server is asked */
	const char *debuginfod_cache; /* NULL: HELPERS_FETCH_CACHE */
	const char *symbol_cache;     /* NULL: HELPERS_SYMBOLS_CACHE; "": none */
	uint64_t symbol_cache_bytes;  /* at most; 0: HELPERS_SYMBOLS_CACHE_MAX */
	uint32_t cpu_budget_ppm;      /* of the node; 0: the rate is fixed */
	uint64_t tick_ns;	      /* what one costs, to plan a budget with; 0: not known */
	bool has_tiers, has_lines;
	bool no_symbols;
};
struct session {
	struct helpers *helpers;
	struct helpers_fetch *fetch; /* NULL: no debuginfod */
	struct kernel *kernel;
	struct unwinding *unwinding; /* NULL: frame pointers alone */
	struct process_tracker *tracker;
	struct spans *spans;
	struct ksymbols *ksymbols;
	struct wallclock *clock;
	struct kernel_names *kernel_names;
	struct governing *governing; /* NULL: the rate is fixed */
};
/* SIGINT, SIGTERM, SIGHUP and SIGQUIT come by a descriptor from here on, SIGPIPE not at all. */
int session_signals(int *ret_fd, struct why *why);
/* Into a zeroed *s, which stays where it is. Helpers are started before BPF descriptors exist: they
 * must hold none. Nothing is sampled yet: session_start. What an error leaves is closed and freed
 * as usual. */
int session_open(const struct session_options *options, struct session *s, struct why *why);
/* Wakes an epoll for all that session_turn takes; data.u32 is SESSION_READY. */
#define SESSION_READY 0
int session_watch(const struct session *s, int epoll_fd);
/* Ticks begin, and their cost counts. */
int session_start(struct session *s, uint64_t start_ns, struct why *why);
/* Ends helpers and the kernel side: no answer comes any more. Windows are freed between this and
 * session_free. */
void session_close(struct session *s);
void session_free(struct session *s);
/* Takes answers, and asks of processes what is due. */
void session_answers(struct session *s, uint64_t now_ns);
/* Gives out what was sampled to the open window, and does all that is due. is_final: after
 * kernel_stop, to the last record. */
void session_turn(struct session *s, struct window *w, uint64_t now_ns, bool is_final);
/* How long until the next turn, at most most_ms. */
int session_wait_ms(const struct session *s, int most_ms);

/* ---------------------------------------------------------------- window.c: a stretch of time */
struct window_options {
	const struct session *session;
	size_t max_bytes; /* of its profile; 0: profile.h's default */
	uint64_t period_ns;
	const char *command_line;
	uint16_t depth;
	bool no_symbols, no_inlines;
};
enum window_stage { WINDOW_OPEN, WINDOW_SAMPLES, WINDOW_NAMES, WINDOW_LINES, WINDOW_COMPLETE };
struct window {
	struct profile *profile;
	struct naming *naming;
	struct debugfiles *debugfiles;
	struct lines *lines;
	struct jit *jit;
	struct intake *intake; /* for kernel_poll: intake_event */
	enum window_stage stage;
	uint64_t stage_end_ns, next_ask_ns, next_lines_ns;
	bool are_lines_held; /* until the window ends */
};
int window_new(const struct window_options *options, struct window **ret);
/* With window_requests 0, or after helpers_stop and helpers_fetch_stop: answers come until then. */
void window_free(struct window *w);
/* Asks for what is due, while it is open. After each poll. */
void window_step(struct window *w, uint64_t now_ns);
/* No more samples come. From here on window_settle instead of window_step. */
void window_end(struct window *w, uint64_t now_ns);
/* Moves it on as far as it goes now; true once its profile is complete: AGENT_NAMING_MAX_S at most
 * after window_end. */
bool window_settle(struct window *w, uint64_t now_ns);
/* After window_end: completes it as it is. */
void window_finish(struct window *w);
/* Requests that will still be answered. */
size_t window_requests(const struct window *w);
/* The kernel's side of a ledger, between two looks at the counters. */
void window_ledger_begin(const struct kernel_ledger *since, const struct kernel_ledger *now,
			 struct profile_ledger *ret);
/* And once no sample waits any more, what the window made of it. */
void window_ledger_close(const struct window *w, struct profile_ledger *ledger);

/* ---------------------------------------------------------------- output.c: files */
struct output;
/* Finds out whether it can be written, before anything starts; leaves nothing behind on failure. */
int output_open(const char *path, struct output **ret, struct why *why);
const char *output_path(const struct output *out);
/* 1 when writing it may wait for somebody else (a FIFO), else 0. */
int output_waits(const struct output *out);
int output_write(struct output *out, const struct profile *profile, bool per_thread,
		 struct why *why);
void output_abandon(struct output *out); /* frees; unlinks what is not complete */
/* Async-signal-safe: unlinks every temporary file. */
void output_abandon_all(void);

/* ---------------------------------------------------------------- command.c: the followed command
 */
struct command {
	pid_t pid;
	int pidfd;
	int go_fd, error_fd;
};
/* Forks a child that waits; nothing is executed before command_go. */
int command_prepare(char *const *argv, struct command *ret, struct why *why);
/* Lets it execute. -ENOENT, -EACCES and so on when execve failed. */
int command_go(struct command *command, char *const *argv, struct why *why);
/* Ends what command_prepare made when command_go is not reached. */
void command_cancel(struct command *command);
/* Shell convention of a wait status. */
int command_exit_status(int wait_status);

/* ---------------------------------------------------------------- cost.c, summary.c */
struct cost {
	int64_t own_user_ns, own_system_ns;
	uint64_t peak_anon_bytes;
	uint64_t interrupt_ns;		 /* estimate: ticks times what one costs */
	struct kernel_calibration ticks; /* tick_ns 0: not known, and why: */
	struct why no_ticks;
};
/* The interrupts of so many ticks, by what flyball doctor --calibrate left in the file. */
void cost_interrupts(struct cost *cost, const char *file, uint64_t ticks);
/* For a budget it is measured where the file does not tell; said when that fails. */
void cost_calibrate(struct cost *cost, const char *file);
/* Call it now and then: it keeps the peak. */
void cost_sample(struct cost *cost, struct helpers *helpers, const struct helpers_fetch *fetch);

/* ---------------------------------------------------------------- watchdog.c: a stalled loop */
struct watchdog;
/* Needs no beat before it is made, one each turn from then on. */
int watchdog_new(struct kernel *kernel, struct watchdog **ret, struct why *why);
void watchdog_free(struct watchdog *w);
/* The loop goes round. true: it was away, all samples are suppressed, and the pace must be set. */
bool watchdog_beat(struct watchdog *w);

/* ---------------------------------------------------------------- governing.c: budgets held */
#define GOVERNING_EVENTS 256
struct governing;
struct governing_options {
	struct kernel *kernel;
	const struct kernel_options *kernel_options;
	struct helpers *helpers;
	const struct helpers_fetch *fetch; /* may be NULL */
	uint32_t cpu_budget_ppm;
	bool has_tiers, has_lines, has_tables;
	uint64_t tick_ns; /* what a tick costs; 0: not known, and then not in the cost */
	uint64_t start_ns;
};
struct governing_event {
	uint64_t since_start_ns;
	struct governor_outputs before, outputs;
};
struct governing_totals {
	uint32_t budget_ppm;
	uint64_t capacity_ns, sampling_ns, background_ns, bpf_ns, interrupt_ns;
	uint64_t over_ns; /* time in which the last second's mean was above the budget */
	uint64_t state_ns[3], tier_ns[GOVERNOR_TIERS];
	size_t stalls;		     /* that the watchdog saw */
	size_t changes, event_count; /* events beyond GOVERNING_EVENTS are only counted */
	struct governing_event events[GOVERNING_EVENTS];
};
/* Sets the rate to begin with. -EINVAL, -ERANGE with a sentence. */
int governing_new(const struct governing_options *options, struct governing **ret, struct why *why);
void governing_free(struct governing *g);
/* Costs count from here on, and the loop must go round. */
int governing_start(struct governing *g, uint64_t start_ns, struct why *why);
/* Does something ten times a second. NULL: nothing is governed, here and below. */
void governing_turn(struct governing *g, uint64_t now_ns);
bool governing_wants(const struct governing *g, uint32_t feature);
const struct governing_totals *governing_totals(const struct governing *g);

struct summary {
	const struct agent_record_options *options;
	const struct profile *profile;
	const struct profile_run *run;
	const struct kernel_ledger *kernel_ledger;
	const struct kernel_memory *memory;
	const struct cost *cost;
	const struct governing_totals *governing; /* NULL: no budget was given */
	const struct helpers_stats *helpers;
	const struct unwinding_stats *unwinding; /* NULL: frame pointers alone */
	const struct spans_stats *spans;
	const struct wallclock_stats *clock;
	int own_status;	 /* of flyball itself */
	int exit_status; /* of the command, shell convention; -1: still running or none */
	const char *const *files;
	size_t file_count;
};
void summary_print(const struct summary *s, FILE *to);
int summary_print_json(const struct summary *s, FILE *to);

#endif
