// SPDX-License-Identifier: Apache-2.0
/*
 * export: one libcurl multi handle with one transfer at a time, driven by an epoll descriptor
 * (curl_multi_socket_action). A block is in one of three states: none, sending, waiting to be sent
 * again. The body of a request is made once and stays for all its attempts.
 */
#include "export_private.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#define EVENTS_MAX 8
#define CONNECT_MS 5000

enum state { STATE_IDLE, STATE_SENDING, STATE_WAITING };

struct export
{
	struct export_options options;
	struct export_source source;
	struct export_stats stats;
	const struct export_kind_traits *kind;
	char url[EXPORT_URL_MAX];
	CURLM *multi;
	CURL *easy;
	struct curl_slist *headers;
	int epoll_fd;
	uint64_t curl_wake_ns;
	enum state state;
	struct export_block block;
	struct export_bodies bodies;
	struct why warning;    /* of the block, from a partial success */
	unsigned int failures; /* in a row */
	uint64_t retry_at_ns, give_up_at_ns;
	struct export_answer answer;
	char curl_text[CURL_ERROR_SIZE];
};

/* ------------------------------------------------------------------ libcurl's side */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *unused)
{
	struct export *e = ctx;
	struct epoll_event event = {.data.fd = fd};

	(void)easy;
	(void)unused;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(e->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	event.events =
		(what & CURL_POLL_IN ? EPOLLIN : 0U) | (what & CURL_POLL_OUT ? EPOLLOUT : 0U);
	if (epoll_ctl(e->epoll_fd, EPOLL_CTL_MOD, fd, &event) &&
	    epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &event))
		return -1;
	return 0;
}

static int on_timer(CURLM *multi, long ms, void *ctx)
{
	struct export *e = ctx;

	(void)multi;
	e->curl_wake_ns = ms < 0 ? UINT64_MAX : clock_monotonic_ns() + (uint64_t)ms * 1000000;
	return 0;
}

static size_t on_header(char *data, size_t size, size_t count, void *ctx)
{
	export_answer_line(&((struct export *)ctx)->answer, data, size * count);
	return size * count;
}

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
	return export_answer_data(&((struct export *)ctx)->answer, data, size * count)
		       ? 0
		       : size * count;
}

static int add_header(struct export *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int add_header(struct export *e, const char *fmt, ...)
{
	char line[256];
	struct curl_slist *more;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	more = curl_slist_append(e->headers, line);
	if (!more)
		return -ENOMEM;
	e->headers = more;
	return 0;
}

static int set_headers(struct export *e)
{
	static const char *const encodings[] = {NULL, "gzip", "zstd"};
	const char *encoding = e->kind->takes_pprof ? NULL : encodings[e->options.compression];
	bool is_grpc = e->kind->protocol == EXPORT_PROTOCOL_GRPC;
	int err = add_header(e, "Content-Type: %s", e->kind->content_type);

	if (!err)
		err = add_header(e, "Expect:");
	if (!err && encoding)
		err = add_header(e, "%s: %s", is_grpc ? "grpc-encoding" : "Content-Encoding",
				 encoding);
	if (!err && is_grpc)
		err = add_header(e, "TE: trailers");
	if (!err && is_grpc)
		err = add_header(e, "grpc-timeout: %llum",
				 (unsigned long long)(e->options.timeout_ns / 1000000));
	for (size_t i = 0; i < e->options.header_count && !err; i++) {
		struct curl_slist *more = curl_slist_append(e->headers, e->options.headers[i]);

		err = more ? 0 : -ENOMEM;
		e->headers = more ? more : e->headers;
	}
	return err;
}

static void set_tls(struct export *e)
{
	const struct export_options *o = &e->options;

	if (o->ca)
		curl_easy_setopt(e->easy, CURLOPT_CAINFO, o->ca);
	if (o->certificate)
		curl_easy_setopt(e->easy, CURLOPT_SSLCERT, o->certificate);
	if (o->key)
		curl_easy_setopt(e->easy, CURLOPT_SSLKEY, o->key);
}

static bool is_tls(const struct export *e)
{
	return !strncmp(e->url, "https:", 6);
}

static void set_transfer(struct export *e)
{
	CURL *c = e->easy;

	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	if (e->kind->protocol == EXPORT_PROTOCOL_GRPC)
		curl_easy_setopt(c, CURLOPT_HTTP_VERSION,
				 is_tls(e) ? (long)CURL_HTTP_VERSION_2TLS
					   : (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
	else
		curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	/* Before 8.0 libcurl fails on a connection of this kind that it uses again. */
	if (e->kind->protocol == EXPORT_PROTOCOL_GRPC && !is_tls(e) &&
	    curl_version_info(CURLVERSION_NOW)->version_num < 0x080000)
		curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(c, CURLOPT_POST, 1L);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, e->headers);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "flyball/" FLYBALL_VERSION);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	/* A name that is still being resolved when time is over must not hold up the caller. */
	curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(e->options.timeout_ns / 1000000));
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, e);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, e);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, e->curl_text);
	set_tls(e);
}

