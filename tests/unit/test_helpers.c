// SPDX-License-Identifier: Apache-2.0
/*
 * The helpers against real processes, real files and a file system that hangs. `test_helpers
 * victim` is the process that is looked at: it runs copies of this very program. HELPERS_DIR and
 * HANGFS are set by the build. As non-root, or without FUSE, the tests that need it are skipped.
 */
#include "abi/reasons.h"
#include "helpers/helpers_inside.h"
#include "elf_image.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define DEADLINE_MS 300
#define MS	    1000000ULL
/* Death by the own fault. Not SIGSEGV: the address sanitizer answers that with a report, which
 * takes longer than the deadline on a busy machine. */
#define DIES SIGABRT

int victim_function(int x);
enum { VICTIM_LINE = __LINE__ + 1 };
__attribute__((noinline, visibility("default"))) int victim_function(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

struct outcome {
	int calls, err;
	uint32_t unnamed;
	struct elf_info info;
	size_t name_count, named, line_count, frame_count;
	uint32_t line, unlined;
	char name[128], file[256], exe[256], comm[64], path[256], cgroup[4200];
	uint64_t ino, start_ns;
	uint32_t tgid, namespace_pid;
	size_t mapping_count;
	bool has_deleted;
	bool has_table, is_expected_table;
	uint8_t hash[32];
	unsigned int order; /* among all calls */
};

static struct helpers *helpers;
static char dir[64];
static const struct unwind_table *expected_table;
static unsigned int calls_total;

static bool is_same_table(const struct unwind_table *a, const struct unwind_table *b)
{
	return a->start == b->start && a->machine == b->machine && a->tracked == b->tracked &&
	       a->page_count == b->page_count && a->group_count == b->group_count &&
	       a->shape_words == b->shape_words && a->rule_count == b->rule_count &&
	       !memcmp(a->pages, b->pages, a->page_count * sizeof(*a->pages)) &&
	       !memcmp(a->groups, b->groups, a->group_count * sizeof(*a->groups)) &&
	       !memcmp(a->shapes, b->shapes, a->shape_words * sizeof(*a->shapes)) &&
	       !memcmp(a->rules, b->rules, a->rule_count * sizeof(*a->rules));
}

static void on_done(void *ctx, const struct helpers_result *r)
{
	struct outcome *o = ctx;

	o->calls++;
	o->err = r->err;
	o->unnamed = r->unnamed;
	o->ino = r->ino;
	if (r->info)
		o->info = *r->info;
	o->name_count = r->name_count;
	for (size_t i = 0; i < r->name_count; i++) {
		o->named += !r->names[i].unnamed;
		if (!r->names[i].unnamed && !o->name[0])
			snprintf(o->name, sizeof(o->name), "%s", r->names[i].name);
	}
	o->line_count = r->line_count;
	if (r->line_count && r->lines[0].frame_count) {
		const struct helpers_line *l = &r->lines[0];

		o->frame_count = l->frame_count;
		o->line = l->frames[0].line;
		snprintf(o->file, sizeof(o->file), "%s", l->frames[0].file);
		snprintf(o->name, sizeof(o->name), "%s", l->frames[l->frame_count - 1].function);
	}
	if (r->line_count)
		o->unlined = r->lines[0].unnamed;
	o->order = ++calls_total;
	o->has_table = r->table;
	if (r->table) {
		memcpy(o->hash, r->table->hash, sizeof(o->hash));
		o->is_expected_table =
			expected_table && is_same_table(&r->table->table, expected_table);
	}
	if (!r->scan)
		return;
	o->mapping_count = r->scan->mapping_count;
	o->tgid = r->scan->tgid;
	o->namespace_pid = r->scan->namespace_pid;
	o->start_ns = r->scan->process_start_ns;
	snprintf(o->exe, sizeof(o->exe), "%s", r->scan->exe);
	snprintf(o->comm, sizeof(o->comm), "%s", r->scan->comm);
	snprintf(o->cgroup, sizeof(o->cgroup), "%s", r->scan->cgroup);
	for (size_t i = 0; i < r->scan->mapping_count; i++) {
		if (strcmp(r->scan->mappings[i].path, r->scan->exe) != 0)
			continue;
		snprintf(o->path, sizeof(o->path), "%s", r->scan->mappings[i].path);
		o->has_deleted = r->scan->mappings[i].is_deleted;
	}
}

static void poll_once(void)
{
	struct pollfd p = {.fd = helpers_fd(helpers), .events = POLLIN};

	poll(&p, 1, 50);
	assert_int_equal(helpers_poll(helpers), 0);
}

/* Waits for the callback; returns how long that took. */
static uint64_t wait_for(struct outcome *o)
{
	uint64_t began = clock_monotonic_ns();

	while (!o->calls) {
		assert_true(clock_monotonic_ns() - began < 20000 * MS);
		poll_once();
	}
	assert_int_equal(o->calls, 1);
	return clock_monotonic_ns() - began;
}

static void start(void)
{
	struct helpers_options options = {.directory = HELPERS_DIR, .deadline_ms = DEADLINE_MS};
	struct why why = {""};

	if (helpers_start(&options, &helpers, &why))
		fail_msg("%s", why.text);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/test_helpers.XXXXXX");
	assert_non_null(mkdtemp(dir));
	chmod(dir, 0755);
	start();
	return 0;
}

static void remove_tree(void)
{
	static const char *const names[] = {"victim", "other", "old", "fs"};
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		if (unlink(path))
			rmdir(path);
	}
	rmdir(dir);
}

static int teardown(void **state)
{
	(void)state;
	helpers_stop(helpers);
	helpers = NULL;
	remove_tree();
	assert_int_equal(mem_live_bytes(MEM_HELPERS), 0);
	return 0;
}

/* ------------------------------------------------------------------ victims */

static void copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out;
	char bytes[65536];
	ssize_t n;

	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(out, bytes, (size_t)n), n);
	close(in);
	close(out);
}

static const char *in_dir(const char *name, char *out, size_t size)
{
	snprintf(out, size, "%s/%s", dir, name);
	return out;
}

static uint64_t inode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_ino;
}

struct victim {
	pid_t pid;
	int ready;
	struct helpers_file file;
	uint64_t vaddr; /* of victim_function */
};

