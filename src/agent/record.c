// SPDX-License-Identifier: Apache-2.0
/*
 * record: one recording, from start to written files.
 *
 * Order matters: outputs are opened first (what cannot be written is found out before anything
 * starts), helpers are started before BPF descriptors exist (they must hold none), the command's
 * process is made before the first tick and executes after it. The ledger is closed after the last
 * record was drained, and a recording whose ledger does not close fails loudly.
 */
#include "record_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS		    100
#define COST_EVERY_NS	    500000000ULL
#define COMMAND_DEADLINE_NS 5000000000ULL

struct recording {
	const struct agent_record_options *opt;
	struct output *outputs[AGENT_OUTPUTS_MAX];
	size_t output_count, written_count;
	const char *written[AGENT_OUTPUTS_MAX];
	struct session session;
	struct window *window;
	struct command command;
	struct profile_run run;
	struct kernel_ledger kernel_ledger;
	struct kernel_memory memory;
	struct cost cost;
	int epoll_fd, signal_fd, cgroup_fd;
	int pid_fds[AGENT_PIDS_MAX];
	size_t pids_left;
	uint64_t start_ns, start_realtime_ns;
	uint64_t next_cost_ns, next_progress_ns;
	int exit_status; /* of the command; -1: not ended */
	int end_signal;	 /* that ended the recording, 0: none */
	bool is_over, ended_command, signal_from_terminal;
	bool command_failed; /* to execute */
};

int agent_exit_of(int err)
{
	switch (err) {
	case 0:
		return AGENT_EXIT_DONE;
	case -EPERM:
	case -EACCES:
	case -EOPNOTSUPP:
	case -ENOSYS:
		return AGENT_EXIT_UNSUPPORTED;
	case -EINVAL:
	case -ERANGE:
	case -ENOSPC:
		return AGENT_EXIT_USAGE;
	default:
		return AGENT_EXIT_FAILED;
	}
}

/* ---------------------------------------------------------------- start */

static int open_outputs(struct recording *r, struct why *why)
{
	for (size_t i = 0; i < r->opt->output_count; i++) {
		int err = output_open(r->opt->outputs[i], &r->outputs[i], why);

		if (err)
			return err;
		r->output_count = i + 1;
	}
	return 0;
}

/* A pidfd is readable when all threads of the process have ended. */
static bool has_ended(int pidfd)
{
	struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1;
}

static int open_targets(struct recording *r, struct kernel_options *kernel, struct why *why)
{
	const struct agent_record_options *opt = r->opt;

	for (size_t i = 0; i < opt->pid_count; i++) {
		r->pid_fds[i] = (int)syscall(SYS_pidfd_open, opt->pids[i], 0);
		if (r->pid_fds[i] < 0 && (errno == EINVAL || errno == ENOENT))
			return why_set(why, -ESRCH, "%d is a thread; name its process",
				       (int)opt->pids[i]);
		if (r->pid_fds[i] < 0)
			return why_set(why, -errno,
				       errno == ESRCH ? "there is no process %d"
						      : "process %d cannot be followed: %m",
				       (int)opt->pids[i]);
		if (has_ended(r->pid_fds[i]))
			return why_set(why, -ESRCH,
				       "process %d has ended: it is a zombie, which waits to be "
				       "collected by its parent",
				       (int)opt->pids[i]);
		r->pids_left = i + 1;
	}
	if (opt->cgroup) {
		r->cgroup_fd = open(opt->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (r->cgroup_fd < 0)
			return why_set(why, -errno, "cannot open cgroup %s: %s", opt->cgroup,
				       strerror(errno));
		kernel->target = FLY_TARGET_CGROUP;
		kernel->cgroup_fd = r->cgroup_fd;
	} else if (opt->pid_count || opt->command) {
		kernel->target = FLY_TARGET_TASKS;
	}
	return 0;
}

static int mark_targets(struct recording *r, struct why *why)
{
	int err = 0;

	for (size_t i = 0; i < r->opt->pid_count && !err; i++)
		err = kernel_target_add(r->session.kernel, r->pid_fds[i], why);
	if (!err && r->opt->command) {
		err = command_prepare(r->opt->command, &r->command, why);
		if (!err)
			err = kernel_target_add(r->session.kernel, r->command.pidfd, why);
	}
	return err;
}

static int make_window(struct recording *r, struct why *why)
{
	const struct agent_record_options *opt = r->opt;
	struct window_options options = {
		.session = &r->session,
		.period_ns = 1000000000ULL / opt->kernel.hz,
		.command_line = opt->command_line,
		.depth = (uint16_t)opt->kernel.depth,
		.no_symbols = opt->no_symbols,
		.no_inlines = opt->no_inlines,
	};

	return window_new(&options, &r->window) ? why_set(why, -ENOMEM, "out of memory") : 0;
}

static int watch(struct recording *r, int fd, int kind)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)kind};

	return epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