/* ------------------------------------------------------------------ life */

static int open_curl(struct export *e)
{
	int err;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	e->multi = curl_multi_init();
	e->easy = curl_easy_init();
	if (!e->multi || !e->easy)
		return -ENOMEM;
	curl_multi_setopt(e->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(e->multi, CURLMOPT_SOCKETDATA, e);
	curl_multi_setopt(e->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(e->multi, CURLMOPT_TIMERDATA, e);
	err = set_headers(e);
	if (!err)
		set_transfer(e);
	return err;
}

static int check_files(const struct export_options *o, struct why *why)
{
	const char *const files[] = {o->ca, o->certificate, o->key};

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (files[i] && access(files[i], R_OK))
			return why_set(why, -EINVAL, "cannot read %.200s: %s", files[i],
				       strerror(errno));
	}
	if (o->key && !o->certificate)
		return why_set(why, -EINVAL, "there is a key, but no certificate");
	return 0;
}

int export_open(const struct export_options *options, const struct export_source *source,
		struct export **ret, struct why *why)
{
	struct export *e = mem_alloc(MEM_EXPORT, sizeof(*e));
	int err;

	if (!e)
		return why_set(why, -ENOMEM, "out of memory");
	e->options = *options;
	e->source = *source;
	e->curl_wake_ns = UINT64_MAX;
	e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	export_bodies_init(&e->bodies, &e->options);
	err = e->epoll_fd < 0 ? -errno : export_options_url(&e->options, e->url, why);
	e->kind = export_kind_traits(e->options.kind);
	export_answer_init(&e->answer, e->kind->protocol);
	if (!err)
		err = check_files(&e->options, why);
	if (!err && open_curl(e))
		err = why_set(why, -ENOMEM, "libcurl cannot be set up");
	if (err) {
		export_close(e);
		return err;
	}
	*ret = e;
	return 0;
}

void export_close(struct export *e)
{
	if (!e)
		return;
	if (e->state == STATE_SENDING)
		curl_multi_remove_handle(e->multi, e->easy);
	curl_easy_cleanup(e->easy);
	curl_multi_cleanup(e->multi);
	curl_slist_free_all(e->headers);
	if (e->epoll_fd >= 0)
		close(e->epoll_fd);
	export_answer_done(&e->answer);
	export_bodies_done(&e->bodies);
	mem_free(MEM_EXPORT, e);
}

int export_fd(const struct export *e)
{
	return e->epoll_fd;
}

uint64_t export_wake_ns(const struct export *e)
{
	if (e->state == STATE_WAITING)
		return e->retry_at_ns < e->curl_wake_ns ? e->retry_at_ns : e->curl_wake_ns;
	return e->curl_wake_ns;
}

bool export_is_idle(const struct export *e)
{
	return e->state == STATE_IDLE;
}

void export_stats(const struct export *e, struct export_stats *ret)
{
	*ret = e->stats;
}

const char *export_url(const struct export *e)
{
	return e->url;
}

/* ------------------------------------------------------------------ sending */

static void settle(struct export *e, enum export_outcome outcome, const struct why *why)
{
	uint64_t *const counters[] = {[EXPORT_DELIVERED] = &e->stats.delivered,
				      [EXPORT_REFUSED] = &e->stats.refused,
				      [EXPORT_GIVEN_UP] = &e->stats.given_up};

	++*counters[outcome];
	e->state = STATE_IDLE;
	e->source.settle(e->source.ctx, &e->block, outcome, why);
}

/* /ingest wants to know what and when in its query. */
static void put_query(struct export *e, char url[EXPORT_URL_MAX + 512])
{
	const char *service = e->options.service ? e->options.service : "flyball";
	char *escaped = curl_easy_escape(e->easy, service, 0);
	int n = snprintf(url, EXPORT_URL_MAX + 512, "%s%cname=%.200s&format=pprof&spyName=flyball",
			 e->url, strchr(e->url, '?') ? '&' : '?', escaped ? escaped : "flyball");

	curl_free(escaped);
	if (n > 0 && n < EXPORT_URL_MAX + 400 && e->block.start_ns)
		snprintf(url + n, EXPORT_URL_MAX + 512 - (size_t)n, "&from=%llu&until=%llu",
			 (unsigned long long)(e->block.start_ns / 1000000000),
			 (unsigned long long)(e->block.end_ns / 1000000000));
}

static void send_body(struct export *e)
{
	char url[EXPORT_URL_MAX + 512];

	if (e->options.kind == EXPORT_PYROSCOPE)
		put_query(e, url);
	else
		memcpy(url, e->url, sizeof(e->url));
	export_answer_reset(&e->answer);
	e->curl_text[0] = '\0';
	curl_easy_setopt(e->easy, CURLOPT_URL, url);
	curl_easy_setopt(e->easy, CURLOPT_POSTFIELDS, e->bodies.body.data);
	curl_easy_setopt(e->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)e->bodies.body.len);
	e->stats.attempts++;
	e->state = STATE_SENDING;
	curl_multi_add_handle(e->multi, e->easy);
}

