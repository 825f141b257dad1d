// SPDX-License-Identifier: Apache-2.0
/* Main's check of what the reader says, and the reader's parsing of /proc texts. */
#include "abi/reasons.h"
#include "helpers/helpers_answer.h"
#include "helpers/reader_scan.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const uint64_t asked[3] = {0x10, 0x20, 0x30};
static const struct helpers_name names[3] = {{0x10, 0, 0x8, "one"},
					     {0x20, FLY_UNNAMED_NO_SYMBOL, 0, ""},
					     {0x30, 0, 0x30, "caf\xc3\xa9"}};

static int check(const struct buf *b, uint32_t op, struct helpers_answer *a)
{
	return helpers_answer_check(b->data, b->len, op, 7, asked, 3, a);
}

static void answer__names__survive_the_way(void **state)
{
	struct helpers_answer a;
	struct buf b;

	(void)state;
	buf_init(&b, MEM_HELPERS, 65536);
	helpers_answer_names(&b, WIRE_NAMES, names, 3);
	helpers_answer_debug(&b, true, "x.debug");
	assert_int_equal(check(&b, WIRE_NAMES, &a), 0);
	assert_int_equal(a.result.name_count, 3);
	assert_string_equal(a.result.names[0].name, "one");
	assert_int_equal(a.result.names[1].unnamed, FLY_UNNAMED_NO_SYMBOL);
	assert_string_equal(a.result.names[2].name, "caf\xc3\xa9");
	assert_true(a.result.is_stripped);
	assert_string_equal(a.result.debug_link, "x.debug");
	helpers_answer_done(&a);
	assert_int_equal(check(&b, WIRE_VDSO, &a), -EBADMSG);
	assert_int_equal(helpers_answer_check(b.data, b.len, WIRE_NAMES, 7, asked, 2, &a),
			 -EBADMSG);
	buf_done(&b);
}

static void answer__a_digest__is_whole_or_refused(void **state)
{
	uint8_t digest[ELF_BLAKE2B_BYTES] = {1, 2, 3};
	struct helpers_answer a;
	struct buf b;

	(void)state;
	buf_init(&b, MEM_HELPERS, 65536);
	helpers_answer_digest(&b, WIRE_PACK, digest);
	assert_int_equal(check(&b, WIRE_PACK, &a), 0);
	assert_memory_equal(a.result.digest, digest, sizeof(digest));
	helpers_answer_done(&a);
	assert_int_equal(check(&b, WIRE_PACK_DIGEST, &a), -EBADMSG);
	for (size_t cut = 0; cut < b.len; cut++)
		assert_int_equal(helpers_answer_check(b.data, cut, WIRE_PACK, 7, asked, 0, &a),
				 -EBADMSG);
	buf_done(&b);
}

static void expect_bad_name(struct helpers_name name)
{
	struct helpers_answer a;
	struct buf b;

	buf_init(&b, MEM_HELPERS, 65536);
	helpers_answer_names(&b, WIRE_NAMES, &name, 1);
	helpers_answer_debug(&b, false, "");
	assert_int_equal(helpers_answer_check(b.data, b.len, WIRE_NAMES, 7, asked, 1, &a),
			 -EBADMSG);
	buf_done(&b);
}

static void answer__names_that_cannot_be__are_refused(void **state)
{
	(void)state;
	expect_bad_name((struct helpers_name){0x11, 0, 0x8, "other address"});
	expect_bad_name((struct helpers_name){0x10, 0, 0x11, "starts behind"});
	expect_bad_name((struct helpers_name){0x10, 0, 0x8, ""});
	expect_bad_name(
		(struct helpers_name){0x10, FLY_UNNAMED_NO_SYMBOL, 0, "named all the same"});
	expect_bad_name((struct helpers_name){0x10, FLY_UNNAMED_COUNT, 0, ""});
	expect_bad_name((struct helpers_name){0x10, 0, 0x8, "\x1b[31m"});
	expect_bad_name((struct helpers_name){0x10, 0, 0x8, "\xff"});
}

