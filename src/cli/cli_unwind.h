/* SPDX-License-Identifier: Apache-2.0 */
/* cli, inside: a table compared with libdw, which reads the same file by its own code. */
#ifndef FLYBALL_CLI_UNWIND_H
#define FLYBALL_CLI_UNWIND_H

#include "unwind/unwind.h"

#define CLI_UNWIND_SHOWN 20 /* differences put into words */

struct cli_unwind_check {
	uint64_t addresses;   /* compared: start, middle and end of each of libdw's rows */
	uint64_t differences; /* a wrong CFA, frame pointer or return address, or a missed function
			       */
	uint64_t unsupported; /* addresses at which the table says so itself */
	uint64_t unjudged;    /* addresses of which libdw cannot tell */
	uint64_t functions, functions_libdw;
	struct buf said; /* the first differences, a line each */
};

/* fd is of the file the table was made from. said is the caller's, initialised. -EOPNOTSUPP in a
 * build without libdw. */
int cli_unwind_compare(int fd, const struct unwind_source *source, const struct unwind_table *table,
		       struct cli_unwind_check *check, struct why *why);

#endif
