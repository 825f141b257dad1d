// SPDX-License-Identifier: Apache-2.0
/* What was written is read back: every stack, thread, span and flag with its times. */
#include "profile/decode.h"
#include "profile/frames.h"
#include "profile_fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct profile *make(void)
{
	const struct profile_options options = {.period_ns = FIXTURE_PERIOD_NS};
	struct profile *p = NULL;

	assert_int_equal(profile_new(&options, &p), 0);
	return p;
}

static struct profile_merge *merge_make(const struct profile_filter *filter)
{
	const struct profile_options options = {.max_bytes = 256 << 20};
	struct profile_merge *m = NULL;

	assert_int_equal(profile_merge_new(&options, filter, &m), 0);
	return m;
}

static void encode(const struct profile *p, struct fixture_bytes *ret)
{
	memset(ret, 0, sizeof(*ret));
	assert_int_equal(profile_write(p, PROFILE_OTLP, NULL, fixture_sink, ret, NULL), 0);
}

static void merge_into(struct profile_merge *m, const struct profile *p)
{
	struct fixture_bytes bytes;
	struct why why = {""};

	encode(p, &bytes);
	if (profile_merge_add(m, bytes.data, bytes.len, &why))
		fail_msg("%s", why.text);
	fixture_bytes_done(&bytes);
}

/* ---------------------------------------------------------------- one line for each sample */
struct lines {
	char **line;
	size_t count, cap;
};

static void frame_text(const struct profile *p, uint32_t location, struct buf *b)
{
	const struct profile_location_row *row = &p->location_rows[location];
	const struct profile_location_key *key = profile_location_key(p, location);
	const struct profile_file_row *file = &p->file_rows[key->file];
	struct profile_frame frames[PROFILE_LINES_MAX];
	char text[PROFILE_FRAME_TEXT];
	size_t count = profile_location_chain(p, location, frames, text);
	uint64_t vaddr;

	profile_location_vaddr(p, location, &vaddr);
	buf_addf(b, ";%s %s@%" PRIx64 " %d %u %u", profile_text(p, file->path),
		 profile_location_module(p, location), vaddr, key->kind == PROFILE_KERNEL,
		 row->name ? 0 : row->unnamed, row->unlined);
	for (size_t i = 0; i < count; i++)
		buf_addf(b, "|%s %s:%u", frames[i].name, frames[i].name[0] ? frames[i].file : "",
			 frames[i].name[0] ? frames[i].line : 0);
}

