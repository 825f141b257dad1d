// SPDX-License-Identifier: Apache-2.0
#include "store_fixture.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

char *store_test_directory(void)
{
	char *path = strdup("/dev/shm/flyball-store-XXXXXX");

	assert_non_null(path);
	assert_non_null(mkdtemp(path));
	return path;
}

static uint64_t walk(const char *directory, bool removes)
{
	DIR *dir = opendir(directory);
	uint64_t bytes = 0;
	struct dirent *e;
	struct stat st;

	while (dir && (e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.' || fstatat(dirfd(dir), e->d_name, &st, 0))
			continue;
		bytes += (uint64_t)(st.st_blocks * 512 < st.st_size ? st.st_blocks * 512
								    : st.st_size);
		if (removes)
			assert_int_equal(unlinkat(dirfd(dir), e->d_name, 0), 0);
	}
	if (dir)
		closedir(dir);
	return bytes;
}

void store_test_remove(char *directory)
{
	walk(directory, true);
	rmdir(directory);
	free(directory);
}

uint64_t store_test_disk(const char *directory)
{
	return walk(directory, false);
}

void store_test_bytes(uint64_t n, size_t size, struct buf *out)
{
	uint64_t x = n * 0x9e3779b97f4a7c15ULL + 1;

	buf_reset(out);
	buf_add(out, &n, sizeof(n));
	while (out->len < size) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		buf_add(out, &x, sizeof(x));
		buf_add_str(out, "a frame.");
	}
	assert_int_equal(out->err, 0);
}

int store_test_append(struct store *store, uint64_t n, size_t size, uint64_t *ret_id,
		      struct why *why)
{
	char pid[24];
	struct store_term terms[] = {
		{STORE_SERVICE, n % 2 ? "odd" : "even", n % 2 ? 3 : 4},
		{STORE_PID, pid, 0},
		{STORE_COMM, "worker", 6},
	};
	struct store_block_meta meta = {
		.start_ns = STORE_TEST_BASE_NS + n * STORE_TEST_STEP_NS,
		.end_ns = STORE_TEST_BASE_NS + (n + 1) * STORE_TEST_STEP_NS,
		.ledger = {.taken = 10, .taken_ns = 100, .delivered = 9, .delivered_ns = 90},
		.terms = terms,
		.term_count = ARRAY_SIZE(terms),
	};
	struct buf bytes;
	int err;

	terms[1].len = (size_t)snprintf(pid, sizeof(pid), "%u", (unsigned int)(n % 7));
	buf_init(&bytes, MEM_BASE, STORE_BLOCK_BYTES_MAX);
	store_test_bytes(n, size, &bytes);
	err = store_append(store, &meta, bytes.data, bytes.len, ret_id, why);
	buf_done(&bytes);
	return err;
}

uint64_t store_test_number(const struct store_block *block)
{
	struct buf bytes;
	uint64_t n;

	assert_true(block->len >= sizeof(n));
	memcpy(&n, block->bytes, sizeof(n));
	buf_init(&bytes, MEM_BASE, STORE_BLOCK_BYTES_MAX);
	store_test_bytes(n, block->len - 15, &bytes); /* made of 16 bytes at a time, after 8 */
	assert_int_equal(bytes.len, block->len);
	assert_memory_equal(bytes.data, block->bytes, bytes.len);
	buf_done(&bytes);
	return n;
}

struct store *store_test_open(const char *directory, const struct store_options *options)
{
	struct store *store = NULL;
	struct why why = {""};

	if (store_open(directory, options, &store, &why))
		fail_msg("%s", why.text);
	return store;
}
