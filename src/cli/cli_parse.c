// SPDX-License-Identifier: Apache-2.0
/* cli_parse: argp prints errors in two lines and exits with 64; the house says one sentence and
 * exits with 2 (DESIGN section 5). So argp's own help and errors are off, and done here. */
#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/agent.h"

enum { KEY_VERSION = 0x7f00 };

static const struct argp_option common_options[] = {
	{"help", '?', NULL, 0, "Show this", -1},
	{"version", KEY_VERSION, NULL, 0, "Show the version", -1},
	{0},
};

struct common {
	void *input;
	const char *bad;	   /* where parsing stopped */
	bool is_shown, wants_help; /* help or version: nothing else is done */
};

static error_t common_parse(int key, char *arg, struct argp_state *state)
{
	struct common *common = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = common->input;
		return 0;
	case '?':
		common->wants_help = common->is_shown = true;
		return ECANCELED;
	case ARGP_KEY_ERROR:
		if (state->next > 1 && state->next <= state->argc)
			common->bad = state->argv[state->next - 1];
		return 0;
	case KEY_VERSION:
		puts("flyball " FLYBALL_VERSION);
		common->is_shown = true;
		return ECANCELED;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

bool cli_parse(const char *command, const struct argp *argp, int argc, char **argv,
	       unsigned int flags, void *input, const int *status, int *ret_exit)
{
	const struct argp_child children[] = {{argp, 0, NULL, 0}, {0}};
	const struct argp all = {
		.options = common_options, .parser = common_parse, .children = children};
	struct common common = {.input = input};
	char name[64];
	error_t err;

	snprintf(name, sizeof(name), "flyball %s", command);
	argv[0] = name;
	err = argp_parse(&all, argc, argv, flags | ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &common);
	argv[0] = NULL;
	if (!err)
		return true;
	if (common.wants_help)
		argp_help(&all, stdout, ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, name);
	if (common.is_shown)
		*ret_exit = AGENT_EXIT_DONE;
	else if (status && *status)
		*ret_exit = *status;
	else
		*ret_exit = cli_usage_error(command, "%.100s is no option here, or lacks its value",
					    common.bad ? common.bad : "an argument");
	return false;
}
