// SPDX-License-Identifier: Apache-2.0
/*
 * mappings: sorted ranges with newest-wins. Folding is a sweep by address over all ranges, with a
 * heap of those that cover the sweep line, the highest rank on top: O(n log n) however the ranges
 * overlap. When memory for it fails the log stays a log and is searched linearly: slower, never
 * wrong.
 */
#include "process/mappings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOG_LINEAR 16 /* logs up to this are searched from the end */
#define LOG_MIN	   64 /* longer than this and than the sorted part: folded at the next add */

struct process_maps *process_maps_new(void)
{
	struct process_maps *maps = mem_alloc(MEM_PROCESS, sizeof(*maps));

	if (maps)
		maps->refs = 1;
	return maps;
}

struct process_maps *process_maps_ref(struct process_maps *maps)
{
	if (maps)
		maps->refs++;
	return maps;
}

void process_maps_unref(struct process_maps *maps)
{
	if (!maps || --maps->refs)
		return;
	mem_free(MEM_PROCESS, maps->items);
	mem_free(MEM_PROCESS, maps);
}

static int by_start(const void *a, const void *b)
{
	const struct process_mapping *l = a, *r = b;

	if (l->start != r->start)
		return l->start < r->start ? -1 : 1;
	return l->rank < r->rank ? -1 : l->rank > r->rank;
}

/* A heap of indices into items, highest rank first. */
struct heap {
	const struct process_mapping *items;
	uint32_t *at;
	size_t count;
};

static bool heap_above(const struct heap *h, size_t a, size_t b)
{
	return h->items[h->at[a]].rank > h->items[h->at[b]].rank;
}

static void heap_swap(struct heap *h, size_t a, size_t b)
{
	uint32_t x = h->at[a];

	h->at[a] = h->at[b];
	h->at[b] = x;
}

static void heap_push(struct heap *h, uint32_t item)
{
	size_t i = h->count++;

	h->at[i] = item;
	while (i && heap_above(h, i, (i - 1) / 2)) {
		heap_swap(h, i, (i - 1) / 2);
		i = (i - 1) / 2;
	}
}

static void heap_pop(struct heap *h)
{
	size_t i = 0, top;

	h->at[0] = h->at[--h->count];
	for (;;) {
		top = i;
		if (2 * i + 1 < h->count && heap_above(h, 2 * i + 1, top))
			top = 2 * i + 1;
		if (2 * i + 2 < h->count && heap_above(h, 2 * i + 2, top))
			top = 2 * i + 2;
		if (top == i)
			return;
		heap_swap(h, i, top);
		i = top;
	}
}

struct fold {
	struct process_mapping *items;
	size_t count, cap;
};

static int fold_emit(struct fold *out, const struct process_mapping *m, uint64_t start,
		     uint64_t end)
{
	void *items = out->items;
	struct process_mapping *last = out->count ? &out->items[out->count - 1] : NULL;
	int err;

	if (last && last->rank == m->rank && last->end == start) {
		last->end = end;
		return 0;
	}
	if (out->count == PROCESS_MAPPINGS_MAX)
		return 0;
	err = mem_grow(MEM_PROCESS, &items, &out->cap, out->count + 1, PROCESS_MAPPINGS_MAX,
		       sizeof(*out->items));
	out->items = items;
	if (err)
		return err;
	last = &out->items[out->count++];
	*last = *m;
	last->start = start;
	last->end = end;
	last->offset = m->offset + (start - m->start);
	return 0;
}

/* Sorts items in place and writes what is left of them to out. */
static int fold_items(struct process_mapping *items, size_t n, struct fold *out)
{
	struct heap heap = {.items = items};
	uint64_t at = 0, next;
	size_t i = 0;
	int err = 0;

	heap.at = mem_array(MEM_PROCESS, n, sizeof(*heap.at));
	if (!heap.at)
		return -ENOMEM;
	qsort(items, n, sizeof(*items), by_start);
	while (!err && (i < n || heap.count)) {
		const struct process_mapping *top;

		if (!heap.count)
			at = items[i].start;
		for (; i < n && items[i].start <= at; i++)
			heap_push(&heap, (uint32_t)i);
		while (heap.count && items[heap.at[0]].end <= at)
			heap_pop(&heap);
		if (!heap.count)
			continue;
		top = &items[heap.at[0]];
		next = i < n && items[i].start < top->end ? items[i].start : top->end;
		err = fold_emit(out, top, at, next);
		at = next;
	}
	mem_free(MEM_PROCESS, heap.at);
	return err;
}

static void take_fold(struct process_maps *maps, const struct fold *out)
{
	mem_free(MEM_PROCESS, maps->items);
	maps->items = out->items;
	maps->cap = out->cap;
	maps->count = maps->sorted = out->count;
	maps->hit = 0;
	maps->is_full = out->count == PROCESS_MAPPINGS_MAX;
}

