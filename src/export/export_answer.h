/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_answer: what a receiver answered, and what to do about it. All of it are outside bytes.
 * Pure: no system call but memory.
 */
#ifndef FLYBALL_EXPORT_ANSWER_H
#define FLYBALL_EXPORT_ANSWER_H

#include "base/base.h"

#define EXPORT_ANSWER_MAX_BYTES 65536
#define EXPORT_RETRY_MAX_NS	3600000000000ULL /* asked for more: still this */

enum export_protocol { EXPORT_PROTOCOL_GRPC, EXPORT_PROTOCOL_OTLP_HTTP, EXPORT_PROTOCOL_HTTP };

struct export_answer {
	enum export_protocol protocol;
	long status; /* HTTP; 0: none came */
	bool is_protobuf, is_grpc;
	enum export_encoding {
		EXPORT_ANSWER_PLAIN,
		EXPORT_ANSWER_GZIP,
		EXPORT_ANSWER_ZSTD
	} encoding;
	int grpc_status; /* -1: none came */
	char message[256];
	bool has_retry; /* the receiver says when */
	uint64_t retry_ns;
	struct buf body;
	bool is_too_long;
};
void export_answer_init(struct export_answer *a, enum export_protocol protocol);
void export_answer_done(struct export_answer *a);
void export_answer_reset(struct export_answer *a);
/* One line of a head or of trailers. A status line begins the answer anew. */
void export_answer_line(struct export_answer *a, const char *line, size_t bytes);
/* -ERANGE: more than is read; the rest is not wanted. */
int export_answer_data(struct export_answer *a, const void *data, size_t bytes);

enum export_verdict { EXPORT_ACCEPTED, EXPORT_AGAIN, EXPORT_NEVER };
struct export_judgement {
	enum export_verdict verdict;
	uint64_t rejected_profiles;
	bool has_retry;
	uint64_t retry_ns;
	struct why why; /* empty only with EXPORT_ACCEPTED */
};
/* To be asked when something of an answer came: status is not 0. */
void export_answer_judge(struct export_answer *a, struct export_judgement *ret);

#endif
