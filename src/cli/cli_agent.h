/* SPDX-License-Identifier: Apache-2.0 */
/* Inside `flyball agent`: how a configuration and what is wrong with it are shown. */
#ifndef FLYBALL_CLI_AGENT_H
#define FLYBALL_CLI_AGENT_H

#include "config/config.h"

struct kernel_options;

struct cli_agent_shown {
	const struct config *config;
	const char *file; /* as it is shown */
	/* What it comes to on this machine; NULL with a reason when it does not fit. */
	const struct kernel_options *kernel;
	const char *why;
};
/* "FILE:7:19: KEY: what is wrong [CPU-1]. Fix: …" to stderr, one line each. */
void cli_agent_print_findings(const char *file, const struct config_report *report);
/* One object on stdout: is it right, and what was found. */
void cli_agent_print_check_json(const char *file, const struct config_report *report);
/* YAML that gives the same configuration again, headers' values apart, or one JSON object. */
void cli_agent_print_config(const struct cli_agent_shown *shown);
void cli_agent_print_config_json(const struct cli_agent_shown *shown);

#endif
