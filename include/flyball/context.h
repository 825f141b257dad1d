/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flyball/context.h: a service tells profilers which trace span each of its threads works for.
 *
 * libflyball-context publishes what two OpenTelemetry specifications define, so that any profiler
 * that follows them can read it: the thread context (OTEP 4947, the TLS pointer otel_thread_ctx_v1)
 * and the process context (OTEP 4719, the mapping OTEL_CTX). Nobody is called and nothing is sent:
 * entering and leaving a span are a few stores into memory of the thread.
 *
 *	static const char *const keys[] = { "http.route" };
 *	static const struct flyball_attribute resource[] = { { "service.name", "checkout" } };
 *	const struct flyball_process_context me = { resource, 1, keys, 1 };
 *
 *	flyball_process_context_publish(&me);		once per process, again after fork
 *	flyball_context_attach();			once per thread
 *
 *	flyball_context_enter(trace_id, span_id, 1);
 *	flyball_context_attribute(0, "/cart", 5);	0 is the place of "http.route" in keys
 *	...
 *	flyball_context_leave();
 *
 * Threads: a context belongs to the thread it is installed on. enter, leave, attribute and swap act
 * on the calling thread alone, take no lock, allocate nothing and may be called in a signal
 *handler; a handler that enters must leave before it returns, and sets attributes only in its own
 *span. The others may be called by any thread, but not in a signal handler.
 *
 * fork: the child's one thread goes on in the span it was in. The process context does not follow
 * into the child (its identity would be wrong there); publish again. exec takes everything away.
 *
 * Linking: the shared library needs nothing more. A program that takes the static one should be
 * linked with -Wl,--export-dynamic-symbol=otel_thread_ctx_v1, or be left unstripped: profilers find
 * the variable by that name. One copy of the library per process.
 */
#ifndef FLYBALL_CONTEXT_H
#define FLYBALL_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A span nested deeper than this is published when it is entered, but not when it is returned to.
 */
#define FLYBALL_CONTEXT_DEPTH_MAX 32
/* Bytes of attributes a context holds, two of each attribute for its head (OTEP 4947: 612). */
#define FLYBALL_CONTEXT_ATTRIBUTES_BYTES_MAX 612

struct flyball_context;

#define FLYBALL_CONTEXT_API __attribute__((visibility("default")))

/*
 * Gives the calling thread a context of its own, freed when the thread ends. Again: nothing
 * happens. 0, -ENOMEM, or -EAGAIN where no thread-specific key is left.
 */
FLYBALL_CONTEXT_API int flyball_context_attach(void);

/* Takes the thread's own context back. */
FLYBALL_CONTEXT_API void flyball_context_detach(void);

/*
 * Enters a span, in W3C byte order; flags are the W3C trace flags. The span that was current comes
 * back with leave(), and so do its attributes. A thread without a context: nothing happens.
 */
FLYBALL_CONTEXT_API void flyball_context_enter(const uint8_t trace_id[16], const uint8_t span_id[8],
					       uint8_t flags);

/* Leaves the span entered last; without one, nothing happens. */
FLYBALL_CONTEXT_API void flyball_context_leave(void);

/*
 * Sets an attribute of the current span: its key by its place in the process context's thread_keys,
 * length (0 to 255) bytes of UTF-8. A second value of a key takes the place of the first.
 * 0, -ENOENT outside of any span, -EINVAL, or -ENOSPC where the value does not fit.
 */
FLYBALL_CONTEXT_API int flyball_context_attribute(uint8_t key_index, const char *value,
						  size_t length);

/*
 * For coroutines and for pools that hand work from thread to thread: each unit of work holds a
 * context of its own, and the scheduler installs it where the work runs:
 *
 *	previous = flyball_context_swap(task->context);
 *	resume(task);
 *	flyball_context_swap(previous);
 *
 * swap() returns what was installed (NULL: nothing) and neither frees nor copies. A context is
 * installed on one thread at a time, and is freed by its owner when it is installed on none.
 */
FLYBALL_CONTEXT_API struct flyball_context *flyball_context_new(void);
FLYBALL_CONTEXT_API void flyball_context_free(struct flyball_context *context);
FLYBALL_CONTEXT_API struct flyball_context *flyball_context_swap(struct flyball_context *next);

struct flyball_attribute {
	const char *key;
	const char *value;
};

/* No text may be NULL. */
struct flyball_process_context {
	/* Of the process, by the semantic conventions: service.name, service.version, ... */
	const struct flyball_attribute *resource;
	size_t resource_count;
	/* Names of the threads' attributes, at most 256; more may be added later, none moved. */
	const char *const *thread_keys;
	size_t thread_key_count;
};

/*
 * Publishes what the process is, or replaces what it published before; nothing of context is kept.
 * 0, -EINVAL (too many keys), -E2BIG (more than 64 KiB in all) or -ENOMEM (no mapping that readers
 * would find).
 */
FLYBALL_CONTEXT_API int flyball_process_context_publish(
	const struct flyball_process_context *context);

/* Takes it back; without one, nothing happens. */
FLYBALL_CONTEXT_API void flyball_process_context_withdraw(void);

#ifdef __cplusplus
}
#endif

#endif
