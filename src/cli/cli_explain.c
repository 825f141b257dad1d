// SPDX-License-Identifier: Apache-2.0
/* flyball explain: every reason (abi/reasons.def) and directive, in words. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/agent.h"
#include "profile/profile.h"

static const struct {
	const char *id, *text;
} directives[] = {
#define DIRECTIVE(id, text) {id, text},
#include "directives.def"
};

static const char *kind_text(const char *kind)
{
	if (!strcmp(kind, "drop"))
		return "a sample was taken and not delivered";
	return strcmp(kind, "cut") ? "a frame is shown by its address"
				   : "a stack was delivered incomplete";
}

static int explain(const char *word)
{
	const struct profile_reason *r;

	for (size_t i = 0; (r = profile_reason_get(i)); i++) {
		if (strcasecmp(r->name, word))
			continue;
		printf("%s (%s)\n  What happened: %s.\n  What to do: %s.\n", r->name,
		       kind_text(r->kind), r->text, r->advice);
		return AGENT_EXIT_DONE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(directives); i++) {
		if (strcasecmp(directives[i].id, word))
			continue;
		printf("%s: %s\n", directives[i].id, directives[i].text);
		return AGENT_EXIT_DONE;
	}
	return cli_usage_error("explain", "there is no reason or directive %s", word);
}

static void list(FILE *to)
{
	const struct profile_reason *r;

	fputs("Usage: flyball explain REASON|DIRECTIVE...\n\n", to);
	for (size_t i = 0; (r = profile_reason_get(i)); i++)
		fprintf(to, "  %-8s %-20s %s\n", r->kind, r->name, r->text);
	for (size_t i = 0; i < ARRAY_SIZE(directives); i++)
		fprintf(to, "  %-8s %-20s %.90s%s\n", "rule", directives[i].id, directives[i].text,
			strlen(directives[i].text) > 90 ? "…" : "");
}

int cli_explain(int argc, char **argv)
{
	int status = AGENT_EXIT_DONE;

	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		list(stdout);
		return AGENT_EXIT_DONE;
	}
	for (int i = 1; i < argc; i++) {
		if (explain(argv[i]))
			status = AGENT_EXIT_USAGE;
	}
	return status;
}
