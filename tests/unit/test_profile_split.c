// SPDX-License-Identifier: Apache-2.0
/* Requests cut to size: whatever the size, the parts together say what the whole said. */
#include "profile/encode.h"
#include "profile/otlp_split.h"
#include "otlp.pb-c.h"
#include "profile_fixture.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* What was said, in any order: sums over samples of hashes over all that a sample refers to. */
struct said {
	uint64_t sum, ledgers;
	size_t samples, timestamps, parts, largest, profiles_alone;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
	return h * 0xff51afd7ed558ccdULL;
}

static uint64_t mix_text(uint64_t h, const Otlp__ProfilesDictionary *d, int32_t index)
{
	assert_in_range(index, 0, d->n_string_table - 1);
	for (const char *c = d->string_table[index]; *c; c++)
		h = mix(h, (unsigned char)*c);
	return mix(h, 0);
}

static uint64_t mix_attribute(uint64_t h, const Otlp__ProfilesDictionary *d, int32_t index)
{
	const Otlp__KeyValueAndUnit *a;

	assert_in_range(index, 1, d->n_attribute_table - 1);
	a = d->attribute_table[index];
	h = mix_text(mix_text(h, d, a->key_strindex), d, a->unit_strindex);
	if (a->value->value_case == OTLP__ANY_VALUE__VALUE_INT_VALUE)
		return mix(h, (uint64_t)a->value->int_value);
	assert_int_equal(a->value->value_case, OTLP__ANY_VALUE__VALUE_STRING_VALUE);
	for (const char *c = a->value->string_value; *c; c++)
		h = mix(h, (unsigned char)*c);
	return h;
}

static uint64_t mix_mapping(uint64_t h, const Otlp__ProfilesDictionary *d, int32_t index)
{
	const Otlp__Mapping *m;

	assert_in_range(index, 0, d->n_mapping_table - 1);
	m = d->mapping_table[index];
	h = mix_text(mix(mix(h, m->memory_start), m->file_offset), d, m->filename_strindex);
	for (size_t i = 0; i < m->n_attribute_indices; i++)
		h = mix_attribute(h, d, m->attribute_indices[i]);
	return h;
}

static uint64_t mix_stack(uint64_t h, const Otlp__ProfilesDictionary *d, int32_t index)
{
	assert_in_range(index, 0, d->n_stack_table - 1);
	for (size_t i = 0; i < d->stack_table[index]->n_location_indices; i++) {
		int32_t at = d->stack_table[index]->location_indices[i];
		const Otlp__Location *l;

		assert_in_range(at, 1, d->n_location_table - 1);
		l = d->location_table[at];
		h = mix_mapping(mix(h, l->address), d, l->mapping_index);
		for (size_t k = 0; k < l->n_attribute_indices; k++)
			h = mix_attribute(h, d, l->attribute_indices[k]);
		for (size_t k = 0; k < l->n_lines; k++) {
			assert_in_range(l->lines[k]->function_index, 1, d->n_function_table - 1);
			const Otlp__Function *f = d->function_table[l->lines[k]->function_index];

			h = mix_text(mix_text(h, d, f->name_strindex), d, f->filename_strindex);
			h = mix(h, (uint64_t)l->lines[k]->line);
		}
	}
	return h;
}

static void add_sample(struct said *said, uint64_t h, const Otlp__ProfilesDictionary *d,
		       const Otlp__Sample *s)
{
	h = mix_stack(h, d, s->stack_index);
	assert_in_range(s->link_index, 0, d->n_link_table - 1);
	for (size_t i = 0; i < s->n_attribute_indices; i++)
		h = mix_attribute(h, d, s->attribute_indices[i]);
	for (size_t i = 0; i < s->n_timestamps_unix_nano; i++)
		said->sum += mix(h, s->timestamps_unix_nano[i]);
	said->samples++;
	said->timestamps += s->n_timestamps_unix_nano;
}

