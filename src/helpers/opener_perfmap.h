/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opener's way to the perf map of a process: /tmp/perf-PID.map below its root, PID as in its
 * innermost PID namespace. Whoever runs the process, and whoever else may write to that /tmp, may
 * put anything there; what is opened is a regular file that belongs to the process's user, reached
 * without a symbolic link, and written since the process began (a PID may be used again).
 *
 * The directory is kept from the first look on, so that the map of a process that has ended is
 * found as well (a JVM writes it as its last act).
 */
#ifndef FLYBALL_HELPERS_OPENER_PERFMAP_H
#define FLYBALL_HELPERS_OPENER_PERFMAP_H

#include "helpers_wire.h"

struct opener_perfmaps;
int opener_perfmaps_new(struct opener_perfmaps **ret, struct why *why);

/* Looks where the map of request's process lies. -ESRCH: too late. */
int opener_perfmap_hold(struct opener_perfmaps *maps, const struct wire_request *request,
			struct why *why);

struct opener_perfmap {
	int fd;		/* the caller's */
	uint64_t stamp; /* of its content, not 0 */
};
/* -ESRCH, -ENOENT: there is none; -EACCES: not one to be trusted. */
int opener_perfmap_open(struct opener_perfmaps *maps, const struct wire_request *request,
			struct opener_perfmap *ret, struct why *why);

#endif
