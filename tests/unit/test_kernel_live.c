// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel part on the running kernel: needs root. Programs that burn CPU are this very file,
 * run again as a child.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "bpf/flyball.skel.h"

/* ---------------------------------------------------------------- the program sampled */
#define SPIN_BYTES 128
#define SPIN	   __attribute__((noinline, aligned(SPIN_BYTES)))

static volatile unsigned long spin_sink;
static volatile bool spin_is_over;

/* So short that most ticks find it outside its frame. */
static SPIN void spin_tiny(void)
{
	__asm__ volatile("");
}

static SPIN void spin_leaf(void)
{
	for (int i = 0; i < 1000; i++)
		spin_tiny();
	spin_sink++;
}

static SPIN void spin_deep(unsigned int depth)
{
	if (depth)
		spin_deep(depth - 1);
	else
		while (!spin_is_over)
			spin_leaf();
	spin_sink++;
}

static SPIN void spin_outermost(unsigned int depth)
{
	spin_deep(depth);
	spin_sink++;
}

/* Executes this program, at the same addresses (main sees to that). */
static pid_t spin_start(const char *depth)
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		execl("/proc/self/exe", "fly-spin", depth, NULL);
	_exit(1);
}

static void spin_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---------------------------------------------------------------- what came */
struct seen {
	uint32_t spin;
	uint64_t samples, weight_ns, spin_samples, spin_leaf, spin_chain, spin_incomplete;
	uint64_t spin_tiny, spin_tiny_called;
	uint64_t pressed, deep, disordered, last_ns;
	uint64_t execs, exec_true, execs_seen, maps, build_ids, forks, exits, comms;
	uint64_t kernel_stacks, deepest;
	uint64_t cpu_samples[2], losses, others;
	size_t most_user_frames;
};

#define is_in(address, function) ((address) - (uintptr_t)(function) < SPIN_BYTES)

static void look_at_sample(struct seen *seen, const struct fly_sample *sample)
{
	const uint64_t *user = (const uint64_t *)sample->frames + sample->kernel_frames;
	bool chain = false;

	seen->samples++;
	if (sample->cpu < ARRAY_SIZE(seen->cpu_samples))
		seen->cpu_samples[sample->cpu]++;
	seen->weight_ns += sample->weight_ns;
	seen->pressed += sample->state & FLY_STATE_PRESSURE ? 1 : 0;
	if (sample->state & FLY_STATE_PRESSURE)
		seen->deep += sample->user_frames > FLY_PRESSURE_FRAMES ||
			      sample->kernel_frames > FLY_PRESSURE_FRAMES;
	seen->kernel_stacks += sample->kernel_frames > 0;
	seen->others += sample->tgid != seen->spin;
	if (sample->tgid != seen->spin || (sample->state & FLY_STATE_IN_KERNEL))
		return;
	seen->spin_samples++;
	if (sample->user_frames > seen->most_user_frames)
		seen->most_user_frames = sample->user_frames;
	if (is_in(user[0], spin_tiny)) {
		seen->spin_tiny++;
		seen->spin_tiny_called += sample->user_frames > 1 && is_in(user[1], spin_leaf);
	}
	seen->spin_leaf += is_in(user[0], spin_tiny) || is_in(user[0], spin_leaf);
	for (uint32_t i = 1; i < sample->user_frames; i++)
		chain |= is_in(user[i], spin_outermost);
	seen->spin_chain += chain;
	seen->spin_incomplete += sample->cut && !(sample->state & FLY_STATE_NEAR_BASE);
}

static void look(void *ctx, const struct kernel_event *event)
{
	struct seen *seen = ctx;

	seen->disordered += event->time_ns < seen->last_ns;
	seen->last_ns = event->time_ns;
	switch (event->type) {
	case KERNEL_EVENT_SAMPLE:
		look_at_sample(seen, event->sample);
		break;
	case KERNEL_EVENT_EXEC:
		seen->execs++;
		seen->exec_true += !strcmp(event->exec->comm, "true") && event->exec->exe_ino;
		break;
	case KERNEL_EVENT_MMAP:
		seen->maps++;
		seen->build_ids += event->mmap.build_id_len > 0;
		break;
	case KERNEL_EVENT_FORK:
		seen->forks++;
		break;
	case KERNEL_EVENT_EXIT:
		seen->exits++;
		break;
	case KERNEL_EVENT_COMM:
		seen->comms++;
		break;
	case KERNEL_EVENT_LOST:
		seen->losses++;
		break;
	default:
		break;
	}
}

