// SPDX-License-Identifier: Apache-2.0
/*
 * The publishing library, read as a profiler reads it: the record behind otel_thread_ctx_v1 while
 * the thread is interrupted, and the mapping OTEL_CTX from another process.
 */
#include "flyball/context.h"
#include "otlp.pb-c.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

extern _Thread_local const uint8_t *otel_thread_ctx_v1;

/* Offsets of OTEP 4947, written down here a second time. */
enum { SPAN = 16, VALID = 24, FLAGS = 25, SIZE = 26, ATTRIBUTES = 28 };

static uint16_t attributes_bytes(const uint8_t *record)
{
	uint16_t size;

	memcpy(&size, record + SIZE, sizeof(size));
	return size;
}

static void enter(uint8_t n)
{
	uint8_t id[16];

	memset(id, n, sizeof(id));
	flyball_context_enter(id, id, n);
}

/* The span n, whole: all its bytes are n. */
static bool is_span(const uint8_t *record, uint8_t n)
{
	for (size_t i = 0; i < SPAN + 8; i++)
		if (record[i] != n)
			return false;
	return record[VALID] == 1 && record[FLAGS] == n;
}

static int attach(void **state)
{
	(void)state;
	return flyball_context_attach();
}

static int detach(void **state)
{
	(void)state;
	flyball_context_detach();
	return otel_thread_ctx_v1 != NULL;
}

static void thread__without_a_context__publishes_nothing(void **state)
{
	(void)state;
	enter(1);
	flyball_context_leave();
	assert_null(otel_thread_ctx_v1);
	assert_int_equal(flyball_context_attribute(0, "a", 1), -ENOENT);
}

static void thread__nested_spans__come_back(void **state)
{
	const uint8_t *record = otel_thread_ctx_v1;

	(void)state;
	assert_true(is_span(record, 0));
	for (uint8_t n = 1; n <= FLYBALL_CONTEXT_DEPTH_MAX; n++)
		enter(n);
	for (uint8_t n = FLYBALL_CONTEXT_DEPTH_MAX; n > 0; n--) {
		assert_true(is_span(record, n));
		flyball_context_leave();
	}
	assert_true(is_span(record, 0));
	flyball_context_leave(); /* one too many */
	assert_true(is_span(record, 0));
}

static void thread__a_span_too_deep_to_return_to__is_never_a_guess(void **state)
{
	const uint8_t *record = otel_thread_ctx_v1;

	(void)state;
	for (uint8_t n = 1; n <= FLYBALL_CONTEXT_DEPTH_MAX + 2; n++)
		enter(n);
	assert_true(is_span(record, FLYBALL_CONTEXT_DEPTH_MAX + 2));
	flyball_context_leave();
	assert_int_equal(record[VALID], 0);
	flyball_context_leave();
	assert_int_equal(record[VALID], 0);
	flyball_context_leave();
	assert_true(is_span(record, FLYBALL_CONTEXT_DEPTH_MAX - 1));
	for (int n = 1; n < FLYBALL_CONTEXT_DEPTH_MAX; n++)
		flyball_context_leave();
	assert_true(is_span(record, 0));
}

static void thread__attributes__are_of_their_span(void **state)
{
	static const uint8_t expected[] = {0, 5, '/', 'c', 'a', 'r', 't', 1, 0, 0, 2, 'o', 'k'};
	const uint8_t *record = otel_thread_ctx_v1;

	(void)state;
	assert_int_equal(flyball_context_attribute(0, "x", 1), -ENOENT);
	enter(1);
	assert_int_equal(flyball_context_attribute(0, "/cart", 5), 0);
	enter(2);
	assert_int_equal(flyball_context_attribute(0, "long value", 10), 0);
	assert_int_equal(flyball_context_attribute(1, NULL, 0), 0);
	assert_int_equal(flyball_context_attribute(0, "ok", 2), 0);
	assert_int_equal(attributes_bytes(record), sizeof(expected));
	assert_memory_equal(record + ATTRIBUTES, expected, sizeof(expected));
	flyball_context_leave();
	assert_int_equal(attributes_bytes(record), 7);
	assert_memory_equal(record + ATTRIBUTES, expected, 7);
	flyball_context_leave();
	assert_int_equal(attributes_bytes(record), 0);
}

static void thread__attributes_that_do_not_fit__change_nothing(void **state)
{
	const uint8_t *record = otel_thread_ctx_v1;
	char text[256] = "";

	(void)state;
	enter(1);
	assert_int_equal(flyball_context_attribute(0, text, 256), -EINVAL);
	assert_int_equal(flyball_context_attribute(0, NULL, 1), -EINVAL);
	assert_int_equal(flyball_context_attribute(0, text, 255), 0);
	assert_int_equal(flyball_context_attribute(1, text, 255), 0);
	assert_int_equal(flyball_context_attribute(2, text, 97), -ENOSPC);
	assert_true(is_span(record, 1));
	assert_int_equal(flyball_context_attribute(2, text, 96), 0);
	assert_int_equal(attributes_bytes(record), FLYBALL_CONTEXT_ATTRIBUTES_BYTES_MAX);
	assert_int_equal(flyball_context_attribute(1, text, 255), 0); /* in its own place */
	flyball_context_leave();
}

