// SPDX-License-Identifier: Apache-2.0
/* What receivers answer, and what is done about it: OTLP's table of results, line by line. */
#include "export/export.h"
#include "export/export_answer.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct export_answer answer;
static struct export_judgement j;

static void lines(const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		export_answer_line(&answer, text, n);
		text += n + (text[n] ? 1 : 0);
	}
}

static void judged(enum export_protocol protocol, const char *head, const char *body,
		   size_t body_bytes)
{
	export_answer_init(&answer, protocol);
	lines(head);
	assert_int_equal(export_answer_data(&answer, body, body_bytes), 0);
	export_answer_judge(&answer, &j);
	export_answer_done(&answer);
	assert_int_equal(mem_live_bytes(MEM_EXPORT), 0);
}

static void grpc(const char *trailers)
{
	char head[2048];

	snprintf(head, sizeof(head), "HTTP/2 200 \r\ncontent-type: application/grpc\r\n\r\n%s",
		 trailers);
	judged(EXPORT_PROTOCOL_GRPC, head, "\0\0\0\0", 5);
}

static void answer__grpc_codes__as_the_specification_says(void **state)
{
	static const struct {
		int code;
		enum export_verdict verdict;
	} table[] = {
		{0, EXPORT_ACCEPTED}, {1, EXPORT_AGAIN},  {2, EXPORT_NEVER},	 {3, EXPORT_NEVER},
		{4, EXPORT_AGAIN},    {5, EXPORT_NEVER},  {6, EXPORT_NEVER},	 {7, EXPORT_NEVER},
		{8, EXPORT_NEVER},    {9, EXPORT_NEVER},  {10, EXPORT_AGAIN},	 {11, EXPORT_AGAIN},
		{12, EXPORT_NEVER},   {13, EXPORT_NEVER}, {14, EXPORT_AGAIN},	 {15, EXPORT_AGAIN},
		{16, EXPORT_NEVER},   {17, EXPORT_NEVER}, {99999, EXPORT_NEVER},
	};
	char text[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		snprintf(text, sizeof(text), "grpc-status: %d\r\n", table[i].code);
		grpc(text);
		assert_int_equal(j.verdict, table[i].verdict);
		assert_int_equal(!j.why.text[0], table[i].verdict == EXPORT_ACCEPTED);
		assert_false(j.has_retry);
	}
	grpc("grpc-status: -3\r\n");
	assert_int_equal(j.verdict, EXPORT_NEVER);
	grpc("");
	assert_int_equal(j.verdict, EXPORT_AGAIN);
	assert_string_equal(j.why.text, "the answer broke off before its status");
}

static void answer__grpc_message__is_decoded_and_printable(void **state)
{
	(void)state;
	grpc("grpc-status: 14\r\ngrpc-message: a%20b%2fc%0a%zz%4\r\n");
	assert_string_equal(j.why.text, "UNAVAILABLE: a b/c?%zz%4");
	grpc("grpc-status: 14\r\ngrpc-message: %C3%A4%ff\r\n");
	assert_string_equal(j.why.text, "UNAVAILABLE: \xc3\xa4\xef\xbf\xbd");
	grpc("grpc-status: 12\r\n");
	assert_non_null(strstr(j.why.text, "service.profilesSupport"));
}

/* Status{code 8, message "slow", details{RetryInfo{retry_delay{seconds 7, nanos 500000000}}}} */
#define DETAILS_HEAD                                                                               \
	"grpc-status-details-bin: "                                                                \
	"CAgSBHNsb3caNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIBxCAyrXuAQ"
