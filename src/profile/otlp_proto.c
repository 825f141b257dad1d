// SPDX-License-Identifier: Apache-2.0
/* otlp_proto: the request in binary. The length of an outer message is summed from its parts before
 * the first of them goes out, so that memory does not follow the number of samples. */
#include "otlp.h"
#include "writers.h"

#include <protobuf-c/protobuf-c.h>

enum { REQUEST_RESOURCE_PROFILES = 1, REQUEST_DICTIONARY = 2 };
enum { RESOURCE_PROFILES_RESOURCE = 1, RESOURCE_PROFILES_SCOPE_PROFILES = 2 };
enum { SCOPE_PROFILES_SCOPE = 1, SCOPE_PROFILES_PROFILES = 2 };
enum { PROFILE_SAMPLES = 2 };

static uint64_t field_size_of(const ProtobufCMessage *message)
{
	return profile_field_size(protobuf_c_message_get_packed_size(message));
}

/* Writes the samples of a Profile to out, or only adds up their size when out is NULL. */
static int walk_samples(struct profile_otlp *o, size_t begin, size_t end, struct profile_out *out,
			uint64_t *size)
{
	while (begin < end) {
		size_t next = profile_otlp_run_end(o, begin, PROFILE_OTLP_IDENTITY);
		Otlp__Sample sample;
		int err = profile_otlp_sample(o, begin, next, &sample);

		if (err)
			return err;
		*size += field_size_of(&sample.base);
		if (out)
			profile_encode_field(out, PROFILE_SAMPLES, &sample.base);
		begin = next;
	}
	return 0;
}

static int walk_profiles(struct profile_otlp *o, size_t begin, size_t end, struct profile_out *out,
			 uint64_t *size)
{
	do {
		size_t next =
			o->row_count ? profile_otlp_run_end(o, begin, PROFILE_OTLP_PERIOD) : 0;
		uint64_t bytes, again = 0;
		Otlp__Profile profile;
		int err;

		profile_otlp_profile(o, begin, &profile);
		bytes = protobuf_c_message_get_packed_size(&profile.base);
		err = walk_samples(o, begin, next, NULL, &bytes);
		if (err)
			return err;
		*size += profile_field_size(bytes);
		if (out) {
			profile_out_field(out, SCOPE_PROFILES_PROFILES, bytes);
			profile_encode_fields(out, &profile.base);
			err = walk_samples(o, begin, next, out, &again);
		}
		if (err)
			return err;
		begin = next;
	} while (begin < end);
	return 0;
}

static int put_process(struct profile_otlp *o, size_t begin, size_t end, struct profile_out *out)
{
	struct profile_otlp_head head;
	uint64_t scope_profiles, again = 0;
	int err;

	profile_otlp_head(o, begin, &head);
	scope_profiles = field_size_of(&head.scope.base);
	err = walk_profiles(o, begin, end, NULL, &scope_profiles);
	if (err)
		return err;
	profile_out_field(out, REQUEST_RESOURCE_PROFILES,
			  field_size_of(&head.resource.base) + profile_field_size(scope_profiles));
	profile_encode_field(out, RESOURCE_PROFILES_RESOURCE, &head.resource.base);
	profile_out_field(out, RESOURCE_PROFILES_SCOPE_PROFILES, scope_profiles);
	profile_encode_field(out, SCOPE_PROFILES_SCOPE, &head.scope.base);
	return walk_profiles(o, begin, end, out, &again);
}

static void put_dictionary(struct profile_otlp *o, struct profile_out *out)
{
	uint64_t size = 0;
	size_t bytes;

	for (int t = 0; t < PROFILE_OTLP_TABLES; t++) {
		for (uint32_t i = 0; i < o->tables[t].count; i++) {
			profile_intern_get(&o->tables[t], i, &bytes);
			size += profile_field_size(bytes);
		}
	}
	profile_out_field(out, REQUEST_DICTIONARY, size);
	for (int t = 0; t < PROFILE_OTLP_TABLES; t++) {
		for (uint32_t i = 0; i < o->tables[t].count; i++) {
			const void *entry = profile_intern_get(&o->tables[t], i, &bytes);

			profile_out_field(out, (unsigned int)t + 1, bytes);
			profile_out_bytes(out, entry, bytes);
		}
	}
}

int profile_write_otlp(const struct profile *p, struct profile_out *out)
{
	struct profile_otlp o;
	size_t begin = 0, end;
	int err = profile_otlp_init(&o, p);

	while (!err) {
		end = o.row_count ? profile_otlp_run_end(&o, begin, PROFILE_OTLP_PROCESS) : 0;
		err = put_process(&o, begin, end, out);
		begin = end;
		if (begin >= o.row_count)
			break;
	}
	if (!err)
		put_dictionary(&o, out);
	profile_otlp_done(&o);
	return err ? err : out->err;
}
