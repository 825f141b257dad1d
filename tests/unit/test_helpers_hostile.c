// SPDX-License-Identifier: Apache-2.0
/*
 * Damaged files through the real opener and reader, sandbox and limits included: the seeds of the
 * fuzzers, changed at random. Whatever a file does, each request is answered once and in time, the
 * answer passes main's checks, and the reader is ended by no call that its filter forgot.
 * FLYBALL_SEED chooses another sequence, FLYBALL_LONG makes it sixteen times as long.
 */
#include "abi/reasons.h"
#include "helpers/helpers_inside.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define ROUNDS	   400
#define SEED_BYTES 16384
#define NAMES	   64
#define LINES	   16
#define MS	   1000000ULL

static const char *const seeds[] = {
	"fuzz_frames/clang", "fuzz_frames/gcc4",    "fuzz_frames/gcc5",	   "fuzz_frames/split",
	"fuzz_frames/z",     "fuzz_frames/zstd",    "fuzz_go/116",	   "fuzz_go/118-noshdr",
	"fuzz_go/120",	     "fuzz_symbols/shared", "fuzz_symbols/static", "fuzz_elf/noshdr",
	"fuzz_elf/i386",
};

struct outcome {
	int calls, err;
	uint32_t unnamed;
	size_t told; /* names or lines with something in them */
	struct elf_segment code;
};

static uint64_t random_state = 88172645463325252ULL;

static uint64_t draw(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return below ? random_state % below : 0;
}

static void on_done(void *ctx, const struct helpers_result *r)
{
	struct outcome *o = ctx;

	o->calls++;
	o->err = r->err;
	o->unnamed = r->unnamed;
	if (r->info && r->info->segment_count)
		o->code = r->info->segments[0];
	for (size_t i = 0; i < r->name_count; i++) {
		o->told += !r->names[i].unnamed;
		assert_true(text_is_utf8(r->names[i].name, strlen(r->names[i].name)));
	}
	for (size_t i = 0; i < r->line_count; i++)
		o->told += !r->lines[i].unnamed;
}

static size_t seed_read(size_t which, uint8_t *out)
{
	char path[512];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", SEEDS_DIR, seeds[which]);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(out, 1, SEED_BYTES, f);
	fclose(f);
	assert_true(n > 64 && n < SEED_BYTES);
	return n;
}

/* Bytes turned, numbers made large, a block repeated elsewhere, the end cut off. */
static size_t change(uint8_t *data, size_t n)
{
	static const uint64_t odd[] = {0, 1, 0x7fffffff, 0xffffffff, 1ULL << 32, 1ULL << 60, ~0ULL};
	size_t at, bytes;

	switch (draw(8)) {
	case 0:
		return 1 + draw(n);
	case 1:
	case 2:
		at = draw(n - 8);
		bytes = 1ULL << draw(4);
		memcpy(data + at, &odd[draw(ARRAY_SIZE(odd))], bytes);
		return n;
	case 3:
		bytes = 1 + draw(64 < n / 2 ? 64 : n / 2);
		memmove(data + draw(n - bytes), data + draw(n - bytes), bytes);
		return n;
	default:
		for (uint64_t left = 1 + draw(16); left; left--)
			data[draw(n)] ^= (uint8_t)(1 + draw(255));
		return n;
	}
}

static void file_write(const char *path, const uint8_t *data, size_t n)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void wait_for(struct helpers *helpers, struct outcome *outcomes, size_t count)
{
	uint64_t began = clock_monotonic_ns();
	size_t done = 0;

	while (done < count) {
		struct pollfd p = {.fd = helpers_fd(helpers), .events = POLLIN};

		poll(&p, 1, 20);
		assert_int_equal(helpers_poll(helpers), 0);
		done = 0;
		for (size_t i = 0; i < count; i++)
			done += outcomes[i].calls > 0;
		/* The deadline of each, five times while others have the CPU. */
		assert_true(clock_monotonic_ns() - began <
			    3 * 6 * (uint64_t)HELPERS_DEADLINE_MS * MS);
	}
}

static void ask(struct helpers *helpers, const char *path, uint64_t key, struct outcome o[3])
{
	uint64_t addresses[NAMES];
	struct helpers_file file = {.key = key, .tgid = (uint32_t)getpid(), .path = path};
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	file.ino = st.st_ino;
	assert_int_equal(helpers_inspect(helpers, &file, on_done, &o[0]), 0);
	wait_for(helpers, o, 1);
	for (uint64_t i = 0; i < NAMES; i++)
		addresses[i] =
			o[0].code.vaddr + draw(o[0].code.file_bytes & (i % 2 ? 0x3ff : 0xffff));
	assert_int_equal(helpers_names(helpers, &file, addresses, NAMES, on_done, &o[1]), 0);
	assert_int_equal(helpers_lines(helpers, &file, addresses, LINES, on_done, &o[2]), 0);
	wait_for(helpers, o, 3);
	helpers_release(helpers, key);
}

static void helpers_hostile__damaged_files__are_answered_in_time(void **state)
{
	const struct helpers_options options = {.directory = HELPERS_DIR};
	const char *is_long = getenv("FLYBALL_LONG"), *seed = getenv("FLYBALL_SEED");
	int rounds = is_long && is_long[0] ? 16 * ROUNDS : ROUNDS;
	char dir[] = "/tmp/flyball-hostile-XXXXXX", path[64];
	static uint8_t data[SEED_BYTES];
	size_t named = 0, lined = 0, failed = 0;
	struct helpers_stats stats;
	struct helpers *helpers;
	uint64_t n;

	(void)state;
	if (geteuid())
		skip();
	if (seed && !text_parse_u64(seed, 1, UINT64_MAX, &n))
		random_state = n;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/file", dir);
	assert_int_equal(helpers_start(&options, &helpers, NULL), 0);
	for (int i = 0; i < rounds; i++) {
		struct outcome o[3] = {{0}};

		n = seed_read(draw(ARRAY_SIZE(seeds)), data);
		/* The first ones as they are: the rounds after them would prove little otherwise.
		 */
		n = i < 20 ? n : change(data, n);
		unlink(path);
		file_write(path, data, n);
		ask(helpers, path, (uint64_t)i + 1, o);
		for (size_t k = 0; k < ARRAY_SIZE(o); k++) {
			assert_int_equal(o[k].calls, 1);
			assert_true(!o[k].err ||
				    (o[k].unnamed && o[k].unnamed < FLY_UNNAMED_COUNT));
			failed += o[k].err != 0;
		}
		named += o[1].told > 0;
		lined += o[2].told > 0;
		/* Its filter, its own assertions; a fault in what is ours. libdw is not: lines. */
		if (helpers->helper[HELPER_READER].ended_by == SIGSYS ||
		    (helpers->helper[HELPER_READER].ended_by &&
		     o[2].unnamed != FLY_UNNAMED_READER_FAILED))
			fail_msg("round %d: the reader was ended by signal %d; %s is kept", i,
				 helpers->helper[HELPER_READER].ended_by, path);
	}
	helpers_stats_get(helpers, &stats);
	print_message("%d files: %zu with names, %zu with lines, %zu answers are errors, reader "
		      "replaced %u times\n",
		      rounds, named, lined, failed, stats.reader_restarts);
	assert_true(named > 20 && lined > 10 && failed > 20);
	assert_int_equal(stats.opener_restarts, 0);
	assert_true(stats.reader_restarts <= 2 + (unsigned int)rounds / 100);
	helpers_stop(helpers);
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(helpers_hostile__damaged_files__are_answered_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