enum watched {
	WATCH_SESSION = SESSION_READY,
	WATCH_SIGNAL,
	WATCH_COMMAND,
	WATCH_PIDS,
};

static int open_loop(struct recording *r, struct why *why)
{
	int err = 0;

	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (r->epoll_fd < 0)
		return why_set(why, -errno, "no event loop: %s", strerror(errno));
	err = watch(r, r->signal_fd, WATCH_SIGNAL);
	if (!err)
		err = session_watch(&r->session, r->epoll_fd);
	if (!err && r->opt->command)
		err = watch(r, r->command.pidfd, WATCH_COMMAND);
	for (size_t i = 0; i < r->opt->pid_count && !err; i++)
		err = watch(r, r->pid_fds[i], WATCH_PIDS + (int)i);
	return err ? why_set(why, err, "no event loop: %s", strerror(-err)) : 0;
}

static int start(struct recording *r, struct why *why)
{
	struct kernel_options kernel = r->opt->kernel;
	struct session_options session = {
		.kernel = &kernel,
		.debuginfod_urls = r->opt->debuginfod_urls,
		.debuginfod_cache = r->opt->debuginfod_cache,
		.symbol_cache = r->opt->symbol_cache,
		.cpu_budget_ppm = r->opt->cpu_budget_ppm,
		.has_tiers = r->opt->has_tiers,
		.has_lines = !r->opt->no_inlines && !r->opt->no_symbols,
		.no_symbols = r->opt->no_symbols,
	};
	int err = open_targets(r, &kernel, why);

	if (!err)
		err = kernel_plan(&kernel, &r->memory, why);
	if (!err)
		err = open_outputs(r, why);
	if (!err)
		err = session_signals(&r->signal_fd, why);
	if (!err && r->opt->cpu_budget_ppm) {
		cost_calibrate(&r->cost, r->opt->calibration);
		session.tick_ns = kernel_calibration_planned_ns(&r->cost.ticks);
	}
	if (!err)
		err = session_open(&session, &r->session, why);
	if (err == -EBADF && r->opt->cgroup)
		why_prefix(why, "--cgroup %s", r->opt->cgroup);
	if (!err)
		err = mark_targets(r, why);
	if (!err)
		err = open_loop(r, why);
	if (err)
		return err;
	err = make_window(r, why);
	if (err)
		return err;
	for (size_t i = 0; i < r->opt->pid_count; i++)
		process_want_scan(r->session.tracker, (uint32_t)r->opt->pids[i]);
	for (size_t i = 0; i < r->opt->pid_count; i++)
		unwinding_want(r->session.unwinding, (uint32_t)r->opt->pids[i]);
	r->start_ns = clock_monotonic_ns();
	r->start_realtime_ns = wallclock_at(r->session.clock, r->start_ns);
	err = session_start(&r->session, r->start_ns, why);
	if (!err && r->opt->command) {
		err = command_go(&r->command, r->opt->command, why);
		r->command_failed = err;
	}
	return err;
}

/* ---------------------------------------------------------------- loop */

static volatile sig_atomic_t is_written;

