// SPDX-License-Identifier: Apache-2.0
/*
 * calibrate: the cost of a tick, by pairs of equal work with and without the event.
 *
 * The event runs a program that does nothing but count, as ours do before anything else: the path
 * through the kernel is then the one that sampling takes. Pairs in which somebody else had the CPU
 * are thrown away; the order within pairs alternates, so that drift cancels. Rounds tell how much
 * the figure itself moves.
 */
#include "kernel/kernel_calibrate.h"
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS	  100000ULL
#define WORK_NS		  1000000ULL
#define PAUSE_NS	  300000L /* others get the CPU, and we get it whole */
#define PAIRS_MAX	  60
#define PAIRS_LEAST	  12
#define PAIRS_SPARE	  4 /* some will be thrown away */
#define TIME_NS		  200000000ULL
#define TIME_MAX_NS	  1000000000ULL /* on a busy CPU, for the fewest pairs that do */
#define ROUNDS		  3
#define ROUNDS_LEAST	  2
#define ATTEMPTS	  6 /* at rounds */
#define LOOKS		  8
#define LOOKS_FIRST	  1000
#define LOOK_NS		  4000
#define DISTURBED_PERCENT 25
#define SLOW_MOST_PERCENT 20
#define WIDEST_PERCENT	  30
#define CHILD_MS	  6000

/* What parent and child share. */
struct shared {
	double costs_ns[PAIRS_MAX];
	uint64_t without_ns[PAIRS_MAX];
	uint32_t count, thrown_away;
};
struct setup {
	uint32_t cpu;
	int map_fd, prog_fd;
	volatile uint64_t *ticks; /* the map's one element */
	struct kernel_clock_cpu clock;
	struct shared *shared;
};

/* ---------------------------------------------------------------- the child */

static void work(uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++)
		__asm__ volatile("" ::: "memory");
}

static uint64_t involuntary_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)usage.ru_nivcsw;
}

/* CPU time: what others run in between is not in it, interrupts are. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t time_work(uint64_t rounds)
{
	uint64_t start = cpu_ns();

	work(rounds);
	return cpu_ns() - start;
}

/* The least of many short looks, most of which find no interrupt. */
static uint64_t least_of(uint64_t rounds, int looks)
{
	uint64_t least = UINT64_MAX, took;

	for (int i = 0; i < looks; i++) {
		took = time_work(rounds);
		least = took < least ? took : least;
	}
	return least;
}

/* Rounds that take so long when nothing disturbs them. */
static uint64_t rounds_for(uint64_t ns)
{
	uint64_t rounds = 1000;

	while (least_of(rounds, LOOKS) < LOOK_NS)
		rounds *= 2;
	return rounds * ns / least_of(rounds, LOOKS_FIRST);
}

static uint64_t time_ticking(struct setup *s, uint64_t rounds, uint64_t *ret_ticks)
{
	uint64_t ticks = *s->ticks, took;

	kernel_clock_enable(&s->clock);
	took = time_work(rounds);
	kernel_clock_disable(&s->clock);
	*ret_ticks = *s->ticks - ticks;
	return took;
}

static void measure_pair(struct setup *s, uint64_t rounds, bool is_ticking_first)
{
	uint64_t switches = involuntary_switches(), ticks, with, without = 0;
	struct shared *out = s->shared;

	if (!is_ticking_first)
		without = time_work(rounds);
	with = time_ticking(s, rounds, &ticks);
	if (is_ticking_first)
		without = time_work(rounds);
	if (involuntary_switches() != switches || ticks < WORK_NS / PERIOD_NS / 2) {
		out->thrown_away++;
		return;
	}
	out->without_ns[out->count] = without;
	out->costs_ns[out->count++] = ((double)with - (double)without) / (double)ticks;
}

