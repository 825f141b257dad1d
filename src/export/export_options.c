// SPDX-License-Identifier: Apache-2.0
/* export_options: kinds by name, where requests go, and the environment of OpenTelemetry
 * (specification/protocol/exporter.md; the names for profiles follow those of the other signals).
 */
#include "export_private.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

static const struct export_kind_traits kinds[EXPORT_KINDS] = {
	[EXPORT_GRPC] = {"grpc", EXPORT_PROTOCOL_GRPC, false,
			 "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/"
			 "Export",
			 "application/grpc"},
	[EXPORT_HTTP] = {"http", EXPORT_PROTOCOL_OTLP_HTTP, false, "/v1development/profiles",
			 "application/x-protobuf"},
	[EXPORT_PYROSCOPE] = {"pyroscope", EXPORT_PROTOCOL_HTTP, true, "/ingest",
			      "application/octet-stream"},
	[EXPORT_PARCA] = {"parca", EXPORT_PROTOCOL_GRPC, true,
			  "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
			  "application/grpc"},
};

static const char *const compressions[] = {"none", "gzip", "zstd"};

const struct export_kind_traits *export_kind_traits(enum export_kind kind)
{
	return &kinds[kind];
}

const char *export_kind_name(enum export_kind kind)
{
	return kinds[kind].name;
}

bool export_kind_takes_pprof(enum export_kind kind)
{
	return kinds[kind].takes_pprof;
}

int export_kind_parse(const char *text, enum export_kind *ret, struct why *why)
{
	for (int i = 0; i < EXPORT_KINDS; i++) {
		if (!strcmp(text, kinds[i].name)) {
			*ret = (enum export_kind)i;
			return 0;
		}
	}
	if (!strcmp(text, "http/protobuf")) {
		*ret = EXPORT_HTTP;
		return 0;
	}
	return why_set(why, -EINVAL,
		       "%.50s is no kind of receiver; there are grpc, http, pyroscope, parca",
		       text);
}

int export_compression_parse(const char *text, enum export_compression *ret, struct why *why)
{
	for (size_t i = 0; i < ARRAY_SIZE(compressions); i++) {
		if (!strcmp(text, compressions[i])) {
			*ret = (enum export_compression)i;
			return 0;
		}
	}
	return why_set(why, -EINVAL, "%.50s is no compression; there are none, gzip, zstd", text);
}

void export_options_init(struct export_options *o)
{
	*o = (struct export_options){.compression = EXPORT_GZIP,
				     .timeout_ns = EXPORT_TIMEOUT_NS,
				     .request_max_bytes = EXPORT_REQUEST_MAX_BYTES,
				     .backoff_ns = 1000000000,
				     .backoff_max_ns = 30000000000ULL};
}

void export_options_done(struct export_options *o)
{
	for (size_t i = 0; i < o->header_count; i++)
		mem_free(MEM_EXPORT, o->headers[i]);
	o->header_count = 0;
}

/* ------------------------------------------------------------------ headers */

static bool is_token(const char *s, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (s[i] <= ' ' || s[i] >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", s[i]))
			return false;
	}
	return bytes;
}

static int header_add(struct export_options *o, const char *name, size_t name_bytes,
		      const char *value, size_t value_bytes, struct why *why)
{
	struct buf line;
	char *copy;

	for (size_t i = 0; i < value_bytes; i++) {
		if ((unsigned char)value[i] < ' ' && value[i] != '\t')
			return why_set(why, -EINVAL,
				       "the value of the header %.*s has control characters",
				       (int)name_bytes, name);
	}
	if (!is_token(name, name_bytes))
		return why_set(why, -EINVAL, "a header is given as \"Name: value\"");
	if (o->header_count == EXPORT_HEADERS_MAX)
		return why_set(why, -ENOSPC, "there are more than %d headers", EXPORT_HEADERS_MAX);
	buf_init(&line, MEM_EXPORT, 16384);
	buf_add(&line, name, name_bytes);
	buf_add_str(&line, ": ");
	buf_add(&line, value, value_bytes);
	copy = line.err ? NULL : mem_copy_string(MEM_EXPORT, line.data);
	buf_done(&line);
	if (!copy)
		return why_set(why, -ENOMEM, "a header is too long, or memory is out");
	o->headers[o->header_count++] = copy;
	return 0;
}

int export_options_header(struct export_options *o, const char *text, struct why *why)
{
	size_t name = strcspn(text, ":=");
	const char *value = text + name + (text[name] ? 1 : 0);

	value += strspn(value, " \t");
	return header_add(o, text, text[name] ? name : 0, value, strlen(value), why);
}

/* "key=value,key2=value2", values percent-encoded (W3C Baggage without properties). */
static int env_headers(struct export_options *o, const char *text, struct why *why)
{
	int err = 0;

	while (*text && !err) {
		size_t pair = strcspn(text, ","), name;
		const char *value, *next = text + pair + (text[pair] ? 1 : 0);
		char *plain;
		int n = 0;

		for (; pair && strchr(" \t", *text); pair--)
			text++;
		while (pair && strchr(" \t", text[pair - 1]))
			pair--;
		name = strcspn(text, "=");
		if (pair && name < pair) {
			value = text + name + 1;
			plain = curl_easy_unescape(NULL, value, (int)(pair - name - 1), &n);
			err = plain ? header_add(o, text, name, plain, (size_t)n, why) : -ENOMEM;
			curl_free(plain);
		} else if (pair) {
			err = why_set(why, -EINVAL, "a header is given as name=value");
		}
		text = next;
	}
	return err;
}

