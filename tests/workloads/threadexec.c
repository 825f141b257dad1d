/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threadexec: a thread that is not the leader becomes PROGRAM. The kernel then gives it the
 * leader's id, and its own is gone.
 *
 *   threadexec PROGRAM ARGS...
 */
#include <pthread.h>

#include "workload.h"

static void *become(void *argv)
{
	execv(*(char **)argv, argv);
	must(0, "execv");
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (argc < 2)
		return 2;
	must(!pthread_create(&t, NULL, become, argv + 1), "pthread_create");
	pthread_join(t, NULL);
	return 1;
}