static void add_profile(struct said *said, uint64_t h, const Otlp__ProfilesDictionary *d,
			const Otlp__Profile *p)
{
	h = mix(mix(h, p->time_unix_nano), (uint64_t)p->period);
	h = mix_text(mix_text(h, d, p->sample_type->type_strindex), d,
		     p->period_type->unit_strindex);
	for (size_t i = 0; i < p->n_attribute_indices; i++)
		said->ledgers += mix_attribute(h, d, p->attribute_indices[i]);
	for (size_t i = 0; i < p->n_samples; i++)
		add_sample(said, h, d, p->samples[i]);
	said->profiles_alone += !p->n_samples;
}

static void assert_unused(const Otlp__ProfilesDictionary *d)
{
	const ProtobufCMessage *first[] = {
		&d->mapping_table[0]->base,   &d->location_table[0]->base,
		&d->function_table[0]->base,  &d->link_table[0]->base,
		&d->attribute_table[0]->base, &d->stack_table[0]->base};

	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		assert_int_equal(protobuf_c_message_get_packed_size(first[i]), 0);
	assert_string_equal(d->string_table[0], "");
}

static int add_request(void *ctx, const void *data, size_t bytes)
{
	struct said *said = ctx;
	Otlp__ExportProfilesServiceRequest *r =
		otlp__export_profiles_service_request__unpack(NULL, bytes, data);

	assert_non_null(r);
	assert_true(profile_split_is_request(data, bytes));
	assert_unused(r->dictionary);
	for (size_t i = 0; i < r->n_resource_profiles; i++) {
		const Otlp__ResourceProfiles *rp = r->resource_profiles[i];
		uint64_t h = 0;

		for (size_t k = 0; k < rp->resource->n_attributes; k++) {
			const Otlp__AnyValue *v = rp->resource->attributes[k]->value;

			if (v->value_case == OTLP__ANY_VALUE__VALUE_INT_VALUE)
				h = mix(h, (uint64_t)v->int_value);
		}
		assert_string_equal(rp->scope_profiles[0]->scope->name, "flyball");
		for (size_t k = 0; k < rp->scope_profiles[0]->n_profiles; k++)
			add_profile(said, h, r->dictionary, rp->scope_profiles[0]->profiles[k]);
	}
	said->parts++;
	said->largest = bytes > said->largest ? bytes : said->largest;
	otlp__export_profiles_service_request__free_unpacked(r, NULL);
	return 0;
}

static void make(enum fixture_kind kind, struct fixture_bytes *bytes)
{
	const struct profile_options options = {.period_ns = FIXTURE_PERIOD_NS};
	const struct profile_write_options write_options = {.per_thread = false};
	struct profile *p = NULL;

	memset(bytes, 0, sizeof(*bytes));
	assert_int_equal(profile_new(&options, &p), 0);
	assert_int_equal(fixture_fill(p, kind), 0);
	assert_int_equal(profile_write(p, PROFILE_OTLP, &write_options, fixture_sink, bytes, NULL),
			 0);
	profile_free(p);
}

static void split__any_size__says_the_same(void **state)
{
	static const size_t sizes[] = {1, 1024, 8192, 65536, 4 << 20};

	(void)state;
	for (int kind = 0; kind < FIXTURE_KINDS; kind++) {
		struct fixture_bytes whole;
		struct said said = {0};

		make((enum fixture_kind)kind, &whole);
		add_request(&said, whole.data, whole.len);
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct profile_split_options options = {.max_bytes = sizes[i]};
			struct said parts = {0};
			struct why why = {""};

			/* Large requests take long in small pieces. */
			if (kind == FIXTURE_LARGE && sizes[i] < 65536)
				continue;
			assert_int_equal(profile_split(whole.data, whole.len, &options, add_request,
						       &parts, &why),
					 0);
			assert_true(parts.sum == said.sum);
			assert_true(parts.ledgers == said.ledgers);
			assert_int_equal(parts.timestamps, said.timestamps);
			assert_int_equal(parts.profiles_alone, said.profiles_alone);
			if (sizes[i] >= 65536)
				assert_true(parts.largest <= sizes[i]);
			if (sizes[i] == 1 && said.timestamps > 1)
				assert_int_equal(parts.parts, said.timestamps);
			if (sizes[i] == 4 << 20)
				assert_int_equal(parts.parts, 1);
		}
		fixture_bytes_done(&whole);
	}
	assert_int_equal(mem_live_bytes(MEM_PROFILE), 0);
}

