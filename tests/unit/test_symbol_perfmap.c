// SPDX-License-Identifier: Apache-2.0
/* perf maps as JVMs, Node and others write them, and as nobody should. */
#include "symbol/symbol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static int file_of(const char *text, size_t bytes)
{
	int fd = memfd_create("map", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, bytes), bytes);
	return fd;
}

static struct symbol_perfmap_stats expect(const char *text, uint64_t address, const char *name)
{
	struct symbol_perfmap_stats stats = {0};
	struct symbol_query q = {.address = address};
	int fd = file_of(text, strlen(text));

	assert_int_equal(symbol_lookup_perfmap(fd, &q, 1, &stats, NULL), 0);
	close(fd);
	if (name) {
		assert_int_equal(q.found, 1);
		assert_string_equal(q.name, name);
		assert_true(q.start <= address);
	} else {
		assert_int_equal(q.found, 0);
	}
	mem_free(MEM_SYMBOL, q.name);
	assert_int_equal(mem_live_bytes(MEM_SYMBOL), 0);
	return stats;
}

static void symbol_perfmap__both_forms__are_read(void **state)
{
	(void)state;
	expect("7f00 20 f\n", 0x7f1f, "f");
	expect("7f00 20 f\n", 0x7f20, NULL);
	expect("7f00 20 f\n", 0x7eff, NULL);
	expect("0x00007fc1154001a0 0x0000000000000110 void java.lang.Foo::bar(int, X)\n",
	       0x7fc1154001a1, "void java.lang.Foo::bar(int, X)");
	expect("7F00 2A f\n", 0x7f29, "f");
	expect("7f00\t20  f g \r\n", 0x7f00, "f g");
	expect("7f00 20 ~a;b /x/y.js:1:2\n", 0x7f00, "~a;b /x/y.js:1:2");
	expect("ffffffffffffff00 ff f\n", 0xffffffffffffff00, "f");
}

/* What each runtime writes after start and size. */
static void symbol_perfmap__names_of_runtimes__are_as_written(void **state)
{
	static const char *const names[] = {
		/* .NET */
		"void [System.Private.CoreLib] System.Threading.Thread::StartCallback()[PreJIT]",
		"void [app] App.Program::Spin(int32,string[])[OptimizedTier1]",
		"instance !!0 [app] Box`1[System.__Canon]::Get(class [app] Key&)[Tier0]",
		"stub<1> AllocateTemporaryEntryPoints<PRECODE_FIXUP>",
		/* Node */
		"JS:~spin /srv/app.js:1:15",
		"JS:^spin /srv/app.js:1:15",
		"JS:*spin file:///srv/a b/app.mjs:10:3",
		"LazyCompile:*leaf_two /srv/app.js:20:19",
		"Script:~ /srv/app.js:1:1",
		"BytecodeHandler:LdaSmi.Wide",
		"Builtin:InterpreterEntryTrampoline",
		/* JVM, with and without perf-map-agent's unfolding */
		"Lcom/example/App;::spin",
		"Lcom/example/App$$Lambda$14+0x00007f;::run",
		"java.lang.String com.example.App.spin(int, java.util.List)",
		"Interpreter",
		"StubRoutines (compiler stubs)",
		"call_stub",
		/* CPython */
		"py::leaf_one:/srv/app.py",
		"py::<module>:<string>",
		"py::Class.<locals>.<lambda>:/srv/a b.py",
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(text, sizeof(text), "7f0000001000 40 before\n00007F0000001040 60 %s\n",
			 names[i]);
		expect(text, 0x7f0000001041, names[i]);
		snprintf(text, sizeof(text), "0x7f0000001040 0x60 %s\n7f00000010a0 1 after\n",
			 names[i]);
		expect(text, 0x7f000000109f, names[i]);
	}
}

static void symbol_perfmap__bad_lines__are_passed_over_and_counted(void **state)
{
	struct symbol_perfmap_stats s;

	(void)state;
	s = expect("\n\r\nx\n7f00\n7f00 20\n7f00 20 \n7f00 20 f\n-1 5 g\n7f00  g\n"
		   "10000000000000000 5 h\nfffffffffffffff0 20 i\n7f00,20,f\n",
		   0x7f00, "f");
	assert_int_equal(s.lines, 1);
	assert_int_equal(s.skipped, 9);
	assert_false(s.is_unfinished);
	s = expect("", 0x7f00, NULL);
	assert_int_equal(s.lines + s.skipped, 0);
	s = expect("7f00 0 f\n", 0x7f00, NULL); /* covers nothing */
	assert_int_equal(s.lines, 1);
}

static void symbol_perfmap__no_newline_at_the_end__is_read_and_told(void **state)
{
	struct symbol_perfmap_stats s;

	(void)state;
	s = expect("7f00 20 f\n7f20 20 g", 0x7f21, "g");
	assert_true(s.is_unfinished);
	s = expect("7f00 20 f\n7f20 2", 0x7f21, NULL);
	assert_true(s.is_unfinished);
	assert_int_equal(s.skipped, 1);
}

static void symbol_perfmap__overlap__the_last_line_counts(void **state)
{
	static const char text[] = "1000 100 old\n1040 20 mid\n1050 8 new\n0 10000 all\n1050 1 x\n";
	char map[256] = "";

	(void)state;
	expect(text, 0x1050, "x");
	expect(text, 0x1051, "all");
	memcpy(map, text, 36); /* the first three */
	expect(map, 0x1030, "old");
	expect(map, 0x1040, "mid");
	expect(map, 0x1050, "new");
	expect(map, 0x1058, "mid");
	expect(map, 0x1060, "old");
}

