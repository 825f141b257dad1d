/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <time.h>
int main(void)
{
	struct timespec t;
	volatile long x = 0;
	for (;;) {
		for (int i = 0; i < 100; i++)
			x += strlen("abc\0" + (x & 1));
		clock_gettime(CLOCK_MONOTONIC, &t);
	}
}
