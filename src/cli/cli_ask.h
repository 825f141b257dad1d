/* SPDX-License-Identifier: Apache-2.0 */
/* What query and diff have in common: the options that choose samples, and reading them. */
#ifndef FLYBALL_CLI_ASK_H
#define FLYBALL_CLI_ASK_H

#include <argp.h>

#include "profile/profile.h"

struct json_t;

struct cli_ask {
	const char *command; /* for errors: query, diff */
	struct profile_filter filter;
	const char *store;	     /* NULL: files */
	int status;		     /* of a usage error that was said */
	uint64_t since_ns, until_ns; /* before now; 0: not given */
};

/* Options of their own group for a command's argp; they parse into a struct cli_ask. */
extern const struct argp cli_ask_argp;
/* Reads and merges. The status to leave with once it has said why, or AGENT_EXIT_DONE. */
int cli_ask_read(const struct cli_ask *ask, char *const *paths, size_t count, const char *title,
		 struct profile_merge **ret);

/* What was found and what is missing, in words, and as a JSON object. */
void cli_ask_print(const struct profile_merge *merge, FILE *to);
struct json_t *cli_ask_json(const struct profile_merge *merge);
/* Text for one line and for JSON: valid UTF-8. Returns out. */
char *cli_ask_text(const char *text, char *out, size_t out_size);

#endif
