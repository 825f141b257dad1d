// SPDX-License-Identifier: Apache-2.0
/*
 * flyball agent: reads the configuration (file, then environment, then flags), and says what is
 * wrong in it or what is in force.
 */
#include "cli.h"
#include "cli_agent.h"

#include <argp.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"

enum { KEY_STORE = 256, KEY_CHECK, KEY_PRINT, KEY_MARKDOWN, KEY_JSON };

static const struct argp_option agent_options[] = {
	{"config", 'c', "FILE", 0, "YAML (docs/configuration.md); - reads it from stdin", 0},
	{"store", KEY_STORE, "DIR", 0, "Where profiles are kept (default /var/lib/flyball)", 0},
	{"verbose", 'v', NULL, 0, "Say more", 0},
	{"check-config", KEY_CHECK, NULL, 0, "Say what is wrong in the configuration, and end", 1},
	{"print-config", KEY_PRINT, NULL, 0, "Show each value and where it is from, and end", 1},
	{"config-markdown", KEY_MARKDOWN, NULL, 0, "Print docs/configuration.md, and end", 1},
	{"json", KEY_JSON, NULL, 0, "Print one JSON object", 1},
	{0},
};

struct parsed {
	const char *file, *store;
	char shown[512]; /* file, fit to be printed */
	int action;	 /* KEY_CHECK, KEY_PRINT, KEY_MARKDOWN; 0: run */
	bool is_verbose, json;
	int status;
};

static error_t agent_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case 'c':
		p->file = arg;
		text_print(arg, strlen(arg), p->shown, sizeof(p->shown));
		break;
	case KEY_STORE:
		p->store = arg;
		break;
	case 'v':
		p->is_verbose = true;
		break;
	case KEY_CHECK:
	case KEY_PRINT:
	case KEY_MARKDOWN:
		if (p->action && p->action != key)
			p->status = cli_usage_error("agent", "give one of --check-config and "
							     "--print-config");
		p->action = key;
		break;
	case KEY_JSON:
		p->json = true;
		break;
	case ARGP_KEY_ARG:
		p->status = cli_usage_error("agent",
					    "agent takes no argument %.100s; a "
					    "configuration is given by -c FILE",
					    arg);
		break;
	case ARGP_KEY_END:
		if (!p->status && p->json && p->action != KEY_CHECK && p->action != KEY_PRINT)
			p->status = cli_usage_error("agent", "--json goes with --check-config or "
							     "--print-config");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return p->status ? EINVAL : 0;
}

static const struct argp agent_argp = {
	.options = agent_options,
	.parser = agent_parse,
	.doc = "The node's daemon: profiles every process, all the time, into a local store.\v"
	       "Environment variables FLYBALL_… go over the file, flags over both.\n"
	       "Exit status: 0 done, 1 the configuration is wrong, 4 it could not be read.",
};

static int read_file(struct config *config, const char *path, struct config_report *report,
		     struct why *why)
{
	static char text[CONFIG_TEXT_MAX_BYTES + 1];
	size_t len = 0;
	int err = cli_read_file(path, text, sizeof(text), &len, why);

	return err ? err : config_read(config, text, len, report);
}

static int read_all(const struct parsed *p, struct config *config, struct config_report *report,
		    struct why *why)
{
	int err = p->file ? read_file(config, p->file, report, why) : 0;

	if (!err)
		err = config_read_environment(config, environ, report);
	if (!err && p->store)
		err = config_set(config, "store.directory", p->store, "--store", report);
	if (!err && p->is_verbose)
		err = config_set(config, "log.level", "debug", "-v", report);
	if (!err)
		config_check(config, report);
	config_report_sort(report);
	return err;
}

static const char *shown_file(const struct parsed *p)
{
	return p->file ? p->shown : "configuration";
}

static int show_check(const struct parsed *p, const struct config_report *report)
{
	if (p->json)
		cli_agent_print_check_json(shown_file(p), report);
	else
		cli_agent_print_findings(shown_file(p), report);
	if (report->error_count)
		return AGENT_EXIT_FINDINGS;
	if (!p->json)
		printf("%s: right\n", shown_file(p));
	return AGENT_EXIT_DONE;
}

static int show_config(const struct parsed *p, const struct config *config)
{
	struct cli_agent_shown shown = {.config = config, .file = shown_file(p)};
	struct kernel_options kernel;
	struct why why = {""};

	if (agent_kernel_options(config, &kernel, &why))
		shown.why = why.text;
	else
		shown.kernel = &kernel;
	if (p->json)
		cli_agent_print_config_json(&shown);
	else
		cli_agent_print_config(&shown);
	return AGENT_EXIT_DONE;
}

static int act(const struct parsed *p, struct config *config, const struct config_report *report)
{
	if (p->action == KEY_CHECK)
		return show_check(p, report);
	if (report->error_count) {
		cli_agent_print_findings(shown_file(p), report);
		return AGENT_EXIT_FINDINGS;
	}
	return p->action == KEY_PRINT ? show_config(p, config) : agent_run(config);
}

static int print_markdown(void)
{
	struct buf text;
	int err;

	buf_init(&text, MEM_CONFIG, 1 << 20);
	config_keys_print(&text);
	err = text.err;
	if (!err)
		fputs(text.data, stdout);
	buf_done(&text);
	return err ? AGENT_EXIT_FAILED : AGENT_EXIT_DONE;
}

int cli_agent(int argc, char **argv)
{
	static struct config_report report;
	struct parsed p = {0};
	struct config *config = NULL;
	struct why why = {""};
	int status = AGENT_EXIT_FAILED, err;

	if (!cli_parse("agent", &agent_argp, argc, argv, 0, &p, &p.status, &status))
		return status;
	if (p.action == KEY_MARKDOWN)
		return print_markdown();
	err = config_new(&config);
	if (!err)
		err = read_all(&p, config, &report, &why);
	if (err)
		log_error("%s", why.text[0] ? why.text : strerror(-err));
	else
		status = act(&p, config, &report);
	config_free(config);
	return status;
}
