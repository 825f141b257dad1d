/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
volatile unsigned long s;
__attribute__((noinline)) void leaf_spin(void)
{
	for (;;)
		s += s * 3 + 1;
}
__attribute__((noinline)) void rec(int n)
{
	if (n)
		rec(n - 1);
	else
		leaf_spin();
	s++;
}
int main(int c, char **v)
{
	rec(atoi(v[1]));
	return 0;
}
