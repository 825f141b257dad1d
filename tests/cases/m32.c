/* SPDX-License-Identifier: Apache-2.0 */
volatile unsigned s;
void spin(void)
{
	for (;;)
		s += s * 3 + 1;
}
void mid(void)
{
	spin();
	s++;
}
void _start(void)
{
	mid();
	for (;;)
		;
}
