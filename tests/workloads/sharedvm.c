/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharedvm: children that share their parent's memory. SECONDS of CPU time go, in turns of
 * 15 ms, to a vfork child (vfork_child_work), to a CLONE_VM child that is a process of its own
 * (vm_child_work), and to the parent (vm_parent_work). Prints rusage as JSON.
 */
#include <sched.h>
#include <sys/wait.h>

#include "workload.h"

static char stack[65536] __attribute__((aligned(16)));

#define BURN(name)                                                                                 \
	NOINLINE uint64_t name(uint64_t until_ns)                                                  \
	{                                                                                          \
		uint64_t s = 1;                                                                    \
                                                                                                   \
		while (thread_cpu_ns() < until_ns)                                                 \
			for (int i = 0; i < 50000; i++) {                                          \
				s = s * 3 + 1;                                                     \
				KEPT(s);                                                           \
			}                                                                          \
		return s;                                                                          \
	}
BURN(vfork_child_work)
BURN(vm_child_work)
BURN(vm_parent_work)

static int child(void *arg)
{
	(void)arg;
	vm_child_work(15 * MS);
	return 0;
}

NOINLINE static void with_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		vfork_child_work(15 * MS);
		_exit(0);
	}
	must(pid > 0, "vfork");
	waitpid(pid, NULL, 0);
}

static void with_clone(void)
{
	pid_t pid = clone(child, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);

	must(pid > 0, "clone");
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	uint64_t cpu_ns;

	if (argc != 2)
		return 2;
	cpu_ns = seconds_ns(argv[1]);
	for (uint64_t spent = 0; spent < cpu_ns; spent += 45 * MS) {
		with_vfork();
		with_clone();
		vm_parent_work(thread_cpu_ns() + 15 * MS);
	}
	printf("{");
	print_rusage("self", RUSAGE_SELF);
	printf(", ");
	print_rusage("children", RUSAGE_CHILDREN);
	printf("}\n");
	return 0;
}
