// SPDX-License-Identifier: Apache-2.0
/* storing: see storing.h. The mutex guards the queue and the figures, never a call of the store. */
#include "storing.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define RETRY_MIN_NS 1000000000ULL
#define RETRY_MAX_NS 30000000000ULL
#define STATS_NS     5000000000ULL

struct storing {
	struct store *store;
	char directory[4096];
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct storing_block *head, **tail;
	bool is_writing; /* head is with the store, and not to be taken out */
	bool is_ending;
	uint64_t end_ns;
	struct storing_stats stats;
};

void storing_block_free(struct storing_block *block)
{
	if (!block)
		return;
	mem_free(MEM_AGENT, block->terms);
	buf_done(&block->text);
	buf_done(&block->bytes);
	mem_free(MEM_AGENT, block);
}

static void take_out(struct storing *s, struct storing_block **at)
{
	struct storing_block *block = *at;

	*at = block->next;
	if (!block->next)
		s->tail = at;
	s->stats.waiting--;
	s->stats.waiting_bytes -= block->bytes.len;
}

static void lose(struct storing *s, struct storing_block **at)
{
	struct storing_block *block = *at;

	take_out(s, at);
	s->stats.lost++;
	s->stats.lost_samples += block->meta.ledger.delivered;
	s->stats.lost_ns += block->meta.ledger.delivered_ns;
	storing_block_free(block);
}

/* The oldest that is not being written just now. */
static void make_room(struct storing *s, size_t bytes)
{
	while (s->stats.waiting_bytes + bytes > STORING_QUEUE_BYTES) {
		struct storing_block **at = &s->head;

		if (s->is_writing && *at)
			at = &(*at)->next;
		if (!*at)
			return;
		lose(s, at);
	}
}

void storing_add(struct storing *s, struct storing_block *block)
{
	pthread_mutex_lock(&s->mutex);
	make_room(s, block->bytes.len);
	block->next = NULL;
	*s->tail = block;
	s->tail = &block->next;
	s->stats.waiting++;
	s->stats.waiting_bytes += block->bytes.len;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->mutex);
}

void storing_stats_get(struct storing *s, struct storing_stats *ret)
{
	pthread_mutex_lock(&s->mutex);
	*ret = s->stats;
	pthread_mutex_unlock(&s->mutex);
}

static void wait_until(struct storing *s, uint64_t at_ns)
{
	struct timespec at = {.tv_sec = (time_t)(at_ns / 1000000000ULL),
			      .tv_nsec = (long)(at_ns % 1000000000ULL)};

	pthread_cond_timedwait(&s->changed, &s->mutex, &at);
}

static void told(struct storing *s, int err, const struct why *why)
{
	if (err && !s->stats.err)
		log_warn("blocks cannot be stored in %s, and wait in memory: %s", s->directory,
			 why->text);
	else if (!err && s->stats.err)
		log_info("blocks are stored in %s again", s->directory);
	s->stats.err = err;
	snprintf(s->stats.why, sizeof(s->stats.why), "%s", err ? why->text : "");
}

/* With the mutex held, which is let go while the store works. */
static int write_head(struct storing *s)
{
	struct storing_block *block = s->head;
	struct why why = {""};
	int err;

	s->is_writing = true;
	pthread_mutex_unlock(&s->mutex);
	err = store_append(s->store, &block->meta, block->bytes.data, block->bytes.len, NULL, &why);
	pthread_mutex_lock(&s->mutex);
	s->is_writing = false;
	told(s, err, &why);
	/* No retry makes a block smaller. */
	if (err == -ERANGE) {
		lose(s, &s->head);
		return 0;
	}
	if (err)
		return err;
	take_out(s, &s->head);
	s->stats.stored++;
	s->stats.stored_bytes += block->bytes.len;
	storing_block_free(block);
	return 0;
}

static void refresh_stats(struct storing *s)
{
	struct store_stats stats = {0};
	int err;

	pthread_mutex_unlock(&s->mutex);
	err = store_stats_get(s->store, &stats, NULL);
	pthread_mutex_lock(&s->mutex);
	if (!err)
		s->stats.store = stats;
}

static void *run(void *arg)
{
	struct storing *s = arg;
	uint64_t retry_ns = 0, pause_ns = RETRY_MIN_NS, stats_ns = 0;

	pthread_mutex_lock(&s->mutex);
	for (;;) {
		uint64_t now = clock_monotonic_ns();

		if (s->is_ending && (!s->head || now >= s->end_ns))
			break;
		if (s->head && (s->is_ending || now >= retry_ns)) {
			if (!write_head(s)) {
				pause_ns = RETRY_MIN_NS;
				stats_ns = 0;
				continue;
			}
			retry_ns = clock_monotonic_ns() + pause_ns;
			pause_ns = pause_ns * 2 < RETRY_MAX_NS ? pause_ns * 2 : RETRY_MAX_NS;
		} else if (now >= stats_ns) {
			stats_ns = now + STATS_NS;
			refresh_stats(s);
			continue;
		}
		now = clock_monotonic_ns();
		if (s->is_ending)
			wait_until(s, now + RETRY_MIN_NS / 10);
		else
			wait_until(s, s->head && retry_ns < now + STATS_NS ? retry_ns
									   : now + STATS_NS);
	}
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

static int start_thread(struct storing *s)
{
	pthread_condattr_t attr;
	int err;

	pthread_mutex_init(&s->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	err = pthread_create(&s->thread, NULL, run, s);
	if (err) {
		pthread_cond_destroy(&s->changed);
		pthread_mutex_destroy(&s->mutex);
	}
	return -err;
}

int storing_open(const char *directory, const struct store_options *options, struct storing **ret,
		 struct why *why)
{
	struct storing *s = mem_alloc(MEM_AGENT, sizeof(*s));
	int err;

	if (!s)
		return why_set(why, -ENOMEM, "out of memory");
	snprintf(s->directory, sizeof(s->directory), "%s", directory);
	s->tail = &s->head;
	err = store_open(directory, options, &s->store, why);
	if (!err) {
		store_stats_get(s->store, &s->stats.store, NULL);
		err = start_thread(s);
		if (err)
			why_set(why, err, "the store's thread cannot be started: %s",
				strerror(-err));
	}
	if (err) {
		store_close(s->store);
		mem_free(MEM_AGENT, s);
		return err;
	}
	*ret = s;
	return 0;
}

char *storing_symbols_path(const struct storing *s, char *out, size_t out_size)
{
	return store_symbols_path(s->store, out, out_size);
}

size_t storing_close(struct storing *s, uint64_t end_ns)
{
	size_t left;

	if (!s)
		return 0;
	pthread_mutex_lock(&s->mutex);
	s->is_ending = true;
	s->end_ns = end_ns;
	left = s->stats.lost;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->mutex);
	pthread_join(s->thread, NULL);
	while (s->head)
		lose(s, &s->head);
	left = s->stats.lost - left;
	store_close(s->store);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->mutex);
	mem_free(MEM_AGENT, s);
	return left;
}
