// SPDX-License-Identifier: Apache-2.0
/* The sources of a file, asked in order, each for what those before it left. A source that fails
 * does not silence the others: what it says counts only when nothing was named at all.
 *
 * Go's table goes first, since .symtab has other names for the same functions (f.abi0 for f) and
 * a stripped program is to be named like one that is not. Where it must be searched for in the
 * contents of the file it goes last. */
#include "symbol_sources.h"

#include "symbol_order.h"

#include "elf/elf_minidebug.h"
#include "elf/elf_read.h"

#include <errno.h>
#include <string.h>

typedef int (*source)(struct elf_file *elf, struct symbol_query *queries, size_t count,
		      struct why *why);

static int lookup_minidebug(struct elf_file *elf, struct symbol_query *queries, size_t count,
			    struct why *why)
{
	struct elf_file *mini;
	size_t bytes;
	void *image;
	int err = elf_minidebug_unpack(elf, &image, &bytes, why);

	symbol_queries_reset(queries, count);
	if (err)
		return err == -ENOENT ? 0 : err;
	err = elf_open_memory(image, bytes, &mini, why);
	if (!err) {
		err = symbol_lookup_table(mini, queries, count, why);
		elf_close(mini);
	}
	mem_free(MEM_ELF, image);
	return err;
}

static int lookup_go_section(struct elf_file *elf, struct symbol_query *queries, size_t count,
			     struct why *why)
{
	symbol_queries_reset(queries, count);
	return elf->shnum ? symbol_lookup_go(elf, queries, count, why) : 0;
}

static int lookup_go_scan(struct elf_file *elf, struct symbol_query *queries, size_t count,
			  struct why *why)
{
	symbol_queries_reset(queries, count);
	return elf->shnum ? 0 : symbol_lookup_go(elf, queries, count, why);
}

/* left has room for count. Sorted queries stay sorted when some are left out. */
static int ask(source ask_source, struct elf_file *elf, struct symbol_query *queries, size_t count,
	       struct symbol_query *left, struct why *why)
{
	size_t n = 0, at = 0;
	int err;

	for (size_t i = 0; i < count; i++) {
		if (!queries[i].found)
			left[n++] = queries[i];
	}
	if (!n)
		return 0;
	err = ask_source(elf, left, n, why);
	for (size_t i = 0; i < count && at < n; i++) {
		if (!queries[i].found)
			queries[i] = left[at++];
	}
	return err;
}

int symbol_lookup_file(struct elf_file *elf, struct symbol_query *queries, size_t count,
		       struct why *why)
{
	static const source order[] = {lookup_go_section, symbol_lookup_table, lookup_minidebug,
				       symbol_lookup_plt, lookup_go_scan};
	struct why reason = {""};
	struct symbol_query *left;
	size_t named = 0;
	int err = 0;

	symbol_queries_reset(queries, count);
	left = mem_array(MEM_SYMBOL, count, sizeof(*left));
	if (!left && count)
		return why_set(why, -ENOMEM, "out of memory");
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		struct why another = {""};
		int failed = ask(order[i], elf, queries, count, left, &another);

		if (failed && !err) {
			err = failed;
			reason = another;
		}
	}
	mem_free(MEM_SYMBOL, left);
	for (size_t i = 0; i < count; i++)
		named += queries[i].found;
	if (err == -ENOMEM || (err && !named))
		return why_set(why, err, "%s", reason.text);
	return 0;
}
