/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process publishes of its trace context, from descriptors of its maps, memory and program.
 */
#ifndef FLYBALL_HELPERS_READER_CONTEXT_H
#define FLYBALL_HELPERS_READER_CONTEXT_H

#include "helpers_wire.h"

#define READER_CONTEXT_FILES 3 /* maps, mem, exe */

/* exe as readlink gave it. Writes a whole answer to out. */
void reader_context(const int fds[READER_CONTEXT_FILES], const char *exe, struct buf *out);

#endif
