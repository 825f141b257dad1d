// SPDX-License-Identifier: Apache-2.0
/*
 * rig-probe: what a guest must be able to do before flyball is worth trying in it, by system calls
 * alone and without flyball's code. Opens one cpu-clock event per CPU, counts its own ticks over
 * half a second of spinning on each CPU, makes a hash and a ring buffer map
 * and loads and attaches an empty perf_event program. One line per fact; exit status 1 if one is
 * missing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int failures;

static void fact(const char *what, int ok)
{
	printf("%s %s%s%s\n", ok ? "ok  " : "FAIL", what, ok ? "" : ": ",
	       ok ? "" : strerror(errno));
	failures += !ok;
}

static int bpf(int cmd, union bpf_attr *attr)
{
	return syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

static int map_create(uint32_t type, uint32_t key, uint32_t value, uint32_t entries)
{
	union bpf_attr attr = {
		.map_type = type, .key_size = key, .value_size = value, .max_entries = entries};

	return bpf(BPF_MAP_CREATE, &attr);
}

static int program_load(void)
{
	static const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_PERF_EVENT,
		.insns = (uint64_t)(uintptr_t)insns,
		.insn_cnt = 2,
		.license = (uint64_t)(uintptr_t)"GPL",
	};

	return bpf(BPF_PROG_LOAD, &attr);
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Records in the event's ring: the position of its head, each sample being a header and an IP. */
static unsigned long long sampled(struct perf_event_mmap_page *ring)
{
	return __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE) / 16;
}

static void cpu_clock(int cpu, int prog)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 10000000,
		.sample_type = PERF_SAMPLE_IP,
		.disabled = 1,
	};
	cpu_set_t set;
	char what[120];
	uint64_t cpu_ns, until;
	long page = sysconf(_SC_PAGESIZE);
	struct perf_event_mmap_page *ring;
	int fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	snprintf(what, sizeof(what), "perf_event_open cpu-clock, cpu %d", cpu);
	fact(what, fd >= 0);
	if (fd < 0)
		return;
	ring = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("its ring", ring != MAP_FAILED);
	if (ring == MAP_FAILED)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	fact("sched_setaffinity", sched_setaffinity(0, sizeof(set), &set) == 0);

	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	until = now_ns(CLOCK_MONOTONIC) + 500000000;
	while (now_ns(CLOCK_MONOTONIC) < until)
		;
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	snprintf(what, sizeof(what), "%llu ticks of 10 ms in 500 ms (%llu ms of CPU)",
		 sampled(ring), (unsigned long long)cpu_ns / 1000000);
	fact(what, sampled(ring) > 10);
	fact("a perf_event program attached to it", ioctl(fd, PERF_EVENT_IOC_SET_BPF, prog) == 0);
	munmap(ring, 3 * page);
	close(fd);
}

int main(void)
{
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int prog = program_load();

	setvbuf(stdout, NULL, _IOLBF, 0);
	fact("/sys/kernel/btf/vmlinux", access("/sys/kernel/btf/vmlinux", R_OK) == 0);
	fact("a hash map", map_create(BPF_MAP_TYPE_HASH, 4, 8, 64) >= 0);
	fact("a ring buffer map", map_create(BPF_MAP_TYPE_RINGBUF, 0, 0, 65536) >= 0);
	fact("a perf_event program", prog >= 0);
	for (int cpu = 0; cpu < cpus; cpu++)
		cpu_clock(cpu, prog);
	return failures ? 1 : 0;
}
