/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables: which unwind tables, and which parts of them, lie in kernel memory, and which processes
 * the walker knows. Pure: makes no system call but memory allocation; kernel memory comes through
 * callbacks, time as an argument.
 *
 * A file gets a number (fly_tables' index) when somebody maps it, before its table is made, so that
 * a process's mappings need not be written again when it comes: the number is simply published.
 * What a table is, is said by build-id and hash: two files with the same content come to share one
 * number, and the mappings of the other are changed in place.
 *
 * All of it fits in bytes_max, whatever happens:
 *   - a table is asked for (tables_want) because samples had frames in its file, hottest first;
 *   - small ones are loaded whole, large ones too while a quarter of the memory stays free, else
 *     their dictionaries and the index of pages, and each page when a sample wanted it;
 *   - when memory is short, what served the fewest samples per byte goes, a page, a small table, a
 *     process, just enough of it, and only for what would serve twice as many (four times, for what
 *     was put out a moment ago); heat halves every TABLES_HALF_NS;
 *   - a number nobody maps for ttl_ns is given up with all it holds;
 *   - emptied segments are given back; what is left in a thin one moves to the others.
 *
 * Memory that walks may still read is used again after calls->wait, which is called at most once in
 * a tick and only with something to collect.
 *
 * One owning thread.
 */
#ifndef FLYBALL_TABLES_H
#define FLYBALL_TABLES_H

#include <linux/types.h>

#include "abi/table_space.h"
#include "base/base.h"
#include "unwind/unwind.h"

#define TABLES_HALF_NS	       10000000000ULL
#define TABLES_TTL_NS	       60000000000ULL
#define TABLES_COPY_BYTES      (12U << 20) /* of tables held in part, in our own memory */
#define TABLES_SMALL_BYTES     65536U
#define TABLES_BUILD_ID_MAX    64U
#define TABLES_HASH_BYTES      32U
#define TABLES_PROCESSES       4096U
#define TABLES_TABLE_BYTES_MAX TABLES_COPY_BYTES /* larger ones are refused */

struct tables_calls {
	void *ctx;
	/* FLY_SEGMENT_BYTES, zeroed and writable; NULL: no memory now. */
	void *(*segment_add)(void *ctx, uint32_t segment);
	void (*segment_remove)(void *ctx, uint32_t segment);
	/* Returns when all walks that run now have ended. */
	int (*wait)(void *ctx);
	int (*process_put)(void *ctx, uint32_t tgid, const struct fly_process *process);
	int (*process_remove)(void *ctx, uint32_t tgid);
};

struct tables_options {
	struct tables_calls calls;
	struct fly_table *published; /* FLY_TABLES_MAX */
	uint64_t bytes_max;	     /* whole segments of it are used */
	uint32_t processes_max;	     /* 0: TABLES_PROCESSES */
	uint64_t ttl_ns;	     /* 0: TABLES_TTL_NS */
	uint64_t copy_bytes_max;     /* 0: TABLES_COPY_BYTES */
};

struct tables;
int tables_new(const struct tables_options *options, struct tables **ret);
/* Takes nothing out of kernel memory: that ends with its owner. NULL is fine. */
void tables_free(struct tables *t);

/* ---------------------------------------------------------------- files
 * A key is the caller's name of a file, never 0, and never used for another. */

/* The number for its mappings. FLY_TABLE_NONE: all numbers are taken; try again later. */
uint32_t tables_number(struct tables *t, uint64_t key);
/* Samples had a frame there. */
void tables_frame(struct tables *t, uint64_t key, uint64_t vaddr, uint64_t now_ns);
/* A walk ended for want of this page (fly_sample.detail). */
void tables_page_absent(struct tables *t, uint32_t number, uint32_t page, uint64_t now_ns);
/* The file whose table is to be made next; it is not named again before an answer. False: none. */
bool tables_want(struct tables *t, uint64_t *ret_key);
/* The answers: one of them for each key of tables_want. */
struct tables_content {
	const struct unwind_table *table; /* borrowed for the call */
	uint8_t build_id_len;
	const uint8_t *build_id;	 /* not NULL */
	uint8_t hash[TABLES_HASH_BYTES]; /* of the call frame information */
};
int tables_arrived(struct tables *t, uint64_t key, const struct tables_content *content,
		   uint64_t now_ns);
enum tables_refusal {
	TABLES_REFUSED_NO_CFI,	    /* walked by frame pointers */
	TABLES_REFUSED_DAMAGED,	    /* malformed, or past a limit of ours */
	TABLES_REFUSED_TOO_LARGE,   /* more than TABLES_TABLE_BYTES_MAX, or half of bytes_max */
	TABLES_REFUSED_UNSUPPORTED, /* another machine's, relocatable */
	TABLES_REFUSED_UNREADABLE,  /* gone, hung, the reader failed: asked again later */
	TABLES_REFUSALS,
};
const char *tables_refusal_text(enum tables_refusal refusal);
void tables_refused(struct tables *t, uint64_t key, enum tables_refusal refusal, uint64_t now_ns);

/* ---------------------------------------------------------------- processes */

struct tables_entry {
	uint32_t tgid;
	uint32_t like; /* a process whose mappings may be the same (its parent): shared then; 0 */
	uint64_t start_ns;
	const struct fly_mapping *mappings; /* sorted by start, without overlap */
	uint32_t count;			    /* 1 to FLY_MAPPINGS_MAX */
};
/* Enters a process or replaces its mappings. -ENOSPC: there is no memory or no entry for it; room
 * is made by the next tick if its samples are worth it, so try again after. */
int tables_process_put(struct tables *t, const struct tables_entry *entry, uint64_t now_ns);
bool tables_process_find(const struct tables *t, uint32_t tgid, uint64_t *ret_start_ns);
/* A sample of it was taken; counted also while it is not entered. */
void tables_process_sampled(struct tables *t, uint32_t tgid, uint64_t now_ns);
/* Its stacks need tables that are not there: all that it maps is wanted a little. */
void tables_process_wants(struct tables *t, uint32_t tgid);
void tables_process_remove(struct tables *t, uint32_t tgid);

/* Fills, evicts, gives back. Every 100 ms or so, and when something arrived. */
void tables_tick(struct tables *t, uint64_t now_ns);

struct tables_stats {
	uint64_t bytes_max;
	uint64_t bytes, bytes_peak;	/* of segments */
	uint64_t used_bytes;		/* in use or waiting for walks to end */
	uint64_t table_bytes;		/* of that: tables */
	uint64_t mapping_bytes;		/* mappings of processes */
	uint64_t copy_bytes, copy_peak; /* in our own memory */
	uint32_t numbers;		/* files that somebody maps, by content */
	uint32_t held, held_in_part;	/* tables */
	uint32_t refused[TABLES_REFUSALS];
	uint32_t processes, processes_peak;
	uint64_t built;	 /* tables that came from the reader */
	uint64_t shared; /* turned out to have the content of another */
	uint64_t fills;	 /* pages placed on demand */
	uint64_t pages_evicted, tables_evicted, processes_evicted;
	uint64_t expired;	  /* given up after ttl_ns */
	uint64_t waits, moved;	  /* grace periods; segments emptied by moving */
	uint64_t short_of_memory; /* ticks that could not place all that was wanted */
	uint64_t segments_failed; /* the kernel had no memory */
	uint64_t numbers_short;	  /* files without a number */
};
void tables_stats_get(const struct tables *t, struct tables_stats *ret);

#endif
