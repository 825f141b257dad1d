// SPDX-License-Identifier: Apache-2.0
/* daemon: see daemon.h. One thread beside the store's; a turn is at most 100 ms after the last. */
#include "daemon.h"
#include "wallclock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <utlist.h>

#define POLL_MS		    100
#define SETTLE_POLL_MS	    20
#define COST_EVERY_NS	    1000000000ULL
#define WINDOW_PROFILE_MAX  (24U << 20)
#define WINDOWS_MAX	    4 /* settling at once; past it the oldest is closed as it is */
#define DRAIN_NS	    3000000000ULL
#define STORE_DRAIN_NS	    1500000000ULL
#define TERM_TEXT_BYTES_MAX (4U << 20)
#define SYMBOLS_SHARE	    8 /* of the store's bytes, one in so many is for symbol files */

/* ---------------------------------------------------------------- a block of a window */

struct term_list {
	struct storing_block *block;
	size_t cap;
	int err;
};

/* Values move when the text grows, so they are offsets until all are there. */
static void add_term(struct term_list *list, enum store_term_kind kind, const void *value,
		     size_t len)
{
	struct storing_block *block = list->block;
	void *p = block->terms;

	if (!len || list->err || block->meta.term_count == STORE_TERMS_MAX)
		return;
	list->err = mem_grow(MEM_AGENT, &p, &list->cap, block->meta.term_count + 1, STORE_TERMS_MAX,
			     sizeof(*block->terms));
	block->terms = p;
	if (list->err)
		return;
	block->terms[block->meta.term_count++] = (struct store_term){
		.kind = kind, .value = (const void *)(uintptr_t)block->text.len, .len = len};
	buf_add(&block->text, value, len);
}

static void add_text(struct term_list *list, enum store_term_kind kind, const char *text)
{
	add_term(list, kind, text, text ? strlen(text) : 0);
}

static int add_process(void *ctx, const struct profile_process *process)
{
	struct term_list *list = ctx;
	char text[64];

	add_text(list, STORE_SERVICE, process->service);
	add_text(list, STORE_COMM, process->comm);
	add_text(list, STORE_EXE, process->exe);
	add_text(list, STORE_CONTAINER, process->container);
	snprintf(text, sizeof(text), "%u", process->pid);
	add_text(list, STORE_PID, text);
	snprintf(text, sizeof(text), "%u.%llu", process->pid,
		 (unsigned long long)process->start_ns);
	add_text(list, STORE_PROCESS, text);
	return list->err;
}

static int add_file(void *ctx, const struct profile_file *file)
{
	struct term_list *list = ctx;

	add_term(list, STORE_BUILD_ID, file->build_id, file->build_id_len);
	return list->err;
}

static int find_terms(struct storing_block *block, const struct profile *profile)
{
	struct term_list list = {.block = block};

	profile_processes(profile, add_process, &list);
	profile_files(profile, add_file, &list);
	if (list.err || block->text.err)
		return list.err ? list.err : block->text.err;
	for (size_t i = 0; i < block->meta.term_count; i++)
		block->terms[i].value = block->text.data + (uintptr_t)block->terms[i].value;
	block->meta.terms = block->terms;
	return 0;
}

static int add_bytes(void *ctx, const void *data, size_t bytes)
{
	struct buf *buf = ctx;

	buf_add(buf, data, bytes);
	return buf->err;
}

static int make_block(const struct closing *c, struct storing_block **ret, struct why *why)
{
	struct storing_block *block = mem_alloc(MEM_AGENT, sizeof(*block));
	int err;

	if (!block)
		return why_set(why, -ENOMEM, "out of memory");
	buf_init(&block->text, MEM_AGENT, TERM_TEXT_BYTES_MAX);
	buf_init(&block->bytes, MEM_AGENT, STORE_BLOCK_BYTES_MAX);
	block->meta = (struct store_block_meta){
		.start_ns = c->run.start_realtime_ns,
		.end_ns = c->end_realtime_ns,
		.ledger = {.taken = c->run.ledger.taken,
			   .taken_ns = c->run.ledger.taken_ns,
			   .delivered = c->run.ledger.delivered,
			   .delivered_ns = c->run.ledger.delivered_ns},
	};
	err = profile_write(c->window->profile, PROFILE_OTLP, NULL, add_bytes, &block->bytes, why);
	if (!err)
		err = find_terms(block, c->window->profile);
	if (err) {
		storing_block_free(block);
		return err;
	}
	*ret = block;
	return 0;
}

/* ---------------------------------------------------------------- the end of a window */

