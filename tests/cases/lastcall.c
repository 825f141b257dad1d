/* SPDX-License-Identifier: Apache-2.0 */
/* the call to spin() is the last instruction of caller(): its return address is outside caller's
 * FDE */
#include <unistd.h>
volatile unsigned long s;
__attribute__((noreturn, noinline)) void spin(void)
{
	for (;;)
		s += s * 3 + 1;
}
__attribute__((noinline)) void caller(void)
{
	char b[40];
	__asm__ volatile("" ::"r"(b) : "memory");
	spin();
}
__attribute__((noinline)) void decoy(void)
{
	char b[400];
	__asm__ volatile("" ::"r"(b) : "memory");
	s++;
	__asm__ volatile("" ::"r"(b) : "memory");
}
int main(void)
{
	if (getpid() == 1)
		decoy();
	caller();
}