static void answer__debug_links_that_are_none__are_left_out_or_refused(void **state)
{
	struct helpers_answer a;
	struct buf b;

	(void)state;
	buf_init(&b, MEM_HELPERS, 65536);
	helpers_answer_names(&b, WIRE_NAMES, names, 3);
	helpers_answer_debug(&b, true, "esc\x1b[31m");
	assert_int_equal(check(&b, WIRE_NAMES, &a), 0);
	assert_string_equal(a.result.debug_link, "");
	helpers_answer_done(&a);
	/* The reader never sends a path. */
	buf_reset(&b);
	helpers_answer_names(&b, WIRE_NAMES, names, 3);
	helpers_answer_debug(&b, true, "../../etc/shadow");
	assert_int_equal(check(&b, WIRE_NAMES, &a), -EBADMSG);
	buf_reset(&b);
	helpers_answer_names(&b, WIRE_NAMES, names, 3);
	assert_int_equal(check(&b, WIRE_NAMES, &a), -EBADMSG);
	buf_done(&b);
}

static void answer__every_cut_and_every_flipped_byte__is_refused_or_harmless(void **state)
{
	static const struct helpers_mapping maps[2] = {
		{0x1000, 0x2000, 0, 5, 8, 1, "/bin/a", false},
		{0x2000, 0x3000, 0x1000, 0, 0, 0, "", true}};
	struct helpers_scan scan = {.tgid = 7,
				    .comm = "c",
				    .exe = "/bin/a",
				    .cgroup = "0::/x\n",
				    .mapping_count = 2,
				    .mappings = maps};
	struct helpers_answer a;
	struct buf b;

	(void)state;
	buf_init(&b, MEM_HELPERS, 65536);
	helpers_answer_scan(&b, &scan);
	assert_int_equal(check(&b, WIRE_SCAN, &a), 0);
	assert_int_equal(a.result.scan->mapping_count, 2);
	assert_string_equal(a.result.scan->mappings[0].path, "/bin/a");
	assert_true(a.result.scan->mappings[1].is_deleted);
	helpers_answer_done(&a);
	for (size_t cut = 0; cut < b.len; cut++)
		assert_int_equal(helpers_answer_check(b.data, cut, WIRE_SCAN, 7, NULL, 0, &a),
				 -EBADMSG);
	for (size_t i = 0; i < b.len * 8; i++) {
		b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
		if (!check(&b, WIRE_SCAN, &a))
			helpers_answer_done(&a);
		b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
	}
	buf_done(&b);
	assert_int_equal(mem_live_bytes(MEM_HELPERS), 0);
}

static void lines_write(struct buf *b)
{
	struct symbol_frames_answer answers[3] = {{0x10, SYMBOL_FRAMES_FOUND, 0, 2},
						  {0x20, SYMBOL_FRAMES_NOT_REACHED, 0, 1},
						  {0x30, SYMBOL_FRAMES_FOUND, 2, 1}};
	struct symbol_frame rows[3] = {{1, 2, 7}, {3, 2, 9}, {0, 2, 0}};
	struct symbol_frames frames = {
		.answers = answers, .count = 3, .frames = rows, .frame_count = 3};

	assert_int_equal(strings_new(MEM_SYMBOL, 4096, &frames.strings), 0);
	strings_add_str(frames.strings, "inner");
	strings_add_str(frames.strings, "/src/a.c");
	strings_add_str(frames.strings, "outer");
	helpers_answer_lines(b, WIRE_LINES, &frames, "");
	strings_free(frames.strings);
}

