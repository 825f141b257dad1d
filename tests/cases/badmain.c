/* SPDX-License-Identifier: Apache-2.0 */
void badcfi(void), nocfi(void), zerosz(void);
__attribute__((noinline)) void outer(int c)
{
	if (c == 1)
		badcfi();
	else if (c == 2)
		nocfi();
	else
		zerosz();
	__asm__("");
}
int main(int c, char **v)
{
	outer(c);
}
