// SPDX-License-Identifier: Apache-2.0
/*
 * doctor: can flyball run here, and if not, why and what to do, in one sentence each.
 *
 * What can be tried is tried: programs and maps are created and thrown away. Versions are looked at
 * only for bugs that cannot be probed for without freezing the machine.
 */
#include "kernel/kernel_internal.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { FINE, NOTE, WARNING, BLOCKER };

static void say(struct kernel_check *check, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void say(struct kernel_check *check, int level, const char *fmt, ...)
{
	va_list ap;

	check->level = level;
	va_start(ap, fmt);
	vsnprintf(check->text, sizeof(check->text), fmt, ap);
	va_end(ap);
}

/* ---------------------------------------------------------------- kernel version */
struct version {
	unsigned int major, minor, patch;
};

/* The mainline version: distributions put it where uname -r does not show it ("6.1.0-25-amd64" is
 * 6.1.106 by "6.1.106-3" in uname -v for Debian, and Ubuntu says it in a file of its own). */
static struct version mainline_version(const char *release, const char *build,
				       const char *signature)
{
	struct version version = {0, 0, 0}, other;
	const char *at;

	if (sscanf(release, "%u.%u.%u", &version.major, &version.minor, &version.patch) < 2)
		return version;
	/* Ubuntu: "Ubuntu 6.8.0-31.31-generic 6.8.1" */
	at = signature ? strrchr(signature, ' ') : NULL;
	if (!at)
		at = strstr(build, "Debian ") ? strstr(build, "Debian ") + 6 : NULL;
	if (at && sscanf(at, " %u.%u.%u", &other.major, &other.minor, &other.patch) == 3 &&
	    other.major == version.major && other.minor == version.minor)
		return other;
	return version;
}

static bool is_within(struct version v, unsigned int major, unsigned int minor, unsigned int last)
{
	return v.major == major && v.minor == minor && v.patch <= last;
}

/* bpf_probe_read_user in an interrupt could dead-lock; fixed by d319f344561d in 6.4, 6.3.10 and
 * 6.1.36, brought in by 5.19. */
bool kernel_has_read_bug(const char *release, const char *build, const char *signature)
{
	struct version v = mainline_version(release, build, signature);

	return (v.major == 5 && v.minor == 19) || is_within(v, 6, 0, UINT32_MAX) ||
	       is_within(v, 6, 1, 35) || is_within(v, 6, 2, UINT32_MAX) || is_within(v, 6, 3, 9);
}

static void check_version(struct kernel_check *check)
{
	char signature[128];
	struct utsname name;
	struct version v;
	bool has_signature;

	uname(&name);
	has_signature =
		kernel_read_text("/proc/version_signature", signature, sizeof(signature)) > 0;
	v = mainline_version(name.release, name.version, has_signature ? signature : NULL);
	if (kernel_has_read_bug(name.release, name.version, has_signature ? signature : NULL))
		say(check, BLOCKER,
		    "kernel %u.%u.%u can freeze when a profiler reads user memory in an interrupt: "
		    "update to 6.1.36 or later in its series, 6.3.10, or 6.4 and later",
		    v.major, v.minor, v.patch);
	else if (v.major < 6 || (v.major == 6 && v.minor < 1))
		say(check, WARNING,
		    "kernel %s is older than 6.1, the oldest flyball is tested on: update it if "
		    "something below is missing",
		    name.release);
	else
		say(check, FINE, "kernel %s (%u.%u.%u)", name.release, v.major, v.minor, v.patch);
}

/* ---------------------------------------------------------------- capabilities */
static uint64_t effective_caps(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	if (syscall(SYS_capget, &header, data))
		return 0;
	return data[0].effective | (uint64_t)data[1].effective << 32;
}

struct cap {
	int bit;
	const char *name, *what_for;
};

static size_t list_missing(const struct cap *caps, size_t count, char *text, size_t size)
{
	uint64_t have = effective_caps();
	size_t missing = 0, len = 0;

	text[0] = '\0';
	if (have >> CAP_SYS_ADMIN & 1)
		have |= 1ULL << CAP_BPF | 1ULL << CAP_PERFMON | 1ULL << CAP_SYSLOG |
			1ULL << CAP_CHECKPOINT_RESTORE;
	for (size_t i = 0; i < count; i++) {
		int n;

		if (have >> caps[i].bit & 1)
			continue;
		n = snprintf(text + len, size - len, "%s%s (%s)", missing ? ", " : "", caps[i].name,
			     caps[i].what_for);
		len = n > 0 && (size_t)n < size - len ? len + (size_t)n : len;
		missing++;
	}
	return missing;
}

static void check_capabilities(struct kernel_check *check)
{
	static const struct cap needed[] = {
		{CAP_BPF, "CAP_BPF", "load programs"},
		{CAP_PERFMON, "CAP_PERFMON", "sample all CPUs"},
	};
	static const struct cap wanted[] = {
		{CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "files of other users' processes"},
		{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "files others may not read"},
		{CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE", "deleted files"},
		{CAP_SYSLOG, "CAP_SYSLOG", "kernel names"},
	};
	char missing[240];

	if (list_missing(needed, ARRAY_SIZE(needed), missing, sizeof(missing)))
		say(check, BLOCKER, "missing %s: run as root, or grant it", missing);
	else if (list_missing(wanted, ARRAY_SIZE(wanted), missing, sizeof(missing)))
		say(check, WARNING, "some names will be missing without %s", missing);
	else
		say(check, FINE, "all capabilities are there");
}

/* ---------------------------------------------------------------- probes */
static void check_sysfs(struct kernel_check *check)
{
	struct kernel_cpus cpus;
	struct why why = {""};

	if (kernel_cpus_read("online", &cpus, &why))
		say(check, BLOCKER, "%.300s", why.text);
	else
		say(check, FINE, "%u CPUs are online", cpus.count);
}

static void check_btf(struct kernel_check *check)
{
	char magic[8];

	/* read, not stat: something else may be mounted over it */
	if (kernel_read_text("/sys/kernel/btf/vmlinux", magic, sizeof(magic)) <= 0)
		say(check, BLOCKER,
		    "this kernel has no BTF type information (/sys/kernel/btf/vmlinux): use one "
		    "built "
		    "with CONFIG_DEBUG_INFO_BTF=y, as distributions' are, and mount sysfs");
	else
		say(check, FINE, "the kernel's type information (BTF) is there");
}

/* r0 = 0; exit */
static const struct bpf_insn nothing[] = {
	{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	{.code = BPF_JMP | BPF_EXIT},
};

static void judge_probe(struct kernel_check *check, int fd, const char *what, const char *since)
{
	if (fd >= 0) {
		close(fd);
		say(check, FINE, "%s work", what);
	} else if (fd == -EPERM || fd == -EACCES) {
		say(check, BLOCKER,
		    "%s are not permitted: run as root, or with CAP_BPF and CAP_PERFMON, outside "
		    "of "
		    "a sandbox that denies bpf(2)",
		    what);
	} else if (fd == -ENOMEM) {
		say(check, BLOCKER,
		    "the kernel has no memory left for %s: raise the memory cgroup's limit (or the "
		    "memlock limit, on old kernels)",
		    what);
	} else {
		say(check, BLOCKER, "%s do not work here (%s): use a kernel from %s on", what,
		    strerror(-fd), since);
	}
}

static void check_perf_program(struct kernel_check *check)
{
	int fd = bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "fly_probe", "GPL", nothing,
			       ARRAY_SIZE(nothing), NULL);

	judge_probe(check, fd, "sampling programs", "4.9");
}

static int load_tracepoint(const char *name)
{
	LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = BPF_TRACE_RAW_TP);
	int id = libbpf_find_vmlinux_btf_id(name, BPF_TRACE_RAW_TP);

	if (id < 0)
		return id;
	options.attach_btf_id = (uint32_t)id;
	return bpf_prog_load(BPF_PROG_TYPE_TRACING, "fly_probe", "GPL", nothing,
			     ARRAY_SIZE(nothing), &options);
}

static void check_tracepoint_program(struct kernel_check *check)
{
	int fd = load_tracepoint("sched_process_exec");

	if (fd >= 0) {
		close(fd);
		fd = load_tracepoint("sched_process_fork");
	}
	if (fd == -ESRCH) /* libbpf's, where it finds no type information */
		say(check, BLOCKER,
		    "programs on scheduler tracepoints cannot be tried without BTF: see btf");
	else
		judge_probe(check, fd, "programs on scheduler tracepoints", "5.5");
}

static void check_ring(struct kernel_check *check)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "fly_probe", 0, 0, 4096, NULL);

	judge_probe(check, fd < 0 ? -errno : fd, "BPF rings", "5.8");
}