static void sample_text(const struct profile *p, const struct profile_sample_key *key,
			const struct buf *texts, struct buf *b)
{
	const struct profile_process_row *process = &p->process_rows[key->process];
	const struct profile_span *span = profile_span_of(p, key);
	struct profile_pseudo pseudo;
	size_t n = profile_pseudo_frames(p, key, &pseudo), frames, attributes;
	const struct profile_attribute_row *rows = profile_attributes(p, key, &attributes);
	const uint32_t *stack = profile_stack(p, key->stack, &frames);

	buf_addf(b, "%u %s %s %s %s %u %s %" PRIu64 " %x %u ",
		 profile_process_key(p, key->process)->pid, profile_text(p, process->exe),
		 profile_text(p, process->container), profile_text(p, process->cgroup),
		 profile_text(p, process->service), key->tid, profile_text(p, key->comm),
		 key->weight_ns, profile_cut_bits(p, key), key->span_fault);
	for (size_t i = 0; span && i < sizeof(*span); i++)
		buf_addf(b, "%02x", ((const uint8_t *)span)[i]);
	/* sorted by ids, which differ */
	for (size_t i = 0; i < attributes; i++)
		buf_addf(b, " %s=%s", profile_text(p, rows[i].key), profile_text(p, rows[i].value));
	for (size_t i = 0; i < n; i++)
		buf_addf(b, ";%s", pseudo.text[i]);
	for (size_t i = frames; i-- > 0;)
		buf_add(b, texts[stack[i]].data, texts[stack[i]].len);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A line for each single sample, so that keys which are one afterwards still compare. */
static struct lines lines_of(const struct profile *p)
{
	struct buf *texts = mem_array(MEM_BASE, p->locations.count, sizeof(*texts));
	struct lines l = {0};
	struct buf b;

	assert_non_null(texts);
	buf_init(&b, MEM_BASE, 1 << 22);
	for (uint32_t i = 0; i < p->locations.count; i++) {
		buf_init(&texts[i], MEM_BASE, 1 << 20);
		frame_text(p, i, &texts[i]);
		assert_int_equal(texts[i].err, 0);
	}
	for (uint32_t i = 0; i < p->samples.count; i++) {
		struct profile_times walk = {.row = &p->sample_rows[i]};
		uint64_t at;

		while (profile_times_next(&walk, &at)) {
			void *grown = l.line;

			buf_reset(&b);
			buf_addf(&b, "%" PRIu64 " ", at);
			sample_text(p, profile_sample_key(p, i), texts, &b);
			assert_int_equal(b.err, 0);
			assert_int_equal(mem_grow(MEM_BASE, &grown, &l.cap, l.count + 1, SIZE_MAX,
						  sizeof(*l.line)),
					 0);
			l.line = grown;
			l.line[l.count] = mem_copy_string(MEM_BASE, b.data);
			assert_non_null(l.line[l.count++]);
		}
	}
	buf_done(&b);
	if (l.count)
		qsort(l.line, l.count, sizeof(*l.line), compare);
	for (size_t i = 0; i < p->locations.count; i++)
		buf_done(&texts[i]);
	mem_free(MEM_BASE, texts);
	return l;
}

static void lines_done(struct lines *l)
{
	for (size_t i = 0; i < l->count; i++)
		mem_free(MEM_BASE, l->line[i]);
	mem_free(MEM_BASE, l->line);
}

/* b holds each of a's samples, times over. */
static void assert_alike(const struct profile *a, const struct profile *b, size_t times)
{
	struct lines left = lines_of(a), right = lines_of(b);
	struct profile_totals s, t;

	assert_int_equal(left.count * times, right.count);
	for (size_t i = 0; i < right.count; i++)
		assert_string_equal(left.line[i / times], right.line[i]);
	lines_done(&left);
	lines_done(&right);
	profile_totals_get(a, &s);
	profile_totals_get(b, &t);
	assert_int_equal(s.samples * times, t.samples);
	assert_int_equal(s.weight_ns * times, t.weight_ns);
	assert_int_equal(s.complete * times, t.complete);
	assert_int_equal(s.spans, t.spans);
	for (int i = 0; i < FLY_CUT_COUNT; i++)
		assert_int_equal(s.cut[i] * times, t.cut[i]);
	for (int i = 0; i < FLY_UNNAMED_COUNT; i++)
		assert_int_equal(s.unnamed_samples[i] * times, t.unnamed_samples[i]);
}

/* Spans, faults, periods and threads that differ in that alone. */
static void fill_spans(struct profile *p)
{
	const struct profile_process process = {
		.pid = 9, .comm = "shop", .exe = "/srv/shop", .service = "checkout"};
	const struct profile_file file = {.key = 1, .path = "/srv/shop"};
	const uint32_t stack[] = {0, 1};
	struct profile_sample s = {.tid = 9,
				   .comm = "worker",
				   .weight_ns = FIXTURE_PERIOD_NS,
				   .location_count = 2,
				   .locations = stack};

	assert_int_equal(profile_process_add(p, &process), 0);
	assert_int_equal(profile_file_add(p, &file), 0);
	for (uint64_t i = 0; i < 2; i++)
		assert_int_equal(profile_location_add(p, 0, 64 + i, PROFILE_USER), i);
	profile_location_name(p, 0, "pay", 0);
	profile_location_name(p, 1, "main", 0);
	for (uint32_t i = 0; i < 120; i++) {
		struct profile_span span = {{1, (uint8_t)(i % 2)}, {2, (uint8_t)(i % 3)}};
		const struct profile_attribute tenants[] = {{"tenant", i % 11 < 6 ? "a" : "b", 1},
							    {"thread.name", "mine", 4},
							    {"empty", "", 0}};

		s.time_ns = FIXTURE_START_NS + i * 1000;
		s.span = i % 4 ? &span : NULL;
		s.span_fault = i % 4 ? 0 : i % 8 ? PROFILE_SPAN_INVALID : PROFILE_SPAN_PAGE_ABSENT;
		s.weight_ns = FIXTURE_PERIOD_NS * (1 + i % 5 / 4);
		s.tid = 9 + i % 7 / 6;
		s.attributes = tenants;
		s.attribute_count = i % 4;
		assert_int_equal(profile_sample_add(p, &s), 0);
	}
	fixture_run(p);
}

static struct profile *make_kind(int kind)
{
	struct profile *p = make();

	if (kind == FIXTURE_KINDS)
		fill_spans(p);
	else
		assert_int_equal(fixture_fill(p, (enum fixture_kind)kind), 0);
	return p;
}

static void decode__every_kind__comes_back(void **state)
{
	(void)state;
	for (int kind = 0; kind <= FIXTURE_KINDS; kind++) {
		struct profile *p = make_kind(kind);
		struct profile_merge *m = merge_make(NULL), *again = merge_make(NULL);
		const struct profile_run *a = &p->run, *b = &profile_merge_get(m)->run;

		merge_into(m, p);
		assert_alike(p, profile_merge_get(m), 1);
		assert_memory_equal(&a->ledger, &b->ledger, sizeof(a->ledger));
		assert_true(profile_ledger_is_exact(&b->ledger, NULL));
		merge_into(again, profile_merge_get(m));
		assert_alike(p, profile_merge_get(again), 1);
		assert_int_equal(profile_merge_get(again)->run.duration_ns, b->duration_ns);
		profile_merge_free(again);
		profile_merge_free(m);
		profile_free(p);
	}
	assert_int_equal(mem_live_bytes(MEM_PROFILE), 0);
}

static void merge__thrice__adds_up(void **state)
{
	(void)state;
	for (int kind = 0; kind <= FIXTURE_KINDS; kind++) {
		struct profile *p = make_kind(kind);
		struct profile_merge *m = merge_make(NULL);
		const struct profile *all = profile_merge_get(m);
		struct profile_merge_seen seen;
		size_t locations;

		merge_into(m, p);
		locations = all->locations.count;
		merge_into(m, p);
		merge_into(m, p);
		assert_alike(p, all, 3);
		assert_int_equal(all->locations.count, locations);
		assert_int_equal(all->run.ledger.taken, 3 * p->run.ledger.taken);
		assert_int_equal(all->run.ledger.dropped[FLY_DROP_RING_FULL], 21);
		assert_true(profile_ledger_is_exact(&all->run.ledger, NULL));
		profile_merge_seen_get(m, &seen);
		assert_int_equal(seen.blocks, 3);
		assert_int_equal(seen.without_ledger, 0);
		assert_int_equal(seen.left_out, 0);
		profile_merge_free(m);
		profile_free(p);
	}
}

/* ---------------------------------------------------------------- names that differ */
static struct profile *named(const char *path, bool has_build_id, const char *name)
{
	const struct profile_process process = {.pid = 1, .exe = "/bin/x"};
	struct profile_file file = {
		.key = 1, .path = path, .build_id_len = has_build_id ? 4 : 0, .build_id = {1, 2}};
	const uint32_t stack[] = {0};
	const struct profile_sample s = {
		.weight_ns = 10, .time_ns = 5, .location_count = 1, .locations = stack};
	struct profile *p = make();

	assert_int_equal(profile_process_add(p, &process), 0);
	assert_int_equal(profile_file_add(p, &file), 0);
	assert_int_equal(profile_location_add(p, 0, 64, PROFILE_JIT), 0);
	if (name)
		profile_location_name(p, 0, name, 0);
	else
		profile_location_unnamed(p, 0, FLY_UNNAMED_NO_SYMBOL);
	assert_int_equal(profile_sample_add(p, &s), 0);
	return p;
}

static void merge_named(struct profile_merge *m, const char *path, bool has_build_id,
			const char *name)
{
	struct profile *p = named(path, has_build_id, name);

	merge_into(m, p);
	profile_free(p);
}

static size_t top(const struct profile_merge *m, struct profile_function out[8])
{
	return profile_top(profile_merge_get(m), false, out, 8);
}

static void merge__memory_used_again__keeps_both_names(void **state)
{
	static const char *const order[] = {"old", "new", NULL, "old", "new"};
	struct profile_merge *m = merge_make(NULL);
	struct profile_function f[8];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		merge_named(m, "//anon", false, order[i]);
	assert_int_equal(top(m, f), 3);
	assert_string_equal(f[0].name, "new");
	assert_int_equal(f[0].self_ns, 20);
	assert_string_equal(f[1].name, "old");
	assert_int_equal(f[1].self_ns, 20);
	assert_string_equal(f[2].name, "[unnamed]");
	assert_int_equal(f[2].self_ns, 10);
	profile_merge_free(m);
}

static void merge__build_id__fills_in_a_name(void **state)
{
	struct profile_merge *m = merge_make(NULL);
	struct profile_function f[8];

	(void)state;
	merge_named(m, "/bin/x", true, NULL);
	merge_named(m, "/bin/x", true, "work");
	merge_named(m, "/bin/x", true, NULL);
	assert_int_equal(top(m, f), 1);
	assert_string_equal(f[0].name, "work");
	assert_int_equal(f[0].self_ns, 30);
	assert_int_equal(profile_merge_get(m)->locations.count, 1);
	merge_named(m, "/bin/x", true, "other"); /* never two names in one */
	assert_int_equal(top(m, f), 2);
	profile_merge_free(m);
}

/* ---------------------------------------------------------------- filter */
static void assert_filtered(const struct profile *p, const struct profile_filter *filter,
			    uint64_t want)
{
	struct profile_merge *m = merge_make(filter);
	struct profile_merge_seen seen;
	struct profile_totals all, t;

	merge_into(m, p);
	profile_totals_get(p, &all);
	profile_totals_get(profile_merge_get(m), &t);
	profile_merge_seen_get(m, &seen);
	assert_int_equal(t.samples, want);
	assert_int_equal(seen.samples, all.samples);
	assert_int_equal(seen.left_out, all.samples - want);
	assert_int_equal(profile_merge_get(m)->run.ledger.delivered, want);
	assert_true(profile_ledger_is_exact(&profile_merge_get(m)->run.ledger, NULL));
	profile_merge_free(m);
}

static uint64_t in_containers(const struct profile *p)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->samples.count; i++)
		n += p->process_rows[profile_sample_key(p, i)->process].container
			     ? p->sample_rows[i].count
			     : 0;
	assert_true(n);
	return n;
}

