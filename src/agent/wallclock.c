// SPDX-License-Identifier: Apache-2.0
/*
 * wallclock: the offset by the tightest of several brackets, each answer by the offset that held at
 * its time. The history is a ring; what is older than all of it is told by the oldest.
 */
#include "wallclock.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define BRACKETS  8
#define KEPT	  256 /* changes; slewing makes one a look */
#define CHANGE_NS 1000
#define FAR_S	  (1LL << 33) /* the year 2242: it is never reached, only cancelled */

struct offset {
	uint64_t since_ns; /* MONOTONIC */
	int64_t offset_ns;
};

struct wallclock {
	struct wallclock_source source;
	int fd;
	size_t count; /* ever; the last KEPT are there */
	struct offset kept[KEPT];
	struct wallclock_stats stats;
};

static uint64_t monotonic(void *ctx)
{
	(void)ctx;
	return clock_monotonic_ns();
}

static uint64_t realtime(void *ctx)
{
	(void)ctx;
	return clock_realtime_ns();
}

/* A timer of REALTIME far away, of which only the cancellation is wanted. */
static int open_step_fd(void)
{
	const struct itimerspec far = {.it_value.tv_sec = FAR_S};
	int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd >= 0 &&
	    timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &far, NULL)) {
		close(fd);
		return -1;
	}
	return fd;
}

int wallclock_new(const struct wallclock_source *source, struct wallclock **ret)
{
	struct wallclock *clock = mem_alloc(MEM_AGENT, sizeof(*clock));

	if (!clock)
		return -ENOMEM;
	clock->source = source ? *source : (struct wallclock_source){NULL, monotonic, realtime};
	clock->fd = source ? -1 : open_step_fd();
	wallclock_look(clock);
	*ret = clock;
	return 0;
}

void wallclock_free(struct wallclock *clock)
{
	if (!clock)
		return;
	if (clock->fd >= 0)
		close(clock->fd);
	mem_free(MEM_AGENT, clock);
}

int wallclock_fd(const struct wallclock *clock)
{
	return clock->fd;
}

static void keep(struct wallclock *clock, uint64_t now_ns, int64_t offset_ns)
{
	clock->kept[clock->count++ % KEPT] = (struct offset){now_ns, offset_ns};
}

/* In between the clock may be set again: then the brackets disagree, and the next look finds it. */
void wallclock_look(struct wallclock *clock)
{
	const struct wallclock_source *source = &clock->source;
	uint64_t best = UINT64_MAX, at = 0, expirations;
	int64_t offset = 0, moved;

	/* -ECANCELED, which is all it ever says, makes it quiet until the next time. */
	if (clock->fd >= 0 && read(clock->fd, &expirations, sizeof(expirations)) < 0 &&
	    errno != EAGAIN && errno != ECANCELED)
		log_debug("wall clock: the timer says %d", errno);
	for (int i = 0; i < BRACKETS; i++) {
		uint64_t before = source->monotonic(source->ctx);
		uint64_t wall = source->realtime(source->ctx);
		uint64_t width = source->monotonic(source->ctx) - before;

		if (width >= best)
			continue;
		best = width;
		at = before;
		offset = (int64_t)(wall - (before + width / 2));
	}
	if (!clock->count) {
		clock->stats.error_ns = best / 2;
		keep(clock, at, offset);
		return;
	}
	moved = offset - clock->kept[(clock->count - 1) % KEPT].offset_ns;
	if (moved > WALLCLOCK_STEP_NS || moved < -WALLCLOCK_STEP_NS) {
		clock->stats.steps++;
		clock->stats.stepped_ns += moved;
	} else if (best / 2 + (uint64_t)(moved < 0 ? -moved : moved) > clock->stats.error_ns) {
		clock->stats.error_ns = best / 2 + (uint64_t)(moved < 0 ? -moved : moved);
	}
	if (moved > CHANGE_NS || moved < -CHANGE_NS)
		keep(clock, at, offset);
}

uint64_t wallclock_at(const struct wallclock *clock, uint64_t monotonic_ns)
{
	size_t oldest = clock->count > KEPT ? clock->count - KEPT : 0, i = clock->count - 1;

	while (i > oldest && clock->kept[i % KEPT].since_ns > monotonic_ns)
		i--;
	return monotonic_ns + (uint64_t)clock->kept[i % KEPT].offset_ns;
}

void wallclock_stats_get(const struct wallclock *clock, struct wallclock_stats *ret)
{
	*ret = clock->stats;
}
