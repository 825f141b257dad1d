// SPDX-License-Identifier: Apache-2.0
/* A database with bytes changed in many places, opened by a reader, then by a writer: whatever they
 * are, nothing crashes, and a writer ends up with a store it can write. Input: triples of a place
 * (2 bytes, times 7) and the byte to be there. */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX (1 << 18)

static char directory[] = "/dev/shm/flyball-fuzz-store-XXXXXX";
static char path[64];
static unsigned char whole[FILE_MAX];
static size_t whole_bytes;

static int join(void *arg, const struct store_piece *pieces, size_t count, struct buf *out,
		struct why *why)
{
	(void)arg;
	(void)why;
	for (size_t i = 0; i < count; i++)
		buf_add(out, pieces[i].bytes, pieces[i].len);
	return 0;
}

static void empty_directory(void)
{
	static const char *const names[] = {"",		  "-wal",	    "-shm",
					    ".corrupt-1", ".corrupt-1-wal", ".corrupt-1-shm",
					    ".corrupt-2", ".corrupt-2-wal", ".corrupt-2-shm"};
	char name[96];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(name, sizeof(name), "%s%s", path, names[i]);
		unlink(name);
	}
}

static void leave(void)
{
	char name[96];

	empty_directory();
	snprintf(name, sizeof(name), "%s/lock", directory);
	unlink(name);
	rmdir(directory);
}

static struct store *open_store(bool read_only)
{
	struct store_options options = {
		.quota_bytes = 2 << 20, .max_age_ns = INT64_MAX / 2, .read_only = read_only};
	struct store *store = NULL;
	struct why why = {""};

	if (store_open(directory, &options, &store, &why) && !why.text[0])
		abort();
	return store;
}

static int append(struct store *store, uint64_t n)
{
	static const char bytes[9000] = "a block";
	struct store_term term = {STORE_PID, &n, sizeof(n)};
	struct store_block_meta meta = {
		.start_ns = n, .end_ns = n + 1, .terms = &term, .term_count = 1};

	return store_append(store, &meta, bytes, (size_t)(n * 997 % sizeof(bytes)), NULL, NULL);
}

static void make_whole(void)
{
	struct store *store;
	int fd;

	if (!mkdtemp(directory) || atexit(leave))
		abort();
	snprintf(path, sizeof(path), "%s/store.db", directory);
	store = open_store(false);
	if (!store || store_cursor_add(store, "t", true, NULL))
		abort();
	for (uint64_t n = 0; n < 12; n++) {
		if (append(store, n))
			abort();
	}
	store_close(store);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	whole_bytes = (size_t)read(fd, whole, sizeof(whole));
	close(fd);
	if (whole_bytes < 8192 || whole_bytes >= sizeof(whole))
		abort();
}

static void read_all(struct store *store)
{
	struct store_filter filter = {0};
	struct store_selection *selection;
	struct store_cursor cursors[2];
	struct store_block block;
	struct store_stats stats;
	int err = 1;

	store_stats_get(store, &stats, NULL);
	store_cursor_list(store, cursors, ARRAY_SIZE(cursors), NULL);
	if (store_select(store, &filter, &selection, NULL))
		return;
	for (int i = 0; i < 1000 && (err > 0 || err == -EBADMSG); i++)
		err = store_selection_next(selection, &block, NULL);
	store_selection_close(selection);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct store_merge merge = {join, NULL};
	static unsigned char bytes[FILE_MAX];
	struct store *store;
	int fd;

	if (!whole_bytes)
		make_whole();
	memcpy(bytes, whole, whole_bytes);
	for (size_t i = 0; i + 3 <= size; i += 3)
		bytes[((size_t)data[i] | (size_t)data[i + 1] << 8) * 7 % whole_bytes] = data[i + 2];
	empty_directory();
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, bytes, whole_bytes) != (ssize_t)whole_bytes)
		abort();
	close(fd);
	store = open_store(true);
	if (store)
		read_all(store);
	store_close(store);
	store = open_store(false);
	if (!store)
		return 0; /* said by why */
	for (uint64_t n = 100; n < 103; n++)
		append(store, n);
	store_compact_step(store, &merge, NULL);
	read_all(store);
	store_close(store);
	return 0;
}
