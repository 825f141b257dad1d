/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that answer when a test says so, with what it says. One instance, no processes. */
#ifndef FLYBALL_FAKE_HELPERS_H
#define FLYBALL_FAKE_HELPERS_H

#include "helpers/helpers.h"

enum fake_kind { FAKE_HOLD, FAKE_INSPECT, FAKE_SCAN, FAKE_TABLE };
struct fake_request {
	enum fake_kind kind;
	struct helpers_file file;
	char path[256];
	uint32_t tgid;
	helpers_done done;
	void *ctx;
	bool is_answered;
};
#define FAKE_MAX 40000
extern struct fake_request fake_requests[FAKE_MAX];
extern size_t fake_count;
extern size_t fake_released;
extern int fake_error; /* what requests return */

void fake_reset(void);
struct helpers *fake_helpers(void); /* only its address matters */
size_t fake_count_of(enum fake_kind kind);
/* The last unanswered request of this kind (and tgid, unless 0); NULL: none. */
struct fake_request *fake_last(enum fake_kind kind, uint32_t tgid);
void fake_answer(struct fake_request *r, const struct helpers_result *result);
void fake_answer_scan(struct fake_request *r, const struct helpers_scan *scan);
void fake_fail(struct fake_request *r, int err, uint32_t unnamed);
/* Answers all that is left with -ECANCELED. */
void fake_cancel_all(void);

#endif
