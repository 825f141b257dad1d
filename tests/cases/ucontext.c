/* SPDX-License-Identifier: Apache-2.0 */
#include <ucontext.h>
#include <stdlib.h>
volatile unsigned long s;
static ucontext_t m, f;
__attribute__((noinline)) void spin(void)
{
	for (;;)
		s += s * 3 + 1;
}
static void fiber(void)
{
	spin();
}
__attribute__((noinline)) void caller(void)
{
	swapcontext(&m, &f);
	s++;
}
int main(void)
{
	getcontext(&f);
	f.uc_stack.ss_sp = malloc(1 << 16);
	f.uc_stack.ss_size = 1 << 16;
	f.uc_link = &m;
	makecontext(&f, fiber, 0);
	caller();
}
