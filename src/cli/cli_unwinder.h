/* SPDX-License-Identifier: Apache-2.0 */
/* Options of record and plan that choose how stacks are walked. */
#ifndef FLYBALL_CLI_UNWINDER_H
#define FLYBALL_CLI_UNWINDER_H

#include "cli.h"
#include "kernel/kernel.h"

/* --unwind. 0, or the exit status of a usage error that was said. */
int cli_unwinder_parse(const char *command, const char *arg, struct kernel_options *opt);
/* Tables take at most half of the kernel memory that was allowed, unless --table-memory says so. */
void cli_unwinder_fit(struct kernel_options *opt, bool is_given);

#endif
