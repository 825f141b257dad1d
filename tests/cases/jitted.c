/* SPDX-License-Identifier: Apache-2.0 */
/* jit.c: emits `n` tiny loop functions with a frame pointer into one anonymous page, writes the map
   itself. usage: jit MAPFILE  ; each function is called in turn; "recompile" after 3 s puts
   function B at A's address */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <stdio.h>
#include <string.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
static const unsigned char code[] = {
	0x55, 0x48, 0x89, 0xe5, 0x48, 0xff,
	0xcf, 0x75, 0xfb, 0x5d, 0xc3}; /* push rbp; mov rbp,rsp; L: dec rdi; jnz L; pop rbp; ret */
typedef void (*fn)(long);
__attribute__((noinline)) static void run(fn f, int secs)
{
	time_t e = time(0) + secs;
	while (time(0) < e)
		f(50000000);
}
int main(int c, char **v)
{
	char path[64];
	snprintf(path, 64, "/tmp/perf-%d.map", getpid());
	unsigned char *p = mmap(0, 8192, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(p, code, sizeof code);
	FILE *f = fopen(c > 1 ? v[1] : path, "w");
	const char *fmt = c > 2 ? v[2] : "%lx %x %s\n";
	fprintf(f, fmt, (unsigned long)p, (unsigned)sizeof code, "first version; with spaces <T>");
	fflush(f);
	run((fn)p, 3);
	fprintf(f, fmt, (unsigned long)p, (unsigned)sizeof code, "second version");
	fflush(f);
	run((fn)p, 3);
	fclose(f);
	return 0;
}
