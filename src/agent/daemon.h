/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon: windows of the whole node, one after the other, each closed into an immutable block with
 * its ledger. Private to the part.
 *
 * A window's ledger is exact: its ticks are those between two cuts (kernel_ledger_cut), its samples
 * those that were given out between them. Names are looked up while the next window is open; then
 * the block is encoded, handed to the store's thread, and the window is freed when nobody owes it
 * an answer any more.
 */
#ifndef FLYBALL_DAEMON_H
#define FLYBALL_DAEMON_H

#include "config/config.h"
#include "http/http.h"
#include "record_private.h"
#include "storing.h"

/* What was closed since the start, and what became of it. */
struct daemon_totals {
	uint64_t windows;	   /* closed and given to the store */
	uint64_t inexact;	   /* whose ledger did not close: a fault of ours */
	uint64_t not_encoded;	   /* lost for lack of memory */
	uint64_t forced;	   /* closed before their names were there */
	struct profile_ledger sum; /* of all closed ones */
};

/* A window that has ended, with what was true in its time. */
struct closing {
	struct closing *next;
	struct window *window;
	struct profile_run run;
	uint64_t end_realtime_ns;
	bool is_stored;
};

struct daemon {
	const struct config *config;
	struct kernel_options kernel_options;
	struct session session;
	struct storing *storing;
	struct window *window;
	struct closing *closing; /* oldest first */
	struct kernel_ledger last;
	struct kernel_memory memory;
	struct cost cost, last_cost;
	struct daemon_totals totals;
	uint64_t window_start_ns, window_end_ns, next_cost_ns;
	uint64_t start_ns;
	struct http *http; /* NULL: none */
	int epoll_fd, signal_fd;
	bool is_over;
};

/* ---------------------------------------------------------------- status.c: what it is doing
 * Figures of the moment: of each kind the same in the JSON object and in the metrics. */
void daemon_status_json(const struct daemon *d, struct buf *out);
/* Prometheus text, one name for each counter. */
void daemon_metrics(const struct daemon *d, struct buf *out);

#endif
