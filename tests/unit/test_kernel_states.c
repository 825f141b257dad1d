// SPDX-License-Identifier: Apache-2.0
/*
 * What the sampling program says of unusual tasks, on the running kernel (needs root): 32-bit
 * programs, io_uring workers, kernel threads, threads of a C library, small depths.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "bpf/flyball.skel.h"

struct seen {
	uint32_t tgid;
	uint64_t samples, wrong, cut, weight_ns;
	struct kernel_ledger ledger;
	uint64_t missed_on_first;
	struct rusage usage;
	void (*judge)(struct seen *seen, const struct fly_sample *sample);
};

static void look(void *ctx, const struct kernel_event *event)
{
	struct seen *seen = ctx;

	if (event->type == KERNEL_EVENT_SAMPLE && event->tgid == seen->tgid)
		seen->judge(seen, event->sample);
}

/* What the first CPU missed: the ledger has the sum only. */
static uint64_t missed_on_first(struct kernel *kernel)
{
	struct fly_counters *counters =
		calloc(kernel->possible.count, (sizeof(*counters) + 7) & ~(size_t)7);
	uint32_t set = FLY_COUNTERS_SAMPLE;
	uint64_t missed = 0;

	assert_non_null(counters);
	if (!bpf_map_lookup_elem(kernel->counters_fd, &set, counters))
		missed = kernel_missed(&kernel->cpus[0], kernel->period_ns, counters,
				       kernel_clock_enabled_ns(&kernel->cpus[0].clock));
	free(counters);
	return missed;
}

/* Runs what in a child that is sampled for ms, and judges its samples. */
static void sample_child(void (*what)(void), unsigned int ms, uint32_t depth, struct seen *seen)
{
	struct kernel_options options;
	struct kernel *kernel;
	struct why why = {""};
	pid_t parent = getpid(), pid;
	uint64_t end;

	kernel_options_init(&options);
	options.hz = 499;
	options.depth = depth;
	if (kernel_open(&options, &kernel, &why) || kernel_start(kernel, &why))
		fail_msg("%s", why.text);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			what();
		_exit(1);
	}
	seen->tgid = (uint32_t)pid;
	for (end = clock_monotonic_ns() + ms * 1000000ULL; clock_monotonic_ns() < end;) {
		struct pollfd fd = {.fd = kernel_fd(kernel), .events = POLLIN};

		poll(&fd, 1, 50);
		kernel_poll(kernel, false, look, seen);
	}
	kill(pid, SIGKILL);
	wait4(pid, NULL, 0, &seen->usage);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, seen);
	kernel_ledger_get(kernel, &seen->ledger);
	seen->missed_on_first = missed_on_first(kernel);
	kernel_close(kernel);
	printf("%lu samples, %lu wrong, %lu cut\n", seen->samples, seen->wrong, seen->cut);
}

/* ---------------------------------------------------------------- a 32-bit program */
static void run_compat(void)
{
	/* jmp to itself, in the smallest 32-bit program there is. */
	struct {
		Elf32_Ehdr header;
		Elf32_Phdr segment;
		uint8_t code[4];
	} program = {
		.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT},
			   .e_type = ET_EXEC,
			   .e_machine = EM_386,
			   .e_version = EV_CURRENT,
			   .e_entry = 0x8048000 + offsetof(typeof(program), code),
			   .e_phoff = offsetof(typeof(program), segment),
			   .e_ehsize = sizeof(Elf32_Ehdr),
			   .e_phentsize = sizeof(Elf32_Phdr),
			   .e_phnum = 1},
		.segment = {.p_type = PT_LOAD,
			    .p_vaddr = 0x8048000,
			    .p_filesz = sizeof(program),
			    .p_memsz = sizeof(program),
			    .p_flags = PF_R | PF_X,
			    .p_align = 4096},
		.code = {0xeb, 0xfe},
	};
	char *const args[] = {"compat", NULL};
	int fd = memfd_create("compat", MFD_CLOEXEC);

	if (write(fd, &program, sizeof(program)) == sizeof(program))
		fexecve(fd, args, args + 1);
}