static void answer__retry_info__is_read(void **state)
{
	(void)state;
	grpc("grpc-status: 8\r\n" DETAILS_HEAD "\r\n");
	assert_int_equal(j.verdict, EXPORT_AGAIN);
	assert_true(j.has_retry);
	assert_true(j.retry_ns == 7500000000ULL);
	assert_string_equal(j.why.text, "RESOURCE_EXHAUSTED: slow");
	grpc("grpc-status: 14\r\n" DETAILS_HEAD "==\r\n");
	assert_true(j.has_retry && j.retry_ns == 7500000000ULL);
	grpc("grpc-status: 8\r\ngrpc-status-details-bin: !!!\r\n");
	assert_int_equal(j.verdict, EXPORT_NEVER);
	grpc("grpc-status: 8\r\ngrpc-status-details-bin: CAgSBHNsb3c\r\n");
	assert_int_equal(j.verdict, EXPORT_NEVER);
	assert_non_null(strstr(j.why.text, "--max-size"));
}

static void answer__http_without_grpc__is_mapped(void **state)
{
	static const struct {
		int status;
		enum export_verdict verdict;
	} table[] = {{200, EXPORT_AGAIN}, {400, EXPORT_NEVER}, {401, EXPORT_NEVER},
		     {404, EXPORT_NEVER}, {429, EXPORT_AGAIN}, {500, EXPORT_NEVER},
		     {502, EXPORT_AGAIN}, {503, EXPORT_AGAIN}, {504, EXPORT_AGAIN}};
	char head[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		snprintf(head, sizeof(head), "HTTP/2 %d\r\ncontent-type: text/html\r\n",
			 table[i].status);
		judged(EXPORT_PROTOCOL_GRPC, head, "<html>", 6);
		assert_int_equal(j.verdict, table[i].verdict);
		assert_true(j.why.text[0]);
	}
}

static void http(const char *head, const char *body, size_t bytes)
{
	char text[512];

	snprintf(text, sizeof(text), "HTTP/1.1 %s\r\n", head);
	judged(EXPORT_PROTOCOL_OTLP_HTTP, text, body, bytes);
}

static void answer__http_status__as_the_specification_says(void **state)
{
	static const struct {
		const char *head;
		enum export_verdict verdict;
	} table[] = {
		{"200 OK", EXPORT_ACCEPTED},	   {"202 Accepted", EXPORT_ACCEPTED},
		{"301 Moved", EXPORT_NEVER},	   {"400 Bad", EXPORT_NEVER},
		{"401 No", EXPORT_NEVER},	   {"404 Not Found", EXPORT_NEVER},
		{"408 Timeout", EXPORT_NEVER},	   {"413 Large", EXPORT_NEVER},
		{"429 Many", EXPORT_AGAIN},	   {"500 Oops", EXPORT_NEVER},
		{"501 Not", EXPORT_NEVER},	   {"502 Bad Gateway", EXPORT_AGAIN},
		{"503 Unavailable", EXPORT_AGAIN}, {"504 Gateway", EXPORT_AGAIN},
		{"505 Version", EXPORT_NEVER},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		http(table[i].head, "", 0);
		assert_int_equal(j.verdict, table[i].verdict);
	}
	/* The last head counts: an interim one came before. */
	http("100 Continue\r\n\nHTTP/1.1 503 No", "", 0);
	assert_int_equal(j.verdict, EXPORT_AGAIN);
}

static void answer__body_of_200__must_be_an_answer(void **state)
{
	(void)state;
	http("200 OK\ncontent-type: application/x-protobuf", "", 0);
	assert_int_equal(j.verdict, EXPORT_ACCEPTED);
	http("200 OK\ncontent-type: text/html", "<html>log in", 12);
	assert_int_equal(j.verdict, EXPORT_AGAIN);
	http("200 OK\ncontent-type: application/x-protobuf", "\xff\xff\xff", 3);
	assert_int_equal(j.verdict, EXPORT_AGAIN);
}

