// SPDX-License-Identifier: Apache-2.0
#include "symbol_spans.h"

#include <string.h>

void symbol_spans_done(struct symbol_spans *spans)
{
	mem_free(MEM_SYMBOL, spans->items);
	memset(spans, 0, sizeof(*spans));
}

static bool is_same(const struct symbol_span *a, const struct symbol_span *b)
{
	if (a->name != b->name)
		return false;
	return !a->name || a->start - a->back == b->start - b->back;
}

static int append(struct symbol_spans *spans, const struct symbol_span *s)
{
	void *p = spans->items;
	int err;

	/* What had no length is gone; it may be that what is left goes on now. */
	if (spans->count && spans->items[spans->count - 1].start == s->start)
		spans->count--;
	if (spans->count ? is_same(&spans->items[spans->count - 1], s) : !s->name)
		return 0;
	err = mem_grow(MEM_SYMBOL, &p, &spans->cap, spans->count + 1, SYMBOL_PACKED_COUNT_MAX,
		       sizeof(*spans->items));
	spans->items = p;
	if (!err)
		spans->items[spans->count++] = *s;
	return err;
}

int symbol_spans_add(struct symbol_spans *spans, uint64_t start, uint64_t symbol, uint32_t name)
{
	struct symbol_span s = {.start = start, .back = (uint32_t)(start - symbol), .name = name};

	/* Nothing real is 4 GiB long. */
	if (!name || start - symbol > UINT32_MAX)
		s.name = s.back = 0;
	return append(spans, &s);
}

/* The span that holds at address, with its own start put there. */
static struct symbol_span span_at(const struct symbol_spans *spans, size_t next, uint64_t address)
{
	struct symbol_span s = {.start = address};
	uint64_t back;

	if (!next || !spans->items[next - 1].name)
		return s;
	back = address - spans->items[next - 1].start + spans->items[next - 1].back;
	if (back <= UINT32_MAX) {
		s.back = (uint32_t)back;
		s.name = spans->items[next - 1].name;
	}
	return s;
}

int symbol_spans_fill(struct symbol_spans *spans, struct symbol_spans *under)
{
	struct symbol_spans out = {0};
	size_t i = 0, j = 0;
	int err = 0;

	if (!under->count)
		return 0;
	while (!err && (i < spans->count || j < under->count)) {
		struct symbol_span s;
		uint64_t at = UINT64_MAX;

		if (i < spans->count)
			at = spans->items[i].start;
		if (j < under->count && under->items[j].start < at)
			at = under->items[j].start;
		while (i < spans->count && spans->items[i].start == at)
			i++;
		while (j < under->count && under->items[j].start == at)
			j++;
		s = span_at(spans, i, at);
		if (!s.name)
			s = span_at(under, j, at);
		err = append(&out, &s);
	}
	symbol_spans_done(under);
	symbol_spans_done(spans);
	*spans = out;
	return err;
}
