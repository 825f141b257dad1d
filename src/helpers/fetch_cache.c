// SPDX-License-Identifier: Apache-2.0
#include "fetch_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_MAX_BYTES (FETCHER_ID_MAX + 8)
#define FILES_MAX      4096 /* looked at when the cache is opened */
#define PART_OLD_SEC   3600

static const char *name_of(const char *id, const char *kind, char out[NAME_MAX_BYTES])
{
	snprintf(out, NAME_MAX_BYTES, "%s.%s", id, kind);
	return out;
}

static int directories_make(const char *path)
{
	char part[4096];

	if (path[0] != '/' || strlen(path) >= sizeof(part))
		return -EINVAL;
	for (const char *p = path + 1; p; p = strchr(p + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
		if (p > path + 1 && mkdir(part, 0755) && errno != EEXIST)
			return -errno;
	}
	return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

struct cached {
	char name[NAME_MAX_BYTES];
	uint64_t bytes;
	time_t used;
};

static int compare_used(const void *a, const void *b)
{
	const struct cached *x = a, *y = b;

	return (x->used > y->used) - (x->used < y->used);
}

static bool has_end(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n > m && !strcmp(name + n - m, end);
}

static size_t cached_list(int directory, struct cached *out, size_t max)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	time_t now = time(NULL);
	struct dirent *e;
	size_t count = 0;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while (count < max && (e = readdir(dir)) != NULL) {
		struct stat st;

		if (strlen(e->d_name) >= NAME_MAX_BYTES ||
		    fstatat(directory, e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		if ((has_end(e->d_name, ".part") && now - st.st_mtime > PART_OLD_SEC) ||
		    (has_end(e->d_name, ".none") && now - st.st_mtime > 24 * 3600)) {
			unlinkat(directory, e->d_name, 0);
			continue;
		}
		if (!has_end(e->d_name, ".debug"))
			continue;
		snprintf(out[count].name, sizeof(out[count].name), "%s", e->d_name);
		out[count].bytes = (uint64_t)st.st_blocks * 512;
		out[count++].used = st.st_mtime;
	}
	closedir(dir);
	return count;
}

static void prune(int directory, uint64_t bytes_max)
{
	struct cached *files = mem_array(MEM_HELPERS, FILES_MAX, sizeof(*files));
	uint64_t sum = 0;
	size_t count;

	if (!files)
		return;
	count = cached_list(directory, files, FILES_MAX);
	qsort(files, count, sizeof(*files), compare_used);
	for (size_t i = count; i-- > 0;) {
		sum += files[i].bytes;
		if (sum > bytes_max)
			unlinkat(directory, files[i].name, 0);
	}
	mem_free(MEM_HELPERS, files);
}

int fetch_cache_open(const char *path, uint64_t bytes_max, int *ret_directory, struct why *why)
{
	int err = directories_make(path), fd;
	struct stat st;

	if (err)
		return why_set(why, err, "cannot make %s: %s", path, strerror(-err));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return why_set(why, -errno, "cannot open %s: %s", path, strerror(errno));
	if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(fd);
		return why_set(why, -EACCES, "%s must belong to us and be writable by nobody else",
			       path);
	}
	prune(fd, bytes_max);
	*ret_directory = fd;
	return 0;
}

static int open_read(int directory, const char *name)
{
	int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int fetch_cache_find(int directory, const char *id)
{
	char name[NAME_MAX_BYTES];
	int fd = open_read(directory, name_of(id, "debug", name));

	/* For who goes first when it grows too large. */
	if (fd >= 0)
		utimensat(directory, name, NULL, 0);
	return fd;
}

bool fetch_cache_is_negative(int directory, const char *id, uint64_t negative_sec)
{
	char name[NAME_MAX_BYTES];
	time_t now = time(NULL);
	struct stat st;

	if (fstatat(directory, name_of(id, "none", name), &st, AT_SYMLINK_NOFOLLOW))
		return false;
	return st.st_mtime <= now && (uint64_t)(now - st.st_mtime) < negative_sec;
}

int fetch_cache_part_new(int directory, const char *id)
{
	char name[NAME_MAX_BYTES];
	int fd;

	unlinkat(directory, name_of(id, "part", name), 0);
	fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

int fetch_cache_part_open(int directory, const char *id)
{
	char name[NAME_MAX_BYTES];

	return open_read(directory, name_of(id, "part", name));
}

void fetch_cache_part_remove(int directory, const char *id)
{
	char name[NAME_MAX_BYTES];

	unlinkat(directory, name_of(id, "part", name), 0);
}

void fetch_cache_remove(int directory, const char *id)
{
	char name[NAME_MAX_BYTES];

	fetch_cache_part_remove(directory, id);
	unlinkat(directory, name_of(id, "debug", name), 0);
}

void fetch_cache_part_keep(int directory, const char *id)
{
	char from[NAME_MAX_BYTES], to[NAME_MAX_BYTES];

	renameat(directory, name_of(id, "part", from), directory, name_of(id, "debug", to));
}

void fetch_cache_negative_add(int directory, const char *id)
{
	char name[NAME_MAX_BYTES];
	int fd = openat(directory, name_of(id, "none", name),
			O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return;
	futimens(fd, NULL);
	close(fd);
}