/* The executable mapping of pid's program. */
static void victim_look(struct victim *v)
{
	char path[64], line[512];
	uint64_t own_offset = 0;
	FILE *maps;

	for (int own = 1; own >= 0; own--) {
		snprintf(path, sizeof(path), "/proc/%d/maps", own ? getpid() : v->pid);
		maps = fopen(path, "r");
		assert_non_null(maps);
		while (fgets(line, sizeof(line), maps)) {
			unsigned long start, end, offset, ino,
				here = (unsigned long)victim_function;
			char perms[8];

			if (sscanf(line, "%lx-%lx %7s %lx %*s %lu", &start, &end, perms, &offset,
				   &ino) != 5 ||
			    perms[2] != 'x' || !ino)
				continue;
			if (own && here >= start && here < end)
				own_offset = here - start + offset;
			if (!own) {
				v->file.start = start;
				v->file.end = end;
				v->file.ino = ino;
				break; /* the program comes first */
			}
		}
		fclose(maps);
	}
	v->file.key = 1;
	v->file.tgid = (uint32_t)v->pid;
	v->vaddr = own_offset;
}

static void victim_start(struct victim *v, const char *path, int exec_fd, const char *bind_over)
{
	int pipes[2];
	char byte;

	memset(v, 0, sizeof(*v));
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	v->pid = fork();
	assert_true(v->pid >= 0);
	if (!v->pid) {
		char *argv[] = {"victim", "victim", NULL}, *envp[] = {NULL};

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		if (bind_over &&
		    (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		     mount(bind_over, path, NULL, MS_BIND, NULL)))
			_exit(9);
		if (exec_fd >= 0)
			fexecve(exec_fd, argv, envp);
		else
			execve(path, argv, envp);
		_exit(8);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	close(pipes[0]);
	victim_look(v);
}

static void victim_end(struct victim *v)
{
	kill(v->pid, SIGKILL);
	assert_int_equal(waitpid(v->pid, NULL, 0), v->pid);
}

static int victim_main(void)
{
	assert_int_equal(victim_function(1), 2);
	if (write(1, "r", 1) != 1)
		return 1;
	while (pause() == -1)
		;
	return 0;
}

static void expect_named(const struct victim *v)
{
	struct outcome inspected = {0}, named = {0};
	uint64_t vaddr = 0;

	assert_int_equal(helpers_inspect(helpers, &v->file, on_done, &inspected), 0);
	wait_for(&inspected);
	assert_int_equal(inspected.err, 0);
	assert_int_equal(elf_offset_to_vaddr(&inspected.info, v->vaddr, &vaddr), 0);
	assert_int_equal(helpers_names(helpers, &v->file, &vaddr, 1, on_done, &named), 0);
	wait_for(&named);
	assert_int_equal(named.err, 0);
	assert_string_equal(named.name, "victim_function");
}

static void need_root(void)
{
	if (geteuid())
		skip();
}

/* ------------------------------------------------------------------ files */

static void helpers__a_running_program__is_named(void **state)
{
	struct victim v;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	expect_named(&v);
	victim_end(&v);
}

static void helpers__a_deleted_program__is_named(void **state)
{
	struct victim v;
	char path[128];

	(void)state;
	need_root();
	copy_file("/proc/self/exe", in_dir("victim", path, sizeof(path)));
	victim_start(&v, path, -1, NULL);
	v.file.path = path;
	unlink(path);
	expect_named(&v);
	victim_end(&v);
}

static void helpers__a_replaced_program__is_named_by_the_old_file(void **state)
{
	struct victim v;
	char path[128], other[128];

	(void)state;
	need_root();
	copy_file("/proc/self/exe", in_dir("victim", path, sizeof(path)));
	victim_start(&v, path, -1, NULL);
	v.file.path = path;
	copy_file("/bin/sh", in_dir("other", other, sizeof(other)));
	assert_int_equal(rename(other, path), 0);
	expect_named(&v);
	victim_end(&v);
}

static void helpers__a_memfd__is_named(void **state)
{
	struct victim v;
	char path[64];
	int fd = memfd_create("program", 0);

	(void)state;
	need_root();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	{
		int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		char bytes[65536];
		ssize_t n;

		while ((n = read(in, bytes, sizeof(bytes))) > 0)
			assert_int_equal(write(fd, bytes, (size_t)n), n);
		close(in);
	}
	victim_start(&v, path, fd, NULL);
	close(fd);
	expect_named(&v);
	victim_end(&v);
}

static void helpers__another_mount_namespace__has_its_own_file(void **state)
{
	struct victim v;
	char path[128], other[128];

	(void)state;
	need_root();
	copy_file("/bin/sh", in_dir("victim", path, sizeof(path)));
	copy_file("/proc/self/exe", in_dir("other", other, sizeof(other)));
	victim_start(&v, path, -1, other);
	v.file.path = path;
	expect_named(&v);
	/* Without the mapping's place, by its path below the process's root. */
	v.file.key = 2;
	v.file.start = v.file.end = 0;
	expect_named(&v);
	victim_end(&v);
}

static void helpers__a_held_file__outlives_process_and_path(void **state)
{
	struct victim v;
	struct outcome held = {0};
	struct stat st;
	char path[128];

	(void)state;
	need_root();
	copy_file("/proc/self/exe", in_dir("victim", path, sizeof(path)));
	victim_start(&v, path, -1, NULL);
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &held), 0);
	wait_for(&held);
	assert_int_equal(held.err, 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(held.ino, st.st_ino);
	victim_end(&v);
	unlink(path);
	expect_named(&v);
	helpers_release(helpers, v.file.key);
	held = (struct outcome){0};
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &held), 0);
	wait_for(&held);
	assert_int_equal(held.unnamed, FLY_UNNAMED_FILE_GONE);
}

static void helpers__gone__is_found_by_path_only_with_its_build_id(void **state)
{
	struct victim v;
	struct outcome o = {0}, no_id = {0}, wrong_id = {0};
	char path[128];

	(void)state;
	need_root();
	copy_file("/proc/self/exe", in_dir("victim", path, sizeof(path)));
	victim_start(&v, path, -1, NULL);
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.err, 0);
	victim_end(&v);
	v.file.path = path;
	v.file.key = 2;
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &no_id), 0);
	wait_for(&no_id);
	assert_int_equal(no_id.unnamed, FLY_UNNAMED_FILE_GONE);
	v.file.key = 3;
	v.file.build_id_len = 20;
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &wrong_id), 0);
	wait_for(&wrong_id);
	assert_int_equal(wrong_id.unnamed, FLY_UNNAMED_FILE_GONE);
	v.file.key = 4;
	v.file.build_id_len = o.info.build_id_len;
	memcpy(v.file.build_id, o.info.build_id, sizeof(o.info.build_id));
	expect_named(&v);
}