static int create_task_storage(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_NO_PREALLOC);
	struct btf *btf = btf__new_empty();
	int id, fd;

	if (!btf)
		return -errno;
	id = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	fd = id < 0 ? id : btf__load_into_kernel(btf);
	if (!fd) {
		options.btf_fd = (uint32_t)btf__fd(btf);
		options.btf_key_type_id = options.btf_value_type_id = (uint32_t)id;
		fd = bpf_map_create(BPF_MAP_TYPE_TASK_STORAGE, "fly_probe", 4, 4, 0, &options);
		if (fd < 0)
			fd = -errno;
	}
	btf__free(btf);
	return fd;
}

static void check_task_storage(struct kernel_check *check)
{
	judge_probe(check, create_task_storage(), "marks on tasks (-p, COMMAND)", "5.11");
}

/* A segment as unwind tables lie in: mapped here, and put into a map of maps. */
static int create_segment(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, mapped, .map_flags = BPF_F_MMAPABLE);
	LIBBPF_OPTS(bpf_map_create_opts, options);
	int inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "fly_probe", 4, FLY_BLOCK_BYTES, 1, &mapped);
	uint32_t number = 0;
	int fd, err = 0;
	void *map;

	if (inner < 0)
		return -errno;
	map = mmap(NULL, FLY_BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, inner, 0);
	options.inner_map_fd = (uint32_t)inner;
	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "fly_probe", 4, 4, 1, &options);
	if (map == MAP_FAILED || fd < 0 || bpf_map_update_elem(fd, &number, &inner, BPF_ANY))
		err = -errno;
	if (map != MAP_FAILED)
		munmap(map, FLY_BLOCK_BYTES);
	close(inner);
	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

