/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaderexit: the thread that is the process ends at once; its two threads burn for SECONDS of
 * CPU time each and open a mapping after the leader is gone (a second thread group leader in
 * /proc is then a zombie whose maps are empty to read). Prints its rusage as JSON.
 */
#include <pthread.h>

#include "workload.h"

static uint64_t cpu_ns;
static int running = 2;

NOINLINE uint64_t orphan_work(uint64_t until_ns)
{
	uint64_t s = 1;

	while (thread_cpu_ns() < until_ns)
		for (int i = 0; i < 100000; i++) {
			s = s * 3 + 1;
			KEPT(s);
		}
	return s;
}

static void *run(void *arg)
{
	struct timespec t = {0, 20 * (long)MS};
	uint64_t s;

	(void)arg;
	nanosleep(&t, NULL); /* the leader is gone by now */
	s = orphan_work(cpu_ns);
	KEPT(s);
	if (__atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST) == 0) {
		printf("{\"pid\": %d, ", getpid());
		print_rusage("self", RUSAGE_SELF);
		printf("}\n");
		exit(0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (argc != 2)
		return 2;
	cpu_ns = seconds_ns(argv[1]);
	for (int i = 0; i < 2; i++)
		must(!pthread_create(&t, NULL, run, NULL), "pthread_create");
	pthread_exit(NULL);
}
