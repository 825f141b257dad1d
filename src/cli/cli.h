/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: one file per subcommand. Each takes its own argv (argv[0] is the subcommand's name) and
 * returns the exit status of the process (agent.h, enum agent_exit).
 */
#ifndef FLYBALL_CLI_H
#define FLYBALL_CLI_H

#include "base/base.h"

int cli_record(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_unwind(int argc, char **argv);

/* One sentence of usage error on stderr, with where to look. Returns AGENT_EXIT_USAGE. */
int cli_usage_error(const char *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