static void check_tables(struct kernel_check *check)
{
	judge_probe(check, create_segment(), "maps of unwind tables", "5.5");
}

static int open_event(uint64_t config, bool has_build_id)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = config,
		.sample_period = config == PERF_COUNT_SW_CPU_CLOCK ? 1000000000 : 0,
		.disabled = 1,
		.mmap = has_build_id,
		.mmap2 = has_build_id,
		.build_id = has_build_id,
	};
	struct kernel_cpus online;
	uint32_t cpu = 0;
	int fd;

	if (kernel_cpus_read("online", &online, NULL))
		return -ENODEV;
	while (cpu < online.limit && !kernel_cpus_has(&online, cpu))
		cpu++;
	fd = (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1,
			  (unsigned long)PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void check_perf_events(struct kernel_check *check)
{
	int fd = open_event(PERF_COUNT_SW_CPU_CLOCK, false);

	if (fd == -EACCES || fd == -EPERM)
		say(check, BLOCKER,
		    "perf events on whole CPUs are not permitted: run as root, or with "
		    "CAP_PERFMON, "
		    "outside of a sandbox that denies perf_event_open(2)");
	else
		judge_probe(check, fd, "perf events on whole CPUs", "2.6.31");
}

static void check_build_ids(struct kernel_check *check)
{
	int fd = open_event(PERF_COUNT_SW_DUMMY, true);

	if (fd >= 0 || (fd != -EACCES && fd != -EPERM)) {
		judge_probe(check, fd, "build-ids in mapping events", "5.12");
		return;
	}
	say(check, BLOCKER,
	    "perf events on whole CPUs are not permitted: run as root, or with CAP_PERFMON");
}

/* ---------------------------------------------------------------- settings */
static void check_lockdown(struct kernel_check *check)
{
	char text[128];

	if (kernel_read_text("/sys/kernel/security/lockdown", text, sizeof(text)) > 0 &&
	    strstr(text, "[confidentiality]"))
		say(check, BLOCKER,
		    "the kernel is locked down (confidentiality), which forbids reading it: boot "
		    "with lockdown=integrity or none");
	else if (strstr(text, "[integrity]"))
		say(check, FINE,
		    "the kernel is locked down (integrity), which does not matter here");
	else
		say(check, FINE, "the kernel is not locked down");
}

static bool read_sysctl(const char *name, int64_t *ret)
{
	char path[96], text[32];

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	if (kernel_read_text(path, text, sizeof(text)) <= 0)
		return false;
	*ret = strtoll(text, NULL, 10);
	return true;
}

static void check_paranoid(struct kernel_check *check)
{
	int64_t value;

	if (!read_sysctl("kernel/perf_event_paranoid", &value))
		say(check, NOTE, "kernel.perf_event_paranoid cannot be read: mount /proc");
	else
		say(check, FINE, "kernel.perf_event_paranoid is %lld%s", (long long)value,
		    value > 1 ? ", which CAP_PERFMON overrides" : "");
}

static void check_kptr(struct kernel_check *check)
{
	bool has_syslog = effective_caps() >> CAP_SYSLOG & 1;
	int64_t value;

	if (!read_sysctl("kernel/kptr_restrict", &value))
		say(check, NOTE, "kernel.kptr_restrict cannot be read: mount /proc");
	else if (value >= 2)
		say(check, WARNING,
		    "kernel functions will have no names: sysctl kernel.kptr_restrict=1");
	else if (!has_syslog && (value == 1 || effective_caps() == 0))
		say(check, WARNING, "kernel functions will have no names without CAP_SYSLOG");
	else
		say(check, FINE, "kernel addresses can be read");
}

static void check_max_stack(struct kernel_check *check)
{
	int64_t value;

	if (read_sysctl("kernel/perf_event_max_stack", &value) && value < FLY_MAX_KERNEL_FRAMES)
		say(check, NOTE,
		    "kernel stacks are cut at %lld frames: sysctl kernel.perf_event_max_stack=%d",
		    (long long)value, FLY_MAX_KERNEL_FRAMES);
	else
		say(check, FINE, "kernel stacks of up to %d frames are allowed",
		    FLY_MAX_KERNEL_FRAMES);
}

static void check_tracefs(struct kernel_check *check)
{
	bool has = !access("/sys/kernel/tracing/events", X_OK) ||
		   !access("/sys/kernel/debug/tracing/events", X_OK);

	say(check, FINE, "tracefs is %s, and flyball does not use it",
	    has ? "there" : "not mounted");
}

/* ---------------------------------------------------------------- where we run */
static uint64_t namespace_of(const char *name)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return stat(path, &st) ? 0 : st.st_ino;
}