static void helpers__another_process_of_that_number__is_not_asked(void **state)
{
	struct victim v;
	struct outcome scanned = {0}, o = {0}, right = {0};

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	assert_int_equal(helpers_scan(helpers, (uint32_t)v.pid, on_done, &scanned), 0);
	wait_for(&scanned);
	v.file.process_start_ns = scanned.start_ns - 10000000;
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.unnamed, FLY_UNNAMED_FILE_GONE);
	/* Nanoseconds past the tick that /proc tells. */
	v.file.process_start_ns = scanned.start_ns + 9999999;
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &right), 0);
	wait_for(&right);
	assert_int_equal(right.err, 0);
	victim_end(&v);
}

static void helpers__a_replaced_path__is_told(void **state)
{
	struct victim v;
	struct outcome o = {0};
	char path[128];

	(void)state;
	need_root();
	copy_file("/bin/sh", in_dir("victim", path, sizeof(path)));
	victim_start(&v, "/proc/self/exe", -1, NULL);
	v.file.path = path;
	v.file.start = v.file.end = 0;
	v.file.ino = 99;
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.unnamed, FLY_UNNAMED_FILE_REPLACED);
	victim_end(&v);
}

/* Another library was opened where the one that is asked for was, which lies at its path still. */
static void helpers__a_mapping_of_another_file__is_not_taken(void **state)
{
	struct outcome expected = {0}, o = {0};
	struct victim v, other;
	char path[128];

	(void)state;
	need_root();
	copy_file("/bin/sh", in_dir("other", path, sizeof(path)));
	victim_start(&v, "/proc/self/exe", -1, NULL);
	other = v;
	other.file = (struct helpers_file){.key = 2, .tgid = (uint32_t)v.pid, .path = path};
	other.file.ino = inode_of(path);
	assert_int_equal(helpers_inspect(helpers, &other.file, on_done, &expected), 0);
	wait_for(&expected);
	assert_int_equal(expected.err, 0);
	other.file.key = 3;
	other.file.start = v.file.start;
	other.file.end = v.file.end;
	other.file.ino = 0;
	other.file.build_id_len = expected.info.build_id_len;
	memcpy(other.file.build_id, expected.info.build_id, sizeof(other.file.build_id));
	assert_true(other.file.build_id_len > 0);
	assert_int_equal(helpers_inspect(helpers, &other.file, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.err, 0);
	assert_memory_equal(o.info.build_id, expected.info.build_id, o.info.build_id_len);
	victim_end(&v);
}

/* A program that was renamed while it runs is what is mapped, whatever its path says. */
static void helpers__a_renamed_program__is_named(void **state)
{
	char path[128], renamed[128];
	struct victim v;

	(void)state;
	need_root();
	copy_file("/proc/self/exe", in_dir("victim", path, sizeof(path)));
	victim_start(&v, path, -1, NULL);
	v.file.path = path;
	assert_int_equal(rename(path, in_dir("old", renamed, sizeof(renamed))), 0);
	expect_named(&v);
	victim_end(&v);
}

static void helpers__what_is_no_elf_file__is_told(void **state)
{
	struct victim v;
	struct outcome o = {0}, device = {0};
	struct stat st;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	assert_int_equal(stat("/etc/passwd", &st), 0);
	v.file = (struct helpers_file){
		.key = 5, .tgid = (uint32_t)v.pid, .path = "/etc/passwd", .ino = st.st_ino};
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.unnamed, FLY_UNNAMED_FILE_INVALID);
	assert_int_equal(stat("/dev/null", &st), 0);
	v.file = (struct helpers_file){
		.key = 6, .tgid = (uint32_t)v.pid, .path = "/dev/null", .ino = st.st_ino};
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &device), 0);
	wait_for(&device);
	assert_int_equal(device.unnamed, FLY_UNNAMED_FILE_DENIED);
	victim_end(&v);
}