/* Async-signal-safe: the second Ctrl-C. */
static void give_up(int signal_number)
{
	static const char given_up[] = "flyball: given up; nothing more is written\n";
	static const char done[] =
		"flyball: all files are written; the command is not waited for\n";
	const char *text = is_written ? done : given_up;

	output_abandon_all();
	if (write(STDERR_FILENO, text, strlen(text)) < 0) {
		/* nowhere to say it */
	}
	_exit(128 + signal_number);
}

static void arm_give_up(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGQUIT};
	struct sigaction action = {.sa_handler = give_up};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		sigaction(numbers[i], &action, NULL);
		sigaddset(&set, numbers[i]);
	}
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void on_signal(struct recording *r)
{
	struct signalfd_siginfo info;

	if (read(r->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	r->end_signal = (int)info.ssi_signo;
	r->signal_from_terminal = info.ssi_code == SI_KERNEL;
	r->is_over = true;
}

static void on_command_end(struct recording *r)
{
	int status;

	if (waitpid(r->command.pid, &status, WNOHANG) != r->command.pid)
		return;
	r->exit_status = command_exit_status(status);
	r->command.pid = -1;
	r->is_over = true;
	epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->command.pidfd, NULL);
}

/* A -p process ended. When all have, so does the recording (their children may go on: they are
 * reported up to here). */
static void on_pid_end(struct recording *r, size_t index)
{
	epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->pid_fds[index], NULL);
	if (--r->pids_left == 0)
		r->is_over = true;
}

/* A cgroup that was removed has no processes any more, nor ever again: its name would be another's.
 */
static void look_at_cgroup(struct recording *r)
{
	if (r->cgroup_fd < 0 || !faccessat(r->cgroup_fd, "cgroup.procs", F_OK, 0))
		return;
	log_warn("cgroup %s was removed, which ends the recording", r->opt->cgroup);
	r->is_over = true;
}

static void print_progress(struct recording *r, uint64_t now)
{
	struct intake_counts counts;

	if (now < r->next_progress_ns || r->opt->command || !isatty(STDERR_FILENO))
		return;
	r->next_progress_ns = now + 500000000ULL;
	intake_counts_get(r->window->intake, &counts);
	fprintf(stderr, "\rrecording: %.0f s", (double)(now - r->start_ns) / 1e9);
	if (r->opt->duration_ns)
		fprintf(stderr, " of %.0f s", (double)r->opt->duration_ns / 1e9);
	fprintf(stderr, ", %" PRIu64 " samples (Ctrl-C ends it) ", counts.delivered);
}

static void end_progress(const struct recording *r)
{
	if (r->next_progress_ns)
		fputs("\r\033[K", stderr);
}

/* One turn: everything that is due now. */
static void turn(struct recording *r, uint64_t now, bool is_final)
{
	session_turn(&r->session, r->window, now, is_final);
	if (now >= r->next_cost_ns) {
		r->next_cost_ns = now + COST_EVERY_NS;
		look_at_cgroup(r);
		cost_sample(&r->cost, r->session.helpers, r->session.fetch);
		kernel_memory_get(r->session.kernel, &r->memory);
	}
}

static int wait_ms(const struct recording *r, uint64_t now)
{
	uint64_t end = r->start_ns + r->opt->duration_ns;
	int most = session_wait_ms(&r->session, POLL_MS);

	if (r->opt->duration_ns && end - now < (uint64_t)most * 1000000)
		return (int)((end - now + 999999) / 1000000);
	return most;
}

static void loop(struct recording *r)
{
	while (!r->is_over) {
		uint64_t now = clock_monotonic_ns();
		struct epoll_event events[16];
		int n;

		if (r->opt->duration_ns && now - r->start_ns >= r->opt->duration_ns)
			break;
		print_progress(r, now);
		n = epoll_wait(r->epoll_fd, events, ARRAY_SIZE(events), wait_ms(r, now));
		for (int i = 0; i < n; i++) {
			uint32_t kind = events[i].data.u32;

			if (kind == WATCH_SIGNAL)
				on_signal(r);
			else if (kind == WATCH_COMMAND)
				on_command_end(r);
			else if (kind >= WATCH_PIDS)
				on_pid_end(r, kind - WATCH_PIDS);
		}
		turn(r, clock_monotonic_ns(), false);
	}
}

