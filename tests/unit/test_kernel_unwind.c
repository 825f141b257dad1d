// SPDX-License-Identifier: Apache-2.0
/*
 * Walks by tables on the running kernel (needs root): a child without frame pointers, whose stack
 * is known from libgcc's unwinder, and tables written by hand.
 */
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "unwind_place.h"
#include "unwind_spin.h"

#define THREADS	   2
#define MAPPINGS   64
#define ARENA_SEGS 2 /* segments of one arena */
#define WALK_NS	   500000000

/* ---------------------------------------------------------------- the child */
static struct spin_stack *stacks; /* shared, one for each thread */
static unsigned int depths[THREADS];

static void *spin_thread(void *arg)
{
	size_t i = (size_t)(uintptr_t)arg;

	spin_run(depths[i], &stacks[i]);
	return NULL;
}

static pid_t spin_start(unsigned int threads, unsigned int depth)
{
	pid_t parent = getpid(), pid;
	pthread_t thread;

	memset(stacks, 0, THREADS * sizeof(*stacks));
	depths[0] = depth;
	depths[1] = depth / 3;
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (threads > 1 && pthread_create(&thread, NULL, spin_thread, (void *)1))
		_exit(1);
	spin_thread(NULL);
	_exit(1);
}

/* ---------------------------------------------------------------- what came */
struct seen {
	uint32_t tgid;
	uint64_t start_ns;
	uint64_t samples, whole, cut, by_tables, placed, replaced, wrong;
	uint64_t cuts[FLY_CUT_COUNT];
	uint32_t deepest;
};

static const struct spin_stack *stack_of(uint32_t tid)
{
	for (int i = 0; i < THREADS; i++) {
		if (stacks[i].tid == tid && __atomic_load_n(&stacks[i].count, __ATOMIC_ACQUIRE))
			return &stacks[i];
	}
	return NULL;
}

static bool is_burner(const struct spin_stack *stack, uint64_t pc)
{
	return pc - stack->burners[0] < SPIN_BYTES || pc - stack->burners[1] < SPIN_BYTES;
}

static void show(const struct fly_sample *s, const struct spin_stack *stack, uint32_t head)
{
	const uint64_t *user = (const uint64_t *)s->frames + s->kernel_frames;

	printf("cut %#x state %#x, %u frames, %u of the burner:\n", s->cut, s->state,
	       s->user_frames, head);
	for (uint32_t i = 0; i < s->user_frames && i < 24; i++)
		printf("  %#" PRIx64 " %#" PRIx64 "\n", user[i],
		       i >= head && i - head < stack->count ? stack->frames[i - head] : 0);
}

static void look_at_sample(struct seen *seen, const struct fly_sample *s)
{
	const uint64_t *user = (const uint64_t *)s->frames + s->kernel_frames;
	const struct spin_stack *stack = stack_of(s->tid);
	uint32_t head = 0, n;

	seen->start_ns = s->process_start_ns;
	if (!stack || !s->user_frames || !is_burner(stack, user[0]))
		return;
	seen->samples++;
	seen->by_tables += s->state & FLY_STATE_TABLES ? 1 : 0;
	seen->placed += s->state & FLY_STATE_PLACED ? 1 : 0;
	seen->replaced += s->state & FLY_STATE_REPLACED ? 1 : 0;
	for (int i = 0; i < FLY_CUT_COUNT; i++)
		seen->cuts[i] += s->cut >> i & 1;
	seen->cut += s->cut != 0;
	while (head < s->user_frames && is_burner(stack, user[head]))
		head++;
	n = s->user_frames - head;
	seen->deepest = s->user_frames > seen->deepest ? s->user_frames : seen->deepest;
	/* By frame pointers such code cannot be walked, and tables were not asked. */
	if (!(s->state & FLY_STATE_TABLES))
		return;
	if (n > stack->count || memcmp(user + head, stack->frames, 8ULL * n) ||
	    (!s->cut && n != stack->count)) {
		if (!seen->wrong++)
			show(s, stack, head);
		return;
	}
	seen->whole += !s->cut;
}

static void look(void *ctx, const struct kernel_event *event)
{
	struct seen *seen = ctx;

	if (event->type == KERNEL_EVENT_SAMPLE && event->tgid == seen->tgid)
		look_at_sample(seen, event->sample);
}

