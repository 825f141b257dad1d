// SPDX-License-Identifier: Apache-2.0
/* Plan, options, lists of CPUs, room in memory cgroups, kernel versions: nothing here asks the
 * kernel for anything. */
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void kernel_plan__ring__matches_what_the_kernel_says(void **state)
{
	(void)state;
	/* fdinfo memlock on 6.18; the header of 6.18 is 16 bytes smaller than the allowance. */
	assert_int_equal(kernel_ring_map_bytes(4096), 16728 + 16);
	assert_int_equal(kernel_ring_map_bytes(256 << 10), 275784 + 16);
	assert_int_equal(kernel_ring_map_bytes(1 << 20), 1065288 + 16);
}

static void kernel_plan__many_cpus__stay_bounded(void **state)
{
	struct kernel_options options;
	struct kernel_memory memory;
	struct why why = {""};
	uint64_t sum = 0;

	(void)state;
	for (uint32_t cpus = 1; cpus <= 8192; cpus *= 2) {
		kernel_options_init(&options);
		options.cpus = cpus;
		kernel_plan(&options, &memory, &why);
		assert_true(kernel_plan_find(&memory, "side-band")->bytes <=
			    (8ULL << 20) + cpus * 8192ULL);
		/* A power of two, and never less than a page. */
		sum = kernel_sideband_ring_bytes(cpus);
		assert_true(sum >= 4096 && !(sum & (sum - 1)));
	}
	options.cpus = 256;
	kernel_plan(&options, &memory, &why);
	assert_true(memory.planned_bytes < 14ULL << 20);
	sum = 0;
	for (size_t i = 0; i < memory.map_count; i++)
		sum += memory.maps[i].bytes;
	assert_int_equal(sum, memory.planned_bytes);
}

static void kernel_plan__budget__is_held(void **state)
{
	struct kernel_options options;
	struct kernel_memory memory;
	struct why why = {""};

	(void)state;
	kernel_options_init(&options);
	options.cpus = 2;
	assert_int_equal(kernel_plan(&options, &memory, &why), 0);
	options.budget_bytes = memory.planned_bytes;
	assert_int_equal(kernel_plan(&options, &memory, &why), 0);
	options.budget_bytes--;
	assert_int_equal(kernel_plan(&options, &memory, &why), -ENOSPC);
	assert_non_null(strstr(why.text, "--kernel-memory"));
	assert_int_equal(memory.budget_bytes, options.budget_bytes);
	options.budget_bytes = UINT64_MAX;
	assert_int_equal(kernel_plan(&options, &memory, &why), -ERANGE);
	assert_non_null(strstr(why.text, "5 %"));
}

/* All that tables can ever take is in the plan; without them none of it is. */
static void kernel_plan__tables__are_in_it_whole(void **state)
{
	struct kernel_options options;
	struct kernel_memory with, without;
	struct why why = {""};

	(void)state;
	kernel_options_init(&options);
	options.cpus = 2;
	assert_int_equal(kernel_plan(&options, &without, &why), 0);
	assert_null(kernel_plan_find(&without, "fly_segments"));
	options.unwinder = FLY_UNWIND_TABLES;
	options.table_bytes = 6 << 20;
	assert_int_equal(kernel_plan(&options, &with, &why), 0);
	/* fdinfo memlock on 6.18: 4 KiB over 2 MiB for each. */
	assert_int_equal(kernel_plan_find(&with, "fly_segments")->bytes,
			 320 + 3 * (8 + 4096 + (2 << 20)));
	assert_non_null(kernel_plan_find(&with, "fly_tables"));
	assert_true(kernel_plan_find(&with, "fly_processes")->bytes >
		    100 * kernel_plan_find(&without, "fly_processes")->bytes);
	options.budget_bytes = with.planned_bytes - 1;
	assert_int_equal(kernel_plan(&options, &with, &why), -ENOSPC);
	assert_non_null(strstr(why.text, "--table-memory"));
}

static void kernel_plan__target__brings_its_map(void **state)
{
	struct kernel_options options;
	struct kernel_memory memory;

	(void)state;
	kernel_options_init(&options);
	options.cpus = 2;
	assert_int_equal(kernel_plan(&options, &memory, NULL), 0);
	assert_null(kernel_plan_find(&memory, "fly_marks"));
	assert_null(kernel_plan_find(&memory, "fly_cgroup"));
	options.target = FLY_TARGET_TASKS;
	assert_int_equal(kernel_plan(&options, &memory, NULL), 0);
	assert_non_null(kernel_plan_find(&memory, "fly_marks"));
	options.target = FLY_TARGET_CGROUP;
	assert_int_equal(kernel_plan(&options, &memory, NULL), -EINVAL);
	options.cgroup_fd = 0;
	assert_int_equal(kernel_plan(&options, &memory, NULL), 0);
	assert_non_null(kernel_plan_find(&memory, "fly_cgroup"));
}

