/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export: gives profiles to a receiver over the network, in the background of somebody's poll loop.
 *
 * Blocks come from a source, one at a time. A block is split where it is larger than a request may
 * be, compressed, sent, and sent again as OTLP's table of results says: with what the receiver asks
 * for (RetryInfo, Retry-After), else with exponential back-off and jitter. It is settled once:
 * delivered, refused for good, or given up when its time was over. At most the requests of one
 * block are under way, so that a process that dies repeats no more than that.
 *
 * No call waits for the network: names are resolved in a thread of libcurl's. Splitting and
 * compressing take processor time in the caller's thread. Answers are read up to 64 KiB.
 *
 * One owning thread. Private keys and headers are secrets: they appear in no message.
 */
#ifndef FLYBALL_EXPORT_H
#define FLYBALL_EXPORT_H

#include "base/base.h"

#define EXPORT_HEADERS_MAX	 32
#define EXPORT_URL_MAX		 2048
#define EXPORT_TIMEOUT_NS	 10000000000ULL
#define EXPORT_REQUEST_MAX_BYTES (4UL << 20)

/* ------------------------------------------------------------------ where to, and how */

enum export_kind {
	EXPORT_GRPC,	  /* OTLP over gRPC */
	EXPORT_HTTP,	  /* OTLP over HTTP, protobuf */
	EXPORT_PYROSCOPE, /* pprof to /ingest */
	EXPORT_PARCA,	  /* pprof to WriteRaw, over gRPC */
	EXPORT_KINDS,
};
enum export_compression { EXPORT_PLAIN, EXPORT_GZIP, EXPORT_ZSTD };

/* "grpc", "http" or "http/protobuf", "pyroscope", "parca"; -EINVAL otherwise with the list. */
int export_kind_parse(const char *text, enum export_kind *ret, struct why *why);
const char *export_kind_name(enum export_kind kind);
/* A kind takes either OTLP requests or pprof files (gzipped). */
bool export_kind_takes_pprof(enum export_kind kind);
/* "none", "gzip", "zstd". */
int export_compression_parse(const char *text, enum export_compression *ret, struct why *why);

struct export_options {
	enum export_kind kind;
	bool has_kind;	   /* else by the URL's port: 4317 gRPC, any other HTTP */
	const char *url;   /* http:// or https://; NULL: nobody said */
	bool is_whole_url; /* to be used as it is, without the kind's own path */
	bool is_insecure;  /* a URL without a scheme is http, not https */
	enum export_compression compression;
	const char *ca, *certificate, *key; /* files in PEM; NULL: the system's, none, none */
	char *headers[EXPORT_HEADERS_MAX];  /* "Name: value" */
	size_t header_count;
	uint64_t timeout_ns;	  /* of one attempt */
	uint64_t give_up_ns;	  /* of a block, from its first attempt; 0: never */
	size_t request_max_bytes; /* encoded, before compression */
	bool without_names;	  /* leave names to the receiver where it can find them */
	const char *service;	  /* name of the series in Pyroscope and Parca; NULL: flyball */
	uint64_t backoff_ns, backoff_max_ns; /* 1 s and 30 s */
};
void export_options_init(struct export_options *o);
void export_options_done(struct export_options *o);
/* What OTEL_EXPORTER_OTLP_* says, and OTEL_EXPORTER_OTLP_PROFILES_* before it: ENDPOINT, PROTOCOL,
 * HEADERS, COMPRESSION, TIMEOUT (ms), CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, INSECURE. Call
 * it first: what the user says comes after. The environment must stay as it is. get is getenv. */
int export_options_env(struct export_options *o, char *(*get)(const char *name), struct why *why);
/* Where requests go; settles the kind by the port where nobody named it. export_open does it too.
 */
int export_options_url(struct export_options *o, char ret[EXPORT_URL_MAX], struct why *why);
/* "Name: value" or "Name=value". */
int export_options_header(struct export_options *o, const char *text, struct why *why);

/* ------------------------------------------------------------------ what is sent */

struct export_block {
	uint64_t id;	  /* the source's own */
	const void *data; /* an OTLP request or a pprof file, as the kind takes it */
	size_t bytes;
	uint64_t start_ns, end_ns; /* CLOCK_REALTIME; 0: not known. Pyroscope is told. */
};
enum export_outcome {
	EXPORT_DELIVERED, /* why is a warning, or empty */
	EXPORT_REFUSED,	  /* for good */
	EXPORT_GIVEN_UP,  /* give_up_ns were over */
};
struct export_source {
	void *ctx;
	/* 1 and the next block, whose data stay until it is settled; 0: none now, ask again with
	 * the next export_step; negative errno: the block at hand cannot be had, with the reason.
	 */
	int (*next)(void *ctx, struct export_block *ret, struct why *why);
	void (*settle)(void *ctx, const struct export_block *block, enum export_outcome outcome,
		       const struct why *why);
	/* A request will be sent again after a while. May be NULL. */
	void (*retry)(void *ctx, const struct why *why, uint64_t delay_ns);
};

/* All only grow. */
struct export_stats {
	uint64_t delivered, refused, given_up; /* blocks */
	uint64_t source_errors;
	uint64_t requests, attempts, retries; /* retries: attempts that were followed by another */
	uint64_t encoded_bytes, wire_bytes;   /* of accepted requests: before, after compression */
	uint64_t rejected_profiles;	      /* partial success */
};

struct export;
/* Opens no connection. -EINVAL: options that cannot work, with the reason. */
int export_open(const struct export_options *options, const struct export_source *source,
		struct export **ret, struct why *why);
void export_close(struct export *e); /* what is under way stays unsettled */
/* To be polled for POLLIN; and export_step is to be called by export_wake_ns (CLOCK_MONOTONIC;
 * UINT64_MAX: not of its own) at the latest. */
int export_fd(const struct export *e);
uint64_t export_wake_ns(const struct export *e);
void export_step(struct export *e);
bool export_is_idle(const struct export *e); /* nothing under way */
void export_stats(const struct export *e, struct export_stats *ret);
/* "http://host:4318/v1development/profiles": where requests go. */
const char *export_url(const struct export *e);

#endif