static void drain(struct kernel *kernel, struct seen *seen)
{
	assert_true(kernel_poll(kernel, false, look, seen) >= 0);
}

static void run_for(struct kernel *kernel, unsigned int ms, struct seen *seen)
{
	uint64_t end = clock_monotonic_ns() + ms * 1000000ULL;
	struct pollfd fd = {.fd = kernel_fd(kernel), .events = POLLIN};

	while (clock_monotonic_ns() < end) {
		poll(&fd, 1, kernel_poll_ms(kernel, 50));
		drain(kernel, seen);
	}
}

/* Until there are so many samples of it: other virtual machines may have the CPUs. */
static void run_until(struct kernel *kernel, uint64_t samples, struct seen *seen)
{
	uint64_t end = clock_monotonic_ns() + 20000000000ULL;

	while (seen->samples < samples && clock_monotonic_ns() < end)
		run_for(kernel, 20, seen);
	assert_true(seen->samples >= samples);
}

static void print_seen(const char *what, const struct seen *seen)
{
	printf("%s: %" PRIu64 " samples, %" PRIu64 " by tables, %" PRIu64 " placed, %" PRIu64
	       " whole, %" PRIu64 " wrong, deepest %u;",
	       what, seen->samples, seen->by_tables, seen->placed, seen->whole, seen->wrong,
	       seen->deepest);
	for (int i = 0; i < FLY_CUT_COUNT; i++) {
		if (seen->cuts[i])
			printf(" cut %d: %" PRIu64, i, seen->cuts[i]);
	}
	printf("\n");
}

/* ---------------------------------------------------------------- the tables */
/* The executable mappings of this process, which the child has as well. */
struct image {
	struct unwind_table *table;
	uint64_t start, bytes, bias, identity;
};
static struct image images[MAPPINGS];
static uint32_t image_count;

static int find_images(void **state)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], path[256], perms[8];

	(void)state;
	if (!maps)
		return -1;
	while (image_count < MAPPINGS && fgets(line, sizeof(line), maps)) {
		struct image *im = &images[image_count];
		uint64_t end, offset;

		path[0] = 0;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %255s",
			   &im->start, &end, perms, &offset, path) < 4 ||
		    perms[2] != 'x' || im->start >> 47)
			continue;
		im->bytes = end - im->start;
		im->bias = im->start;
		im->identity = place_identity(path, im->start, offset);
		if (path[0] == '/' && place_bias(path, im->start, offset, &im->bias))
			im->table = place_build(path);
		else if (!strcmp(path, "[vdso]"))
			im->table = place_build_vdso(im->start);
		image_count++;
	}
	fclose(maps);
	stacks = mmap(NULL, THREADS * sizeof(*stacks), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return stacks == MAP_FAILED || !image_count ? -1 : 0;
}

/* Half of the kernel's memory for tables, filled anew each time. */
struct arena {
	struct kernel *kernel;
	uint32_t first; /* segment */
	uint32_t *segments[ARENA_SEGS];
	struct place place;
	uint32_t numbers; /* of its first table */
	uint32_t at;	  /* of the mappings */
};

static uint32_t *arena_block(void *ctx, uint32_t number)
{
	struct arena *arena = ctx;
	uint32_t i = number / FLY_SEGMENT_BLOCKS - arena->first;
	struct why why = {""};

	if (i >= ARENA_SEGS)
		return NULL;
	if (!arena->segments[i])
		arena->segments[i] = kernel_segment_add(arena->kernel, arena->first + i, &why);
	if (!arena->segments[i])
		fail_msg("%s", why.text);
	return arena->segments[i] + (size_t)(number % FLY_SEGMENT_BLOCKS) * FLY_BLOCK_WORDS;
}

static void arena_init(struct arena *arena, struct kernel *kernel, uint32_t half)
{
	*arena = (struct arena){.kernel = kernel,
				.first = half * ARENA_SEGS,
				.place = {.block = arena_block, .ctx = arena},
				.numbers = 1 + half * MAPPINGS};
}

