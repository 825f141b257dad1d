// SPDX-License-Identifier: Apache-2.0
/*
 * flyball export: sends files to a receiver, or says in a sentence whether that would work. Files
 * go one after the other; what a receiver cannot take now is sent again until the deadline.
 */
#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "export/export.h"
#include "profile/profile.h"

#define FILE_MAX_BYTES	  (1ULL << 30)
#define DEADLINE_NS	  300000000000ULL
#define CHECK_DEADLINE_NS 15000000000ULL
#define NS_PER_MS	  1000000ULL

enum {
	KEY_TO = 256,
	KEY_KIND,
	KEY_CHECK,
	KEY_COMPRESSION,
	KEY_HEADER,
	KEY_CA,
	KEY_CERT,
	KEY_KEY,
	KEY_TIMEOUT,
	KEY_DEADLINE,
	KEY_MAX_SIZE,
	KEY_NO_NAMES,
	KEY_SERVICE,
	KEY_JSON,
};

static const struct argp_option export_options_list[] = {
	{"to", KEY_TO, "URL", 0, "The receiver (default: OTEL_EXPORTER_OTLP_ENDPOINT)", 0},
	{"kind", KEY_KIND, "KIND", 0,
	 "grpc, http, pyroscope or parca (default: grpc at port 4317, else http)", 0},
	{"check", KEY_CHECK, NULL, 0,
	 "Send one profile without samples, and say whether it arrived", 0},
	{"compression", KEY_COMPRESSION, "HOW", 0, "none, gzip (default) or zstd", 0},
	{"header", KEY_HEADER, "NAME: VALUE", 0, "Send this header too (repeatable)", 0},
	{"ca", KEY_CA, "FILE", 0, "Trust what this certificate signed, not the system's", 0},
	{"cert", KEY_CERT, "FILE", 0, "Show this client certificate", 0},
	{"key", KEY_KEY, "FILE", 0, "Its private key", 0},
	{"timeout", KEY_TIMEOUT, "TIME", 0, "Of one attempt (default 10s)", 0},
	{"deadline", KEY_DEADLINE, "TIME", 0, "For everything (default 5m; with --check 15s)", 0},
	{"max-size", KEY_MAX_SIZE, "BYTES", 0, "Of one request, before compression (default 4MiB)",
	 0},
	{"no-names", KEY_NO_NAMES, NULL, 0, "Leave out names that the receiver can find itself", 0},
	{"service", KEY_SERVICE, "NAME", 0, "Name of the series in Pyroscope and Parca", 0},
	{"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
	{0},
};

struct sent {
	const char *path;
	bool is_settled;
	enum export_outcome outcome;
	struct why why;
};

struct parsed {
	struct export_options options;
	struct sent *files;
	size_t file_count, next;
	bool check, json;
	uint64_t deadline_ns; /* a duration, then a time */
	struct buf block;
	int status;
};

static int usage(struct parsed *p, const char *text)
{
	p->status = cli_usage_error("export", "%s", text);
	return EINVAL;
}

static int parse_number(struct parsed *p, int key, const char *arg)
{
	struct export_options *o = &p->options;
	uint64_t value = 0;
	int err = key == KEY_MAX_SIZE ? text_parse_bytes(arg, &value)
				      : text_parse_duration(arg, &value);

	if (err || !value || (key == KEY_MAX_SIZE && (value < 1024 || value > FILE_MAX_BYTES)))
		return usage(p, key == KEY_MAX_SIZE ? "--max-size is 1KiB to 1GiB"
						    : "a time is given as 10s, 500ms or 5m");
	if (key == KEY_TIMEOUT)
		o->timeout_ns = value < NS_PER_MS ? NS_PER_MS : value;
	else if (key == KEY_DEADLINE)
		p->deadline_ns = value;
	else
		o->request_max_bytes = value;
	return 0;
}

static int parse_target(struct parsed *p, int key, char *arg)
{
	struct export_options *o = &p->options;
	struct why why = {""};
	int err = 0;

	switch (key) {
	case KEY_TO:
		o->url = arg;
		o->is_whole_url = o->is_insecure = false;
		break;
	case KEY_KIND:
		err = export_kind_parse(arg, &o->kind, &why);
		o->has_kind = true;
		break;
	case KEY_COMPRESSION:
		err = export_compression_parse(arg, &o->compression, &why);
		break;
	case KEY_HEADER:
		err = export_options_header(o, arg, &why);
		break;
	case KEY_CA:
		o->ca = arg;
		break;
	case KEY_CERT:
		o->certificate = arg;
		break;
	case KEY_KEY:
		o->key = arg;
		break;
	case KEY_SERVICE:
		o->service = arg;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return err ? usage(p, why.text) : 0;
}

static error_t export_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case KEY_TIMEOUT:
	case KEY_DEADLINE:
	case KEY_MAX_SIZE:
		return parse_number(p, key, arg);
	case KEY_CHECK:
		p->check = true;
		return 0;
	case KEY_NO_NAMES:
		p->options.without_names = true;
		return 0;
	case KEY_JSON:
		p->json = true;
		return 0;
	case ARGP_KEY_ARG:
		p->files[p->file_count++].path = arg;
		return 0;
	case ARGP_KEY_END:
		if (p->check && p->file_count)
			return usage(p, "--check sends no file");
		if (!p->check && !p->file_count)
			return usage(p, "give the files to send, or --check");
		return 0;
	default:
		return parse_target(p, key, arg);
	}
}

