// SPDX-License-Identifier: Apache-2.0
/*
 * What a walk of a user stack costs, and each frame of it, in the kernel: by tables, by tables with
 * the kernel's own mappings, by frame pointers, and by the kernel's own walk of frame pointers.
 * Hot: one walk after the other. Cold: the caches are swept in between.
 *
 * Run by bench/walk, as root.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/walk_door.h"
#include "bench/walk_stack.h"
#include "bpf/flyball.skel.h"
#include "tests/unit/unwind_place.h"
#include "walk_door.skel.h"

#define SWEEP_BYTES (64U << 20)
#define HOT_ROUNDS  2001
#define COLD_ROUNDS 51
#define MAPPINGS    64

struct bench {
	struct kernel *kernel;
	struct walk_door_bpf *door;
	volatile struct walk_door *page;
	uint8_t *sweep;
	struct place place;
	uint32_t numbers;
	enum walk_kind kind;
	bool is_cold;
	uint64_t median_ns, max_ns;
};

static void die(const char *what)
{
	fprintf(stderr, "walk: %s\n", what);
	exit(4);
}

/* ---------------------------------------------------------------- tables of this program */
static uint32_t *segment_block(void *ctx, uint32_t number)
{
	static uint32_t *segments[FLY_SEGMENTS_MAX];
	struct bench *b = ctx;
	uint32_t i = number / FLY_SEGMENT_BLOCKS;

	if (i < FLY_SEGMENTS_MAX && !segments[i])
		segments[i] = kernel_segment_add(b->kernel, i, NULL);
	if (i >= FLY_SEGMENTS_MAX || !segments[i])
		return NULL;
	return segments[i] + (size_t)(number % FLY_SEGMENT_BLOCKS) * FLY_BLOCK_WORDS;
}

static struct fly_mapping describe(struct bench *b, const char *path, uint64_t start,
				   uint64_t bytes, uint64_t offset)
{
	uint32_t number = FLY_TABLE_FRAME_POINTERS, pages;
	struct fly_mapping mapping;
	struct unwind_table *table = NULL;
	uint64_t bias = start;
	struct fly_table *out;

	if (path[0] == '/' && place_bias(path, start, offset, &bias))
		table = place_build(path);
	if (table) {
		number = ++b->numbers;
		out = &kernel_tables(b->kernel)[number];
		if (!place_table(&b->place, table, out, &pages))
			die("no room for tables");
		out->serial = number;
		out->pages = pages;
	}
	unwind_table_free(table);
	mapping = fly_mapping_make(start, bytes, bias, number);
	mapping.identity = place_identity(path, start, offset);
	return mapping;
}

static void describe_all(struct bench *b)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], path[256], perms[8];
	struct fly_mapping *mappings;
	uint64_t start, end, offset;
	uint32_t *words, count = 0;

	b->place = (struct place){.block = segment_block, .ctx = b};
	b->page->at = place_words(&b->place, MAPPINGS * FLY_MAPPING_WORDS, &words);
	if (!maps || !b->page->at)
		die("no mappings");
	mappings = (struct fly_mapping *)words;
	while (count < MAPPINGS && fgets(line, sizeof(line), maps)) {
		path[0] = 0;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %255s", &start,
			   &end, perms, &offset, path) < 4 ||
		    perms[2] != 'x' || start >> 47)
			continue;
		mappings[count++] = describe(b, path, start, end - start, offset);
	}
	fclose(maps);
	b->page->count = count;
}

/* ---------------------------------------------------------------- measuring */
static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void sweep(struct bench *b)
{
	for (size_t i = 0; i < SWEEP_BYTES; i += 64)
		b->sweep[i]++;
}

static void call(struct bench *b)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);

	if (bpf_prog_test_run_opts(bpf_program__fd(b->door->progs.walk_door), &options))
		die("the program cannot be run");
}

static void measure(void *ctx)
{
	static uint64_t ns[HOT_ROUNDS];
	struct bench *b = ctx;
	int rounds = b->is_cold ? COLD_ROUNDS : HOT_ROUNDS;

	b->page->kind = b->kind;
	for (int i = 0; i < rounds; i++) {
		if (b->is_cold)
			sweep(b);
		call(b);
		ns[i] = b->page->ns;
	}
	qsort(ns, (size_t)rounds, sizeof(ns[0]), compare);
	b->median_ns = ns[rounds / 2];
	b->max_ns = ns[rounds - 1];
}

static void run(struct bench *b, enum walk_kind kind, bool is_cold)
{
	static const char *const names[WALK_KINDS] = {"tables", "tables, kernel's mappings",
						      "frame pointers", "bpf_get_stack"};
	static const unsigned int depths[] = {10, 50, 110, 900};
	bool has_pointers = kind == WALK_POINTERS || kind == WALK_KERNEL;

	b->kind = kind;
	b->is_cold = is_cold;
	for (size_t i = 0; i < ARRAY_SIZE(depths); i++) {
		if (kind == WALK_KERNEL && depths[i] > FLY_MAX_KERNEL_FRAMES)
			continue;
		(has_pointers ? walk_stack_pointers : walk_stack_plain)(depths[i], measure, b);
		printf("%-26s %-5s %6u %9" PRIu64 " %9" PRIu64 " %8.1f%s\n", names[kind],
		       is_cold ? "cold" : "hot", b->page->frames, b->median_ns, b->max_ns,
		       (double)b->median_ns / (b->page->frames ? b->page->frames : 1),
		       b->page->cut ? "  (cut)" : "");
	}
}

static void share_maps(struct bench *b)
{
	const struct flyball_bpf *from = b->kernel->bpf;

	b->door = walk_door_bpf__open();
	if (!b->door ||
	    bpf_map__reuse_fd(b->door->maps.fly_segments, bpf_map__fd(from->maps.fly_segments)) ||
	    bpf_map__reuse_fd(b->door->maps.fly_tables, bpf_map__fd(from->maps.fly_tables)) ||
	    bpf_map__reuse_fd(b->door->maps.fly_processes, bpf_map__fd(from->maps.fly_processes)) ||
	    bpf_map__reuse_fd(b->door->maps.fly_files, bpf_map__fd(from->maps.fly_files)) ||
	    walk_door_bpf__load(b->door))
		die("the program cannot be loaded");
	b->page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED,
		       bpf_map__fd(b->door->maps.fly_door), 0);
	if (b->page == MAP_FAILED)
		die("the program's page cannot be mapped");
}

int main(void)
{
	struct kernel_options options;
	struct why why = {""};
	struct bench b = {.sweep = malloc(SWEEP_BYTES)};

	kernel_options_init(&options);
	options.unwinder = FLY_UNWIND_TABLES;
	if (!b.sweep || kernel_open(&options, &b.kernel, &why))
		die(why.text);
	share_maps(&b);
	describe_all(&b);
	b.page->kind = WALK_LEARN;
	call(&b);
	printf("%-26s %-5s %6s %9s %9s %8s\n", "walk", "", "frames", "median ns", "max ns",
	       "ns/frame");
	for (int is_cold = 0; is_cold < 2; is_cold++) {
		for (int kind = 0; kind < WALK_KINDS; kind++)
			run(&b, (enum walk_kind)kind, is_cold);
	}
	walk_door_bpf__destroy(b.door);
	kernel_close(b.kernel);
	free(b.sweep);
	return 0;
}