/* Runs in the child, on its CPU, and never returns. */
static void measure(struct setup *s, pid_t parent)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t start = clock_monotonic_ns(), rounds, took = 0;
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&set);
	CPU_SET(s->cpu, &set);
	if (getppid() != parent || sched_setaffinity(0, sizeof(set), &set))
		_exit(1);
	rounds = rounds_for(WORK_NS);
	for (bool turn = false; s->shared->count < PAIRS_MAX && took < TIME_MAX_NS; turn = !turn) {
		took = clock_monotonic_ns() - start;
		if (took > TIME_NS && s->shared->count >= PAIRS_LEAST + PAIRS_SPARE)
			break;
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		measure_pair(s, rounds, turn);
	}
	_exit(0);
}

/* ---------------------------------------------------------------- the parent */

/* r1 = the element; lock *r1 += 1; return 0. */
static int load_counter(int map_fd)
{
	const struct bpf_insn program[] = {
		{.code = BPF_LD | BPF_DW | BPF_IMM,
		 .dst_reg = BPF_REG_1,
		 .src_reg = BPF_PSEUDO_MAP_VALUE,
		 .imm = map_fd},
		{0},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .imm = 1},
		{.code = BPF_STX | BPF_DW | BPF_ATOMIC,
		 .dst_reg = BPF_REG_1,
		 .src_reg = BPF_REG_2,
		 .imm = BPF_ADD},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};

	return bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "fly_calibrate", "GPL", program,
			     ARRAY_SIZE(program), NULL);
}

/* Idle time of each CPU, in the kernel's units. */
static void read_idle(uint64_t *idle, uint32_t cpus)
{
	static char text[1 << 18];
	unsigned long long user, nice, system, idle_now;
	unsigned int cpu;

	if (kernel_read_text("/proc/stat", text, sizeof(text)) <= 0)
		return;
	for (char *line = text, *next; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (sscanf(line, "cpu%u %llu %llu %llu %llu", &cpu, &user, &nice, &system,
			   &idle_now) == 5 &&
		    cpu < cpus)
			idle[cpu] = idle_now;
	}
}

/* The CPU with most idle time of late, of those we may use and nobody has set aside. */
static int choose_cpu(uint32_t *ret, struct why *why)
{
	const struct timespec pause = {.tv_nsec = 60000000};
	struct kernel_cpus online, isolated = {0}, full = {0};
	uint64_t before[CPU_SETSIZE] = {0}, after[CPU_SETSIZE] = {0};
	int err = kernel_cpus_read("online", &online, why), found = -1;
	cpu_set_t allowed;

	if (err)
		return err;
	kernel_cpus_read("isolated", &isolated, NULL);
	kernel_cpus_read("nohz_full", &full, NULL);
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return why_set(why, -EIO, "the CPUs allowed to flyball cannot be read: %s",
			       strerror(errno));
	read_idle(before, CPU_SETSIZE);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	read_idle(after, CPU_SETSIZE);
	for (uint32_t cpu = 0; cpu < online.limit && cpu < CPU_SETSIZE; cpu++) {
		if (!kernel_cpus_has(&online, cpu) || kernel_cpus_has(&isolated, cpu) ||
		    kernel_cpus_has(&full, cpu) || !CPU_ISSET(cpu, &allowed))
			continue;
		if (found < 0 || after[cpu] - before[cpu] > after[found] - before[found])
			found = (int)cpu;
	}
	if (found < 0)
		return why_set(why, -EOPNOTSUPP, "no CPU is left to measure on");
	*ret = (uint32_t)found;
	return 0;
}

