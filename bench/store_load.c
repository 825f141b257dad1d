// SPDX-License-Identifier: Apache-2.0
/* What bench/store runs: DIRECTORY QUOTA BLOCKS FILE... puts BLOCKS blocks into a new store, the
 * files in turn, each found by 2,000 processes in all, then selects in several ways. One JSON
 * object on stdout. */
#include "store/store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX  64
#define TERMS	   200 /* of one block */
#define PROCESSES  2000
#define START_NS   1700000000000000000ULL
#define WINDOW_NS  10000000000ULL
#define SECOND_NS  1000000000ULL
#define OLD_ENOUGH (INT64_MAX / 2)

static struct store_piece files[FILES_MAX];

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static void stop(const char *text)
{
	log_error("%s", text);
	exit(4);
}

static void read_file(const char *path, struct store_piece *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *bytes;

	if (fd < 0 || fstat(fd, &st))
		stop("a file cannot be opened");
	bytes = malloc((size_t)st.st_size);
	if (!bytes || read(fd, bytes, (size_t)st.st_size) != st.st_size)
		stop("a file cannot be read");
	close(fd);
	*ret = (struct store_piece){bytes, (size_t)st.st_size};
}

static void append(struct store *store, uint64_t n, const struct store_piece *file)
{
	static struct store_term terms[TERMS];
	static char texts[TERMS][16];
	struct store_block_meta meta = {
		.start_ns = START_NS + n * WINDOW_NS,
		.end_ns = START_NS + (n + 1) * WINDOW_NS,
		.terms = terms,
		.term_count = TERMS,
	};
	struct why why = {""};

	for (uint64_t i = 0; i < TERMS; i++) {
		int len = snprintf(texts[i], sizeof(texts[i]), "%" PRIu64,
				   (n * TERMS + i * 7) % PROCESSES);

		terms[i] = (struct store_term){STORE_PID, texts[i], (size_t)len};
	}
	if (store_append(store, &meta, file->bytes, file->len, NULL, &why))
		stop(why.text);
}

static void time_select(struct store *store, const char *name, const struct store_filter *filter)
{
	struct store_selection *selection;
	struct store_block block;
	struct why why = {""};
	uint64_t wall = clock_monotonic_ns(), blocks = 0, bytes = 0;
	int err;

	if (store_select(store, filter, &selection, &why))
		stop(why.text);
	while ((err = store_selection_next(selection, &block, &why)) > 0) {
		blocks++;
		bytes += block.bytes ? block.len : 0;
	}
	if (err)
		stop(why.text);
	store_selection_close(selection);
	printf(", \"%s\": {\"ms\": %.1f, \"blocks\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", name,
	       (double)(clock_monotonic_ns() - wall) / 1e6, blocks, bytes);
}

int main(int argc, char **argv)
{
	struct store_filter_term term = {{STORE_PID, "17", 2}, 0};
	struct store_filter all = {0}, meta = {.without_bytes = true},
			    one = {.terms = &term, .term_count = 1}, hour = {0};
	struct store_options options = {.max_age_ns = OLD_ENOUGH};
	struct store_stats stats;
	uint64_t blocks, wall, cpu, raw = 0;
	size_t count = 0;
	struct store *store;
	struct why why = {""};

	if (argc < 5 || argc > 4 + FILES_MAX || text_parse_bytes(argv[2], &options.quota_bytes) ||
	    text_parse_u64(argv[3], 1, 10000000, &blocks))
		stop("usage: bench_store DIRECTORY QUOTA BLOCKS FILE...");
	for (int i = 4; i < argc; i++)
		read_file(argv[i], &files[count++]);
	if (store_open(argv[1], &options, &store, &why))
		stop(why.text);
	wall = clock_monotonic_ns();
	cpu = cpu_ns();
	for (uint64_t n = 0; n < blocks; n++) {
		append(store, n, &files[n % count]);
		raw += files[n % count].len;
	}
	wall = clock_monotonic_ns() - wall;
	cpu = cpu_ns() - cpu;
	if (store_stats_get(store, &stats, &why))
		stop(why.text);
	printf("{\"ingest\": {\"blocks\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"wall_s\": %.4f, "
	       "\"cpu_s\": %.4f}, \"kept_blocks\": %" PRIu64 ", \"raw_bytes\": %" PRIu64
	       ", \"stored_bytes\": %" PRIu64 ", \"disk_bytes\": %" PRIu64
	       ", \"memory_bytes\": %zu",
	       blocks, raw, (double)wall / 1e9, (double)cpu / 1e9, stats.windows, stats.raw_bytes,
	       stats.stored_bytes, stats.disk_bytes, mem_peak_bytes(MEM_STORE));
	hour.since_ns = START_NS + blocks * WINDOW_NS - 3600 * SECOND_NS;
	time_select(store, "all", &all);
	time_select(store, "last_hour", &hour);
	time_select(store, "one_process", &one);
	time_select(store, "without_bytes", &meta);
	puts("}");
	store_close(store);
	return 0;
}
