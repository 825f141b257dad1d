// SPDX-License-Identifier: Apache-2.0
/*
 * export_answer: OTLP's table of results (OTLP specification, "Failures" of gRPC and HTTP), the
 * mapping of HTTP to gRPC codes (gRPC's http-grpc-status-mapping), and gRPC's framing.
 */
#include "export_answer.h"

#include "rpc.pb-c.h"

#include <errno.h>
#include <inttypes.h>
#include <protobuf-c/protobuf-c.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>
#include <zlib.h>
#include <zstd.h>

#define DETAILS_MAX  8192
#define FRAME_HEAD   5
#define UNPACKED_MAX 16384

static void *allocate(void *ctx, size_t bytes)
{
	(void)ctx;
	return mem_alloc(MEM_EXPORT, bytes);
}

static void release(void *ctx, void *p)
{
	(void)ctx;
	mem_free(MEM_EXPORT, p);
}

static ProtobufCAllocator allocator = {.alloc = allocate, .free = release};

static const char *const code_names[] = {
	"OK",
	"CANCELLED",
	"UNKNOWN",
	"INVALID_ARGUMENT",
	"DEADLINE_EXCEEDED",
	"NOT_FOUND",
	"ALREADY_EXISTS",
	"PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION",
	"ABORTED",
	"OUT_OF_RANGE",
	"UNIMPLEMENTED",
	"INTERNAL",
	"UNAVAILABLE",
	"DATA_LOSS",
	"UNAUTHENTICATED",
};
enum {
	CODE_OK = 0,
	CODE_CANCELLED = 1,
	CODE_UNKNOWN = 2,
	CODE_INVALID_ARGUMENT = 3,
	CODE_DEADLINE_EXCEEDED = 4,
	CODE_PERMISSION_DENIED = 7,
	CODE_RESOURCE_EXHAUSTED = 8,
	CODE_ABORTED = 10,
	CODE_OUT_OF_RANGE = 11,
	CODE_UNIMPLEMENTED = 12,
	CODE_INTERNAL = 13,
	CODE_UNAVAILABLE = 14,
	CODE_DATA_LOSS = 15,
	CODE_UNAUTHENTICATED = 16,
};

void export_answer_init(struct export_answer *a, enum export_protocol protocol)
{
	memset(a, 0, sizeof(*a));
	a->protocol = protocol;
	a->grpc_status = -1;
	buf_init(&a->body, MEM_EXPORT, EXPORT_ANSWER_MAX_BYTES);
}

void export_answer_done(struct export_answer *a)
{
	buf_done(&a->body);
}

void export_answer_reset(struct export_answer *a)
{
	struct buf body = a->body;
	enum export_protocol protocol = a->protocol;

	memset(a, 0, sizeof(*a));
	a->protocol = protocol;
	a->grpc_status = -1;
	a->body = body;
	buf_reset(&a->body);
}

/* ------------------------------------------------------------------ heads and trailers */

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* grpc-message: %XX; anything malformed stands for itself. */
static void take_message(struct export_answer *a, const char *text, size_t bytes)
{
	char plain[sizeof(a->message)];
	size_t n = 0;

	for (size_t i = 0; i < bytes && n < sizeof(plain); i++) {
		if (text[i] == '%' && i + 2 < bytes && hex(text[i + 1]) >= 0 &&
		    hex(text[i + 2]) >= 0) {
			plain[n++] = (char)(hex(text[i + 1]) << 4 | hex(text[i + 2]));
			i += 2;
		} else {
			plain[n++] = text[i];
		}
	}
	text_print(plain, n, a->message, sizeof(a->message));
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

/* With or without padding. Returns bytes written, 0 where it is malformed or too long. */
static size_t base64_decode(const char *text, size_t bytes, uint8_t out[DETAILS_MAX])
{
	uint32_t bits = 0;
	unsigned int have = 0;
	size_t n = 0;

	while (bytes && text[bytes - 1] == '=')
		bytes--;
	for (size_t i = 0; i < bytes; i++) {
		int digit = base64_digit(text[i]);

		if (digit < 0 || n >= DETAILS_MAX)
			return 0;
		bits = bits << 6 | (uint32_t)digit;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[n++] = (uint8_t)(bits >> have);
		}
	}
	return n;
}

