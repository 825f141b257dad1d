/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context: where a process publishes its trace context, read out of its memory.
 *
 * Two OpenTelemetry specifications: the process context (OTEP 4719), a mapping named OTEL_CTX that
 * says what the process is and what its threads publish; and the thread context (OTEP 4947), a
 * record behind the thread-local pointer otel_thread_ctx_v1, which the kernel side reads at each
 * sample. This part finds that pointer: not where it is in one thread, but how to get there from
 * any thread's thread pointer (TP).
 *
 * Everything is looked for in the process's memory as the dynamic linker left it, not in files: it
 * is there for deleted files, other mount namespaces and libraries opened later. All of it is
 * hostile and may change while it is read: every count is bounded, nothing is allocated by it, and
 * what does not hold together is an error. Reading is by a callback; it may fail, and may block,
 * which is why this runs in flyball-reader (DESIGN decision 15).
 *
 * Sources: OTEP 4719, OTEP 4947; "ELF Handling For Thread-Local Storage" (Drepper) for the models
 * and for variants I and II; gABI 5 and glibc's dl-lookup.c for hash tables.
 *
 * Pure; any thread.
 */
#ifndef FLYBALL_CONTEXT_FIND_H
#define FLYBALL_CONTEXT_FIND_H

#include "base/base.h"

#define CONTEXT_PAYLOAD_MAX    65536 /* bytes of a process context */
#define CONTEXT_ATTRIBUTES_MAX 64    /* of the process; more are left out */
#define CONTEXT_KEYS_MAX       256   /* names of the threads' attributes */
#define CONTEXT_MODULES_MAX    4096  /* numbers of modules in a DTV; glibc and musl count from 1 */
#define CONTEXT_TEXT_MAX       256   /* bytes of an attribute's key or value that are kept */

struct context_memory {
	void *ctx;
	/* True when all the bytes were read. */
	bool (*read)(void *ctx, uint64_t address, void *out, size_t bytes);
};

/* ---------------------------------------------------------------- thread context */
/* How to get from a thread pointer to the variable. */
struct context_place {
	uint64_t module; /* 0: at TP + offset; else at DTV[module] + offset */
	int64_t offset;
};

/* A program or library in memory. */
struct context_module {
	uint64_t start; /* address of its ELF header */
	bool is_main;	/* the executable: its variables are at a constant offset from TP */
	int fd;		/* its file, for a symbol that only .symtab has; -1: none */
};

/* -ENOENT: the module has no such variable; -EAGAIN: it has, but the dynamic linker has not been
 * there yet; -EOPNOTSUPP: by a way that cannot be followed; -EBADMSG: it makes no sense. */
int context_find(const struct context_memory *memory, const struct context_module *module,
		 struct context_place *ret, struct why *why);

/* The offset from TP of a variable of the main program, by its PT_TLS. Formulas of both ABIs. */
int64_t context_local_exec(uint16_t machine, uint64_t value, uint64_t tls_vaddr, uint64_t tls_bytes,
			   uint64_t tls_align);

/* ---------------------------------------------------------------- process context */
/* True for the paths under which /proc/PID/maps shows the mapping. */
bool context_is_mapping(const char *path);

/* Texts lie in the payload, and are not ended by a NUL. */
struct context_text {
	const char *bytes;
	size_t length;
};
struct context_attribute {
	struct context_text key, value;
};
struct context_process {
	uint64_t published_ns; /* changes with each update */
	bool has_threads;      /* its threads publish what OTEP 4947 says */
	size_t attribute_count, key_count;
	struct context_attribute attributes[CONTEXT_ATTRIBUTES_MAX]; /* with a text as value */
	struct context_text keys[CONTEXT_KEYS_MAX];		     /* by their index */
	size_t payload_bytes;
	char payload[CONTEXT_PAYLOAD_MAX];
};
/* Reads the mapping at start. -EAGAIN: it was being written each time; -ENOENT: it is none, or of
 * another version; -EBADMSG: damaged. */
int context_process_read(const struct context_memory *memory, uint64_t start,
			 struct context_process *ret, struct why *why);
/* The second half: what ret->payload says. */
int context_process_parse(struct context_process *ret, struct why *why);

#endif
