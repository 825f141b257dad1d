// SPDX-License-Identifier: Apache-2.0
/* flyball unwind: the table of a binary, in figures, and checked against libdw. */
#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "cli_unwind.h"
#include "cli_unwind_stack.h"

#define FILES_MAX 65536

enum { KEY_CHECK = 256, KEY_JSON, KEY_STACK };

static const struct argp_option unwind_options[] = {
	{"check", KEY_CHECK, NULL, 0, "Compare every row with libdw; exit status 1 if any differs",
	 0},
	{"stack", KEY_STACK, "PID", 0,
	 "Walk the stack of a process's main thread, or of the thread with this number, by tables "
	 "and "
	 "by libdw; exit status 1 if they differ",
	 0},
	{"json", KEY_JSON, NULL, 0, "Print one JSON object per file", 0},
	{0},
};

struct parsed {
	char **files;
	size_t count;
	bool check, json;
	const char *stack;
	int status;
};

static error_t unwind_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case KEY_CHECK:
		p->check = true;
		break;
	case KEY_STACK:
		p->stack = arg;
		break;
	case KEY_JSON:
		p->json = true;
		break;
	case ARGP_KEY_ARGS:
		p->files = state->argv + state->next;
		p->count = (size_t)(state->argc - state->next);
		break;
	case ARGP_KEY_NO_ARGS:
		if (!p->stack)
			p->status = cli_usage_error("unwind", "unwind needs a file");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return p->status ? EINVAL : 0;
}

static const struct argp unwind_argp = {
	.options = unwind_options,
	.parser = unwind_parse,
	.args_doc = "FILE...\n--stack=PID",
	.doc = "Makes the unwind table of each program or library and shows what it takes and "
	       "covers.",
};

/* What one file gave. */
struct result {
	const char *file;
	struct unwind_place place;
	struct unwind_table *table;
	struct cli_unwind_check check;
	uint64_t cpu_ns;
	size_t peak_bytes; /* of memory while building, over all files so far */
	bool checked;
	int err;
	struct why why;
};