static void set_retry(struct export_answer *a, uint64_t seconds, uint64_t ns)
{
	a->has_retry = true;
	a->retry_ns = seconds >= EXPORT_RETRY_MAX_NS / 1000000000 ? EXPORT_RETRY_MAX_NS
								  : seconds * 1000000000 + ns;
}

static void take_retry_info(struct export_answer *a, const Rpc__Any *any)
{
	const char *slash = strrchr(any->type_url, '/');
	Rpc__RetryInfo *info;

	if (strcmp(slash ? slash + 1 : any->type_url, "google.rpc.RetryInfo"))
		return;
	info = rpc__retry_info__unpack(&allocator, any->value.len, any->value.data);
	if (!info)
		return;
	if (!info->retry_delay)
		set_retry(a, 0, 0);
	else if (info->retry_delay->seconds >= 0 && info->retry_delay->nanos >= 0 &&
		 info->retry_delay->nanos < 1000000000)
		set_retry(a, (uint64_t)info->retry_delay->seconds,
			  (uint64_t)info->retry_delay->nanos);
	rpc__retry_info__free_unpacked(info, &allocator);
}

/* google.rpc.Status; its message is taken where none came otherwise. */
static bool take_status(struct export_answer *a, const void *data, size_t bytes)
{
	Rpc__Status *status = rpc__status__unpack(&allocator, bytes, data);

	if (!status)
		return false;
	if (!a->message[0])
		text_print(status->message, strlen(status->message), a->message,
			   sizeof(a->message));
	for (size_t i = 0; i < status->n_details; i++)
		take_retry_info(a, status->details[i]);
	rpc__status__free_unpacked(status, &allocator);
	return true;
}

static void take_grpc_status(struct export_answer *a, const char *value)
{
	uint64_t code;

	a->grpc_status = text_parse_u64(value, 0, INT32_MAX, &code) ? CODE_UNKNOWN : (int)code;
}

static void take_field(struct export_answer *a, const char *name, const char *value, size_t bytes)
{
	uint8_t details[DETAILS_MAX];

	if (!strcasecmp(name, "content-type")) {
		a->is_protobuf = !strncasecmp(value, "application/x-protobuf", 22);
		a->is_grpc = !strncasecmp(value, "application/grpc", 16);
	} else if (!strcasecmp(name, "grpc-encoding")) {
		a->encoding = !strcasecmp(value, "gzip")   ? EXPORT_ANSWER_GZIP
			      : !strcasecmp(value, "zstd") ? EXPORT_ANSWER_ZSTD
							   : EXPORT_ANSWER_PLAIN;
	} else if (!strcasecmp(name, "grpc-status")) {
		take_grpc_status(a, value);
	} else if (!strcasecmp(name, "grpc-message")) {
		take_message(a, value, bytes);
	} else if (!strcasecmp(name, "grpc-status-details-bin")) {
		take_status(a, details, base64_decode(value, bytes, details));
	}
}

void export_answer_line(struct export_answer *a, const char *line, size_t bytes)
{
	char text[DETAILS_MAX * 2], *value;
	uint64_t status;

	while (bytes && strchr("\r\n \t", line[bytes - 1]))
		bytes--;
	if (bytes >= sizeof(text) || memchr(line, '\0', bytes))
		return;
	memcpy(text, line, bytes);
	text[bytes] = '\0';
	if (!strncmp(text, "HTTP/", 5)) {
		export_answer_reset(a);
		value = strchr(text, ' ');
		if (value && strlen(value) >= 4) {
			value[4] = '\0';
			a->status = text_parse_u64(value + 1, 100, 999, &status) ? 0 : (long)status;
		}
		return;
	}
	value = strchr(text, ':');
	if (!value)
		return;
	*value++ = '\0';
	while (*value == ' ' || *value == '\t')
		value++;
	take_field(a, text, value, strlen(value));
}

int export_answer_data(struct export_answer *a, const void *data, size_t bytes)
{
	buf_add(&a->body, data, bytes);
	a->is_too_long |= a->body.err == -ENOSPC;
	return a->body.err == -ENOSPC ? -ERANGE : a->body.err;
}

