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
int cli_agent(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_query(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_unwind(int argc, char **argv);
int cli_governor(int argc, char **argv);
int cli_store(int argc, char **argv);
int cli_export(int argc, char **argv);

struct argp;
/* argp_parse with the house's manners: --help and --version go to stdout, an error is one sentence.
 * A parser that said its own sentence returns EINVAL and leaves its exit status in *status. Returns
 * true when the subcommand shall run; otherwise *ret_exit is what to leave with. */
bool cli_parse(const char *command, const struct argp *argp, int argc, char **argv,
	       unsigned int flags, void *input, const int *status, int *ret_exit);

/* The first max bytes of a file; "-" is stdin. Whoever wants to know whether there is more asks for
 * one byte more. */
int cli_read_file(const char *path, char *out, size_t max, size_t *ret_len, struct why *why);

/* One sentence of usage error on stderr, with where to look. Returns AGENT_EXIT_USAGE. */
int cli_usage_error(const char *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
