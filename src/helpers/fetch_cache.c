// SPDX-License-Identifier: Apache-2.0
#include "fetch_cache.h"

#include "cache_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_MAX_BYTES (FETCHER_ID_MAX + 8)
#define PART_OLD_SEC   3600
#define NONE_OLD_SEC   86400

static const char *name_of(const char *id, const char *kind, char out[NAME_MAX_BYTES])
{
	snprintf(out, NAME_MAX_BYTES, "%s.%s", id, kind);
	return out;
}

int fetch_cache_open(const char *path, uint64_t bytes_max, int *ret_directory, struct why *why)
{
	static const struct cache_rules rules = {
		".debug", {{".part", PART_OLD_SEC}, {".none", NONE_OLD_SEC}}};
	int err = directory_open(path, ret_directory, why);

	if (!err)
		cache_directory_prune(*ret_directory, &rules, bytes_max);
	return err;
}

static int open_read(int directory, const char *name)
{
	int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int fetch_cache_find(int directory, const char *id)
{
	char name[NAME_MAX_BYTES];

	return cache_directory_find(directory, name_of(id, "debug", name));
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
