// SPDX-License-Identifier: Apache-2.0
/* Options of record and plan that choose how stacks are walked. */
#include "cli_unwinder.h"

#include <string.h>

int cli_unwinder_parse(const char *command, const char *arg, struct kernel_options *opt)
{
	if (!strcmp(arg, "tables"))
		opt->unwinder = FLY_UNWIND_TABLES;
	else if (!strcmp(arg, "frame-pointers"))
		opt->unwinder = FLY_UNWIND_FRAME_POINTERS;
	else
		return cli_usage_error(command, "--unwind %s: give tables or frame-pointers", arg);
	return 0;
}

void cli_unwinder_fit(struct kernel_options *opt, bool is_given)
{
	uint64_t share = opt->budget_bytes / 2;

	if (is_given || !opt->budget_bytes)
		return;
	share -= share % FLY_SEGMENT_BYTES;
	if (share < FLY_SEGMENT_BYTES)
		share = FLY_SEGMENT_BYTES;
	if (share < opt->table_bytes)
		opt->table_bytes = share;
}
