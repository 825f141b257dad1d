/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int c, char **v)
{
	int ms = c > 1 ? atoi(v[1]) : 500;
	void *prev = 0;
	int same = 0;
	for (int i = 0; i < 12; i++) {
		void *h = dlopen(i & 1 ? "./libb.so" : "./liba.so", RTLD_NOW);
		void (*f)(long) = dlsym(h, i & 1 ? "bravo_work" : "alpha_work");
		same += (void *)f == prev;
		prev = (void *)f;
		f(ms * 1000000L);
		dlclose(h);
	}
	fprintf(stderr, "reused the same address %d of 11 times\n", same);
	return 0;
}
