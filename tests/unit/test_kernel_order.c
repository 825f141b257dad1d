// SPDX-License-Identifier: Apache-2.0
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

struct got {
	uint64_t values[4096];
	size_t count;
};

static void take(void *ctx, uint32_t kind, const void *data, size_t bytes)
{
	struct got *got = ctx;
	uint64_t value;

	assert_true(bytes >= sizeof(value));
	memcpy(&value, data, sizeof(value));
	/* The tail repeats the value, so that bytes moved wrongly show. */
	for (size_t i = sizeof(value); i < bytes; i++)
		assert_int_equal(((const uint8_t *)data)[i], (uint8_t)value);
	assert_int_equal(kind, value % 7);
	assert_true(got->count < ARRAY_SIZE(got->values));
	got->values[got->count++] = value;
}

static void add(struct kernel_order *order, uint64_t time_ns, uint64_t value, size_t tail)
{
	uint8_t bytes[300];

	memset(bytes, (uint8_t)value, sizeof(bytes));
	assert_int_equal(kernel_order_add(order, time_ns, (uint32_t)(value % 7), &value,
					  sizeof(value), bytes, tail),
			 0);
}

static void kernel_order__events__come_by_time(void **state)
{
	struct kernel_order order;
	struct got got = {.count = 0};

	(void)state;
	assert_int_equal(kernel_order_init(&order, 1 << 20), 0);
	order.fn = take;
	order.ctx = &got;
	add(&order, 30, 30, 5);
	add(&order, 10, 10, 0);
	add(&order, 20, 20, 17);
	add(&order, 20, 21, 1); /* of equal time: as they came */
	add(&order, 40, 40, 0);
	assert_int_equal(kernel_order_give(&order, 9), 0);
	assert_int_equal(kernel_order_give(&order, 20), 3);
	assert_int_equal(got.values[0], 10);
	assert_int_equal(got.values[1], 20);
	assert_int_equal(got.values[2], 21);
	add(&order, 25, 25, 3);
	add(&order, 15, 15, 3); /* too late, and given out all the same */
	assert_int_equal(kernel_order_give(&order, UINT64_MAX), 4);
	assert_int_equal(got.values[3], 15);
	assert_int_equal(got.values[4], 25);
	assert_int_equal(got.values[6], 40);
	assert_int_equal(order.late, 1);
	assert_int_equal(order.count, 0);
	assert_int_equal(order.len, 0);
	assert_int_equal(kernel_order_give(&order, UINT64_MAX), 0);
	kernel_order_done(&order);
}

static void kernel_order__full__gives_the_older_half_early(void **state)
{
	struct kernel_order order;
	struct got got = {.count = 0};

	(void)state;
	assert_int_equal(kernel_order_init(&order, 1000), 0);
	order.fn = take;
	order.ctx = &got;
	for (uint64_t i = 0; i < 200; i++)
		add(&order, 1000 + (i ^ 3), 1000 + (i ^ 3), 92);
	assert_true(got.count > 180);
	assert_true(order.cap <= 1000);
	kernel_order_give(&order, UINT64_MAX);
	assert_int_equal(got.count, 200);
	for (size_t i = 0; i < 200; i++)
		assert_int_equal(got.values[i], 1000 + i);
	assert_int_equal(order.late, 0);
	assert_int_equal(kernel_order_add(&order, 1, 0, got.values, 2000, NULL, 0), -ENOSPC);
	kernel_order_done(&order);
}

static void kernel_order__no_memory__gives_instead_of_losing(void **state)
{
	struct kernel_order order;
	struct got got = {.count = 0};

	(void)state;
	for (unsigned long n = 1; n < 12; n++) {
		uint64_t sum = 0, value = 0;

		got.count = 0;
		assert_int_equal(kernel_order_init(&order, 1 << 20), 0);
		order.fn = take;
		order.ctx = &got;
		mem_fail_after(n);
		for (value = 0; value < 3000; value++) {
			uint8_t tail[200];

			memset(tail, (uint8_t)value, sizeof(tail));
			/* Only an empty queue has nothing to give out for room. */
			if (kernel_order_add(&order, value, (uint32_t)(value % 7), &value,
					     sizeof(value), tail, sizeof(tail)))
				sum++;
		}
		mem_fail_after(0);
		kernel_order_give(&order, UINT64_MAX);
		assert_int_equal(got.count + sum, 3000);
		assert_true(sum <= 1);
		kernel_order_done(&order);
	}
}

static void kernel_order__random__nothing_lost_nothing_swapped(void **state)
{
	struct kernel_order order;
	struct got got = {.count = 0};
	uint64_t now = 1000;
	unsigned int seed = 7;

	(void)state;
	assert_int_equal(kernel_order_init(&order, 1 << 20), 0);
	order.fn = take;
	order.ctx = &got;
	for (uint64_t i = 0; i < 4000; i++) {
		/* Within 50 of now, so nothing comes late for those 60 old. */
		uint64_t time = now - (uint64_t)rand_r(&seed) % 50;

		add(&order, time, time, (size_t)rand_r(&seed) % 300);
		now += (uint64_t)rand_r(&seed) % 3;
		if (i % 37 == 0)
			kernel_order_give(&order, now - 60);
	}
	kernel_order_give(&order, UINT64_MAX);
	assert_int_equal(got.count, 4000);
	for (size_t i = 1; i < got.count; i++)
		assert_true(got.values[i] >= got.values[i - 1]);
	assert_int_equal(order.late, 0);
	kernel_order_done(&order);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_order__events__come_by_time),
		cmocka_unit_test(kernel_order__full__gives_the_older_half_early),
		cmocka_unit_test(kernel_order__no_memory__gives_instead_of_losing),
		cmocka_unit_test(kernel_order__random__nothing_lost_nothing_swapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