static void run_for(struct kernel *kernel, unsigned int ms, struct seen *seen)
{
	uint64_t end = clock_monotonic_ns() + ms * 1000000ULL;
	struct pollfd fd = {.fd = kernel_fd(kernel), .events = POLLIN};

	while (clock_monotonic_ns() < end) {
		poll(&fd, 1, kernel_poll_ms(kernel, 100));
		assert_true(kernel_poll(kernel, false, look, seen) >= 0);
	}
}

static struct kernel *open_kernel(const struct kernel_options *options)
{
	struct kernel *kernel = NULL;
	struct why why = {""};

	if (kernel_open(options, &kernel, &why))
		fail_msg("%s", why.text);
	return kernel;
}

static void start(struct kernel *kernel)
{
	struct why why = {""};

	if (kernel_start(kernel, &why))
		fail_msg("%s", why.text);
}

static void check_exact(struct kernel *kernel, const struct seen *seen, struct kernel_ledger *ret)
{
	uint64_t dropped = 0, dropped_ns = 0;

	assert_int_equal(kernel_ledger_get(kernel, ret), 0);
	for (int i = 0; i < FLY_DROP_COUNT; i++) {
		dropped += ret->dropped[i];
		dropped_ns += ret->dropped_ns[i];
	}
	assert_int_equal(ret->ticks, ret->idle + ret->filtered + ret->taken);
	assert_int_equal(ret->taken, ret->submitted + dropped);
	assert_int_equal(ret->taken_ns, ret->submitted_ns + dropped_ns);
	assert_int_equal(ret->submitted, seen->samples);
	assert_int_equal(ret->submitted_ns, seen->weight_ns);
	assert_int_equal(ret->dropped[FLY_DROP_RECORD_INVALID], 0);
	assert_int_equal(ret->dropped[FLY_DROP_SCRATCH_BUSY], 0);
}

static void show(const char *what, const struct kernel_ledger *l)
{
	printf("%s: ticks %lu idle %lu filtered %lu taken %lu submitted %lu full %lu missed %lu; "
	       "%lu ns per run, %lu wake-ups\n",
	       what, l->ticks, l->idle, l->filtered, l->taken, l->submitted,
	       l->dropped[FLY_DROP_RING_FULL], l->missed_by_kernel,
	       l->runs ? l->run_ns / l->runs : 0, l->wakeups);
}

/* ---------------------------------------------------------------- tests */
static void kernel_live__spinner__is_sampled_with_its_chain(void **state)
{
	struct kernel_options options;
	struct kernel_memory memory;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	pid_t pid;

	(void)state;
	kernel_options_init(&options);
	kernel = open_kernel(&options);
	pid = spin_start("20");
	seen.spin = (uint32_t)pid;
	start(kernel);
	run_for(kernel, 2000, &seen);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(pid);
	check_exact(kernel, &seen, &ledger);
	show("all", &ledger);
	printf("spin: %lu samples, leaf %lu, chain %lu, incomplete %lu, tiny %lu with caller %lu\n",
	       seen.spin_samples, seen.spin_leaf, seen.spin_chain, seen.spin_incomplete,
	       seen.spin_tiny, seen.spin_tiny_called);
	/* Of two CPUs at least one is busy; some virtual machines deliver no ticks on idle ones. */
	assert_true(ledger.ticks + ledger.missed_by_kernel > 150);
	assert_true(seen.spin_samples > 15);
	assert_true(seen.spin_leaf * 100 >= seen.spin_samples * 90);
	/* The first few are taken in the loader. */
	assert_true(seen.spin_chain * 100 >= seen.spin_samples * 97);
	assert_true(seen.spin_incomplete * 100 <= seen.spin_samples * 3);
	assert_true(seen.spin_tiny > 2);
	assert_int_equal(seen.spin_tiny_called, seen.spin_tiny);
	/* A stalled virtual CPU can make an event late. */
	assert_true(seen.disordered * 50 <= seen.samples);
	kernel_memory_get(kernel, &memory);
	for (size_t i = 0; i < memory.map_count; i++) {
		printf("%-16s %-14s %8lu planned %8lu measured\n", memory.maps[i].name,
		       memory.maps[i].type, memory.maps[i].bytes, memory.maps[i].measured_bytes);
		assert_true(memory.maps[i].measured_bytes > 0);
		assert_true(memory.maps[i].measured_bytes <= memory.maps[i].bytes);
	}
	kernel_close(kernel);
}