static void helpers__many_names__come_back_sorted_and_whole(void **state)
{
	static uint64_t vaddrs[WIRE_NAMES_MAX];
	struct victim v;
	struct outcome o = {0};

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	for (size_t i = 0; i < WIRE_NAMES_MAX; i++)
		vaddrs[i] = (v.vaddr & ~0xfffULL) + (i * 7919) % 0x4000;
	assert_int_equal(helpers_names(helpers, &v.file, vaddrs, WIRE_NAMES_MAX, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.err, 0);
	assert_int_equal(o.name_count, WIRE_NAMES_MAX);
	assert_true(o.named > 100);
	assert_int_equal(helpers_names(helpers, &v.file, vaddrs, WIRE_NAMES_MAX + 1, on_done, &o),
			 -EINVAL);
	victim_end(&v);
}

/* ------------------------------------------------------------------ scans */

static void helpers__scan__tells_of_a_process(void **state)
{
	struct victim v;
	struct outcome o = {0};
	char path[128];

	(void)state;
	need_root();
	copy_file("/proc/self/exe", in_dir("victim", path, sizeof(path)));
	victim_start(&v, path, -1, NULL);
	unlink(path);
	assert_int_equal(helpers_scan(helpers, (uint32_t)v.pid, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.err, 0);
	assert_int_equal(o.tgid, v.pid);
	assert_string_equal(o.comm, "victim");
	assert_string_equal(o.exe, path);
	assert_string_equal(o.path, path);
	assert_true(o.has_deleted);
	assert_true(o.mapping_count >= 2);
	assert_true(o.namespace_pid > 0);
	assert_true(strchr(o.cgroup, ':') != NULL);
	victim_end(&v);
}

static void helpers__scan__of_nobody_and_of_kernel_threads(void **state)
{
	struct outcome gone = {0}, kthread = {0};
	char comm[32] = "";
	FILE *f = fopen("/proc/2/comm", "r");

	(void)state;
	assert_int_equal(helpers_scan(helpers, 4194303, on_done, &gone), 0);
	wait_for(&gone);
	assert_int_equal(gone.unnamed, FLY_UNNAMED_FILE_GONE);
	assert_int_equal(helpers_scan(helpers, 0, on_done, &gone), -EINVAL);
	if (f && fgets(comm, sizeof(comm), f) && !strcmp(comm, "kthreadd\n")) {
		assert_int_equal(helpers_scan(helpers, 2, on_done, &kthread), 0);
		wait_for(&kthread);
		assert_int_equal(kthread.err, 0);
		assert_string_equal(kthread.comm, "kthreadd");
		assert_int_equal(kthread.mapping_count, 0);
	}
	if (f)
		fclose(f);
}

static int idle_child(void *arg)
{
	(void)arg;
	while (pause() == -1)
		;
	return 0;
}

static void helpers__scan__sees_the_innermost_pid(void **state)
{
	static char stack[65536];
	struct outcome o = {0};
	pid_t pid;

	(void)state;
	need_root();
	pid = clone(idle_child, stack + sizeof(stack), CLONE_NEWPID | SIGCHLD, NULL);
	assert_true(pid > 0);
	assert_int_equal(helpers_scan(helpers, (uint32_t)pid, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.err, 0);
	assert_int_equal(o.tgid, pid);
	assert_int_equal(o.namespace_pid, 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ------------------------------------------------------------------ file systems that hang */

static pid_t hangfs_pid;
static char hangfs_dir[128];

static void hangfs_start(void)
{
	int pipes[2];
	char byte;

	if (geteuid() || !HANGFS[0] || access(HANGFS, X_OK) || access("/dev/fuse", R_OK | W_OK))
		skip();
	assert_int_equal(mkdir(in_dir("fs", hangfs_dir, sizeof(hangfs_dir)), 0755), 0);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	hangfs_pid = fork();
	assert_true(hangfs_pid >= 0);
	if (!hangfs_pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		execl(HANGFS, "hangfs", hangfs_dir, NULL);
		_exit(8);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	close(pipes[0]);
}

static void hangfs_end(void)
{
	kill(hangfs_pid, SIGKILL);
	assert_int_equal(waitpid(hangfs_pid, NULL, 0), hangfs_pid);
	umount2(hangfs_dir, MNT_DETACH);
}

/* A file of it, as mapped by v; the first open is ours. */
static struct helpers_file hanging(const struct victim *v, const char *name, uint64_t key)
{
	static char path[160];
	struct helpers_file f = {.key = key, .tgid = (uint32_t)v->pid, .path = path};
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", hangfs_dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	f.ino = st.st_ino;
	close(fd);
	return f;
}

static void expect_deadline(uint64_t took_ns)
{
	assert_true(took_ns >= (DEADLINE_MS - 10) * MS);
	assert_true(took_ns < 2 * DEADLINE_MS * MS);
}

static void helpers__an_open_that_hangs__costs_one_deadline(void **state)
{
	struct helpers_stats stats;
	struct outcome hung = {0}, behind = {0}, again = {0}, held = {0};
	struct helpers_file f;
	struct victim v;

	(void)state;
	hangfs_start();
	victim_start(&v, "/proc/self/exe", -1, NULL);
	f = hanging(&v, "open0", 100);
	assert_int_equal(helpers_hold(helpers, &f, on_done, &hung), 0);
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &behind), 0);
	expect_deadline(wait_for(&hung));
	assert_int_equal(hung.unnamed, FLY_UNNAMED_OPEN_TIMEOUT);
	assert_int_equal(hung.err, -ETIMEDOUT);
	assert_true(wait_for(&behind) < DEADLINE_MS * MS);
	assert_int_equal(behind.err, 0);
	/* Not tried a second time. */
	assert_int_equal(helpers_inspect(helpers, &f, on_done, &again), 0);
	assert_true(wait_for(&again) < 100 * MS);
	assert_int_equal(again.unnamed, FLY_UNNAMED_OPEN_TIMEOUT);
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &held), 0);
	wait_for(&held);
	expect_named(&v);
	usleep(150000);
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.opener_restarts, 1);
	assert_int_equal(stats.reader_restarts, 0);
	assert_int_equal(stats.stuck, 1);
	victim_end(&v);
	hangfs_end();
}

static void helpers__a_read_that_hangs__costs_one_deadline(void **state)
{
	struct helpers_stats stats;
	struct outcome hung = {0}, behind = {0}, again = {0}, held = {0};
	struct helpers_file f;
	struct victim v;

	(void)state;
	hangfs_start();
	victim_start(&v, "/proc/self/exe", -1, NULL);
	f = hanging(&v, "read0", 100);
	assert_int_equal(helpers_inspect(helpers, &f, on_done, &hung), 0);
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &behind), 0);
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &held), 0);
	/* Opening goes on meanwhile. */
	assert_true(wait_for(&held) < DEADLINE_MS * MS / 2);
	expect_deadline(wait_for(&hung));
	assert_int_equal(hung.unnamed, FLY_UNNAMED_READ_TIMEOUT);
	assert_true(wait_for(&behind) < DEADLINE_MS * MS);
	assert_int_equal(behind.err, 0);
	assert_int_equal(helpers_inspect(helpers, &f, on_done, &again), 0);
	assert_true(wait_for(&again) < 100 * MS);
	assert_int_equal(again.unnamed, FLY_UNNAMED_READ_TIMEOUT);
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.opener_restarts, 0);
	assert_int_equal(stats.reader_restarts, 1);
	victim_end(&v);
	hangfs_end();
}

static void helpers__stuck_helpers__are_limited_and_come_back(void **state)
{
	struct victim v[HELPERS_STUCK_MAX];
	struct outcome o = {0}, later = {0};
	struct helpers_stats stats;
	char name[16];

	(void)state;
	hangfs_start();
	for (unsigned int i = 0; i < HELPERS_STUCK_MAX; i++) {
		struct outcome hung = {0};
		struct helpers_file f;

		victim_start(&v[i], "/proc/self/exe", -1, NULL);
		snprintf(name, sizeof(name), "open%u", i);
		f = hanging(&v[i], name, 100 + i);
		assert_int_equal(helpers_hold(helpers, &f, on_done, &hung), 0);
		wait_for(&hung);
		assert_int_equal(hung.unnamed, FLY_UNNAMED_OPEN_TIMEOUT);
	}
	assert_int_equal(helpers_inspect(helpers, &v[0].file, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.unnamed, FLY_UNNAMED_HELPER_LIMIT);
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.stuck, HELPERS_STUCK_MAX);
	assert_int_equal(stats.opener_restarts, HELPERS_STUCK_MAX - 1);
	hangfs_end();
	for (int i = 0; i < 20; i++)
		poll_once();
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.stuck, 0);
	assert_int_equal(helpers_inspect(helpers, &v[0].file, on_done, &later), 0);
	wait_for(&later);
	assert_int_equal(later.err, 0);
	for (unsigned int i = 0; i < HELPERS_STUCK_MAX; i++)
		victim_end(&v[i]);
}

