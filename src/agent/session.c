// SPDX-License-Identifier: Apache-2.0
/*
 * session: the parts that watch the node for as long as anything is recorded: kernel side, helpers,
 * processes, unwind tables, trace spans. What a stretch of time yields is a window's.
 */
#include "record_private.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/kernel_names.h"
#include "agent/ksymbols.h"

/* Without these the helpers open less, and frames stay without names: better said at once. */
static void warn_of_missing_rights(void)
{
	static const struct {
		unsigned int number;
		const char *name;
	} wanted[] = {{CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
		      {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
		      {CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE"}};
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	if (syscall(SYS_capget, &header, data))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (!(data[wanted[i].number / 32].effective & 1U << wanted[i].number % 32))
			log_warn("without %s files of other users' programs cannot be opened: "
				 "their frames will have no names",
				 wanted[i].name);
	}
}

/* Names are better with, samples are good without. */
static void start_fetch(struct session *s, const struct session_options *opt)
{
	struct helpers_fetch_options options = {.urls = opt->debuginfod_urls,
						.cache = opt->debuginfod_cache};
	struct why why = {""};

	if (options.urls && helpers_fetch_start(&options, &s->fetch, &why))
		log_warn("debuginfod is not asked: %s", why.text);
}

static void start_symbols(struct session *s, const struct session_options *opt)
{
	struct why why = {""};

	if (opt->symbol_cache && !opt->symbol_cache[0])
		return;
	if (helpers_symbols_start(s->helpers, opt->symbol_cache, opt->symbol_cache_bytes, &why))
		log_warn("names are not kept for other recordings: %s", why.text);
}

static void process_changed(void *ctx, uint32_t tgid, enum process_change change)
{
	struct session *s = ctx;

	unwinding_changed(s->unwinding, tgid, change);
	spans_changed(s->spans, tgid, change);
}

static int make_parts(struct session *s, const struct session_options *opt)
{
	struct process_options process = {.helpers = s->helpers,
					  .no_files = opt->no_symbols,
					  .changed = process_changed,
					  .changed_ctx = s};
	struct spans_options spans = {.kernel = s->kernel, .helpers = s->helpers};
	int err = process_tracker_new(&process, &s->tracker);

	if (err)
		return err;
	unwinding_follow(s->unwinding, s->tracker);
	err = spans_new(&spans, &s->spans);
	if (!err)
		err = kernel_names_new(&s->kernel_names);
	if (!err)
		err = ksymbols_new(&s->ksymbols);
	return err ? err : wallclock_new(NULL, &s->clock);
}

static int open_governing(struct session *s, const struct session_options *opt, struct why *why)
{
	struct governing_options options = {
		.kernel = s->kernel,
		.kernel_options = opt->kernel,
		.helpers = s->helpers,
		.fetch = s->fetch,
		.cpu_budget_ppm = opt->cpu_budget_ppm,
		.has_tiers = opt->has_tiers,
		.has_tables = s->unwinding,
		.has_lines = opt->has_lines,
		.tick_ns = opt->tick_ns,
	};

	return opt->cpu_budget_ppm ? governing_new(&options, &s->governing, why) : 0;
}

int session_signals(int *ret_fd, struct why *why)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return why_set(why, -errno, "cannot block signals: %s", strerror(errno));
	*ret_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return *ret_fd < 0 ? why_set(why, -errno, "no signalfd: %s", strerror(errno)) : 0;
}

int session_open(const struct session_options *options, struct session *s, struct why *why)
{
	struct kernel_options kernel = *options->kernel;
	struct helpers_options helpers = {0};
	int err;

	/* Tables are made from files. */
	if (options->no_symbols)
		kernel.unwinder = FLY_UNWIND_FRAME_POINTERS;
	err = helpers_start(&helpers, &s->helpers, why);
	if (!err)
		err = kernel_open(&kernel, &s->kernel, why);
	if (!err && kernel.unwinder == FLY_UNWIND_TABLES)
		err = unwinding_open(s->kernel, &kernel, s->helpers, &s->unwinding);
	if (err)
		return err;
	/* Only now: where recording is impossible, nothing else is worth a word. */
	if (!options->no_symbols) {
		start_symbols(s, options);
		start_fetch(s, options);
		warn_of_missing_rights();
	}
	err = make_parts(s, options);
	return err ? why_set(why, err, "out of memory") : open_governing(s, options, why);
}

int session_watch(const struct session *s, int epoll_fd)
{
	const int fds[] = {kernel_fd(s->kernel), helpers_fd(s->helpers),
			   s->fetch ? helpers_fetch_fd(s->fetch) : -1, wallclock_fd(s->clock)};
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = SESSION_READY};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (fds[i] >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[i], &event))
			return -errno;
	}
	return 0;
}

int session_start(struct session *s, uint64_t start_ns, struct why *why)
{
	int err = kernel_start(s->kernel, why);

	return !err && s->governing ? governing_start(s->governing, start_ns, why) : err;
}

void session_close(struct session *s)
{
	governing_free(s->governing);
	/* Helpers first: their answers may still go to kernel memory. */
	helpers_stop(s->helpers);
	kernel_close(s->kernel);
	helpers_fetch_stop(s->fetch);
}

void session_free(struct session *s)
{
	process_tracker_free(s->tracker);
	spans_free(s->spans);
	ksymbols_free(s->ksymbols);
	wallclock_free(s->clock);
	kernel_names_free(s->kernel_names);
	unwinding_free(s->unwinding);
}

void session_answers(struct session *s, uint64_t now_ns)
{
	helpers_poll(s->helpers);
	if (s->fetch)
		helpers_fetch_poll(s->fetch);
	process_tick(s->tracker, now_ns);
}

void session_turn(struct session *s, struct window *w, uint64_t now_ns, bool is_final)
{
	if (!is_final) /* before the ring is read: it asks how full it is */
		governing_turn(s->governing, now_ns);
	wallclock_look(s->clock);
	kernel_poll(s->kernel, is_final, intake_event, w->intake);
	session_answers(s, now_ns);
	w->are_lines_held = !governing_wants(s->governing, GOVERNOR_LINES);
	window_step(w, now_ns);
	unwinding_hold(s->unwinding, !governing_wants(s->governing, GOVERNOR_TABLE_BUILDS));
	unwinding_step(s->unwinding, now_ns);
	spans_step(s->spans, now_ns);
}

int session_wait_ms(const struct session *s, int most_ms)
{
	return unwinding_poll_ms(s->unwinding, kernel_poll_ms(s->kernel, most_ms));
}