static void judge_compat(struct seen *seen, const struct fly_sample *sample)
{
	const uint64_t *user = (const uint64_t *)sample->frames + sample->kernel_frames;

	if (!(sample->state & FLY_STATE_COMPAT))
		return; /* before its exec */
	seen->samples++;
	seen->wrong += sample->user_frames != 1 || user[0] >> 12 != 0x8048 ||
		       !(sample->cut & 1u << FLY_CUT_COMPAT_TASK);
}

static void kernel_states__compat__leaf_only_and_flagged(void **state)
{
	struct seen seen = {.judge = judge_compat};

	(void)state;
	sample_child(run_compat, 500, FLY_MAX_FRAMES, &seen);
	assert_true(seen.samples > 5);
	assert_int_equal(seen.wrong, 0);
}

/* ---------------------------------------------------------------- io_uring workers */
#define READ_BYTES (64u << 20)

/* Reads /dev/zero through a worker, for ever. */
static void run_io_worker(void)
{
	struct io_uring_params params = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 4, &params);
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	void *buffer =
		mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct io_uring_sqe *sqe;
	uint8_t *sq, *cq;

	if (ring < 0 || zero < 0 || buffer == MAP_FAILED)
		_exit(2);
	sq = mmap(NULL, params.sq_off.array + params.sq_entries * 4, PROT_READ | PROT_WRITE,
		  MAP_SHARED, ring, IORING_OFF_SQ_RING);
	cq = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe),
		  PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
	sqe = mmap(NULL, params.sq_entries * sizeof(*sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		   IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || sqe == MAP_FAILED)
		_exit(2);
	for (uint32_t n = 0;; n++) {
		*sqe = (struct io_uring_sqe){.opcode = IORING_OP_READ,
					     .flags = IOSQE_ASYNC,
					     .fd = zero,
					     .addr = (uintptr_t)buffer,
					     .len = READ_BYTES};
		((uint32_t *)(sq + params.sq_off.array))[n & (params.sq_entries - 1)] = 0;
		__atomic_store_n((uint32_t *)(sq + params.sq_off.tail), n + 1, __ATOMIC_RELEASE);
		if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
			_exit(2);
		__atomic_store_n((uint32_t *)(cq + params.cq_off.head), n + 1, __ATOMIC_RELEASE);
	}
}

static void judge_io_worker(struct seen *seen, const struct fly_sample *sample)
{
	if (strncmp(sample->comm, "iou-wrk-", 8))
		return;
	seen->samples++;
	/* One that has given up its memory has no registers either. */
	if (sample->cut == 1u << FLY_CUT_NO_USER_REGISTERS && !sample->user_frames)
		return;
	if (!(sample->state & FLY_STATE_IO_WORKER) || sample->user_frames || sample->cut ||
	    !sample->kernel_frames) {
		seen->wrong++;
		printf("%s: state %#x cut %#x, %u kernel frames, %u user frames\n", sample->comm,
		       sample->state, sample->cut, sample->kernel_frames, sample->user_frames);
	}
}

static void kernel_states__io_worker__has_no_user_stack(void **state)
{
	struct seen seen = {.judge = judge_io_worker};

	(void)state;
	sample_child(run_io_worker, 700, FLY_MAX_FRAMES, &seen);
	assert_true(seen.samples > 5);
	assert_int_equal(seen.wrong, 0);
}

/* ---------------------------------------------------------------- threads, system calls, depth */
static volatile unsigned long spin_sink;
static volatile bool spin_is_over;

static __attribute__((noinline)) void spin_once(void)
{
	spin_sink++;
}

/* Calls, so that the compiler gives it a frame. */
static __attribute__((noinline, aligned(64))) void *spin_thread(void *arg)
{
	while (!spin_is_over)
		spin_once();
	return arg;
}

static void run_thread(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, spin_thread, NULL))
		pthread_join(thread, NULL);
}

