// SPDX-License-Identifier: Apache-2.0
/*
 * window: the samples of one stretch of time, from the first to a complete profile.
 *
 * While it is open, names are asked for as locations appear. Once it has ended it is settled in
 * three stages, each with a deadline, and never by waiting: samples whose process is still being
 * looked at, names, source lines. What has no answer by then has a reason. Answers may come after
 * the deadline, so a window is freed when none is under way any more.
 */
#include "record_private.h"

#include <errno.h>
#include <string.h>

#define ASK_EVERY_NS	  500000000ULL
#define LINES_EVERY_NS	  3000000000ULL
#define SAMPLES_SETTLE_NS 500000000ULL
#define NAMES_SETTLE_NS	  5000000000ULL
#define LINES_SETTLE_NS	  1500000000ULL
#define FETCH_DEADLINE_NS 2000000000ULL /* for debuginfod, once the window has ended */
_Static_assert(SAMPLES_SETTLE_NS + NAMES_SETTLE_NS + LINES_SETTLE_NS ==
		       AGENT_NAMING_MAX_S * 1000000000ULL,
	       "agent: the deadline that users are told is another");

static int make_parts(struct window *w, const struct window_options *opt)
{
	const struct session *s = opt->session;
	struct profile_options profile = {.max_bytes = opt->max_bytes,
					  .period_ns = opt->period_ns,
					  .command_line = opt->command_line};
	struct naming_options naming = {.tracker = s->tracker,
					.helpers = s->helpers,
					.no_symbols = opt->no_symbols,
					.ksymbols = s->ksymbols,
					.kernel_names = s->kernel_names};
	struct debugfiles_options debug = {
		.tracker = s->tracker, .helpers = s->helpers, .fetch = s->fetch};
	struct jit_options jit = {
		.tracker = s->tracker, .helpers = s->helpers, .no_symbols = opt->no_symbols};
	struct lines_options lines = {.tracker = s->tracker,
				      .helpers = opt->no_inlines ? NULL : s->helpers};
	struct intake_options intake = {.tracker = s->tracker,
					.depth = opt->depth,
					.unwinding = s->unwinding,
					.spans = s->spans,
					.ksymbols = s->ksymbols,
					.clock = s->clock};
	int err = profile_new(&profile, &w->profile);

	naming.profile = debug.profile = jit.profile = intake.profile = lines.profile = w->profile;
	if (!err)
		err = debugfiles_new(&debug, &w->debugfiles);
	naming.debugfiles = lines.debugfiles = w->debugfiles;
	if (!err)
		err = lines_new(&lines, &w->lines);
	naming.lines = w->lines;
	if (!err)
		err = naming_new(&naming, &w->naming);
	intake.naming = jit.naming = w->naming;
	if (!err)
		err = jit_new(&jit, &w->jit);
	intake.jit = w->jit;
	if (!err)
		err = intake_new(&intake, &w->intake);
	return err;
}

