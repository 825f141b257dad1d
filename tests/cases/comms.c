/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>
volatile unsigned long s;
__attribute__((noinline)) void spin(void)
{
	for (;;)
		s += s * 3 + 1;
}
static const char *n[] = {"a b",	  "a;b 12",    "caf\xc3",	"\xff\xfe\x80",
			  "</title>\"'&", "new\nline", "[kworker/0:1]", ""};
static void *th(void *a)
{
	prctl(PR_SET_NAME, a);
	spin();
	return 0;
}
int main(void)
{
	pthread_t t;
	for (int i = 0; i < 8; i++)
		pthread_create(&t, 0, th, (void *)n[i]);
	sleep(600);
}
