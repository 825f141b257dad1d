/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>
#include <stdlib.h>
#include <sys/wait.h>
__attribute__((noinline)) static int spawn_one(const char *p)
{
	pid_t c = vfork();
	if (!c) {
		execl(p, p, "1000", (char *)0);
		_exit(1);
	}
	int s;
	waitpid(c, &s, 0);
	return s;
}
__attribute__((noinline)) static int spawn_loop(const char *p)
{
	int n = 0;
	for (;;)
		n += spawn_one(p);
	return n;
}
int main(int c, char **v)
{
	return spawn_loop(v[1]);
}