static int open_setup(struct setup *s, struct why *why)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
	int err = choose_cpu(&s->cpu, why);

	if (err)
		return err;
	s->shared = mmap(NULL, sizeof(*s->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->shared == MAP_FAILED) {
		s->shared = NULL;
		return why_set(why, -ENOMEM, "out of memory");
	}
	s->map_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "fly_calibrate", sizeof(uint32_t),
				   sizeof(uint64_t), 1, &options);
	if (s->map_fd < 0)
		return why_set(why, s->map_fd, "a BPF map cannot be made: %s",
			       strerror(-s->map_fd));
	s->ticks = mmap(NULL, sizeof(uint64_t), PROT_READ, MAP_SHARED, s->map_fd, 0);
	if (s->ticks == MAP_FAILED) {
		s->ticks = NULL;
		return why_set(why, -EIO, "a BPF map cannot be read: %s", strerror(errno));
	}
	s->prog_fd = load_counter(s->map_fd);
	if (s->prog_fd < 0)
		return why_set(why, s->prog_fd, "a BPF program cannot be loaded: %s",
			       strerror(-s->prog_fd));
	return kernel_clock_open(&s->clock, s->cpu, PERIOD_NS, s->prog_fd, why);
}

static void close_setup(struct setup *s)
{
	uint64_t total = 0;

	kernel_clock_close(&s->clock, &total);
	if (s->prog_fd >= 0)
		close(s->prog_fd);
	if (s->ticks)
		munmap((void *)s->ticks, sizeof(uint64_t));
	if (s->map_fd >= 0)
		close(s->map_fd);
	if (s->shared)
		munmap(s->shared, sizeof(*s->shared));
}

/* True: it ended by itself, and well. */
static bool wait_child(pid_t pid)
{
	int status, fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	bool is_over = fd >= 0 && poll(&poll_fd, 1, CHILD_MS) == 1;

	if (!is_over)
		kill(pid, SIGKILL);
	if (fd >= 0)
		close(fd);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return false;
	}
	return is_over && WIFEXITED(status) && !WEXITSTATUS(status);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static uint64_t whole_ns(double ns)
{
	return ns > 0 ? (uint64_t)(ns + 0.5) : 0;
}

void kernel_calibration_median(double *values, size_t count, struct kernel_calibration *ret)
{
	/* Ranks of the interval: n/2 -+ 0.98 * sqrt(n). */
	size_t root = 1, low, high;

	qsort(values, count, sizeof(*values), by_value);
	while ((root + 1) * (root + 1) <= count)
		root++;
	low = count / 2 > root ? count / 2 - root : 0;
	high = count / 2 + root < count ? count / 2 + root : count - 1;
	ret->tick_ns = whole_ns((values[(count - 1) / 2] + values[count / 2]) / 2);
	ret->low_ns = whole_ns(values[low]);
	ret->high_ns = whole_ns(values[high]);
	ret->pairs = (uint32_t)count;
}

static int by_tick(const void *a, const void *b)
{
	const struct kernel_calibration *x = a, *y = b;

	return x->tick_ns < y->tick_ns ? -1 : x->tick_ns > y->tick_ns;
}

void kernel_calibration_merge(const struct kernel_calibration *rounds, size_t count,
			      struct kernel_calibration *ret)
{
	struct kernel_calibration sorted[ROUNDS] = {0};

	count = count < ROUNDS ? count : ROUNDS;
	memcpy(sorted, rounds, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_tick);
	*ret = sorted[count / 2]; /* of two the dearer */
	ret->seen_low_ns = sorted[0].tick_ns;
	ret->seen_high_ns = sorted[count - 1].tick_ns;
	ret->pairs = 0;
	for (size_t i = 0; i < count; i++) {
		ret->low_ns = sorted[i].low_ns < ret->low_ns ? sorted[i].low_ns : ret->low_ns;
		ret->high_ns = sorted[i].high_ns > ret->high_ns ? sorted[i].high_ns : ret->high_ns;
		ret->pairs += sorted[i].pairs;
	}
}

void kernel_calibration_remember(const struct kernel_calibration *before,
				 struct kernel_calibration *c)
{
	if (strcmp(before->machine, c->machine))
		return;
	if (before->seen_low_ns < c->seen_low_ns)
		c->seen_low_ns = before->seen_low_ns;
	if (before->seen_high_ns > c->seen_high_ns)
		c->seen_high_ns = before->seen_high_ns;
}