static void filter__names_and_numbers__choose_samples(void **state)
{
	struct profile *p = make_kind(FIXTURE_HOSTILE), *spans = make_kind(FIXTURE_KINDS);

	(void)state;
	assert_filtered(p, &(struct profile_filter){.process = "split"}, 100);
	assert_filtered(p, &(struct profile_filter){.process = "42"}, 100);
	assert_filtered(p, &(struct profile_filter){.process = "spl"}, 0);
	assert_filtered(p, &(struct profile_filter){.process = "s*t"}, 100);
	assert_filtered(p, &(struct profile_filter){.thread = "43"}, 50);
	assert_filtered(p, &(struct profile_filter){.function = "work_a"}, 60);
	assert_filtered(p, &(struct profile_filter){.function = "work_*"}, 100);
	assert_filtered(p, &(struct profile_filter){.process = "split", .function = "main"}, 100);
	assert_filtered(p, &(struct profile_filter){.function = "operator<<*b>)"}, 1);
	assert_filtered(p, &(struct profile_filter){.container = "0123456789ab"}, in_containers(p));
	assert_filtered(p, &(struct profile_filter){.build_id = "030303"}, 100);
	assert_filtered(p,
			&(struct profile_filter){.process = "split",
						 .start_ns = FIXTURE_START_NS,
						 .end_ns = FIXTURE_START_NS + 1},
			0);
	assert_filtered(spans, &(struct profile_filter){.service = "checkout"}, 120);
	assert_filtered(spans, &(struct profile_filter){.service = "shop"}, 0);
	assert_filtered(spans, &(struct profile_filter){.has_trace = true, .span = {{1, 1}, {0}}},
			60);
	assert_filtered(spans, &(struct profile_filter){.has_span = true, .span = {{0}, {2, 2}}},
			30);
	assert_filtered(spans,
			&(struct profile_filter){.start_ns = FIXTURE_START_NS + 20 * 1000,
						 .end_ns = FIXTURE_START_NS + 50 * 1000},
			30);
	profile_free(p);
	profile_free(spans);
}