static void answer__lines__survive_the_way(void **state)
{
	struct helpers_answer a;
	struct buf b;

	(void)state;
	buf_init(&b, MEM_HELPERS, 65536);
	lines_write(&b);
	assert_int_equal(check(&b, WIRE_LINES, &a), 0);
	assert_int_equal(a.result.line_count, 3);
	assert_int_equal(a.result.lines[0].frame_count, 2);
	assert_string_equal(a.result.lines[0].frames[0].function, "inner");
	assert_string_equal(a.result.lines[0].frames[1].function, "outer");
	assert_int_equal(a.result.lines[0].frames[1].line, 9);
	assert_int_equal(a.result.lines[1].unnamed, FLY_UNNAMED_LINES_TIME);
	assert_int_equal(a.result.lines[1].frame_count, 0);
	assert_string_equal(a.result.lines[2].frames[0].function, "");
	assert_string_equal(a.result.lines[2].frames[0].file, "/src/a.c");
	helpers_answer_done(&a);
	assert_int_equal(check(&b, WIRE_NAMES, &a), -EBADMSG);
	for (size_t cut = 0; cut < b.len; cut++)
		assert_int_equal(helpers_answer_check(b.data, cut, WIRE_LINES, 7, asked, 3, &a),
				 -EBADMSG);
	for (size_t i = 0; i < b.len * 8; i++) {
		b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
		if (!check(&b, WIRE_LINES, &a))
			helpers_answer_done(&a);
		b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
	}
	buf_done(&b);
	assert_int_equal(mem_live_bytes(MEM_HELPERS), 0);
}

/* One function in each of two pages, made by hand. */
static void table_write(struct buf *b)
{
	__u64 pages[2] = {fly_page_make(0, 2ULL, 0), fly_page_make(2, 1ULL, 1)};
	__u32 groups[3] = {fly_group_make(0x10, 1), fly_group_make(0x40, 2), fly_group_make(0, 1)};
	__u32 shapes[3 + UNWIND_SHAPE_ROOM] = {0, fly_half_make(1, 0), fly_half_make(0, 0)};
	struct fly_rule rules[2] = {{0}, {.cfa = FLY_CFA_REG, .cfa_reg = 7, .ra_words = -1}};
	struct unwind_table t = {
		.start = 0x10000,
		.machine = 62,
		.pages = pages,
		.groups = groups,
		.shapes = shapes,
		.rules = rules,
		.page_count = 2,
		.group_count = 3,
		.shape_words = 3,
		.rule_count = 2,
		.shape_count = 2,
		.stats = {.fdes = 2},
	};
	static const uint8_t hash[32] = {1, 2, 3};

	assert_int_equal(unwind_table_check(&t, NULL), 0);
	helpers_answer_table(b, WIRE_TABLE, &t, hash);
}

static void answer__a_table__survives_the_way(void **state)
{
	static const uint64_t max = 4096, small = 64;
	const struct unwind_table *t;
	struct helpers_answer a;
	struct fly_rule rule;
	struct buf b;

	(void)state;
	buf_init(&b, MEM_HELPERS, 65536);
	table_write(&b);
	assert_int_equal(helpers_answer_check(b.data, b.len, WIRE_TABLE, 7, &max, 1, &a), 0);
	assert_int_equal(a.result.table->hash[2], 3);
	t = &a.result.table->table;
	assert_int_equal(t->stats.fdes, 2);
	assert_int_equal(unwind_table_find(t, 0x10020, &rule), FLY_FIND_RULE);
	assert_int_equal(rule.ra_words, -1);
	assert_int_equal(unwind_table_find(t, 0x10050, &rule), FLY_FIND_RULE);
	assert_int_equal(rule.cfa, FLY_CFA_NONE);
	helpers_answer_done(&a);
	assert_int_equal(helpers_answer_check(b.data, b.len, WIRE_TABLE, 7, &small, 1, &a),
			 -EBADMSG);
	assert_int_equal(helpers_answer_check(b.data, b.len, WIRE_VDSO_TABLE, 7, &max, 1, &a),
			 -EBADMSG);
	buf_done(&b);
	assert_int_equal(mem_live_bytes(MEM_HELPERS), 0);
}

