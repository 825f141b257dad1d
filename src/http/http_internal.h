/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of http/ share. http.c answers, http_listen.c opens sockets and files. */
#ifndef FLYBALL_HTTP_INTERNAL_H
#define FLYBALL_HTTP_INTERNAL_H

#include "http/http.h"

/* A listening descriptor, not blocking, or negative errno. */
int http_listen_unix(const char *path, struct why *why);
/* is_guarded: with certificate and token, so that it may be any address. */
int http_listen_tcp(const char *address, bool is_guarded, struct why *why);
/* Reads it, or makes it where there is none. */
int http_token_read(const char *path, char token[HTTP_TOKEN_BYTES + 1], struct why *why);
/* The whole file, NUL-terminated, by mem_alloc(MEM_HTTP). */
int http_pem_read(const char *path, char **ret, struct why *why);

#endif