static void kernel_options__bad_values__name_their_flag(void **state)
{
	static const struct {
		uint32_t hz, depth;
		uint64_t ring;
		const char *flag;
	} cases[] = {
		{0, 127, 1 << 20, "-F"},	 {10001, 127, 1 << 20, "-F"},
		{99, 0, 1 << 20, "--depth"},	 {99, 1025, 1 << 20, "--depth"},
		{99, 127, 0, "--ring"},		 {99, 127, 12288, "--ring"},
		{99, 127, 2048, "--ring"},	 {99, 127, 2ULL << 30, "--ring"},
		{99, 127, UINT64_MAX, "--ring"},
	};
	static const struct {
		uint64_t bytes;
		uint32_t processes;
		const char *flag;
	} tables[] = {
		{0, 4096, "--table-memory"},	    {1 << 20, 4096, "--table-memory"},
		{66 << 20, 4096, "--table-memory"}, {UINT64_MAX, 4096, "--table-memory"},
		{8 << 20, 0, "--processes"},	    {8 << 20, 1 << 21, "--processes"},
	};
	struct kernel_options options;
	struct why why;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		kernel_options_init(&options);
		options.hz = cases[i].hz;
		options.depth = cases[i].depth;
		options.ring_bytes = cases[i].ring;
		assert_true(kernel_options_check(&options, &why) < 0);
		assert_non_null(strstr(why.text, cases[i].flag));
	}
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		kernel_options_init(&options);
		options.unwinder = FLY_UNWIND_TABLES;
		options.table_bytes = tables[i].bytes;
		options.processes = tables[i].processes;
		assert_true(kernel_options_check(&options, &why) < 0);
		assert_non_null(strstr(why.text, tables[i].flag));
		options.unwinder = FLY_UNWIND_FRAME_POINTERS;
		assert_int_equal(kernel_options_check(&options, &why), 0);
	}
	kernel_options_init(&options);
	assert_int_equal(kernel_options_check(&options, &why), 0);
}

static void kernel_cpus__lists__parse(void **state)
{
	struct kernel_cpus cpus;

	(void)state;
	assert_int_equal(kernel_cpus_parse("0-3,8,10-11\n", &cpus), 0);
	assert_int_equal(cpus.count, 7);
	assert_int_equal(cpus.limit, 12);
	assert_true(kernel_cpus_has(&cpus, 8));
	assert_false(kernel_cpus_has(&cpus, 9));
	assert_false(kernel_cpus_has(&cpus, 1000000));
	assert_int_equal(kernel_cpus_parse("\n", &cpus), 0);
	assert_int_equal(cpus.count, 0);
	assert_int_equal(kernel_cpus_parse("1,1,0-1", &cpus), 0);
	assert_int_equal(cpus.count, 2);
	assert_int_equal(kernel_cpus_parse("0-8191", &cpus), 0);
	assert_int_equal(cpus.count, 8192);
	assert_int_equal(kernel_cpus_parse("8192", &cpus), -ERANGE);
	assert_int_equal(kernel_cpus_parse("99999999999999999999", &cpus), -ERANGE);
	assert_int_equal(kernel_cpus_parse("3-1", &cpus), -EBADMSG);
	assert_int_equal(kernel_cpus_parse("(null)", &cpus), -EBADMSG);
	assert_int_equal(kernel_cpus_parse("1;2", &cpus), -EBADMSG);
}

