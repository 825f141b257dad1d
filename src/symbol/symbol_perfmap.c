// SPDX-License-Identifier: Apache-2.0
/* perf-PID.map: "START SIZE NAME" per line in hexadecimal (tools/perf/Documentation/
 * jit-interface.txt; the JVM writes 0x in front). A JIT that reuses memory adds a line, so among
 * lines that cover an address the last one counts.
 *
 * A line may cover the whole batch, so a segment tree over the sorted queries takes ranges: a node
 * holds the offset of the last line that covered all of it, and since offsets only grow the answer
 * of a query is the greatest from its leaf to the root. Names are read when the winners are known.
 */
#include "symbol_order.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WINDOW_BYTES 65536
#define HEAD_BYTES   64 /* two numbers and what is around them */
#define NAME_BYTES   4096
#define NO_LINE	     0 /* a tree holds offset + 1 */

struct perfmap {
	int fd;
	struct symbol_query *queries;
	size_t count;
	uint64_t *tree; /* 2 * count nodes, leaves behind */
	struct symbol_perfmap_stats stats;
	char *window;
};

struct entry {
	uint64_t start, size;
	const char *name; /* in the text parsed */
	size_t name_len;
};

static ssize_t read_at(int fd, char *out, size_t bytes, uint64_t offset)
{
	ssize_t n;

	do {
		n = pread(fd, out, bytes, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Reads a number and the blanks behind it. */
static bool hex_take(const char **at, const char *end, uint64_t *ret)
{
	const char *p = *at, *first;
	uint64_t v = 0;

	if (end - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
		p += 2;
	for (first = p; p < end && hex_digit(*p) >= 0; p++) {
		if (v >> 60)
			return false;
		v = v << 4 | (uint64_t)hex_digit(*p);
	}
	if (p == first || p == end || (*p != ' ' && *p != '\t'))
		return false;
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	*at = p;
	*ret = v;
	return true;
}

/* A line without its newline; what is behind the name's begin may be cut. */
static bool line_parse(const char *text, size_t len, struct entry *ret)
{
	const char *at = text, *end = text + len;

	if (!hex_take(&at, end, &ret->start) || !hex_take(&at, end, &ret->size))
		return false;
	while (end > at && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
		end--;
	ret->name = at;
	ret->name_len = (size_t)(end - at);
	return ret->name_len && ret->start + ret->size >= ret->start;
}

/* Queries [first, last) were covered by the line at mark - 1. */
static void cover(struct perfmap *m, size_t first, size_t last, uint64_t mark)
{
	for (first += m->count, last += m->count; first < last; first /= 2, last /= 2) {
		if (first & 1)
			m->tree[first++] = mark;
		if (last & 1)
			m->tree[--last] = mark;
	}
}

static void line_take(struct perfmap *m, const char *text, size_t len, uint64_t offset)
{
	struct entry e;
	size_t first;

	if (!len || (len == 1 && text[0] == '\r'))
		return;
	if (!line_parse(text, len, &e)) {
		m->stats.skipped++;
		return;
	}
	m->stats.lines++;
	if (!e.size)
		return;
	first = symbol_query_at_or_above(m->queries, m->count, e.start);
	if (first < m->count && m->queries[first].address - e.start < e.size)
		cover(m, first, symbol_query_at_or_above(m->queries, m->count, e.start + e.size),
		      offset + 1);
}

/* Lines longer than the window are taken by their beginning; the rest is passed over. */
static int lines_walk(struct perfmap *m, uint64_t bytes)
{
	uint64_t at = 0; /* of window[0] in the file */
	size_t have = 0;
	bool is_rest = false;

	while (at + have < bytes || have) {
		size_t want = WINDOW_BYTES - have, used = 0;
		bool is_end;
		ssize_t n;

		if (want > bytes - at - have)
			want = (size_t)(bytes - at - have);
		n = want ? read_at(m->fd, m->window + have, want, at + have) : 0;
		if (n < 0)
			return (int)n;
		if (want && !n) /* it has shrunk: what is there is taken */
			bytes = at + have;
		have += (size_t)n;
		is_end = at + have >= bytes;
		while (used < have) {
			char *p = m->window + used;
			char *end = memchr(p, '\n', have - used);

			if (!end && !is_end && (used || have < WINDOW_BYTES))
				break;
			if (!end)
				end = m->window + have;
			if (!is_rest)
				line_take(m, p, (size_t)(end - p), at + used);
			m->stats.is_unfinished = is_end && end == m->window + have;
			is_rest = end == m->window + have;
			used = (size_t)(end - m->window) + !is_rest;
		}
		memmove(m->window, m->window + used, have - used);
		have -= used;
		at += used;
	}
	return 0;
}

/* The line is read again: it may have changed meanwhile, and must still cover the address. */
static int query_answer(struct perfmap *m, struct symbol_query *query, uint64_t offset)
{
	char text[SYMBOL_NAME_MAX], *name;
	ssize_t n = read_at(m->fd, m->window, HEAD_BYTES + NAME_BYTES, offset);
	struct entry e;
	char *end;

	if (n <= 0)
		return 0;
	end = memchr(m->window, '\n', (size_t)n);
	if (!line_parse(m->window, end ? (size_t)(end - m->window) : (size_t)n, &e) ||
	    query->address - e.start >= e.size)
		return 0;
	/* The name lies in the window with room behind it for a NUL. */
	m->window[(size_t)(e.name - m->window) + e.name_len] = 0;
	symbol_demangle(e.name, text, sizeof(text));
	if (!text[0])
		return 0;
	name = mem_copy_string(MEM_SYMBOL, text);
	if (!name)
		return -ENOMEM;
	symbol_answer(query, e.start, name, NULL);
	return 0;
}

static int queries_answer(struct perfmap *m)
{
	uint64_t last = NO_LINE;

	for (size_t i = 0; i < m->count; i++) {
		struct symbol_query *query = &m->queries[i];
		uint64_t mark = NO_LINE;

		for (size_t node = i + m->count; node; node /= 2)
			mark = m->tree[node] > mark ? m->tree[node] : mark;
		if (mark == NO_LINE)
			continue;
		if (mark == last && query[-1].found) {
			char *name = mem_copy_string(MEM_SYMBOL, query[-1].name);

			if (!name)
				return -ENOMEM;
			symbol_answer(query, query[-1].start, name, NULL);
		} else if (query_answer(m, query, mark - 1)) {
			return -ENOMEM;
		}
		last = mark;
	}
	return 0;
}

int symbol_lookup_perfmap(int fd, struct symbol_query *queries, size_t count,
			  struct symbol_perfmap_stats *ret, struct why *why)
{
	struct perfmap m = {.fd = fd, .queries = queries, .count = count};
	struct stat st;
	uint64_t bytes;
	int err;

	symbol_queries_reset(queries, count);
	if (fstat(fd, &st))
		return why_set(why, -errno, "fstat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return why_set(why, -EBADMSG, "not a regular file");
	bytes = (uint64_t)st.st_size;
	if (bytes > SYMBOL_PERFMAP_MAX) {
		bytes = SYMBOL_PERFMAP_MAX;
		m.stats.is_cut = true;
	}
	m.tree = mem_array(MEM_SYMBOL, count ? 2 * count : 1, sizeof(*m.tree));
	m.window = mem_alloc(MEM_SYMBOL, WINDOW_BYTES + 1);
	err = m.tree && m.window ? lines_walk(&m, bytes) : -ENOMEM;
	if (!err)
		err = queries_answer(&m);
	mem_free(MEM_SYMBOL, m.tree);
	mem_free(MEM_SYMBOL, m.window);
	if (ret)
		*ret = m.stats;
	return err ? why_set(why, err, "%s", strerror(-err)) : 0;
}
