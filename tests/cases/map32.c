/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>
volatile unsigned long s;
__attribute__((noinline)) void spin(void)
{
	for (;;)
		s += s * 3 + 1;
}
int main(int c, char **v)
{
	for (int i = 1; i < c; i++)
		mmap(0, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(v[i], O_RDONLY), 0);
	spin();
}