/* Writes all tables, and the mappings of this program. */
static void arena_fill(struct arena *arena)
{
	struct fly_table *tables = kernel_tables(arena->kernel);
	struct fly_mapping *mappings;
	static uint64_t serial;
	uint32_t pages, *words;

	arena->place.next = arena->first * FLY_SEGMENT_BLOCKS * FLY_BLOCK_WORDS;
	arena->at = place_words(&arena->place, image_count * FLY_MAPPING_WORDS, &words);
	assert_true(arena->at);
	mappings = (struct fly_mapping *)words;
	for (uint32_t i = 0; i < image_count; i++) {
		struct image *im = &images[i];
		uint32_t number = FLY_TABLE_FRAME_POINTERS;

		if (im->table) {
			number = arena->numbers + i;
			assert_true(place_table(&arena->place, im->table, &tables[number], &pages));
			tables[number].serial = ++serial;
			__atomic_store_n(&tables[number].pages, pages, __ATOMIC_RELEASE);
		}
		mappings[i] = fly_mapping_make(im->start, im->bytes, im->bias, number);
		mappings[i].identity = im->identity;
	}
}

/* Each mapping has the table of the next, as when that was there, and who it was. */
static void arena_mistake(struct arena *arena)
{
	uint32_t *words = arena_block(arena, arena->at / FLY_BLOCK_WORDS);
	struct fly_mapping *m = (struct fly_mapping *)(words + arena->at % FLY_BLOCK_WORDS);
	struct fly_mapping next;

	for (uint32_t i = 0; i < image_count; i++) {
		struct image *other = &images[(i + 1) % image_count];
		uint32_t number = FLY_TABLE_FRAME_POINTERS;

		if (other->table)
			number = arena->numbers + (i + 1) % image_count;
		next = fly_mapping_make(images[i].start, images[i].bytes, other->bias, number);
		next.identity = other->identity;
		m[i] = next;
	}
}

static void arena_publish(const struct arena *arena, const struct seen *seen)
{
	struct fly_process process = {
		.start_ns = seen->start_ns, .at = arena->at, .count = image_count};

	assert_int_equal(kernel_process_put(arena->kernel, seen->tgid, &process), 0);
}

/* Nothing leads to the tables any more, but walks that are under way. */
static void arena_withdraw(const struct arena *arena)
{
	struct fly_table *tables = kernel_tables(arena->kernel);

	for (uint32_t i = 0; i < image_count; i++) {
		__atomic_store_n(&tables[arena->numbers + i].pages, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&tables[arena->numbers + i].serial, 0, __ATOMIC_RELEASE);
	}
}

/* What is not published is filled with what would lead any walk astray, or given back. */
static void arena_spoil(struct arena *arena, unsigned int *seed)
{
	for (uint32_t i = 0; i < ARENA_SEGS; i++) {
		uint32_t *words = arena->segments[i];

		if (words && rand_r(seed) % 4 == 0) {
			kernel_segment_remove(arena->kernel, arena->first + i);
			arena->segments[i] = NULL;
			continue;
		}
		for (uint32_t w = 0; words && w < FLY_SEGMENT_BYTES / 4; w++)
			words[w] = (uint32_t)rand_r(seed) << 8;
	}
}

/* walk_ns is generous: another virtual machine may have the CPU for a while. */
static struct kernel *start_kernel(uint32_t hz, uint64_t walk_ns)
{
	struct kernel_options options;
	struct kernel *kernel = NULL;
	struct why why = {""};

	kernel_options_init(&options);
	options.hz = hz;
	options.unwinder = FLY_UNWIND_TABLES;
	options.table_bytes = 2ULL * ARENA_SEGS * FLY_SEGMENT_BYTES;
	options.walk_ns = walk_ns;
	options.ring_bytes = 4 << 20;
	if (kernel_open(&options, &kernel, &why) || kernel_start(kernel, &why))
		fail_msg("%s", why.text);
	return kernel;
}

/* Until the child burns and a sample of it has said when it was born. */
static void await(struct kernel *kernel, struct seen *seen)
{
	uint64_t end = clock_monotonic_ns() + 10000000000ULL;

	while (!seen->start_ns || !seen->samples) {
		assert_true(clock_monotonic_ns() < end);
		run_for(kernel, 20, seen);
	}
	*seen = (struct seen){.tgid = seen->tgid, .start_ns = seen->start_ns};
}