static uint64_t cpu_time_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static int work_on(struct result *r, int fd, bool check)
{
	struct unwind_source source = {.read = cli_unwind_read, .ctx = &fd};
	uint64_t start;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return why_set(&r->why, -errno, "fstat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return why_set(&r->why, -EBADMSG, "not a regular file");
	source.bytes = (uint64_t)st.st_size;
	start = cpu_time_ns();
	err = unwind_table_build(&source, NULL, &r->table, &r->why);
	r->cpu_ns = cpu_time_ns() - start;
	if (err)
		return err;
	r->peak_bytes = mem_peak_bytes(MEM_ELF);
	err = unwind_locate(&source, &r->place, &r->why);
	if (err || !check)
		return err;
	err = cli_unwind_compare(fd, &source, r->table, &r->check, &r->why);
	r->checked = !err;
	return err;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static const char *found_text(uint8_t found)
{
	switch (found) {
	case UNWIND_EH_FRAME:
		return ".eh_frame, by the program headers";
	case UNWIND_EH_FRAME_SECTION:
		return ".eh_frame, by the section headers";
	case UNWIND_GO:
		return ".gopclntab, Go's own";
	default:
		return ".debug_frame";
	}
}

static void print_text(const struct result *r)
{
	const struct unwind_table *t = r->table;
	const struct unwind_stats *s = &t->stats;
	uint64_t bytes = unwind_table_bytes(t);
	char size[32], peak[32];

	printf("%s: %s\n", r->file, found_text(t->found));
	printf("  functions    %" PRIu64 ", dropped %" PRIu64 ", damaged %" PRIu64 "\n", s->fdes,
	       s->fdes_dropped, s->fdes_bad);
	printf("  rows         %" PRIu64 " of %" PRIu64 ", gaps %" PRIu64 "\n", s->rows,
	       s->rows_raw, s->rows_gap);
	printf("  leaf only    %" PRIu64 " rows\n", s->rows_leaf_only);
	if (t->tracked)
		printf("  tracked      %" PRIu64 " rows need register %u\n", s->rows_tracked,
		       t->tracked);
	printf("  unsupported  %" PRIu64 " rows (%.4f %%), %" PRIu64 " bytes of text\n",
	       s->rows_unsupported, percent(s->rows_unsupported, s->rows), s->unsupported_bytes);
	printf("  table        %u groups, %u shapes, %u rules, %u pages: %" PRIu64 " bytes (%s)\n",
	       t->group_count, t->shape_count, t->rule_count, t->page_count, bytes,
	       text_bytes(bytes, size, sizeof(size)));
	printf("  text         %" PRIu64 " bytes, %.1f %% covered; %.1f bytes of table per KiB\n",
	       s->text_bytes, percent(s->covered_bytes, s->text_bytes),
	       s->text_bytes ? (double)bytes * 1024 / (double)s->text_bytes : 0);
	printf("  made in      %.3f s of one core, at most %s of memory, table included\n",
	       (double)r->cpu_ns / 1e9, text_bytes(r->peak_bytes, peak, sizeof(peak)));
	if (s->groups_degraded)
		printf("  degraded     %" PRIu64 " groups: a dictionary is full\n",
		       s->groups_degraded);
	if (!r->checked)
		return;
	printf("  libdw        %" PRIu64 " addresses compared, %" PRIu64 " differ, %" PRIu64
	       " unsupported, %" PRIu64 " not judged\n",
	       r->check.addresses, r->check.differences, r->check.unsupported, r->check.unjudged);
	if (r->check.said.len)
		fputs(r->check.said.data, stdout);
}

static void print_error_json(const struct result *r)
{
	char name[1024];
	json_t *o;

	text_print(r->file, strlen(r->file), name, sizeof(name));
	o = json_pack("{s:s,s:i,s:s}", "file", name, "error", r->err, "why", r->why.text);
	json_dumpf(o, stdout, JSON_COMPACT);
	json_decref(o);
	putchar('\n');
}

static void add(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

static void print_json(const struct result *r)
{
	const struct unwind_table *t = r->table;
	const struct unwind_stats *s = &t->stats;
	json_t *o = json_object();
	char name[1024];

	text_print(r->file, strlen(r->file), name, sizeof(name));
	json_object_set_new(o, "file", json_string(name));
	json_object_set_new(o, "found", json_string(found_text(t->found)));
	add(o, "machine", t->machine);
	add(o, "tracked_register", t->tracked);
	add(o, "functions", s->fdes);
	add(o, "functions_dropped", s->fdes_dropped);
	add(o, "functions_damaged", s->fdes_bad);
	add(o, "rows_raw", s->rows_raw);
	add(o, "rows", s->rows);
	add(o, "rows_gap", s->rows_gap);
	add(o, "rows_leaf_only", s->rows_leaf_only);
	add(o, "rows_tracked", s->rows_tracked);
	add(o, "rows_unsupported", s->rows_unsupported);
	add(o, "unsupported_bytes", s->unsupported_bytes);
	add(o, "groups", t->group_count);
	add(o, "groups_degraded", s->groups_degraded);
	add(o, "shapes", t->shape_count);
	add(o, "shape_words", t->shape_words);
	add(o, "rules", t->rule_count);
	add(o, "pages", t->page_count);
	add(o, "table_bytes", unwind_table_bytes(t));
	add(o, "forecast_bytes", unwind_forecast_bytes(&r->place));
	add(o, "text_bytes", s->text_bytes);
	add(o, "covered_bytes", s->covered_bytes);
	add(o, "passes", s->passes);
	add(o, "scratch_bytes", s->scratch_bytes);
	add(o, "peak_bytes", r->peak_bytes);
	add(o, "cpu_ns", r->cpu_ns);
	if (r->checked) {
		add(o, "addresses", r->check.addresses);
		add(o, "differences", r->check.differences);
		add(o, "unsupported", r->check.unsupported);
		add(o, "unjudged", r->check.unjudged);
		json_object_set_new(o, "said",
				    json_string(r->check.said.len ? r->check.said.data : ""));
	}
	json_dumpf(o, stdout, JSON_COMPACT);
	json_decref(o);
	putchar('\n');
}

static int do_file(const char *file, const struct parsed *p)
{
	struct result r = {.file = file};
	int fd, status = AGENT_EXIT_DONE;

	buf_init(&r.check.said, MEM_BASE, 65536);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		r.err = why_set(&r.why, -errno, "%s", strerror(errno));
	else
		r.err = work_on(&r, fd, p->check);
	if (r.err) {
		if (p->json)
			print_error_json(&r);
		log_error("%s: %s", file, r.why.text);
		status = agent_exit_of(r.err);
	} else if (p->json) {
		print_json(&r);
	} else {
		print_text(&r);
	}
	if (r.check.differences)
		status = AGENT_EXIT_FINDINGS;
	unwind_table_free(r.table);
	buf_done(&r.check.said);
	if (fd >= 0)
		close(fd);
	return status;
}

int cli_unwind(int argc, char **argv)
{
	struct parsed p = {0};
	int status = AGENT_EXIT_DONE;

	if (!cli_parse("unwind", &unwind_argp, argc, argv, 0, &p, &p.status, &status))
		return status;
	status = AGENT_EXIT_DONE;
	if (p.stack && (p.count || p.check))
		return cli_usage_error("unwind", "--stack takes no file and no --check");
	if (p.stack)
		return cli_unwind_stack(p.stack, p.json);
	if (p.count > FILES_MAX)
		return cli_usage_error("unwind", "more than %d files", FILES_MAX);
	for (size_t i = 0; i < p.count; i++) {
		int one = do_file(p.files[i], &p);

		/* Findings outweigh files that could not be read. */
		if (one == AGENT_EXIT_FINDINGS || status == AGENT_EXIT_DONE)
			status = one;
		fflush(stdout);
	}
	return status;
}
