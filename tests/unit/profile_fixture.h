/* SPDX-License-Identifier: Apache-2.0 */
/* profile_fixture: profiles made by hand, for unit tests and for tests/formats. */
#ifndef FLYBALL_TESTS_PROFILE_FIXTURE_H
#define FLYBALL_TESTS_PROFILE_FIXTURE_H

#include "profile/profile.h"

#define FIXTURE_PERIOD_NS 10101010ULL
#define FIXTURE_START_NS  1764000000000000000ULL

/* Kinds of profile, by name. hostile: every frame kind, every cut, every unnamed reason, names
 * nobody would choose. 0, or the first negative errno of the profile. */
/* inlined: lines and inlined calls; main(60) calls outer, which holds middle and inner. */
enum fixture_kind {
	FIXTURE_EMPTY,
	FIXTURE_KERNEL_ONLY,
	FIXTURE_JIT_ONLY,
	FIXTURE_SPLIT,
	FIXTURE_HOSTILE,
	FIXTURE_LARGE,
	FIXTURE_INLINED,
	FIXTURE_KINDS
};
extern const char *const fixture_names[FIXTURE_KINDS];
int fixture_fill(struct profile *p, enum fixture_kind kind);
/* Sets a run whose ledger balances with what was delivered. */
void fixture_run(struct profile *p);

/* The bytes of an output, for comparison. */
struct fixture_bytes {
	unsigned char *data;
	size_t len, cap;
	size_t fail_after; /* the sink fails past so many bytes; 0: never */
};
int fixture_sink(void *ctx, const void *data, size_t bytes);
void fixture_bytes_done(struct fixture_bytes *bytes);

#endif