/* Inode numbers of the initial namespaces are fixed (include/linux/proc_ns.h). */
#define INITIAL_USER 0xeffffffdU
#define INITIAL_PID  0xeffffffcU

static void check_pid_namespace(struct kernel_check *check)
{
	uint64_t id = namespace_of("pid");

	if (!id)
		say(check, BLOCKER, "/proc is not mounted: mount it");
	else if (id != INITIAL_PID)
		say(check, BLOCKER,
		    "flyball runs in a PID namespace of its own, while the kernel names processes "
		    "by "
		    "the node's: start it with the node's (docker --pid=host, Kubernetes hostPID)");
	else
		say(check, FINE, "flyball is in the initial PID namespace");
}

static void check_time_namespace(struct kernel_check *check)
{
	char text[256], *at;

	/* "monotonic  0  0" and "boottime  0  0" */
	if (kernel_read_text("/proc/self/timens_offsets", text, sizeof(text)) > 0) {
		for (at = text; *at; at++) {
			if (isdigit((unsigned char)*at) && *at != '0') {
				say(check, BLOCKER,
				    "flyball runs in a time namespace whose clock differs from the "
				    "kernel's: start it in the initial one");
				return;
			}
		}
	}
	say(check, FINE, "the clock is the kernel's");
}

static void check_user_namespace(struct kernel_check *check)
{
	uint64_t id = namespace_of("user");

	if (id && id != INITIAL_USER)
		say(check, BLOCKER,
		    "flyball runs in a user namespace, whose capabilities do not count for BPF: "
		    "start "
		    "it as the node's root");
	else
		say(check, FINE, "flyball is in the initial user namespace");
}

static void check_isolated(struct kernel_check *check)
{
	struct kernel_cpus isolated = {0}, full = {0};

	kernel_cpus_read("isolated", &isolated, NULL);
	kernel_cpus_read("nohz_full", &full, NULL);
	if (isolated.count || full.count)
		say(check, WARNING,
		    "%u CPUs are isolated and %u run without ticks (nohz_full): flyball samples "
		    "them "
		    "like all others and so interrupts them at its rate",
		    isolated.count, full.count);
	else
		say(check, FINE, "no CPU is isolated or without ticks");
}

static void check_memory(struct kernel_check *check)
{
	struct kernel_options options;
	struct kernel_memory memory;
	struct why why = {""};
	char size[32];

	kernel_options_init(&options);
	options.unwinder = FLY_UNWIND_TABLES;
	if (kernel_plan(&options, &memory, &why))
		say(check, BLOCKER, "%.300s", why.text);
	else
		say(check, FINE, "the default plan takes %s of kernel memory",
		    text_bytes(memory.planned_bytes, size, sizeof(size)));
}

