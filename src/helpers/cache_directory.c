// SPDX-License-Identifier: Apache-2.0
#include "cache_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_BYTES 160
#define FILES_MAX  65536 /* looked at */

void cache_directory_list(int directory, int (*visit)(void *ctx, const char *name), void *ctx)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), seen = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (seen++ < FILES_MAX && (e = readdir(dir)) != NULL) {
		if (visit(ctx, e->d_name))
			break;
	}
	closedir(dir);
}

struct cached {
	char name[NAME_BYTES];
	uint64_t bytes;
	int64_t used_ns;
};

struct list {
	int directory;
	const struct cache_rules *rules;
	time_t now;
	struct cached *files;
	size_t count, cap;
};

static int compare_used(const void *a, const void *b)
{
	const struct cached *x = a, *y = b;

	return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

static bool has_end(const char *name, const char *end)
{
	size_t n = strlen(name), m = end ? strlen(end) : 0;

	return m && n > m && !strcmp(name + n - m, end);
}

static int list_one(void *ctx, const char *name)
{
	struct list *list = ctx;
	struct cached *c;
	struct stat st;
	void *p = list->files;

	if (strlen(name) >= NAME_BYTES ||
	    fstatat(list->directory, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(list->rules->brief); i++) {
		if (has_end(name, list->rules->brief[i].end) &&
		    list->now - st.st_mtime > list->rules->brief[i].seconds) {
			unlinkat(list->directory, name, 0);
			return 0;
		}
	}
	if (!has_end(name, list->rules->kept) ||
	    mem_grow(MEM_HELPERS, &p, &list->cap, list->count + 1, FILES_MAX, sizeof(*list->files)))
		return 0;
	list->files = p;
	c = &list->files[list->count++];
	snprintf(c->name, sizeof(c->name), "%s", name);
	c->bytes = (uint64_t)st.st_blocks * 512;
	c->used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	return 0;
}

uint64_t cache_directory_prune(int directory, const struct cache_rules *rules, uint64_t bytes_max)
{
	struct list list = {.directory = directory, .rules = rules, .now = time(NULL)};
	uint64_t sum = 0;

	cache_directory_list(directory, list_one, &list);
	if (list.count)
		qsort(list.files, list.count, sizeof(*list.files), compare_used);
	for (size_t i = list.count; i-- > 0;) {
		if (sum + list.files[i].bytes > bytes_max)
			unlinkat(directory, list.files[i].name, 0);
		else
			sum += list.files[i].bytes;
	}
	mem_free(MEM_HELPERS, list.files);
	return sum;
}

int cache_directory_find(int directory, const char *name)
{
	int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	utimensat(directory, name, NULL, 0);
	return fd;
}