static void kernel_live__full_ring__degrades_then_drops_then_adds_up(void **state)
{
	struct kernel_options options;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	pid_t pid;

	(void)state;
	kernel_options_init(&options);
	options.hz = 999;
	options.ring_bytes = 65536;
	kernel = open_kernel(&options);
	pid = spin_start("60");
	seen.spin = (uint32_t)pid;
	start(kernel);
	usleep(1500000);
	kernel_ledger_get(kernel, &ledger);
	assert_true(ledger.dropped[FLY_DROP_RING_FULL] > 0);
	run_for(kernel, 500, &seen);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(pid);
	check_exact(kernel, &seen, &ledger);
	show("hammer", &ledger);
	printf("pressed %lu, too deep %lu, deepest %zu\n", seen.pressed, seen.deep,
	       seen.most_user_frames);
	assert_true(seen.pressed > 0);
	assert_int_equal(seen.deep, 0);
	assert_true(seen.most_user_frames > 60);
	kernel_close(kernel);
}

static pid_t spin_on(uint32_t cpu, const char *depth)
{
	pid_t pid = spin_start(depth);
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	assert_int_equal(sched_setaffinity(pid, sizeof(set), &set), 0);
	return pid;
}

/* What lay in the ring before each record, while nobody read it. */
struct fill {
	uint64_t bytes, watermark, until_ns;
	uint64_t pressed, too_early, too_late, wrong, spin_pressed;
	const pid_t *spins; /* one per CPU */
};

#define RECORD_MOST  (sizeof(struct fly_sample) + 200 * sizeof(uint64_t))
#define RECORD_EXTRA 8 /* the ring's own */

static void look_at_fill(void *ctx, const struct kernel_event *event)
{
	const struct fly_sample *sample = event->sample;
	struct fill *fill = ctx;
	bool is_pressed;

	if (event->type != KERNEL_EVENT_SAMPLE || event->time_ns >= fill->until_ns) {
		fill->bytes += event->type == KERNEL_EVENT_EXEC ? sizeof(struct fly_exec) : 0;
		return;
	}
	is_pressed = sample->state & FLY_STATE_PRESSURE;
	fill->pressed += is_pressed;
	/* Two CPUs may ask at once, and what one will write the other does not see. */
	fill->too_early += is_pressed && fill->bytes + RECORD_MOST < fill->watermark;
	fill->too_late += !is_pressed && fill->bytes > fill->watermark + RECORD_MOST;
	if (sample->tgid == (uint32_t)fill->spins[sample->cpu] &&
	    !(sample->state & FLY_STATE_IN_KERNEL)) {
		/* By tables it is not known to anybody, by frame pointers it is deep. */
		fill->wrong += is_pressed ? sample->user_frames != FLY_PRESSURE_FRAMES
					  : !(sample->state & FLY_STATE_TABLES);
		fill->spin_pressed += is_pressed;
	}
	fill->wrong += is_pressed && (sample->state & FLY_STATE_TABLES ||
				      sample->user_frames > FLY_PRESSURE_FRAMES ||
				      sample->kernel_frames > FLY_PRESSURE_FRAMES);
	fill->bytes += sizeof(*sample) + RECORD_EXTRA +
		       8 * ((uint64_t)sample->kernel_frames + sample->user_frames);
}

/* From three quarters on every sample is by frame pointers and 32 deep, and no other is; then
 * samples are dropped. The fill is worked out from the records. */
