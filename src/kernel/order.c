// SPDX-License-Identifier: Apache-2.0
/*
 * order: one stream by time out of many that are each nearly in order.
 *
 * Events are copied into one block; a list of items is sorted when it is time to give some out.
 * What stays is moved to the front: that is some 20 ms worth, little. Items of equal time keep the
 * order of their arrival.
 */
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 8

int kernel_order_init(struct kernel_order *order, size_t max_bytes)
{
	memset(order, 0, sizeof(*order));
	order->max = max_bytes;
	return mem_grow(MEM_KERNEL, (void **)&order->data, &order->cap,
			max_bytes < 65536 ? max_bytes : 65536, max_bytes, 1);
}

void kernel_order_done(struct kernel_order *order)
{
	mem_free(MEM_KERNEL, order->data);
	mem_free(MEM_KERNEL, order->items);
	memset(order, 0, sizeof(*order));
}

static int by_time(const void *a, const void *b)
{
	const struct kernel_order_item *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

static int by_offset(const void *a, const void *b)
{
	const struct kernel_order_item *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void give_one(struct kernel_order *order, const struct kernel_order_item *item)
{
	if (item->time_ns < order->given_ns)
		order->late++;
	else
		order->given_ns = item->time_ns;
	order->fn(order->ctx, item->kind, order->data + item->offset, item->bytes);
}

/* Gives out the first n items; those that stay close ranks. */
static void give_first(struct kernel_order *order, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		give_one(order, &order->items[i]);
	order->count -= n;
	memmove(order->items, order->items + n, order->count * sizeof(*order->items));
	qsort(order->items, order->count, sizeof(*order->items), by_offset);
	for (size_t i = 0; i < order->count; i++) {
		struct kernel_order_item *item = &order->items[i];

		memmove(order->data + len, order->data + item->offset, item->bytes);
		item->offset = (uint32_t)len;
		len += (item->bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	}
	order->len = len;
}

size_t kernel_order_give(struct kernel_order *order, uint64_t until_ns)
{
	size_t n = 0;

	if (!order->count)
		return 0;
	qsort(order->items, order->count, sizeof(*order->items), by_time);
	while (n < order->count && order->items[n].time_ns <= until_ns)
		n++;
	give_first(order, n);
	return n;
}

/* Makes room for want more bytes and one more item, first by growing. */
static int make_room(struct kernel_order *order, size_t want)
{
	if (want > order->max)
		return -ENOSPC;
	for (;;) {
		int err = mem_grow(MEM_KERNEL, (void **)&order->data, &order->cap,
				   order->len + want, order->max, 1);

		if (!err)
			err = mem_grow(MEM_KERNEL, (void **)&order->items, &order->items_cap,
				       order->count + 1, order->max / sizeof(*order->items),
				       sizeof(*order->items));
		if (!err)
			return 0;
		if (!order->count)
			return err;
		qsort(order->items, order->count, sizeof(*order->items), by_time);
		give_first(order, (order->count + 1) / 2);
	}
}

int kernel_order_add(struct kernel_order *order, uint64_t time_ns, uint32_t kind, const void *a,
		     size_t a_bytes, const void *b, size_t b_bytes)
{
	size_t bytes = a_bytes + b_bytes;
	size_t padded = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	int err = make_room(order, padded);

	if (err)
		return err;
	memcpy(order->data + order->len, a, a_bytes);
	if (b_bytes)
		memcpy(order->data + order->len + a_bytes, b, b_bytes);
	order->items[order->count++] = (struct kernel_order_item){
		.time_ns = time_ns,
		.sequence = order->sequence++,
		.offset = (uint32_t)order->len,
		.bytes = (uint32_t)bytes,
		.kind = kind,
	};
	order->len += padded;
	return 0;
}