/* ---------------------------------------------------------------- end */

static void settle(struct recording *r)
{
	uint64_t now = clock_monotonic_ns();

	window_end(r->window, now);
	while (!window_settle(r->window, now)) {
		struct epoll_event events[4];

		if (epoll_wait(r->epoll_fd, events, ARRAY_SIZE(events), 10) < 0 && errno != EINTR)
			log_debug("settle: %s", strerror(errno));
		now = clock_monotonic_ns();
		session_answers(&r->session, now);
	}
}

/* The command outlived the recording. With a duration it is ended as timeout(1) would; a signal
 * that only we got is passed on; one from the terminal has reached it already. */
static void end_command(struct recording *r)
{
	if (!r->opt->command || r->command.pid <= 0)
		return;
	if (!r->end_signal)
		r->ended_command = true;
	if (!r->signal_from_terminal)
		kill(r->command.pid, r->end_signal ? r->end_signal : SIGTERM);
}

/* Everything is written by now, so waiting costs nothing but time; Ctrl-C gives up. */
static void wait_command(struct recording *r)
{
	uint64_t end = clock_monotonic_ns() + COMMAND_DEADLINE_NS;
	struct epoll_event event;

	while (r->opt->command && r->command.pid > 0) {
		on_command_end(r);
		if (r->command.pid <= 0)
			return;
		if (!r->signal_from_terminal && clock_monotonic_ns() > end) {
			log_warn("the command still runs, as process %d", (int)r->command.pid);
			return;
		}
		if (epoll_wait(r->epoll_fd, &event, 1, 50) < 0 && errno != EINTR)
			return;
	}
}

static int close_ledger(struct recording *r, struct why *why)
{
	static const struct kernel_ledger start;
	struct kernel_ledger *k = &r->kernel_ledger;
	int err = kernel_ledger_get(r->session.kernel, k);

	if (err)
		return why_set(why, err, "the kernel's counters cannot be read: %s",
			       strerror(-err));
	window_ledger_begin(&start, k, &r->run.ledger);
	window_ledger_close(r->window, &r->run.ledger);
	r->run.cpus = k->cpus;
	return 0;
}

static void tell_clock(const struct wallclock_stats *clock)
{
	if (clock->steps)
		log_warn("the wall clock was stepped %" PRIu64
			 " times during the recording, by %.3f s in all; timestamps are of the "
			 "clock as it was at their time",
			 clock->steps, (double)clock->stepped_ns / 1e9);
}

/* Each failure is said; a file counts as written only when it is whole and has its name. */
static int write_one(struct recording *r, struct output *out)
{
	struct why why = {""};
	int err = output_write(out, r->window->profile, r->opt->per_thread, &why);

	if (err)
		log_error("%s", why.text);
	else
		r->written[r->written_count++] = output_path(out);
	return err;
}

/* A FIFO may wait for its reader, so files come first. */
static int write_outputs(struct recording *r)
{
	int err = 0;

	for (int waits = 0; waits <= 1; waits++) {
		for (size_t i = 0; i < r->output_count; i++) {
			if (output_waits(r->outputs[i]) == waits && write_one(r, r->outputs[i]))
				err = -EIO;
		}
	}
	is_written = 1;
	return err;
}

static void report(const struct recording *r, const struct helpers_stats *helpers, int own_status)
{
	struct unwinding_stats unwinding;
	struct spans_stats spans;
	struct wallclock_stats clock;
	struct summary s = {
		.options = r->opt,
		.profile = r->window->profile,
		.run = &r->run,
		.kernel_ledger = &r->kernel_ledger,
		.memory = &r->memory,
		.cost = &r->cost,
		.governing = governing_totals(r->session.governing),
		.helpers = helpers,
		.spans = &spans,
		.clock = &clock,
		.exit_status = r->exit_status,
		.own_status = own_status,
		.files = r->written,
		.file_count = r->written_count,
	};

	spans_stats_get(r->session.spans, &spans);
	wallclock_stats_get(r->session.clock, &clock);
	tell_clock(&clock);
	unwinding_stats_get(r->session.unwinding, &unwinding);
	if (r->session.unwinding)
		s.unwinding = &unwinding;
	if (!r->opt->json)
		summary_print(&s, stderr);
	else if (summary_print_json(&s, stdout))
		log_error("the summary could not be written to stdout");
}

