// SPDX-License-Identifier: Apache-2.0
/* Names from /proc/kallsyms (kernel/kallsyms.c, s_show: "%px %c %s\t[%s]\n"). The stream is not
 * sorted (modules, ftrace and BPF follow the kernel), so each query keeps the nearest symbol at or
 * below and the nearest above; as in symbol_file.c a line is noted at one query only and carried on
 * afterwards. */
#include "symbol_order.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 1024
#define MODULE_MAX     64

struct line {
	uint64_t address;
	bool is_text, is_mark;
	uint8_t rank; /* global, weak, local */
	char name[LINE_MAX_BYTES], module[MODULE_MAX];
};

/* What is kept of a line: small, since there are two for each query. */
struct kept {
	uint64_t address;
	char *name; /* heap; NULL: none */
	char module[MODULE_MAX];
	bool is_text, is_mark;
	uint8_t rank;
};

struct next {
	uint64_t address;
	bool is_there, is_text;
	char module[MODULE_MAX];
};

struct lookup {
	struct symbol_query *queries;
	size_t count;
	struct kept *below;
	struct next *above;
	bool has_address;
	int err;
};

static bool is_region_mark(const char *name)
{
	static const char *const marks[] = {"_text",	  "_stext",	  "_etext", "_sinittext",
					    "_einittext", "__init_begin", "_end"};
	size_t len;

	if (!strncmp(name, "__pi_", 5)) /* the same, for code that runs before relocation */
		name += 5;
	len = strlen(name);
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
		if (!strcmp(name, marks[i]))
			return true;
	}
	return len > 8 && name[0] == '_' && name[1] == '_' &&
	       (!strcmp(name + len - 6, "_start") || !strcmp(name + len - 4, "_end") ||
		!strcmp(name + len - 6, "_begin"));
}

/* text is one line without its newline; it may hold anything. */
static bool line_parse(char *text, size_t len, struct line *ret)
{
	char *end, *name, *tab;
	size_t n;

	if (!len || !isxdigit((unsigned char)text[0]) || memchr(text, 0, len))
		return false;
	text[len] = 0;
	errno = 0;
	ret->address = strtoull(text, &end, 16);
	if (errno || end[0] != ' ' || !end[1] || end[2] != ' ')
		return false;
	name = end + 3;
	tab = strchr(name, '\t');
	n = tab ? (size_t)(tab - name) : strlen(name);
	while (n && name[n - 1] == ' ')
		n--;
	if (!n || n >= sizeof(ret->name))
		return false;
	memcpy(ret->name, name, n);
	ret->name[n] = 0;
	ret->module[0] = 0;
	if (tab)
		text_print(tab + 1, strcspn(tab + 1, " \t"), ret->module, sizeof(ret->module));
	ret->is_text = strchr("tTwW", end[1]) != NULL;
	ret->rank = end[1] == 'T' ? 0 : end[1] == 't' ? 2 : 1;
	ret->is_mark = is_region_mark(ret->name);
	return true;
}

/* At one address: text before data, functions before marks, then as symbol.h says. */
static bool is_better(const struct line *line, const struct kept *had)
{
	size_t len, had_len;

	if (!had->name || line->address != had->address)
		return !had->name || line->address > had->address;
	if (line->is_text != had->is_text)
		return line->is_text;
	if (line->is_mark != had->is_mark)
		return had->is_mark;
	if (line->rank != had->rank)
		return line->rank < had->rank;
	len = strlen(line->name);
	had_len = strlen(had->name);
	return len != had_len ? len < had_len : strcmp(line->name, had->name) < 0;
}

static void below_note(struct lookup *l, struct kept *kept, const struct line *line)
{
	size_t len = strlen(line->name) + 1;
	char *name;

	if (!is_better(line, kept))
		return;
	name = mem_resize(MEM_SYMBOL, kept->name, len);
	if (!name) {
		l->err = -ENOMEM;
		return;
	}
	memcpy(name, line->name, len);
	kept->name = name;
	kept->address = line->address;
	kept->is_text = line->is_text;
	kept->is_mark = line->is_mark;
	kept->rank = line->rank;
	memcpy(kept->module, line->module, sizeof(kept->module));
}

static void above_note(struct next *next, const struct line *line)
{
	if (next->is_there && line->address > next->address)
		return;
	/* At one address text wins, whatever the order of the lines. */
	if (next->is_there && line->address == next->address && next->is_text)
		return;
	next->is_there = true;
	next->address = line->address;
	next->is_text = line->is_text;
	memcpy(next->module, line->module, sizeof(next->module));
}