/* Against the plain way, over random lines and addresses. */
static void symbol_perfmap__many__are_answered_as_one_by_one(void **state)
{
	enum { LINES = 3000, QUERIES = 500 };
	static struct symbol_query q[QUERIES];
	static uint64_t start[LINES], size[LINES];
	unsigned int seed = 1;
	char *text = malloc(LINES * 64);
	size_t at = 0;
	int fd;

	(void)state;
	assert_non_null(text);
	for (size_t i = 0; i < LINES; i++) {
		start[i] = (uint64_t)rand_r(&seed) % 100000;
		size[i] = (uint64_t)rand_r(&seed) % (i % 50 ? 60 : 3000);
		at += (size_t)snprintf(text + at, 64, "%lx %lx n%zu\n", start[i], size[i], i);
	}
	for (size_t i = 0; i < QUERIES; i++)
		q[i].address = (uint64_t)rand_r(&seed) % 101000;
	fd = file_of(text, at);
	assert_int_equal(symbol_lookup_perfmap(fd, q, QUERIES, NULL, NULL), 0);
	for (size_t i = 0; i < QUERIES; i++) {
		char want[16] = "";

		for (size_t n = 0; n < LINES; n++) {
			if (q[i].address - start[n] < size[n])
				snprintf(want, sizeof(want), "n%zu", n);
		}
		assert_int_equal(q[i].found, want[0] != 0);
		if (want[0])
			assert_string_equal(q[i].name, want);
		mem_free(MEM_SYMBOL, q[i].name);
	}
	close(fd);
	free(text);
	assert_int_equal(mem_live_bytes(MEM_SYMBOL), 0);
}

static void symbol_perfmap__long_lines__are_cut_and_the_next_is_found(void **state)
{
	struct symbol_query q[2] = {{.address = 0x1000}, {.address = 0x2000}};
	struct symbol_perfmap_stats s;
	size_t long_bytes = 200000;
	char *text = malloc(long_bytes + 64);
	int fd;

	(void)state;
	assert_non_null(text);
	memset(text, 'a', long_bytes);
	memcpy(text, "1000 10 ", 8);
	memcpy(text + long_bytes, "\n2000 10 next\n", 15);
	fd = file_of(text, long_bytes + 14);
	assert_int_equal(symbol_lookup_perfmap(fd, q, 2, &s, NULL), 0);
	assert_int_equal(s.lines, 2);
	assert_int_equal(strlen(q[0].name), SYMBOL_NAME_MAX - 1);
	assert_string_equal(q[0].name + SYMBOL_NAME_MAX - 4, "\xe2\x80\xa6");
	assert_string_equal(q[1].name, "next");
	mem_free(MEM_SYMBOL, q[0].name);
	mem_free(MEM_SYMBOL, q[1].name);
	close(fd);
	free(text);
}

static void symbol_perfmap__names_of_bytes__are_printable(void **state)
{
	(void)state;
	expect("7f00 20 a\001b\xff\n", 0x7f00, "a?b\xef\xbf\xbd");
	expect("7f00 20 _ZN1a1bEv\n", 0x7f00, "a::b()");
}

static void symbol_perfmap__not_a_file__is_refused(void **state)
{
	struct symbol_query q = {.address = 1};
	struct why why = {""};
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(symbol_lookup_perfmap(ends[0], &q, 1, NULL, &why), -EBADMSG);
	assert_string_equal(why.text, "not a regular file");
	close(ends[0]);
	close(ends[1]);
}

static void symbol_perfmap__larger_than_the_limit__is_read_up_to_it(void **state)
{
	struct symbol_query q[2] = {{.address = 0x7f00}, {.address = 0x8f00}};
	struct symbol_perfmap_stats s;
	int fd = file_of("7f00 20 f\n", 10);

	(void)state;
	assert_int_equal(ftruncate(fd, (1LL << 32) + 5), 0); /* a hole: one line of zeros */
	assert_int_equal(pwrite(fd, "\n8f00 20 g\n", 11, (1LL << 32) - 10), 11);
	assert_int_equal(symbol_lookup_perfmap(fd, q, 2, &s, NULL), 0);
	assert_true(s.is_cut);
	assert_string_equal(q[0].name, "f");
	assert_int_equal(q[1].found, 0);
	mem_free(MEM_SYMBOL, q[0].name);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(symbol_perfmap__both_forms__are_read),
		cmocka_unit_test(symbol_perfmap__names_of_runtimes__are_as_written),
		cmocka_unit_test(symbol_perfmap__bad_lines__are_passed_over_and_counted),
		cmocka_unit_test(symbol_perfmap__no_newline_at_the_end__is_read_and_told),
		cmocka_unit_test(symbol_perfmap__overlap__the_last_line_counts),
		cmocka_unit_test(symbol_perfmap__many__are_answered_as_one_by_one),
		cmocka_unit_test(symbol_perfmap__long_lines__are_cut_and_the_next_is_found),
		cmocka_unit_test(symbol_perfmap__names_of_bytes__are_printable),
		cmocka_unit_test(symbol_perfmap__not_a_file__is_refused),
		cmocka_unit_test(symbol_perfmap__larger_than_the_limit__is_read_up_to_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