static uint64_t random_below(uint64_t n)
{
	uint64_t r = 0;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = clock_monotonic_ns();
	return n ? r % n : 0;
}

/* What the receiver asks for and up to a tenth more; else 1.5 times longer with each failure, and
 * half of that either way. */
static uint64_t delay_of(const struct export *e, const struct export_judgement *j)
{
	uint64_t delay = e->options.backoff_ns;

	if (j->has_retry)
		return j->retry_ns + random_below(j->retry_ns / 10);
	for (unsigned int i = 1; i < e->failures && delay < e->options.backoff_max_ns; i++)
		delay += delay / 2;
	if (delay > e->options.backoff_max_ns)
		delay = e->options.backoff_max_ns;
	return delay / 2 + random_below(delay);
}

static void send_again(struct export *e, const struct export_judgement *j)
{
	uint64_t delay, now = clock_monotonic_ns();

	e->failures++;
	delay = delay_of(e, j);
	if (e->options.give_up_ns && now + delay >= e->give_up_at_ns) {
		settle(e, EXPORT_GIVEN_UP, &j->why);
		return;
	}
	e->stats.retries++;
	e->state = STATE_WAITING;
	e->retry_at_ns = now + delay;
	if (e->source.retry)
		e->source.retry(e->source.ctx, &j->why, delay);
}

static void accepted(struct export *e, const struct export_judgement *j)
{
	struct why why = {""};
	int more;

	e->failures = 0;
	e->stats.requests++;
	e->stats.encoded_bytes += e->bodies.encoded_bytes;
	e->stats.wire_bytes += e->bodies.body.len;
	e->stats.rejected_profiles += j->rejected_profiles;
	if (j->why.text[0])
		e->warning = j->why;
	more = export_bodies_next(&e->bodies, &why);
	if (more > 0)
		send_body(e);
	else
		settle(e, more ? EXPORT_REFUSED : EXPORT_DELIVERED, more ? &why : &e->warning);
}

/* ------------------------------------------------------------------ what came back */

static void why_of_tls(const struct export *e, const char *text, struct why *why)
{
	why_set(why, 0, "TLS: %s%s", text,
		e->options.certificate ? ""
				       : " (a receiver may want a client certificate: --cert)");
}

/* Of TLS 1.3 a client is refused after its handshake is done: whether the alert or the end of the
 * connection is seen first is a matter of luck. */
static void why_of_break(const struct export *e, const char *text, struct why *why)
{
	const char *hint = "";

	if (!e->answer.status && is_tls(e) && !e->options.certificate)
		hint = " (a receiver may want a client certificate: --cert)";
	else if (!e->answer.status)
		hint = e->kind->protocol == EXPORT_PROTOCOL_GRPC ? " (is this a port for gRPC?)"
								 : " (is this a port for HTTP?)";
	why_set(why, 0, "the connection broke: %s%s", text, hint);
}

