// SPDX-License-Identifier: Apache-2.0
#include "profile/frames.h"
#include "profile/otlp.h"
#include "profile/writers.h"
#include "profile_fixture.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct profile *make(enum fixture_kind kind)
{
	const struct profile_options options = {.period_ns = FIXTURE_PERIOD_NS,
						.command_line = "flyball </script> \xe2\x80\xa8"};
	struct profile *p = NULL;

	assert_int_equal(profile_new(&options, &p), 0);
	assert_int_equal(fixture_fill(p, kind), 0);
	return p;
}

static void write_to(const struct profile *p, enum profile_format format, bool per_thread,
		     struct fixture_bytes *bytes)
{
	const struct profile_write_options options = {.per_thread = per_thread};

	memset(bytes, 0, sizeof(*bytes));
	assert_int_equal(profile_write(p, format, &options, fixture_sink, bytes, NULL), 0);
}

static void write__format__follows_the_name(void **state)
{
	enum profile_format format;
	struct why why;

	(void)state;
	assert_int_equal(profile_format_of("/a.b/x.pb.gz", &format, &why), 0);
	assert_int_equal(format, PROFILE_PPROF);
	assert_int_equal(profile_format_of("out.html", &format, &why), 0);
	assert_int_equal(format, PROFILE_HTML);
	assert_int_equal(profile_format_of("x.folded", &format, NULL), 0);
	assert_int_equal(profile_format_of("x.otlp", &format, NULL), 0);
	assert_int_equal(profile_format_of("x.json", &format, NULL), 0);
	assert_int_equal(format, PROFILE_OTLP_JSON);
	assert_int_equal(profile_format_of("x.gz", &format, NULL), -EINVAL);
	assert_int_equal(profile_format_of("", &format, NULL), -EINVAL);
	assert_int_equal(profile_format_of("a\x1b[31m.svg", &format, &why), -EINVAL);
	assert_string_equal(why.text, "\"a?[31m.svg\" does not say its format: end the name in "
				      ".html, .pb.gz, .folded, .otlp or .json");
}

static void write__two_calls__equal_bytes(void **state)
{
	struct profile *p = make(FIXTURE_HOSTILE), *q = make(FIXTURE_HOSTILE);

	(void)state;
	for (int format = PROFILE_FOLDED; format <= PROFILE_HTML; format++) {
		struct fixture_bytes a, b, c;

		write_to(p, (enum profile_format)format, true, &a);
		write_to(p, (enum profile_format)format, true, &b);
		write_to(q, (enum profile_format)format, true, &c);
		assert_int_equal(a.len, b.len);
		assert_memory_equal(a.data, b.data, a.len);
		assert_int_equal(a.len, c.len);
		assert_memory_equal(a.data, c.data, a.len);
		fixture_bytes_done(&a);
		fixture_bytes_done(&b);
		fixture_bytes_done(&c);
	}
	profile_free(p);
	profile_free(q);
}

static void write__sink_error__comes_back(void **state)
{
	struct profile *p = make(FIXTURE_HOSTILE);

	(void)state;
	for (int format = PROFILE_FOLDED; format <= PROFILE_HTML; format++) {
		for (size_t after = 1; after < 100000; after *= 4) {
			struct fixture_bytes whole, cut = {.fail_after = after};
			struct why why = {""};
			int err;

			write_to(p, (enum profile_format)format, false, &whole);
			err = profile_write(p, (enum profile_format)format, NULL, fixture_sink,
					    &cut, &why);
			assert_int_equal(err, whole.len > after ? -EPIPE : 0);
			assert_int_equal(why.text[0] != 0, err != 0);
			fixture_bytes_done(&whole);
			fixture_bytes_done(&cut);
		}
	}
	profile_free(p);
}

