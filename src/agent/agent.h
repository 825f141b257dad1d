/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent: wires the parts into a recording. Nothing here computes what a part can compute; it says
 * who is told what, in which order, and what is done when something fails.
 *
 * agent_record runs one recording from start to written files, in the calling thread, which must
 * be the process's only one (it forks the command and uses signalfd). agent_run is the daemon.
 */
#ifndef FLYBALL_AGENT_H
#define FLYBALL_AGENT_H

#include <sys/types.h>

#include "base/base.h"
#include "http/http.h"
#include "kernel/kernel.h"
#include "profile/profile.h"
#include "store/store.h"

#define AGENT_PIDS_MAX	  256
#define AGENT_OUTPUTS_MAX 16

/* From the end of a recording until what has no name then is written without: whatever hangs. */
#define AGENT_NAMING_MAX_S 7

/* Exit statuses of every command (DESIGN §5). */
enum agent_exit {
	AGENT_EXIT_DONE = 0,
	AGENT_EXIT_FINDINGS = 1,
	AGENT_EXIT_USAGE = 2,
	AGENT_EXIT_UNSUPPORTED = 3, /* not permitted or not supported here */
	AGENT_EXIT_FAILED = 4,
	AGENT_EXIT_NOT_EXECUTABLE = 126,
	AGENT_EXIT_NOT_FOUND = 127,
	AGENT_EXIT_INTERRUPTED = 130,
};

struct agent_record_options {
	struct kernel_options kernel; /* target is set from the fields below */
	pid_t pids[AGENT_PIDS_MAX];   /* of the caller's PID namespace */
	size_t pid_count;
	const char *cgroup;   /* directory, NULL: none */
	char *const *command; /* NULL-terminated, NULL: none */
	uint64_t duration_ns; /* 0: until a signal, or the command's end */
	const char *outputs[AGENT_OUTPUTS_MAX];
	size_t output_count;
	const char *command_line;     /* for titles */
	const char *debuginfod_urls;  /* NULL: no server is asked */
	const char *debuginfod_cache; /* NULL: HELPERS_FETCH_CACHE */
	const char *calibration;      /* file; NULL: KERNEL_CALIBRATION_FILE */
	const char *symbol_cache;     /* NULL: HELPERS_SYMBOLS_CACHE; "": none */
	uint32_t cpu_budget_ppm;      /* of the node; 0: the rate is fixed */
	bool has_tiers;		      /* with a budget: CPU-3 */
	bool per_thread, no_symbols, no_inlines, json;
};

/* Bits 1 << fd of what was closed when the program started (main has put /dev/null there). */
extern unsigned int agent_closed_descriptors;

/* Runs it. Prints the summary (stderr) or, with json, one object on stdout. Returns the exit status
 * to leave with; whatever failed was said on stderr. */
int agent_record(const struct agent_record_options *options);

struct config;
/* What a configuration asks of the kernel side, planned for this machine: tables get the smaller of
 * what is configured and what the budget leaves. -ENOSPC with a sentence when nothing fits. */
int agent_kernel_options(const struct config *config, struct kernel_options *ret, struct why *why);

/* Profiles the node as the configuration says, into its store, until SIGTERM, SIGINT or SIGQUIT,
 * then drains within 5 s (names that take longer are left out, with the reason). Must be the
 * process's only thread when called. Returns the exit status to leave with; whatever failed was
 * said on stderr. */
int agent_run(const struct config *config);

/* Writes a profile to a file whose name says the format, as a recording does; "-" is stdout. */
int agent_output_write(const char *path, const struct profile *profile, struct why *why);

/* negative errno from kernel_open and its like to an exit status. */
int agent_exit_of(int err);

#endif
