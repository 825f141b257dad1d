// SPDX-License-Identifier: Apache-2.0
/* flyball doctor: what this machine can do, one sentence each. */
#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <jansson.h>

#include "agent/agent.h"

enum { KEY_JSON = 256 };

static const struct argp_option doctor_options[] = {
	{"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
	{"verbose", 'v', NULL, 0, "Show the probes' own messages", 0},
	{0},
};

static error_t doctor_parse(int key, char *arg, struct argp_state *state)
{
	bool *json = state->input;

	(void)arg;
	switch (key) {
	case KEY_JSON:
		*json = true;
		return 0;
	case 'v':
		log_set_level(LOG_DEBUG);
		return 0;
	case ARGP_KEY_ARG:
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp doctor_argp = {
	.options = doctor_options,
	.parser = doctor_parse,
	.doc = "Says whether this machine can run flyball, and if not, why and what to do.\v"
	       "Exit status: 0 it can, 3 it cannot.",
};

static int print_json(const struct kernel_check *checks, size_t count, bool can_run)
{
	static const char *const levels[] = {"fine", "note", "warning", "blocker"};
	json_t *list = json_array(), *o;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "name", checks[i].name,
						      "level", levels[checks[i].level & 3], "text",
						      checks[i].text));
	o = json_pack("{s:b,s:o}", "can_run", can_run, "checks", list);
	if (!o || json_dumpf(o, stdout, JSON_COMPACT))
		return -EIO;
	json_decref(o);
	putchar('\n');
	return 0;
}

int cli_doctor(int argc, char **argv)
{
	static const char *const marks[] = {"ok  ", "note", "WARN", "FAIL"};
	static struct kernel_check checks[KERNEL_CHECKS_MAX];
	bool json = false, can_run = true;
	size_t count;
	int status;

	if (!cli_parse("doctor", &doctor_argp, argc, argv, 0, &json, NULL, &status))
		return status;
	count = kernel_doctor(checks);
	for (size_t i = 0; i < count; i++)
		can_run = can_run && checks[i].level < 3;
	if (json) {
		if (print_json(checks, count, can_run))
			return AGENT_EXIT_FAILED;
	} else {
		for (size_t i = 0; i < count; i++)
			printf("%s  %-18s %s\n", marks[checks[i].level & 3], checks[i].name,
			       checks[i].text);
		puts(can_run ? "flyball can run here."
			     : "flyball cannot run here: see FAIL above.");
	}
	return can_run ? AGENT_EXIT_DONE : AGENT_EXIT_UNSUPPORTED;
}
