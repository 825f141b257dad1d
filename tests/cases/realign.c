/* SPDX-License-Identifier: Apache-2.0 */
#include <alloca.h>
volatile unsigned long s;
__attribute__((noinline)) void hot(void)
{
	for (;;)
		s += s * 3 + 1;
}
__attribute__((noinline)) long mid(long a, long b, long c, long d, long e, long f, long g, long h)
{
	_Alignas(64) volatile char w[128];
	char *p = alloca(g + h);
	w[a] = 1;
	p[0] = w[b];
	s += p[0] + g + h;
	hot();
	return s + w[a];
}
__attribute__((noinline)) long outer(int n)
{
	long r = mid(n, n, 1, 2, 3, 4, 200 * n, 8);
	return r + 1;
}
int main(int c, char **v)
{
	return outer(c);
}
