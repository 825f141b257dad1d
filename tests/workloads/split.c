/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split: three functions that share CPU time 60/30/10, by the thread's own CPU clock.
 *
 *   split [-t | -p] SECONDS      one thread; -t a second thread, -p a child process, with the
 *                                mirror image 10/30/60
 *   split -s POINTS SECONDS      one thread; POINTS of the hundred go from the second function to
 *                                the third
 *
 * SECONDS is wall-clock; SIGTERM and SIGINT end it sooner. Each burst (0.3 to 2.3 ms, drawn at
 * random) goes to the function that is furthest behind its share, so the split holds whatever
 * the machine does. At the end one JSON object says what each worker spent where.
 */
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "workload.h"

#define FUNCTIONS 3

struct worker {
	const char *name;
	unsigned int share[FUNCTIONS]; /* percent */
	int must_rename;
	uint64_t spent_ns[FUNCTIONS];
	uint64_t cpu_ns;
	int pid, tid;
};

static volatile sig_atomic_t stop;
static uint64_t end_ns, iterations_per_ms = 1;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

/* Three bodies that differ, so that no linker folds them into one. The volatile keeps a frame: gcc
 * leaves it out of functions that touch no stack, whatever -mno-omit-leaf-frame-pointer says. */
NOINLINE uint64_t work_a(uint64_t n)
{
	volatile uint64_t begin = 1;
	uint64_t s = begin;

	while (n--) {
		s = s * 3 + 1;
		KEPT(s);
	}
	return s;
}

NOINLINE uint64_t work_b(uint64_t n)
{
	volatile uint64_t begin = 2;
	uint64_t s = begin;

	while (n--) {
		s = s * 5 + 7;
		KEPT(s);
	}
	return s;
}

NOINLINE uint64_t work_c(uint64_t n)
{
	volatile uint64_t begin = 3;
	uint64_t s = begin;

	while (n--) {
		s = s * 9 + 5;
		KEPT(s);
	}
	return s;
}

static const char *const names[FUNCTIONS] = {"work_a", "work_b", "work_c"};

/* The caller of the three: a frame that a complete stack must show. */
NOINLINE uint64_t burst(int which, uint64_t n)
{
	uint64_t s = which == 0 ? work_a(n) : which == 1 ? work_b(n) : work_c(n);

	KEPT(s);
	return s;
}

static int furthest_behind(const struct worker *w)
{
	int best = 0;

	for (int i = 1; i < FUNCTIONS; i++)
		if (w->spent_ns[i] * w->share[best] < w->spent_ns[best] * w->share[i])
			best = i;
	return best;
}

NOINLINE void work(struct worker *w)
{
	uint64_t seed = 88172645463325252ull + (uint64_t)w->share[0], begin, now;

	w->pid = getpid();
	w->tid = (int)syscall(SYS_gettid);
	if (w->must_rename)
		prctl(PR_SET_NAME, w->name);
	begin = thread_cpu_ns();
	while (!stop && wall_ns() < end_ns) {
		int i = furthest_behind(w);
		uint64_t us = 300 + dice(&seed) % 2000;

		burst(i, iterations_per_ms * us / 1000);
		now = thread_cpu_ns();
		w->spent_ns[i] += now - begin;
		begin = now;
	}
	w->cpu_ns = thread_cpu_ns();
}

static void *work_thread(void *w)
{
	work(w);
	return NULL;
}

static void calibrate(void)
{
	const uint64_t n = 1000000;
	uint64_t begin = thread_cpu_ns(), ns;

	burst(0, n);
	ns = thread_cpu_ns() - begin;
	iterations_per_ms = n * MS / (ns ? ns : 1) + 1;
}

static void print_worker(const struct worker *w)
{
	printf("{\"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"cpu_ns\": %llu", w->name, w->pid,
	       w->tid, (unsigned long long)w->cpu_ns);
	for (int i = 0; i < FUNCTIONS; i++)
		printf(", \"%s\": %llu", names[i], (unsigned long long)w->spent_ns[i]);
	printf("}");
}

static void run_child(struct worker *second, int fd)
{
	work(second);
	must(write(fd, second, sizeof(*second)) == sizeof(*second), "write");
	_exit(0);
}

int main(int argc, char **argv)
{
	struct worker first = {.name = "split-one", .share = {60, 30, 10}};
	struct worker second = {.name = "split-two", .share = {10, 30, 60}, .must_rename = 1};
	int with_thread = argc > 2 && !strcmp(argv[1], "-t");
	int with_child = argc > 2 && !strcmp(argv[1], "-p");
	pthread_t thread;
	int with_shift = argc > 3 && !strcmp(argv[1], "-s");
	int fds[2] = {-1, -1};

	if (argc != 2 + (with_thread || with_child) + 2 * with_shift) {
		fprintf(stderr, "usage: split [-t | -p | -s POINTS] SECONDS\n");
		return 2;
	}
	if (with_shift) {
		unsigned int points = (unsigned int)strtoul(argv[2], NULL, 10) % 30;

		first.share[1] -= points;
		first.share[2] += points;
	}
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	calibrate();
	end_ns = wall_ns() + seconds_ns(argv[argc - 1]);
	if (with_thread)
		must(!pthread_create(&thread, NULL, work_thread, &second), "pthread_create");
	if (with_child) {
		pid_t child;

		must(!pipe(fds), "pipe");
		child = fork();
		must(child >= 0, "fork");
		if (child == 0)
			run_child(&second, fds[1]);
	}
	work(&first);
	if (with_thread)
		must(!pthread_join(thread, NULL), "pthread_join");
	if (with_child) {
		must(read(fds[0], &second, sizeof(second)) == sizeof(second), "read");
		wait(NULL);
	}
	printf("{\"workers\": [");
	print_worker(&first);
	if (with_thread || with_child) {
		printf(", ");
		print_worker(&second);
	}
	printf("], ");
	print_rusage("self", RUSAGE_SELF);
	printf(", ");
	print_rusage("children", RUSAGE_CHILDREN);
	printf("}\n");
	return 0;
}