static void answer__partial_success__is_counted_never_sent_again(void **state)
{
	(void)state;
	http("200 OK\ncontent-type: application/x-protobuf",
	     "\x0a\x07\x08\x03\x12\x03"
	     "bad",
	     9);
	assert_int_equal(j.verdict, EXPORT_ACCEPTED);
	assert_int_equal(j.rejected_profiles, 3);
	assert_string_equal(j.why.text, "it rejected 3 profiles: bad");
	http("200 OK\ncontent-type: application/x-protobuf",
	     "\x0a\x05\x12\x03"
	     "old",
	     7);
	assert_int_equal(j.rejected_profiles, 0);
	assert_string_equal(j.why.text, "it warns: old");
	judged(EXPORT_PROTOCOL_GRPC,
	       "HTTP/2 200\r\ncontent-type: application/grpc\r\n\r\ngrpc-status: 0\r\n",
	       "\0\0\0\0\x09\x0a\x07\x08\x03\x12\x03"
	       "bad",
	       14);
	assert_int_equal(j.rejected_profiles, 3);
}

static void answer__compressed_frame__is_unpacked(void **state)
{
	static const unsigned char plain[] = "\x0a\x07\x08\x03\x12\x03"
					     "bad";
	unsigned char frame[128] = {1};
	z_stream z = {.next_in = (unsigned char *)plain,
		      .avail_in = sizeof(plain) - 1,
		      .next_out = frame + 5,
		      .avail_out = sizeof(frame) - 5};
	const char head[] = "HTTP/2 200\r\ncontent-type: application/grpc\r\n"
			    "grpc-encoding: gzip\r\n\r\ngrpc-status: 0\r\n";

	(void)state;
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	frame[4] = (unsigned char)z.total_out;
	deflateEnd(&z);
	judged(EXPORT_PROTOCOL_GRPC, head, (char *)frame, 5 + z.total_out);
	assert_int_equal(j.rejected_profiles, 3);
	frame[16] ^= 0xff;
	judged(EXPORT_PROTOCOL_GRPC, head, (char *)frame, 5 + z.total_out);
	assert_int_equal(j.verdict, EXPORT_ACCEPTED);
	assert_string_equal(j.why.text, "it accepted, in a message that cannot be read");
}

static void answer__error_body__says_why(void **state)
{
	(void)state;
	http("400 Bad\ncontent-type: application/x-protobuf",
	     "\x08\x03\x12\x05"
	     "wrong",
	     9);
	assert_string_equal(j.why.text, "HTTP status 400: wrong");
	http("400 Bad\ncontent-type: text/plain", "no\x1b[31m!", 8);
	assert_string_equal(j.why.text, "HTTP status 400: no?[31m!");
	judged(EXPORT_PROTOCOL_HTTP, "HTTP/1.1 422 No\r\n", "what?", 5);
	assert_string_equal(j.why.text, "HTTP status 422: what?");
}

static void answer__long_body__is_not_read_to_its_end(void **state)
{
	static const char piece[16384];
	int err = 0, n = 0;

	(void)state;
	export_answer_init(&answer, EXPORT_PROTOCOL_OTLP_HTTP);
	lines("HTTP/1.1 200 OK");
	for (; !err; n++)
		err = export_answer_data(&answer, piece, sizeof(piece));
	assert_int_equal(err, -ERANGE);
	assert_int_equal(n, 5);
	assert_true(answer.is_too_long);
	export_answer_judge(&answer, &j);
	assert_int_equal(j.verdict, EXPORT_AGAIN);
	export_answer_done(&answer);
}

/* ------------------------------------------------------------------ options */

static const char *env_pairs[16];
static char *env_of(const char *name)
{
	for (size_t i = 0; env_pairs[i]; i += 2) {
		if (!strcmp(env_pairs[i], name))
			return (char *)env_pairs[i + 1];
	}
	return NULL;
}

static void assert_url(struct export_options *o, const char *url, const char *want)
{
	char got[EXPORT_URL_MAX];
	struct why why = {""};

	o->url = url;
	assert_int_equal(export_options_url(o, got, &why), want ? 0 : -EINVAL);
	if (want)
		assert_string_equal(got, want);
	else
		assert_true(why.text[0]);
}