static void helpers__stop__does_not_wait_for_what_hangs(void **state)
{
	struct outcome hung[2] = {{0}, {0}}, queued[100] = {{0}};
	struct helpers_file f;
	struct victim v;
	uint64_t began;

	(void)state;
	hangfs_start();
	victim_start(&v, "/proc/self/exe", -1, NULL);
	f = hanging(&v, "open0", 100);
	assert_int_equal(helpers_hold(helpers, &f, on_done, &hung[0]), 0);
	f = hanging(&v, "read0", 101);
	assert_int_equal(helpers_inspect(helpers, &f, on_done, &hung[1]), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &queued[i]), 0);
	usleep(50000);
	began = clock_monotonic_ns();
	helpers_stop(helpers);
	assert_true(clock_monotonic_ns() - began < 200 * MS);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(queued[i].calls, 1);
		assert_int_equal(queued[i].err, -ECANCELED);
	}
	assert_int_equal(hung[0].calls, 1);
	assert_int_equal(hung[1].calls, 1);
	victim_end(&v);
	hangfs_end();
	start();
}

/* ------------------------------------------------------------------ helpers that go wrong */

static void helpers__a_reader_that_dies__fails_one_request(void **state)
{
	struct outcome first = {0}, second = {0}, again = {0};
	struct helpers_stats stats;
	struct victim v;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	kill(helpers->helper[HELPER_READER].pid, SIGSTOP);
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &first), 0);
	v.file.key = 2;
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &second), 0);
	for (int i = 0; i < 3; i++)
		poll_once();
	kill(helpers->helper[HELPER_READER].pid, DIES);
	kill(helpers->helper[HELPER_READER].pid, SIGCONT);
	wait_for(&first);
	assert_int_equal(first.unnamed, FLY_UNNAMED_READER_FAILED);
	wait_for(&second);
	assert_int_equal(second.err, 0);
	v.file.key = 1;
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &again), 0);
	wait_for(&again);
	assert_int_equal(again.unnamed, FLY_UNNAMED_READER_FAILED);
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.reader_restarts, 1);
	assert_int_equal(stats.opener_restarts, 0);
	victim_end(&v);
}

static void reader_stop(void)
{
	if (helpers->helper[HELPER_READER].pid > 0)
		kill(helpers->helper[HELPER_READER].pid, SIGSTOP);
}

/* Readers that were killed, each counted once: a dead one keeps its number until it is buried. */
struct killed {
	unsigned int readers;
	int last;
};

static void reader_kill(struct killed *k)
{
	int pid = helpers->helper[HELPER_READER].pid;

	if (pid <= 0 || pid == k->last)
		return;
	assert_int_equal(kill(pid, SIGKILL), 0);
	k->last = pid;
	k->readers++;
}

/* Asks for the victim's file, and kills each reader that gets it. */
static void kill_readers_over(struct victim *v, struct killed *k, struct outcome *ret)
{
	*ret = (struct outcome){0};
	reader_stop();
	assert_int_equal(helpers_inspect(helpers, &v->file, on_done, ret), 0);
	while (!ret->calls) {
		poll_once();
		reader_stop();
		if (helpers->reader.count)
			reader_kill(k);
	}
}

/* The kernel kills for want of memory, people kill: the file is not to blame. */
static void helpers__a_reader_that_is_killed__loses_nothing(void **state)
{
	struct outcome o[4] = {{0}}, often = {0}, again = {0};
	struct killed killed = {0};
	struct helpers_stats stats;
	struct victim v;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	reader_stop();
	for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
		v.file.key = i + 1;
		assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &o[i]), 0);
	}
	for (int i = 0; i < 3; i++)
		poll_once();
	reader_kill(&killed);
	for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
		wait_for(&o[i]);
		assert_int_equal(o[i].err, 0);
		assert_int_equal(o[i].calls, 1);
	}
	/* Not for ever: the third one that is killed over it is enough, but the file may come back.
	 * A new reader may be through with it before it is stopped: then another file is tried. */
	for (v.file.key = 9; v.file.key < 49; v.file.key++) {
		kill_readers_over(&v, &killed, &often);
		if (often.unnamed)
			break;
	}
	assert_int_equal(often.unnamed, FLY_UNNAMED_READER_FAILED);
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &again), 0);
	wait_for(&again);
	assert_int_equal(again.err, 0);
	helpers_stats_get(helpers, &stats);
	/* One, and three over the file that was given up; each has one in its place. */
	assert_in_range(killed.readers, 4, UINT32_MAX);
	assert_int_equal(stats.reader_restarts, killed.readers);
	victim_end(&v);
}

/* ------------------------------------------------------------------ lines */

static uint64_t vaddr_of_victim(const struct victim *v)
{
	struct outcome inspected = {0};
	uint64_t vaddr = 0;

	assert_int_equal(helpers_inspect(helpers, &v->file, on_done, &inspected), 0);
	wait_for(&inspected);
	assert_int_equal(elf_offset_to_vaddr(&inspected.info, v->vaddr, &vaddr), 0);
	return vaddr;
}

static void helpers__lines__tell_function_file_and_line(void **state)
{
	uint64_t addresses[2] = {0};
	struct outcome o = {0};
	struct victim v;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	/* In no order. */
	addresses[0] = 1ULL << 40;
	addresses[1] = vaddr_of_victim(&v);
	assert_int_equal(helpers_lines(helpers, &v.file, addresses, 2, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.err, 0);
	assert_int_equal(o.line_count, 2);
	assert_int_equal(o.frame_count, 1);
	assert_string_equal(o.name, "victim_function");
	assert_non_null(strstr(o.file, "test_helpers.c"));
	assert_true(o.line >= VICTIM_LINE && o.line < VICTIM_LINE + 5);
	victim_end(&v);
}

static void helpers__lines__of_nothing_are_refused(void **state)
{
	static uint64_t addresses[HELPERS_LINES_MAX + 1];
	struct outcome o = {0};
	struct victim v;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	assert_int_equal(helpers_lines(helpers, &v.file, addresses, 0, on_done, &o), -EINVAL);
	assert_int_equal(
		helpers_lines(helpers, &v.file, addresses, HELPERS_LINES_MAX + 1, on_done, &o),
		-EINVAL);
	assert_int_equal(helpers_lines(helpers, &v.file, addresses, HELPERS_LINES_MAX, on_done, &o),
			 0);
	wait_for(&o);
	assert_int_equal(o.err, 0);
	assert_int_equal(o.line_count, HELPERS_LINES_MAX);
	assert_int_equal(o.unlined, FLY_UNNAMED_NO_LINES);
	victim_end(&v);
}

/* Whatever lines do to the reader: names of the same file go on, and lines are not tried again. */
static void helpers__lines_that_end_the_reader__cost_no_names(void **state)
{
	struct outcome lost = {0}, again = {0}, named = {0};
	struct helpers_stats stats;
	struct victim v;
	uint64_t vaddr;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	vaddr = vaddr_of_victim(&v);
	kill(helpers->helper[HELPER_READER].pid, SIGSTOP);
	assert_int_equal(helpers_lines(helpers, &v.file, &vaddr, 1, on_done, &lost), 0);
	for (int i = 0; i < 3; i++)
		poll_once();
	kill(helpers->helper[HELPER_READER].pid, DIES);
	kill(helpers->helper[HELPER_READER].pid, SIGCONT);
	wait_for(&lost);
	assert_int_equal(lost.unnamed, FLY_UNNAMED_READER_FAILED);
	assert_int_equal(helpers_names(helpers, &v.file, &vaddr, 1, on_done, &named), 0);
	wait_for(&named);
	assert_int_equal(named.err, 0);
	assert_string_equal(named.name, "victim_function");
	assert_int_equal(helpers_lines(helpers, &v.file, &vaddr, 1, on_done, &again), 0);
	wait_for(&again);
	assert_int_equal(again.unnamed, FLY_UNNAMED_READER_FAILED);
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.reader_restarts, 1);
	victim_end(&v);
}