static void why_of_curl(const struct export *e, CURLcode code, struct why *why)
{
	const char *text = e->curl_text[0] ? e->curl_text : curl_easy_strerror(code);

	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		why_set(why, 0, "DNS: %s", text);
		break;
	case CURLE_COULDNT_CONNECT:
		why_set(why, 0, "nothing takes the connection: %s", text);
		break;
	case CURLE_OPERATION_TIMEDOUT:
		why_set(why, 0, "no answer in time: %s", text);
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
		why_set(why, 0, "TLS: its certificate is not trusted: %s", text);
		break;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
		why_of_tls(e, text, why);
		break;
	default:
		if (strstr(text, "SSL routines"))
			why_of_tls(e, text, why);
		else
			why_of_break(e, text, why);
		break;
	}
}

/* Errors of our own set-up do not go away. */
static bool is_ours(CURLcode code)
{
	switch (code) {
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_URL_MALFORMAT:
		return true;
	default:
		return false;
	}
}

static void judge(struct export *e, CURLcode code, struct export_judgement *j)
{
	struct export_answer *a = &e->answer;
	curl_off_t after = 0;
	/* A status that came is worth more than how the connection ended. */
	bool has_status = a->protocol == EXPORT_PROTOCOL_GRPC ? a->grpc_status >= 0 || !code
							      : a->status >= 300 || !code;

	memset(j, 0, sizeof(*j));
	if (a->is_too_long) {
		j->verdict = EXPORT_AGAIN;
		why_set(&j->why, 0, "the answer is longer than %d bytes", EXPORT_ANSWER_MAX_BYTES);
	}
	if (a->status && has_status) {
		curl_easy_getinfo(e->easy, CURLINFO_RETRY_AFTER, &after);
		if (after > 0) {
			a->has_retry = true;
			a->retry_ns = (uint64_t)after < EXPORT_RETRY_MAX_NS / 1000000000
					      ? (uint64_t)after * 1000000000
					      : EXPORT_RETRY_MAX_NS;
		}
		export_answer_judge(a, j);
	} else if (!a->is_too_long) {
		j->verdict = is_ours(code) ? EXPORT_NEVER : EXPORT_AGAIN;
		why_of_curl(e, code, &j->why);
	}
}

static void finished(struct export *e, CURLcode code)
{
	struct export_judgement j;

	judge(e, code, &j);
	curl_multi_remove_handle(e->multi, e->easy);
	switch (j.verdict) {
	case EXPORT_ACCEPTED:
		accepted(e, &j);
		break;
	case EXPORT_AGAIN:
		send_again(e, &j);
		break;
	case EXPORT_NEVER:
		settle(e, EXPORT_REFUSED, &j.why);
		break;
	}
}

static void begin_next(struct export *e)
{
	struct why why = {""};
	int got = e->source.next(e->source.ctx, &e->block, &why), err;

	if (got < 0)
		e->stats.source_errors++;
	if (got <= 0)
		return;
	e->warning.text[0] = '\0';
	e->give_up_at_ns = clock_monotonic_ns() + e->options.give_up_ns;
	err = export_bodies_begin(&e->bodies, &e->block, &why);
	if (err)
		settle(e, EXPORT_REFUSED, &why);
	else
		send_body(e);
}

static void drive_curl(struct export *e)
{
	struct epoll_event events[EVENTS_MAX];
	int running, n = epoll_wait(e->epoll_fd, events, EVENTS_MAX, 0);

	for (int i = 0; i < n; i++) {
		uint32_t got = events[i].events;

		curl_multi_socket_action(
			e->multi, events[i].data.fd,
			(got & EPOLLIN ? CURL_CSELECT_IN : 0) |
				(got & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
				(got & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
			&running);
	}
	if (clock_monotonic_ns() >= e->curl_wake_ns) {
		e->curl_wake_ns = UINT64_MAX;
		curl_multi_socket_action(e->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
}

void export_step(struct export *e)
{
	CURLMsg *message;
	int left;

	drive_curl(e);
	while ((message = curl_multi_info_read(e->multi, &left))) {
		if (message->msg == CURLMSG_DONE)
			finished(e, message->data.result);
	}
	if (e->state == STATE_WAITING && clock_monotonic_ns() >= e->retry_at_ns)
		send_body(e);
	if (e->state == STATE_IDLE)
		begin_next(e);
}
