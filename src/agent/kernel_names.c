// SPDX-License-Identifier: Apache-2.0
/* kernel_names: see kernel_names.h. A sorted array: thousands of look-ups a window, few additions.
 */
#include "kernel_names.h"

#include <errno.h>
#include <string.h>

#define TEXT_BYTES_MAX	  (4U << 20)
#define MODULES_BYTES_MAX (256U << 10)

struct range {
	uint64_t start, end;
	uint32_t name; /* in strings */
};

struct kernel_names {
	struct range *ranges; /* sorted, without overlap */
	size_t count, cap;
	struct strings *strings;
	struct buf modules; /* their names, as of the last look */
};

int kernel_names_new(struct kernel_names **ret)
{
	struct kernel_names *names = mem_alloc(MEM_AGENT, sizeof(*names));

	if (!names)
		return -ENOMEM;
	if (strings_new(MEM_AGENT, TEXT_BYTES_MAX, &names->strings)) {
		mem_free(MEM_AGENT, names);
		return -ENOMEM;
	}
	buf_init(&names->modules, MEM_AGENT, MODULES_BYTES_MAX);
	*ret = names;
	return 0;
}

void kernel_names_free(struct kernel_names *names)
{
	if (!names)
		return;
	strings_free(names->strings);
	buf_done(&names->modules);
	mem_free(MEM_AGENT, names->ranges);
	mem_free(MEM_AGENT, names);
}

static void clear(struct kernel_names *names)
{
	struct strings *fresh;

	names->count = 0;
	if (strings_new(MEM_AGENT, TEXT_BYTES_MAX, &fresh))
		return; /* the old texts are of use again */
	strings_free(names->strings);
	names->strings = fresh;
}

/* The first word of each line: counts of users change all the time. */
static void read_modules(const char *text, size_t len, struct buf *out)
{
	size_t at = 0;

	while (at < len) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t line = end ? (size_t)(end - text) - at : len - at;
		const char *space = memchr(text + at, ' ', line);

		buf_add(out, text + at, space ? (size_t)(space - text) - at : line);
		buf_add_char(out, '\n');
		at += line + 1;
	}
}

void kernel_names_check(struct kernel_names *names, const char *modules, size_t len)
{
	struct buf now;

	buf_init(&now, MEM_AGENT, MODULES_BYTES_MAX);
	read_modules(modules, len, &now);
	if (now.err || now.len != names->modules.len ||
	    (now.len && memcmp(now.data, names->modules.data, now.len) != 0))
		clear(names);
	buf_done(&names->modules);
	names->modules = now;
}

/* The first that ends past it. */
static size_t position(const struct kernel_names *names, uint64_t address)
{
	size_t low = 0, high = names->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (names->ranges[mid].end <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const char *kernel_names_find(const struct kernel_names *names, uint64_t address,
			      uint64_t *ret_start)
{
	size_t at = position(names, address);

	if (at == names->count || address < names->ranges[at].start)
		return NULL;
	*ret_start = names->ranges[at].start;
	return strings_get(names->strings, names->ranges[at].name);
}

void kernel_names_keep(struct kernel_names *names, const struct symbol_query *query)
{
	bool is_bpf = query->module && !strcmp(query->module, "[bpf]");
	void *p = names->ranges;
	int64_t name;
	size_t at;

	if (!query->found || !query->name || is_bpf || query->end <= query->start)
		return;
	if (names->count == KERNEL_NAMES_MAX)
		clear(names);
	at = position(names, query->start);
	if (at < names->count && names->ranges[at].start < query->end)
		return; /* it is there */
	if (mem_grow(MEM_AGENT, &p, &names->cap, names->count + 1, KERNEL_NAMES_MAX,
		     sizeof(*names->ranges)))
		return;
	names->ranges = p;
	name = strings_add_str(names->strings, query->name);
	if (name < 0)
		return;
	memmove(names->ranges + at + 1, names->ranges + at,
		(names->count - at) * sizeof(*names->ranges));
	names->ranges[at] = (struct range){query->start, query->end, (uint32_t)name};
	names->count++;
}