/* ------------------------------------------------------------------ what to do */

static const char *colon(const struct export_answer *a)
{
	return a->message[0] ? ": " : "";
}

/* False: these bytes are no response. */
static bool take_response(const void *data, size_t bytes, struct export_judgement *ret)
{
	Rpc__ExportProfilesServiceResponse *r =
		rpc__export_profiles_service_response__unpack(&allocator, bytes, data);
	const Rpc__ExportProfilesPartialSuccess *partial;
	char text[256];

	if (!r)
		return false;
	partial = r->partial_success;
	if (partial && (partial->rejected_profiles || partial->error_message[0])) {
		ret->rejected_profiles =
			partial->rejected_profiles > 0 ? (uint64_t)partial->rejected_profiles : 0;
		text_print(partial->error_message, strlen(partial->error_message), text,
			   sizeof(text));
		if (ret->rejected_profiles)
			why_set(&ret->why, 0, "it rejected %" PRIu64 " profiles: %s",
				ret->rejected_profiles, text);
		else
			why_set(&ret->why, 0, "it warns: %s", text);
	}
	rpc__export_profiles_service_response__free_unpacked(r, &allocator);
	return true;
}

static const char *code_advice(int code)
{
	switch (code) {
	case CODE_UNIMPLEMENTED:
		return "; it does not take profiles here (a Collector needs a profiles pipeline "
		       "and the feature gate service.profilesSupport)";
	case CODE_UNAUTHENTICATED:
		return "; it wants credentials (--header)";
	case CODE_PERMISSION_DENIED:
		return "; these credentials may not write there";
	case CODE_RESOURCE_EXHAUSTED:
		return "; it does not say when to try again: is its limit below the size of "
		       "requests (--max-size)?";
	default:
		return "";
	}
}

static bool code_is_transient(int code, bool has_retry)
{
	switch (code) {
	case CODE_CANCELLED:
	case CODE_DEADLINE_EXCEEDED:
	case CODE_ABORTED:
	case CODE_OUT_OF_RANGE:
	case CODE_UNAVAILABLE:
	case CODE_DATA_LOSS:
		return true;
	case CODE_RESOURCE_EXHAUSTED:
		return has_retry;
	default:
		return false;
	}
}

static int code_of_http(long status)
{
	switch (status) {
	case 400:
		return CODE_INTERNAL;
	case 401:
		return CODE_UNAUTHENTICATED;
	case 403:
		return CODE_PERMISSION_DENIED;
	case 404:
		return CODE_UNIMPLEMENTED;
	case 429:
	case 502:
	case 503:
	case 504:
		return CODE_UNAVAILABLE;
	default:
		return CODE_UNKNOWN;
	}
}

/* Receivers compress as they were sent. -1: cannot be undone, or is too long. */
static ssize_t unpack(enum export_encoding encoding, const uint8_t *data, size_t bytes,
		      uint8_t *out, size_t out_size)
{
	z_stream z = {.next_in = (uint8_t *)data,
		      .avail_in = (unsigned int)bytes,
		      .next_out = out,
		      .avail_out = (unsigned int)out_size};
	size_t n;
	int err;

	switch (encoding) {
	case EXPORT_ANSWER_GZIP:
		if (inflateInit2(&z, 15 + 16) != Z_OK)
			return -1;
		err = inflate(&z, Z_FINISH);
		inflateEnd(&z);
		return err == Z_STREAM_END ? (ssize_t)z.total_out : -1;
	case EXPORT_ANSWER_ZSTD:
		n = ZSTD_decompress(out, out_size, data, bytes);
		return ZSTD_isError(n) ? -1 : (ssize_t)n;
	case EXPORT_ANSWER_PLAIN:
		break;
	}
	return -1;
}