static void put(const char *dir, const char *file, const char *text)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void make(char *path, const char *root, const char *sub)
{
	snprintf(path, 200, "%s%s", root, sub);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void kernel_room__cgroups__smallest_counts(void **state)
{
	char root[] = "/tmp/fly-room-XXXXXX", dir[200], remove[300];

	(void)state;
	assert_non_null(mkdtemp(root));
	assert_int_equal(kernel_room_in(root, "0::/none\n"), UINT64_MAX);
	make(dir, root, "/a");
	put(dir, "memory.max", "1000000\n");
	put(dir, "memory.current", "400000\n");
	put(dir, "memory.stat", "anon 5\ninactive_file 100000\nactive_file 7\n");
	assert_int_equal(kernel_room_in(root, "0::/a\n"), 700000);
	make(dir, root, "/a/b");
	put(dir, "memory.max", "max\n");
	put(dir, "memory.current", "300000\n");
	assert_int_equal(kernel_room_in(root, "0::/a/b\n"), 700000);
	put(dir, "memory.max", "350000\n");
	assert_int_equal(kernel_room_in(root, "0::/a/b\n"), 50000);
	put(dir, "memory.max", "200000\n");
	assert_int_equal(kernel_room_in(root, "0::/a/b\n"), 0);
	/* v1: the controller has a hierarchy of its own. */
	make(dir, root, "/memory");
	put(dir, "memory.limit_in_bytes", "9223372036854771712\n");
	put(dir, "memory.usage_in_bytes", "123\n");
	make(dir, root, "/memory/x");
	put(dir, "memory.limit_in_bytes", "4096\n");
	put(dir, "memory.usage_in_bytes", "96\n");
	assert_int_equal(kernel_room_in(root, "4:memory:/x\n0::/\n"), 4000);
	assert_int_equal(kernel_room_in(root, "4:cpu,memory:/x\n"), 4000);
	assert_int_equal(kernel_room_in(root, "4:memoryless:/x\n"), UINT64_MAX);
	assert_int_equal(kernel_room_in(root, "garbage\n:\n::\n\n"), UINT64_MAX);
	snprintf(remove, sizeof(remove), "%s", root);
	assert_int_equal(chdir(root), 0);
	for (const char *const *file =
		     (const char *const[]){
			     "a/b/memory.max", "a/b/memory.current", "a/memory.max",
			     "a/memory.current", "a/memory.stat", "memory/x/memory.limit_in_bytes",
			     "memory/x/memory.usage_in_bytes", "memory/memory.limit_in_bytes",
			     "memory/memory.usage_in_bytes", NULL};
	     *file; file++)
		assert_int_equal(unlink(*file), 0);
	assert_int_equal(rmdir("a/b") | rmdir("a") | rmdir("memory/x") | rmdir("memory"), 0);
	assert_int_equal(chdir("/") | rmdir(remove), 0);
}

static void kernel_doctor__versions__known_bad_ones(void **state)
{
	static const struct {
		bool is_bad;
		const char *release, *build, *signature;
	} cases[] = {
		{true, "5.19.0", "#1 SMP", NULL},
		{true, "6.0.19", "#1 SMP", NULL},
		{true, "6.1.35", "#1 SMP", NULL},
		{false, "6.1.36", "#1 SMP", NULL},
		{false, "6.1.0-50-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-07-01)",
		 NULL},
		{true, "6.1.0-9-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.27-1 (2023-05-08)",
		 NULL},
		{true, "6.2.16", "", NULL},
		{true, "6.2.0-39-generic", "#40~22.04.1-Ubuntu",
		 "Ubuntu 6.2.0-39.40~22.04.1-generic 6.2.16"},
		{true, "6.3.9", "", NULL},
		{false, "6.3.10", "", NULL},
		{false, "6.4.0", "", NULL},
		{false, "5.18.0", "", NULL},
		{false, "6.8.0-31-generic", "#31-Ubuntu", "Ubuntu 6.8.0-31.31-generic 6.8.1"},
		{false, "6.12.43+deb13-amd64", "#1 SMP Debian 6.12.43-1", NULL},
		{false, "6.18.44-fc-v595", "#1 SMP PREEMPT_DYNAMIC @0", NULL},
		{false, "odd", "", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (kernel_has_read_bug(cases[i].release, cases[i].build, cases[i].signature) !=
		    cases[i].is_bad)
			fail_msg("%s judged wrong", cases[i].release);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_plan__ring__matches_what_the_kernel_says),
		cmocka_unit_test(kernel_plan__many_cpus__stay_bounded),
		cmocka_unit_test(kernel_plan__budget__is_held),
		cmocka_unit_test(kernel_plan__tables__are_in_it_whole),
		cmocka_unit_test(kernel_plan__target__brings_its_map),
		cmocka_unit_test(kernel_options__bad_values__name_their_flag),
		cmocka_unit_test(kernel_cpus__lists__parse),
		cmocka_unit_test(kernel_room__cgroups__smallest_counts),
		cmocka_unit_test(kernel_doctor__versions__known_bad_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
