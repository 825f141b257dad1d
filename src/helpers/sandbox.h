/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox: what the helper processes give up before they touch anything foreign.
 */
#ifndef FLYBALL_HELPERS_SANDBOX_H
#define FLYBALL_HELPERS_SANDBOX_H

#include "base/base.h"

#include <sys/capability.h>

/* Dies with the process that started it (parent: its PID), holds no descriptor past last_fd, leaves
 * no core. */
int sandbox_start(int last_fd, int parent, struct why *why);
/* Becomes nobody (from root), keeps only these capabilities, as far as it has them. */
int sandbox_drop(const cap_value_t *keep, int count, struct why *why);
/* Again, because a change of uid clears it: dies with parent. */
int sandbox_follow_parent(int parent, struct why *why);

struct sandbox_rule {
	int syscall;
	int arg;       /* -1: any arguments */
	uint64_t mask; /* (arg & mask) must be value */
	uint64_t value;
};
/* Kills the process at any system call not listed. Does nothing in builds with a sanitizer, which
 * calls what it likes. */
int sandbox_filter(const struct sandbox_rule *rules, size_t count, struct why *why);
/* The same, but what is not listed fails with ENOSYS. */
int sandbox_filter_soft(const struct sandbox_rule *rules, size_t count, struct why *why);
/* The same, but what refused lists fails with EACCES: for libraries that try to find more. */
int sandbox_filter_refusing(const struct sandbox_rule *rules, size_t count,
			    const struct sandbox_rule *refused, size_t refused_count,
			    struct why *why);
/* True in builds with AddressSanitizer: no limits on address space either. */
bool sandbox_is_sanitized(void);

#endif
