// SPDX-License-Identifier: Apache-2.0
/* flyball record: turns the command line into agent_record_options. */
#include "cli.h"
#include "cli_unwinder.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "helpers/helpers.h"
#include "helpers/helpers_fetch.h"
#include "kernel/kernel_calibrate.h"

#define TEXT_OF_(x)	   #x
#define TEXT_OF(x)	   TEXT_OF_(x)
#define DEFAULT_OUTPUT	   "flyball.html"
#define DEFAULT_BUDGET_PPM 50000

enum {
	KEY_DEPTH = 256,
	KEY_RING,
	KEY_KERNEL_MEMORY,
	KEY_UNWIND,
	KEY_TABLE_MEMORY,
	KEY_PROCESSES,
	KEY_PER_THREAD,
	KEY_NO_KERNEL,
	KEY_NO_SYMBOLS,
	KEY_NO_INLINES,
	KEY_CGROUP,
	KEY_DEBUGINFOD,
	KEY_DEBUGINFOD_CACHE,
	KEY_SYMBOL_CACHE,
	KEY_CALIBRATION,
	KEY_BUDGET,
	KEY_TIERS,
	KEY_JSON
};

static const struct argp_option record_options[] = {
	{NULL, 0, NULL, 0, "What to record (default: the whole machine):", 1},
	{"all", 'a', NULL, 0, "Every process of the machine", 1},
	{"pid", 'p', "PID[,PID...]", 0, "These processes and the children they start", 1},
	{"cgroup", KEY_CGROUP, "PATH", 0, "The processes below a cgroup v2 directory", 1},
	{NULL, 0, NULL, 0, "How:", 2},
	{"frequency", 'F', "HZ", 0, "Samples per second and CPU, 1 to 10000 (default 99)", 2},
	{"duration", 'd', "TIME", 0,
	 "Stop after e.g. 10, 10s, 500ms, 2m (default: Ctrl-C, or the command's end)", 2},
	{"depth", KEY_DEPTH, "N", 0,
	 "Frames kept of each user stack, 1 to 1024 (default 1024), and of each kernel stack (at "
	 "most 127)",
	 2},
	{"no-kernel", KEY_NO_KERNEL, NULL, 0, "Take no kernel stacks", 2},
	{"no-symbols", KEY_NO_SYMBOLS, NULL, 0, "Open no files: frames are module+0xoffset", 2},
	{"debuginfod", KEY_DEBUGINFOD, "URLS", OPTION_ARG_OPTIONAL,
	 "Ask these servers for debug files of stripped programs (default: those of "
	 "DEBUGINFOD_URLS; without either none is asked)",
	 2},
	{"debuginfod-cache", KEY_DEBUGINFOD_CACHE, "DIR", 0,
	 "Keep these files there (default " HELPERS_FETCH_CACHE ")", 2},
	{"symbol-cache", KEY_SYMBOL_CACHE, "DIR", 0,
	 "Keep the names of each program there, for recordings to come; none keeps nothing "
	 "(default " HELPERS_SYMBOLS_CACHE ")",
	 2},
	{"budget", KEY_BUDGET, "PERCENT", 0,
	 "Hold the whole cost below this share of the machine's CPU, above 0 to 5, by a lower rate "
	 "and less detail (default: the rate is fixed)",
	 2},
	{"tiers", KEY_TIERS, NULL, 0,
	 "With a budget (default 5): 11 Hz from 80 % of CPU use on, 5 Hz from 90 %", 2},
	{"calibration", KEY_CALIBRATION, "FILE", 0,
	 "Take the cost of an interrupt from there (default " KERNEL_CALIBRATION_FILE
	 ", by flyball doctor --calibrate)",
	 2},
	{"no-inlines", KEY_NO_INLINES, NULL, 0, "Read no source lines and no inlined calls", 2},
	{"ring", KEY_RING, "SIZE", 0, "Ring buffer, a power of two (default 1MiB)", 2},
	{"kernel-memory", KEY_KERNEL_MEMORY, "SIZE", 0,
	 "Budget of kernel memory (default: 2.5 % of RAM, at most 64MiB)", 2},
	{"unwind", KEY_UNWIND, "WAY", 0,
	 "Walk user stacks by tables (made from call frame information; the default) or by "
	 "frame-pointers alone",
	 2},
	{"table-memory", KEY_TABLE_MEMORY, "SIZE", 0,
	 "Kernel memory for these tables, a multiple of 2MiB (default 8MiB, at most half of "
	 "--kernel-memory)",
	 2},
	{"processes", KEY_PROCESSES, "N", 0, "Processes the walker knows at a time (default 4096)",
	 2},
	{NULL, 0, NULL, 0, "Output:", 3},
	{"output", 'o', "FILE", 0,
	 "Write .html, .pb.gz, .folded, .otlp or .json by the name; - is folded text on stdout; "
	 "may be repeated (default " DEFAULT_OUTPUT ")",
	 3},
	{"per-thread", KEY_PER_THREAD, NULL, 0, "Folded stacks start with \"pid/tid comm\"", 3},
	{"json", KEY_JSON, NULL, 0, "Print the summary as one JSON object on stdout", 3},
	{"verbose", 'v', NULL, 0, "Say more on stderr (twice: everything)", 3},
	{0},
};

