// SPDX-License-Identifier: Apache-2.0
/* config: the table against itself, values, findings, sources and changes; every allocation failed.
 */
#include "config/config.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct config_report report;

static struct config *read_text(const char *text)
{
	struct config *config;

	memset(&report, 0, sizeof(report));
	assert_int_equal(config_new(&config), 0);
	assert_int_equal(config_read(config, text, strlen(text), &report), 0);
	config_check(config, &report);
	config_report_sort(&report);
	return config;
}

static const struct config_key *key_of(const char *path)
{
	const struct config_key *key;

	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (!strcmp(config_key_path(key), path))
			return key;
	}
	fail_msg("there is no key %s", path);
	return NULL;
}

static void assert_value(const struct config *config, const char *path, const char *value)
{
	struct buf text;

	buf_init(&text, MEM_CONFIG, 4096);
	config_value_print(config, key_of(path), 0, &text);
	assert_string_equal(text.data, value);
	buf_done(&text);
}

static void config__table__names_are_one_each(void **state)
{
	const struct config_key *key, *other;
	char a[CONFIG_NAME_MAX], b[CONFIG_NAME_MAX];
	size_t of_target = 0;

	(void)state;
	for (size_t i = 0; (key = config_key_get(i)); i++) {
		of_target += config_key_is_of_target(key);
		assert_true(strlen(config_key_path(key)) < CONFIG_NAME_MAX - 12);
		for (size_t j = 0; j < i; j++) {
			other = config_key_get(j);
			assert_string_not_equal(config_key_path(key), config_key_path(other));
			if (config_key_variable(key, a) && config_key_variable(other, b))
				assert_string_not_equal(a, b);
		}
	}
	assert_int_equal(of_target, CONFIG_TARGET_KEYS);
	assert_true(config_key_variable(key_of("ebpf.stackMapType"), a));
	assert_string_equal(a, "FLYBALL_EBPF_STACK_MAP_TYPE");
	assert_false(config_key_variable(key_of("export.targets"), a));
}

static void config__defaults__are_those_of_the_standards(void **state)
{
	struct config *c = read_text("");

	(void)state;
	assert_int_equal(report.count, 0);
	assert_int_equal(c->sampling_hz, 19);
	assert_int_equal(c->cpu_budget_ppm, 15000);
	assert_int_equal(c->max_stack_depth, 64);
	assert_true(c->has_throttling && c->memory.drops_on_pressure);
	assert_false(c->ebpf.has_dwarf_in_kernel);
	assert_int_equal(c->memory.budget_ppm, 0);
	assert_int_equal(c->memory_limit_bytes, 1 << 30);
	assert_int_equal(c->store.max_bytes, 1 << 30);
	assert_int_equal(c->store.max_age_ns, 7 * 86400 * 1000000000LL);
	assert_int_equal(c->window_ns, 10000000000LL);
	assert_string_equal(c->store.directory, "/var/lib/flyball");
	assert_int_equal(c->log.level, LOG_INFO);
	assert_int_equal(c->service_name_variables.count, 1);
	config_free(c);
}

static void config__values__of_each_type(void **state)
{
	struct config *c = read_text("cpuBudgetPercent: 0.25\n"
				     "window: 500ms\n"
				     "store: {maxBytes: 512Mi, maxAge: 36h, directory: '/a b'}\n"
				     "unwindStrategy: framePointers\n"
				     "policy: {exclude: {uids: [0, 1000], comms: [\"a, b\"]}}\n"
				     "log: {level: debug, format: json}\n"
				     "export:\n"
				     "  targets:\n"
				     "  - kind: otlp-http\n"
				     "    endpoint: https://collector:4318/x\n"
				     "    headers: {Authorization: Bearer abc}\n");

	(void)state;
	/* A window below its least is told, and the default stays. */
	assert_int_equal(report.error_count, 1);
	assert_string_equal(report.findings[0].key, "window");
	assert_int_equal(report.findings[0].place.line, 2);
	assert_int_equal(report.findings[0].place.column, 9);
	assert_value(c, "window", "10s");
	assert_value(c, "cpuBudgetPercent", "0.25");
	assert_value(c, "store.maxBytes", "512Mi");
	assert_value(c, "store.maxAge", "36h");
	assert_value(c, "store.directory", "\"/a b\"");
	assert_value(c, "policy.exclude.uids", "[\"0\", \"1000\"]");
	assert_string_equal(c->exclude.comms.items[0], "a, b");
	assert_int_equal(c->unwind_strategy, CONFIG_UNWIND_FRAME_POINTERS);
	assert_int_equal(c->log.level, LOG_DEBUG);
	assert_int_equal(c->log.format, CONFIG_LOG_JSON);
	assert_int_equal(c->target_count, 1);
	assert_int_equal(c->targets[0].kind, CONFIG_EXPORT_OTLP_HTTP);
	assert_string_equal(c->targets[0].headers.items[0], "Authorization: Bearer abc");
	assert_value(c, "export.targets[].headers", "{\"Authorization\": \"(hidden)\"}");
	assert_int_equal(c->targets[0].timeout_ns, 10000000000LL);
	config_free(c);
}