/* The one message of the answer; its status in the trailers says how it went. */
static bool take_frame(const struct export_answer *a, struct export_judgement *ret)
{
	const uint8_t *p = (const uint8_t *)a->body.data;
	uint8_t plain[UNPACKED_MAX];
	ssize_t length;

	if (a->body.len < FRAME_HEAD)
		return false;
	length = (ssize_t)((size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4]);
	if (length != (ssize_t)(a->body.len - FRAME_HEAD))
		return false;
	if (!p[0])
		return take_response(p + FRAME_HEAD, (size_t)length, ret);
	length = unpack(a->encoding, p + FRAME_HEAD, (size_t)length, plain, sizeof(plain));
	return length >= 0 && take_response(plain, (size_t)length, ret);
}

static void judge_grpc(struct export_answer *a, struct export_judgement *ret)
{
	int code = a->grpc_status;
	bool is_http = code < 0 && (a->status != 200 || !a->is_grpc);

	if (code == CODE_OK) {
		ret->verdict = EXPORT_ACCEPTED;
		if (!take_frame(a, ret))
			why_set(&ret->why, 0, "it accepted, in a message that cannot be read");
		return;
	}
	if (code < 0 && !is_http) {
		ret->verdict = EXPORT_AGAIN;
		why_set(&ret->why, 0, "the answer broke off before its status");
		return;
	}
	if (is_http && a->status == 200) {
		ret->verdict = EXPORT_AGAIN;
		why_set(&ret->why, 0, "what answers there is no gRPC server");
		return;
	}
	if (is_http)
		code = code_of_http(a->status);
	ret->verdict = code_is_transient(code, a->has_retry) ? EXPORT_AGAIN : EXPORT_NEVER;
	if (is_http)
		why_set(&ret->why, 0, "HTTP status %ld, and no answer in gRPC%s", a->status,
			code_advice(code));
	else
		why_set(&ret->why, 0, "%s%s%s%s",
			(size_t)code < ARRAY_SIZE(code_names) ? code_names[code] : "unknown status",
			colon(a), a->message,
			ret->verdict == EXPORT_NEVER ? code_advice(code) : "");
}

static const char *status_advice(const struct export_answer *a)
{
	switch (a->status) {
	case 401:
		return code_advice(CODE_UNAUTHENTICATED);
	case 403:
		return code_advice(CODE_PERMISSION_DENIED);
	case 404:
	case 405:
		return a->protocol == EXPORT_PROTOCOL_OTLP_HTTP
			       ? "; it does not take profiles at this address (a Collector needs a "
				 "profiles pipeline and the feature gate service.profilesSupport)"
			       : "; nothing takes profiles at this address";
	case 413:
		return "; its limit is below the size of requests (--max-size)";
	default:
		return a->status >= 300 && a->status < 400 ? "; it points elsewhere: give that URL"
							   : "";
	}
}

static void take_error_body(struct export_answer *a)
{
	if (a->is_too_long || !a->body.len)
		return;
	if (a->protocol == EXPORT_PROTOCOL_OTLP_HTTP && a->is_protobuf)
		take_status(a, a->body.data, a->body.len);
	else
		text_print(a->body.data, a->body.len, a->message, sizeof(a->message));
}

static void judge_http(struct export_answer *a, struct export_judgement *ret)
{
	if (a->status >= 200 && a->status < 300) {
		ret->verdict = EXPORT_ACCEPTED;
		if (a->protocol != EXPORT_PROTOCOL_OTLP_HTTP)
			return;
		if (a->is_too_long || (a->body.len && !a->is_protobuf) ||
		    !take_response(a->body.data, a->body.len, ret)) {
			ret->verdict = EXPORT_AGAIN;
			why_set(&ret->why, 0,
				"HTTP status %ld, but what follows is no answer of an OTLP "
				"receiver",
				a->status);
		}
		return;
	}
	take_error_body(a);
	ret->verdict = a->status == 429 || (a->status >= 502 && a->status <= 504) ? EXPORT_AGAIN
										  : EXPORT_NEVER;
	why_set(&ret->why, 0, "HTTP status %ld%s%s%s", a->status, colon(a), a->message,
		status_advice(a));
}

void export_answer_judge(struct export_answer *a, struct export_judgement *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (a->protocol == EXPORT_PROTOCOL_GRPC)
		judge_grpc(a, ret);
	else
		judge_http(a, ret);
	ret->has_retry = a->has_retry;
	ret->retry_ns = a->retry_ns;
}
