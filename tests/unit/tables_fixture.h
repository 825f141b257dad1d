/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel memory and walks, made up, for the tests of tables: segments are plain memory, and a walk
 * that is under way is a copy of what it has read so far (the table's entry, the process's entry),
 * which must stay good until a wait is over.
 */
#ifndef TEST_TABLES_FIXTURE_H
#define TEST_TABLES_FIXTURE_H

#include "tables/tables.h"

#define FIXTURE_PROCESSES 4096

struct fixture {
	__u32 *segments[FLY_SEGMENTS_MAX];
	struct fly_table published[FLY_TABLES_MAX];
	struct fly_process processes[FIXTURE_PROCESSES]; /* by tgid; count 0: none */
	uint32_t segment_count, segment_peak, process_count, process_limit;
	uint32_t waits, fail_segments, fail_waits; /* the next so many fail */
	void (*before_wait)(void *ctx);
	void *ctx;
	struct tables *tables;
};

/* A table of so many pages, made from a seed: every kind of page and shape. */
struct unwind_table *fixture_table(unsigned int seed, uint32_t pages, uint32_t groups_per_page);
void fixture_table_free(struct unwind_table *table);

void fixture_open(struct fixture *f, const struct tables_options *options);
struct tables_calls fixture_calls(struct fixture *f);
void fixture_close(struct fixture *f);
/* By the walker's look-up, through an entry of fly_tables. */
int fixture_find(const struct fixture *f, const struct fly_table *table, uint64_t vaddr,
		 struct fly_rule *ret);
const struct fly_mapping *fixture_mappings(const struct fixture *f,
					   const struct fly_process *process);
int fixture_arrive(struct fixture *f, uint64_t key, const struct unwind_table *table,
		   unsigned int hash, uint64_t now_ns);
/* Every row's first address and what lies between: pages that differ from the table itself. Absent
 * ones are counted in *ret_absent, or are a difference when it is NULL. */
uint32_t fixture_compare(const struct fixture *f, const struct fly_table *entry,
			 const struct unwind_table *table, uint32_t *ret_absent);

#endif
