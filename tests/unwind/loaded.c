/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaded: opens a library, works in it and closes it, over and over.
 *
 *   loaded WARM UNITS TURNS LIBRARY...
 *
 * Built with -DLIBRARY it is the library. Frames are called u_NAME, as in family.
 */
#include <stdlib.h>

static volatile unsigned long sum;

#ifdef LIBRARY
__attribute__((noinline)) void u_library_spin(void)
{
	for (int i = 0; i < 300000; i++)
		sum += sum * 3 + 1;
}

__attribute__((noinline)) void u_library(long n)
{
	volatile long kept[LIBRARY] = {n};

	for (; n > 0; n--)
		u_library_spin();
	sum += (unsigned long)kept[0];
}
#else
#include <dlfcn.h>

__attribute__((noinline)) void u_warm(void)
{
	for (int i = 0; i < 300000; i++)
		sum += sum * 3 + 1;
}

__attribute__((noinline)) void u_loaded(const char *path, long n)
{
	void *library = dlopen(path, RTLD_NOW);
	void (*work)(long) = library ? (void (*)(long))dlsym(library, "u_library") : NULL;

	if (!work)
		exit(1);
	work(n);
	dlclose(library);
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	for (long i = atol(argv[1]); i > 0; i--)
		u_warm();
	for (int turn = 0; turn < atoi(argv[3]); turn++)
		for (int i = 4; i < argc; i++)
			u_loaded(argv[i], atol(argv[2]));
	return 0;
}
#endif