static void folded__split__reads_as_promised(void **state)
{
	struct profile *p = make(FIXTURE_SPLIT);
	struct fixture_bytes bytes;

	(void)state;
	write_to(p, PROFILE_FOLDED, false, &bytes);
	assert_string_equal((char *)bytes.data,
			    "split;__libc_start_main;main;main;work_a 606060600\n"
			    "split;__libc_start_main;main;main;work_b 303030300\n"
			    "split;__libc_start_main;main;main;work_c 101010100\n");
	fixture_bytes_done(&bytes);
	write_to(p, PROFILE_FOLDED, true, &bytes);
	assert_non_null(strstr((char *)bytes.data,
			       "42/43 split;__libc_start_main;main;main;work_b 101010100\n"));
	fixture_bytes_done(&bytes);
	profile_free(p);
}

static void folded__inlined_calls__are_frames_of_their_own(void **state)
{
	struct profile *p = make(FIXTURE_INLINED);
	struct fixture_bytes bytes;

	(void)state;
	write_to(p, PROFILE_FOLDED, false, &bytes);
	assert_string_equal((char *)bytes.data,
			    "inlined;main;broken 10101010\n"
			    "inlined;main;inlined+0x1a00;inner:x_[i] 20202020\n"
			    "inlined;main;outer 20202020\n"
			    "inlined;main;outer;middle_[i] 10101010\n"
			    "inlined;main;outer;middle_[i];inner:x_[i] 40404040\n");
	fixture_bytes_done(&bytes);
	profile_free(p);
}

static void frames__chain__keeps_files_and_lines(void **state)
{
	struct profile *p = make(FIXTURE_INLINED);
	struct profile_frame frames[PROFILE_LINES_MAX];
	char text[PROFILE_FRAME_TEXT];

	(void)state;
	assert_int_equal(profile_location_chain(p, 0, frames, text), 3);
	assert_string_equal(frames[0].name, "inner;x");
	assert_string_equal(frames[0].file, "/src/a.h");
	assert_int_equal(frames[0].line, 7);
	assert_true(frames[0].is_inlined && frames[1].is_inlined && !frames[2].is_inlined);
	assert_string_equal(frames[2].name, "outer");
	assert_int_equal(frames[2].line, 30);
	/* A call without a name is left out; the code's own is its address then. */
	assert_int_equal(profile_location_chain(p, 2, frames, text), 2);
	assert_string_equal(frames[1].name, "inlined+0x1a00");
	assert_int_equal(frames[1].line, 3);
	assert_string_equal(profile_location_text(p, 3, text), "outer");
	profile_free(p);
}

static void folded__kernel_and_jit__carry_their_mark(void **state)
{
	struct fixture_bytes bytes;
	struct profile *p = make(FIXTURE_KERNEL_ONLY);

	(void)state;
	write_to(p, PROFILE_FOLDED, false, &bytes);
	assert_string_equal(
		(char *)bytes.data,
		"kworker/0:1;[kernel]+0xffffffff81000200_[k];process_one_work_[k];memset_erms_[k] "
		"20202020\n"
		"kworker/0:1;[no stack] 30303030\n"
		"kworker/0:1;memset_erms_[k] 30303030\n"
		"kworker/0:1;process_one_work_[k];memset_erms_[k] 20202020\n");
	fixture_bytes_done(&bytes);
	profile_free(p);
	p = make(FIXTURE_JIT_ONLY);
	write_to(p, PROFILE_FOLDED, false, &bytes);
	assert_string_equal((char *)bytes.data, "C2 CompilerThre;LMain:::run_[j];"
						"[anon]+0x7f0000001234_[j] 50505050\n");
	fixture_bytes_done(&bytes);
	profile_free(p);
}