#define GRPC_PATH "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
static void options__url__gets_the_path_of_its_kind(void **state)
{
	struct export_options o;

	(void)state;
	export_options_init(&o);
	assert_url(&o, "http://a:4317", "http://a:4317" GRPC_PATH);
	assert_int_equal(o.kind, EXPORT_GRPC);
	o.has_kind = false;
	assert_url(&o, "http://a:4318/", "http://a:4318/v1development/profiles");
	assert_int_equal(o.kind, EXPORT_HTTP);
	assert_url(&o, "https://a/b/?t=1", "https://a/b/v1development/profiles?t=1");
	assert_url(&o, "http://a/v1development/profiles", "http://a/v1development/profiles");
	assert_url(&o, "ftp://a", NULL);
	assert_url(&o, "http://u:p@a", NULL);
	assert_url(&o, "", NULL);
	assert_url(&o, NULL, NULL);
	o.is_whole_url = true;
	assert_url(&o, "http://a/x", "http://a/x");
	o.is_whole_url = false;
	o.kind = EXPORT_GRPC;
	assert_url(&o, "http://a/x", NULL);
	assert_url(&o, "a:4317", "https://a:4317" GRPC_PATH);
	o.is_insecure = true;
	assert_url(&o, "a:4317", "http://a:4317" GRPC_PATH);
	o.kind = EXPORT_PYROSCOPE;
	assert_url(&o, "http://a:4040", "http://a:4040/ingest");
}

static void options__environment__is_understood(void **state)
{
	static const char *const all[] = {"OTEL_EXPORTER_OTLP_ENDPOINT",
					  "http://a:4318",
					  "OTEL_EXPORTER_OTLP_HEADERS",
					  "api-key=s%20e,x=y , z=",
					  "OTEL_EXPORTER_OTLP_TIMEOUT",
					  "2500",
					  "OTEL_EXPORTER_OTLP_COMPRESSION",
					  "gzip",
					  "OTEL_EXPORTER_OTLP_PROFILES_COMPRESSION",
					  "none",
					  "OTEL_EXPORTER_OTLP_PROTOCOL",
					  "http/protobuf"};
	struct export_options o;
	struct why why = {""};

	(void)state;
	memcpy(env_pairs, all, sizeof(all));
	export_options_init(&o);
	assert_int_equal(export_options_env(&o, env_of, &why), 0);
	assert_string_equal(o.url, "http://a:4318");
	assert_false(o.is_whole_url);
	assert_int_equal(o.compression, EXPORT_PLAIN);
	assert_true(o.timeout_ns == 2500000000ULL);
	assert_int_equal(o.header_count, 3);
	assert_string_equal(o.headers[0], "api-key: s e");
	assert_string_equal(o.headers[1], "x: y");
	assert_int_equal(export_options_header(&o, "Authorization: Bearer a=b", &why), 0);
	assert_string_equal(o.headers[3], "Authorization: Bearer a=b");
	assert_int_equal(export_options_header(&o, "no", &why), -EINVAL);
	assert_int_equal(export_options_header(&o, "a: b\r\nc: d", &why), -EINVAL);
	export_options_done(&o);
	env_pairs[5] = "soon";
	export_options_init(&o);
	assert_int_equal(export_options_env(&o, env_of, &why), -EINVAL);
	assert_string_equal(why.text,
			    "OTEL_EXPORTER_OTLP_TIMEOUT: soon is no number of milliseconds");
	export_options_done(&o);
	assert_int_equal(mem_live_bytes(MEM_EXPORT), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answer__grpc_codes__as_the_specification_says),
		cmocka_unit_test(answer__grpc_message__is_decoded_and_printable),
		cmocka_unit_test(answer__retry_info__is_read),
		cmocka_unit_test(answer__http_without_grpc__is_mapped),
		cmocka_unit_test(answer__http_status__as_the_specification_says),
		cmocka_unit_test(answer__body_of_200__must_be_an_answer),
		cmocka_unit_test(answer__partial_success__is_counted_never_sent_again),
		cmocka_unit_test(answer__compressed_frame__is_unpacked),
		cmocka_unit_test(answer__error_body__says_why),
		cmocka_unit_test(answer__long_body__is_not_read_to_its_end),
		cmocka_unit_test(options__url__gets_the_path_of_its_kind),
		cmocka_unit_test(options__environment__is_understood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