int process_maps_fold(struct process_maps *maps)
{
	struct process_mapping *copy;
	struct fold out = {0};
	int err;

	if (maps->sorted == maps->count)
		return 0;
	copy = mem_array(MEM_PROCESS, maps->count, sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, maps->items, maps->count * sizeof(*copy));
	for (size_t i = 0; i < maps->count; i++)
		copy[i].rank = (uint32_t)i;
	err = fold_items(copy, maps->count, &out);
	mem_free(MEM_PROCESS, copy);
	if (err)
		mem_free(MEM_PROCESS, out.items);
	else
		take_fold(maps, &out);
	return err;
}

int process_maps_own(struct process_maps **maps)
{
	struct process_maps *old = *maps, *copy;

	if (old->refs == 1)
		return 0;
	copy = process_maps_new();
	if (!copy)
		return -ENOMEM;
	copy->items = mem_array(MEM_PROCESS, old->count, sizeof(*old->items));
	if (!copy->items) {
		process_maps_unref(copy);
		return -ENOMEM;
	}
	if (old->count)
		memcpy(copy->items, old->items, old->count * sizeof(*old->items));
	copy->count = copy->cap = old->count;
	copy->sorted = old->sorted;
	copy->is_whole = old->is_whole;
	copy->is_full = old->is_full;
	process_maps_unref(old);
	*maps = copy;
	return 0;
}

int process_maps_add(struct process_maps **pmaps, const struct process_mapping *m)
{
	struct process_maps *maps;
	void *items;
	int err;

	if (m->start >= m->end)
		return -EINVAL;
	err = process_maps_own(pmaps);
	if (err)
		return err;
	maps = *pmaps;
	if (maps->is_full)
		return -ENOSPC;
	if (maps->count - maps->sorted >= LOG_MIN && maps->count - maps->sorted >= maps->sorted)
		process_maps_fold(maps);
	if (maps->count == PROCESS_MAPPINGS_MAX) {
		err = process_maps_fold(maps);
		if (err)
			return err;
		if (maps->is_full || maps->count == PROCESS_MAPPINGS_MAX) {
			maps->is_full = true;
			return -ENOSPC;
		}
	}
	items = maps->items;
	err = mem_grow(MEM_PROCESS, &items, &maps->cap, maps->count + 1, PROCESS_MAPPINGS_MAX,
		       sizeof(*maps->items));
	maps->items = items;
	if (err)
		return err;
	maps->items[maps->count++] = *m;
	return 0;
}

static bool covers(const struct process_mapping *m, uint64_t address)
{
	return address >= m->start && address < m->end;
}

const struct process_mapping *process_maps_find(struct process_maps *maps, uint64_t address)
{
	size_t low = 0, high;

	if (!maps)
		return NULL;
	if (maps->count - maps->sorted > LOG_LINEAR)
		process_maps_fold(maps);
	for (size_t i = maps->count; i > maps->sorted; i--) {
		if (covers(&maps->items[i - 1], address))
			return &maps->items[i - 1];
	}
	if (maps->hit < maps->sorted && covers(&maps->items[maps->hit], address))
		return &maps->items[maps->hit];
	high = maps->sorted;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (maps->items[mid].end <= address)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == maps->sorted || !covers(&maps->items[low], address))
		return NULL;
	maps->hit = low;
	return &maps->items[low];
}

int process_maps_replace(struct process_maps *maps, const struct process_mapping *found,
			 size_t count, uint64_t since_ns, bool keep_old)
{
	struct process_mapping *all = mem_array(MEM_PROCESS, maps->count + count, sizeof(*all));
	struct fold out = {0};
	size_t n = 0;
	int err;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		if (found[i].start < found[i].end)
			all[n++] = found[i];
	}
	for (size_t i = 0; i < maps->count; i++) {
		if (keep_old || maps->items[i].time_ns >= since_ns)
			all[n++] = maps->items[i];
	}
	for (size_t i = 0; i < n; i++)
		all[i].rank = (uint32_t)i;
	err = fold_items(all, n, &out);
	mem_free(MEM_PROCESS, all);
	if (err)
		mem_free(MEM_PROCESS, out.items);
	else
		take_fold(maps, &out);
	return err;
}

bool process_maps_equal(struct process_maps *maps, const struct process_mapping *items,
			size_t count)
{
	if (process_maps_fold(maps) || maps->count != count)
		return false;
	for (size_t i = 0; i < count; i++) {
		const struct process_mapping *a = &maps->items[i], *b = &items[i];

		if (a->start != b->start || a->end != b->end || a->offset != b->offset ||
		    a->file != b->file)
			return false;
	}
	return true;
}