static void spin_end(const struct seen *seen)
{
	kill((pid_t)seen->tgid, SIGKILL);
	waitpid((pid_t)seen->tgid, NULL, 0);
}

static void stop(struct kernel *kernel, struct seen *seen)
{
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, seen);
	spin_end(seen);
	kernel_close(kernel);
}

/* ---------------------------------------------------------------- tests */
static void check_memory(struct kernel *kernel, bool has_segments)
{
	struct kernel_memory memory;

	assert_int_equal(kernel_memory_get(kernel, &memory), 0);
	for (size_t i = 0; i < memory.map_count; i++) {
		printf("%-16s %8" PRIu64 " planned %8" PRIu64 " measured\n", memory.maps[i].name,
		       memory.maps[i].bytes, memory.maps[i].measured_bytes);
		assert_true(memory.maps[i].measured_bytes > 0);
		assert_true(memory.maps[i].measured_bytes <= memory.maps[i].bytes);
		if (!strcmp(memory.maps[i].name, "fly_segments"))
			assert_true((memory.maps[i].measured_bytes > FLY_SEGMENT_BYTES) ==
				    has_segments);
	}
}

static void kernel_unwind__tables__give_whole_stacks(void **state)
{
	struct kernel *kernel = start_kernel(499, WALK_NS);
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct arena arena;
	struct fly_process process;

	(void)state;
	seen.tgid = (uint32_t)spin_start(1, 40);
	check_memory(kernel, false);
	await(kernel, &seen);
	run_until(kernel, 50, &seen);
	print_seen("not tracked", &seen);
	assert_int_equal(seen.placed, seen.samples);
	/* but where a register with something else in it happens to look like a chain's end */
	assert_true(seen.cuts[FLY_CUT_PROCESS_NOT_TRACKED] * 10 >= seen.samples * 9);
	assert_int_equal(kernel_process_get(kernel, seen.tgid, &process), -ENOENT);

	arena_init(&arena, kernel, 0);
	arena_fill(&arena);
	arena_publish(&arena, &seen);
	drain(kernel, &seen);
	run_for(kernel, 20, &seen);
	seen = (struct seen){.tgid = seen.tgid, .start_ns = seen.start_ns};
	run_until(kernel, 100, &seen);
	print_seen("tracked", &seen);
	assert_int_equal(seen.whole, seen.samples);
	assert_int_equal(seen.placed, 0);
	assert_int_equal(seen.wrong, 0);
	check_memory(kernel, true);
	assert_int_equal(kernel_process_get(kernel, seen.tgid, &process), 0);
	assert_true(process.samples >= seen.samples);
	kernel_ledger_get(kernel, &ledger);
	printf("%" PRIu64 " ns per run\n", ledger.run_ns / ledger.runs);

	/* Another start time: another process. */
	seen.start_ns++;
	arena_publish(&arena, &seen);
	run_for(kernel, 20, &seen);
	seen = (struct seen){.tgid = seen.tgid};
	run_until(kernel, 20, &seen);
	assert_int_equal(seen.placed, seen.samples);
	assert_int_equal(kernel_process_remove(kernel, seen.tgid), 0);
	assert_int_equal(kernel_process_remove(kernel, seen.tgid), -ENOENT);
	stop(kernel, &seen);
}

/* Once the files of one process are known, the first samples of another are whole. */
static void kernel_unwind__new_process__is_whole_at_once(void **state)
{
	struct kernel *kernel = start_kernel(499, WALK_NS);
	struct fly_table *tables = kernel_tables(kernel);
	struct seen seen = {0};
	struct arena arena;

	(void)state;
	seen.tgid = (uint32_t)spin_start(1, 40);
	await(kernel, &seen);
	arena_init(&arena, kernel, 0);
	arena_fill(&arena);
	arena_publish(&arena, &seen);
	run_until(kernel, 10, &seen);
	spin_end(&seen);

	seen = (struct seen){.tgid = (uint32_t)spin_start(1, 50)};
	run_until(kernel, 50, &seen);
	print_seen("new", &seen);
	assert_int_equal(seen.placed, seen.samples);
	assert_int_equal(seen.whole, seen.samples);
	assert_int_equal(seen.wrong, 0);

	/* The number is another table's now: what was learnt is worth nothing. */
	for (uint32_t i = 0; i < image_count; i++)
		tables[arena.numbers + i].serial += 1000;
	assert_int_equal(kernel_tables_wait(kernel), 0);
	run_for(kernel, 20, &seen);
	seen = (struct seen){.tgid = seen.tgid};
	run_until(kernel, 20, &seen);
	print_seen("serial", &seen);
	assert_int_equal(seen.whole, 0);
	stop(kernel, &seen);
}