/* Whatever the reader says, every address can be looked up in what is let through. */
static void answer__every_flipped_bit_of_a_table__is_refused_or_harmless(void **state)
{
	static const uint64_t max = 4096;
	unsigned int refused = 0;
	struct helpers_answer a;
	struct buf b;

	(void)state;
	buf_init(&b, MEM_HELPERS, 65536);
	table_write(&b);
	for (size_t cut = 0; cut < b.len; cut++)
		assert_int_equal(helpers_answer_check(b.data, cut, WIRE_TABLE, 7, &max, 1, &a),
				 -EBADMSG);
	for (size_t i = 0; i < b.len * 8; i++) {
		struct fly_rule rule;

		b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
		if (!helpers_answer_check(b.data, b.len, WIRE_TABLE, 7, &max, 1, &a)) {
			const struct unwind_table *t = &a.result.table->table;

			for (uint64_t at = 0; at < 2ULL * FLY_PAGE_BYTES; at += 16)
				unwind_table_find(t, t->start + at, &rule);
			helpers_answer_done(&a);
		} else {
			refused++;
		}
		b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
	}
	assert_true(refused > 8 * 40);
	buf_done(&b);
	assert_int_equal(mem_live_bytes(MEM_HELPERS), 0);
}

static void answer__errors__need_a_reason(void **state)
{
	struct helpers_answer a;
	struct buf b;

	(void)state;
	buf_init(&b, MEM_HELPERS, 65536);
	helpers_answer_error(&b, WIRE_SCAN, -EIO, FLY_UNNAMED_READER_FAILED, "bad\x1b thing");
	assert_int_equal(check(&b, WIRE_SCAN, &a), 0);
	assert_int_equal(a.result.err, -EIO);
	assert_string_equal(a.result.text, "bad? thing");
	helpers_answer_done(&a);
	buf_reset(&b);
	helpers_answer_error(&b, WIRE_SCAN, -EIO, 0, "");
	assert_int_equal(check(&b, WIRE_SCAN, &a), -EBADMSG);
	buf_reset(&b);
	helpers_answer_error(&b, WIRE_SCAN, 5, FLY_UNNAMED_READER_FAILED, "");
	assert_int_equal(check(&b, WIRE_SCAN, &a), -EBADMSG);
	buf_done(&b);
}

/* ------------------------------------------------------------------ /proc texts */