static void judge_thread(struct seen *seen, const struct fly_sample *sample)
{
	const uint64_t *user = (const uint64_t *)sample->frames + sample->kernel_frames;
	uint32_t at = 0;

	while (at < sample->user_frames && user[at] - (uintptr_t)spin_thread > 64)
		at++;
	if (sample->tid == sample->tgid || at == sample->user_frames)
		return;
	seen->samples++;
	/* The C library starts threads with frame pointer 0, and keeps it or uses it otherwise. */
	seen->wrong += at + 1 == sample->user_frames;
	seen->wrong += (sample->cut & ~(1u << FLY_CUT_FRAME_POINTER_LOST)) != 0;
	seen->cut += sample->cut != 0;
}

static void kernel_states__thread__ends_in_start_code(void **state)
{
	struct seen seen = {.judge = judge_thread};

	(void)state;
	sample_child(run_thread, 500, FLY_MAX_FRAMES, &seen);
	assert_true(seen.samples > 5);
	assert_int_equal(seen.wrong, 0);
}

static __attribute__((noinline)) void read_zero(int fd, void *buffer, size_t bytes)
{
	if (read(fd, buffer, bytes) < 0)
		_exit(2);
	spin_sink++;
}

static void run_syscalls(void)
{
	static char buffer[1 << 20];
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	for (;;)
		read_zero(zero, buffer, sizeof(buffer));
}

static void judge_syscalls(struct seen *seen, const struct fly_sample *sample)
{
	const uint64_t *user = (const uint64_t *)sample->frames + sample->kernel_frames;
	const uint8_t *before;

	if (!(sample->state & FLY_STATE_IN_SYSCALL) || sample->kernel_frames < 2)
		return;
	seen->samples++;
	/* The C library lies at the same place here: look at the instruction itself. */
	before = (const uint8_t *)(uintptr_t)(user[0] - 2);
	seen->wrong += sample->user_frames < 1 || before[0] != 0x0f || before[1] != 0x05;
	for (uint32_t i = 0; i < sample->kernel_frames; i++)
		seen->wrong += sample->frames[i] < 0xffff800000000000;
}

static void kernel_states__syscall__pc_follows_the_instruction(void **state)
{
	struct seen seen = {.judge = judge_syscalls};

	(void)state;
	sample_child(run_syscalls, 500, FLY_MAX_FRAMES, &seen);
	assert_true(seen.samples > 5);
	assert_int_equal(seen.wrong, 0);
}

static void judge_depth(struct seen *seen, const struct fly_sample *sample)
{
	if (!(sample->state & FLY_STATE_IN_SYSCALL) || sample->kernel_frames < 2)
		return;
	seen->samples++;
	seen->wrong += sample->kernel_frames != 2 || sample->user_frames > 2;
	/* a tick at the call's very edge meets just two frames: then nothing was cut */
	seen->cut += (sample->cut & 1u << FLY_CUT_KERNEL_DEPTH_LIMIT) != 0;
}

static void kernel_states__depth__is_kept_and_flagged(void **state)
{
	struct seen seen = {.judge = judge_depth};

	(void)state;
	sample_child(run_syscalls, 300, 2, &seen);
	assert_true(seen.samples > 5);
	assert_int_equal(seen.wrong, 0);
	assert_true(seen.cut * 10 >= seen.samples * 9);
}

/* ---------------------------------------------------------------- what the kernel leaves out */
#define BATCH 4096

/* bpf(2) keeps other BPF programs off its CPU while it works on a map. */
static void run_blocker(void)
{
	static uint32_t keys[BATCH];
	static uint64_t values[BATCH];
	LIBBPF_OPTS(bpf_map_batch_opts, options);
	int map = bpf_map_create(BPF_MAP_TYPE_HASH, "fly_blocker", 4, 8, BATCH, NULL);

	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first))
		_exit(2);
	for (uint32_t i = 0; i < BATCH; i++)
		keys[i] = i;
	for (;;) {
		uint32_t count = BATCH;

		if (bpf_map_update_batch(map, keys, values, &count, &options))
			_exit(2);
	}
}

