// SPDX-License-Identifier: Apache-2.0
/*
 * governing: the governor in a recording. Every 100 ms it is told what was measured, and what it
 * says goes to the kernel side. Decides nothing itself.
 *
 * Own CPU time of main goes with samples (it reads the ring); that of the helpers does not. What
 * the recording's start took is not counted: nothing could be given up for it.
 */
#include "record_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* No CPU spends more than a tenth of its time in our programs, whatever the node's mean. */
#define CPU_SHARE 10
#define NOTICE_MS 95 /* a turn that comes a little early is as good */

/* Sums since the recording began, as last read. */
struct reading {
	uint64_t time_ns, own_ns, helpers_ns, some_us, full_us;
	struct kernel_ledger ledger;
};
struct governing {
	struct governing_options options;
	struct governor governor;
	struct reading last;
	struct governing_totals totals;
	struct watchdog *watchdog; /* from governing_start on */
};

/* ---------------------------------------------------------------- measuring */

static uint64_t own_cpu_ns(void)
{
	struct rusage self;

	getrusage(RUSAGE_SELF, &self);
	return ((uint64_t)self.ru_utime.tv_sec + (uint64_t)self.ru_stime.tv_sec) * 1000000000 +
	       ((uint64_t)self.ru_utime.tv_usec + (uint64_t)self.ru_stime.tv_usec) * 1000;
}

static uint64_t helpers_cpu_ns(const struct governing_options *o)
{
	struct helpers_stats stats = {0};
	uint64_t user = 0, system = 0, bytes = 0;

	helpers_stats_get(o->helpers, &stats);
	if (o->fetch)
		helpers_fetch_cost(o->fetch, &user, &system, &bytes);
	return stats.own_user_ns + stats.own_system_ns + user + system;
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=123", then "full ...", in microseconds. */
static void read_pressure(struct reading *r)
{
	int fd = open("/proc/pressure/memory", O_RDONLY | O_CLOEXEC);
	char text[256] = "", *at;
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "total=");
	r->some_us = at ? strtoull(at + 6, NULL, 10) : 0;
	at = at ? strstr(at + 1, "total=") : NULL;
	r->full_us = at ? strtoull(at + 6, NULL, 10) : 0;
}

static int read_all(const struct governing *g, struct reading *ret)
{
	*ret = (struct reading){.time_ns = clock_monotonic_ns(),
				.own_ns = own_cpu_ns(),
				.helpers_ns = helpers_cpu_ns(&g->options)};
	read_pressure(ret);
	return kernel_ledger_get(g->options.kernel, &ret->ledger);
}

/* A helper that was replaced may take its last reading with it. */
static uint64_t since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static uint32_t share_ppm(uint64_t part, uint64_t whole)
{
	uint64_t ppm = whole ? part * 1000000 / whole : 0;

	return ppm < 1000000 ? (uint32_t)ppm : 1000000;
}

static void fill_inputs(const struct governing *g, const struct reading *now,
			struct governor_inputs *in)
{
	const struct kernel_ledger *a = &g->last.ledger, *b = &now->ledger;
	uint64_t dt_ns = now->time_ns - g->last.time_ns, idle_ns, gone;
	struct kernel_pressure ring;

	kernel_pressure_take(g->options.kernel, &ring);
	idle_ns = since(b->node_idle_ns, a->node_idle_ns);
	gone = since(b->dropped[FLY_DROP_SUPPRESSED], a->dropped[FLY_DROP_SUPPRESSED]) +
	       since(b->dropped[FLY_DROP_MEMORY_PRESSURE], a->dropped[FLY_DROP_MEMORY_PRESSURE]);
	*in = (struct governor_inputs){
		.cpus = b->cpus,
		.node_capacity_ns = dt_ns * b->cpus,
		.node_busy_ns = since(dt_ns * b->cpus, idle_ns),
		.sampling_ns = since(now->own_ns, g->last.own_ns),
		.background_ns = since(now->helpers_ns, g->last.helpers_ns),
		.bpf_ns = since(b->run_ns, a->run_ns),
		.ticks = since(b->ticks, a->ticks),
		.tick_ns = g->options.tick_ns,
		.reached = since(since(b->taken, a->taken), gone),
		.ring_dropped =
			since(b->dropped[FLY_DROP_RING_FULL], a->dropped[FLY_DROP_RING_FULL]),
		.ring_used_ppm = ring.ring_used_ppm,
		.ring_lag_ns = ring.ring_lag_ns,
		.pressure_some_ppm = share_ppm(since(now->some_us, g->last.some_us) * 1000, dt_ns),
		.pressure_full_ppm = share_ppm(since(now->full_us, g->last.full_us) * 1000, dt_ns),
	};
}

/* ---------------------------------------------------------------- doing */

