// SPDX-License-Identifier: Apache-2.0
/*
 * service: two threads that handle requests, each in a span of its own. What a request costs is
 * known: /fast 20 ms of CPU time, /slow 60 ms, /batch 120 ms.
 *
 *	cc service.c -Iinclude -Lbuild/libcontext -lflyball-context -pthread
 */
#include <flyball/context.h>

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define ROUNDS 12

static const struct {
	const char *route;
	uint64_t cpu_ms;
} requests[] = {{"/fast", 20}, {"/slow", 60}, {"/batch", 120}};

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void handle(uint64_t cpu_ms)
{
	uint64_t end = cpu_ns() + cpu_ms * 1000000;

	while (cpu_ns() < end)
		;
}

static void *serve(void *number)
{
	uint8_t trace_id[16] = {1}, span_id[8] = {1};

	trace_id[1] = *(uint8_t *)number;
	if (flyball_context_attach())
		return NULL;
	for (size_t i = 0; i < ROUNDS * 3; i++) {
		trace_id[15] = span_id[7] = (uint8_t)i;
		flyball_context_enter(trace_id, span_id, 1);
		flyball_context_attribute(0, requests[i % 3].route, strlen(requests[i % 3].route));
		handle(requests[i % 3].cpu_ms);
		flyball_context_leave();
	}
	return NULL;
}

int main(void)
{
	static const struct flyball_attribute resource[] = {{"service.name", "example-c"}};
	static const char *const keys[] = {"http.route"};
	static const struct flyball_process_context me = {resource, 1, keys, 1};
	uint8_t numbers[] = {1, 2};
	pthread_t threads[2];

	if (flyball_process_context_publish(&me))
		return 1;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, serve, &numbers[i]))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
