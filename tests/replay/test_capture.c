// SPDX-License-Identifier: Apache-2.0
/*
 * Walks as the kernel made them (needs root): the BPF object built with FLY_CAPTURE gives registers
 * and stack beside each. Over these bytes the host's walk must be the same, frame by frame, and
 * libdw must agree.
 *
 * test_capture PID SECONDS does the same to any process that runs, and prints what it found. What
 * the process maps later than the beginning is not known then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "kernel/kernel_internal.h"
#include "tests/replay/bpf/flyball.skel.h"
#include "abi/capture.h"
#include "shapes_run.h"

#define HZ	    299
#define PATIENCE_NS 30000000000ULL
#define WALK_NS	    50000000
#define WALKS	    60

struct counts {
	unsigned int walks, whole, frames, deepest, outside, judged;
	/* What must not be: other than the host's; verdicts; the rest is judged and right. */
	unsigned int unlike, wrong, shorter, unsupported;
	unsigned int cuts[FLY_CUT_COUNT];
};

struct looking {
	struct shapes shapes;
	struct kernel *kernel;
	uint64_t start_ns;
	struct counts counts;
	/* Of the walk looked at. */
	struct cli_memory memory;
	bool is_outside;
};

static struct unwind_stack host, kernels;
static struct cli_judgement libdw;