static void take_run(struct daemon *d, const struct kernel_ledger *now, struct closing *c)
{
	uint64_t end_ns = clock_monotonic_ns();

	cost_sample(&d->cost, d->session.helpers, d->session.fetch);
	c->run = (struct profile_run){
		.start_realtime_ns = wallclock_at(d->session.clock, d->window_start_ns),
		.duration_ns = end_ns - d->window_start_ns,
		.cpus = now->cpus,
		.hz = d->kernel_options.hz,
		.own_user_ns = d->cost.own_user_ns - d->last_cost.own_user_ns,
		.own_system_ns = d->cost.own_system_ns - d->last_cost.own_system_ns,
		.bpf_run_ns = (int64_t)(now->run_ns - d->last.run_ns),
	};
	c->end_realtime_ns = c->run.start_realtime_ns + c->run.duration_ns;
	window_ledger_begin(&d->last, now, &c->run.ledger);
	d->last_cost = d->cost;
	d->last = *now;
}

static void add_ledger(struct profile_ledger *sum, const struct profile_ledger *l)
{
	sum->ticks += l->ticks;
	sum->idle += l->idle;
	sum->filtered += l->filtered;
	sum->taken += l->taken;
	sum->taken_ns += l->taken_ns;
	sum->delivered += l->delivered;
	sum->delivered_ns += l->delivered_ns;
	sum->missed_by_kernel += l->missed_by_kernel;
	for (int i = 0; i < FLY_DROP_COUNT; i++) {
		sum->dropped[i] += l->dropped[i];
		sum->dropped_ns[i] += l->dropped_ns[i];
	}
}

/* The profile is complete: what was refused for its size is known by now as well. */
static void close_ledger(struct daemon *d, struct closing *c)
{
	struct why why = {""};

	window_ledger_close(c->window, &c->run.ledger);
	if (!profile_ledger_is_exact(&c->run.ledger, &why)) {
		d->totals.inexact++;
		log_error("the ledger of a window does not close: %s. Please report it", why.text);
	}
	profile_run_set(c->window->profile, &c->run);
}

static void store_window(struct daemon *d, struct closing *c)
{
	struct storing_block *block = NULL;
	struct why why = {""};

	close_ledger(d, c);
	add_ledger(&d->totals.sum, &c->run.ledger);
	c->is_stored = true;
	if (make_block(c, &block, &why)) {
		d->totals.not_encoded++;
		log_warn("a window of %llu samples is lost: %s",
			 (unsigned long long)c->run.ledger.delivered, why.text);
		return;
	}
	d->totals.windows++;
	storing_add(d->storing, block);
}

