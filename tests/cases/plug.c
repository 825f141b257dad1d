/* SPDX-License-Identifier: Apache-2.0 */
volatile unsigned long s;
#ifdef DECOY
void decoy(long n)
{
	for (long i = 0; i < n; i++)
		__asm__ volatile(".skip 4096, 0x90");
}
#endif
void NAME(long n)
{
	for (long i = 0; i < n; i++)
		s += s * 3 + 1;
}