/* Names of programs that sample by perf events, ours left out. Asking for other programs needs
 * CAP_SYS_ADMIN. */
static size_t list_samplers(char *text, size_t size, bool *ret_allowed)
{
	size_t count = 0, len = 0;
	uint32_t id = 0;

	*ret_allowed = true;
	text[0] = '\0';
	while (!bpf_prog_get_next_id(id, &id)) {
		struct bpf_prog_info info = {0};
		uint32_t bytes = sizeof(info);
		int fd = bpf_prog_get_fd_by_id(id), n;

		if (fd < 0)
			continue;
		n = bpf_obj_get_info_by_fd(fd, &info, &bytes);
		close(fd);
		if (n || info.type != BPF_PROG_TYPE_PERF_EVENT)
			continue;
		count++;
		n = snprintf(text + len, size - len, "%s%.15s", len ? ", " : "", info.name);
		len = n > 0 && (size_t)n < size - len ? len + (size_t)n : len;
	}
	if (errno == EPERM || errno == EACCES)
		*ret_allowed = false;
	return count;
}

static void check_others(struct kernel_check *check)
{
	char names[160], shown[200];
	bool is_allowed;
	size_t count = list_samplers(names, sizeof(names), &is_allowed);

	text_print(names, strlen(names), shown, sizeof(shown));
	if (!is_allowed)
		say(check, NOTE,
		    "whether other profilers run cannot be seen without CAP_SYS_ADMIN, which "
		    "flyball "
		    "does not need");
	else if (count)
		say(check, NOTE,
		    "%zu other sampling programs are loaded (%s): flyball works beside them, and "
		    "each "
		    "adds its own cost",
		    count, shown);
	else
		say(check, FINE, "no other BPF profiler is loaded");
}

/* In the order in which one explains another. The silent ones stop nothing from loading, and what
 * was recorded would be wrong or worse: kernel_refuse asks them beforehand. */
static const struct {
	const char *name;
	void (*run)(struct kernel_check *check);
	bool is_silent;
} checks_table[] = {
	{"version", check_version, true},
	{"user_namespace", check_user_namespace, false},
	{"capabilities", check_capabilities, false},
	{"sysfs", check_sysfs, false},
	{"btf", check_btf, false},
	{"lockdown", check_lockdown, false},
	{"pid_namespace", check_pid_namespace, true},
	{"time_namespace", check_time_namespace, true},
	{"perf_events", check_perf_events, false},
	{"build_ids", check_build_ids, false},
	{"perf_program", check_perf_program, false},
	{"tracepoint_program", check_tracepoint_program, false},
	{"ring", check_ring, false},
	{"task_storage", check_task_storage, false},
	{"tables", check_tables, false},
	{"memory", check_memory, false},
	{"perf_event_paranoid", check_paranoid, false},
	{"perf_event_max_stack", check_max_stack, false},
	{"kptr_restrict", check_kptr, false},
	{"tracefs", check_tracefs, false},
	{"isolated_cpus", check_isolated, false},
	{"other_profilers", check_others, false},
};
_Static_assert(ARRAY_SIZE(checks_table) <= KERNEL_CHECKS_MAX, "checks");

size_t kernel_doctor(struct kernel_check checks[KERNEL_CHECKS_MAX])
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);

	for (size_t i = 0; i < ARRAY_SIZE(checks_table); i++) {
		checks[i] = (struct kernel_check){.name = checks_table[i].name};
		checks_table[i].run(&checks[i]);
	}
	libbpf_set_print(print);
	return ARRAY_SIZE(checks_table);
}

int kernel_refuse(struct why *why)
{
	for (size_t i = 0; i < ARRAY_SIZE(checks_table); i++) {
		struct kernel_check check = {.name = checks_table[i].name};

		if (!checks_table[i].is_silent)
			continue;
		checks_table[i].run(&check);
		if (check.level == BLOCKER)
			return why_set(why, -EOPNOTSUPP, "%s", check.text);
	}
	return 0;
}

int kernel_explain(struct why *why, int err)
{
	struct kernel_check checks[KERNEL_CHECKS_MAX];
	size_t count = why ? kernel_doctor(checks) : 0;

	for (size_t i = 0; i < count; i++) {
		if (checks[i].level == BLOCKER)
			return why_set(why, err == -EPERM || err == -EACCES ? err : -EOPNOTSUPP,
				       "%s", checks[i].text);
	}
	return err;
}
