// SPDX-License-Identifier: Apache-2.0
/* log: a line is built whole and written with one write(2), so that processes and threads that
 * share stderr do not mix their lines. */
#include "base.h"

#include <errno.h>
#include <unistd.h>

static enum log_level level_now = LOG_WARN;
static const char *log_name = "flyball";

void log_set_level(enum log_level level)
{
	level_now = level;
}

enum log_level log_get_level(void)
{
	return level_now;
}

void log_set_name(const char *name)
{
	log_name = name;
}

void log_at(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[1024];
	int n, m;
	va_list ap;

	if (level > level_now)
		return;
	n = snprintf(line, sizeof(line), "%s: ", log_name);
	if (n < 0)
		return;
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += m;
	if ((size_t)n > sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0) {
		/* nowhere left to say it */
	}
	errno = saved;
}
