// SPDX-License-Identifier: Apache-2.0
/* ledger: does it balance (RING-4)? missed_by_kernel is an estimate and stands outside. */
#include "profile.h"

#include <errno.h>
#include <inttypes.h>

static bool sides_agree(const char *left, const char *right, uint64_t a, uint64_t b,
			const char *unit, struct why *why)
{
	if (a == b)
		return true;
	why_set(why, -EBADMSG,
		"the ledger does not balance: %s is %" PRIu64 " %s, %s is %" PRIu64 " (%s%" PRIu64
		")",
		left, a, unit, right, b, a > b ? "short by " : "over by ", a > b ? a - b : b - a);
	return false;
}

bool profile_ledger_is_exact(const struct profile_ledger *ledger, struct why *why)
{
	uint64_t out = ledger->delivered, out_ns = ledger->delivered_ns;

	for (int i = 0; i < FLY_DROP_COUNT; i++) {
		out += ledger->dropped[i];
		out_ns += ledger->dropped_ns[i];
	}
	return sides_agree("ticks", "idle + filtered + taken", ledger->ticks,
			   ledger->idle + ledger->filtered + ledger->taken, "samples", why) &&
	       sides_agree("taken", "delivered + dropped", ledger->taken, out, "samples", why) &&
	       sides_agree("taken", "delivered + dropped", ledger->taken_ns, out_ns, "ns", why);
}
