// SPDX-License-Identifier: Apache-2.0
/* kernel_names: what was looked up before is found without a look-up, as long as it is true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "agent/kernel_names.h"

static void keep(struct kernel_names *names, uint64_t start, uint64_t end, char *name, char *module)
{
	struct symbol_query query = {.address = start + 1,
				     .found = 1,
				     .start = start,
				     .end = end,
				     .name = name,
				     .module = module};

	kernel_names_keep(names, &query);
}

static void expect(const struct kernel_names *names, uint64_t address, const char *name,
		   uint64_t start)
{
	uint64_t found = 0;
	const char *text = kernel_names_find(names, address, &found);

	if (!name) {
		assert_null(text);
		return;
	}
	assert_non_null(text);
	assert_string_equal(text, name);
	assert_int_equal(found, start);
}

static void kernel_names__symbol__covers_its_addresses_alone(void **state)
{
	struct kernel_names *names;
	char b[] = "b", a[] = "a", c[] = "c", bpf[] = "[bpf]", other[] = "other";

	(void)state;
	assert_int_equal(kernel_names_new(&names), 0);
	expect(names, 0x1000, NULL, 0);
	keep(names, 0x2000, 0x2100, b, NULL);
	keep(names, 0x1000, 0x1080, a, NULL);
	keep(names, 0x2100, 0x2101, c, NULL);
	keep(names, 0x9000, 0x9100, b, bpf);
	keep(names, 0x2000, 0x2100, other, NULL);
	expect(names, 0xfff, NULL, 0);
	expect(names, 0x1000, "a", 0x1000);
	expect(names, 0x107f, "a", 0x1000);
	expect(names, 0x1080, NULL, 0);
	expect(names, 0x20ff, "b", 0x2000);
	expect(names, 0x2100, "c", 0x2100);
	expect(names, 0x2101, NULL, 0);
	expect(names, 0x9001, NULL, 0);
	kernel_names_free(names);
}

static void kernel_names__module_comes__nothing_is_known_any_more(void **state)
{
	struct kernel_names *names;
	char a[] = "a";

	(void)state;
	assert_int_equal(kernel_names_new(&names), 0);
	kernel_names_check(names, "", 0);
	keep(names, 0x1000, 0x1080, a, NULL);
	kernel_names_check(names, "", 0);
	expect(names, 0x1001, "a", 0x1000);
	kernel_names_check(names, "ext4 1 0 -\n", 11);
	expect(names, 0x1001, NULL, 0);
	keep(names, 0x1000, 0x1080, a, NULL);
	/* Somebody uses it: nothing moved. */
	kernel_names_check(names, "ext4 1 7 -\n", 11);
	expect(names, 0x1001, "a", 0x1000);
	kernel_names_check(names, "xfs 1 0 -", 9);
	expect(names, 0x1001, NULL, 0);
	kernel_names_free(names);
}

static void kernel_names__full__begins_anew(void **state)
{
	struct kernel_names *names;
	char a[] = "a";

	(void)state;
	assert_int_equal(kernel_names_new(&names), 0);
	for (uint64_t i = 1; i <= KERNEL_NAMES_MAX + 1; i++)
		keep(names, i * 16, i * 16 + 8, a, NULL);
	expect(names, 16, NULL, 0);
	expect(names, (KERNEL_NAMES_MAX + 1) * 16ULL, "a", (KERNEL_NAMES_MAX + 1) * 16ULL);
	kernel_names_free(names);
	kernel_names_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_names__symbol__covers_its_addresses_alone),
		cmocka_unit_test(kernel_names__module_comes__nothing_is_known_any_more),
		cmocka_unit_test(kernel_names__full__begins_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