static void thread__contexts__move_with_the_work(void **state)
{
	struct flyball_context *task = flyball_context_new(), *own;

	(void)state;
	assert_non_null(task);
	enter(1);
	own = flyball_context_swap(task);
	enter(2);
	assert_ptr_equal(flyball_context_swap(own), task); /* it yields inside its span */
	assert_true(is_span(otel_thread_ctx_v1, 1));
	flyball_context_swap(task);
	assert_true(is_span(otel_thread_ctx_v1, 2));
	flyball_context_leave();
	flyball_context_swap(own);
	flyball_context_free(task);
	flyball_context_leave();
}

static volatile sig_atomic_t interruptions, torn;

/* A profiler's view of the interrupted thread, and a handler that has spans of its own. */
static void look_and_enter(int signal)
{
	const uint8_t *record = otel_thread_ctx_v1;

	(void)signal;
	if (record[VALID] == 1 && !is_span(record, record[0]))
		torn++;
	for (size_t at = 0; record[VALID] == 1 && at < attributes_bytes(record); at += 3)
		if (record[ATTRIBUTES + at + 1] != 1 || record[ATTRIBUTES + at + 2] != 1)
			torn++;
	enter(200);
	if (flyball_context_attribute(7, "\xc8", 1) || !is_span(record, 200))
		torn++;
	enter(201);
	flyball_context_leave();
	flyball_context_leave();
	interruptions++;
}

static bool is_before(const struct timespec *deadline)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec < deadline->tv_sec;
}

static void thread__interrupted_at_any_store__is_whole_or_invalid(void **state)
{
	struct sigaction action = {.sa_handler = look_and_enter};
	struct itimerval often = {{0, 20}, {0, 20}}, never = {{0, 0}, {0, 0}};
	struct timespec deadline;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += 30;
	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	while (interruptions < 2000 && is_before(&deadline))
		for (int i = 0; i < 1000; i++) {
			enter(1);
			flyball_context_attribute(3, "\1", 1);
			enter(2);
			flyball_context_leave();
			flyball_context_attribute(3, "\1", 1);
			flyball_context_leave();
		}
	setitimer(ITIMER_REAL, &never, NULL);
	signal(SIGALRM, SIG_DFL);
	assert_int_equal(torn, 0);
	assert_true(interruptions >= 2000);
	assert_true(is_span(otel_thread_ctx_v1, 0));
}

static void *use_a_thread(void *unused)
{
	if (flyball_context_attach() || flyball_context_attach())
		return unused;
	enter(9);
	return is_span(otel_thread_ctx_v1, 9) ? (void *)otel_thread_ctx_v1 : unused;
}

static void thread__threads__have_contexts_of_their_own(void **state)
{
	pthread_t thread;
	void *others;

	(void)state;
	enter(1);
	assert_int_equal(pthread_create(&thread, NULL, use_a_thread, NULL), 0);
	assert_int_equal(pthread_join(thread, &others), 0);
	assert_non_null(others);
	assert_ptr_not_equal(others, otel_thread_ctx_v1);
	assert_true(is_span(otel_thread_ctx_v1, 1));
	flyball_context_leave();
}

/* What another process finds of pid. */
struct found {
	uint64_t published_ns;
	size_t length;
	uint8_t payload[65536];
};

static uint64_t find_mapping(pid_t pid)
{
	char path[64], *line = NULL;
	uint64_t start = 0;
	size_t room = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (maps && !start && getline(&line, &room, maps) > 0)
		if (strstr(line, " [anon:OTEL_CTX]") || strstr(line, "[anon_shmem:OTEL_CTX]") ||
		    strstr(line, " /memfd:OTEL_CTX"))
			start = strtoull(line, NULL, 16);
	free(line);
	if (maps)
		fclose(maps);
	return start;
}

static bool read_memory(pid_t pid, uint64_t from, void *to, size_t bytes)
{
	struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};

	return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

static bool read_published(pid_t pid, struct found *found)
{
	uint64_t start = find_mapping(pid), payload;
	uint32_t version, bytes;
	uint8_t header[32];

	if (!start || !read_memory(pid, start, header, sizeof(header)))
		return false;
	memcpy(&version, header + 8, 4);
	memcpy(&bytes, header + 12, 4);
	memcpy(&found->published_ns, header + 16, 8);
	memcpy(&payload, header + 24, 8);
	found->length = bytes;
	return !memcmp(header, "OTEL_CTX", 8) && version == 2 && found->published_ns &&
	       bytes <= sizeof(found->payload) && read_memory(pid, payload, found->payload, bytes);
}

static const struct flyball_attribute resource[] = {{"service.name", "checkout"},
						    {"service.version", ""}};
static const char *const keys[] = {"http.route", "user"};
static const struct flyball_process_context self = {resource, 2, keys, 2};