/* ------------------------------------------------------------------ environment */

struct env {
	char *(*get)(const char *name);
	char name[64]; /* of what was found last, for messages */
};

/* The signal's own variable before the general one; empty counts as not set. */
static const char *env_get(struct env *env, const char *what)
{
	const char *value;

	snprintf(env->name, sizeof(env->name), "OTEL_EXPORTER_OTLP_PROFILES_%s", what);
	value = env->get(env->name);
	if (value && value[0])
		return value;
	snprintf(env->name, sizeof(env->name), "OTEL_EXPORTER_OTLP_%s", what);
	value = env->get(env->name);
	return value && value[0] ? value : NULL;
}

static int env_parse(struct export_options *o, struct env *env, struct why *why)
{
	const char *value = env_get(env, "PROTOCOL");
	uint64_t ms;
	int err = 0;

	if (value) {
		err = export_kind_parse(value, &o->kind, why);
		o->has_kind = !err;
	}
	if (!err && (value = env_get(env, "COMPRESSION")))
		err = export_compression_parse(value, &o->compression, why);
	if (!err && (value = env_get(env, "HEADERS")))
		err = env_headers(o, value, why);
	if (!err && (value = env_get(env, "TIMEOUT"))) {
		if (text_parse_u64(value, 1, 3600000, &ms))
			err = why_set(why, -EINVAL, "%.50s is no number of milliseconds", value);
		else
			o->timeout_ns = ms * 1000000;
	}
	return err;
}

int export_options_env(struct export_options *o, char *(*get)(const char *name), struct why *why)
{
	struct env env = {.get = get};
	const char *insecure;
	int err = env_parse(o, &env, why);

	if (err) {
		why_prefix(why, "%s", env.name);
		return err;
	}
	o->url = env_get(&env, "ENDPOINT");
	o->is_whole_url = o->url && !strcmp(env.name, "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT");
	o->ca = env_get(&env, "CERTIFICATE");
	o->certificate = env_get(&env, "CLIENT_CERTIFICATE");
	o->key = env_get(&env, "CLIENT_KEY");
	insecure = env_get(&env, "INSECURE");
	o->is_insecure = insecure && !strcasecmp(insecure, "true");
	return 0;
}

/* ------------------------------------------------------------------ URL */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static int put_url(struct export_options *o, CURLU *u, char *ret, struct why *why)
{
	char *port = NULL, *path = NULL, *whole = NULL;
	char joined[EXPORT_URL_MAX];
	const char *own;
	size_t n;
	int err = 0;

	if (curl_url_get(u, CURLUPART_PATH, &path, 0) || !path)
		return why_set(why, -ENOMEM, "out of memory");
	if (!o->has_kind) {
		o->kind = !curl_url_get(u, CURLUPART_PORT, &port, 0) && !strcmp(port, "4317")
				  ? EXPORT_GRPC
				  : EXPORT_HTTP;
		o->has_kind = true;
	}
	own = kinds[o->kind].path;
	n = strlen(path);
	while (n && path[n - 1] == '/')
		path[--n] = '\0';
	if (kinds[o->kind].protocol == EXPORT_PROTOCOL_GRPC && n && !ends_with(path, own))
		err = why_set(why, -EINVAL, "gRPC takes no path: leave out %.100s", path);
	snprintf(joined, sizeof(joined), "%s%s", path, ends_with(path, own) ? "" : own);
	if (!err && (!o->is_whole_url || kinds[o->kind].protocol == EXPORT_PROTOCOL_GRPC))
		curl_url_set(u, CURLUPART_PATH, joined, 0);
	if (!err && curl_url_get(u, CURLUPART_URL, &whole, 0))
		err = why_set(why, -EINVAL, "no URL can be made of it");
	if (!err && strlen(whole) >= EXPORT_URL_MAX)
		err = why_set(why, -EINVAL, "it is longer than %d", EXPORT_URL_MAX);
	if (!err)
		memcpy(ret, whole, strlen(whole) + 1);
	curl_free(port);
	curl_free(path);
	curl_free(whole);
	return err;
}

int export_options_url(struct export_options *o, char ret[EXPORT_URL_MAX], struct why *why)
{
	char full[EXPORT_URL_MAX], *scheme = NULL, *user = NULL;
	CURLU *u;
	int err;

	if (!o->url || !o->url[0])
		return why_set(why, -EINVAL, "no URL of a receiver was given");
	u = curl_url();
	err = u ? 0 : -ENOMEM;
	if (!err) {
		/* OTel's gRPC endpoints may come without a scheme, and then INSECURE decides. */
		const char *scheme_of_none = o->is_insecure ? "http://" : "https://";
		size_t n = (size_t)snprintf(full, sizeof(full), "%s%s",
					    strstr(o->url, "://") ? "" : scheme_of_none, o->url);

		if (n >= sizeof(full) || curl_url_set(u, CURLUPART_URL, full, 0) ||
		    curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) || !scheme ||
		    (strcmp(scheme, "http") && strcmp(scheme, "https")))
			err = why_set(why, -EINVAL, "%.100s is no http:// or https:// URL", o->url);
	}
	if (!err && !curl_url_get(u, CURLUPART_USER, &user, 0))
		err = why_set(why, -EINVAL, "credentials go into a header, not into the URL");
	if (!err)
		err = put_url(o, u, ret, why);
	curl_free(scheme);
	curl_free(user);
	curl_url_cleanup(u);
	return err;
}
