/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
static void *th(void *a)
{
	char n[16];
	snprintf(n, 16, "w%ld", (long)a);
	prctl(PR_SET_NAME, n);
	for (volatile long i = 0; i < 20000; i++)
		;
	for (;;)
		sleep(5);
}
int main(int c, char **v)
{
	int i, n = atoi(v[1]);
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 16384);
	for (i = 0; i < n; i++) {
		pthread_t t;
		if (pthread_create(&t, &a, th, (void *)(long)i))
			break;
	}
	fprintf(stderr, "%d threads\n", i);
	sleep(atoi(v[2]));
	_exit(0);
}
