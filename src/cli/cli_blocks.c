// SPDX-License-Identifier: Apache-2.0
/* cli_blocks: one file in memory at a time; others may change it meanwhile, so it is read, not
 * mapped. */
#include "cli_blocks.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "store/store.h"

#define FILE_MAX_BYTES (1L << 30)
#define PATHS_MAX      1000000

struct cli_blocks {
	char **paths; /* ours, each */
	size_t count, cap, at;
	void *bytes;
	struct store *store;
	struct store_selection *selection;
	char name[48];
};

static int path_add(struct cli_blocks *b, const char *directory, const char *name)
{
	void *paths = b->paths;
	int err = mem_grow(MEM_AGENT, &paths, &b->cap, b->count + 1, PATHS_MAX, sizeof(*b->paths));
	struct buf path;

	b->paths = paths;
	if (err)
		return err;
	buf_init(&path, MEM_AGENT, 1 << 16);
	if (directory)
		buf_addf(&path, "%s/", directory);
	buf_add_str(&path, name);
	if (path.err) {
		err = path.err;
		buf_done(&path);
		return err;
	}
	b->paths[b->count++] = path.data;
	return 0;
}

static int is_otlp(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);

	return n > 5 && !strcmp(entry->d_name + n - 5, ".otlp");
}

static int directory_add(struct cli_blocks *b, const char *path, struct why *why)
{
	struct dirent **entries;
	int n = scandir(path, &entries, is_otlp, alphasort), err = 0;

	if (n < 0)
		return why_set(why, -errno, "%s: %s", path, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (!err)
			err = path_add(b, path, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	if (!n)
		return why_set(why, -ENOENT, "%s: no file in it ends in .otlp", path);
	return err ? why_set(why, err, "%s: %s", path, strerror(-err)) : 0;
}

static int source_add(struct cli_blocks *b, const char *path, struct why *why)
{
	struct stat st;
	int err;

	if (stat(path, &st))
		return why_set(why, -errno, "%s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return directory_add(b, path, why);
	err = path_add(b, NULL, path);
	return err ? why_set(why, err, "%s: %s", path, strerror(-err)) : 0;
}

int cli_blocks_open(char *const *paths, size_t count, struct cli_blocks **ret, struct why *why)
{
	struct cli_blocks *b = mem_alloc(MEM_AGENT, sizeof(*b));
	int err = 0;

	if (!b)
		return why_set(why, -ENOMEM, "out of memory");
	for (size_t i = 0; i < count && !err; i++)
		err = source_add(b, paths[i], why);
	if (err) {
		cli_blocks_close(b);
		return err;
	}
	*ret = b;
	return 0;
}

int cli_blocks_open_store(const char *directory, uint64_t since_ns, uint64_t until_ns,
			  struct cli_blocks **ret, struct why *why)
{
	const struct store_options options = {.read_only = true};
	const struct store_filter filter = {.since_ns = since_ns, .until_ns = until_ns};
	struct cli_blocks *b = mem_alloc(MEM_AGENT, sizeof(*b));
	int err;

	if (!b)
		return why_set(why, -ENOMEM, "out of memory");
	err = store_open(directory, &options, &b->store, why);
	if (!err)
		err = store_select(b->store, &filter, &b->selection, why);
	if (err) {
		cli_blocks_close(b);
		return err;
	}
	*ret = b;
	return 0;
}

/* What other tools write begins like this. */
static const char *other_format(const unsigned char *bytes, size_t len)
{
	if (len > 1 && bytes[0] == 0x1f && bytes[1] == 0x8b)
		return "pprof";
	if (len && bytes[0] == '{')
		return "JSON";
	return len && bytes[0] == '<' ? "HTML" : NULL;
}

static int file_next(struct cli_blocks *b, struct cli_block *ret, struct why *why)
{
	const char *path = b->paths[b->at++], *other;
	struct stat st;
	int err;

	if (stat(path, &st))
		return why_set(why, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
		return why_set(why, -EINVAL, "%s: no file, or one of more than 1 GiB", path);
	b->bytes = mem_alloc(MEM_AGENT, (size_t)st.st_size + 1);
	if (!b->bytes)
		return why_set(why, -ENOMEM, "out of memory");
	err = cli_read_file(path, b->bytes, (size_t)st.st_size, &ret->len, why);
	if (err)
		return err;
	other = other_format(b->bytes, ret->len);
	if (other)
		return why_set(why, -EOPNOTSUPP,
			       "%s: looks like %s; what is read back is .otlp (flyball record -o "
			       "NAME.otlp)",
			       path, other);
	ret->name = path;
	ret->bytes = b->bytes;
	return 1;
}

static int store_next(struct cli_blocks *b, struct cli_block *ret, struct why *why)
{
	struct store_block block;
	int more = store_selection_next(b->selection, &block, why);

	if (more <= 0)
		return more;
	snprintf(b->name, sizeof(b->name), "block %" PRIu64, block.id);
	ret->name = b->name;
	ret->bytes = block.bytes;
	ret->len = block.len;
	return 1;
}

int cli_blocks_next(struct cli_blocks *b, struct cli_block *ret, struct why *why)
{
	mem_free(MEM_AGENT, b->bytes);
	b->bytes = NULL;
	if (b->selection)
		return store_next(b, ret, why);
	return b->at < b->count ? file_next(b, ret, why) : 0;
}

void cli_blocks_close(struct cli_blocks *b)
{
	if (!b)
		return;
	if (b->selection)
		store_selection_close(b->selection);
	store_close(b->store);
	for (size_t i = 0; i < b->count; i++)
		mem_free(MEM_AGENT, b->paths[i]);
	mem_free(MEM_AGENT, b->paths);
	mem_free(MEM_AGENT, b->bytes);
	mem_free(MEM_AGENT, b);
}