static void kernel_live__full_ring__pressed_from_the_watermark_on(void **state)
{
	struct kernel_options options;
	struct kernel_ledger ledger;
	struct kernel *kernel;
	struct fill fill = {0};
	pid_t pids[CPU_SETSIZE];

	(void)state;
	kernel_options_init(&options);
	options.hz = 499;
	options.ring_bytes = 65536;
	options.unwinder = FLY_UNWIND_TABLES;
	kernel = open_kernel(&options);
	assert_in_range(kernel->cpu_count, 1, CPU_SETSIZE);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++)
		pids[cpu] = spin_on(cpu, "60");
	fill.spins = pids;
	fill.watermark = options.ring_bytes / 4 * 3;
	start(kernel);
	do {
		usleep(10000);
		assert_int_equal(kernel_ledger_get(kernel, &ledger), 0);
	} while (ledger.dropped[FLY_DROP_RING_FULL] < 100);
	fill.until_ns = clock_monotonic_ns();
	kernel_stop(kernel);
	kernel_poll(kernel, true, look_at_fill, &fill);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++)
		spin_end(pids[cpu]);
	printf("fill: %lu bytes, %lu pressed, %lu of the spinner\n", fill.bytes, fill.pressed,
	       fill.spin_pressed);
	assert_in_range(fill.bytes, options.ring_bytes / 16 * 13, options.ring_bytes);
	assert_true(fill.pressed >= 20 && fill.spin_pressed >= 2);
	assert_int_equal(fill.too_early + fill.too_late, 0);
	assert_int_equal(fill.wrong, 0);
	kernel_close(kernel);
}

/* Every 60 ms another rate. No CPU is ever idle, so the weights sum to the time the clocks ran:
 * exactly, but for what each clock had gone of its last period, and ticks that were missed. */
static void kernel_live__pace__weights_are_the_time_used(void **state)
{
	static const uint32_t rates[] = {97, 401, 47, 997, 199};
	struct kernel_options options;
	struct kernel_pace pace = {0};
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	uint64_t enabled_ns = 0, missed_ns;
	pid_t pids[CPU_SETSIZE];

	(void)state;
	kernel_options_init(&options);
	kernel = open_kernel(&options);
	assert_in_range(kernel->cpu_count, 1, CPU_SETSIZE);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++)
		pids[cpu] = spin_on(cpu, "5");
	pace.depth = options.depth;
	start(kernel);
	for (int i = 0; i < 40; i++) {
		pace.period_ns = 1000000000ULL / rates[i % ARRAY_SIZE(rates)];
		assert_int_equal(kernel_pace_set(kernel, &pace), 0);
		run_for(kernel, 60, &seen);
	}
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++) {
		enabled_ns += kernel_enabled_ns(&kernel->cpus[cpu]);
		spin_end(pids[cpu]);
	}
	check_exact(kernel, &seen, &ledger);
	printf("paced: %lu us by weights, %lu us by the clocks, %lu ticks missed\n",
	       ledger.taken_ns / 1000, enabled_ns / 1000, ledger.missed_by_kernel);
	missed_ns = enabled_ns / (ledger.ticks + ledger.missed_by_kernel) * ledger.missed_by_kernel;
	assert_in_range(ledger.taken_ns, (enabled_ns - missed_ns) / 100 * 98,
			enabled_ns / 100 * 101);
	kernel_close(kernel);
}

/* A thousand ticks a second over something that spins for five, at a pace that says the rest. */
static struct kernel *start_paced(struct kernel_pace *pace, pid_t *ret_pid)
{
	struct kernel_options options;
	struct kernel *kernel;

	kernel_options_init(&options);
	kernel = open_kernel(&options);
	*ret_pid = spin_start("5");
	pace->period_ns = 1000000;
	pace->depth = options.depth;
	assert_int_equal(kernel_pace_set(kernel, pace), 0);
	start(kernel);
	return kernel;
}

static void kernel_live__suppressed__counted_with_its_time(void **state)
{
	struct kernel_pace pace = {.state = FLY_STATE_IS_SUPPRESSED, .suppressed_ppm = 1000000};
	struct kernel_pressure pressure;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	pid_t pid;

	(void)state;
	kernel = start_paced(&pace, &pid);
	run_for(kernel, 300, &seen);
	check_exact(kernel, &seen, &ledger);
	assert_true(ledger.dropped[FLY_DROP_SUPPRESSED] > 100);
	assert_int_equal(ledger.dropped[FLY_DROP_SUPPRESSED], ledger.taken);
	assert_int_equal(ledger.dropped_ns[FLY_DROP_SUPPRESSED], ledger.taken_ns);
	pace.is_memory_drop = true;
	assert_int_equal(kernel_pace_set(kernel, &pace), 0);
	run_for(kernel, 100, &seen);
	assert_int_equal(kernel_ledger_get(kernel, &ledger), 0);
	assert_true(ledger.dropped[FLY_DROP_MEMORY_PRESSURE] > 30);
	assert_int_equal(seen.samples, 0);
	pace.state = FLY_STATE_IS_NORMAL;
	pace.suppressed_ppm = 0;
	assert_int_equal(kernel_pace_set(kernel, &pace), 0);
	kernel_pressure_take(kernel, &pressure);
	usleep(100000); /* nobody reads */
	kernel_pressure_take(kernel, &pressure);
	assert_in_range(pressure.ring_used_ppm, 1, 1000000);
	run_for(kernel, 100, &seen);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(pid);
	check_exact(kernel, &seen, &ledger);
	assert_true(seen.samples > 0);
	kernel_close(kernel);
}