static void line_take(struct lookup *l, char *text, size_t len)
{
	struct line line;
	size_t first;

	if (!line_parse(text, len, &line) || !line.address)
		return;
	l->has_address = true;
	first = symbol_query_at_or_above(l->queries, l->count, line.address);
	if (first < l->count)
		below_note(l, &l->below[first], &line);
	if (first)
		above_note(&l->above[first - 1], &line);
}

/* Splits the stream into lines; longer ones than the buffer are skipped whole. */
static void stream_read(struct lookup *l, FILE *stream)
{
	char buffer[16384];
	size_t have = 0, n;
	bool is_skipping = false;

	while (!l->err && (n = fread(buffer + have, 1, sizeof(buffer) - 1 - have, stream)) > 0) {
		size_t at = 0;
		char *end;

		have += n;
		while ((end = memchr(buffer + at, '\n', have - at)) != NULL) {
			size_t len = (size_t)(end - (buffer + at));

			if (!is_skipping && len < LINE_MAX_BYTES)
				line_take(l, buffer + at, len);
			is_skipping = false;
			at += len + 1;
		}
		memmove(buffer, buffer + at, have - at);
		have -= at;
		if (have >= LINE_MAX_BYTES) {
			is_skipping = true;
			have = 0;
		}
	}
	if (have && !is_skipping && have < LINE_MAX_BYTES)
		line_take(l, buffer, have);
}

/* Where the symbol ends; its start for one that names nothing. */
static uint64_t end_of(const struct kept *below, const struct next *above)
{
	bool goes_on = above->is_there && above->is_text && !strcmp(above->module, below->module);
	uint64_t end = below->address + (goes_on ? SYMBOL_GAP_MAX : SYMBOL_KERNEL_GAP);

	if (!below->is_text || below->is_mark)
		return below->address;
	return above->is_there && above->address < end ? above->address : end;
}

static int answer(struct symbol_query *query, const struct kept *kept)
{
	char text[SYMBOL_NAME_MAX], *name, *module = NULL;

	symbol_demangle(kept->name, text, sizeof(text));
	name = mem_copy_string(MEM_SYMBOL, text);
	if (name && kept->module[0]) {
		module = mem_copy_string(MEM_SYMBOL, kept->module);
		if (!module) {
			mem_free(MEM_SYMBOL, name);
			name = NULL;
		}
	}
	if (!name)
		return -ENOMEM;
	symbol_answer(query, kept->address, name, module);
	return 0;
}

static int answer_all(struct lookup *l)
{
	const struct kept *below = NULL;

	for (size_t i = l->count; i-- > 1;) {
		if (l->above[i].is_there &&
		    (!l->above[i - 1].is_there || l->above[i].address < l->above[i - 1].address))
			l->above[i - 1] = l->above[i];
	}
	for (size_t i = 0; i < l->count; i++) {
		if (l->below[i].name && (!below || l->below[i].address >= below->address))
			below = &l->below[i];
		if (below && l->queries[i].address < end_of(below, &l->above[i])) {
			int err = answer(&l->queries[i], below);

			if (err)
				return err;
			l->queries[i].end = end_of(below, &l->above[i]);
		}
	}
	return 0;
}

int symbol_lookup_kallsyms(FILE *kallsyms, struct symbol_query *queries, size_t count,
			   struct why *why)
{
	struct lookup l = {.queries = queries, .count = count};

	symbol_queries_reset(queries, count);
	if (!count)
		return 0;
	l.below = mem_array(MEM_SYMBOL, count, sizeof(*l.below));
	l.above = mem_array(MEM_SYMBOL, count, sizeof(*l.above));
	if (l.below && l.above)
		stream_read(&l, kallsyms);
	else
		l.err = -ENOMEM;
	if (!l.err && !l.has_address)
		l.err = why_set(why, -EACCES, "every kernel address is hidden (kptr_restrict)");
	if (!l.err)
		l.err = answer_all(&l);
	if (l.err == -ENOMEM)
		why_set(why, l.err, "out of memory");
	for (size_t i = 0; l.below && i < count; i++)
		mem_free(MEM_SYMBOL, l.below[i].name);
	mem_free(MEM_SYMBOL, l.below);
	mem_free(MEM_SYMBOL, l.above);
	return l.err;
}
