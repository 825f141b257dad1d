// SPDX-License-Identifier: Apache-2.0
/* http: see http.h. libmicrohttpd does the protocol; this file says who may. */
#include "http_internal.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct door {
	struct http *http;
	struct MHD_Daemon *daemon;
	bool is_tcp;
};

struct http {
	struct http_options opt;
	struct door doors[2];
	size_t door_count;
	int epoll_fd;
	char token[HTTP_TOKEN_BYTES + 1]; /* "": none */
	char *cert, *key;
	struct http_stats stats;
};

/* ---------------------------------------------------------------- one request */

static enum MHD_Result reply_send(struct MHD_Connection *connection, struct http_reply *reply)
{
	struct MHD_Response *response;
	enum MHD_Result result;

	if (reply->body.err) {
		reply->status = MHD_HTTP_INTERNAL_SERVER_ERROR;
		buf_reset(&reply->body);
		buf_add_str(&reply->body, "the answer is too large\n");
	}
	response = MHD_create_response_from_buffer(
		reply->body.len, reply->body.data ? reply->body.data : "", MHD_RESPMEM_MUST_COPY);
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", reply->type);
	MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (reply->status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
	if (reply->status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	result = MHD_queue_response(connection, reply->status, response);
	MHD_destroy_response(response);
	return result;
}

static void refuse(struct http *http, struct http_reply *reply, unsigned int status,
		   const char *text)
{
	http->stats.refused++;
	reply->status = status;
	buf_add_str(&reply->body, text);
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
	return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Takes the same time whatever is wrong in it. */
static bool has_token(const struct http *http, const char *authorization)
{
	static const char scheme[] = "Bearer ";
	unsigned int differs = 0;

	if (!http->token[0] || !authorization ||
	    strncmp(authorization, scheme, sizeof(scheme) - 1) != 0)
		return false;
	authorization += sizeof(scheme) - 1;
	if (strlen(authorization) != HTTP_TOKEN_BYTES)
		return false;
	for (size_t i = 0; i < HTTP_TOKEN_BYTES; i++)
		differs |= (unsigned char)authorization[i] ^ (unsigned char)http->token[i];
	return !differs;
}

static const struct http_path *find_path(const struct http *http, const char *path)
{
	const struct http_path *p = http->opt.paths;

	while (p->path && strcmp(p->path, path) != 0)
		p++;
	return p->path ? p : NULL;
}

static void respond(struct door *door, struct MHD_Connection *connection, const char *url,
		    const char *method, struct http_reply *reply)
{
	struct http *http = door->http;
	const struct http_path *path = find_path(http, url);
	const char *host = header(connection, "Host"), *origin = header(connection, "Origin");

	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		refuse(http, reply, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
	} else if (door->is_tcp && (!host || !http_names_us(host, http->opt.address))) {
		refuse(http, reply, MHD_HTTP_FORBIDDEN,
		       "Host does not name this machine: use its loopback address\n");
	} else if (origin && !http_names_us(origin, http->opt.address)) {
		refuse(http, reply, MHD_HTTP_FORBIDDEN, "asked by a page of another site\n");
	} else if (door->is_tcp && (!path || !path->is_open) &&
		   !has_token(http, header(connection, "Authorization"))) {
		refuse(http, reply, MHD_HTTP_UNAUTHORIZED,
		       "needs the token: \"Authorization: Bearer TOKEN\"\n");
	} else if (!path) {
		refuse(http, reply, MHD_HTTP_NOT_FOUND, "there is nothing here\n");
	} else {
		path->answer(http->opt.ctx, reply);
	}
}

/* Called once when the headers are there, then for each piece of a body, which nobody wants. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *body,
				  size_t *body_bytes, void **state)
{
	static char seen;
	struct door *door = ctx;
	struct http_reply reply = {.status = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
	const char *length = header(connection, "Content-Length");
	enum MHD_Result result;

	(void)version;
	(void)body;
	(void)body_bytes;
	buf_init(&reply.body, MEM_HTTP, HTTP_REPLY_BYTES);
	if (!*state) {
		*state = &seen;
		if ((!length || !strcmp(length, "0")) && !header(connection, "Transfer-Encoding"))
			return MHD_YES;
		/* Answered before the body came, so it is never read. */
		door->http->stats.requests++;
		refuse(door->http, &reply, MHD_HTTP_CONTENT_TOO_LARGE, "a body is not expected\n");
	} else {
		door->http->stats.requests++;
		respond(door, connection, url, method, &reply);
	}
	result = reply_send(connection, &reply);
	buf_done(&reply.body);
	return result;
}

/* ---------------------------------------------------------------- doors */

static int door_open(struct http *http, int listen_fd, bool is_tcp, struct why *why)
{
	struct door *door = &http->doors[http->door_count];
	struct epoll_event event = {.events = EPOLLIN};
	const union MHD_DaemonInfo *info;
	unsigned int flags = MHD_USE_EPOLL;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, http->cert},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, http->key},
		{MHD_OPTION_END, 0, NULL},
	};

	if (is_tcp && http->cert)
		flags |= MHD_USE_TLS;
	else
		tls[0].option = MHD_OPTION_END;
	door->http = http;
	door->is_tcp = is_tcp;
	door->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, door, MHD_OPTION_LISTEN_SOCKET, listen_fd,
		MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
		HTTP_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_REQUEST_BYTES,
		MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
	if (!door->daemon) {
		close(listen_fd);
		return why_set(why, -EIO, "the HTTP server cannot be started%s",
			       is_tcp && http->cert ? ": are certificate and key right?" : "");
	}
	http->door_count++;
	info = MHD_get_daemon_info(door->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info || epoll_ctl(http->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &event))
		return why_set(why, -EIO, "the HTTP server cannot be followed");
	return 0;
}

