/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <signal.h>
#include <unistd.h>
#include <sys/syscall.h>
volatile unsigned long s;
void myrestore(void);
__asm__(".text\n.globl myrestore\n.type myrestore,@function\nmyrestore: movq $15,%rax\n "
	"syscall\n.size myrestore,.-myrestore\n");
struct ks {
	void *h;
	unsigned long fl;
	void *r;
	unsigned long m;
};
__attribute__((noinline)) void spin(void)
{
	for (;;)
		s += s * 3 + 1;
}
static void handler(int n)
{
	spin();
}
__attribute__((noinline)) void outer(void)
{
	kill(getpid(), SIGUSR1);
	s++;
}
int main(void)
{
	struct ks k = {handler, 0x04000000, myrestore, 0};
	syscall(SYS_rt_sigaction, SIGUSR1, &k, 0, 8);
	outer();
	return 0;
}
