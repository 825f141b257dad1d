// SPDX-License-Identifier: Apache-2.0
/*
 * spanlog THREADS MILLISECONDS LOG: threads that enter and leave spans at random, burn in and
 *between them, and log what they did: for each publication, the clock before and after it, in
 *
 *	TID BEFORE_NS AFTER_NS SPAN	SPAN 0: none
 *
 * Trace ids hold the thread's number, span ids a number of their own; the attribute http.route is
 * /SPAN modulo 7.
 */
#include "flyball/context.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES_MAX 200000

struct entry {
	uint64_t before_ns, after_ns;
	uint32_t span;
};

struct worker {
	pthread_t thread;
	unsigned int number;
	pid_t tid;
	size_t count;
	struct entry *entries;
};

static uint64_t end_ns;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((noinline)) static void burn(uint64_t until_ns)
{
	while (now_ns() < until_ns)
		;
}

static void publish(struct worker *w, uint32_t span)
{
	struct entry *entry = &w->entries[w->count++];
	uint8_t trace_id[16] = {1}, span_id[8] = {0};
	char route[] = {'/', (char)('0' + span % 7)};

	trace_id[15] = (uint8_t)w->number;
	memcpy(span_id, &span, sizeof(span));
	entry->span = span;
	entry->before_ns = now_ns();
	if (span) {
		flyball_context_enter(trace_id, span_id, 1);
		flyball_context_attribute(1, route, sizeof(route));
	} else {
		flyball_context_leave();
	}
	entry->after_ns = now_ns();
}

static void *work(void *ctx)
{
	struct worker *w = ctx;
	unsigned int seed = w->number;

	w->tid = gettid();
	if (flyball_context_attach())
		return NULL;
	for (uint32_t n = 1; now_ns() < end_ns && w->count + 2 < ENTRIES_MAX; n++) {
		publish(w, w->number << 20 | n);
		burn(now_ns() + 100000 + (uint64_t)rand_r(&seed) % 10000000);
		publish(w, 0);
		burn(now_ns() + (uint64_t)rand_r(&seed) % 3000000);
	}
	return w;
}

static int write_log(const char *path, const struct worker *workers, unsigned int threads)
{
	FILE *log = fopen(path, "w");

	if (!log)
		return 1;
	for (unsigned int i = 0; i < threads; i++)
		for (size_t k = 0; k < workers[i].count; k++)
			fprintf(log, "%d %llu %llu %u\n", workers[i].tid,
				(unsigned long long)workers[i].entries[k].before_ns,
				(unsigned long long)workers[i].entries[k].after_ns,
				workers[i].entries[k].span);
	return fclose(log);
}

int main(int argc, char **argv)
{
	static const struct flyball_attribute resource[] = {{"service.name", "spans-test"}};
	static const char *const keys[] = {"user.id", "http.route"};
	static const struct flyball_process_context self = {resource, 1, keys, 2};
	unsigned int threads = argc == 4 ? (unsigned int)atoi(argv[1]) : 0;
	struct worker *workers = calloc(threads, sizeof(*workers));

	if (!threads || !workers || flyball_process_context_publish(&self))
		return 2;
	end_ns = now_ns() + (uint64_t)atoi(argv[2]) * 1000000u;
	for (unsigned int i = 0; i < threads; i++) {
		workers[i].number = i + 1;
		workers[i].entries = calloc(ENTRIES_MAX, sizeof(struct entry));
		if (!workers[i].entries ||
		    pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			return 3;
	}
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	return write_log(argv[3], workers, threads);
}
