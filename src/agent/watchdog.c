// SPDX-License-Identifier: Apache-2.0
/*
 * watchdog: a thread apart from the main loop. When the loop has not come round for a second, the
 * kernel side drops all samples until it does.
 *
 * Under the lock the loop either beat in time or is suppressed: there is no turn in between whose
 * own setting the watchdog could overwrite unseen. The thread touches nothing but the control
 * block.
 */
#include "record_private.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define LOOK_EVERY_NS 100000000L

struct watchdog {
	struct kernel *kernel;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	/* All below: under the lock. */
	uint64_t beat_ns;
	bool is_ending, is_suppressed;
};

static void look(struct watchdog *w)
{
	if (w->is_suppressed || clock_monotonic_ns() - w->beat_ns < GOVERNOR_STALL_NS)
		return;
	kernel_pace_suppress(w->kernel);
	w->is_suppressed = true;
}

static void *watch(void *arg)
{
	struct watchdog *w = arg;
	struct timespec until;

	pthread_mutex_lock(&w->lock);
	while (!w->is_ending) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += LOOK_EVERY_NS;
		if (until.tv_nsec >= 1000000000L) {
			until.tv_nsec -= 1000000000L;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&w->ended, &w->lock, &until);
		look(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

bool watchdog_beat(struct watchdog *w)
{
	bool was_suppressed;

	pthread_mutex_lock(&w->lock);
	w->beat_ns = clock_monotonic_ns();
	was_suppressed = w->is_suppressed;
	w->is_suppressed = false;
	pthread_mutex_unlock(&w->lock);
	return was_suppressed;
}

static void destroy(struct watchdog *w)
{
	pthread_cond_destroy(&w->ended);
	pthread_mutex_destroy(&w->lock);
	mem_free(MEM_AGENT, w);
}

int watchdog_new(struct kernel *kernel, struct watchdog **ret, struct why *why)
{
	struct watchdog *w = mem_alloc(MEM_AGENT, sizeof(*w));
	pthread_condattr_t attributes;
	int err;

	if (!w)
		return why_set(why, -ENOMEM, "out of memory");
	w->kernel = kernel;
	w->beat_ns = clock_monotonic_ns();
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&w->ended, &attributes);
	pthread_condattr_destroy(&attributes);
	err = pthread_create(&w->thread, NULL, watch, w);
	if (err) {
		destroy(w);
		return why_set(why, -err, "the watchdog's thread cannot be made: %s",
			       strerror(err));
	}
	*ret = w;
	return 0;
}

void watchdog_free(struct watchdog *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->is_ending = true;
	pthread_cond_signal(&w->ended);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	destroy(w);
}
