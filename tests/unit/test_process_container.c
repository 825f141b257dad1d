// SPDX-License-Identifier: Apache-2.0
/* Container ids and cgroup paths by table: every form of field case 64, and what must not match. */
#include "process/process.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define A   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define B   "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define POD "kubepods-besteffort-podd2ad5ef3_1f1f_4b2e_8a9a_aabbccddeeff"

static const struct {
	const char *text, *id, *path;
} rows[] = {
	/* the five positives */
	{"0::/kubepods.slice/" POD ".slice/cri-containerd-" A ".scope\n", A,
	 "/kubepods.slice/" POD ".slice/cri-containerd-" A ".scope"},
	{"0::/system.slice/containerd.service/" POD ".slice:cri-containerd:" A "\n", A,
	 "/system.slice/containerd.service/" POD ".slice:cri-containerd:" A},
	{"0::/machine.slice/libpod-" A ".scope/container\n", A,
	 "/machine.slice/libpod-" A ".scope/container"},
	{"12:memory:/docker/" A "\n11:cpu,cpuacct:/docker/" A "\n", A, "/docker/" A},
	{"4:memory:/kubepods/besteffort/podd2ad5ef3-1f1f/crio-" A "\n", A,
	 "/kubepods/besteffort/podd2ad5ef3-1f1f/crio-" A},
	/* the negatives */
	{"0::/system.slice/my\\x2dapp@a:b.service\n", "", "/system.slice/my-app@a:b.service"},
	{"0::/user.slice\n", "", "/user.slice"},
	{"0::/machine.slice/crio-conmon-" A ".scope\n", "",
	 "/machine.slice/crio-conmon-" A ".scope"},
	{"0::/machine.slice/libpod-conmon-" A ".scope\n", "",
	 "/machine.slice/libpod-conmon-" A ".scope"},
	{"0::/kubepods/podd2ad5ef3-1f1f-4b2e-8a9a-aabbccddeeff\n", "",
	 "/kubepods/podd2ad5ef3-1f1f-4b2e-8a9a-aabbccddeeff"},
	{"0::/x/" A "0\n", "", "/x/" A "0"}, /* 65 digits */
	{"0::/x/0" A ".scope\n", "", "/x/0" A ".scope"},
	{"0::/x/ABCDEF6789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", "",
	 "/x/ABCDEF6789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
	{"0::/x/-" A "\n", "", "/x/-" A},
	{"0::/x/" A "x\n", "", "/x/" A "x"},
	/* more drivers */
	{"0::/system.slice/docker-" A ".scope\n", A, "/system.slice/docker-" A ".scope"},
	{"0::/system.slice/docker-" A ".scope/init.scope\n", A,
	 "/system.slice/docker-" A ".scope/init.scope"},
	{"0::/default/" A "\n", A, "/default/" A}, /* nerdctl, ctr */
	{"0::/user.slice/libpod-payload-" A "\n", A, "/user.slice/libpod-payload-" A},
	{"3:pids:/ecs/d0a1b2c3/" A "\n", A, "/ecs/d0a1b2c3/" A},
	{"0::/../../docker/" A "\n", A, "/../../docker/" A}, /* read from another cgroup ns */
	{"0::/docker/" A " (deleted)\n", A, "/docker/" A},
	/* nested: the innermost; a monitor inside a container is in that container */
	{"0::/docker/" A "/docker/" B "\n", B, "/docker/" A "/docker/" B},
	{"0::/docker/" A "/crio-conmon-" B ".scope\n", A, "/docker/" A "/crio-conmon-" B ".scope"},
	/* hybrid: the line with an id wins */
	{"9:name=systemd:/docker/" A "\n8:pids:/docker/" A "\n0::/\n", A, "/docker/" A},
	{"9:name=systemd:/docker/" A "\n0::/system.slice/docker.service\n", A,
	 "/system.slice/docker.service"},
	{"9:name=systemd:/x\n0::/docker/" B "\n", B, "/docker/" B},
	{"9:cpu:/docker/" A "\n0::/docker/" B "\n", B, "/docker/" B},
	{"9:cpu:/\n8:memory:/jobs/7\n0::/\n", "", "/jobs/7"},
	{"9:cpu:/\n0::/\n", "", "/"},
	/* colons, missing ends, rubbish */
	{"0::/a:b/docker-" A ".scope", A, "/a:b/docker-" A ".scope"},
	{"0::/a\\x2fb\\x00c\\xzz\\x4\n", "", "/a/b\\x00c\\xzz\\x4"},
	{"", "", ""},
	{"\n\n", "", ""},
	{"no colons at all " A "\n", "", ""},
	{"0:only-one\n", "", ""},
	{"0::\n", "", ""},
	{"0::relative/" A "\n", "", ""},
	{":::/" A, "", ""},
};

static void process_container__forms__give_exact_ids(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char id[65], path[512];

		process_container_id(rows[i].text, id);
		process_cgroup_path(rows[i].text, path, sizeof(path));
		if (strcmp(id, rows[i].id) || strcmp(path, rows[i].path))
			print_error("row %zu: %s\n", i, rows[i].text);
		assert_string_equal(id, rows[i].id);
		assert_string_equal(path, rows[i].path);
	}
}

static void process_cgroup_path__small_buffer__is_cut(void **state)
{
	char out[8];

	(void)state;
	memset(out, 'x', sizeof(out));
	process_cgroup_path("0::/abcdefghij\n", out, sizeof(out));
	assert_string_equal(out, "/abcdef");
	process_cgroup_path("0::/abc\n", out, 1);
	assert_string_equal(out, "");
	process_cgroup_path("0::/abc\n", out, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(process_container__forms__give_exact_ids),
		cmocka_unit_test(process_cgroup_path__small_buffer__is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
