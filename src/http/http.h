/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: the server behind the agent's API: who may ask for what, within bounds. What the answer is,
 * says the handler.
 *
 * Two doors. The Unix socket (mode 0660: its owner and group) answers everything. The TCP address
 * answers open paths to anybody who reaches it, and the others to who brings the token
 * ("Authorization: Bearer TOKEN"); an address that is not loopback needs a certificate as well. A
 * request by TCP must name this machine in Host (a loopback name or address, or the address that is
 * listened on), and in Origin where it has one: no page of another site can read us by a name that
 * it lets point here.
 *
 * GET and HEAD alone, without a body. Requests are bounded in size (HTTP_REQUEST_BYTES), number
 * (HTTP_CONNECTIONS on each door) and time (HTTP_TIMEOUT_S between two signs of life); answers by
 * HTTP_REPLY_BYTES. All of it runs in the caller's thread: http_run never waits.
 */
#ifndef FLYBALL_HTTP_H
#define FLYBALL_HTTP_H

#include "base/base.h"

#define HTTP_CONNECTIONS   64
#define HTTP_REQUEST_BYTES (32 << 10)
#define HTTP_REPLY_BYTES   (8U << 20)
#define HTTP_TIMEOUT_S	   10
#define HTTP_TOKEN_BYTES   64 /* in hexadecimal, as http_token_make writes it */

struct http_reply {
	unsigned int status; /* 200 before the call */
	const char *type;    /* Content-Type; "text/plain; charset=utf-8" before the call */
	struct buf body;     /* empty before the call */
};
struct http_path {
	const char *path; /* as it is asked for: "/metrics" */
	bool is_open;	  /* by TCP without a token */
	void (*answer)(void *ctx, struct http_reply *reply);
};

struct http_options {
	const char *socket;	/* path; NULL or "": none */
	const char *address;	/* "127.0.0.1:7777", "[::1]:7777"; NULL or "": none */
	const char *token_file; /* made, mode 0600, when it is not there; NULL: only open paths */
	const char *cert_file, *key_file; /* PEM; NULL: no TLS */
	const struct http_path *paths;	  /* until one with path NULL; they outlive the server */
	void *ctx;
};

struct http;
/* Errors name the address or the file: in use, not permitted, not loopback without TLS and token. A
 * socket that nobody listens on any more is replaced. */
int http_open(const struct http_options *options, struct http **ret, struct why *why);
void http_close(struct http *http); /* removes the socket; NULL is fine */
/* Readable when http_run has work. */
int http_fd(const struct http *http);
void http_run(struct http *http);
/* How long http_run may be left alone, at most most_ms: connections time out. */
int http_wait_ms(const struct http *http, int most_ms);

struct http_stats {
	uint64_t requests, refused; /* refused: 4xx of this part */
};
void http_stats_get(const struct http *http, struct http_stats *ret);

/* For tests: whether a Host or Origin header's value names this machine. */
bool http_names_us(const char *value, const char *address);

#endif