/* Asked before, answered after. */
static void helpers__names__go_before_lines(void **state)
{
	struct outcome lines[3] = {{0}}, named = {0};
	struct victim v;
	uint64_t vaddr;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	vaddr = vaddr_of_victim(&v);
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		assert_int_equal(helpers_lines(helpers, &v.file, &vaddr, 1, on_done, &lines[i]), 0);
	assert_int_equal(helpers_names(helpers, &v.file, &vaddr, 1, on_done, &named), 0);
	wait_for(&named);
	assert_int_equal(lines[1].calls + lines[2].calls, 0);
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		wait_for(&lines[i]);
		assert_int_equal(lines[i].err, 0);
	}
	victim_end(&v);
}

/* ------------------------------------------------------------------ tables */

static int pread_exactly(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	return pread(*(int *)ctx, out, bytes, (off_t)offset) == (ssize_t)bytes ? 0 : -EBADMSG;
}

static struct unwind_table *table_of_self(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct unwind_source source = {.read = pread_exactly, .ctx = &fd};
	struct unwind_table *table = NULL;
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	source.bytes = (uint64_t)st.st_size;
	assert_int_equal(unwind_table_build(&source, NULL, &table, NULL), 0);
	close(fd);
	return table;
}

static void helpers__table__is_that_of_the_file(void **state)
{
	static const uint8_t nothing[32];
	struct outcome first = {0}, again = {0}, vdso = {0};
	struct unwind_table *table = table_of_self();
	struct victim v;

	(void)state;
	expected_table = table;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	assert_int_equal(helpers_table(helpers, &v.file, 1 << 20, on_done, &first), 0);
	wait_for(&first);
	assert_int_equal(first.err, 0);
	assert_true(first.is_expected_table);
	assert_memory_not_equal(first.hash, nothing, sizeof(nothing));
	assert_int_equal(helpers_table(helpers, &v.file, 1 << 20, on_done, &again), 0);
	wait_for(&again);
	assert_memory_equal(first.hash, again.hash, sizeof(first.hash));
	assert_int_equal(helpers_vdso_table(helpers, on_done, &vdso), 0);
	wait_for(&vdso);
	assert_int_equal(vdso.err, 0);
	assert_true(vdso.has_table);
	assert_memory_not_equal(first.hash, vdso.hash, sizeof(first.hash));
	expected_table = NULL;
	unwind_table_free(table);
	victim_end(&v);
}

static void helpers__table__that_cannot_be_is_refused(void **state)
{
	static struct elf_image image;
	struct outcome large = {0}, none = {0}, bad = {0};
	struct victim v;
	struct stat st;
	char path[128];
	FILE *f;

	(void)state;
	need_root();
	victim_start(&v, "/proc/self/exe", -1, NULL);
	assert_int_equal(helpers_table(helpers, &v.file, 0, on_done, &large), -EINVAL);
	assert_int_equal(helpers_table(helpers, &v.file, 64, on_done, &large), 0);
	wait_for(&large);
	assert_int_equal(large.err, -ENOSPC);
	assert_false(large.has_table);
	f = fopen(in_dir("other", path, sizeof(path)), "wxe");
	assert_non_null(f);
	elf_image_init(&image);
	assert_int_equal(fwrite(&image, sizeof(image), 1, f), 1);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(stat(path, &st), 0);
	struct helpers_file file = {
		.key = 9, .tgid = (uint32_t)v.pid, .path = path, .ino = st.st_ino};

	assert_int_equal(helpers_table(helpers, &file, 4096, on_done, &none), 0);
	wait_for(&none);
	assert_int_equal(none.err, -ENOENT);
	assert_int_equal(truncate(path, 20), 0);
	assert_int_equal(helpers_table(helpers, &file, 4096, on_done, &bad), 0);
	wait_for(&bad);
	assert_int_equal(bad.err, -EBADMSG);
	victim_end(&v);
}

/* It may take any time and any memory: that is no reason to lose the names of the same file. */
static void helpers__table_that_ends_the_reader__costs_no_names(void **state)
{
	struct outcome lost = {0}, again = {0}, named = {0};
	struct helpers_stats stats;
	struct victim v;
	uint64_t vaddr;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	vaddr = vaddr_of_victim(&v);
	kill(helpers->helper[HELPER_READER].pid, SIGSTOP);
	assert_int_equal(helpers_table(helpers, &v.file, 1 << 20, on_done, &lost), 0);
	for (int i = 0; i < 3; i++)
		poll_once();
	kill(helpers->helper[HELPER_READER].pid, DIES);
	kill(helpers->helper[HELPER_READER].pid, SIGCONT);
	wait_for(&lost);
	assert_int_equal(lost.unnamed, FLY_UNNAMED_READER_FAILED);
	assert_int_equal(helpers_names(helpers, &v.file, &vaddr, 1, on_done, &named), 0);
	wait_for(&named);
	assert_string_equal(named.name, "victim_function");
	assert_int_equal(helpers_table(helpers, &v.file, 1 << 20, on_done, &again), 0);
	wait_for(&again);
	assert_int_equal(again.unnamed, FLY_UNNAMED_READER_FAILED);
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.reader_restarts, 1);
	victim_end(&v);
}

