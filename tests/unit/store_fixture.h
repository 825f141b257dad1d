/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a directory of its own, and blocks that can be made again from their number. */
#ifndef FLYBALL_TESTS_STORE_FIXTURE_H
#define FLYBALL_TESTS_STORE_FIXTURE_H

#include "store/store.h"

#define STORE_TEST_BASE_NS 1700000000000000000ULL
#define STORE_TEST_STEP_NS 10000000000ULL

/* A new directory in memory, where writing to disk costs nothing; freed by store_test_remove. */
char *store_test_directory(void);
void store_test_remove(char *directory);
/* Bytes of block number n: about size of them, half of which can be packed. */
void store_test_bytes(uint64_t n, size_t size, struct buf *out);
/* Window n of 10 s, of process n % 7, with its bytes. */
int store_test_append(struct store *store, uint64_t n, size_t size, uint64_t *ret_id,
		      struct why *why);
/* The number that store_test_append put in; asserts that bytes are what they were. */
uint64_t store_test_number(const struct store_block *block);
/* Bytes that the files take; what is a hole in one takes none. */
uint64_t store_test_disk(const char *directory);
struct store *store_test_open(const char *directory, const struct store_options *options);

#endif
