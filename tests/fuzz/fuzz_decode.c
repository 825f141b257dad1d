// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a block, alone and added to itself, with and without a filter; what was read is
 * written, and read again to the same sums. The first byte chooses the filter. */
#include "profile/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WRITTEN_MAX (8UL << 20)

struct bytes {
	unsigned char *data;
	size_t len;
};

static int keep(void *ctx, const void *data, size_t bytes)
{
	struct bytes *b = ctx;

	if (b->len + bytes > WRITTEN_MAX)
		return -ENOSPC;
	if (bytes)
		memcpy(b->data + b->len, data, bytes);
	b->len += bytes;
	return 0;
}

static struct profile_merge *merge_make(uint8_t choice)
{
	const struct profile_options options = {.max_bytes = 16 << 20};
	const struct profile_filter filter = {.process = choice & 1 ? "4*" : NULL,
					      .thread = choice & 2 ? "*t" : NULL,
					      .function = choice & 4 ? "work_*" : NULL,
					      .build_id = choice & 8 ? "03" : NULL,
					      .container = choice & 16 ? "0123" : NULL,
					      .has_trace = choice & 32,
					      .end_ns = choice & 64 ? 1764000000500000000 : 0};
	struct profile_merge *m;

	if (profile_merge_new(&options, &filter, &m))
		abort();
	return m;
}

static void write_and_read(const struct profile *p, struct bytes *b)
{
	struct profile_merge *m = merge_make(0);
	struct profile_totals before, after;
	int err;

	b->len = 0;
	if (!profile_write(p, PROFILE_OTLP, NULL, keep, b, NULL)) {
		err = profile_merge_add(m, b->data, b->len, NULL);
		profile_totals_get(p, &before);
		profile_totals_get(profile_merge_get(m), &after);
		if (err && err != -ENOSPC)
			abort();
		if (!err &&
		    (before.samples != after.samples || before.weight_ns != after.weight_ns ||
		     before.complete != after.complete || before.spans < after.spans))
			abort();
	}
	profile_merge_free(m);
}

static int sum_nodes(void *ctx, const struct profile_tree_node *node)
{
	*(uint64_t *)ctx += node->self_ns;
	return 0;
}

static int sum_spans(void *ctx, const struct profile_span_total *total)
{
	*(uint64_t *)ctx += total->samples;
	return 0;
}

/* All that is shown adds up to all there is. */
static void view(const struct profile *p)
{
	uint64_t nodes = 0, spans = 0;
	struct profile_function top[4];
	struct profile_totals totals;

	profile_totals_get(p, &totals);
	profile_top(p, true, top, 4);
	if (profile_tree(p, 0, sum_nodes, &nodes) || profile_spans(p, sum_spans, &spans) ||
	    nodes != totals.weight_ns || spans != totals.span_samples)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct profile_merge *m;
	struct why why = {""};
	struct bytes b = {.len = 0};
	int err;

	if (!size)
		return 0;
	b.data = malloc(WRITTEN_MAX);
	if (!b.data)
		abort();
	m = merge_make(data[0]);
	err = profile_merge_add(m, data + 1, size - 1, &why);
	if (!err != !why.text[0])
		abort();
	if (!err) {
		profile_merge_add(m, data + 1, size - 1, NULL);
		view(profile_merge_get(m));
		write_and_read(profile_merge_get(m), &b);
		for (int format = PROFILE_FOLDED; format <= PROFILE_HTML; format++) {
			b.len = 0;
			profile_write(profile_merge_get(m), (enum profile_format)format, NULL, keep,
				      &b, NULL);
		}
	}
	profile_merge_free(m);
	free(b.data);
	if (mem_live_bytes(MEM_PROFILE))
		abort();
	return 0;
}
