/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mappings: what one address space has mapped. A sorted array without overlaps, then a short log of
 * newer mappings in order of arrival; the log is folded in only when somebody looks, since most
 * processes are never sampled. Newest wins. Shared by reference between processes that forked and
 * copied at the first change. Pure: no system call but memory allocation. One owning thread.
 */
#ifndef FLYBALL_PROCESS_MAPPINGS_H
#define FLYBALL_PROCESS_MAPPINGS_H

#include "process/process.h"

#define PROCESS_FILE_ANONYMOUS (-1)
#define PROCESS_FILE_SHARED    (-3) /* anonymous, with an inode: shared memory, a device */
#define PROCESS_FILE_UNKNOWN   (-2) /* a file that could not be entered: limits, memory */

struct process_mapping {
	uint64_t start, end;
	uint64_t offset;  /* in the file, of start */
	uint64_t time_ns; /* when it was mapped, or asked for by the scan that found it */
	int32_t file;
	uint32_t rank; /* while folding: the higher hides the lower */
	uint32_t samples;
};

struct process_maps {
	uint32_t refs;
	uint32_t mark;	    /* of the last sweep over files */
	uint32_t scans;	    /* under way */
	bool is_whole;	    /* holds all there was at some time, and all that came since */
	bool is_full;	    /* PROCESS_MAPPINGS_MAX reached, new ones are refused */
	size_t sorted;	    /* items before the log */
	size_t count, cap;  /* items in all */
	size_t hit;	    /* last found */
	uint64_t settle_ns; /* a first scan is waited for until then */
	struct process_mapping *items;
};

struct process_maps *process_maps_new(void);
struct process_maps *process_maps_ref(struct process_maps *maps); /* NULL is fine */
void process_maps_unref(struct process_maps *maps);		  /* NULL is fine */
/* Makes *maps the caller's own. */
int process_maps_own(struct process_maps **maps);
/* Adds what is newer than all before; *maps is copied first when shared. */
int process_maps_add(struct process_maps **maps, const struct process_mapping *m);
/* Borrowed until the next change; NULL: nothing there. */
const struct process_mapping *process_maps_find(struct process_maps *maps, uint64_t address);
/* Puts the found of a scan below the mappings of since_ns or later and drops older ones (keeps
 * them, on top, with keep_old). Changes all who share maps. */
int process_maps_replace(struct process_maps *maps, const struct process_mapping *found,
			 size_t count, uint64_t since_ns, bool keep_old);

/* Folds the log in: items are sorted then, and do not overlap. */
int process_maps_fold(struct process_maps *maps);
/* Whether it holds just these, in this order. */
bool process_maps_equal(struct process_maps *maps, const struct process_mapping *items,
			size_t count);

#endif
