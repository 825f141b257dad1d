// SPDX-License-Identifier: Apache-2.0
/* why: one fixed buffer per reason, so that an error path never allocates. */
#include "base.h"

#include <string.h>

int why_set(struct why *why, int err, const char *fmt, ...)
{
	va_list ap;

	if (!why)
		return err;
	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	return err;
}

void why_prefix(struct why *why, const char *fmt, ...)
{
	char old[sizeof(why->text)], clause[sizeof(why->text)];
	va_list ap;

	if (!why || !why->text[0])
		return;
	memcpy(old, why->text, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(clause, sizeof(clause), fmt, ap);
	va_end(ap);
	if (snprintf(why->text, sizeof(why->text), "%s: %s", clause, old) < 0)
		memcpy(why->text, old, sizeof(old));
}