bool kernel_calibration_is_trusted(const struct kernel_calibration *c)
{
	return (c->seen_high_ns - c->seen_low_ns) * 3 <= c->tick_ns;
}

uint64_t kernel_calibration_planned_ns(const struct kernel_calibration *c)
{
	return kernel_calibration_is_trusted(c) ? c->tick_ns : c->seen_high_ns;
}

uint32_t kernel_calibration_keep(double *costs_ns, const uint64_t *without_ns, uint32_t count,
				 uint64_t work_ns)
{
	uint64_t most = work_ns + work_ns * DISTURBED_PERCENT / 100;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (without_ns[i] <= most)
			costs_ns[kept++] = costs_ns[i];
	}
	/* Where much is disturbed, the rest has its share of it. */
	return (count - kept) * 100 <= count * SLOW_MOST_PERCENT ? kept : 0;
}

static int run_child(struct setup *s, struct kernel_calibration *ret, struct why *why)
{
	pid_t parent = getpid(), pid = fork();
	uint32_t kept;

	if (pid < 0)
		return why_set(why, -errno, "fork: %s", strerror(errno));
	if (!pid)
		measure(s, parent);
	if (!wait_child(pid))
		return why_set(why, -EIO, "the measuring process did not end as it should");
	if (s->shared->count > PAIRS_MAX)
		return why_set(why, -EIO, "the measuring process gave nonsense");
	kept = kernel_calibration_keep(s->shared->costs_ns, s->shared->without_ns, s->shared->count,
				       WORK_NS);
	if (kept < PAIRS_LEAST)
		return why_set(why, -EBUSY,
			       "CPU %u is too busy to measure on: %u pairs of measurements were "
			       "disturbed; try again when less runs, and no other profiler",
			       s->cpu, s->shared->thrown_away + s->shared->count - kept);
	kernel_calibration_median(s->shared->costs_ns, kept, ret);
	if (!ret->tick_ns || ret->high_ns - ret->low_ns > ret->tick_ns * WIDEST_PERCENT / 100)
		return why_set(why, -EBUSY,
			       "the cost of a tick was between %" PRIu64 " and %" PRIu64
			       " ns, too wide to be of use; try again when less runs, and no other "
			       "profiler",
			       ret->low_ns, ret->high_ns);
	return 0;
}

static int one_round(struct kernel_calibration *ret, struct why *why)
{
	struct setup s = {.map_fd = -1, .prog_fd = -1, .clock = {.fd = -1, .link_fd = -1}};
	int err = open_setup(&s, why);

	/* Without error both are there; said for the analyzer. */
	if (!err && s.shared && s.ticks)
		err = run_child(&s, ret, why);
	ret->cpu = s.cpu;
	close_setup(&s);
	return err;
}

int kernel_calibrate(struct kernel_calibration *ret, struct why *why)
{
	struct kernel_calibration rounds[ROUNDS] = {0}, c;
	size_t count = 0;
	int err = 0;

	/* Noise passes; another profiler's interrupts may not, since they take part of ours along.
	 */
	for (int i = 0; i < ATTEMPTS && count < ROUNDS && (!err || err == -EBUSY); i++) {
		err = one_round(&rounds[count], why);
		count += !err;
	}
	if (count < ROUNDS_LEAST)
		return err ? err
			   : why_set(why, -EBUSY,
				     "CPU %u was too busy to measure on for most of the time",
				     rounds[0].cpu);
	if (why)
		why->text[0] = '\0'; /* of a round that failed */
	kernel_calibration_merge(rounds, count, &c);
	c.measured_s = clock_realtime_ns() / 1000000000;
	kernel_calibration_machine(c.machine, sizeof(c.machine));
	*ret = c;
	return 0;
}