struct parsed {
	struct agent_record_options opt;
	bool all, has_output, wants_debuginfod, has_table_memory;
	int verbose;
	int status; /* usage error that was said */
};

static int parse_budget(struct parsed *p, const char *text)
{
	char *end;
	double percent = strtod(text, &end);

	if (end == text || (*end && strcmp(end, "%")) || !(percent * 10000 >= 1 && percent <= 5))
		return cli_usage_error(
			"record", "--budget %.50s: give a percentage above 0, at most 5", text);
	p->opt.cpu_budget_ppm = (uint32_t)(percent * 10000 + 0.5);
	return 0;
}

static int parse_pids(struct parsed *p, char *list)
{
	for (char *word = list, *next; word; word = next) {
		uint64_t pid;

		next = strchr(word, ',');
		if (next)
			*next++ = 0;
		if (text_parse_u64(word, 1, INT32_MAX, &pid))
			return cli_usage_error("record", "-p wants PIDs, and \"%.50s\" is none",
					       word);
		if (p->opt.pid_count == AGENT_PIDS_MAX)
			return cli_usage_error("record", "-p takes at most %d PIDs",
					       AGENT_PIDS_MAX);
		p->opt.pids[p->opt.pid_count++] = (pid_t)pid;
	}
	return 0;
}

static int parse_number(const char *flag, const char *text, uint64_t min, uint64_t max,
			uint32_t *ret)
{
	uint64_t v;

	if (text_parse_u64(text, min, max, &v))
		return cli_usage_error("record", "%s %s: give a whole number from %llu to %llu",
				       flag, text, (unsigned long long)min,
				       (unsigned long long)max);
	*ret = (uint32_t)v;
	return 0;
}

static int parse_size(const char *flag, const char *text, uint64_t *ret)
{
	if (text_parse_bytes(text, ret) || !*ret)
		return cli_usage_error("record", "%s %s: give a size such as 64KiB or 4MiB", flag,
				       text);
	return 0;
}

static int add_output(struct parsed *p, const char *path)
{
	struct why why = {""};
	enum profile_format format;

	if (p->opt.output_count == AGENT_OUTPUTS_MAX)
		return cli_usage_error("record", "-o can be given at most %d times",
				       AGENT_OUTPUTS_MAX);
	if (strcmp(path, "-") && profile_format_of(path, &format, &why))
		return cli_usage_error("record", "%s", why.text);
	p->opt.outputs[p->opt.output_count++] = path;
	return 0;
}

static int parse_option(int key, char *arg, struct parsed *p)
{
	switch (key) {
	case 'a':
		p->all = true;
		return 0;
	case 'p':
		return parse_pids(p, arg);
	case KEY_CGROUP:
		p->opt.cgroup = arg;
		return 0;
	case 'F':
		return parse_number("-F", arg, 1, 10000, &p->opt.kernel.hz);
	case 'd':
		if (text_parse_duration(arg, &p->opt.duration_ns) || !p->opt.duration_ns)
			return cli_usage_error("record",
					       "-d %s: give a time such as 10s, 500ms or 2m", arg);
		return 0;
	case KEY_DEPTH:
		return parse_number("--depth", arg, 1, FLY_MAX_FRAMES, &p->opt.kernel.depth);
	case KEY_RING:
		return parse_size("--ring", arg, &p->opt.kernel.ring_bytes);
	case KEY_KERNEL_MEMORY:
		return parse_size("--kernel-memory", arg, &p->opt.kernel.budget_bytes);
	case KEY_UNWIND:
		return cli_unwinder_parse("record", arg, &p->opt.kernel);
	case KEY_TABLE_MEMORY:
		p->has_table_memory = true;
		return parse_size("--table-memory", arg, &p->opt.kernel.table_bytes);
	case KEY_PROCESSES:
		return parse_number("--processes", arg, 1, UINT32_MAX, &p->opt.kernel.processes);
	case KEY_NO_KERNEL:
		p->opt.kernel.no_kernel = true;
		return 0;
	case KEY_NO_SYMBOLS:
		p->opt.no_symbols = true;
		return 0;
	case KEY_DEBUGINFOD:
		p->wants_debuginfod = true;
		if (arg)
			p->opt.debuginfod_urls = arg;
		return 0;
	case KEY_DEBUGINFOD_CACHE:
		if (arg[0] != '/')
			return cli_usage_error("record",
					       "--debuginfod-cache %s: give a path from /", arg);
		p->opt.debuginfod_cache = arg;
		return 0;
	case KEY_BUDGET:
		return parse_budget(p, arg);
	case KEY_TIERS:
		p->opt.has_tiers = true;
		return 0;
	case KEY_CALIBRATION:
		p->opt.calibration = arg;
		return 0;
	case KEY_SYMBOL_CACHE:
		if (arg[0] != '/' && strcmp(arg, "none"))
			return cli_usage_error(
				"record", "--symbol-cache %s: give a path from /, or none", arg);
		p->opt.symbol_cache = arg[0] == '/' ? arg : "";
		return 0;
	case KEY_NO_INLINES:
		p->opt.no_inlines = true;
		return 0;
	case 'o':
		return add_output(p, arg);
	case KEY_PER_THREAD:
		p->opt.per_thread = true;
		return 0;
	case KEY_JSON:
		p->opt.json = true;
		return 0;
	case 'v':
		p->verbose++;
		return 0;
	default:
		return -1;
	}
}

