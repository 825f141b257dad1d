// SPDX-License-Identifier: Apache-2.0
/*
 * ksymbols: kernel code by address and time.
 *
 * Codes lie sorted by address; those that lay at one address at different times overlap. Each has
 * two versions: its own, and the one after it, of what nobody told of (filters in classic BPF).
 */
#include "agent/ksymbols.h"

#include <errno.h>
#include <string.h>

#define CODES_MAX 16384
#define FORGET_NS 600000000000ULL /* when they are that many: what has gone so long ago */
/* Code is told to go before the last CPU has left it. */
#define LEAVE_NS 100000000ULL

struct code {
	uint64_t start, from_ns, gone_ns; /* gone 0: it is there */
	uint32_t bytes, version, after;
	char *name;
};

struct ksymbols {
	struct code *codes;
	size_t count, cap;
	uint64_t longest;
	uint32_t told; /* versions given out; a profile sees their lower half */
};

int ksymbols_new(struct ksymbols **ret)
{
	*ret = mem_alloc(MEM_AGENT, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void ksymbols_free(struct ksymbols *symbols)
{
	if (!symbols)
		return;
	for (size_t i = 0; i < symbols->count; i++)
		mem_free(MEM_AGENT, symbols->codes[i].name);
	mem_free(MEM_AGENT, symbols->codes);
	mem_free(MEM_AGENT, symbols);
}

/* How many begin at an address or below. */
static size_t codes_below(const struct ksymbols *symbols, uint64_t address)
{
	size_t low = 0, high = symbols->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symbols->codes[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The next that covers an address, downwards from *at; NULL: no more. */
static struct code *next_at(const struct ksymbols *symbols, uint64_t address, size_t *at)
{
	while (*at) {
		struct code *code = &symbols->codes[--*at];

		if (address - code->start >= symbols->longest)
			break;
		if (address - code->start < code->bytes)
			return code;
	}
	return NULL;
}

/* The last one that had come by a time. */
static struct code *code_at(const struct ksymbols *symbols, uint64_t address, uint64_t time_ns)
{
	size_t at = codes_below(symbols, address);
	struct code *code, *last = NULL;

	while ((code = next_at(symbols, address, &at)) != NULL) {
		if (code->from_ns <= time_ns && (!last || code->version > last->version))
			last = code;
	}
	return last;
}

static void forget(struct ksymbols *symbols, uint64_t now_ns)
{
	size_t kept = 0;

	for (size_t i = 0; i < symbols->count; i++) {
		struct code *code = &symbols->codes[i];

		if (code->gone_ns && now_ns - code->gone_ns > FORGET_NS)
			mem_free(MEM_AGENT, code->name);
		else
			symbols->codes[kept++] = *code;
	}
	symbols->count = kept;
}

static void code_add(struct ksymbols *symbols, struct code code, const char *name)
{
	void *p = symbols->codes;
	char text[512];
	size_t at;

	if (symbols->count == CODES_MAX)
		forget(symbols, code.gone_ns ? code.gone_ns : code.from_ns);
	at = codes_below(symbols, code.start);
	text_print(name, strlen(name), text, sizeof(text));
	if (!code.bytes || !text[0] || symbols->told > UINT32_MAX - 2 ||
	    mem_grow(MEM_AGENT, &p, &symbols->cap, symbols->count + 1, CODES_MAX, sizeof(code)))
		return;
	symbols->codes = p;
	code.name = mem_copy_string(MEM_AGENT, text);
	if (!code.name)
		return;
	memmove(symbols->codes + at + 1, symbols->codes + at, (symbols->count - at) * sizeof(code));
	symbols->codes[at] = code;
	symbols->count++;
	if (code.bytes > symbols->longest)
		symbols->longest = code.bytes;
	symbols->told += 2;
}

void ksymbols_come(struct ksymbols *symbols, uint64_t time_ns, uint64_t address, uint32_t bytes,
		   const char *name)
{
	struct code code = {.start = address,
			    .bytes = bytes,
			    .from_ns = time_ns,
			    .version = symbols->told + 1,
			    .after = symbols->told + 2};

	code_add(symbols, code, name);
}

void ksymbols_go(struct ksymbols *symbols, uint64_t time_ns, uint64_t address, uint32_t bytes,
		 const char *name)
{
	struct code *known = code_at(symbols, address, time_ns);
	struct code code = {
		.start = address, .bytes = bytes, .gone_ns = time_ns, .after = symbols->told + 2};

	if (known && !known->gone_ns && known->start == address && !strcmp(known->name, name)) {
		known->gone_ns = time_ns;
		return;
	}
	/* It was there before the recording, or its coming was lost. */
	if (known) {
		code.from_ns = known->gone_ns ? known->gone_ns : time_ns;
		code.version = known->after;
	}
	code_add(symbols, code, name);
}

uint16_t ksymbols_version(const struct ksymbols *symbols, uint64_t address, uint64_t time_ns)
{
	const struct code *code = code_at(symbols, address, time_ns);
	bool has_gone = code && code->gone_ns && time_ns > code->gone_ns + LEAVE_NS;

	return code ? (uint16_t)(has_gone ? code->after : code->version) : 0;
}

const char *ksymbols_name(const struct ksymbols *symbols, uint64_t address, uint16_t version,
			  uint64_t *ret_start)
{
	size_t at = codes_below(symbols, address);
	const struct code *code;

	while ((code = next_at(symbols, address, &at)) != NULL) {
		if ((uint16_t)code->version == version) {
			*ret_start = code->start;
			return code->name;
		}
	}
	return NULL;
}

bool ksymbols_is_last(const struct ksymbols *symbols, uint64_t address, uint16_t version)
{
	const struct code *code = code_at(symbols, address, UINT64_MAX);

	return !code || (uint16_t)(code->gone_ns ? code->after : code->version) == version;
}