static int text_fd(const char *text)
{
	int fd = memfd_create("text", MFD_CLOEXEC);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void scan(const char *stat, const char *status, const char *cgroup, const char *maps,
		 struct buf *b, struct helpers_answer *a)
{
	struct wire_request job = {.tgid = 7, .op = WIRE_SCAN, .mount_namespace = 42};
	int fds[WIRE_FILES_MAX] = {text_fd(stat), text_fd(status), text_fd(cgroup), text_fd(maps)};

	buf_init(b, MEM_HELPERS, WIRE_ANSWER_MAX);
	reader_scan(&job, fds, "/usr/bin/x (deleted)", b);
	for (int i = 0; i < WIRE_FILES_MAX; i++)
		close(fds[i]);
	assert_int_equal(check(b, WIRE_SCAN, a), 0);
}

static const char good_stat[] =
	"7 (a) b\\n(x)) S 1 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 123 0 0\n";
static const char good_status[] =
	"Name:\ta\nUmask:\t0022\nUid:\t1000\t1001\t1000\t1000\nNStgid:\t7\t3\nNSpid:\t7\t3\t1\n";

static void scan__texts__are_understood(void **state)
{
	static const char maps[] =
		"00400000-00401000 r--p 00000000 fd:01 12 /usr/bin/x\n"
		"00401000-00402000 r-xp 00001000 fd:01 12      /usr/bin/x (deleted)\n"
		"7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n"
		"7f0000001000-7f0000002000 r-xs 00000000 00:05 99  /a\\012b c\n"
		"nonsense\n"
		"7f0000003000-7f0000002000 r-xp 00000000 00:00 0 \n"
		"7fff00000000-7fff00002000 r-xp 00000000 00:00 0                  [vdso]\n"
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\n";
	struct helpers_answer a;
	struct buf b;

	(void)state;
	scan(good_stat, good_status, "0::/a/b\n", maps, &b, &a);
	assert_string_equal(a.scan.comm, "a) b\n(x)");
	assert_string_equal(a.scan.exe, "/usr/bin/x");
	assert_string_equal(a.scan.cgroup, "0::/a/b\n");
	assert_int_equal(a.scan.uid, 1000);
	assert_int_equal(a.scan.namespace_pid, 1);
	assert_int_equal(a.scan.mount_namespace, 42);
	assert_int_equal(a.scan.process_start_ns, 1230000000);
	assert_int_equal(a.scan.mapping_count, 5);
	assert_string_equal(a.scan.mappings[0].path, "/usr/bin/x");
	assert_true(a.scan.mappings[0].is_deleted);
	assert_int_equal(a.scan.mappings[0].dev_major, 0xfd);
	assert_int_equal(a.scan.mappings[0].ino, 12);
	assert_int_equal(a.scan.mappings[0].pgoff, 0x1000);
	assert_string_equal(a.scan.mappings[1].path, "");
	assert_string_equal(a.scan.mappings[2].path, "/a\nb c");
	assert_string_equal(a.scan.mappings[3].path, "[vdso]");
	assert_false(a.scan.is_cut);
	helpers_answer_done(&a);
	buf_done(&b);
}

static void scan__an_ended_process__is_told(void **state)
{
	struct helpers_answer a;
	struct buf b;

	(void)state;
	scan("", "", "", "", &b, &a);
	assert_int_equal(a.result.err, -ESRCH);
	assert_int_equal(a.result.unnamed, FLY_UNNAMED_FILE_GONE);
	helpers_answer_done(&a);
	buf_done(&b);
}

static void scan__too_many_mappings__are_cut(void **state)
{
	struct helpers_answer a;
	struct buf text, b;

	(void)state;
	buf_init(&text, MEM_BASE, 4U << 20);
	for (unsigned int i = 0; i < HELPERS_MAPPINGS_MAX + 10; i++)
		buf_addf(&text, "%x-%x r-xp 00000000 00:00 0  /f%u\n", 0x10000 + i * 0x1000,
			 0x11000 + i * 0x1000, i);
	scan(good_stat, good_status, "", text.data, &b, &a);
	assert_int_equal(a.scan.mapping_count, HELPERS_MAPPINGS_MAX);
	assert_true(a.scan.is_cut);
	assert_string_equal(a.scan.mappings[HELPERS_MAPPINGS_MAX - 1].path, "/f4095");
	helpers_answer_done(&a);
	buf_done(&b);
	buf_done(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answer__names__survive_the_way),
		cmocka_unit_test(answer__a_digest__is_whole_or_refused),
		cmocka_unit_test(answer__names_that_cannot_be__are_refused),
		cmocka_unit_test(answer__debug_links_that_are_none__are_left_out_or_refused),
		cmocka_unit_test(answer__every_cut_and_every_flipped_byte__is_refused_or_harmless),
		cmocka_unit_test(answer__lines__survive_the_way),
		cmocka_unit_test(answer__a_table__survives_the_way),
		cmocka_unit_test(answer__every_flipped_bit_of_a_table__is_refused_or_harmless),
		cmocka_unit_test(answer__errors__need_a_reason),
		cmocka_unit_test(scan__texts__are_understood),
		cmocka_unit_test(scan__an_ended_process__is_told),
		cmocka_unit_test(scan__too_many_mappings__are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