static void judge_weight(struct seen *seen, const struct fly_sample *sample)
{
	seen->samples++;
	seen->weight_ns += sample->weight_ns;
}

static void kernel_states__missed__is_what_was_left_out(void **state)
{
	struct seen seen = {.judge = judge_weight};
	double cpu, found, missed, period;

	(void)state;
	sample_child(run_blocker, 3000, FLY_MAX_FRAMES, &seen);
	period = (double)seen.ledger.period_ns;
	cpu = (double)(seen.usage.ru_utime.tv_sec + seen.usage.ru_stime.tv_sec) * 1e9 +
	      (double)(seen.usage.ru_utime.tv_usec + seen.usage.ru_stime.tv_usec) * 1e3;
	found = (double)seen.weight_ns;
	missed = (double)seen.missed_on_first * period;
	printf("used %.3f s, found %.3f s, missed %.3f s\n", cpu / 1e9, found / 1e9, missed / 1e9);
	assert_true(missed > cpu / 50);
	assert_true(missed > 0.9 * (cpu - found) - 10 * period);
	assert_true(missed < 1.1 * (cpu - found) + 10 * period);
}

/* ---------------------------------------------------------------- budgets */
static const struct {
	const char *name;
	uint32_t instructions;
} budgets[] = {
#define BUDGET(program, instructions) {#program, instructions},
#include "bpf/budgets.def"
};

static void check_budgets(enum fly_target target, enum fly_unwinder unwinder, uint64_t *seen)
{
	struct kernel_options options;
	struct kernel *kernel;
	struct why why = {""};
	struct bpf_program *program;

	kernel_options_init(&options);
	options.target = target;
	options.unwinder = unwinder;
	if (kernel_open(&options, &kernel, &why))
		fail_msg("%s", why.text);
	bpf_object__for_each_program(program, kernel->bpf->obj)
	{
		struct bpf_prog_info info = {0};
		uint32_t size = sizeof(info);

		if (bpf_program__fd(program) < 0)
			continue;
		assert_int_equal(bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size), 0);
		printf("%s: %u instructions verified\n", bpf_program__name(program),
		       info.verified_insns);
		for (size_t i = 0; i < ARRAY_SIZE(budgets); i++) {
			if (strcmp(budgets[i].name, bpf_program__name(program)))
				continue;
			*seen |= 1ULL << i;
			assert_true(info.verified_insns * 10ULL <= budgets[i].instructions * 11ULL);
		}
	}
	kernel_close(kernel);
}

static void kernel_states__programs__are_in_budget(void **state)
{
	uint64_t seen = 0;

	(void)state;
	check_budgets(FLY_TARGET_ALL, FLY_UNWIND_FRAME_POINTERS, &seen);
	check_budgets(FLY_TARGET_TASKS, FLY_UNWIND_FRAME_POINTERS, &seen);
	check_budgets(FLY_TARGET_ALL, FLY_UNWIND_TABLES, &seen);
	check_budgets(FLY_TARGET_TASKS, FLY_UNWIND_TABLES, &seen);
	/* but fly_sample_cgrp and fly_unwind_cgrp */
	assert_int_equal(seen, (1ULL << ARRAY_SIZE(budgets)) - 1 - 4 - 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_states__compat__leaf_only_and_flagged),
		cmocka_unit_test(kernel_states__io_worker__has_no_user_stack),
		cmocka_unit_test(kernel_states__thread__ends_in_start_code),
		cmocka_unit_test(kernel_states__syscall__pc_follows_the_instruction),
		cmocka_unit_test(kernel_states__depth__is_kept_and_flagged),
		cmocka_unit_test(kernel_states__missed__is_what_was_left_out),
		cmocka_unit_test(kernel_states__programs__are_in_budget),
	};

	if (geteuid()) {
		fprintf(stderr, "kernel_states: loads BPF programs, so run it as root.\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