/* Stacks were captured; code is as it was then. */
static int memory_read(void *ctx, uint64_t address, void *out, size_t bytes)
{
	struct looking *l = ctx;
	struct iovec local = {out, bytes}, remote = {(void *)(uintptr_t)address, bytes};

	if (!cli_memory_read(&l->memory, address, out, bytes))
		return 0;
	if (!cli_picture_find(&l->shapes.picture, address)) {
		l->is_outside = true;
		return -EFAULT;
	}
	return process_vm_readv(l->shapes.pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes
		       ? 0
		       : -EFAULT;
}

static void pages_keep(struct cli_memory *memory, uint64_t at, const __u8 (*pages)[CAPTURE_PAGE],
		       uint32_t count, uint64_t step)
{
	for (uint32_t i = 0; i < count; i++)
		cli_memory_keep(memory, at + i * step, pages[i]);
}

static void kernels_take(const struct fly_sample *sample)
{
	kernels.count = sample->user_frames;
	assert_in_range(kernels.count, 1, UNWIND_FRAMES_MAX);
	for (uint32_t i = 0; i < kernels.count; i++)
		kernels.frames[i] = sample->frames[sample->kernel_frames + i] & ~FLY_FRAME_EXACT;
	kernels.is_whole = !sample->cut;
	kernels.cut = sample->cut ? (uint32_t)__builtin_ctz(sample->cut) : 0;
}

static void compare_with_host(struct counts *c)
{
	uint32_t i = 0;

	while (i < host.count && i < kernels.count && host.frames[i] == kernels.frames[i])
		i++;
	if (i == host.count && i == kernels.count && host.is_whole == kernels.is_whole &&
	    host.cut == kernels.cut)
		return;
	if (!c->unlike++)
		printf("kernel %u frames, cut %u; host %u frames, cut %u; first other frame %u\n",
		       kernels.count, kernels.cut, host.count, host.cut, i);
}

static void compare_with_libdw(struct looking *l, const struct unwind_thread *thread)
{
	struct counts *c = &l->counts;
	enum cli_verdict verdict;
	struct why why = {""};
	uint32_t depth;

	if (cli_judge_walk(l->shapes.judge, &l->memory, thread, &libdw, &why))
		fail_msg("%s", why.text);
	verdict = cli_stack_compare(&kernels, &libdw, &depth);
	c->judged++;
	c->wrong += verdict == CLI_VERDICT_WRONG;
	/* Rows that a rule cannot say are told apart: glibc's longjmp has one. */
	if (verdict == CLI_VERDICT_SHORT)
		*(kernels.cut == FLY_CUT_UNWIND_UNSUPPORTED ? &c->unsupported : &c->shorter) += 1;
	if (verdict != CLI_VERDICT_SAME && c->wrong + c->shorter < 5)
		printf("libdw: frame %u of %u, cut %u, pc %#llx; libdw has %u\n", depth,
		       kernels.count, kernels.cut,
		       (unsigned long long)kernels.frames[depth ? depth - 1 : 0],
		       libdw.stack.count);
}

static int on_capture(void *ctx, void *data, size_t bytes)
{
	const struct unwind_memory reads = {.read = memory_read, .ctx = ctx};
	const struct capture *c = data;
	struct looking *l = ctx;
	struct unwind_thread thread = {
		.pc = c->pc,
		.stack_start = c->stack_start,
		.thread_block = c->thread_block,
		.is_in_syscall = !c->is_exact,
	};

	assert_int_equal(bytes, sizeof(*c));
	memcpy(thread.regs, c->regs, sizeof(thread.regs));
	assert_int_equal(cli_memory_init(&l->memory, 0), 0);
	pages_keep(&l->memory, c->at, c->stack, c->pages, CAPTURE_PAGE);
	pages_keep(&l->memory, c->base_at, c->base, c->base_pages, -(uint64_t)CAPTURE_PAGE);
	kernels_take((const void *)c->record);
	l->is_outside = false;
	unwind_walk(l->shapes.picture.space, &reads, &thread, UNWIND_FRAMES_MAX, &host);
	l->counts.walks++;
	l->counts.whole += kernels.is_whole;
	l->counts.cuts[kernels.cut] += !kernels.is_whole;
	l->counts.frames += kernels.count;
	l->counts.outside += l->is_outside;
	if (kernels.count > l->counts.deepest)
		l->counts.deepest = kernels.count;
	if (!l->is_outside) {
		compare_with_host(&l->counts);
		compare_with_libdw(l, &thread);
	}
	cli_memory_done(&l->memory);
	return 0;
}

static void on_event(void *ctx, const struct kernel_event *event)
{
	struct looking *l = ctx;

	if (event->type == KERNEL_EVENT_SAMPLE && event->tgid == (uint32_t)l->shapes.pid)
		l->start_ns = event->sample->process_start_ns;
}

/* The very words that the host walks over. */
static void publish(struct looking *l)
{
	const struct unwind_space *space = l->shapes.picture.space;
	struct fly_table *tables = kernel_tables(l->kernel);
	struct fly_process process = {
		.start_ns = l->start_ns, .at = space->mappings_at, .count = space->mappings};
	struct why why = {""};
	uint8_t *segment = NULL;

	for (uint32_t i = 0; i < space->block_count; i++) {
		if (i % FLY_SEGMENT_BLOCKS == 0)
			segment = kernel_segment_add(l->kernel, i / FLY_SEGMENT_BLOCKS, &why);
		if (!segment)
			fail_msg("%s", why.text);
		memcpy(segment + (size_t)(i % FLY_SEGMENT_BLOCKS) * FLY_BLOCK_BYTES,
		       space->blocks[i], FLY_BLOCK_BYTES);
	}
	memcpy(tables, space->tables, space->table_count * sizeof(*tables));
	assert_int_equal(kernel_process_put(l->kernel, (uint32_t)l->shapes.pid, &process), 0);
}

static void kernel_begin(struct looking *l)
{
	struct kernel_options options;
	struct why why = {""};

	kernel_options_init(&options);
	options.hz = HZ;
	options.depth = UNWIND_FRAMES_MAX;
	options.unwinder = FLY_UNWIND_TABLES;
	options.table_bytes = (l->shapes.picture.space->block_count / FLY_SEGMENT_BLOCKS + 1ULL) *
			      FLY_SEGMENT_BYTES;
	options.walk_ns = WALK_NS;
	options.ring_bytes = 4 << 20;
	if (kernel_open(&options, &l->kernel, &why) || kernel_start(l->kernel, &why))
		fail_msg("%s", why.text);
}

/* Until there are so many walks, before that until a sample says when the program began; not past
 * end. */
static void drain(struct looking *l, struct ring_buffer *captures, unsigned int walks, uint64_t end)
{
	struct pollfd fd = {.fd = kernel_fd(l->kernel), .events = POLLIN};

	while (clock_monotonic_ns() < end && (captures ? l->counts.walks < walks : !l->start_ns)) {
		poll(&fd, 1, 10);
		assert_true(kernel_poll(l->kernel, false, on_event, l) >= 0);
		if (captures)
			assert_true(ring_buffer__consume(captures) >= 0);
	}
}

/* The program runs, and runs on. */
static void look_for(struct looking *l, unsigned int walks, uint64_t ns)
{
	struct ring_buffer *captures;

	kernel_begin(l);
	drain(l, NULL, 0, clock_monotonic_ns() + PATIENCE_NS);
	assert_true(l->start_ns);
	captures = ring_buffer__new(bpf_map__fd(l->kernel->bpf->maps.fly_captures), on_capture, l,
				    NULL);
	assert_non_null(captures);
	publish(l);
	drain(l, captures, walks, clock_monotonic_ns() + ns);
	kernel_stop(l->kernel);
	assert_true(ring_buffer__consume(captures) >= 0);
	ring_buffer__free(captures);
	kernel_close(l->kernel);
}

static void print(const char *name, const struct counts *c)
{
	printf("%s: %u walks, %u whole, %u frames, deepest %u; %u left the captured stack; %u "
	       "judged, "
	       "%u unlike the host's, %u wrong, %u short, %u unsupported\n",
	       name, c->walks, c->whole, c->frames, c->deepest, c->outside, c->judged, c->unlike,
	       c->wrong, c->shorter, c->unsupported);
	for (int i = 0; i < FLY_CUT_COUNT; i++) {
		if (c->cuts[i])
			printf("  cut %d: %u\n", i, c->cuts[i]);
	}
}

static void capture__walks_in_the_kernel__are_the_hosts_and_libdws(void **state)
{
	static const char *const paths[] = {REPLAY_SHAPES};
	static struct looking l;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		const struct counts *c = &l.counts;

		l = (struct looking){0};
		shapes_start(&l.shapes, paths[i]);
		look_for(&l, WALKS, PATIENCE_NS);
		shapes_end(&l.shapes);
		print(strrchr(paths[i], '/') + 1, c);
		assert_in_range(c->walks, WALKS, UINT32_MAX);
		assert_in_range(c->judged * 10, c->walks * 9, UINT32_MAX);
		assert_in_range((c->whole + c->unsupported) * 100, c->walks * 95, UINT32_MAX);
		assert_in_range(c->unsupported * 20, 0, c->walks);
		assert_int_equal(c->unlike, 0);
		assert_int_equal(c->wrong, 0);
		assert_int_equal(c->shorter, 0);
	}
}

static int look_at_process(const char *pid, const char *seconds)
{
	static struct looking l;
	uint64_t number, time;
	struct why why = {""};

	if (text_parse_u64(pid, 1, INT32_MAX, &number) || text_parse_u64(seconds, 1, 3600, &time))
		return 2;
	l.shapes.pid = (pid_t)number;
	if (cli_picture_open(l.shapes.pid, &l.shapes.picture, &why) ||
	    cli_judge_new(&l.shapes.picture, l.shapes.pid, &l.shapes.judge, &why)) {
		fprintf(stderr, "%s\n", why.text);
		return 3;
	}
	look_for(&l, UINT32_MAX, time * 1000000000ULL);
	print(pid, &l.counts);
	cli_judge_free(l.shapes.judge);
	cli_picture_close(&l.shapes.picture);
	return l.counts.unlike || l.counts.wrong || l.counts.shorter;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(capture__walks_in_the_kernel__are_the_hosts_and_libdws),
	};

	if (geteuid()) {
		fprintf(stderr, "capture: loads BPF programs, so run it as root.\n");
		return 1;
	}
	if (argc == 3)
		return look_at_process(argv[1], argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
