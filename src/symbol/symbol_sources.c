// SPDX-License-Identifier: Apache-2.0
/* The sources of a file, asked in order, each for what those before it left. A source that fails
 * does not silence the others: what it says counts only when nothing was named at all. */
#include "symbol_sources.h"

#include "symbol_order.h"

#include "elf/elf_minidebug.h"

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
	static const source more[] = {lookup_minidebug, symbol_lookup_plt, symbol_lookup_go};
	struct why reason = {""};
	struct symbol_query *left;
	size_t named = 0;
	int err;

	err = symbol_lookup_table(elf, queries, count, &reason);
	left = mem_array(MEM_SYMBOL, count, sizeof(*left));
	if (!left && count)
		return why_set(why, -ENOMEM, "out of memory");
	for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
		struct why another = {""};
		int failed = ask(more[i], elf, queries, count, left, &another);

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