static int set_pace(struct governing *g)
{
	static const enum fly_state states[] = {
		[GOVERNOR_NORMAL] = FLY_STATE_IS_NORMAL,
		[GOVERNOR_DEGRADED] = FLY_STATE_IS_DEGRADED,
		[GOVERNOR_SUPPRESSED] = FLY_STATE_IS_SUPPRESSED,
	};
	const struct governor_outputs *out = &g->governor.outputs;
	const struct kernel_pace pace = {
		.state = states[out->state],
		.period_ns = out->period_ns,
		.depth = out->depth,
		.unwinder = out->unwinder == GOVERNOR_TABLES ? FLY_UNWIND_TABLES
							     : FLY_UNWIND_FRAME_POINTERS,
		.suppressed_ppm = out->suppressed_ppm,
		.is_memory_drop = out->is_memory_drop,
		.cpu_budget_ns = FLY_BUDGET_WINDOW_NS / CPU_SHARE,
	};

	return kernel_pace_set(g->options.kernel, &pace);
}

static void note_change(struct governing *g, const struct governor_outputs *before, uint64_t now_ns)
{
	const struct governor_outputs *out = &g->governor.outputs;
	struct governing_totals *t = &g->totals;

	t->changes++;
	log_debug("governor: %s", out->reason);
	if (t->event_count && out->state == before->state && out->tier == before->tier &&
	    out->level == before->level && out->cause == before->cause)
		return;
	if (t->event_count < GOVERNING_EVENTS)
		t->events[t->event_count] =
			(struct governing_event){now_ns - g->options.start_ns, *before, *out};
	t->event_count++;
}

static void add_totals(struct governing *g, const struct governor_inputs *in, uint64_t dt_ns)
{
	struct governing_totals *t = &g->totals;

	t->state_ns[g->governor.outputs.state] += dt_ns;
	t->tier_ns[g->governor.outputs.tier] += dt_ns;
	t->capacity_ns += in->node_capacity_ns;
	t->sampling_ns += in->sampling_ns;
	t->background_ns += in->background_ns;
	t->bpf_ns += in->bpf_ns;
	t->interrupt_ns += in->ticks * in->tick_ns;
	t->over_ns += g->governor.outputs.cost_ppm > t->budget_ppm ? dt_ns : 0;
}

void governing_turn(struct governing *g, uint64_t now_ns)
{
	struct governor_outputs before;
	struct governor_inputs in;
	struct reading now;
	uint64_t dt_ns;
	bool was_away;

	if (!g || now_ns - g->last.time_ns < NOTICE_MS * 1000000ULL || read_all(g, &now))
		return;
	was_away = watchdog_beat(g->watchdog);
	dt_ns = now.time_ns - g->last.time_ns;
	/* Where the watchdog stood still too, it may not have seen it. */
	g->totals.stalls += dt_ns >= GOVERNOR_STALL_NS;
	before = g->governor.outputs;
	fill_inputs(g, &now, &in);
	governor_step(&g->governor, &in, dt_ns);
	add_totals(g, &in, dt_ns);
	g->last = now;
	if (g->governor.outputs.is_changed)
		note_change(g, &before, now.time_ns);
	else if (!was_away)
		return;
	if (set_pace(g))
		log_debug("governor: the kernel did not take it");
}

bool governing_wants(const struct governing *g, uint32_t feature)
{
	return !g || !(g->governor.config.features & feature) ||
	       g->governor.outputs.features & feature;
}

int governing_start(struct governing *g, uint64_t start_ns, struct why *why)
{
	g->options.start_ns = start_ns;
	if (read_all(g, &g->last))
		return why_set(why, -EIO, "the kernel's counters cannot be read");
	return watchdog_new(g->options.kernel, &g->watchdog, why);
}

/* ---------------------------------------------------------------- life */

int governing_new(const struct governing_options *options, struct governing **ret, struct why *why)
{
	const struct kernel_options *k = options->kernel_options;
	struct governor_config config;
	struct governing *g;
	int err;

	governor_config_init(&config);
	config.cpu_budget_ppm = options->cpu_budget_ppm;
	config.has_tiers = options->has_tiers;
	config.hz = k->hz;
	config.depth = k->depth;
	config.unwinder = options->has_tables ? GOVERNOR_TABLES : GOVERNOR_FRAME_POINTERS;
	config.features = (options->has_lines ? GOVERNOR_LINES : 0) |
			  (options->has_tables ? GOVERNOR_TABLE_BUILDS : 0);
	config.hz_floor = k->hz < config.hz_floor ? k->hz : config.hz_floor;
	config.tick_cost_ns = options->tick_ns;
	err = governor_config_check(&config, why);
	if (err)
		return err;
	g = mem_alloc(MEM_AGENT, sizeof(*g));
	if (!g)
		return why_set(why, -ENOMEM, "out of memory");
	g->options = *options;
	g->totals.budget_ppm = options->cpu_budget_ppm;
	governor_init(&g->governor, &config);
	err = set_pace(g);
	if (err) {
		mem_free(MEM_AGENT, g);
		return why_set(why, err, "the sampling rate cannot be set: %s", strerror(-err));
	}
	*ret = g;
	return 0;
}

void governing_free(struct governing *g)
{
	if (g)
		watchdog_free(g->watchdog);
	mem_free(MEM_AGENT, g);
}

const struct governing_totals *governing_totals(const struct governing *g)
{
	return g ? &g->totals : NULL;
}