static int finish(struct recording *r)
{
	struct helpers_stats helpers = {0};
	struct why why = {""};
	bool is_exact;
	int err;

	kernel_stop(r->session.kernel);
	r->run.duration_ns = clock_monotonic_ns() - r->start_ns;
	arm_give_up();
	end_progress(r);
	end_command(r);
	turn(r, clock_monotonic_ns(), true);
	settle(r);
	err = close_ledger(r, &why);
	r->run.start_realtime_ns = r->start_realtime_ns;
	r->run.hz = r->opt->kernel.hz;
	kernel_memory_get(r->session.kernel, &r->memory);
	helpers_stats_get(r->session.helpers, &helpers);
	cost_sample(&r->cost, r->session.helpers, r->session.fetch);
	cost_interrupts(&r->cost, r->opt->calibration, r->kernel_ledger.ticks);
	r->run.own_user_ns = r->cost.own_user_ns;
	r->run.own_system_ns = r->cost.own_system_ns;
	r->run.bpf_run_ns = (int64_t)r->kernel_ledger.run_ns;
	profile_run_set(r->window->profile, &r->run);
	if (!err)
		err = write_outputs(r) ? AGENT_EXIT_FAILED : 0;
	else
		log_error("%s", why.text);
	cost_sample(&r->cost, r->session.helpers, r->session.fetch);
	wait_command(r);
	is_exact = profile_ledger_is_exact(&r->run.ledger, &why);
	report(r, &helpers, err || !is_exact ? AGENT_EXIT_FAILED : AGENT_EXIT_DONE);
	if (!is_exact) {
		log_error("THE LEDGER DOES NOT CLOSE: %s. Do not trust this profile; please report "
			  "it",
			  why.text);
		return AGENT_EXIT_FAILED;
	}
	/* The command's own status goes first; a lost file is not hidden behind a 0. */
	if (r->opt->command && !r->ended_command && r->exit_status > 0)
		return r->exit_status;
	return err ? AGENT_EXIT_FAILED : AGENT_EXIT_DONE;
}

static void recording_done(struct recording *r)
{
	session_close(&r->session);
	window_free(r->window);
	session_free(&r->session);
	for (size_t i = 0; i < r->output_count; i++)
		output_abandon(r->outputs[i]);
	for (size_t i = 0; i < r->opt->pid_count; i++) {
		if (r->pid_fds[i] >= 0)
			close(r->pid_fds[i]);
	}
	command_cancel(&r->command);
	if (r->cgroup_fd >= 0)
		close(r->cgroup_fd);
	if (r->signal_fd >= 0)
		close(r->signal_fd);
	if (r->epoll_fd >= 0)
		close(r->epoll_fd);
}

static int failure_exit(const struct recording *r, int err)
{
	if (r->command_failed)
		return err == -ENOENT ? AGENT_EXIT_NOT_FOUND : AGENT_EXIT_NOT_EXECUTABLE;
	if (r->session.kernel || r->session.helpers || err == -EPERM || err == -ENOSPC ||
	    err == -EOPNOTSUPP)
		return agent_exit_of(err);
	return AGENT_EXIT_FAILED; /* a target or an output that is not there */
}

int agent_record(const struct agent_record_options *options)
{
	struct recording r = {
		.opt = options,
		.epoll_fd = -1,
		.signal_fd = -1,
		.cgroup_fd = -1,
		.exit_status = -1,
		.command = {.pid = -1, .pidfd = -1, .go_fd = -1, .error_fd = -1},
	};
	struct why why = {""};
	int err, status;

	memset(r.pid_fds, -1, sizeof(r.pid_fds));
	err = start(&r, &why);
	if (!err) {
		loop(&r);
		status = finish(&r);
	} else {
		log_error("%s", why.text[0] ? why.text : strerror(-err));
		status = failure_exit(&r, err);
	}
	recording_done(&r);
	return status;
}