static void check_attribute(const Otlp__KeyValue *found, const char *key, const char *value)
{
	assert_string_equal(found->key, key);
	assert_int_equal(found->value->value_case, OTLP__ANY_VALUE__VALUE_STRING_VALUE);
	assert_string_equal(found->value->string_value, value);
}

static void process__published__reads_as_otlp(void **state)
{
	struct found *found = calloc(1, sizeof(*found));
	Otlp__ProcessContext *context;
	Otlp__ArrayValue *array;

	(void)state;
	assert_int_equal(flyball_process_context_publish(&self), 0);
	assert_true(read_published(getpid(), found));
	context = otlp__process_context__unpack(NULL, found->length, found->payload);
	assert_non_null(context);
	assert_int_equal(context->resource->n_attributes, 2);
	check_attribute(context->resource->attributes[0], "service.name", "checkout");
	check_attribute(context->resource->attributes[1], "service.version", "");
	assert_int_equal(context->n_attributes, 2);
	check_attribute(context->attributes[0], "threadlocal.schema_version", "tlsdesc_v1_dev");
	assert_string_equal(context->attributes[1]->key, "threadlocal.attribute_key_map");
	array = context->attributes[1]->value->array_value;
	assert_int_equal(array->n_values, 2);
	assert_string_equal(array->values[0]->string_value, "http.route");
	assert_string_equal(array->values[1]->string_value, "user");
	otlp__process_context__free_unpacked(context, NULL);
	flyball_process_context_withdraw();
	assert_int_equal(find_mapping(getpid()), 0);
	free(found);
}

static void process__published_again__has_another_time(void **state)
{
	static const struct flyball_process_context less = {resource, 1, NULL, 0};
	struct found *found = calloc(1, sizeof(*found));
	uint64_t before;
	size_t length;

	(void)state;
	assert_int_equal(flyball_process_context_publish(&self), 0);
	assert_true(read_published(getpid(), found));
	before = found->published_ns;
	length = found->length;
	assert_int_equal(flyball_process_context_publish(&less), 0);
	assert_true(read_published(getpid(), found));
	assert_true(found->published_ns > before);
	assert_true(found->length < length);
	flyball_process_context_withdraw();
	free(found);
}

static void process__too_much__is_refused(void **state)
{
	static char text[70000];
	struct flyball_attribute large = {"large", text};
	const char *many[257];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	for (size_t i = 0; i < 257; i++)
		many[i] = "";
	assert_int_equal(flyball_process_context_publish(
				 &(struct flyball_process_context){&large, 1, NULL, 0}),
			 -E2BIG);
	assert_int_equal(flyball_process_context_publish(
				 &(struct flyball_process_context){NULL, 0, many, 257}),
			 -EINVAL);
	assert_int_equal(find_mapping(getpid()), 0);
	assert_int_equal(flyball_process_context_publish(
				 &(struct flyball_process_context){NULL, 0, many, 256}),
			 0);
	flyball_process_context_withdraw();
}

/* In the child: nothing of the parent's, then a context of its own, in the span it was in. */
static int live_as_child(struct found *found)
{
	if (find_mapping(getpid()) || !is_span(otel_thread_ctx_v1, 5))
		return 1;
	if (flyball_process_context_publish(&self) || !read_published(getpid(), found))
		return 2;
	flyball_process_context_withdraw();
	return find_mapping(getpid()) ? 3 : 0;
}

static void process__a_child__inherits_the_span_alone(void **state)
{
	struct found *found = calloc(1, sizeof(*found));
	int status;
	pid_t child;

	(void)state;
	assert_int_equal(flyball_process_context_publish(&self), 0);
	enter(5);
	child = fork();
	if (child == 0)
		_exit(live_as_child(found));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(read_published(getpid(), found));
	flyball_context_leave();
	flyball_process_context_withdraw();
	free(found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thread__without_a_context__publishes_nothing),
		cmocka_unit_test_setup_teardown(thread__nested_spans__come_back, attach, detach),
		cmocka_unit_test_setup_teardown(
			thread__a_span_too_deep_to_return_to__is_never_a_guess, attach, detach),
		cmocka_unit_test_setup_teardown(thread__attributes__are_of_their_span, attach,
						detach),
		cmocka_unit_test_setup_teardown(thread__attributes_that_do_not_fit__change_nothing,
						attach, detach),
		cmocka_unit_test_setup_teardown(thread__contexts__move_with_the_work, attach,
						detach),
		cmocka_unit_test_setup_teardown(
			thread__interrupted_at_any_store__is_whole_or_invalid, attach, detach),
		cmocka_unit_test_setup_teardown(thread__threads__have_contexts_of_their_own, attach,
						detach),
		cmocka_unit_test(process__published__reads_as_otlp),
		cmocka_unit_test(process__published_again__has_another_time),
		cmocka_unit_test(process__too_much__is_refused),
		cmocka_unit_test_setup_teardown(process__a_child__inherits_the_span_alone, attach,
						detach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