/* A list that lacks most mappings is as good as a whole one where the kernel knows the rest. */
static void kernel_unwind__short_list__kernel_knows_the_rest(void **state)
{
	struct kernel *kernel = start_kernel(499, WALK_NS);
	struct seen seen = {0};
	struct fly_process process;
	struct arena arena;

	(void)state;
	seen.tgid = (uint32_t)spin_start(1, 40);
	await(kernel, &seen);
	arena_init(&arena, kernel, 0);
	arena_fill(&arena);
	arena_publish(&arena, &seen);
	run_until(kernel, 10, &seen);
	process = (struct fly_process){.start_ns = seen.start_ns, .at = arena.at, .count = 1};
	assert_int_equal(kernel_process_put(kernel, seen.tgid, &process), 0);
	run_for(kernel, 20, &seen);
	seen = (struct seen){.tgid = seen.tgid};
	run_until(kernel, 50, &seen);
	print_seen("short list", &seen);
	assert_int_equal(seen.placed, 0);
	assert_int_equal(seen.whole, seen.samples);
	assert_int_equal(seen.wrong, 0);
	stop(kernel, &seen);
}

/* The list is of what was there before, files that lay where others do now: a walk by it would be
 * wrong. What the kernel has is asked for, and where that was never described the stack is cut. */
static void kernel_unwind__replaced_mappings__are_not_believed(void **state)
{
	struct kernel *kernel = start_kernel(499, WALK_NS);
	struct seen seen = {0};
	struct arena before, now;

	(void)state;
	seen.tgid = (uint32_t)spin_start(1, 40);
	await(kernel, &seen);
	arena_init(&before, kernel, 0);
	arena_fill(&before);
	arena_mistake(&before);
	arena_init(&now, kernel, 1);
	arena_fill(&now);
	for (int is_known = 0; is_known < 2; is_known++) {
		arena_publish(&before, &seen);
		drain(kernel, &seen);
		run_for(kernel, 20, &seen);
		seen = (struct seen){.tgid = seen.tgid, .start_ns = seen.start_ns};
		run_until(kernel, 50, &seen);
		print_seen("replaced", &seen);
		assert_int_equal(seen.wrong, 0);
		assert_int_equal(seen.replaced, seen.samples);
		assert_int_equal(seen.whole, is_known ? seen.samples : 0);
		arena_publish(&now, &seen);
		run_until(kernel, seen.samples + 70, &seen); /* it is learnt from */
	}
	stop(kernel, &seen);
}