/* ---------------------------------------------------------------- damage */
static int add_bytes(const void *bytes, size_t len)
{
	struct profile_merge *m = merge_make(NULL);
	struct why why = {""};
	int err = profile_merge_add(m, bytes, len, &why);

	assert_true(!err == !why.text[0]);
	/* what is refused leaves nothing behind */
	if (err)
		assert_int_equal(profile_merge_get(m)->samples.count, 0);
	profile_merge_free(m);
	return err;
}

static void decode__damage__is_refused_whole(void **state)
{
	struct profile *p = make_kind(FIXTURE_INLINED);
	struct fixture_bytes bytes;
	size_t refused = 0;

	(void)state;
	encode(p, &bytes);
	for (size_t len = 1; len < bytes.len; len++)
		refused += add_bytes(bytes.data, len) < 0;
	/* a request may end between two of its fields */
	assert_in_range(refused, bytes.len - 4, bytes.len);
	for (size_t i = 0; i < bytes.len; i++) {
		bytes.data[i] ^= (unsigned char)(1 << i % 8);
		add_bytes(bytes.data, bytes.len);
		bytes.data[i] ^= (unsigned char)(1 << i % 8);
	}
	fixture_bytes_done(&bytes);
	profile_free(p);
	assert_int_equal(mem_live_bytes(MEM_PROFILE), 0);
}

