/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner: starts short programs, at most JOBS at a time, and says what they cost.
 *
 *   runner [-j JOBS] [-n RUNS] PROGRAM... [-- ARGS...]
 *
 * Runs PROGRAMs in turn until RUNS (default: one each) were started. One JSON object at the end:
 * how many ran and failed, the sum of their rusage (wait4), and each one's pid.
 */
#include <spawn.h>
#include <sys/wait.h>

#include "workload.h"

#define RUNS_MAX 20000

extern char **environ;

static struct {
	int pids[RUNS_MAX];
	unsigned long started, ended, failed;
	uint64_t user_ns, system_ns;
} total;

static void reap(void)
{
	struct rusage r;
	int status;
	pid_t pid = wait4(-1, &status, 0, &r);

	must(pid > 0, "wait4");
	total.ended++;
	total.failed += !WIFEXITED(status) || WEXITSTATUS(status);
	total.user_ns += timeval_ns(r.ru_utime);
	total.system_ns += timeval_ns(r.ru_stime);
}

static void start(char *program, char **args, int arg_count)
{
	char *argv[16] = {program};
	pid_t pid;

	for (int i = 0; i < arg_count && i < 14; i++)
		argv[1 + i] = args[i];
	errno = posix_spawn(&pid, program, NULL, NULL, argv, environ);
	must(!errno, program);
	total.pids[total.started++] = pid;
}

int main(int argc, char **argv)
{
	unsigned long jobs = 1, runs = 0;
	int first, last, arg_count = 0, c;

	while ((c = getopt(argc, argv, "+j:n:")) != -1) {
		if (c == 'j')
			jobs = number(optarg);
		else if (c == 'n')
			runs = number(optarg);
		else
			return 2;
	}
	first = last = optind;
	while (last < argc && strcmp(argv[last], "--"))
		last++;
	if (last < argc)
		arg_count = argc - last - 1;
	if (first == last) {
		fprintf(stderr, "usage: runner [-j JOBS] [-n RUNS] PROGRAM... [-- ARGS...]\n");
		return 2;
	}
	if (!runs)
		runs = (unsigned long)(last - first);
	if (runs > RUNS_MAX)
		runs = RUNS_MAX;
	while (total.started < runs) {
		unsigned long which = total.started % (unsigned long)(last - first);

		start(argv[first + (int)which], argv + last + 1, arg_count);
		if (total.started - total.ended >= jobs)
			reap();
	}
	while (total.ended < total.started)
		reap();
	printf("{\"runs\": %lu, \"failed\": %lu, \"user_ns\": %llu, \"system_ns\": %llu, "
	       "\"pids\": [",
	       total.ended, total.failed, (unsigned long long)total.user_ns,
	       (unsigned long long)total.system_ns);
	for (unsigned long i = 0; i < total.started; i++)
		printf("%s%d", i ? ", " : "", total.pids[i]);
	printf("]}\n");
	return 0;
}
