/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocker: keeps a CPU inside a classic tracepoint program, as a busy tool of somebody else does.
 *
 *   blocker OBJECT CPU SECONDS
 *
 * Loads blocker.bpf.o, prints "ready", then makes system calls on that CPU for SECONDS or until
 * SIGTERM; each runs the program for about a tenth of a millisecond. At the end: {"hits": N}.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "workload.h"

/* As in blocker.bpf.c. */
struct settings {
	uint32_t only_pid, rounds;
	uint64_t hits, sum;
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

/* libbpf looks the tracepoint up in tracefs, which need not be mounted here. */
static void mount_tracefs(void)
{
	if (!access("/sys/kernel/tracing/events", F_OK))
		return;
	must(!unshare(CLONE_NEWNS), "unshare");
	must(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount /");
	must(!mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL), "mount tracefs");
}

static int attach(const char *path, const struct settings *settings)
{
	struct bpf_object *object = bpf_object__open(path);
	struct bpf_program *program;
	uint32_t zero = 0;
	int map;

	must(object != NULL, path);
	must(!bpf_object__load(object), "load");
	map = bpf_object__find_map_fd_by_name(object, "settings");
	must(map >= 0 && !bpf_map_update_elem(map, &zero, settings, BPF_ANY), "settings");
	program = bpf_object__find_program_by_name(object, "block");
	must(program && bpf_program__attach(program), "attach");
	return map;
}

int main(int argc, char **argv)
{
	struct settings settings = {.only_pid = (uint32_t)getpid(), .rounds = 20000};
	uint32_t zero = 0;
	cpu_set_t cpus;
	uint64_t end;
	int map;

	if (argc != 4)
		return 2;
	CPU_ZERO(&cpus);
	CPU_SET(number(argv[2]), &cpus);
	must(!sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity");
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	mount_tracefs();
	map = attach(argv[1], &settings);
	printf("ready\n");
	fflush(stdout);
	end = wall_ns() + seconds_ns(argv[3]);
	while (!stop && wall_ns() < end)
		for (int i = 0; i < 16; i++)
			syscall(SYS_getppid);
	must(!bpf_map_lookup_elem(map, &zero, &settings), "look up");
	printf("{\"hits\": %llu}\n", (unsigned long long)settings.hits);
	return 0;
}
