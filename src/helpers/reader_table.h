/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind table of a file, in the reader: made within limits of time and memory, and with a hash
 * of what it was made from.
 */
#ifndef FLYBALL_HELPERS_READER_TABLE_H
#define FLYBALL_HELPERS_READER_TABLE_H

#include "unwind/unwind.h"

struct reader_table_limits {
	uint64_t bytes;	  /* of the table */
	uint64_t cpu_ns;  /* past it -ERANGE: it will not be faster next time */
	uint64_t read_ns; /* spent waiting in reads; past it -EAGAIN */
};
/* Borrows fd. Errors as helpers_table says. */
int reader_table(int fd, const struct reader_table_limits *limits, struct unwind_table **ret,
		 uint8_t hash[32], struct why *why);
int reader_vdso_table(uint64_t bytes_max, struct unwind_table **ret, uint8_t hash[32],
		      struct why *why);

#endif
