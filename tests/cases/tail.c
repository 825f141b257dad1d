/* SPDX-License-Identifier: Apache-2.0 */
volatile unsigned long s;
__attribute__((noinline)) void leaf(void)
{
	for (;;)
		s += s * 3 + 1;
}
__attribute__((noinline)) void tailer(int n)
{
	s += n;
	leaf();
} /* -O2: jmp leaf */
__attribute__((noinline)) int normal(int n)
{
	tailer(n);
	return n + 1;
}
int main(int c, char **v)
{
	return normal(c);
}
