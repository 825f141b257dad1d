// SPDX-License-Identifier: Apache-2.0
/* mem: malloc with a ledger of its own. Sizes come from malloc_usable_size, so no header is added
 * to a block and the figure is what the allocator really holds. */
#include "base.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic size_t live[MEM_PARTS], peak[MEM_PARTS];
static _Atomic unsigned long fail_countdown;

static const char *const part_names[MEM_PARTS] = {
	[MEM_BASE] = "base",	   [MEM_ELF] = "elf",	      [MEM_SYMBOL] = "symbol",
	[MEM_PROFILE] = "profile", [MEM_HELPERS] = "helpers", [MEM_PROCESS] = "process",
	[MEM_KERNEL] = "kernel",   [MEM_AGENT] = "agent",     [MEM_TABLES] = "tables",
	[MEM_STORE] = "store",	   [MEM_CONFIG] = "config",   [MEM_EXPORT] = "export",
	[MEM_HTTP] = "http",
};

static bool must_fail(void)
{
	unsigned long left = atomic_load(&fail_countdown);

	while (left) {
		if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1))
			return left == 1;
	}
	return false;
}

static void account(enum mem_part part, size_t add, size_t sub)
{
	size_t now = atomic_fetch_add(&live[part], add - sub) + add - sub;
	size_t top = atomic_load(&peak[part]);

	while (add && now > top && !atomic_compare_exchange_weak(&peak[part], &top, now))
		;
}

void *mem_alloc(enum mem_part part, size_t bytes)
{
	void *p;

	if (must_fail())
		return NULL;
	p = calloc(1, bytes ? bytes : 1);
	if (p)
		account(part, malloc_usable_size(p), 0);
	return p;
}

void *mem_array(enum mem_part part, size_t count, size_t bytes)
{
	size_t total;

	if (__builtin_mul_overflow(count, bytes, &total))
		return NULL;
	return mem_alloc(part, total);
}

void *mem_resize(enum mem_part part, void *p, size_t bytes)
{
	size_t old = p ? malloc_usable_size(p) : 0;
	void *q;

	if (must_fail())
		return NULL;
	q = realloc(p, bytes ? bytes : 1);
	if (q)
		account(part, malloc_usable_size(q), old);
	return q;
}

char *mem_copy_string(enum mem_part part, const char *s)
{
	size_t n = strlen(s) + 1;
	char *p = mem_alloc(part, n);

	if (p)
		memcpy(p, s, n);
	return p;
}

void mem_free(enum mem_part part, void *p)
{
	if (!p)
		return;
	account(part, 0, malloc_usable_size(p));
	free(p);
}

size_t mem_live_bytes(enum mem_part part)
{
	return atomic_load(&live[part]);
}

size_t mem_peak_bytes(enum mem_part part)
{
	return atomic_load(&peak[part]);
}

const char *mem_part_name(enum mem_part part)
{
	return part < MEM_PARTS ? part_names[part] : "?";
}

void mem_fail_after(unsigned long n)
{
	atomic_store(&fail_countdown, n);
}

int mem_grow(enum mem_part part, void **items, size_t *cap, size_t want, size_t max,
	     size_t item_bytes)
{
	size_t next = *cap ? *cap : 8, bytes;
	void *p;

	if (want <= *cap)
		return 0;
	if (want > max)
		return -ENOSPC;
	while (next < want)
		next *= 2;
	if (next > max)
		next = max;
	if (__builtin_mul_overflow(next, item_bytes, &bytes))
		return -ENOSPC;
	p = mem_resize(part, *items, bytes);
	if (!p)
		return -ENOMEM;
	*items = p;
	*cap = next;
	return 0;
}
