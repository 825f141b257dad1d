// SPDX-License-Identifier: Apache-2.0
/*
 * The thread context of OTEP 4947. A profiler looks at it while the thread is interrupted, so the
 * order of stores on the own CPU is all that counts: fences for the compiler, none for the CPU.
 */
#include "flyball/context.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The published record is a head with its attributes behind it, byte for byte (OTEP 4947). */
struct head {
	uint8_t trace_id[16];
	uint8_t span_id[8];
	uint8_t valid; /* 1: may be read; anything else: is being written */
	uint8_t trace_flags;
	uint16_t attributes_bytes;
};
_Static_assert(sizeof(struct head) == 28, "OTEP 4947");

struct flyball_context {
	struct head head; /* first: what the TLS variable points at */
	uint8_t attributes[FLYBALL_CONTEXT_ATTRIBUTES_BYTES_MAX]; /* {key, length, bytes}... */
	uint32_t depth;
	struct head
		outer[FLYBALL_CONTEXT_DEPTH_MAX]; /* heads of the spans around the current one */
};

__attribute__((visibility("default"))) _Thread_local struct flyball_context *otel_thread_ctx_v1;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t own_key; /* the context that attach() gave the thread */
static int key_error;

static void compiler_fence(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

static void free_own(void *own)
{
	if (otel_thread_ctx_v1 == own)
		otel_thread_ctx_v1 = NULL;
	compiler_fence();
	free(own);
}

static void make_key(void)
{
	key_error = pthread_key_create(&own_key, free_own);
}

struct flyball_context *flyball_context_new(void)
{
	struct flyball_context *context = calloc(1, sizeof(*context));

	if (context)
		context->head.valid = 1; /* of no span yet */
	return context;
}

void flyball_context_free(struct flyball_context *context)
{
	free(context);
}

struct flyball_context *flyball_context_swap(struct flyball_context *next)
{
	struct flyball_context *previous = otel_thread_ctx_v1;

	compiler_fence();
	otel_thread_ctx_v1 = next;
	compiler_fence();
	return previous;
}

int flyball_context_attach(void)
{
	struct flyball_context *own;

	pthread_once(&key_once, make_key);
	if (key_error)
		return -key_error;
	own = pthread_getspecific(own_key);
	if (own)
		return 0;
	own = flyball_context_new();
	if (!own || pthread_setspecific(own_key, own)) {
		free(own);
		return -ENOMEM;
	}
	flyball_context_swap(own);
	return 0;
}

void flyball_context_detach(void)
{
	void *own;

	pthread_once(&key_once, make_key);
	if (key_error)
		return;
	own = pthread_getspecific(own_key);
	pthread_setspecific(own_key, NULL);
	free_own(own);
}

/* The head of the span around the current one, or of the innermost that was kept. */
static struct head *outer_head(struct flyball_context *context)
{
	uint32_t depth = context->depth;

	if (depth > FLYBALL_CONTEXT_DEPTH_MAX)
		depth = FLYBALL_CONTEXT_DEPTH_MAX;
	return &context->outer[depth - 1];
}

/* All but valid. Each field is read as wide as it was written, or the CPU waits for the store. */
static void copy_head(struct head *to, const struct head *from)
{
	memcpy(to->trace_id, from->trace_id, sizeof(to->trace_id));
	memcpy(to->span_id, from->span_id, sizeof(to->span_id));
	compiler_fence();
	to->trace_flags = from->trace_flags;
	compiler_fence();
	to->attributes_bytes = from->attributes_bytes;
}

/*
 * Each function below may be interrupted after any store by a handler that enters and leaves: it
 * saves the head as it stands, half written or not, and puts the same bytes back. So the place to
 * save to is taken before the head changes, and given back after.
 */
void flyball_context_enter(const uint8_t trace_id[16], const uint8_t span_id[8], uint8_t flags)
{
	struct flyball_context *context = otel_thread_ctx_v1;

	if (!context)
		return;
	if (context->depth < FLYBALL_CONTEXT_DEPTH_MAX) {
		copy_head(&context->outer[context->depth], &context->head);
		context->outer[context->depth].valid = context->head.valid;
	}
	compiler_fence();
	context->depth++;
	compiler_fence();
	context->head.valid = 0;
	compiler_fence();
	memcpy(context->head.trace_id, trace_id, sizeof(context->head.trace_id));
	memcpy(context->head.span_id, span_id, sizeof(context->head.span_id));
	context->head.trace_flags = flags;
	compiler_fence();
	context->head.valid = 1;
	compiler_fence();
}

void flyball_context_leave(void)
{
	static const struct head unknown; /* a span too deep to be kept is not guessed */
	struct flyball_context *context = otel_thread_ctx_v1;
	const struct head *outer;
	uint16_t attributes_bytes;

	if (!context || context->depth == 0)
		return;
	outer = outer_head(context);
	attributes_bytes = outer->attributes_bytes;
	if (context->depth > FLYBALL_CONTEXT_DEPTH_MAX)
		outer = &unknown;
	context->head.valid = 0;
	compiler_fence();
	copy_head(&context->head, outer);
	context->head.attributes_bytes = attributes_bytes;
	compiler_fence();
	context->head.valid = outer->valid;
	compiler_fence();
	context->depth--;
}

/* Where the current span's value for a key begins; the end of all values if it has none. */
static size_t find_value(struct flyball_context *context, uint8_t key_index)
{
	size_t at =
		outer_head(context)->attributes_bytes; /* those before are of the spans around */

	while (at < context->head.attributes_bytes && context->attributes[at] != key_index)
		at += 2u + context->attributes[at + 1];
	return at;
}

int flyball_context_attribute(uint8_t key_index, const char *value, size_t length)
{
	struct flyball_context *context = otel_thread_ctx_v1;
	size_t at, end, old = 0;

	if (!context || context->depth == 0)
		return -ENOENT;
	if ((!value && length) || length > UINT8_MAX)
		return -EINVAL;
	at = find_value(context, key_index);
	end = context->head.attributes_bytes;
	if (at < end)
		old = 2u + context->attributes[at + 1];
	end -= old;
	if (end + 2 + length > sizeof(context->attributes))
		return -ENOSPC;

	context->head.valid = 0;
	compiler_fence();
	memmove(context->attributes + at, context->attributes + at + old, end - at);
	context->head.attributes_bytes = (uint16_t)(end + 2 + length); /* handlers add behind it */
	compiler_fence();
	context->attributes[end] = key_index;
	context->attributes[end + 1] = (uint8_t)length;
	if (length)
		memcpy(context->attributes + end + 2, value, length);
	compiler_fence();
	context->head.valid = 1;
	compiler_fence();
	return 0;
}
