// SPDX-License-Identifier: Apache-2.0
#include "base/base.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void why__prefix__puts_clause_in_front(void **state)
{
	struct why why = {""};

	(void)state;
	why_prefix(&why, "nothing yet");
	assert_string_equal(why.text, "");
	assert_int_equal(why_set(&why, -ENOENT, "no file %s", "x"), -ENOENT);
	why_prefix(&why, "reading %d", 7);
	assert_string_equal(why.text, "reading 7: no file x");
	assert_int_equal(why_set(NULL, -EIO, "unused"), -EIO);
}

static void mem__counters__follow_allocation(void **state)
{
	size_t before = mem_live_bytes(MEM_ELF);
	char *p = mem_alloc(MEM_ELF, 1000);

	(void)state;
	assert_non_null(p);
	assert_true(mem_live_bytes(MEM_ELF) >= before + 1000);
	assert_true(mem_peak_bytes(MEM_ELF) >= before + 1000);
	mem_free(MEM_ELF, p);
	assert_int_equal(mem_live_bytes(MEM_ELF), before);
	assert_null(mem_array(MEM_ELF, SIZE_MAX, 16));
	mem_fail_after(1);
	assert_null(mem_alloc(MEM_ELF, 8));
	p = mem_alloc(MEM_ELF, 8);
	assert_non_null(p);
	mem_free(MEM_ELF, p);
}

static void buf__limit__sticks(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, MEM_BASE, 10);
	buf_add_str(&b, "12345");
	buf_addf(&b, "%d", 678);
	assert_int_equal(b.err, 0);
	assert_string_equal(b.data, "12345678");
	buf_add_str(&b, "9ab");
	assert_int_equal(b.err, -ENOSPC);
	buf_add_char(&b, 'x');
	assert_string_equal(b.data, "12345678");
	buf_done(&b);
}

static void strings__equal_text__one_id(void **state)
{
	struct strings *s;

	(void)state;
	assert_int_equal(strings_new(MEM_BASE, 4096, &s), 0);
	assert_int_equal(strings_add_str(s, ""), 0);
	assert_int_equal(strings_add_str(s, "main"), 1);
	assert_int_equal(strings_add(s, "mainly", 4), 1);
	assert_int_equal(strings_add_str(s, "other"), 2);
	assert_string_equal(strings_get(s, 2), "other");
	assert_string_equal(strings_get(s, 99), "");
	for (int i = 0; i < 1000; i++) {
		char text[32];

		snprintf(text, sizeof(text), "string %d", i);
		if (strings_add_str(s, text) == -ENOSPC) {
			strings_free(s);
			return;
		}
	}
	fail_msg("the limit was not kept");
}

static void text__numbers__are_strict(void **state)
{
	uint64_t v;

	(void)state;
	assert_int_equal(text_parse_bytes("64KiB", &v), 0);
	assert_int_equal(v, 65536);
	assert_int_equal(text_parse_bytes("1MiB", &v), 0);
	assert_int_equal(v, 1 << 20);
	assert_int_equal(text_parse_bytes("1M", &v), 0);
	assert_int_equal(text_parse_bytes("5", &v), 0);
	assert_int_equal(v, 5);
	assert_int_equal(text_parse_bytes("-1", &v), -EINVAL);
	assert_int_equal(text_parse_bytes("1X", &v), -EINVAL);
	assert_int_equal(text_parse_bytes("1MiBs", &v), -EINVAL);
	assert_int_equal(text_parse_bytes("99999999999T", &v), -ERANGE);
	assert_int_equal(text_parse_duration("500ms", &v), 0);
	assert_int_equal(v, 500000000);
	assert_int_equal(text_parse_duration("1.5", &v), 0);
	assert_int_equal(v, 1500000000);
	assert_int_equal(text_parse_duration("2m", &v), 0);
	assert_int_equal(v, 120000000000);
	assert_int_equal(text_parse_duration("nan", &v), -EINVAL);
	assert_int_equal(text_parse_duration("7d", &v), 0);
	assert_int_equal(v, 604800000000000ULL);
	assert_int_equal(text_parse_duration("1w", &v), -EINVAL);
	assert_int_equal(text_parse_duration("1e30", &v), -ERANGE);
	assert_int_equal(text_parse_u64("99", 1, 10000, &v), 0);
	assert_int_equal(text_parse_u64("0", 1, 10000, &v), -ERANGE);
	assert_int_equal(text_parse_u64("9x", 1, 10000, &v), -EINVAL);
	assert_int_equal(text_parse_u64("", 1, 10000, &v), -EINVAL);
}

static void text__foreign_bytes__become_printable(void **state)
{
	char out[64];

	(void)state;
	text_print("a\nb\x1b[31m", 8, out, sizeof(out));
	assert_string_equal(out, "a?b?[31m");
	text_print("caf\xc3", 4, out, sizeof(out));
	assert_string_equal(out, "caf\xef\xbf\xbd");
	text_print("caf\xc3\xa9", 5, out, 5);
	assert_string_equal(out, "caf");
	text_print("\xc0\x80\xed\xa0\x80", 5, out, sizeof(out));
	assert_true(text_is_utf8(out, strlen(out)));
	assert_false(text_is_utf8("\xff", 1));
	text_print("\xe2\x80\xae"
		   "evil",
		   7, out, sizeof(out));
	assert_string_equal(out, "?evil");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(why__prefix__puts_clause_in_front),
		cmocka_unit_test(mem__counters__follow_allocation),
		cmocka_unit_test(buf__limit__sticks),
		cmocka_unit_test(strings__equal_text__one_id),
		cmocka_unit_test(text__numbers__are_strict),
		cmocka_unit_test(text__foreign_bytes__become_printable),
	};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