static void frames__unnamed__say_module_and_address(void **state)
{
	static const struct {
		const char *path;
		enum profile_frame_kind kind;
		uint64_t address;
		const char *text;
	} cases[] = {
		{"/usr/lib/libc.so.6", PROFILE_USER, 0x1234, "libc.so.6+0x1234"},
		{"[vdso]", PROFILE_USER, 0x60, "[vdso]+0x60"},
		{"//anon", PROFILE_JIT, 0x7f0000000010, "[anon]+0x7f0000000010"},
		{"", PROFILE_USER, 0x10, "[unknown]+0x10"},
		{"[kernel.kallsyms]", PROFILE_KERNEL, 0xffffffff81000000,
		 "[kernel]+0xffffffff81000000"},
		{"/memfd:x (y)", PROFILE_USER, 0, "memfd:x (y)+0x0"},
		{"/", PROFILE_USER, 1, "/+0x1"},
	};
	struct profile *p = make(FIXTURE_EMPTY);
	char text[PROFILE_FRAME_TEXT];

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct profile_file file = {.key = i, .path = cases[i].path};
		int64_t id = profile_file_add(p, &file);
		int64_t location =
			profile_location_add(p, (uint32_t)id, cases[i].address, cases[i].kind);

		assert_string_equal(profile_location_text(p, (uint32_t)location, text),
				    cases[i].text);
		profile_location_name(p, (uint32_t)location, "", 0);
		assert_string_equal(profile_location_text(p, (uint32_t)location, text),
				    cases[i].text);
		profile_location_name(p, (uint32_t)location, "main", 0);
		assert_string_equal(profile_location_text(p, (uint32_t)location, text), "main");
	}
	profile_free(p);
}

static void frames__places__give_file_positions(void **state)
{
	struct profile *p = make(FIXTURE_HOSTILE);
	uint64_t *limits = profile_file_limits(p);
	size_t with_mapping = 0;

	(void)state;
	assert_non_null(limits);
	for (uint32_t i = 0; i < p->locations.count; i++) {
		const struct profile_location_key *key = profile_location_key(p, i);
		struct profile_place at;

		profile_location_place(p, i, limits, &at);
		if (!at.has_mapping)
			continue;
		with_mapping++;
		assert_true(at.start <= at.address && at.address < at.limit);
		if (key->kind != PROFILE_KERNEL)
			assert_int_equal(at.address - at.start + at.offset, key->address);
	}
	assert_true(with_mapping > 50);
	mem_free(MEM_PROFILE, limits);
	profile_free(p);
}

static void html__template__is_filled_and_names_stay_inside(void **state)
{
	static const char page[] = "<html><script>@FLYBALL_DATA@</script><p>&amp;";
	struct profile *p = make(FIXTURE_HOSTILE);
	struct fixture_bytes bytes = {.len = 0};
	struct profile_out out;
	const char *json, *end;

	(void)state;
	profile_out_init(&out, fixture_sink, &bytes);
	assert_int_equal(profile_write_html(p, page, sizeof(page) - 1, &out), 0);
	assert_int_equal(profile_out_flush(&out), 0);
	json = (const char *)bytes.data + strlen("<html><script>");
	assert_memory_equal(bytes.data, "<html><script>{\"version\":1,", 27);
	end = (const char *)bytes.data + bytes.len - strlen("</script><p>&amp;");
	assert_string_equal(end, "</script><p>&amp;");
	assert_int_equal(end[-1], '}');
	for (; json < end; json++) {
		assert_null(strchr("<>&\n", *json));
		assert_true(memcmp(json, "\xe2\x80\xa8", 3) != 0);
	}
	fixture_bytes_done(&bytes);
	profile_out_init(&out, fixture_sink, &bytes);
	assert_int_equal(profile_write_html(p, "no marker", 9, &out), -EINVAL);
	fixture_bytes_done(&bytes);
	profile_free(p);
}

/* A request as protoc encoded it from OTLP's own .proto files: our codec reads it, and writes the
 * same bytes. Then every message in it was as OTLP has it. */
