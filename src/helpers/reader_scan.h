/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says of a process, from descriptors: stat, status, cgroup and maps. Pure but for
 * read(2), so tests and fuzzers hand it pipes and files.
 */
#ifndef FLYBALL_HELPERS_READER_SCAN_H
#define FLYBALL_HELPERS_READER_SCAN_H

#include "helpers_wire.h"

/* A line of maps. */
struct reader_map {
	struct helpers_mapping mapping; /* but for path */
	bool is_executable;
	char *path; /* as the kernel writes it; the callee's to change */
};
/* False ends the reading. */
typedef bool (*reader_map_visit)(void *ctx, const struct reader_map *map);
/* Streams the lines that can be read. False: some are missing, too long or never read. */
bool reader_maps(int fd, reader_map_visit visit, void *ctx);

/* fds: stat, status, cgroup, maps; the last two may be -1. exe as readlink gave it. Writes a whole
 * answer to out, which may be one that says what failed. */
void reader_scan(const struct wire_request *job, const int fds[WIRE_FILES_MAX], const char *exe,
		 struct buf *out);

#endif