static void config__sources__later_goes_over_earlier(void **state)
{
	struct config *c = read_text("store: {directory: /file, maxBytes: 2Gi}\n");
	char *variables[] = {"FLYBALL_STORE_DIRECTORY=/environment",
			     "FLYBALL_POLICY_EXCLUDE_UIDS=0, 7",
			     "FLYBALL_STORE_MAXBYTES=1Gi",
			     "FLYBALL_PORT=tcp://10.0.0.1:80",
			     "PATH=/bin",
			     "FLYBALL_WINDOW",
			     NULL};
	struct config_place place;

	(void)state;
	assert_int_equal(config_read_environment(c, variables, &report), 0);
	place = config_place_of(c, key_of("store.directory"), 0);
	assert_int_equal(place.source, CONFIG_ENVIRONMENT);
	assert_string_equal(place.name, "FLYBALL_STORE_DIRECTORY");
	assert_int_equal(config_set(c, "store.directory", "/flag", "--store", &report), 0);
	assert_string_equal(c->store.directory, "/flag");
	assert_int_equal(config_place_of(c, key_of("store.directory"), 0).source, CONFIG_FLAG);
	place = config_place_of(c, key_of("store.maxBytes"), 0);
	assert_int_equal(place.source, CONFIG_FILE);
	assert_int_equal(place.line, 1);
	assert_int_equal(place.column, 37);
	assert_value(c, "policy.exclude.uids", "[\"0\", \"7\"]");
	/* The one that looks like a key. */
	assert_int_equal(report.count, 1);
	assert_true(report.findings[0].is_note);
	assert_string_equal(report.findings[0].key, "FLYBALL_STORE_MAXBYTES");
	assert_int_equal(report.error_count, 0);
	assert_int_equal(config_set(c, "store.directory", "relative", "--store", &report), 0);
	assert_int_equal(report.error_count, 1);
	assert_string_equal(c->store.directory, "/flag");
	config_free(c);
}

static void config__changes__say_what_and_whether_live(void **state)
{
	static const char before[] =
		"samplingFrequencyHz: 19\nexport: {targets: [{kind: parca, endpoint: "
		"'http://a', headers: {a: b}}]}\n";
	const struct config_key *keys[8];
	struct config *a = read_text(before), *b = read_text(before);

	(void)state;
	assert_int_equal(report.count, 0);
	assert_int_equal(config_changes(a, b, keys, 8), 0);
	config_free(b);
	b = read_text(
		"samplingFrequencyHz: 49\nringBufferSizeKb: 2048\npolicy: {include: {comms: [x]}}\n"
		"export: {targets: [{kind: parca, endpoint: 'http://a', headers: {a: c}}]}\n");
	assert_int_equal(config_changes(a, b, keys, 8), 4);
	assert_string_equal(config_key_path(keys[0]), "samplingFrequencyHz");
	assert_true(config_key_is_live(keys[0]));
	assert_string_equal(config_key_path(keys[1]), "ringBufferSizeKb");
	assert_false(config_key_is_live(keys[1]));
	assert_string_equal(config_key_path(keys[2]), "policy.include.comms");
	/* A header's value alone, which is not shown, is a change. */
	assert_string_equal(config_key_path(keys[3]), "export.targets");
	assert_int_equal(config_changes(a, b, keys, 1), 4);
	config_free(a);
	config_free(b);
}

static void config__findings__are_bounded(void **state)
{
	char text[8192];
	size_t n = 0;
	struct config *c;

	(void)state;
	for (int i = 0; i < 300; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "unknown%d: 1\n", i);
	c = read_text(text);
	assert_int_equal(report.count, CONFIG_FINDINGS_MAX);
	assert_true(report.is_full);
	assert_int_equal(report.findings[CONFIG_FINDINGS_MAX - 1].place.line, CONFIG_FINDINGS_MAX);
	assert_int_equal(config_check(c, &report), -EINVAL);
	config_free(c);
}

static void config__memory__every_allocation_may_fail(void **state)
{
	static const char text[] =
		"store: {directory: /x}\npolicy: {include: {uids: [1, 2]}}\n"
		"export: {targets: [{kind: parca, endpoint: 'http://a', headers: {a: b}}]}\n";
	size_t live = mem_live_bytes(MEM_CONFIG);
	struct config *c;
	bool has_failed = true;
	unsigned long n;
	int err;

	(void)state;
	for (n = 1; has_failed && n < 1000; n++) {
		memset(&report, 0, sizeof(report));
		c = NULL;
		mem_fail_after(n);
		err = config_new(&c);
		if (!err)
			err = config_read(c, text, sizeof(text) - 1, &report);
		has_failed = err || report.error_count;
		assert_true(!err || err == -ENOMEM);
		mem_fail_after(0);
		config_free(c);
		assert_int_equal(mem_live_bytes(MEM_CONFIG), live);
	}
	assert_in_range(n, 30, 900);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(config__table__names_are_one_each),
		cmocka_unit_test(config__defaults__are_those_of_the_standards),
		cmocka_unit_test(config__values__of_each_type),
		cmocka_unit_test(config__sources__later_goes_over_earlier),
		cmocka_unit_test(config__changes__say_what_and_whether_live),
		cmocka_unit_test(config__findings__are_bounded),
		cmocka_unit_test(config__memory__every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