static void otlp__golden_bytes__round_trip(void **state)
{
	static const char golden[] =
		"0a780a2a0a150a0c736572766963652e6e616d6512050a037376630a110a0b70726f636573732e70"
		"69641202182a124a0a0b0a0470726f661203302e31123b0a04080110021219080112010118012a10"
		"01002a36fe9c971781f02439fe9c97171900002a36fe9c97172080e497d0122a04080310043080e1"
		"eb17129e020a000a0f0880808002108080800420052a01021200120a08011080a080022201031210"
		"080110e4a080021a04080110072201031a001a0208062200221c0a100102030405060708090a0b0c"
		"0d0e0f10120801020304050607082a002a0773616d706c65732a05636f756e742a036370752a0b6e"
		"616e6f7365636f6e64732a05612e6f75742a046d61696e2a0b7468726561642e6e616d652a237072"
		"6f636573732e65786563757461626c652e6275696c645f69642e68746c686173682a1270726f6669"
		"6c652e6672616d652e747970653200320c080712080a06776f726b65723226080812220a20303031"
		"31323233333434353536363737383839396161626263636464656566"
		"66320c080912080a066e61746976653a003a040a020102";
	uint8_t bytes[411], again[411];
	Otlp__ExportProfilesServiceRequest *r;
	const Otlp__Sample *sample;

	(void)state;
	assert_int_equal(strlen(golden), 2 * sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++) {
		unsigned int byte;

		assert_int_equal(sscanf(golden + 2 * i, "%2x", &byte), 1);
		bytes[i] = (uint8_t)byte;
	}
	r = otlp__export_profiles_service_request__unpack(NULL, sizeof(bytes), bytes);
	assert_non_null(r);
	assert_int_equal(otlp__export_profiles_service_request__get_packed_size(r), sizeof(bytes));
	otlp__export_profiles_service_request__pack(r, again);
	assert_memory_equal(bytes, again, sizeof(bytes));
	sample = r->resource_profiles[0]->scope_profiles[0]->profiles[0]->samples[0];
	assert_int_equal(sample->n_timestamps_unix_nano, 2);
	assert_int_equal(sample->timestamps_unix_nano[0], 1700000000000000001);
	assert_int_equal(sample->link_index, 1);
	assert_string_equal(r->dictionary->string_table[6], "main");
	otlp__export_profiles_service_request__free_unpacked(r, NULL);
}

static void otlp__equal_files__are_one_mapping(void **state)
{
	struct profile *p = make(FIXTURE_HOSTILE);
	struct profile_otlp o;
	size_t twins = 0;

	(void)state;
	assert_int_equal(profile_otlp_init(&o, p), 0);
	for (uint32_t i = 1; i < o.tables[PROFILE_OTLP_MAPPING].count; i++) {
		size_t bytes;
		const void *entry = profile_intern_get(&o.tables[PROFILE_OTLP_MAPPING], i, &bytes);
		Otlp__Mapping *m = otlp__mapping__unpack(NULL, bytes, entry);

		assert_non_null(m);
		assert_true(m->n_attribute_indices > 0);
		/* one segment of it; another mapping holds what lies outside of all */
		twins += m->memory_start == 0x16a0 &&
			 !strcmp(profile_intern_get(&o.tables[PROFILE_OTLP_STRING],
						    (uint32_t)m->filename_strindex, NULL),
				 "/same/twin");
		otlp__mapping__free_unpacked(m, NULL);
	}
	assert_int_equal(twins, 1);
	profile_otlp_done(&o);
	profile_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write__format__follows_the_name),
		cmocka_unit_test(write__two_calls__equal_bytes),
		cmocka_unit_test(write__sink_error__comes_back),
		cmocka_unit_test(folded__split__reads_as_promised),
		cmocka_unit_test(folded__inlined_calls__are_frames_of_their_own),
		cmocka_unit_test(frames__chain__keeps_files_and_lines),
		cmocka_unit_test(folded__kernel_and_jit__carry_their_mark),
		cmocka_unit_test(frames__unnamed__say_module_and_address),
		cmocka_unit_test(frames__places__give_file_positions),
		cmocka_unit_test(html__template__is_filled_and_names_stay_inside),
		cmocka_unit_test(otlp__golden_bytes__round_trip),
		cmocka_unit_test(otlp__equal_files__are_one_mapping),
	};

	return cmocka_run_group_tests_name("profile_writers", tests, NULL, NULL);
}