/* Moves ended windows on; frees those that nobody owes an answer. */
static void settle(struct daemon *d, uint64_t now)
{
	struct closing **at = &d->closing;

	while (*at) {
		struct closing *c = *at;

		if (!c->is_stored && window_settle(c->window, now))
			store_window(d, c);
		if (!c->is_stored || window_requests(c->window)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		window_free(c->window);
		mem_free(MEM_AGENT, c);
	}
}

static bool is_settling(const struct daemon *d)
{
	for (const struct closing *c = d->closing; c; c = c->next) {
		if (!c->is_stored)
			return true;
	}
	return false;
}

static int open_window(struct daemon *d)
{
	struct window_options options = {
		.session = &d->session,
		.max_bytes = WINDOW_PROFILE_MAX,
		.period_ns = 1000000000ULL / d->kernel_options.hz,
		.command_line = "flyball agent",
		.depth = (uint16_t)d->kernel_options.depth,
		.no_inlines = true,
	};

	return window_new(&options, &d->window);
}

/* Ends the open window. The next one opens in the same moment; without memory for it, or while too
 * many still settle, this one just goes on. */
static void cut(struct daemon *d, bool is_last)
{
	struct closing *c = mem_alloc(MEM_AGENT, sizeof(*c));
	struct window *ended = d->window;
	struct kernel_ledger now;
	uint64_t now_ns;
	struct closing *each;
	int settling, err = c ? 0 : -ENOMEM;

	LL_COUNT(d->closing, each, settling);
	d->window_end_ns += d->config->window_ns;
	if (!err && !is_last && settling >= WINDOWS_MAX)
		err = -EBUSY;
	if (!err)
		err = is_last ? kernel_ledger_get(d->session.kernel, &now)
			      : kernel_ledger_cut(d->session.kernel, intake_event, ended->intake,
						  &now);
	if (err) {
		mem_free(MEM_AGENT, c);
		log_warn("a window goes on for longer: %s", strerror(-err));
		return;
	}
	take_run(d, &now, c);
	c->window = ended;
	d->window = NULL;
	now_ns = clock_monotonic_ns();
	window_end(ended, now_ns);
	LL_APPEND(d->closing, c);
	d->window_start_ns = now_ns;
	if (!is_last && open_window(d)) {
		log_error("no memory for a window: the agent ends");
		d->is_over = true;
	}
}

/* ---------------------------------------------------------------- loop */

enum daemon_watched { WATCH_SESSION = SESSION_READY, WATCH_SIGNAL, WATCH_HTTP };

static void on_signal(struct daemon *d)
{
	struct signalfd_siginfo info;

	if (read(d->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo != SIGHUP)
		d->is_over = true;
}

static void turn(struct daemon *d)
{
	uint64_t now = clock_monotonic_ns();

	session_turn(&d->session, d->window, now, false);
	settle(d, now);
	if (d->http)
		http_run(d->http);
	if (now >= d->next_cost_ns) {
		d->next_cost_ns = now + COST_EVERY_NS;
		cost_sample(&d->cost, d->session.helpers, d->session.fetch);
		kernel_memory_get(d->session.kernel, &d->memory);
	}
}

static int wait_ms(const struct daemon *d, uint64_t now)
{
	int most = is_settling(d) ? SETTLE_POLL_MS : POLL_MS;

	most = session_wait_ms(&d->session, most);
	if (d->http)
		most = http_wait_ms(d->http, most);
	if (d->window_end_ns > now && d->window_end_ns - now < (uint64_t)most * 1000000)
		return (int)((d->window_end_ns - now + 999999) / 1000000);
	return most;
}

static void loop(struct daemon *d)
{
	while (!d->is_over) {
		struct epoll_event events[8];
		int n = epoll_wait(d->epoll_fd, events, ARRAY_SIZE(events),
				   wait_ms(d, clock_monotonic_ns()));

		for (int i = 0; i < n; i++) {
			if (events[i].data.u32 == WATCH_SIGNAL)
				on_signal(d);
		}
		turn(d);
		if (clock_monotonic_ns() >= d->window_end_ns)
			cut(d, false);
	}
}

/* ---------------------------------------------------------------- start and end */

static int watch(struct daemon *d, int fd, enum daemon_watched watched)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = watched};

	return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int open_loop(struct daemon *d, struct why *why)
{
	int err;

	d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (d->epoll_fd < 0)
		return why_set(why, -errno, "no event loop: %s", strerror(errno));
	err = watch(d, d->signal_fd, WATCH_SIGNAL);
	if (!err)
		err = session_watch(&d->session, d->epoll_fd);
	if (!err && d->http)
		err = watch(d, http_fd(d->http), WATCH_HTTP);
	return err ? why_set(why, err, "no event loop: %s", strerror(-err)) : 0;
}

static void answer_status(void *ctx, struct http_reply *reply)
{
	reply->type = "application/json";
	daemon_status_json(ctx, &reply->body);
}

static void answer_metrics(void *ctx, struct http_reply *reply)
{
	reply->type = "text/plain; version=0.0.4; charset=utf-8";
	daemon_metrics(ctx, &reply->body);
}

/* It answers, so it goes round. */
static void answer_health(void *ctx, struct http_reply *reply)
{
	(void)ctx;
	buf_add_str(&reply->body, "ok\n");
}

static void answer_ready(void *ctx, struct http_reply *reply)
{
	const struct daemon *d = ctx;
	struct storing_stats stats;

	storing_stats_get(d->storing, &stats);
	if (!stats.err) {
		buf_add_str(&reply->body, "ok\n");
		return;
	}
	reply->status = 503;
	buf_addf(&reply->body, "blocks cannot be stored: %s\n", stats.why);
}

static int open_http(struct daemon *d, struct why *why)
{
	static const struct http_path paths[] = {
		{"/metrics", true, answer_metrics},
		{"/healthz", true, answer_health},
		{"/readyz", true, answer_ready},
		{"/v1/status", false, answer_status},
		{0},
	};
	const struct config *config = d->config;
	struct http_options options = {.socket = config->http.socket,
				       .address = config->http.address,
				       .token_file = config->http.token_file,
				       .cert_file = config->http.cert_file,
				       .key_file = config->http.key_file,
				       .paths = paths,
				       .ctx = d};

	if ((!options.socket || !options.socket[0]) && (!options.address || !options.address[0]))
		return 0;
	return http_open(&options, &d->http, why);
}

/* The store first: a second agent on it must not get as far as the kernel. */
static int start(struct daemon *d, struct why *why)
{
	uint64_t symbol_bytes = d->config->store.max_bytes / SYMBOLS_SHARE;
	struct store_options options = {.quota_bytes = d->config->store.max_bytes - symbol_bytes,
					.max_age_ns = d->config->store.max_age_ns};
	struct session_options session = {.kernel = &d->kernel_options,
					  .symbol_cache_bytes = symbol_bytes};
	char symbols[4096];
	int err = session_signals(&d->signal_fd, why);

	if (!err)
		err = agent_kernel_options(d->config, &d->kernel_options, why);
	if (!err)
		err = kernel_plan(&d->kernel_options, &d->memory, why);
	if (!err)
		err = storing_open(d->config->store.directory, &options, &d->storing, why);
	if (err)
		return err;
	err = open_http(d, why);
	if (err)
		return err;
	session.symbol_cache = storing_symbols_path(d->storing, symbols, sizeof(symbols));
	if (d->config->has_throttling && d->config->cpu_budget_ppm) {
		cost_calibrate(&d->cost, NULL);
		session.cpu_budget_ppm = d->config->cpu_budget_ppm;
		session.tick_ns = kernel_calibration_planned_ns(&d->cost.ticks);
		session.has_tiers = true;
	}
	err = session_open(&session, &d->session, why);
	if (!err)
		err = open_loop(d, why);
	if (!err && open_window(d))
		err = why_set(why, -ENOMEM, "out of memory");
	if (err)
		return err;
	d->start_ns = d->window_start_ns = clock_monotonic_ns();
	d->window_end_ns = d->window_start_ns + d->config->window_ns;
	return session_start(&d->session, d->start_ns, why);
}

/* What was taken is delivered; names only as far as the deadline allows. */
static void drain(struct daemon *d)
{
	uint64_t end = clock_monotonic_ns() + DRAIN_NS;

	kernel_stop(d->session.kernel);
	if (d->window) {
		kernel_poll(d->session.kernel, true, intake_event, d->window->intake);
		cut(d, true);
	}
	while (is_settling(d) && clock_monotonic_ns() < end) {
		struct epoll_event events[4];

		if (epoll_wait(d->epoll_fd, events, ARRAY_SIZE(events), 10) < 0 && errno != EINTR)
			break;
		session_answers(&d->session, clock_monotonic_ns());
		settle(d, clock_monotonic_ns());
	}
	for (struct closing *c = d->closing; c; c = c->next) {
		if (c->is_stored)
			continue;
		d->totals.forced++;
		window_finish(c->window);
		store_window(d, c);
	}
}

static int finish(struct daemon *d)
{
	size_t lost;

	drain(d);
	lost = storing_close(d->storing, clock_monotonic_ns() + STORE_DRAIN_NS);
	d->storing = NULL;
	if (lost)
		log_error("%zu windows could not be stored before the end, and are lost", lost);
	log_info("agent ends: %llu windows, %llu samples taken, %llu delivered",
		 (unsigned long long)d->totals.windows, (unsigned long long)d->totals.sum.taken,
		 (unsigned long long)d->totals.sum.delivered);
	return lost || d->totals.inexact ? AGENT_EXIT_FAILED : AGENT_EXIT_DONE;
}

static void daemon_done(struct daemon *d)
{
	http_close(d->http);
	session_close(&d->session);
	window_free(d->window);
	while (d->closing) {
		struct closing *next = d->closing->next;

		window_free(d->closing->window);
		mem_free(MEM_AGENT, d->closing);
		d->closing = next;
	}
	session_free(&d->session);
	storing_close(d->storing, 0);
	if (d->signal_fd >= 0)
		close(d->signal_fd);
	if (d->epoll_fd >= 0)
		close(d->epoll_fd);
}

int agent_run(const struct config *config)
{
	struct daemon d = {.config = config, .epoll_fd = -1, .signal_fd = -1};
	struct why why = {""};
	int err = start(&d, &why), status;

	if (!err) {
		log_info("agent runs: %u Hz, windows of %llu s into %s", d.kernel_options.hz,
			 (unsigned long long)(config->window_ns / 1000000000ULL),
			 config->store.directory);
		loop(&d);
		status = finish(&d);
	} else {
		log_error("%s", why.text[0] ? why.text : strerror(-err));
		status = err == -EAGAIN ? AGENT_EXIT_FAILED : agent_exit_of(err);
	}
	daemon_done(&d);
	return status;
}