/* A CPU that has had its time gets no more samples until the next tenth of a second. */
static void kernel_live__cpu_budget__dropped_as_suppressed(void **state)
{
	struct kernel_pace pace = {.cpu_budget_ns = 1};
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	pid_t pid;

	(void)state;
	kernel = start_paced(&pace, &pid);
	run_for(kernel, 500, &seen);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(pid);
	check_exact(kernel, &seen, &ledger);
	/* The first of each window, on each CPU. */
	assert_in_range(seen.samples, 1, (ledger.ticks / 100 + 2) * kernel->cpu_count);
	assert_int_equal(ledger.dropped[FLY_DROP_SUPPRESSED], ledger.taken - seen.samples);
	assert_true(ledger.dropped[FLY_DROP_SUPPRESSED] > 100);
	kernel_close(kernel);
}

/* With nobody reading samples leave room, so that what starts meanwhile is known all the same. */
static void kernel_live__full_ring__has_room_for_execs(void **state)
{
	struct kernel_options options;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	pid_t pid, other;

	(void)state;
	kernel_options_init(&options);
	options.hz = 4999;
	options.ring_bytes = 65536;
	kernel = open_kernel(&options);
	pid = spin_start("60");
	start(kernel);
	do {
		usleep(10000);
		kernel_ledger_get(kernel, &ledger);
	} while (ledger.dropped[FLY_DROP_RING_FULL] < 100);
	for (int i = 0; i < 10; i++) {
		other = fork();
		if (!other)
			execl("/bin/true", "true", NULL);
		waitpid(other, NULL, 0);
	}
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(pid);
	check_exact(kernel, &seen, &ledger);
	assert_int_equal(ledger.execs_lost, 0);
	assert_true(seen.exec_true >= 10);
	kernel_close(kernel);
}

static void kernel_live__tasks__only_they_and_their_children(void **state)
{
	struct kernel_options options;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	struct why why = {""};
	pid_t pid, other;
	int pidfd, go[2];
	char c = 0;

	(void)state;
	kernel_options_init(&options);
	options.target = FLY_TARGET_TASKS;
	kernel = open_kernel(&options);
	other = spin_start("3");
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (!pid) {
		/* The marked process waits, then its child does the work. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		if (read(go[0], &c, 1) == 1) {
			pid_t child = spin_start("5");

			usleep(1000000);
			spin_end(child);
			execl("/bin/true", "true", NULL);
		}
		_exit(1);
	}
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	assert_true(pidfd >= 0);
	if (kernel_target_add(kernel, pidfd, &why))
		fail_msg("%s", why.text);
	start(kernel);
	assert_int_equal(write(go[1], &c, 1), 1);
	seen.spin = (uint32_t)other;
	run_for(kernel, 1500, &seen);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(other);
	waitpid(pid, NULL, 0);
	check_exact(kernel, &seen, &ledger);
	show("tasks", &ledger);
	assert_true(seen.samples > 5);
	assert_int_equal(seen.spin_samples, 0);
	assert_true(ledger.filtered > 5);
	assert_int_equal(seen.exec_true, 1);
	assert_int_equal(seen.execs, 2);
	assert_int_equal(ledger.marks_lost, 0);
	/* A process that has been waited for cannot be marked. */
	assert_int_equal(kernel_target_add(kernel, pidfd, &why), -ESRCH);
	close(pidfd);
	close(go[0]);
	close(go[1]);
	kernel_close(kernel);
}

/* A thread that was there before the mark executes: the leader that had the mark is gone then. */
static void *exec_spin(void *arg)
{
	uint64_t end = clock_monotonic_ns() + 400000000;

	while (clock_monotonic_ns() < end)
		spin_sink++;
	execl("/proc/self/exe", "fly-spin", "4", NULL);
	return arg;
}

static void kernel_live__tasks__a_thread_that_executes_is_followed(void **state)
{
	struct kernel_options options;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	struct why why = {""};
	pid_t pid;
	int pidfd;

	(void)state;
	kernel_options_init(&options);
	options.target = FLY_TARGET_TASKS;
	kernel = open_kernel(&options);
	pid = fork();
	if (!pid) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!pthread_create(&thread, NULL, exec_spin, NULL))
			pthread_join(thread, NULL);
		_exit(1);
	}
	usleep(100000);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (kernel_target_add(kernel, pidfd, &why))
		fail_msg("%s", why.text);
	seen.spin = (uint32_t)pid;
	start(kernel);
	run_for(kernel, 1200, &seen);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(pid);
	check_exact(kernel, &seen, &ledger);
	show("exec by a thread", &ledger);
	assert_int_equal(seen.execs, 1);
	assert_true(seen.spin_chain > 5);
	close(pidfd);
	kernel_close(kernel);
}