static void kernel_unwind__exec__takes_the_entry_away(void **state)
{
	struct kernel *kernel = start_kernel(99, WALK_NS);
	struct fly_process process = {.at = 2, .count = 1};
	int go[2], status;
	char c = 0;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (!pid) {
		close(go[1]);
		if (read(go[0], &c, 1) == 1)
			execl("/bin/true", "true", NULL);
		_exit(1);
	}
	assert_int_equal(kernel_process_put(kernel, (uint32_t)pid, &process), 0);
	assert_int_equal(kernel_process_put(kernel, (uint32_t)getpid(), &process), 0);
	assert_int_equal(write(go[1], &c, 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(kernel_process_get(kernel, (uint32_t)pid, &process), -ENOENT);
	assert_int_equal(kernel_process_get(kernel, (uint32_t)getpid(), &process), 0);
	close(go[0]);
	close(go[1]);
	kernel_stop(kernel);
	kernel_close(kernel);
}

/* ---------------------------------------------------------------- between two programs */
struct between {
	uint64_t samples, stale, no_registers;
};

/* Address to return to from a system call of ours, in a process that has no such memory. */
static void look_between(void *ctx, const struct kernel_event *event)
{
	struct between *seen = ctx;
	const struct fly_sample *s = event->sample;
	const uint64_t *user;

	if (event->type != KERNEL_EVENT_SAMPLE || !(s->state & FLY_STATE_IN_KERNEL) ||
	    (strcmp(s->comm, "true") != 0))
		return;
	user = (const uint64_t *)s->frames + s->kernel_frames;
	seen->samples++;
	seen->no_registers += s->cut == 1u << FLY_CUT_NO_USER_REGISTERS && !s->user_frames;
	for (uint32_t i = 0; s->user_frames && i < image_count; i++)
		seen->stale += user[0] - images[i].start < images[i].bytes;
}

static void kernel_unwind__between_programs__nothing_of_the_old_one(void **state)
{
	struct kernel *kernel = start_kernel(4999, WALK_NS);
	uint64_t end = clock_monotonic_ns() + 20000000000ULL;
	struct between seen = {0};
	int status;

	(void)state;
	while (seen.no_registers < 20 && clock_monotonic_ns() < end) {
		pid_t pid = fork();

		if (!pid) {
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(kernel_poll(kernel, false, look_between, &seen) >= 0);
	}
	kernel_stop(kernel);
	kernel_close(kernel);
	printf("between: %" PRIu64 " samples in the kernel, %" PRIu64 " without registers, %" PRIu64
	       " with those of before\n",
	       seen.samples, seen.no_registers, seen.stale);
	assert_true(seen.no_registers >= 20);
	assert_int_equal(seen.stale, 0);
}

/* What runs before the plan's end: nothing. */
static void kernel_unwind__segments__stay_in_the_plan(void **state)
{
	struct kernel *kernel = start_kernel(99, WALK_NS);
	struct kernel_memory before, after;
	struct why why = {""};
	uint32_t *words;

	(void)state;
	assert_int_equal(kernel_memory_get(kernel, &before), 0);
	assert_null(kernel_segment_add(kernel, 2 * ARENA_SEGS, &why));
	for (int round = 0; round < 3; round++) {
		words = kernel_segment_add(kernel, 3, &why);
		assert_non_null(words);
		assert_int_equal(words[0], 0);
		assert_int_equal(words[FLY_SEGMENT_BYTES / 4 - 1], 0);
		words[7] = 1;
		assert_null(kernel_segment_add(kernel, 3, &why));
		assert_int_equal(kernel_tables_wait(kernel), 0);
		kernel_segment_remove(kernel, 3);
	}
	kernel_segment_remove(kernel, 3);
	assert_int_equal(kernel_tables_wait(kernel), 0);
	assert_int_equal(kernel_memory_get(kernel, &after), 0);
	assert_int_equal(after.measured_bytes, before.measured_bytes);
	kernel_stop(kernel);
	kernel_close(kernel);
}

/* Tables are published, taken away, spoilt and given back under running walks: never a wrong
 * frame. */
static void kernel_unwind__changes__never_a_wrong_frame(void **state)
{
	struct kernel *kernel = start_kernel(4999, WALK_NS);
	struct fly_table *tables = kernel_tables(kernel);
	uint64_t end = clock_monotonic_ns() + 4000000000ULL, waits = 0, wait_ns = 0;
	struct seen seen = {0};
	struct arena arenas[2];
	unsigned int seed = 1, rounds = 0;

	(void)state;
	seen.tgid = (uint32_t)spin_start(THREADS, 60);
	await(kernel, &seen);
	arena_init(&arenas[0], kernel, 0);
	arena_init(&arenas[1], kernel, 1);
	for (; clock_monotonic_ns() < end || rounds < 8; rounds++) {
		struct arena *now = &arenas[rounds % 2], *old = &arenas[(rounds + 1) % 2];
		uint32_t one = now->numbers + (uint32_t)rand_r(&seed) % image_count, pages;
		uint64_t before = clock_monotonic_ns();

		arena_fill(now);
		arena_publish(now, &seen);
		arena_withdraw(old);
		assert_int_equal(kernel_tables_wait(kernel), 0);
		wait_ns += clock_monotonic_ns() - before;
		waits++;
		arena_spoil(old, &seed);
		drain(kernel, &seen);
		pages = tables[one].pages;
		__atomic_store_n(&tables[one].pages, 0, __ATOMIC_RELEASE);
		run_for(kernel, 3, &seen);
		__atomic_store_n(&tables[one].pages, pages, __ATOMIC_RELEASE);
		if (rounds % 8 == 0)
			assert_int_equal(kernel_process_remove(kernel, seen.tgid), 0);
		run_for(kernel, 3, &seen);
	}
	stop(kernel, &seen);
	print_seen("hammered", &seen);
	printf("%u rounds, %.1f ms per fill and wait\n", rounds,
	       (double)wait_ns / 1e6 / (double)waits);
	assert_true(seen.by_tables > 1000);
	assert_true(seen.whole * 2 > seen.by_tables);
	assert_int_equal(seen.wrong, 0);
	assert_true(seen.cuts[FLY_CUT_TABLE_ABSENT] > 0);
	assert_int_equal(seen.cuts[FLY_CUT_UNWIND_LOST], 0);
	assert_int_equal(seen.cuts[FLY_CUT_UNWIND_UNSUPPORTED], 0);
	assert_int_equal(seen.cuts[FLY_CUT_NO_UNWIND_ROWS], 0);
	assert_int_equal(seen.cuts[FLY_CUT_TABLE_PAGE_ABSENT], 0);
	assert_int_equal(seen.cuts[FLY_CUT_MAPPING_ABSENT], 0);
}

static void kernel_unwind__deep__whole_to_the_limit(void **state)
{
	static const unsigned int depths_tried[] = {500, 1000, 1800};
	struct kernel *kernel;
	struct seen seen;
	struct arena arena;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(depths_tried); i++) {
		kernel = start_kernel(199, WALK_NS);
		seen = (struct seen){.tgid = (uint32_t)spin_start(1, depths_tried[i] / 2)};
		await(kernel, &seen);
		arena_init(&arena, kernel, 0);
		arena_fill(&arena);
		arena_publish(&arena, &seen);
		run_for(kernel, 20, &seen);
		seen = (struct seen){.tgid = seen.tgid};
		run_until(kernel, 20, &seen);
		stop(kernel, &seen);
		print_seen("deep", &seen);
		printf("  %u addresses\n", stacks[0].count);
		assert_int_equal(seen.wrong, 0);
		if (stacks[0].count + 2 <= FLY_MAX_FRAMES) {
			assert_int_equal(seen.whole, seen.samples);
		} else {
			assert_int_equal(seen.cuts[FLY_CUT_DEPTH_LIMIT], seen.samples);
			assert_int_equal(seen.deepest, FLY_MAX_FRAMES);
		}
	}
}

static void kernel_unwind__time__is_kept(void **state)
{
	struct kernel *kernel = start_kernel(199, 1);
	struct seen seen = {.tgid = (uint32_t)spin_start(1, 200)};
	struct arena arena;

	(void)state;
	await(kernel, &seen);
	arena_init(&arena, kernel, 0);
	arena_fill(&arena);
	arena_publish(&arena, &seen);
	run_for(kernel, 20, &seen);
	seen = (struct seen){.tgid = seen.tgid};
	run_until(kernel, 10, &seen);
	stop(kernel, &seen);
	print_seen("in no time", &seen);
	assert_int_equal(seen.wrong, 0);
	assert_int_equal(seen.cuts[FLY_CUT_TIME_BUDGET], seen.samples);
	assert_true(seen.deepest <= 17);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_unwind__tables__give_whole_stacks),
		cmocka_unit_test(kernel_unwind__new_process__is_whole_at_once),
		cmocka_unit_test(kernel_unwind__short_list__kernel_knows_the_rest),
		cmocka_unit_test(kernel_unwind__replaced_mappings__are_not_believed),
		cmocka_unit_test(kernel_unwind__exec__takes_the_entry_away),
		cmocka_unit_test(kernel_unwind__between_programs__nothing_of_the_old_one),
		cmocka_unit_test(kernel_unwind__segments__stay_in_the_plan),
		cmocka_unit_test(kernel_unwind__changes__never_a_wrong_frame),
		cmocka_unit_test(kernel_unwind__deep__whole_to_the_limit),
		cmocka_unit_test(kernel_unwind__time__is_kept),
	};

	if (geteuid()) {
		fprintf(stderr, "kernel_unwind: loads BPF programs, so run it as root.\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, find_images, NULL);
}
