// SPDX-License-Identifier: Apache-2.0
/* cli_read: a file that a user names, up to a limit. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int cli_read_file(const char *path, char *out, size_t max, size_t *ret_len, struct why *why)
{
	int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	size_t len = 0;
	ssize_t n = 1;
	int err = 0;

	if (fd < 0)
		return why_set(why, -errno, "cannot open %s: %s", path, strerror(errno));
	while (n && len < max) {
		n = read(fd, out + len, max - len);
		if (n < 0 && errno != EINTR) {
			err = why_set(why, -errno, "cannot read %s: %s", path, strerror(errno));
			break;
		}
		len += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	if (!err)
		*ret_len = len;
	return err;
}