/* Where cgroup v2 is mounted, also beside v1. */
static bool find_cgroup2(char *path, size_t size)
{
	char line[512], dir[256], type[32];
	FILE *f = fopen("/proc/self/mounts", "r");
	bool is_found = false;

	while (f && !is_found && fgets(line, sizeof(line), f))
		is_found =
			sscanf(line, "%*s %255s %31s", dir, type) == 2 && !strcmp(type, "cgroup2");
	if (f)
		fclose(f);
	return is_found && snprintf(path, size, "%s/fly-test-%d", dir, (int)getpid()) < (int)size;
}

static void move_to(const char *path, pid_t pid)
{
	char file[320];
	FILE *f;

	snprintf(file, sizeof(file), "%s/cgroup.procs", path);
	f = fopen(file, "w");
	assert_non_null(f);
	fprintf(f, "%d\n", (int)pid);
	assert_int_equal(fclose(f), 0);
}

static void kernel_live__cgroup__only_its_tasks(void **state)
{
	struct kernel_options options;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	struct why why = {""};
	char path[300];
	pid_t inside, outside;

	(void)state;
	assert_true(find_cgroup2(path, sizeof(path)));
	assert_int_equal(mkdir(path, 0755), 0);
	kernel_options_init(&options);
	options.target = FLY_TARGET_CGROUP;
	options.cgroup_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(kernel_open(&options, &kernel, &why), -EBADF);
	assert_non_null(strstr(why.text, "cgroup"));
	close(options.cgroup_fd);
	options.cgroup_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	kernel = open_kernel(&options);
	inside = spin_start("4");
	outside = spin_start("4");
	move_to(path, inside);
	seen.spin = (uint32_t)inside;
	start(kernel);
	run_for(kernel, 1000, &seen);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(inside);
	spin_end(outside);
	check_exact(kernel, &seen, &ledger);
	show("cgroup", &ledger);
	kernel_close(kernel);
	close(options.cgroup_fd);
	for (int i = 0; i < 100 && rmdir(path); i++)
		usleep(10000);
	assert_true(seen.spin_samples > 5);
	assert_true(ledger.filtered > 5);
	assert_int_equal(seen.others, 0);
}

static uint64_t cgroup_id(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_ino;
}

/* Samples that a cgroup lost to the others' needs. */
static uint64_t share_lost(struct kernel *kernel, uint64_t id)
{
	struct fly_share share = {0};
	uint32_t slot = fly_share_of(id);
	int fd = bpf_map__fd(kernel->bpf->maps.fly_shares);

	assert_int_equal(bpf_map_lookup_elem(fd, &slot, &share), 0);
	return share.lost;
}

/* A millisecond in a hundred. */
static pid_t sip_start(void)
{
	const struct timespec pause = {.tv_nsec = 99000000};
	pid_t pid = fork();
	uint64_t end;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		end = clock_monotonic_ns() + 1000000;
		while (clock_monotonic_ns() < end)
			spin_sink++;
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
}

struct cgroups {
	uint64_t quiet, quiet_samples, noisy_samples, quiet_last_ns;
};

static void count_cgroups(void *ctx, const struct kernel_event *event)
{
	struct cgroups *seen = ctx;

	if (event->type != KERNEL_EVENT_SAMPLE)
		return;
	if (event->sample->cgroup_id == seen->quiet) {
		seen->quiet_samples++;
		seen->quiet_last_ns = event->time_ns;
	} else {
		seen->noisy_samples++;
	}
}