static int open_doors(struct http *http, struct why *why)
{
	const struct http_options *opt = &http->opt;
	int fd, err = 0;

	if (opt->socket && opt->socket[0]) {
		fd = http_listen_unix(opt->socket, why);
		err = fd < 0 ? fd : door_open(http, fd, false, why);
	}
	if (err || !opt->address || !opt->address[0])
		return err;
	fd = http_listen_tcp(opt->address, http->cert && http->token[0], why);
	return fd < 0 ? fd : door_open(http, fd, true, why);
}

int http_open(const struct http_options *options, struct http **ret, struct why *why)
{
	struct http *http = mem_alloc(MEM_HTTP, sizeof(*http));
	int err = 0;

	if (!http)
		return why_set(why, -ENOMEM, "out of memory");
	http->opt = *options;
	http->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (http->epoll_fd < 0)
		err = why_set(why, -errno, "epoll: %s", strerror(errno));
	if (!err && options->token_file && options->token_file[0])
		err = http_token_read(options->token_file, http->token, why);
	if (!err && options->cert_file && options->cert_file[0])
		err = http_pem_read(options->cert_file, &http->cert, why);
	if (!err && http->cert)
		err = http_pem_read(options->key_file ? options->key_file : "", &http->key, why);
	if (!err)
		err = open_doors(http, why);
	if (err) {
		http_close(http);
		return err;
	}
	*ret = http;
	return 0;
}

void http_close(struct http *http)
{
	if (!http)
		return;
	for (size_t i = 0; i < http->door_count; i++) {
		if (!http->doors[i].is_tcp)
			unlink(http->opt.socket);
		MHD_stop_daemon(http->doors[i].daemon);
	}
	if (http->epoll_fd >= 0)
		close(http->epoll_fd);
	explicit_bzero(http->token, sizeof(http->token));
	if (http->key)
		explicit_bzero(http->key, strlen(http->key));
	mem_free(MEM_HTTP, http->cert);
	mem_free(MEM_HTTP, http->key);
	mem_free(MEM_HTTP, http);
}

int http_fd(const struct http *http)
{
	return http->epoll_fd;
}

void http_run(struct http *http)
{
	for (size_t i = 0; i < http->door_count; i++)
		MHD_run(http->doors[i].daemon);
}

int http_wait_ms(const struct http *http, int most_ms)
{
	for (size_t i = 0; i < http->door_count; i++) {
		unsigned long long ms;

		if (MHD_get_timeout(http->doors[i].daemon, &ms) == MHD_YES &&
		    ms < (unsigned long long)most_ms)
			most_ms = (int)ms;
	}
	return most_ms;
}

void http_stats_get(const struct http *http, struct http_stats *ret)
{
	*ret = http->stats;
}