/* ------------------------------------------------------------------ by hand */

struct by_hand {
	Otlp__ExportProfilesServiceRequest request;
	Otlp__ResourceProfiles rp, *rps[1];
	Otlp__ScopeProfiles sp, *sps[1];
	Otlp__Profile profile, *profiles[1];
	Otlp__Resource resource;
	Otlp__KeyValue pair, *pairs[1];
	Otlp__AnyValue value;
	Otlp__InstrumentationScope scope;
	Otlp__ValueType type;
	Otlp__Sample samples[2], *sample_list[2];
	Otlp__ProfilesDictionary d;
	Otlp__Mapping mapping, *mappings[1];
	Otlp__Location locations[2], *location_list[2];
	Otlp__Line line, *lines[1];
	Otlp__Function functions[2], *function_list[2];
	Otlp__Link link, *links[1];
	Otlp__KeyValueAndUnit attribute, *attributes[1];
	Otlp__Stack stacks[2], *stack_list[2];
	char *strings[4];
	int32_t one[1];
	uint64_t times[1000];
	unsigned char *data;
	size_t bytes;
};

/* One process, one function by this name, two samples on it, the second of 1000 timestamps. */
static void by_hand_init(struct by_hand *b, char *name)
{
	memset(b, 0, sizeof(*b));
	otlp__export_profiles_service_request__init(&b->request);
	otlp__resource_profiles__init(&b->rp);
	otlp__scope_profiles__init(&b->sp);
	otlp__profile__init(&b->profile);
	otlp__resource__init(&b->resource);
	otlp__key_value__init(&b->pair);
	otlp__any_value__init(&b->value);
	otlp__instrumentation_scope__init(&b->scope);
	otlp__value_type__init(&b->type);
	otlp__profiles_dictionary__init(&b->d);
	otlp__mapping__init(&b->mapping);
	otlp__line__init(&b->line);
	otlp__link__init(&b->link);
	otlp__key_value_and_unit__init(&b->attribute);
	for (int i = 0; i < 2; i++) {
		otlp__sample__init(&b->samples[i]);
		otlp__location__init(&b->locations[i]);
		otlp__function__init(&b->functions[i]);
		otlp__stack__init(&b->stacks[i]);
		b->sample_list[i] = &b->samples[i];
		b->location_list[i] = &b->locations[i];
		b->function_list[i] = &b->functions[i];
		b->stack_list[i] = &b->stacks[i];
		b->samples[i].stack_index = 1;
		b->samples[i].timestamps_unix_nano = b->times;
	}
	b->samples[0].n_timestamps_unix_nano = 1;
	b->samples[1].n_timestamps_unix_nano = ARRAY_SIZE(b->times);
	for (size_t i = 0; i < ARRAY_SIZE(b->times); i++)
		b->times[i] = i;
	b->strings[0] = b->strings[3] = (char *)"";
	b->strings[1] = name;
	b->strings[2] = (char *)"process.pid";
	b->one[0] = 1;
	b->functions[1].name_strindex = 1;
	b->line.function_index = 1;
	b->lines[0] = &b->line;
	b->locations[1].lines = b->lines;
	b->locations[1].n_lines = 1;
	b->stacks[1].location_indices = b->one;
	b->stacks[1].n_location_indices = 1;
}

