// SPDX-License-Identifier: Apache-2.0
/* make_profile DIRECTORY: writes every profile of the fixture in every format, NAME.FORMAT; folded
 * by thread too, as NAME.threads.folded. Prints the totals as JSON, one profile a line. */
#include "../unit/profile_fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int file_sink(void *ctx, const void *data, size_t bytes)
{
	return fwrite(data, 1, bytes, ctx) == bytes ? 0 : -EIO;
}

static void write_one(const struct profile *p, const char *directory, const char *name,
		      const char *ending, bool per_thread)
{
	struct profile_write_options options = {.per_thread = per_thread};
	enum profile_format format;
	struct why why = {""};
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s%s", directory, name, ending);
	f = fopen(path, "we");
	if (!f || profile_format_of(path, &format, &why) ||
	    profile_write(p, format, &options, file_sink, f, &why) || fclose(f)) {
		fprintf(stderr, "%s: %s\n", path, why.text);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const char *const endings[] = {".folded", ".pb.gz", ".otlp", ".json", ".html"};
	static const struct profile_options options = {
		.period_ns = FIXTURE_PERIOD_NS,
		.command_line = "flyball record -a -o \"</x>;\xff\n\""};

	if (argc != 2) {
		fprintf(stderr, "usage: make_profile DIRECTORY\n");
		return 2;
	}
	for (int kind = 0; kind < FIXTURE_KINDS; kind++) {
		struct profile_totals t;
		struct profile *p;
		size_t before = 0, model;

		if (profile_new(&options, &p) || fixture_fill(p, (enum fixture_kind)kind))
			return 1;
		model = mem_live_bytes(MEM_PROFILE) - before;
		for (size_t i = 0; i < ARRAY_SIZE(endings); i++)
			write_one(p, argv[1], fixture_names[kind], endings[i], false);
		write_one(p, argv[1], fixture_names[kind], ".threads.folded", true);
		profile_totals_get(p, &t);
		printf("{\"name\":\"%s\",\"samples\":%" PRIu64 ",\"weight_ns\":%" PRIu64
		       ",\"processes\":%" PRIu64 ",\"model_bytes\":%zu,\"peak_bytes\":%zu}\n",
		       fixture_names[kind], t.samples, t.weight_ns, t.processes, model,
		       mem_peak_bytes(MEM_PROFILE));
		profile_free(p);
		if (mem_live_bytes(MEM_PROFILE)) {
			fprintf(stderr, "%zu bytes leaked\n", mem_live_bytes(MEM_PROFILE));
			return 1;
		}
	}
	return 0;
}
