// SPDX-License-Identifier: Apache-2.0
/* flyball status: what a running agent does, as it says itself over its socket. */
#include "cli.h"

#include <argp.h>
#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "config/config.h"

#define ANSWER_BYTES_MAX (8U << 20)
#define TIMEOUT_S	 5L

enum { KEY_SOCKET = 256, KEY_JSON, KEY_WATCH };

static const struct argp_option status_options[] = {
	{"socket", KEY_SOCKET, "PATH", 0, "The agent's socket (default " CONFIG_HTTP_SOCKET ")", 0},
	{"json", KEY_JSON, NULL, 0, "Print the agent's own JSON object", 0},
	{"watch", KEY_WATCH, NULL, 0, "Again every second, until Ctrl-C", 0},
	{0},
};

struct parsed {
	const char *socket;
	bool json, watch;
	int status;
};

static error_t status_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case KEY_SOCKET:
		p->socket = arg;
		break;
	case KEY_JSON:
		p->json = true;
		break;
	case KEY_WATCH:
		p->watch = true;
		break;
	case ARGP_KEY_ARG:
		p->status = cli_usage_error("status", "status takes no argument %.100s", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return p->status ? EINVAL : 0;
}

static const struct argp status_argp = {
	.options = status_options,
	.parser = status_parse,
	.doc = "Shows what a running agent does: its ledger, store, costs and tables.\v"
	       "Exit status: 0 done, 1 something is wrong with the agent, 4 no agent answers.",
};

/* ---------------------------------------------------------------- asking */

static size_t take(char *data, size_t size, size_t count, void *ctx)
{
	struct buf *answer = ctx;

	buf_add(answer, data, size * count);
	return answer->err ? 0 : size * count;
}

static int ask(const char *socket, struct buf *answer, struct why *why)
{
	CURL *curl = curl_easy_init();
	long http_status = 0;
	CURLcode code;

	if (!curl)
		return why_set(why, -ENOMEM, "out of memory");
	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
	curl_easy_setopt(curl, CURLOPT_URL, "http://localhost/v1/status");
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, TIMEOUT_S);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
	code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http_status);
	curl_easy_cleanup(curl);
	if (code == CURLE_COULDNT_CONNECT)
		return why_set(why, -ENOENT,
			       "no agent answers on %s: start one with flyball agent, or give "
			       "--socket, or the right to open it",
			       socket);
	if (code == CURLE_OPERATION_TIMEDOUT)
		return why_set(why, -ETIMEDOUT, "the agent on %s did not answer within %ld s",
			       socket, TIMEOUT_S);
	if (code || http_status != 200)
		return why_set(why, -EIO, "the agent on %s gave no status: %s", socket,
			       code ? curl_easy_strerror(code) : "not what was asked for");
	return 0;
}

/* ---------------------------------------------------------------- showing */

/* "ledger.taken"; 0 where it is not. */
static uint64_t figure(const json_t *o, const char *path)
{
	char name[64];

	while (o) {
		size_t len = strcspn(path, ".");

		snprintf(name, sizeof(name), "%.*s", (int)len, path);
		o = json_object_get(o, name);
		if (!path[len])
			break;
		path += len + 1;
	}
	return json_is_integer(o) ? (uint64_t)json_integer_value(o) : 0;
}

static const char *bytes(const json_t *o, const char *path, char out[32])
{
	return text_bytes(figure(o, path), out, 32);
}

static double seconds_of(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void show_dropped(const json_t *o)
{
	const json_t *dropped = json_object_get(json_object_get(o, "ledger"), "dropped");
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)dropped, name, value)
	{
		if (json_integer_value(value))
			printf("  dropped    %" JSON_INTEGER_FORMAT
			       " %s (flyball explain %s says what to do)\n",
			       json_integer_value(value), name, name);
	}
}

/* Whether anything is wrong. */
static bool show_store(const json_t *o)
{
	const json_t *store = json_object_get(o, "store");
	const char *fault = json_string_value(json_object_get(store, "fault"));
	const char *directory = json_string_value(json_object_get(store, "directory"));
	char used[32], quota[32];
	uint64_t start = figure(o, "store.start_ns"), end = figure(o, "store.end_ns");

	printf("  store      %s: %" PRIu64 " blocks over %.1f h, %s of %s\n",
	       directory ? directory : "?", figure(o, "store.blocks"),
	       seconds_of(end - start) / 3600, bytes(o, "store.disk_bytes", used),
	       bytes(o, "store.quota_bytes", quota));
	if (fault)
		printf("  NOT STORED %" PRIu64 " blocks wait in memory: %s\n",
		       figure(o, "store.waiting_blocks"), fault);
	if (figure(o, "store.lost_blocks"))
		printf("  LOST       %" PRIu64 " blocks with %" PRIu64
		       " samples, for want of a disk that takes them\n",
		       figure(o, "store.lost_blocks"), figure(o, "store.lost_samples"));
	return fault || figure(o, "store.lost_blocks");
}

