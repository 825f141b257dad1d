/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
#include <pthread.h>
#include <time.h>
volatile unsigned long s;
__attribute__((noinline)) void child_work(long n)
{
	while (n--)
		s += s * 3 + 1;
}
static void *th(void *a)
{
	child_work(20000);
	return 0;
}
int main(int c, char **v)
{
	int secs = atoi(v[1]);
	time_t e;
	long n = 0;
	int stride = 0;
	pid_t last = 0, wrap = 0;
	for (e = time(0) + secs; time(0) < e;) {
		pid_t p = fork();
		if (!p) {
			child_work(20000);
			_exit(0);
		}
		if (p < last)
			wrap++;
		last = p;
		waitpid(p, 0, 0);
		n++;
	}
	printf("fork+exit %.0f/s, pid wrapped %d times\n", (double)n / secs, wrap);
	for (n = 0, e = time(0) + secs; time(0) < e; n++) {
		pthread_t t;
		pthread_create(&t, 0, th, 0);
		pthread_join(t, 0);
	}
	printf("threads %.0f/s\n", (double)n / secs);
}