static void by_hand_pack(struct by_hand *b)
{
	Otlp__ProfilesDictionary *d = &b->d;

	b->mappings[0] = &b->mapping;
	b->links[0] = &b->link;
	b->attributes[0] = &b->attribute;
	d->mapping_table = b->mappings;
	d->link_table = b->links;
	d->attribute_table = b->attributes;
	d->n_mapping_table = d->n_link_table = d->n_attribute_table = 1;
	d->location_table = b->location_list;
	d->function_table = b->function_list;
	d->stack_table = b->stack_list;
	d->n_location_table = d->n_function_table = d->n_stack_table = 2;
	d->string_table = b->strings;
	d->n_string_table = ARRAY_SIZE(b->strings);
	b->pairs[0] = &b->pair;
	b->pair.value = &b->value;
	b->resource.attributes = b->pairs;
	b->resource.n_attributes = 1;
	b->scope.name = (char *)"flyball";
	b->profile.sample_type = b->profile.period_type = &b->type;
	b->profile.samples = b->sample_list;
	b->profile.n_samples = 2;
	b->profiles[0] = &b->profile;
	b->sp.scope = &b->scope;
	b->sp.profiles = b->profiles;
	b->sp.n_profiles = 1;
	b->sps[0] = &b->sp;
	b->rp.resource = &b->resource;
	b->rp.scope_profiles = b->sps;
	b->rp.n_scope_profiles = 1;
	b->rps[0] = &b->rp;
	b->request.resource_profiles = b->rps;
	b->request.n_resource_profiles = 1;
	b->request.dictionary = d;
	b->bytes = otlp__export_profiles_service_request__get_packed_size(&b->request);
	b->data = mem_alloc(MEM_BASE, b->bytes);
	assert_non_null(b->data);
	otlp__export_profiles_service_request__pack(&b->request, b->data);
}

static int split_by_hand(struct by_hand *b, size_t max_bytes, struct said *said)
{
	const struct profile_split_options options = {.max_bytes = max_bytes};
	struct why why = {""};
	int err;

	by_hand_pack(b);
	err = profile_split(b->data, b->bytes, &options, add_request, said, &why);
	assert_true(!err || why.text[0]);
	mem_free(MEM_BASE, b->data);
	assert_int_equal(mem_live_bytes(MEM_PROFILE), 0);
	return err;
}

static void split__one_sample_of_many_timestamps__is_cut(void **state)
{
	struct by_hand b;
	struct said said = {0};

	(void)state;
	by_hand_init(&b, (char *)"f");
	assert_int_equal(split_by_hand(&b, 2048, &said), 0);
	assert_int_equal(said.timestamps, 1001);
	assert_true(said.parts >= 5 && said.parts <= 12);
	assert_true(said.largest <= 2048);
}

static void split__name_larger_than_the_limit__goes_alone(void **state)
{
	static char name[(1 << 20) + 1];
	struct by_hand b;
	struct said said = {0};

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	by_hand_init(&b, name);
	assert_int_equal(split_by_hand(&b, 65536, &said), 0);
	assert_int_equal(said.timestamps, 1001);
	assert_int_equal(said.parts, 2);
	assert_in_range(said.largest, 1 << 20, (1 << 20) + 16384);
}

static void split__references_of_resources__become_text(void **state)
{
	struct by_hand b;
	struct said said = {0};

	(void)state;
	by_hand_init(&b, (char *)"f");
	b.pair.key_strindex = 2;
	b.value.value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE_STRINDEX;
	b.value.string_value_strindex = 1;
	assert_int_equal(split_by_hand(&b, 1 << 20, &said), 0);
	assert_int_equal(said.parts, 1);
	b.pair.key_strindex = 44;
	assert_int_equal(split_by_hand(&b, 1 << 20, &said), -EBADMSG);
}