static error_t record_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;
	int status;

	if (key == ARGP_KEY_ARG) {
		/* the command and its own options: hands off */
		p->opt.command = state->argv + state->next - 1;
		state->next = state->argc;
		return 0;
	}
	if (key == ARGP_KEY_NO_ARGS && state->quoted) {
		p->status = cli_usage_error("record", "-- wants a command behind it");
		return EINVAL;
	}
	status = parse_option(key, arg, p);
	if (status < 0)
		return ARGP_ERR_UNKNOWN;
	if (status) {
		p->status = status;
		return EINVAL;
	}
	return 0;
}

static const struct argp record_argp = {
	.options = record_options,
	.parser = record_parse,
	.args_doc = "[-- COMMAND [ARGS...]]",
	.doc = "Records where CPU time goes, with every sample accounted for.\v"
	       "Examples:\n"
	       "  flyball record -a -d 10 -o flyball.html\n"
	       "  flyball record -p 1234 -d 30 -o server.pb.gz\n"
	       "  flyball record -o build.folded -- make -j2\n\n"
	       "With a command, its exit status is passed on. A command that outlives -d is ended "
	       "with SIGTERM, waited for at most 5 s, and does not count as failed.\n"
	       "Ctrl-C ends the recording and writes everything; a second Ctrl-C gives up.\n"
	       "Names are looked up while it records and delay no sample. Once it is over they are "
	       "waited for at most " TEXT_OF(
		       AGENT_NAMING_MAX_S) " s; what has none by then is "
					   "written as module+0xoffset, with the reason.",
};

/* One string of the command line, for titles. */
static void join_words(int argc, char **argv, struct buf *out)
{
	buf_add_str(out, "flyball record");
	for (int i = 1; i < argc; i++) {
		char word[256];

		text_print(argv[i], strlen(argv[i]), word, sizeof(word));
		buf_addf(out, " %s", word);
	}
}

static int check_together(const struct parsed *p)
{
	int targets = p->all + (p->opt.pid_count > 0) + (p->opt.cgroup != NULL) +
		      (p->opt.command != NULL);

	if (targets > 1)
		return cli_usage_error("record", "give one of -a, -p, --cgroup or a command");
	if (p->opt.json && agent_closed_descriptors & 1U << STDOUT_FILENO)
		return cli_usage_error("record", "--json wants stdout, which is closed");
	for (size_t i = 0; i < p->opt.output_count; i++) {
		if (p->opt.json && !strcmp(p->opt.outputs[i], "-"))
			return cli_usage_error("record", "--json and -o - both want stdout");
		for (size_t j = 0; j < i; j++) {
			if (!strcmp(p->opt.outputs[i], p->opt.outputs[j]))
				return cli_usage_error("record", "-o %s is given twice",
						       p->opt.outputs[i]);
		}
	}
	return 0;
}

static int find_servers(struct parsed *p)
{
	const char *urls = getenv("DEBUGINFOD_URLS");

	if (!p->opt.debuginfod_urls && urls && urls[strspn(urls, " \t")])
		p->opt.debuginfod_urls = urls;
	if (p->wants_debuginfod && !p->opt.debuginfod_urls)
		return cli_usage_error("record",
				       "--debuginfod: name a server, as in "
				       "--debuginfod=https://debuginfod.debian.net, or set "
				       "DEBUGINFOD_URLS");
	return 0;
}

int cli_record(int argc, char **argv)
{
	struct parsed p = {0};
	struct why why = {""};
	struct buf line;
	int status;

	kernel_options_init(&p.opt.kernel);
	p.opt.kernel.unwinder = FLY_UNWIND_TABLES;
	if (!cli_parse("record", &record_argp, argc, argv, ARGP_IN_ORDER, &p, &p.status, &status))
		return status;
	if (p.opt.has_tiers && !p.opt.cpu_budget_ppm)
		p.opt.cpu_budget_ppm = DEFAULT_BUDGET_PPM;
	status = check_together(&p);
	if (!status)
		status = find_servers(&p);
	if (status)
		return status;
	cli_unwinder_fit(&p.opt.kernel, p.has_table_memory);
	if (kernel_options_check(&p.opt.kernel, &why))
		return cli_usage_error("record", "%s", why.text);
	if (!p.opt.output_count && !p.opt.json)
		p.opt.outputs[p.opt.output_count++] = DEFAULT_OUTPUT;
	log_set_level(p.verbose > 1 ? LOG_DEBUG : p.verbose ? LOG_INFO : LOG_WARN);
	buf_init(&line, MEM_AGENT, 4096);
	join_words(argc, argv, &line);
	p.opt.command_line = line.err ? "flyball record" : line.data;
	status = agent_record(&p.opt);
	buf_done(&line);
	return status;
}