/* After what does not fit nothing more is added. */
static void merge__no_room__is_said_once_and_for_all(void **state)
{
	const struct profile_options options = {.max_bytes = 64 << 10};
	struct profile *p = make_kind(FIXTURE_LARGE);
	struct profile_merge *m = NULL;
	struct fixture_bytes bytes;
	struct why why = {""};

	(void)state;
	encode(p, &bytes);
	assert_int_equal(profile_merge_new(&options, NULL, &m), 0);
	assert_int_equal(profile_merge_add(m, bytes.data, bytes.len, &why), -ENOSPC);
	assert_true(why.text[0]);
	assert_int_equal(profile_merge_add(m, "", 0, NULL), -ENOSPC);
	profile_merge_free(m);
	fixture_bytes_done(&bytes);
	profile_free(p);
	assert_int_equal(mem_live_bytes(MEM_PROFILE), 0);
}

static void merge__no_memory__is_an_error(void **state)
{
	struct profile *p = make_kind(FIXTURE_INLINED);
	struct fixture_bytes bytes;
	int err = -ENOMEM;

	(void)state;
	encode(p, &bytes);
	for (unsigned long n = 1; err; n++) {
		struct profile_merge *m = NULL;

		mem_fail_after(n);
		err = profile_merge_new(&(struct profile_options){0}, NULL, &m);
		if (!err)
			err = profile_merge_add(m, bytes.data, bytes.len, NULL);
		mem_fail_after(0);
		assert_true(!err || err == -ENOMEM || err == -ENOSPC);
		if (!err)
			assert_alike(p, profile_merge_get(m), 1);
		profile_merge_free(m);
		assert_true(n < 10000);
	}
	fixture_bytes_done(&bytes);
	profile_free(p);
	assert_int_equal(mem_live_bytes(MEM_PROFILE), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decode__every_kind__comes_back),
		cmocka_unit_test(merge__thrice__adds_up),
		cmocka_unit_test(merge__memory_used_again__keeps_both_names),
		cmocka_unit_test(merge__build_id__fills_in_a_name),
		cmocka_unit_test(filter__names_and_numbers__choose_samples),
		cmocka_unit_test(decode__damage__is_refused_whole),
		cmocka_unit_test(merge__no_room__is_said_once_and_for_all),
		cmocka_unit_test(merge__no_memory__is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
