// SPDX-License-Identifier: Apache-2.0
#include "agent/ksymbols.h"

#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define AT    0xffffffffc0201000ULL
#define BYTES 0x100
#define S     1000000000ULL

static void *fresh(void)
{
	struct ksymbols *symbols = NULL;

	assert_int_equal(ksymbols_new(&symbols), 0);
	return symbols;
}

/* What was at an address then; "": kallsyms is asked; "?": nobody knows. */
static const char *then(const struct ksymbols *symbols, uint64_t address, uint64_t time_ns)
{
	uint16_t version = ksymbols_version(symbols, address, time_ns);
	uint64_t start = 0;
	const char *name = ksymbols_name(symbols, address, version, &start);

	if (name)
		assert_in_range(address, start, start + BYTES - 1);
	else
		name = ksymbols_is_last(symbols, address, version) ? "" : "?";
	return name;
}

static void agent__ksymbols__by_time_at_one_address(void **state)
{
	struct ksymbols *symbols = fresh();

	(void)state;
	assert_string_equal(then(symbols, AT, S), "");
	ksymbols_go(symbols, 2 * S, AT, BYTES, "before");
	ksymbols_come(symbols, 3 * S, AT + 0x80, BYTES, "first");
	ksymbols_go(symbols, 4 * S, AT + 0x80, BYTES, "first");
	ksymbols_come(symbols, 5 * S, AT, BYTES, "second");
	/* whole, part of it, and beside it; samples come late, too */
	for (int i = 0; i < 2; i++) {
		assert_string_equal(then(symbols, AT + 0x80, S), "before");
		assert_string_equal(then(symbols, AT + 0x80, 3 * S + 1), "first");
		assert_string_equal(then(symbols, AT + 0x80, 6 * S), "second");
		assert_string_equal(then(symbols, AT + 0x7f, S), "before");
		assert_string_equal(then(symbols, AT + 0x7f, 3 * S + 1), "?");
		assert_string_equal(then(symbols, AT + 0x7f, 6 * S), "second");
		assert_string_equal(then(symbols, AT + 0x100, 3 * S + 1), "first");
		assert_string_equal(then(symbols, AT + 0x100, 6 * S), "");
		assert_string_equal(then(symbols, AT + 0x180, S), "");
		assert_string_equal(then(symbols, AT - 1, 6 * S), "");
	}
	ksymbols_free(symbols);
}

static void agent__ksymbols__what_stays_is_for_kallsyms(void **state)
{
	struct ksymbols *symbols = fresh();
	uint16_t before = ksymbols_version(symbols, AT, S), after;

	(void)state;
	ksymbols_come(symbols, 2 * S, AT, BYTES, "came");
	assert_int_equal(ksymbols_version(symbols, AT, S), before);
	assert_string_equal(then(symbols, AT, S), "?");
	assert_string_equal(then(symbols, AT, 3 * S), "came");
	/* Nobody tells of filters in classic BPF. */
	ksymbols_go(symbols, 4 * S, AT, BYTES, "came");
	assert_string_equal(then(symbols, AT, 4 * S + 1), "came");
	assert_string_equal(then(symbols, AT, 5 * S), "");
	after = ksymbols_version(symbols, AT, 5 * S);
	ksymbols_come(symbols, 6 * S, AT, BYTES, "came again");
	assert_int_equal(ksymbols_version(symbols, AT, 5 * S), after);
	assert_string_equal(then(symbols, AT, 5 * S), "?");
	ksymbols_free(symbols);
}

static void agent__ksymbols__lost_events(void **state)
{
	struct ksymbols *symbols = fresh();

	(void)state;
	ksymbols_come(symbols, 2 * S, AT, BYTES, "first");
	/* its going was lost, then the coming of another */
	ksymbols_come(symbols, 3 * S, AT, BYTES, "second");
	assert_string_equal(then(symbols, AT, 3 * S - 1), "first");
	assert_string_equal(then(symbols, AT, 3 * S), "second");
	ksymbols_go(symbols, 4 * S, AT, BYTES, "second");
	ksymbols_go(symbols, 6 * S, AT, BYTES, "third");
	assert_string_equal(then(symbols, AT, 3 * S), "second");
	assert_string_equal(then(symbols, AT, 5 * S), "third");
	assert_string_equal(then(symbols, AT, 7 * S), "");
	ksymbols_free(symbols);
}

static void agent__ksymbols__many_and_no_more(void **state)
{
	struct ksymbols *symbols = fresh();
	char name[32];

	(void)state;
	for (unsigned int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "prog_%u", i);
		ksymbols_come(symbols, S + i, AT + (uint64_t)(i * 7919U % 20000) * BYTES, BYTES,
			      name);
	}
	for (unsigned int i = 0; i < 16384; i += 100) {
		snprintf(name, sizeof(name), "prog_%u", i);
		assert_string_equal(
			then(symbols, AT + (uint64_t)(i * 7919U % 20000) * BYTES + 9, 2 * S), name);
	}
	assert_string_equal(then(symbols, AT + (uint64_t)(19999U * 7919U % 20000) * BYTES, 2 * S),
			    "");
	ksymbols_go(symbols, 2 * S, AT, BYTES, "prog_0");
	ksymbols_come(symbols, 900 * S, AT, BYTES, "later");
	assert_string_equal(then(symbols, AT, 900 * S), "later");
	assert_string_equal(then(symbols, AT, 2 * S), "?");
	ksymbols_free(symbols);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agent__ksymbols__by_time_at_one_address),
		cmocka_unit_test(agent__ksymbols__what_stays_is_for_kallsyms),
		cmocka_unit_test(agent__ksymbols__lost_events),
		cmocka_unit_test(agent__ksymbols__many_and_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