static const struct argp export_argp = {
	.options = export_options_list,
	.parser = export_parse,
	.args_doc = "[FILE...]",
	.doc = "Sends profiles to an OpenTelemetry Collector or another receiver: .otlp files as "
	       "OTLP, .pb.gz files to Pyroscope and Parca. OTEL_EXPORTER_OTLP_* variables count "
	       "where no option is given. docs/export.md has recipes.\v"
	       "Exit status: 0 everything was delivered, 1 something was refused, 4 something "
	       "could "
	       "not be delivered before the deadline. With --check: 0 it works, 1 it does not.",
};

/* ------------------------------------------------------------------ blocks */

static int read_file(const char *path, struct buf *out, struct why *why)
{
	struct stat st;
	char *chunk = NULL;
	ssize_t n = -1;
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;

	buf_reset(out);
	if (fd < 0 || fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EINVAL;
	chunk = err ? NULL : malloc(1 << 16);
	while (!err && chunk && (n = read(fd, chunk, 1 << 16)) > 0) {
		buf_add(out, chunk, (size_t)n);
		err = out->err;
	}
	if (!err && (n < 0 || !chunk))
		err = chunk ? -errno : -ENOMEM;
	if (fd >= 0)
		close(fd);
	free(chunk);
	return err ? why_set(why, err, "cannot read it: %s", strerror(-err)) : 0;
}

static int next_file(void *ctx, struct export_block *ret, struct why *why)
{
	struct parsed *p = ctx;

	while (p->next < p->file_count) {
		struct sent *file = &p->files[p->next++];

		if (!read_file(file->path, &p->block, &file->why)) {
			*ret = (struct export_block){
				.id = p->next - 1, .data = p->block.data, .bytes = p->block.len};
			return 1;
		}
		*why = file->why;
		file->is_settled = true;
		file->outcome = EXPORT_REFUSED;
	}
	return 0;
}

static void settle_file(void *ctx, const struct export_block *block, enum export_outcome outcome,
			const struct why *why)
{
	struct sent *file = &((struct parsed *)ctx)->files[block->id];

	file->is_settled = true;
	file->outcome = outcome;
	file->why = *why;
}

static void note_retry(void *ctx, const struct why *why, uint64_t delay_ns)
{
	struct parsed *p = ctx;
	struct sent *file = &p->files[p->next - 1];

	file->why = *why;
	if (!p->check)
		log_warn("%s: %s; trying again in %.1f s", file->path, why->text,
			 (double)delay_ns / 1e9);
}

static int sink(void *ctx, const void *data, size_t bytes)
{
	struct buf *out = ctx;

	buf_add(out, data, bytes);
	return out->err;
}

/* What a recording without one sample would be. */
static int next_empty(void *ctx, struct export_block *ret, struct why *why)
{
	static const struct profile_options profile_options = {.period_ns = 10101010};
	static const struct profile_write_options write_options;
	struct parsed *p = ctx;
	struct profile_run run = {.start_realtime_ns = clock_realtime_ns(), .duration_ns = 1};
	struct profile *profile;
	int err;

	if (p->next == p->file_count)
		return 0;
	p->next++;
	err = profile_new(&profile_options, &profile);
	if (!err) {
		profile_run_set(profile, &run);
		err = profile_write(profile,
				    export_kind_takes_pprof(p->options.kind) ? PROFILE_PPROF
									     : PROFILE_OTLP,
				    &write_options, sink, &p->block, why);
		profile_free(profile);
	}
	*ret = (struct export_block){.data = p->block.data,
				     .bytes = p->block.len,
				     .start_ns = run.start_realtime_ns,
				     .end_ns = run.start_realtime_ns + 1};
	return err ? err : 1;
}

/* ------------------------------------------------------------------ the loop */

static void wait_for(struct export *e, uint64_t deadline_ns)
{
	struct pollfd fd = {.fd = export_fd(e), .events = POLLIN};
	uint64_t now = clock_monotonic_ns(), until = export_wake_ns(e);

	if (until > deadline_ns)
		until = deadline_ns;
	poll(&fd, 1, until > now ? (int)((until - now) / NS_PER_MS + 1) : 0);
}

/* A check ends at the first answer. */
static bool is_over(const struct parsed *p, struct export *e)
{
	struct export_stats stats;

	export_stats(e, &stats);
	if (p->check && stats.retries)
		return true;
	return p->next == p->file_count && export_is_idle(e);
}

static void run(struct parsed *p, struct export *e)
{
	for (;;) {
		export_step(e);
		if (is_over(p, e) || clock_monotonic_ns() >= p->deadline_ns)
			return;
		if (!export_is_idle(e))
			wait_for(e, p->deadline_ns);
	}
}

/* ------------------------------------------------------------------ what is said */

static const char *outcome_name(const struct sent *file)
{
	static const char *const names[] = {[EXPORT_DELIVERED] = "delivered",
					    [EXPORT_REFUSED] = "refused",
					    [EXPORT_GIVEN_UP] = "not delivered"};

	return names[file->is_settled ? file->outcome : EXPORT_GIVEN_UP];
}

static int print_json(const struct parsed *p, const struct export *e)
{
	struct export_stats s;
	json_t *files = json_array(), *o;
	int err;

	export_stats(e, &s);
	for (size_t i = 0; i < p->file_count; i++)
		json_array_append_new(files, json_pack("{s:s,s:s,s:s}", "file", p->files[i].path,
						       "outcome", outcome_name(&p->files[i]), "why",
						       p->files[i].why.text));
	o = json_pack("{s:s,s:s,s:b,s:o,s:I,s:I,s:I,s:I,s:I,s:I}", "url", export_url(e), "kind",
		      export_kind_name(p->options.kind), "check", p->check, "files", files,
		      "requests", (json_int_t)s.requests, "attempts", (json_int_t)s.attempts,
		      "retries", (json_int_t)s.retries, "encoded_bytes",
		      (json_int_t)s.encoded_bytes, "wire_bytes", (json_int_t)s.wire_bytes,
		      "rejected_profiles", (json_int_t)s.rejected_profiles);
	err = !o || json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
	putchar('\n');
	json_decref(o);
	return err ? AGENT_EXIT_FAILED : AGENT_EXIT_DONE;
}

static void print_check(const struct parsed *p, const struct export *e)
{
	const struct sent *one = &p->files[0];

	if (one->is_settled && one->outcome == EXPORT_DELIVERED)
		printf("%s takes profiles (%s)%s%s.\n", export_url(e),
		       export_kind_name(p->options.kind), one->why.text[0] ? "; " : "",
		       one->why.text);
	else
		printf("%s does not take profiles (%s): %s.\n", export_url(e),
		       export_kind_name(p->options.kind),
		       one->why.text[0] ? one->why.text : "no answer before the deadline");
}

static void print_files(const struct parsed *p, const struct export *e)
{
	char encoded[32], wire[32];
	struct export_stats s;

	for (size_t i = 0; i < p->file_count; i++) {
		const struct sent *file = &p->files[i];

		printf("%s: %s%s%s\n", file->path, outcome_name(file),
		       file->why.text[0] ? ": " : "", file->why.text);
	}
	export_stats(e, &s);
	printf("%" PRIu64 " requests, %s (%s compressed), %" PRIu64 " sent again, %" PRIu64
	       " profiles rejected\n",
	       s.requests, text_bytes(s.encoded_bytes, encoded, sizeof(encoded)),
	       text_bytes(s.wire_bytes, wire, sizeof(wire)), s.retries, s.rejected_profiles);
}

static int exit_status(const struct parsed *p, const struct export *e)
{
	struct export_stats s;
	int status = AGENT_EXIT_DONE;

	export_stats(e, &s);
	if (s.rejected_profiles)
		status = AGENT_EXIT_FINDINGS;
	for (size_t i = 0; i < p->file_count; i++) {
		const struct sent *file = &p->files[i];

		if (file->is_settled && file->outcome == EXPORT_DELIVERED)
			continue;
		if (!p->check && (!file->is_settled || file->outcome == EXPORT_GIVEN_UP))
			return AGENT_EXIT_FAILED;
		status = AGENT_EXIT_FINDINGS;
	}
	return status;
}

static int say(const struct parsed *p, const struct export *e)
{
	int status = exit_status(p, e), said = AGENT_EXIT_DONE;

	if (p->json)
		said = print_json(p, e);
	else if (p->check)
		print_check(p, e);
	else
		print_files(p, e);
	return said == AGENT_EXIT_DONE ? status : said;
}

/* ------------------------------------------------------------------ */

/* What a kind does not take is an error before anything is sent. */
static int check_formats(const struct parsed *p, struct why *why)
{
	enum profile_format want =
		export_kind_takes_pprof(p->options.kind) ? PROFILE_PPROF : PROFILE_OTLP;
	enum profile_format format;

	for (size_t i = 0; i < p->file_count && !p->check; i++) {
		if (profile_format_of(p->files[i].path, &format, NULL) || format != want)
			return why_set(why, -EINVAL, "%.200s: %s takes %s files", p->files[i].path,
				       export_kind_name(p->options.kind),
				       want == PROFILE_PPROF ? ".pb.gz" : ".otlp");
	}
	return 0;
}

static int send_all(struct parsed *p)
{
	struct export_source source = {p, p->check ? next_empty : next_file, settle_file,
				       note_retry};
	struct export *e = NULL;
	struct why why = {""};
	char url[EXPORT_URL_MAX];
	int err = export_options_url(&p->options, url, &why);

	if (!err)
		err = check_formats(p, &why);
	if (!err)
		err = export_open(&p->options, &source, &e, &why);
	if (err == -EINVAL)
		return cli_usage_error("export", "%s", why.text);
	if (err) {
		log_error("%s", why.text);
		return AGENT_EXIT_FAILED;
	}
	if (p->check) {
		p->file_count = 1;
		p->files[0].path = "";
	}
	if (!p->deadline_ns)
		p->deadline_ns = p->check ? CHECK_DEADLINE_NS : DEADLINE_NS;
	p->deadline_ns += clock_monotonic_ns();
	run(p, e);
	err = say(p, e);
	export_close(e);
	return err;
}

int cli_export(int argc, char **argv)
{
	struct parsed p = {.next = 0};
	struct why why = {""};
	int status = AGENT_EXIT_FAILED;

	export_options_init(&p.options);
	buf_init(&p.block, MEM_EXPORT, FILE_MAX_BYTES);
	p.files = mem_array(MEM_EXPORT, (size_t)argc + 1, sizeof(*p.files));
	if (!p.files)
		log_error("out of memory");
	else if (export_options_env(&p.options, getenv, &why))
		status = cli_usage_error("export", "%s", why.text);
	else if (cli_parse("export", &export_argp, argc, argv, 0, &p, &p.status, &status))
		status = send_all(&p);
	export_options_done(&p.options);
	buf_done(&p.block);
	mem_free(MEM_EXPORT, p.files);
	return status;
}