/* Tables asked before names do not hold all of them up, and are not last either. */
static void helpers__tables_and_names__take_turns(void **state)
{
	static struct outcome tables[4], names[120];
	unsigned int last_name = 0;
	struct victim v;
	uint64_t vaddr;

	(void)state;
	memset(tables, 0, sizeof(tables));
	memset(names, 0, sizeof(names));
	victim_start(&v, "/proc/self/exe", -1, NULL);
	vaddr = vaddr_of_victim(&v);
	kill(helpers->helper[HELPER_READER].pid, SIGSTOP);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		assert_int_equal(helpers_table(helpers, &v.file, 1 << 20, on_done, &tables[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(helpers_names(helpers, &v.file, &vaddr, 1, on_done, &names[i]), 0);
	kill(helpers->helper[HELPER_READER].pid, SIGCONT);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		wait_for(&tables[i]);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		wait_for(&names[i]);
		last_name = names[i].order > last_name ? names[i].order : last_name;
	}
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		assert_int_equal(tables[i].err, 0);
		assert_true(tables[i].order < last_name);
		if (i)
			assert_true(tables[i].order - tables[i - 1].order >
				    HELPERS_NAMES_PER_TABLE);
	}
	victim_end(&v);
}

static void helpers__a_false_table_from_the_reader__replaces_it(void **state)
{
	struct unwind_table *table = table_of_self();
	struct wire_part part = {.is_last = 1};
	struct outcome o = {0}, next = {0};
	static char packet[sizeof(part) + WIRE_PART_MAX];
	struct helpers_stats stats;
	struct buf answer;
	struct victim v;
	uint8_t hash[32] = {0};

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	kill(helpers->helper[HELPER_READER].pid, SIGSTOP);
	assert_int_equal(helpers_table(helpers, &v.file, 1 << 20, on_done, &o), 0);
	poll_once();
	/* Whole and well made, but for one group that goes back. */
	assert_true(fly_page_count(table->pages[0]) > 1);
	table->groups[1] &= 0xffff;
	buf_init(&answer, MEM_HELPERS, WIRE_ANSWER_MAX);
	helpers_answer_table(&answer, WIRE_TABLE, table, hash);
	part.ticket = helpers->last_ticket;
	for (size_t at = 0; at < answer.len; at += part.bytes) {
		size_t left = answer.len - at;

		part.bytes = (uint32_t)(left < WIRE_PART_MAX ? left : WIRE_PART_MAX);
		part.is_last = at + part.bytes == answer.len;
		memcpy(packet, &part, sizeof(part));
		memcpy(packet + sizeof(part), answer.data + at, part.bytes);
		assert_int_equal(send(helpers->answers_end, packet, sizeof(part) + part.bytes, 0),
				 sizeof(part) + part.bytes);
	}
	wait_for(&o);
	assert_int_equal(o.err, -EBADMSG);
	assert_int_equal(o.unnamed, FLY_UNNAMED_READER_FAILED);
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &next), 0);
	wait_for(&next);
	assert_int_equal(next.err, 0);
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.reader_restarts, 1);
	buf_done(&answer);
	unwind_table_free(table);
	victim_end(&v);
}

/* A million symbols that each cover every address asked for: valid, and slow beyond use. */
static void spinner_write(const char *path)
{
	static struct elf_image image;
	Elf64_Sym block[1000];
	FILE *f = fopen(path, "wxe");

	assert_non_null(f);
	elf_image_init(&image);
	elf_image_symbol(&image, "f", IMAGE_TEXT_VADDR, 1 << 20, STT_FUNC, STB_GLOBAL);
	for (size_t i = 0; i < ARRAY_SIZE(block); i++) {
		block[i] = image.symbols[1];
		block[i].st_value = IMAGE_TEXT_VADDR - i % 7;
	}
	image.sections[3].sh_offset = sizeof(image);
	image.sections[3].sh_size = 1000 * sizeof(block);
	assert_int_equal(fwrite(&image, sizeof(image), 1, f), 1);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(fwrite(block, sizeof(block), 1, f), 1);
	assert_int_equal(fclose(f), 0);
}

static void helpers__a_reader_that_spins__is_ended(void **state)
{
	static uint64_t vaddrs[WIRE_NAMES_MAX];
	struct outcome o = {0}, next = {0};
	struct stat st;
	struct victim v;
	char path[128];
	uint64_t took;

	(void)state;
	need_root();
	victim_start(&v, "/proc/self/exe", -1, NULL);
	spinner_write(in_dir("victim", path, sizeof(path)));
	assert_int_equal(stat(path, &st), 0);
	for (size_t i = 0; i < WIRE_NAMES_MAX; i++)
		vaddrs[i] = IMAGE_TEXT_VADDR + i;
	struct helpers_file f = {.key = 9, .tgid = (uint32_t)v.pid, .path = path, .ino = st.st_ino};

	assert_int_equal(helpers_names(helpers, &f, vaddrs, WIRE_NAMES_MAX, on_done, &o), 0);
	took = wait_for(&o);
	assert_int_equal(o.unnamed, FLY_UNNAMED_READ_TIMEOUT);
	/* Longer than a deadline only while others have the CPU. */
	assert_true(took < 6 * DEADLINE_MS * MS);
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &next), 0);
	wait_for(&next);
	assert_int_equal(next.err, 0);
	victim_end(&v);
}

static void helpers__an_opener_that_dies__is_replaced(void **state)
{
	struct outcome lost = {0}, next = {0};
	struct victim v;

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	kill(helpers->helper[HELPER_OPENER].pid, SIGSTOP);
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &lost), 0);
	kill(helpers->helper[HELPER_OPENER].pid, DIES);
	kill(helpers->helper[HELPER_OPENER].pid, SIGCONT);
	wait_for(&lost);
	assert_int_equal(lost.unnamed, FLY_UNNAMED_READER_FAILED);
	v.file.key = 2;
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &next), 0);
	wait_for(&next);
	assert_int_equal(next.err, 0);
	victim_end(&v);
}

