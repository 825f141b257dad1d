// SPDX-License-Identifier: Apache-2.0
/* directory: one of our own. Looked at through its descriptor, so that it cannot be changed for
 * another in between. */
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

int directory_open(const char *path, int *ret_directory, struct why *why)
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
	*ret_directory = fd;
	return 0;
}