int window_new(const struct window_options *options, struct window **ret)
{
	struct window *w = mem_alloc(MEM_AGENT, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	err = make_parts(w, options);
	if (err) {
		window_free(w);
		return err;
	}
	*ret = w;
	return 0;
}

void window_free(struct window *w)
{
	if (!w)
		return;
	debugfiles_free(w->debugfiles);
	intake_free(w->intake);
	jit_free(w->jit);
	naming_free(w->naming);
	lines_free(w->lines);
	profile_free(w->profile);
	mem_free(MEM_AGENT, w);
}

void window_step(struct window *w, uint64_t now_ns)
{
	debugfiles_poll(w->debugfiles);
	intake_flush(w->intake, now_ns, false);
	if (now_ns >= w->next_ask_ns) {
		w->next_ask_ns = now_ns + ASK_EVERY_NS;
		naming_ask(w->naming);
	}
	jit_ask(w->jit, now_ns);
	if (now_ns >= w->next_lines_ns && !w->are_lines_held) {
		w->next_lines_ns = now_ns + LINES_EVERY_NS;
		lines_ask(w->lines);
	}
}

void window_end(struct window *w, uint64_t now_ns)
{
	w->stage = WINDOW_SAMPLES;
	w->stage_end_ns = now_ns + SAMPLES_SETTLE_NS;
}

static bool is_late(const struct window *w, uint64_t now_ns)
{
	return now_ns >= w->stage_end_ns;
}

static void settle_samples(struct window *w, uint64_t now_ns)
{
	bool is_final = is_late(w, now_ns);

	intake_flush(w->intake, now_ns, is_final);
	if (!is_final && intake_waiting(w->intake))
		return;
	jit_end(w->jit);
	debugfiles_end(w->debugfiles, now_ns + FETCH_DEADLINE_NS);
	w->stage = WINDOW_NAMES;
	w->stage_end_ns = now_ns + NAMES_SETTLE_NS;
}

static void settle_names(struct window *w, uint64_t now_ns)
{
	naming_ask(w->naming);
	jit_ask(w->jit, now_ns);
	if (!is_late(w, now_ns) && naming_pending(w->naming) + naming_blocked(w->naming) +
					   jit_left(w->jit) +
					   debugfiles_left(w->debugfiles, now_ns))
		return;
	jit_finish(w->jit);
	debugfiles_finish(w->debugfiles);
	w->stage = WINDOW_LINES;
	w->stage_end_ns = now_ns + LINES_SETTLE_NS;
}

static void complete(struct window *w)
{
	lines_finish(w->lines);
	naming_finish(w->naming);
	intake_refresh(w->intake);
	w->stage = WINDOW_COMPLETE;
}

static void settle_lines(struct window *w, uint64_t now_ns)
{
	/* What was asked before may have left some open. */
	lines_ask(w->lines);
	if (is_late(w, now_ns) || !lines_left(w->lines))
		complete(w);
}

void window_finish(struct window *w)
{
	intake_flush(w->intake, 0, true);
	jit_finish(w->jit);
	debugfiles_finish(w->debugfiles);
	complete(w);
}

bool window_settle(struct window *w, uint64_t now_ns)
{
	debugfiles_poll(w->debugfiles);
	if (w->stage == WINDOW_SAMPLES)
		settle_samples(w, now_ns);
	if (w->stage == WINDOW_NAMES)
		settle_names(w, now_ns);
	if (w->stage == WINDOW_LINES)
		settle_lines(w, now_ns);
	return w->stage == WINDOW_COMPLETE;
}

size_t window_requests(const struct window *w)
{
	return naming_pending(w->naming) + jit_requests(w->jit) +
	       debugfiles_requests(w->debugfiles) + lines_requests(w->lines);
}

void window_ledger_begin(const struct kernel_ledger *since, const struct kernel_ledger *now,
			 struct profile_ledger *ret)
{
	ret->ticks = now->ticks - since->ticks;
	ret->idle = now->idle - since->idle;
	ret->filtered = now->filtered - since->filtered;
	ret->taken = now->taken - since->taken;
	ret->taken_ns = now->taken_ns - since->taken_ns;
	/* An estimate may be corrected downwards. */
	if (now->missed_by_kernel > since->missed_by_kernel)
		ret->missed_by_kernel = now->missed_by_kernel - since->missed_by_kernel;
	for (int i = 0; i < FLY_DROP_COUNT; i++) {
		ret->dropped[i] = now->dropped[i] - since->dropped[i];
		ret->dropped_ns[i] = now->dropped_ns[i] - since->dropped_ns[i];
	}
}

void window_ledger_close(const struct window *w, struct profile_ledger *ledger)
{
	struct intake_counts counts;

	intake_counts_get(w->intake, &counts);
	ledger->dropped[FLY_DROP_PROFILE_FULL] += counts.profile_full;
	ledger->dropped_ns[FLY_DROP_PROFILE_FULL] += counts.profile_full_ns;
	ledger->delivered = counts.delivered;
	ledger->delivered_ns = counts.delivered_ns;
}
