/* SPDX-License-Identifier: Apache-2.0 */
/* SIGILL arrives exactly on the first instruction of trap_here(); handler spins */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
volatile unsigned long s;
void trap_here(void);
__asm__(".text\n.globl before\n.type before,@function\nbefore: .cfi_startproc\n sub $0x88,%rsp\n "
	".cfi_def_cfa_offset 0x90\n nop\n hlt\n.cfi_endproc\n.size before,.-before\n"
	".globl trap_here\n.type trap_here,@function\ntrap_here: .cfi_startproc\n ud2\n "
	"ret\n.cfi_endproc\n.size trap_here,.-trap_here\n");
__attribute__((noinline)) void spin(void)
{
	for (;;)
		s += s * 3 + 1;
}
void handler(int n)
{
	spin();
}
__attribute__((noinline)) void outer(void)
{
	trap_here();
	s++;
}
int main(int c, char **v)
{
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_handler = handler;
	static char alt[1 << 16];
	stack_t st = {.ss_sp = alt, .ss_size = sizeof alt};
	if (c > 1) {
		sigaltstack(&st, 0);
		a.sa_flags = SA_ONSTACK;
	}
	sigaction(SIGILL, &a, 0);
	outer();
	return 0;
}
