/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
volatile unsigned long s;
__attribute__((noinline)) void brief_work(long n)
{
	while (n--)
		s += s * 3 + 1;
}
int main(int c, char **v)
{
	brief_work(atol(v[1]));
	return 0;
}
