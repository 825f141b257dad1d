// SPDX-License-Identifier: Apache-2.0
/* flyball plan: the kernel memory a recording would use, map by map, and what tables would hold for
 * the processes that run now. Creates nothing. */
#include "cli.h"
#include "cli_plan_running.h"
#include "cli_unwinder.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>

#include "agent/agent.h"

enum {
	KEY_RING = 256,
	KEY_KERNEL_MEMORY,
	KEY_CPUS,
	KEY_JSON,
	KEY_DEPTH,
	KEY_FILTERED,
	KEY_UNWIND,
	KEY_TABLE_MEMORY,
	KEY_PROCESSES
};

static const struct argp_option plan_options[] = {
	{"ring", KEY_RING, "SIZE", 0, "Ring buffer, a power of two (default 1MiB)", 0},
	{"kernel-memory", KEY_KERNEL_MEMORY, "SIZE", 0,
	 "Budget (default: 2.5 % of RAM, at most 64MiB)", 0},
	{"depth", KEY_DEPTH, "N", 0, "User frames kept, 1 to 1024 (default 1024)", 0},
	{"unwind", KEY_UNWIND, "WAY", 0, "tables (default) or frame-pointers", 0},
	{"table-memory", KEY_TABLE_MEMORY, "SIZE", 0, "For unwind tables, a multiple of 2MiB", 0},
	{"processes", KEY_PROCESSES, "N", 0, "Processes the walker knows at a time", 0},
	{"cpus", KEY_CPUS, "N", 0, "As if the machine had N CPUs", 0},
	{"filtered", KEY_FILTERED, NULL, 0, "As with -p or a command, not -a", 0},
	{"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
	{0},
};

struct parsed {
	struct kernel_options opt;
	bool json, has_table_memory;
	int status;
};

static int parse_count(const char *flag, const char *arg, uint64_t max, uint32_t *ret)
{
	uint64_t v;

	if (text_parse_u64(arg, 1, max, &v))
		return cli_usage_error("plan", "%s %s: give a whole number from 1 to %" PRIu64,
				       flag, arg, max);
	*ret = (uint32_t)v;
	return 0;
}

static int parse_size(const char *flag, const char *arg, uint64_t *ret)
{
	if (text_parse_bytes(arg, ret) || !*ret)
		return cli_usage_error("plan", "%s %s: give a size such as 4MiB", flag, arg);
	return 0;
}

static error_t plan_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case KEY_RING:
		p->status = parse_size("--ring", arg, &p->opt.ring_bytes);
		break;
	case KEY_KERNEL_MEMORY:
		p->status = parse_size("--kernel-memory", arg, &p->opt.budget_bytes);
		break;
	case KEY_DEPTH:
		p->status = parse_count("--depth", arg, FLY_MAX_FRAMES, &p->opt.depth);
		break;
	case KEY_UNWIND:
		p->status = cli_unwinder_parse("plan", arg, &p->opt);
		break;
	case KEY_TABLE_MEMORY:
		p->has_table_memory = true;
		p->status = parse_size("--table-memory", arg, &p->opt.table_bytes);
		break;
	case KEY_PROCESSES:
		p->status = parse_count("--processes", arg, UINT32_MAX, &p->opt.processes);
		break;
	case KEY_CPUS:
		p->status = parse_count("--cpus", arg, 8192, &p->opt.cpus);
		break;
	case KEY_FILTERED:
		p->opt.target = FLY_TARGET_TASKS;
		break;
	case KEY_JSON:
		p->json = true;
		break;
	case ARGP_KEY_ARG:
		p->status = cli_usage_error("plan", "plan takes no argument %s", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return p->status ? EINVAL : 0;
}

static const struct argp plan_argp = {
	.options = plan_options,
	.parser = plan_parse,
	.doc = "Shows the kernel memory a recording would use, before anything is created (MEM-1), "
	       "and what unwind tables would take for the programs that run now, by a forecast.",
};

static void print_plan(const struct kernel_memory *m)
{
	char bytes[32], budget[32];

	printf("%-16s %-13s %10s %10s  %s\n", "map", "type", "entries", "bytes", "purpose");
	for (size_t i = 0; i < m->map_count; i++)
		printf("%-16s %-13s %10" PRIu64 " %10" PRIu64 "  %s\n", m->maps[i].name,
		       m->maps[i].type, m->maps[i].entries, m->maps[i].bytes, m->maps[i].purpose);
	printf("%-16s %-13s %10s %10" PRIu64 "  %s of %s allowed\n", "sum", "", "",
	       m->planned_bytes, text_bytes(m->planned_bytes, bytes, sizeof(bytes)),
	       text_bytes(m->budget_bytes, budget, sizeof(budget)));
}

static void print_running(const struct cli_plan_running *r, uint64_t limit)
{
	char tables[32], mappings[32], most[32];

	printf("\nThe %u processes that run now map %u files with call frame information: tables "
	       "of "
	       "about %s if all were sampled and whole, mappings of %s at most. The limit is %s; "
	       "beyond it, only what is sampled most is there (--table-memory).\n",
	       r->processes, r->files, text_bytes(r->table_bytes, tables, sizeof(tables)),
	       text_bytes(r->mapping_bytes, mappings, sizeof(mappings)),
	       text_bytes(limit, most, sizeof(most)));
	if (r->files_without)
		printf("%u more files have none: their code is walked by frame pointers.\n",
		       r->files_without);
	if (r->processes_unreadable || r->files_unreadable)
		printf("%u processes and %u files could not be read, and are not counted.\n",
		       r->processes_unreadable, r->files_unreadable);
	if (!r->is_complete)
		printf("Not all answered in time: there are more than were counted.\n");
}

static json_t *json_running(const struct cli_plan_running *r, uint64_t limit)
{
	if (!r)
		return json_null();
	return json_pack("{s:i,s:i,s:i,s:i,s:i,s:I,s:I,s:I,s:b}", "processes", (int)r->processes,
			 "processes_unreadable", (int)r->processes_unreadable, "files",
			 (int)r->files, "files_without", (int)r->files_without, "files_unreadable",
			 (int)r->files_unreadable, "table_bytes", (json_int_t)r->table_bytes,
			 "mapping_bytes", (json_int_t)r->mapping_bytes, "limit_bytes",
			 (json_int_t)limit, "is_complete", r->is_complete);
}

static int print_json(const struct kernel_memory *m, const char *refused, json_t *running)
{
	json_t *maps = json_array(), *o;

	for (size_t i = 0; i < m->map_count; i++)
		json_array_append_new(maps, json_pack("{s:s,s:s,s:I,s:I,s:s}", "name",
						      m->maps[i].name, "type", m->maps[i].type,
						      "entries", (json_int_t)m->maps[i].entries,
						      "planned_bytes", (json_int_t)m->maps[i].bytes,
						      "purpose", m->maps[i].purpose));
	o = json_pack("{s:I,s:I,s:o,s:s?,s:o}", "budget_bytes", (json_int_t)m->budget_bytes,
		      "planned_bytes", (json_int_t)m->planned_bytes, "maps", maps, "refused",
		      refused, "running", running);
	if (!o || json_dumpf(o, stdout, JSON_COMPACT))
		return AGENT_EXIT_FAILED;
	json_decref(o);
	putchar('\n');
	return AGENT_EXIT_DONE;
}

int cli_plan(int argc, char **argv)
{
	struct cli_plan_running running = {0};
	struct kernel_memory memory = {0};
	struct parsed p = {0};
	struct why why = {""}, why_running = {""};
	bool has_running;
	int err, status;

	kernel_options_init(&p.opt);
	p.opt.unwinder = FLY_UNWIND_TABLES;
	if (!cli_parse("plan", &plan_argp, argc, argv, 0, &p, &p.status, &status))
		return status;
	cli_unwinder_fit(&p.opt, p.has_table_memory);
	if (kernel_options_check(&p.opt, &why))
		return cli_usage_error("plan", "%s", why.text);
	err = kernel_plan(&p.opt, &memory, &why);
	has_running = p.opt.unwinder == FLY_UNWIND_TABLES;
	if (has_running && cli_plan_running(&running, &why_running)) {
		log_warn("what runs now is not known: %s", why_running.text);
		has_running = false;
	}
	if (p.json)
		print_json(&memory, err ? why.text : NULL,
			   json_running(has_running ? &running : NULL, p.opt.table_bytes));
	else
		print_plan(&memory);
	if (has_running && !p.json)
		print_running(&running, p.opt.table_bytes);
	if (err) {
		log_error("%s", why.text);
		return agent_exit_of(err);
	}
	return AGENT_EXIT_DONE;
}