/* Nobody reads for long after the noisy one has filled its part: the quiet one loses nothing. */
static void kernel_live__noisy_cgroup__leaves_room_to_others(void **state)
{
	struct kernel_options options;
	struct cgroups seen = {0};
	struct kernel_pressure pressure;
	struct kernel_ledger ledger;
	struct kernel *kernel;
	char path[300];
	uint64_t end_ns;
	pid_t quiet, noisy[CPU_SETSIZE];

	(void)state;
	assert_true(find_cgroup2(path, sizeof(path)));
	assert_int_equal(mkdir(path, 0755), 0);
	seen.quiet = cgroup_id(path);
	quiet = sip_start();
	move_to(path, quiet);
	kernel_options_init(&options);
	options.hz = 999;
	options.ring_bytes = 262144;
	kernel = open_kernel(&options);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++)
		noisy[cpu] = spin_on(cpu, "20");
	start(kernel);
	do {
		usleep(10000);
		assert_int_equal(kernel_ledger_get(kernel, &ledger), 0);
	} while (ledger.dropped[FLY_DROP_RING_FULL] < 2000);
	kernel_stop(kernel);
	end_ns = clock_monotonic_ns();
	kernel_pressure_take(kernel, &pressure);
	kernel_poll(kernel, true, count_cgroups, &seen);
	printf("share: quiet %lu samples, the last %lu ms before the end, others %lu and %lu lost; "
	       "ring at most %u ppm\n",
	       seen.quiet_samples, (end_ns - seen.quiet_last_ns) / 1000000, seen.noisy_samples,
	       ledger.dropped[FLY_DROP_RING_FULL], pressure.ring_used_ppm);
	assert_int_equal(share_lost(kernel, seen.quiet), 0);
	assert_true(seen.quiet_samples > 5);
	assert_true(end_ns - seen.quiet_last_ns < 1000000000);
	for (uint32_t cpu = 0; cpu < kernel->cpu_count; cpu++)
		spin_end(noisy[cpu]);
	kernel_close(kernel);
	spin_end(quiet);
	for (int i = 0; i < 100 && rmdir(path); i++)
		usleep(10000);
}

