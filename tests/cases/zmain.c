/* SPDX-License-Identifier: Apache-2.0 */
void real_fn(void);
__attribute__((noinline)) void outer(void)
{
	real_fn();
	__asm__("");
}
int main(void)
{
	outer();
}
