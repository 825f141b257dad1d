/* SPDX-License-Identifier: Apache-2.0 */
volatile unsigned long s;
__attribute__((noinline)) int tiny(int a)
{
	register int b = a;
	__asm__ volatile("" : "+r"(b)::"rbx", "r12", "r13", "r14", "r15");
	return b + 1;
}
__attribute__((noinline)) void A(void)
{
	for (;;)
		s += tiny(3);
}
int main(void)
{
	A();
}
