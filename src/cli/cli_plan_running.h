/* SPDX-License-Identifier: Apache-2.0 */
/* What tables would hold for the processes that run now, from the headers of their files. */
#ifndef FLYBALL_CLI_PLAN_RUNNING_H
#define FLYBALL_CLI_PLAN_RUNNING_H

#include "base/base.h"

struct cli_plan_running {
	uint32_t processes;	       /* with code of their own: no kernel threads */
	uint32_t processes_unreadable; /* not ours to read */
	uint32_t files;		       /* distinct, with something to make a table of */
	uint32_t files_without;	       /* walked by frame pointers */
	uint32_t files_unreadable;
	uint64_t table_bytes;	/* of all tables, each whole */
	uint64_t mapping_bytes; /* of all processes, none shared */
	bool is_complete;	/* false: a file or a process did not answer in time, or too many */
};
/* In a child, since an open or a read may hang for ever: what it found by the deadline counts. */
int cli_plan_running(struct cli_plan_running *ret, struct why *why);

#endif