static void show_budget(const json_t *o)
{
	uint64_t cost = figure(o, "governor.sampling_ns") + figure(o, "governor.background_ns") +
			figure(o, "governor.bpf_ns") + figure(o, "governor.interrupt_ns");
	uint64_t capacity = figure(o, "governor.capacity_ns");

	if (!capacity)
		return;
	printf("  budget     %.2f %% of the node, of which %.2f %% was used; above it for %.1f s\n",
	       (double)figure(o, "governor.budget_ppm") / 1e4,
	       100 * (double)cost / (double)capacity, seconds_of(figure(o, "governor.over_ns")));
	printf("  tiers      %.0f s healthy, %.0f s busy (from 80 %% load), %.0f s saturated (90 "
	       "%%); "
	       "%.0f s suppressed\n",
	       seconds_of(figure(o, "governor.tier_healthy_ns")),
	       seconds_of(figure(o, "governor.tier_busy_ns")),
	       seconds_of(figure(o, "governor.tier_saturated_ns")),
	       seconds_of(figure(o, "governor.suppressed_ns")));
}

static bool show(const json_t *o)
{
	const char *version = json_string_value(json_object_get(o, "version"));
	uint64_t own = figure(o, "cost.own_user_ns") + figure(o, "cost.own_system_ns");
	double uptime = seconds_of(figure(o, "uptime_ns"));
	char a[32], b[32], c[32];
	bool is_wrong;

	printf("flyball %s, process %" PRIu64 ", up %.0f s, %" PRIu64 " Hz, windows of %.0f s\n",
	       version ? version : "?", figure(o, "pid"), uptime, figure(o, "hz"),
	       seconds_of(figure(o, "windows.window_ns")));
	printf("  samples    %" PRIu64 " taken = %" PRIu64 " delivered + %" PRIu64
	       " dropped, in %" PRIu64 " windows\n",
	       figure(o, "ledger.taken"), figure(o, "ledger.delivered"),
	       figure(o, "ledger.taken") - figure(o, "ledger.delivered"),
	       figure(o, "windows.closed"));
	show_dropped(o);
	is_wrong = show_store(o);
	show_budget(o);
	printf("  own cost   %.2f %% of one CPU since the start (BPF %.3f s), %s of memory at "
	       "most\n",
	       uptime > 0 ? 100 * seconds_of(own) / uptime : 0,
	       seconds_of(figure(o, "cost.bpf_run_ns")), bytes(o, "cost.peak_anon_bytes", a));
	printf("  kernel     %s, at most %s, of %s allowed\n",
	       bytes(o, "cost.kernel_memory_bytes", a),
	       bytes(o, "cost.kernel_memory_peak_bytes", b),
	       bytes(o, "cost.kernel_memory_budget_bytes", c));
	printf("  tables     %" PRIu64 " of %" PRIu64 " files whole, %" PRIu64
	       " in part; %s of %s\n",
	       figure(o, "tables.held"), figure(o, "tables.files"),
	       figure(o, "tables.held_in_part"), bytes(o, "tables.bytes", a),
	       bytes(o, "tables.bytes_max", b));
	if (figure(o, "windows.inexact")) {
		printf("  THE LEDGER OF %" PRIu64 " WINDOWS DOES NOT CLOSE. Please report it\n",
		       figure(o, "windows.inexact"));
		is_wrong = true;
	}
	return is_wrong;
}

static int show_once(const struct parsed *p)
{
	struct why why = {""};
	struct buf answer;
	json_t *o = NULL;
	int err, status = AGENT_EXIT_FAILED;

	buf_init(&answer, MEM_HTTP, ANSWER_BYTES_MAX);
	err = ask(p->socket, &answer, &why);
	if (!err) {
		o = json_loadb(answer.data, answer.len, 0, NULL);
		if (!o)
			err = why_set(&why, -EBADMSG, "what answers on %s is no agent", p->socket);
	}
	if (err)
		log_error("%s", why.text);
	else if (p->json)
		status = fputs(answer.data, stdout) == EOF ? AGENT_EXIT_FAILED : AGENT_EXIT_DONE;
	else
		status = show(o) ? AGENT_EXIT_FINDINGS : AGENT_EXIT_DONE;
	json_decref(o);
	buf_done(&answer);
	return status;
}

int cli_status(int argc, char **argv)
{
	struct parsed p = {.socket = CONFIG_HTTP_SOCKET};
	int status = AGENT_EXIT_FAILED;

	if (!cli_parse("status", &status_argp, argc, argv, 0, &p, &p.status, &status))
		return status;
	status = show_once(&p);
	while (p.watch && status != AGENT_EXIT_FAILED) {
		struct timespec second = {.tv_sec = 1};

		nanosleep(&second, NULL);
		if (isatty(STDOUT_FILENO) && !p.json)
			fputs("\033[H\033[J", stdout);
		status = show_once(&p);
		fflush(stdout);
	}
	return status;
}
