/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says of a process, from descriptors: stat, status, cgroup and maps. Pure but for
 * read(2), so tests and fuzzers hand it pipes and files.
 */
#ifndef FLYBALL_HELPERS_READER_SCAN_H
#define FLYBALL_HELPERS_READER_SCAN_H

#include "helpers_wire.h"

/* fds: stat, status, cgroup, maps; the last two may be -1. exe as readlink gave it. Writes a whole
 * answer to out, which may be one that says what failed. */
void reader_scan(const struct wire_request *job, const int fds[WIRE_FILES_MAX], const char *exe,
		 struct buf *out);

#endif