static void helpers__garbage_from_the_reader__replaces_it(void **state)
{
	static const char junk[] = "no answer at all";
	struct wire_part part = {.ticket = 1, .is_last = 1};
	struct outcome o = {0}, first = {0};
	struct helpers_stats stats;
	struct victim v;
	char packet[sizeof(part) + 64] = {0};

	(void)state;
	victim_start(&v, "/proc/self/exe", -1, NULL);
	assert_int_equal(send(helpers->answers_end, junk, sizeof(junk), 0), sizeof(junk));
	for (int i = 0; i < 5; i++)
		poll_once();
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.reader_restarts, 1);
	/* A well-formed part with a malformed answer, for a request that is under way. */
	kill(helpers->helper[HELPER_READER].pid, SIGSTOP);
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &first), 0);
	poll_once();
	part.ticket = helpers->last_ticket;
	part.bytes = 64;
	memcpy(packet, &part, sizeof(part));
	packet[sizeof(part)] = WIRE_INSPECT;
	assert_int_equal(send(helpers->answers_end, packet, sizeof(packet), 0), sizeof(packet));
	wait_for(&first);
	assert_int_equal(first.unnamed, FLY_UNNAMED_READER_FAILED);
	v.file.key = 2;
	assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &o), 0);
	wait_for(&o);
	assert_int_equal(o.err, 0);
	victim_end(&v);
}

static void helpers__a_full_queue__says_so_and_loses_nothing(void **state)
{
	static struct outcome o[HELPERS_QUEUE_MAX];
	struct outcome more = {0};
	struct helpers_stats stats;
	struct victim v;

	(void)state;
	memset(o, 0, sizeof(o));
	victim_start(&v, "/proc/self/exe", -1, NULL);
	for (size_t i = 0; i < HELPERS_QUEUE_MAX; i++) {
		v.file.key = i % 50 + 1;
		if (i % 4)
			assert_int_equal(helpers_hold(helpers, &v.file, on_done, &o[i]), 0);
		else
			assert_int_equal(helpers_inspect(helpers, &v.file, on_done, &o[i]), 0);
	}
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &more), -EAGAIN);
	for (size_t i = 0; i < HELPERS_QUEUE_MAX; i++) {
		while (!o[i].calls)
			poll_once();
		assert_int_equal(o[i].calls, 1);
		assert_int_equal(o[i].err, 0);
	}
	helpers_stats_get(helpers, &stats);
	assert_int_equal(stats.pending, 0);
	assert_int_equal(stats.opener_restarts + stats.reader_restarts, 0);
	assert_int_equal(helpers_hold(helpers, &v.file, on_done, &more), 0);
	wait_for(&more);
	victim_end(&v);
}

static uint64_t status_field(int pid, const char *field, int base)
{
	char path[64], text[4096], *p;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	p = strstr(text, field);
	assert_non_null(p);
	return strtoull(p + strlen(field), NULL, base);
}

static int highest_fd(int pid)
{
	char path[64];
	int highest = -1;

	for (int fd = 0; fd < 1024; fd++) {
		char link[8];

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
		if (readlink(path, link, sizeof(link)) > 0)
			highest = fd;
	}
	return highest;
}

static void helpers__both__hold_only_what_they_need(void **state)
{
	int opener = helpers->helper[HELPER_OPENER].pid;
	int reader = helpers->helper[HELPER_READER].pid;

	(void)state;
	need_root();
	assert_int_equal(highest_fd(opener), 4);
	assert_int_equal(highest_fd(reader), 4);
	assert_int_equal(status_field(reader, "\nCapEff:\t", 16), 0);
	assert_int_equal(status_field(reader, "\nCapPrm:\t", 16), 0);
	/* SYS_PTRACE, DAC_READ_SEARCH, CHECKPOINT_RESTORE. */
	assert_int_equal(status_field(opener, "\nCapPrm:\t", 16) &
				 ~(1ULL << 19 | 1ULL << 2 | 1ULL << 40),
			 0);
	assert_int_equal(status_field(reader, "\nUid:\t", 10), 65534);
	assert_int_equal(status_field(opener, "\nNoNewPrivs:\t", 10), 1);
	assert_int_equal(status_field(reader, "\nNoNewPrivs:\t", 10), 1);
#ifndef __SANITIZE_ADDRESS__
	assert_int_equal(status_field(opener, "\nSeccomp:\t", 10), 2);
	assert_int_equal(status_field(reader, "\nSeccomp:\t", 10), 2);
#endif
}

static void helpers__without_programs__start_says_where_they_were_looked_for(void **state)
{
	struct helpers_options options = {.directory = "/nonexistent"};
	struct helpers *h;
	struct why why = {""};

	(void)state;
	assert_int_equal(helpers_start(&options, &h, &why), -ENOENT);
	assert_non_null(strstr(why.text, "/nonexistent"));
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(helpers__a_running_program__is_named),
		T(helpers__a_deleted_program__is_named),
		T(helpers__a_replaced_program__is_named_by_the_old_file),
		T(helpers__a_memfd__is_named),
		T(helpers__another_mount_namespace__has_its_own_file),
		T(helpers__a_held_file__outlives_process_and_path),
		T(helpers__gone__is_found_by_path_only_with_its_build_id),
		T(helpers__another_process_of_that_number__is_not_asked),
		T(helpers__a_replaced_path__is_told),
		T(helpers__a_mapping_of_another_file__is_not_taken),
		T(helpers__a_renamed_program__is_named),
		T(helpers__what_is_no_elf_file__is_told),
		T(helpers__many_names__come_back_sorted_and_whole),
		T(helpers__scan__tells_of_a_process),
		T(helpers__scan__of_nobody_and_of_kernel_threads),
		T(helpers__scan__sees_the_innermost_pid),
		T(helpers__an_open_that_hangs__costs_one_deadline),
		T(helpers__a_read_that_hangs__costs_one_deadline),
		T(helpers__stuck_helpers__are_limited_and_come_back),
		T(helpers__stop__does_not_wait_for_what_hangs),
		T(helpers__a_reader_that_dies__fails_one_request),
		T(helpers__a_reader_that_is_killed__loses_nothing),
		T(helpers__a_reader_that_spins__is_ended),
		T(helpers__an_opener_that_dies__is_replaced),
		T(helpers__lines__tell_function_file_and_line),
		T(helpers__lines__of_nothing_are_refused),
		T(helpers__lines_that_end_the_reader__cost_no_names),
		T(helpers__names__go_before_lines),
		T(helpers__table__is_that_of_the_file),
		T(helpers__table__that_cannot_be_is_refused),
		T(helpers__table_that_ends_the_reader__costs_no_names),
		T(helpers__tables_and_names__take_turns),
		T(helpers__a_false_table_from_the_reader__replaces_it),
		T(helpers__garbage_from_the_reader__replaces_it),
		T(helpers__a_full_queue__says_so_and_loses_nothing),
		T(helpers__both__hold_only_what_they_need),
		T(helpers__without_programs__start_says_where_they_were_looked_for),
	};

	if (argc > 1 && !strcmp(argv[1], "victim"))
		return victim_main();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
