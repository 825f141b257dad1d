/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memfdexec: copies PROGRAM into a memfd and becomes it, with ARGS: code without a path.
 *
 *   memfdexec PROGRAM ARGS...
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "workload.h"

extern char **environ;

int main(int argc, char **argv)
{
	char data[65536];
	ssize_t n;
	int in, out;

	if (argc < 2)
		return 2;
	in = open(argv[1], O_RDONLY | O_CLOEXEC);
	must(in >= 0, argv[1]);
	out = memfd_create("in-memory", MFD_CLOEXEC);
	must(out >= 0, "memfd_create");
	while ((n = read(in, data, sizeof(data))) > 0)
		must(write(out, data, (size_t)n) == n, "write");
	must(n == 0, "read");
	fexecve(out, argv + 1, environ);
	must(0, "fexecve");
	return 1;
}