static void split__index_outside__is_an_error(void **state)
{
	struct by_hand b;
	struct said said = {0};
	int32_t *const bad[] = {&b.samples[1].stack_index,     &b.samples[0].link_index,
				&b.locations[1].mapping_index, &b.line.function_index,
				&b.functions[1].name_strindex, &b.one[0],
				&b.type.unit_strindex};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		by_hand_init(&b, (char *)"f");
		*bad[i] = 4711;
		assert_int_equal(split_by_hand(&b, 4096, &said), -EBADMSG);
		by_hand_init(&b, (char *)"f");
		*bad[i] = -1;
		assert_int_equal(split_by_hand(&b, 4096, &said), -EBADMSG);
	}
}

static int count(void *ctx, const void *data, size_t bytes)
{
	(void)data;
	*(size_t *)ctx += bytes;
	return 0;
}

static void split__without_names__keeps_what_no_file_tells(void **state)
{
	struct profile_split_options options = {.max_bytes = 4 << 20};
	struct fixture_bytes whole, kept = {0};
	size_t with = 0, without = 0;

	(void)state;
	make(FIXTURE_LARGE, &whole);
	assert_int_equal(profile_split(whole.data, whole.len, &options, count, &with, NULL), 0);
	options.without_names = true;
	assert_int_equal(profile_split(whole.data, whole.len, &options, count, &without, NULL), 0);
	assert_true(without < with);
	fixture_bytes_done(&whole);
	make(FIXTURE_HOSTILE, &whole);
	assert_non_null(memmem(whole.data, whole.len, "[truncated: depth 127]", 22));
	options.max_bytes = 1 << 20;
	assert_int_equal(profile_split(whole.data, whole.len, &options, fixture_sink, &kept, NULL),
			 0);
	assert_true(kept.len < whole.len);
	assert_non_null(memmem(kept.data, kept.len, "[truncated: depth 127]", 22));
	fixture_bytes_done(&whole);
	fixture_bytes_done(&kept);
}

static void split__garbage__is_no_request(void **state)
{
	static const struct profile_split_options options = {.max_bytes = 4096};
	size_t bytes = 0;

	(void)state;
	assert_int_equal(profile_split("\x0a\x05xx", 4, &options, count, &bytes, NULL), -EBADMSG);
	assert_int_equal(profile_split("", 0, &options, count, &bytes, NULL), -EBADMSG);
	assert_false(profile_split_is_request("\x0a\x05xx", 4));
	assert_false(profile_split_is_request("\x12\x00", 2));
	assert_true(profile_split_is_request("\x0a\x00\x12\x00", 4));
	assert_false(profile_split_is_request(
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x12\x00", 14));
	assert_int_equal(bytes, 0);
}

static void split__out_of_memory_anywhere__is_an_error(void **state)
{
	static const struct profile_split_options options = {.max_bytes = 2048};
	struct fixture_bytes whole;
	size_t bytes = 0;
	int err = -1;

	(void)state;
	make(FIXTURE_HOSTILE, &whole);
	for (unsigned long n = 1; err; n += n / 16 + 1) {
		mem_fail_after(n);
		err = profile_split(whole.data, whole.len, &options, count, &bytes, NULL);
		mem_fail_after(0);
		assert_int_equal(mem_live_bytes(MEM_PROFILE), 0);
		assert_true(n < 1000000);
	}
	fixture_bytes_done(&whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(split__any_size__says_the_same),
		cmocka_unit_test(split__one_sample_of_many_timestamps__is_cut),
		cmocka_unit_test(split__name_larger_than_the_limit__goes_alone),
		cmocka_unit_test(split__references_of_resources__become_text),
		cmocka_unit_test(split__index_outside__is_an_error),
		cmocka_unit_test(split__without_names__keeps_what_no_file_tells),
		cmocka_unit_test(split__garbage__is_no_request),
		cmocka_unit_test(split__out_of_memory_anywhere__is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
