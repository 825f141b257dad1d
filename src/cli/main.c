// SPDX-License-Identifier: Apache-2.0
/* main: finds the subcommand. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *text;
} commands[] = {
	{"record", cli_record,
	 "record a profile: the whole machine, processes, a cgroup or a command"},
	{"agent", cli_agent, "the node's daemon: profile all the time, into a local store"},
	{"status", cli_status, "show what a running agent does"},
	{"query", cli_query, "ask profiles: functions, calls, trace spans, other formats"},
	{"diff", cli_diff, "say which functions take more or less than before"},
	{"plan", cli_plan, "show what kernel memory would be used, before anything is created"},
	{"doctor", cli_doctor, "say whether this machine can run flyball, and if not, why"},
	{"export", cli_export, "send recorded profiles to a receiver, or check that it takes them"},
	{"explain", cli_explain, "explain a reason or a directive"},
	{"unwind", cli_unwind, "show a binary's unwind table, or check it against libdw"},
	{"governor", cli_governor, "live through a scenario and show what the governor does"},
	{"store", cli_store, "show what a store of profiles holds, or check it"},
};

static void print_help(FILE *to)
{
	fputs("Usage: flyball COMMAND [OPTION...]\n"
	      "A whole-node profiler that accounts for every sample it takes.\n\n",
	      to);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].text);
	fputs("\n`flyball COMMAND --help` shows the options of one. First try:\n"
	      "  flyball record -a -d 10 -o flyball.html\n",
	      to);
}

int cli_usage_error(const char *command, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_error("%s (see flyball %s --help)", text, command);
	return AGENT_EXIT_USAGE;
}

/* A descriptor that was closed would be given to the next file opened, and text for people would
 * end up in a profile. What was closed is remembered for a COMMAND, which gets it closed again. */
static void open_closed_descriptors(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		if (open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
			_exit(AGENT_EXIT_FAILED);
		agent_closed_descriptors |= 1U << fd;
	}
}

/* What was printed must have arrived, else it did not happen. */
static int check_stdout(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	log_error("writing to stdout failed: %s", strerror(errno));
	return status ? status : AGENT_EXIT_FAILED;
}

static int no_command(const char *name)
{
	log_error("there is no command %s; flyball --help lists them", name);
	return AGENT_EXIT_USAGE;
}

static int help_of(char *name)
{
	char option[] = "--help";
	char *argv[] = {name, option, NULL};

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcmp(name, commands[i].name))
			return commands[i].run(2, argv);
	}
	return no_command(name);
}

static int run(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcmp(name, commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	}
	if (!strcmp(name, "help") && argc > 2)
		return help_of(argv[2]);
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		print_help(stdout);
		return AGENT_EXIT_DONE;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		puts("flyball " FLYBALL_VERSION);
		return AGENT_EXIT_DONE;
	}
	if (argc > 1)
		return no_command(name);
	print_help(stderr);
	return AGENT_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	open_closed_descriptors();
	return check_stdout(run(argc, argv));
}
