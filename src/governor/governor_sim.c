// SPDX-License-Identifier: Apache-2.0
/*
 * sim: a node in numbers. Time goes in steps of 20 ms; ticks, taken samples and records are whole
 * numbers, so that the ledger can be exact. What the BPF side decides by itself (the watermark) and
 * what the watchdog does are modelled too, since the governor relies on them.
 */
#include "governor/governor_sim.h"

#include <string.h>

#define SUBSTEP_S	0.02
#define SUBSTEPS	5
#define HEADER_BYTES	88
#define PRESSURE_FRAMES 32
#define TABLES_PER_S	(4U << 20)
#define WAKE_SHARE	0.5 /* the kernel wakes the reader */
#define WATCHDOG_S	1.0

/* ---------------------------------------------------------------- chance */

/* splitmix64 */
static double chance(struct governor_sim *sim)
{
	uint64_t z = (sim->random += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* Around 1. */
static double noisy(struct governor_sim *sim)
{
	return 1 + sim->now[SIM_NOISE] * (chance(sim) + chance(sim) + chance(sim) - 1.5) * 2;
}

/* A whole number whose mean is the value. */
static uint64_t whole(struct governor_sim *sim, double value)
{
	return (uint64_t)(value + chance(sim));
}

/* ---------------------------------------------------------------- conditions */

static double condition_at(const struct governor_scenario *s, int key, double time_s)
{
	double value = s->start[key];

	for (size_t i = 0; i < s->change_count; i++) {
		const struct governor_sim_change *c = &s->changes[i];

		if ((int)c->key != key || time_s < c->at_s)
			continue;
		if (time_s >= c->at_s + c->over_s)
			value = c->value;
		else
			value += (c->value - value) * (time_s - c->at_s) / c->over_s;
	}
	return key == SIM_CPUS ? (double)(uint32_t)(value + 0.5) : value;
}

double governor_sim_steady_s(const struct governor_scenario *s, double time_s)
{
	double last_s = 0;

	for (size_t i = 0; i < s->change_count; i++) {
		const struct governor_sim_change *c = &s->changes[i];

		if (c->at_s > time_s)
			break;
		if (c->at_s + c->over_s > last_s)
			last_s = c->at_s + c->over_s;
	}
	return last_s > time_s ? -1 : time_s - last_s;
}

/* ---------------------------------------------------------------- what it costs */

struct fidelity {
	double hz, suppressed; /* share */
	uint32_t depth;
	enum governor_unwinder unwinder;
	uint32_t features;
};

static struct fidelity fidelity_of(const struct governor_outputs *out)
{
	return (struct fidelity){1e9 / (double)out->period_ns, out->suppressed_ppm / 1e6,
				 out->depth, out->unwinder, out->features};
}

static double frames_of(const struct governor_sim *sim, uint32_t depth)
{
	return sim->now[SIM_STACK] < depth ? sim->now[SIM_STACK] : depth;
}

static double sample_s(const struct governor_sim *sim, const struct fidelity *f)
{
	double walk_s = sim->now[SIM_WALK];

	if (f->unwinder == GOVERNOR_TABLES)
		walk_s += sim->now[SIM_FRAME] * frames_of(sim, f->depth);
	return walk_s;
}

/* Seconds of CPU per second. */
static double background_of(const struct governor_sim *sim, uint32_t features)
{
	return sim->now[SIM_NAMES] + (features & GOVERNOR_LINES ? sim->now[SIM_LINES] : 0) +
	       (features & GOVERNOR_TABLE_BUILDS ? sim->now[SIM_BUILDS] : 0) +
	       (features & GOVERNOR_OFF_CPU ? sim->now[SIM_OFF_CPU] : 0);
}

static double busy_by_others(const struct governor_sim *sim)
{
	return sim->now[SIM_LOAD];
}

/* Share of the node, without noise. Records that the reader cannot take cost it nothing. */
static double expected_share(const struct governor_sim *sim, const struct fidelity *f)
{
	double ticks = f->hz * sim->now[SIM_CPUS];
	double records = ticks * busy_by_others(sim) * (1 - f->suppressed);
	double read = records < sim->now[SIM_DRAIN] ? records : sim->now[SIM_DRAIN];

	return (ticks * sim->now[SIM_TICK] + records * sample_s(sim, f) +
		read * sim->now[SIM_READ] + sim->now[SIM_LOOP] + background_of(sim, f->features)) /
	       sim->now[SIM_CPUS];
}

/* ---------------------------------------------------------------- the ring */

static void ring_put(struct governor_sim *sim, uint64_t records, uint64_t bytes)
{
	struct governor_sim_batch *batch;

	if (!records)
		return;
	sim->ring_used += bytes;
	sim->ring_records += records;
	if (sim->ring_count == SIM_BATCHES) {
		batch = &sim->ring[(sim->ring_first + SIM_BATCHES - 1) % SIM_BATCHES];
		batch->records += records;
		batch->bytes += bytes;
		return;
	}
	batch = &sim->ring[(sim->ring_first + sim->ring_count++) % SIM_BATCHES];
	*batch = (struct governor_sim_batch){sim->time_s, records, bytes};
}

/* Takes at most so many records; returns how many it took. */
static uint64_t ring_take(struct governor_sim *sim, uint64_t most)
{
	uint64_t taken = 0;

	while (sim->ring_count && taken < most) {
		struct governor_sim_batch *batch = &sim->ring[sim->ring_first];
		uint64_t n = batch->records < most - taken ? batch->records : most - taken;
		uint64_t bytes = batch->bytes / batch->records * n;

		if (n == batch->records)
			bytes = batch->bytes;
		batch->records -= n;
		batch->bytes -= bytes;
		sim->ring_used -= bytes;
		sim->ring_records -= n;
		taken += n;
		if (batch->records)
			break;
		sim->ring_first = (sim->ring_first + 1) % SIM_BATCHES;
		sim->ring_count--;
	}
	sim->ledger.delivered += taken;
	return taken;
}

/* ---------------------------------------------------------------- life */

/* What the governor is told of one control period. */
struct period {
	struct governor_inputs in;
	double cost_s, busy_s, capacity_s, ring_share;
	uint64_t degraded;
	double read_left; /* records the reader still has time for */
};

static void read_ring(struct governor_sim *sim, struct period *p)
{
	uint64_t records;
	double cost_s;

	if (sim->now[SIM_LOOP_STALL] >= 0.5)
		return;
	records = ring_take(sim, whole(sim, p->read_left));
	p->read_left -= (double)records < p->read_left ? (double)records : p->read_left;
	cost_s = (double)records * sim->now[SIM_READ] * noisy(sim);
	p->in.sampling_ns += (uint64_t)(cost_s * 1e9);
	p->cost_s += cost_s;
}

/* The samples of one substep, as the BPF side takes them. */
static void sample(struct governor_sim *sim, struct period *p, struct fidelity *f, uint64_t taken)
{
	const struct governor_scenario *s = sim->scenario;
	uint64_t dropped = whole(sim, (double)taken * f->suppressed), reached, room, fit, bytes;
	bool is_over =
		(double)sim->ring_used > (double)s->ring_bytes * s->config.ring_high_ppm / 1e6;
	double cost_s;

	dropped = dropped < taken ? dropped : taken;
	sim->ledger.taken += taken;
	if (sim->governor.outputs.is_memory_drop && !sim->is_watchdog_out)
		sim->ledger.memory_pressure += dropped;
	else
		sim->ledger.suppressed += dropped;
	reached = taken - dropped;
	if (is_over) {
		f->unwinder = GOVERNOR_FRAME_POINTERS;
		f->depth = f->depth < PRESSURE_FRAMES ? f->depth : PRESSURE_FRAMES;
	}
	bytes = HEADER_BYTES + 8 * (uint64_t)frames_of(sim, f->depth);
	room = s->ring_bytes - sim->ring_used;
	fit = reached < room / bytes ? reached : room / bytes;
	ring_put(sim, fit, fit * bytes);
	sim->ledger.ring_full += reached - fit;
	if (f->unwinder < s->config.unwinder || f->depth < s->config.depth)
		p->degraded += fit;
	p->in.reached += reached;
	p->in.ring_dropped += reached - fit;
	cost_s = (double)reached * sample_s(sim, f) * noisy(sim);
	p->in.bpf_ns += (uint64_t)(cost_s * 1e9);
	p->cost_s += cost_s;
}

static void substep(struct governor_sim *sim, struct period *p)
{
	const struct governor_scenario *s = sim->scenario;
	struct fidelity f = fidelity_of(&sim->governor.outputs);
	double cpus = sim->now[SIM_CPUS], cost_before = p->cost_s, background_s, share;
	double busy = busy_by_others(sim) * noisy(sim);
	uint64_t ticks = whole(sim, f.hz * cpus * SUBSTEP_S), taken;
	double tick_s = sim->now[SIM_TICK] * noisy(sim);

	busy = busy < 1 ? busy : 1;
	if (sim->is_watchdog_out)
		f.suppressed = 1;
	taken = whole(sim, (double)ticks * busy);
	taken = taken < ticks ? taken : ticks;
	sim->ledger.ticks += ticks;
	sim->ledger.idle += ticks - taken;
	p->in.ticks += ticks;
	p->cost_s += (double)ticks * tick_s;
	p->in.tick_ns = (uint64_t)(sim->now[SIM_TICK] * 1e9);
	sample(sim, p, &f, taken);
	if (sim->now[SIM_LOOP_STALL] < 0.5) {
		p->in.sampling_ns += (uint64_t)(sim->now[SIM_LOOP] * SUBSTEP_S * 1e9);
		p->cost_s += sim->now[SIM_LOOP] * SUBSTEP_S;
	}
	background_s = background_of(sim, f.features) * SUBSTEP_S * noisy(sim);
	p->in.background_ns += (uint64_t)(background_s * 1e9);
	p->cost_s += background_s;
	p->read_left += sim->now[SIM_DRAIN] * SUBSTEP_S;
	share = (double)sim->ring_used / (double)s->ring_bytes;
	p->ring_share = share > p->ring_share ? share : p->ring_share;
	if (share > WAKE_SHARE)
		read_ring(sim, p);
	busy = busy * cpus * SUBSTEP_S + p->cost_s - cost_before;
	p->busy_s += busy < cpus * SUBSTEP_S ? busy : cpus * SUBSTEP_S;
	p->capacity_s += cpus * SUBSTEP_S;
	sim->time_s += SUBSTEP_S;
}

/* Tables come as fast as they are made, and go at once. */
static void move_tables(struct governor_sim *sim, double dt_s)
{
	const struct governor_outputs *out = &sim->governor.outputs;

	if (sim->table_bytes < sim->scenario->table_bytes &&
	    (out->features & GOVERNOR_TABLE_BUILDS))
		sim->table_bytes += (uint64_t)(TABLES_PER_S * dt_s);
	if (sim->table_bytes > sim->scenario->table_bytes)
		sim->table_bytes = sim->scenario->table_bytes;
	if (sim->table_bytes > out->table_budget_bytes)
		sim->table_bytes = out->table_budget_bytes;
}

static void fill_inputs(struct governor_sim *sim, struct period *p)
{
	p->in.cpus = (uint32_t)sim->now[SIM_CPUS];
	p->in.node_busy_ns = (uint64_t)(p->busy_s * 1e9);
	p->in.node_capacity_ns = (uint64_t)(p->capacity_s * 1e9);
	p->in.ring_used_ppm = (uint32_t)(p->ring_share * 1e6);
	if (sim->ring_count)
		p->in.ring_lag_ns =
			(uint64_t)((sim->time_s - sim->ring[sim->ring_first].made_s) * 1e9);
	p->in.table_bytes = sim->table_bytes;
	p->in.memory_bytes = sim->table_bytes + sim->scenario->ring_bytes;
	p->in.pressure_some_ppm = (uint32_t)(sim->now[SIM_PRESSURE_SOME] * 1e6);
	p->in.pressure_full_ppm = (uint32_t)(sim->now[SIM_PRESSURE_FULL] * 1e6);
}

void governor_sim_init(struct governor_sim *sim, const struct governor_scenario *scenario,
		       governor_step_fn step)
{
	memset(sim, 0, sizeof(*sim));
	sim->scenario = scenario;
	sim->step = step;
	sim->random = scenario->seed;
	memcpy(sim->now, scenario->start, sizeof(sim->now));
	governor_init(&sim->governor, &scenario->config);
	sim->table_bytes = scenario->table_bytes < scenario->config.table_budget_bytes
				   ? scenario->table_bytes
				   : scenario->config.table_budget_bytes;
}

static void set_conditions(struct governor_sim *sim)
{
	for (int i = 0; i < SIM_KEYS; i++)
		sim->now[i] = condition_at(sim->scenario, i, sim->time_s);
}

static void judge_costs(const struct governor_sim *sim, struct governor_sim_point *ret)
{
	const struct governor_config *c = &sim->scenario->config;
	struct fidelity now = fidelity_of(&sim->governor.outputs);
	struct fidelity least = {c->hz_min, 1, 1, GOVERNOR_FRAME_POINTERS, 0};
	struct fidelity wanted = {c->hz, 0, c->depth, c->unwinder, c->features};

	ret->expected_share = expected_share(sim, &now);
	ret->least_share = expected_share(sim, &least);
	ret->wanted_share = expected_share(sim, &wanted);
}

bool governor_sim_step(struct governor_sim *sim, struct governor_sim_point *ret)
{
	struct period p = {0};
	double start_s = sim->time_s;

	if (start_s >= sim->scenario->end_s)
		return false;
	memset(ret, 0, sizeof(*ret));
	ret->before = sim->governor.outputs;
	do {
		for (int i = 0; i < SUBSTEPS; i++) {
			set_conditions(sim);
			substep(sim, &p);
		}
		sim->is_watchdog_out = sim->now[SIM_LOOP_STALL] >= 0.5 &&
				       sim->time_s - start_s >= WATCHDOG_S - 1e-9;
	} while (sim->now[SIM_LOOP_STALL] >= 0.5 && sim->time_s < sim->scenario->end_s);
	fill_inputs(sim, &p);
	read_ring(sim, &p);
	ret->dt_s = sim->time_s - start_s;
	ret->outputs = *sim->step(&sim->governor, &p.in, (uint64_t)(ret->dt_s * 1e9 + 0.5));
	move_tables(sim, ret->dt_s);
	ret->time_s = sim->time_s;
	memcpy(ret->now, sim->now, sizeof(ret->now));
	ret->capacity_s = p.capacity_s;
	ret->cost_share = p.cost_s / p.capacity_s;
	ret->busy_share = p.busy_s / p.capacity_s;
	ret->ring_share = p.ring_share;
	ret->reached = p.in.reached;
	ret->ring_dropped = p.in.ring_dropped;
	ret->degraded = p.degraded;
	judge_costs(sim, ret);
	return true;
}
