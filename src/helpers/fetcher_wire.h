/* SPDX-License-Identifier: Apache-2.0 */
/* helpers, inside: what main and flyball-fetcher say to each other: one SOCK_SEQPACKET pair, the
 * fetcher's end is descriptor 3. First the limits and the servers, then requests. */
#ifndef FLYBALL_HELPERS_FETCHER_WIRE_H
#define FLYBALL_HELPERS_FETCHER_WIRE_H

#include "elf/elf.h"

#define FETCHER_SOCKET	  3
#define FETCHER_URLS_MAX  4096 /* with NUL */
#define FETCHER_TEXT_MAX  192
#define FETCHER_ID_MAX	  (2 * ELF_BUILD_ID_MAX + 1)
#define FETCHER_TICKET_UP 0 /* the first answer: ready, or why not */

struct fetcher_begin {
	uint64_t bytes_max;
	uint32_t deadline_ms;
	char urls[FETCHER_URLS_MAX];
};

/* With the descriptor to write to. */
struct fetcher_request {
	uint64_t ticket;
	char build_id[FETCHER_ID_MAX]; /* hexadecimal */
};

struct fetcher_answer {
	uint64_t ticket;
	int32_t err; /* 0: there; -ENOENT: no server has it; else what failed */
	char text[FETCHER_TEXT_MAX];
};

#endif