static void kernel_live__sideband__says_what_processes_do(void **state)
{
	struct kernel_options options;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	uint64_t woken_ns = 0;
	struct pollfd fd;

	(void)state;
	kernel_options_init(&options);
	kernel = open_kernel(&options);
	start(kernel);
	run_for(kernel, 200, &seen);
	fd = (struct pollfd){.fd = kernel_fd(kernel), .events = POLLIN};
	for (int i = 0; i < 10; i++) {
		uint64_t begin = clock_monotonic_ns();
		pid_t pid = fork();

		if (!pid) {
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		while (seen.exec_true <= (uint64_t)i && clock_monotonic_ns() - begin < 500000000) {
			poll(&fd, 1, 1000);
			kernel_poll(kernel, false, look, &seen);
		}
		woken_ns += clock_monotonic_ns() - begin;
		assert_int_equal(seen.exec_true, i + 1);
		waitpid(pid, NULL, 0);
		usleep(5000);
	}
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	check_exact(kernel, &seen, &ledger);
	printf("execs %lu, maps %lu with build-id %lu, forks %lu, exits %lu, comms %lu; "
	       "woken %lu us after fork\n",
	       seen.execs, seen.maps, seen.build_ids, seen.forks, seen.exits, seen.comms,
	       woken_ns / 10000);
	assert_true(seen.exec_true >= 10);
	assert_true(seen.build_ids >= 10);
	assert_true(seen.forks >= 10 && seen.exits >= 10 && seen.comms >= 10);
	assert_int_equal(ledger.sideband_lost, 0);
	assert_int_equal(ledger.execs_lost, 0);
	kernel_close(kernel);
}

/* In a child without capabilities: the sentence is the doctor's. */
static void kernel_live__no_capabilities__one_sentence(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
		struct __user_cap_data_struct none[2] = {{0}};
		struct kernel_options options;
		struct kernel *kernel;
		struct why why = {""};
		int err;

		kernel_options_init(&options);
		if (syscall(SYS_capset, &header, none))
			_exit(2);
		err = kernel_open(&options, &kernel, &why);
		printf("%d: %s\n", err, why.text);
		fflush(stdout);
		_exit(err == -EPERM && strstr(why.text, "CAP_BPF") && strstr(why.text, "root") &&
				      !strchr(why.text, '\n')
			      ? 0
			      : 1);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
}

static void set_online(char value)
{
	FILE *f = fopen("/sys/devices/system/cpu/cpu1/online", "w");

	assert_non_null(f);
	fputc(value, f);
	assert_int_equal(fclose(f), 0);
}

/* Takes CPU 1 away and brings it back, slowly and so fast that no list shows it. Other programs
 * lose their affinity by that, so it is for machines of our own: FLYBALL_TEST_HOTPLUG=1. */
static void kernel_live__hotplug__cpus_are_followed(void **state)
{
	struct kernel_options options;
	struct kernel_ledger ledger;
	struct seen seen = {0};
	struct kernel *kernel;
	uint64_t before;
	pid_t pids[2];

	(void)state;
	kernel_options_init(&options);
	kernel = open_kernel(&options);
	pids[0] = spin_start("3");
	pids[1] = spin_start("3");
	start(kernel);
	run_for(kernel, 300, &seen);
	set_online('0');
	run_for(kernel, 1200, &seen);
	before = seen.cpu_samples[1];
	kernel_ledger_get(kernel, &ledger);
	assert_int_equal(ledger.cpus, 1);
	set_online('1');
	run_for(kernel, 2500, &seen);
	kernel_ledger_get(kernel, &ledger);
	assert_int_equal(ledger.cpus, 2);
	assert_true(seen.cpu_samples[1] > before + 30);
	set_online('0');
	set_online('1');
	run_for(kernel, 1500, &seen);
	before = seen.cpu_samples[1];
	run_for(kernel, 1500, &seen);
	assert_true(seen.cpu_samples[1] > before + 30);
	kernel_stop(kernel);
	kernel_poll(kernel, true, look, &seen);
	spin_end(pids[0]);
	spin_end(pids[1]);
	check_exact(kernel, &seen, &ledger);
	show("hotplug", &ledger);
	assert_true(seen.losses >= 2);
	kernel_close(kernel);
}

static void kernel_live__doctor__finds_no_blocker(void **state)
{
	struct kernel_check checks[KERNEL_CHECKS_MAX];
	size_t count = kernel_doctor(checks);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		printf("%d %-22s %s\n", checks[i].level, checks[i].name, checks[i].text);
		assert_true(checks[i].text[0]);
		assert_true(checks[i].level < 3);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_live__doctor__finds_no_blocker),
		cmocka_unit_test(kernel_live__spinner__is_sampled_with_its_chain),
		cmocka_unit_test(kernel_live__full_ring__degrades_then_drops_then_adds_up),
		cmocka_unit_test(kernel_live__full_ring__pressed_from_the_watermark_on),
		cmocka_unit_test(kernel_live__pace__weights_are_the_time_used),
		cmocka_unit_test(kernel_live__suppressed__counted_with_its_time),
		cmocka_unit_test(kernel_live__cpu_budget__dropped_as_suppressed),
		cmocka_unit_test(kernel_live__full_ring__has_room_for_execs),
		cmocka_unit_test(kernel_live__tasks__only_they_and_their_children),
		cmocka_unit_test(kernel_live__tasks__a_thread_that_executes_is_followed),
		cmocka_unit_test(kernel_live__cgroup__only_its_tasks),
		cmocka_unit_test(kernel_live__noisy_cgroup__leaves_room_to_others),
		cmocka_unit_test(kernel_live__sideband__says_what_processes_do),
		cmocka_unit_test(kernel_live__no_capabilities__one_sentence),
	};

	const struct CMUnitTest hotplug[] = {
		cmocka_unit_test(kernel_live__hotplug__cpus_are_followed),
	};

	if (argc > 1) {
		spin_outermost((unsigned int)strtoul(argv[1], NULL, 10));
		return 0;
	}
	if (geteuid()) {
		fprintf(stderr, "kernel_live: loads BPF programs, so run it as root.\n");
		return 1;
	}
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) {
		personality(ADDR_NO_RANDOMIZE);
		execv("/proc/self/exe", argv);
	}
	if (getenv("FLYBALL_TEST_HOTPLUG"))
		return cmocka_run_group_tests(hotplug, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
